#include "lab/analysis/reproduction.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace planish::lab {
namespace {

constexpr double kSignificant = 0.05;

bool AllPrinted(const Paper& paper, const ColumnRuns& runs, const PaperClaim& claim) {
  return std::ranges::all_of(claim.contrast, [&](const auto& term) {
    return paper.Printed(term.first, *runs.column).has_value();
  });
}

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
    case PaperClaim::Of::kSecondsToBest:
      return {Measure::kSecondsToBest};
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

// Returns the p-value of at least `needed` of these tests having an effect; tests without a value
// count as 1. The largest of `needed` values is multiplied by the number of sets it can be from.
std::optional<double> PValueOfSome(PValues values, int needed) {
  if (std::ranges::none_of(values, [](const auto& p) { return p.has_value(); })) {
    return std::nullopt;
  }
  const auto count = static_cast<int>(values.size());
  std::ranges::sort(values, {}, [](const auto& p) { return p.value_or(1); });
  const double largest = values[static_cast<size_t>(needed) - 1].value_or(1);
  return std::min(1.0, (count - needed + 1) * largest);
}

std::optional<double> PValueOf(const PaperClaimResult& result) {
  const bool only_own = result.verdict == Verdict::kAgrees || result.verdict == Verdict::kDiffers;
  const bool differs =
      result.verdict == Verdict::kDiffers || result.verdict == Verdict::kDiffersOnOtherData;
  PValues values;
  for (const PaperClaimResult::Column& column : result.columns) {
    values.emplace_back();
    if (!column.contrast.measured || HasNoVerdict(column.runs->evidence)) continue;
    if (only_own && !column.runs->own_data) continue;
    ContrastResult contrast = column.contrast;
    if (differs) {
      contrast.comparison.difference.mean *= -1;
      // Worse by more than the margin.
      if (contrast.margin) contrast.margin = -*contrast.margin;
    }
    values.back() = PValueOf(column.metric, contrast);
  }
  const auto count = static_cast<int>(values.size());
  const int needed = result.claim->min_columns;
  return PValueOfSome(std::move(values), differs ? count - needed + 1 : needed);
}

// A contrast that is looked at while seeds are added has the sign of the look that decided.
void ApplyLooks(const SequentialTest* test, const Contrast& contrast, ContrastResult& result) {
  if (!test || test->looks.empty() || !result.measured || result.by_divergence) return;
  const int sign = test->SignOf(contrast);
  if (!result.doubt.empty() || sign == result.sign) return;
  if (sign == 0) {
    result.doubt =
        fmt::format("sure only with p below {:.2g}, because {} of {} planned seeds were looked at",
                    test->looks.back().level, test->looks.back().seeds, test->planned);
  }
  result.sign = sign;
}

// Judges by the looks at a difference, if there are any.
void JudgeDifference(const Reproduction& reproduction, const PaperColumn& column,
                     const Contrast& contrast, ContrastResult& result) {
  if (reproduction.looks) {
    ApplyLooks(reproduction.looks->Find(column.name, contrast), contrast, result);
  }
}

// Judges a claim of "no worse" by its margin, and by the looks at it, if there are any.
void JudgeNoWorse(const Reproduction& reproduction, const PaperColumn& column,
                  const Contrast& contrast, const MetricSpec& metric, ContrastResult& result) {
  const SequentialTest* const test =
      reproduction.looks ? reproduction.looks->FindNoWorse(column.name, contrast) : nullptr;
  CompareWithMargin(metric, test ? *test->margin : reproduction.paper->MarginOf(column, contrast),
                    result);
  ApplyLooks(test, contrast, result);
}

// Returns the groups of a claim's norms in a column; null for norms without runs.
std::vector<const Group*> GroupsOf(const Reproduction& reproduction, const PaperClaim& claim,
                                   const ColumnRuns& runs) {
  if (!claim.against.empty()) {
    return {runs.Find(claim.contrast[0].first),
            reproduction.At(claim.against).Find(claim.contrast[1].first)};
  }
  std::vector<const Group*> groups;
  for (const auto& [norm, weight] : claim.contrast) groups.push_back(runs.Find(norm));
  return groups;
}

// Returns true if runs on the paper's data surely differ less than the printed values do.
bool IsEquivalent(const Paper& paper, const ColumnRuns& runs, const Contrast& contrast,
                  const MetricSpec& metric, const ContrastResult& result) {
  if (runs.evidence != Evidence::kVerdict || result.sign != 0 || !result.doubt.empty()) {
    return false;
  }
  // Half of a difference that is not printed has no size.
  return paper.PrintedContrast(*runs.column, contrast) &&
         IsWithin(metric, result.value(), paper.MarginOf(*runs.column, contrast));
}

}  // namespace

const Group* ColumnRuns::Find(std::string_view norm) const {
  return panel ? panel->Find(norm) : nullptr;
}

const std::string& ColumnRuns::Unit() const {
  return metric && !metric->unit.empty() ? metric->unit : column->unit;
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

std::vector<Reproduction> FindReproductions(const std::vector<Section>& sections,
                                            const std::vector<SequentialTests>& looks) {
  std::vector<Reproduction> found;
  for (const Paper& paper : Papers()) {
    if (paper.tables.empty()) continue;
    Reproduction reproduction{&paper, {}};
    const auto of_paper = std::ranges::find(looks, paper.name, &SequentialTests::paper);
    if (of_paper != looks.end()) reproduction.looks = &*of_paper;
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

LineResult Judge(const Reproduction& reproduction, const ColumnRuns& runs,
                 const PaperTable::Line& line) {
  LineResult result;
  const Contrast contrast = {{line.norm, 1}, {line.against, -1}};
  result.printed = PrintedSign(*reproduction.paper, *runs.column, contrast);
  if (!runs.metric) return result;
  result.difference = MeasureContrast(*runs.panel, contrast, *runs.metric, {Measure::kBest});
  if (!result.difference.measured) return result;
  JudgeDifference(reproduction, *runs.column, contrast, result.difference);
  result.verdict = VerdictOf(runs.evidence, result.difference.sign * result.printed);
  if (IsEquivalent(*reproduction.paper, runs, contrast, *runs.metric, result.difference)) {
    result.verdict = Verdict::kEquivalent;
  }
  return result;
}

TableTests TestTables(const Reproduction& reproduction) {
  TableTests tests;
  std::vector<decltype(tests.adjusted)::key_type> keys;
  PValues values;
  for (const PaperTable& table : reproduction.paper->tables) {
    for (const PaperTable::Line& line : table.lines) {
      if (line.against.empty()) continue;
      for (const ColumnRuns& runs : reproduction.columns) {
        const std::tuple key(&runs, line.norm, line.against);
        if (!runs.metric || HasNoVerdict(runs.evidence) ||
            std::ranges::find(keys, key) != keys.end()) {
          continue;
        }
        const LineResult result = Judge(reproduction, runs, line);
        const std::optional<double> p = PValue(result.difference.value());
        if (!result.difference.measured || result.difference.by_divergence || !p) continue;
        keys.push_back(key);
        values.push_back(p);
        tests.sure += SureSign(result.difference.value()) != 0;
      }
    }
  }
  const PValues fdr = FalseDiscoveryAdjusted(values), holm = HolmAdjusted(values);
  for (size_t i = 0; i < keys.size(); ++i) {
    ++tests.all;
    tests.after_fdr += *fdr[i] < kSignificant;
    tests.after_holm += *holm[i] < kSignificant;
    tests.adjusted[keys[i]] = *fdr[i];
  }
  return tests;
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

TwoWayResult TwoWayOf(const Reproduction& reproduction, const PaperClaim& claim,
                      const PaperClaimResult::Column& column) {
  if (!column.contrast.measured) return {};
  return TwoWayOf(GroupsOf(reproduction, claim, *column.runs), WeightsOf(claim.contrast),
                  column.metric, MeasureOf(claim.of).measure);
}

TwoWayResult TwoWayOf(const ColumnRuns& runs, const PaperTable::Line& line) {
  const Group *a = runs.Find(line.norm), *b = runs.Find(line.against);
  if (!a || !b || !runs.metric) return {};
  return TwoWayDifference(*a, *b, *runs.metric);
}

TwoWayResult TwoWayOf(const ClaimResult& result) {
  if (!result.panel) return {};
  return TwoWayDifference(*result.panel->Find(result.claim.better),
                          *result.panel->Find(result.claim.worse), result.metric, result.measure);
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
        column.contrast =
            MeasureContrast(GroupsOf(reproduction, claim, runs), claim.contrast, *metric, measure);
        if (claim.no_worse) {
          JudgeNoWorse(reproduction, *runs.column, claim.contrast, *metric, column.contrast);
        } else if (claim.of == PaperClaim::Of::kTest) {
          JudgeDifference(reproduction, *runs.column, claim.contrast, column.contrast);
        }
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
        result.with_printed += AllPrinted(paper, runs, claim);
        const int printed = PrintedSign(paper, *runs.column, claim.contrast);
        result.printed +=
            printed > 0 || (claim.no_worse && printed == 0 && AllPrinted(paper, runs, claim));
      }
      result.columns.push_back(std::move(column));
    }
    result.verdict = VerdictOf(result);
    result.p = PValueOf(result);
    results.push_back(std::move(result));
  }
  PValues values;
  for (const PaperClaimResult& result : results) values.push_back(result.p);
  const PValues adjusted = HolmAdjusted(values);
  for (size_t i = 0; i < results.size(); ++i) results[i].holm = adjusted[i];
  return results;
}

}  // namespace planish::lab
