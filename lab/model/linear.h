#ifndef PLANISH_LAB_MODEL_LINEAR_H_
#define PLANISH_LAB_MODEL_LINEAR_H_

#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

namespace planish::lab {

/// Returns x weight' + bias of x [..., inputs], weight [outputs, inputs] and bias [outputs] or
/// undefined.
/// Forward and backward use oneDNN if PyTorch has it and the elements are float. PyTorch's own
/// choice is MKL, which uses only half of the vector width on some processors.
at::Tensor LinearProduct(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// torch::nn::Linear on LinearProduct.
struct LinearImpl final : torch::nn::LinearImpl {
  using torch::nn::LinearImpl::LinearImpl;

  /// x [..., inputs] -> [..., outputs].
  at::Tensor forward(const at::Tensor& x);
};
TORCH_MODULE(Linear);

}  // namespace planish::lab

#endif  // PLANISH_LAB_MODEL_LINEAR_H_
