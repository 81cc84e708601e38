#include "lab/downstream/logistic.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "lab/error.h"

namespace planish::lab {
namespace {

const auto kDoubles = at::TensorOptions().dtype(at::kDouble);

struct Problem {
  at::Tensor x, labels;
};

Problem Make(int64_t rows, int64_t columns) {
  at::manual_seed(7);
  const at::Tensor x = at::randn({rows, columns}, kDoubles);
  const at::Tensor z = x.select(1, 0) - 0.5 * x.select(1, 1) + at::randn({rows}, kDoubles) + 0.3;
  return {x, (z > 0).to(at::kDouble)};
}

// Returns the derivatives [D + 1] of c sum log(1 + exp(-y z)) + |w|^2 / 2.
at::Tensor Derivatives(const Problem& p, double c, const at::Tensor& w) {
  const at::Tensor z = p.x.mv(w.slice(0, 0, -1)) + w[-1];
  const at::Tensor dz = c * (1 / (1 + (-z).exp()) - p.labels);
  return at::cat({p.x.t().mv(dz) + w.slice(0, 0, -1), dz.sum().view({1})});
}

// A tolerance of 1e-9 on the mean loss is one of 1e-9 * c * rows on this one.
TEST(FitLogistic, EndsAtZeroDerivatives) {
  const Problem p = Make(80, 5);
  const at::Tensor c = at::tensor({0.01, 1.0, 256.0}, kDoubles);
  const at::Tensor w =
      FitLogistic(p.x, p.labels, at::ones({80, 3}, kDoubles), c, {}, {.tolerance = 1e-9});
  ASSERT_EQ(w.sizes(), at::IntArrayRef({6, 3}));
  for (int64_t i = 0; i < 3; ++i) {
    const double value = c[i].item<double>();
    EXPECT_LE(Derivatives(p, value, w.select(1, i)).abs().max().item<double>(), 1e-9 * value * 81)
        << value;
  }
  // A smaller penalty gives larger weights.
  EXPECT_LT(w.select(1, 0).norm().item<double>(), w.select(1, 2).norm().item<double>());
}

// A problem with a mask equals one with only its rows, from any start.
TEST(FitLogistic, UsesOnlyTheRowsOfTheMask) {
  const Problem p = Make(60, 4);
  at::Tensor mask = at::ones({60, 2}, kDoubles);
  mask.select(1, 1).slice(0, 20, 45).zero_();
  const at::Tensor c = at::full({2}, 8.0, kDoubles);
  const FitOptions exact{.tolerance = 1e-10};
  const at::Tensor both = FitLogistic(p.x, p.labels, mask, c, {}, exact);
  const auto part = [&](const at::Tensor& t) {
    return at::cat({t.slice(0, 0, 20), t.slice(0, 45)});
  };
  const at::Tensor one = FitLogistic(part(p.x), part(p.labels), at::ones({35, 1}, kDoubles),
                                     c.slice(0, 0, 1), at::ones({5, 1}, kDoubles), exact);
  // Curvature is at least 1 / (c rows) = 1 / 280: derivatives of 1e-10 give an error of 3e-8 in the
  // weights.
  EXPECT_LE((both.select(1, 1) - one.select(1, 0)).abs().max().item<double>(), 5e-8);
  EXPECT_GT((both.select(1, 0) - one.select(1, 0)).abs().max().item<double>(), 1e-2);
}

// With two classes a softmax is a logistic function of the difference of their sums.
TEST(FitSoftmax, IsLogisticForTwoClasses) {
  const Problem p = Make(70, 3);
  const at::Tensor targets = at::stack({1 - p.labels, p.labels}, 1);
  const FitOptions exact{.tolerance = 1e-10};
  const at::Tensor two = FitSoftmax(p.x, targets, at::tensor({0.5, 2.0}, kDoubles), exact);
  const at::Tensor one = FitLogistic(p.x, p.labels, at::ones({70, 2}, kDoubles),
                                     at::tensor({1.0, 4.0}, kDoubles), {}, exact);
  // For a difference w the penalty is |w|^2 / 4 in the softmax with c and |w|^2 / 2 in the logistic
  // function: so c doubles.
  const at::Tensor difference = two.select(2, 1) - two.select(2, 0);
  EXPECT_LE((difference - one).abs().max().item<double>(), 1e-6);  // tolerance as above
}

TEST(FitSoftmax, EndsAtZeroDerivatives) {
  at::manual_seed(3);
  const at::Tensor x = at::randn({50, 4}, kDoubles);
  const at::Tensor targets = at::rand({50, 5}, kDoubles).softmax(1);
  const at::Tensor w =
      FitSoftmax(x, targets, at::tensor({3.0}, kDoubles), {.tolerance = 1e-9}).squeeze(1);
  const at::Tensor z = x.mm(w.slice(0, 0, -1)) + w[-1];
  const at::Tensor dz = 3 * (z.exp() / z.exp().sum(1, true) - targets);
  EXPECT_LE((x.t().mm(dz) + w.slice(0, 0, -1)).abs().max().item<double>(), 1e-9 * 3 * 51);
  EXPECT_LE(dz.sum(0).abs().max().item<double>(), 1e-9 * 3 * 51);
}

TEST(Predict, AddsTheIntercept) {
  const at::Tensor x = at::tensor({1.0, 2.0, 3.0, 4.0}, kDoubles).view({2, 2});
  const at::Tensor w = at::tensor({10.0, 1.0, 20.0, 2.0, 5.0, 7.0}, kDoubles).view({3, 2});
  EXPECT_TRUE(Predict(x, w).equal(at::tensor({55.0, 12.0, 115.0, 18.0}, kDoubles).view({2, 2})));
  EXPECT_EQ(Predict(x, w.unsqueeze(2)).sizes(), at::IntArrayRef({2, 2, 1}));
}

TEST(FitLogistic, ReportsMissingConvergence) {
  const Problem p = Make(80, 5);
  const at::Tensor mask = at::ones({80, 1}, kDoubles), c = at::ones({1}, kDoubles);
  EXPECT_THROW(FitLogistic(p.x, p.labels, mask, c, {}, {.iterations = 2}), RunError);
  int polled = 0;
  EXPECT_THROW(FitLogistic(p.x, p.labels, mask, c, {},
                           {.poll =
                                [&] {
                                  if (++polled == 3) throw UsageError("stop");
                                }}),
               UsageError);
}

}  // namespace
}  // namespace planish::lab
