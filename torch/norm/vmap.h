#ifndef PLANISH_TORCH_NORM_VMAP_H_
#define PLANISH_TORCH_NORM_VMAP_H_

#include <ATen/core/Tensor.h>
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/functorch/PlumbingHelper.h>

#include <cstdint>

// Tensors at a level of vmap, for the kernels of FuncTorchBatched.
namespace planish {

/// A tensor at this level of vmap: its memory, with the mapped dimension, if any, in front.
struct Mapped {
  at::Tensor tensor;
  bool mapped = false;
};

/// The present level.
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

}  // namespace planish

#endif  // PLANISH_TORCH_NORM_VMAP_H_
