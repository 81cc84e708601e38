#ifndef PLANISH_LAB_ANALYSIS_SEQUENTIAL_H_
#define PLANISH_LAB_ANALYSIS_SEQUENTIAL_H_

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/papers/paper.h"

// Group-sequential tests: a difference may be tested several times while seeds are added, with an
// error of 5% in all. Each look spends a part of that error, by the function of Lan and DeMets
// (1983) that approximates the bounds of O'Brien and Fleming. A look is given by its fraction, the
// seeds so far over the planned ones.
//
// A claim of "no worse" is tested at the margin: the contrast plus the margin is compared with 0,
// by one-sided tests of 5% in both directions. That is a two-sided test with an error of 10%.
namespace planish::lab {

/// Two-sided errors: of tests of a difference, and of tests of "no worse".
inline constexpr double kDifferenceError = 0.05, kNoWorseError = 0.10;

/// Returns the two-sided error spent up to a fraction in (0, 1]:
/// 4 * (1 - Phi(z / sqrt(fraction))), Phi(z) = 1 - error / 4. All of it is spent at 1.
double SpentError(double fraction, double error = kDifferenceError);

/// Returns the two-sided p-value below which each look decides. `fractions` must rise and be in
/// (0, 1]. Throws RunError otherwise.
std::vector<double> LookLevels(const std::vector<double>& fractions,
                               double error = kDifferenceError);

/// Returns the probability that one of the looks decides, if the normal test statistic at the
/// fraction 1 has the mean `drift`.
double DecidedBy(const std::vector<double>& fractions, double drift,
                 double error = kDifferenceError);

/// Returns the drift with which DecidedBy is `power`, which must be in (error, 1).
double DriftFor(const std::vector<double>& fractions, double power,
                double error = kDifferenceError);

/// Returns the probability that a look at the fraction 1 decides after undecided looks at
/// `fractions`, the last of which had the normal statistic `z`.
double ConditionalPower(const std::vector<double>& fractions, double z, double drift,
                        double error = kDifferenceError);

/// Returns the normal quantile z with Phi(z) = probability, in (0, 1).
double NormalQuantile(double probability);

/// Look at a difference.
struct Look {
  int seeds = 0;     ///< pairs
  double p = 1;      ///< two-sided; of "no worse" one-sided, on the measured side of the margin
  double level = 0;  ///< the look decides if p is below it
  /// If it decides: 1 better than 0, -1 worse; of "no worse", 1 no worse than the margin, -1 worse.
  int sign = 0;
};

/// Returns 1 for equal contrasts in any order of the norms, -1 if one is the negative of the other,
/// else 0.
int Orientation(const Contrast& a, const Contrast& b);

/// Sequential test of a contrast of norms in a column, on the test metric.
struct SequentialTest {
  std::string column;  ///< PaperColumn::name
  Contrast contrast;
  int planned = 0;  ///< seeds at which all error is spent
  std::vector<Look> looks;
  /// Of a test of "no worse", in the displayed unit, fixed at the first look. Absent: the test is
  /// of a difference.
  std::optional<double> margin{};

  /// Returns the two-sided error of all looks.
  double Error() const { return margin ? kNoWorseError : kDifferenceError; }

  /// Returns the sign of the look that decided, or 0, for a contrast of the same norms.
  int SignOf(const Contrast& of) const;
  /// Returns the fractions of the looks, then those of looks at `more` seeds.
  std::vector<double> Fractions(const std::vector<int>& more = {}) const;
};

/// Sequential tests of a paper's claims, as `planish reproduce --until-decided` records them beside
/// the runs.
struct SequentialTests {
  std::string paper;
  std::vector<SequentialTest> tests;

  /// Returns the test of the contrast in the column, or of its negative, or null.
  const SequentialTest* Find(std::string_view column, const Contrast& contrast) const;
  /// Returns the test of the contrast being no worse than 0, or null.
  const SequentialTest* FindNoWorse(std::string_view column, const Contrast& contrast) const;
};

/// Name of the file in the runs' folder (docs/files.md#looksjson).
inline constexpr char kLooksFile[] = "looks.json";

/// Reads a file of looks. Throws RunError naming the file if it cannot be read or is malformed.
SequentialTests ReadLooks(const std::filesystem::path& file);

/// Writes the file atomically. Throws RunError.
void WriteLooks(const std::filesystem::path& file, const SequentialTests& tests);

/// Looks found in folders.
struct FoundLooks {
  std::vector<SequentialTests> papers;  ///< one for each paper
  std::vector<std::string> faults;      ///< a sentence for each file that is left out, naming it
};

/// Reads the files of looks at or below each of `roots`. Of several for one paper, the first in
/// their order counts. Throws RunError if a folder cannot be read.
FoundLooks FindLooks(const std::vector<std::filesystem::path>& roots);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ANALYSIS_SEQUENTIAL_H_
