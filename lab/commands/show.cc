#include <filesystem>
#include <memory>
#include <vector>

#include "lab/commands/commands.h"
#include "lab/commands/options.h"
#include "lab/run/results.h"

namespace planish::lab {

void AddShow(CLI::App& app, Action& action) {
  auto folders = std::make_shared<std::vector<std::filesystem::path>>();
  CLI::App* show = app.add_subcommand("show", "Show the runs in some folders as a table");
  show->footer(
      "A run that cannot be read is left out with a warning on stderr.\n\n"
      "Example:\n"
      "  planish show runs");
  show->add_option("FOLDER", *folders, "Folders with runs, at any depth, and archives")
      ->type_name("")
      ->required()
      ->check(NotEmpty("show", "FOLDER"));
  show->callback([&action, folders] {
    action = [folders] {
      Print(RenderTable(FindReadableRuns(*folders), StdoutTable()));
      return 0;
    };
  });
}

}  // namespace planish::lab
