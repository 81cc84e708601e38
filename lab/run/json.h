#ifndef PLANISH_LAB_RUN_JSON_H_
#define PLANISH_LAB_RUN_JSON_H_

#include <cstdint>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

// JSON from untrusted files.
namespace planish::lab {

/// Deepest nesting of arrays and objects that ParseJson accepts. The library copies and destroys
/// values recursively, so deep nesting would exhaust the stack.
inline constexpr int kMaxJsonDepth = 64;

/// Maximum size of a JSON text (a file or a line) in bytes.
inline constexpr int64_t kMaxJsonBytes = int64_t{64} << 20;

/// Parses JSON. Throws std::invalid_argument with a short printable reason for syntax errors,
/// repeated keys in an object, and empty, too large or too deeply nested text.
nlohmann::ordered_json ParseJson(std::string_view text);

/// Returns the message of an exception, without the library's prefix, such as
/// "[json.exception.type_error.302] ".
std::string JsonReason(const std::exception& error);

/// Returns a value for an error message: short, and without characters that a terminal interprets.
std::string BriefText(const nlohmann::ordered_json& value);

/// Returns an integer. Throws std::invalid_argument if it is none; the library itself would convert
/// 1.5 to 1 and 2^63 to a negative number.
int64_t ToInteger(const nlohmann::ordered_json& value);

/// Returns the integer `object[key]`, which must be in [min, max]. Throws std::invalid_argument
/// naming the key.
int64_t IntegerAt(const nlohmann::ordered_json& object, std::string_view key, int64_t min,
                  int64_t max);

/// Returns the number `object[key]`, which must be in [min, max]. Throws std::invalid_argument
/// naming the key.
double NumberAt(const nlohmann::ordered_json& object, std::string_view key, double min, double max);

}  // namespace planish::lab

#endif  // PLANISH_LAB_RUN_JSON_H_
