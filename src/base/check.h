#ifndef PLANISH_SRC_BASE_CHECK_H_
#define PLANISH_SRC_BASE_CHECK_H_

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "planish/error.h"
#include "planish/types.h"

// Argument checks of the public functions. Each throws ArgumentError with the text `[function]
// argument must ..., got VALUE`.
namespace planish::internal {

[[noreturn]] inline void Fail(const char* function, const std::string& argument,
                              const std::string& expected, const std::string& found) {
  throw ArgumentError("[" + std::string(function) + "] " + argument + " must " + expected +
                      ", got " + found);
}

/// Checks that rows and cols are at least 0, and that arrays of rows * cols elements of T, and of
/// one statistic for each row, are addressable.
template <class T>
void CheckShape(const char* function, int64_t rows, int64_t cols) {
  if (rows < 0) Fail(function, "rows", "be at least 0", std::to_string(rows));
  if (cols < 0) Fail(function, "cols", "be at least 0", std::to_string(cols));
  const int64_t most = INT64_MAX / static_cast<int64_t>(sizeof(T));
  if (cols > most / (rows > 0 ? rows : 1)) {
    Fail(function, "rows * cols", "be at most " + std::to_string(most),
         std::to_string(rows) + " * " + std::to_string(cols));
  }
  const int64_t max_rows = INT64_MAX / static_cast<int64_t>(sizeof(Compute<T>));
  if (rows > max_rows) {
    Fail(function, "rows", "be at most " + std::to_string(max_rows), std::to_string(rows));
  }
}

/// Returns the stride to use: `given`, or `cols` if it is 0. Checks that it is at least `cols`.
template <class T>
int64_t CheckedStride(const char* function, const char* name, int64_t given, int64_t rows,
                      int64_t cols) {
  if (given == 0) return cols;
  if (given < cols) {
    Fail(function, name, "be 0 or at least cols (" + std::to_string(cols) + ")",
         std::to_string(given));
  }
  const int64_t most = INT64_MAX / static_cast<int64_t>(sizeof(T));
  if (given > most / (rows > 0 ? rows : 1)) {
    Fail(function, "rows * " + std::string(name), "be at most " + std::to_string(most),
         std::to_string(rows) + " * " + std::to_string(given));
  }
  return given;
}

inline void CheckFinite(const char* function, const char* name, double value) {
  if (!std::isfinite(value)) Fail(function, name, "be finite", std::to_string(value));
}

inline void CheckEps(const char* function, double eps) {
  if (!std::isfinite(eps) || eps < 0) {
    Fail(function, "eps", "be finite and at least 0", std::to_string(eps));
  }
}

/// An array argument. Null and misaligned addresses are valid if `bytes` is 0.
struct Array {
  const char* name;
  const void* data;
  int64_t bytes;                 ///< from the first element to the end of the last one
  int64_t alignment = 1;         ///< power of two
  const void* may_be = nullptr;  ///< an input that this output may replace in place
  const void* may_also_be = nullptr;
};

/// Returns a matrix of `rows` rows of `cols` elements, `stride` elements apart.
template <class T>
Array MatrixArray(const char* name, const T* data, int64_t rows, int64_t cols, int64_t stride) {
  const int64_t size = sizeof(T);
  const int64_t bytes = rows == 0 || cols == 0 ? 0 : ((rows - 1) * stride + cols) * size;
  return {name, data, bytes, static_cast<int64_t>(alignof(T))};
}

template <class T>
Array VectorArray(const char* name, const T* data, int64_t n) {
  return MatrixArray(name, data, 1, n, n);
}

inline void CheckNotNull(const char* function, std::initializer_list<Array> arrays) {
  for (const Array& array : arrays) {
    if (array.data == nullptr && array.bytes > 0) {
      Fail(function, array.name, "point to " + std::to_string(array.bytes) + " bytes", "null");
    }
  }
}

inline void CheckAligned(const char* function, std::initializer_list<Array> arrays) {
  for (const Array& array : arrays) {
    // Masks instead of dividing: ten divisions take as long as the norm of a short row.
    const auto beyond =
        reinterpret_cast<uintptr_t>(array.data) & (static_cast<uintptr_t>(array.alignment) - 1);
    if (array.bytes > 0 && beyond != 0) {
      Fail(function, array.name,
           "be aligned to " + std::to_string(array.alignment) + " bytes, the size of its type",
           "an address " + std::to_string(beyond) + " bytes beyond");
    }
  }
}

/// Checks untyped memory: `needed` bytes, aligned to 16. Accepts any address if `needed` is 0.
inline void CheckBlock(const char* function, const char* name, const void* data, int64_t needed) {
  constexpr uintptr_t kAligned = 16;
  if (needed == 0) return;
  if (data == nullptr)
    Fail(function, name, "point to " + std::to_string(needed) + " bytes", "null");
  if (const auto beyond = reinterpret_cast<uintptr_t>(data) % kAligned; beyond != 0) {
    Fail(function, name, "be aligned to 16 bytes",
         "an address " + std::to_string(beyond) + " bytes beyond");
  }
}

/// Checks the workspace of a GPU call.
template <class Options>
void CheckWorkspace(const char* function, const Options& options, int64_t needed) {
  CheckBlock(function, "workspace", options.workspace, needed);
  if (options.workspace_bytes < needed) {
    Fail(function, "workspace_bytes", "be at least " + std::to_string(needed),
         std::to_string(options.workspace_bytes));
  }
}

/// Checks that no output shares memory with another array, except with its `may_be` and
/// `may_also_be` at the same address. Null arrays are skipped.
inline void CheckDisjoint(const char* function, std::initializer_list<Array> outputs,
                          std::initializer_list<Array> inputs) {
  const auto check = [function](const Array& output, const Array& other) {
    if (output.data == nullptr || other.data == nullptr) return;
    if (output.data == other.data &&
        (output.may_be == other.data || output.may_also_be == other.data)) {
      return;
    }
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
