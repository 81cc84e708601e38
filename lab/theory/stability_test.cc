// Sizes of summed inputs and gradients of recurrent layers, against closed forms and RnnBackward.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <list>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "lab/base/random.h"
#include "lab/theory/analyses.h"
#include "lab/theory/recurrent_stability.h"
#include "lab/theory/rows.h"
#include "src/rnn/cell.h"

namespace planish::lab {
namespace {

std::vector<double> Normal(int64_t count, double deviation, int64_t seed) {
  std::mt19937_64 random(MixedSeed({seed}));
  std::vector<double> values(static_cast<size_t>(count));
  DrawRow(RowKind::kNormal, random, values);
  for (double& value : values) value *= deviation;
  return values;
}

// A layer with random weights, inputs and gradient.
struct Layer {
  Layer(Cell cell, RnnShape shape, double scale = 1)
      : gates(internal::RecipeOf(cell).gates()),
        x(Normal(shape.time * shape.batch * shape.inputs, 1, 1)),
        w_ih(Normal(gates * shape.hidden * shape.inputs,
                    scale / std::sqrt(static_cast<double>(shape.inputs)), 2)),
        w_hh(Normal(gates * shape.hidden * shape.hidden,
                    scale / std::sqrt(static_cast<double>(shape.hidden)), 3)),
        dh_n(Normal(shape.batch * shape.hidden, 1, 4)),
        args{.cell = cell, .shape = shape, .eps = 1e-30} {}

  // Gives every other parameter that the cell takes random values: gains around 1.
  void AddOtherParams() {
    const internal::CellRecipe recipe = internal::RecipeOf(args.cell);
    int64_t seed = 10;
    for (const auto& param : internal::ParamsOf<const double>(recipe, args.shape)) {
      const std::string name = param.name;
      if (!param.taken || name == "weight_ih" || name == "weight_hh") continue;
      std::vector<double>& values = others.emplace_back(Normal(param.size, 0.3, seed++));
      if (name.ends_with("_weight")) {
        for (double& value : values) value += 1;
      }
      args.params.*param.member = values.data();
    }
  }

  Dynamics Measure() {
    args.x = x.data();
    args.params.weight_ih = w_ih.data();
    args.params.weight_hh = w_hh.data();
    args.dh_n = dh_n.data();
    return MeasureDynamics(args);
  }

  int64_t gates;
  std::vector<double> x, w_ih, w_hh, dh_n;
  std::list<std::vector<double>> others;
  DynamicsArgs args;
};

double Size(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares / static_cast<double>(values.size()));
}

// A layer whose W_hh is `scale` times a cyclic permutation and whose W_xh is the identity, with an
// input at the first step only, of elements in (0, 2 * size).
Layer LinearLayer(Cell cell, double scale, double size) {
  const RnnShape shape{.time = 60, .batch = 3, .inputs = 5, .hidden = 5};
  Layer layer(cell, shape);
  std::fill(layer.w_hh.begin(), layer.w_hh.end(), 0);
  std::fill(layer.w_ih.begin(), layer.w_ih.end(), 0);
  std::fill(layer.x.begin(), layer.x.end(), 0);
  for (size_t i = 0; i < 5; ++i) {
    layer.w_hh[i * 5 + (i + 1) % 5] = scale;
    layer.w_ih[i * 5 + i] = 1;
  }
  for (size_t i = 0; i < 15; ++i) layer.x[i] = size * (0.1 + static_cast<double>(i) / 8);
  return layer;
}

TEST(Dynamics, OfALinearRnnGrowByTheScaleOfItsWeights) {
  struct Case {
    Cell cell;
    double scale, size, tolerance;
  };
  // relu(a) = a for a > 0; products of 60 steps round by less than 1e-13. tanh(a) = a (1 - O(a^2)),
  // so 60 steps of a <= 2e-6 are off by less than 60 * 4e-12.
  for (const Case& c : {Case{Cell::kRnnRelu, 0.5, 1, 0},
                        {Cell::kRnnRelu, 2, 1, 0},
                        {Cell::kRnnRelu, 0.9, 1, 1e-13},
                        {Cell::kRnnRelu, 1.3, 1, 1e-13},
                        {Cell::kRnn, 0.5, 1e-6, 3e-10},
                        {Cell::kRnn, 1, 1e-6, 3e-10}}) {
    Layer layer = LinearLayer(c.cell, c.scale, c.size);
    const Dynamics dynamics = layer.Measure();
    const double first = Size({layer.x.begin(), layer.x.begin() + 15}), last = Size(layer.dh_n);
    for (size_t t = 0; t < 60; ++t) {
      const double sums = first * std::pow(c.scale, t), gradient = last * std::pow(c.scale, 59 - t);
      // Size sums in another order.
      EXPECT_NEAR(dynamics.summed_size[t] / sums, 1, c.tolerance + 1e-14) << t;
      EXPECT_NEAR(dynamics.gradient_size[t] / gradient, 1, c.tolerance + 1e-14) << t;
    }
    EXPECT_NEAR(GrowthRate(dynamics.summed_size), std::log(c.scale), c.tolerance + 1e-13);
    EXPECT_NEAR(GrowthRate(dynamics.gradient_size), -std::log(c.scale), c.tolerance + 1e-13);
  }
}

TEST(Dynamics, SummedInputsAreThoseOfTheCellWithoutBias) {
  for (const int64_t hidden : {1, 7, 32}) {
    for (const bool has_bias : {false, true}) {
      Layer layer(Cell::kRnn, {.time = 9, .batch = 3, .inputs = 4, .hidden = hidden}, 0.5);
      if (has_bias) layer.AddOtherParams();
      const Dynamics dynamics = layer.Measure();
      const auto units = static_cast<size_t>(hidden);
      for (size_t t = 0; t < 9; ++t) {
        std::vector<double> sums;
        for (size_t i = 0; i < 3 * units; ++i) {
          sums.push_back(std::atanh(dynamics.h[t * 3 * units + i]));
          if (has_bias) sums.back() -= layer.args.params.bias[i % units];
        }
        // atanh amplifies the rounding of tanh by cosh(a)^2, at most 1,000 here.
        EXPECT_NEAR(dynamics.summed_size[t] / Size(sums), 1, 1e-11);
      }
    }
  }
}

TEST(Dynamics, WithoutAGradientAreTheStates) {
  Layer layer(Cell::kLnGru, {.time = 9, .batch = 3, .inputs = 4, .hidden = 5});
  const Dynamics all = layer.Measure();
  layer.args.dh_n = nullptr;
  const Dynamics states = MeasureDynamics(layer.args);
  EXPECT_EQ(states.h, all.h);
  EXPECT_EQ(states.summed_size, all.summed_size);
  EXPECT_TRUE(states.dh.empty() && states.gradient_size.empty() && states.dx_n.empty());
}

// Gradients of the hidden state before a suffix of the sequence, by one call of RnnBackward, and by
// central differences along a random direction.
TEST(Dynamics, GradientsAreThoseOfEverySuffix) {
  const RnnShape shape{.time = 12, .batch = 5, .inputs = 3, .hidden = 6};
  const size_t state = 5 * 6;
  for (const auto& named : internal::kNamedCells) {
    Layer layer(named.cell, shape, 0.7);
    layer.args.eps = 1e-5;
    layer.AddOtherParams();
    const Dynamics dynamics = layer.Measure();
    const size_t cells = static_cast<size_t>(internal::RecipeOf(named.cell).cell_parts()) * state;
    for (const int64_t t : {1, 5, 11}) {
      RnnInputs<double> inputs{.shape = shape, .x = layer.x.data(), .params = layer.args.params};
      inputs.shape.time = t;
      std::vector<double> y(static_cast<size_t>(t) * state), c(cells);
      RnnForward<double>(named.cell,
                         {.inputs = inputs, .y = y.data(), .c_n = cells > 0 ? c.data() : nullptr});
      std::vector<double> h(y.end() - static_cast<ptrdiff_t>(state), y.end());
      for (size_t i = 0; i < state; ++i) {
        EXPECT_EQ(h[i], dynamics.h[static_cast<size_t>(t - 1) * state + i]) << named.name;
      }
      inputs.shape.time = shape.time - t;
      inputs.x += t * shape.batch * shape.inputs;
      inputs.h0 = h.data();
      inputs.c0 = cells > 0 ? c.data() : nullptr;
      y.resize(static_cast<size_t>(shape.time - t) * state);
      std::vector<double> saved(
          static_cast<size_t>(RnnSavedSize<double>(named.cell, inputs.shape)));
      RnnForward<double>(named.cell, {.inputs = inputs, .y = y.data(), .saved = saved.data()});
      std::vector<double> dh(state), dx(static_cast<size_t>(shape.time - t) * 15);
      RnnBackward<double>(named.cell, {.inputs = inputs,
                                       .y = y.data(),
                                       .saved = saved.data(),
                                       .dh_n = layer.dh_n.data(),
                                       .dx = dx.data(),
                                       .dh0 = dh.data()});
      const double size = Size(dh), size_dx = Size(dynamics.dx_n);
      ASSERT_EQ(dynamics.dx_n.size(), 15u);
      for (size_t i = 0; i < 15; ++i) {
        EXPECT_NEAR(dynamics.dx_n[i], dx[dx.size() - 15 + i], 1e-12 * size_dx) << named.name;
      }
      const double* measured = dynamics.dh.data() + static_cast<size_t>(t - 1) * state;
      // The order of sums differs between steps and sequences.
      for (size_t i = 0; i < state; ++i) EXPECT_NEAR(measured[i], dh[i], 1e-12 * size);
      EXPECT_NEAR(dynamics.gradient_size[static_cast<size_t>(t - 1)], size, 1e-12 * size);

      const std::vector<double> direction = Normal(static_cast<int64_t>(state), 1, 9);
      const std::vector<double> middle = h;
      const auto loss = [&](double step) {
        for (size_t i = 0; i < state; ++i) h[i] = middle[i] + step * direction[i];
        RnnForward<double>(named.cell, {.inputs = inputs, .y = y.data()});
        double sum = 0;
        for (size_t i = 0; i < state; ++i) sum += y[y.size() - state + i] * layer.dh_n[i];
        return sum;
      };
      double slope = 0, scale = 0;
      for (size_t i = 0; i < state; ++i) {
        slope += measured[i] * direction[i];
        scale += std::abs(measured[i] * direction[i]);
      }
      // Rounding of the loss over the step, and its third derivative times the step squared; a
      // relu's kink can be near, but not within 1e-6.
      EXPECT_NEAR((loss(1e-6) - loss(-1e-6)) / 2e-6, slope, 1e-6 * scale + 1e-8) << named.name;
    }
  }
}

TEST(Dynamics, OfNormalizedCellsIgnoreTheScaleOfAllWeights) {
  const RnnShape shape{.time = 30, .batch = 6, .inputs = 9, .hidden = 9};
  for (const Cell cell : {Cell::kLnRnn, Cell::kLnRnnRelu, Cell::kBnRnn, Cell::kLnLstm,
                          Cell::kBnLstm, Cell::kLnGru, Cell::kBnGru}) {
    const Dynamics base = Layer(cell, shape, 1).Measure();
    for (const double scale : {0.25, 8.0}) {
      const Dynamics scaled = Layer(cell, shape, scale).Measure();
      // Powers of two round nothing, and eps is below the last bit of the variances.
      EXPECT_EQ(scaled.h, base.h);
      EXPECT_EQ(scaled.dh, base.dh);
      for (size_t t = 0; t < 30; ++t) {
        EXPECT_EQ(scaled.summed_size[t], scale * base.summed_size[t]);
      }
    }
  }
}

// For many units, the summed inputs of an LN-RNN are normal with variance 1 after the norm, and
// each step back multiplies the size of dL/dh by sqrt(mean f'(a)^2 / (mean f(a)^2 + v)), where v is
// the variance of the inputs (docs/math.md).
TEST(Dynamics, OfAWideLnRnnHaveTheRateOfTheLimit) {
  for (const Cell cell : {Cell::kLnRnn, Cell::kLnRnnRelu}) {
    double of_h = 0, of_slope = 0, weights = 0;
    for (int i = -8000; i <= 8000; ++i) {
      const double a = i * 1e-3, weight = std::exp(-a * a / 2), y = std::tanh(a);
      const bool relu = cell == Cell::kLnRnnRelu;
      weights += weight;
      of_h += weight * (relu ? (a > 0 ? a * a : 0) : y * y);
      of_slope += weight * (relu ? a > 0 : (1 - y * y) * (1 - y * y));
    }
    const double rate = 0.5 * std::log(of_slope / (of_h + weights));
    Layer layer(cell, {.time = 60, .batch = 8, .inputs = 256, .hidden = 256});
    const Dynamics dynamics = layer.Measure();
    // The limit's error is of order 1 / sqrt(256) for random weights, averaged over 30 steps.
    EXPECT_NEAR(-GrowthRate({dynamics.gradient_size.data(), 60}), rate, 0.06);
  }
}

TEST(GrowthRate, IsTheSlopeOfTheSecondHalf) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  std::vector<double> sizes = {nan, 7, 1e30, 0, 1, 3, 9, 27};
  EXPECT_NEAR(GrowthRate(sizes), std::log(3), 1e-15);
  for (const double left_out : {0.0, -1.0, 1e-300, inf, nan}) {
    sizes[5] = left_out;
    EXPECT_NEAR(GrowthRate(sizes), std::log(3), 1e-15) << left_out;
  }
  EXPECT_TRUE(std::isnan(GrowthRate({})));
  EXPECT_TRUE(std::isnan(GrowthRate(std::vector<double>{1})));
  EXPECT_TRUE(std::isnan(GrowthRate(std::vector<double>{1, 2, 0, 4})));
  EXPECT_EQ(GrowthRate(std::vector<double>{1, 5, 5}), 0);
}

TEST(GrowthRate, IsThatBeforeSizesUnderflow) {
  for (const double rate : {-3.0, -30.0, 3.0}) {
    std::vector<double> sizes;
    for (int t = 0; t < 1000; ++t) sizes.push_back(std::exp(rate * t));
    EXPECT_NEAR(GrowthRate(sizes), rate, 1e-12);  // logarithms of size 700, of rounded sizes
  }
  EXPECT_TRUE(std::isnan(GrowthRate(std::vector<double>{1, 0, 0, 0, 0, 0})));
}

const TheoryAnalysis& Stability() {
  for (const TheoryAnalysis& analysis : Analyses()) {
    if (analysis.name == "stability") return analysis;
  }
  throw std::out_of_range("stability");
}

const TheoryResult& OfFewUnits() {
  static const TheoryResult result =
      RunAnalysis(Stability(), {{"units", 32}, {"steps", 60}, {"seeds", 6}});
  return result;
}

double NumberIn(const TheoryTable& table, const std::string& row, size_t column) {
  for (const auto& cells : table.rows) {
    if (std::get<std::string>(cells.at(0)) == row) return std::get<double>(cells.at(column));
  }
  throw std::out_of_range(row);
}

TEST(Stability, RatesAreThoseOfRandomMatrices) {
  const TheoryResult& result = OfFewUnits();
  ASSERT_EQ(result.tables.size(), 6u);
  ASSERT_EQ(result.statements.size(), 10u);
  const TheoryTable &every_sums = result.tables[0], &sums = result.tables[2],
                    &gradients = result.tables[3];
  // The largest eigenvalue of a random matrix with variance s^2 / H tends to s in size. The rest of
  // 32 units and of 30 steps is below 0.2.
  EXPECT_NEAR(NumberIn(sums, "RNN", 1), std::log(0.5), 0.2);
  EXPECT_NEAR(NumberIn(gradients, "RNN", 1), std::log(0.5), 0.2);
  EXPECT_GT(NumberIn(gradients, "RNN", 5), NumberIn(gradients, "RNN", 6));
  EXPECT_GT(NumberIn(sums, "relu", 5), NumberIn(sums, "relu", 6));
  for (const char* cell : {"LN-RNN", "LN-relu", "BN-RNN", "LN-LSTM", "LN-GRU"}) {
    for (const TheoryTable* table : {&every_sums, &sums, &gradients}) {
      // Slopes of log(scale) + log(size), rounded.
      EXPECT_NEAR(NumberIn(*table, cell, 1), NumberIn(*table, cell, 3), 1e-14) << cell;
      EXPECT_NEAR(NumberIn(*table, cell, 5), NumberIn(*table, cell, 3), 1e-14) << cell;
    }
    EXPECT_LT(std::abs(NumberIn(every_sums, cell, 1)), 0.01) << cell;
    for (const size_t column : {1, 2, 3}) EXPECT_EQ(NumberIn(result.tables[4], cell, column), 0);
  }
  // Norms of W_hh h and W_xh x are separate in an LSTM or GRU, not in an RNN.
  EXPECT_EQ(NumberIn(result.tables[4], "LN-LSTM", 4), 0);
  EXPECT_EQ(NumberIn(result.tables[4], "LN-GRU", 4), 0);
  EXPECT_GT(NumberIn(result.tables[4], "LN-RNN", 4), 0.1);
  EXPECT_GT(NumberIn(result.tables[4], "RNN", 2), 0.1);
}

TEST(Stability, VerdictsFollowTheIntervals) {
  const TheoryResult& result = OfFewUnits();
  EXPECT_EQ(result.statements[3].text,
            "In a layer-normalized RNN, the summed inputs neither grow nor shrink.");
  EXPECT_EQ(result.statements[3].verdict, TheoryVerdict::kHolds) << result.statements[3].measured;
  EXPECT_EQ(result.statements[5].verdict, TheoryVerdict::kHolds) << result.statements[5].measured;
  // Each statement of stability against the signs of its two rows of the last table.
  for (size_t pair = 0; pair < 4; ++pair) {
    int smaller = 0, larger = 0;
    for (size_t r = 2 * pair; r < 2 * pair + 2; ++r) {
      for (const size_t column : {1, 3, 5}) {
        const auto& row = result.tables[5].rows.at(r);
        const double mean = std::get<double>(row.at(column));
        const double half_width = std::get<double>(row.at(column + 1));
        smaller += mean + half_width < 0;
        larger += mean - half_width > 0;
      }
    }
    const TheoryVerdict verdict = smaller == 6  ? TheoryVerdict::kHolds
                                  : smaller > 0 ? TheoryVerdict::kHoldsInPart
                                  : larger > 0  ? TheoryVerdict::kFails
                                                : TheoryVerdict::kCannotTell;
    EXPECT_EQ(result.statements[6 + pair].verdict, verdict);
  }
}

TEST(Stability, RunsAtTheEndsOfItsSettings) {
  const std::map<std::string, double> least = {
      {"units", 4}, {"steps", 8}, {"sequences", 4}, {"seeds", 2}};
  for (const double input : {1e-3, 1e3}) {
    for (const double gain : {0.01, 10.0}) {
      std::map<std::string, double> settings = least;
      settings["input"] = input;
      settings["gain"] = gain;
      EXPECT_EQ(RunAnalysis(Stability(), settings).statements.size(), 10u);
    }
  }
  // Sizes of 4 units after 1,000 steps overflow or become 0 in some seeds.
  const TheoryResult result =
      RunAnalysis(Stability(), {{"units", 4}, {"steps", 1000}, {"sequences", 4}, {"seeds", 4}});
  for (const TheoryChart& chart : result.charts) {
    for (const TheoryLine& line : chart.lines) {
      EXPECT_LE(line.points.size(), 200u);
      for (const auto& [t, size] : line.points) EXPECT_TRUE(std::isfinite(size) && size > 0);
    }
  }
}

}  // namespace
}  // namespace planish::lab
