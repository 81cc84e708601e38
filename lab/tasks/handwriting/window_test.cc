#include "lab/tasks/handwriting/window.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "lab/tasks/handwriting/testing.h"

namespace planish::lab {
namespace {

constexpr int64_t kCases = 3, kGaussians = 4, kAlphabet = 6;

// Texts of 5, 2 and 4 characters.
at::Tensor Symbols() {
  return at::tensor({0, 3, 3, 5, 1, 2, 0, -1, -1, -1, 4, 4, 1, 2, -1}, at::kLong).view({3, 5});
}

TEST(TextWindow, FollowsItsEquations) {
  const at::Tensor raw = Normal({kCases, 3 * kGaussians}, 1);
  const at::Tensor before = 2 + Normal({kCases, kGaussians}, 2);
  const auto [window, positions] =
      TextWindow(Symbols(), kAlphabet, at::kDouble, false).Step(raw, before);
  const auto r = raw.accessor<double, 2>(), k0 = before.accessor<double, 2>();
  const auto symbol = Symbols();
  for (int64_t i = 0; i < kCases; ++i) {
    std::vector<double> expected(kAlphabet, 0);
    for (int64_t k = 0; k < kGaussians; ++k) {
      const double at = k0[i][k] + std::exp(r[i][2 * kGaussians + k]);
      EXPECT_NEAR(positions[i][k].item<double>(), at, 1e-14);
      for (int64_t u = 1; u <= 5; ++u) {
        const auto s = symbol[i][u - 1].item<int64_t>();
        if (s < 0) continue;
        const double distance = at - static_cast<double>(u);
        expected[static_cast<size_t>(s)] +=
            std::exp(r[i][k]) * std::exp(-std::exp(r[i][kGaussians + k]) * distance * distance);
      }
    }
    for (int64_t v = 0; v < kAlphabet; ++v) {
      // Sums of a few values of size 1 in double.
      EXPECT_NEAR(window[i][v].item<double>(), expected[static_cast<size_t>(v)], 1e-14);
    }
  }
}

// Compares values and gradients over several steps with PyTorch's operators and autograd.
TEST(TextWindow, IsTheComposedOne) {
  const auto run = [](bool composed) {
    const TextWindow text(Symbols(), kAlphabet, at::kDouble, composed);
    std::vector<at::Tensor> inputs = {Normal({kCases, kGaussians}, 3)}, outputs;
    at::Tensor positions = inputs[0].requires_grad_();
    at::Tensor window;
    for (uint64_t step = 0; step < 3; ++step) {
      inputs.push_back(Normal({kCases, 3 * kGaussians}, 4 + step).requires_grad_());
      std::tie(window, positions) = text.Step(inputs.back(), positions);
      outputs.push_back(window);
    }
    outputs.push_back(positions);
    at::Tensor sum = at::zeros({}, at::kDouble);
    for (size_t i = 0; i < outputs.size(); ++i) {
      sum = sum + (outputs[i] * Normal(outputs[i].sizes(), 10 + i)).sum();
    }
    for (const at::Tensor& d : torch::autograd::grad({sum}, inputs, {}, true)) outputs.push_back(d);
    // A window without a gradient, and positions without one.
    for (const at::Tensor& one : {outputs[2].sum(), positions.sum()}) {
      for (const at::Tensor& d : torch::autograd::grad({one}, inputs, {}, true)) {
        outputs.push_back(d);
      }
    }
    return outputs;
  };
  const auto fused = run(false), composed = run(true);
  ASSERT_EQ(fused.size(), composed.size());
  for (size_t i = 0; i < fused.size(); ++i) {
    ASSERT_TRUE(fused[i].defined()) << i;
    // Values up to some tens in double.
    EXPECT_TRUE(at::allclose(fused[i], composed[i], 1e-12, 1e-12)) << i;
  }
}

TEST(TextWindow, ComputesInFloat) {
  const at::Tensor raw = Normal({kCases, 3 * kGaussians}, 1), before = Normal({kCases, 4}, 2);
  const auto exact = TextWindow(Symbols(), kAlphabet, at::kDouble, false).Step(raw, before);
  const auto ours = TextWindow(Symbols(), kAlphabet, at::kFloat, false)
                        .Step(raw.to(at::kFloat), before.to(at::kFloat));
  // Values of size 1 after two exponentials.
  EXPECT_TRUE(at::allclose(ours.first.to(at::kDouble), exact.first, 1e-5, 1e-6));
}

TEST(HasPassed, ComparesTheEndWithEveryCharacter) {
  // One narrow Gaussian at 3.4, 3.6 and 20 on a text of three characters.
  for (const auto& [position, passed] : {std::pair(3.4, false), {3.6, true}, {9.0, true}}) {
    const at::Tensor raw = at::tensor({0.0, 1.0, -1.0}).unsqueeze(0);
    EXPECT_EQ(HasPassed(raw, at::full({1, 1}, position), 3), passed) << position;
  }
  // A second, weaker one after the first does not count, a stronger one does.
  for (const auto& [weight, passed] : {std::pair(-1.0, false), {1.0, true}}) {
    const at::Tensor raw = at::tensor({0.0, weight, 0.0, 0.0, 0.0, 0.0}).unsqueeze(0);
    EXPECT_EQ(HasPassed(raw, at::tensor({1.0, 4.0}).unsqueeze(0), 3), passed) << weight;
  }
}

}  // namespace
}  // namespace planish::lab
