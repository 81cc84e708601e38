#ifndef PLANISH_LAB_ANALYSIS_CLAIMS_H_
#define PLANISH_LAB_ANALYSIS_CLAIMS_H_

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/analysis/summary.h"
#include "lab/papers/paper.h"
#include "lab/papers/paper_data.h"

// Compares published claims with runs. Only MeasureContrast compares norms for a verdict, and only
// VerdictOf turns signs into verdicts. Claims about a task use them, and so do a paper's claims and
// tables (reproduction.h).
namespace planish::lab {

/// Verdict of the measurement on a published claim.
enum class Verdict {
  kAgrees,             ///< surely as claimed, on the paper's own data
  kDiffers,            ///< surely the opposite, on the paper's own data
  kEquivalent,         ///< surely within the margin of no difference (Paper::MarginOf)
  kAgreesOnOtherData,  ///< surely as claimed, but on data other than the paper's
  kDiffersOnOtherData,
  kOpen,       ///< neither is sure
  kNoVerdict,  ///< the runs cannot support one (EvidenceOf)
  kNotMeasured,
};

/// All verdicts on a measured claim, in the order in which the report counts them.
inline constexpr std::array kMeasuredVerdicts = {Verdict::kAgrees,     Verdict::kAgreesOnOtherData,
                                                 Verdict::kDiffers,    Verdict::kDiffersOnOtherData,
                                                 Verdict::kEquivalent, Verdict::kOpen,
                                                 Verdict::kNoVerdict};

std::string_view VerdictText(Verdict verdict);

/// Returns the verdict of runs with this evidence on a claim of a paper. `holds` is the sign of
/// their interval: 1 as in the paper, -1 opposite, 0 neither is sure.
Verdict VerdictOf(Evidence evidence, int holds);

/// Quantity that a claim compares.
struct ClaimMeasure {
  Measure measure = Measure::kFinal;
  double target = 0;               ///< of kStepsTo
  Effort effort = Effort::kSteps;  ///< of kCatchUp
};

/// Returns the measure that ClaimSpec::measure names, or nullopt if it names none.
std::optional<ClaimMeasure> MeasureNamed(std::string_view name);

/// Returns the metric of a measure's values: `metric`, or the steps or seconds that it takes.
MetricSpec MetricOf(const MetricSpec& metric, const ClaimMeasure& measure);

/// Measured contrast.
struct ContrastResult {
  /// The first two norms, and the contrast as their difference. It is paired: over the seeds that
  /// finished with every norm.
  Comparison comparison;
  /// 1: surely better than 0; -1: surely worse; 0: neither. Sure means a 95% interval without
  /// 0. A norm whose runs all diverged (two or more) is surely worse than a norm that finished
  /// twice or more. If runs diverged against the interval's sign, the sign is 0, because the mean
  /// is over survivors.
  int sign = 0;
  int more_diverged = 0;          ///< runs of the norm with weight 1, minus those of the other
  bool mixes_processors = false;  ///< runs of a seed were trained on different processors
  bool measured = false;  ///< set if every norm has a run with the measure, or one that diverged
  bool by_divergence = false;
  std::optional<double> margin;  ///< up to which worse counts as no worse (CompareWithMargin)
  std::string doubt;  ///< why the sign is 0 although the interval has one, or there is no interval

  const Estimate& value() const { return comparison.difference; }
};

/// Confidence of an interval each of whose sides is a one-sided test at 5%.
inline constexpr double kOneSidedConfidence = 0.90;

/// Returns true if a difference of `metric` is surely within -margin to margin: two one-sided tests
/// at 5% each (TOST; Schuirmann 1987), for which the 90% interval must be within. `margin` is in
/// the displayed unit.
bool IsWithin(const MetricSpec& metric, const Estimate& difference, double margin);

/// Turns the sign of a contrast into that of the claim that it is no worse than 0: 1 if it is
/// surely not worse by more than `margin`, in the displayed unit; -1 if it surely is; 0 if neither
/// is sure at one-sided 5%, or if `margin` is 0. Signs that divergence decides stay.
void CompareWithMargin(const MetricSpec& metric, double margin, ContrastResult& result);

/// Returns the p-value of a contrast being better than 0, as SureSign judges it: 1 if its mean is
/// worse. With a margin it is that of the contrast being no worse. nullopt as in PValue.
std::optional<double> PValueOf(const MetricSpec& metric, const ContrastResult& result);

/// Returns the weights of a contrast, in its order.
std::vector<double> WeightsOf(const Contrast& contrast);

/// Returns a contrast in words: "layer - none", with `minus` as its sign.
std::string FormulaOf(const Contrast& contrast, std::string_view minus = "-");

/// Returns the contrast of `metric`, read at `measure`, in the runs of `panel`. Steps and seconds
/// are compared for the first two norms, which must have the weights 1 and -1.
ContrastResult MeasureContrast(const Panel& panel, const Contrast& contrast,
                               const MetricSpec& metric, const ClaimMeasure& measure);

/// Like MeasureContrast, of `groups`, one for each term of the contrast. Those that are null are
/// not measured.
ContrastResult MeasureContrast(const std::vector<const Group*>& groups, const Contrast& contrast,
                               const MetricSpec& metric, const ClaimMeasure& measure);

/// Verdict on a claim about a task.
struct ClaimResult {
  ClaimSpec claim;
  Verdict verdict = Verdict::kNotMeasured;
  bool is_elsewhere = false;               ///< no run has the settings that the claim is about
  const Panel* panel = nullptr;            ///< null if not measured
  Evidence evidence = Evidence::kVerdict;  ///< of the panel's runs for this claim
  Measure measure = Measure::kFinal;
  MetricSpec metric;        ///< of the values below; steps if the measure counts steps
  ContrastResult contrast;  ///< of the claim's `better` minus its `worse`
};

/// Returns one result for each panel that a claim applies to, or one that is not measured. The
/// claims about a section are ClaimsOf(section.config->task).
std::vector<ClaimResult> JudgeClaims(const Section& section, const std::vector<ClaimSpec>& claims);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ANALYSIS_CLAIMS_H_
