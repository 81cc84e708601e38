#ifndef PLANISH_LAB_RUN_PREDICTIONS_H_
#define PLANISH_LAB_RUN_PREDICTIONS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// predictions.csv.gz of a run: what the model did with each item of the test set
// (docs/files.md#predictionscsvgz).
namespace planish::lab {

/// Results for the items of a test set, such as images or sentences, with the weights that
/// validation chose. An item has a row.
struct Predictions {
  std::vector<std::string> columns;          ///< names, such as "label" and "prediction"
  std::vector<std::vector<int64_t>> values;  ///< of each column: one for each row, 0 or more
  /// Index of each row's item in its data. All runs of a task on the same data number the items
  /// equally, whatever their norm and seed.
  std::vector<int64_t> items;

  int64_t size() const { return static_cast<int64_t>(items.size()); }

  /// Returns the values of a column, or null if there is none of that name.
  const std::vector<int64_t>* Find(std::string_view column) const;

  bool operator==(const Predictions&) const = default;
};

/// Returns predictions of the items 0, 1, ... with these columns, which must have equal sizes.
Predictions PredictionsOf(std::vector<std::string> columns,
                          std::vector<std::vector<int64_t>> values);

/// Name of the file in a run's folder.
inline constexpr char kPredictionsFile[] = "predictions.csv.gz";

/// Maximum size of the file in bytes, packed and unpacked.
inline constexpr int64_t kMaxPredictionsBytes = int64_t{64} << 20;

/// Returns the content of the file: a gzip file of a CSV table, its rows ordered by item. The
/// column `item` is left out if the items are 0, 1, ...
std::string PackPredictions(const Predictions& predictions);

/// Returns the predictions of such a content. Throws std::invalid_argument with the reason if it is
/// damaged or not such a table.
Predictions UnpackPredictions(std::string_view packed);

}  // namespace planish::lab

#endif  // PLANISH_LAB_RUN_PREDICTIONS_H_
