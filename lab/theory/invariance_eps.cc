#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "lab/base/norm_name.h"
#include "lab/theory/invariance.h"
#include "planish/batch_norm.h"
#include "planish/norm.h"
#include "planish/online_norm.h"

namespace planish::lab {
namespace {

std::optional<Norm> RowNormOf(const std::string& norm) {
  if (norm == "group") return Norm::kLayer;
  for (const internal::NormName& row : internal::kNormNames) {
    if (LabNameOf(row) == norm) return row.norm;
  }
  return std::nullopt;
}

bool AddsEpsToDeviation(const std::string& norm) {
  const std::optional<Norm> row = RowNormOf(norm);
  return row && internal::RecipeOf(*row).deviation == internal::Deviation::kUnbiasedPlusEps;
}

// The elements that are normalized together: batch norm's are columns, all others are consecutive.
class ValueSets {
 public:
  explicit ValueSets(const NormalizedValues& values)
      : columns_(values.norm == "batch"),
        units_(static_cast<size_t>(values.units)),
        groups_(values.norm == "group" ? static_cast<size_t>(GroupsOf(values.units, 1)) : 1),
        count_(columns_ ? units_ : static_cast<size_t>(values.cases) * groups_) {}

  size_t count() const { return count_; }
  size_t groups() const { return groups_; }
  size_t IndexOf(size_t element) const {
    return columns_ ? element % units_ : element / (units_ / groups_);
  }

  // Returns the sum over each set of f(element).
  template <class F>
  std::vector<double> SumsOf(size_t elements, F f) const {
    std::vector<double> sums(count_);
    for (size_t i = 0; i < elements; ++i) sums[IndexOf(i)] += f(i);
    return sums;
  }

 private:
  bool columns_;
  size_t units_, groups_, count_;
};

InvarianceOptions WithoutSlope(double eps) { return {.eps = eps, .slope = 0}; }

std::vector<double> NormalizedScaled(const NormalizedValues& values, double eps, double d) {
  std::vector<double> a = values.a;
  for (double& value : a) value *= d;
  return NormalizedSums(values.norm, {.cases = values.cases, .units = values.units}, std::move(a),
                        WithoutSlope(eps));
}

// Returns |x|^2 of each set.
std::vector<double> SquaresOf(const ValueSets& sets, const std::vector<double>& x) {
  return sets.SumsOf(x.size(), [&](size_t i) { return x[i] * x[i]; });
}

// The largest change of sizes whose squares are given, relative to `plain`.
double LargestChangeOfSizes(const std::vector<double>& squares, const std::vector<double>& plain) {
  double change = 0;
  for (size_t i = 0; i < plain.size(); ++i) {
    change = std::max(change, std::abs(std::sqrt(squares[i] / plain[i]) - 1));
  }
  return change;
}

// Returns dL/da for dL/dxhat = xhat, by the library.
std::vector<double> GradientOfOwnValues(const NormalizedValues& values, const ValueSets& sets,
                                        double eps, const std::vector<double>& xhat) {
  std::vector<double> da(values.a.size()), y(da.size());
  std::vector<double> mean(sets.count()), mean_lo(sets.count()), rstd(sets.count());
  if (values.norm == "batch") {
    const BatchNormOptions options{.eps = eps};
    BatchNormForward<double>({.batch = values.cases,
                              .channels = values.units,
                              .x = values.a.data(),
                              .y = y.data(),
                              .mean = mean.data(),
                              .mean_lo = mean_lo.data(),
                              .rstd = rstd.data()},
                             options);
    BatchNormBackward<double>({.batch = values.cases,
                               .channels = values.units,
                               .dy = xhat.data(),
                               .x = values.a.data(),
                               .mean = mean.data(),
                               .mean_lo = mean_lo.data(),
                               .rstd = rstd.data(),
                               .dx = da.data()},
                              options);
    return da;
  }
  const Norm norm = *RowNormOf(values.norm);
  const auto rows = static_cast<int64_t>(sets.count());
  const int64_t cols = values.units / static_cast<int64_t>(sets.groups());
  const planish::NormOptions options{.eps = eps, .slope = 0};
  NormForward<double>(norm,
                      {.rows = rows,
                       .cols = cols,
                       .x = values.a.data(),
                       .y = y.data(),
                       .mean = mean.data(),
                       .mean_lo = mean_lo.data(),
                       .rstd = rstd.data()},
                      options);
  NormBackward<double>(norm,
                       {.rows = rows,
                        .cols = cols,
                        .dy = xhat.data(),
                        .x = values.a.data(),
                        .mean = mean.data(),
                        .mean_lo = mean_lo.data(),
                        .rstd = rstd.data(),
                        .dx = da.data()},
                       options);
  return da;
}

}  // namespace

bool HasEps(const std::string& norm) { return norm == "batch" || RowNormOf(norm).has_value(); }

std::vector<double> DeviationsOf(const NormalizedValues& values) {
  const ValueSets sets(values);
  const std::vector<double>& a = values.a;
  const double size = static_cast<double>(a.size()) / static_cast<double>(sets.count());
  std::vector<double> means(sets.count());
  const std::optional<Norm> row = RowNormOf(values.norm);
  if (!row || internal::RecipeOf(*row).centre) {
    means = sets.SumsOf(a.size(), [&](size_t i) { return a[i] / size; });
  }
  std::vector<double> deviations = sets.SumsOf(a.size(), [&](size_t i) {
    const double rest = a[i] - means[sets.IndexOf(i)];
    return rest * rest;
  });
  const double count = AddsEpsToDeviation(values.norm) ? size - 1 : size;
  for (double& value : deviations) value = std::sqrt(value / count);
  return deviations;
}

double SizeWithEps(const std::string& norm, double sigma, double eps, double d) {
  const double ratio = d * sigma;
  return AddsEpsToDeviation(norm) ? 1 / (1 + eps / ratio)
                                  : 1 / std::sqrt(1 + eps / (ratio * ratio));
}

double BreakingScale(const std::string& norm, double sigma, double eps, double change) {
  if (eps == 0) return 0;
  if (AddsEpsToDeviation(norm)) return eps / sigma / ((1 + eps / sigma) / (1 - change) - 1);
  const double at_one = 1 + eps / (sigma * sigma), rest = (1 - change) * (1 - change);
  return std::sqrt(eps) / sigma / std::sqrt(at_one / rest - 1);
}

double ChangeOfScale(const NormalizedValues& values, double eps, double d) {
  const ValueSets sets(values);
  return LargestChangeOfSizes(SquaresOf(sets, NormalizedScaled(values, eps, d)),
                              SquaresOf(sets, NormalizedScaled(values, eps, 1)));
}

double MeasuredBreakingScale(const NormalizedValues& values, double eps, double change) {
  const ValueSets sets(values);
  const std::vector<double> plain = SquaresOf(sets, NormalizedScaled(values, eps, 1));
  const auto breaks = [&](double log_d) {
    return LargestChangeOfSizes(SquaresOf(sets, NormalizedScaled(values, eps, std::exp(log_d))),
                                plain) > change;
  };
  double low = std::log(1e-100), high = 0;
  if (!breaks(low)) return 0;
  while (high - low > 1e-12) {  // of log d: relative
    const double middle = (low + high) / 2;
    (breaks(middle) ? low : high) = middle;
  }
  return std::exp(high);
}

double SlopeOfScale(const NormalizedValues& values, double eps) {
  if (const std::optional<Norm> norm = RowNormOf(values.norm)) {
    const internal::Recipe recipe = internal::RecipeOf(*norm);
    if (recipe.centre != recipe.via_mean || !recipe.via_scale) {
      return std::numeric_limits<double>::quiet_NaN();
    }
  }
  const ValueSets sets(values);
  const std::vector<double> xhat = NormalizedScaled(values, eps, 1);
  const std::vector<double> da = GradientOfOwnValues(values, sets, eps, xhat);
  const std::vector<double> squares = SquaresOf(sets, xhat);
  const std::vector<double> products =
      sets.SumsOf(da.size(), [&](size_t i) { return da[i] * values.a[i]; });
  double slope = 0;
  for (size_t i = 0; i < squares.size(); ++i) slope = std::max(slope, products[i] / squares[i]);
  return slope;
}

double ClosedSlopeOfScale(const std::string& norm, double sigma, double eps) {
  const double spread = AddsEpsToDeviation(norm) ? sigma : sigma * sigma;
  return eps / (spread + eps);
}

std::vector<double> OnlineScaleFactors(const LinearLayer& layer, double alpha, double d) {
  std::vector<double> a = SumsOf("none", layer), rstd(static_cast<size_t>(layer.cases));
  OnlineState state;
  OnlineNormForward<double>(
      {.rows = layer.cases, .cols = layer.units, .x = a.data(), .y = a.data(), .rstd = rstd.data()},
      state, {.alpha = alpha});
  double memory = OnlineState{}.deviation;
  for (double& value : rstd) {
    memory *= 1 - alpha;
    value = 1 / (1 + (1 - d) / d * memory * value);
  }
  return rstd;
}

}  // namespace planish::lab
