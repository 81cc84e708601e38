#ifndef PLANISH_LAB_ANALYSIS_FORMAT_H_
#define PLANISH_LAB_ANALYSIS_FORMAT_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "lab/analysis/statistics.h"
#include "lab/run/results.h"

// Numbers and names as people read them.
namespace planish::lab {

/// "batch_size" as "batch size".
std::string Words(std::string_view name);

/// A setting's value without JSON's quotes.
std::string SettingText(const nlohmann::ordered_json& value);

/// `value` with `digits` significant digits, never as -0; with an exponent from 1e6 up and below
/// 1e-4.
std::string FormatSignificant(double value, int digits);

/// `value` in the unit that people read: a fraction of a "%" metric times 100.
double Shown(const MetricSpec& metric, double value);

/// A value with its unit: "5.13%", "0.412 nats".
std::string FormatValue(const MetricSpec& metric, double value);

/// A value without its unit, for a table whose head names the unit.
std::string FormatBare(const MetricSpec& metric, double value);

/// A threshold with its unit and no digits more than it needs: "2%", "0.1 nats".
std::string FormatTarget(const MetricSpec& metric, double value);

/// "5.13 ± 0.42": mean and half-width of the 95% interval, without the unit.
std::string FormatEstimate(const MetricSpec& metric, const Estimate& estimate);

/// A difference in words: "0.80 points lower".
std::string FormatDifference(const MetricSpec& metric, double difference);

/// The interval of a difference in words: "0.30 to 1.30", or "from 0.30 lower to 0.50 higher" when
/// it includes 0.
std::string FormatDifferenceInterval(const MetricSpec& metric, const Estimate& difference);

/// The metric's label with its unit: "test error (%)".
std::string LabelWithUnit(const MetricSpec& metric);

/// "3 seeds", "1 seed".
std::string Count(int64_t count, std::string_view noun);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ANALYSIS_FORMAT_H_
