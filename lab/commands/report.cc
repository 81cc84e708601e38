#include "lab/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "lab/commands/commands.h"
#include "lab/commands/options.h"
#include "lab/error.h"
#include "lab/report/export.h"
#include "lab/report/numbers.h"
#include "lab/run/atomic_file.h"
#include "lab/run/results.h"
#include "lab/theory/result_files.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

void RefuseInput(const char* option, const fs::path& output, const fs::path& input) {
  std::error_code ignored;
  if (output.empty() || !fs::equivalent(input, output, ignored)) return;
  throw UsageError(
      fmt::format("[report] {} must not be a file that is read, got {}", option, output.string()));
}

// Writes the numbers to the JSON file, and to a CSV file for each table, unless a path is empty.
void WriteNumbers(const std::vector<NumbersTable>& tables, const fs::path& json,
                  const fs::path& csv) {
  if (!json.empty()) WriteOutputFile(json, NumbersJson(tables));
  if (csv.empty()) return;
  std::error_code error;
  fs::create_directories(csv, error);
  if (error) {
    throw RunError(fmt::format("cannot make the folder {}: {}", csv.string(), error.message()));
  }
  for (const NumbersTable& table : tables) {
    WriteOutputFile(csv / (table.name + ".csv"), CsvOf(table.rows));
  }
}

}  // namespace

void AddReport(CLI::App& app, Action& action) {
  struct Flags {
    std::vector<fs::path> folders;
    fs::path output = "report.html", json, csv;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* report =
      app.add_subcommand("report", "Write an HTML report of the runs and analyses in some folders");
  report->footer(
      "The report depends only on the runs' files: unfinished runs can be part of it, and the "
      "same\n"
      "runs give the same bytes. A run that cannot be read is left out with a warning on "
      "stderr.\n"
      "JSON files of planish analyze in the folders, or given as arguments, have a section, too."
      "\n\n"
      "Example:\n"
      "  planish report runs -o report.html\n"
      "  planish report runs --csv numbers");
  report
      ->add_option("FOLDER", flags->folders,
                   "Folders with runs and analyses at any depth, archives, JSON files")
      ->type_name("")
      ->required()
      ->check(NotEmpty("report", "FOLDER"));
  report
      ->add_option("-o,--output", flags->output,
                   "File to write; replaces an existing one (default: report.html)")
      ->type_name("FILE")
      ->check(NotEmpty("report", "--output"));
  report->add_option("--json", flags->json, "Also write every number of the report to this file")
      ->type_name("FILE")
      ->check(NotEmpty("report", "--json"));
  report->add_option("--csv", flags->csv, "Also write them to CSV files in this folder")
      ->type_name("FOLDER")
      ->check(NotEmpty("report", "--csv"));
  report->callback([&action, flags] {
    action = [flags] {
      for (const fs::path& folder : flags->folders) {
        RefuseInput("--output", flags->output, folder);
        RefuseInput("--json", flags->json, folder);
      }
      FoundTheory theory = FindTheoryResults(flags->folders);
      for (const std::string& fault : theory.faults) WarnOfLeftOutRun(fault);
      std::vector<fs::path> folders = flags->folders;
      std::erase_if(folders, [&](const fs::path& folder) {
        return std::ranges::count(theory.roots, folder) > 0;
      });
      if (folders.empty() && theory.results.empty()) {
        throw DataError("there is no run, and no result of planish analyze can be read");
      }
      const std::vector<Run> runs =
          folders.empty() ? std::vector<Run>() : FindReadableRuns(folders);
      const ReportExtras extras{.theory = std::move(theory.results),
                                .looks = FindReadableLooks(flags->folders)};
      WriteReport(runs, flags->output, extras);
      if (!flags->json.empty() || !flags->csv.empty()) {
        WriteNumbers(NumbersOf(runs, extras), flags->json, flags->csv);
      }
      PrintText(fmt::format("{}report: {}\n", Findings(runs, 2, extras),
                            fs::absolute(flags->output).lexically_normal().string()));
      return 0;
    };
  });
}

}  // namespace planish::lab
