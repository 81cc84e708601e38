#include "lab/tasks/sentences/labelled_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lab/base/escape.h"
#include "lab/base/format_integer.h"
#include "lab/base/lower_case.h"
#include "lab/data/class_split.h"
#include "lab/data/file_content.h"
#include "lab/data/lines.h"
#include "lab/data/sha256.h"
#include "lab/data/table.h"
#include "lab/error.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

// Names of columns that are chosen without a setting, the first one first.
constexpr std::string_view kTextNames[] = {"text", "sentence", "review"};
constexpr std::string_view kLabelNames[] = {"label", "class", "sentiment"};
constexpr std::string_view kSplitNames[] = {"split"};

// A column has labels if each of them is in this many rows on average, and texts if they have this
// many words on average.
constexpr size_t kMinRowsPerLabel = 2, kMinWordsPerText = 2;

std::string_view Trimmed(std::string_view text) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

// Files of the sets. Only `train` if one table has all.
using Files = std::array<std::optional<fs::path>, kRoles>;

// Returns the tables of a folder in the order of their names, without NAME.gz if there is NAME.
std::vector<fs::path> TablesIn(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with('.') && TableStem(entry->path())) files.push_back(entry->path());
  }
  std::ranges::sort(files);
  std::erase_if(files, [&](const fs::path& file) {
    return file.extension() == ".gz" &&
           std::ranges::binary_search(files, file.parent_path() / file.stem());
  });
  return files;
}

Files FindTables(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return {path};
  for (const fs::path& folder : {path, path / "sentences"}) {
    const std::vector<fs::path> tables = TablesIn(folder);
    if (tables.empty()) continue;
    Files files;
    for (const fs::path& table : tables) {
      const std::optional<Role> role = RoleOf(*TableStem(table));
      if (!role) continue;
      if (files[*role]) {
        FailToRead(table, fmt::format("{} is of the same set", files[*role]->filename().string()));
      }
      files[*role] = table;
    }
    if (files[kTrain]) return files;
    if (tables.size() == 1 && !files[kValid] && !files[kTest]) return {tables.front()};
    throw DataError(fmt::format(
        "{} has no file train.tsv, train.csv or train.jsonl, or one of these and .gz, and more "
        "tables than one: name one with --data",
        Escaped(folder.string())));
  }
  throw DataError(
      fmt::format("{} has no file that ends in .tsv, .csv or .jsonl, or in one of these and .gz, "
                  "itself or in a folder sentences",
                  Escaped(path.string())));
}

struct Column {
  size_t index = 0;
  const char* why = "";  // why it was chosen, if no setting did
};

std::optional<Column> ColumnCalled(const Table& table, std::span<const std::string_view> names) {
  for (const std::string_view name : names) {
    const auto found = std::ranges::find(table.columns, name, LowerCase);
    if (found != table.columns.end()) {
      return Column{static_cast<size_t>(found - table.columns.begin()), " (by its name)"};
    }
  }
  return std::nullopt;
}

enum class Content { kLabels, kTexts, kOther };

// Returns what a column has, judged by its fields.
Content ContentOf(const Table& table, size_t column) {
  std::unordered_map<std::string_view, size_t> counts;
  size_t words = 0;
  for (const TableRow& row : table.rows) {
    if (!row.fields[column]) return Content::kOther;
    const std::string_view field = Trimmed(*row.fields[column]);
    ++counts[field];
    // Blanks within a text: as many as words, less one.
    words += static_cast<size_t>(std::ranges::count(field, ' ')) + 1;
  }
  if (counts.size() * kMinRowsPerLabel <= table.rows.size()) return Content::kLabels;
  return words >= kMinWordsPerText * table.rows.size() ? Content::kTexts : Content::kOther;
}

struct Columns {
  Column text, label;
  std::optional<Column> split;
};

Columns ChooseColumns(const Table& table, const LabelledTables& options) {
  const auto given = [&](const std::string& name) {
    return name.empty() ? std::nullopt : std::optional(Column{table.Column(name)});
  };
  std::optional<Column> text = given(options.text), label = given(options.label),
                        split = given(options.split);
  if (!text) text = ColumnCalled(table, kTextNames);
  if (!label) label = ColumnCalled(table, kLabelNames);
  if (!split) split = ColumnCalled(table, kSplitNames);

  for (const auto& [chosen, content] :
       {std::pair(&text, Content::kTexts), {&label, Content::kLabels}}) {
    if (*chosen) continue;
    std::vector<size_t> candidates;
    for (size_t i = 0; i < table.columns.size(); ++i) {
      const auto is = [&](const std::optional<Column>& other) {
        return other && other->index == i;
      };
      if (!is(text) && !is(label) && !is(split) && ContentOf(table, i) == content) {
        candidates.push_back(i);
      }
    }
    if (candidates.size() != 1) {
      FailToRead(table.file,
                 fmt::format("the column of the {0}s is not clear: choose one with --set {0}=; the "
                             "columns are {1}",
                             chosen == &text ? "text" : "label", table.ColumnNames()));
    }
    *chosen = Column{candidates.front(), " (by its contents)"};
  }
  if (text->index == label->index) {
    FailToRead(table.file, fmt::format("texts and labels are both the column {}",
                                       Quoted(table.columns[text->index])));
  }
  return {*text, *label, split};
}

// Returns a name for Table::Column of another table.
std::string NameOf(const Table& table, size_t column) {
  const std::string& name = table.columns[column];
  return name.empty() ? std::to_string(column + 1) : name;
}

// Row of a table as a case.
struct Case {
  const Table* table;
  int64_t line;
  std::string_view text, label;
  Role role = kTrain;
};

// Returns a field without blanks at its ends. Throws DataError if it has nothing else.
std::string_view NeedField(const Table& table, const TableRow& row, size_t column,
                           std::string_view what) {
  const std::optional<std::string>& field = row.fields[column];
  const std::string_view text = field ? Trimmed(*field) : "";
  if (!field || IsBlank(text)) {
    FailAtLine(table.file, row.line,
               fmt::format("the {} in column {} is {}", what, Quoted(table.columns[column]),
                           field ? "empty" : "missing, or not a text, number or boolean"));
  }
  return text;
}

void AddCases(const Table& table, size_t text, size_t label, std::optional<size_t> split, Role role,
              std::vector<Case>* cases) {
  for (const TableRow& row : table.rows) {
    Case added{.table = &table,
               .line = row.line,
               .text = NeedField(table, row, text, "text"),
               .label = NeedField(table, row, label, "label"),
               .role = role};
    if (split) {
      const std::string_view name = NeedField(table, row, *split, "set");
      const std::optional<Role> found = RoleOf(name);
      if (!found) {
        FailAtLine(table.file, row.line,
                   fmt::format("the set in column {} is {}; train, valid, validation, val, dev or "
                               "test was expected",
                               Quoted(table.columns[*split]), Quoted(name)));
      }
      added.role = *found;
    }
    cases->push_back(added);
  }
}

// Returns the classes of the cases. Throws DataError if one has a single case, or all have one
// class.
Classes CheckedClasses(const fs::path& path, const std::vector<Case>& cases) {
  std::vector<std::string_view> labels;
  for (const Case& c : cases) labels.push_back(c.label);
  Classes classes = NumberClasses(labels);
  if (const Class* once = classes.Single()) {
    FailAtLine(cases[once->first].table->file, cases[once->first].line,
               fmt::format("no other row has the label {}; each must be in two rows or more",
                           Quoted(once->label)));
  }
  if (classes.classes.size() == 1) {
    FailToRead(path, fmt::format("all rows have the label {}; two classes or more are needed",
                                 Quoted(classes.classes.front().label)));
  }
  return classes;
}

}  // namespace

SentenceSets ReadLabelledTables(const fs::path& path, const LabelledTables& options) {
  const Files files = FindTables(path);
  Sha256 sha;
  std::array<std::optional<Table>, kRoles> tables;
  int64_t empty = 0;
  for (size_t role = 0; role < kRoles; ++role) {
    if (!files[role]) continue;
    tables[role] = ReadTable(*files[role], options.header, &sha);
    empty += tables[role]->empty;
  }
  const Table& first = *tables[kTrain];
  const bool by_file = files[kValid] || files[kTest];
  if (by_file && !options.split.empty()) {
    throw UsageError(
        fmt::format("[sentences] split must be empty if sets have files of their own, got {}",
                    Quoted(options.split)));
  }
  Columns columns = ChooseColumns(first, options);
  if (by_file) columns.split.reset();

  std::vector<Case> cases;
  for (size_t role = 0; role < kRoles; ++role) {
    if (!tables[role]) continue;
    const Table& table = *tables[role];
    AddCases(table, table.Column(NameOf(first, columns.text.index)),
             table.Column(NameOf(first, columns.label.index)),
             columns.split ? std::optional(columns.split->index) : std::nullopt,
             static_cast<Role>(role), &cases);
  }
  const Classes classes = CheckedClasses(path, cases);

  std::vector<Role> roles;
  for (const Case& c : cases) roles.push_back(c.role);
  const ClassSplit split = SplitByClass(options.sets, classes, std::move(roles));
  if (split.untrained) {
    const Case& c = cases[*split.untrained];
    FailAtLine(c.table->file, c.line,
               fmt::format("no training row has the label {}", Quoted(c.label)));
  }

  SentenceSets sets;
  SentenceReader reader(options.longest);
  for (const auto& [role, set] :
       {std::pair(kTrain, &sets.train), {kValid, &sets.valid}, {kTest, &sets.test}}) {
    for (const size_t i : split.cases[role]) {
      std::string text(cases[i].text);
      // Line ends of CSV and JSON are blanks between words.
      std::ranges::replace_if(text, [](char x) { return x == '\n' || x == '\r'; }, ' ');
      reader.Add(text, classes.of_case[i], set);
    }
  }
  sets.classes = std::ssize(classes.classes);
  sets.source = "files";
  sets.sha256 = sha.Hex();
  std::error_code error;
  sets.name = fs::is_directory(path, error)
                  ? fs::absolute(first.file).parent_path().filename().string()
                  : TableStem(path).value_or(path.filename().string());

  const auto column_text = [&](const char* what, const Column& column) {
    return fmt::format("{} of column {}{}", what, Quoted(first.columns[column.index]), column.why);
  };
  std::string by = columns.split ? column_text("sets", *columns.split)
                   : by_file     ? "sets by files"
                                 : "";
  if (!split.description.empty()) by += (by.empty() ? "" : ", ") + split.description;
  sets.description =
      fmt::format("{} sentences read from {}, {}, {}; {}; {}{}", FormatInteger(std::ssize(cases)),
                  path.string(), column_text("texts", columns.text),
                  column_text("labels", columns.label), classes.Text(), by, reader.Counts());
  if (empty > 0) sets.description += "; " + Count(empty, "empty line") + " left out";
  return sets;
}

}  // namespace planish::lab
