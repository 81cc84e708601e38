#ifndef PLANISH_LAB_TASKS_SENTENCES_LABELLED_TABLES_H_
#define PLANISH_LAB_TASKS_SENTENCES_LABELLED_TABLES_H_

#include <cstdint>
#include <filesystem>
#include <string>

#include "lab/data/class_split.h"
#include "lab/data/sentences.h"

namespace planish::lab {

/// Choices of ReadLabelledTables. An empty column is chosen by name or content.
struct LabelledTables {
  std::string text;       ///< column of the sentences, by name or number
  std::string label;      ///< column of the classes
  std::string split;      ///< column of the sets
  bool header = true;     ///< the first line of CSV and TSV names the columns
  SplitOptions sets;      ///< sets that are drawn
  int64_t longest = 128;  ///< maximum number of words of a sentence
};

/// Reads sentences and their classes from tables (lab/data/table.h). `path` is a table, or a folder
/// that has tables itself or in a folder `sentences`: one table, or train.*, valid.* (or dev.*,
/// val.*) and test.*.
///
/// A file or the column `split` determines the set of a row, with the values train or training,
/// valid, validation, val or dev, and test. Validation or test sentences that neither determines
/// are drawn from the training rows at random, the same share of each class. Each class keeps a
/// training sentence. Drawing shuffles the training sentences; otherwise they keep their order.
/// More than `sets.max_train` are reduced to a random choice in their order.
///
/// Classes are the distinct labels without blanks at their ends, in the order of their numbers if
/// all are whole numbers, else of their bytes.
///
/// Throws DataError, naming file and line, for an empty text or label, another value in `split`, a
/// label that only one row has or that no training row has, and like ReadTable. Throws it also if
/// a column or a file is missing or not clear, or if all rows have one label. Throws UsageError if
/// `split` is given and the folder has a file for validation or test.
SentenceSets ReadLabelledTables(const std::filesystem::path& path, const LabelledTables& options);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_SENTENCES_LABELLED_TABLES_H_
