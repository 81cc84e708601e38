#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <string>
#include <vector>

#include "lab/commands/commands.h"
#include "lab/error.h"
#include "lab/papers/paper.h"
#include "lab/reproduce/arena_plan.h"
#include "lab/tasks/tasks.h"

namespace planish::lab {

namespace {

constexpr char kBash[] = "bash";

// The script with {commands}: patterns that find the command in the words; {words}: its
// completions; {values}: those of the preceding option.
constexpr char kScript[] = R"(# bash completion for planish, written by 'planish completion bash'.
_planish() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} command= words= i
  # bash splits --option=value into three words.
  if [[ $cur == = ]]; then
    cur=
  elif [[ $prev == = ]]; then
    prev=${{COMP_WORDS[COMP_CWORD-2]}}
  fi
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "$command/${{COMP_WORDS[i]}}" in
{commands}    esac
  done
  case "$command $prev" in
{values}  esac
  if [[ -z $words ]]; then
    case "$command" in
{words}    esac
    if [[ $cur == -* ]]; then
      words=$options
    elif [[ -n $arguments ]]; then
      words=$arguments
    else
      words='<files>'
    fi
  fi
  COMPREPLY=()
  if [[ $words == '<files>' ]]; then
    compopt -o filenames 2>/dev/null
    while IFS= read -r i; do COMPREPLY+=("$i"); done < <(compgen -f -- "$cur")
  elif [[ $words != '<none>' ]]; then
    while IFS= read -r i; do COMPREPLY+=("$i"); done < <(compgen -W "$words" -- "$cur")
  fi
}}
complete -F _planish planish
)";

constexpr char kFiles[] = "<files>";
constexpr char kNoCompletion[] = "<none>";

// Returns what completes an argument, or the value of an option.
std::string ValuesOf(const CLI::Option& option) {
  const std::string name = option.get_name(), type = option.get_type_name();
  std::vector<std::string> values;
  if (name == "TASK") {
    for (const auto& task : Tasks()) values.push_back(task->name);
  } else if (name == "PAPER") {
    for (const Paper& paper : Papers()) values.push_back(paper.name);
    values.emplace_back(kArenaName);
  } else if (name == "SHELL") {
    values.emplace_back(kBash);
  } else if (name == "--device") {
    values = {"cpu", "cuda"};
  } else {
    const bool is_file = type == "FILE" || type == "FOLDER" || type == "PATH" || type == "RUN" ||
                         !name.starts_with('-');
    return is_file ? kFiles : kNoCompletion;
  }
  return fmt::format("{}", fmt::join(values, " "));
}

// Parts of the script; see kScript.
struct Script {
  std::string commands, words, values;
};

// Adds `app`, whose words after "planish" are `command`, and its subcommands to the script.
void AddToScript(Script& script, const CLI::App& app, const std::string& command) {
  std::vector<std::string> options, arguments;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      const std::string values = ValuesOf(*option);
      if (arguments.empty() && values != kFiles) arguments.push_back(values);
      continue;
    }
    std::vector<std::string> names;
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    options.insert(options.end(), names.begin(), names.end());
    if (option->get_expected_min() == 0) continue;  // a flag
    for (const std::string& name : names) {
      script.values +=
          fmt::format("    '{} {}') words='{}' ;;\n", command, name, ValuesOf(*option));
    }
  }
  for (const CLI::App* subcommand : app.get_subcommands(nullptr)) {
    const std::string& name = subcommand->get_name();
    const std::string path = command.empty() ? name : command + " " + name;
    arguments.push_back(name);
    script.commands += fmt::format("      '{}/{}') command='{}' ;;\n", command, name, path);
    AddToScript(script, *subcommand, path);
  }
  script.words += fmt::format("      '{}') local options='{}' arguments='{}' ;;\n", command,
                              fmt::join(options, " "), fmt::join(arguments, " "));
}

}  // namespace

void AddCompletion(CLI::App& app, Action& action) {
  auto shell = std::make_shared<std::string>();
  CLI::App* completion =
      app.add_subcommand("completion", "Print a script with which a shell completes planish");
  completion->footer(
      "Completes commands, options, tasks, papers and names of files. 'make install' installs the\n"
      "script where bash finds it.\n\n"
      "Example:\n"
      "  planish completion bash > ~/.local/share/bash-completion/completions/planish\n"
      "  . <(planish completion bash)");
  completion->add_option("SHELL", *shell, "bash")->type_name("")->required();
  completion->callback([&app, &action, shell] {
    action = [&app, shell] {
      if (*shell != kBash) {
        throw UsageError(fmt::format("[completion] SHELL must be {}, got \"{}\"", kBash, *shell));
      }
      Script script;
      AddToScript(script, app, "");
      Print(fmt::format(kScript, fmt::arg("commands", script.commands),
                        fmt::arg("words", script.words), fmt::arg("values", script.values)));
      return 0;
    };
  });
}

}  // namespace planish::lab
