#include "lab/model/linear.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <cmath>

namespace planish::lab {
namespace {

double Distance(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

// Compares with PyTorch's own in double. A float sum of n products of size 1 has the size sqrt(n).
// Its relative error is a few sqrt(n) * 6e-8. n is at most 300.
TEST(Linear, MatchesPyTorch) {
  at::manual_seed(1);
  constexpr double kTolerance = 1e-4;
  for (const auto& [inputs, outputs] : {std::pair(20, 70), {70, 20}, {33, 33}, {5, 1}, {1, 5}}) {
    Linear linear(inputs, outputs);
    for (const std::vector<int64_t>& leading :
         {std::vector<int64_t>{300}, {10, 30}, {1}, {2, 3, 4}, {0}, {3, 0}, {}}) {
      std::vector<int64_t> sizes = leading;
      sizes.push_back(inputs);
      const at::Tensor x = at::randn(sizes).requires_grad_(true);
      const at::Tensor y = linear->forward(x);
      const at::Tensor dy = at::randn_like(y);
      linear->zero_grad();
      y.backward(dy);

      const auto twin = [](const at::Tensor& t) {
        return t.detach().to(at::kDouble).requires_grad_(true);
      };
      const at::Tensor a = twin(x), w = twin(linear->weight), b = twin(linear->bias);
      const at::Tensor expected = at::linear(a, w, b);
      ASSERT_EQ(y.sizes(), expected.sizes());
      expected.backward(dy.to(at::kDouble));
      if (x.numel() == 0) continue;
      EXPECT_LT(Distance(y, expected), kTolerance);
      EXPECT_LT(Distance(x.grad(), a.grad()), kTolerance);
      EXPECT_LT(Distance(linear->weight.grad(), w.grad()), kTolerance);
      EXPECT_LT(Distance(linear->bias.grad(), b.grad()), kTolerance);
      EXPECT_TRUE(linear->weight.grad().is_contiguous());
    }
  }
}

TEST(Linear, AcceptsViews) {
  at::manual_seed(2);
  Linear linear(8, 6);
  const at::Tensor x = at::randn({8, 40}).t();  // rows that are not contiguous
  const at::Tensor y = linear->forward(x), dy = at::randn({6, 40}).t();
  EXPECT_LT(Distance(y, at::linear(x.contiguous(), linear->weight, linear->bias)), 1e-5);
  y.backward(dy);
  EXPECT_LT(Distance(linear->weight.grad(), at::mm(dy.t(), x)), 1e-4);
  linear->zero_grad();
  linear->forward(x).sum().backward();  // an expanded gradient
  EXPECT_LT(Distance(linear->weight.grad(), x.sum(0).expand({6, 8})), 1e-4);
}

TEST(Linear, AcceptsNoBias) {
  at::manual_seed(4);
  Linear linear(torch::nn::LinearOptions(8, 6).bias(false));
  const at::Tensor x = at::randn({5, 8}).requires_grad_(true);
  const at::Tensor y = linear->forward(x), dy = at::randn({5, 6});
  EXPECT_LT(Distance(y, at::linear(x, linear->weight)), 1e-5);
  y.backward(dy);
  EXPECT_LT(Distance(linear->weight.grad(), at::mm(dy.t(), x)), 1e-5);
  EXPECT_LT(Distance(x.grad(), at::mm(dy, linear->weight)), 1e-5);
}

TEST(Linear, LeavesOtherNumbersToPyTorch) {
  at::manual_seed(3);
  Linear linear(8, 6);
  const at::Tensor x = at::randn({5, 8});
  linear->to(at::kDouble);
  const at::Tensor d = x.to(at::kDouble);
  EXPECT_TRUE(linear->forward(d).equal(at::linear(d, linear->weight, linear->bias)));
}

}  // namespace
}  // namespace planish::lab
