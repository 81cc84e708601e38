#ifndef PLANISH_LAB_ANALYSIS_FORMAT_H_
#define PLANISH_LAB_ANALYSIS_FORMAT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "lab/analysis/statistics.h"
#include "lab/run/results.h"

// Text of numbers and names.
namespace planish::lab {

/// Returns "batch size" for "batch_size".
std::string Words(std::string_view name);

/// Returns a setting's value without JSON's quotes.
std::string SettingText(const nlohmann::ordered_json& value);

/// Returns a setting as part of a sentence: "batch size 4" for a number, and the form of --set,
/// "norm_at=all", for any other value.
std::string SettingPhrase(std::string_view name, const nlohmann::ordered_json& value);

/// Returns `value` with `digits` significant digits, never as -0, with an exponent from 1e6 up and
/// below 1e-4.
std::string FormatSignificant(double value, int digits);

/// Returns seconds with three significant digits, and without an exponent: "1,230,000".
std::string FormatSeconds(double seconds);

/// Returns `value` in the displayed unit: 100 times a fraction for "%" metrics.
double Shown(const MetricSpec& metric, double value);

/// Returns a value with its unit: "5.13%", "0.412 nats".
std::string FormatValue(const MetricSpec& metric, double value);

/// Returns a value without its unit, for a table whose head names the unit.
std::string FormatBare(const MetricSpec& metric, double value);

/// Returns a threshold with its unit and as few digits as possible: "2%", "0.1 nats".
std::string FormatTarget(const MetricSpec& metric, double value);

/// Returns two values without their unit: "5.10 and 5.30".
std::string FormatTwo(const MetricSpec& metric, double a, double b);

/// Returns "5.13 ± 0.42": mean and half-width of the 95% interval, without the unit. Two values are
/// shown as they are, because their interval is too wide to mean anything: "5.10 and 5.30".
std::string FormatEstimate(const MetricSpec& metric, const Estimate& estimate);

/// Returns the unit of differences: "points" for percentages, otherwise the metric's.
std::string DifferenceUnit(const MetricSpec& metric);

/// Returns the size of a difference, in the displayed unit, with its unit: "0.65 points".
std::string FormatSize(const MetricSpec& metric, double shown);

/// Returns a p-value as text: ".012" or "below .0001".
std::string FormatP(double p);

/// Returns a difference in words: "0.80 points lower".
std::string FormatDifference(const MetricSpec& metric, double difference);

/// Returns the interval of a difference in words: "0.30 to 1.30 points", or "from 0.30 lower to
/// 0.50 points higher" if it includes 0.
std::string FormatDifferenceInterval(const MetricSpec& metric, const Estimate& difference);

/// Returns the metric's label with its unit: "test error (%)".
std::string LabelWithUnit(const MetricSpec& metric);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ANALYSIS_FORMAT_H_
