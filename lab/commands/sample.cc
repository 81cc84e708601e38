#include <ATen/CPUGeneratorImpl.h>

#include <cstdint>
#include <memory>
#include <string>

#include "lab/commands/commands.h"
#include "lab/commands/options.h"
#include "lab/commands/trained_run.h"
#include "lab/engine/capabilities.h"

namespace planish::lab {

namespace {

struct SampleFlags {
  TrainedRunFlags trained;
  std::string prompt;
  int64_t length = 500, seed = 1;
  double temperature = 0.8;
};

int RunSample(const SampleFlags& flags) {
  TrainedRun run("sample", flags.trained);
  auto& sampler = run.As<TextSampler>();
  at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(flags.seed));
  PrintText(flags.prompt +
            sampler.Sample(flags.prompt, flags.length, flags.temperature, generator) + "\n");
  return 0;
}

}  // namespace

void AddSample(CLI::App& app, Action& action) {
  auto flags = std::make_shared<SampleFlags>();
  CLI::App* sample = app.add_subcommand("sample", "Write text with a run's trained model");
  sample->footer(
      "Prints the prompt, the bytes that follow it and a line feed. Escapes control characters on "
      "a\n"
      "terminal. A prompt with characters that the training text lacks is an error.\n\n"
      "Example:\n"
      "  planish sample runs/char-lm/small-lstm-b32-s1 --prompt \"Enter \" --length 200");
  AddRunArgument(*sample, flags->trained, "Folder of a run of a task that models text");
  sample
      ->add_option("--prompt", flags->prompt,
                   "Start of the text (default: empty, as after the end of a line)")
      ->type_name("TEXT");
  sample->add_option("--length", flags->length, "Bytes to write (default: 500)")
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
