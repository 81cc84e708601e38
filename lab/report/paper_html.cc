#include "lab/report/paper_html.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "lab/analysis/format.h"
#include "lab/base/format_integer.h"
#include "lab/report/chart.h"
#include "lab/report/overview.h"
#include "lab/report/pieces.h"

namespace planish::lab {
namespace {

Markup Aside(const std::string& text) { return Tag("span", {{"class", "aside"}}, text); }

std::string_view Direction(bool lower_is_better) {
  return lower_is_better ? "lower is better" : "higher is better";
}

// Returns the paper's name of a norm, or the lab's if it has none.
std::string NormLabel(const Paper& paper, const std::string& norm) {
  const PaperRow* row = paper.FindRow(norm);
  return row ? row->label : norm;
}

LineStyle StyleOf(const std::string& norm) { return StylesOf({norm}).front(); }

// Returns the largest number of seeds that finished with one norm of a column.
int SeedsOf(const ColumnRuns& runs) {
  int seeds = 0;
  for (const Group& group : runs.panel->groups) {
    seeds = std::max(seeds, group.CountOf(Status::kFinished));
  }
  return seeds;
}

Markup OursCell(const ColumnRuns& runs, const std::string& norm) {
  const Group* group = runs.Find(norm);
  if (!group || !runs.metric) return NumberCell(kMissing);
  const int diverged = group->CountOf(Status::kDiverged);
  const auto all = static_cast<int>(group->runs.size());
  const Estimate value = EstimateMean(ValuesOf(*group, runs.metric->name, Measure::kBest));
  if (value.count == 0) {
    return NumberCell(diverged > 0 ? Markup(fmt::format("diverged {} of {}", diverged, all))
                                   : Markup("not finished"));
  }
  Markup content = FormatEstimate(*runs.metric, value);
  if (diverged > 0) {
    content += Aside(fmt::format("{}, {} diverged", Count(value.count, "seed"), diverged));
  } else if (value.count != SeedsOf(runs)) {
    content += Aside(Count(value.count, "seed"));
  }
  return NumberCell(content);
}

Markup PrintedCell(const Paper& paper, const PaperColumn& column, const std::string& norm) {
  const std::optional<double> value = paper.Printed(norm, column);
  if (!value) return NumberCell(kMissing);
  std::string text = column.PrintedText(*value);
  if (column.sampling_error && !std::isnan(*value)) {
    text += fmt::format(" ± {:.{}f}", *column.sampling_error, std::max(2, column.Decimals()));
  }
  return NumberCell(text);
}

// Returns the printed difference of two norms, or an empty text if a value is not printed.
std::string PrintedDifference(const Paper& paper, const PaperColumn& column,
                              const PaperTable::Line& line) {
  const std::optional<double> a = paper.Printed(line.norm, column);
  const std::optional<double> b = paper.Printed(line.against, column);
  if (!a || !b) return "";
  if (std::isnan(*a) || std::isnan(*b)) {
    const int sign = PrintedSign(paper, column, {{line.norm, 1}, {line.against, -1}});
    return sign > 0 ? "better" : sign < 0 ? "worse" : "";
  }
  // Rounded like the values, to remove binary rounding errors.
  const double scale = std::pow(10, column.Decimals());
  const double difference = std::round((*a - *b) * scale) / scale;
  const std::string size = column.PrintedText(std::abs(difference));
  return difference == 0 ? "0" : (difference < 0 ? "−" : "+") + size;
}

std::string ContrastText(const ContrastResult& contrast, const MetricSpec& metric) {
  if (contrast.by_divergence) return contrast.sign > 0 ? "better" : "worse";
  return DifferenceText(metric, contrast.value());
}

// Returns the small print below a verdict.
std::string ReasonOf(const LineResult& result, Evidence evidence) {
  if (result.verdict == Verdict::kNoVerdict) return std::string(EvidenceText(evidence));
  if (result.verdict != Verdict::kOpen) return "";
  if (!result.difference.doubt.empty()) return result.difference.doubt;
  if (result.printed != 0 || result.difference.sign == 0) return "";
  return result.difference.sign > 0 ? "better here, nothing printed"
                                    : "worse here, nothing printed";
}

// Returns the cell with the difference of two norms, the printed difference and the verdict.
Markup DifferenceCell(const Reproduction& reproduction, const TableTests& tests,
                      const ColumnRuns& runs, const PaperTable::Line& line) {
  const LineResult result = Judge(reproduction, runs, line);
  if (result.verdict == Verdict::kNotMeasured) return NumberCell(kMissing);
  Markup content = ContrastText(result.difference, *runs.metric);
  const std::string printed = PrintedDifference(*reproduction.paper, *runs.column, line);
  std::vector<std::string> notes;
  if (!printed.empty()) notes.push_back("printed: " + printed);
  const auto adjusted = tests.adjusted.find({&runs, line.norm, line.against});
  if (adjusted != tests.adjusted.end()) {
    notes.push_back("p " + FormatP(adjusted->second));
  }
  if (!notes.empty()) content += Aside(fmt::format("{}", fmt::join(notes, "; ")));
  const std::string items =
      SeedsAndItemsText(*runs.metric, result.difference.value(), TwoWayOf(runs, line));
  if (!items.empty()) content += Aside("over seeds and test items: " + items);
  if (result.difference.mixes_processors) content += Aside("two kinds of processors");
  content += Badge(VerdictText(result.verdict));
  const std::string reason = ReasonOf(result, runs.evidence);
  if (!reason.empty()) content += Aside(reason);
  return NumberCell(content);
}

// Renders the columns with runs and the rows with values in them. Returns nothing if there are
// none.
Markup RenderTable(const Reproduction& reproduction, const TableTests& tests,
                   const PaperTable& table) {
  const Paper& paper = *reproduction.paper;
  std::vector<const ColumnRuns*> columns;
  for (const ColumnRuns& runs : reproduction.columns) {
    if (table.Has(*runs.column) && runs.section) columns.push_back(&runs);
  }
  if (columns.empty()) return {};
  Markup head = Tag("th", {{"colspan", "2"}, {"scope", "col"}}, "");
  for (const ColumnRuns* column : columns) {
    const ColumnRuns& runs = *column;
    Markup content = runs.column->label;
    content += Aside(fmt::format("{}, {}", runs.Unit(), Direction(runs.column->lower_is_better)));
    content +=
        Aside(fmt::format("{}, {}", runs.section->config->data.name, Count(SeedsOf(runs), "seed")));
    if (IsSmoke(runs.panel->config().preset)) {
      content += Aside(std::string(EvidenceText(Evidence::kSmoke)));
    } else if (!runs.own_data) {
      content += Aside(std::string(EvidenceText(Evidence::kOtherData)));
    }
    head += NumberHead(content);
  }
  Markup rows;
  for (const PaperTable::Line& line : table.lines) {
    const bool empty = std::ranges::none_of(columns, [&](const ColumnRuns* runs) {
      return runs->Find(line.norm) || paper.Printed(line.norm, *runs->column);
    });
    if (empty) continue;
    const PaperRow* row = paper.FindRow(line.norm);
    if (row && row->printed_only) {
      Markup printed = Tag("th", {{"scope", "rowgroup"}, {"class", "norm"}}, row->label) +
                       Tag("th", {{"scope", "row"}}, "printed");
      for (const ColumnRuns* column : columns) {
        printed += PrintedCell(paper, *column->column, line.norm);
      }
      rows += Tag("tr", {{"class", "first"}}, printed);
      continue;
    }
    const bool compared = !line.against.empty();
    Markup ours =
        Tag("th", {{"scope", "rowgroup"}, {"rowspan", compared ? "3" : "2"}, {"class", "norm"}},
            RenderSample(StyleOf(line.norm)), NormLabel(paper, line.norm), Aside(line.norm)) +
        Tag("th", {{"scope", "row"}}, "here");
    Markup printed = Tag("th", {{"scope", "row"}}, "printed");
    Markup difference = Tag("th", {{"scope", "row"}}, "here minus", Aside(line.against));
    for (const ColumnRuns* column : columns) {
      ours += OursCell(*column, line.norm);
      printed += PrintedCell(paper, *column->column, line.norm);
      if (compared) difference += DifferenceCell(reproduction, tests, *column, line);
    }
    rows += Tag("tr", {{"class", "first"}}, ours) + Tag("tr", {}, printed);
    if (compared) rows += Tag("tr", {}, difference);
  }
  return Tag("h4", {}, table.name + ". " + table.caption) +
         ScrollingTable(table.name, Tag("tr", {}, head), rows, "comparison");
}

// Returns the relative change of the outputs. Rounding errors differ between processors, so they
// are not shown: the page has the same bytes on all.
std::string ChangeText(double change) {
  return change <= kInvariant ? fmt::format("below {:g}", kInvariant)
                              : FormatSignificant(change, 2);
}

std::string_view InvarianceText(bool invariant) { return invariant ? "Invariant" : "No"; }

Markup RenderInvariances(const PaperInvariances& table) {
  Markup head = Tag("th", {{"colspan", "2"}, {"scope", "col"}}, "");
  for (const Transformation transformation : kTransformations) {
    head += NumberHead(LabelOf(transformation));
  }
  Markup rows;
  for (const PaperInvariances::Line& line : table.lines) {
    Markup here =
        Tag("th", {{"scope", "rowgroup"}, {"rowspan", "3"}, {"class", "norm"}}, line.label) +
        Tag("th", {{"scope", "row"}}, "here", Aside("change"));
    Markup printed = Tag("th", {{"scope", "row"}}, "printed");
    Markup verdict = Tag("th", {{"scope", "row"}}, "verdict");
    for (size_t i = 0; i < kTransformations.size(); ++i) {
      const double change = LargestChange(line.norm, kTransformations[i]);
      const bool invariant = change <= kInvariant;
      here += NumberCell(Markup(InvarianceText(invariant)) + Aside(ChangeText(change)));
      printed += NumberCell(InvarianceText(line.invariant[i]));
      verdict += NumberCell(Badge(
          VerdictText(invariant == line.invariant[i] ? Verdict::kAgrees : Verdict::kDiffers)));
    }
    rows += Tag("tr", {{"class", "first"}}, here) + Tag("tr", {}, printed) + Tag("tr", {}, verdict);
  }
  std::vector<std::string> notes = {
      fmt::format("Here: the largest change of a linear layer's outputs relative to the largest "
                  "output, computed "
                  "in double for this report. Invariant: at most {:g}.",
                  kInvariant)};
  notes.insert(notes.end(), table.notes.begin(), table.notes.end());
  return Tag("h4", {}, table.name + ". " + table.caption) +
         ScrollingTable(table.name, Tag("tr", {}, head), rows, "comparison") +
         Tag("div", {{"class", "note"}}, List(notes));
}

// Returns text like "RT, SST5; De-En (other data)".
std::string ColumnsText(const PaperClaimResult& result, int sign) {
  const std::vector<std::string> own = result.Columns(sign, true);
  const std::vector<std::string> others = result.Columns(sign, false);
  std::string text = fmt::format("{}", fmt::join(own, ", "));
  if (!others.empty()) {
    text += fmt::format("{}{} (other data)", own.empty() ? "" : "; ", fmt::join(others, ", "));
  }
  return text;
}

std::string NotMeasured(const PaperClaimResult& result) {
  std::vector<std::string> labels;
  for (const PaperClaimResult::Column& column : result.columns) {
    if (!column.contrast.measured) labels.push_back(result.LabelOf(column));
  }
  return fmt::format("{}", fmt::join(labels, ", "));
}

size_t CountOf(const PaperClaimResult& result, int sign) {
  return result.Columns(sign, true).size() + result.Columns(sign, false).size();
}

// Returns what the paper says and prints about a claim.
std::string PrintedText(const PaperClaimResult& result) {
  const bool one = result.columns.size() == 1;
  std::string text;
  if (!one) text = fmt::format("The paper claims it for at least {}", result.claim->min_columns);
  if (result.claim->of == PaperClaim::Of::kTest) {
    if (result.with_printed == 0) {
      text += one ? "The paper prints no numbers for it" : "; it prints no numbers for it";
    } else if (one) {
      text +=
          result.printed > 0 ? "The printed numbers show it" : "The printed numbers do not show it";
    } else {
      text += fmt::format("; its numbers show it in {}", result.printed);
    }
  }
  return text.empty() ? "" : text + ".";
}

// Returns text like "As claimed in 2 of 8 experiments: RT; De-En (other data). The opposite in 1:
// SST5. The paper claims it for at least 6; its numbers show it in 6."
std::string ClaimText(const PaperClaimResult& result) {
  const size_t all = result.columns.size();
  std::string text;
  const auto say = [&](const std::string& what, int sign) {
    const size_t count = CountOf(result, sign);
    if (count == 0) return;
    const std::string columns = ColumnsText(result, sign);
    if (all == 1) {
      text += fmt::format("{} in {}. ", what, columns);
    } else if (text.empty()) {
      text += fmt::format("{} in {} of {} experiments: {}. ", what, count, all, columns);
    } else {
      text += fmt::format("{} in {}: {}. ", what, count, columns);
    }
  };
  say("As claimed", 1);
  say("The opposite", -1);
  say("Open", 0);
  std::vector<std::string> equivalent;
  for (const PaperClaimResult::Column& column : result.columns) {
    if (column.is_equivalent) equivalent.push_back(result.LabelOf(column));
  }
  if (!equivalent.empty()) {
    text += fmt::format("Surely equivalent in {}. ", fmt::join(equivalent, ", "));
  }
  const std::string missing = NotMeasured(result);
  if (!missing.empty()) text += "No runs: " + missing + ". ";
  text += PrintedText(result);
  if (text.ends_with(' ')) text.pop_back();
  return text;
}

// Returns the measured contrast in words: "layer − none".
std::string FormulaOfClaim(const PaperClaim& claim) {
  if (!claim.against.empty()) {
    return fmt::format("{} − {} of {}", claim.contrast[0].first, claim.contrast[1].first,
                       claim.against);
  }
  return FormulaOf(claim.contrast, "−");
}

// Returns the measured values of a claim: "layer − none: RT +0.42 ± 0.30 points; ...".
std::string NumbersText(const Reproduction& reproduction, const PaperClaimResult& result) {
  std::vector<std::string> parts;
  bool lower = false;
  for (const PaperClaimResult::Column& column : result.columns) {
    if (!column.contrast.measured) continue;
    std::string part =
        fmt::format("{} {}", result.LabelOf(column), ContrastText(column.contrast, column.metric));
    if (column.contrast.by_divergence) {
      part += column.contrast.sign > 0 ? " (the other diverged)" : " (diverged)";
    } else if (column.contrast.value().count > 0) {
      const std::string unit =
          column.metric.unit.empty() ? column.runs->column->unit : DifferenceUnit(column.metric);
      if (!unit.empty()) part += " " + unit;
      if (column.metric.lower_is_better) part += "↓";
      lower |= column.metric.lower_is_better;
    }
    const std::string items = SeedsAndItemsText(column.metric, column.contrast.value(),
                                                TwoWayOf(reproduction, *result.claim, column));
    if (!items.empty()) part += fmt::format(" (over seeds and test items {})", items);
    if (!column.contrast.doubt.empty()) part += fmt::format(" ({})", column.contrast.doubt);
    parts.push_back(part);
  }
  if (parts.empty()) return "";
  return fmt::format("{}: {}.{}", FormulaOfClaim(*result.claim), fmt::join(parts, "; "),
                     lower ? " ↓ lower is better." : "");
}

// Returns a sentence on the load of the machine during the runs of a claim on seconds, or an empty
// text.
std::string TimingText(const PaperClaimResult& result) {
  if (result.claim->of != PaperClaim::Of::kSeconds &&
      result.claim->of != PaperClaim::Of::kSecondsToBest) {
    return "";
  }
  OtherLoad worst = OtherLoad::kNone;
  for (const PaperClaimResult::Column& column : result.columns) {
    if (!column.contrast.measured) continue;
    for (const auto& [norm, weight] : result.claim->contrast) {
      const OtherLoad load = OtherLoadOf(*column.runs->Find(norm));
      if (load == OtherLoad::kDisturbed) return "Other programs disturbed the timing of some runs.";
      if (load == OtherLoad::kUnknown) worst = load;
    }
  }
  return worst == OtherLoad::kNone ? ""
                                   : "These runs did not record CPU time, so other programs may "
                                     "have disturbed their timing.";
}

// Returns the p-value of a claim, alone and among all claims of the paper, or an empty text.
std::string PValueText(const PaperClaimResult& result, int64_t claims) {
  if (!result.p || *result.p >= 1 || result.verdict == Verdict::kNoVerdict) return "";
  const bool differs =
      result.verdict == Verdict::kDiffers || result.verdict == Verdict::kDiffersOnOtherData;
  return fmt::format("p of {}: {} alone, {} among {} (Holm).",
                     differs ? "the opposite" : "the claim", FormatP(*result.p),
                     FormatP(*result.holm), Count(claims, "claim"));
}

Markup RenderClaims(const Reproduction& reproduction,
                    const std::vector<PaperClaimResult>& results) {
  const auto claims =
      std::ranges::count_if(results, [](const PaperClaimResult& r) { return r.p.has_value(); });
  Markup items;
  std::vector<std::string> others;
  for (size_t i = 0; i < results.size(); ++i) {
    const PaperClaimResult& result = results[i];
    if (result.verdict == Verdict::kNotMeasured) {
      others.push_back(result.claim->text);
      continue;
    }
    const std::string numbers = NumbersText(reproduction, result);
    const std::string timing = TimingText(result);
    const std::string p = PValueText(result, claims);
    const bool mixes = std::ranges::any_of(
        result.columns,
        [](const PaperClaimResult::Column& column) { return column.contrast.mixes_processors; });
    items +=
        Tag("li", {}, Badge(VerdictText(result.verdict)),
            Tag("div", {},
                Tag("p", {}, Tag("strong", {}, fmt::format("{}. {}", i + 1, result.claim->text)),
                    " ", Tag("span", {{"class", "where"}}, result.claim->source)),
                Tag("p", {}, p.empty() ? ClaimText(result) : ClaimText(result) + " " + p),
                numbers.empty() ? Markup() : Tag("p", {{"class", "aside"}}, numbers),
                timing.empty() ? Markup() : Tag("p", {{"class", "aside"}}, timing),
                mixes ? Tag("p", {{"class", "aside"}},
                            "Some pairs of runs were trained on two kinds of processors.")
                      : Markup()));
  }
  Markup content;
  if (!items.empty()) content += Tag("ul", {{"class", "findings"}}, items);
  if (!others.empty()) {
    content +=
        Tag("p", {{"class", "note"}}, fmt::format("Without runs: {}", fmt::join(others, " ")));
  }
  if (items.empty()) return content;
  return content +
         Details(
             "How a verdict is made",
             List({"In one experiment a claim holds if the 95% interval of the difference, "
                   "paired by seed, excludes 0 with the claimed sign. The opposite holds if it "
                   "excludes 0 with the other sign. Otherwise the experiment is open.",
                   "Agrees: the claim holds in as many experiments as the paper says. Differs: "
                   "it would not, even if it held in every open one. Both count only "
                   "experiments on the paper's own data, recognized by its checksum.",
                   "Agrees or differs on other data: the same, counting also experiments on "
                   "other data. This is a hint, not a test of the paper.",
                   "Equivalent: on the paper's data, the interval includes 0, and the difference "
                   "is surely smaller than half of the printed one, or than the sampling error "
                   "of one value if that is larger (two one-sided tests at 5%). A claim of no "
                   "worse has the same margin and one such test. Open: none of these.",
                   "Steps and seconds to a value are read off a grid of evaluations. Their "
                   "intervals contain all that the times between evaluations allow.",
                   "p-values are those of the intervals. A claim about several experiments has "
                   "the largest p-value of as many as it needs, times the number of ways to "
                   "choose that one. Holm's adjustment accounts for all claims of the paper; "
                   "verdicts do not use it.",
                   "Smoke runs, and runs on less than a tenth of the paper's training cases, "
                   "are open in any case. So is a difference that is the same in every seed, "
                   "because it does not show how much seeds vary.",
                   "Two seeds are shown as both values. All rules but those for equivalence, "
                   "no worse and times were fixed before the runs."}));
}

// Returns the claim's comparison for the overview: "layer > none, steps".
std::string ShortOf(const PaperClaim& claim) {
  std::string text = FormulaOfClaim(claim) + " > 0";
  if (claim.against.empty() && claim.contrast.size() == 2 && claim.contrast[0].second == 1 &&
      claim.contrast[1].second == -1) {
    text = claim.contrast[0].first + (claim.no_worse ? " ≥ " : " > ") + claim.contrast[1].first;
  }
  switch (claim.of) {
    case PaperClaim::Of::kTest:
      break;
    case PaperClaim::Of::kTrainCurve:
      return text + ", train";
    case PaperClaim::Of::kValidCurve:
      return text + ", valid";
    case PaperClaim::Of::kSteps:
      return text + ", steps";
    case PaperClaim::Of::kSeconds:
    case PaperClaim::Of::kSecondsToBest:
      return text + ", time";
  }
  return text;
}

Outcome OutcomeOf(const PaperClaimResult::Column& column) {
  if (!column.contrast.measured) return Outcome::kNone;
  if (column.is_equivalent) return Outcome::kEquivalent;
  if (column.contrast.sign == 0) return Outcome::kOpen;
  return column.contrast.sign > 0 ? Outcome::kAgrees : Outcome::kDiffers;
}

// Renders each claim in each experiment as a sign.
Markup RenderOverview(const std::vector<PaperClaimResult>& results, const std::string& id) {
  OutcomeChart chart{
      .id = id, .heading = "Each claim in each experiment", .columns = {}, .rows = {}};
  std::vector<const ColumnRuns*> columns;
  for (const PaperClaimResult& result : results) {
    for (const PaperClaimResult::Column& column : result.columns) {
      if (column.contrast.measured && std::ranges::find(columns, column.runs) == columns.end()) {
        columns.push_back(column.runs);
      }
    }
  }
  std::ranges::sort(columns, {}, [](const ColumnRuns* runs) { return runs->column; });
  for (const ColumnRuns* runs : columns) chart.columns.push_back(runs->column->LabelOfRuns());
  for (size_t i = 0; i < results.size(); ++i) {
    const PaperClaimResult& result = results[i];
    if (result.verdict == Verdict::kNotMeasured) continue;
    OutcomeChart::Row row{fmt::format("{} {}", i + 1, ShortOf(*result.claim)),
                          std::vector<OutcomeCell>(columns.size()), ClaimText(result)};
    row.text.pop_back();  // the full stop

    for (const PaperClaimResult::Column& column : result.columns) {
      const auto at = std::ranges::find(columns, column.runs);
      if (at == columns.end()) continue;
      row.cells[static_cast<size_t>(at - columns.begin())] = {OutcomeOf(column),
                                                              column.runs->own_data};
    }
    chart.rows.push_back(std::move(row));
  }
  chart.note = "a > b: a is better than b; a ≥ b: a is no worse";
  return chart.rows.empty() ? Markup() : RenderOutcomes(chart);
}

// Returns the direction in which the experiments of open claims point: "2 lean as claimed".
std::string LeaningOf(const std::vector<PaperClaimResult>& results) {
  size_t claimed = 0, opposite = 0, even = 0;
  for (const PaperClaimResult& result : results) {
    if (result.verdict != Verdict::kOpen) continue;
    const size_t holds = CountOf(result, 1), fails = CountOf(result, -1);
    ++(holds > fails ? claimed : holds < fails ? opposite : even);
  }
  std::vector<std::string> parts;
  if (claimed > 0) parts.push_back(fmt::format("{} lean as claimed", claimed));
  if (opposite > 0) parts.push_back(fmt::format("{} the other way", opposite));
  if (even > 0) parts.push_back(fmt::format("{} neither way", even));
  return fmt::format("{}", fmt::join(parts, ", "));
}

// Returns the numbers of claims with a verdict: "claims 1, 4".
std::string ClaimNumbers(const std::vector<PaperClaimResult>& results, Verdict verdict) {
  std::vector<size_t> numbers;
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].verdict == verdict) numbers.push_back(i + 1);
  }
  return fmt::format("{} {}", numbers.size() == 1 ? "claim" : "claims", fmt::join(numbers, ", "));
}

// Returns text like "no claim agrees", "one claim agrees" or "3 claims agree".
std::string ClaimsThat(size_t count, const std::string& verb) {
  if (count > 1) return fmt::format("{} claims {}", count, verb);
  return fmt::format("{} claim {}s", count == 0 ? "no" : "one", verb);
}

Summary SummaryOf(const Reproduction& reproduction, const std::vector<PaperClaimResult>& results,
                  const std::string& id) {
  std::map<Verdict, size_t> counts;
  for (const PaperClaimResult& result : results) ++counts[result.verdict];
  std::vector<std::string> own;
  std::vector<const Panel*> panels;
  size_t experiments = 0, runs_count = 0;
  int fewest = 0, most = 0;
  bool smoke = false;
  for (const ColumnRuns& runs : reproduction.columns) {
    if (!runs.section || std::ranges::find(panels, runs.panel) != panels.end()) continue;
    panels.push_back(runs.panel);
    ++experiments;
    smoke |= IsSmoke(runs.panel->config().preset);
    if (runs.own_data) own.push_back(runs.column->LabelOfRuns());
    for (const Group& group : runs.panel->groups) {
      const auto seeds = static_cast<int>(group.runs.size());
      runs_count += group.runs.size();
      fewest = fewest == 0 ? seeds : std::min(fewest, seeds);
      most = std::max(most, seeds);
    }
  }
  const size_t measured = results.size() - counts[Verdict::kNotMeasured];
  Summary summary;
  summary.asked = fmt::format(
      "Asked: do the {} claims of this paper hold when its experiments are run again? {} of them "
      "are "
      "measured here, in {} with {} runs.",
      results.size(), measured == results.size() ? "All" : std::to_string(measured),
      Count(static_cast<int64_t>(experiments), "experiment"),
      FormatInteger(static_cast<int64_t>(runs_count)));
  summary.found = fmt::format("Found: on the paper's own data {} and {}",
                              ClaimsThat(counts[Verdict::kAgrees], "agree"),
                              ClaimsThat(counts[Verdict::kDiffers], "differ"));
  const size_t hints = counts[Verdict::kAgreesOnOtherData] + counts[Verdict::kDiffersOnOtherData];
  if (hints > 0) {
    summary.found += fmt::format("; on other data, {} and {}",
                                 ClaimsThat(counts[Verdict::kAgreesOnOtherData], "agree"),
                                 ClaimsThat(counts[Verdict::kDiffersOnOtherData], "differ"));
  }
  if (counts[Verdict::kEquivalent] > 0) {
    summary.found += fmt::format("; {} without a difference of the printed size",
                                 ClaimsThat(counts[Verdict::kEquivalent], "end"));
  }
  summary.found += fmt::format("; {} open.", ClaimsThat(counts[Verdict::kOpen], "stay"));
  const std::string seeds =
      fewest == most ? Count(most, "seed") : fmt::format("{} to {}", fewest, Count(most, "seed"));
  if (smoke) {
    summary.sure =
        "How sure: not at all where runs are smoke runs, which only show that a task runs.";
  } else if (own.empty()) {
    summary.sure = fmt::format(
        "How sure: no experiment uses the paper's own data, so these are hints, from {} each.",
        seeds);
  } else {
    summary.sure = fmt::format(
        "How sure: {} of {} experiments use the paper's own data ({}); the others are hints. Each "
        "norm has {}, and a difference counts if its 95% interval excludes 0.",
        own.size(), experiments, fmt::join(own, "; "), seeds);
  }
  summary.chart = RenderOverview(results, id + "-overview");
  for (const Verdict verdict : kMeasuredVerdicts) {
    // The words of the first screen stay the same, also where a count is 0.
    if (verdict == Verdict::kNoVerdict && counts[verdict] == 0) continue;
    const std::string note = counts[verdict] == 0        ? ""
                             : verdict == Verdict::kOpen ? LeaningOf(results)
                                                         : ClaimNumbers(results, verdict);
    summary.tiles.push_back({counts[verdict], std::string(VerdictText(verdict)), note});
  }
  return summary;
}

// Renders the curves of a figure's norms, against steps or against seconds. Each column with runs
// has its metrics next to each other. Returns nothing if there are no runs.
Markup RenderFigureOf(const Reproduction& reproduction, const PaperFigure& figure,
                      bool against_seconds, const std::string& id) {
  Markup legend, charts;
  std::vector<std::string> notes, substitutes;
  for (const std::string& name : figure.columns) {
    const ColumnRuns& runs = reproduction.At(name);
    const PaperColumn& column = *runs.column;
    if (!runs.section) continue;
    bool any = false;
    for (const std::string& curve_name : column.Curves()) {
      const MetricSpec* metric = runs.section->Find(curve_name);
      if (!metric) continue;
      Chart chart;
      std::vector<Curve> curves;
      for (const std::string& norm : figure.norms) {
        const Group* group = runs.Find(norm);
        if (!group) continue;
        Curve curve = CurveOf(*group, metric->name);
        if (curve.single.empty()) continue;
        curves.push_back(curve);
        chart.series.push_back({norm, StyleOf(norm), std::move(curve)});
      }
      if (chart.series.empty()) continue;
      any = true;
      if (legend.empty()) legend = RenderLegend(chart.series);
      chart.id =
          fmt::format("{}-{}-{}{}", id, column.name, curve_name, against_seconds ? "-seconds" : "");
      chart.against_seconds = against_seconds;
      chart.heading = fmt::format("{}: {}", column.LabelOfRuns(), LabelWithUnit(*metric));
      chart.metric = *metric;
      chart.axis = ValueAxis(curves, metric->lower_is_better);
      charts += RenderFigure(chart);
      const std::string note = ChartNote(chart.series, chart.axis);
      if (std::ranges::find(notes, note) == notes.end()) notes.push_back(note);
    }
    if (!any) {
      notes.push_back(column.LabelOfRuns() + ": no evaluations of these norms.");
    } else if (!runs.own_data) {
      substitutes.push_back(fmt::format("{}: {} in the paper, {} here", column.LabelOfRuns(),
                                        column.paper_data, runs.section->config->data.name));
    }
  }
  if (charts.empty()) return {};
  // The longest note explains the marks of all charts.
  std::string note = *std::ranges::max_element(notes, {}, &std::string::size);
  if (!substitutes.empty()) note += fmt::format(" {}.", fmt::join(substitutes, "; "));
  return Tag("div", {{"class", "panel"}}, Tag("h4", {}, figure.name + ". " + figure.caption),
             legend, Tag("div", {{"class", "charts"}}, charts),
             Tag("p", {{"class", "note"}}, note));
}

// Renders data, preset and seeds of each column.
Markup RenderColumns(const Reproduction& reproduction) {
  Markup rows;
  for (const ColumnRuns& runs : reproduction.columns) {
    if (!runs.section) continue;
    const PaperColumn& column = *runs.column;
    Markup row = RowHead(column.label) + Cell(column.paper_data);
    const RunConfig::Data& data = runs.section->config->data;
    int finished = 0, diverged = 0, unfinished = 0;
    for (const Group& group : runs.panel->groups) {
      finished += group.CountOf(Status::kFinished);
      diverged += group.CountOf(Status::kDiverged);
      unfinished += group.CountOf(Status::kUnfinished);
    }
    std::string settings =
        fmt::format("{} {}", column.task, runs.panel->settings.value("preset", std::string("")));
    for (const auto& [name, value] : column.settings) {
      settings += ", " + SettingPhrase(name, value);
    }
    if (runs.other_panels > 0) {
      settings += fmt::format(" ({} in the section of the task)",
                              Count(runs.other_panels, "other setting"));
    }
    row += Cell(fmt::format("{}: {}",
                            runs.own_data ? "the paper's own" : EvidenceText(Evidence::kOtherData),
                            data.name)) +
           Cell(settings) +
           Cell(runs.metric ? LabelWithUnit(*runs.metric) : "no " + Words(column.metric)) +
           NumberCell(std::to_string(finished)) + NumberCell(std::to_string(diverged)) +
           NumberCell(std::to_string(unfinished));
    rows += Tag("tr", {}, row);
  }
  const Markup head = Head("column") + Head("data in the paper") + Head("data here") +
                      Head("task and settings") + Head("measured") + NumberHead("runs finished") +
                      NumberHead("diverged") + NumberHead("not finished");
  return Tag("h4", {}, "Data and settings of the columns") +
         ScrollingTable("Columns", Tag("tr", {}, head), rows);
}

bool IsOfCurve(const PaperClaim& claim) {
  return claim.of == PaperClaim::Of::kTrainCurve || claim.of == PaperClaim::Of::kValidCurve;
}

// Returns sentences on intervals over seeds and test items, and on runs without them.
std::vector<std::string> ItemNotes(const Reproduction& reproduction,
                                   const std::vector<PaperClaimResult>& claims) {
  LeftOutRuns left_out;
  std::set<std::pair<const Panel*, std::string>> seen;
  for (const ColumnRuns& runs : reproduction.columns) {
    if (!runs.metric || !seen.emplace(runs.panel, runs.metric->name).second) continue;
    left_out += LeftOutOf(GroupsOf(*runs.panel), *runs.metric);
  }
  std::vector<std::string> notes;
  if (left_out.all > left_out.missing) notes.emplace_back(kSeedsAndItemsNote);
  for (std::string& line : left_out.Text()) notes.push_back(std::move(line));
  const bool has_curves = std::ranges::any_of(claims, [](const PaperClaimResult& result) {
    return IsOfCurve(*result.claim) && std::ranges::any_of(result.columns, [](const auto& column) {
             return column.contrast.measured;
           });
  });
  if (has_curves) {
    notes.emplace_back(
        "Claims about training and validation curves are measured after the last step. They have "
        "no interval over seeds and test items: no predictions are saved for these metrics.");
  }
  return notes;
}

}  // namespace

Part RenderReproduction(const Reproduction& reproduction, const std::string& id) {
  const Paper& paper = *reproduction.paper;
  const std::vector<PaperClaimResult> claims = JudgeClaims(reproduction);
  Part part{.id = id,
            .title = paper.title,
            .source = "The paper's printed values beside the values of these runs.",
            .summary = SummaryOf(reproduction, claims, id),
            .body = {},
            .links = {},
            .details = {}};
  AddSection(part, "-claims", "Claims of the paper", RenderClaims(reproduction, claims));
  Markup tables;
  if (paper.invariances) tables += RenderInvariances(*paper.invariances);
  const TableTests tests = TestTables(reproduction);
  for (const PaperTable& table : paper.tables) tables += RenderTable(reproduction, tests, table);
  if (!tables.empty()) {
    tables += Tag(
        "p", {{"class", "note"}},
        "Here: mean over the seeds ± half-width of its 95% confidence interval; two seeds are "
        "shown as both values. A verdict compares the sign of the difference with the printed one. "
        "± after a printed value is the sampling error of one run on a test set of that size.");
    if (tests.all > 0) {
      tables +=
          Tag("p", {{"class", "note"}},
              fmt::format(
                  "So many differences are compared that some intervals exclude 0 by chance: of {} "
                  "differences {} do. {} remain if at most 5% of those that remain may be wrong "
                  "(Benjamini and Hochberg; p, adjusted for all differences, below .05), and {} if "
                  "all shall be right "
                  "with 95% confidence (Holm).",
                  tests.all, tests.sure, tests.after_fdr, tests.after_holm));
    }
  }
  AddSection(part, "-tables", "Tables of the paper", tables);
  Markup figures, timed;
  for (size_t i = 0; i < paper.figures.size(); ++i) {
    const std::string figure_id = fmt::format("{}-f{}", id, i);
    figures += RenderFigureOf(reproduction, paper.figures[i], /*against_seconds=*/false, figure_id);
    if (paper.figures[i].seconds) {
      timed += RenderFigureOf(reproduction, paper.figures[i], /*against_seconds=*/true, figure_id);
    }
  }
  AddSection(part, "-figures", "Figures of the paper", figures);
  const std::vector<std::string> missing = reproduction.Missing();
  if (!missing.empty()) {
    part.body += Tag("p", {{"class", "note"}},
                     fmt::format("Columns without runs: {}.", fmt::join(missing, "; ")));
  }

  std::vector<std::string> notes = {
      "The test set is read once, with the weights of the evaluation with the best validation "
      "result. Differences are paired by seed: both runs start from the same weights and see the "
      "cases in the same order.",
      "Divergence is a result. A norm is worse than another if all of its runs diverged (at least "
      "two) and at least two of the other's finished. Otherwise differences are computed over the "
      "seeds that finished.",
      "For printed values without ± the size of the test set is not enough to compute the sampling "
      "error of one run."};
  if (paper.invariances) {
    notes.push_back(fmt::format(
        "{}: the layer has 20 inputs and 50 units, and eps is 0. Its weights and the "
        "batch of 32 cases are random with a fixed seed. The scales are 2, 1/2 and 3, "
        "each with its own shift vector, unit and case; the largest change counts. "
        "Rounding errors of sums of 20 products are at most 9e-14; the effect of an eps "
        "of 1e-5 would exceed {:g}.",
        paper.invariances->name, kInvariant));
  }
  for (const std::string& line : ItemNotes(reproduction, claims)) notes.push_back(line);
  notes.insert(notes.end(), paper.notes.begin(), paper.notes.end());
  part.details = RenderColumns(reproduction) + Tag("h4", {}, "Notes") + List(notes);
  if (!timed.empty()) part.details += Tag("h4", {}, "Figures against seconds") + timed;
  return part;
}

std::string BriefOfPaper(const Reproduction& reproduction) {
  std::string lines;
  for (const PaperClaimResult& result : JudgeClaims(reproduction)) {
    const std::string text = result.claim->text;
    std::vector<std::string> counts;
    for (const auto& [word, sign] :
         {std::pair("as claimed", 1), {"the opposite", -1}, {"open", 0}}) {
      const size_t own = result.Columns(sign, true).size();
      const size_t all = own + result.Columns(sign, false).size();
      if (all > 0)
        counts.push_back(fmt::format("{} in {} ({} on the paper's data)", word, all, own));
    }
    if (counts.empty()) continue;
    lines += CleanText(fmt::format("{:<21} {} [{}]\n", VerdictText(result.verdict), text,
                                   fmt::join(counts, ", ")));
  }
  if (const auto& table = reproduction.paper->invariances) {
    size_t agreeing = 0;
    const size_t cells = table->lines.size() * kTransformations.size();
    for (const PaperInvariances::Line& line : table->lines) {
      for (size_t i = 0; i < kTransformations.size(); ++i) {
        agreeing +=
            (LargestChange(line.norm, kTransformations[i]) <= kInvariant) == line.invariant[i];
      }
    }
    lines +=
        CleanText(fmt::format("{:<21} {}: {} [{} of {} cells, computed for this report]\n",
                              VerdictText(agreeing == cells ? Verdict::kAgrees : Verdict::kDiffers),
                              table->name, table->caption, agreeing, cells));
  }
  std::vector<std::string> missing = reproduction.Missing();
  constexpr size_t kMax = 8, kKeptWhole = 3;
  if (const size_t all = missing.size(); all > kMax) {
    missing.resize(kKeptWhole);
    missing.push_back(fmt::format("{} more", all - kKeptWhole));
  }
  if (!missing.empty()) {
    lines += CleanText(fmt::format("{:<21} {}\n", "without runs", fmt::join(missing, "; ")));
  }
  return CleanText(reproduction.paper->title) + ":\n" + lines;
}

}  // namespace planish::lab
