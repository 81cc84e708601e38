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

/// Which questions are made.
struct BookCloze {
  int64_t train = 20'000;    ///< training questions, at most
  int64_t held_out = 1'000;  ///< of validation and of test each, at most
  int64_t sentences = 4;     ///< of a passage
  /// Numbers of entities are drawn from 0 to this less one; a passage with more is no passage.
  int64_t entities = 30;
  int64_t min_entities = 2;       ///< different ones in a passage
  int64_t longest_passage = 160;  ///< words; longer passages give no questions
  int64_t shortest_question = 5;  ///< words
  int64_t longest_question = 40;  ///< words
  int64_t stride = 1;  ///< sentences from a passage's beginning to the next one's, at least
  int64_t seed = 1;    ///< of the books' split, the numbers and the order
};

/// A word, number or mark of a book, as it stands there: curly quotes are straight ones.
struct BookToken {
  std::string text;
  bool spaced = false;  ///< whether a blank, or nothing, stands before it

  bool operator==(const BookToken&) const = default;
};

using BookSentence = std::vector<BookToken>;

/// A book's sentences. Headings, lines in capitals and the like end a stretch: what follows them
/// does not go on from what stands before.
std::vector<std::vector<BookSentence>> SplitBook(std::string_view text);

/// A name in a sentence: tokens begin to end - 1, title included, and which of the book's entities
/// it is.
struct Mention {
  size_t begin = 0, end = 0;
  size_t entity = 0;

  bool operator==(const Mention&) const = default;
};

/// The names of a book.
struct BookNames {
  struct Entity {
    std::string name;        ///< as it is first written
    bool character = false;  ///< whether it does what people do, or has a title
  };
  std::vector<Entity> entities;
  std::vector<std::vector<std::vector<Mention>>> mentions;  ///< as SplitBook's sentences are
};

/// Finds the names: words that have a capital within sentences and next to never none; several in a
/// row, with a title before them, are one name. "Tom Buchanan" and "Tom" are one entity, "Mr.
/// Darcy" and "Darcy", too, and "Buchanan" where the book gives that surname to nearly no one else;
/// "Mrs. Bennet" is not "Bennet".
BookNames FindNames(const std::vector<std::vector<BookSentence>>& stretches);

/// Questions from the texts *.txt and *.txt.gz in `folder` or its folder books: a passage of
/// sentences, the next sentence with a character in it that the passage names, all names @entityN.
/// Of the books, in an order that the seed decides, the first eighth is for the test, the second
/// for validation, at least one each; all others are for training. Words are in lower case. The
/// same books and request give the same questions on every machine. Throws DataError when there are
/// not three books, one cannot be read, is not UTF-8, or a set would have no question.
ClozeSets MakeBookCloze(const std::filesystem::path& folder, const BookCloze& request);

/// Whether MakeBookCloze finds books there.
bool HasBooks(const std::filesystem::path& folder);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_ATTENTIVE_READER_BOOK_CLOZE_H_
