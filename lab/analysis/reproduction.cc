#include "lab/analysis/reproduction.h"

#include <algorithm>
#include <cmath>

namespace planish::lab {
namespace {

bool Belongs(const Panel& panel, const PaperColumn& column) {
  return std::ranges::all_of(column.settings, [&](const auto& setting) {
    const auto found = panel.settings.find(setting.first);
    return found != panel.settings.end() && *found == nlohmann::json(setting.second);
  });
}

// Returns true if runs with this evidence never get a verdict.
bool HasNoVerdict(Evidence evidence) { return VerdictOf(evidence, 0) == Verdict::kNoVerdict; }

// Returns the preference among runs of a column: highest for runs that can get a verdict, lowest
// for runs that never can.
int RankOf(Evidence evidence) {
  return evidence == Evidence::kVerdict ? 2 : HasNoVerdict(evidence) ? 0 : 1;
}

int FinishedIn(const Panel& panel) {
  int finished = 0;
  for (const Group& group : panel.groups) finished += group.CountOf(Status::kFinished);
  return finished;
}

ColumnRuns FindColumnRuns(const PaperColumn& column, const std::vector<Section>& sections) {
  ColumnRuns runs;
  runs.column = &column;
  int belonging = 0;
  std::pair<int, int> best;
  for (const Section& section : sections) {
    if (section.config->task != column.task || section.config->report.compare != "norm") continue;
    for (const Panel& panel : section.panels) {
      if (!Belongs(panel, column)) continue;
      ++belonging;
      const Evidence evidence = EvidenceOf(panel.config(), column.data);
      const auto rank = std::pair(RankOf(evidence), FinishedIn(panel));
      if (runs.panel && rank <= best) continue;
      best = rank;
      runs.section = &section;
      runs.panel = &panel;
      runs.evidence = evidence;
    }
  }
  if (!runs.panel) return runs;
  runs.metric = runs.section->Find(column.metric);
  runs.own_data = IsPaperData(column.data, runs.section->config->data.sha256);
  runs.other_panels = belonging - 1;
  return runs;
}

// Returns the metric of a claim in a column: the column's own, that of a curve, or the one for
// comparisons with another run's best.
const MetricSpec* MetricOf(const ColumnRuns& runs, PaperClaim::Of of) {
  if (!runs.section || of == PaperClaim::Of::kTest) return runs.metric;
  if (of == PaperClaim::Of::kTrainCurve) return runs.section->Find(runs.column->train_curve);
  if (of == PaperClaim::Of::kValidCurve) return runs.section->Find(runs.column->valid_curve);
  return ChosenBy(*runs.section);
}

ClaimMeasure MeasureOf(PaperClaim::Of of) {
  switch (of) {
    case PaperClaim::Of::kTest:
      return {Measure::kBest};
    case PaperClaim::Of::kTrainCurve:
    case PaperClaim::Of::kValidCurve:
      return {Measure::kFinal};
    case PaperClaim::Of::kSteps:
      return {Measure::kCatchUp, 0, Effort::kSteps};
    case PaperClaim::Of::kSeconds:
      return {Measure::kCatchUp, 0, Effort::kSeconds};
  }
  return {};
}

// Returns 1 if enough columns hold, -1 if too few can, and 0 if that is open.
int Decide(int holds, int fails, size_t columns, int min_columns) {
  if (holds >= min_columns) return 1;
  return static_cast<int>(columns) - fails < min_columns ? -1 : 0;
}

Verdict VerdictOf(const PaperClaimResult& result) {
  int holds = 0, fails = 0, own_holds = 0, own_fails = 0;
  bool measured = false, judged = false, equivalent = true;
  for (const PaperClaimResult::Column& column : result.columns) {
    measured |= column.contrast.measured;
    judged |= column.contrast.measured && !HasNoVerdict(column.runs->evidence);
    equivalent &= column.is_equivalent;
    holds += column.contrast.sign > 0;
    fails += column.contrast.sign < 0;
    own_holds += column.contrast.sign > 0 && column.runs->own_data;
    own_fails += column.contrast.sign < 0 && column.runs->own_data;
  }
  if (!measured) return Verdict::kNotMeasured;
  if (!judged) return Verdict::kNoVerdict;
  const int min_columns = result.claim->min_columns;
  switch (Decide(own_holds, own_fails, result.columns.size(), min_columns)) {
    case 1:
      return Verdict::kAgrees;
    case -1:
      return Verdict::kDiffers;
    default:
      break;
  }
  switch (Decide(holds, fails, result.columns.size(), min_columns)) {
    case 1:
      return Verdict::kAgreesOnOtherData;
    case -1:
      return Verdict::kDiffersOnOtherData;
    default:
      return equivalent ? Verdict::kEquivalent : Verdict::kOpen;
  }
}

// Returns true if runs on the paper's data surely differ less than the printed values do.
bool IsEquivalent(const Paper& paper, const ColumnRuns& runs, const Contrast& contrast,
                  const MetricSpec& metric, const ContrastResult& result) {
  if (runs.evidence != Evidence::kVerdict || result.sign != 0 || !result.doubt.empty()) {
    return false;
  }
  const std::optional<double> printed = PrintedContrast(paper, *runs.column, contrast);
  return printed && IsWithin(metric, result.value(), std::abs(*printed));
}

}  // namespace

const Group* ColumnRuns::Find(std::string_view norm) const {
  return panel ? panel->Find(norm) : nullptr;
}

const ColumnRuns& Reproduction::At(std::string_view column) const {
  return columns[static_cast<size_t>(paper->FindColumn(column) - paper->columns.data())];
}

std::vector<std::string> Reproduction::Missing() const {
  std::vector<std::string> labels;
  for (const ColumnRuns& runs : columns) {
    const std::string label = runs.column->LabelOfRuns();
    if (!runs.section && std::ranges::find(labels, label) == labels.end()) labels.push_back(label);
  }
  return labels;
}

bool Reproduction::IsMostlyRun() const {
  const auto run = std::ranges::count_if(
      columns, [](const ColumnRuns& runs) { return runs.section != nullptr; });
  return 2 * run >= std::ssize(columns);
}

std::vector<Reproduction> FindReproductions(const std::vector<Section>& sections) {
  std::vector<Reproduction> found;
  for (const Paper& paper : Papers()) {
    if (paper.tables.empty()) continue;
    Reproduction reproduction{&paper, {}};
    bool any = false;
    for (const PaperColumn& column : paper.columns) {
      reproduction.columns.push_back(FindColumnRuns(column, sections));
      any |= reproduction.columns.back().panel != nullptr;
    }
    if (any) found.push_back(std::move(reproduction));
  }
  return found;
}

int PrintedSign(const Paper& paper, const PaperColumn& column, const Contrast& contrast) {
  double sum = 0;
  int diverged = 0;
  int diverged_sign = 0;
  for (const auto& [norm, weight] : contrast) {
    const std::optional<double> value = paper.Printed(norm, column);
    if (!value) return 0;
    if (std::isnan(*value)) {
      ++diverged;
      diverged_sign = weight > 0 ? -1 : 1;
    } else {
      sum += weight * *value;
    }
  }
  if (diverged > 0) return contrast.size() == 2 && diverged == 1 ? diverged_sign : 0;
  constexpr double kRounding = 1e-6;  // values have two decimals
  if (std::abs(sum) < kRounding) return 0;
  return (sum > 0) != column.lower_is_better ? 1 : -1;
}

std::optional<double> PrintedContrast(const Paper& paper, const PaperColumn& column,
                                      const Contrast& contrast) {
  double sum = 0;
  for (const auto& [norm, weight] : contrast) {
    const std::optional<double> value = paper.Printed(norm, column);
    if (!value || std::isnan(*value)) return std::nullopt;
    sum += weight * *value;
  }
  return sum;
}

LineResult Judge(const Reproduction& reproduction, const ColumnRuns& runs,
                 const PaperTable::Line& line) {
  LineResult result;
  const Contrast contrast = {{line.norm, 1}, {line.against, -1}};
  result.printed = PrintedSign(*reproduction.paper, *runs.column, contrast);
  if (!runs.metric) return result;
  result.difference = MeasureContrast(*runs.panel, contrast, *runs.metric, {Measure::kBest});
  if (!result.difference.measured) return result;
  result.verdict = VerdictOf(runs.evidence, result.difference.sign * result.printed);
  if (IsEquivalent(*reproduction.paper, runs, contrast, *runs.metric, result.difference)) {
    result.verdict = Verdict::kEquivalent;
  }
  return result;
}

std::string PaperClaimResult::LabelOf(const Column& column) const {
  const PaperColumn& of = *column.runs->column;
  return claim->of == PaperClaim::Of::kTest ? of.LabelOfMetric() : of.LabelOfRuns();
}

std::vector<std::string> PaperClaimResult::Columns(int sign, bool own_data) const {
  std::vector<std::string> labels;
  for (const Column& column : columns) {
    if (column.contrast.measured && column.contrast.sign == sign &&
        column.runs->own_data == own_data) {
      labels.push_back(LabelOf(column));
    }
  }
  return labels;
}

std::vector<PaperClaimResult> JudgeClaims(const Reproduction& reproduction) {
  std::vector<PaperClaimResult> results;
  for (const PaperClaim& claim : reproduction.paper->claims) {
    PaperClaimResult result;
    result.claim = &claim;
    for (const std::string& name : claim.columns) {
      const ColumnRuns& runs = reproduction.At(name);
      PaperClaimResult::Column column{&runs, {}, {}};
      if (const MetricSpec* metric = MetricOf(runs, claim.of)) {
        const ClaimMeasure measure = MeasureOf(claim.of);
        column.metric = MetricOf(*metric, measure);
        column.contrast = MeasureContrast(*runs.panel, claim.contrast, *metric, measure);
      }
      if (HasNoVerdict(runs.evidence)) {
        column.contrast.sign = 0;
        column.contrast.doubt = EvidenceText(runs.evidence);
      }
      if (claim.of == PaperClaim::Of::kTest) {
        const Paper& paper = *reproduction.paper;
        column.is_equivalent =
            column.contrast.measured &&
            IsEquivalent(paper, runs, claim.contrast, column.metric, column.contrast);
        result.with_printed += std::ranges::all_of(claim.contrast, [&](const auto& term) {
          return paper.Printed(term.first, *runs.column).has_value();
        });
        result.printed += PrintedSign(*reproduction.paper, *runs.column, claim.contrast) > 0;
      }
      result.columns.push_back(std::move(column));
    }
    result.verdict = VerdictOf(result);
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace planish::lab
