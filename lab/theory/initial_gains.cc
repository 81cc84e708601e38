#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "lab/base/random.h"
#include "lab/theory/analyses.h"
#include "lab/theory/rows.h"
#include "planish/norm.h"

// The initial values of alpha and beta in LN(a; alpha, beta) of Ba, Kiros & Hinton 2016, Eq. 15.
// The supplement calls alpha additive and beta multiplicative, and starts them at 0 and 1; in Eq.
// 15 alpha is the factor and beta the term.
namespace planish::lab {
namespace {

// How a norm with these gains and biases depends on its input.
struct Dependence {
  double outputs = 0;    // largest difference between the outputs of two cases
  double gradients = 0;  // root mean square of the gradients of the summed inputs
};

Dependence Measure(double gain_value, double bias_value, int64_t cases, int64_t units,
                   int64_t seed) {
  const auto n = static_cast<size_t>(units), size = static_cast<size_t>(cases) * n;
  std::mt19937_64 random(MixedSeed({seed}));
  std::vector<double> a(size), dy(size), y(size), da(size);
  for (size_t row = 0; row < size; row += n) {
    DrawRow(RowKind::kNormal, random, std::span(a).subspan(row, n));
    DrawRow(RowKind::kNormal, random, std::span(dy).subspan(row, n));
  }
  const std::vector<double> gain(n, gain_value), bias(n, bias_value);
  std::vector<double> mean(static_cast<size_t>(cases)), mean_lo(mean), rstd(mean);
  NormForward<double>(Norm::kLayer,
                      {.rows = cases,
                       .cols = units,
                       .x = a.data(),
                       .gain = gain.data(),
                       .bias = bias.data(),
                       .y = y.data(),
                       .mean = mean.data(),
                       .mean_lo = mean_lo.data(),
                       .rstd = rstd.data()},
                      {.eps = 0});
  NormBackward<double>(Norm::kLayer, {.rows = cases,
                                      .cols = units,
                                      .dy = dy.data(),
                                      .x = a.data(),
                                      .gain = gain.data(),
                                      .mean = mean.data(),
                                      .mean_lo = mean_lo.data(),
                                      .rstd = rstd.data(),
                                      .dx = da.data()});
  Dependence found;
  for (size_t i = 0; i < size; ++i) {
    found.outputs = std::max(found.outputs, std::abs(y[i] - y[i % n]));
    found.gradients += da[i] * da[i] / static_cast<double>(size);
  }
  found.gradients = std::sqrt(found.gradients);
  return found;
}

TheoryResult MeasureInitialGains(const AnalysisSettings& settings) {
  const auto measure = [&](double alpha, double beta) {
    return Measure(alpha, beta, settings.Whole("cases"), settings.Whole("units"),
                   settings.Whole("seed"));
  };
  const Dependence printed = measure(0, 1), read = measure(1, 0);
  TheoryResult result;
  result.tables.push_back(
      {.caption = "LN(a; alpha, beta) of random summed inputs: the largest difference between the "
                  "outputs of two cases, and the root mean square of dL/da for a random dL/dy.",
       .head = {"alpha", "beta", "outputs differ by", "gradients"},
       .rows = {{0.0, 1.0, printed.outputs, printed.gradients},
                {1.0, 0.0, read.outputs, read.gradients}}});
  const bool is_dead = printed.outputs == 0 && printed.gradients == 0;
  const bool works = read.outputs > 0 && read.gradients > 0;
  result.statements.push_back(
      {.source = "Ba, Kiros & Hinton 2016, supplement, with Eq. 15",
       .text = "The additive parameter alpha of LN starts at 0, the multiplicative beta at 1.",
       .verdict = is_dead && works ? TheoryVerdict::kHoldsCorrected : TheoryVerdict::kFails,
       .measured = fmt::format(
           "in Eq. 15 alpha multiplies. With alpha = 0 all outputs are equal and no gradient "
           "reaches the weights ({:.1g}); with alpha = 1 and beta = 0 they differ by up to {:.2g}, "
           "and gradients have size {:.2g}",
           printed.gradients, read.outputs, read.gradients)});
  return result;
}

}  // namespace

TheoryAnalysis InitialGains() {
  return {.name = "initialization",
          .summary = "Initial gains and biases (supplement of Ba et al. 2016)",
          .settings = {{"units", "units of the layer", 32, 2, 4096},
                       {"cases", "random cases", 64, 2, 65536},
                       {"seed", "of the random cases", 1, 0, 0x1p53}},
          .measure = MeasureInitialGains};
}

}  // namespace planish::lab
