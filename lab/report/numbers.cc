#include "lab/report/numbers.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "lab/analysis/claims.h"
#include "lab/analysis/format.h"
#include "lab/analysis/power.h"
#include "lab/analysis/reproduction.h"
#include "lab/papers/invariances.h"
#include "lab/report/contents.h"
#include "lab/report/export.h"

namespace planish::lab {
namespace {

using Json = nlohmann::ordered_json;
using JsonRows = std::vector<Json>;

Json NumberJson(std::optional<double> value) {
  return value && std::isfinite(*value) ? Json(*value) : Json();
}

// Returns an interval over seeds and test items in the displayed unit, or why there is none.
Json SeedsAndItemsJson(const MetricSpec& metric, const TwoWayResult& result) {
  const std::optional<TwoWayInterval>& interval = result.interval;
  return {{"low", interval ? NumberJson(Shown(metric, interval->low)) : Json()},
          {"high", interval ? NumberJson(Shown(metric, interval->high)) : Json()},
          {"items", interval ? Json(interval->items) : Json()},
          {"left_out", result.left_out}};
}

// Returns an estimate in the displayed unit, with its p-value.
Json DifferenceJson(const MetricSpec& metric, const ContrastResult& contrast,
                    const TwoWayResult& items) {
  const Estimate& value = contrast.value();
  Json json = {{"mean", nullptr},
               {"low", nullptr},
               {"high", nullptr},
               {"unit", DifferenceUnit(metric)},
               {"seeds", value.count}};
  if (value.count > 0) json["mean"] = NumberJson(Shown(metric, value.mean));
  if (value.half_width) {
    json["low"] = NumberJson(Shown(metric, value.low()));
    json["high"] = NumberJson(Shown(metric, value.high()));
  }
  json["p"] = NumberJson(PValue(value));
  json["margin"] = NumberJson(contrast.margin);
  json["by_divergence"] = contrast.by_divergence;
  json["two_processors"] = contrast.mixes_processors;
  json["doubt"] = contrast.doubt;
  json["seeds_and_items"] = SeedsAndItemsJson(metric, items);
  return json;
}

Json SettingsOf(const Panel& panel) {
  Json settings = Json::object();
  for (const auto& [name, value] : panel.settings.items()) settings[name] = value;
  return settings;
}

// Returns the beginning of the rows about a panel.
Json PanelJson(const Section& section, const Panel& panel) {
  return {{"task", section.config->task},
          {"data", section.config->data.name},
          {"panel", panel.title},
          {"settings", SettingsOf(panel)}};
}

void AddMetrics(const Section& section, JsonRows& rows) {
  for (const MetricSpec& metric : section.config->metrics) {
    rows.push_back({{"task", section.config->task},
                    {"data", section.config->data.name},
                    {"metric", metric.name},
                    {"label", metric.label},
                    {"unit", metric.unit},
                    {"lower_is_better", metric.lower_is_better}});
  }
}

void AddCurves(const Section& section, const Panel& panel, JsonRows& rows) {
  for (const Group& group : panel.groups) {
    for (const MetricSpec& metric : section.config->metrics) {
      for (const Curve::Point& point : CurveOf(group, metric.name).mean) {
        Json row = {{"task", section.config->task}, {"data", section.config->data.name},
                    {"panel", panel.title},         {"value", group.value},
                    {"metric", metric.name},        {"step", point.step},
                    {"seconds", point.seconds}};
        row.update(EstimateJson(point.value));
        rows.push_back(std::move(row));
      }
    }
  }
}

// Adds the differences between each group and the baseline.
void AddDifferences(const Section& section, const Panel& panel, JsonRows& rows) {
  const ReportSpec& report = section.config->report;
  const MetricSpec* metric = section.Find(report.headline);
  if (!metric || !panel.Find(report.baseline)) return;
  for (const Group& group : panel.groups) {
    if (group.value == report.baseline) continue;
    const Measure measure = HeadlineMeasure(section);
    const ContrastResult contrast =
        MeasureContrast(panel, {{group.value, 1}, {report.baseline, -1}}, *metric, {measure});
    if (!contrast.measured) continue;
    Json row = PanelJson(section, panel);
    row["metric"] = metric->name;
    row["value"] = group.value;
    row["baseline"] = report.baseline;
    row["sign"] = contrast.sign;
    row["difference"] = DifferenceJson(
        *metric, contrast, TwoWayDifference(group, *panel.Find(report.baseline), *metric, measure));
    rows.push_back(std::move(row));
  }
}

void AddTargets(const Section& section, const Panel& panel, JsonRows& rows) {
  for (const TargetSpec& target : section.config->report.targets) {
    const MetricSpec* metric = section.Find(target.metric);
    if (!metric) continue;
    for (const Group& group : panel.groups) {
      for (const double value : target.values) {
        const Reached reached = Reach(group, *metric, value);
        Json row = PanelJson(section, panel);
        row["value"] = group.value;
        row["metric"] = metric->name;
        row["target"] = value;
        row["reached"] = reached.count;
        row["seeds"] = reached.of;
        row["steps"] = EstimateJson(reached.steps);
        row["seconds"] = EstimateJson(reached.seconds);
        rows.push_back(std::move(row));
      }
    }
  }
}

void AddTaskClaims(const Section& section, JsonRows& rows) {
  for (const ClaimResult& result : JudgeClaims(section, ClaimsOf(section.config->task))) {
    Json row = {{"task", section.config->task},
                {"data", section.config->data.name},
                {"panel", result.panel ? Json(result.panel->title) : Json()},
                {"claim", result.claim.text},
                {"source", result.claim.source},
                {"verdict", VerdictText(result.verdict)},
                {"metric", result.metric.label}};
    if (result.panel) {
      row["p"] = NumberJson(PValueOf(result.metric, result.contrast));
      row["difference"] = DifferenceJson(result.metric, result.contrast, TwoWayOf(result));
    }
    rows.push_back(std::move(row));
  }
}

void AddPaperClaims(const Reproduction& reproduction, JsonRows& claims, JsonRows& columns) {
  int number = 0;
  for (const PaperClaimResult& result : JudgeClaims(reproduction)) {
    ++number;
    claims.push_back({{"paper", reproduction.paper->name},
                      {"number", number},
                      {"claim", result.claim->text},
                      {"source", result.claim->source},
                      {"verdict", VerdictText(result.verdict)},
                      {"needed", result.claim->min_columns},
                      {"of", result.columns.size()},
                      {"p", NumberJson(result.p)},
                      {"p_holm", NumberJson(result.holm)}});
    for (const PaperClaimResult::Column& column : result.columns) {
      if (!column.contrast.measured) continue;
      columns.push_back(
          {{"paper", reproduction.paper->name},
           {"number", number},
           {"column", result.LabelOf(column)},
           {"own_data", column.runs->own_data},
           {"evidence", EvidenceText(column.runs->evidence)},
           {"sign", column.contrast.sign},
           {"equivalent", column.is_equivalent},
           {"difference", DifferenceJson(column.metric, column.contrast,
                                         TwoWayOf(reproduction, *result.claim, column))}});
    }
  }
}

void AddPower(const Reproduction& reproduction, JsonRows& rows) {
  for (const ClaimPower& power : PowerOf(reproduction)) {
    rows.push_back({{"paper", reproduction.paper->name},
                    {"number", power.number},
                    {"column", power.column},
                    {"printed_difference", power.claim->no_worse ? Json() : Json(power.effect)},
                    {"margin", power.claim->no_worse ? Json(power.effect) : Json()},
                    {"deviation", power.deviation},
                    {"unit", DifferenceUnit(power.metric)},
                    {"seeds", power.seeds},
                    {"needed", power.needed ? Json(*power.needed) : Json()},
                    {"decided", power.is_decided},
                    {"more_minutes", NumberJson(power.minutes)}});
  }
}

void AddPaperTables(const Reproduction& reproduction, JsonRows& rows) {
  const Paper& paper = *reproduction.paper;
  const TableTests tests = TestTables(reproduction);
  for (const PaperTable& table : paper.tables) {
    for (const PaperTable::Line& line : table.lines) {
      for (const ColumnRuns& runs : reproduction.columns) {
        if (!table.Has(*runs.column)) continue;
        Json row = {{"paper", paper.name},
                    {"table", table.name},
                    {"norm", line.norm},
                    {"column", runs.column->LabelOfMetric()},
                    {"unit", runs.Unit().starts_with("%") ? "points" : runs.Unit()},
                    {"own_data", runs.own_data},
                    {"printed", NumberJson(paper.Printed(line.norm, *runs.column))}};
        const Group* group = runs.Find(line.norm);
        if (group && runs.metric) {
          row["here"] =
              EstimateJson(EstimateMean(ValuesOf(*group, runs.metric->name, Measure::kBest)));
          row["finished"] = group->CountOf(Status::kFinished);
          row["diverged"] = group->CountOf(Status::kDiverged);
        }
        if (group && runs.metric && !line.against.empty()) {
          const LineResult result = Judge(reproduction, runs, line);
          row["against"] = line.against;
          row["printed_difference"] =
              NumberJson(paper.PrintedContrast(*runs.column, {{line.norm, 1}, {line.against, -1}}));
          row["difference"] = DifferenceJson(*runs.metric, result.difference, TwoWayOf(runs, line));
          const auto adjusted = tests.adjusted.find({&runs, line.norm, line.against});
          row["p_tables"] =
              adjusted == tests.adjusted.end() ? Json() : NumberJson(adjusted->second);
          row["verdict"] = VerdictText(result.verdict);
        }
        rows.push_back(std::move(row));
      }
    }
  }
}

void AddInvariances(const Paper& paper, JsonRows& rows) {
  if (!paper.invariances) return;
  for (const PaperInvariances::Line& line : paper.invariances->lines) {
    for (size_t i = 0; i < kTransformations.size(); ++i) {
      const double change = LargestChange(line.norm, kTransformations[i]);
      rows.push_back({{"paper", paper.name},
                      {"norm", line.norm},
                      {"transformation", LabelOf(kTransformations[i])},
                      {"invariant", change <= kInvariant},
                      {"printed", line.invariant[i]}});
    }
  }
}

void AddArena(const ArenaTask& arena, JsonRows& entries, JsonRows& tuning) {
  int rank = 0;
  for (const ArenaEntry& entry : arena.entries) {
    Json about = {{"task", arena.config->task},
                  {"data", arena.config->data.name},
                  {"preset", arena.config->preset},
                  {"entry", entry.label}};
    for (const RateTrial& trial : entry.trials) {
      Json row = about;
      row["lr"] = trial.rate;
      row["runs"] = trial.runs;
      row["diverged"] = trial.diverged;
      row["mean"] = trial.runs > trial.diverged ? NumberJson(trial.mean) : Json();
      tuning.push_back(std::move(row));
    }
    Json row = std::move(about);
    row["rank"] = entry.values.empty() ? Json() : Json(++rank);
    row["lr"] = entry.chosen ? Json(entry.rate()) : Json();
    row["metric"] = arena.metric->name;
    row["value"] = EstimateJson(entry.estimate);
    row["behind"] = EstimateJson(entry.behind);
    row["behind"]["seeds_and_items"] = SeedsAndItemsJson(*arena.metric, TwoWayBehind(arena, entry));
    row["least_clear_difference"] = NumberJson(entry.bound);
    row["worse"] = entry.is_told_apart;
    row["finished"] = entry.values.size();
    row["diverged"] = entry.diverged;
    row["seconds_per_step"] = NumberJson(entry.seconds_per_step);
    entries.push_back(std::move(row));
  }
}

void AddLooks(const SequentialTests& tests, JsonRows& rows) {
  for (const SequentialTest& test : tests.tests) {
    Json contrast = Json::object();
    for (const auto& [norm, weight] : test.contrast) contrast[norm] = weight;
    for (const Look& look : test.looks) {
      rows.push_back({{"paper", tests.paper},
                      {"column", test.column},
                      {"contrast", contrast.dump()},
                      {"margin", NumberJson(test.margin)},
                      {"planned_seeds", test.planned},
                      {"seeds", look.seeds},
                      {"p", look.p},
                      {"level", look.level},
                      {"sign", look.sign}});
    }
  }
}

void AddTheory(const TheoryResult& result, JsonRows& statements, JsonRows& values) {
  for (const TheoryStatement& statement : result.statements) {
    statements.push_back({{"analysis", result.name},
                          {"source", statement.source},
                          {"statement", statement.text},
                          {"verdict", TextOf(statement.verdict)},
                          {"measured", statement.measured}});
  }
  for (const TheoryTable& table : result.tables) {
    for (size_t r = 0; r < table.rows.size(); ++r) {
      for (size_t c = 0; c < table.head.size(); ++c) {
        const TheoryCell& cell = table.rows[r][c];
        const auto* number = std::get_if<double>(&cell);
        values.push_back({{"analysis", result.name},
                          {"table", table.caption},
                          {"row", r + 1},
                          {"column", table.head[c]},
                          {"value", number ? NumberJson(*number) : Json(TextOf(cell))}});
      }
    }
  }
}

}  // namespace

std::vector<NumbersTable> NumbersOf(const std::vector<Run>& runs, const ReportExtras& extras) {
  const Contents contents = ContentsOf(runs);
  JsonRows metrics, differences, targets, curves, task_claims, paper_claims, claim_columns, power,
      paper_tables, invariances, looks, arena, tuning, statements, theory_values;
  for (const Section& section : contents.sections) {
    AddMetrics(section, metrics);
    for (const Panel& panel : section.panels) {
      AddDifferences(section, panel, differences);
      AddTargets(section, panel, targets);
      AddCurves(section, panel, curves);
    }
    AddTaskClaims(section, task_claims);
  }
  for (const Reproduction& reproduction : FindReproductions(contents.sections, extras.looks)) {
    AddPaperClaims(reproduction, paper_claims, claim_columns);
    AddPower(reproduction, power);
    AddPaperTables(reproduction, paper_tables);
    AddInvariances(*reproduction.paper, invariances);
    if (reproduction.looks) AddLooks(*reproduction.looks, looks);
  }
  for (const ArenaTask& of_task : contents.arenas) AddArena(of_task, arena, tuning);
  for (const TheoryResult& result : extras.theory) AddTheory(result, statements, theory_values);
  return {{"groups", GroupRows(contents.sections)},
          {"metrics", std::move(metrics)},
          {"differences", std::move(differences)},
          {"targets", std::move(targets)},
          {"curves", std::move(curves)},
          {"claims", std::move(task_claims)},
          {"paper_claims", std::move(paper_claims)},
          {"paper_claim_columns", std::move(claim_columns)},
          {"power", std::move(power)},
          {"paper_tables", std::move(paper_tables)},
          {"invariances", std::move(invariances)},
          {"looks", std::move(looks)},
          {"arena", std::move(arena)},
          {"tuning", std::move(tuning)},
          {"theory_statements", std::move(statements)},
          {"theory_values", std::move(theory_values)}};
}

std::string NumbersJson(const std::vector<NumbersTable>& tables) {
  Json json = {{"format", "planish-report/1"}};
  for (const NumbersTable& table : tables) json[table.name] = table.rows;
  return DumpJson(json, 1) + "\n";
}

}  // namespace planish::lab
