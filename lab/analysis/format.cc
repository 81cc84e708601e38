#include "lab/analysis/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>

#include "lab/base/format_integer.h"

namespace planish::lab {
namespace {

bool IsPercent(const MetricSpec& metric) { return metric.unit == "%"; }

bool IsSteps(const MetricSpec& metric) { return metric.unit == "steps"; }

bool NeedsExponent(double value) {
  return value != 0 && (std::abs(value) >= 1e6 || std::abs(value) < 1e-4);
}

// Returns the number of decimals that show `digits` significant digits of `value`.
int DecimalsFor(double value, int digits) {
  if (value == 0 || !std::isfinite(value)) return 0;
  const int exponent = static_cast<int>(std::floor(std::log10(std::abs(value))));
  return std::clamp(digits - 1 - exponent, 0, 9);
}

std::string Plain(double value, int decimals) {
  std::string text = fmt::format("{:.{}f}", value, decimals);
  if (text[0] == '-' && text.find_first_not_of("-0.") == std::string::npos) text.erase(0, 1);
  return text;
}

std::string Fixed(double value, int decimals) {
  return NeedsExponent(value) ? fmt::format("{:.2e}", value) : Plain(value, decimals);
}

// Returns the decimals for values shown together: two digits of the smallest. A test set of 10,000
// cases resolves hundredths of a percent, so percentages get two decimals unless all values are
// smaller.
int SharedDecimals(const MetricSpec& metric, std::initializer_list<double> shown) {
  double smallest = 0;
  for (const double value : shown) {
    if (value != 0 && (smallest == 0 || std::abs(value) < smallest)) smallest = std::abs(value);
  }
  if (IsPercent(metric)) return smallest < 0.1 ? std::max(2, DecimalsFor(smallest, 1)) : 2;
  return DecimalsFor(smallest, 2);
}

// Returns the unit of differences with a space before it, or an empty text.
std::string UnitAfter(const MetricSpec& metric) {
  const std::string unit = DifferenceUnit(metric);
  return unit.empty() ? "" : " " + unit;
}

std::string Direction(const MetricSpec& metric, double difference) {
  if (IsSteps(metric)) return difference < 0 ? "fewer" : "more";
  return difference < 0 ? "lower" : "higher";
}

// Returns `shown` with `decimals` decimals, and steps as integers.
std::string Rounded(const MetricSpec& metric, double shown, int decimals) {
  return IsSteps(metric) && std::abs(shown) < 1e15 ? FormatInteger(std::llround(shown))
                                                   : Fixed(shown, decimals);
}

}  // namespace

std::string Words(std::string_view name) {
  std::string words(name);
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

std::string SettingText(const nlohmann::ordered_json& value) {
  if (value == "") return "\"\"";  // would be lost in a list
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return "—";  // a setting that the run does not have
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string SettingPhrase(std::string_view name, const nlohmann::ordered_json& value) {
  return Words(name) + " " + SettingText(value);
}

std::string FormatSignificant(double value, int digits) {
  return Fixed(value, DecimalsFor(value, digits));
}

std::string FormatSeconds(double seconds) {
  return seconds >= 1000 && seconds < 1e15 ? FormatInteger(std::llround(seconds))
                                           : FormatSignificant(seconds, 3);
}

double Shown(const MetricSpec& metric, double value) {
  constexpr double kMax = std::numeric_limits<double>::max();
  return IsPercent(metric) ? std::clamp(100 * value, -kMax, kMax) : value;
}

std::string FormatBare(const MetricSpec& metric, double value) {
  const double shown = Shown(metric, value);
  if (IsSteps(metric)) return Rounded(metric, shown, 0);
  if (IsPercent(metric)) return Fixed(shown, SharedDecimals(metric, {shown}));
  return FormatSignificant(shown, 3);
}

std::string FormatValue(const MetricSpec& metric, double value) {
  const std::string bare = FormatBare(metric, value);
  if (IsPercent(metric)) return bare + "%";
  return metric.unit.empty() ? bare : bare + " " + metric.unit;
}

std::string FormatTarget(const MetricSpec& metric, double value) {
  const std::string bare = fmt::format("{:.6g}", Shown(metric, value));
  if (IsPercent(metric)) return bare + "%";
  return metric.unit.empty() ? bare : bare + " " + metric.unit;
}

std::string FormatTwo(const MetricSpec& metric, double a, double b) {
  const double x = Shown(metric, a), y = Shown(metric, b);
  if (IsSteps(metric)) return Rounded(metric, x, 0) + " and " + Rounded(metric, y, 0);
  // Uses enough digits to show the difference between the values.
  int decimals = IsPercent(metric) ? 2 : DecimalsFor(std::max(std::abs(x), std::abs(y)), 3);
  if (x != y && !IsPercent(metric)) decimals = std::max(decimals, DecimalsFor(x - y, 1));
  if (NeedsExponent(std::max(std::abs(x), std::abs(y))) || decimals > 7) {
    return fmt::format("{:.2e} and {:.2e}", x, y);
  }
  return Plain(x, decimals) + " and " + Plain(y, decimals);
}

std::string FormatEstimate(const MetricSpec& metric, const Estimate& estimate) {
  if (!estimate.half_width) return FormatBare(metric, estimate.mean);
  if (estimate.count == 2) return FormatTwo(metric, estimate.min, estimate.max);
  const double mean = Shown(metric, estimate.mean);
  const double half = Shown(metric, *estimate.half_width);
  int decimals = SharedDecimals(metric, {half});
  if (IsPercent(metric)) decimals = std::min(decimals, 3);
  if (IsSteps(metric)) return Rounded(metric, mean, 0) + " ± " + Rounded(metric, half, 0);
  if (!IsPercent(metric) && half == 0) decimals = DecimalsFor(mean, 3);
  // One form for both, so that they are comparable.
  const bool exponent = NeedsExponent(std::max(std::abs(mean), std::abs(half))) || decimals > 7;
  if (exponent) return fmt::format("{:.2e} ± {:.1e}", mean, half);
  return Plain(mean, decimals) + " ± " + Plain(half, decimals);
}

std::string DifferenceUnit(const MetricSpec& metric) {
  // BLEU is the name of the metric and of its unit.
  if (metric.unit.empty() && metric.label.ends_with("BLEU")) return "BLEU";
  return IsPercent(metric) ? "points" : metric.unit;
}

std::string FormatSize(const MetricSpec& metric, double shown) {
  return Rounded(metric, shown, SharedDecimals(metric, {shown})) + UnitAfter(metric);
}

std::string FormatP(double p) {
  if (p < 0.0001) return "below .0001";
  std::string text = fmt::format("{:.{}f}", p, p < 0.001 ? 4 : p < 0.1 ? 3 : 2);
  return text.starts_with("0.") ? text.substr(1) : text;
}

std::string FormatDifference(const MetricSpec& metric, double difference) {
  if (difference == 0) return "no difference";
  const double shown = std::abs(Shown(metric, difference));
  return FormatSize(metric, shown) + " " + Direction(metric, difference);
}

std::string FormatDifferenceInterval(const MetricSpec& metric, const Estimate& difference) {
  const double low = Shown(metric, difference.low());
  const double high = Shown(metric, difference.high());
  const int decimals = SharedDecimals(metric, {low, high});
  const std::string unit = UnitAfter(metric);
  if (SureSign(difference) != 0) {
    const double near = std::min(std::abs(low), std::abs(high));
    const double far = std::max(std::abs(low), std::abs(high));
    return Rounded(metric, near, decimals) + " to " + Rounded(metric, far, decimals) + unit;
  }
  if (low == 0 && high == 0) return "from 0 to 0" + unit;
  return fmt::format("from {}{} {} to {}{} {}", Rounded(metric, std::abs(low), decimals), unit,
                     Direction(metric, low), Rounded(metric, std::abs(high), decimals), unit,
                     Direction(metric, high));
}

std::string LabelWithUnit(const MetricSpec& metric) {
  return metric.unit.empty() ? metric.label : metric.label + " (" + metric.unit + ")";
}

}  // namespace planish::lab
