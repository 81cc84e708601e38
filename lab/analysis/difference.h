#ifndef PLANISH_LAB_ANALYSIS_DIFFERENCE_H_
#define PLANISH_LAB_ANALYSIS_DIFFERENCE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lab/run/results.h"

// Differences between two runs, a and b.
namespace planish::lab {

/// Named value that differs. A value that a run lacks is "-".
struct ValueDifference {
  std::string name;
  std::string a;
  std::string b;
};

/// Difference between two curves of a metric.
struct CurveDifference {
  std::string metric;
  int common = 0;  ///< steps at which both runs were evaluated
  int only_a = 0;  ///< steps at which only `a` was evaluated
  int only_b = 0;

  /// Step with both values.
  struct Point {
    int64_t step = 0;
    double a = 0;
    double b = 0;
  };
  std::optional<Point> first;    ///< first common step with different values
  std::optional<Point> largest;  ///< common step with the largest absolute difference
};

/// Everything in which two runs differ.
struct RunDifference {
  std::vector<ValueDifference> settings;  ///< task, preset, seed and the task's settings
  std::vector<ValueDifference> data;      ///< name and checksum
  std::vector<CurveDifference> curves;
  std::vector<ValueDifference> results;  ///< status, steps, parameters, final and best values
  std::vector<ValueDifference> machine;  ///< stamps and seconds

  /// Returns true if only `machine` differs: it changes from run to run.
  bool IsSame() const {
    return settings.empty() && data.empty() && curves.empty() && results.empty();
  }
};

/// Returns the differences between two runs, which can be of different tasks. Values are equal if
/// they have the same bits.
RunDifference Difference(const Run& a, const Run& b);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ANALYSIS_DIFFERENCE_H_
