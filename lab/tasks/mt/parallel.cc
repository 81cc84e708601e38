#include "lab/tasks/mt/parallel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <random>
#include <span>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "lab/base/escape.h"
#include "lab/base/format_integer.h"
#include "lab/data/file_content.h"
#include "lab/data/lines.h"
#include "lab/data/sha256.h"
#include "lab/error.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kSyntheticTrain = 4'000;
constexpr int64_t kSyntheticHeldOut = 200;
constexpr int64_t kHeldOutShare = 20;
constexpr int64_t kMaxHeldOut = 2'000;

struct Direction {
  std::string from, to;
};

struct SkippedPairs {
  int64_t blank = 0;   // pairs with a blank side
  int64_t shared = 0;  // training pairs that share a sentence with held-out pairs
};

// Possible folders and names of a split's files.
struct Layout {
  std::vector<std::string> folders;
  std::vector<std::string> train, valid, test;
};

Direction ParseDirection(const std::string& text) {
  const size_t dash = text.find('-');
  Direction direction{text.substr(0, dash), dash == text.npos ? "" : text.substr(dash + 1)};
  const auto is_name = [](const std::string& name) {
    return !name.empty() && name.find_first_of("/-.") == name.npos;
  };
  if (!is_name(direction.from) || !is_name(direction.to) || direction.from == direction.to) {
    throw UsageError(
        fmt::format("[mt] direction must be two languages, such as en-de, got \"{}\"", text));
  }
  return direction;
}

// Returns the files of both languages that begin with one of `stems`.
std::pair<fs::path, fs::path> FindBoth(const fs::path& folder,
                                       const std::vector<std::string>& stems,
                                       const Direction& direction) {
  for (const std::string& stem : stems) {
    const auto from = FindFile(folder, stem + "." + direction.from);
    const auto to = FindFile(folder, stem + "." + direction.to);
    if (from && to) return {*from, *to};
    if (from || to) {
      throw DataError(fmt::format("{} has {}, but no {}.{}", Escaped(folder.string()),
                                  Escaped((from ? *from : *to).filename().string()), stem,
                                  from ? direction.to : direction.from));
    }
  }
  throw DataError(fmt::format("{} has no files NAME.{}[.gz] and NAME.{}[.gz], where NAME is {}",
                              Escaped(folder.string()), direction.from, direction.to,
                              fmt::join(stems, " or ")));
}

std::vector<SentencePair> ReadPairs(const std::pair<fs::path, fs::path>& files,
                                    SkippedPairs& left_out) {
  std::vector<std::string> from = ReadLines(files.first), to = ReadLines(files.second);
  if (from.size() != to.size()) {
    FailToRead(files.second, fmt::format("it has {}, but {} has {}", Count(std::ssize(to), "line"),
                                         Escaped(files.first.filename().string()),
                                         FormatInteger(std::ssize(from))));
  }
  std::vector<SentencePair> pairs;
  for (size_t i = 0; i < from.size(); ++i) {
    if (IsBlank(from[i]) || IsBlank(to[i])) {
      ++left_out.blank;
    } else {
      pairs.push_back({std::move(from[i]), std::move(to[i])});
    }
  }
  return pairs;
}

void ReadFiles(const fs::path& root, const Layout& layout, const Direction& direction,
               ParallelText& text, SkippedPairs& left_out) {
  fs::path folder = root;
  std::error_code error;
  for (const std::string& below : layout.folders) {
    if (fs::is_directory(root / below, error)) folder = root / below;
  }
  const auto read = [&](const std::vector<std::string>& stems) {
    return ReadPairs(FindBoth(folder, stems, direction), left_out);
  };
  text.train = read(layout.train);
  text.valid = read(layout.valid);
  text.test = read(layout.test);
}

// Reads lines of English, a tab and German; text after another tab is a note on the source.
std::vector<SentencePair> ReadTable(const fs::path& file, SkippedPairs& left_out) {
  std::vector<SentencePair> pairs;
  int64_t number = 0;
  for (const std::string& line : ReadLines(file)) {
    ++number;
    const size_t tab = line.find('\t');
    if (tab == line.npos && !IsBlank(line)) {
      FailAtLine(file, number, "it has no tab; English, a tab and German were expected");
    }
    SentencePair pair{line.substr(0, tab), tab == line.npos ? "" : line.substr(tab + 1)};
    pair.target.resize(std::min(pair.target.size(), pair.target.find('\t')));
    if (IsBlank(pair.source) || IsBlank(pair.target)) {
      ++left_out.blank;
    } else {
      pairs.push_back(std::move(pair));
    }
  }
  return pairs;
}

// Splits pairs by their English sentences (see OpenParallel).
void Split(const std::vector<SentencePair>& pairs, ParallelText& text, SkippedPairs& left_out) {
  std::vector<size_t> first;  // pair with a new English sentence
  std::unordered_set<std::string_view> english;
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (english.insert(pairs[i].source).second) first.push_back(i);
  }
  std::mt19937_64 random(1);
  for (size_t i = first.size(); i > 1; --i) std::swap(first[i - 1], first[random() % i]);
  const auto held_out = static_cast<size_t>(
      std::min(kMaxHeldOut, static_cast<int64_t>(first.size()) / kHeldOutShare));
  std::unordered_set<std::string_view> sources, targets;
  for (size_t k = 0; k < 2 * held_out; ++k) {
    const SentencePair& pair = pairs[first[k]];
    // A German sentence of the test set must not be in validation with another English one.
    if (k >= held_out && targets.contains(pair.target)) continue;
    (k < held_out ? text.test : text.valid).push_back(pair);
    sources.insert(pair.source);
    targets.insert(pair.target);
  }
  for (const SentencePair& pair : pairs) {
    if (!sources.contains(pair.source) && !targets.contains(pair.target)) {
      text.train.push_back(pair);
    } else {
      ++left_out.shared;
    }
  }
  // Such files are sorted by length.
  for (size_t i = text.train.size(); i > 1; --i) {
    std::swap(text.train[i - 1], text.train[random() % i]);
  }
}

fs::path FindTable(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder, error) && !fs::is_directory(folder, error)) return folder;
  for (const fs::path& candidate : {folder / "tatoeba_deu_eng", folder}) {
    if (const auto file = FindFile(candidate, "deu.txt")) return *file;
  }
  throw DataError(
      fmt::format("{} has no file deu.txt or deu.txt.gz, itself or in a folder tatoeba_deu_eng",
                  Escaped(folder.string())));
}

void Make(ParallelText& text) {
  std::vector<SentencePair> pairs = MakeTranslations(kSyntheticTrain + 2 * kSyntheticHeldOut);
  const auto test = pairs.end() - kSyntheticHeldOut, valid = test - kSyntheticHeldOut;
  text.test.assign(test, pairs.end());
  text.valid.assign(valid, test);
  text.train.assign(pairs.begin(), valid);
}

std::string HashOf(const ParallelText& text) {
  Sha256 sha;
  const auto add = [&](std::string_view part) {
    sha.Update({reinterpret_cast<const uint8_t*>(part.data()), part.size()});
  };
  for (const auto* split : {&text.train, &text.valid, &text.test}) {
    for (const SentencePair& pair : *split) {
      add(pair.source);
      add("\t");
      add(pair.target);
      add("\n");
    }
    add("\n");
  }
  return sha.Hex();
}

}  // namespace

ParallelText OpenParallel(const std::optional<fs::path>& folder, const ParallelRequest& request) {
  const Direction direction = ParseDirection(request.direction);
  std::string data = request.data;
  if (data == "auto") data = folder ? "multi30k" : "synthetic";
  if (data != "synthetic" && !folder) {
    throw UsageError(fmt::format("[mt] data={} needs a folder: give --data", data));
  }
  const bool reversed = direction.from == "de";
  if (data != "files" &&
      !((reversed && direction.to == "en") || (direction.from == "en" && direction.to == "de"))) {
    throw UsageError(fmt::format("[mt] direction must be en-de or de-en for data={}, got \"{}\"",
                                 data, request.direction));
  }
  if (std::error_code error; folder && data != "synthetic" && !fs::exists(*folder, error)) {
    FailToRead(*folder, "no such file or folder");
  }
  ParallelText text;
  SkippedPairs left_out;
  if (data == "synthetic") {
    Make(text);
  } else if (data == "tatoeba") {
    Split(ReadTable(FindTable(*folder), left_out), text, left_out);
  } else if (data == "multi30k") {
    ReadFiles(*folder, {{"task1", "multi30k/task1"}, {"train"}, {"val"}, {"test_2016_flickr"}},
              direction, text, left_out);
  } else if (data == "iwslt14") {
    ReadFiles(*folder, {{"iwslt14_deen"}, {"train", "train_sample4600"}, {"valid"}, {"test"}},
              direction, text, left_out);
  } else {
    ReadFiles(*folder, {{}, {"train"}, {"valid", "val", "dev"}, {"test"}}, direction, text,
              left_out);
  }
  if ((data == "synthetic" || data == "tatoeba") && reversed) {
    for (auto* split : {&text.train, &text.valid, &text.test}) {
      for (SentencePair& pair : *split) std::swap(pair.source, pair.target);
    }
  }
  for (const auto& [split, pairs] :
       {std::pair("training", &text.train), std::pair("validation", &text.valid),
        std::pair("test", &text.test)}) {
    if (pairs->empty()) {
      throw DataError(
          fmt::format("{} has no {} pairs", folder ? Escaped(folder->string()) : data, split));
    }
  }
  const auto all = std::ssize(text.train);
  if (all > request.train_pairs) text.train.resize(static_cast<size_t>(request.train_pairs));

  text.name = fmt::format("{} {}", data, request.direction);
  text.source = data == "synthetic" ? "embedded" : "files";
  text.sha256 = HashOf(text);
  const std::string origin =
      data == "synthetic" ? "generated by planish" : fmt::format("read from {}", folder->string());
  text.description =
      fmt::format("{} {} to {}, {}: {} training pairs{}, {} for validation, {} for testing", data,
                  direction.from, direction.to, origin, FormatInteger(std::ssize(text.train)),
                  std::ssize(text.train) < all ? fmt::format(" of {}", FormatInteger(all)) : "",
                  FormatInteger(std::ssize(text.valid)), FormatInteger(std::ssize(text.test)));
  if (left_out.blank > 0) {
    text.description +=
        fmt::format("; {} with an empty side left out", Count(left_out.blank, "pair"));
  }
  if (left_out.shared > 0) {
    text.description +=
        fmt::format("; {} training pairs left out that share a sentence with validation or test",
                    FormatInteger(left_out.shared));
  }
  return text;
}

}  // namespace planish::lab
