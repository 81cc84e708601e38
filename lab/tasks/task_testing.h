#ifndef PLANISH_LAB_TASKS_TASK_TESTING_H_
#define PLANISH_LAB_TASKS_TASK_TESTING_H_

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lab/engine/checkpoint.h"
#include "lab/engine/sweep.h"
#include "lab/engine/train.h"
#include "lab/run/safetensors.h"
#include "lab/testing/test_folder.h"

// Helpers of the tasks' tests.
namespace planish::lab {

using Sets = std::vector<std::pair<std::string, std::string>>;

/// Returns the settings of a preset, with some changed.
inline Settings PresetSettings(const Task& task, const std::string& preset, const Sets& sets = {}) {
  Settings settings(task.settings);
  settings.Apply(*std::ranges::find(task.presets, preset, &Preset::name));
  for (const auto& [name, value] : sets) settings.Set(name, value);
  return settings;
}

/// Fixture of the tests of the task that `kMake` makes.
template <std::unique_ptr<Task> (*kMake)()>
class TaskTest : public ::testing::Test {
 protected:
  Settings Chosen(const std::string& preset, const Sets& sets = {}) const {
    return PresetSettings(*task, preset, sets);
  }
  Settings Smoke(const Sets& sets = {}) const { return Chosen("smoke", sets); }

  /// Returns the experiment that Train makes of the preset `smoke` for seed 5.
  std::unique_ptr<Experiment> Make(const Dataset& data, const Sets& sets = {}) const {
    at::manual_seed(5);
    return task->Make(Smoke(sets), data);
  }

  std::unique_ptr<Task> task = kMake();
};

inline at::Generator Generator(uint64_t seed) { return at::detail::createCPUGenerator(seed); }

/// Returns the losses of `updates` updates with the task's optimizer, over several epochs if
/// necessary.
inline std::vector<double> LossesOf(const Task& task, Experiment& experiment,
                                    const Settings& settings, int64_t updates,
                                    const Clipping& clipping = {}) {
  const auto optimizer = task.MakeOptimizer(ParametersOf(experiment.model()), settings);
  at::Generator order = Generator(1);
  std::vector<double> losses;
  while (std::ssize(losses) < updates) {
    const EpochPlan plan = experiment.PlanEpoch(order);
    for (int64_t b = 0; b < plan.batches() && std::ssize(losses) < updates; ++b) {
      losses.push_back(UpdateWeights(experiment, *optimizer, {{plan.batch(b)}}, clipping).loss);
    }
  }
  return losses;
}

/// Trains for whole epochs with the task's optimizer. Leaves the model in evaluation mode.
inline void TrainEpochs(const Task& task, Experiment& experiment, const Settings& settings,
                        int epochs, const Clipping& clipping = {}) {
  const auto optimizer = task.MakeOptimizer(ParametersOf(experiment.model()), settings);
  at::Generator order = Generator(1);
  for (int epoch = 0; epoch < epochs; ++epoch) {
    const EpochPlan plan = experiment.PlanEpoch(order);
    for (int64_t b = 0; b < plan.batches(); ++b) {
      UpdateWeights(experiment, *optimizer, {{plan.batch(b)}}, clipping);
    }
  }
  experiment.model().eval();
}

/// Expects that the models of `norms`, with the preset `smoke` and one seed, have equal weights.
/// The weights are the `count` parameters that `is_weight` (of name and tensor) selects.
inline void ExpectSameInitialWeights(
    const Task& task, const std::vector<std::string>& norms, size_t count,
    const std::function<bool(const std::string&, const at::Tensor&)>& is_weight) {
  const auto data = task.Load(PresetSettings(task, "smoke"), {});
  std::vector<at::Tensor> first;
  for (const std::string& norm : norms) {
    at::manual_seed(9);
    const auto experiment = task.Make(PresetSettings(task, "smoke", {{"norm", norm}}), *data);
    std::vector<at::Tensor> weights;
    for (const auto& item : experiment->model().named_parameters()) {
      if (is_weight(item.key(), item.value())) weights.push_back(item.value());
    }
    ASSERT_EQ(weights.size(), count);
    if (first.empty()) first = weights;
    for (size_t i = 0; i < count; ++i) EXPECT_TRUE(weights[i].equal(first[i])) << norm;
  }
}

/// Returns the metrics of an evaluation and of the test. Expects all that the task declares except
/// kTrainLoss, and no others.
inline Values DeclaredMetrics(const Task& task, Experiment& experiment) {
  experiment.model().eval();
  const at::NoGradGuard no_grad;
  Values values = experiment.Evaluate();
  values.merge(experiment.Test());
  for (const MetricSpec& metric : task.metrics) {
    EXPECT_EQ(values.count(metric.name), metric.name == kTrainLoss ? 0u : 1u) << metric.name;
  }
  EXPECT_EQ(values.size() + 1, task.metrics.size());
  return values;
}

/// Updates the weights `updates` times on the first `count` cases. Returns the loss of the last
/// update divided by that of the first.
inline double LossRatio(const Task& task, Experiment& experiment, const Settings& settings,
                        int64_t count, int updates) {
  const auto optimizer = task.MakeOptimizer(ParametersOf(experiment.model()), settings);
  const at::Tensor cases = at::arange(count, at::kLong);
  experiment.model().train();
  const double before = UpdateWeights(experiment, *optimizer, {{cases}}).loss;
  double after = before;
  for (int i = 1; i < updates; ++i) after = UpdateWeights(experiment, *optimizer, {{cases}}).loss;
  return after / before;
}

/// Expects that a run of the preset `smoke`, stopped after each number of updates in `pieces`, ends
/// like an uninterrupted one. All metrics, tensors of the checkpoint, and the best evaluation with
/// its test metrics have equal bits.
inline void ExpectExactResume(const Task& task, const Sets& sets = {},
                              const std::vector<int>& pieces = {1, 2, 3}) {
  const TestFolder folder;
  const auto plan = [&](const std::string& out) {
    SweepRequest request{.preset = "smoke", .values = {}, .seeds = {3}, .out = folder / out};
    for (const auto& [name, value] : sets) request.values.push_back({name, {value}});
    return PlanSweep(task, request).front();
  };
  const RunPlan whole = plan("whole"), cut = plan("cut");
  const auto data = task.Load(whole.settings, {});
  const auto train = [&](const RunPlan& run, std::function<bool()> stop) {
    Progress progress(1, ProgressMode::kQuiet);
    return Train(task, *data, run, {{"threads", "1"}}, {.data = {}, .stop = std::move(stop)},
                 progress);
  };
  const auto never = [] { return false; };
  ASSERT_EQ(train(whole, never), Outcome::kFinished);
  for (const int piece : pieces) {
    int updates = 0;
    ASSERT_EQ(train(cut, [&] { return ++updates == piece; }), Outcome::kInterrupted)
        << "smoke has too few updates for the pieces";
    at::rand({3});  // the default generator's state between two calls must not matter
  }
  ASSERT_EQ(train(cut, never), Outcome::kFinished);

  const Run a = ReadRun(whole.folder), b = ReadRun(cut.folder);
  ASSERT_EQ(a.evaluations.size(), b.evaluations.size());
  for (size_t i = 0; i < a.evaluations.size(); ++i) {
    EXPECT_EQ(a.evaluations[i].step, b.evaluations[i].step);
    EXPECT_EQ(a.evaluations[i].values, b.evaluations[i].values) << a.evaluations[i].step;
  }
  EXPECT_EQ(a.result->best->step, b.result->best->step);
  EXPECT_EQ(a.result->best->values, b.result->best->values);
  const auto tensors = [](const RunPlan& run) {
    const auto file = SafetensorsFile::Read(CheckpointFile(run.folder), Checksum::kRequired);
    std::map<std::string, std::string> all;
    for (const StoredTensor& t : file.tensors()) {
      all[t.name] = std::string(reinterpret_cast<const char*>(t.data.data()), t.data.size());
    }
    return all;
  };
  EXPECT_TRUE(tensors(whole) == tensors(cut)) << "weights, optimizer or generator";
}

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_TASK_TESTING_H_
