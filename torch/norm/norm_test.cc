#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>
#include <vector>

#include "planish/torch_norm.h"

namespace planish {
namespace {

using at::Tensor;
using ::testing::HasSubstr;

// Both sides compute in double: sums of at most a few hundred terms of size about 1, each rounded
// to 2^-53, in different order. 1e-12 is a thousand such roundings.
constexpr double kDouble = 1e-12;

double MaxDifference(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  return a.numel() == 0 ? 0 : (a.detach() - b.detach()).abs().max().item<double>();
}

Tensor Random(at::IntArrayRef shape) { return at::randn(shape, at::kDouble); }

Tensor Leaf(const Tensor& t) { return t.detach().clone().requires_grad_(true); }

struct Case {
  std::vector<int64_t> shape, normalized;
  bool weight, bias;
};

class AgainstAten : public ::testing::TestWithParam<Case> {};

// ATen's layer norm in double is an independent implementation of the same function.
TEST_P(AgainstAten, ForwardAndGradientsMatch) {
  at::manual_seed(1);
  const Case& c = GetParam();
  const Tensor x = Random(c.shape), dy = Random(c.shape);
  const Tensor w = Random(c.normalized), b = Random(c.normalized);
  const auto run = [&](bool ours) {
    std::vector<Tensor> inputs = {Leaf(x)};
    std::optional<Tensor> weight, bias;
    if (c.weight) inputs.push_back(*(weight = Leaf(w)));
    if (c.bias) inputs.push_back(*(bias = Leaf(b)));
    const Tensor y = ours ? planish::layer_norm(inputs[0], c.normalized, weight, bias, 1e-5)
                          : at::layer_norm(inputs[0], c.normalized, weight, bias, 1e-5);
    std::vector<Tensor> results = torch::autograd::grad({y}, inputs, {dy});
    results.push_back(y);
    return results;
  };
  const std::vector<Tensor> ours = run(true), theirs = run(false);
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i)
    EXPECT_LT(MaxDifference(ours[i], theirs[i]), kDouble) << i;
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, AgainstAten,
    ::testing::Values(Case{{5, 7}, {7}, true, true}, Case{{5, 7}, {7}, false, false},
                      Case{{5, 7}, {7}, true, false}, Case{{5, 7}, {7}, false, true},
                      Case{{2, 3, 4, 5}, {4, 5}, true, true}, Case{{2, 3, 4, 5}, {5}, true, true},
                      Case{{2, 3, 4}, {2, 3, 4}, true, true}, Case{{9}, {9}, true, true},
                      Case{{300, 33}, {33}, true, true}, Case{{1, 1000}, {1000}, true, true}));

TEST(LayerNorm, AcceptsNonContiguousInputsAndGradients) {
  at::manual_seed(2);
  const Tensor x = Random({7, 5}).t(), w = Random({14}).slice(0, 0, 14, 2);
  const Tensor dy = Random({7, 5}).t();
  const Tensor a = Leaf(x), b = Leaf(x.contiguous());
  const Tensor ya = planish::layer_norm(x.requires_grad_(true), {7}, w);
  const Tensor yb = planish::layer_norm(b, {7}, w.contiguous());
  EXPECT_TRUE(ya.equal(yb));
  EXPECT_TRUE(torch::autograd::grad({ya}, {x}, {dy})[0].equal(
      torch::autograd::grad({yb}, {b}, {dy.contiguous()})[0]));
}

TEST(LayerNorm, AcceptsNoRows) {
  const Tensor x = at::empty({0, 4}).requires_grad_(true), w = at::ones({4}).requires_grad_(true);
  const Tensor y = planish::layer_norm(x, {4}, w);
  EXPECT_EQ(y.sizes(), x.sizes());
  const auto grads = torch::autograd::grad({y.sum()}, {x, w});
  EXPECT_EQ(grads[0].sizes(), x.sizes());
  EXPECT_TRUE(grads[1].equal(at::zeros({4})));  // a sum over no rows
}

TEST(LayerNorm, HasTheSameBitsOnOneAndTwoThreads) {
  at::manual_seed(3);
  const Tensor x = at::randn({4096, 100}), w = at::randn({100}), dy = at::randn({4096, 100});
  const int threads = at::get_num_threads();
  const auto run = [&](int n) {
    at::set_num_threads(n);
    const Tensor a = Leaf(x), b = Leaf(w);
    const Tensor y = planish::layer_norm(a, {100}, b);
    auto results = torch::autograd::grad({y}, {a, b}, {dy});
    results.push_back(y);
    return results;
  };
  const auto one = run(1), two = run(2);
  at::set_num_threads(threads);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(one[i].equal(two[i])) << i;
}

TEST(LayerNorm, IsExactAtALargeMean) {
  at::manual_seed(4);
  const Tensor x = at::randn({64, 256}) + 1e6;
  const Tensor xhat = at::layer_norm(x.to(at::kDouble), {256});
  // 5e-7 * max(1, |xhat|): four roundings to float of values of the size of xhat.
  EXPECT_TRUE((planish::layer_norm(x, {256}) - xhat)
                  .abs()
                  .le(5e-7 * xhat.abs().clamp_min(1))
                  .all()
                  .item<bool>());
}

// Second derivatives; the Python tests run gradgradcheck on every function.
TEST(LayerNorm, HasASecondDerivative) {
  at::manual_seed(7);
  const Tensor x = Random({2, 3}).requires_grad_(true), u = Random({2, 3});
  const auto second = [&](const Tensor& y) {
    const Tensor dx =
        torch::autograd::grad({y.pow(3).sum()}, {x}, {}, true, /*create_graph=*/true)[0];
    return torch::autograd::grad({dx}, {x}, {u})[0];
  };
  EXPECT_LT(MaxDifference(second(planish::layer_norm(x, {3})), second(at::layer_norm(x, {3}))),
            kDouble);
}

TEST(LayerNorm, SavesNothingWithoutGradients) {
  const Tensor x = Random({2, 3}).requires_grad_(true);
  EXPECT_TRUE(planish::layer_norm(x, {3}).requires_grad());
  at::NoGradGuard guard;
  EXPECT_FALSE(planish::layer_norm(x, {3}).requires_grad());
}

TEST(LayerNorm, InfersShapesOnTheMetaDevice) {
  const Tensor x = at::empty({2, 3, 4}, at::device(at::kMeta));
  EXPECT_EQ(planish::layer_norm(x, {3, 4}).sizes(), x.sizes());
}

std::string ErrorOf(const std::function<void()>& f) {
  try {
    f();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "no error";
}

TEST(LayerNorm, RejectsInvalidArguments) {
  const Tensor x = at::randn({2, 3});
  EXPECT_THAT(ErrorOf([&] { planish::layer_norm(x, {4}); }),
              HasSubstr("[layer_norm] normalized_shape must be the last dimensions of x, which has "
                        "[2, 3], got [4]"));
  EXPECT_THAT(ErrorOf([&] { planish::layer_norm(x, {}); }), HasSubstr("normalized_shape must"));
  EXPECT_THAT(ErrorOf([&] { planish::layer_norm(x, {1, 2, 3}); }),
              HasSubstr("normalized_shape must"));
  EXPECT_THAT(ErrorOf([&] { planish::layer_norm(x, {3}, at::ones({2})); }),
              HasSubstr("weight must have normalized_shape, [3], got [2]"));
  EXPECT_THAT(ErrorOf([&] { planish::layer_norm(x, {3}, at::ones({3}, at::kInt)); }),
              HasSubstr("weight must have x's type or Float, and x's device, Float on cpu, got "
                        "Int on cpu"));
  EXPECT_THAT(ErrorOf([&] { planish::layer_norm(x.to(at::kInt), {3}); }),
              HasSubstr("x must be float, double, bfloat16 or half, got Int"));
  EXPECT_THAT(ErrorOf([&] { planish::layer_norm(x, {3}, {}, {}, -1); }),
              HasSubstr("[layer_norm] eps must be finite and at least 0, got -1"));
}

}  // namespace
}  // namespace planish
