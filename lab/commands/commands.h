#ifndef PLANISH_LAB_COMMANDS_COMMANDS_H_
#define PLANISH_LAB_COMMANDS_COMMANDS_H_

#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>
#include <string_view>
#include <vector>

#include "lab/analysis/sequential.h"
#include "lab/report/report.h"
#include "lab/run/results.h"

// Subcommands of planish, one file each. Each Add function declares one with its options. If the
// command line selects it, parsing sets `action`, which does the work and returns the exit status.
// Results go to stdout, progress and errors to stderr.
namespace planish::lab {

inline constexpr char kExitStatuses[] =
    "Exit status:\n"
    "  0    done; a run that diverges is a result, with a warning on stderr\n"
    "  1    failure: a run folder or output that cannot be read or written, too little memory, a\n"
    "       run that another process is using; with several runs, if one of them failed\n"
    "  2    wrong usage, or an environment variable with an invalid value\n"
    "  3    data missing or malformed; no run in the folders that can be read\n"
    "  130  stopped by Ctrl-C, 143 by SIGTERM, 129 by SIGHUP (the terminal was closed); run the\n"
    "       same command again to continue";

using Action = std::function<int()>;

/// Declares all subcommands of the program: those below, in the order of `planish --help`.
/// (planish-demo has a list of its own, lab/demo.cc.)
void AddCommands(CLI::App& app, Action& action);

void AddTrain(CLI::App& app, Action& action);
void AddTune(CLI::App& app, Action& action);
void AddReproduce(CLI::App& app, Action& action);
void AddSweep(CLI::App& app, Action& action);
void AddReport(CLI::App& app, Action& action);
void AddThin(CLI::App& app, Action& action);
void AddShow(CLI::App& app, Action& action);
void AddDiff(CLI::App& app, Action& action);
void AddList(CLI::App& app, Action& action);
void AddExport(CLI::App& app, Action& action);
void AddSample(CLI::App& app, Action& action);
void AddBench(CLI::App& app, Action& action);
void AddAnalyze(CLI::App& app, Action& action);
void AddTranslate(CLI::App& app, Action& action);
void AddSearch(CLI::App& app, Action& action);
void AddWrite(CLI::App& app, Action& action);
void AddMake(CLI::App& app, Action& action);
void AddData(CLI::App& app, Action& action);
void AddDownstream(CLI::App& app, Action& action);
void AddCompletion(CLI::App& app, Action& action);
void AddMan(CLI::App& app, Action& action);

/// Returns the options of a table on this process's stdout: the terminal's width, with emphasis. A
/// file, a pipe, NO_COLOR or TERM=dumb gives 80 plain columns.
TableOptions StdoutTable();

/// Prints text from data, names or models. Escapes control characters on a terminal. Throws like
/// Print.
void PrintText(std::string_view text);

/// Prints to stdout. Throws RunError with the system's reason if writing fails, possibly only at
/// the flush.
void Print(std::string_view text);
void FlushStdout();

/// Prints a warning as a line on stderr.
void Warn(std::string_view text);

/// Prints a line on stderr.
void Inform(std::string_view text);

/// Warns of an unreadable run or archive: an element of FoundRuns::faults.
void WarnOfLeftOutRun(std::string_view fault);

/// Returns the runs that FindRuns can read, and warns of each of the others.
std::vector<Run> FindReadableRuns(const std::vector<std::filesystem::path>& roots);

/// Returns the looks that FindLooks finds, and warns of each file that is left out.
std::vector<SequentialTests> FindReadableLooks(const std::vector<std::filesystem::path>& roots);

}  // namespace planish::lab

#endif  // PLANISH_LAB_COMMANDS_COMMANDS_H_
