#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "lab/commands/commands.h"
#include "lab/commands/options.h"
#include "lab/run/results.h"

namespace planish::lab {

namespace fs = std::filesystem;

void AddReport(CLI::App& app, Action& action) {
  struct Flags {
    std::vector<fs::path> folders;
    fs::path output = "report.html";
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* report =
      app.add_subcommand("report", "Write an HTML report of the runs in some folders");
  report->footer(
      "The report depends only on the runs' files: unfinished runs can be part of it, and the "
      "same\n"
      "runs give the same bytes. A run that cannot be read is left out with a warning on "
      "stderr.\n\n"
      "Example:\n"
      "  planish report runs -o report.html");
  report->add_option("FOLDER", flags->folders, "Folders with runs, at any depth, and archives")
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
      const std::vector<Run> runs = FindReadableRuns(flags->folders);
      WriteReport(runs, flags->output);
      PrintText(fmt::format("{}report: {}\n", Findings(runs),
                            fs::absolute(flags->output).lexically_normal().string()));
      return 0;
    };
  });
}

}  // namespace planish::lab
