#ifndef PLANISH_TORCH_NORM_KERNELS_H_
#define PLANISH_TORCH_NORM_KERNELS_H_

#include <ATen/core/Tensor.h>

#include "torch/norm/spec.h"

// norm_forward and norm_backward on tensors, on the CPU, or on the current stream of a GPU. The
// caller checks the arguments.
namespace planish {

struct NormForwardTensors {
  const at::Tensor &x, &residual, &gate, &weight, &bias;  ///< all except x can be undefined
  const at::Tensor &y, &sum;     ///< in FormatOf(x); sum only with residual
  const at::Tensor& statistics;  ///< [StatisticsSizes], or undefined
  /// The output in int8 and the scale of each row, for norms of rows; or undefined. y then can be.
  const at::Tensor &quantized, &row_scale;
};

void RunNormForward(const NormSpec& spec, const NormForwardTensors& tensors);

/// dsum, gate, weight and bias can be undefined; bias is read only for dgate.
struct NormBackwardTensors {
  const at::Tensor &dy, &dsum, &x, &gate, &statistics, &weight, &bias;
  const at::Tensor &dx, &dgate, &dweight, &dbias;  ///< undefined if not needed; dx in FormatOf(x)
};

void RunNormBackward(const NormSpec& spec, const NormBackwardTensors& tensors);

}  // namespace planish

#endif  // PLANISH_TORCH_NORM_KERNELS_H_
