#include "lab/analysis/thin.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>

#include "lab/commands/commands.h"
#include "lab/commands/numbers.h"
#include "lab/error.h"

namespace planish::lab {

namespace fs = std::filesystem;

void AddThin(CLI::App& app, Action& action) {
  struct Flags {
    fs::path from, to;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* thin = app.add_subcommand("thin", "Copy run folders with only what the report needs");
  thin->footer(
      "Each run keeps its relative path, with config.json, metrics.jsonl and result.json: no\n"
      "checkpoint, no events, about 60 evaluations of the metrics that the report draws, the last\n"
      "gradients, and no path of the machine. 'planish report TO' makes the same tables; long "
      "curves\n"
      "have fewer points. A copy of some hundred runs is a few megabytes.\n"
      "A run that cannot be read is left out with a warning on stderr.\n\n"
      "Example:\n"
      "  planish thin runs/xu2019 results/xu2019");
  thin->add_option("FROM", flags->from, "Folder with runs, at any depth")
      ->type_name("")
      ->required()
      ->check(NotEmpty("thin", "FROM"));
  thin->add_option("TO", flags->to, "Folder for the copies; replaces files in it")
      ->type_name("")
      ->required();
  thin->callback([&action, flags] {
    action = [flags] {
      if (flags->to.empty()) throw UsageError("[thin] TO must be a folder, got an empty name");
      const ThinnedRuns runs = ThinRuns(flags->from, flags->to);
      for (const std::string& fault : runs.faults) WarnOfLeftOutRun(fault);
      PrintText(fmt::format("{} runs: {}\n", runs.count,
                            fs::absolute(flags->to).lexically_normal().string()));
      return 0;
    };
  });
}

}  // namespace planish::lab
