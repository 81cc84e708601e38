#ifndef PLANISH_SRC_BASE_ARGUMENTS_TESTING_H_
#define PLANISH_SRC_BASE_ARGUMENTS_TESTING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "planish/error.h"
#include "src/base/check.h"

// Array arguments of a call in a form without types, and tests of their checks.
namespace planish::tests {

/// An array argument of a call.
struct ArrayArgument {
  std::string name;
  void* member;     ///< address of the pointer in the call's arguments
  int64_t* stride;  ///< address of the stride in the arguments, or null
  internal::Extent extent;
  int64_t element_bytes;
  internal::Presence presence;
  bool output;
  const void* in_place[2];

  void* data() const {
    void* data = nullptr;
    std::memcpy(&data, member, sizeof data);
    return data;
  }
  void Set(const void* data) const { std::memcpy(member, &data, sizeof data); }

  int64_t row_stride() const { return stride && *stride != 0 ? *stride : extent.cols; }
  /// Returns the bytes from the first element to the end of the last one.
  int64_t bytes() const {
    if (extent.rows == 0 || extent.cols == 0) return 0;
    return ((extent.rows - 1) * row_stride() + extent.cols) * element_bytes;
  }
  /// Returns whether this output can have the address of `input`.
  bool CanReplace(const ArrayArgument& input) const {
    return input.data() && (in_place[0] == input.data() || in_place[1] == input.data());
  }
};

/// Returns the arrays in `args`, which must stay where it is.
template <class Args, class... Facts>
std::vector<ArrayArgument> ArraysOf(Args& args, const Facts&... facts) {
  std::vector<ArrayArgument> arrays;
  const auto add = [&]<class E>(const internal::Argument<Args, E>& argument) {
    arrays.push_back({.name = argument.name,
                      .member = &(args.*argument.member),
                      .stride = argument.stride ? &(args.*argument.stride) : nullptr,
                      .extent = argument.extent,
                      .element_bytes = sizeof(E),
                      .presence = argument.presence,
                      .output = !std::is_const_v<E>,
                      .in_place = {argument.in_place[0], argument.in_place[1]}});
  };
  internal::ForEachArgument(args, add, facts...);
  return arrays;
}

/// Sets all arrays in `args` that can be given, except those named in `except`, to zeros. Returns
/// their memory.
template <class Args, class... Facts>
std::vector<std::vector<double>> SetArrays(Args& args, const std::vector<std::string>& except,
                                           const Facts&... facts) {
  std::vector<std::vector<double>> memory;
  for (int pass = 0; pass < 2; ++pass) {  // some can be given only with others
    for (const ArrayArgument& array : ArraysOf(args, facts...)) {
      if (array.data() || array.presence.null_reason || std::ranges::count(except, array.name)) {
        continue;
      }
      memory.emplace_back(static_cast<size_t>(array.bytes() / 8 + 1));
      array.Set(memory.back().data());
    }
  }
  return memory;
}

/// Checks that `call` rejects each array that is null although it is required, given although it
/// must be null, misaligned, or overlaps another one. The call is valid with the arguments that
/// contain `arrays`. `function` is its name in errors.
template <class Call>
void ExpectArrayErrors(const std::string& function, const std::vector<ArrayArgument>& arrays,
                       const Call& call) {
  const auto error = [&]() -> std::string {
    try {
      call();
    } catch (const ArgumentError& e) {
      return e.what();
    }
    return "";
  };
  const auto expect = [&](const std::string& name, const std::string& text) {
    EXPECT_EQ(error(), "[" + function + "] " + name + " must " + text);
  };
  const auto overlap_text = [](const ArrayArgument& other, int64_t bytes) {
    return "not overlap " + other.name + ", got " + std::to_string(bytes) + " bytes in common";
  };
  EXPECT_EQ(error(), "");
  int64_t most = 64;
  for (const ArrayArgument& array : arrays) most = std::max(most, 2 * array.bytes());
  std::vector<uint64_t> block(static_cast<size_t>(most / 8 + 1));  // overlaps no array
  for (const ArrayArgument& array : arrays) {
    void* const data = array.data();
    const bool empty = array.bytes() == 0;  // then any address is valid
    if (array.presence.required && !empty) {
      array.Set(nullptr);
      expect(array.name, "point to " + std::to_string(array.bytes()) + " bytes, got null");
    }
    if (array.presence.null_reason) {
      array.Set(block.data());
      expect(array.name, std::string("be null ") + array.presence.null_reason + ", got an address");
    } else if (array.element_bytes > 1 && data != nullptr && !empty) {
      array.Set(reinterpret_cast<char*>(block.data()) + 1);
      expect(array.name, "be aligned to " + std::to_string(array.element_bytes) +
                             " bytes, got an address 1 bytes past a multiple of " +
                             std::to_string(array.element_bytes));
    }
    array.Set(data);
  }
  for (size_t i = 0; i < arrays.size(); ++i) {
    const ArrayArgument& output = arrays[i];
    if (!output.output || output.data() == nullptr || output.bytes() == 0) continue;
    for (size_t j = 0; j < arrays.size(); ++j) {
      const ArrayArgument& other = arrays[j];
      if (i == j || other.data() == nullptr || other.bytes() == 0) continue;
      if (other.output && j > i) continue;  // the later output is named first
      void *const output_data = output.data(), *const other_data = other.data();
      const bool can_replace = output.CanReplace(other);
      output.Set(block.data());
      other.Set(block.data());
      if (!can_replace) {
        expect(output.name, overlap_text(other, std::min(output.bytes(), other.bytes())));
      } else if (output.stride) {
        const int64_t stride = *output.stride;
        *output.stride = output.row_stride() + 1;
        expect(output.name + "_stride",
               "equal " + other.name + "_stride (" + std::to_string(other.row_stride()) + ") if " +
                   output.name + " is " + other.name + ", got " + std::to_string(*output.stride));
        *output.stride = stride;
      }
      if (can_replace) {
        EXPECT_EQ(error(), "") << output.name << " in place of " << other.name;
        output.Set(static_cast<char*>(static_cast<void*>(block.data())) + output.element_bytes);
        expect(output.name,
               overlap_text(other, std::min(output.bytes(), other.bytes() - output.element_bytes)));
      }
      output.Set(output_data);
      other.Set(other_data);
    }
  }
}

}  // namespace planish::tests

#endif  // PLANISH_SRC_BASE_ARGUMENTS_TESTING_H_
