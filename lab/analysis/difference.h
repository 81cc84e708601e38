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

/// Comparison of the predictions of two runs, item by item.
struct PredictionDifference {
  int64_t common = 0;  ///< test items of both runs
  int64_t only_a = 0;  ///< test items of `a` only; seeds can have test sets of their own
  int64_t only_b = 0;
  int64_t differ = 0;  ///< common items with different predictions

  /// Items of `differ` by which run predicts the right class (McNemar's counts).
  struct Right {
    int64_t a = 0;
    int64_t b = 0;
    int64_t neither = 0;
  };
  std::optional<Right> right{};  ///< of classification
  std::string left_out = {};     ///< why they are not compared; empty if they are

  /// Returns true if nothing differs, or they are not compared.
  bool IsSame() const { return differ + only_a + only_b == 0; }
};

/// Everything in which two runs differ.
struct RunDifference {
  std::vector<ValueDifference> settings;  ///< task, preset, seed and the task's settings
  std::vector<ValueDifference> data;      ///< name and checksum
  std::vector<CurveDifference> curves;
  std::vector<ValueDifference> results;  ///< status, steps, parameters, final and best values
  std::optional<PredictionDifference> predictions;  ///< absent if neither run has any
  std::vector<ValueDifference> machine;             ///< stamps and seconds

  /// Returns true if only `machine` differs, which changes from run to run. Predictions that are
  /// not compared do not count: runs of earlier versions have none.
  bool IsSame() const {
    return settings.empty() && data.empty() && curves.empty() && results.empty() &&
           (!predictions || predictions->IsSame());
  }
};

/// Returns the differences between two runs, which can be of different tasks. Values are equal if
/// they have the same bits.
RunDifference Difference(const Run& a, const Run& b);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ANALYSIS_DIFFERENCE_H_
