#include "lab/run/item_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <stdexcept>

namespace planish::lab {

namespace {

using Row = std::span<const int64_t>;

// Returns the first sum divided by the second.
double Ratio(std::span<const int64_t> sums) {
  if (sums[1] == 0) return std::numeric_limits<double>::quiet_NaN();
  return static_cast<double>(sums[0]) / static_cast<double>(sums[1]);
}

std::vector<int64_t> WhetherRight(Row row) { return {row[0] == row[1], 1}; }
std::vector<int64_t> WhetherWrong(Row row) { return {row[0] != row[1], 1}; }
std::vector<int64_t> HeadsAndWords(Row row) { return {row[1], row[0]}; }

double BleuOfSums(std::span<const int64_t> sums) {
  BleuCounts counts;
  counts.reference_tokens = sums[0];
  std::ranges::copy(sums.subspan(1, kBleuOrders), counts.total.begin());
  std::ranges::copy(sums.subspan(1 + kBleuOrders), counts.correct.begin());
  return BleuOf(counts).score;
}

std::vector<std::string> BleuColumns() {
  std::vector<std::string> columns = {"reference_tokens"};
  for (const char* count : {"total", "correct"}) {
    for (size_t n = 1; n <= kBleuOrders; ++n) columns.push_back(fmt::format("{}_{}", count, n));
  }
  return columns;
}

}  // namespace

Predictions BleuPredictions(std::span<const BleuCounts> sentences) {
  std::vector<std::vector<int64_t>> values(1 + 2 * kBleuOrders);
  for (const BleuCounts& sentence : sentences) {
    values[0].push_back(sentence.reference_tokens);
    for (size_t n = 0; n < kBleuOrders; ++n) {
      values[1 + n].push_back(sentence.total[n]);
      values[1 + kBleuOrders + n].push_back(sentence.correct[n]);
    }
  }
  return PredictionsOf(BleuColumns(), std::move(values));
}

const ItemMetric* FindItemMetric(std::string_view name) {
  static const std::vector<ItemMetric> metrics = {
      {"test_accuracy", {kLabelColumn, kPredictionColumn}, 1, WhetherRight, Ratio},
      {"test_error", {kLabelColumn, kPredictionColumn}, 1, WhetherWrong, Ratio},
      {"test_uas", {kWordsColumn, kHeadsColumn}, 1, HeadsAndWords, Ratio},
      {"test_las", {kWordsColumn, kLabelledHeadsColumn}, 1, HeadsAndWords, Ratio},
      {"test_bleu", BleuColumns(), 1, [](Row row) { return std::vector(row.begin(), row.end()); },
       BleuOfSums},
  };
  const auto found = std::ranges::find(metrics, name, &ItemMetric::name);
  return found == metrics.end() ? nullptr : &*found;
}

std::vector<std::vector<int64_t>> PartsOf(const ItemMetric& metric,
                                          const Predictions& predictions) {
  std::vector<const std::vector<int64_t>*> columns;
  for (const std::string& name : metric.columns) {
    columns.push_back(predictions.Find(name));
    if (!columns.back()) throw std::invalid_argument(fmt::format("the column {} is missing", name));
  }
  std::vector<std::vector<int64_t>> parts;
  std::vector<int64_t> row(columns.size());
  for (size_t i = 0; i < predictions.items.size(); ++i) {
    for (size_t c = 0; c < columns.size(); ++c) row[c] = (*columns[c])[i];
    const std::vector<int64_t> of_row = metric.parts(row);
    parts.resize(of_row.size());
    for (size_t p = 0; p < of_row.size(); ++p) parts[p].push_back(of_row[p]);
  }
  return parts;
}

double ValueOf(const ItemMetric& metric, const Predictions& predictions) {
  std::vector<int64_t> sums;
  for (const std::vector<int64_t>& part : PartsOf(metric, predictions)) {
    // Files can have any values: sums of them wrap around instead of overflowing.
    sums.push_back(static_cast<int64_t>(
        std::accumulate(part.begin(), part.end(), uint64_t{0},
                        [](uint64_t a, int64_t b) { return a + static_cast<uint64_t>(b); })));
  }
  return metric.value(sums);
}

}  // namespace planish::lab
