#ifndef PLANISH_LAB_DATA_TABLE_H_
#define PLANISH_LAB_DATA_TABLE_H_

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/data/sha256.h"

// Tables in text files: CSV, TSV and JSON Lines, plain or gzip (docs/tasks/sentences.md).
namespace planish::lab {

/// Row of a table, as many fields as the table has columns. A field is nullopt in JSON Lines if the
/// object lacks the key, or if its value is null, an array or an object.
struct TableRow {
  int64_t line = 0;  ///< number of its first line in the file, from 1
  std::vector<std::optional<std::string>> fields;
};

struct Table {
  std::filesystem::path file;
  std::vector<std::string> columns;  ///< names, or "1", "2", ... without a header
  std::vector<TableRow> rows;
  int64_t empty = 0;  ///< empty lines, left out

  /// Returns the index of the column called `name`, else of the column with that number, from 1.
  /// Throws DataError naming all columns if there is neither.
  size_t Column(std::string_view name) const;

  /// Returns the names of the columns for a message, shortened if there are many.
  std::string ColumnNames() const;
};

/// Returns the endings of tables' file names, ".tsv", ".csv" and ".jsonl". Each can precede ".gz".
std::span<const std::string_view> TableEndings();

/// Returns the file's name without its folder and without the ending of a table, or nullopt if it
/// has no such ending. Upper case letters of endings count as lower case.
std::optional<std::string> TableStem(const std::filesystem::path& file);

/// Reads a table; the ending of the file's name determines the format:
/// - .csv: RFC 4180. Fields in double quotes can contain commas, line ends and doubled quotes. A
///   quote elsewhere is an ordinary character.
/// - .tsv: tabs separate fields; quotes are ordinary characters.
/// - .jsonl: an object a line. Columns are its keys, in the order of their first use. Numbers and
///   booleans become their JSON text.
/// The first line of .csv and .tsv that is not empty names the columns if `header`; otherwise
/// columns are numbered from 1. Updates `sha`, if given, with the text of the file without a byte
/// order mark, and with "\n" for each "\r\n".
///
/// Throws DataError naming the file and the line for a row with another number of fields than the
/// columns, a quote that is not closed, characters after a closing quote, two columns of one name,
/// text that is not JSON or UTF-8. Throws it also for another ending, a table without rows, and
/// like ReadTextFile.
Table ReadTable(const std::filesystem::path& file, bool header = true, Sha256* sha = nullptr);

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_TABLE_H_
