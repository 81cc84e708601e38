#include "lab/analysis/arena.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "lab/analysis/format.h"
#include "lab/analysis/summary.h"

namespace planish::lab {

namespace {

using Json = nlohmann::json;

struct Grouped {
  std::map<double, std::vector<const Run*>> tuning, compared;  // rate -> runs, one a seed
};

// Adds a run unless a run with its seed is there that has ended.
void Add(std::vector<const Run*>& runs, const Run& run) {
  const auto same = std::ranges::find_if(
      runs, [&](const Run* other) { return other->config.seed == run.config.seed; });
  if (same == runs.end()) {
    runs.push_back(&run);
  } else if (StatusOf(**same) == Status::kUnfinished) {
    *same = &run;
  }
}

// Returns the settings but the rate, including the preset.
Json KeyOf(const RunConfig& config) {
  Json key = config.settings;
  key.erase(kRateSetting);
  key["preset"] = config.preset;
  return key;
}

const MetricSpec* Find(const RunConfig& config, const std::string& name) {
  const auto found = std::ranges::find(config.metrics, name, &MetricSpec::name);
  return found == config.metrics.end() ? nullptr : &*found;
}

// Returns the values of settings that differ among the entries: the compared setting first, then
// texts, names of true flags, and phrases of numbers.
std::string LabelOf(const Json& settings, const std::string& compare,
                    const std::set<std::string>& varying) {
  std::string label = SettingText(settings.value(compare, Json("all runs")));
  for (const std::string& name : varying) {
    if (name == compare) continue;
    const Json value = settings.value(name, Json());
    if (value.is_boolean()) {
      if (value.get<bool>()) label += ", " + name;
    } else {
      const bool is_word = value.is_string() && value != "";
      label += ", " + (is_word ? value.get<std::string>() : SettingPhrase(name, value));
    }
  }
  return label;
}

std::set<std::string> VaryingSettings(const std::vector<ArenaEntry>& entries) {
  std::set<std::string> names;
  for (const ArenaEntry& entry : entries) {
    for (const ArenaEntry& other : entries) {
      for (const auto& [name, value] : entry.settings.items()) {
        if (other.settings.value(name, Json()) != value) names.insert(name);
      }
    }
  }
  return names;
}

// Measures the runs of an entry at its chosen rate.
void MeasureEntry(ArenaEntry& entry, const ArenaTask& task, const Grouped& grouped) {
  const auto at_rate = grouped.compared.find(entry.rate());
  if (at_rate == grouped.compared.end()) return;
  entry.runs = at_rate->second;
  const Group group{entry.label, entry.runs};
  entry.values = ValuesOf(group, task.metric->name, Measure::kBest);
  entry.estimate = EstimateMean(entry.values);
  entry.diverged = group.CountOf(Status::kDiverged);
  std::vector<double> seconds;
  for (const Run* run : group.runs) {
    if (StatusOf(*run) == Status::kFinished && run->result->steps > 0) {
      seconds.push_back(run->result->seconds / static_cast<double>(run->result->steps));
    }
  }
  if (!seconds.empty()) entry.seconds_per_step = EstimateMean(seconds).mean;
}

void Rank(ArenaTask& task) {
  const double sign = task.metric->lower_is_better ? 1 : -1;
  std::ranges::stable_sort(task.entries, [&](const ArenaEntry& a, const ArenaEntry& b) {
    const auto key = [&](const ArenaEntry& e) {
      return std::tuple(e.values.empty(), e.diverged, sign * e.estimate.mean);
    };
    return key(a) < key(b);
  });
  const auto count = std::ranges::count_if(
      task.entries, [](const ArenaEntry& entry) { return !entry.values.empty(); });
  if (count < 2) return;
  // The truly best entry is excluded only if one of the count - 1 others seems better by more than
  // its bound: each does with a probability of at most 5% / (count - 1).
  const double confidence = 1 - 2 * 0.05 / static_cast<double>(count - 1);
  const ArenaEntry& first = task.entries.front();
  for (ArenaEntry& entry : task.entries) {
    if (&entry == &first || entry.values.empty()) continue;
    entry.behind = PairedDifference(entry.values, first.values);
    if (!entry.behind.half_width) continue;
    const Estimate bounded = AtConfidence(entry.behind, confidence);
    entry.bound = bounded.half_width;
    entry.is_told_apart = SureSign(bounded) * sign > 0;
  }
}

// Task, preset, data and unit.
using TaskKey = std::tuple<std::string, std::string, std::string, std::string>;

TaskKey TaskOf(const RunConfig& config) {
  return {config.task, config.preset, config.data.sha256, HeadlineUnit(config)};
}

// Returns true if the run is of an entry of the task, at the entry's chosen rate.
bool IsAtChosenRate(const Run& run, const ArenaTask& task) {
  const auto entry = std::ranges::find(task.entries, KeyOf(run.config), &ArenaEntry::settings);
  return entry != task.entries.end() && entry->chosen &&
         run.config.settings.value(kRateSetting, Json()) == Json(entry->rate());
}

}  // namespace

RateTrial TrialOf(double rate, const std::vector<const Run*>& runs) {
  RateTrial trial{.rate = rate};
  std::vector<double> values;
  for (const Run* run : runs) {
    if (StatusOf(*run) == Status::kUnfinished) continue;
    ++trial.runs;
    const bool finished = StatusOf(*run) == Status::kFinished && run->result->best;
    if (!finished) {
      ++trial.diverged;
      continue;
    }
    const auto value = run->result->best->values.find(run->result->best->by);
    if (value != run->result->best->values.end()) values.push_back(value->second);
  }
  trial.mean = EstimateMean(values).mean;
  return trial;
}

std::optional<size_t> ChooseRate(const std::vector<RateTrial>& trials, bool lower_is_better) {
  std::optional<size_t> best;
  const auto key = [&](size_t i) {
    return std::tuple(trials[i].diverged, lower_is_better ? trials[i].mean : -trials[i].mean,
                      trials[i].rate);
  };
  for (size_t i = 0; i < trials.size(); ++i) {
    if (trials[i].runs == trials[i].diverged) continue;
    if (!best || key(i) < key(*best)) best = i;
  }
  return best;
}

TwoWayResult TwoWayBehind(const ArenaTask& arena, const ArenaEntry& entry) {
  const ArenaEntry& first = arena.entries.front();
  if (&entry == &first || entry.values.empty() || first.values.empty()) return {};
  return TwoWayDifference({entry.label, entry.runs}, {first.label, first.runs}, *arena.metric);
}

void KeepComparedRuns(std::vector<Run>& runs) {
  for (const ArenaTask& arena : FindArenas(runs)) {
    const auto is_of_arena = [key = TaskOf(*arena.config)](const Run& run) {
      return !IsTuningRun(run) && TaskOf(run.config) == key;
    };
    const bool are_all_tuned = std::ranges::all_of(
        runs, [&](const Run& run) { return !is_of_arena(run) || IsAtChosenRate(run, arena); });
    for (Run& run : runs) run.is_rate_tuned |= are_all_tuned && is_of_arena(run);
  }
  std::erase_if(runs, IsTuningRun);
}

std::vector<ArenaTask> FindArenas(const std::vector<Run>& runs) {
  // Task -> settings -> runs.
  std::map<TaskKey, std::map<Json, Grouped>> tasks;
  std::set<TaskKey> tuned;
  for (const Run& run : runs) {
    const auto rate = run.config.settings.find(kRateSetting);
    if (rate == run.config.settings.end() || !rate->is_number()) continue;
    const TaskKey key = TaskOf(run.config);
    Grouped& grouped = tasks[key][KeyOf(run.config)];
    if (IsTuningRun(run)) tuned.insert(key);
    Add((IsTuningRun(run) ? grouped.tuning : grouped.compared)[rate->get<double>()], run);
  }
  std::vector<ArenaTask> arenas;
  for (const auto& key : tuned) {
    ArenaTask task;
    std::set<double> rates;
    std::vector<std::pair<ArenaEntry, const Grouped*>> entries;
    for (const auto& [settings, grouped] : tasks[key]) {
      if (grouped.tuning.empty()) continue;
      ArenaEntry& entry = entries.emplace_back(ArenaEntry{.settings = settings}, &grouped).first;
      for (const auto& [rate, trial] : grouped.tuning) {
        rates.insert(rate);
        entry.trials.push_back(TrialOf(rate, trial));
        task.tuning_seeds = std::max(task.tuning_seeds, entry.trials.back().runs);
        task.config = &trial.front()->config;
      }
    }
    task.rates.assign(rates.begin(), rates.end());
    task.metric = Find(*task.config, task.config->report.headline);
    if (!task.metric || rates.size() < 2) continue;
    for (auto& [entry, grouped] : entries) {
      const bool is_tuned = entry.trials.size() == rates.size() &&
                            std::ranges::all_of(entry.trials, [&](const RateTrial& trial) {
                              return trial.runs == task.tuning_seeds;
                            });
      // All runs of a task are chosen by the same metric.
      for (const auto& [rate, trial] : grouped->tuning) {
        for (const Run* run : trial) {
          if (run->result && run->result->best) {
            task.chosen_by = Find(run->config, run->result->best->by);
          }
        }
      }
      if (is_tuned && task.tuning_seeds > 0 && task.chosen_by) {
        entry.chosen = ChooseRate(entry.trials, task.chosen_by->lower_is_better);
      }
      if (entry.chosen) MeasureEntry(entry, task, *grouped);
      task.seeds = std::max(task.seeds, static_cast<int>(entry.values.size()) + entry.diverged);
      task.entries.push_back(std::move(entry));
    }
    const std::set<std::string> varying = VaryingSettings(task.entries);
    for (ArenaEntry& entry : task.entries) {
      entry.label = LabelOf(entry.settings, task.config->report.compare, varying);
    }
    Rank(task);
    arenas.push_back(std::move(task));
  }
  return arenas;
}

}  // namespace planish::lab
