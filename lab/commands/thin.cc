#include "lab/analysis/thin.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>

#include "lab/analysis/sequential.h"
#include "lab/commands/commands.h"
#include "lab/commands/options.h"
#include "lab/error.h"

namespace planish::lab {

namespace fs = std::filesystem;

void AddThin(CLI::App& app, Action& action) {
  struct Flags {
    fs::path from, to;
    bool folders = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* thin = app.add_subcommand("thin", "Archive runs with only what the report needs");
  thin->footer(
      "Each run keeps config.json, metrics.jsonl, result.json and predictions.csv.gz: no "
      "checkpoint,\n"
      "no events, about 60 evaluations of the metrics that the report draws, the last gradients, "
      "and\n"
      "no path of the machine. 'planish report TO' makes the same tables; long curves have fewer "
      "points.\n"
      "The runs of a table's column (one task, one batch size, all norms and seeds) share an\n"
      "archive, TO/TASK/PRESET-bBATCH[-KEY=VALUE...].runs.tar.gz. Runs are added to those that it\n"
      "has; a run of the same name is replaced, but not a finished one by an unfinished one.\n"
      "Archives can be read wherever folders with runs can. --folders extracts them.\n"
      "Copies looks.json of 'planish reproduce --until-decided'.\n"
      "A run that cannot be read is left out with a warning on stderr.\n\n"
      "Example:\n"
      "  planish thin runs/xu2019 results/xu2019\n"
      "  planish thin --folders results/xu2019 again\n\n" +
      std::string(kExitStatuses));
  thin->add_option("FROM", flags->from, "Folder with runs, at any depth, or an archive")
      ->type_name("")
      ->required()
      ->check(NotEmpty("thin", "FROM"));
  thin->add_option("TO", flags->to, "Folder for the archives")->type_name("")->required();
  thin->add_flag("--folders", flags->folders,
                 "Write a folder for each run instead of archives; replaces no other run");
  thin->callback([&action, flags] {
    action = [flags] {
      if (flags->to.empty()) throw UsageError("[thin] TO must be a folder, got an empty name");
      const ThinnedRuns runs = flags->folders ? ThinRunsToFolders(flags->from, flags->to)
                                              : ThinRuns(flags->from, flags->to);
      if (const fs::path looks = flags->from / kLooksFile; fs::exists(looks)) {
        WriteLooks(flags->to / kLooksFile, ReadLooks(looks));
      }
      for (const std::string& fault : runs.faults) WarnOfLeftOutRun(fault);
      for (const std::string& kept : runs.kept) Warn(kept);
      PrintText(fmt::format("{} runs: {}\n", runs.count,
                            fs::absolute(flags->to).lexically_normal().string()));
      return 0;
    };
  });
}

}  // namespace planish::lab
