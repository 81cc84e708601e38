#include "lab/tasks/tasks.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lab/engine/allocation_limit.h"
#include "lab/error.h"
#include "lab/papers/paper.h"
#include "lab/tasks/task_testing.h"

namespace planish::lab {
namespace {

// Properties of every task that the engine and the report require.
TEST(Tasks, AreComplete) {
  for (const auto& task : Tasks()) {
    SCOPED_TRACE(task->name);
    const auto has_metric = [&](const std::string& name) {
      return std::ranges::find(task->metrics, name, &MetricSpec::name) != task->metrics.end();
    };
    const auto has_setting = [&](const std::string& name) {
      return std::ranges::find(task->settings, name, &SettingSpec::name) != task->settings.end();
    };
    EXPECT_FALSE(task->summary.empty());
    EXPECT_TRUE(has_metric(kTrainLoss));
    EXPECT_TRUE(has_metric(task->choose_by));
    EXPECT_TRUE(has_metric(task->report.headline));
    EXPECT_TRUE(has_setting(task->report.compare));
    EXPECT_TRUE(has_setting(task->report.panel));
    for (const std::string& curve : task->report.curves) EXPECT_TRUE(has_metric(curve)) << curve;
    for (const TargetSpec& target : task->report.targets) EXPECT_TRUE(has_metric(target.metric));
    for (const ClaimSpec& claim : ClaimsOf(task->name)) {
      EXPECT_TRUE(has_metric(claim.metric)) << claim.text;
    }
    for (const std::string& name : task->data_settings) EXPECT_TRUE(has_setting(name)) << name;
    for (const std::string name : {"small", "smoke"}) {
      const auto preset = std::ranges::find(task->presets, name, &Preset::name);
      ASSERT_NE(preset, task->presets.end()) << name;
      Settings(task->settings).Apply(*preset);
    }
  }
}

// Norms are compared by default, in every task that has them; cells only if they are named.
TEST(Tasks, CompareTheirNorms) {
  for (const auto& task : Tasks()) {
    SCOPED_TRACE(task->name);
    const auto spec = std::ranges::find(task->settings, task->report.compare, &SettingSpec::name);
    if (task->report.compare != "norm") {
      EXPECT_TRUE(spec->compared.empty());
      continue;
    }
    EXPECT_GE(spec->compared.size(), 2u);
    for (const std::string& norm : spec->compared) {
      EXPECT_NE(std::ranges::find(spec->choices, norm), spec->choices.end()) << norm;
      EXPECT_FALSE(IsAblation(norm)) << norm;
    }
    EXPECT_NE(std::ranges::find(spec->compared, spec->value.get<std::string>()),
              spec->compared.end());
  }
}

// The released code's AdaNorm with the scales of its scripts, in all experiments of Xu et al. 2019.
TEST(Tasks, TrainWithTheReleasedAdaNorm) {
  const TestFolder folder;
  setenv("XDG_CACHE_HOME", (folder / "cache").c_str(), 1);  // vocabularies must not stay
  for (const std::string name : {"mt", "enwik8", "rt", "sst5", "mnist-cnn", "parser"}) {
    const Task& task = FindTask(name);
    const auto data = task.Load(PresetSettings(task, "smoke"), {});
    std::vector<double> first;
    for (const std::string c : {"1", "2"}) {
      SCOPED_TRACE(name + ", C = " + c);
      const Settings settings =
          PresetSettings(task, "smoke", {{"norm", "ada-as-coded"}, {"ada_c", c}});
      at::manual_seed(1);
      const auto experiment = task.Make(settings, *data);
      experiment->model().train();
      const std::vector<double> losses = LossesOf(task, *experiment, settings, 16);
      first.push_back(losses.front());
      // Batches differ, so the lowest of the last four counts.
      EXPECT_LT(*std::min_element(losses.end() - 4, losses.end()), losses.front());
    }
    EXPECT_NE(first[0], first[1]) << name;
  }
  unsetenv("XDG_CACHE_HOME");
}

// MakeStored refuses models that take more.
TEST(Tasks, TakeLittleMoreMemoryThanTheirWeights) {
  const TestFolder folder;
  setenv("XDG_CACHE_HOME", (folder / "cache").c_str(), 1);  // vocabularies must not stay
  for (const auto& task : Tasks()) {
    const auto data = task->Load(PresetSettings(*task, "smoke"), {});
    for (const Preset& preset : task->presets) {
      Settings settings = PresetSettings(*task, preset.name);
      const Settings smoke = PresetSettings(*task, "smoke");
      std::vector<std::string> of_smoke = task->data_settings;
      of_smoke.insert(of_smoke.end(), {"batch_size", "window", "target", "memory"});
      for (const std::string& name : of_smoke) {
        if (settings.Has(name)) settings.Set(name, Spelled(smoke.values().at(name)));
      }
      SCOPED_TRACE(task->name + " " + preset.name);
      AllocationLimit limit(int64_t{8} << 30);
      const auto experiment = task->Make(settings, *data);
      int64_t elements = 0, cases = 0;
      for (const auto& [name, t] : WeightsOf(experiment->model())) elements += t.numel();
      for (const auto& [split, size] : data->about.sizes) cases += size;
      EXPECT_LT(limit.used(), 32 * (elements + cases) + (int64_t{8} << 20));
    }
  }
  unsetenv("XDG_CACHE_HOME");
}

TEST(Tasks, AreFoundByName) {
  EXPECT_EQ(FindTask("pi-mnist").name, "pi-mnist");
  EXPECT_EQ(FindTask("pi-mnist").presets.front().name,
            "paper");  // the default of the command line
  EXPECT_THROW(FindTask("pi"), UsageError);
}

}  // namespace
}  // namespace planish::lab
