#include "lab/papers/paper.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lab/error.h"

namespace planish::lab {

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

const std::vector<Paper>& Papers() {
  static const std::vector<Paper> papers = {MakeXu2019(), MakeBa2016()};
  return papers;
}

const Paper& FindPaper(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Paper& paper : Papers()) {
    if (paper.name == name) return paper;
    names.push_back(paper.name);
  }
  throw UsageError(
      fmt::format("[reproduce] paper must be one of {}, got \"{}\"", fmt::join(names, ", "), name));
}

}  // namespace planish::lab
