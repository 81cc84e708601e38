#include "lab/tasks/handwriting/strokes.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "lab/base/escape.h"
#include "lab/data/sha256.h"
#include "lab/error.h"
#include "lab/tasks/handwriting/digilets.h"
#include "lab/tasks/handwriting/iam_ondb.h"
#include "lab/tasks/handwriting/synthetic_strokes.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

void Append(float value, std::string& bytes) {
  const auto bits = std::bit_cast<uint32_t>(value);
  for (const int shift : {0, 8, 16, 24}) bytes += static_cast<char>(bits >> shift & 255);
}

}  // namespace

std::set<int64_t> ChooseWriters(const std::string& text, const std::set<int64_t>& found) {
  const auto refuse = [&](const std::string& must) {
    throw UsageError(fmt::format("[handwriting] writers must {}, got {}", must, Quoted(text)));
  };
  std::set<int64_t> chosen;
  std::string_view rest = text;
  while (true) {
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    if (rest.empty()) return chosen;
    const std::string_view word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(word.size());
    int64_t first = 0, last = 0;
    const char* const end = word.data() + word.size();
    auto read = std::from_chars(word.data(), end, first);
    last = first;
    if (read.ec == std::errc() && read.ptr != end && *read.ptr == '-') {
      read = std::from_chars(read.ptr + 1, end, last);
    }
    if (read.ec != std::errc() || read.ptr != end || first < 0 || last < first) {
      refuse("be numbers and ranges such as \"1-20 33\"");
    }
    const auto begin = found.lower_bound(first), after = found.upper_bound(last);
    if (begin == after) refuse(fmt::format("be numbers of writers in the data, unlike {}", word));
    chosen.insert(begin, after);
  }
}

std::string HashLines(const Handwriting& data) {
  Sha256 sha;
  for (const auto* part : {&data.train, &data.valid, &data.test}) {
    for (const WrittenLine& line : *part) {
      std::string bytes = line.text + "\n";
      for (const PenPoint& point : line.points) {
        Append(point.x, bytes);
        Append(point.y, bytes);
        bytes += point.lifts ? '\1' : '\0';
      }
      sha.Update({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
    }
  }
  return sha.Hex();
}

std::vector<PenPoint> WithoutRests(const std::vector<PenPoint>& points) {
  std::vector<PenPoint> kept;
  for (const PenPoint& point : points) {
    const bool rests =
        !kept.empty() && !kept.back().lifts && kept.back().x == point.x && kept.back().y == point.y;
    if (rests) {
      kept.back().lifts = point.lifts;
    } else {
      kept.push_back(point);
    }
  }
  return kept;
}

Handwriting OpenHandwriting(const std::optional<fs::path>& folder, const LineRequest& request) {
  if (!folder) {
    for (const auto& [name, value] :
         {std::pair("symbols", &request.symbols), {"writers", &request.writers}}) {
      if (!value->empty()) {
        throw UsageError(fmt::format("[handwriting] {} must be empty without --data, got {}", name,
                                     Quoted(*value)));
      }
    }
    return MakeStrokes(request);
  }
  for (const fs::path& place :
       {*folder, *folder / "iam", *folder / "iam-ondb", *folder / "IAM-OnDB"}) {
    if (IsIamOnDb(place)) return ReadIamOnDb(place, request);
  }
  for (const fs::path& place : {*folder, *folder / "digilets"}) {
    if (IsDigilets(place)) return ReadDigilets(place, request);
  }
  throw DataError(
      fmt::format("{} has neither IAM-OnDB's lineStrokes and ascii, itself or in a folder iam, "
                  "iam-ondb or IAM-OnDB, nor DigiLeTs' NUMBER.txt[.gz], itself or in a folder "
                  "digilets",
                  Escaped(folder->string())));
}

}  // namespace planish::lab
