#include "lab/model/order_violation.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace planish::lab {
namespace {

at::Tensor Composed(const at::Tensor& u, const at::Tensor& v) {
  return (u.unsqueeze(1) - v.unsqueeze(0)).clamp_min(0).square().sum(2);
}

// Returns the result, and the gradients of both inputs for the gradient `g`.
std::vector<at::Tensor> All(at::Tensor (*f)(const at::Tensor&, const at::Tensor&),
                            const at::Tensor& u, const at::Tensor& v, const at::Tensor& g) {
  const at::Tensor a = u.clone().requires_grad_(true), b = v.clone().requires_grad_(true);
  const at::Tensor e = f(a, b);
  e.backward(g);
  return {e.detach(), a.grad(), b.grad()};
}

TEST(OrderViolation, IsTheComposition) {
  at::manual_seed(1);
  // Sizes below, at and above those of vectors and tiles.
  for (const auto& [n, m, width] : std::vector<std::array<int64_t, 3>>{
           {1, 1, 1}, {3, 5, 7}, {32, 33, 64}, {5, 70, 129}, {2, 0, 3}}) {
    const at::Tensor u = at::randn({n, width}, at::kDouble), v = at::randn({m, width}, at::kDouble);
    at::Tensor g = at::randn({n, m}, at::kDouble);
    g.masked_fill_(g.abs() < 0.5, 0);  // most are 0, as in a contrastive loss
    const auto expected = All(Composed, u, v, g);
    const auto exact = All(OrderViolation, u, v, g);
    const auto single = All(OrderViolation, u.to(at::kFloat), v.to(at::kFloat), g.to(at::kFloat));
    for (size_t i = 0; i < expected.size(); ++i) {
      if (expected[i].numel() == 0) continue;
      // Sums of at most 129 values of size 1 to 20, in another order.
      EXPECT_LT((exact[i] - expected[i]).abs().max().item<double>(), 1e-12) << i;
      // In float with rounded inputs: tens of roundings of values up to some hundreds.
      EXPECT_LT((single[i] - expected[i]).abs().max().item<double>(), 1e-3) << i;
    }
  }
}

TEST(OrderViolation, AcceptsViews) {
  const at::Tensor u = at::randn({6, 4}, at::kDouble), v = at::randn({6, 5}, at::kDouble);
  const at::Tensor g = at::randn({5, 4}, at::kDouble).t();
  const auto a = All(OrderViolation, u.t(), v.t(), g);
  const auto b = All(Composed, u.t(), v.t(), g);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_LT((a[i] - b[i]).abs().max().item<double>(), 1e-13);
}

TEST(OrderViolation, IsZeroBelow) {
  const at::Tensor u = at::zeros({2, 9}), v = at::ones({3, 9});
  EXPECT_EQ(OrderViolation(u, v).count_nonzero().item<int64_t>(), 0);
  EXPECT_TRUE(OrderViolation(v, u).equal(at::full({3, 2}, 9.0F)));
}

TEST(OrderViolation, HasTheSameBitsOnAnyNumberOfThreads) {
  const at::Tensor u = at::randn({40, 65}), v = at::randn({37, 65}), g = at::randn({40, 37});
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const auto one = All(OrderViolation, u, v, g);
  at::set_num_threads(3);
  const auto three = All(OrderViolation, u, v, g);
  at::set_num_threads(before);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(one[i].equal(three[i]));
}

}  // namespace
}  // namespace planish::lab
