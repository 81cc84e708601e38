#include "lab/run/json.h"

#include <fmt/format.h>

#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace planish::lab {

using Json = nlohmann::ordered_json;

namespace {

const Json& MemberAt(const Json& object, std::string_view key) {
  if (object.is_object()) {
    const auto found = object.find(key);
    if (found != object.end()) return *found;
  }
  throw std::invalid_argument(fmt::format("{} is missing", key));
}

bool IsInteger(const Json& value) {
  return value.is_number_integer() &&
         (!value.is_number_unsigned() || std::cmp_less_equal(value.get<uint64_t>(), INT64_MAX));
}

}  // namespace

Json ParseJson(std::string_view text) {
  if (std::cmp_greater(text.size(), kMaxJsonBytes)) {
    throw std::invalid_argument(fmt::format("larger than {} bytes", kMaxJsonBytes));
  }
  // The library treats a zero byte as the end; file systems can leave some after a power loss.
  if (text.find('\0') != text.npos) throw std::invalid_argument("a zero byte in JSON");
  if (text.find_first_not_of(" \t\r\n") == text.npos) throw std::invalid_argument("empty");
  std::vector<std::set<std::string>> keys;  // of the open objects
  const auto check = [&](int depth, Json::parse_event_t event, Json& value) {
    using Event = Json::parse_event_t;
    if ((event == Event::object_start || event == Event::array_start) && depth >= kMaxJsonDepth) {
      throw std::invalid_argument(
          fmt::format("nested too deeply (more than {} levels)", kMaxJsonDepth));
    }
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(value.get<std::string>()).second) {
      throw std::invalid_argument(fmt::format("the key {} twice in an object", BriefText(value)));
    }
    return true;
  };
  try {
    return Json::parse(text, check);
  } catch (const Json::parse_error& e) {
    // The library's own message repeats the offending token, of any length and with any bytes.
    throw std::invalid_argument(fmt::format("not JSON (syntax error at byte {})", e.byte));
  } catch (const Json::out_of_range&) {
    throw std::invalid_argument("a number in JSON that is too large");
  }
}

std::string JsonReason(const std::exception& error) {
  const std::string text = error.what();
  const size_t end = text.starts_with("[json.exception.") ? text.find("] ") : text.npos;
  return end == text.npos ? text : text.substr(end + 2);
}

std::string BriefText(const Json& value) {
  constexpr size_t kMaxBriefBytes = 60;
  if (value.is_structured()) return std::string("an ") + value.type_name();
  const std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true);
  return text.size() <= kMaxBriefBytes ? text : text.substr(0, kMaxBriefBytes) + "...";
}

int64_t ToInteger(const Json& value) {
  if (!IsInteger(value)) {
    throw std::invalid_argument("an integer must be below 2^63, got " + BriefText(value));
  }
  return value.get<int64_t>();
}

int64_t IntegerAt(const Json& object, std::string_view key, int64_t min, int64_t max) {
  const Json& value = MemberAt(object, key);
  if (IsInteger(value)) {
    const auto integer = value.get<int64_t>();
    if (integer >= min && integer <= max) return integer;
  }
  throw std::invalid_argument(
      fmt::format("{} must be an integer from {} to {}, got {}", key, min, max, BriefText(value)));
}

double NumberAt(const Json& object, std::string_view key, double min, double max) {
  const Json& value = MemberAt(object, key);
  if (value.is_number()) {
    const auto number = value.get<double>();
    if (number >= min && number <= max) return number;
  }
  throw std::invalid_argument(
      fmt::format("{} must be a number from {} to {}, got {}", key, min, max, BriefText(value)));
}

}  // namespace planish::lab
