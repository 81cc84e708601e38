#include "lab/tasks/skip-thoughts/books.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "lab/base/escape.h"
#include "lab/base/format_integer.h"
#include "lab/data/file_content.h"
#include "lab/data/lines.h"
#include "lab/data/sha256.h"
#include "lab/data/synthetic_stories.h"
#include "lab/error.h"
#include "lab/tasks/skip-thoughts/words.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kValidationShare = 10;

int64_t SentencesOf(const std::vector<Book>& books) {
  int64_t count = 0;
  for (const Book& book : books) count += std::ssize(book.sentences);
  return count;
}

// Returns the part of a file's name before .txt or .txt.gz, or nullopt for other files.
std::optional<std::string> BookName(const fs::path& file) {
  const std::string name = file.filename().string();
  for (const std::string_view ending : {".txt", ".txt.gz"}) {
    if (name.size() > ending.size() && name.ends_with(ending)) {
      return name.substr(0, name.size() - ending.size());
    }
  }
  return std::nullopt;
}

std::vector<std::pair<std::string, fs::path>> FindBooks(const fs::path& folder) {
  std::vector<std::pair<std::string, fs::path>> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (auto name = BookName(entry->path())) found.emplace_back(*std::move(name), entry->path());
  }
  if (error) {
    FailToRead(folder, error == std::errc::not_a_directory ? "it is not a folder with books"
                                                           : error.message());
  }
  std::ranges::sort(found);
  // Keeps the uncompressed file of a book with both.
  const auto twice = std::ranges::unique(found, {}, &std::pair<std::string, fs::path>::first);
  found.erase(twice.begin(), twice.end());
  return found;
}

}  // namespace

Book ParseBook(std::string_view text, const std::string& name) {
  Book book{name, {}};
  std::string paragraph;
  const auto finish = [&] {
    const bool has_small =
        std::ranges::any_of(paragraph, [](char c) { return c >= 'a' && c <= 'z'; });
    if (has_small && paragraph[0] != '[') {
      for (const std::string& sentence : SplitIntoSentences(PlainPunctuation(paragraph))) {
        auto words = SplitIntoWords(sentence);
        if (!words.empty()) book.sentences.push_back(std::move(words));
      }
    }
    paragraph.clear();
  };
  int64_t number = 0;
  for (std::string_view line : SplitLines(text)) {
    ++number;
    CheckUtf8(name, number, line);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (IsBlank(line)) {
      finish();
    } else {
      if (!paragraph.empty()) paragraph += ' ';
      paragraph += line.substr(line.find_first_not_of(" \t"));
    }
  }
  finish();
  return book;
}

Library ReadBooks(const fs::path& folder) {
  std::error_code error;
  const fs::path below = folder / "books";
  const fs::path place = fs::is_directory(below, error) ? below : folder;
  const auto files = FindBooks(place);
  if (files.size() < 2) {
    throw DataError(fmt::format(
        "{} has {} (*.txt or *.txt.gz), itself or in a folder books; at least two are needed",
        Escaped(folder.string()), Count(std::ssize(files), "book")));
  }
  Library library;
  Sha256 sha;
  const int64_t count = std::ssize(files);
  for (int64_t i = 0; i < count; ++i) {
    const auto& [name, file] = files[static_cast<size_t>(i)];
    Book book = ReadInMemory(file, [&] {
      const std::string text = ReadTextFile(file);
      sha.Update({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
      return ParseBook(text, file.string());
    });
    if (book.sentences.empty()) FailToRead(file, "it has no sentence");
    book.name = Escaped(name);
    const bool held_out = i % kValidationShare == kValidationShare - 1 ||
                          (count < kValidationShare && i == count - 1);
    (held_out ? library.valid : library.train).push_back(std::move(book));
  }
  library.name = "books";
  library.source = "files";
  library.description = fmt::format(
      "{} books of {} sentences to train on and {} of {} for validation",
      FormatInteger(std::ssize(library.train)), FormatInteger(SentencesOf(library.train)),
      FormatInteger(std::ssize(library.valid)), FormatInteger(SentencesOf(library.valid)));
  library.sha256 = sha.Hex();
  return library;
}

Library MakeStories(int64_t stories) {
  if (stories < 1 || stories > kMaxSyntheticStories) {
    throw UsageError(fmt::format("[MakeStories] stories must be from 1 to {}, got {}",
                                 kMaxSyntheticStories, stories));
  }
  Library library;
  Sha256 sha;
  StoryTeller teller(1);
  for (auto [books, count] : {std::pair(&library.train, stories),
                              std::pair(&library.valid, std::max<int64_t>(stories / 8, 1))}) {
    for (int64_t i = 0; i < count; ++i) {
      std::string text;
      for (const std::string& sentence : teller.Story()) text += sentence + " ";
      sha.Update({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
      books->push_back(ParseBook(text, "story"));
    }
  }
  library.name = "synthetic stories";
  library.source = "embedded";
  library.description = fmt::format(
      "{} stories of {} sentences to train on and {} of {} for validation, generated by planish "
      "from a small random grammar, seed 1",
      FormatInteger(std::ssize(library.train)), FormatInteger(SentencesOf(library.train)),
      FormatInteger(std::ssize(library.valid)), FormatInteger(SentencesOf(library.valid)));
  library.sha256 = sha.Hex();
  return library;
}

Library OpenBooks(const std::optional<fs::path>& folder, int64_t synthetic_stories) {
  return folder ? ReadBooks(*folder) : MakeStories(synthetic_stories);
}

}  // namespace planish::lab
