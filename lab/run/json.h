#ifndef PLANISH_LAB_RUN_JSON_H_
#define PLANISH_LAB_RUN_JSON_H_

#include <cstdint>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

// JSON from files that anybody may have written.
namespace planish::lab {

/// Deepest nesting of arrays and objects that ParseJson accepts. The library's values are copied
/// and destroyed by recursion, so deep nesting would exhaust the stack.
inline constexpr int kMaxJsonDepth = 64;

/// Most bytes of one JSON text: a file or a line.
inline constexpr int64_t kMaxJsonBytes = int64_t{64} << 20;

/// Parses JSON. Throws std::invalid_argument that says what is wrong in a short printable text:
/// nested too deeply, too large, empty, a key twice in an object, a syntax error and its place.
nlohmann::ordered_json ParseJson(std::string_view text);

/// Returns what an exception of the library, or another one, says: without the library's number of
/// the error, such as "[json.exception.type_error.302] ".
std::string JsonReason(const std::exception& error);

/// Returns a value for an error message: short, and without characters that a terminal interprets.
std::string BriefText(const nlohmann::ordered_json& value);

/// Returns an integer; the library itself would convert 1.5 to 1 and 2^63 to a negative number.
/// Throws std::invalid_argument.
int64_t ToInteger(const nlohmann::ordered_json& value);

/// Returns the integer `object[key]`, which must be in [min, max]. Throws std::invalid_argument
/// that names the key.
int64_t IntegerAt(const nlohmann::ordered_json& object, std::string_view key, int64_t min,
                  int64_t max);

/// Returns the number `object[key]`, which must be in [min, max]. Throws std::invalid_argument that
/// names the key.
double NumberAt(const nlohmann::ordered_json& object, std::string_view key, double min, double max);

}  // namespace planish::lab

#endif  // PLANISH_LAB_RUN_JSON_H_
