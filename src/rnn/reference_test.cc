// The reference against values computed by hand, and its derivatives against finite differences.
#include "src/rnn/reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "src/norm/testing.h"

namespace planish {
namespace {

using internal::CellRecipe;
using internal::RecipeOf;
using internal::ReferenceRnn;
using Array = std::vector<double>;

// A few operations on values of size 1, each with a rounding error of about 1e-16.
constexpr double kRounding = 1e-15;

double S(double a) { return 1 / (1 + std::exp(-a)); }

/// One step of one sequence with one unit and x = 1, so zx is weight_ih, and zh = weight_hh * h0.
ReferenceRnn<double> OneStep(Cell cell, const Array& weight_ih, const Array& weight_hh) {
  ReferenceRnn<double> call;
  call.cell = cell;
  call.shape = {1, 1, 1, 1};
  call.eps = 1e-300;  // the norm of one element is its bias, not 0 / 0; has no effect on others
  call.x = {1};
  call.h0 = {0.5};
  call.weight_ih = weight_ih;
  call.weight_hh = weight_hh;
  return call;
}

internal::ReferenceRnnOutputs<double> Forward(const ReferenceRnn<double>& call) {
  return internal::ReferenceRnnForward(call);
}

TEST(CellTest, Table) {
  for (const Cell cell : internal::kCells) {
    const CellRecipe recipe = RecipeOf(cell);
    int gates = 0;
    for (const int8_t group : recipe.groups) gates += group;
    EXPECT_EQ(gates, recipe.sums == internal::Sums::kPlain ? 0 : recipe.gates());
    EXPECT_TRUE(recipe.is_lstm() || recipe.cell == internal::CellNorm::kNone);
    // A sum of n with two parts cannot have a joint norm, and one sum needs it.
    EXPECT_FALSE(recipe.splits_n() && recipe.sums == internal::Sums::kJoint);
    EXPECT_FALSE(recipe.is_gru() && !recipe.splits_n() && recipe.sums != internal::Sums::kJoint);
  }
  EXPECT_EQ(tests::ErrorOf([] { RecipeOf(static_cast<Cell>(21)); }),
            "[Cell] cell must be a value of planish::Cell, got 21");
}

TEST(ReferenceTest, Rnn) {
  auto call = OneStep(Cell::kRnn, {2}, {-3});
  call.bias = {0.25};
  EXPECT_NEAR(Forward(call).y[0], std::tanh(0.75), kRounding);  // 2 - 3 / 2 + 1 / 4
  call.cell = Cell::kRnnRelu;
  EXPECT_NEAR(Forward(call).y[0], 0.75, kRounding);
  call.bias = {-1};
  EXPECT_EQ(Forward(call).y[0], 0);
}

TEST(ReferenceTest, LnRnn) {
  // Two units with the sums 3 + .5 * 2 = 4 and 1 - .5 * 2 = 0: xhat is 1 and -1.
  ReferenceRnn<double> call;
  call.cell = Cell::kLnRnn;
  call.shape = {1, 1, 1, 2};
  call.eps = 0;
  call.x = {1};
  call.h0 = {0.5, 7};
  call.weight_ih = {3, 1};
  call.weight_hh = {2, 0, -2, 0};
  call.ln_weight = {0.5, 2};
  call.ln_bias = {0.25, 1.5};
  EXPECT_NEAR(Forward(call).y[0], std::tanh(0.75), kRounding);
  EXPECT_NEAR(Forward(call).y[1], std::tanh(-0.5), kRounding);
  EXPECT_EQ(Forward(call).h, Forward(call).y);
  call.cell = Cell::kLnRnnRelu;
  EXPECT_NEAR(Forward(call).y[0], 0.75, kRounding);
  EXPECT_EQ(Forward(call).y[1], 0);
  call.eps = 5;  // inside the root: the variance is 4
  EXPECT_NEAR(Forward(call).y[0], 0.5 * 2 / 3 + 0.25, kRounding);
}

TEST(ReferenceTest, Lstm) {
  auto call = OneStep(Cell::kLstm, {1, 2, 3, 4}, {2, 0, -2, 4});
  call.bias = {0.5, -1, 0, -6};
  call.c0 = {3};
  // a: i 1 + 1 + .5, f 2 - 1, g 3 - 1, o 4 + 2 - 6
  const double c = S(1) * 3 + S(2.5) * std::tanh(2);
  EXPECT_NEAR(Forward(call).c[0], c, 3 * kRounding);
  EXPECT_NEAR(Forward(call).y[0], 0.5 * std::tanh(c), kRounding);
  // The norm of DRAW's c: the norm of one element is its bias.
  call.cell = Cell::kDrawLstm;
  call.ln_c_bias = {0.75};
  EXPECT_NEAR(Forward(call).c[0], c, 3 * kRounding);
  EXPECT_NEAR(Forward(call).y[0], 0.5 * std::tanh(0.75), kRounding);
}

TEST(ReferenceTest, LnLstm) {
  // zx = 9, 8, 6, 5 has mean 7 and deviation sqrt(2.5); zh = 1, 1, 1, 5 has mean 2 and deviation
  // sqrt(3).
  const double u = 1 / std::sqrt(2.5), v = 1 / std::sqrt(3);
  auto call = OneStep(Cell::kLnLstm, {9, 8, 6, 5}, {2, 2, 2, 10});
  call.c0 = {3};
  call.ln_ih_weight = {1, 2, 3, 4};
  call.ln_ih_bias = {0.1, 0.2, 0.3, 0.4};
  call.ln_hh_weight = {5, 6, 7, 8};
  call.ln_hh_bias = {0.5, 0.6, 0.7, 0.8};
  call.bias = {1, 2, 3, 4};
  call.ln_c_weight = {11};
  call.ln_c_bias = {0.75};
  const double a[] = {2 * u - 5 * v, 2 * u - 6 * v, -3 * u - 7 * v, -8 * u + 24 * v};
  const double biases[] = {0.6, 0.8, 1.0, 1.2};
  const auto c = [&](double b0, double b1, double b2) {
    return S(a[1] + b1) * 3 + S(a[0] + b0) * std::tanh(a[2] + b2);
  };
  const double paper = c(biases[0] + 1, biases[1] + 2, biases[2] + 3);
  EXPECT_NEAR(Forward(call).c[0], paper, 10 * kRounding);
  EXPECT_NEAR(Forward(call).y[0], S(a[3] + biases[3] + 4) * std::tanh(0.75), kRounding);

  call.cell = Cell::kLnLstmTfa;  // the cell state is the norm's bias
  EXPECT_NEAR(Forward(call).c[0], 0.75, kRounding);
  EXPECT_NEAR(Forward(call).y[0], S(a[3] + biases[3] + 4) * std::tanh(0.75), kRounding);

  call.cell = Cell::kLnLstmFastRnns;
  call.bias.clear();
  EXPECT_NEAR(Forward(call).c[0], 0.75, kRounding);
  EXPECT_NEAR(Forward(call).y[0], S(a[3] + biases[3]) * std::tanh(0.75), kRounding);

  call.cell = Cell::kLnLstmHaste;
  call.bias = {1, 2, 3, 4};
  call.ln_ih_bias.clear();
  call.ln_hh_bias.clear();
  EXPECT_NEAR(Forward(call).c[0], c(1, 2, 3), 10 * kRounding);
  EXPECT_NEAR(Forward(call).y[0], S(a[3] + 4) * std::tanh(0.75), kRounding);
}

TEST(ReferenceTest, ContribNormalisesEveryGateForItself) {
  // Two units: the sums of a gate are normalized to 1 and -1, or to -1 and 1.
  ReferenceRnn<double> call;
  call.cell = Cell::kLnLstmContrib;
  call.shape = {1, 1, 1, 2};
  call.eps = 0;
  call.x = {1};
  call.c0 = {1, 2};
  call.weight_ih = {5, 3, 100, 900, 0.2, 0.1, -7, -6};
  call.weight_hh = Array(16, 1);
  call.h0 = {4, -1};  // adds 3 to every sum
  call.ln_bias = {0, 0, 0, 0, 0, 0, 0.5, 0.25};
  call.ln_c_weight = {0.5, 0.25};
  const auto out = Forward(call);
  // c = s(-1) * 1 + s(1) * tanh(1) and s(1) * 2 + s(-1) * tanh(-1): the second is larger.
  ASSERT_LT(S(-1) + S(1) * std::tanh(1), 2 * S(1) - S(-1) * std::tanh(1));
  EXPECT_NEAR(out.c[0], -0.5, kRounding);
  EXPECT_NEAR(out.c[1], 0.25, kRounding);
  EXPECT_NEAR(out.y[0], S(-1 + 0.5) * std::tanh(-0.5), kRounding);
  EXPECT_NEAR(out.y[1], S(1 + 0.25) * std::tanh(0.25), kRounding);
}

TEST(ReferenceTest, Gru) {
  auto call = OneStep(Cell::kGru, {1, 2, 3}, {2, -2, 6});
  call.bias = {-2, 1, 0.5};
  call.bias_hn = {-1};
  // r: 1 + 1 - 2, z: 2 - 1 + 1, n: 3 + .5 and 3 - 1.
  const double n = std::tanh(3.5 + 0.5 * 2);
  EXPECT_NEAR(Forward(call).y[0], (1 - S(2)) * n + S(2) * 0.5, kRounding);
}

TEST(ReferenceTest, LnGru) {
  // r and z are normalized together, zx to 1 and -1, zh to -1 and 1; n is normalized to its biases.
  auto call = OneStep(Cell::kLnGru, {5, 2, 3}, {-4, 4, 6});
  call.ln_ih_weight = {2, 3, 100};
  call.ln_ih_bias = {0.5, 0.25, 0.75};
  call.ln_hh_weight = {1, 0.5, 100};
  call.ln_hh_bias = {-1, 1, -2};
  const double r = S(2 + 0.5 - 1 - 1), z = S(-3 + 0.25 + 0.5 + 1), n = std::tanh(0.75 + r * -2);
  EXPECT_NEAR(Forward(call).y[0], (1 - z) * n + z * 0.5, kRounding);
}

// The elements of (1, 1, -2) have the mean 0 and the variance 2.
const double kXhat[] = {std::sqrt(0.5), std::sqrt(0.5), -std::sqrt(2)};

TEST(ReferenceTest, LnGruHaste) {
  // Both sums are normalized to kXhat.
  auto call = OneStep(Cell::kLnGruHaste, {3, 3, 0}, {2, 2, -4});
  call.ln_ih_weight = {2, 3, 4};
  call.ln_hh_weight = {1, -1, 0.5};
  call.bias = {0.5, -0.25, 1};
  call.bias_hn = {-2};
  const double r = S(3 * kXhat[0] + 0.5), z = S(2 * kXhat[1] - 0.25);
  const double n = std::tanh(4 * kXhat[2] + 1 + r * (0.5 * kXhat[2] - 2));
  EXPECT_NEAR(Forward(call).y[0], (1 - z) * n + z * 0.5, kRounding);
}

TEST(ReferenceTest, LnGruDreamer) {
  // zx + zh is (3, 3, 0).
  auto call = OneStep(Cell::kLnGruDreamer, {2, 5, 1}, {2, -4, -2});
  call.ln_weight = {2, -1, 3};
  call.ln_bias = {0.5, 1, -0.25};
  const double r = S(2 * kXhat[0] + 0.5), z = S(-kXhat[1] + 1);
  const double n = std::tanh(r * (3 * kXhat[2] - 0.25));
  EXPECT_NEAR(Forward(call).y[0], (1 - z) * n + z * 0.5, kRounding);
}

// The unscaled equations: c = s(f) c + exp(i) tanh(g), n = s(f) n + exp(i), h = s(o) c / n.
TEST(ReferenceTest, Slstm) {
  auto call = OneStep(Cell::kSlstm, {0.5, 2, -1, 1}, {1, -2, 0.5, -4});
  call.c0 = {0.75, std::log(3.0)};  // c = 3 * 0.75 and n = 3
  const double h = 0.5, i = 0.5 + h, f = 2 - 2 * h, g = -1 + 0.5 * h, o = 1 - 4 * h;
  const double c = S(f) * 3 * 0.75 + std::exp(i) * std::tanh(g), n = S(f) * 3 + std::exp(i);
  const auto out = Forward(call);
  EXPECT_NEAR(out.y[0], S(o) * c / n, kRounding);
  EXPECT_NEAR(out.c[0], c / n, kRounding);
  EXPECT_NEAR(out.c[1], std::log(n), kRounding);
  call.c0.clear();  // n = 0
  EXPECT_NEAR(Forward(call).c[0], std::tanh(g), kRounding);
  EXPECT_NEAR(Forward(call).c[1], i, kRounding);
}

TEST(ReferenceTest, LnLstmTorchaudio) {
  // zx + zh is (1, 1, -1, -1), whose mean is 0 and variance 1; c is normalized to its bias.
  auto call = OneStep(Cell::kLnLstmTorchaudio, {0, 2, 0, 1}, {2, -2, -2, -4});
  call.ln_weight = {2, 3, 4, 0.5};
  call.ln_bias = {0, 0, 0, 1};
  call.c0 = {7};
  call.ln_c_weight = {5};
  call.ln_c_bias = {0.75};
  EXPECT_NEAR(Forward(call).c[0], 0.75, kRounding);
  EXPECT_NEAR(Forward(call).y[0], S(-0.5 + 1) * std::tanh(0.75), kRounding);
}

TEST(ReferenceTest, LnLstmTflite) {
  // Every gate is normalized by itself, which with one unit leaves its bias.
  auto call = OneStep(Cell::kLnLstmTflite, {3, 1, 4, 1}, {5, 9, 2, 6});
  call.ln_weight = {2, 3, 4, 5};
  call.bias = {0.5, -1, 2, 0.25};
  call.c0 = {3};
  const double c = S(-1) * 3 + S(0.5) * std::tanh(2);
  EXPECT_NEAR(Forward(call).c[0], c, kRounding);
  EXPECT_NEAR(Forward(call).y[0], S(0.25) * std::tanh(c), kRounding);
}

TEST(ReferenceTest, BatchNorm) {
  // Two sequences: every element is normalized to 1 in one and -1 in the other.
  ReferenceRnn<double> call;
  call.cell = Cell::kBnRnn;
  call.shape = {1, 2, 1, 1};
  call.eps = 0;
  call.x = {1, 3};
  call.h0 = {1, 2};
  call.weight_ih = {1};
  call.weight_hh = {1};
  call.ln_weight = {0.5};
  call.ln_bias = {0.25};
  EXPECT_NEAR(Forward(call).y[0], std::tanh(-0.25), kRounding);
  EXPECT_NEAR(Forward(call).y[1], std::tanh(0.75), kRounding);
  // zx = 1 and 3, zh = -1 and -2.
  call.cell = Cell::kBnLstm;
  call.weight_ih = {1, 1, 1, 1};
  call.weight_hh = {-1, -1, -1, -1};
  call.ln_weight.clear();
  call.ln_bias.clear();
  call.ln_ih_weight = {4, 3, 2, 1};
  call.ln_hh_weight = {1, 1, 0, 4};
  call.bias = {0, 0, 0, 1};
  call.c0 = {0, 1};
  call.ln_c_weight = {0.5};
  call.ln_c_bias = {0.25};
  EXPECT_NEAR(Forward(call).c[0], S(-3) * std::tanh(-2), kRounding);
  EXPECT_NEAR(Forward(call).c[1], S(2) + S(3) * std::tanh(2), 2 * kRounding);
  EXPECT_NEAR(Forward(call).y[0], S(-1 + 4 + 1) * std::tanh(-0.25), kRounding);
  EXPECT_NEAR(Forward(call).y[1], S(1 - 4 + 1) * std::tanh(0.75), kRounding);
  call.cell = Cell::kBnGru;
  call.c0.clear();
  call.bias.clear();
  call.weight_ih = {1, 1, 1};
  call.weight_hh = {-1, -1, -1};
  call.ln_ih_weight = {1, 2, 0.5};
  call.ln_hh_weight = {2, 1, 0.25};
  call.ln_hh_bias = {0, 0, 1};
  const double r = S(-1 + 2), z = S(-2 + 1), n = std::tanh(-0.5 + r * 1.25);
  EXPECT_NEAR(Forward(call).y[0], (1 - z) * n + z * 1, kRounding);
}

// An RNN that sums x over time: relu and weights of 1, so h_t = h_{t-1} + x_t.
ReferenceRnn<double> Counter(int64_t time, int64_t batch) {
  ReferenceRnn<double> call;
  call.cell = Cell::kRnnRelu;
  call.shape = {time, batch, 1, 1};
  call.x.assign(static_cast<size_t>(time * batch), 1);
  call.weight_ih = {1};
  call.weight_hh = {1};
  return call;
}

TEST(ReferenceTest, Lengths) {
  auto call = Counter(3, 2);
  call.h0 = {10, 20};
  call.lengths = {3, 2};
  EXPECT_EQ(Forward(call).y, (Array{11, 21, 12, 22, 13, 0}));
  EXPECT_EQ(Forward(call).h, (Array{13, 22}));
  call.reverse = true;
  EXPECT_EQ(Forward(call).y, (Array{13, 22, 12, 21, 11, 0}));
  EXPECT_EQ(Forward(call).h, (Array{13, 22}));
}

TEST(ReferenceTest, Resets) {
  auto call = Counter(3, 2);
  call.h0 = {10, 20};
  call.resets = {0, 1, 0, 0, 1, 0};
  EXPECT_EQ(Forward(call).y, (Array{11, 1, 12, 2, 1, 3}));
  call.h_reset = {5};
  EXPECT_EQ(Forward(call).y, (Array{11, 6, 12, 7, 6, 8}));
  call.reverse = true;
  EXPECT_EQ(Forward(call).y, (Array{8, 6, 7, 22, 6, 21}));
}

TEST(ReferenceTest, NoSteps) {
  auto call = Counter(0, 2);
  call.h0 = {10, 20};
  EXPECT_TRUE(Forward(call).y.empty());
  EXPECT_EQ(Forward(call).h, call.h0);
}

// Central differences agree with the complex step. With a step of 1e-6 their error is 1e-12 / 6
// times the third derivative, plus rounding of 1e-16 / 1e-6. The third derivative is some 1e4 in
// norms of three elements.
TEST(ReferenceTest, DerivativeIsTheDifference) {
  constexpr double kStep = 1e-6, kDifference = 1e-8;
  for (const Cell cell : internal::kCells) {
    ReferenceRnn<double> call;
    call.cell = cell;
    call.shape = {3, 4, 2, 3};
    std::mt19937 random(1);
    call.x = tests::Normal<double>(24, random);
    call.resets = {0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0};
    call.h_reset = tests::Normal<double>(3, random);
    const auto params = internal::ParamsOf<double>(RecipeOf(cell), call.shape);
    for (size_t i = 0; i < params.size(); ++i) {
      const auto member = internal::kReferenceArrays<double>[5 + i].member;
      EXPECT_STREQ(internal::kReferenceArrays<double>[5 + i].name, params[i].name);
      if (params[i].taken) call.*member = tests::Normal<double>(params[i].size, random, 0.5, 0.5);
    }
    internal::ReferenceRnnOutputs<double> loss{
        tests::Normal<double>(36, random), tests::Normal<double>(12, random), {}};
    loss.c = tests::Normal<double>(12 * RecipeOf(cell).cell_parts(), random);
    for (size_t a = 0; a < internal::kReferenceArrays<double>.size(); ++a) {
      const auto member = internal::kReferenceArrays<double>[a].member;
      if ((call.*member).empty()) continue;
      const Array direction =
          tests::Normal<double>(static_cast<int64_t>((call.*member).size()), random);
      const auto at = [&](double step) {
        ReferenceRnn<double> moved = call;
        for (size_t i = 0; i < direction.size(); ++i) (moved.*member)[i] += step * direction[i];
        const auto out = Forward(moved);
        double sum = 0;
        for (size_t i = 0; i < out.y.size(); ++i) sum += loss.y[i] * out.y[i];
        for (size_t i = 0; i < out.h.size(); ++i) sum += loss.h[i] * out.h[i];
        for (size_t i = 0; i < out.c.size(); ++i) sum += loss.c[i] * out.c[i];
        return sum;
      };
      const double difference = (at(kStep) - at(-kStep)) / (2 * kStep);
      const double exact = internal::ReferenceDerivative(call, loss, a, direction);
      EXPECT_NEAR(exact, difference, kDifference * std::max(1.0, std::abs(exact)))
          << static_cast<int>(cell) << ' ' << internal::kReferenceArrays<double>[a].name;
    }
  }
}

}  // namespace
}  // namespace planish
