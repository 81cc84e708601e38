#ifndef PLANISH_LAB_TASKS_ATTENTIVE_READER_BOOK_CLOZE_H_
#define PLANISH_LAB_TASKS_ATTENTIVE_READER_BOOK_CLOZE_H_

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lab/tasks/attentive-reader/cloze.h"

// Cloze questions from English novels: a passage of some sentences, and the next sentence with a
// character's name left out.
namespace planish::lab {

/// Options of the questions.
struct BookCloze {
  int64_t train = 20'000;    ///< maximum number of training questions
  int64_t held_out = 1'000;  ///< maximum for validation and for test, each
  int64_t sentences = 4;     ///< sentences of a passage
  /// Entities get random numbers below this; a passage with more entities is skipped.
  int64_t entities = 30;
  int64_t min_entities = 2;       ///< minimum number of distinct entities in a passage
  int64_t longest_passage = 160;  ///< words; longer passages give no questions
  int64_t shortest_question = 5;  ///< words
  int64_t longest_question = 40;  ///< words
  int64_t stride = 1;             ///< minimum sentences between the starts of passages
  int64_t seed = 1;               ///< of the split of books, the numbers and the order
};

/// Word, number or mark of a book, with straight instead of curly quotes.
struct BookToken {
  std::string text;
  bool spaced = false;  ///< set if a blank, or nothing, precedes it

  bool operator==(const BookToken&) const = default;
};

using BookSentence = std::vector<BookToken>;

/// Splits a book into stretches of sentences. Headings, lines in capitals and the like end a
/// stretch, because the text after them does not continue the text before.
std::vector<std::vector<BookSentence>> SplitBook(std::string_view text);

/// Name in a sentence: tokens begin to end - 1, title included, and the index of its entity.
struct Mention {
  size_t begin = 0, end = 0;
  size_t entity = 0;

  bool operator==(const Mention&) const = default;
};

/// Names of a book.
struct BookNames {
  struct Entity {
    std::string name;        ///< at its first occurrence
    bool character = false;  ///< set if it acts like a person, or has a title
  };
  std::vector<Entity> entities;
  std::vector<std::vector<std::vector<Mention>>> mentions;  ///< indexed like SplitBook's sentences
};

/// Finds the names: words that nearly always have a capital, also within sentences. Consecutive
/// ones, with a title before them, are one name.
/// "Tom Buchanan" and "Tom" are one entity, as are "Mr. Darcy" and "Darcy", and "Buchanan" if the
/// book gives that surname to nearly no one else. "Mrs. Bennet" is not "Bennet".
BookNames FindNames(const std::vector<std::vector<BookSentence>>& stretches);

/// Makes questions from the texts *.txt and *.txt.gz in `folder` or its subfolder books
/// (docs/commands.md#planish-make-cloze). Books and request determine them on every machine. Throws
/// DataError if there are fewer than three books, one cannot be read or is not UTF-8, or a set
/// would have no question.
ClozeSets MakeBookCloze(const std::filesystem::path& folder, const BookCloze& request);

/// Returns true if MakeBookCloze finds books in `folder`.
bool HasBooks(const std::filesystem::path& folder);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_ATTENTIVE_READER_BOOK_CLOZE_H_
