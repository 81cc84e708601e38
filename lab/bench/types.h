#ifndef PLANISH_LAB_BENCH_TYPES_H_
#define PLANISH_LAB_BENCH_TYPES_H_

#include <concepts>
#include <utility>

#include "lab/bench/case.h"
#include "planish/types.h"

namespace planish::bench {

/// Calls f.operator()<T>() for the C++ type of `type`. Its parameters and sums are of type
/// Compute<T>.
template <class F>
decltype(auto) VisitType(Type type, F&& f) {
  switch (type) {
    case Type::kDouble:
      return std::forward<F>(f).template operator()<double>();
    case Type::kBFloat16:
      return std::forward<F>(f).template operator()<bfloat16>();
    case Type::kFloat16:
      return std::forward<F>(f).template operator()<float16>();
    default:
      return std::forward<F>(f).template operator()<float>();
  }
}

inline double ToDouble(std::floating_point auto value) { return value; }
inline double ToDouble(bfloat16 value) { return ToFloat(value); }
inline double ToDouble(float16 value) { return ToFloat(value); }

/// Returns the nearest T; 16-bit types can be rounded twice.
template <class T>
T FromDouble(double value) {
  if constexpr (std::same_as<T, bfloat16>) {
    return ToBfloat16(static_cast<float>(value));
  } else if constexpr (std::same_as<T, float16>) {
    return ToFloat16(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

}  // namespace planish::bench

#endif  // PLANISH_LAB_BENCH_TYPES_H_
