#ifndef PLANISH_LAB_MODEL_LINEAR_H_
#define PLANISH_LAB_MODEL_LINEAR_H_

#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

namespace planish::lab {

/// torch::nn::Linear, whose products, backward ones too, are oneDNN's where PyTorch has it and
/// numbers are float. PyTorch itself takes MKL's, which use half of the width of some processors'
/// vectors.
struct LinearImpl final : torch::nn::LinearImpl {
  using torch::nn::LinearImpl::LinearImpl;

  /// x [..., inputs] -> [..., outputs].
  at::Tensor forward(const at::Tensor& x);
};
TORCH_MODULE(Linear);

}  // namespace planish::lab

#endif  // PLANISH_LAB_MODEL_LINEAR_H_
