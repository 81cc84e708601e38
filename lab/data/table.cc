#include "lab/data/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "lab/base/escape.h"
#include "lab/base/format_integer.h"
#include "lab/base/lower_case.h"
#include "lab/data/file_content.h"
#include "lab/data/lines.h"
#include "lab/error.h"
#include "lab/run/json.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kEndings[] = {".tsv", ".csv", ".jsonl"};
constexpr std::string_view kTsv = kEndings[0], kJsonLines = kEndings[2];

// Columns that a message names.
constexpr size_t kMaxNamed = 20;

struct Ending {
  std::string_view table;  // of kEndings
  size_t length = 0;       // with ".gz"; 0 if the name is not a table's
};

Ending EndingOf(const std::string& name) {
  std::string lower = LowerCase(name);
  const size_t packed = lower.ends_with(".gz") ? 3 : 0;
  lower.resize(lower.size() - packed);
  for (const std::string_view ending : kEndings) {
    if (lower.ends_with(ending)) return {ending, ending.size() + packed};
  }
  return {};
}

// Reader of the rows of a CSV or TSV text.
class Separated {
 public:
  Separated(const fs::path& file, std::string_view text, bool quotes)
      : file_(file), text_(text), separator_(quotes ? ',' : '\t'), quotes_(quotes) {}

  // Reads the next row that is not an empty line. Returns nullopt at the end.
  std::optional<TableRow> Next() {
    while (at_ < text_.size() && SkipLineEnd()) ++empty_;
    if (at_ >= text_.size()) return std::nullopt;
    TableRow row{line_, {}};
    do {
      row.fields.emplace_back(quotes_ && Peek() == '"' ? Quoted() : Plain());
    } while (SkipSeparator());
    SkipLineEnd();
    return row;
  }

  int64_t empty() const { return empty_; }

 private:
  // Returns the next byte, or 0 at the end; the text has no zero byte.
  char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  bool AtLineEnd() const {
    return at_ >= text_.size() || text_[at_] == '\n' || text_.substr(at_, 2) == "\r\n" ||
           text_.substr(at_) == "\r";
  }

  bool SkipLineEnd() {
    if (!AtLineEnd()) return false;
    if (Peek() == '\r') ++at_;
    if (Peek() == '\n') ++at_;
    ++line_;
    return true;
  }

  bool SkipSeparator() {
    if (Peek() != separator_) return false;
    ++at_;
    return true;
  }

  std::string Plain() {
    const size_t begin = at_;
    while (!AtLineEnd() && text_[at_] != separator_) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  std::string Quoted() {
    const int64_t first_line = line_;
    std::string field;
    for (++at_;; ++at_) {
      if (at_ >= text_.size()) FailAtLine(file_, first_line, "a quote is not closed");
      if (text_[at_] == '\n') ++line_;
      if (text_[at_] == '"') {
        if (text_.substr(at_ + 1, 1) != "\"") break;
        ++at_;
      }
      field += text_[at_];
    }
    ++at_;
    if (!AtLineEnd() && text_[at_] != separator_) {
      FailAtLine(file_, line_,
                 "a comma or the line's end was expected after a closing quote; quotes within a "
                 "field in quotes must be doubled");
    }
    return field;
  }

  const fs::path& file_;
  std::string_view text_;
  char separator_;
  bool quotes_;
  size_t at_ = 0;
  int64_t line_ = 1, empty_ = 0;
};

void ReadSeparated(std::string_view text, bool quotes, bool header, Table* table) {
  Separated rows(table->file, text, quotes);
  int64_t header_line = 1;
  while (std::optional<TableRow> row = rows.Next()) {
    if (table->columns.empty()) {
      header_line = row->line;
      for (auto& field : row->fields) {
        const size_t number = table->columns.size() + 1;
        table->columns.push_back(header ? *std::move(field) : std::to_string(number));
      }
      if (header) continue;
    }
    if (row->fields.size() != table->columns.size()) {
      FailAtLine(table->file, row->line,
                 fmt::format("it has {}; line {} has {}", Count(std::ssize(row->fields), "field"),
                             header_line, FormatInteger(std::ssize(table->columns))));
    }
    table->rows.push_back(*std::move(row));
  }
  table->empty = rows.empty();
  for (auto a = table->columns.begin(); a != table->columns.end(); ++a) {
    // Empty names, as of an index without a name, can be given by number.
    if (!a->empty() && std::find(table->columns.begin(), a, *a) != a) {
      FailAtLine(table->file, header_line, fmt::format("two columns are called {}", Quoted(*a)));
    }
  }
}

// Returns the text of a JSON value, or nullopt for null, arrays and objects.
std::optional<std::string> FieldOf(const nlohmann::ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number() || value.is_boolean()) return value.dump();
  return std::nullopt;
}

void ReadJsonLines(std::string_view text, Table* table) {
  std::unordered_map<std::string, size_t> columns;
  int64_t line = 0;
  for (std::string_view content : SplitLines(text)) {
    ++line;
    if (content.ends_with('\r')) content.remove_suffix(1);
    if (IsBlank(content)) {
      ++table->empty;
      continue;
    }
    TableRow row{line, {}};
    row.fields.resize(table->columns.size());
    try {
      const nlohmann::ordered_json object = ParseJson(content);
      if (!object.is_object()) throw std::invalid_argument("not a JSON object");
      for (const auto& [key, value] : object.items()) {
        const auto [at, is_new] = columns.emplace(key, table->columns.size());
        if (is_new) {
          table->columns.push_back(key);
          row.fields.emplace_back();
        }
        row.fields[at->second] = FieldOf(value);
      }
    } catch (const std::invalid_argument& e) {
      FailAtLine(table->file, line, e.what());
    }
    table->rows.push_back(std::move(row));
  }
  for (TableRow& row : table->rows) row.fields.resize(table->columns.size());
}

}  // namespace

size_t Table::Column(std::string_view name) const {
  const auto found = std::ranges::find(columns, name);
  if (found != columns.end()) return static_cast<size_t>(found - columns.begin());
  size_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error == std::errc() && end == name.data() + name.size() && number >= 1 &&
      number <= columns.size()) {
    return number - 1;
  }
  FailToRead(file, fmt::format("it has no column {}, only {}", Quoted(name), ColumnNames()));
}

std::string Table::ColumnNames() const {
  std::string names;
  for (size_t i = 0; i < std::min(columns.size(), kMaxNamed); ++i) {
    names += (i == 0 ? "" : ", ") + Quoted(columns[i]);
  }
  if (columns.size() > kMaxNamed) {
    names += fmt::format(" and {} more", columns.size() - kMaxNamed);
  }
  return names;
}

std::span<const std::string_view> TableEndings() { return kEndings; }

std::optional<std::string> TableStem(const fs::path& file) {
  const std::string name = file.filename().string();
  const Ending ending = EndingOf(name);
  if (ending.length == 0) return std::nullopt;
  return name.substr(0, name.size() - ending.length);
}

Table ReadTable(const fs::path& file, bool header, Sha256* sha) {
  return ReadInMemory(file, [&] {
    const Ending ending = EndingOf(file.filename().string());
    if (ending.length == 0) {
      FailToRead(file, "its name must end in .tsv, .csv or .jsonl, or in one of these and .gz");
    }
    const std::string text = ReadTextFile(file);
    int64_t line = 0;
    for (std::string_view content : SplitLines(text)) {
      CheckUtf8(file, ++line, content);
      if (!sha) continue;
      if (content.ends_with('\r')) content.remove_suffix(1);
      const std::string whole = std::string(content) + "\n";
      sha->Update({reinterpret_cast<const uint8_t*>(whole.data()), whole.size()});
    }
    Table table{.file = file};
    if (ending.table == kJsonLines) {
      ReadJsonLines(text, &table);
    } else {
      ReadSeparated(text, ending.table != kTsv, header, &table);
    }
    if (table.rows.empty()) FailToRead(file, "it has no rows");
    return table;
  });
}

}  // namespace planish::lab
