#ifndef PLANISH_TORCH_NORM_LEVELS_H_
#define PLANISH_TORCH_NORM_LEVELS_H_

#include <ATen/core/Tensor.h>
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/functorch/PlumbingHelper.h>

#include <cstdint>
#include <initializer_list>

#include "torch/norm/spec.h"

// Tensors of a vmap rule, at the current level of vmap.
namespace planish {

/// A tensor at this level of vmap: its memory, with the mapped dimension, if any, in front.
struct Mapped {
  at::Tensor tensor;
  bool mapped = false;
};

class Level {
 public:
  Level() : level_(at::functorch::maybeCurrentDynamicLayer()->layerId()) {}

  Mapped Unwrap(const at::Tensor& t, int64_t front = 0) const {
    if (!t.defined()) return {t};
    const auto [tensor, dim] = at::functorch::unwrapTensorAtLevel(t, level_);
    return {dim ? tensor.movedim(*dim, front) : tensor, dim.has_value()};
  }
  at::Tensor Wrap(const at::Tensor& t, int64_t dim = 0) const {
    return at::functorch::makeBatched(t, dim, level_);
  }

 private:
  int64_t level_;
};

/// Returns whether the mapped cases can be rows of one call.
inline bool CanFold(const NormSpec& spec, std::initializer_list<Mapped> cases,
                    std::initializer_list<Mapped> parameters) {
  if (spec.over == Over::kBatch) return false;
  for (const Mapped& t : cases) {
    if (t.tensor.defined() && !t.mapped) return false;
  }
  for (const Mapped& t : parameters) {
    if (t.mapped) return false;
  }
  return true;
}

}  // namespace planish

#endif  // PLANISH_TORCH_NORM_LEVELS_H_
