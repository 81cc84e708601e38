#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
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

// Scripts, with {commands}: patterns that find the command in the words; {words}: its completions;
// {values}: those of the preceding option.
constexpr char kBashScript[] =
    R"(# bash completion for planish, written by 'planish completion bash'.
_planish() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}}
  local command= offer= flags= arguments= i
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
  if [[ -z $offer ]]; then
    case "$command" in
{words}    esac
    if [[ $cur == -* ]]; then
      offer=$flags
    else
      offer=${{arguments:-'<files>'}}
    fi
  fi
  COMPREPLY=()
  if [[ $offer == '<files>' ]]; then
    compopt -o filenames 2>/dev/null
    while IFS= read -r i; do COMPREPLY+=("$i"); done < <(compgen -f -- "$cur")
  elif [[ $offer != '<none>' ]]; then
    while IFS= read -r i; do COMPREPLY+=("$i"); done < <(compgen -W "$offer" -- "$cur")
  fi
}}
complete -F _planish planish
)";

constexpr char kZshScript[] = R"(#compdef planish
# zsh completion for planish, written by 'planish completion zsh'.
_planish() {{
  local cur=${{words[CURRENT]}} prev=${{words[CURRENT-1]}}
  local command= offer= flags= arguments= i
  if [[ $cur == --*=* ]]; then
    prev=${{cur%%=*}}
    cur=${{cur#*=}}
    compset -P '*='
  fi
  for ((i = 2; i < CURRENT; ++i)); do
    case "$command/${{words[i]}}" in
{commands}    esac
  done
  case "$command $prev" in
{values}  esac
  if [[ -z $offer ]]; then
    case "$command" in
{words}    esac
    if [[ $cur == -* ]]; then
      offer=$flags
    else
      offer=${{arguments:-<files>}}
    fi
  fi
  if [[ $offer == '<files>' ]]; then
    _files
  elif [[ $offer != '<none>' ]]; then
    compadd -- ${{=offer}}
  fi
}}
# Completes at once if zsh has loaded this file as the function _planish.
if [[ ${{funcstack[1]}} == _planish ]]; then
  _planish "$@"
else
  compdef _planish planish
fi
)";

constexpr char kFishScript[] =
    R"(# fish completion for planish, written by 'planish completion fish'.
function __planish_complete
  set -l words (commandline -opc)
  set -l cur (commandline -ct)
  set -l prev $words[-1]
  set -l prefix ''
  set -l command ''
  set -l offer ''
  set -l flags ''
  set -l arguments ''
  if string match -q -- '--*=*' $cur
    set prev (string split -m 1 = -- $cur)[1]
    set prefix "$prev="
    set cur (string split -m 1 = -- $cur)[2]
  end
  set -e words[1]
  for word in $words
    switch "$command/$word"
{commands}    end
  end
  switch "$command $prev"
{values}  end
  if test -z "$offer"
    switch "$command"
{words}    end
    if string match -q -- '-*' $cur
      set offer $flags
    else if test -n "$arguments"
      set offer $arguments
    else
      set offer '<files>'
    end
  end
  if test "$offer" = '<files>'
    __fish_complete_path $cur | string replace -r '^' -- $prefix
  else if test "$offer" != '<none>'
    string split ' ' -- $offer | string replace -r '^' -- $prefix
  end
end
complete -c planish -f -a '(__planish_complete)'
)";

// Shell with its script and the lines of the script's parts.
struct Shell {
  const char* name;
  const char* script;
  const char* command;  // with the command before, the word and the command after it
  const char* values;   // with command, option and its values
  const char* words;    // with command, its options and its arguments
};
constexpr char kCommandLine[] = "      '{}/{}') command='{}' ;;\n";
constexpr char kValuesLine[] = "    '{} {}') offer='{}' ;;\n";
constexpr char kWordsLine[] = "      '{}') flags='{}' arguments='{}' ;;\n";
constexpr Shell kShells[] = {
    {"bash", kBashScript, kCommandLine, kValuesLine, kWordsLine},
    {"zsh", kZshScript, kCommandLine, kValuesLine, kWordsLine},
    {"fish", kFishScript, "      case '{}/{}'\n        set command '{}'\n",
     "    case '{} {}'\n      set offer '{}'\n",
     "      case '{}'\n        set flags '{}'\n        set arguments '{}'\n"},
};

std::vector<std::string> ShellNames() {
  std::vector<std::string> names;
  for (const Shell& shell : kShells) names.emplace_back(shell.name);
  return names;
}

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
    values = ShellNames();
  } else if (name == "--device") {
    values = {"cpu", "cuda"};
  } else {
    const bool is_file = type == "FILE" || type == "FOLDER" || type == "PATH" || type == "RUN" ||
                         !name.starts_with('-');
    return is_file ? kFiles : kNoCompletion;
  }
  return fmt::format("{}", fmt::join(values, " "));
}

// Parts of the script; see kBashScript.
struct Script {
  std::string commands, words, values;
};

// Adds `app`, whose words after "planish" are `command`, and its subcommands to the script.
void AddToScript(const Shell& shell, Script& script, const CLI::App& app,
                 const std::string& command) {
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
      script.values += fmt::format(fmt::runtime(shell.values), command, name, ValuesOf(*option));
    }
  }
  for (const CLI::App* subcommand : app.get_subcommands(nullptr)) {
    const std::string& name = subcommand->get_name();
    const std::string path = command.empty() ? name : command + " " + name;
    arguments.push_back(name);
    script.commands += fmt::format(fmt::runtime(shell.command), command, name, path);
    AddToScript(shell, script, *subcommand, path);
  }
  script.words += fmt::format(fmt::runtime(shell.words), command, fmt::join(options, " "),
                              fmt::join(arguments, " "));
}

}  // namespace

void AddCompletion(CLI::App& app, Action& action) {
  auto name = std::make_shared<std::string>();
  CLI::App* completion =
      app.add_subcommand("completion", "Print a script with which a shell completes planish");
  completion->footer(
      "Completes commands, options, tasks, papers and names of files. 'make install' installs the\n"
      "scripts where the shells find them.\n\n"
      "Example:\n"
      "  planish completion bash > ~/.local/share/bash-completion/completions/planish\n"
      "  . <(planish completion bash)\n"
      "  planish completion zsh > \"${fpath[1]}/_planish\"     # a folder of fpath, before "
      "compinit\n"
      "  planish completion fish > ~/.config/fish/completions/planish.fish");
  completion->add_option("SHELL", *name, "bash, zsh or fish")->type_name("")->required();
  completion->callback([&app, &action, name] {
    action = [&app, name] {
      const Shell* const shell = std::ranges::find(kShells, *name, &Shell::name);
      if (shell == std::end(kShells)) {
        throw UsageError(fmt::format("[completion] SHELL must be one of {}, got \"{}\"",
                                     fmt::join(ShellNames(), ", "), *name));
      }
      Script script;
      AddToScript(*shell, script, app, "");
      Print(fmt::format(fmt::runtime(shell->script), fmt::arg("commands", script.commands),
                        fmt::arg("words", script.words), fmt::arg("values", script.values)));
      return 0;
    };
  });
}

}  // namespace planish::lab
