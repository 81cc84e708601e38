#include "lab/data/sentences.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "lab/base/escape.h"
#include "lab/base/format_integer.h"
#include "lab/data/file_content.h"
#include "lab/data/lines.h"
#include "lab/error.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

// Returns the bytes of the blank at the start of `text`, or 0 if there is none.
size_t BlankLength(std::string_view text) {
  if (text.starts_with(' ') || text.starts_with('\t')) return 1;
  return text.starts_with("\u00a0") ? 2 : 0;
}

std::vector<std::string> SplitWords(std::string_view line) {
  std::vector<std::string> words;
  bool within = false;
  for (size_t i = 0; i < line.size();) {
    if (const size_t blank = BlankLength(line.substr(i))) {
      within = false;
      i += blank;
      continue;
    }
    if (!within) words.emplace_back();
    words.back() += line[i++];
    within = true;
  }
  return words;
}

}  // namespace

void Sentences::Add(std::vector<std::string> sentence, int64_t label) {
  words.push_back(std::move(sentence));
  labels.push_back(label);
}

Sentences SentenceReader::Read(const fs::path& file, int64_t label) {
  const std::vector<std::string> lines = ReadLines(file);
  Hash(lines);
  Sentences sentences;
  for (const std::string& line : lines) Add(line, label, &sentences);
  // A class without sentences makes the task trivial.
  if (sentences.size() == 0) FailToRead(file, "it has no sentence");
  return sentences;
}

Sentences SentenceReader::ReadLabelled(const fs::path& file, int64_t classes) {
  const std::vector<std::string> lines = ReadLines(file);
  Hash(lines);
  Sentences sentences;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string_view line = lines[i];
    if (IsBlank(line)) {
      ++empty_;
      continue;
    }
    const int64_t label = line[0] - '0';
    if (label < 0 || label >= classes || (line.size() > 1 && BlankLength(line.substr(1)) == 0)) {
      FailAtLine(file, static_cast<int64_t>(i) + 1,
                 fmt::format("it begins with {}; a class from 0 to {} and a blank were expected",
                             Quoted(line.substr(0, line.find(' '))), classes - 1));
    }
    Add(line.substr(1), label, &sentences);
  }
  return sentences;
}

void SentenceReader::Add(std::string_view line, int64_t label, Sentences* sentences) {
  std::vector<std::string> words = SplitWords(line);
  if (words.empty()) {
    ++empty_;
    return;
  }
  if (words.size() > static_cast<size_t>(longest_)) {
    words.resize(static_cast<size_t>(longest_));
    ++cut_;
  }
  sentences->Add(std::move(words), label);
}

void SentenceReader::Hash(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) {
    const std::string whole = line + "\n";
    sha_.Update({reinterpret_cast<const uint8_t*>(whole.data()), whole.size()});
  }
}

std::string SentenceReader::Counts() const {
  std::string text;
  if (empty_ > 0) text += "; " + Count(empty_, "empty line") + " left out";
  if (cut_ > 0) {
    text += "; " + Count(cut_, "sentence") + " cut to " + Count(longest_, "word");
  }
  return text;
}

fs::path FolderWith(const fs::path& folder, const std::string& name, const std::string& file) {
  for (const fs::path& candidate : {folder, folder / name}) {
    if (FindFile(candidate, file)) return candidate;
  }
  throw DataError(fmt::format("{} has no file {} or {}.gz, itself or in a folder {}",
                              Escaped(folder.string()), file, file, name));
}

Lexicon::Lexicon(const Sentences& sentences, int64_t min_count) {
  std::map<std::string, int64_t> counts;
  for (const auto& sentence : sentences.words) {
    for (const std::string& word : sentence) ++counts[word];
  }
  std::vector<std::pair<int64_t, std::string>> kept;
  for (const auto& [word, count] : counts) {
    if (count >= min_count) kept.emplace_back(-count, word);
  }
  std::ranges::sort(kept);
  for (auto& [count, word] : kept) {
    numbers_.emplace(std::move(word), static_cast<int32_t>(numbers_.size()) + 1);
  }
}

int32_t Lexicon::Number(const std::string& word) const {
  const auto found = numbers_.find(word);
  return found == numbers_.end() ? 0 : found->second;
}

}  // namespace planish::lab
