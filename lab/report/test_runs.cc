#include "lab/report/test_runs.h"

#include <fmt/format.h>

namespace planish::lab {

Run StartedRun(const std::string& norm, int batch_size, int64_t seed) {
  Run run;
  run.folder = fmt::format("runs/{}-{}-{}", norm, batch_size, seed);
  RunConfig& config = run.config;
  config.task = "digits";
  config.preset = "small";
  config.settings = {{"norm", norm}, {"batch_size", batch_size}, {"lr", 0.001}};
  config.seed = seed;
  config.data = {
      "mnist", "files", "Handwritten digits.", "abc123", {{"train", 55000}, {"test", 10000}}};
  config.metrics = {{"loss", "training NLL", "nats", true},
                    {"valid_error", "validation error", "%", true},
                    {"test_error", "test error", "%", true},
                    {"accuracy", "accuracy", "", false}};
  config.report = {"Digits",
                   "A paper, section 1",
                   "norm",
                   "none",
                   "batch_size",
                   {"loss", "test_error"},
                   "test_error",
                   {{"test_error", {0.10, 0.05}}},
                   {}};
  config.stamps = {{"version", "0.1.0"},
                   {"cpu", "a processor"},
                   {"threads", "2"},
                   {"started", fmt::format("2026-01-01T00:00:{:02}Z", seed % 60)}};
  return run;
}

Run FinishedRun(const std::string& norm, int batch_size, int64_t seed,
                const std::vector<double>& errors) {
  Run run = StartedRun(norm, batch_size, seed);
  RunResult result;
  result.status = "finished";
  for (const double error : errors) {
    const auto index = static_cast<int64_t>(run.evaluations.size()) + 1;
    Evaluation evaluation{100 * index,
                          static_cast<double>(index),
                          100 * index * batch_size,
                          2.0 * static_cast<double>(index),
                          {{"loss", 10 * error},
                           {"valid_error", error},
                           {"test_error", error},
                           {"accuracy", 1 - error}}};
    if (!result.best || error < result.best->values["valid_error"]) {
      result.best = RunResult::Best{"valid_error", evaluation.step, evaluation.values};
    }
    result.steps = evaluation.step;
    result.epochs = evaluation.epoch;
    result.seconds = evaluation.seconds;
    result.final_values = evaluation.values;
    run.evaluations.push_back(evaluation);
  }
  result.evaluation_seconds = 0.5;
  result.parameters = 12345;
  run.result = result;
  return run;
}

ClaimSpec LowerErrorClaim(const std::string& better, const std::string& worse) {
  return {fmt::format("{} is better than {}.", better, worse),
          "A paper, Fig 6",
          "test_error",
          "final",
          better,
          worse,
          {},
          "mnist"};
}

}  // namespace planish::lab
