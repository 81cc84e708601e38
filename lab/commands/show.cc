#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lab/analysis/arena.h"
#include "lab/commands/commands.h"
#include "lab/commands/options.h"
#include "lab/error.h"
#include "lab/report/arena_html.h"
#include "lab/report/export.h"
#include "lab/run/results.h"

namespace planish::lab {

void AddShow(CLI::App& app, Action& action) {
  struct Flags {
    std::vector<std::filesystem::path> folders;
    bool json = false, csv = false, runs = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* show =
      app.add_subcommand("show", "Show the runs in some folders as a table, JSON or CSV");
  show->footer(
      "--json and --csv have exact values in the units of the run folders, for other programs: a\n"
      "row for each line of the table, or with --runs for each run. Missing values are null or\n"
      "empty. docs/files.md describes the columns.\n"
      "Leaves out the runs of 'planish tune' if there are others, except with --runs. A run that\n"
      "cannot be read is left out with a warning on stderr.\n\n"
      "Example:\n"
      "  planish show runs\n"
      "  planish show --csv --runs runs > runs.csv");
  show->add_option("FOLDER", flags->folders, "Folders with runs, at any depth, and archives")
      ->type_name("")
      ->required()
      ->check(NotEmpty("show", "FOLDER"));
  show->add_flag("--json", flags->json, "Print JSON instead of a table");
  show->add_flag("--csv", flags->csv, "Print CSV (RFC 4180) instead of a table");
  show->add_flag("--runs", flags->runs, "With --json or --csv: a row for each run");
  show->callback([&action, flags] {
    action = [flags] {
      if (flags->json && flags->csv) {
        throw UsageError("[show] the format must be --json or --csv, got both");
      }
      if (flags->runs && !flags->json && !flags->csv) {
        throw UsageError("[show] --runs must come with --json or --csv");
      }
      std::vector<Run> runs = FindReadableRuns(flags->folders);
      const ExportRow row = flags->runs ? ExportRow::kRun : ExportRow::kGroup;
      std::string ranking;
      if (!flags->runs && !std::ranges::all_of(runs, IsTuningRun)) {
        // Tuning runs take no part in the comparison.
        ranking = BriefRanking(runs);
        KeepComparedRuns(runs);
      }
      if (flags->json || flags->csv) {
        PrintText(flags->json ? RenderJson(runs, row) : RenderCsv(runs, row));
      } else {
        Print(RenderTable(runs, StdoutTable()));
        PrintText(ranking);
      }
      return 0;
    };
  });
}

}  // namespace planish::lab
