#include "lab/tasks/mt/parallel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
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

// Names of the sets of your own files, and the endings of tables.
constexpr std::string_view kTrainNames[] = {"train"}, kValidNames[] = {"valid", "val", "dev"},
                           kTestNames[] = {"test"};
constexpr std::string_view kTableEndings[] = {".tsv", ".txt"};

struct Direction {
  std::string from, to;
};

struct SkippedPairs {
  int64_t blank = 0;   // pairs with a blank side
  int64_t notes = 0;   // pairs of a table with text after a second tab
  int64_t shared = 0;  // training pairs that share a sentence with held-out pairs
};

// Possible folders and names of a split's files.
struct Layout {
  std::vector<std::string> folders;
  std::vector<std::string> train, valid, test;
};

Direction ParseDirection(std::string_view setting, const std::string& text) {
  const size_t dash = text.find('-');
  Direction direction{text.substr(0, dash), dash == text.npos ? "" : text.substr(dash + 1)};
  const auto is_name = [](const std::string& name) {
    return !name.empty() && name.find_first_of("/-.") == name.npos;
  };
  if (!is_name(direction.from) || !is_name(direction.to) || direction.from == direction.to) {
    throw UsageError(
        fmt::format("[mt] {} must be two languages, such as en-de, got {}", setting, Quoted(text)));
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

// Reads lines of a sentence, a tab and its translation; text after another tab is a note, such as
// the source. `columns` names the languages in errors.
std::vector<SentencePair> ReadPairTable(const fs::path& file, const Direction& columns,
                                        SkippedPairs& left_out) {
  std::vector<SentencePair> pairs;
  int64_t number = 0;
  for (const std::string& line : ReadLines(file)) {
    ++number;
    const size_t tab = line.find('\t');
    if (tab == line.npos && !IsBlank(line)) {
      FailAtLine(file, number,
                 fmt::format("it has no tab; {}, a tab and {} were expected: {}", columns.from,
                             columns.to, Quoted(line)));
    }
    SentencePair pair{line.substr(0, tab), tab == line.npos ? "" : line.substr(tab + 1)};
    const size_t note = pair.target.find('\t');
    if (note != line.npos) {
      ++left_out.notes;
      pair.target.resize(note);
    }
    if (IsBlank(pair.source) || IsBlank(pair.target)) {
      ++left_out.blank;
    } else {
      pairs.push_back(std::move(pair));
    }
  }
  return pairs;
}

// Splits pairs at random by their sentences of the first language (docs/tasks/mt.md).
void Split(const std::vector<SentencePair>& pairs, int64_t seed, ParallelText& text,
           SkippedPairs& left_out) {
  std::vector<size_t> first;  // pair with a new sentence
  std::unordered_set<std::string_view> seen;
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (seen.insert(pairs[i].source).second) first.push_back(i);
  }
  std::mt19937_64 random(static_cast<uint64_t>(seed));
  for (size_t i = first.size(); i > 1; --i) std::swap(first[i - 1], first[random() % i]);
  const auto held_out = static_cast<size_t>(
      std::min(kMaxHeldOut, static_cast<int64_t>(first.size()) / kHeldOutShare));
  std::unordered_set<std::string_view> sources, targets;
  for (size_t k = 0; k < 2 * held_out; ++k) {
    const SentencePair& pair = pairs[first[k]];
    // A translation of the test set must not be in validation with another sentence.
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
  if (fs::exists(folder, error) && !fs::is_directory(folder, error)) {
    // Any table could be read, but its languages would be unknown.
    if (folder.filename() != "deu.txt" && folder.filename() != "deu.txt.gz") {
      FailToRead(folder, "Tatoeba's file is called deu.txt or deu.txt.gz: choose data=files");
    }
    return folder;
  }
  for (const fs::path& candidate : {folder / "tatoeba_deu_eng", folder}) {
    if (const auto file = FindFile(candidate, "deu.txt")) return *file;
  }
  throw DataError(
      fmt::format("{} has no file deu.txt or deu.txt.gz, itself or in a folder tatoeba_deu_eng",
                  Escaped(folder.string())));
}

// Your own files: tables or parallel files, one for all sets or one for each.
class OwnFiles {
 public:
  OwnFiles(const Direction& direction, const Direction& columns, int64_t seed)
      : direction_(direction), columns_(columns), seed_(seed) {}

  // Reads the pairs of `path`.
  void Read(const fs::path& path, ParallelText& text, SkippedPairs& left_out) {
    std::error_code error;
    if (!fs::is_directory(path, error)) return ReadOne(path, text, left_out);
    if (Has(path, "train")) {
      const auto read = [&](std::span<const std::string_view> names) {
        return ReadPairs(FindBoth(path, {names.begin(), names.end()}, direction_), left_out);
      };
      if (!HasOneOf(path, kValidNames) && !HasOneOf(path, kTestNames)) {
        return Draw(read(kTrainNames), text, left_out);
      }
      text.train = read(kTrainNames);
      text.valid = read(kValidNames);
      text.test = read(kTestNames);
      return;
    }
    if (const auto table = FindTableOf(path, kTrainNames)) {
      const auto valid = FindTableOf(path, kValidNames), test = FindTableOf(path, kTestNames);
      if (!valid && !test) return ReadOne(*table, text, left_out);
      if (!valid || !test) {
        throw DataError(fmt::format("{} has {} and {}, but no file for {}", Escaped(path.string()),
                                    table->filename().string(),
                                    (valid ? *valid : *test).filename().string(),
                                    valid ? "the test" : "validation"));
      }
      text.train = ReadColumns(*table, left_out);
      text.valid = ReadColumns(*valid, left_out);
      text.test = ReadColumns(*test, left_out);
      return;
    }
    ReadOne(OnlyFileOf(path), text, left_out);
  }

 private:
  // Returns true if the folder has the parallel file of one of the languages.
  bool Has(const fs::path& folder, std::string_view name) const {
    return FindFile(folder, fmt::format("{}.{}", name, direction_.from)) ||
           FindFile(folder, fmt::format("{}.{}", name, direction_.to));
  }

  bool HasOneOf(const fs::path& folder, std::span<const std::string_view> names) const {
    return std::ranges::any_of(names, [&](std::string_view name) { return Has(folder, name); });
  }

  static std::optional<fs::path> FindTableOf(const fs::path& folder,
                                             std::span<const std::string_view> names) {
    for (const std::string_view name : names) {
      for (const std::string_view ending : kTableEndings) {
        if (auto file = FindFile(folder, fmt::format("{}{}", name, ending))) return file;
      }
    }
    return std::nullopt;
  }

  // Returns the name of a file without .gz.
  static std::string UnpackedName(const fs::path& file) {
    return (file.extension() == ".gz" ? file.stem() : file.filename()).string();
  }

  // Returns one of the only two parallel files of a folder, or its only table.
  fs::path OnlyFileOf(const fs::path& folder) const {
    std::map<std::string, fs::path> parallel, tables;  // by the name without .gz
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
      const std::string name = UnpackedName(entry->path());
      if (name.starts_with('.')) continue;
      if (name.ends_with("." + direction_.from)) parallel.emplace(name, entry->path());
      if (std::ranges::any_of(kTableEndings,
                              [&](std::string_view e) { return name.ends_with(e); })) {
        tables.emplace(name, entry->path());
      }
    }
    for (const auto& found : {parallel, tables}) {
      if (found.size() == 1) return found.begin()->second;
    }
    throw DataError(fmt::format(
        "{0} has {1}: files NAME.{2} and NAME.{3}, where NAME is train, valid or test, or "
        "train.tsv, "
        "valid.tsv and test.tsv, or one file with {4}, a tab and {5} on each line were expected",
        Escaped(folder.string()),
        parallel.empty() && tables.empty() ? "no sentence pairs" : "several files", direction_.from,
        direction_.to, columns_.from, columns_.to));
  }

  // Reads one of two parallel files, or a table, and draws the sets.
  void ReadOne(const fs::path& file, ParallelText& text, SkippedPairs& left_out) {
    const std::string name = UnpackedName(file);
    const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
    for (const std::string& language : {direction_.from, direction_.to}) {
      const std::string ending = "." + language;
      if (!name.ends_with(ending)) continue;
      const std::string stem = name.substr(0, name.size() - ending.size());
      return Draw(ReadPairs(FindBoth(folder, {stem}, direction_), left_out), text, left_out);
    }
    Draw(ReadColumns(file, left_out), text, left_out);
  }

  std::vector<SentencePair> ReadColumns(const fs::path& file, SkippedPairs& left_out) const {
    std::vector<SentencePair> pairs = ReadPairTable(file, columns_, left_out);
    if (columns_.from != direction_.from) {
      for (SentencePair& pair : pairs) std::swap(pair.source, pair.target);
    }
    return pairs;
  }

  void Draw(const std::vector<SentencePair>& pairs, ParallelText& text, SkippedPairs& left_out) {
    Split(pairs, seed_, text, left_out);
    text.description = fmt::format(", sets at random (split_seed={})", seed_);
  }

  const Direction& direction_;
  const Direction& columns_;
  int64_t seed_;
};

// Returns "vi-en" for "iwslt15.vi-en.tsv": two codes of two letters each, joined by a dash or an
// underscore, that are not parts of longer words.
std::optional<std::string> LanguagesIn(std::string_view name) {
  const auto is_letter = [&](size_t i) { return i < name.size() && std::isalpha(name[i]) != 0; };
  const auto is_code = [&](size_t begin) {
    return std::islower(name[begin]) != 0 && std::islower(name[begin + 1]) != 0 &&
           !is_letter(begin + 2) && !is_letter(begin - 1);
  };
  for (size_t i = 0; i + 5 <= name.size(); ++i) {
    if ((name[i + 2] != '-' && name[i + 2] != '_') || !is_code(i) || !is_code(i + 3)) continue;
    const std::string_view from = name.substr(i, 2), to = name.substr(i + 3, 2);
    if (from != to) return fmt::format("{}-{}", from, to);
  }
  return std::nullopt;
}

// Returns true if the folder has multi30k.
bool HasMulti30k(const fs::path& folder) {
  std::error_code error;
  return fs::is_directory(folder / "task1", error) ||
         fs::is_directory(folder / "multi30k" / "task1", error) ||
         FindFile(folder, "test_2016_flickr.en");
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

std::optional<std::string> DirectionOfTable(const fs::path& path, const std::string& text) {
  const Direction direction = ParseDirection("direction", text);
  const auto is_parallel = [&](const fs::path& file) {
    const std::string name = (file.extension() == ".gz" ? file.stem() : file.filename()).string();
    return name.ends_with("." + direction.from) || name.ends_with("." + direction.to);
  };
  std::error_code error;
  if (!fs::exists(path, error) || HasMulti30k(path)) return std::nullopt;
  std::vector<fs::path> names = {path.filename()};
  if (fs::is_directory(path, error)) {
    for (fs::directory_iterator entry(path, error), end; !error && entry != end;
         entry.increment(error)) {
      if (is_parallel(entry->path())) return std::nullopt;
      names.push_back(entry->path().filename());
    }
    std::sort(names.begin() + 1, names.end());
    const auto is_table = [](const fs::path& name) {
      const fs::path unpacked = name.extension() == ".gz" ? name.stem() : name;
      return std::ranges::find(kTableEndings, unpacked.extension()) != std::end(kTableEndings);
    };
    names.erase(std::remove_if(names.begin() + 1, names.end(),
                               [&](const fs::path& name) { return !is_table(name); }),
                names.end());
    if (names.size() == 1) return std::nullopt;
  } else {
    if (is_parallel(path)) return std::nullopt;
    names.push_back(fs::absolute(path, error).parent_path().filename());
  }
  for (const fs::path& name : names) {
    if (auto languages = LanguagesIn(name.string())) return languages;
  }
  return "source-target";
}

ParallelText OpenParallel(const std::optional<fs::path>& path, const ParallelRequest& request) {
  const Direction direction = ParseDirection("direction", request.direction);
  std::string data = request.data;
  if (data == "auto") data = !path ? "synthetic" : HasMulti30k(*path) ? "multi30k" : "files";
  if (data != "synthetic" && !path) {
    throw UsageError(fmt::format("[mt] data={} needs files: give --data", data));
  }
  const bool reversed = direction.from == "de";
  if (data != "files" &&
      !((reversed && direction.to == "en") || (direction.from == "en" && direction.to == "de"))) {
    throw UsageError(fmt::format("[mt] direction must be en-de or de-en for data={}, got \"{}\"",
                                 data, request.direction));
  }
  const Direction columns =
      request.columns.empty() ? direction : ParseDirection("columns", request.columns);
  const bool same = columns.from == direction.from && columns.to == direction.to;
  if (!same && (columns.from != direction.to || columns.to != direction.from)) {
    throw UsageError(fmt::format("[mt] columns must have the languages of direction={}, got {}",
                                 request.direction, Quoted(request.columns)));
  }
  if (!request.columns.empty() && data != "files") {
    throw UsageError(fmt::format("[mt] columns must be empty for data={}, got {}", data,
                                 Quoted(request.columns)));
  }
  if (std::error_code error; path && data != "synthetic" && !fs::exists(*path, error)) {
    FailToRead(*path, "no such file or folder");
  }
  ParallelText text;
  SkippedPairs left_out;
  if (data == "synthetic") {
    Make(text);
  } else if (data == "tatoeba") {
    constexpr int64_t kSeed = 1;
    Split(ReadPairTable(FindTable(*path), {"English", "German"}, left_out), kSeed, text, left_out);
  } else if (data == "multi30k") {
    ReadFiles(*path, {{"task1", "multi30k/task1"}, {"train"}, {"val"}, {"test_2016_flickr"}},
              direction, text, left_out);
  } else if (data == "iwslt14") {
    ReadFiles(*path, {{"iwslt14_deen"}, {"train", "train_sample4600"}, {"valid"}, {"test"}},
              direction, text, left_out);
  } else {
    OwnFiles(direction, columns, request.split_seed).Read(*path, text, left_out);
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
          fmt::format("{} has no {} pairs", path ? Escaped(path->string()) : data, split));
    }
  }
  const auto all = std::ssize(text.train);
  if (all > request.train_pairs) text.train.resize(static_cast<size_t>(request.train_pairs));

  text.name = fmt::format("{} {}", data, request.direction);
  text.source = data == "synthetic" ? "embedded" : "files";
  text.sha256 = HashOf(text);
  const std::string origin =
      data == "synthetic" ? "generated by planish" : fmt::format("read from {}", path->string());
  text.description =
      fmt::format("{} {} to {}, {}: {} training pairs{}, {} for validation, {} for testing{}", data,
                  direction.from, direction.to, origin, FormatInteger(std::ssize(text.train)),
                  std::ssize(text.train) < all ? fmt::format(" of {}", FormatInteger(all)) : "",
                  FormatInteger(std::ssize(text.valid)), FormatInteger(std::ssize(text.test)),
                  text.description);
  if (left_out.blank > 0) {
    text.description +=
        fmt::format("; {} with an empty side left out", Count(left_out.blank, "pair"));
  }
  if (left_out.notes > 0 && data == "files") {
    text.description += fmt::format("; {} cut after a second tab", Count(left_out.notes, "line"));
  }
  if (left_out.shared > 0) {
    text.description +=
        fmt::format("; {} training pairs left out that share a sentence with validation or test",
                    FormatInteger(left_out.shared));
  }
  return text;
}

}  // namespace planish::lab
