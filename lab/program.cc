#include "lab/program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "lab/base/escape.h"
#include "lab/base/nearest.h"
#include "lab/commands/commands.h"
#include "lab/engine/machine.h"
#include "lab/engine/memory.h"
#include "lab/error.h"
#include "lab/run/json.h"
#include "planish/error.h"
#include "planish/target.h"
#include "src/base/tuning.h"

namespace planish::lab {
namespace {

constexpr int kFailure = 1;
constexpr int kUsage = 2;
constexpr int kData = 3;

constexpr char kOutOfMemory[] = "not enough memory for the model and the batch";

// Opens /dev/null for standard streams that the caller has closed. Otherwise a file of a run could
// get such a descriptor, and output would go into it. Writing to the descriptor fails.
void HoldStandardStreams() {
  for (int fd = 0; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) < 0) _exit(kFailure);
  }
}

// Returns the first line: a C++ backtrace follows in libtorch's errors.
std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

int Fail(int status, const std::string& message) {
  // Ignores failure: there is nowhere to report it.
  std::fputs(fmt::format("planish: {}\n", Escaped(FirstLine(message))).c_str(), stderr);
  return status;
}

// Returns "; did you mean train?" if a choice is near enough to `text`, else "".
std::string Suggestion(const std::string& text, const std::vector<std::string>& choices) {
  const std::optional<std::string> nearest = Nearest(text, choices);
  return nearest ? fmt::format("; did you mean {}?", *nearest) : "";
}

// Returns a message about arguments that `command` does not have, in the order given.
std::string UnknownText(const CLI::App& command, const std::vector<std::string>& unknown) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  const char* what = unknown.size() > 1            ? "unexpected arguments"
                     : unknown[0].starts_with('-') ? "unknown option"
                                                   : "unexpected argument";
  const std::string text = fmt::format("{} {}", what, fmt::join(unknown, " "));
  for (const std::string& argument : unknown) {
    if (!argument.starts_with('-')) continue;
    const std::string suggestion = Suggestion(argument.substr(0, argument.find('=')), names);
    if (!suggestion.empty()) return text + suggestion;
  }
  return text;
}

// Returns CLI11's message about the number of an option's values in plain words.
std::string MismatchText(const std::string& what) {
  const std::string option = what.substr(0, what.find_first_of(": "));
  if (what.ends_with(" missing")) return option + " must have a value";
  constexpr std::string_view kReceived = " received ";
  const size_t received = what.rfind(kReceived);
  if (received == std::string::npos) return what;
  return fmt::format("{} must be given once, got {} values", option,
                     what.substr(received + kReceived.size()));
}

// Returns an error of the command line in the form of the other errors.
std::string UsageText(const CLI::App& app, const CLI::ParseError& e) {
  const CLI::App* chosen = &app;  // the innermost command
  std::string command;            // "make cloze" for a command with subcommands
  for (auto at = app.get_subcommands(); !at.empty(); at = at[0]->get_subcommands()) {
    chosen = at[0];
    command += (command.empty() ? "" : " ") + chosen->get_name();
  }
  const std::string program = command.empty() ? "planish" : command;
  const std::string help = "planish" + (command.empty() ? "" : " " + command) + " --help";
  std::vector<std::string> choices;
  for (const CLI::App* choice : chosen->get_subcommands(nullptr)) {
    choices.push_back(choice->get_name());
  }
  const bool is_required = e.get_name() == "RequiredError";
  std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
  const bool starts_with_option = !unknown.empty() && unknown[0].starts_with('-');
  if (!choices.empty() && is_required && !starts_with_option) {
    return fmt::format(
        "[{}] the command must be one of {}, got {} (see {})", program, fmt::join(choices, ", "),
        unknown.empty() ? "none"
                        : fmt::format("\"{}\"{}", unknown[0], Suggestion(unknown[0], choices)),
        help);
  }
  std::string what = FirstLine(e.what());
  if (is_required) {
    // CLI11 checks for missing arguments first, but an unknown option is the likelier mistake.
    std::erase_if(unknown, [](const std::string& argument) { return !argument.starts_with('-'); });
  }
  const bool has_extras = e.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError);
  if ((has_extras || is_required) && !unknown.empty()) {
    what = UnknownText(*chosen, unknown);
  } else if (e.get_exit_code() == static_cast<int>(CLI::ExitCodes::ArgumentMismatch)) {
    what = MismatchText(what);
  }
  return fmt::format("[{}] {} (see {})", program, what, help);
}

// Returns the program's arguments, last first as CLI11 expects. Replaces "--flag=" by "--flag" and
// an empty value, because CLI11 would take the next argument for its value.
std::vector<std::string> ArgumentsOf(int argc, char** argv) {
  std::vector<std::string> arguments;
  bool flags = true;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    flags &= argument != "--";
    const bool is_empty = flags && argument.starts_with("--") && argument.ends_with('=') &&
                          argument.find('=') == argument.size() - 1;
    if (is_empty) {
      arguments.push_back(argument.substr(0, argument.size() - 1));
      arguments.emplace_back();
    } else {
      arguments.push_back(argument);
    }
  }
  std::ranges::reverse(arguments);
  return arguments;
}

// Throws UsageError for an invalid environment variable of the core, before a command writes
// anything.
void CheckEnvironment() {
  try {
    Target();                   // PLANISH_TARGET
    internal::CurrentTuning();  // PLANISH_TUNING
  } catch (const ArgumentError& e) {
    throw UsageError(e.what());
  }
}

int RunCommand(int argc, char** argv) {
  CLI::App app(
      "Train the experiments of the layer normalization papers with every norm, and report.",
      "planish");
  app.footer(std::string("'planish COMMAND --help' shows the options of a command.\n\n"
                         "Example:\n"
                         "  planish train pi-mnist --preset small --norm none,layer --batch-size 4 "
                         "--seeds 3\n"
                         "  planish report runs -o report.html\n\n") +
             kExitStatuses);
  app.require_subcommand(1);
  app.set_help_flag("-h,--help", "Print this help and exit");
  const auto version = [] {
    CheckEnvironment();
    return VersionText();
  };
  app.set_version_flag("--version", version,
                       "Print version, compiler, libtorch, CPU and what serves it, and exit");
  Action action;
  AddCommands(app, action);
  if (argc <= 1) {  // nothing was asked and nothing failed: like --help
    Print(app.help());
    FlushStdout();
    return 0;
  }
  try {
    app.parse(ArgumentsOf(argc, argv));
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() != 0) return Fail(kUsage, UsageText(app, e));
    std::ostringstream out;
    app.exit(e, out);  // prints the help or the version
    Print(out.str());
    FlushStdout();
    return 0;
  }
  CheckEnvironment();
  const int status = action();
  FlushStdout();
  return status;
}

// Returns the exit status.
int StatusOf(int argc, char** argv) {
  try {
    return RunCommand(argc, argv);
  } catch (const UsageError& e) {
    return Fail(kUsage, e.what());
  } catch (const DataError& e) {
    return Fail(kData, e.what());
  } catch (const std::filesystem::filesystem_error& e) {
    return Fail(kFailure,
                fmt::format("cannot access {}: {}", e.path1().string(), e.code().message()));
  } catch (const std::exception& e) {
    return Fail(kFailure, IsOutOfMemory(e) ? kOutOfMemory : JsonReason(e));
  }
}

}  // namespace

void RunProgram(int argc, char** argv) {
  HoldStandardStreams();
  KeepFreedMemory();
  LimitMemory();
  const int status = StatusOf(argc, argv);
  std::fflush(nullptr);
  std::quick_exit(status);  // libtorch's static destructors would take half as long as its start
}

}  // namespace planish::lab
