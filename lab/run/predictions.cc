#include "lab/run/predictions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <numeric>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "lab/base/escape.h"
#include "lab/run/gzip.h"

namespace planish::lab {

namespace {

constexpr std::string_view kItem = "item";

// Splits a line at its commas.
std::vector<std::string_view> FieldsOf(std::string_view line) {
  std::vector<std::string_view> fields;
  for (size_t begin = 0;;) {
    const size_t end = std::min(line.find(',', begin), line.size());
    fields.push_back(line.substr(begin, end - begin));
    if (end == line.size()) return fields;
    begin = end + 1;
  }
}

// Returns a whole number of 0 or more. Throws std::invalid_argument for other texts.
int64_t WholeNumber(std::string_view text, int64_t line) {
  int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    throw std::invalid_argument(
        fmt::format("line {}: the fields must be whole numbers, got {}", line, Quoted(text, 24)));
  }
  return value;
}

// Returns the line's columns. Throws std::invalid_argument unless they have distinct names.
std::vector<std::string> ColumnsOf(std::string_view line) {
  std::vector<std::string> columns;
  for (const std::string_view name : FieldsOf(line)) {
    if (name.empty() || std::ranges::find(columns, name) != columns.end()) {
      throw std::invalid_argument(fmt::format(
          "line 1 must have the distinct names of the columns, got {}", Quoted(line, 80)));
    }
    columns.emplace_back(name);
  }
  return columns;
}

}  // namespace

const std::vector<int64_t>* Predictions::Find(std::string_view column) const {
  const auto found = std::ranges::find(columns, column);
  return found == columns.end() ? nullptr : &values[static_cast<size_t>(found - columns.begin())];
}

Predictions PredictionsOf(std::vector<std::string> columns,
                          std::vector<std::vector<int64_t>> values) {
  Predictions predictions{std::move(columns), std::move(values), {}};
  predictions.items.resize(predictions.values.front().size());
  std::iota(predictions.items.begin(), predictions.items.end(), int64_t{0});
  return predictions;
}

std::string PackPredictions(const Predictions& predictions) {
  std::vector<size_t> order(predictions.items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t row) { return predictions.items[row]; });
  bool is_numbered = true;
  for (size_t row = 0; row < order.size(); ++row) {
    is_numbered &= std::cmp_equal(predictions.items[order[row]], row);
  }
  std::string text = is_numbered ? "" : std::string(kItem) + ",";
  fmt::format_to(std::back_inserter(text), "{}\n", fmt::join(predictions.columns, ","));
  for (const size_t row : order) {
    if (!is_numbered) fmt::format_to(std::back_inserter(text), "{},", predictions.items[row]);
    for (size_t column = 0; column < predictions.columns.size(); ++column) {
      fmt::format_to(std::back_inserter(text), "{}{}", column == 0 ? "" : ",",
                     predictions.values[column][row]);
    }
    text += '\n';
  }
  return PackGzip(text);
}

Predictions UnpackPredictions(std::string_view packed) {
  const std::string text = UnpackGzip(packed, kMaxPredictionsBytes);
  if (!text.ends_with('\n')) throw std::invalid_argument("its last line has no end");
  size_t end = text.find('\n');
  Predictions predictions;
  predictions.columns = ColumnsOf(std::string_view(text).substr(0, end));
  const size_t fields = predictions.columns.size();
  const bool has_items = predictions.columns.front() == kItem;
  if (has_items) predictions.columns.erase(predictions.columns.begin());
  if (predictions.columns.empty()) throw std::invalid_argument("it has only the column item");
  predictions.values.resize(predictions.columns.size());
  int64_t line = 1;
  for (size_t begin = end + 1; begin < text.size(); begin = end + 1) {
    ++line;
    end = text.find('\n', begin);
    const auto row = FieldsOf(std::string_view(text).substr(begin, end - begin));
    if (row.size() != fields) {
      throw std::invalid_argument(
          fmt::format("line {} must have {} fields, got {}", line, fields, row.size()));
    }
    const int64_t item = has_items ? WholeNumber(row[0], line) : predictions.size();
    if (!predictions.items.empty() && item <= predictions.items.back()) {
      throw std::invalid_argument(fmt::format("line {}: items must ascend, got {} after {}", line,
                                              item, predictions.items.back()));
    }
    predictions.items.push_back(item);
    for (size_t i = 0; i < predictions.columns.size(); ++i) {
      predictions.values[i].push_back(WholeNumber(row[i + (has_items ? 1 : 0)], line));
    }
  }
  if (predictions.items.empty()) throw std::invalid_argument("it has no rows");
  return predictions;
}

}  // namespace planish::lab
