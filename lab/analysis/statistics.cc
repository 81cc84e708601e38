#include "lab/analysis/statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
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

// Returns a bound from below of the lower limits of the 95% t-intervals of values within these
// bounds, at least two. A limit is concave in each value, so the lowest one has every value at one
// of its bounds. It falls with the sum of squares. For a given sum that is largest on a chain of
// choices that moves one value after the other to its upper bound, that with the largest middle
// first; fractional moves between them are allowed, so the bound is slightly lower than the limit.
double LowestLimit(std::vector<Bounded> values) {
  const auto n = static_cast<double>(values.size());
  std::ranges::sort(values, std::ranges::greater(),
                    [](const Bounded& v) { return v.low + v.high; });
  // About a middle value, for fewer rounding errors of the squares.
  const double center = values[values.size() / 2].value;
  double sum = 0, squares = 0;
  for (Bounded& v : values) {
    v = v + Exactly(-center);
    sum += v.low;
    squares += v.low * v.low;
  }
  const double factor = StudentT(static_cast<int>(values.size()) - 1) / std::sqrt(n * (n - 1));
  const auto limit = [&](double s, double q) {
    return s / n - factor * std::sqrt(std::max(0.0, q - s * s / n));
  };
  double lowest = limit(sum, squares);
  for (const Bounded& v : values) {
    const double move = v.high - v.low, more = v.high * v.high - v.low * v.low;
    // The limit is convex along the move.
    double low = 0, high = 1;
    for (int i = 0; i < 60; ++i) {
      const double first = low + (high - low) / 3, second = high - (high - low) / 3;
      const bool falls = limit(sum + first * move, squares + first * more) >
                         limit(sum + second * move, squares + second * more);
      (falls ? low : high) = falls ? first : second;
    }
    for (const double share : {low, 1.0}) {
      lowest = std::min(lowest, limit(sum + share * move, squares + share * more));
    }
    sum += move;
    squares += more;
  }
  return center + lowest;
}

// Returns the indices of the tests with a p-value, the smallest first.
std::vector<size_t> Ascending(const PValues& values) {
  std::vector<size_t> order;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i]) order.push_back(i);
  }
  std::ranges::stable_sort(order, {}, [&](size_t i) { return *values[i]; });
  return order;
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

Bounded operator*(double weight, const Bounded& a) {
  const Bounded product{weight * a.low, weight * a.value, weight * a.high};
  return weight < 0 ? Bounded{product.high, product.value, product.low} : product;
}

Bounded operator+(const Bounded& a, const Bounded& b) {
  return {a.low + b.low, a.value + b.value, a.high + b.high};
}

Estimate EstimateDifference(std::vector<Bounded> differences, double largest) {
  // Differences such as 0.3 - (0.1 + 0.2) are rounding errors.
  const double noise = 1e-12 * largest;
  bool are_exact = true;
  std::vector<double> values;
  for (Bounded& difference : differences) {
    for (double* value : {&difference.low, &difference.value, &difference.high}) {
      if (std::abs(*value) <= noise) *value = 0;
    }
    are_exact &= difference.high - difference.low <= noise;
    values.push_back(difference.value);
  }
  Estimate estimate = EstimateMean(values);
  if (std::abs(estimate.mean) <= noise) estimate.mean = 0;
  if (!estimate.half_width) return estimate;
  if (!are_exact) {
    std::vector<Bounded> opposite;
    for (const Bounded& difference : differences) opposite.push_back(-1.0 * difference);
    const double low = LowestLimit(std::move(differences));
    const double high = -LowestLimit(std::move(opposite));
    estimate.half_width = std::max(estimate.mean - low, high - estimate.mean);
  } else if (estimate.max - estimate.min <= noise) {
    estimate.half_width = 0;
  }
  return estimate;
}

Estimate PairedDifference(const SeedValues& a, const SeedValues& b) {
  std::vector<Bounded> differences;
  double largest = 0;
  for (const auto& [seed, value] : a) {
    const auto other = b.find(seed);
    if (other == b.end()) continue;
    differences.push_back(Exactly(value - other->second));
    largest = std::max({largest, std::abs(value), std::abs(other->second)});
  }
  return EstimateDifference(std::move(differences), largest);
}

Estimate AtConfidence(Estimate estimate, double confidence) {
  if (!estimate.half_width) return estimate;
  const int freedom = estimate.count - 1;
  estimate.half_width = *estimate.half_width / StudentT(freedom) * StudentT(freedom, confidence);
  return estimate;
}

std::optional<double> PValue(const Estimate& estimate) {
  if (!(estimate.half_width.value_or(0) > 0)) return std::nullopt;
  const int freedom = estimate.count - 1;
  const double t = std::abs(estimate.mean) / *estimate.half_width * StudentT(freedom);
  const double angle = std::atan(t / std::sqrt(static_cast<double>(freedom)));
  return std::clamp(1 - WithinAngle(angle, freedom), 0.0, 1.0);
}

PValues HolmAdjusted(const PValues& values) {
  PValues adjusted = values;
  double largest = 0;
  const std::vector<size_t> order = Ascending(values);
  for (size_t rank = 0; rank < order.size(); ++rank) {
    const auto tests = static_cast<double>(order.size() - rank);
    largest = std::max(largest, std::min(1.0, tests * *values[order[rank]]));
    adjusted[order[rank]] = largest;
  }
  return adjusted;
}

PValues FalseDiscoveryAdjusted(const PValues& values) {
  PValues adjusted = values;
  double smallest = 1;
  const std::vector<size_t> order = Ascending(values);
  const auto tests = static_cast<double>(order.size());
  for (size_t rank = order.size(); rank-- > 0;) {
    smallest = std::min(smallest, tests / static_cast<double>(rank + 1) * *values[order[rank]]);
    adjusted[order[rank]] = smallest;
  }
  return adjusted;
}

int SureSign(const Estimate& estimate) {
  const double half_width = estimate.half_width.value_or(0);
  if (!(half_width > 0) || !(std::abs(estimate.mean) > half_width)) return 0;
  return estimate.mean > 0 ? 1 : -1;
}

}  // namespace planish::lab
