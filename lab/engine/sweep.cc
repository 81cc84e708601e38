#include "lab/engine/sweep.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "lab/error.h"
#include "lab/run/former_settings.h"

namespace planish::lab {

namespace {

// Returns the run's folder name: the value of the setting `compared` and the batch size, then every
// other setting that differs from the preset.
std::string FolderName(const RunPlan& plan, const Settings& preset, const std::string& compared) {
  std::string name = fmt::format("{}-{}-b{}", plan.preset, plan.settings.Text(compared),
                                 plan.settings.Int("batch_size"));
  for (const auto& [key, value] : plan.settings.values().items()) {
    if (key == compared || key == "batch_size" || value == preset.values().at(key)) continue;
    name += fmt::format("-{}={}", key, Spelled(value));
  }
  std::ranges::replace(name, '/', '_');
  return fmt::format("{}-s{}", name, plan.seed);
}

// Throws UsageError for shards in a task that needs whole batches.
void CheckShards(const Task& task, const Settings& settings) {
  const int64_t shards = settings.Int("shards");
  if (shards > 1 && !task.why_whole.empty()) {
    throw UsageError(fmt::format("[train] shards must be 1 in {}, because {}, got {}", task.name,
                                 task.why_whole, shards));
  }
}

// Throws RequestError unless `values` are values of the setting `name`, each given once.
void CheckValues(const Task& task, Settings settings, const std::string& name,
                 const std::vector<std::string>& values) {
  const bool is_known = settings.Has(PresentSetting(name));
  std::set<nlohmann::ordered_json> seen;
  for (size_t i = 0; i < values.size(); ++i) {
    try {
      settings.Set(name, values[i]);
      CheckShards(task, settings);
    } catch (const UsageError& error) {
      throw RequestError(error.what(), name, is_known ? std::optional(i) : std::nullopt);
    }
    if (!seen.insert(settings.values().at(PresentSetting(name))).second) {
      throw RequestError(
          fmt::format("[train] {} must name each value once, got {} twice", name, values[i]), name,
          i);
    }
  }
}

}  // namespace

const Preset& FindPreset(const Task& task, const std::string& name, const std::string& command) {
  if (name.empty()) return task.presets.front();
  std::vector<std::string> names;
  for (const Preset& preset : task.presets) {
    if (preset.name == name) return preset;
    names.push_back(preset.name);
  }
  throw RequestError(fmt::format("[{}] preset must be one of {}, got \"{}\"", command,
                                 fmt::join(names, ", "), name),
                     "preset");
}

std::vector<std::string> SplitList(const std::string& flag, const std::string& text,
                                   const std::string& command) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end == begin) {
      throw UsageError(fmt::format("[{}] {} must be a list without empty parts, got \"{}\"",
                                   command, flag, text));
    }
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

void AddComparedValues(const Task& task, SweepRequest& request) {
  const std::string& compared = task.report.compare;
  const auto spec = std::ranges::find(task.settings, compared, &SettingSpec::name);
  const bool is_given = std::ranges::any_of(request.values, [&](const auto& setting) {
    return PresentSetting(setting.first) == compared;
  });
  if (is_given || spec == task.settings.end() || spec->compared.empty()) return;
  request.values.emplace(request.values.begin(), compared, spec->compared);
}

std::vector<RunPlan> PlanSweep(const Task& task, const SweepRequest& request) {
  Settings base(task.settings);
  const Preset& preset = FindPreset(task, request.preset);
  base.Apply(preset);
  CheckShards(task, base);

  std::set<std::string> seen;
  std::vector<Settings> combinations = {base};
  for (const auto& [name, values] : request.values) {
    if (!seen.insert(PresentSetting(name)).second) {
      throw RequestError(
          fmt::format("[train] {} must be given once, got several lists: write {}=A,B", name, name),
          name);
    }
    CheckValues(task, base, name, values);
    // The product cannot overflow: command lines and sweep files limit the length of a list.
    if (combinations.size() * values.size() * std::max<size_t>(1, request.seeds.size()) >
        kMaxSweepRuns) {
      throw RequestError(
          fmt::format("[train] a sweep must have at most {} runs, got more", kMaxSweepRuns), name);
    }
    std::vector<Settings> next;
    for (const Settings& combination : combinations) {
      for (const std::string& value : values) {
        next.push_back(combination);
        next.back().Set(name, value);
      }
    }
    combinations = std::move(next);
  }

  std::vector<RunPlan> plans;
  for (const int64_t seed : request.seeds) {
    for (const Settings& settings : combinations) {
      RunPlan plan{settings, preset.name, seed, {}};
      plan.folder = request.out / task.name / FolderName(plan, base, task.report.compare);
      plans.push_back(std::move(plan));
    }
  }
  return plans;
}

}  // namespace planish::lab
