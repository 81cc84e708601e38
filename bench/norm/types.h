#ifndef PLANISH_BENCH_NORM_TYPES_H_
#define PLANISH_BENCH_NORM_TYPES_H_

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <type_traits>
#include <utility>

#include "bench/norm/case.h"

namespace planish::bench {

/// Calls f.operator()<T>() for the C++ type of `type`. The half types are PyTorch's; the core's
/// have the same bits.
template <class F>
decltype(auto) VisitType(Type type, F&& f) {
  switch (type) {
    case Type::kDouble:
      return std::forward<F>(f).template operator()<double>();
    case Type::kBFloat16:
      return std::forward<F>(f).template operator()<c10::BFloat16>();
    case Type::kFloat16:
      return std::forward<F>(f).template operator()<c10::Half>();
    default:
      return std::forward<F>(f).template operator()<float>();
  }
}

/// The type of parameters and sums beside T.
template <class T>
using Parameter = std::conditional_t<std::is_same_v<T, double>, double, float>;

}  // namespace planish::bench

#endif  // PLANISH_BENCH_NORM_TYPES_H_
