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

// Cloze questions: a passage in which entities have numbers in place of their names, and a sentence
// about it with one entity left out (Hermann et al. 2015).
namespace planish::lab {

/// A word as questions have it: its number in ClozeSets::words, or the entity n as -1 - n.
using ClozeToken = int32_t;
constexpr ClozeToken EntityToken(int32_t entity) { return -1 - entity; }
constexpr bool IsEntity(ClozeToken token) { return token < 0; }
constexpr int32_t EntityOf(ClozeToken token) { return -1 - token; }

/// What stands for the entity that is asked for: the first of all words.
inline constexpr ClozeToken kPlaceholder = 0;

/// Numbers that an entity may have are below this.
inline constexpr int32_t kMaxEntities = 1'000'000;

struct ClozeQuestion {
  std::vector<ClozeToken> passage;
  std::vector<ClozeToken> question;                    ///< with kPlaceholder in it
  int32_t answer = 0;                                  ///< the entity left out
  std::vector<std::pair<int32_t, std::string>> names;  ///< entity -> name, as far as they are known
  std::string source;                                  ///< where it is from: one line
};

/// Words that have numbers in the order of their coming; kPlaceholder is there from the start.
class ClozeWords {
 public:
  ClozeWords();

  /// The token that a text spells: "@entity12" is an entity, all others are words, added where they
  /// are new.
  ClozeToken Token(std::string_view text);

  /// The text of a token.
  std::string Text(ClozeToken token) const;

  int64_t size() const { return static_cast<int64_t>(words_.size()); }

 private:
  std::vector<std::string> words_;
  std::unordered_map<std::string, ClozeToken> numbers_;
};

/// The sets of a task, with what RunConfig::Data records of them.
struct ClozeSets {
  ClozeWords words;
  std::vector<ClozeQuestion> train, valid, test;
  std::string name;         ///< "cnn", "dailymail", "books", "questions" or "made questions"
  std::string source;       ///< "files" or "embedded"
  std::string description;  ///< one sentence for people
  std::string sha256;       ///< HashQuestions

  /// One more than the largest number of an entity.
  int32_t entities() const;
};

/// SHA-256, in lower-case hexadecimal, of passage, question and answer of all questions in order,
/// each as text with "\n".
std::string HashQuestions(const ClozeSets& sets);

/// The words of these tokens, separated by blanks.
std::string ClozeText(const ClozeWords& words, const std::vector<ClozeToken>& tokens);

/// What is wanted of a folder of questions.
struct QuestionsRequest {
  int64_t train = std::numeric_limits<int64_t>::max();  ///< training questions, at most: the first
  int64_t held_out = std::numeric_limits<int64_t>::max();  ///< of validation and of test each
  int64_t sentences = 4;                                   ///< of a passage that are kept
  /// Which: those that have most of the question's words in them, the earlier where there are as
  /// many; or the first ones.
  bool by_overlap = true;
  int64_t longest_passage = 400;   ///< words; what is beyond them is cut off
  int64_t longest_question = 100;  ///< words; a question that has more loses those further away
                                   ///< from the placeholder
};

/// Line by line a question as CNN's and Daily Mail's are distributed: a source, a passage, a
/// question with @placeholder, the answer, with an empty line after each; then a line
/// "@entityN:name" for each entity. The passage is whole. Throws DataError that names `name` and
/// the line where one is missing or something else, and for an answer that no line names.
ClozeQuestion ParseQuestion(const std::vector<std::string>& lines, const std::string& name,
                            ClozeWords* words);

/// The text that ParseQuestion reads.
std::string QuestionText(const ClozeQuestion& question, const ClozeWords& words);

/// Whether ReadQuestions finds questions there.
bool HasQuestions(const std::filesystem::path& folder);

/// Reads training/*.question, validation/*.question and test/*.question, in the order of their
/// names, in `folder` or its questions, cnn, cnn/questions, dailymail or dailymail/questions.
/// Questions that WriteQuestions has written of books have the sentences that they are to have, and
/// are not cut to fewer. Throws DataError when there is no such folder, one has no question, and
/// what ParseQuestion and ReadLines throw.
ClozeSets ReadQuestions(const std::filesystem::path& folder, const QuestionsRequest& request);

/// Writes the sets so that ReadQuestions reads them, to `folder`/questions. Throws RunError when
/// that is there and not empty, or cannot be written.
void WriteQuestions(const ClozeSets& sets, const std::filesystem::path& folder);

/// What the source of a question from a book begins with.
inline constexpr char kBookSource[] = "book ";

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_ATTENTIVE_READER_CLOZE_H_
