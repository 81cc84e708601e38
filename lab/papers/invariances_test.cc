#include "lab/papers/invariances.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "lab/papers/paper.h"

namespace planish::lab {
namespace {

using ::testing::ElementsAre;
using T = Transformation;

const std::string kNormalizations[] = {"batch", "weight", "layer"};

// Computes Eq. 2, 3 and 5 as printed.
std::vector<double> WrittenOut(const std::string& norm, const LinearLayer& layer) {
  const auto at = [](const std::vector<double>& rows, int64_t row, int64_t col, int64_t cols) {
    return rows[static_cast<size_t>(row * cols + col)];
  };
  const auto cases = static_cast<double>(layer.cases), units = static_cast<double>(layer.units);
  const auto a = [&](int64_t n, int64_t u) {
    double sum = 0;
    for (int64_t i = 0; i < layer.inputs; ++i) {
      sum += at(layer.x, n, i, layer.inputs) * at(layer.w, u, i, layer.inputs);
    }
    return sum;
  };
  std::vector<double> outputs;
  for (int64_t n = 0; n < layer.cases; ++n) {
    for (int64_t u = 0; u < layer.units; ++u) {
      double mu = 0, square = 0;
      if (norm == "batch") {
        for (int64_t m = 0; m < layer.cases; ++m) mu += a(m, u) / cases;
        for (int64_t m = 0; m < layer.cases; ++m) square += std::pow(a(m, u) - mu, 2) / cases;
      } else if (norm == "layer") {
        for (int64_t v = 0; v < layer.units; ++v) mu += a(n, v) / units;
        for (int64_t v = 0; v < layer.units; ++v) square += std::pow(a(n, v) - mu, 2) / units;
      } else {
        for (int64_t i = 0; i < layer.inputs; ++i) {
          square += std::pow(at(layer.w, u, i, layer.inputs), 2);
        }
      }
      outputs.push_back(layer.gain[u] / std::sqrt(square) * (a(n, u) - mu) + layer.bias[u]);
    }
  }
  return outputs;
}

double Largest(const std::vector<double>& parameters) {
  double largest = 0;
  for (const double number : parameters) largest = std::max(largest, std::abs(number));
  return largest;
}

// Outputs of size 1 to 4 from sums of 20, 32 and 50 values of that size: errors of about 1e-15.
constexpr double kRounding = 1e-13;

TEST(NormalizedOutputs, AreThoseOfTheEquations) {
  const LinearLayer layer = RandomLinearLayer();
  for (const std::string& norm : kNormalizations) {
    const std::vector<double> y = NormalizedOutputs(norm, layer),
                              expected = WrittenOut(norm, layer);
    ASSERT_EQ(y.size(), 32u * 50);
    EXPECT_GT(Largest(y), 1);
    for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], expected[i], kRounding) << i;
  }
}

TEST(Transformed, ChangesWeightsOrDataAsNamed) {
  const LinearLayer layer{.cases = 2,
                          .inputs = 2,
                          .units = 3,
                          .x = {1, 2, 3, 4},
                          .w = {1, 2, 3, 4, 5, 6},
                          .gain = {1, 1, 1},
                          .bias = {0, 0, 0}};
  const TransformationParameters parameters{.d = 10, .gamma = {100, 200}, .unit = 1, .row = 0};
  const auto w = [&](T t) { return Transformed(layer, t, parameters).w; };
  const auto x = [&](T t) { return Transformed(layer, t, parameters).x; };
  EXPECT_THAT(w(T::kWeightMatrixScale), ElementsAre(10, 20, 30, 40, 50, 60));
  EXPECT_THAT(w(T::kWeightMatrixCentre), ElementsAre(101, 202, 103, 204, 105, 206));
  EXPECT_THAT(w(T::kWeightVectorScale), ElementsAre(1, 2, 30, 40, 5, 6));
  EXPECT_THAT(x(T::kDataScale), ElementsAre(10, 20, 30, 40));
  EXPECT_THAT(x(T::kDataCentre), ElementsAre(101, 202, 103, 204));
  EXPECT_THAT(x(T::kCaseScale), ElementsAre(10, 20, 3, 4));
  for (const T t : {T::kWeightMatrixScale, T::kWeightMatrixCentre, T::kWeightVectorScale}) {
    EXPECT_EQ(x(t), layer.x);
  }
  for (const T t : {T::kDataScale, T::kDataCentre, T::kCaseScale}) EXPECT_EQ(w(t), layer.w);
}

TEST(RandomLinearLayer, IsTheSameEverywhere) {
  const LinearLayer layer = RandomLinearLayer();
  // The first output of std::mt19937_64(1) is 2469588189546311528.
  EXPECT_EQ(layer.x[0], std::ldexp(2469588189546311528 / 2048, -52) - 1);
  const auto [min, max] = std::ranges::minmax(layer.gain);
  EXPECT_GE(min, 0.5);
  EXPECT_LE(max, 1.5);
  const std::vector<TransformationParameters> all = RandomTransformationParameters(layer);
  ASSERT_EQ(all.size(), 3u);
  for (const TransformationParameters& parameters : all) {
    EXPECT_EQ(parameters.gamma.size(), 20u);
    EXPECT_NE(parameters.d, 1);
    EXPECT_LT(parameters.unit, 50);
    EXPECT_LT(parameters.row, 32);
  }
}

TEST(LargestChange, IsThatOfTheEquations) {
  const LinearLayer layer = RandomLinearLayer();
  for (const std::string& norm : kNormalizations) {
    const std::vector<double> plain = WrittenOut(norm, layer);
    for (const T transformation : kTransformations) {
      double change = 0;
      for (const TransformationParameters& parameters : RandomTransformationParameters(layer)) {
        std::vector<double> y = WrittenOut(norm, Transformed(layer, transformation, parameters));
        for (size_t i = 0; i < y.size(); ++i) y[i] -= plain[i];
        change = std::max(change, Largest(y) / Largest(plain));
      }
      EXPECT_NEAR(LargestChange(norm, transformation), change, kRounding)
          << LabelOf(transformation);
    }
  }
}

// Table 1, typed from the paper independently.
TEST(LargestChange, IsRoundingWhereThePaperSaysInvariant) {
  const std::string printed[] = {"invariant no invariant invariant invariant no",
                                 "invariant no invariant no no no",
                                 "invariant invariant no invariant no invariant"};
  for (int row = 0; row < 3; ++row) {
    std::string measured;
    for (const T transformation : kTransformations) {
      const double change = LargestChange(kNormalizations[row], transformation);
      measured += measured.empty() ? "" : " ";
      measured += change <= kInvariant ? "invariant" : "no";
      // Far from the threshold on either side.
      EXPECT_TRUE(change < kRounding || change > 0.1) << change << LabelOf(transformation);
    }
    EXPECT_EQ(measured, printed[row]);
  }
}

TEST(Papers, DescribeTableOneAsItIsPrinted) {
  const std::optional<PaperInvariances>& table = FindPaper("ba2016").invariances;
  ASSERT_TRUE(table);
  EXPECT_EQ(table->name, "Table 1");
  ASSERT_EQ(table->lines.size(), 3u);
  for (size_t row = 0; row < 3; ++row) EXPECT_EQ(table->lines[row].norm, kNormalizations[row]);
  EXPECT_THAT(table->lines[0].invariant, ElementsAre(true, false, true, true, true, false));
  EXPECT_THAT(table->lines[1].invariant, ElementsAre(true, false, true, false, false, false));
  EXPECT_THAT(table->lines[2].invariant, ElementsAre(true, true, false, true, false, true));
  std::set<std::string_view> labels;
  for (const T transformation : kTransformations) labels.insert(LabelOf(transformation));
  EXPECT_EQ(labels.size(), 6u);
}

}  // namespace
}  // namespace planish::lab
