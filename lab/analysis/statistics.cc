#include "lab/analysis/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "lab/error.h"

namespace planish::lab {

double StudentT(int degrees_of_freedom) {
  static constexpr std::array<double, 30> kTable = {
      12.7062047362, 4.3026527297, 3.1824463053, 2.7764451052, 2.5705818356, 2.4469118511,
      2.3646242516,  2.3060041352, 2.2621571628, 2.2281388520, 2.2009851601, 2.1788128297,
      2.1603686565,  2.1447866879, 2.1314495456, 2.1199052992, 2.1098155778, 2.1009220402,
      2.0930240544,  2.0859634473, 2.0796138447, 2.0738730679, 2.0686576104, 2.0638985616,
      2.0595385528,  2.0555294386, 2.0518305165, 2.0484071418, 2.0452296421, 2.0422724563};
  if (degrees_of_freedom < 1) {
    throw RunError(
        fmt::format("[StudentT] degrees_of_freedom must be 1 or more, got {}", degrees_of_freedom));
  }
  if (degrees_of_freedom <= static_cast<int>(kTable.size())) return kTable[degrees_of_freedom - 1];
  // Cornish-Fisher expansion about the normal quantile (Abramowitz & Stegun 26.7.5).
  const double z = 1.959963984540054;
  const double z2 = z * z;
  const double v = degrees_of_freedom;
  return z + z * (z2 + 1) / (4 * v) + z * ((5 * z2 + 16) * z2 + 3) / (96 * v * v) +
         z * (((3 * z2 + 19) * z2 + 17) * z2 - 15) / (384 * v * v * v);
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
