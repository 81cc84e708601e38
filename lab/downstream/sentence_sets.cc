#include "lab/downstream/sentence_sets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>
#include <utility>

#include "lab/base/escape.h"
#include "lab/base/format_integer.h"
#include "lab/data/file_content.h"
#include "lab/data/lines.h"
#include "lab/data/sha256.h"
#include "lab/data/synthetic_stories.h"
#include "lab/error.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

// Windows-1252 from 0x80 to 0x9f; 0: no character.
constexpr std::array<uint16_t, 32> kWindows = {
    0x20ac, 0,      0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021, 0x02c6, 0x2030, 0x0160,
    0x2039, 0x0152, 0,      0x017d, 0,      0,      0x2018, 0x2019, 0x201c, 0x201d, 0x2022,
    0x2013, 0x2014, 0x02dc, 0x2122, 0x0161, 0x203a, 0x0153, 0,      0x017e, 0x0178};

std::string FromWindows(const fs::path& file, int64_t number, std::string_view line) {
  std::string text;
  for (size_t i = 0; i < line.size(); ++i) {
    const auto byte = static_cast<uint8_t>(line[i]);
    const uint16_t code = byte >= 0x80 && byte < 0xa0 ? kWindows[byte - 0x80] : byte;
    if (code == 0 && byte != 0) {
      FailAtLine(
          file, number,
          fmt::format("byte 0x{:02x} at column {} is neither UTF-8 nor Windows-1252", byte, i + 1));
    }
    if (code < 0x80) {
      text += static_cast<char>(code);
    } else if (code < 0x800) {
      text += static_cast<char>(0xc0 | code >> 6);
      text += static_cast<char>(0x80 | (code & 0x3f));
    } else {
      text += static_cast<char>(0xe0 | code >> 12);
      text += static_cast<char>(0x80 | (code >> 6 & 0x3f));
      text += static_cast<char>(0x80 | (code & 0x3f));
    }
  }
  return text;
}

// Returns the lines of a file in UTF-8. Converts other files from Windows-1252.
std::vector<std::string> ReadSentences(const fs::path& file) {
  const std::string text = ReadTextFile(file);
  const std::vector<std::string_view> lines = SplitLines(text);
  if (lines.empty()) FailToRead(file, "it is empty");
  const bool windows = FindInvalidUtf8(text).has_value();
  return ReadInMemory(file, [&] {
    std::vector<std::string> sentences;
    for (size_t i = 0; i < lines.size(); ++i) {
      std::string line = windows ? FromWindows(file, static_cast<int64_t>(i) + 1, lines[i])
                                 : std::string(lines[i]);
      if (line.ends_with('\r')) line.pop_back();
      sentences.push_back(std::move(line));
    }
    return sentences;
  });
}

void Add(ClassifiedSentences& set, std::string sentence, int64_t label) {
  set.empty += IsBlank(sentence);
  set.sentences.push_back(std::move(sentence));
  set.labels.push_back(label);
}

void CheckClasses(const ClassifiedSentences& set, const fs::path& file) {
  const auto ones = std::ranges::count(set.labels, 1);
  if (ones == 0 || ones == set.size()) {
    FailToRead(file, fmt::format("all its sentences have class {}; both 0 and 1 are needed",
                                 ones == 0 ? 0 : 1));
  }
}

// Returns the place of a set's files: `folder` or its subfolder `name`, or nullopt if it has none
// of them.
std::optional<fs::path> Place(const fs::path& folder, const std::string& name,
                              const std::vector<std::string>& files) {
  for (const fs::path& place : {folder / name, folder}) {
    std::vector<std::string> missing;
    for (const std::string& file : files) {
      if (!FindFile(place, file)) missing.push_back(file);
    }
    if (missing.empty()) return place;
    if (missing.size() < files.size()) {
      throw DataError(fmt::format("{} has no {}; the set consists of {}", Escaped(place.string()),
                                  fmt::join(missing, ", "), fmt::join(files, ", ")));
    }
  }
  return std::nullopt;
}

void Hash(const std::string& text, Sha256& sha) {
  sha.Update({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

void Describe(SentenceEvaluationSets& sets) {
  std::vector<std::string> parts;
  if (sets.sick) {
    const Sick& sick = *sets.sick;
    parts.push_back(
        fmt::format("sick ({} pairs)",
                    FormatInteger(sick.train.size() + sick.valid.size() + sick.test.size())));
  }
  for (const ClassifiedSentences& set : sets.classified) {
    parts.push_back(fmt::format("{} ({} sentences{})", set.name, FormatInteger(set.size()),
                                set.empty ? fmt::format(", {} empty", set.empty) : ""));
  }
  sets.description = parts.empty() ? "none" : fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

RelatedPairs ReadSick(const fs::path& file) {
  const std::vector<std::string> lines = ReadLines(file);
  RelatedPairs pairs;
  for (size_t i = 0; i < lines.size(); ++i) {
    const int64_t number = static_cast<int64_t>(i) + 1;
    std::vector<std::string> columns;
    for (size_t begin = 0; begin <= lines[i].size();) {
      const size_t end = std::min(lines[i].find('\t', begin), lines[i].size());
      columns.push_back(lines[i].substr(begin, end - begin));
      begin = end + 1;
    }
    if (columns.size() != 5) {
      FailAtLine(file, number,
                 fmt::format("it has {}; 5 were expected", Count(std::ssize(columns), "column")));
    }
    if (i == 0) {
      if (columns[3] != "relatedness_score") {
        FailAtLine(
            file, number,
            fmt::format("column 4 is {}; relatedness_score was expected", Quoted(columns[3])));
      }
      continue;
    }
    double score = 0;
    const std::string& text = columns[3];
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), score);
    if (error != std::errc() || end != text.data() + text.size() || !(score >= 1 && score <= 5)) {
      FailAtLine(file, number, fmt::format("the score is {}; 1 to 5 was expected", Quoted(text)));
    }
    for (const size_t side : {1, 2}) {
      if (IsBlank(columns[side])) {
        FailAtLine(file, number, fmt::format("the sentence in column {} is empty", side + 1));
      }
    }
    pairs.a.push_back(columns[1]);
    pairs.b.push_back(columns[2]);
    pairs.scores.push_back(score);
  }
  if (pairs.size() == 0) FailToRead(file, "it has no pairs");
  return pairs;
}

ClassifiedSentences ReadClassified(const fs::path& file, const std::string& name) {
  const std::vector<std::string> lines = ReadSentences(file);
  ClassifiedSentences set{.name = name};
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = lines[i];
    if (line.size() < 2 || (line[0] != '0' && line[0] != '1') || line[1] != ' ') {
      FailAtLine(file, static_cast<int64_t>(i) + 1,
                 fmt::format("it begins with {}; 0 or 1 and a blank were expected",
                             Quoted(line.substr(0, line.find(' ')))));
    }
    Add(set, line.substr(2), line[0] - '0');
  }
  CheckClasses(set, file);
  return set;
}

ClassifiedSentences ReadClassPair(const fs::path& ones, const fs::path& zeros,
                                  const std::string& name) {
  ClassifiedSentences set{.name = name};
  for (auto [file, label] : {std::pair(&ones, 1), std::pair(&zeros, 0)}) {
    for (std::string& line : ReadSentences(*file)) Add(set, std::move(line), label);
  }
  return set;
}

SentenceEvaluationSets ReadSentenceEvaluationSets(const fs::path& folder) {
  SentenceEvaluationSets sets;
  Sha256 sha;
  const std::vector<std::string> sick = {"SICK_train.txt", "SICK_trial.txt",
                                         "SICK_test_annotated.txt"};
  if (const auto place = Place(folder, "sick", sick)) {
    sets.sick = Sick{ReadSick(NeedFile(*place, sick[0])), ReadSick(NeedFile(*place, sick[1])),
                     ReadSick(NeedFile(*place, sick[2]))};
    for (const RelatedPairs* part : {&sets.sick->train, &sets.sick->valid, &sets.sick->test}) {
      for (size_t i = 0; i < part->scores.size(); ++i) {
        Hash(fmt::format("{}\t{}\t{}\n", part->a[i], part->b[i], part->scores[i]), sha);
      }
    }
  }
  if (const auto place = Place(folder, "mr", {"rt-polarity.pos", "rt-polarity.neg"})) {
    sets.classified.push_back(ReadClassPair(NeedFile(*place, "rt-polarity.pos"),
                                            NeedFile(*place, "rt-polarity.neg"), "mr"));
  }
  for (const auto& [name, file] :
       {std::pair("cr", "custrev.all"), {"subj", "subj.all"}, {"mpqa", "mpqa.all"}}) {
    if (const auto place = Place(folder, name, {file})) {
      sets.classified.push_back(ReadClassified(NeedFile(*place, file), name));
    }
  }
  for (const ClassifiedSentences& set : sets.classified) {
    for (size_t i = 0; i < set.labels.size(); ++i) {
      Hash(fmt::format("{} {}\n", set.labels[i], set.sentences[i]), sha);
    }
  }
  sets.sha256 = sha.Hex();
  Describe(sets);
  return sets;
}

SentenceEvaluationSets MakeSentenceEvaluationSets(int64_t sentences) {
  StoryTeller teller(2);
  ClassifiedSentences set{.name = "synthetic"};
  Sha256 sha;
  for (int64_t i = 0; i < sentences; ++i) {
    auto [sentence, place] = teller.Sentence();
    Hash(sentence, sha);
    Add(set, std::move(sentence), place < kSyntheticPlaces / 2);
  }
  SentenceEvaluationSets sets;
  sets.classified.push_back(std::move(set));
  sets.sha256 = sha.Hex();
  Describe(sets);
  return sets;
}

}  // namespace planish::lab
