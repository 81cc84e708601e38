#include "lab/theory/result.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "lab/analysis/format.h"
#include "lab/run/json.h"

namespace planish::lab {
namespace {

nlohmann::ordered_json ToJson(const TheoryCell& cell) {
  if (const auto* text = std::get_if<std::string>(&cell)) return *text;
  return std::get<double>(cell);
}

std::string_view EscapeOf(TheoryVerdict verdict) {
  switch (verdict) {
    case TheoryVerdict::kHolds:
      return "32";
    case TheoryVerdict::kFails:
      return "31";
    case TheoryVerdict::kHoldsCorrected:
    case TheoryVerdict::kHoldsInPart:
    case TheoryVerdict::kCannotTell:
      break;
  }
  return "33";
}

using Json = nlohmann::ordered_json;

double NumberOf(const Json& json) {
  return json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
}

const Json& ArrayAt(const Json& json, const char* key) {
  const Json& array = json.at(key);
  if (!array.is_array()) throw std::invalid_argument(fmt::format("\"{}\" is no array", key));
  return array;
}

TheoryTable TableOf(const Json& json) {
  TheoryTable table{.caption = json.at("caption").get<std::string>(),
                    .head = json.at("head").get<std::vector<std::string>>(),
                    .rows = {}};
  for (const Json& cells : ArrayAt(json, "rows")) {
    auto& row = table.rows.emplace_back();
    for (const Json& cell : cells) {
      row.push_back(cell.is_string() ? TheoryCell(cell.get<std::string>())
                                     : TheoryCell(NumberOf(cell)));
    }
    if (row.size() != table.head.size()) {
      throw std::invalid_argument(fmt::format("a row of \"rows\" has {} cells in place of {}",
                                              row.size(), table.head.size()));
    }
  }
  return table;
}

TheoryChart ChartOf(const Json& json) {
  TheoryChart chart{.heading = json.at("heading").get<std::string>(),
                    .x_label = json.at("x_label").get<std::string>(),
                    .y_label = json.at("y_label").get<std::string>(),
                    .log_x = json.at("log_x").get<bool>(),
                    .log_y = json.at("log_y").get<bool>(),
                    .lines = {}};
  for (const Json& line : ArrayAt(json, "lines")) {
    TheoryLine& added = chart.lines.emplace_back(line.at("name").get<std::string>());
    for (const Json& point : ArrayAt(line, "points")) {
      if (point.size() != 2) throw std::invalid_argument("a point has no two numbers");
      added.points.emplace_back(NumberOf(point.at(0)), NumberOf(point.at(1)));
    }
  }
  return chart;
}

}  // namespace

std::string TextOf(const TheoryCell& cell) {
  if (const auto* text = std::get_if<std::string>(&cell)) return *text;
  const double value = std::get<double>(cell);
  return std::isfinite(value) ? FormatSignificant(value, 3) : "-";
}

std::string_view TextOf(TheoryVerdict verdict) {
  switch (verdict) {
    case TheoryVerdict::kHolds:
      return "holds";
    case TheoryVerdict::kHoldsCorrected:
      return "holds with a correction";
    case TheoryVerdict::kHoldsInPart:
      return "holds in part";
    case TheoryVerdict::kFails:
      return "does not hold";
    case TheoryVerdict::kCannotTell:
      break;
  }
  return "cannot tell";
}

TheoryVerdict VerdictOf(int right, int wrong, int all) {
  if (right == all) return TheoryVerdict::kHolds;
  if (right > 0) return TheoryVerdict::kHoldsInPart;
  return wrong > 0 ? TheoryVerdict::kFails : TheoryVerdict::kCannotTell;
}

void AddCells(const Estimate& estimate, std::vector<TheoryCell>& row) {
  row.emplace_back(estimate.count > 0 ? estimate.mean : NAN);
  row.emplace_back(estimate.half_width.value_or(NAN));
}

nlohmann::ordered_json ToJson(const TheoryResult& result) {
  Json statements = Json::array(), tables = Json::array(), charts = Json::array();
  for (const TheoryStatement& statement : result.statements) {
    statements.push_back({{"source", statement.source},
                          {"text", statement.text},
                          {"verdict", TextOf(statement.verdict)},
                          {"measured", statement.measured}});
  }
  for (const TheoryTable& table : result.tables) {
    Json rows = Json::array();
    for (const auto& row : table.rows) {
      Json cells = Json::array();
      for (const TheoryCell& cell : row) cells.push_back(ToJson(cell));
      rows.push_back(std::move(cells));
    }
    tables.push_back({{"caption", table.caption}, {"head", table.head}, {"rows", std::move(rows)}});
  }
  for (const TheoryChart& chart : result.charts) {
    Json lines = Json::array();
    for (const TheoryLine& line : chart.lines) {
      Json points = Json::array();
      for (const auto& [x, y] : line.points) points.push_back({x, y});
      lines.push_back({{"name", line.name}, {"points", std::move(points)}});
    }
    charts.push_back({{"heading", chart.heading},
                      {"x_label", chart.x_label},
                      {"y_label", chart.y_label},
                      {"log_x", chart.log_x},
                      {"log_y", chart.log_y},
                      {"lines", std::move(lines)}});
  }
  return {{"analysis", result.name},     {"title", result.title},
          {"settings", result.settings}, {"statements", std::move(statements)},
          {"tables", std::move(tables)}, {"charts", std::move(charts)}};
}

TheoryResult TheoryFromJson(const Json& json) {
  TheoryResult result{.name = json.at("analysis").get<std::string>(),
                      .title = json.at("title").get<std::string>(),
                      .settings = json.at("settings"),
                      .statements = {},
                      .tables = {},
                      .charts = {}};
  if (!result.settings.is_object()) throw std::invalid_argument("\"settings\" is no object");
  for (const Json& statement : ArrayAt(json, "statements")) {
    const auto text = statement.at("verdict").get<std::string>();
    const auto* verdict =
        std::ranges::find(kTheoryVerdicts, text, [](TheoryVerdict v) { return TextOf(v); });
    if (verdict == kTheoryVerdicts.end()) {
      throw std::invalid_argument(fmt::format("unknown verdict {}", BriefText(text)));
    }
    result.statements.push_back({.source = statement.at("source").get<std::string>(),
                                 .text = statement.at("text").get<std::string>(),
                                 .verdict = *verdict,
                                 .measured = statement.at("measured").get<std::string>()});
  }
  for (const Json& table : ArrayAt(json, "tables")) result.tables.push_back(TableOf(table));
  for (const Json& chart : ArrayAt(json, "charts")) result.charts.push_back(ChartOf(chart));
  return result;
}

std::string RenderTheory(const TheoryResult& result, const TableOptions& options) {
  const auto width = static_cast<size_t>(options.width < 20 ? 20 : options.width);
  std::string text = Painted(result.title, "1", options.colour) + "\n";
  for (const TheoryTable& table : result.tables) {
    text += "\n" + Wrapped(table.caption, width, "");
    std::vector<std::vector<std::string>> rows = {table.head};
    for (const auto& row : table.rows) {
      std::vector<std::string>& cells = rows.emplace_back();
      for (const TheoryCell& cell : row) cells.push_back(TextOf(cell));
    }
    text += Aligned(std::move(rows), options);
  }
  for (const TheoryStatement& statement : result.statements) {
    text += "\n" + Wrapped(fmt::format("{} ({})", statement.text, statement.source), width, "") +
            "  " +
            Painted(std::string(TextOf(statement.verdict)), EscapeOf(statement.verdict),
                    options.colour) +
            "\n  " + Wrapped(statement.measured, width - 2, "  ");
  }
  return text;
}

}  // namespace planish::lab
