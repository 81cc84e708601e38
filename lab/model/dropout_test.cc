#include "lab/model/dropout.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <cmath>

namespace planish::lab {
namespace {

class DropoutTest : public ::testing::Test {
 protected:
  void SetUp() override { at::manual_seed(1); }
};

// Shares of a million: 4 standard deviations of sqrt(p (1 - p) / 1e6), at most 0.002.
TEST_F(DropoutTest, DropsTheShareAndKeepsTheMean) {
  const at::Tensor ones = at::ones({1000, 1000});
  for (const double rate : {0.1, 0.2, 0.5, 0.9}) {
    const at::Tensor y = Dropout(ones, rate, true);
    const at::Tensor dropped = y.eq(0);
    EXPECT_NEAR(dropped.to(at::kDouble).mean().item<double>(), rate, 0.002) << rate;
    // Kept elements are all equal, 1 / (1 - rate) up to the rounded rate.
    const at::Tensor kept = y.masked_select(dropped.logical_not());
    EXPECT_EQ(kept.min().item<float>(), kept.max().item<float>());
    EXPECT_NEAR(kept[0].item<double>() * (1 - rate), 1, 1e-4) << rate;
  }
  EXPECT_TRUE(Dropout(ones, 1, true).equal(at::zeros_like(ones)));
}

TEST_F(DropoutTest, ReturnsItsInputWithoutDropout) {
  const at::Tensor x = at::randn({3, 4});
  const at::Tensor state = at::detail::getDefaultCPUGenerator().get_state();
  EXPECT_TRUE(Dropout(x, 0, true).is_same(x));
  EXPECT_TRUE(Dropout(x, 0.5, false).is_same(x));
  EXPECT_TRUE(AddDropout(x, x, 0.5, false).equal(x + x));
  EXPECT_TRUE(AddDropout(x, x, 0, true).equal(x + x));
  EXPECT_TRUE(at::detail::getDefaultCPUGenerator().get_state().equal(state));
}

TEST_F(DropoutTest, DrawsOneNumberForAnySize) {
  const auto next_after = [](int64_t size) {
    at::manual_seed(7);
    Dropout(at::ones({size}), 0.5, true);
    return at::randint(1'000'000, {1}).item<int64_t>();
  };
  EXPECT_EQ(next_after(1), next_after(100'000));
  at::manual_seed(7);
  const at::Tensor first = Dropout(at::ones({1000}), 0.5, true);
  EXPECT_FALSE(Dropout(at::ones({1000}), 0.5, true).equal(first));
  at::manual_seed(7);
  EXPECT_TRUE(Dropout(at::ones({1000}), 0.5, true).equal(first));
}

// Positions are independent: products of centred values at many distances have a mean of 0,
// including distances of lanes, steps and blocks. No position in a step is favoured. Means of 2^20
// values of variance 1, or of 2^15: 5 standard deviations.
TEST_F(DropoutTest, DropsPositionsIndependently) {
  constexpr int64_t kCount = 1 << 20;
  const at::Tensor y = Dropout(at::ones({kCount}), 0.5, true) - 1;  // -1 or 1
  for (const int64_t distance : {1, 2, 3, 4, 7, 8, 16, 31, 32, 33, 64, 128, 4096, 4097, 8192}) {
    const at::Tensor products = y.slice(0, 0, kCount - distance) * y.slice(0, distance);
    EXPECT_LT(std::abs(products.mean().item<double>()), 5 / std::sqrt(kCount - distance))
        << distance;
  }
  EXPECT_LT(y.view({-1, 32}).mean(0).abs().max().item<double>(), 5 / std::sqrt(kCount / 32));
  // Another call's draws are independent of these.
  const at::Tensor other = Dropout(at::ones({kCount}), 0.5, true) - 1;
  EXPECT_LT(std::abs((y * other).mean().item<double>()), 5 / std::sqrt(kCount));
}

TEST_F(DropoutTest, DropsTheSameOnAnyNumberOfThreads) {
  const int threads = at::get_num_threads();
  const auto with = [](int count) {
    at::set_num_threads(count);
    at::manual_seed(3);
    return Dropout(at::ones({300'001}), 0.3, true);
  };
  EXPECT_TRUE(with(1).equal(with(3)));
  at::set_num_threads(threads);
}

TEST_F(DropoutTest, KeptElementsGetGradients) {
  const at::Tensor x = at::randn({50, 7}).requires_grad_(true), dy = at::randn({50, 7});
  at::manual_seed(5);
  const at::Tensor y = Dropout(x, 0.4, true);
  y.backward(dy);
  const at::Tensor factor = (y / x).detach();
  EXPECT_GT(factor.eq(0).sum().item<int64_t>(), 0);
  // A division and a product in float, of values below 10.
  EXPECT_LT((x.grad() - dy * factor).abs().max().item<double>(), 1e-5);
}

TEST_F(DropoutTest, AddsToAResidual) {
  const at::Tensor x = at::randn({50, 7}), residual = at::randn({50, 7});
  at::manual_seed(5);
  const at::Tensor expected = residual + Dropout(x, 0.4, true);
  at::manual_seed(5);
  // Rounded once or twice: values below 10.
  EXPECT_LT((AddDropout(residual, x, 0.4, true) - expected).abs().max().item<double>(), 2e-6);
}

}  // namespace
}  // namespace planish::lab
