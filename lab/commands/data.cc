#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lab/base/escape.h"
#include "lab/base/format_integer.h"
#include "lab/commands/commands.h"
#include "lab/commands/options.h"
#include "lab/data/source.h"
#include "lab/engine/data_inspector.h"
#include "lab/engine/load_data.h"
#include "lab/engine/settings_of_data.h"
#include "lab/engine/sweep.h"
#include "lab/error.h"
#include "lab/papers/paper_data.h"
#include "lab/tasks/tasks.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

struct CheckFlags {
  fs::path data;
  std::string task, preset;
  std::vector<std::string> sets;
};

// Setting of tasks that read several data sets, and its values that are not sets of their own.
constexpr std::string_view kDataSetting = "data";
constexpr std::string_view kNotSets[] = {"auto", "synthetic"};

// Returns the settings of a preset, or for a task's whole data: those of paper, if it has that.
Settings SettingsForCheck(const Task& task, const std::string& name,
                          const std::vector<std::string>& sets, const fs::path& path) {
  Settings settings(task.settings);
  const bool has_paper =
      std::ranges::find(task.presets, "paper", &Preset::name) != task.presets.end();
  if (!name.empty() || has_paper) {
    settings.Apply(FindPreset(task, name.empty() ? "paper" : name, "data check"));
  }
  std::set<std::string> given;
  for (const std::string& set : sets) {
    const size_t equals = set.find('=');
    if (equals == std::string::npos) {
      throw UsageError(fmt::format("[data check] --set must be KEY=VALUE, got {}", Quoted(set)));
    }
    settings.Set(set.substr(0, equals), set.substr(equals + 1));
    given.insert(set.substr(0, equals));
  }
  if (const auto* const of_data = dynamic_cast<const SettingsOfData*>(&task)) {
    for (const auto& [setting, value] : of_data->SettingsFor(settings, path)) {
      if (!given.contains(setting)) settings.Set(setting, value);
    }
  }
  return settings;
}

RunConfig::Data Inspect(const Task& task, const Settings& settings, const fs::path& path) {
  if (const auto* inspector = dynamic_cast<const DataInspector*>(&task)) {
    return inspector->Inspect(settings, path);
  }
  return LoadData(task, settings, path)->about;
}

// Returns the known data set of a paper with that checksum, or an empty name.
std::string_view PaperDataOf(std::string_view sha256) {
  for (const PaperData& known : KnownPaperData()) {
    if (known.sha256 == sha256) return known.name;
  }
  return "";
}

// Returns the values of the task's setting `data` to check, or one empty text.
std::vector<std::string> DataSetsOf(const Task& task, const std::vector<std::string>& sets) {
  const auto spec = std::ranges::find(task.settings, kDataSetting, &SettingSpec::name);
  const bool chosen = std::ranges::any_of(sets, [](const std::string& set) {
    return set.starts_with(std::string(kDataSetting) + "=");
  });
  if (spec == task.settings.end() || chosen) return {""};
  std::vector<std::string> values;
  for (const std::string& value : spec->choices) {
    if (std::ranges::find(kNotSets, value) == std::end(kNotSets)) values.push_back(value);
  }
  return values;
}

void PrintFound(const std::string& title, const RunConfig::Data& data) {
  std::vector<std::string> sizes;
  for (const char* set : {"train", "valid", "test"}) {
    if (const auto size = data.sizes.find(set); size != data.sizes.end()) {
      sizes.push_back(fmt::format("{} {}", set, FormatInteger(size->second)));
    }
  }
  const std::string_view known = PaperDataOf(data.sha256);
  PrintText(fmt::format("{}: found {}\n  {}\n  cases: {}\n  sha256 {}\n  {}\n", title, data.name,
                        data.description, fmt::join(sizes, ", "), data.sha256,
                        known.empty()
                            ? "no data set of a paper, or one whose checksum is not known"
                            : fmt::format("a paper's own data by its checksum: {}", known)));
}

// Data set of a task that is not in the folder.
struct Missing {
  std::string value;  // of the setting `data`; empty if the task has one data set
  std::string error;
};

// Prints the data sets of a task that are found. Returns the others.
std::vector<Missing> CheckTask(const Task& task, const CheckFlags& flags) {
  std::vector<Missing> missing;
  for (const std::string& value : DataSetsOf(task, flags.sets)) {
    std::vector<std::string> sets = flags.sets;
    if (!value.empty()) sets.push_back(fmt::format("{}={}", kDataSetting, value));
    const std::string title =
        value.empty() ? task.name : fmt::format("{}, {}={}", task.name, kDataSetting, value);
    const Settings settings = SettingsForCheck(task, flags.preset, sets, flags.data);
    try {
      PrintFound(title, Inspect(task, settings, flags.data));
    } catch (const DataError& e) {
      missing.push_back({value, e.what()});
    } catch (const UsageError& e) {  // settings that do not fit the data, such as train_cases
      if (!flags.task.empty() && value.empty()) throw;
      missing.push_back({value, e.what()});
    }
  }
  return missing;
}

int RunCheck(const CheckFlags& flags) {
  CheckDataPath(flags.data);
  const bool all = flags.task.empty();
  if (all && !flags.sets.empty()) {
    throw UsageError("[data check] --set needs a TASK");
  }
  if (all && !flags.preset.empty()) {
    throw UsageError("[data check] --preset needs a TASK");
  }
  std::vector<const Task*> tasks;
  if (all) {
    for (const auto& task : Tasks()) tasks.push_back(task.get());
  } else {
    tasks.push_back(&FindTask(flags.task));
  }
  bool found = false;
  for (const Task* task : tasks) {
    const std::vector<Missing> missing = CheckTask(*task, flags);
    const bool has_data = std::ssize(missing) < std::ssize(DataSetsOf(*task, flags.sets));
    found |= has_data;
    // Reading a folder as another data set of the task says nothing about the folder.
    if (has_data) continue;
    if (missing.size() == 1) {
      if (!all) throw DataError(missing.front().error);
      PrintText(fmt::format("{}: no: {}\n", task->name, missing.front().error));
      continue;
    }
    std::string text = fmt::format("{}: no:\n", task->name);
    for (const Missing& one : missing) {
      text += fmt::format("  {}={}: {}\n", kDataSetting, one.value, one.error);
    }
    PrintText(text);
  }
  if (found) return 0;
  throw DataError(fmt::format("{} has no data of {}", Escaped(flags.data.string()),
                              all ? "any task" : flags.task));
}

}  // namespace

void AddData(CLI::App& app, Action& action) {
  CLI::App* data = app.add_subcommand("data", "Check data for the tasks");
  data->require_subcommand(1);
  auto flags = std::make_shared<CheckFlags>();
  CLI::App* check =
      data->add_subcommand("check", "Read the data of the tasks, and say what is missing");
  check->footer(
      "Reads the files in DIR for each task, or for TASK, with the settings of its preset paper "
      "or\n"
      "NAME.\n"
      "Prints what was read, the cases of each set, the checksum, and whether it is a data set of\n"
      "a paper, by its checksum; or what is missing or wrong. Trains and writes nothing. Exit\n"
      "status 3 if no task, or not TASK, can read DIR.\n\n"
      "Examples:\n"
      "  planish data check DIR\n"
      "  planish data check pairs.tsv mt --set data=files --set direction=en-vi");
  check->add_option("DIR", flags->data, "Folder or file of the data")
      ->type_name("")
      ->required()
      ->check(NotEmpty("data check", "DIR"));
  check->add_option("TASK", flags->task, "Task (default: all)")
      ->type_name("")
      ->check(NotEmpty("data check", "TASK"));
  check->add_option("--preset", flags->preset, "Preset of TASK (default: paper)")
      ->type_name("NAME")
      ->check(NotEmpty("data check", "--preset"));
  check->add_option("--set", flags->sets, "Change a setting of TASK; can be repeated")
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->take_all();
  check->callback([&action, flags] { action = [flags] { return RunCheck(*flags); }; });
}

}  // namespace planish::lab
