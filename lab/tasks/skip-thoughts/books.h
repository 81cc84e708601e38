#ifndef PLANISH_LAB_TASKS_SKIP_THOUGHTS_BOOKS_H_
#define PLANISH_LAB_TASKS_SKIP_THOUGHTS_BOOKS_H_

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Running text as consecutive sentences.
namespace planish::lab {

/// Sentences of a text in order, each as its words (SplitIntoWords).
struct Book {
  std::string name;
  std::vector<std::vector<std::string>> sentences;
};

/// Books with the fields of RunConfig::Data. No book is in both parts.
struct Library {
  std::vector<Book> train, valid;
  std::string name;         ///< "books" or "synthetic stories"
  std::string source;       ///< "files" or "embedded"
  std::string description;  ///< one sentence
  std::string sha256;       ///< of the books' bytes, unpacked, in the order of their names
};

/// Returns the sentences of a plain text. Paragraphs are separated by empty lines; their lines are
/// joined. Leaves out those without a lower-case letter, which are headings, and those in square
/// brackets. Throws DataError naming `name` and the line for invalid UTF-8.
Book ParseBook(std::string_view text, const std::string& name);

/// Reads the files *.txt and *.txt.gz in the subfolder books of `folder`, or in `folder` if there
/// is none, in the order of their names. Every tenth is for validation, or the last if there are
/// fewer than ten. Throws DataError if there are fewer than two or a book has no sentence, and like
/// ParseBook and FileContent.
Library ReadBooks(const std::filesystem::path& folder);

/// Returns `stories` stories of a small random grammar for training, at most kMaxSyntheticStories,
/// and an eighth of that number for validation. Bytes are the same on every machine. In each story,
/// one person meets things of one place for five to nine sentences. Each sentence begins with the
/// end of the one before, so it depends on its neighbours.
Library MakeStories(int64_t stories);
inline constexpr int64_t kMaxSyntheticStories = 1'000'000;

/// Returns ReadBooks if there is a folder, else MakeStories.
Library OpenBooks(const std::optional<std::filesystem::path>& folder, int64_t synthetic_stories);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_SKIP_THOUGHTS_BOOKS_H_
