#include "lab/analysis/power.h"

#include <algorithm>
#include <cmath>

#include "lab/analysis/format.h"

namespace planish::lab {
namespace {

// Returns true if `seeds` pairs suffice.
bool Suffices(int seeds, double ratio, double confidence) {
  // The one-sided quantile at kPower is a two-sided one at 2 * kPower - 1.
  const double t = StudentT(seeds - 1, confidence) + StudentT(seeds - 1, 2 * kPower - 1);
  return seeds >= t * t * ratio * ratio;
}

// Returns the difference that the runs of a column must find for the claim.
std::optional<double> EffectOf(const Paper& paper, const PaperClaim& claim,
                               const PaperClaimResult::Column& column) {
  return claim.no_worse ? column.contrast.margin
                        : paper.PrintedContrast(*column.runs->column, claim.contrast);
}

// Returns the mean minutes of the finished runs of the contrast's norms, summed over these.
std::optional<double> MinutesOfPair(const ColumnRuns& runs, const Contrast& contrast) {
  double minutes = 0;
  for (const auto& [norm, weight] : contrast) {
    const Group* group = runs.Find(norm);
    if (!group) return std::nullopt;
    const Estimate seconds = TrainingSeconds(*group);
    if (seconds.count == 0) return std::nullopt;
    minutes += seconds.mean / 60;
  }
  return minutes;
}

}  // namespace

std::optional<int> SeedsNeeded(double effect, double deviation, double confidence) {
  const double ratio = deviation / std::abs(effect);
  if (!(ratio * ratio * 7 < kMaxSeeds)) return std::nullopt;
  // StudentT sums as many terms as it has degrees of freedom, so seeds are doubled, then bisected.
  int high = 2;
  while (!Suffices(high, ratio, confidence)) {
    if (high >= kMaxSeeds) return std::nullopt;
    high = std::min(2 * high, kMaxSeeds);
  }
  int low = std::max(2, high / 2);
  while (low < high) {
    const int middle = low + (high - low) / 2;
    Suffices(middle, ratio, confidence) ? high = middle : low = middle + 1;
  }
  return high;
}

std::vector<ClaimPower> PowerOf(const Reproduction& reproduction) {
  std::vector<ClaimPower> rows;
  int number = 0;
  for (const PaperClaimResult& result : JudgeClaims(reproduction)) {
    ++number;
    if (result.claim->of != PaperClaim::Of::kTest || !result.claim->against.empty()) continue;
    for (const PaperClaimResult::Column& column : result.columns) {
      const std::optional<double> effect = EffectOf(*reproduction.paper, *result.claim, column);
      const Estimate& value = column.contrast.value();
      if (!column.contrast.measured || !effect || *effect == 0 || !value.half_width) continue;
      ClaimPower row;
      row.number = number;
      row.claim = result.claim;
      row.verdict = result.verdict;
      row.of = column.runs->column;
      row.preset = column.runs->panel->config().preset;
      row.metric = column.metric;
      row.contrast = column.contrast;
      row.column = result.LabelOf(column);
      row.effect = *effect;
      row.seeds = value.count;
      row.deviation = std::abs(Shown(column.metric, *value.half_width)) /
                      StudentT(value.count - 1) * std::sqrt(static_cast<double>(value.count));
      row.needed = SeedsNeeded(row.effect, row.deviation,
                               result.claim->no_worse ? kOneSidedConfidence : 0.95);
      row.is_decided = column.contrast.sign != 0;
      if (row.needed && !row.is_decided) {
        const std::optional<double> pair = MinutesOfPair(*column.runs, result.claim->contrast);
        if (pair) row.minutes = *pair * std::max(0, *row.needed - row.seeds);
      }
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace planish::lab
