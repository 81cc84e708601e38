#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "lab/commands/commands.h"
#include "lab/commands/options.h"
#include "lab/commands/trained_run.h"
#include "lab/data/lines.h"
#include "lab/engine/capabilities.h"
#include "lab/error.h"
#include "lab/run/atomic_file.h"

namespace planish::lab {

namespace {

constexpr size_t kMaxTextBytes = 1000;

struct WriteFlags {
  TrainedRunFlags trained;
  std::string text;
  std::filesystem::path out;
  double bias = 0.5;
  int64_t seed = 1;
  std::optional<int64_t> steps, prime;
};

void CheckText(const std::string& text) {
  if (IsBlank(text)) {
    throw UsageError("[write] TEXT must have a character other than blanks");
  }
  if (text.size() > kMaxTextBytes) {
    throw UsageError(
        fmt::format("[write] TEXT must have at most {} bytes, got {}", kMaxTextBytes, text.size()));
  }
  if (const auto at = FindInvalidUtf8(text)) {
    throw UsageError(fmt::format("[write] TEXT must be UTF-8, got byte 0x{:02x} at position {}",
                                 static_cast<uint8_t>(text[*at]), *at + 1));
  }
}

int RunWrite(const WriteFlags& flags) {
  CheckText(flags.text);
  TrainedRun run("write", flags.trained);
  auto& writer = run.As<HandWriter>();
  at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(flags.seed));
  const HandWriter::Written written =
      writer.Write({.text = flags.text,
                    .bias = flags.bias,
                    .steps = flags.steps.value_or(HandWriter::DefaultSteps(flags.text)),
                    .prime = flags.prime},
                   generator);
  if (flags.out.empty()) {
    Print(written.svg + "\n");
  } else {
    WriteOutputFile(flags.out, written.svg + "\n");
  }
  if (!written.whole) {
    std::fputs("warning: the pen stopped before the text's last character (see --steps)\n", stderr);
  }
  return 0;
}

}  // namespace

void AddWrite(CLI::App& app, Action& action) {
  auto flags = std::make_shared<WriteFlags>();
  CLI::App* write = app.add_subcommand("write", "Write a text by hand with a run of handwriting");
  write->footer(
      "Writes an SVG of the pen's strokes. The pen stops when the model's window has passed the\n"
      "text's last character. Characters without their own symbol, or that no training line has, "
      "are\n"
      "an error.\n\n"
      "Example:\n"
      "  planish write results/models/handwriting.safetensors \"hello there\" -o hello.svg\n"
      "  planish write runs/handwriting/small-layer-b8-s1 \"a line by hand\" --bias 1 -o line.svg");
  AddRunArgument(*write, flags->trained, "Folder of a run of handwriting, or an exported model");
  write->add_option("TEXT", flags->text, "Text to write")->type_name("")->required();
  write->add_option("-o,--out", flags->out, "File for the SVG (default: stdout)")
      ->type_name("FILE")
      ->check(NotEmpty("write", "--out"));
  write
      ->add_option("--bias", flags->bias,
                   "Bias towards likely strokes: 0 is the model's distribution,\n"
                   "5 is very tidy (default: 0.5)")
      ->type_name("B")
      ->check(Number("write", "--bias", "a number from 0 to 100",
                     [](double bias) { return bias >= 0 && bias <= 100; }));
  AddSeedOption(*write, flags->seed);
  write
      ->add_option("--steps", flags->steps,
                   "Maximum number of points (default: 200, plus 60 per byte of TEXT)")
      ->type_name("N")
      ->check(WholeNumber("write", "--steps", 1, 1'000'000));
  write
      ->add_option("--prime-case", flags->prime,
                   "Continue in the style of this line of the validation data, from 0")
      ->type_name("N")
      ->check(WholeNumber("write", "--prime-case", 0, int64_t{1} << 53));
  AddTrainedRunOptions(*write, flags->trained);
  write->callback([&action, flags] { action = [flags] { return RunWrite(*flags); }; });
}

}  // namespace planish::lab
