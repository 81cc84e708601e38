#include "lab/tasks/order-embedding/captions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <system_error>
#include <utility>

#include "lab/base/escape.h"
#include "lab/base/format_integer.h"
#include "lab/data/file_content.h"
#include "lab/data/lines.h"
#include "lab/data/npy.h"
#include "lab/data/sha256.h"
#include "lab/error.h"
#include "lab/tasks/order-embedding/synthetic_scenes.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kSyntheticTrain = 2'000;
constexpr int64_t kSyntheticHeldOut = 200;

// English captions, and German lines for the features.
struct Texts {
  std::vector<std::string> english, german;
};

void Hash(Sha256& sha, std::span<const std::string> lines) {
  for (const std::string& line : lines) {
    const std::string whole = line + "\n";
    sha.Update({reinterpret_cast<const uint8_t*>(whole.data()), whole.size()});
  }
}

// Interleaves the lines of the five files of a language.
std::vector<std::string> ReadFive(const fs::path& folder, const std::string& split,
                                  const std::string& language) {
  std::array<std::vector<std::string>, kCaptionsPerImage> files;
  std::vector<std::string> lines;
  for (size_t i = 0; i < files.size(); ++i) {
    const fs::path file = NeedFile(folder, fmt::format("{}.{}.{}", split, i + 1, language));
    files[i] = ReadLines(file);
    if (files[i].size() != files[0].size()) {
      FailToRead(file,
                 fmt::format("it has {}, but {}.1.{} has {}", Count(std::ssize(files[i]), "line"),
                             split, language, FormatInteger(std::ssize(files[0]))));
    }
  }
  for (size_t line = 0; line < files[0].size(); ++line) {
    for (auto& file : files) lines.push_back(std::move(file[line]));
  }
  return lines;
}

Texts ReadMulti30k(const fs::path& folder, const std::string& split) {
  Texts texts{ReadFive(folder, split, "en"), ReadFive(folder, split, "de")};
  if (texts.english.size() != texts.german.size()) {
    FailToRead(folder / (split + ".1.de"),
               fmt::format("it has {}, but {}.1.en has {}",
                           Count(std::ssize(texts.german) / kCaptionsPerImage, "line"), split,
                           FormatInteger(std::ssize(texts.english) / kCaptionsPerImage)));
  }
  return texts;
}

// Scales every row of `array` to length 1. `file` names it in errors.
FeatureRows Normalized(NpyArray array, const fs::path& file) {
  FeatureRows rows{
      .rows = array.shape[0], .width = array.shape[1], .dense = std::move(array.values)};
  for (int64_t r = 0; r < rows.rows; ++r) {
    const std::span<float> row =
        std::span(rows.dense)
            .subspan(static_cast<size_t>(r * rows.width), static_cast<size_t>(rows.width));
    double squares = 0;
    for (const float x : row) squares += static_cast<double>(x) * x;
    if (!std::isfinite(squares)) {
      FailToRead(file, fmt::format("row {}, counted from 0, has elements that are not finite", r));
    }
    if (squares == 0) continue;
    const double scale = 1 / std::sqrt(squares);
    for (float& x : row) x = static_cast<float>(x * scale);
  }
  return rows;
}

CaptionedImages ReadSplit(const fs::path& folder, const std::string& split, int64_t max_count,
                          Sha256& sha) {
  const fs::path file = NeedFile(folder, split + "_ims.npy");
  const fs::path text = NeedFile(folder, split + "_caps.txt");
  NpyArray array = ReadNpy(file);
  if (array.shape.size() != 2 || array.shape[1] == 0) {
    FailToRead(file, fmt::format("it has {}{}; the shape (images, features) was expected",
                                 Count(std::ssize(array.shape), "dimension"),
                                 array.shape.size() == 2 ? " and no elements" : ""));
  }
  CaptionedImages images;
  images.captions = ReadLines(text);
  const int64_t count = array.shape[0];
  if (std::ssize(images.captions) != kCaptionsPerImage * count) {
    FailToRead(text, fmt::format("it has {}; {} were expected, {} for each of the {} of {}",
                                 Count(std::ssize(images.captions), "line"),
                                 FormatInteger(kCaptionsPerImage * count), kCaptionsPerImage,
                                 Count(count, "image"), Escaped(file.filename().string())));
  }
  images.images = Normalized(std::move(array), file);
  if (count > max_count) {
    images.images.Cut(max_count);
    images.captions.resize(static_cast<size_t>(kCaptionsPerImage * max_count));
  }
  const std::vector<float>& numbers = images.images.dense;
  sha.Update({reinterpret_cast<const uint8_t*>(numbers.data()), numbers.size() * sizeof(float)});
  Hash(sha, images.captions);
  return images;
}

void ReadPrecomputed(const fs::path& folder, const CaptionRequest& request, CaptionSets& sets,
                     Sha256& sha) {
  constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
  const std::string test = FindFile(folder, "testall_ims.npy") ? "testall" : "test";
  sets.train = ReadSplit(folder, "train", request.train_images, sha);
  sets.valid = ReadSplit(folder, "dev", kAll, sha);
  sets.test = ReadSplit(folder, test, kAll, sha);
  for (const auto& [split, images] :
       {std::pair<std::string, const FeatureRows*>("dev", &sets.valid.images),
        std::pair<std::string, const FeatureRows*>(test, &sets.test.images)}) {
    if (images->width != sets.train.images.width) {
      FailToRead(
          folder / (split + "_ims.npy"),
          fmt::format("its rows have {}, but those of train_ims.npy have {}",
                      Count(images->width, "element"), FormatInteger(sets.train.images.width)));
    }
  }
  sets.tokenized = true;
  sets.name = fs::weakly_canonical(folder).filename().string();
  if (constexpr std::string_view kEnd = "_precomp"; sets.name.ends_with(kEnd)) {
    sets.name.resize(sets.name.size() - kEnd.size());
  }
}

// Sets features from the German lines, and captions from the English ones.
void Describe(Texts train, Texts valid, Texts test, const CaptionRequest& request,
              CaptionSets& sets, Sha256& sha) {
  const auto lines = static_cast<size_t>(
      kCaptionsPerImage *
      std::min(request.train_images, std::ssize(train.english) / kCaptionsPerImage));
  train.english.resize(lines);
  train.german.resize(lines);
  const HashedTfidf tfidf(request.features, train.german, kCaptionsPerImage);
  for (auto [texts, images] : {std::pair(&train, &sets.train), std::pair(&valid, &sets.valid),
                               std::pair(&test, &sets.test)}) {
    Hash(sha, texts->english);
    Hash(sha, texts->german);
    images->images = tfidf.Rows(texts->german);
    images->captions = std::move(texts->english);
  }
}

void Make(const CaptionRequest& request, CaptionSets& sets, Sha256& sha) {
  const SyntheticScenes scenes = MakeScenes(kSyntheticTrain + 2 * kSyntheticHeldOut);
  const auto part = [&](int64_t begin, int64_t count) {
    const auto slice = [&](const std::vector<std::string>& lines) {
      const auto first = lines.begin() + begin * kCaptionsPerImage;
      return std::vector<std::string>(first, first + count * kCaptionsPerImage);
    };
    return Texts{slice(scenes.english), slice(scenes.german)};
  };
  Describe(part(0, kSyntheticTrain), part(kSyntheticTrain, kSyntheticHeldOut),
           part(kSyntheticTrain + kSyntheticHeldOut, kSyntheticHeldOut), request, sets, sha);
}

// Returns the number of images whose row is 0.
int64_t Nothing(const FeatureRows& rows) {
  int64_t count = 0;
  for (int64_t r = 0; r < rows.rows; ++r) {
    const auto row = static_cast<size_t>(r);
    if (rows.dense.empty()) {
      count += rows.begins[row] == rows.begins[row + 1];
    } else {
      const auto first = rows.dense.begin() + r * rows.width;
      count += std::all_of(first, first + rows.width, [](float x) { return x == 0; });
    }
  }
  return count;
}

std::string Description(const CaptionSets& sets, const std::string& origin) {
  std::string text = fmt::format(
      "{}, {}: {} training images, {} for validation, {} for testing, five captions each",
      sets.name, origin, FormatInteger(sets.train.size()), FormatInteger(sets.valid.size()),
      FormatInteger(sets.test.size()));
  int64_t empty = 0, nothing = 0;
  for (const CaptionedImages* set : {&sets.train, &sets.valid, &sets.test}) {
    nothing += Nothing(set->images);
    for (const std::string& caption : set->captions) {
      empty += WordsOf(caption, sets.tokenized).empty();
    }
  }
  if (empty > 0) text += "; " + Count(empty, "caption") + " without words kept";
  if (nothing > 0) text += "; " + Count(nothing, "image") + " with no features kept";
  return text;
}

// Returns the length in bytes of the blank or punctuation mark beyond ASCII at the start of `text`,
// or 0 if there is none. Such marks are U+00A0 to U+00BF and U+2000 to U+207F.
size_t MarkLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  if (text.size() >= 2 && byte(0) == 0xc2 && byte(1) >= 0xa0) return 2;
  if (text.size() >= 3 && byte(0) == 0xe2 && (byte(1) == 0x80 || byte(1) == 0x81)) return 3;
  return 0;
}

bool IsLetterOrDigit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         static_cast<uint8_t>(c) >= 0x80;
}

// Converts to lower case in place: A to Z, and the capitals among U+00C0 to U+00DE (not the
// multiplication sign).
void MakeSmall(std::string& word) {
  for (size_t i = 0; i < word.size(); ++i) {
    if (word[i] >= 'A' && word[i] <= 'Z') word[i] = static_cast<char>(word[i] + ('a' - 'A'));
    if (static_cast<uint8_t>(word[i]) != 0xc3 || i + 1 == word.size()) continue;
    const auto second = static_cast<uint8_t>(word[i + 1]);
    if (second >= 0x80 && second <= 0x9e && second != 0x97) {
      word[i + 1] = static_cast<char>(second + 0x20);
    }
  }
}

std::vector<std::string> SplitAtBlanks(std::string_view text) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find_first_of(" \t", begin), text.size());
    if (end > begin) words.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

uint64_t Fnv1a(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace

void FeatureRows::Cut(int64_t count) {
  if (count >= rows) return;
  rows = count;
  if (!dense.empty()) {
    dense.resize(static_cast<size_t>(count * width));
    dense.shrink_to_fit();
    return;
  }
  begins.resize(static_cast<size_t>(count + 1));
  columns.resize(static_cast<size_t>(begins.back()));
  values.resize(columns.size());
}

std::vector<std::string> WordsOf(std::string_view caption, bool tokenized) {
  if (tokenized) return SplitAtBlanks(caption);
  std::vector<std::string> words;
  bool within = false;
  for (size_t i = 0; i < caption.size();) {
    // U+2019 is also an apostrophe.
    size_t length = caption.substr(i).starts_with("\u2019") ? 3 : 1;
    const bool joins = length == 3 || caption[i] == '\'' || caption[i] == '-';
    if (joins) {
      const std::string_view after = caption.substr(i + length);
      const bool more = !after.empty() && IsLetterOrDigit(after[0]) && MarkLength(after) == 0;
      if (within && more) words.back() += length == 3 ? '\'' : caption[i];
      within = within && more;
    } else if (const size_t mark = MarkLength(caption.substr(i)); mark > 0) {
      within = false;
      length = mark;
    } else if (IsLetterOrDigit(caption[i])) {
      if (!within) words.emplace_back();
      words.back() += caption[i];
      within = true;
    } else {
      within = false;
    }
    i += length;
  }
  for (std::string& word : words) MakeSmall(word);
  return words;
}

HashedTfidf::HashedTfidf(int64_t width, std::span<const std::string> lines, int64_t lines_each)
    : lines_each_(lines_each), weights_(static_cast<size_t>(width), 1) {
  const FeatureRows rows = Rows(lines);
  std::vector<int64_t> texts(weights_.size());
  for (const int32_t column : rows.columns) ++texts[static_cast<size_t>(column)];
  for (size_t i = 0; i < weights_.size(); ++i) {
    weights_[i] =
        std::log(static_cast<double>(1 + rows.rows) / static_cast<double>(1 + texts[i])) + 1;
  }
}

FeatureRows HashedTfidf::Rows(std::span<const std::string> lines) const {
  FeatureRows rows{.rows = std::ssize(lines) / lines_each_,
                   .width = std::ssize(weights_),
                   .dense = {},
                   .begins = {0}};
  for (int64_t r = 0; r < rows.rows; ++r) {
    std::map<int32_t, double> numbers;
    for (const std::string& line :
         lines.subspan(static_cast<size_t>(r * lines_each_), static_cast<size_t>(lines_each_))) {
      for (const std::string& word : WordsOf(line, /*tokenized=*/false)) {
        const uint64_t column = Fnv1a(word) % weights_.size();
        numbers[static_cast<int32_t>(column)] += weights_[column];
      }
    }
    double squares = 0;
    for (const auto& [column, number] : numbers) squares += number * number;
    for (const auto& [column, number] : numbers) {
      rows.columns.push_back(column);
      rows.values.push_back(static_cast<float>(number / std::sqrt(squares)));
    }
    rows.begins.push_back(std::ssize(rows.columns));
  }
  return rows;
}

CaptionSets OpenCaptions(const std::optional<fs::path>& folder, const CaptionRequest& request) {
  std::string data = request.data;
  std::error_code error;
  if (folder && data != "synthetic" && !fs::is_directory(*folder, error)) {
    FailToRead(*folder, "it is not a folder");
  }
  if (data == "auto") {
    data = !folder ? "synthetic" : FindFile(*folder, "train_ims.npy") ? "files" : "multi30k";
  }
  if (data != "synthetic" && !folder) {
    throw UsageError(fmt::format("[order-embedding] data={} needs a folder: give --data", data));
  }
  CaptionSets sets;
  Sha256 sha;
  if (data == "synthetic") {
    sets.name = "synthetic scenes";
    Make(request, sets, sha);
  } else if (data == "files") {
    ReadPrecomputed(*folder, request, sets, sha);
  } else {
    sets.name = "multi30k";
    fs::path place = *folder;
    for (const char* below : {"task2", "multi30k/task2"}) {
      if (fs::is_directory(*folder / below, error)) place = *folder / below;
    }
    Describe(ReadMulti30k(place, "train"), ReadMulti30k(place, "val"),
             ReadMulti30k(place, "test_2016"), request, sets, sha);
  }
  for (const auto& [split, images] :
       {std::pair("training", &sets.train), std::pair("validation", &sets.valid),
        std::pair("test", &sets.test)}) {
    if (images->size() == 0) {
      throw DataError(
          fmt::format("{} has no {} images", folder ? Escaped(folder->string()) : data, split));
    }
  }
  sets.source = data == "synthetic" ? "embedded" : "files";
  sets.description =
      Description(sets, data == "synthetic" ? "generated by planish from a small random grammar"
                                            : fmt::format("read from {}", folder->string()));
  if (data != "files") {
    sets.description += fmt::format(
        "; an image is represented by {} hashed TF-IDF features of five German descriptions",
        FormatInteger(sets.train.images.width));
  }
  sets.sha256 = sha.Hex();
  return sets;
}

}  // namespace planish::lab
