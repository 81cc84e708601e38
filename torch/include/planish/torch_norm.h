#ifndef PLANISH_TORCH_NORM_H_
#define PLANISH_TORCH_NORM_H_

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include <optional>
#include <vector>

// Normalisation as functions and torch::nn modules.
namespace planish {

/// Layer normalisation over the last dimensions of `x`, those of `normalized_shape`:
/// `y = weight*(x - mean)/sqrt(var + eps) + bias`, var biased (Ba, Kiros & Hinton 2016, Eq 3),
/// exact at any mean. `weight` and `bias`, each optional, have `normalized_shape`. float and double
/// tensors on the CPU; differentiable once with respect to x, weight and bias. Throws c10::Error
/// when shapes or types do not fit.
at::Tensor layer_norm(const at::Tensor& x, at::IntArrayRef normalized_shape,
                      const std::optional<at::Tensor>& weight = std::nullopt,
                      const std::optional<at::Tensor>& bias = std::nullopt, double eps = 1e-5);

namespace nn {

/// Options of LayerNorm, as torch::nn::LayerNormOptions has them.
struct LayerNormOptions {
  // NOLINTNEXTLINE(google-explicit-constructor): LayerNorm({256}), as in PyTorch
  LayerNormOptions(std::vector<int64_t> normalized_shape)
      : normalized_shape_(std::move(normalized_shape)) {}
  TORCH_ARG(std::vector<int64_t>, normalized_shape);
  TORCH_ARG(double, eps) = 1e-5;
  /// false: no weight and no bias (LayerNorm-simple, Xu et al. 2019, 3.1).
  TORCH_ARG(bool, elementwise_affine) = true;
};

/// torch::nn::LayerNorm on Planish's kernels: the same options, parameters and state-dict keys
/// (`weight`, `bias`), so checkpoints load both ways. See planish::layer_norm.
class LayerNormImpl : public torch::nn::Cloneable<LayerNormImpl> {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): LayerNorm({256}), as in PyTorch
  LayerNormImpl(std::vector<int64_t> normalized_shape)
      : LayerNormImpl(LayerNormOptions(std::move(normalized_shape))) {}
  explicit LayerNormImpl(LayerNormOptions options);

  void reset() override;
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;

  /// x: [..., normalized_shape] -> the same shape.
  at::Tensor forward(const at::Tensor& x);

  LayerNormOptions options;
  at::Tensor weight;  ///< [normalized_shape], starts at 1; undefined when not affine
  at::Tensor bias;    ///< [normalized_shape], starts at 0; undefined when not affine
};
TORCH_MODULE(LayerNorm);

}  // namespace nn
}  // namespace planish

#endif  // PLANISH_TORCH_NORM_H_
