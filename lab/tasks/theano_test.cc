#include "lab/tasks/theano.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "lab/tasks/order-embedding/order_embedding.h"
#include "lab/tasks/task_testing.h"

namespace planish::lab {
namespace {

// The update loop of common Theano code, whose b1 and b2 are 1 minus the paper's betas.
TEST(TheanoAdam, FollowsTheanoCode) {
  const Adam::Options options{.learning_rate = 0.05};
  const std::vector<double> gradients = {1.0, -0.25, 0.0, 1e-6, 30.0, -7.5};
  const double b1 = 0.1, b2 = 0.001;
  double expected = 0.5, m = 0, v = 0;
  at::Tensor weight = at::full({37}, 0.5, at::kDouble).requires_grad_(true);
  TheanoAdam adam({{"w", weight}}, options);
  for (size_t i = 0; i < gradients.size(); ++i) {
    const double g = gradients[i], t = static_cast<double>(i + 1);
    m = b1 * g + (1 - b1) * m;
    v = b2 * g * g + (1 - b2) * v;
    const double rate = 0.05 * std::sqrt(1 - std::pow(b2, t)) / (1 - std::pow(b1, t));
    expected -= rate * m / (std::sqrt(v) + options.epsilon);
    weight.mutable_grad() = at::full({37}, g, at::kDouble);
    adam.Step();
    if (i == 0) {
      // The first update is 3.5 times the textbook's, which is the learning rate.
      EXPECT_NEAR((0.5 - expected) / 0.05, 3.51, 0.01);
    }
  }
  // 6 steps of about 10 roundings each; the kernel's beta is 1 - b, rounded.
  EXPECT_LE(weight.detach().sub(expected).abs().max().item<double>(), 120 * 0x1p-53);
}

// With a limit of 10, a norm n above 100 becomes 10 sqrt(n).
TEST(ClipByRoot, ScalesNormsAboveTheSquareOfTheLimit) {
  const auto clipped = [](double scale, double limit) {
    std::vector<at::Tensor> gradients = {at::full({1}, 3 * scale), at::full({1}, 4 * scale)};
    if (const Clipping clip = ClipByRoot(limit)) clip(gradients);
    EXPECT_FLOAT_EQ(gradients[1].item<float>(), gradients[0].item<float>() * 4 / 3);
    return gradients[0].item<float>();
  };
  EXPECT_FLOAT_EQ(clipped(1, 10), 3);      // norm 5
  EXPECT_FLOAT_EQ(clipped(19, 10), 57);    // 95: below 100, above 10
  EXPECT_FLOAT_EQ(clipped(20, 10), 60);    // 100
  EXPECT_FLOAT_EQ(clipped(80, 10), 120);   // 400 becomes 10 * 20 = 200
  EXPECT_FLOAT_EQ(clipped(500, 10), 300);  // 2500 becomes 10 * 50 = 500
  EXPECT_FLOAT_EQ(clipped(500, 0), 1500);
}

TEST(OrderEmbedding, AcceptsTheSettingsOfTheanoCode) {
  const auto task = MakeOrderEmbedding();
  const NamedTensors weights = {{"w", at::ones({2}).requires_grad_(true)}};
  for (const bool theano : {false, true}) {
    const Settings settings =
        PresetSettings(*task, "smoke", {{"adam", theano ? "theano" : "textbook"}});
    const auto optimizer = task->MakeOptimizer(weights, settings);
    EXPECT_EQ(dynamic_cast<TheanoAdam*>(optimizer.get()) != nullptr, theano);
  }
  std::vector<at::Tensor> gradients = {at::full({1}, 30.0F), at::full({1}, 40.0F)};
  task->MakeClipping(PresetSettings(*task, "smoke", {{"clip_each", "6"}, {"clip", "0"}}))(
      gradients);
  EXPECT_FLOAT_EQ(gradients[0].item<float>(), 6);
  EXPECT_FLOAT_EQ(gradients[1].item<float>(), 6);
  task->MakeClipping(PresetSettings(*task, "smoke", {{"clip_each", "4"}, {"clip", "1"}}))(
      gradients);
  EXPECT_FLOAT_EQ(gradients[0].item<float>(), static_cast<float>(std::sqrt(0.5)));
}

}  // namespace
}  // namespace planish::lab
