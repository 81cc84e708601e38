#ifndef PLANISH_TORCH_RNN_COMPOSED_H_
#define PLANISH_TORCH_RNN_COMPOSED_H_

#include <array>
#include <cstddef>

#include "planish/torch_rnn.h"
#include "torch/rnn/fields.h"

// A layer composed of PyTorch's operators. PyTorch's autograd computes the derivatives for which
// the core has no kernels: second and higher derivatives, and those in forward mode.
namespace planish {

/// The gradients of the differentiable tensors, in the order of kFields; undefined if not needed.
using Gradients = std::array<at::Tensor, kDifferentiables>;
using Mask = std::array<bool, kDifferentiables>;

/// dy, dh_n and dc_n; undefined means zeros.
inline constexpr size_t kOutputs = 3;
using OutputGradients = std::array<at::Tensor, kOutputs>;

/// The inputs of rnn_backward: the differentiable tensors of a layer, then dy, dh_n and dc_n. Its
/// arguments y and saved are functions of these.
inline constexpr size_t kBackwardInputs = kDifferentiables + kOutputs;
using SecondGradients = std::array<at::Tensor, kBackwardInputs>;
using SecondMask = std::array<bool, kBackwardInputs>;

/// Computes rnn_forward from checked arguments; ignores `checkpoint`. If T is a compiler's symbol,
/// it becomes a constant.
RnnOutputs ComposedForward(Cell cell, const RnnTensors& tensors, const RnnSettings& settings);

/// Computes rnn_backward: the gradients in `mask`. They have tangents if the arguments do, and a
/// history with `create_graph`.
Gradients ComposedBackward(Cell cell, const RnnTensors& tensors, const RnnSettings& settings,
                           const OutputGradients& gradients, const Mask& mask, bool create_graph);

/// Computes the gradients of rnn_backward's inputs in `needed` (undefined means zeros) from
/// `seconds`, the gradients of its results. Tangents and history are as in ComposedBackward.
SecondGradients ComposedDoubleBackward(Cell cell, const RnnTensors& tensors,
                                       const RnnSettings& settings,
                                       const OutputGradients& gradients, const Gradients& seconds,
                                       const SecondMask& needed, bool create_graph);

}  // namespace planish

#endif  // PLANISH_TORCH_RNN_COMPOSED_H_
