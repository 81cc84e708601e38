#include "lab/report/paper_html.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "lab/analysis/format.h"
#include "lab/base/format_integer.h"
#include "lab/report/chart.h"
#include "lab/report/pieces.h"

namespace planish::lab {
namespace {

Markup Aside(const std::string& text) { return Tag("span", {{"class", "aside"}}, text); }

// Returns a label with the direction as the paper marks it: "En-De (+)".
std::string LabelWithSign(const PaperColumn& column) {
  return column.label + (column.lower_is_better ? " (−)" : " (+)");
}

// Returns the paper's name of a norm, or the lab's if it has none.
std::string NormLabel(const Paper& paper, const std::string& norm) {
  const PaperRow* row = paper.FindRow(norm);
  return row ? row->label : norm;
}

Markup OursCell(const ColumnRuns& runs, const std::string& norm) {
  const Group* group = runs.Find(norm);
  if (!group || !runs.metric) return NumberCell(kMissing);
  const int diverged = group->CountOf(Status::kDiverged);
  const auto all = static_cast<int>(group->runs.size());
  const Estimate value = EstimateMean(Values(*group, runs.metric->name, Measure::kBest));
  if (value.count == 0) {
    return NumberCell(diverged > 0 ? Markup(fmt::format("diverged {} of {}", diverged, all))
                                   : Markup("not finished"));
  }
  Markup content = FormatEstimate(*runs.metric, value);
  content += Aside(diverged > 0 ? fmt::format("n {}, {} diverged", value.count, diverged)
                                : fmt::format("n {}", value.count));
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

Markup PrintedDifferenceCell(const Paper& paper, const PaperColumn& column,
                             const PaperTable::Line& line) {
  const std::optional<double> a = paper.Printed(line.norm, column);
  const std::optional<double> b = paper.Printed(line.against, column);
  if (!a || !b) return NumberCell(kMissing);
  if (std::isnan(*a) || std::isnan(*b)) {
    const int sign = PrintedSign(paper, column, {{line.norm, 1}, {line.against, -1}});
    return NumberCell(sign > 0 ? "better" : sign < 0 ? "worse" : std::string(kMissing));
  }
  // Rounded like the values, to remove binary rounding errors.
  const double scale = std::pow(10, column.Decimals());
  const double difference = std::round((*a - *b) * scale) / scale;
  const std::string size = column.PrintedText(std::abs(difference));
  return NumberCell(difference == 0 ? "0" : (difference < 0 ? "−" : "+") + size);
}

std::string ContrastText(const ContrastResult& contrast, const MetricSpec& metric) {
  if (contrast.by_divergence) return contrast.sign > 0 ? "better" : "worse";
  return DifferenceText(metric, contrast.value());
}

// Returns the small print for runs on other data: "same sign".
std::string Lean(const LineResult& result) {
  if (result.difference.sign == 0) return "cannot tell";
  if (result.printed == 0) return result.difference.sign > 0 ? "better here" : "worse here";
  return result.difference.sign == result.printed ? "same sign" : "other sign";
}

Markup VerdictCell(const LineResult& result, Evidence evidence) {
  if (result.verdict == Verdict::kNotMeasured) return NumberCell(kMissing);
  Markup content = Badge(VerdictText(result.verdict));
  if (result.verdict == Verdict::kOtherData) {
    content += Aside(Lean(result));
  } else if (result.verdict == Verdict::kNoVerdict) {
    content += Aside(std::string(EvidenceText(evidence)));
  } else if (result.verdict == Verdict::kCannotTell) {
    if (result.printed == 0) {
      content += Aside("printed values are equal or missing");
    } else if (!result.difference.doubt.empty()) {
      content += Aside(result.difference.doubt);
    }
  }
  return NumberCell(content);
}

// Renders the columns with runs and the rows with values in them. Returns nothing if there are
// none.
Markup RenderTable(const Reproduction& reproduction, const PaperTable& table) {
  const Paper& paper = *reproduction.paper;
  std::vector<const ColumnRuns*> columns;
  for (const ColumnRuns& runs : reproduction.columns) {
    const bool of_table =
        table.columns.empty() ||
        std::ranges::find(table.columns, runs.column->name) != table.columns.end();
    if (of_table && runs.section) columns.push_back(&runs);
  }
  if (columns.empty()) return {};
  Markup head = Tag("th", {{"colspan", "2"}, {"scope", "col"}}, "");
  for (const ColumnRuns* column : columns) {
    const ColumnRuns& runs = *column;
    Markup content = LabelWithSign(*runs.column);
    content += Aside(runs.section->config->data.name);
    if (!runs.own_data) content += Aside(fmt::format("({})", EvidenceText(Evidence::kOtherData)));
    if (IsSmoke(runs.panel->config().preset)) content += Aside("(smoke runs)");
    head += NumberHead(content);
  }
  Markup rows;
  for (const PaperTable::Line& line : table.lines) {
    const bool empty = std::ranges::none_of(columns, [&](const ColumnRuns* runs) {
      return runs->Find(line.norm) || paper.Printed(line.norm, *runs->column);
    });
    if (empty) continue;
    const bool compared = !line.against.empty();
    Markup ours =
        Tag("th", {{"scope", "rowgroup"}, {"rowspan", compared ? "5" : "2"}, {"class", "norm"}},
            NormLabel(paper, line.norm), Aside(line.norm)) +
        Tag("th", {{"scope", "row"}}, "here");
    Markup printed = Tag("th", {{"scope", "row"}}, "printed");
    const Markup than = Aside(line.against);
    Markup difference = Tag("th", {{"scope", "row"}}, "here minus", than);
    Markup printed_difference = Tag("th", {{"scope", "row"}}, "printed minus", than);
    Markup verdict = Tag("th", {{"scope", "row"}}, "verdict");
    for (const ColumnRuns* column : columns) {
      const ColumnRuns& runs = *column;
      ours += OursCell(runs, line.norm);
      printed += PrintedCell(paper, *runs.column, line.norm);
      if (!compared) continue;
      const LineResult result = Judge(reproduction, runs, line);
      difference +=
          NumberCell(result.difference.measured ? ContrastText(result.difference, *runs.metric)
                                                : std::string(kMissing));
      printed_difference += PrintedDifferenceCell(paper, *runs.column, line);
      verdict += VerdictCell(result, runs.evidence);
    }
    rows += Tag("tr", {{"class", "first"}}, ours) + Tag("tr", {}, printed);
    if (compared) {
      rows +=
          Tag("tr", {}, difference) + Tag("tr", {}, printed_difference) + Tag("tr", {}, verdict);
    }
  }
  return Tag("h3", {}, table.name + ". " + table.caption) +
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
  std::vector<std::string> notes = {fmt::format(
      "Here: the largest change of the outputs of a linear layer with this norm, relative to the "
      "largest output. Planish computes it for this report, in double with eps = 0. The layer has "
      "20 inputs and 50 units; its weights and the batch of 32 cases are random with a fixed seed. "
      "The scales are 2, 1/2 and 3, each with its own shift vector, unit and case; the largest "
      "change counts. Invariant: at most {:g}. Rounding errors of sums of 20 products are below "
      "this limit (at most 9e-14); the effect of an eps of 1e-5 would be above it.",
      kInvariant)};
  notes.insert(notes.end(), table.notes.begin(), table.notes.end());
  return Tag("h3", {}, table.name + ". " + table.caption) +
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

// Returns text like "Holds in 2 columns: RT; De-En (other data). The opposite holds in 1 column:
// SST5."
std::string ClaimText(const PaperClaimResult& result) {
  std::string text;
  const auto say = [&](const std::string& what, size_t count, const std::string& columns) {
    if (count > 0)
      text += fmt::format("{} in {}: {}. ", what, Count(static_cast<int64_t>(count), "column"),
                          columns);
  };
  say("Holds", CountOf(result, 1), ColumnsText(result, 1));
  say("The opposite holds", CountOf(result, -1), ColumnsText(result, -1));
  say("Open", CountOf(result, 0), ColumnsText(result, 0));
  const std::string missing = NotMeasured(result);
  if (!missing.empty()) text += "Not measured: " + missing + ". ";
  text += fmt::format("The paper claims it for at least {} of {}", result.claim->min_columns,
                      Count(std::ssize(result.columns), "column"));
  if (result.claim->of == PaperClaim::Of::kTest) {
    text += fmt::format("; in its printed values it holds in {}", result.printed);
  }
  return text + ".";
}

// Returns the measured values of a claim: "RT +0.42 ± 0.30; ...".
std::string NumbersText(const PaperClaimResult& result) {
  std::vector<std::string> parts;
  std::string contrast;
  for (const auto& [norm, weight] : result.claim->contrast) {
    contrast += contrast.empty() ? (weight < 0 ? "−" : "") : weight < 0 ? " − " : " + ";
    if (std::abs(weight) != 1) contrast += fmt::format("{:g} ", std::abs(weight));
    contrast += norm;
  }
  for (const PaperClaimResult::Column& column : result.columns) {
    if (!column.contrast.measured) continue;
    std::string part =
        fmt::format("{} {}", result.LabelOf(column), ContrastText(column.contrast, column.metric));
    if (column.metric.lower_is_better && !column.contrast.by_divergence)
      part += " (lower is better)";
    if (column.contrast.by_divergence)
      part += column.contrast.sign > 0 ? " (the other diverged)" : " (diverged)";
    if (!column.contrast.doubt.empty()) part += fmt::format(" ({})", column.contrast.doubt);
    parts.push_back(part);
  }
  return parts.empty() ? "" : fmt::format("{}: {}.", contrast, fmt::join(parts, "; "));
}

Markup RenderClaims(const std::vector<PaperClaimResult>& results) {
  Markup items;
  std::vector<std::string> others;
  for (const PaperClaimResult& result : results) {
    if (result.verdict == Verdict::kNotMeasured) {
      others.push_back(result.claim->text);
      continue;
    }
    const std::string numbers = NumbersText(result);
    items += Tag("li", {}, Badge(VerdictText(result.verdict)),
                 Tag("div", {}, Tag("p", {}, result.claim->text, Aside(result.claim->source)),
                     Tag("p", {}, ClaimText(result)),
                     numbers.empty() ? Markup() : Tag("p", {{"class", "aside"}}, numbers)));
  }
  Markup content = Tag("h3", {}, "Claims of the paper");
  if (!items.empty()) content += Tag("ul", {{"class", "findings"}}, items);
  if (!others.empty()) {
    content +=
        Tag("p", {{"class", "note"}},
            fmt::format("Not measured, because runs are missing: {}", fmt::join(others, " ")));
  }
  if (items.empty()) return content;
  return content +
         Tag("p", {{"class", "note"}},
             "The rule was fixed before the runs were made. If the 95% interval of the paired "
             "difference in a column excludes 0, the claim or its opposite holds there, depending "
             "on the sign; otherwise the column is open. Agrees: the claim holds in as many "
             "columns as the paper says. Differs: it would not even if it held in all open "
             "columns. Both verdicts count columns with other data than the paper's as open. Other "
             "data: the verdict is one of the two only if these columns are counted. Cannot tell: "
             "it is neither. A column of smoke runs, or of runs on less than a tenth of the "
             "paper's training cases, is open; if there are only such columns, there is no "
             "verdict.");
}

// Renders the curves of a figure's norms. Each column with runs has its metrics next to each other,
// against steps and, if the figure has them, then against seconds.
Markup RenderFigureOf(const Reproduction& reproduction, const PaperFigure& figure,
                      const std::string& id) {
  const Paper& paper = *reproduction.paper;
  Markup content;
  Markup legend;
  for (const std::string& name : figure.columns) {
    const ColumnRuns& runs = reproduction.At(name);
    const PaperColumn& column = *runs.column;
    const std::string title = LabelWithSign(column);
    if (!runs.section) continue;
    Markup pair;
    std::string note;
    bool log = false, says_right = false;
    std::vector<std::pair<std::string, bool>> drawn;  // curve, and true if against seconds
    for (const bool seconds : {false, true}) {
      if (seconds && !figure.seconds) continue;
      for (const std::string& curve : column.Curves()) drawn.emplace_back(curve, seconds);
    }
    for (const auto& [curve_name, against_seconds] : drawn) {
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
        chart.series.push_back(
            {norm, static_cast<int>(paper.FindRow(norm) - paper.rows.data()), std::move(curve)});
      }
      if (chart.series.empty()) continue;
      if (legend.empty()) legend = RenderLegend(chart.series);
      chart.id =
          fmt::format("{}-{}-{}{}", id, column.name, curve_name, against_seconds ? "-seconds" : "");
      chart.against_seconds = against_seconds;
      chart.heading = fmt::format("{}: {}", column.LabelOfRuns(), LabelWithUnit(*metric));
      chart.metric = *metric;
      chart.axis = ValueAxis(curves, metric->lower_is_better);
      pair += RenderFigure(chart);
      if (note.empty()) {
        note = ChartNote(chart.series, chart.axis);
        log = chart.axis.log;
      } else if (chart.axis.log != log && !says_right) {
        note += chart.axis.log ? " On the right: logarithmic." : " On the right: linear.";
        says_right = true;
      }
    }
    if (pair.empty()) {
      content += Tag("p", {{"class", "note"}}, title + ": no evaluations of these norms.");
      continue;
    }
    content += Tag("div", {{"class", "charts"}}, pair) + Tag("p", {{"class", "note"}}, note);
    if (!runs.own_data) {
      content += Tag("p", {{"class", "note"}},
                     fmt::format("{}: {} in the paper, {} here.", column.LabelOfRuns(),
                                 column.paper_data, runs.section->config->data.name));
    }
  }
  if (content.empty()) return {};
  return Tag("div", {{"class", "panel"}}, Tag("h3", {}, figure.name + ". " + figure.caption),
             legend, content);
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
  Markup content = Tag("h3", {}, "Data and settings of the columns") +
                   ScrollingTable("Columns", Tag("tr", {}, head), rows);
  const std::vector<std::string> missing = reproduction.Missing();
  if (!missing.empty()) {
    content += Tag("p", {{"class", "note"}},
                   fmt::format("Columns without runs: {}.", fmt::join(missing, "; ")));
  }
  return content;
}

}  // namespace

Markup RenderReproduction(const Reproduction& reproduction, const std::string& id) {
  const Paper& paper = *reproduction.paper;
  Markup content = Tag("h2", {}, paper.title) +
                   Tag("p", {{"class", "source"}},
                       "Values printed in the paper, next to the values of these runs.") +
                   RenderClaims(JudgeClaims(reproduction)) + RenderColumns(reproduction);
  if (paper.invariances) content += RenderInvariances(*paper.invariances);
  for (const PaperTable& table : paper.tables) content += RenderTable(reproduction, table);
  std::vector<std::string> notes = {
      "Here: mean over n seeds ± half-width of its 95% confidence interval. The test set is read "
      "once, with the weights of the evaluation with the best validation result. Differences are "
      "paired by seed: both runs start from the same weights and see the cases in the same order.",
      "Verdict. Agrees: the 95% interval of the paired difference excludes 0, and the difference "
      "has the sign of the printed one. Differs: it has the opposite sign. Cannot tell: the "
      "interval includes 0 or has zero width, or the printed values are equal or missing. Other "
      "data: the runs did not use the paper's data set, or its checksum is not known; their values "
      "cannot be compared with the printed ones, and small print gives the sign of the difference. "
      "No verdict: smoke runs, and runs on less than a tenth of the paper's training cases.",
      "Divergence is a result. A norm is worse than another if all of its runs diverged (at least "
      "two) and at least two of the other's finished. Otherwise differences are computed over the "
      "seeds that finished.",
      "± after a printed value is the sampling error of one run, computed from the size of the "
      "test set. For printed values without ± that size is not enough to compute one."};
  notes.insert(notes.end(), paper.notes.begin(), paper.notes.end());
  content += Tag("div", {{"class", "note"}}, List(notes));
  for (size_t i = 0; i < paper.figures.size(); ++i) {
    content += RenderFigureOf(reproduction, paper.figures[i], fmt::format("{}-f{}", id, i));
  }
  return Tag("section", {{"id", id}, {"class", "paper"}}, content);
}

std::string BriefOfPaper(const Reproduction& reproduction) {
  std::string lines;
  for (const PaperClaimResult& result : JudgeClaims(reproduction)) {
    const std::string text = result.claim->text;
    std::vector<std::string> counts;
    for (const auto& [word, sign] : {std::pair("holds", 1), {"opposite", -1}, {"open", 0}}) {
      const size_t own = result.Columns(sign, true).size();
      const size_t all = own + result.Columns(sign, false).size();
      if (all > 0)
        counts.push_back(fmt::format("{} in {} ({} on the paper's data)", word, all, own));
    }
    if (counts.empty()) continue;
    lines += CleanText(fmt::format("{:<12} {} [{}]\n", VerdictText(result.verdict), text,
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
        CleanText(fmt::format("{:<12} {}: {} [{} of {} cells, computed for this report]\n",
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
    lines += CleanText(fmt::format("{:<12} {}\n", "without runs", fmt::join(missing, "; ")));
  }
  return CleanText(reproduction.paper->title) + ":\n" + lines;
}

}  // namespace planish::lab
