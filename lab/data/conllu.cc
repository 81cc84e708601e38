#include "lab/data/conllu.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <optional>
#include <system_error>
#include <utility>

#include "lab/base/escape.h"
#include "lab/base/format_integer.h"
#include "lab/data/file_content.h"
#include "lab/data/lines.h"
#include "lab/data/sha256.h"
#include "lab/error.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

constexpr size_t kColumns = 10;

// Parses all of `text` as a nonnegative integer. Returns nullopt if it is not one.
std::optional<int32_t> Number(std::string_view text) {
  int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// Parses "3-4" or "8.1" as two integers.
std::optional<std::pair<int32_t, int32_t>> TwoNumbers(std::string_view text, char between) {
  const size_t at = text.find(between);
  if (at == std::string_view::npos) return std::nullopt;
  const auto first = Number(text.substr(0, at)), second = Number(text.substr(at + 1));
  if (!first || !second) return std::nullopt;
  return std::pair(*first, *second);
}

class Parser {
 public:
  explicit Parser(const std::string& name) : name_(name) {}

  Treebank Parse(std::string_view text) {
    for (const std::string_view line : SplitLines(text)) {
      ++line_;
      Line(line);
    }
    if (InSentence()) Fail(line_, "the empty line that ends a sentence is missing after it");
    if (treebank_.trees.empty()) FailToRead(name_, "it has no sentence");
    return std::move(treebank_);
  }

 private:
  [[noreturn]] void Fail(int64_t line, const std::string& reason) const {
    FailAtLine(name_, line, reason);
  }

  bool InSentence() const { return !lines_.empty() || range_line_ > 0 || has_empty_nodes_; }

  void Line(std::string_view line) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    CheckUtf8(name_, line_, line);
    if (line.empty()) {
      if (InSentence()) EndSentence();
    } else if (line.front() == '#') {
      if (InSentence()) Fail(line_, "a comment is inside a sentence");
    } else {
      Word(Split(line));
    }
  }

  std::array<std::string_view, kColumns> Split(std::string_view line) const {
    std::array<std::string_view, kColumns> columns;
    const auto count = static_cast<size_t>(std::ranges::count(line, '\t')) + 1;
    if (count != kColumns) {
      Fail(line_, fmt::format("it has {}; {} with tabs between them were expected",
                              Count(static_cast<int64_t>(count), "column"), kColumns));
    }
    for (size_t i = 0; i < kColumns; ++i) {
      const size_t end = std::min(line.find('\t'), line.size());
      columns[i] = line.substr(0, end);
      if (columns[i].empty()) Fail(line_, fmt::format("column {} is empty", i + 1));
      line.remove_prefix(std::min(end + 1, line.size()));
    }
    return columns;
  }

  void Word(const std::array<std::string_view, kColumns>& columns) {
    const auto words = static_cast<int32_t>(tree_.words.size());
    const std::string_view id = columns[0];
    if (const auto range = TwoNumbers(id, '-')) {
      if (range->first != words + 1 || range->second < range->first || words < range_end_) {
        Fail(line_,
             fmt::format("the range of ids is {}; one from {}, outside of any other, was expected",
                         Quoted(id), words + 1));
      }
      range_end_ = range->second;
      range_line_ = line_;
      ++treebank_.ranges;
    } else if (const auto node = TwoNumbers(id, '.')) {
      if (node->first != words) {
        Fail(line_, fmt::format("the id of an empty node is {}; one from {}.1 was expected",
                                Quoted(id), words));
      }
      has_empty_nodes_ = true;
      ++treebank_.empty_nodes;
    } else {
      if (Number(id) != words + 1) {
        Fail(line_,
             fmt::format(
                 "the id is {}; {} was expected{}", Quoted(id), words + 1,
                 words > 0 && id == "1" ? ": is the empty line before a sentence missing?" : ""));
      }
      const std::optional<int32_t> head = Number(columns[6]);
      if (!head) {
        Fail(line_, fmt::format("the head is {}; the number of a word, or 0, was expected",
                                Quoted(columns[6])));
      }
      tree_.words.push_back({std::string(columns[1]), std::string(columns[3]),
                             std::string(columns[4]), *head, std::string(columns[7])});
      lines_.push_back(line_);
    }
  }

  // Checks that the sentence read is a tree, and stores it.
  void EndSentence() {
    const auto count = static_cast<int32_t>(tree_.words.size());
    if (count == 0) Fail(line_, "it ends a sentence without words");
    if (range_end_ > count) {
      Fail(range_line_, fmt::format("the range of ids ends at {}, but the sentence has {}",
                                    range_end_, Count(count, "word")));
    }
    int32_t root = 0;
    for (int32_t id = 1; id <= count; ++id) {
      const int32_t head = HeadOf(id);
      if (head > count) {
        Fail(LineOf(id),
             fmt::format("the head is {}, but the sentence has {}", head, Count(count, "word")));
      }
      if (head != 0) continue;
      if (root != 0) {
        Fail(LineOf(id), fmt::format("the head is 0, but word {} is already the root", root));
      }
      root = id;
    }
    if (root == 0) {
      Fail(LineOf(1), "the sentence that begins here has no root, a word whose head is 0");
    }
    CheckCycles(count);
    treebank_.trees.push_back(std::move(tree_));
    tree_ = {};
    lines_.clear();
    range_end_ = 0;
    range_line_ = 0;
    has_empty_nodes_ = false;
  }

  // Throws unless every word's chain of heads leads to the root.
  void CheckCycles(int32_t count) const {
    // The word from which a word was first reached, or 0.
    std::vector<int32_t> met(static_cast<size_t>(count) + 1, 0);
    for (int32_t id = 1; id <= count; ++id) {
      for (int32_t word = id; word != 0; word = HeadOf(word)) {
        int32_t& by = met[static_cast<size_t>(word)];
        if (by == id) Fail(LineOf(word), "the heads lead back to this word, not to the root");
        if (by != 0) break;
        by = id;
      }
    }
  }

  int32_t HeadOf(int32_t id) const { return tree_.words[static_cast<size_t>(id - 1)].head; }
  int64_t LineOf(int32_t id) const { return lines_[static_cast<size_t>(id - 1)]; }

  const std::string& name_;
  Treebank treebank_;
  int64_t line_ = 0;
  // The sentence being read.
  DependencyTree tree_;
  std::vector<int64_t> lines_;  // of its words
  int32_t range_end_ = 0;       // the last word of the last range
  int64_t range_line_ = 0;      // 0 if there is no range
  bool has_empty_nodes_ = false;
};

using Parts = std::initializer_list<std::string_view>;

// Returns the file in `folder` with one of `parts` in its name, or nullopt.
std::optional<fs::path> Find(const fs::path& folder, const Parts& parts) {
  static constexpr std::string_view kEnds[] = {".conllu", ".conllu.gz", ".conll", ".conll.gz"};
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const auto ends = [&](std::string_view end) { return name.ends_with(end); };
    const auto holds = [&](std::string_view part) { return name.find(part) != std::string::npos; };
    if (std::ranges::any_of(kEnds, ends) && std::ranges::any_of(parts, holds)) {
      found.push_back(entry.path());
    }
  }
  if (found.empty()) return std::nullopt;
  std::ranges::sort(found);
  // Drops a compressed file if the uncompressed one exists.
  const std::vector<fs::path> all = found;
  std::erase_if(found, [&](const fs::path& file) {
    return file.extension() == ".gz" &&
           std::ranges::find(all, fs::path(file).replace_extension()) != all.end();
  });
  if (found.size() > 1) {
    throw DataError(fmt::format("{} has more than one {} file: {} and {}", Escaped(folder.string()),
                                *parts.begin(), Escaped(found[0].filename().string()),
                                Escaped(found[1].filename().string())));
  }
  return found.front();
}

}  // namespace

Treebank ParseConllu(std::string_view text, const std::string& name) {
  return Parser(name).Parse(text);
}

TreebankSet ReadTreebanks(const fs::path& folder) {
  for (const fs::path& place : {folder, folder / "ud_ewt"}) {
    const auto train = Find(place, {"train"}), valid = Find(place, {"dev", "valid"}),
               test = Find(place, {"test"});
    if (!train && !valid && !test) continue;
    TreebankSet set;
    Sha256 sha;
    const auto read = [&](const std::optional<fs::path>& file, const char* part) {
      if (!file) {
        throw DataError(
            fmt::format("{} has no {} file; a train, a dev (or valid) and a test file in CoNLL-U "
                        "are needed",
                        Escaped(place.string()), part));
      }
      return ReadInMemory(*file, [&] {
        const std::string content = ReadTextFile(*file);
        sha.Update({reinterpret_cast<const uint8_t*>(content.data()), content.size()});
        return ParseConllu(content, file->string());
      });
    };
    set.train = read(train, "train");
    set.valid = read(valid, "dev");
    set.test = read(test, "test");
    set.name = fs::absolute(place / "x").lexically_normal().parent_path().filename().string();
    set.source = "files";
    set.sha256 = sha.Hex();
    const auto sum = [&](int64_t Treebank::* count) {
      return FormatInteger(set.train.*count + set.valid.*count + set.test.*count);
    };
    set.description = fmt::format(
        "read from {}, where {} lines of multiword tokens and {} of empty nodes were skipped",
        place.string(), sum(&Treebank::ranges), sum(&Treebank::empty_nodes));
    return set;
  }
  throw DataError(
      fmt::format("{} has no files *train*.conllu[.gz], *dev*.conllu[.gz] and *test*.conllu[.gz], "
                  "itself or in a folder ud_ewt",
                  Escaped(folder.string())));
}

}  // namespace planish::lab
