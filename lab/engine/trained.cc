#include "lab/engine/trained.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "lab/base/format_integer.h"
#include "lab/data/file_content.h"
#include "lab/data/source.h"
#include "lab/engine/allocation_limit.h"
#include "lab/engine/checkpoint.h"
#include "lab/engine/load_data.h"
#include "lab/error.h"
#include "lab/run/posix_file.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

// Returns the file with the settings of `run`.
fs::path SettingsFile(const Run& run) {
  return fs::is_directory(run.folder) ? run.folder / "config.json" : run.folder;
}

// Bytes that Task::Make can allocate for a model of `elements` weights and for the indices of
// `cases`. Drawing weights takes copies of them; tasks allocate less than half of this.
int64_t BytesToMake(int64_t cases, int64_t elements) {
  constexpr int64_t kFixed = int64_t{16} << 20, kForElement = 64, kForCase = 64;
  return kFixed + kForElement * elements + kForCase * cases;
}

// Returns the setting that makes a model too large: the largest one with which, at its minimum, the
// model takes at most `bytes`. If there is none, returns the largest one whose minimum is refused.
std::optional<std::string> TooLargeSetting(const Task& task, const Settings& settings,
                                           const Dataset& data, int64_t bytes) {
  std::vector<const SettingSpec*> specs;
  for (const SettingSpec& spec : task.settings) {
    const bool is_of_data =
        std::ranges::find(task.data_settings, spec.name) != task.data_settings.end();
    const bool is_size = spec.value.is_number_integer() && spec.minimum && !is_of_data;
    if (is_size && static_cast<double>(settings.Int(spec.name)) > *spec.minimum) {
      specs.push_back(&spec);
    }
  }
  std::ranges::stable_sort(specs, std::greater(),
                           [&](const SettingSpec* spec) { return settings.Int(spec->name); });
  std::optional<std::string> refused;
  for (const SettingSpec* spec : specs) {
    Settings smaller = settings;
    smaller.Set(spec->name, std::to_string(static_cast<int64_t>(*spec->minimum)));
    try {
      const AllocationLimit limit(bytes);
      task.Make(smaller, data);
      return spec->name;
    } catch (const AllocationLimitExceeded&) {
      continue;
    } catch (const std::exception&) {
      if (!refused) refused = spec->name;
    }
  }
  return refused;
}

}  // namespace

std::unique_ptr<Experiment> MakeStored(const fs::path& file, const Task& task,
                                       const Settings& settings, const Dataset& data, int64_t cases,
                                       int64_t elements) {
  const int64_t bytes = BytesToMake(cases, elements);
  try {
    const AllocationLimit limit(bytes);
    return task.Make(settings, data);
  } catch (const AllocationLimitExceeded&) {
    const std::optional<std::string> name = TooLargeSetting(task, settings, data, bytes);
    FailToRead(file,
               fmt::format("its settings give a larger model than the {} that are stored{}",
                           Count(elements, "weight"),
                           name ? fmt::format(": {} is {}", *name, settings.Int(*name)) : ""));
  }
}

Settings SettingsOf(const Task& task, const Run& run) {
  Settings settings(task.settings);
  try {
    for (const auto& [name, value] : run.config.settings.items()) {
      settings.Set(name, Spelled(value));
    }
  } catch (const UsageError& e) {
    throw CannotRead(SettingsFile(run), e.what());
  }
  return settings;
}

Trained OpenTrained(const Task& task, const Run& run, const std::optional<fs::path>& folder) {
  if (!run.result) {
    throw RunError(fmt::format(
        "{} is an unfinished run; the planish train command that started it continues it",
        run.folder.string()));
  }
  const fs::path file = CheckpointFile(run.folder);
  if (!fs::exists(file)) {
    throw RunError(fmt::format("{} has no checkpoint", run.folder.string()));
  }
  const Settings settings = SettingsOf(task, run);
  const CheckpointSummary checkpoint = SummarizeCheckpoint(file);
  std::optional<fs::path> source = folder;
  if (!source && !checkpoint.data.empty()) source = GivenData(checkpoint.data);
  Trained trained;
  trained.data = LoadData(task, task.LoadSettings(settings, run.config.seed), source);
  if (trained.data->about.sha256 != run.config.data.sha256) {
    throw RunError(
        fmt::format("this is not the data that {} was trained on ({}): its checksum differs",
                    run.folder.string(), run.config.data.description));
  }
  int64_t cases = 0;
  for (const auto& [split, size] : trained.data->about.sizes) cases += size;
  trained.experiment =
      MakeStored(SettingsFile(run), task, settings, *trained.data, cases, checkpoint.elements);
  LoadBestWeights(file, trained.experiment->model());
  trained.experiment->model().eval();
  return trained;
}

std::unique_ptr<Experiment> OpenInitial(const Task& task, const Run& run, const Dataset& data) {
  std::unique_ptr<Experiment> experiment =
      task.MakeSeeded(SettingsOf(task, run), data, run.config.seed);
  experiment->model().eval();
  return experiment;
}

}  // namespace planish::lab
