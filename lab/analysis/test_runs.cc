#include "lab/analysis/test_runs.h"

#include <fmt/format.h>

#include "lab/papers/paper.h"
#include "lab/papers/paper_data.h"

namespace planish::lab {

Run StartedRun(const std::string& norm, int batch_size, int64_t seed) {
  Run run;
  run.folder = fmt::format("runs/{}-{}-{}", norm, batch_size, seed);
  RunConfig& config = run.config;
  config.task = "digits";
  config.preset = "small";
  config.settings = {{"norm", norm}, {"batch_size", batch_size}, {"lr", 0.001}};
  config.seed = seed;
  config.data = {"mnist",
                 "files",
                 "Handwritten digits.",
                 "b2d8f5bf39174ee5ffeefa97e42d673c35432b411bb5d1f74fbbeddae7f1690a",
                 {{"train", 55000}, {"test", 10000}}};
  config.metrics = {{"loss", "training NLL", "nats", true},
                    {"valid_error", "validation error", "%", true},
                    {"test_error", "test error", "%", true},
                    {"accuracy", "accuracy", "", false}};
  config.report = {
      "Digits",     "A paper, section 1",   "norm",       "none",
      "batch_size", {"loss", "test_error"}, "test_error", {{"test_error", {0.10, 0.05}}}};
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

Runs ThreeNorms() {
  Runs runs;
  const std::vector<std::pair<std::string, std::vector<double>>> finals = {
      {"layer", {.050, .052, .051}}, {"batch", {.060, .061, .063}}, {"none", {.049, .053, .052}}};
  for (const auto& [norm, errors] : finals) {
    for (size_t i = 0; i < errors.size(); ++i) {
      runs.push_back(FinishedRun(norm, 4, static_cast<int64_t>(i), {.5, errors[i]}));
    }
  }
  return runs;
}

Runs CatchUpRuns() {
  const std::vector<std::vector<double>> batch = {{.5, .4, .2}, {.5, .3, .4}, {.3, .2, .1}};
  const std::vector<std::vector<double>> layer = {{.3, .2, .1}, {.4, .3, .1}, {.3, .2, .2}};
  Runs runs;
  for (size_t i = 0; i < layer.size(); ++i) {
    runs.push_back(FinishedRun("layer", 4, static_cast<int64_t>(i) + 1, layer[i]));
    runs.push_back(FinishedRun("batch", 4, static_cast<int64_t>(i) + 1, batch[i]));
  }
  return runs;
}

Run ColumnRun(const std::string& column_name, const std::string& norm, int64_t seed, double value,
              const std::string& data, double train, double valid) {
  const PaperColumn& column = *FindPaper("xu2019").FindColumn(column_name);
  Run run = StartedRun(norm, 32, seed);
  run.folder = fmt::format("runs/{}/small-{}-s{}", column.task, norm, seed);
  RunConfig& config = run.config;
  config.task = column.task;
  for (const auto& [key, setting] : column.settings) config.settings[key] = setting;
  config.data = {data, "files", "Made up.", data + " bytes", {{"train", 1000}, {"test", 100}}};
  for (const PaperData& known : KnownPaperData()) {
    if (known.name != data) continue;
    config.data.sha256 = known.sha256;
    config.data.sizes["train"] = known.train;
  }
  const bool percent = column.unit.starts_with("%");
  config.metrics = {
      {column.train_curve, "training loss", "nats", true},
      {column.valid_curve, "validation loss", "nats", true},
      {column.metric, "test " + column.unit, percent ? "%" : column.unit, column.lower_is_better}};
  config.report = {column.label,
                   "Xu et al. 2019",
                   "norm",
                   "layer",
                   "batch_size",
                   {column.train_curve, column.valid_curve},
                   column.metric,
                   {},
                   {"Made up in " + column.name + "."}};
  RunResult result;
  result.status = "finished";
  for (int i = 0; i <= 4; ++i) {
    const double left = 1 - i / 4.0;
    Evaluation evaluation{100 * i,
                          0.5 * i,
                          3200 * i,
                          2.0 * i,
                          {{column.train_curve, train + left * (1 - train)},
                           {column.valid_curve, valid + left * (1 - valid)}}};
    run.evaluations.push_back(evaluation);
  }
  const Evaluation& last = run.evaluations.back();
  result.steps = last.step;
  result.epochs = last.epoch;
  result.seconds = last.seconds;
  result.input_seconds = 0.04 * last.seconds;
  result.evaluation_seconds = 0.5;
  result.parameters = 12345;
  result.final_values = last.values;
  result.best = RunResult::Best{column.valid_curve, last.step, last.values};
  result.best->values[column.metric] = value;
  run.result = result;
  return run;
}

Run Diverged(Run run) {
  run.result->status = "diverged";
  run.result->message = "the training loss was nan at step 7";
  run.result->best.reset();
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
