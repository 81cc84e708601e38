#include "lab/engine/checkpoint.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <filesystem>

#include "lab/error.h"
#include "lab/run/safetensors.h"
#include "lab/testing/test_folder.h"

namespace planish::lab {
namespace {

using ::testing::HasSubstr;

struct Net : torch::nn::Module {
  explicit Net(int64_t width)
      : linear(register_module("linear", torch::nn::Linear(3, width))),
        norm(register_module("norm", torch::nn::BatchNorm1d(width))) {}
  torch::nn::Linear linear;
  torch::nn::BatchNorm1d norm;
};

NamedTensors Parameters(const torch::nn::Module& m) {
  NamedTensors all;
  for (const auto& item : m.named_parameters()) all.emplace_back(item.key(), item.value());
  return all;
}

class CheckpointTest : public ::testing::Test {
 protected:
  TestFolder folder;
  std::filesystem::path file = folder.path() / "checkpoint" / "state.safetensors";
};

TEST_F(CheckpointTest, BringsEverythingBack) {
  Net net(4);
  Adam adam(Parameters(net), {});
  for (const auto& [name, p] : Parameters(net)) p.mutable_grad() = at::randn_like(p);
  adam.Step();
  net.norm->running_mean.normal_();
  TrainingState state;
  state.step = 12;
  state.epoch = 3;
  state.batch = 2;
  state.epoch_fraction = 3.1;
  state.cases = 48;
  state.seconds = 0.1 + 0.2;
  state.evaluation_seconds = 1e-300;
  state.loss_sum = 1.0 / 3;
  state.loss_count = 7;
  state.input_seconds = 0.25;
  state.data = "where it was";
  state.best = RunResult::Best{"valid", 8, {{"valid", 0.25}}};
  for (const auto& [name, t] : WeightsOf(net)) state.best_weights.emplace_back(name, t.clone() + 1);
  state.last = {.step = 8, .epoch = 2, .cases = 32, .seconds = 0.2, .values = {{"valid", 0.5}}};
  state.threads = "2";
  SaveCheckpoint(file, net, adam, state);
  const at::Tensor next = at::rand({5});  // what the generator gives after the checkpoint

  Net other(4);
  Adam other_adam(Parameters(other), {});
  const TrainingState back = LoadCheckpoint(file, other, other_adam);
  EXPECT_TRUE(at::rand({5}).equal(next));
  for (const auto& item : net.named_parameters())
    EXPECT_TRUE(item.value().equal(other.named_parameters()[item.key()])) << item.key();
  for (const auto& item : net.named_buffers())
    EXPECT_TRUE(item.value().equal(other.named_buffers()[item.key()])) << item.key();
  const NamedTensors a = adam.State(), b = other_adam.State();
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].second.equal(b[i].second)) << a[i].first;
  EXPECT_EQ(back.step, 12);
  EXPECT_EQ(back.epoch, 3);
  EXPECT_EQ(back.batch, 2);
  EXPECT_EQ(back.epoch_fraction, 3.1);
  EXPECT_EQ(back.cases, 48);
  EXPECT_EQ(back.seconds, 0.1 + 0.2);
  EXPECT_EQ(back.evaluation_seconds, 1e-300);
  EXPECT_EQ(back.loss_sum, 1.0 / 3);
  EXPECT_EQ(back.loss_count, 7);
  EXPECT_EQ(back.best->values.at("valid"), 0.25);
  EXPECT_EQ(back.last.values.at("valid"), 0.5);
  EXPECT_EQ(back.threads, "2");
  EXPECT_EQ(back.input_seconds, 0.25);
  EXPECT_EQ(back.data, "where it was");
  EXPECT_EQ(CheckpointData(file), "where it was");
  ASSERT_EQ(back.best_weights.size(), state.best_weights.size());
  Net best(4);
  LoadBestWeights(file, best);
  const NamedTensors weights = WeightsOf(best);
  for (size_t i = 0; i < weights.size(); ++i) {
    EXPECT_TRUE(back.best_weights[i].second.equal(state.best_weights[i].second));
    EXPECT_TRUE(weights[i].second.equal(state.best_weights[i].second)) << weights[i].first;
  }
}

TEST_F(CheckpointTest, HasNoBestWeightsBeforeAnEvaluation) {
  Net net(4);
  Adam adam(Parameters(net), {});
  SaveCheckpoint(file, net, adam, {});
  EXPECT_THROW(LoadBestWeights(file, net), RunError);
}

TEST_F(CheckpointTest, RefusesAnotherModel) {
  Net net(4), wider(5);
  Adam adam(Parameters(net), {}), wider_adam(Parameters(wider), {});
  SaveCheckpoint(file, net, adam, {});
  try {
    LoadCheckpoint(file, wider, wider_adam);
    FAIL();
  } catch (const RunError& e) {
    EXPECT_THAT(e.what(), HasSubstr("must have type F32 and shape [5,3] but has F32 and [4,3]"));
  }
  torch::nn::Linear linear(3, 4);
  Adam linear_adam(Parameters(*linear), {});
  EXPECT_THROW(LoadCheckpoint(file, *linear, linear_adam), RunError);
}

TEST_F(CheckpointTest, RefusesAnotherFile) {
  Net net(4);
  Adam adam(Parameters(net), {});
  std::filesystem::create_directories(file.parent_path());
  WriteSafetensors(file, {}, {{"format", "something else"}});
  EXPECT_THROW(LoadCheckpoint(file, net, adam), RunError);
  WriteSafetensors(file, {}, {{"format", "planish-checkpoint/2"}, {"state", "{}"}});
  EXPECT_THROW(LoadCheckpoint(file, net, adam), RunError);
  EXPECT_THROW(LoadCheckpoint(folder.path() / "none", net, adam), RunError);
}

}  // namespace
}  // namespace planish::lab
