#include "lab/analysis/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include "lab/error.h"

namespace planish::lab {

namespace {

// Returns the probability that |T| < sqrt(degrees_of_freedom) * tan(angle), where T has Student's
// distribution (Abramowitz & Stegun 26.7.3 and 26.7.4).
double WithinAngle(double angle, int degrees_of_freedom) {
  const double sine = std::sin(angle), cosine = std::cos(angle);
  const bool odd = degrees_of_freedom % 2 == 1;
  double sum = 0, term = odd ? cosine : 1;
  for (int i = odd ? 3 : 2; i <= degrees_of_freedom; i += 2) {
    sum += term;
    term *= cosine * cosine * (i - 1) / i;
  }
  return odd ? 2 * std::numbers::inv_pi * (angle + sine * sum) : sine * sum;
}

}  // namespace

double StudentT(int degrees_of_freedom, double confidence) {
  if (degrees_of_freedom < 1) {
    throw RunError(
        fmt::format("[StudentT] degrees_of_freedom must be 1 or more, got {}", degrees_of_freedom));
  }
  if (!(confidence > 0 && confidence < 1)) {
    throw RunError(
        fmt::format("[StudentT] confidence must be between 0 and 1, got {}", confidence));
  }
  double low = 0, high = std::numbers::pi / 2;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (WithinAngle(middle, degrees_of_freedom) < confidence ? low : high) = middle;
  }
  return std::sqrt(static_cast<double>(degrees_of_freedom)) * std::tan(low);
}

Estimate EstimateMean(std::span<const double> values) {
  Estimate estimate;
  estimate.count = static_cast<int>(values.size());
  if (values.empty()) return estimate;
  const auto [min, max] = std::minmax_element(values.begin(), values.end());
  estimate.min = *min;
  estimate.max = *max;
  // Scaled, so that neither sums nor squares overflow.
  const double scale = std::max(std::abs(*min), std::abs(*max));
  if (scale == 0) {
    if (values.size() > 1) estimate.half_width = 0;
    return estimate;
  }
  const double n = static_cast<double>(values.size());
  double sum = 0;
  for (double value : values) sum += value / scale;
  const double mean = sum / n;
  estimate.mean = std::clamp(mean * scale, *min, *max);
  if (values.size() > 1) {
    double squares = 0;
    if (*min != *max) {
      for (double value : values) squares += (value / scale - mean) * (value / scale - mean);
    }
    estimate.half_width = StudentT(estimate.count - 1) * std::sqrt(squares / (n - 1) / n) * scale;
  }
  return estimate;
}

Estimate EstimateMean(const SeedValues& values) {
  std::vector<double> list;
  for (const auto& [seed, value] : values) list.push_back(value);
  return EstimateMean(list);
}

Estimate EstimateDifference(std::vector<double> differences, double largest) {
  // Differences such as 0.3 - (0.1 + 0.2) are rounding errors.
  const double noise = 1e-12 * largest;
  for (double& difference : differences) {
    if (std::abs(difference) <= noise) difference = 0;
  }
  Estimate estimate = EstimateMean(differences);
  if (std::abs(estimate.mean) <= noise) estimate.mean = 0;
  if (estimate.half_width && estimate.max - estimate.min <= noise) estimate.half_width = 0;
  return estimate;
}

Estimate PairedDifference(const SeedValues& a, const SeedValues& b) {
  std::vector<double> differences;
  double largest = 0;
  for (const auto& [seed, value] : a) {
    const auto other = b.find(seed);
    if (other == b.end()) continue;
    differences.push_back(value - other->second);
    largest = std::max({largest, std::abs(value), std::abs(other->second)});
  }
  return EstimateDifference(std::move(differences), largest);
}

int SureSign(const Estimate& estimate) {
  const double half_width = estimate.half_width.value_or(0);
  if (!(half_width > 0) || !(std::abs(estimate.mean) > half_width)) return 0;
  return estimate.mean > 0 ? 1 : -1;
}

}  // namespace planish::lab
