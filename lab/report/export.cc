#include "lab/report/export.h"

#include <optional>
#include <string_view>

#include "lab/analysis/summary.h"
#include "lab/analysis/two_way.h"

namespace planish::lab {
namespace {

using Json = nlohmann::ordered_json;

Json DataJson(const RunConfig::Data& data) {
  return {{"name", data.name}, {"sha256", data.sha256}};
}

Json GroupJson(const Section& section, const Group& group) {
  const Json all = AllSettings(group.runs.front()->config);
  Json settings = Json::object();
  for (const auto& [name, values] : section.varying) {
    settings[name] = all.value(name, Json());
  }
  Json metrics = Json::object();
  for (const MetricSpec& metric : section.config->metrics) {
    metrics[metric.name] = {
        {"final", EstimateJson(EstimateMean(ValuesOf(group, metric.name, Measure::kFinal)))},
        {"best", EstimateJson(EstimateMean(ValuesOf(group, metric.name, Measure::kBest)))}};
    if (!FindItemMetric(metric.name)) continue;
    const std::optional<TwoWayInterval> interval = TwoWayOf({&group}, {1}, metric).interval;
    metrics[metric.name]["best"]["seeds_and_items"] = {
        {"low", interval ? Json(interval->low) : Json()},
        {"high", interval ? Json(interval->high) : Json()},
        {"items", interval ? Json(interval->items) : Json()}};
  }
  return {{"task", section.config->task},
          {"data", DataJson(section.config->data)},
          {"compared", section.config->report.compare},
          {"value", group.value},
          {"settings", std::move(settings)},
          {"seeds",
           {{"total", group.runs.size()},
            {"finished", group.CountOf(Status::kFinished)},
            {"diverged", group.CountOf(Status::kDiverged)}}},
          {"metrics", std::move(metrics)},
          {"seconds", EstimateJson(TrainingSeconds(group))}};
}

Json RunJson(const Run& run) {
  const RunConfig& config = run.config;
  Json row = {{"folder", run.folder.string()},
              {"task", config.task},
              {"data", DataJson(config.data)},
              {"seed", config.seed},
              {"status", NameOf(StatusOf(run))},
              {"settings", AllSettings(config)},
              {"steps", nullptr},
              {"seconds", nullptr},
              {"cpu_seconds", nullptr},
              {"parameters", nullptr},
              {"best_by", nullptr},
              {"best_step", nullptr}};
  if (run.result) {
    row["steps"] = run.result->steps;
    row["seconds"] = run.result->seconds;
    if (run.result->cpu_seconds) row["cpu_seconds"] = *run.result->cpu_seconds;
    row["parameters"] = run.result->parameters;
    if (run.result->best) {
      row["best_by"] = run.result->best->by;
      row["best_step"] = run.result->best->step;
    }
  } else if (!run.evaluations.empty()) {
    row["steps"] = run.evaluations.back().step;
    row["seconds"] = run.evaluations.back().seconds;
  }
  Json final_values = Json::object(), best = Json::object();
  const auto at = [](const std::map<std::string, double>& values, const std::string& name) {
    const auto value = values.find(name);
    return value == values.end() ? Json() : Json(value->second);
  };
  for (const MetricSpec& metric : config.metrics) {
    final_values[metric.name] = run.result ? at(run.result->final_values, metric.name) : Json();
    best[metric.name] =
        run.result && run.result->best ? at(run.result->best->values, metric.name) : Json();
  }
  row["final"] = std::move(final_values);
  row["best"] = std::move(best);
  return row;
}

std::vector<Json> Rows(const std::vector<Run>& runs, ExportRow row) {
  if (row == ExportRow::kGroup) return GroupRows(Summarize(runs));
  std::vector<Json> rows;
  for (const Run& run : runs) rows.push_back(RunJson(run));
  return rows;
}

// Adds the keys of `row` to `columns`, a tree in the order in which keys first occur. The values of
// settings are leaves: a run can have an object there.
void AddColumns(Json& columns, const Json& row, bool is_row = true, bool has_leaves = false) {
  for (const auto& [key, value] : row.items()) {
    Json& column = columns[key];
    if (has_leaves || !value.is_object()) continue;
    if (column.is_null()) column = Json::object();
    AddColumns(column, value, /*is_row=*/false, is_row && key == "settings");
  }
}

std::string CsvField(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string field = "\"";
  for (const char c : text) field += c == '"' ? std::string("\"\"") : std::string(1, c);
  return field + "\"";
}

// Returns a value as a field. Strings have no quotes of JSON; invalid UTF-8 becomes U+FFFD as
// there.
std::string ValueField(const Json& value) {
  if (value.is_null()) return "";
  if (!value.is_string()) return CsvField(DumpJson(value));
  return CsvField(Json::parse(DumpJson(value)).get<std::string>());
}

// Appends a field for each leaf of `columns`: its name, or with `row` its value there.
void AddFields(std::vector<std::string>& fields, const Json& columns, const Json* row,
               const std::string& prefix = "") {
  for (const auto& [key, column] : columns.items()) {
    static const Json kMissing;
    const Json* value = nullptr;
    if (row != nullptr) {
      value = row->is_object() && row->contains(key) ? &row->at(key) : &kMissing;
    }
    if (column.is_object()) {
      AddFields(fields, column, value, prefix + key + ".");
    } else {
      fields.push_back(value != nullptr ? ValueField(*value) : CsvField(prefix + key));
    }
  }
}

std::string CsvLine(const Json& columns, const Json* row) {
  std::vector<std::string> fields;
  AddFields(fields, columns, row);
  std::string line;
  for (size_t i = 0; i < fields.size(); ++i) line += (i > 0 ? "," : "") + fields[i];
  return line + "\r\n";
}

}  // namespace

std::string DumpJson(const Json& value, int indent) {
  return value.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

Json EstimateJson(const Estimate& estimate) {
  if (estimate.count == 0) return {{"mean", nullptr}, {"half_width", nullptr}};
  Json half_width;
  if (estimate.half_width) half_width = *estimate.half_width;
  return {{"mean", estimate.mean}, {"half_width", half_width}};
}

std::vector<Json> GroupRows(const std::vector<Section>& sections) {
  std::vector<Json> rows;
  for (const Section& section : sections) {
    for (const Panel& panel : section.panels) {
      for (const Group& group : panel.groups) rows.push_back(GroupJson(section, group));
    }
  }
  return rows;
}

std::string CsvOf(const std::vector<Json>& rows) {
  Json columns = Json::object();
  for (const Json& each : rows) AddColumns(columns, each);
  std::string text = CsvLine(columns, nullptr);
  for (const Json& each : rows) text += CsvLine(columns, &each);
  return text;
}

std::string RenderJson(const std::vector<Run>& runs, ExportRow row) {
  const bool is_runs = row == ExportRow::kRun;
  return DumpJson({{"format", is_runs ? "planish-runs/1" : "planish-groups/1"},
                   {is_runs ? "runs" : "groups", Rows(runs, row)}},
                  1) +
         "\n";
}

std::string RenderCsv(const std::vector<Run>& runs, ExportRow row) {
  return CsvOf(Rows(runs, row));
}

}  // namespace planish::lab
