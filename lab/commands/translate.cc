#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lab/commands/commands.h"
#include "lab/commands/numbers.h"
#include "lab/data/lines.h"
#include "lab/data/source.h"
#include "lab/engine/capabilities.h"
#include "lab/engine/trained.h"
#include "lab/error.h"
#include "lab/run/results.h"
#include "lab/tasks/tasks.h"

namespace planish::lab {

namespace {

namespace fs = std::filesystem;

// Lines of a batch if stdin is not a terminal.
constexpr size_t kChunk = 256;

struct TranslateFlags {
  fs::path run;
  std::string data;
  std::optional<int64_t> beam;
  std::optional<double> length_penalty;
  int threads = 0;
};

// Reads up to `most` lines, split like ReadLines. Counts lines in `number`.
std::vector<std::string> NextLines(size_t most, int64_t& number) {
  std::vector<std::string> lines;
  std::string line;
  while (lines.size() < most && ReadLine(std::cin, "stdin", number + 1, line)) {
    ++number;
    if (FindInvalidUtf8(line)) {
      throw DataError(
          fmt::format("[translate] input must be UTF-8, got other bytes on line {}", number));
    }
    lines.push_back(line);
  }
  return lines;
}

int RunTranslate(const TranslateFlags& flags) {
  const std::optional<fs::path> folder = GivenData(flags.data);
  Run run = ReadRun(flags.run);
  const Task& task = FindTask(run.config.task);
  const auto set = [&](const char* name, const auto& value) {
    if (!value) return;
    if (!run.config.settings.contains(name)) {
      throw UsageError(
          fmt::format("[translate] RUN must be of a task with the setting {}, got "
                      "task {}",
                      name, run.config.task));
    }
    run.config.settings[name] = *value;
  };
  set("beam", flags.beam);
  set("length_penalty", flags.length_penalty);
  if (flags.threads > 0) at::set_num_threads(flags.threads);
  const at::NoGradGuard no_grad;
  const Trained trained = OpenTrained(task, run, folder);
  auto* translator = dynamic_cast<LineTranslator*>(trained.experiment.get());
  if (!translator) {
    throw UsageError(fmt::format("[translate] RUN must be of a task that translates, got task {}",
                                 run.config.task));
  }
  // At a terminal each line is translated at once.
  const size_t most = isatty(STDIN_FILENO) != 0 ? 1 : kChunk;
  int64_t number = 0;
  for (auto lines = NextLines(most, number); !lines.empty(); lines = NextLines(most, number)) {
    for (const std::string& line : translator->Translate(lines)) PrintText(line + "\n");
    FlushStdout();
  }
  return 0;
}

}  // namespace

void AddTranslate(CLI::App& app, Action& action) {
  auto flags = std::make_shared<TranslateFlags>();
  CLI::App* translate =
      app.add_subcommand("translate", "Translate lines of stdin with a run of a translation task");
  translate->footer(
      "Translates each line of stdin, in UTF-8, to a line on stdout. A line is a sentence in the\n"
      "run's source language. Uses the weights of the evaluation that validation chose, and reads "
      "the\n"
      "training data again for the vocabulary. Characters that the vocabulary lacks are read as\n"
      "unknown, <unk>.\n\n"
      "Example:\n"
      "  echo 'Ein Hund schläft.' | planish translate runs/mt/small-layer-b1024-s1");
  translate->add_option("RUN", flags->run, "Folder of a run of mt")
      ->type_name("")
      ->required()
      ->check(NotEmpty("translate", "RUN"));
  translate
      ->add_option("--beam", flags->beam,
                   "Hypotheses per sentence; 1 is greedy search (default: the run's)")
      ->type_name("N")
      ->check(WholeNumber("translate", "--beam", 1, 1000));
  translate
      ->add_option("--length-penalty", flags->length_penalty,
                   "Scores are divided by the length to the power of A: larger gives longer\n"
                   "translations (default: the run's)")
      ->type_name("A")
      ->check(Number("translate", "--length-penalty", "a number from 0 to 10",
                     [](double power) { return power >= 0 && power <= 10; }));
  AddDataOption(*translate, flags->data,
                "Data that the run was trained on (default: its original place)");
  translate->add_option("--threads", flags->threads, "Threads (default: all cores)")
      ->type_name("N")
      ->check(WholeNumber("translate", "--threads", 1, 1024));
  translate->callback([&action, flags] { action = [flags] { return RunTranslate(*flags); }; });
}

}  // namespace planish::lab
