#include "lab/analysis/claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <utility>

#include "lab/analysis/format.h"
#include "lab/base/format_integer.h"

namespace planish::lab {
namespace {

constexpr char kDivergedMore[] = "more runs of the better norm diverged";

bool Holds(const Panel& panel, const ClaimSpec& claim) {
  return std::ranges::all_of(claim.where, [&](const auto& entry) {
    const auto setting = panel.settings.find(entry.first);
    return setting != panel.settings.end() && *setting == nlohmann::json(entry.second);
  });
}

Comparison CompareGroups(const std::vector<const Group*>& groups, const Contrast& contrast,
                         const MetricSpec& metric, const ClaimMeasure& measure) {
  switch (measure.measure) {
    case Measure::kStepsTo:
      return CompareSteps(*groups[0], *groups[1], metric, measure.target);
    case Measure::kCatchUp:
      return CompareCatchUp(*groups[0], *groups[1], metric, measure.effort);
    case Measure::kFinal:
    case Measure::kBest:
    case Measure::kStepsToBest:
    case Measure::kSecondsToBest:
      break;
  }
  return CompareSum(groups, WeightsOf(contrast), metric, measure.measure);
}

// Returns the sign of a difference of two norms that divergence decides, or 0.
int DivergenceSign(const Group& plus, const Group& minus) {
  const auto lost = [](const Group& a, const Group& b) {
    return a.CountOf(Status::kFinished) == 0 && a.CountOf(Status::kDiverged) >= 2 &&
           b.CountOf(Status::kFinished) >= 2;
  };
  return lost(plus, minus) ? -1 : lost(minus, plus) ? 1 : 0;
}

// Returns why the interval of a difference cannot give a sign, or an empty text.
std::string DoubtOf(const Comparison& comparison) {
  const Estimate& difference = comparison.difference;
  std::string doubt;
  if (difference.count == 0) return "no seed finished with both";
  if (difference.count == 1) {
    doubt = "one seed has no interval";
  } else if (difference.half_width == 0 && difference.mean != 0) {
    doubt = "the same in every seed, so there is no interval";
  }
  if (comparison.bounded == 0) return doubt;
  return fmt::format("at least this, because {} never got there{}{}",
                     Count(comparison.bounded, "seed"), doubt.empty() ? "" : "; ", doubt);
}

// Returns true if two runs of a seed were trained on different processors.
bool MixesProcessors(const std::vector<const Group*>& groups) {
  std::map<int64_t, std::string> processors;
  for (const Group* group : groups) {
    for (const Run* run : group->runs) {
      const auto stamp = run->config.stamps.find("cpu");
      if (stamp == run->config.stamps.end()) continue;
      const auto [first, is_new] = processors.emplace(run->config.seed, stamp->second);
      if (!is_new && first->second != stamp->second) return true;
    }
  }
  return false;
}

}  // namespace

std::string_view VerdictText(Verdict verdict) {
  switch (verdict) {
    case Verdict::kAgrees:
      return "agrees";
    case Verdict::kDiffers:
      return "differs";
    case Verdict::kEquivalent:
      return "equivalent";
    case Verdict::kAgreesOnOtherData:
      return "agrees on other data";
    case Verdict::kDiffersOnOtherData:
      return "differs on other data";
    case Verdict::kOpen:
      return "open";
    case Verdict::kNoVerdict:
      return "no verdict";
    case Verdict::kNotMeasured:
      return "not measured";
  }
  return "";
}

Verdict VerdictOf(Evidence evidence, int holds) {
  switch (evidence) {
    case Evidence::kSmoke:
    case Evidence::kFewCases:
      return Verdict::kNoVerdict;
    case Evidence::kOtherData:
      if (holds == 0) return Verdict::kOpen;
      return holds > 0 ? Verdict::kAgreesOnOtherData : Verdict::kDiffersOnOtherData;
    case Evidence::kVerdict:
      break;
  }
  if (holds == 0) return Verdict::kOpen;
  return holds > 0 ? Verdict::kAgrees : Verdict::kDiffers;
}

bool IsWithin(const MetricSpec& metric, const Estimate& difference, double margin) {
  if (!(difference.half_width.value_or(0) > 0)) return false;
  const Estimate tested = AtConfidence(difference, kOneSidedConfidence);
  return std::max(std::abs(Shown(metric, tested.low())), std::abs(Shown(metric, tested.high()))) <
         margin;
}

void CompareWithMargin(const MetricSpec& metric, double margin, ContrastResult& result) {
  if (!result.measured || result.by_divergence) return;
  result.sign = 0;
  if (!(margin > 0)) {
    result.doubt = "no margin follows from the paper";
    return;
  }
  result.margin = margin;
  if (!(result.value().half_width.value_or(0) > 0)) return;
  if (result.doubt == kDivergedMore) result.doubt.clear();  // was about the sign of the difference
  const Estimate tested = AtConfidence(result.value(), kOneSidedConfidence);
  double low = Shown(metric, tested.low()), high = Shown(metric, tested.high());
  if (metric.lower_is_better) low = -std::exchange(high, -low);
  if (high < -margin) {
    result.sign = -1;
  } else if (low > -margin) {
    result.sign = result.more_diverged > 0 ? 0 : 1;
    if (result.sign == 0) result.doubt = kDivergedMore;
  }
}

std::optional<double> PValueOf(const MetricSpec& metric, const ContrastResult& result) {
  Estimate better = result.value();
  if (better.half_width) {
    const double shift = result.margin.value_or(0) / std::abs(Shown(metric, 1) - Shown(metric, 0));
    better.mean = (metric.lower_is_better ? -better.mean : better.mean) + shift;
  }
  const std::optional<double> p = PValue(better);
  if (!p) return std::nullopt;
  // A claim of no difference is a one-sided test.
  if (result.margin) return better.mean > 0 ? *p / 2 : 1 - *p / 2;
  return better.mean > 0 ? *p : 1;
}

std::optional<ClaimMeasure> MeasureNamed(std::string_view name) {
  constexpr std::string_view kStepsTo = "steps to ";
  if (name == "final") return ClaimMeasure{Measure::kFinal};
  if (name == "best") return ClaimMeasure{Measure::kBest};
  if (name == "steps to best") return ClaimMeasure{Measure::kStepsToBest};
  if (name == "seconds to best") return ClaimMeasure{Measure::kSecondsToBest};
  if (name == "steps to worse's best") return ClaimMeasure{Measure::kCatchUp};
  if (name == "seconds to worse's best")
    return ClaimMeasure{Measure::kCatchUp, 0, Effort::kSeconds};
  if (!name.starts_with(kStepsTo)) return std::nullopt;
  name.remove_prefix(kStepsTo.size());
  ClaimMeasure measure{Measure::kStepsTo};
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), measure.target);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return measure;
}

MetricSpec MetricOf(const MetricSpec& metric, const ClaimMeasure& measure) {
  switch (measure.measure) {
    case Measure::kFinal:
    case Measure::kBest:
      return metric;
    case Measure::kStepsToBest:
      return {"step", "steps to the best validation", "steps", true};
    case Measure::kSecondsToBest:
      return {"seconds", "seconds to the best validation", "s", true};
    case Measure::kStepsTo:
      return {"step", "steps to " + metric.label + " " + FormatTarget(metric, measure.target),
              "steps", true};
    case Measure::kCatchUp:
      if (measure.effort == Effort::kSteps) {
        return {"step", "steps to the other's best " + metric.label, "steps", true};
      }
      return {"seconds", "seconds to the other's best " + metric.label, "s", true};
  }
  return metric;
}

std::vector<double> WeightsOf(const Contrast& contrast) {
  std::vector<double> weights;
  for (const auto& [norm, weight] : contrast) weights.push_back(weight);
  return weights;
}

std::string FormulaOf(const Contrast& contrast, std::string_view minus) {
  std::string formula;
  for (const auto& [norm, weight] : contrast) {
    const std::string_view sign = weight < 0 ? minus : "+";
    if (!formula.empty()) {
      formula += fmt::format(" {} ", sign);
    } else if (weight < 0) {
      formula += sign;
    }
    if (std::abs(weight) != 1) formula += fmt::format("{:g} ", std::abs(weight));
    formula += norm;
  }
  return formula;
}

ContrastResult MeasureContrast(const Panel& panel, const Contrast& contrast,
                               const MetricSpec& metric, const ClaimMeasure& measure) {
  std::vector<const Group*> groups;
  for (const auto& [norm, weight] : contrast) groups.push_back(panel.Find(norm));
  return MeasureContrast(groups, contrast, metric, measure);
}

ContrastResult MeasureContrast(const std::vector<const Group*>& groups, const Contrast& contrast,
                               const MetricSpec& metric, const ClaimMeasure& measure) {
  ContrastResult result;
  for (const Group* group : groups) {
    if (!group) return result;
    if (group->CountOf(Status::kDiverged) == 0 && !HasMeasure(*group, metric, measure.measure)) {
      return result;
    }
  }
  result.measured = true;
  result.mixes_processors = MixesProcessors(groups);
  result.comparison = CompareGroups(groups, contrast, metric, measure);
  result.sign = result.comparison.better;
  if (groups.size() > 2) {
    if (result.sign != 0 && std::ranges::any_of(groups, [](const Group* group) {
          return group->CountOf(Status::kDiverged) > 0;
        })) {
      result.sign = 0;
      result.doubt = "some runs diverged";
      return result;
    }
  } else {
    const bool first_plus = contrast[0].second > 0;
    const Group& plus = *groups[first_plus ? 0 : 1];
    const Group& minus = *groups[first_plus ? 1 : 0];
    const bool effort =
        measure.measure == Measure::kStepsTo || measure.measure == Measure::kCatchUp;
    if (const int sign = effort ? 0 : DivergenceSign(plus, minus)) {
      result.sign = sign;
      result.by_divergence = true;
      return result;
    }
    const int more = plus.CountOf(Status::kDiverged) - minus.CountOf(Status::kDiverged);
    result.more_diverged = more;
    if (result.sign * more > 0) {
      result.sign = 0;
      result.doubt = kDivergedMore;
      return result;
    }
  }
  result.doubt = DoubtOf(result.comparison);
  return result;
}

std::vector<ClaimResult> JudgeClaims(const Section& section, const std::vector<ClaimSpec>& claims) {
  std::vector<ClaimResult> results;
  for (const ClaimSpec& claim : claims) {
    const std::optional<ClaimMeasure> measure = MeasureNamed(claim.measure);
    const MetricSpec* metric = section.Find(claim.metric);
    bool measured = false, applies = false;
    for (const Panel& panel : section.panels) {
      if (!Holds(panel, claim)) continue;
      applies = true;
      if (!measure || !metric) continue;
      ContrastResult contrast =
          MeasureContrast(panel, {{claim.better, 1}, {claim.worse, -1}}, *metric, *measure);
      if (!contrast.measured) continue;
      if (claim.no_worse) CompareWithMargin(*metric, claim.margin, contrast);
      measured = true;
      const Evidence evidence = EvidenceOf(panel.config(), claim.data);
      results.push_back({.claim = claim,
                         .verdict = VerdictOf(evidence, contrast.sign),
                         .panel = &panel,
                         .evidence = evidence,
                         .measure = measure->measure,
                         .metric = MetricOf(*metric, *measure),
                         .contrast = contrast});
    }
    if (!measured) {
      results.emplace_back();
      results.back().claim = claim;
      results.back().is_elsewhere = !applies;
    }
  }
  return results;
}

}  // namespace planish::lab
