#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "lab/theory/recurrent_stability.h"

namespace planish::lab {
namespace {

// A rate within 1% per step counts as steady.
constexpr double kSteadyRate = 0.01;

}  // namespace

double GrowthRate(std::span<const double> sizes) {
  const auto usable = [](double size) {
    constexpr double kSmallest = 1e-290;  // products near the least normal number are inexact
    return size >= kSmallest && !std::isinf(size);
  };
  if (std::ranges::count_if(sizes.subspan(sizes.size() / 2), usable) < 2) {
    // Sizes that underflow or overflow before the second half.
    const auto end = std::ranges::find_if_not(sizes, usable);
    sizes = sizes.first(static_cast<size_t>(end - sizes.begin()));
  }
  double count = 0, sum_t = 0, sum_y = 0, sum_tt = 0, sum_ty = 0;
  const size_t begin = sizes.size() / 2;
  for (size_t i = begin; i < sizes.size(); ++i) {
    if (!usable(sizes[i])) continue;
    const double t = static_cast<double>(i - begin), y = std::log(sizes[i]);
    count += 1;
    sum_t += t;
    sum_y += y;
    sum_tt += t * t;
    sum_ty += t * y;
  }
  if (count < 2) return std::numeric_limits<double>::quiet_NaN();
  return (count * sum_ty - sum_t * sum_y) / (count * sum_tt - sum_t * sum_t);
}

void Growth::Add(const std::vector<double>& sizes, int64_t seed) {
  const double rate = GrowthRate(sizes);
  if (std::isfinite(rate)) rates[seed] = rate;
  log_sizes.resize(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) log_sizes[i] += std::log(sizes[i]);
  count += 1;
}

double Growth::Size(size_t index) const { return std::exp(log_sizes.at(index) / count); }

void AddDynamics(const Dynamics& dynamics, int64_t seed,
                 std::span<Growth, kQuantityCount> growths) {
  growths[kSummed].Add(dynamics.summed_size, seed);
  growths[kGradient].Add({dynamics.gradient_size.rbegin(), dynamics.gradient_size.rend()}, seed);
}

Trend TrendOf(const Growth& growth) {
  const Estimate rate = EstimateMean(growth.rates);
  if (!rate.half_width) return kUnclear;
  if (rate.low() > kSteadyRate) return kGrows;
  if (rate.high() < -kSteadyRate) return kShrinks;
  return rate.low() >= -kSteadyRate && rate.high() <= kSteadyRate ? kSteady : kUnclear;
}

TheoryChart SizeChart(Quantity quantity, const std::string& about) {
  const bool sums = quantity == kSummed;
  return {.heading = fmt::format(
              "{}, {}", sums ? "Size of the summed inputs" : "Size of the gradients", about),
          .x_label = sums ? "step t" : "steps back from the loss",
          .y_label = sums ? "root mean square" : "root mean square of dL/dh_t",
          .log_y = true,
          .lines = {}};
}

TheoryLine LineOf(const Growth& growth, Quantity quantity, const std::string& name) {
  TheoryLine line{.name = name, .points = {}};
  const size_t stride = (growth.log_sizes.size() + 199) / 200;
  for (size_t t = 0; t < growth.log_sizes.size(); t += stride) {
    const double size = growth.Size(t);
    if (!(size > 0) || std::isinf(size)) continue;
    line.points.emplace_back(static_cast<double>(quantity == kSummed ? t + 1 : t), size);
  }
  return line;
}

void AddEstimate(const Estimate& estimate, std::vector<TheoryCell>& row) {
  row.emplace_back(estimate.count > 0 ? estimate.mean : NAN);
  row.emplace_back(estimate.half_width.value_or(NAN));
}

SeedValues Magnitudes(SeedValues values) {
  for (auto& [seed, value] : values) value = std::abs(value);
  return values;
}

}  // namespace planish::lab
