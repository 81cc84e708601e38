#include "src/base/check.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>

namespace planish::internal {

inline namespace PLANISH_API {

std::string Text(double value) {
  if (std::isnan(value)) return "nan";  // %g also prints its sign
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

}  // namespace PLANISH_API

void CheckStride(const char* function, const char* array, int64_t stride, Extent extent,
                 int64_t element_bytes) {
  const auto [rows, cols] = extent;
  const std::string name = std::string(array) + "_stride";
  if (stride < cols) {
    Fail(function, name, "be 0 or at least cols (" + std::to_string(cols) + ")",
         std::to_string(stride));
  }
  const int64_t max_elements = INT64_MAX / element_bytes;
  if (stride > max_elements / (rows > 0 ? rows : 1)) {
    Fail(function, "rows * " + name, "be at most " + std::to_string(max_elements),
         std::to_string(rows) + " * " + std::to_string(stride));
  }
}

void Arrays::FailNull(const char* name, int64_t bytes) const {
  Fail(function_, name, "point to " + std::to_string(bytes) + " bytes", "null");
}

void Arrays::FailGiven(const char* name, const char* reason) const {
  Fail(function_, name, std::string("be null ") + reason, "an address");
}

void Arrays::CheckAligned(const List& list) const {
  for (int i = 0; i < list.size; ++i) {
    const Array& array = list.arrays[i];
    // Masks instead of dividing: ten divisions take as long as the norm of a short row.
    const uintptr_t past = array.begin & (array.alignment - 1);
    if (past == 0 || array.begin == array.end) continue;
    Fail(function_, array.name, "be aligned to " + std::to_string(array.alignment) + " bytes",
         MisalignedAddress(past, array.alignment));
  }
}

// Throws unless the arrays have the same address, in place, and the same strides.
void Arrays::CheckOverlap(const Array& output, const Array& other) const {
  const auto is_other = [&](const void* array) {
    return reinterpret_cast<uintptr_t>(array) == other.begin;
  };
  if (output.begin == other.begin &&
      (is_other(output.in_place[0]) || is_other(output.in_place[1]))) {
    if (output.stride == other.stride) return;
    const std::string name = output.name, input = other.name;
    Fail(function_, name + "_stride",
         "equal " + input + "_stride (" + std::to_string(other.stride) + ") if " + name + " is " +
             input,
         std::to_string(output.stride));
  }
  const uintptr_t shared = std::min(output.end, other.end) - std::max(output.begin, other.begin);
  Fail(function_, output.name, std::string("not overlap ") + other.name,
       std::to_string(shared) + " bytes in common");
}

void Arrays::CheckAlignedAndDisjoint() const {
  CheckAligned(inputs_);
  CheckAligned(outputs_);
  for (int i = 0; i < outputs_.size; ++i) {
    const Array& output = outputs_.arrays[i];
    const auto check = [&](const List& list, int size) {
      for (int j = 0; j < size; ++j) {
        const Array& other = list.arrays[j];
        const bool overlap = output.begin < other.end && other.begin < output.end;
        const bool empty = output.begin == output.end || other.begin == other.end;
        if (overlap && !empty) CheckOverlap(output, other);
      }
    };
    check(inputs_, inputs_.size);
    check(outputs_, i);
  }
}

}  // namespace planish::internal
