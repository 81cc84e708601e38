#ifndef PLANISH_SRC_BASE_CHECK_H_
#define PLANISH_SRC_BASE_CHECK_H_

#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "planish/error.h"

// Argument checks of the public functions. Each throws ArgumentError with the text `[function]
// argument must ..., got VALUE`.
namespace planish::internal {

[[noreturn]] inline void Fail(const char* function, const std::string& argument,
                              const std::string& expected, const std::string& found) {
  throw ArgumentError("[" + std::string(function) + "] " + argument + " must " + expected +
                      ", got " + found);
}

inline namespace PLANISH_API {  // exported for the binding

/// Returns a value as messages show it: 6 digits at most, in the form of printf's %g.
std::string Text(double value);

}  // namespace PLANISH_API

/// Returns the text of an address that is `past` bytes past a multiple of `alignment`.
inline std::string MisalignedAddress(uintptr_t past, uintptr_t alignment) {
  return "an address " + std::to_string(past) + " bytes past a multiple of " +
         std::to_string(alignment);
}

inline void CheckFinite(const char* function, const char* name, double value) {
  if (!std::isfinite(value)) Fail(function, name, "be finite", Text(value));
}

inline void CheckEps(const char* function, double eps) {
  if (!std::isfinite(eps) || eps < 0) {
    Fail(function, "eps", "be finite and at least 0", Text(eps));
  }
}

/// The elements of an array: `rows` rows of `cols`.
struct Extent {
  int64_t rows = 1, cols = 0;
};

/// Requirement on an array argument: optional, required, or null for a reason.
struct Presence {
  bool required = false;
  const char* null_reason = nullptr;  ///< why the array must be null; null: can be given
};
inline constexpr Presence kOptional = {}, kRequired = {.required = true};
constexpr Presence RequiredIf(bool condition) { return {.required = condition}; }
constexpr Presence NullUnless(bool condition, const char* reason) {
  return {.null_reason = condition ? nullptr : reason};
}

/// Description of an array argument: a member of Args. Arrays of const elements are inputs, the
/// others are outputs. An output must not overlap another array, unless it is in place of an input.
///
/// The arrays of a call are described by VisitArguments(args, ..., f), which calls f with each
/// Argument. All sizes in `args` are valid.
template <class Args, class E>
struct Argument {
  const char* name;
  E* Args::* member;
  Extent extent;
  Presence presence = kOptional;
  int64_t Args::* stride = nullptr;  ///< elements from row to row; null: cols
  const void* in_place[2] = {};      ///< addresses of inputs that the output can have

  constexpr Argument&& WithStride(int64_t Args::* member_with_stride) && {
    stride = member_with_stride;
    return std::move(*this);
  }
  constexpr Argument&& InPlaceOf(const void* input, const void* other = nullptr) && {
    in_place[0] = input;
    in_place[1] = other;
    return std::move(*this);
  }
};
template <class Args, class E>
Argument(const char*, E* Args::*, Extent, Presence = {}) -> Argument<Args, E>;

/// Calls f with each array argument of `args`, from any namespace.
template <class Args, class F, class... Facts>
void ForEachArgument(const Args& args, const F& f, const Facts&... facts) {
  VisitArguments(args, facts..., [&](const auto& argument) { f(argument); });
}

/// Checks that a stride is at least cols, and that the array is addressable.
void CheckStride(const char* function, const char* array, int64_t stride, Extent extent,
                 int64_t element_bytes);

/// Checks the strides of a call, and replaces 0 by cols.
template <class Args, class... Facts>
void SetStrides(const char* function, Args& args, const Facts&... facts) {
  VisitArguments(args, facts..., [&]<class E>(const Argument<Args, E>& argument) {
    if (argument.stride == nullptr) return;
    int64_t& stride = args.*argument.stride;
    if (stride == 0) stride = argument.extent.cols;
    if (stride == argument.extent.cols) return;
    CheckStride(function, argument.name, stride, argument.extent, sizeof(E));
  });
}

/// The arrays of a call that are given. Allocates no memory.
class Arrays {
 public:
  explicit Arrays(const char* function) : function_(function) {}

  /// Adds the described members of `args`, whose strides are set. Checks that required arrays are
  /// given unless they are empty, and that arrays that must be null are null.
  template <class Args, class... Facts>
  void Add(const Args& args, const Facts&... facts) {
    VisitArguments(args, facts..., [&](const auto& argument) { AddOne(args, argument); });
  }

  /// Checks that arrays are aligned, and that outputs overlap other arrays only in place.
  void CheckAlignedAndDisjoint() const;

 private:
  struct Array {
    const char* name;
    uintptr_t begin, end;
    int64_t stride;  // in elements
    uintptr_t alignment;
    const void* in_place[2];
  };
  struct List {
    Array arrays[24];  // RnnBackward has 24 inputs; the first `size` are set
    int size = 0;
  };

  template <class Args, class E>
  void AddOne(const Args& args, const Argument<Args, E>& argument) {
    const auto& [rows, cols] = argument.extent;
    const int64_t stride = argument.stride ? args.*argument.stride : cols;
    const int64_t size = sizeof(E);
    const int64_t bytes = rows == 0 || cols == 0 ? 0 : ((rows - 1) * stride + cols) * size;
    E* data = args.*argument.member;
    if (data == nullptr) {
      if (argument.presence.required && bytes > 0) FailNull(argument.name, bytes);
      return;
    }
    if (argument.presence.null_reason) FailGiven(argument.name, argument.presence.null_reason);
    List& list = std::is_const_v<E> ? inputs_ : outputs_;
    // Set in place: a copy of a struct just written is slow in a short call.
    Array& array = list.arrays[list.size++];
    array.name = argument.name;
    array.begin = reinterpret_cast<uintptr_t>(data);
    array.end = array.begin + static_cast<uintptr_t>(bytes);
    array.stride = stride;
    array.alignment = alignof(E);
    array.in_place[0] = argument.in_place[0];
    array.in_place[1] = argument.in_place[1];
  }
  void CheckAligned(const List& list) const;
  void CheckOverlap(const Array& output, const Array& other) const;
  [[noreturn]] void FailNull(const char* name, int64_t bytes) const;
  [[noreturn]] void FailGiven(const char* name, const char* reason) const;

  const char* function_;
  List inputs_, outputs_;
};

/// Checks the arrays of a call that has one struct of arguments.
template <class Args, class... Facts>
void CheckArrays(const char* function, const Args& args, const Facts&... facts) {
  Arrays arrays(function);
  arrays.Add(args, facts...);
  arrays.CheckAlignedAndDisjoint();
}

/// Checks untyped memory: `needed` bytes, aligned to 16. Accepts any address if `needed` is 0.
inline void CheckBlock(const char* function, const char* name, const void* data, int64_t needed) {
  constexpr uintptr_t kAligned = 16;
  if (needed == 0) return;
  if (data == nullptr)
    Fail(function, name, "point to " + std::to_string(needed) + " bytes", "null");
  if (const auto past = reinterpret_cast<uintptr_t>(data) % kAligned; past != 0) {
    Fail(function, name, "be aligned to 16 bytes", MisalignedAddress(past, kAligned));
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

}  // namespace planish::internal

#endif  // PLANISH_SRC_BASE_CHECK_H_
