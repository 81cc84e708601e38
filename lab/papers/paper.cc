#include "lab/papers/paper.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "lab/error.h"

namespace planish::lab {

PaperColumn NewColumn(const std::string& name, const std::string& label, const std::string& task,
                      const std::string& metric, const std::string& unit) {
  PaperColumn column;
  column.name = name;
  column.label = label;
  column.task = task;
  column.metric = metric;
  column.unit = unit;
  return column;
}

int PaperColumn::Decimals() const {
  for (int decimals = 1; decimals < 3; ++decimals) {
    if (std::ranges::all_of(printed, [&](const auto& value) {
          const double scaled = value.second * std::pow(10, decimals);
          return std::isnan(scaled) || std::abs(scaled - std::round(scaled)) < 1e-6;
        })) {
      return decimals;
    }
  }
  return 3;
}

std::string PaperColumn::PrintedText(double value) const {
  if (std::isnan(value)) return "diverged";
  return fmt::format("{:.{}f}", value, Decimals());
}

std::string PaperColumn::WithPrinted(std::string_view text) const {
  std::string filled;
  for (size_t open; (open = text.find('{')) != std::string_view::npos;) {
    const size_t close = text.find('}', open);
    const auto value = printed.find(std::string(text.substr(open + 1, close - open - 1)));
    if (close == std::string_view::npos || value == printed.end()) {
      throw std::logic_error(fmt::format("[WithPrinted] {} prints no such value: {}", name, text));
    }
    filled += text.substr(0, open);
    filled += PrintedText(value->second);
    text.remove_prefix(close + 1);
  }
  return filled.append(text);
}

const PaperColumn* Paper::FindColumn(std::string_view column) const {
  const auto found = std::ranges::find(columns, column, &PaperColumn::name);
  return found == columns.end() ? nullptr : &*found;
}

const PaperRow* Paper::FindRow(std::string_view norm) const {
  const auto found = std::ranges::find(rows, norm, &PaperRow::norm);
  return found == rows.end() ? nullptr : &*found;
}

std::optional<double> Paper::Printed(std::string_view norm, const PaperColumn& column) const {
  const auto value = column.printed.find(std::string(norm));
  return value == column.printed.end() ? std::nullopt : std::optional(value->second);
}

bool PaperTable::Has(const PaperColumn& column) const {
  return columns.empty() || std::ranges::find(columns, column.name) != columns.end();
}

std::optional<double> Paper::PrintedContrast(const PaperColumn& column,
                                             const Contrast& contrast) const {
  double sum = 0;
  for (const auto& [norm, weight] : contrast) {
    const std::optional<double> value = Printed(norm, column);
    if (!value || std::isnan(*value)) return std::nullopt;
    sum += weight * *value;
  }
  return sum;
}

double Paper::MarginOf(const PaperColumn& column, const Contrast& contrast) const {
  return std::max(std::abs(PrintedContrast(column, contrast).value_or(0)) / 2,
                  column.sampling_error.value_or(0));
}

const std::vector<Paper>& Papers() {
  static const std::vector<Paper> papers = {MakeXu2019(), MakeBa2016()};
  return papers;
}

std::vector<ClaimSpec> ClaimsOf(std::string_view task) {
  std::vector<ClaimSpec> specs;
  for (const Paper& paper : Papers()) {
    for (const TaskClaims& of : paper.task_claims) {
      const PaperColumn& column = *paper.FindColumn(of.column);
      if (column.task != task) continue;
      for (const TaskClaims::Claim& claim : of.claims) {
        specs.push_back({.text = column.WithPrinted(claim.text),
                         .source = of.source + column.WithPrinted(claim.source),
                         .metric = claim.metric.empty() ? column.metric : claim.metric,
                         .measure = claim.measure,
                         .better = claim.better,
                         .worse = claim.worse,
                         .where = of.where,
                         .data = of.data.empty() ? column.data : of.data,
                         .no_worse = claim.no_worse,
                         .margin = paper.MarginOf(column, {{claim.better, 1}, {claim.worse, -1}})});
      }
    }
  }
  return specs;
}

const Paper& FindPaper(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Paper& paper : Papers()) {
    if (paper.name == name) return paper;
    names.push_back(paper.name);
  }
  names.emplace_back(kArenaName);
  throw UsageError(
      fmt::format("[reproduce] paper must be one of {}, got \"{}\"", fmt::join(names, ", "), name));
}

}  // namespace planish::lab
