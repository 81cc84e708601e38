#ifndef PLANISH_LAB_TASKS_SKIP_THOUGHTS_BOOKS_H_
#define PLANISH_LAB_TASKS_SKIP_THOUGHTS_BOOKS_H_

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Running text, sentence after sentence.
namespace planish::lab {

/// The sentences of a text in their order, each as its words (SplitIntoWords).
struct Book {
  std::string name;
  std::vector<std::vector<std::string>> sentences;
};

/// Books with what RunConfig::Data records of them. No book is in both parts.
struct Library {
  std::vector<Book> train, valid;
  std::string name;         ///< "books" or "made stories"
  std::string source;       ///< "files" or "embedded"
  std::string description;  ///< one sentence for people
  std::string sha256;       ///< of the books' bytes, unpacked, in the order of their names
};

/// The sentences of a plain text. A paragraph is what stands between empty lines, its lines joined;
/// those without a lower-case letter, which are headings, and those in square brackets are left
/// out. Throws DataError naming `name` and the line where that is not UTF-8.
Book ParseBook(std::string_view text, const std::string& name);

/// The files that end in .txt or .txt.gz of the folder `books` below `folder` or, where there is no
/// such folder, of `folder` itself; plain or gzip, in the order of their names. Every tenth is for
/// validation, and the last where there are fewer than ten. Throws DataError where there are fewer
/// than two, a book has no sentence, and what ParseBook and FileContent throw.
Library ReadBooks(const std::filesystem::path& folder);

/// `stories` stories of a small random grammar for training, at most kMaxSyntheticStories, and an
/// eighth as many for validation. In each, one person meets things of one place for five to nine
/// sentences, of which each takes up what the one before ended with: so a sentence says something
/// about its neighbours. The same bytes on every machine.
Library MakeStories(int64_t stories);
inline constexpr int64_t kMaxSyntheticStories = 1'000'000;

/// ReadBooks where there is a folder, else MakeStories.
Library OpenBooks(const std::optional<std::filesystem::path>& folder, int64_t made_stories);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_SKIP_THOUGHTS_BOOKS_H_
