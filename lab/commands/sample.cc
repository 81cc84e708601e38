#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "lab/commands/commands.h"
#include "lab/commands/numbers.h"
#include "lab/data/source.h"
#include "lab/engine/capabilities.h"
#include "lab/engine/trained.h"
#include "lab/error.h"
#include "lab/run/results.h"
#include "lab/tasks/tasks.h"

namespace planish::lab {

namespace {

namespace fs = std::filesystem;

struct SampleFlags {
  fs::path run;
  std::string prompt, data;
  int64_t length = 500, seed = 1;
  double temperature = 0.8;
  int threads = 0;
};

int RunSample(const SampleFlags& flags) {
  const std::optional<fs::path> data = GivenData(flags.data);
  const Run run = ReadRun(flags.run);
  if (flags.threads > 0) at::set_num_threads(flags.threads);
  const at::NoGradGuard no_grad;
  const Trained trained = OpenTrained(FindTask(run.config.task), run, data);
  auto* sampler = dynamic_cast<TextSampler*>(trained.experiment.get());
  if (sampler == nullptr) {
    throw UsageError(fmt::format("[sample] RUN must be of a task that writes text, got task {}",
                                 run.config.task));
  }
  at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(flags.seed));
  PrintText(flags.prompt +
            sampler->Sample(flags.prompt, flags.length, flags.temperature, generator) + "\n");
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
  sample->add_option("RUN", flags->run, "Folder of a run of a task that models text")
      ->type_name("")
      ->required()
      ->check(NotEmpty("sample", "RUN"));
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
  sample->add_option("--seed", flags->seed, "Random seed (default: 1)")
      ->type_name("SEED")
      ->check(WholeNumber("sample", "--seed", 0, int64_t{1} << 53));
  AddDataOption(*sample, flags->data,
                "Data that the run was trained on (default: its original place)");
  sample->add_option("--threads", flags->threads, "Threads (default: all cores)")
      ->type_name("N")
      ->check(WholeNumber("sample", "--threads", 1, 1024));
  sample->callback([&action, flags] { action = [flags] { return RunSample(*flags); }; });
}

}  // namespace planish::lab
