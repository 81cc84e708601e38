// Fisher matrices against their definition, Eq. 9 of Ba, Kiros & Hinton 2016, with scores by the
// complex step (docs/math.md), and the analysis of them.
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lab/error.h"
#include "lab/theory/analyses.h"
#include "lab/theory/glm.h"
#include "lab/theory/result.h"

namespace planish::lab {
namespace {

using Complex = std::complex<double>;
using Outcomes = std::vector<std::pair<std::vector<double>, double>>;  // y and its probability

constexpr double kStep = 1e-150;  // its square is 0 in double

Glm Model(GlmNorm norm, GlmFamily family, int64_t units, int64_t inputs, int64_t cases) {
  Glm glm = RandomGlm(units, inputs, cases, 3);
  glm.norm = norm;
  glm.family = family;
  return glm;
}

// Returns the natural parameters of all cases by the equations, with parameter `moved` moved by
// i kStep.
std::vector<std::vector<Complex>> Parameters(const Glm& glm, int64_t moved) {
  const auto units = static_cast<size_t>(glm.units), inputs = static_cast<size_t>(glm.inputs);
  const auto cases = static_cast<size_t>(glm.cases),
             width = inputs + (glm.norm != GlmNorm::kNone) + 1;
  std::vector<Complex> w(glm.weights.begin(), glm.weights.end());
  std::vector<Complex> b(glm.biases.begin(), glm.biases.end());
  std::vector<Complex> g(glm.gains.begin(), glm.gains.end());
  if (moved >= 0) {
    const auto unit = static_cast<size_t>(moved) / width, at = static_cast<size_t>(moved) % width;
    (at < inputs ? w[unit * inputs + at] : at == inputs ? b[unit] : g[unit]) += Complex(0, kStep);
  }
  std::vector<std::vector<Complex>> t(cases, std::vector<Complex>(units));
  for (size_t n = 0; n < cases; ++n) {
    for (size_t i = 0; i < units; ++i) {
      for (size_t s = 0; s < inputs; ++s) t[n][i] += w[i * inputs + s] * glm.x[n * inputs + s];
    }
  }
  const auto normalize = [](std::vector<Complex*> row) {
    const auto count = static_cast<double>(row.size());
    Complex mean, variance;
    for (const Complex* value : row) mean += *value / count;
    for (const Complex* value : row) variance += (*value - mean) * (*value - mean) / count;
    for (Complex* value : row) *value = (*value - mean) / std::sqrt(variance);
  };
  for (size_t n = 0; n < cases && glm.norm == GlmNorm::kLayer; ++n) {
    std::vector<Complex*> row;
    for (Complex& value : t[n]) row.push_back(&value);
    normalize(row);
  }
  for (size_t i = 0; i < units; ++i) {
    std::vector<Complex*> column;
    Complex squares;
    for (auto& row : t) column.push_back(&row[i]);
    for (size_t s = 0; s < inputs; ++s) squares += w[i * inputs + s] * w[i * inputs + s];
    if (glm.norm == GlmNorm::kBatch) normalize(column);
    for (Complex* value : column) {
      if (glm.norm == GlmNorm::kWeight) *value /= std::sqrt(squares);
      *value = (glm.norm == GlmNorm::kNone ? *value : g[i] * *value) + b[i];
    }
  }
  return t;
}

// Returns log p(y | t), Eq. 10 without c(y, phi), which no parameter changes.
Complex LogLikelihood(const Glm& glm, const std::vector<Complex>& t, const std::vector<double>& y) {
  Complex sum, classes;
  for (size_t i = 0; i < t.size(); ++i) {
    sum += t[i] * y[i];
    if (glm.family == GlmFamily::kGaussian) sum -= t[i] * t[i] / 2.0;
    if (glm.family == GlmFamily::kBernoulli) sum -= std::log(1.0 + std::exp(t[i]));
    if (glm.family == GlmFamily::kPoisson) sum -= std::exp(t[i]);
    classes += std::exp(t[i]);
  }
  if (glm.family == GlmFamily::kSoftmax) sum -= std::log(classes);
  return sum / (glm.family == GlmFamily::kGaussian ? kGaussianPhi : 1);
}

// Returns all y with their probabilities. Gaussian outputs become mean +- deviation, which gives
// the expectation of a product of two scores exactly; Poisson's are cut where p < 1e-20.
Outcomes AllOutcomes(const Glm& glm, const std::vector<Complex>& t) {
  const size_t units = t.size();
  Outcomes outcomes;
  if (glm.family == GlmFamily::kSoftmax) {
    double sum = 0;
    for (const Complex& value : t) sum += std::exp(value.real());
    for (size_t i = 0; i < units; ++i) {
      std::vector<double> y(units);
      y[i] = 1;
      outcomes.emplace_back(y, std::exp(t[i].real()) / sum);
    }
    return outcomes;
  }
  outcomes.emplace_back(std::vector<double>(), 1);
  for (size_t i = 0; i < units; ++i) {
    const double natural = t[i].real();
    Outcomes of_unit;
    if (glm.family == GlmFamily::kGaussian) {
      const double deviation = std::sqrt(kGaussianPhi);
      of_unit = {{{natural - deviation}, 0.5}, {{natural + deviation}, 0.5}};
    } else if (glm.family == GlmFamily::kBernoulli) {
      const double p = 1 / (1 + std::exp(-natural));
      of_unit = {{{0}, 1 - p}, {{1}, p}};
    } else {
      double p = std::exp(-std::exp(natural));
      for (int y = 0; y < 10 || p > 1e-20; ++y) {
        of_unit.push_back({{static_cast<double>(y)}, p});
        p *= std::exp(natural) / (y + 1);
      }
    }
    Outcomes product;
    for (const auto& [y, p] : outcomes) {
      for (const auto& [value, q] : of_unit) {
        product.emplace_back(y, p * q);
        product.back().first.push_back(value[0]);
      }
    }
    outcomes = std::move(product);
  }
  return outcomes;
}

// Returns Eq. 9 by enumeration.
SquareMatrix FisherByDefinition(const Glm& glm) {
  SquareMatrix fisher(glm.Parameters());
  const auto t = Parameters(glm, -1);
  std::vector<std::vector<std::vector<Complex>>> moved;
  for (int64_t p = 0; p < fisher.size; ++p) moved.push_back(Parameters(glm, p));
  for (size_t n = 0; n < t.size(); ++n) {
    for (const auto& [y, probability] : AllOutcomes(glm, t[n])) {
      std::vector<double> score;
      for (const auto& of_parameter : moved) {
        score.push_back(LogLikelihood(glm, of_parameter[n], y).imag() / kStep);
      }
      for (int64_t r = 0; r < fisher.size; ++r) {
        for (int64_t c = 0; c < fisher.size; ++c) {
          fisher.Row(r)[c] += probability * score[static_cast<size_t>(r)] *
                              score[static_cast<size_t>(c)] / static_cast<double>(t.size());
        }
      }
    }
  }
  return fisher;
}

double NumberIn(const TheoryTable& table, size_t row, size_t column) {
  return std::get<double>(table.rows.at(row).at(column));
}

TheoryResult Measured(const std::map<std::string, double>& settings) {
  return RunAnalysis(FisherGeometry(), settings);
}

TEST(Fisher, IsTheExpectedProductOfScores) {
  for (const GlmNorm norm : kGlmNorms) {
    for (const GlmFamily family : kGlmFamilies) {
      const Glm glm = Model(norm, family, 3, 2, 5);
      // Scores have some tens of roundings; the Poisson sums lose less than 1e-15.
      EXPECT_LT(RelativeDifference(FisherByDefinition(glm), FisherMatrix(glm)), 1e-12)
          << NameOf(norm) << " " << NameOf(family);
    }
  }
}

TEST(Fisher, IsThatOfTheComplexStepWithManyUnits) {
  for (const GlmNorm norm : kGlmNorms) {
    const Glm glm = Model(norm, GlmFamily::kSoftmax, 33, 3, 7);
    EXPECT_LT(RelativeDifference(FisherByDefinition(glm), FisherMatrix(glm)), 1e-12)
        << NameOf(norm);
  }
}

TEST(Fisher, IsPrintedRightExceptForLayerNorm) {
  for (const GlmNorm norm : kGlmNorms) {
    for (const GlmFamily family : kGlmFamilies) {
      const Glm glm = Model(norm, family, 9, 3, 11);
      const double difference = RelativeDifference(FisherMatrix(glm), PrintedFisherMatrix(glm));
      if (norm == GlmNorm::kLayer) {
        EXPECT_GT(difference, 0.02) << NameOf(family);
      } else {
        EXPECT_LT(difference, 1e-12) << NameOf(norm) << " " << NameOf(family);
      }
    }
  }
}

TEST(Fisher, ShareOfTheWeightsDoesNotDependOnTheirScale) {
  Glm glm = Model(GlmNorm::kLayer, GlmFamily::kBernoulli, 6, 4, 64);
  const auto shares = [&] {
    const SquareMatrix exact = FisherMatrix(glm), printed = PrintedFisherMatrix(glm);
    return std::pair(RelativeDifference(exact, printed),
                     RelativeDifference(WeightBlocks(glm, exact), WeightBlocks(glm, printed)));
  };
  const auto before = shares();
  for (double& weight : glm.weights) weight *= 4;
  EXPECT_LT(shares().first, 0.75 * before.first);
  EXPECT_NEAR(shares().second, before.second, 1e-12);
}

TEST(Fisher, OfLayerNormIsPrintedInTheDiagonalOfTheSlopes) {
  // With one unit's parameters moved, Eq. 13 keeps dt_i/dw_i. So the blocks of gains and biases
  // are exact, and those of weights differ.
  const Glm glm = Model(GlmNorm::kLayer, GlmFamily::kBernoulli, 6, 3, 11);
  const SquareMatrix exact = FisherMatrix(glm), printed = PrintedFisherMatrix(glm);
  const int64_t width = glm.UnitParameters();
  for (int64_t r = 0; r < exact.size; ++r) {
    for (int64_t c = 0; c < exact.size; ++c) {
      if (r % width < glm.inputs || c % width < glm.inputs) continue;
      EXPECT_NEAR(exact.Row(r)[c], printed.Row(r)[c], 1e-14);
    }
  }
}

TEST(Divergence, IsTheSumOverOutcomes) {
  for (const GlmFamily family : {GlmFamily::kBernoulli, GlmFamily::kPoisson, GlmFamily::kSoftmax}) {
    const Glm p = Model(GlmNorm::kBatch, family, 3, 2, 4);
    const Glm q = Moved(p, std::vector<double>(static_cast<size_t>(p.Parameters()), 1), 0.25);
    const auto of_p = Parameters(p, -1), of_q = Parameters(q, -1);
    double sum = 0;
    for (size_t n = 0; n < of_p.size(); ++n) {
      for (const auto& [y, probability] : AllOutcomes(p, of_p[n])) {
        sum +=
            probability * (LogLikelihood(p, of_p[n], y) - LogLikelihood(q, of_q[n], y)).real() / 4;
      }
    }
    EXPECT_NEAR(Divergence(p, q), sum, 1e-12 * sum) << NameOf(family);
    EXPECT_EQ(Divergence(p, p), 0);
  }
}

TEST(Geometry, StatementsHoldAsCorrected) {
  for (const auto& settings : std::vector<std::map<std::string, double>>{
           {{"largest", 24}},
           {{"largest", 3}, {"units", 3}, {"inputs", 2}, {"cases", 4}},
           {{"largest", 7}, {"units", 17}, {"inputs", 9}, {"cases", 33}, {"seed", 7}}}) {
    const TheoryResult result = Measured(settings);
    const TheoryVerdict verdicts[] = {
        TheoryVerdict::kHolds,          TheoryVerdict::kHolds, TheoryVerdict::kHolds,
        TheoryVerdict::kFails,          TheoryVerdict::kHolds, TheoryVerdict::kHoldsCorrected,
        TheoryVerdict::kHoldsCorrected, TheoryVerdict::kHolds, TheoryVerdict::kHolds,
        TheoryVerdict::kHoldsCorrected};
    ASSERT_EQ(result.statements.size(), std::size(verdicts));
    for (size_t i = 0; i < std::size(verdicts); ++i) {
      EXPECT_EQ(result.statements[i].verdict, verdicts[i])
          << result.statements[i].text << ": " << result.statements[i].measured;
    }
    EXPECT_EQ(result.tables.size(), 6u);
    EXPECT_EQ(result.charts.size(), 2u);
  }
}

TEST(Geometry, CurvatureOfADoubledVectorIsAQuarter) {
  const TheoryResult result = Measured({{"largest", 3}});
  const TheoryTable& table = result.tables.at(3);
  for (const size_t row : {2, 3}) {  // BN, WN; a factor of 2 rounds nothing
    EXPECT_EQ(NumberIn(table, row, 1), 0.25);
    EXPECT_NEAR(NumberIn(table, row, 3), 0, 1e-14);
  }
  EXPECT_EQ(NumberIn(table, 1, 2), 0.25);
  EXPECT_GT(std::abs(NumberIn(table, 1, 1) - 0.25), 1e-3);
}

TEST(Geometry, ShareLeftOutFallsAsTheRootOfTheUnits) {
  const TheoryResult result = Measured({{"largest", 96}, {"cases", 128}});
  const TheoryTable& table = result.tables.at(2);
  ASSERT_EQ(table.rows.size(), 6u);  // H = 3, 6, ..., 96
  for (size_t row = 1; row < table.rows.size(); ++row) {
    EXPECT_LT(NumberIn(table, row, 5), NumberIn(table, row - 1, 5));
  }
  // With one draw of the weights, the exponent is 1/2 only about.
  EXPECT_NEAR(std::log2(NumberIn(table, 3, 5) / NumberIn(table, 5, 5)) / 2, 0.5, 0.15);
}

TEST(Geometry, TablesHaveAtMostEightyColumns) {
  // A wider table has an ellipsis in its first column.
  EXPECT_EQ(RenderTheory(Measured({{"largest", 3}})).find("\u2026"), std::string::npos);
}

TEST(Geometry, TooMuchMemoryIsAUsageErrorWithTheBytes) {
  try {
    Measured({{"inputs", 4096}});
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_EQ(
        std::string(e.what()),
        "[analyze geometry] --units, --largest, --inputs and --cases must need at most 1073741824 "
        "bytes, got 8804688330752");
  }
}

}  // namespace
}  // namespace planish::lab
