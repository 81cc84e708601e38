#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>

#include "lab/commands/commands.h"
#include "lab/commands/options.h"
#include "lab/commands/trained_run.h"
#include "lab/engine/model_file.h"
#include "lab/error.h"

namespace planish::lab {

namespace {

struct ExportFlags {
  TrainedRunFlags trained;
  std::filesystem::path out;
  std::string dtype = "float32";
};

int RunExport(const ExportFlags& flags) {
  if (flags.dtype != "float32" && flags.dtype != "float16") {
    throw UsageError(
        fmt::format("[export] --dtype must be float32 or float16, got \"{}\"", flags.dtype));
  }
  TrainedRun run("export", flags.trained);
  run.Export(flags.out, flags.dtype == "float16" ? at::kHalf : at::kFloat);
  return 0;
}

}  // namespace

void AddExport(CLI::App& app, Action& action) {
  auto flags = std::make_shared<ExportFlags>();
  CLI::App* command =
      app.add_subcommand("export", "Write a run's trained model to a file that needs no data");
  command->footer(
      "Writes a safetensors file with the weights of the evaluation that validation chose, the\n"
      "settings, and what the model needs of its data, such as the vocabulary. sample, translate,\n"
      "write, search and downstream take the file in place of a run. For the tasks char-lm, "
      "enwik8,\n"
      "mt, handwriting, draw and skip-thoughts.\n\n"
      "Example:\n"
      "  planish export runs/mt/small-layer-b1024-s1 -o de-en.safetensors\n"
      "  echo 'Ein Hund schläft.' | planish translate de-en.safetensors");
  AddRunArgument(*command, flags->trained, "Folder of a finished run");
  command->add_option("-o,--out", flags->out, "File for the model")
      ->type_name("FILE")
      ->required()
      ->check(NotEmpty("export", "--out"));
  command
      ->add_option("--dtype", flags->dtype,
                   "Type of the weights in the file: float32 (default), or float16 for half the "
                   "size")
      ->type_name("TYPE");
  AddTrainedRunOptions(*command, flags->trained);
  command->callback([&action, flags] { action = [flags] { return RunExport(*flags); }; });
}

}  // namespace planish::lab
