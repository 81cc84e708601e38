#include "lab/tasks/attentive-reader/cloze.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <numeric>
#include <optional>
#include <set>
#include <system_error>

#include "lab/base/escape.h"
#include "lab/base/format_integer.h"
#include "lab/data/file_content.h"
#include "lab/data/lines.h"
#include "lab/data/sha256.h"
#include "lab/error.h"
#include "lab/run/posix_file.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

constexpr char kPlaceholderText[] = "@placeholder";
constexpr std::string_view kEntityText = "@entity";

// Returns the number of an entity's text, such as @entity12, or nullopt for any other word.
std::optional<int32_t> EntityIn(std::string_view text) {
  if (!text.starts_with(kEntityText)) return std::nullopt;
  const std::string_view digits = text.substr(kEntityText.size());
  int32_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  if (number < 0 || number >= kMaxEntities) return std::nullopt;
  return number;
}

std::vector<ClozeToken> Tokens(std::string_view line, ClozeWords* words) {
  std::vector<ClozeToken> tokens;
  for (size_t begin = 0; begin < line.size();) {
    const size_t end = std::min(line.find_first_of(" \t", begin), line.size());
    if (end > begin) tokens.push_back(words->Token(line.substr(begin, end - begin)));
    begin = end + 1;
  }
  return tokens;
}

// Parts of a distribution's folder, in the order of ClozeSets.
constexpr const char* kParts[] = {"training", "validation", "test"};

fs::path FindQuestions(const fs::path& folder) {
  std::error_code error;
  for (const char* below :
       {"", "questions", "cnn", "cnn/questions", "dailymail", "dailymail/questions"}) {
    fs::path candidate = *below == '\0' ? folder : folder / below;
    if (std::ranges::all_of(
            kParts, [&](const char* part) { return fs::is_directory(candidate / part, error); })) {
      return candidate;
    }
  }
  return {};
}

std::vector<fs::path> QuestionFiles(const fs::path& folder) {
  std::vector<fs::path> files;
  try {
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == ".question") files.push_back(entry.path());
    }
  } catch (const fs::filesystem_error& e) {
    FailToRead(folder, e.code().message());
  }
  if (files.empty()) {
    throw DataError(fmt::format("{} has no files *.question", Escaped(folder.string())));
  }
  std::ranges::sort(files);
  return files;
}

// Cuts passages and questions as requested.
class Cutter {
 public:
  Cutter(const QuestionsRequest& request, ClozeWords* words) : request_(request) {
    for (const char* text : {".", "!", "?"}) ends_.insert(words->Token(text));
    // Tokens after the end of a sentence that belong to it.
    for (const char* text : {"\"", "''", "'", ")", "”", "’", "-rrb-"}) {
      closers_.insert(words->Token(text));
    }
  }

  void Cut(ClozeQuestion* q) {
    if (!q->source.starts_with(kBookSource)) KeepSentences(q);
    const auto longest = static_cast<size_t>(request_.longest_passage);
    if (q->passage.size() > longest) {
      q->passage.resize(longest);
      ++cut_;
    }
    const auto max_words = static_cast<size_t>(request_.longest_question);
    if (q->question.size() > max_words) {
      const auto at = static_cast<size_t>(
          std::distance(q->question.begin(), std::ranges::find(q->question, kPlaceholder)));
      const size_t begin =
          std::min(at - std::min(at, max_words / 2), q->question.size() - max_words);
      const auto first = q->question.begin() + static_cast<std::ptrdiff_t>(begin);
      q->question = {first, first + static_cast<std::ptrdiff_t>(max_words)};
      ++cut_;
    }
    if (std::ranges::find(q->passage, EntityToken(q->answer)) == q->passage.end()) ++lost_;
  }

  int64_t cut() const { return cut_; }    // passages and questions that lost words
  int64_t lost() const { return lost_; }  // questions whose answer is not in the passage

 private:
  void KeepSentences(ClozeQuestion* q) const {
    const std::vector<ClozeToken>& passage = q->passage;
    // For each sentence its end, and how many of the question's words are in it.
    std::vector<std::pair<size_t, size_t>> sentences;
    const std::set<ClozeToken> asked(q->question.begin(), q->question.end());
    for (size_t begin = 0; begin < passage.size();) {
      size_t end = begin;
      while (end < passage.size() && !ends_.contains(passage[end])) ++end;
      while (end < passage.size() &&
             (ends_.contains(passage[end]) || closers_.contains(passage[end]))) {
        ++end;
      }
      const std::set<ClozeToken> words(passage.begin() + static_cast<std::ptrdiff_t>(begin),
                                       passage.begin() + static_cast<std::ptrdiff_t>(end));
      sentences.emplace_back(end, std::ranges::count_if(words, [&](ClozeToken token) {
                               return asked.contains(token);
                             }));
      begin = end;
    }
    std::vector<size_t> order(sentences.size());
    std::iota(order.begin(), order.end(), size_t{0});
    if (request_.by_overlap) {
      std::ranges::stable_sort(order, std::ranges::greater(),
                               [&](size_t s) { return sentences[s].second; });
    }
    order.resize(std::min(order.size(), static_cast<size_t>(request_.sentences)));
    std::ranges::sort(order);
    std::vector<ClozeToken> kept;
    for (const size_t s : order) {
      const size_t begin = s == 0 ? 0 : sentences[s - 1].first;
      kept.insert(kept.end(), passage.begin() + static_cast<std::ptrdiff_t>(begin),
                  passage.begin() + static_cast<std::ptrdiff_t>(sentences[s].first));
    }
    q->passage = std::move(kept);
  }

  const QuestionsRequest& request_;
  std::set<ClozeToken> ends_, closers_;
  int64_t cut_ = 0, lost_ = 0;
};

}  // namespace

ClozeWords::ClozeWords() { Token(kPlaceholderText); }

ClozeToken ClozeWords::Token(std::string_view text) {
  if (const auto entity = EntityIn(text)) return EntityToken(*entity);
  const auto [place, is_new] =
      numbers_.try_emplace(std::string(text), static_cast<ClozeToken>(words_.size()));
  if (is_new) words_.emplace_back(text);
  return place->second;
}

std::string ClozeWords::Text(ClozeToken token) const {
  if (IsEntity(token)) return fmt::format("{}{}", kEntityText, EntityOf(token));
  return words_.at(static_cast<size_t>(token));
}

int32_t ClozeSets::entities() const {
  int32_t largest = 0;
  for (const auto* set : {&train, &valid, &test}) {
    for (const ClozeQuestion& q : *set) {
      largest = std::max(largest, q.answer);
      for (const auto* tokens : {&q.passage, &q.question}) {
        for (const ClozeToken token : *tokens) largest = std::max(largest, EntityOf(token));
      }
    }
  }
  return largest + 1;
}

std::string ClozeText(const ClozeWords& words, const std::vector<ClozeToken>& tokens) {
  std::string text;
  for (const ClozeToken token : tokens) {
    if (!text.empty()) text += ' ';
    text += words.Text(token);
  }
  return text;
}

std::string HashQuestions(const ClozeSets& sets) {
  Sha256 sha;
  for (const auto* set : {&sets.train, &sets.valid, &sets.test}) {
    for (const ClozeQuestion& q : *set) {
      const std::string text =
          fmt::format("{}\n{}\n{}\n", ClozeText(sets.words, q.passage),
                      ClozeText(sets.words, q.question), sets.words.Text(EntityToken(q.answer)));
      sha.Update({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
    }
  }
  return sha.Hex();
}

ClozeQuestion ParseQuestion(const std::vector<std::string>& lines, const std::string& name,
                            ClozeWords* words) {
  constexpr const char* kWhat[] = {"the source", "the passage", "the question", "the answer"};
  constexpr const char* kEmpty = "an empty line";
  const auto fail = [&](size_t i, const std::string& reason) {
    FailAtLine(name, static_cast<int64_t>(i) + 1, reason);
  };
  const auto fail_unlike = [&](size_t i, const std::string& has, const std::string& expected) {
    fail(i, fmt::format("it is {}; {} was expected", has, expected));
  };
  for (size_t i = 0; i < 7; ++i) {
    const std::string expected = i % 2 == 0 ? kWhat[i / 2] : kEmpty;
    if (i >= lines.size()) fail_unlike(i, "the end of the file", expected);
    if (i % 2 == 0 && IsBlank(lines[i])) fail_unlike(i, "empty", expected);
    if (i % 2 == 1 && !IsBlank(lines[i])) fail_unlike(i, Quoted(lines[i]), expected);
  }
  ClozeQuestion q;
  q.source = lines[0];
  q.passage = Tokens(lines[2], words);
  q.question = Tokens(lines[4], words);
  if (std::ranges::find(q.question, kPlaceholder) == q.question.end()) {
    fail(4, fmt::format("the question has no {}: {}", kPlaceholderText, Quoted(lines[4])));
  }
  const auto answer = EntityIn(lines[6].substr(0, lines[6].find_last_not_of(" \t") + 1));
  if (!answer) fail_unlike(6, Quoted(lines[6]), "an entity such as @entity3");
  q.answer = *answer;
  if (lines.size() > 7 && !IsBlank(lines[7])) fail_unlike(7, Quoted(lines[7]), kEmpty);
  std::set<int32_t> named;
  for (size_t i = 8; i < lines.size(); ++i) {
    if (IsBlank(lines[i])) continue;
    const size_t colon = lines[i].find(':');
    const auto entity = EntityIn(std::string_view(lines[i]).substr(0, colon));
    if (!entity || colon == std::string::npos) {
      fail_unlike(i, Quoted(lines[i]), "the name of an entity, such as @entity3:name,");
    }
    if (!named.insert(*entity).second) {
      fail(i, fmt::format("an earlier line names the entity of {}", Quoted(lines[i])));
    }
    q.names.emplace_back(*entity, lines[i].substr(colon + 1));
  }
  if (!named.contains(q.answer)) {
    fail(6, fmt::format("the answer {} is not among the entities named below", Quoted(lines[6])));
  }
  return q;
}

std::string QuestionText(const ClozeQuestion& question, const ClozeWords& words) {
  std::string text =
      fmt::format("{}\n\n{}\n\n{}\n\n{}\n\n", question.source, ClozeText(words, question.passage),
                  ClozeText(words, question.question), words.Text(EntityToken(question.answer)));
  for (const auto& [entity, name] : question.names) {
    text += fmt::format("{}:{}\n", words.Text(EntityToken(entity)), name);
  }
  return text;
}

bool HasQuestions(const fs::path& folder) { return !FindQuestions(folder).empty(); }

ClozeSets ReadQuestions(const fs::path& folder, const QuestionsRequest& request) {
  const fs::path found = FindQuestions(folder);
  if (found.empty()) {
    throw DataError(fmt::format(
        "{} has no folders training, validation and test, itself or in a folder questions, cnn or "
        "dailymail",
        Escaped(folder.string())));
  }
  ClozeSets sets;
  Cutter cutter(request, &sets.words);
  std::vector<size_t> counts;
  bool books = true;
  for (const auto& [set, part, max_count] : {std::tuple(&sets.train, kParts[0], request.train),
                                             {&sets.valid, kParts[1], request.held_out},
                                             {&sets.test, kParts[2], request.held_out}}) {
    std::vector<fs::path> files = QuestionFiles(found / part);
    counts.push_back(files.size());
    files.resize(std::min(files.size(), static_cast<size_t>(max_count)));
    for (const fs::path& file : files) {
      ClozeQuestion q = ParseQuestion(ReadLines(file), file.string(), &sets.words);
      cutter.Cut(&q);
      books = books && q.source.starts_with(kBookSource);
      if (set == &sets.train) q.names = {};  // unused, and hundreds of megabytes for CNN
      set->push_back(std::move(q));
    }
  }
  // Counts of Hermann et al. 2015, Table 1.
  sets.name = counts == std::vector<size_t>{380'298, 3'924, 3'198}     ? "cnn"
              : counts == std::vector<size_t>{879'450, 64'835, 53'182} ? "dailymail"
              : books                                                  ? "books"
                                                                       : "questions";
  sets.source = "files";
  const auto used = [](size_t n, size_t of) {
    return n == of ? FormatInteger(static_cast<int64_t>(n))
                   : fmt::format("{} of {}", FormatInteger(static_cast<int64_t>(n)),
                                 FormatInteger(static_cast<int64_t>(of)));
  };
  sets.description = fmt::format(
      "{} training, {} validation and {} test questions read from {}, {}; {} passages or questions "
      "cut to {} and {} words; {} answers are not in their passage",
      used(sets.train.size(), counts[0]), used(sets.valid.size(), counts[1]),
      used(sets.test.size(), counts[2]), found.string(),
      books ? std::string("their passages as they are")
            : fmt::format("passages cut to {} sentences ({})", request.sentences,
                          request.by_overlap ? "those that share most words with the question"
                                             : "the first"),
      FormatInteger(cutter.cut()), request.longest_passage, request.longest_question,
      FormatInteger(cutter.lost()));
  sets.sha256 = HashQuestions(sets);
  return sets;
}

void WriteQuestions(const ClozeSets& sets, const fs::path& folder) {
  const fs::path root = folder / "questions";
  std::error_code error;
  if (fs::exists(root, error) && !fs::is_empty(root, error)) {
    throw CannotWrite(root, "it exists and is not empty");
  }
  for (const auto& [set, part] :
       {std::pair(&sets.train, kParts[0]), {&sets.valid, kParts[1]}, {&sets.test, kParts[2]}}) {
    fs::create_directories(root / part, error);
    if (error) {
      throw RunError(
          fmt::format("cannot create {}: {}", Escaped((root / part).string()), error.message()));
    }
    for (size_t i = 0; i < set->size(); ++i) {
      const fs::path file = root / part / fmt::format("{:07}.question", i);
      std::ofstream out(file, std::ios::binary);
      out << QuestionText((*set)[i], sets.words);
      out.close();
      if (!out) throw CannotWrite(file, SystemReason(errno));
    }
  }
}

}  // namespace planish::lab
