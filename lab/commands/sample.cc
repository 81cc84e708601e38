#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "lab/commands/commands.h"
#include "lab/commands/options.h"
#include "lab/commands/trained_run.h"
#include "lab/engine/capabilities.h"
#include "lab/error.h"
#include "lab/run/atomic_file.h"

namespace planish::lab {

namespace {

constexpr int64_t kLength = 500, kImages = 8;
constexpr double kTemperature = 0.8;

struct SampleFlags {
  TrainedRunFlags trained;
  std::optional<std::string> prompt;
  std::optional<int64_t> length, count;
  std::optional<double> temperature;
  int64_t seed = 1;
  std::filesystem::path out;
};

// Throws UsageError naming an option that is given and has no meaning for a model that `task`.
void RefuseOptions(std::initializer_list<std::pair<const char*, bool>> options, const char* task) {
  for (const auto& [name, is_given] : options) {
    if (is_given) {
      throw UsageError(
          fmt::format("[sample] {} must go with another task: RUN is of one that {}", name, task));
    }
  }
}

// Returns a text, or images as an SVG.
std::string Sampled(TrainedRun& run, const SampleFlags& flags) {
  at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(flags.seed));
  if (auto* illustrator = run.If<Illustrator>()) {
    RefuseOptions({{"--prompt", flags.prompt.has_value()},
                   {"--length", flags.length.has_value()},
                   {"--temperature", flags.temperature.has_value()}},
                  Illustrator::kTask);
    return illustrator->DrawImages(flags.count.value_or(kImages), generator);
  }
  auto* sampler = run.If<TextSampler>();
  if (sampler == nullptr) {
    run.Refuse(fmt::format("{} or {}", TextSampler::kTask, Illustrator::kTask));
  }
  RefuseOptions({{"--count", flags.count.has_value()}}, TextSampler::kTask);
  const std::string prompt = flags.prompt.value_or("");
  return prompt + sampler->Sample(prompt, flags.length.value_or(kLength),
                                  flags.temperature.value_or(kTemperature), generator);
}

int RunSample(const SampleFlags& flags) {
  TrainedRun run("sample", flags.trained);
  const std::string sampled = Sampled(run, flags) + "\n";
  if (flags.out.empty()) {
    PrintText(sampled);
  } else {
    WriteOutputFile(flags.out, sampled);
  }
  return 0;
}

}  // namespace

void AddSample(CLI::App& app, Action& action) {
  auto flags = std::make_shared<SampleFlags>();
  CLI::App* sample =
      app.add_subcommand("sample", "Write text, or draw images, with a trained model");
  sample->footer(
      "Prints the prompt, the text that follows it and a line feed. Escapes control characters on "
      "a\n"
      "terminal. A prompt with characters that the training text lacks is an error. A run of draw\n"
      "draws digits from random codes, as an SVG.\n\n"
      "Example:\n"
      "  planish sample results/models/char-lm.safetensors --length 200\n"
      "  planish sample results/models/draw.safetensors --count 16 -o digits.svg\n"
      "  planish sample runs/char-lm/small-lstm-b32-s1 --prompt \"Enter \" --length 200");
  AddRunArgument(*sample, flags->trained,
                 "Folder of a run of char-lm, enwik8 or draw, or an exported model");
  sample
      ->add_option("--prompt", flags->prompt,
                   "Start of the text (default: empty, as after the end of a line)")
      ->type_name("TEXT");
  sample->add_option("--count", flags->count, "Images to draw (default: 8)")
      ->type_name("N")
      ->check(WholeNumber("sample", "--count", 1, 1000));
  sample->add_option("-o,--out", flags->out, "File for the text or SVG (default: stdout)")
      ->type_name("FILE")
      ->check(NotEmpty("sample", "--out"));
  sample
      ->add_option("--length", flags->length,
                   "Characters to write, or bytes for a model of bytes (default: 500)")
      ->type_name("N")
      ->check(WholeNumber("sample", "--length", 1, 10'000'000));
  sample
      ->add_option("--temperature", flags->temperature,
                   "Divisor of the logits: small for likely text (default: 0.8)")
      ->type_name("T")
      ->check(Number("sample", "--temperature", "a number from 0.01 to 100",
                     [](double t) { return t >= 0.01 && t <= 100; }));
  AddSeedOption(*sample, flags->seed);
  AddTrainedRunOptions(*sample, flags->trained);
  sample->callback([&action, flags] { action = [flags] { return RunSample(*flags); }; });
}

}  // namespace planish::lab
