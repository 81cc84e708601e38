#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include "lab/commands/commands.h"
#include "lab/commands/options.h"
#include "lab/error.h"
#include "lab/run/results.h"
#include "lab/theory/result_files.h"

namespace planish::lab {

namespace fs = std::filesystem;

void AddReport(CLI::App& app, Action& action) {
  struct Flags {
    std::vector<fs::path> folders;
    fs::path output = "report.html";
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
      "  planish report runs -o report.html");
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
  report->callback([&action, flags] {
    action = [flags] {
      for (const fs::path& folder : flags->folders) {
        std::error_code ignored;
        if (fs::equivalent(folder, flags->output, ignored)) {
          throw UsageError(fmt::format("[report] --output must not be a file that is read, got {}",
                                       flags->output.string()));
        }
      }
      const FoundTheory theory = FindTheoryResults(flags->folders);
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
      WriteReport(runs, flags->output, theory.results);
      PrintText(fmt::format("{}report: {}\n", Findings(runs, 2, theory.results),
                            fs::absolute(flags->output).lexically_normal().string()));
      return 0;
    };
  });
}

}  // namespace planish::lab
