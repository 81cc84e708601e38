#include "lab/engine/shards.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <utility>
#include <vector>

#include "lab/engine/adam.h"

namespace planish::lab {
namespace {

at::Tensor Cases(const std::vector<int64_t>& cases) { return at::tensor(cases, at::kLong); }

struct Model : torch::nn::Module {
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(3, 1));
  at::Tensor mean = register_buffer("mean", at::zeros({3}));
  at::Tensor count = register_buffer("count", at::zeros({}, at::kLong));
  at::Tensor state = register_buffer("state", at::zeros({2, 7}));  // of 7 streams
};

// Mean squared error over cases, in double.
struct Regression final : Experiment {
  Regression() {
    at::Generator generator = at::detail::createCPUGenerator(3);
    net.to(at::kDouble);
    net.count.set_data(at::zeros({}, at::kLong));  // to() converts it
    x = at::randn({7, 3}, generator, at::kDouble);
    y = at::randn({7}, generator, at::kDouble);
    for (at::Tensor& p : net.parameters()) p.data().fill_(0.25);
  }
  torch::nn::Module& model() override { return net; }
  EpochPlan PlanEpoch(at::Generator& /*generator*/) override { return {}; }
  Tensors StreamStates() override { return {net.state.movedim(1, 0)}; }
  Tensors Batch(const at::Tensor& cases) override {
    drawn.push_back(at::rand({}).item<double>());
    return {x.index_select(0, cases), y.index_select(0, cases), cases};
  }
  at::Tensor Loss(const Tensors& batch) override {
    net.mean.copy_(batch[0].mean(0));
    net.count.add_(1);
    net.state.index_fill_(1, batch[2], static_cast<double>(shard().index + 1));
    return (net.linear->forward(batch[0]).squeeze(1) - batch[1]).square().mean();
  }
  Values Evaluate() override { return {}; }

  Model net;
  at::Tensor x, y;
  std::vector<double> drawn;
};

// Keeps the gradients and changes nothing.
struct NoOptimizer final : Optimizer {
  void SetLearningRate(double /*rate*/) override {}
  void Step() override {}
  NamedTensors State() const override { return {}; }
  void CheckState(int64_t /*updates*/) const override {}
};

struct Result {
  Update update;
  std::vector<at::Tensor> gradients;
};

Result InShards(Regression& experiment, int64_t shards, const std::vector<at::Tensor>& batches,
                int64_t step = 0) {
  Processes alone;
  NoOptimizer optimizer;
  Result result;
  at::Tensor signals = at::tensor({1.0, 0.0}, at::kDouble);
  ShardedUpdates updates(experiment, alone, shards, 5);
  result.update = updates.Run(
      step, optimizer, batches,
      [&](const std::vector<at::Tensor>& gradients) {
        for (const at::Tensor& g : gradients) result.gradients.push_back(g.clone());
      },
      signals);
  EXPECT_TRUE(at::equal(signals, at::tensor({1.0, 0.0}, at::kDouble)));
  updates.CompleteStreams();
  return result;
}

TEST(ShardedUpdates, GivesLossGradientsAndStatisticsOfTheWholeBatch) {
  const std::vector<at::Tensor> batches = {Cases({0, 1, 2, 3, 4, 5, 6}), Cases({6, 2, 4, 1, 3})};
  Regression whole;
  NoOptimizer optimizer;
  const Update expected = UpdateWeights(whole, optimizer, batches);
  // 16: more shards than cases, so some are empty. 3: no power of two.
  for (const int64_t shards : {1, 2, 3, 4, 16}) {
    SCOPED_TRACE(shards);
    Regression parts;
    const Result got = InShards(parts, shards, batches);
    // Sums of 12 doubles in another order.
    EXPECT_NEAR(got.update.loss, expected.loss, 1e-15);
    ASSERT_EQ(got.gradients.size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(at::allclose(got.gradients[i], whole.net.parameters()[i].grad(), 1e-14, 1e-15));
    }
    EXPECT_TRUE(at::allclose(parts.net.mean, whole.net.mean, 1e-14, 1e-15));
    EXPECT_EQ(parts.net.count.item<int64_t>(), 2);
  }
}

TEST(ShardedUpdates, KeepsTheStreamsOfEveryShard) {
  Regression experiment;
  InShards(experiment, 4, {Cases({0, 1, 2, 3, 4, 5, 6})});
  EXPECT_TRUE(at::equal(experiment.net.state[0],
                        at::tensor({1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0}, at::kDouble)));
}

TEST(ShardedUpdates, ItsRandomNumbersFollowFromUpdateAndShard) {
  const std::vector<at::Tensor> batches = {Cases({0, 1, 2, 3}), Cases({4, 5, 6, 0})};
  Regression one, other, later;
  InShards(one, 2, batches, 3);
  at::rand({100});
  InShards(other, 2, batches, 3);
  InShards(later, 2, batches, 4);
  EXPECT_THAT(one.drawn, testing::SizeIs(4));
  EXPECT_EQ(one.drawn, other.drawn);
  one.drawn.insert(one.drawn.end(), later.drawn.begin(), later.drawn.end());
  std::ranges::sort(one.drawn);
  EXPECT_EQ(std::ranges::unique(one.drawn).size(), 0u);
}

TEST(ShardedUpdates, AnInfiniteLossLeavesTheGradientsUnused) {
  Regression experiment;
  experiment.y[6] = INFINITY;
  const Result got = InShards(experiment, 4, {Cases({0, 1, 2, 3, 4, 5, 6})});
  EXPECT_TRUE(std::isinf(got.update.loss));
  EXPECT_TRUE(got.gradients.empty());
  for (const at::Tensor& p : experiment.net.parameters()) EXPECT_FALSE(p.grad().defined());
}

TEST(Shard, CutsAllElementsInOrder) {
  for (const int64_t n : {0, 1, 5, 8}) {
    int64_t next = 0;
    for (int64_t index = 0; index < 4; ++index) {
      const Shard shard{index, 4};
      EXPECT_EQ(shard.Begin(n), next);
      EXPECT_LE(shard.End(n) - shard.Begin(n), (n + 3) / 4);
      next = shard.End(n);
    }
    EXPECT_EQ(next, n);
  }
}

}  // namespace
}  // namespace planish::lab
