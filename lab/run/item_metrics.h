#ifndef PLANISH_LAB_RUN_ITEM_METRICS_H_
#define PLANISH_LAB_RUN_ITEM_METRICS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/base/bleu_counts.h"
#include "lab/run/predictions.h"

// Metrics of the test set that follow from Predictions.
namespace planish::lab {

/// Columns of a classifier: the item's class, and the class that the model found.
inline constexpr char kLabelColumn[] = "label";
inline constexpr char kPredictionColumn[] = "prediction";

/// Columns of a parser: words of the sentence that count, those with the right head, and of these
/// those with the right relation.
inline constexpr char kWordsColumn[] = "words";
inline constexpr char kHeadsColumn[] = "heads";
inline constexpr char kLabelledHeadsColumn[] = "labelled_heads";

/// Returns predictions of a translator: the columns reference_tokens, and for n from 1 to 4 total_n
/// and correct_n, as in BleuCounts.
Predictions BleuPredictions(std::span<const BleuCounts> sentences);

/// Metric that is computed from sums over the items.
struct ItemMetric {
  std::string_view name;  ///< of a MetricSpec, such as "test_accuracy"
  /// Columns that it needs. The data decide the first `given` of them, and the model the others.
  std::vector<std::string> columns;
  size_t given = 0;
  /// Returns a row's parts in the sums, from its values in `columns`.
  std::vector<int64_t> (*parts)(std::span<const int64_t> row);
  /// Returns the metric of summed parts; NaN if it has none, such as an accuracy without items.
  double (*value)(std::span<const int64_t> sums);
};

/// Returns the item metric with that name, or null.
const ItemMetric* FindItemMetric(std::string_view name);

/// Returns the parts of the metric: a vector for each part, with an element for each row. Throws
/// std::invalid_argument naming a column that the predictions lack.
std::vector<std::vector<int64_t>> PartsOf(const ItemMetric& metric, const Predictions& predictions);

/// Returns the metric over all items. Throws like PartsOf.
double ValueOf(const ItemMetric& metric, const Predictions& predictions);

}  // namespace planish::lab

#endif  // PLANISH_LAB_RUN_ITEM_METRICS_H_
