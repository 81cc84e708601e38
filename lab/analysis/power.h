#ifndef PLANISH_LAB_ANALYSIS_POWER_H_
#define PLANISH_LAB_ANALYSIS_POWER_H_

#include <optional>
#include <string>
#include <vector>

#include "lab/analysis/reproduction.h"

// Power analysis: how many seeds a claim needs. It assumes that differences of pairs are normal and
// spread as in the runs that exist.
namespace planish::lab {

/// Statistical power for which seeds are planned: the probability of detecting a true difference.
inline constexpr double kPower = 0.8;

/// Most seeds that SeedsNeeded returns.
inline constexpr int kMaxSeeds = 100'000;

/// Returns the smallest number of pairs with which a two-sided t-test at 5% finds a mean difference
/// of `effect` with probability kPower, if differences have the standard deviation `deviation`:
/// n = ((t(0.975) + t(0.8)) * deviation / effect)^2 with n - 1 degrees of freedom. This is within
/// one of the exact number (by the noncentral t). nullopt if it exceeds kMaxSeeds. With a
/// `confidence` of kOneSidedConfidence the test is one-sided, with t(0.95).
std::optional<int> SeedsNeeded(double effect, double deviation, double confidence = 0.95);

/// Power of one claim in one column.
struct ClaimPower {
  int number = 0;  ///< of the claim, from 1
  const PaperClaim* claim = nullptr;
  Verdict verdict = Verdict::kNotMeasured;  ///< of the claim
  const PaperColumn* of = nullptr;          ///< the column
  std::string column;                       ///< its label
  std::string preset;                       ///< of the runs
  MetricSpec metric;                        ///< of the contrast's values
  ContrastResult contrast;
  /// Difference to find, in the displayed unit: the printed contrast. Of a claim of "no worse" it
  /// is the margin, and seeds are planned for norms that do not differ.
  double effect = 0;
  double deviation = 0;           ///< of the paired differences
  int seeds = 0;                  ///< pairs that exist
  std::optional<int> needed;      ///< to find `effect`
  bool is_decided = false;        ///< the column surely holds, or surely not
  std::optional<double> minutes;  ///< of training for the missing seeds, on one core
};

/// Returns the power of a paper's claims on the test metric, in each column that prints the
/// contrast, or has a margin for a claim of "no worse", and has two pairs of runs or more.
std::vector<ClaimPower> PowerOf(const Reproduction& reproduction);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ANALYSIS_POWER_H_
