#ifndef PLANISH_TORCH_RNN_COMPOSED_H_
#define PLANISH_TORCH_RNN_COMPOSED_H_

#include <array>
#include <cstddef>

#include "planish/torch_rnn.h"
#include "torch/rnn/fields.h"

// A layer made of PyTorch's own operators, for the derivatives that the core has no kernels of:
// second and further ones, and those in forward mode. PyTorch's autograd takes them.
namespace planish {

/// The gradients of x, of the parameters and so on, in the order of kFields. One that is not wanted
/// is undefined.
using Gradients = std::array<at::Tensor, kDifferentiables>;
using Mask = std::array<bool, kDifferentiables>;

/// dy, dh_n and dc_n. An undefined one is zeros.
inline constexpr size_t kOutputs = 3;
using OutputGradients = std::array<at::Tensor, kOutputs>;

/// What rnn_backward is a function of: the differentiable tensors of a layer, then dy, dh_n, dc_n.
/// (Its y and saved are functions of these.)
inline constexpr size_t kBackwardInputs = kDifferentiables + kOutputs;
using SecondGradients = std::array<at::Tensor, kBackwardInputs>;
using SecondMask = std::array<bool, kBackwardInputs>;

/// What rnn_forward computes, of tensors and with settings that it has found right; `checkpoint` is
/// without meaning. T becomes a constant where it was a compiler's symbol.
RnnOutputs ComposedForward(Cell cell, const RnnTensors& tensors, const RnnSettings& settings);

/// What rnn_backward computes: the gradients that `mask` names. They have the tangents that the
/// arguments give them and, with `create_graph`, a history.
Gradients ComposedBackward(Cell cell, const RnnTensors& tensors, const RnnSettings& settings,
                           const OutputGradients& gradients, const Mask& mask, bool create_graph);

/// Takes `seconds`, gradients of rnn_backward's results, back to its inputs: those that `needed`
/// names, undefined where they are zeros. Otherwise as ComposedBackward.
SecondGradients ComposedDoubleBackward(Cell cell, const RnnTensors& tensors,
                                       const RnnSettings& settings,
                                       const OutputGradients& gradients, const Gradients& seconds,
                                       const SecondMask& needed, bool create_graph);

}  // namespace planish

#endif  // PLANISH_TORCH_RNN_COMPOSED_H_
