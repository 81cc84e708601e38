#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "lab/base/random.h"
#include "lab/theory/analyses.h"
#include "lab/theory/rows.h"
#include "planish/norm.h"

// Theorem 1 of Xu et al. 2019: mean and variance over a row of the gradient dx, from those of the
// gradient g = dL/dy. docs/math.md has the proof. dx is computed by NormBackward.
namespace planish::lab {
namespace {

// Errors of equalities relative to the size of g. Sums of up to 4,096 terms round by less.
constexpr double kRounding = 1e-11;

struct Detached {
  Norm norm;
  const char* name;
  bool via_mean, via_deviation;  // gradients flow through the mean and the deviation
};

constexpr Detached kForms[] = {
    {Norm::kLayerSimple, "LayerNorm-simple", true, true},
    {Norm::kDetachMean, "mean detached", false, true},
    {Norm::kDetachDeviation, "deviation detached", true, false},
    {Norm::kDetach, "both detached", false, false},
};

// The largest errors over all rows, relative to sigma and the size of g.
struct Errors {
  double mean = 0, variance = 0;
  int64_t larger = 0;    // rows whose variance exceeds D_g / sigma^2
  double ratio_sum = 0;  // of the variance over D_g / sigma^2
};

void Add(const Detached& form, std::span<const double> x, std::span<const double> g,
         std::span<const double> dx, double rstd, Errors& errors) {
  const RowMoments of_g = MomentsOf(g), of_x = MomentsOf(x), of_dx = MomentsOf(dx);
  const double n = static_cast<double>(x.size()), size = of_g.variance + of_g.mean * of_g.mean;
  double product = 0;  // the mean of g * y
  for (size_t i = 0; i < x.size(); ++i) product += g[i] * (x[i] - of_x.mean) * rstd;
  product /= n;
  const double mean = form.via_mean ? 0 : of_g.mean * rstd;
  const double bound = of_g.variance * rstd * rstd;
  const double variance = bound - (form.via_deviation ? product * product * rstd * rstd : 0);
  errors.mean = std::max(errors.mean, std::abs(of_dx.mean - mean) / (std::sqrt(size) * rstd));
  errors.variance =
      std::max(errors.variance, std::abs(of_dx.variance - variance) / (size * rstd * rstd));
  if (of_dx.variance > bound + kRounding * size * rstd * rstd) ++errors.larger;
  errors.ratio_sum += of_dx.variance / bound;
}

TheoryResult MeasureGradients(const AnalysisSettings& settings) {
  const int64_t rows = settings.Whole("rows"), width = settings.Whole("width");
  const auto n = static_cast<size_t>(width);
  // Blocks of rows that stay in a cache.
  const int64_t block = std::max<int64_t>(1, 4096 / width);
  std::vector<double> x(static_cast<size_t>(block) * n), g(x.size()), dx(x.size());
  std::vector<double> mean(static_cast<size_t>(block)), mean_lo(mean), rstd(mean);
  std::array<Errors, std::size(kForms)> errors;
  std::mt19937_64 random(MixedSeed({settings.Whole("seed")}));
  for (int64_t begin = 0; begin < rows; begin += block) {
    const int64_t count = std::min(block, rows - begin);
    for (size_t r = 0; r < static_cast<size_t>(count); ++r) {
      const std::span<double> x_row(x.data() + r * n, n), g_row(g.data() + r * n, n);
      DrawRow(kRowKinds[random() % std::size(kRowKinds)], random, x_row);
      DrawRow(kRowKinds[random() % std::size(kRowKinds)], random, g_row);
      const double shift = static_cast<double>(random() % 7) - 3;
      for (double& value : x_row) value += shift;
      for (double& value : g_row) value += shift / 4;
    }
    NormForward<double>(Norm::kLayerSimple,
                        {.rows = count,
                         .cols = width,
                         .x = x.data(),
                         .y = dx.data(),
                         .mean = mean.data(),
                         .mean_lo = mean_lo.data(),
                         .rstd = rstd.data()},
                        {.eps = 0});
    for (size_t f = 0; f < std::size(kForms); ++f) {
      NormBackward<double>(kForms[f].norm, {.rows = count,
                                            .cols = width,
                                            .dy = g.data(),
                                            .x = x.data(),
                                            .mean = mean.data(),
                                            .mean_lo = mean_lo.data(),
                                            .rstd = rstd.data(),
                                            .dx = dx.data()});
      for (size_t r = 0; r < static_cast<size_t>(count); ++r) {
        const auto row = [&](const std::vector<double>& values) {
          return std::span<const double>(values.data() + r * n, n);
        };
        Add(kForms[f], row(x), row(g), row(dx), rstd[r], errors[f]);
      }
    }
  }

  TheoryResult result;
  TheoryTable table{
      .caption =
          fmt::format("Gradients dx of {} random rows of {} elements, with gbar and D_g, the "
                      "mean and the variance of dL/dy, y = (x - mean) / sigma, and m = "
                      "mean(y dL/dy). Errors are relative to the size of dL/dy.",
                      rows, width),
      .head = {"norm", "error of mean", "of variance", "over D_g/sigma^2", "rows above 1"}};
  for (size_t f = 0; f < std::size(kForms); ++f) {
    table.rows.push_back({kForms[f].name, errors[f].mean, errors[f].variance,
                          errors[f].ratio_sum / static_cast<double>(rows),
                          static_cast<double>(errors[f].larger)});
  }
  result.tables.push_back(std::move(table));

  const auto state = [&](std::vector<size_t> forms, std::string source, std::string text,
                         TheoryVerdict holds, std::string_view more) {
    double of_mean = 0, of_variance = 0;
    int64_t larger = 0;
    for (const size_t f : forms) {
      of_mean = std::max(of_mean, errors[f].mean);
      of_variance = std::max(of_variance, errors[f].variance);
      larger += errors[f].larger;
    }
    const bool right = of_mean <= kRounding && of_variance <= kRounding && larger == 0;
    result.statements.push_back(
        {.source = std::move(source),
         .text = std::move(text),
         .verdict = right ? holds : TheoryVerdict::kFails,
         .measured = fmt::format("largest error of the mean {:.1e}, of the variance {:.1e}; {} of "
                                 "{} rows above the bound{}",
                                 of_mean, of_variance, larger, rows, more)});
  };
  state({3}, "Xu et al. 2019, Theorem 1",
        "With mean and deviation detached, the mean of the gradients is gbar/sigma and their "
        "variance D_g/sigma^2.",
        TheoryVerdict::kHolds, "");
  state({0}, "Xu et al. 2019, Theorem 1",
        "With LayerNorm-simple, the mean of the gradients is 0 and their variance at most "
        "D_g/sigma^2.",
        TheoryVerdict::kHolds, ". The variance is (D_g - m^2)/sigma^2");
  state(
      {1}, "Xu et al. 2019, Theorem 1, proof in the supplement",
      "With the mean detached, the mean of the gradients is gbar/sigma and their variance at most "
      "D_g/sigma^2.",
      TheoryVerdict::kHolds, ". The variance is (D_g - m^2)/sigma^2");
  state({2}, "Xu et al. 2019, Theorem 1, proof in the supplement",
        "With the deviation detached, the mean of the gradients is 0 and their variance "
        "D_g/sigma^2.",
        TheoryVerdict::kHoldsCorrected, ". The paper prints D_c for this variance, D_d is meant");
  return result;
}

}  // namespace

TheoryAnalysis GradientStatistics() {
  return {.name = "gradients",
          .summary = "Mean and variance of the gradients of a norm (Theorem 1 of Xu et al. 2019)",
          .settings = {{"rows", "random rows", 1e6, 1, 1e9},
                       {"width", "elements of a row", 16, 2, 4096},
                       {"seed", "of the random rows", 1, 0, 0x1p53}},
          .measure = MeasureGradients};
}

}  // namespace planish::lab
