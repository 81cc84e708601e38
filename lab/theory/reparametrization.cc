#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "lab/base/random.h"
#include "lab/theory/analyses.h"
#include "lab/theory/rows.h"
#include "planish/batch_norm.h"
#include "planish/norm.h"
#include "planish/weight_norm.h"

// Section 4 of Ba, Kiros & Hinton 2016: batch norm with the expected statistics, and weight norm,
// are re-parametrizations of the model without a norm; layer norm is not. So the former fold into
// the weights and biases of a linear layer, and the best fold of the latter leaves an error.
namespace planish::lab {
namespace {

using Doubles = std::vector<double>;

// Returns rows of [x 1], each times the transposed [units, inputs + 1] matrix of weights and
// biases.
Doubles Affine(const Doubles& x, const Doubles& w, int64_t cases, int64_t inputs, int64_t units) {
  Doubles y(static_cast<size_t>(cases * units));
  for (int64_t n = 0; n < cases; ++n) {
    for (int64_t u = 0; u < units; ++u) {
      const double* row = w.data() + u * (inputs + 1);
      double sum = row[inputs];
      for (int64_t i = 0; i < inputs; ++i) sum += x[static_cast<size_t>(n * inputs + i)] * row[i];
      y[static_cast<size_t>(n * units + u)] = sum;
    }
  }
  return y;
}

// Returns the root of the mean squared difference, relative to the deviation of y from the means of
// its units.
double RelativeError(const Doubles& found, const Doubles& y, int64_t units) {
  const auto cases = static_cast<int64_t>(y.size()) / units;
  double errors = 0, deviations = 0;
  for (int64_t u = 0; u < units; ++u) {
    double mean = 0;
    for (int64_t n = 0; n < cases; ++n) mean += y[static_cast<size_t>(n * units + u)];
    mean /= static_cast<double>(cases);
    for (int64_t n = 0; n < cases; ++n) {
      const auto i = static_cast<size_t>(n * units + u);
      errors += (found[i] - y[i]) * (found[i] - y[i]);
      deviations += (y[i] - mean) * (y[i] - mean);
    }
  }
  return std::sqrt(errors / deviations);
}

// Returns the weights and biases [units, inputs + 1] that fit y best: the solution of the normal
// equations, by Cholesky's decomposition. The cases are many and random, so these are well
// conditioned.
Doubles BestAffine(const Doubles& x, const Doubles& y, int64_t cases, int64_t inputs,
                   int64_t units) {
  const int64_t size = inputs + 1;
  const auto at = [size](int64_t i, int64_t j) { return static_cast<size_t>(i * size + j); };
  Doubles gram(static_cast<size_t>(size * size)), w(static_cast<size_t>(units * size));
  Doubles row(static_cast<size_t>(size), 1);
  for (int64_t n = 0; n < cases; ++n) {
    std::copy_n(x.begin() + n * inputs, inputs, row.begin());
    for (int64_t i = 0; i < size; ++i) {
      for (int64_t j = 0; j <= i; ++j) {
        gram[at(i, j)] += row[static_cast<size_t>(i)] * row[static_cast<size_t>(j)];
      }
      for (int64_t u = 0; u < units; ++u) {
        w[at(u, i)] += row[static_cast<size_t>(i)] * y[static_cast<size_t>(n * units + u)];
      }
    }
  }
  for (int64_t i = 0; i < size; ++i) {  // gram = L L^T; L replaces its lower half
    for (int64_t j = 0; j <= i; ++j) {
      double sum = gram[at(i, j)];
      for (int64_t k = 0; k < j; ++k) sum -= gram[at(i, k)] * gram[at(j, k)];
      gram[at(i, j)] = i == j ? std::sqrt(sum) : sum / gram[at(j, j)];
    }
  }
  for (int64_t u = 0; u < units; ++u) {
    for (int64_t i = 0; i < size; ++i) {
      for (int64_t k = 0; k < i; ++k) w[at(u, i)] -= gram[at(i, k)] * w[at(u, k)];
      w[at(u, i)] /= gram[at(i, i)];
    }
    for (int64_t i = size - 1; i >= 0; --i) {
      for (int64_t k = i + 1; k < size; ++k) w[at(u, i)] -= gram[at(k, i)] * w[at(u, k)];
      w[at(u, i)] /= gram[at(i, i)];
    }
  }
  return w;
}

struct FoldErrors {
  double batch = 0, weight = 0, layer = 0, layer_fit = 0;
};

// Folds the three norms of a random layer, and compares the outputs for new cases.
FoldErrors Fold(int64_t inputs, int64_t units, int64_t cases, int64_t seed) {
  std::mt19937_64 random(MixedSeed({seed, inputs, units}));
  const auto draw = [&](int64_t count) {
    Doubles values(static_cast<size_t>(count));
    DrawRow(RowKind::kNormal, random, values);
    return values;
  };
  const Doubles v = draw(units * inputs), bias = draw(units), mean = draw(units);
  Doubles gain = draw(units), variance = draw(units);
  for (double& value : gain) value = 1 + value / 4;
  for (double& value : variance) value = 1 + value * value;
  const Doubles x = draw(cases * inputs), fresh = draw(cases * inputs);
  Doubles plain(static_cast<size_t>(units * (inputs + 1)));  // the sums, without a bias
  for (int64_t u = 0; u < units; ++u) {
    std::copy_n(v.begin() + u * inputs, inputs, plain.begin() + u * (inputs + 1));
  }
  const Doubles sums = Affine(fresh, plain, cases, inputs, units);
  Doubles y(sums.size());
  FoldErrors errors;

  BatchNormEvaluate<double>({.batch = cases,
                             .channels = units,
                             .x = sums.data(),
                             .gain = gain.data(),
                             .bias = bias.data(),
                             .running_mean = mean.data(),
                             .running_var = variance.data(),
                             .y = y.data()},
                            {.eps = 0});
  Doubles folded = plain;
  for (int64_t u = 0; u < units; ++u) {
    const auto unit = static_cast<size_t>(u);
    const double factor = gain[unit] / std::sqrt(variance[unit]);
    for (int64_t i = 0; i < inputs; ++i) {
      folded[static_cast<size_t>(u * (inputs + 1) + i)] *= factor;
    }
    folded[static_cast<size_t>(u * (inputs + 1) + inputs)] = bias[unit] - factor * mean[unit];
  }
  errors.batch = RelativeError(Affine(fresh, folded, cases, inputs, units), y, units);

  // Weight norm computes its output from w; the fold is w itself, found from v and g alone.
  Doubles w(v.size());
  WeightNormForward<double>(
      {.rows = units, .cols = inputs, .v = v.data(), .g = gain.data(), .w = w.data()});
  for (int64_t u = 0; u < units; ++u) {
    double squares = 0;
    for (int64_t i = 0; i < inputs; ++i) {
      squares += std::pow(v[static_cast<size_t>(u * inputs + i)], 2);
    }
    const double factor = gain[static_cast<size_t>(u)] / std::sqrt(squares);
    for (int64_t i = 0; i < inputs; ++i) {
      folded[static_cast<size_t>(u * (inputs + 1) + i)] =
          factor * v[static_cast<size_t>(u * inputs + i)];
    }
    folded[static_cast<size_t>(u * (inputs + 1) + inputs)] = 0;
  }
  Doubles of_w(plain.size());
  for (int64_t u = 0; u < units; ++u) {
    std::copy_n(w.begin() + u * inputs, inputs, of_w.begin() + u * (inputs + 1));
  }
  errors.weight = RelativeError(Affine(fresh, folded, cases, inputs, units),
                                Affine(fresh, of_w, cases, inputs, units), units);

  const auto layer_norm = [&](const Doubles& of) {
    Doubles out(of.size());
    NormForward<double>(Norm::kLayer,
                        {.rows = cases,
                         .cols = units,
                         .x = of.data(),
                         .gain = gain.data(),
                         .bias = bias.data(),
                         .y = out.data()},
                        {.eps = 0});
    return out;
  };
  const Doubles fitted_y = layer_norm(Affine(x, plain, cases, inputs, units));
  const Doubles best = BestAffine(x, fitted_y, cases, inputs, units);
  errors.layer_fit = RelativeError(Affine(x, best, cases, inputs, units), fitted_y, units);
  errors.layer = RelativeError(Affine(fresh, best, cases, inputs, units), layer_norm(sums), units);
  return errors;
}

TheoryResult MeasureReparametrization(const AnalysisSettings& settings) {
  const int64_t units = settings.Whole("units"), seed = settings.Whole("seed");
  // Many cases for each weight that is fitted, so that the fit is that of all cases.
  const int64_t cases_per_input = settings.Whole("cases");
  TheoryResult result;
  TheoryTable table{
      .caption = fmt::format("A linear layer of {} units with a norm, folded into its weights and "
                             "biases: the difference of the outputs for new cases, relative to "
                             "their deviation. For layer norm the fold is the best affine map, "
                             "fitted to {} cases for each input.",
                             units, cases_per_input),
      .head = {"inputs", "batch norm", "weight norm", "layer norm", "cases of the fit"}};
  TheoryChart chart{.heading = "What the best fold of a norm leaves",
                    .x_label = "inputs",
                    .y_label = "relative error",
                    .log_x = true,
                    .log_y = true,
                    .lines = {{.name = "layer norm", .points = {}}}};
  double largest = 0, least = INFINITY;
  for (const int64_t inputs : {2, 4, 8, 16, 32, 64}) {
    const FoldErrors errors = Fold(inputs, units, cases_per_input * (inputs + 1), seed);
    table.rows.push_back(
        {std::to_string(inputs), errors.batch, errors.weight, errors.layer, errors.layer_fit});
    chart.lines[0].points.emplace_back(static_cast<double>(inputs), errors.layer);
    largest = std::max({largest, errors.batch, errors.weight});
    least = std::min(least, errors.layer);
  }
  const double first = chart.lines[0].points.front().second;
  const double last = chart.lines[0].points.back().second;
  result.tables.push_back(std::move(table));
  result.charts.push_back(std::move(chart));
  // Sums of 65 terms round by less.
  constexpr double kFoldRounding = 1e-12;
  result.statements.push_back(
      {.source = "Ba, Kiros & Hinton 2016, section 4",
       .text = "Batch normalization with the expected statistics, and weight normalization, are "
               "re-parametrizations of the original model.",
       .verdict = largest <= kFoldRounding ? TheoryVerdict::kHolds : TheoryVerdict::kFails,
       .measured = fmt::format("folded into weights and biases, outputs differ by {:.1e} at most",
                               largest)});
  result.statements.push_back(
      {.source = "Ba, Kiros & Hinton 2016, section 4",
       .text = "Layer normalization is not a re-parametrization of the original model.",
       .verdict = least > 100 * kFoldRounding ? TheoryVerdict::kHolds : TheoryVerdict::kFails,
       .measured =
           fmt::format("the best fold leaves an error of {:.0f}% with 2 inputs, and {:.0f}% "
                       "with 64, where the deviations of cases are more alike",
                       100 * first, 100 * last)});
  return result;
}

}  // namespace

TheoryAnalysis Reparametrization() {
  return {.name = "reparametrization",
          .summary = "Which norms fold into the weights (section 4 of Ba et al. 2016)",
          .settings = {{"units", "units of the layer", 32, 2, 256},
                       {"cases", "cases of the fit, for each input", 50, 2, 10000},
                       {"seed", "of the random layer and cases", 1, 0, 0x1p53}},
          .measure = MeasureReparametrization};
}

}  // namespace planish::lab
