#include "lab/tasks/attentive-reader/corpus.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lab/base/escape.h"
#include "lab/base/format_integer.h"
#include "lab/error.h"
#include "lab/tasks/attentive-reader/book_cloze.h"
#include "lab/tasks/attentive-reader/synthetic_cloze.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

// Maximum number of questions in the report.
constexpr size_t kShown = 3;

ClozeSets Open(const Settings& s, const std::optional<fs::path>& folder) {
  if (!folder) {
    const SyntheticCloze limits;
    return MakeCloze({.train = std::min(s.Int("train_cases"), limits.train),
                      .held_out = std::min(s.Int("eval_cases"), limits.held_out),
                      .entities = s.Int("entities"),
                      .seed = s.Int("questions_seed")});
  }
  if (HasQuestions(*folder)) {
    return ReadQuestions(*folder, {.train = s.Int("train_cases"),
                                   .held_out = s.Int("eval_cases"),
                                   .sentences = s.Int("sentences"),
                                   .by_overlap = s.Text("sentences_by") == "overlap",
                                   .longest_passage = s.Int("longest_passage"),
                                   .longest_question = s.Int("longest_question")});
  }
  if (HasBooks(*folder)) {
    const BookCloze limits;
    return MakeBookCloze(
        *folder, {.train = s.Int("train_cases"),
                  .held_out = s.Int("eval_cases"),
                  .sentences = s.Int("sentences"),
                  .entities = s.Int("entities"),
                  .longest_passage = std::min(s.Int("longest_passage"), limits.longest_passage),
                  .longest_question = std::min(s.Int("longest_question"), limits.longest_question),
                  .seed = s.Int("questions_seed")});
  }
  throw DataError(fmt::format(
      "{} has neither questions (training, validation and test, itself or in a folder questions, "
      "cnn or dailymail) nor books (*.txt or *.txt.gz, itself or in a folder books)",
      Escaped(folder->string())));
}

// Returns the index of each word of ClozeWords that is frequent enough in training; others are
// unknown. Follows the order of the training questions, so that equal questions, read or synthetic,
// give equal indices.
std::vector<int32_t> NumberWords(const ClozeSets& sets, int64_t min_count, int32_t unknown) {
  const auto for_each = [&](const auto& visit) {
    for (const ClozeQuestion& q : sets.train) {
      for (const auto* tokens : {&q.passage, &q.question}) {
        for (const ClozeToken token : *tokens) {
          if (!IsEntity(token)) visit(static_cast<size_t>(token));
        }
      }
    }
  };
  std::vector<int64_t> counts(static_cast<size_t>(sets.words.size()));
  for_each([&](size_t word) { ++counts[word]; });
  std::vector<int32_t> numbers(counts.size(), unknown);
  int32_t next = unknown;
  numbers[kPlaceholder] = ++next;
  for_each([&](size_t word) {
    if (counts[word] >= min_count && numbers[word] == unknown) numbers[word] = ++next;
  });
  return numbers;
}

NumberedQuestions Number(const std::vector<ClozeQuestion>& questions,
                         const std::vector<int32_t>& numbers, int32_t unknown) {
  NumberedQuestions all;
  const auto count = static_cast<int64_t>(questions.size());
  all.answers = at::empty({count}, at::kLong);
  for (int64_t i = 0; i < count; ++i) {
    all.answers.data_ptr<int64_t>()[i] = questions[static_cast<size_t>(i)].answer;
  }
  const auto fill = [&](std::vector<ClozeToken> ClozeQuestion::* tokens, at::Tensor* rows,
                        at::Tensor* lengths) {
    *lengths = at::empty({count}, at::kLong);
    size_t longest = 1;
    for (size_t i = 0; i < questions.size(); ++i) {
      const size_t length = (questions[i].*tokens).size();
      lengths->data_ptr<int64_t>()[i] = static_cast<int64_t>(length);
      longest = std::max(longest, length);
    }
    *rows = at::full({count, static_cast<int64_t>(longest)}, unknown, at::kInt);
    int32_t* row = rows->data_ptr<int32_t>();
    for (const ClozeQuestion& q : questions) {
      std::ranges::transform(q.*tokens, row, [&](ClozeToken token) {
        return IsEntity(token) ? EntityOf(token) : numbers[static_cast<size_t>(token)];
      });
      row += longest;
    }
  };
  fill(&ClozeQuestion::passage, &all.passages, &all.passage_lengths);
  fill(&ClozeQuestion::question, &all.questions, &all.question_lengths);
  return all;
}

}  // namespace

std::unique_ptr<ReaderCorpus> LoadReaderCorpus(const Settings& settings,
                                               const std::optional<fs::path>& folder) {
  const ClozeSets sets = Open(settings, folder);
  auto corpus = std::make_unique<ReaderCorpus>();
  corpus->entities = sets.entities();
  const auto unknown = static_cast<int32_t>(corpus->entities);
  const std::vector<int32_t> numbers = NumberWords(sets, settings.Int("min_count"), unknown);
  corpus->symbols = std::ranges::max(numbers) + 1;
  corpus->train = Number(sets.train, numbers, unknown);
  corpus->valid = Number(sets.valid, numbers, unknown);
  corpus->test = Number(sets.test, numbers, unknown);
  corpus->shown = {sets.valid.begin(), sets.valid.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                                kShown, sets.valid.size()))};
  for (int32_t i = 0; i < sets.words.size(); ++i) corpus->texts.push_back(sets.words.Text(i));
  corpus->about = AboutSplits(
      sets,
      fmt::format("{}; {} entities, {} words in the lexicon", sets.description, corpus->entities,
                  FormatInteger(corpus->symbols - corpus->entities - 1)),
      corpus->train.size(), corpus->valid.size(), corpus->test.size());
  return corpus;
}

std::vector<SettingSpec> ReaderDataSettings() {
  return {
      {"train_cases", 10'000'000, "maximum number of training questions", 1, 1e9, {}},
      {"eval_cases",
       10'000'000,
       "maximum number of questions for validation, and for the test",
       1,
       1e9,
       {}},
      {"sentences", 4, "sentences of a passage", 1, 1000, {}},
      Choice("sentences_by", "overlap",
             "sentences of a file: those that share most words with the question, or the first",
             {"overlap", "first"}),
      {"longest_passage", 400, "maximum number of words of a passage", 1, 1 << 20, {}},
      {"longest_question", 100, "maximum number of words of a question", 1, 1 << 20, {}},
      {"entities", 30, "entity numbers of synthetic questions", 4, kMaxEntities, {}},
      {"questions_seed", 1, "seed of the synthetic questions", 0, 1e9, {}},
      {"min_count", 1, "rarer words of the training questions are unknown", 1, 1e9, {}},
  };
}

}  // namespace planish::lab
