#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "lab/commands/commands.h"
#include "lab/commands/options.h"
#include "lab/engine/sweep.h"
#include "lab/error.h"
#include "lab/tasks/tasks.h"

namespace planish::lab {

namespace {

// Returns the range of a number ("128 or more") or the choices of a text.
std::string Range(const SettingSpec& spec) {
  if (!spec.choices.empty()) return fmt::format("{}", fmt::join(spec.choices, "|"));
  if (!spec.value.is_number()) return spec.value.is_boolean() ? "true|false" : "text";
  std::string text = spec.value.is_number_integer() ? "whole number" : "number";
  if (spec.minimum) text += fmt::format(", {:.10g}", *spec.minimum);
  if (spec.maximum) text += fmt::format(" to {:.10g}", *spec.maximum);
  return text;
}

void ListSettings(const Task& task, const Settings& settings) {
  for (const SettingSpec& spec : task.settings) {
    Print(fmt::format("  {:<22} {:<6} {} ({})\n", spec.name,
                      Spelled(settings.values().at(spec.name)), spec.help, Range(spec)));
  }
}

void ListTask(const Task& task) {
  Print(fmt::format("{}: {}\n\npresets (--preset)\n", task.name, task.summary));
  for (const Preset& preset : task.presets)
    Print(fmt::format("  {:<22} {}\n", preset.name, preset.help));
  SweepRequest request;
  AddComparedValues(task, request);
  for (const auto& [name, values] : request.values) {
    Print(fmt::format("\ncompared unless --{} is given\n  {}\n", name, fmt::join(values, ", ")));
  }
  Print(fmt::format("\nsettings (--set key=value), with their defaults\n"));
  ListSettings(task, Settings(task.settings));
}

// Prints what `planish train TASK --preset NAME` trains.
void ListPreset(const Task& task, const std::string& name) {
  SweepRequest request;
  request.preset = name;
  request.seeds = {1};
  AddComparedValues(task, request);
  const std::vector<RunPlan> plans = PlanSweep(task, request);
  const auto preset = std::ranges::find(task.presets, name, &Preset::name);
  Print(
      fmt::format("{}, preset {}: {}\n\nruns of 'planish train {} --preset {}', each with seed 1\n",
                  task.name, name, preset->help, task.name, name));
  for (const RunPlan& plan : plans) {
    const std::string& compared = task.report.compare;
    Print(fmt::format("  {} {:<21} {}\n", compared, plan.settings.Text(compared),
                      plan.folder.filename().string()));
  }
  Print("\nsettings (--set key=value), with the values of the preset\n");
  ListSettings(task, plans.front().settings);
}

}  // namespace

void AddList(CLI::App& app, Action& action) {
  auto name = std::make_shared<std::string>(), preset = std::make_shared<std::string>();
  CLI::App* list = app.add_subcommand("list", "List the tasks, or one task's presets and settings");
  list->footer(
      "With --preset, lists the runs that 'planish train TASK --preset NAME' trains, and their\n"
      "settings.\n\n"
      "Example:\n"
      "  planish list pi-mnist\n"
      "  planish list pi-mnist --preset small");
  list->add_option("TASK", *name, "Task (default: list all tasks)")
      ->type_name("")
      ->check(NotEmpty("list", "TASK"));
  list->add_option("--preset", *preset, "List the runs and settings of this preset of TASK")
      ->type_name("NAME")
      ->check(NotEmpty("list", "--preset"));
  list->callback([&action, name, preset] {
    action = [name, preset] {
      if (name->empty()) {
        if (!preset->empty()) throw UsageError("[list] --preset must be given with a TASK");
        for (const auto& task : Tasks())
          Print(fmt::format("{:<12} {}\n", task->name, task->summary));
      } else if (preset->empty()) {
        ListTask(FindTask(*name));
      } else {
        ListPreset(FindTask(*name), *preset);
      }
      return 0;
    };
  });
}

}  // namespace planish::lab
