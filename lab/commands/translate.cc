#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lab/commands/commands.h"
#include "lab/commands/options.h"
#include "lab/commands/trained_run.h"
#include "lab/data/lines.h"
#include "lab/engine/capabilities.h"

namespace planish::lab {

namespace {

// Lines of a batch if stdin is not a terminal.
constexpr size_t kChunk = 256;

struct TranslateFlags {
  TrainedRunFlags trained;
  std::optional<int64_t> beam;
  std::optional<double> length_penalty;
};

// Reads up to `max_lines` lines, split like ReadLines. Counts lines in `number`.
std::vector<std::string> NextLines(size_t max_lines, int64_t& number) {
  std::vector<std::string> lines;
  std::string line;
  while (lines.size() < max_lines && ReadLine(std::cin, "stdin", number + 1, line)) {
    ++number;
    CheckUtf8("stdin", number, line);
    lines.push_back(line);
  }
  return lines;
}

int RunTranslate(const TranslateFlags& flags) {
  SettingChanges changes;
  if (flags.beam) changes["beam"] = *flags.beam;
  if (flags.length_penalty) changes["length_penalty"] = *flags.length_penalty;
  TrainedRun run("translate", flags.trained, changes);
  auto& translator = run.As<LineTranslator>();
  // At a terminal each line is translated at once.
  const size_t max_lines = isatty(STDIN_FILENO) != 0 ? 1 : kChunk;
  int64_t number = 0;
  for (auto lines = NextLines(max_lines, number); !lines.empty();
       lines = NextLines(max_lines, number)) {
    for (const std::string& line : translator.Translate(lines)) PrintText(line + "\n");
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
      "training data of a run again for the vocabulary. Characters that the vocabulary lacks are "
      "read as\n"
      "unknown, <unk>.\n\n"
      "Example:\n"
      "  echo 'Ein Hund schläft.' | planish translate results/models/mt.safetensors\n"
      "  echo 'Ein Hund schläft.' | planish translate runs/mt/small-layer-b1024-s1");
  AddRunArgument(*translate, flags->trained, "Folder of a run of mt, or an exported model");
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
  AddTrainedRunOptions(*translate, flags->trained);
  translate->callback([&action, flags] { action = [flags] { return RunTranslate(*flags); }; });
}

}  // namespace planish::lab
