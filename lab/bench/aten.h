#ifndef PLANISH_LAB_BENCH_ATEN_H_
#define PLANISH_LAB_BENCH_ATEN_H_

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include "lab/bench/case.h"
#include "lab/bench/contestant.h"
#include "lab/bench/methods.h"

namespace planish::bench {

/// Returns PyTorch's name of a type.
inline at::ScalarType ScalarType(Type type) {
  switch (type) {
    case Type::kDouble:
      return at::kDouble;
    case Type::kBFloat16:
      return at::kBFloat16;
    case Type::kFloat16:
      return at::kHalf;
    default:
      return at::kFloat;
  }
}

/// Returns a tensor view of an array.
inline at::Tensor View(const void* data, at::IntArrayRef sizes, Type type) {
  // Tensors have no const; the inputs are only read.
  return at::from_blob(const_cast<void*>(data), sizes, at::TensorOptions(ScalarType(type)));
}

/// Returns PyTorch's kernel of group norm (aten_groups.cc), for [samples, channels, spatial, 1]
/// tensors.
Contestant MakeAtenGroups(const Method& method, const Case& c, const Arrays& arrays);

}  // namespace planish::bench

#endif  // PLANISH_LAB_BENCH_ATEN_H_
