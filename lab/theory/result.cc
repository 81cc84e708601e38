#include "lab/theory/result.h"

#include <fmt/format.h>

#include "lab/analysis/format.h"

namespace planish::lab {
namespace {

std::string TextOf(const TheoryCell& cell) {
  if (const auto* text = std::get_if<std::string>(&cell)) return *text;
  return FormatSignificant(std::get<double>(cell), 3);
}

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

}  // namespace

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

nlohmann::ordered_json ToJson(const TheoryResult& result) {
  using Json = nlohmann::ordered_json;
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
