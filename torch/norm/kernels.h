#ifndef PLANISH_TORCH_NORM_KERNELS_H_
#define PLANISH_TORCH_NORM_KERNELS_H_

#include <ATen/core/Tensor.h>

#include "torch/norm/spec.h"

// norm_forward and norm_backward on tensors: the core's functions on their memory, on the CPU or a
// GPU, there on the current stream. Arguments are checked.
namespace planish {

struct NormForwardTensors {
  const at::Tensor &x, &residual, &weight, &bias;  ///< all but x may be undefined
  const at::Tensor &y, &sum;                       ///< of FormatOf(x); sum with residual alone
  const at::Tensor& moments;                       ///< of MomentSizes, or undefined
};

void RunNormForward(const NormSpec& spec, const NormForwardTensors& tensors);

struct NormBackwardTensors {
  const at::Tensor &dy, &dsum, &x, &moments, &weight;  ///< dsum and weight may be undefined
  const at::Tensor &dx, &dweight, &dbias;              ///< those wanted; dx of FormatOf(x)
};

void RunNormBackward(const NormSpec& spec, const NormBackwardTensors& tensors);

}  // namespace planish

#endif  // PLANISH_TORCH_NORM_KERNELS_H_
