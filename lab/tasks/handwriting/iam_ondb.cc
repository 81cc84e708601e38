#include "lab/tasks/handwriting/iam_ondb.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <pugixml.hpp>
#include <random>
#include <set>
#include <system_error>
#include <utility>

#include "lab/base/escape.h"
#include "lab/base/format_integer.h"
#include "lab/data/file_content.h"
#include "lab/data/lines.h"
#include "lab/error.h"
#include "lab/tasks/handwriting/alphabet.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

// The whiteboard has about ten thousand units.
constexpr double kMaxCoordinate = 100'000;
// Maximum size of a file of strokes in bytes; real ones have about 50,000.
constexpr int64_t kMaxStrokes = 16 << 20;

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

// Returns the XML of a file of strokes.
std::string ReadStrokes(const fs::path& file) {
  std::string xml = FileContent(file).Rest(kMaxStrokes + 1);
  if (std::ssize(xml) > kMaxStrokes) {
    FailToRead(file, fmt::format("it has more than {} bytes", kMaxStrokes));
  }
  return xml;
}

// Parses XML. `name` names it in errors.
void ParseXml(std::string_view xml, const std::string& name, pugi::xml_document* document) {
  const pugi::xml_parse_result result = document->load_buffer(xml.data(), xml.size());
  if (!result) {
    FailToRead(name,
               fmt::format("it is not XML: {} at byte {}", result.description(), result.offset));
  }
}

class StrokeParser {
 public:
  explicit StrokeParser(const std::string& name) : name_(name) {}

  std::vector<PenPoint> Parse(std::string_view xml) const {
    pugi::xml_document document;
    ParseXml(xml, name_, &document);
    const pugi::xml_node set = document.document_element().child("StrokeSet");
    if (!set) FailToRead(name_, "its outermost element has no StrokeSet");
    if (!set.child("Stroke")) FailAt(set, "it has no Stroke");
    std::vector<PenPoint> points;
    for (const pugi::xml_node stroke : set.children("Stroke")) {
      if (!stroke.child("Point")) FailAt(stroke, "it has no Point");
      for (const pugi::xml_node point : stroke.children("Point")) {
        points.push_back({.x = Coordinate(point, "x"), .y = Coordinate(point, "y")});
      }
      points.back().lifts = true;
    }
    return points;
  }

 private:
  [[noreturn]] void FailAt(const pugi::xml_node& node, const std::string& reason) const {
    throw DataError(fmt::format("{}, {} at byte {}: {}", Escaped(name_), node.name(),
                                node.offset_debug(), reason));
  }

  float Coordinate(const pugi::xml_node& point, const char* name) const {
    const pugi::xml_attribute attribute = point.attribute(name);
    if (!attribute) FailAt(point, fmt::format("it has no {}", name));
    const std::string_view text = attribute.value();
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    // NaN compares as false.
    if (error != std::errc() || end != text.data() + text.size() ||
        !(value >= -kMaxCoordinate && value <= kMaxCoordinate)) {
      FailAt(point, fmt::format("{} is {}; a number from {} to {} was expected", name, Quoted(text),
                                -kMaxCoordinate, kMaxCoordinate));
    }
    return static_cast<float>(value);
  }

  const std::string& name_;
};

// File of lineStrokes.
struct LineFile {
  fs::path file;
  std::string form;  // a01-000u of a01-000u-01.xml
  size_t number = 0;
};

std::optional<LineFile> LineOf(const fs::path& file) {
  if (file.extension() != ".xml") return std::nullopt;
  const std::string stem = file.stem().string();
  const size_t dash = stem.rfind('-');
  if (dash == std::string::npos) return std::nullopt;
  LineFile line{.file = file, .form = stem.substr(0, dash)};
  const char* const end = stem.data() + stem.size();
  const auto [last, error] = std::from_chars(stem.data() + dash + 1, end, line.number);
  if (error != std::errc() || last != end || line.number == 0) return std::nullopt;
  return line;
}

std::vector<LineFile> FindLines(const fs::path& folder) {
  std::vector<LineFile> lines;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (auto line = LineOf(entry->path())) lines.push_back(std::move(*line));
  }
  if (error) FailToRead(folder, error.message());
  if (lines.empty()) {
    throw DataError(fmt::format("{} has no files FORM-NUMBER.xml", Escaped(folder.string())));
  }
  std::ranges::sort(lines, {}, &LineFile::file);
  return lines;
}

std::set<std::string> ReadForms(const fs::path& file) {
  std::set<std::string> forms;
  for (const std::string& line : ReadLines(file)) {
    if (!Trimmed(line).empty()) forms.emplace(Trimmed(line));
  }
  return forms;
}

constexpr const char* kParts[] = {"training", "validation", "test"};
constexpr const char* kLists[] = {"trainset.txt", "testset_v.txt", "testset_f.txt"};

class Reader {
 public:
  explicit Reader(const fs::path& folder) : folder_(folder) {}

  Handwriting Read(const LineRequest& request) {
    for (const std::string_view symbol : CharactersOf(request.symbols)) symbols_.insert(symbol);
    std::vector<LineFile> lines = FindLines(folder_ / "lineStrokes");
    if (!request.writers.empty()) KeepWriters(request.writers, &lines);
    const std::map<std::string, size_t> part_of = Parts(lines);
    Handwriting data;
    std::vector<WrittenLine>* const parts[] = {&data.train, &data.valid, &data.test};
    for (size_t part = 0; part < 3; ++part) {
      std::vector<LineFile> chosen;
      for (const LineFile& line : lines) {
        const auto found = part_of.find(line.form);
        if (found != part_of.end() && found->second == part) chosen.push_back(line);
      }
      *parts[part] = ReadPart(std::move(chosen), part == 0 ? request.train : request.held_out);
      if (parts[part]->empty()) {
        throw DataError(fmt::format(
            "{} has no {} line with its transcription{}: {} lines lack one",
            Escaped(folder_.string()), kParts[part],
            symbols_.empty() ? "" : fmt::format(" in the symbols {}", Quoted(request.symbols)),
            untranscribed_));
      }
    }
    data.name = "iam-ondb";
    data.source = "files";
    data.sha256 = HashLines(data);
    data.description = fmt::format(
        "IAM-OnDB read from {}: {} training, {} validation and {} test lines of {}, parts by {}; "
        "left out: {} without transcription, {} of a single point; {} points of a resting pen",
        folder_.string(), FormatInteger(std::ssize(data.train)),
        FormatInteger(std::ssize(data.valid)), FormatInteger(std::ssize(data.test)),
        FormatInteger(std::ssize(lines)), has_lists_ ? "the lists of forms" : "every tenth form",
        FormatInteger(untranscribed_), FormatInteger(single_points_), FormatInteger(rests_));
    if (other_symbols_ > 0) {
      data.description += fmt::format("; {} with other symbols than {} left out",
                                      Count(other_symbols_, "line"), Quoted(request.symbols));
    }
    if (!request.writers.empty()) {
      data.description += fmt::format("; only the writers {}, {} without a writer left out",
                                      Quoted(request.writers), Count(unnamed_, "line"));
    }
    return data;
  }

 private:
  // Keeps the lines of the writers that `text` lists.
  void KeepWriters(const std::string& text, std::vector<LineFile>* lines) {
    std::map<std::string, std::optional<int64_t>> writer_of;  // by the form
    std::set<int64_t> found;
    for (const LineFile& line : *lines) {
      const auto [form, is_new] = writer_of.try_emplace(line.form);
      if (is_new) form->second = WriterOf(line);
      if (form->second) found.insert(*form->second);
      unnamed_ += !form->second;
    }
    if (found.empty()) {
      throw DataError(fmt::format(
          "{} names no writers, so that the setting writers cannot choose any: a folder original "
          "with strokes.xml of each form was expected, with <General><Form writerID=\"NUMBER\"/>",
          Escaped(folder_.string())));
    }
    const std::set<int64_t> chosen = ChooseWriters(text, found);
    std::erase_if(*lines, [&](const LineFile& line) {
      const std::optional<int64_t>& writer = writer_of.at(line.form);
      return !writer || !chosen.contains(*writer);
    });
  }

  // Returns the writer of a line's form: that of original/a01/a01-000/strokesu.xml for a form
  // a01-000u in lineStrokes/a01/a01-000, or else of the line's own file.
  std::optional<int64_t> WriterOf(const LineFile& line) const {
    const fs::path below = line.file.parent_path().lexically_relative(folder_ / "lineStrokes");
    const char last = line.form.back();
    const std::string letter = last >= 'a' && last <= 'z' ? std::string(1, last) : "";
    const fs::path original = folder_ / "original" / below / ("strokes" + letter + ".xml");
    std::error_code error;
    const fs::path& file = fs::exists(original, error) ? original : line.file;
    return ReadInMemory(file, [&] { return ParseWriter(ReadStrokes(file), file.string()); });
  }

  // Returns the part of each form that is in one.
  std::map<std::string, size_t> Parts(const std::vector<LineFile>& lines) {
    const auto count = std::ranges::count_if(
        kLists, [&](const char* list) { return FindFile(folder_, list).has_value(); });
    if (count != 0 && count != 3) {
      throw DataError(fmt::format(
          "{} has {} of the lists trainset.txt, testset_v.txt and testset_f.txt; all or "
          "none are needed",
          Escaped(folder_.string()), count));
    }
    has_lists_ = count == 3;
    std::map<std::string, size_t> part_of;
    if (has_lists_) {
      for (size_t part = 0; part < 3; ++part) {
        for (const std::string& form : ReadForms(NeedFile(folder_, kLists[part]))) {
          const auto [found, is_new] = part_of.emplace(form, part);
          if (!is_new) {
            FailToRead(folder_ / kLists[part], fmt::format("it has the form {}, and so has {}",
                                                           Quoted(form), kLists[found->second]));
          }
        }
      }
      return part_of;
    }
    std::set<std::string> forms;
    for (const LineFile& line : lines) forms.insert(line.form);
    size_t index = 0;
    for (const std::string& form : forms) {
      const size_t place = index++ % 10;
      part_of.emplace(form, place == 8 ? 1 : place == 9 ? 2 : 0);
    }
    return part_of;
  }

  std::vector<WrittenLine> ReadPart(std::vector<LineFile> files, int64_t max_count) {
    if (std::ssize(files) > max_count) {
      // std::shuffle depends on the library; this is equal everywhere.
      std::mt19937_64 random(1);
      for (size_t i = files.size() - 1; i > 0; --i) std::swap(files[i], files[random() % (i + 1)]);
    }
    std::vector<WrittenLine> lines;
    for (const LineFile& file : files) {
      if (std::ssize(lines) == max_count) break;
      const std::vector<std::string>& texts = Transcription(file);
      if (file.number > texts.size()) {
        ++untranscribed_;
        continue;
      }
      if (!HasOnlySymbols(texts[file.number - 1])) {
        ++other_symbols_;
        continue;
      }
      const std::string name = file.file.string();
      const auto points =
          ReadInMemory(file.file, [&] { return ParseLineStrokes(ReadStrokes(file.file), name); });
      WrittenLine line{.text = texts[file.number - 1], .points = WithoutRests(points)};
      rests_ += std::ssize(points) - std::ssize(line.points);
      if (line.points.size() < 2) {
        ++single_points_;
        continue;
      }
      lines.push_back(std::move(line));
    }
    return lines;
  }

  // Returns true if a text consists of the symbols that the request has.
  bool HasOnlySymbols(std::string_view text) const {
    return symbols_.empty() || std::ranges::all_of(CharactersOf(text), [&](std::string_view c) {
             return c == " " || symbols_.contains(c);
           });
  }

  // Empty if there is no file.
  const std::vector<std::string>& Transcription(const LineFile& line) {
    const auto [found, is_new] = transcriptions_.try_emplace(line.form);
    if (is_new) {
      const fs::path below = line.file.parent_path().lexically_relative(folder_ / "lineStrokes");
      if (const auto file = FindFile(folder_ / "ascii" / below, line.form + ".txt")) {
        found->second = ReadTranscription(*file);
      }
    }
    return found->second;
  }

  const fs::path& folder_;
  bool has_lists_ = false;
  std::map<std::string, std::vector<std::string>> transcriptions_;
  std::set<std::string_view> symbols_;  // empty: all
  int64_t untranscribed_ = 0, single_points_ = 0, rests_ = 0, other_symbols_ = 0, unnamed_ = 0;
};

}  // namespace

bool IsIamOnDb(const fs::path& folder) {
  std::error_code error;
  return fs::is_directory(folder / "lineStrokes", error);
}

std::vector<PenPoint> ParseLineStrokes(std::string_view xml, const std::string& name) {
  return StrokeParser(name).Parse(xml);
}

std::optional<int64_t> ParseWriter(std::string_view xml, const std::string& name) {
  pugi::xml_document document;
  ParseXml(xml, name, &document);
  const pugi::xml_attribute writer =
      document.document_element().child("General").child("Form").attribute("writerID");
  if (!writer) return std::nullopt;
  const std::string_view text = writer.value();
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) {
    FailToRead(name, fmt::format("its writerID is {}; a number was expected", Quoted(text)));
  }
  return number;
}

std::vector<std::string> ReadTranscription(const fs::path& file) {
  std::vector<std::string> texts;
  bool found = false;
  for (const std::string& line : ReadLines(file)) {
    const std::string_view text = Trimmed(line);
    if (found && !text.empty()) texts.emplace_back(text);
    found = found || text == "CSR:";
  }
  if (!found) {
    FailToRead(file, "it has no line \"CSR:\" before the lines of its text");
  }
  return texts;
}

Handwriting ReadIamOnDb(const fs::path& folder, const LineRequest& request) {
  return Reader(folder).Read(request);
}

}  // namespace planish::lab
