#ifndef PLANISH_SRC_BASE_CHECK_H_
#define PLANISH_SRC_BASE_CHECK_H_

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "planish/error.h"

// Checks of arguments at the public edge. Each throws Error with the text
// `[function] argument must ... but has ...`.
namespace planish::internal {

[[noreturn]] inline void Fail(const char* function, const std::string& argument,
                              const std::string& expected, const std::string& found) {
  throw Error("[" + std::string(function) + "] " + argument + " must " + expected + " but has " +
              found);
}

/// Sizes at least 0 whose product times the size of T is a size that a pointer can span.
template <class T>
void CheckShape(const char* function, int64_t rows, int64_t cols) {
  if (rows < 0) Fail(function, "rows", "be at least 0", std::to_string(rows));
  if (cols < 0) Fail(function, "cols", "be at least 0", std::to_string(cols));
  const int64_t most = INT64_MAX / static_cast<int64_t>(sizeof(T));
  if (cols > most / (rows > 0 ? rows : 1)) {
    Fail(function, "rows * cols", "be at most " + std::to_string(most),
         std::to_string(rows) + " * " + std::to_string(cols));
  }
}

inline void CheckEps(const char* function, double eps) {
  if (!std::isfinite(eps) || eps < 0) {
    Fail(function, "eps", "be finite and at least 0", std::to_string(eps));
  }
}

/// An array argument. One of no bytes may have any address.
struct Array {
  const char* name;
  const void* data;
  int64_t bytes;
  const void* may_be = nullptr;  ///< for an output: the input that it may replace in place
};

inline void CheckNotNull(const char* function, std::initializer_list<Array> arrays) {
  for (const Array& array : arrays) {
    if (array.data == nullptr && array.bytes > 0) {
      Fail(function, array.name, "point to " + std::to_string(array.bytes) + " bytes", "null");
    }
  }
}

/// No output may share memory with another array, unless it is its `may_be`. Null arrays are
/// arguments left out.
inline void CheckApart(const char* function, std::initializer_list<Array> outputs,
                       std::initializer_list<Array> inputs) {
  const auto check = [function](const Array& output, const Array& other) {
    if (output.data == nullptr || other.data == nullptr) return;
    if (output.data == other.data && output.may_be == other.data) return;
    const auto a = reinterpret_cast<uintptr_t>(output.data);
    const auto b = reinterpret_cast<uintptr_t>(other.data);
    const bool apart = a < b ? b - a >= static_cast<uintptr_t>(output.bytes)
                             : a - b >= static_cast<uintptr_t>(other.bytes);
    if (!apart && output.bytes > 0 && other.bytes > 0) {
      Fail(function, output.name, std::string("not overlap ") + other.name, "bytes in common");
    }
  };
  for (const Array* output = outputs.begin(); output != outputs.end(); ++output) {
    for (const Array& input : inputs) check(*output, input);
    for (const Array* other = outputs.begin(); other != output; ++other) check(*output, *other);
  }
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_BASE_CHECK_H_
