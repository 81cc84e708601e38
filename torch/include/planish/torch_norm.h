#ifndef PLANISH_TORCH_NORM_H_
#define PLANISH_TORCH_NORM_H_

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

// Normalisation as functions and torch::nn modules.
namespace planish {

// All functions take float, double, bfloat16 and float16 on the CPU, contiguous or not, and give
// x's type; weight and bias have x's type or are float. Arithmetic and statistics are in float, for
// double in double, and exact at any mean. All are differentiable in x, weight and bias, any number
// of times, forward and backward. Autocast casts none of their arguments. planish/norm.h and its
// neighbours have the equations and what backward treats as a constant. They throw c10::ValueError
// when a shape, type or number does not fit.

/// Layer normalisation over the last dimensions of `x`, those of `normalized_shape`:
/// `y = weight*(x - mean)/sqrt(var + eps) + bias`, var biased (Ba, Kiros & Hinton 2016, Eq 3).
/// `weight` and `bias`, each optional, have `normalized_shape`.
at::Tensor layer_norm(const at::Tensor& x, at::IntArrayRef normalized_shape,
                      const std::optional<at::Tensor>& weight = std::nullopt,
                      const std::optional<at::Tensor>& bias = std::nullopt, double eps = 1e-5);

/// `y = weight*x/sqrt(mean(x^2) + eps)` over the dimensions of `normalized_shape` (Zhang & Sennrich
/// 2019). Without eps it is, as in PyTorch, the distance from 1 to the next number of the type that
/// is computed in.
at::Tensor rms_norm(const at::Tensor& x, at::IntArrayRef normalized_shape,
                    const std::optional<at::Tensor>& weight = std::nullopt,
                    std::optional<double> eps = std::nullopt);

/// Layer normalisation without weight and bias (Xu et al. 2019, 3.1).
at::Tensor layer_norm_simple(const at::Tensor& x, at::IntArrayRef normalized_shape,
                             double eps = 1e-5);

/// layer_norm_simple whose backward takes the mean, the standard deviation, or both for constants
/// (Xu et al. 2019, Eq 4 and Table 3). With both false it is layer_norm_simple.
at::Tensor detach_norm(const at::Tensor& x, at::IntArrayRef normalized_shape, bool mean = true,
                       bool std = true, double eps = 1e-5);

/// `y = C*(1 - k*xhat)*xhat`, where backward takes `1 - k*xhat` for a constant (Xu et al. 2019, Eq
/// 9). `as_coded` is the authors' code: the unbiased deviation, and eps added to it; a row has at
/// least two numbers then.
at::Tensor ada_norm(const at::Tensor& x, at::IntArrayRef normalized_shape, double C = 1,
                    double k = 0.1, bool as_coded = false, double eps = 1e-5);

/// Layer normalisation of `x + residual`, and that sum, in one pass over memory: (y, sum). Where
/// their types differ both become what the sum would be.
std::tuple<at::Tensor, at::Tensor> add_layer_norm(
    const at::Tensor& x, const at::Tensor& residual, at::IntArrayRef normalized_shape,
    const std::optional<at::Tensor>& weight = std::nullopt,
    const std::optional<at::Tensor>& bias = std::nullopt, double eps = 1e-5);

/// rms_norm of `x + residual`, and that sum: (y, sum).
std::tuple<at::Tensor, at::Tensor> add_rms_norm(
    const at::Tensor& x, const at::Tensor& residual, at::IntArrayRef normalized_shape,
    const std::optional<at::Tensor>& weight = std::nullopt,
    std::optional<double> eps = std::nullopt);

/// Layer normalisation over dimension 1 of x [N, C, ...] at every position. Nothing is permuted:
/// y is channels-last where x is. `weight` and `bias` are [C].
at::Tensor channel_layer_norm(const at::Tensor& x,
                              const std::optional<at::Tensor>& weight = std::nullopt,
                              const std::optional<at::Tensor>& bias = std::nullopt,
                              double eps = 1e-5);

/// Batch normalisation of x [N, C, ...] (Ioffe & Szegedy 2015) as torch.nn.functional.batch_norm
/// has it. In training it brings `running_mean` and `running_var` [C] up to date, where given:
/// `running = (1 - momentum)*running + momentum*batch`, of the unbiased variance; in evaluation it
/// normalises by them. `unbiased` divides by the root of the unbiased variance in training.
at::Tensor batch_norm(const at::Tensor& x, const std::optional<at::Tensor>& weight,
                      const std::optional<at::Tensor>& bias,
                      const std::optional<at::Tensor>& running_mean,
                      const std::optional<at::Tensor>& running_var, bool training,
                      double momentum = 0.1, double eps = 1e-5, bool unbiased = false);

/// Online layer normalisation of the cases x [..., D], D >= 2, in order (planish/online_norm.h):
/// (y, new_state). `state` [2], double, is the mean and the deviation that the case before left, at
/// first 0 and 1; no gradient passes through it. `alpha` is the weight of a new case, 0 < alpha <=
/// 1.
std::tuple<at::Tensor, at::Tensor> online_layer_norm(
    const at::Tensor& x, const at::Tensor& state,
    const std::optional<at::Tensor>& weight = std::nullopt,
    const std::optional<at::Tensor>& bias = std::nullopt, double alpha = 0.1);

/// `w = g*v/||v||`, with a norm for each index of dimension `dim` of v, or, as in PyTorch, one for
/// all of v with -1 (Salimans & Kingma 2016). g has a number for each norm. Zeros give NaN.
at::Tensor weight_norm(const at::Tensor& v, const at::Tensor& g, int64_t dim = 0);

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
