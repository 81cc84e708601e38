#ifndef PLANISH_LAB_TASKS_ATTENTIVE_READER_CLOZE_H_
#define PLANISH_LAB_TASKS_ATTENTIVE_READER_CLOZE_H_

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

// Cloze questions: a passage with numbered entities instead of names, and a sentence about it with
// one entity left out (Hermann et al. 2015).
namespace planish::lab {

/// Word of a question: its index in ClozeSets::words, or -1 - n for the entity n.
using ClozeToken = int32_t;
constexpr ClozeToken EntityToken(int32_t entity) { return -1 - entity; }
constexpr bool IsEntity(ClozeToken token) { return token < 0; }
constexpr int32_t EntityOf(ClozeToken token) { return -1 - token; }

/// Placeholder for the missing entity: the first of all words.
inline constexpr ClozeToken kPlaceholder = 0;

/// Upper limit of entity numbers.
inline constexpr int32_t kMaxEntities = 1'000'000;

struct ClozeQuestion {
  std::vector<ClozeToken> passage;
  std::vector<ClozeToken> question;                    ///< contains kPlaceholder
  int32_t answer = 0;                                  ///< the missing entity
  std::vector<std::pair<int32_t, std::string>> names;  ///< entity -> name, if known
  std::string source;                                  ///< origin: one line
};

/// Words numbered in order of appearance; kPlaceholder is the first.
class ClozeWords {
 public:
  ClozeWords();

  /// Returns the token of a text: "@entity12" is an entity, all others are words. Adds new words.
  ClozeToken Token(std::string_view text);

  /// Returns the text of a token.
  std::string Text(ClozeToken token) const;

  int64_t size() const { return static_cast<int64_t>(words_.size()); }

 private:
  std::vector<std::string> words_;
  std::unordered_map<std::string, ClozeToken> numbers_;
};

/// Sets of a task, with the fields of RunConfig::Data.
struct ClozeSets {
  ClozeWords words;
  std::vector<ClozeQuestion> train, valid, test;
  std::string name;         ///< "cnn", "dailymail", "books", "questions" or "synthetic questions"
  std::string source;       ///< "files" or "embedded"
  std::string description;  ///< one sentence
  std::string sha256;       ///< HashQuestions

  /// Returns the largest entity number plus one.
  int32_t entities() const;
};

/// Returns the SHA-256, in lower-case hexadecimal, of passage, question and answer of all questions
/// in order, each as text with "\n".
std::string HashQuestions(const ClozeSets& sets);

/// Returns the words of these tokens, separated by blanks.
std::string ClozeText(const ClozeWords& words, const std::vector<ClozeToken>& tokens);

/// Options for reading a folder of questions.
struct QuestionsRequest {
  int64_t train = std::numeric_limits<int64_t>::max();     ///< at most: the first ones
  int64_t held_out = std::numeric_limits<int64_t>::max();  ///< of validation and of test each
  int64_t sentences = 4;                                   ///< kept sentences of a passage
  /// Keeps the sentences with the most words of the question (on a tie the earlier ones), or else
  /// the first ones.
  bool by_overlap = true;
  int64_t longest_passage = 400;   ///< words; further ones are cut off
  int64_t longest_question = 100;  ///< words; keeps those nearest the placeholder
};

/// Parses a question in the format of CNN and Daily Mail: a source, a passage, a question with
/// @placeholder, and the answer, with an empty line after each; then a line "@entityN:name" for
/// each entity. The passage is not cut.
/// Throws DataError naming `name` and the line if one is missing or wrong, and for an answer
/// without a line.
ClozeQuestion ParseQuestion(const std::vector<std::string>& lines, const std::string& name,
                            ClozeWords* words);

/// Returns the text that ParseQuestion reads.
std::string QuestionText(const ClozeQuestion& question, const ClozeWords& words);

/// Returns true if ReadQuestions finds questions in `folder`.
bool HasQuestions(const std::filesystem::path& folder);

/// Reads training/*.question, validation/*.question and test/*.question, in the order of their
/// names, in `folder` or its questions, cnn, cnn/questions, dailymail or dailymail/questions.
/// Questions that WriteQuestions wrote from books are already short and are not cut. Throws
/// DataError if there is no such folder or one has no question, and like ParseQuestion and
/// ReadLines.
ClozeSets ReadQuestions(const std::filesystem::path& folder, const QuestionsRequest& request);

/// Writes the sets in ReadQuestions' format to `folder`/questions. Throws RunError if that exists
/// and is not empty, or cannot be written.
void WriteQuestions(const ClozeSets& sets, const std::filesystem::path& folder);

/// Start of the source of a question from a book.
inline constexpr char kBookSource[] = "book ";

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_ATTENTIVE_READER_CLOZE_H_
