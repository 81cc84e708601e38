#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <string>

#include "lab/commands/commands.h"
#include "lab/commands/options.h"
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

void ListTask(const Task& task) {
  Print(fmt::format("{}: {}\n\npresets (--preset)\n", task.name, task.summary));
  for (const Preset& preset : task.presets)
    Print(fmt::format("  {:<22} {}\n", preset.name, preset.help));
  Print(fmt::format("\nsettings (--set key=value), with their defaults\n"));
  for (const SettingSpec& spec : task.settings) {
    Print(fmt::format("  {:<22} {:<6} {} ({})\n", spec.name, Spelled(spec.value), spec.help,
                      Range(spec)));
  }
}

}  // namespace

void AddList(CLI::App& app, Action& action) {
  auto name = std::make_shared<std::string>();
  CLI::App* list = app.add_subcommand("list", "List the tasks, or one task's presets and settings");
  list->footer("Example:\n  planish list pi-mnist");
  list->add_option("TASK", *name, "Task (default: list all tasks)")
      ->type_name("")
      ->check(NotEmpty("list", "TASK"));
  list->callback([&action, name] {
    action = [name] {
      if (name->empty()) {
        for (const auto& task : Tasks())
          Print(fmt::format("{:<12} {}\n", task->name, task->summary));
      } else {
        ListTask(FindTask(*name));
      }
      return 0;
    };
  });
}

}  // namespace planish::lab
