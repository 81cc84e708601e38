#ifndef PLANISH_TORCH_NORM_H_
#define PLANISH_TORCH_NORM_H_

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "planish/version.h"

// Normalization functions and torch::nn modules.
//
// Example:
//   planish::nn::LayerNorm norm(planish::nn::LayerNormOptions({3}).eps(1e-6));
//   const at::Tensor y = norm(at::tensor({1.f, 2.f, 3.f}));
//   for (int i = 0; i < 3; ++i) std::printf("%.2f ", y[i].item<double>());
//   // prints -1.22 0.00 1.22
namespace planish {
inline namespace PLANISH_API {

// Common to all functions:
// - x is float, double, bfloat16 or float16, on the CPU or a GPU, contiguous or not. Outputs have
//   x's type.
// - weight and bias have x's type or float. Other floating types are converted at each call.
// - Arithmetic and statistics are in float (in double for double). They stay accurate if the mean
//   is large against the deviation.
// - Derivatives of any order, in reverse and forward mode, exist for x, weight and bias. Autocast
//   casts no argument.
// - They can be called from several threads at once, and throw c10::ValueError if a shape, type or
//   value is invalid. Work is divided over PyTorch's threads.
//
// planish/norm.h has the equations and says what backward treats as a constant.

/// Returns the norm of planish::Norm with this name over the last dimensions of x, which must equal
/// `normalized_shape`. The names are row_norm_names(): "layer", "rms", "detach_mean" and so on.
///
/// `weight` and `bias`, both optional, have shape `normalized_shape`; norms without gain and bias
/// take none. They can have more dimensions in front, which broadcast to x's: a gain for each head,
/// or for each sample (modulated norms). This holds for all functions with normalized_shape.
/// `C` and `k` are AdaNorm's; other norms ignore them. The functions below are this one
/// with PyTorch's defaults.
at::Tensor row_norm(const at::Tensor& x, at::IntArrayRef normalized_shape, std::string_view norm,
                    const std::optional<at::Tensor>& weight = std::nullopt,
                    const std::optional<at::Tensor>& bias = std::nullopt, double eps = 1e-5,
                    double C = 1, double k = 0.1);

/// Returns the names of the norms over rows, those of planish::Norm in lower case.
std::vector<std::string> row_norm_names();

/// Returns x normalized over its last dimensions, which must equal `normalized_shape`:
/// `y = weight*(x - mean)/sqrt(var + eps) + bias` with the biased variance (Ba, Kiros & Hinton
/// 2016, Eq. 3). `weight` and `bias`, both optional, have shape `normalized_shape`.
at::Tensor layer_norm(const at::Tensor& x, at::IntArrayRef normalized_shape,
                      const std::optional<at::Tensor>& weight = std::nullopt,
                      const std::optional<at::Tensor>& bias = std::nullopt, double eps = 1e-5);

/// Returns `y = weight*x/sqrt(mean(x^2) + eps)` (Zhang & Sennrich 2019). The mean is over the
/// dimensions of `normalized_shape`. The default of `eps` is the machine epsilon of the type of the
/// arithmetic, as in PyTorch.
at::Tensor rms_norm(const at::Tensor& x, at::IntArrayRef normalized_shape,
                    const std::optional<at::Tensor>& weight = std::nullopt,
                    std::optional<double> eps = std::nullopt);

/// Returns layer_norm without weight and bias (LayerNorm-simple; Xu et al. 2019, 3.1).
at::Tensor layer_norm_simple(const at::Tensor& x, at::IntArrayRef normalized_shape,
                             double eps = 1e-5);

/// Returns layer_norm_simple(x). Backward treats the mean, the standard deviation, or both as
/// constants (Xu et al. 2019, Eq. 4 and Table 3). With both flags false this is layer_norm_simple.
at::Tensor detach_norm(const at::Tensor& x, at::IntArrayRef normalized_shape, bool mean = true,
                       bool std = true, double eps = 1e-5);

/// Returns `y = C*(1 - k*xhat)*xhat`; backward treats `1 - k*xhat` as a constant (Xu et al. 2019,
/// Eq. 9). `as_coded` follows the authors' code: xhat uses the unbiased standard deviation, and eps
/// is added to the deviation. A row must then have at least two elements.
at::Tensor ada_norm(const at::Tensor& x, at::IntArrayRef normalized_shape, double C = 1,
                    double k = 0.1, bool as_coded = false, double eps = 1e-5);

/// Returns (y, sum) with `sum = x + residual` and `y = layer_norm(sum)`, in one pass over memory.
/// If the types of x and residual differ, both outputs have the promoted type.
std::tuple<at::Tensor, at::Tensor> add_layer_norm(
    const at::Tensor& x, const at::Tensor& residual, at::IntArrayRef normalized_shape,
    const std::optional<at::Tensor>& weight = std::nullopt,
    const std::optional<at::Tensor>& bias = std::nullopt, double eps = 1e-5);

/// Returns (y, sum) with `sum = x + residual` and `y = rms_norm(sum)`. See add_layer_norm.
std::tuple<at::Tensor, at::Tensor> add_rms_norm(
    const at::Tensor& x, const at::Tensor& residual, at::IntArrayRef normalized_shape,
    const std::optional<at::Tensor>& weight = std::nullopt,
    std::optional<double> eps = std::nullopt);

/// Returns (y, sum) with `sum = dropout(x) + residual` and `y = layer_norm(sum)`, in one pass over
/// memory on the CPU. Dropout keeps an element with the probability 1 - p, rounded to a multiple of
/// 2^-16, and divides it by that. The mask depends only on `seed`, one int64 on the CPU, and on the
/// positions of elements (planish/dropout_norm.h), so none is stored for backward: use a new seed
/// in each call. Cases of a vmap have the same mask.
std::tuple<at::Tensor, at::Tensor> dropout_add_layer_norm(
    const at::Tensor& x, const at::Tensor& residual, at::IntArrayRef normalized_shape, double p,
    const at::Tensor& seed, const std::optional<at::Tensor>& weight = std::nullopt,
    const std::optional<at::Tensor>& bias = std::nullopt, double eps = 1e-5);

/// Returns (y, sum) with `sum = dropout(x) + residual` and `y = rms_norm(sum)`. See
/// dropout_add_layer_norm.
std::tuple<at::Tensor, at::Tensor> dropout_add_rms_norm(
    const at::Tensor& x, const at::Tensor& residual, at::IntArrayRef normalized_shape, double p,
    const at::Tensor& seed, const std::optional<at::Tensor>& weight = std::nullopt,
    std::optional<double> eps = std::nullopt);

/// Returns layer_norm(x) gated by `gate`, which has x's sizes and type, with silu(z) = z/(1 +
/// exp(-z)):
///
///   y = layer_norm(x)*silu(gate)    if norm_before_gate
///   y = layer_norm(x*silu(gate))    otherwise
///
/// Without a gate, y = layer_norm(x). 16-bit types are rounded once, at the end. With
/// cast_before_weight, the normalized x is also rounded to x's type before the product with
/// `weight`, and that product before a gate.
at::Tensor gated_layer_norm(const at::Tensor& x, const std::optional<at::Tensor>& gate,
                            at::IntArrayRef normalized_shape,
                            const std::optional<at::Tensor>& weight = std::nullopt,
                            const std::optional<at::Tensor>& bias = std::nullopt, double eps = 1e-5,
                            bool norm_before_gate = true, bool cast_before_weight = false);

/// Returns rms_norm(x) with a gate: after the norm in Qwen3-Next (gated DeltaNet), before it in
/// Mamba-2. cast_before_weight rounds as Llama, T5 and Qwen3-Next do. See gated_layer_norm.
at::Tensor gated_rms_norm(const at::Tensor& x, const std::optional<at::Tensor>& gate,
                          at::IntArrayRef normalized_shape,
                          const std::optional<at::Tensor>& weight = std::nullopt,
                          std::optional<double> eps = std::nullopt, bool norm_before_gate = true,
                          bool cast_before_weight = false);

/// Returns layer_norm(x) quantized to int8, for inference: (quantized, scale) with the scale of a
/// row y = layer_norm(x) in `scale`, whose normalized sizes are 1:
///
///   scale = max(|y|) / 127,   quantized = round(y * (127 / max(|y|)))
///
/// y is in float, or double for double, and not rounded to x's type. So `quantized * scale` is y up
/// to scale / 2. If y has NaN or infinite elements, scale is NaN and quantized is 0. The gate and
/// cast_before_weight are those of gated_layer_norm. The outputs have no derivatives.
std::tuple<at::Tensor, at::Tensor> quantized_layer_norm(
    const at::Tensor& x, at::IntArrayRef normalized_shape,
    const std::optional<at::Tensor>& weight = std::nullopt,
    const std::optional<at::Tensor>& bias = std::nullopt, double eps = 1e-5,
    const std::optional<at::Tensor>& gate = std::nullopt, bool norm_before_gate = true,
    bool cast_before_weight = false);

/// Returns rms_norm(x) quantized to int8, and the scales. See quantized_layer_norm.
std::tuple<at::Tensor, at::Tensor> quantized_rms_norm(
    const at::Tensor& x, at::IntArrayRef normalized_shape,
    const std::optional<at::Tensor>& weight = std::nullopt,
    std::optional<double> eps = std::nullopt, const std::optional<at::Tensor>& gate = std::nullopt,
    bool norm_before_gate = true, bool cast_before_weight = false);

/// Returns (quantized, scale, sum) with `sum = x + residual` and the quantized layer_norm(sum), in
/// one pass over memory. The sum has derivatives. See quantized_layer_norm and add_layer_norm.
std::tuple<at::Tensor, at::Tensor, at::Tensor> add_quantized_layer_norm(
    const at::Tensor& x, const at::Tensor& residual, at::IntArrayRef normalized_shape,
    const std::optional<at::Tensor>& weight = std::nullopt,
    const std::optional<at::Tensor>& bias = std::nullopt, double eps = 1e-5);

/// Returns (quantized, scale, sum) with `sum = x + residual` and the quantized rms_norm(sum). See
/// add_quantized_layer_norm.
std::tuple<at::Tensor, at::Tensor, at::Tensor> add_quantized_rms_norm(
    const at::Tensor& x, const at::Tensor& residual, at::IntArrayRef normalized_shape,
    const std::optional<at::Tensor>& weight = std::nullopt,
    std::optional<double> eps = std::nullopt);

/// Returns x [N, C, ...] normalized over dimension 1 at every position, without a permuted copy: y
/// is channels-last if x is. `weight` and `bias` are [C].
at::Tensor channel_layer_norm(const at::Tensor& x,
                              const std::optional<at::Tensor>& weight = std::nullopt,
                              const std::optional<at::Tensor>& bias = std::nullopt,
                              double eps = 1e-5);

/// Returns batch normalization of x [N, C, ...] (Ioffe & Szegedy 2015), like
/// torch.nn.functional.batch_norm.
///
/// In training, updates `running_mean` and `running_var` [C] in place, if given:
/// `running = (1 - momentum)*running + momentum*batch`, with the unbiased variance. In evaluation,
/// normalizes by them. `unbiased` normalizes by the unbiased variance in training.
at::Tensor batch_norm(const at::Tensor& x, const std::optional<at::Tensor>& weight,
                      const std::optional<at::Tensor>& bias,
                      const std::optional<at::Tensor>& running_mean,
                      const std::optional<at::Tensor>& running_var, bool training,
                      double momentum = 0.1, double eps = 1e-5, bool unbiased = false);

/// Returns (y, new_state): online layer normalization of the cases x [..., D], D >= 2, in order
/// (planish/online_norm.h has the equations).
///
/// `state` [2], double, is the mean and the deviation after the previous case, initially 0 and 1.
/// No gradient passes through it. `alpha` is the weight of a new case, 0 < alpha <= 1. `schedule`
/// "inverse" or "warmup" makes the weight of case t 1/t or max(alpha, 1/t) (planish::AlphaRule).
/// `state` then has a third element, the number of earlier cases.
std::tuple<at::Tensor, at::Tensor> online_layer_norm(
    const at::Tensor& x, const at::Tensor& state,
    const std::optional<at::Tensor>& weight = std::nullopt,
    const std::optional<at::Tensor>& bias = std::nullopt, double alpha = 0.1,
    std::string_view schedule = "constant");

/// Returns the weights [count] of the cases that follow the first `seen` cases: FillAlphas
/// (planish/online_norm.h) on any device. `seen` is a scalar tensor, double; so is the result.
at::Tensor online_alphas(const at::Tensor& seen, int64_t count, double alpha,
                         std::string_view schedule);

/// Returns group normalization of x [N, C, ...] (Wu & He 2018), like
/// torch.nn.functional.group_norm: each of `num_groups` groups of adjacent channels of a sample is
/// normalized by its own statistics. `num_groups` divides C. `weight` and `bias`, both optional,
/// are [C]. y is channels-last if x is.
at::Tensor group_norm(const at::Tensor& x, int64_t num_groups,
                      const std::optional<at::Tensor>& weight = std::nullopt,
                      const std::optional<at::Tensor>& bias = std::nullopt, double eps = 1e-5);

/// Returns instance normalization of x [N, C, ...] (Ulyanov et al. 2016), like
/// torch.nn.functional.instance_norm: each channel of a sample, of at least 2 spatial elements, is
/// normalized by its own statistics, or without `use_input_stats` by the running estimates [C].
/// Running estimates that are given are updated by the statistics' means over the samples.
at::Tensor instance_norm(const at::Tensor& x,
                         const std::optional<at::Tensor>& weight = std::nullopt,
                         const std::optional<at::Tensor>& bias = std::nullopt,
                         const std::optional<at::Tensor>& running_mean = std::nullopt,
                         const std::optional<at::Tensor>& running_var = std::nullopt,
                         bool use_input_stats = true, double momentum = 0.1, double eps = 1e-5);

/// Returns DyT, `y = weight*tanh(alpha*x) + bias`, which replaces a norm (Zhu et al. 2025,
/// "Transformers without Normalization"). `alpha` has one element. `weight` and `bias`, both
/// optional, have shape `normalized_shape`, the last dimensions of x.
at::Tensor dyt(const at::Tensor& x, at::IntArrayRef normalized_shape, const at::Tensor& alpha,
               const std::optional<at::Tensor>& weight = std::nullopt,
               const std::optional<at::Tensor>& bias = std::nullopt);

/// Returns Derf, `y = weight*erf(alpha*x + shift) + bias` (Chen et al. 2025, "Stronger
/// Normalization-Free Transformers"). `alpha` and `shift` have one element. See dyt.
at::Tensor derf(const at::Tensor& x, at::IntArrayRef normalized_shape, const at::Tensor& alpha,
                const std::optional<at::Tensor>& shift = std::nullopt,
                const std::optional<at::Tensor>& weight = std::nullopt,
                const std::optional<at::Tensor>& bias = std::nullopt);

/// Returns `w = g*v/||v||` (Salimans & Kingma 2016). There is one norm for each index of dimension
/// `dim` of v, or one for all of v if `dim` is -1, as in PyTorch. `g` has one element for each
/// norm. If a norm is zero, the result is NaN.
at::Tensor weight_norm(const at::Tensor& v, const at::Tensor& g, int64_t dim = 0);

}  // namespace PLANISH_API

namespace nn {
inline namespace PLANISH_API {

// Constructors of modules throw c10::ValueError if an option is out of range. forward() throws as
// the function of the same name does. Several threads can call forward() of a module at once,
// except in training if the call updates running estimates or a state.

/// Options of RowNorm.
struct RowNormOptions {
  RowNormOptions(std::vector<int64_t> normalized_shape, std::string norm)
      : normalized_shape_(std::move(normalized_shape)), norm_(std::move(norm)) {}
  TORCH_ARG(std::vector<int64_t>, normalized_shape);  ///< one or more sizes
  TORCH_ARG(std::string, norm);                       ///< a name of planish::row_norm_names()
  TORCH_ARG(double, eps) = 1e-5;                      ///< at least 0
  TORCH_ARG(double, C) = 1;                           ///< AdaNorm's C
  TORCH_ARG(double, k) = 0.1;                         ///< AdaNorm's k
  /// false: no weight and no bias. Norms without gain and bias have none.
  TORCH_ARG(bool, elementwise_affine) = true;
  /// Empty: norms that subtract the mean have a bias, as in torch.nn.
  TORCH_ARG(std::optional<bool>, bias) = std::nullopt;
};

/// Options of LayerNorm: those of torch::nn::LayerNorm, and `bias` as in Python.
struct LayerNormOptions {
  // NOLINTNEXTLINE(google-explicit-constructor): LayerNorm(shape), as in PyTorch
  LayerNormOptions(std::vector<int64_t> normalized_shape)
      : normalized_shape_(std::move(normalized_shape)) {}
  TORCH_ARG(std::vector<int64_t>, normalized_shape);  ///< one or more sizes
  TORCH_ARG(double, eps) = 1e-5;                      ///< at least 0
  /// false: no weight and no bias (LayerNorm-simple; Xu et al. 2019, 3.1).
  TORCH_ARG(bool, elementwise_affine) = true;
  TORCH_ARG(bool, bias) = true;  ///< false: only a weight
  /// Added to the weight, as in RMSNormOptions.
  TORCH_ARG(double, weight_offset) = 0;
  TORCH_ARG(int64_t, groups) = 1;               ///< as in RMSNormOptions
  TORCH_ARG(bool, norm_before_gate) = true;     ///< as in RMSNormOptions
  TORCH_ARG(bool, cast_before_weight) = false;  ///< as in RMSNormOptions
};

/// Options of RMSNorm, as in Python's torch.nn.RMSNorm.
struct RMSNormOptions {
  // NOLINTNEXTLINE(google-explicit-constructor)
  RMSNormOptions(std::vector<int64_t> normalized_shape)
      : normalized_shape_(std::move(normalized_shape)) {}
  TORCH_ARG(std::vector<int64_t>, normalized_shape);
  /// Empty: the machine epsilon of the type of the arithmetic.
  TORCH_ARG(std::optional<double>, eps) = std::nullopt;
  TORCH_ARG(bool, elementwise_affine) = true;  ///< false: no weight
  /// Offset added to the weight, in float, or in double for double tensors. The weight is
  /// initialized to 1 - weight_offset. Gemma, Qwen3-Next and Transformer Engine's
  /// zero_centered_gamma have an offset of 1.
  TORCH_ARG(double, weight_offset) = 0;
  /// Number of groups into which a row is divided; each is normalized separately, as in Mamba-2 and
  /// in the heads of xLSTM and RWKV. With several groups, normalized_shape must be one size.
  TORCH_ARG(int64_t, groups) = 1;
  /// Whether the gate of forward(x, gate) multiplies the output (Qwen3-Next) or x (Mamba-2).
  TORCH_ARG(bool, norm_before_gate) = true;
  /// Rounds the normalized x to x's type before the product with the weight, as in Llama and T5.
  TORCH_ARG(bool, cast_before_weight) = false;
};

/// Options of LayerNormSimple.
struct LayerNormSimpleOptions {
  // NOLINTNEXTLINE(google-explicit-constructor)
  LayerNormSimpleOptions(std::vector<int64_t> normalized_shape)
      : normalized_shape_(std::move(normalized_shape)) {}
  TORCH_ARG(std::vector<int64_t>, normalized_shape);
  TORCH_ARG(double, eps) = 1e-5;
};

/// Options of DetachNorm: which statistics are constants in backward.
struct DetachNormOptions {
  // NOLINTNEXTLINE(google-explicit-constructor)
  DetachNormOptions(std::vector<int64_t> normalized_shape)
      : normalized_shape_(std::move(normalized_shape)) {}
  TORCH_ARG(std::vector<int64_t>, normalized_shape);
  TORCH_ARG(bool, mean) = true;
  TORCH_ARG(bool, std) = true;  ///< the standard deviation
  TORCH_ARG(double, eps) = 1e-5;
};

/// Options of AdaNorm. The paper sets k = 1/10 and tunes C.
struct AdaNormOptions {
  // NOLINTNEXTLINE(google-explicit-constructor)
  AdaNormOptions(std::vector<int64_t> normalized_shape)
      : normalized_shape_(std::move(normalized_shape)) {}
  TORCH_ARG(std::vector<int64_t>, normalized_shape);  ///< at least 2 elements with as_coded
  TORCH_ARG(double, C) = 1;
  TORCH_ARG(double, k) = 0.1;
  TORCH_ARG(bool, as_coded) = false;  ///< xhat as in the authors' code; see planish::ada_norm
  TORCH_ARG(double, eps) = 1e-5;
};

/// Options of DyT and Derf.
struct PointwiseNormOptions {
  // NOLINTNEXTLINE(google-explicit-constructor)
  PointwiseNormOptions(std::vector<int64_t> normalized_shape)
      : normalized_shape_(std::move(normalized_shape)) {}
  TORCH_ARG(std::vector<int64_t>, normalized_shape);  ///< one or more sizes
  TORCH_ARG(double, alpha_init) = 0.5;                ///< initial value of alpha; finite
  TORCH_ARG(bool, elementwise_affine) = true;         ///< false: no weight and no bias
  TORCH_ARG(bool, bias) = true;                       ///< false: only a weight
};
using DyTOptions = PointwiseNormOptions;
using DerfOptions = PointwiseNormOptions;

/// Options of OnlineLayerNorm.
struct OnlineLayerNormOptions {
  // NOLINTNEXTLINE(google-explicit-constructor)
  OnlineLayerNormOptions(int64_t num_features) : num_features_(num_features) {}
  TORCH_ARG(int64_t, num_features);  ///< at least 2
  TORCH_ARG(double, alpha) = 0.1;    ///< above 0, at most 1; can be set between calls
  TORCH_ARG(bool, affine) = true;    ///< false: no weight and no bias
  /// "constant"; "inverse", alpha_t = 1/t; or "warmup", alpha_t = max(alpha, 1/t).
  TORCH_ARG(std::string, schedule) = "constant";
};

/// Options of LayerNorm1d and LayerNorm2d.
struct ChannelLayerNormOptions {
  // NOLINTNEXTLINE(google-explicit-constructor)
  ChannelLayerNormOptions(int64_t num_channels) : num_channels_(num_channels) {}
  TORCH_ARG(int64_t, num_channels);
  TORCH_ARG(double, eps) = 1e-5;
  TORCH_ARG(bool, affine) = true;  ///< false: no weight and no bias
  TORCH_ARG(bool, bias) = true;    ///< false: only a weight
};
using LayerNorm1dOptions = ChannelLayerNormOptions;
using LayerNorm2dOptions = ChannelLayerNormOptions;

/// Options of GroupNorm: those of torch::nn::GroupNorm, and `bias`.
struct GroupNormOptions {
  GroupNormOptions(int64_t num_groups, int64_t num_channels)
      : num_groups_(num_groups), num_channels_(num_channels) {}
  TORCH_ARG(int64_t, num_groups);    ///< at least 1; divides num_channels
  TORCH_ARG(int64_t, num_channels);  ///< at least 0
  TORCH_ARG(double, eps) = 1e-5;
  TORCH_ARG(bool, affine) = true;  ///< false: no weight and no bias
  TORCH_ARG(bool, bias) = true;    ///< false: only a weight
};

/// Options of InstanceNorm1d, 2d and 3d: those of torch::nn::InstanceNorm, and `bias`.
struct InstanceNormOptions {
  // NOLINTNEXTLINE(google-explicit-constructor)
  InstanceNormOptions(int64_t num_features) : num_features_(num_features) {}
  TORCH_ARG(int64_t, num_features);
  TORCH_ARG(double, eps) = 1e-5;
  TORCH_ARG(double, momentum) = 0.1;  ///< from 0 to 1
  TORCH_ARG(bool, affine) = false;    ///< false: no weight and no bias
  TORCH_ARG(bool, bias) = true;       ///< false: only a weight
  /// true: evaluation uses running estimates, which training updates.
  TORCH_ARG(bool, track_running_stats) = false;
};
using InstanceNorm1dOptions = InstanceNormOptions;
using InstanceNorm2dOptions = InstanceNormOptions;
using InstanceNorm3dOptions = InstanceNormOptions;

/// Options of BatchNorm1d and BatchNorm2d: those of torch::nn::BatchNorm, `bias` and `unbiased`.
struct BatchNormOptions {
  // NOLINTNEXTLINE(google-explicit-constructor)
  BatchNormOptions(int64_t num_features) : num_features_(num_features) {}
  TORCH_ARG(int64_t, num_features);
  TORCH_ARG(double, eps) = 1e-5;
  /// From 0 to 1. Empty: the running estimates are averages over all batches.
  TORCH_ARG(std::optional<double>, momentum) = 0.1;
  TORCH_ARG(bool, affine) = true;  ///< false: no weight and no bias
  TORCH_ARG(bool, bias) = true;    ///< false: only a weight
  TORCH_ARG(bool,
            track_running_stats) = true;  ///< false: evaluation uses the batch, as training does
  /// Normalizes by the unbiased variance in training (Ba et al. 2016, 6.6, with batches of 4).
  /// running_var is the unbiased variance in either case.
  TORCH_ARG(bool, unbiased) = false;
};
using BatchNorm1dOptions = BatchNormOptions;
using BatchNorm2dOptions = BatchNormOptions;

/// Options of RecurrentBatchNorm.
struct RecurrentBatchNormOptions {
  RecurrentBatchNormOptions(int64_t num_features, int64_t max_length)
      : num_features_(num_features), max_length_(max_length) {}
  TORCH_ARG(int64_t, num_features);  ///< at least 1
  TORCH_ARG(int64_t, max_length);    ///< at least 1: time steps that have running estimates
  TORCH_ARG(double, eps) = 1e-5;
  TORCH_ARG(double, momentum) = 0.1;        ///< from 0 to 1
  TORCH_ARG(bool, affine) = true;           ///< false: no weight and no bias
  TORCH_ARG(bool, bias) = true;             ///< false: only a weight
  TORCH_ARG(double, initial_weight) = 0.1;  ///< with 1, gradients vanish (Cooijmans et al. 2016, 4)
  TORCH_ARG(bool, unbiased) = false;        ///< as in BatchNormOptions
};

/// Options of WeightNormLinear: those of torch::nn::Linear, and `dim`.
struct WeightNormLinearOptions {
  WeightNormLinearOptions(int64_t in_features, int64_t out_features)
      : in_features_(in_features), out_features_(out_features) {}
  TORCH_ARG(int64_t, in_features);   ///< at least 1
  TORCH_ARG(int64_t, out_features);  ///< at least 1
  TORCH_ARG(bool, bias) = true;
  TORCH_ARG(int64_t, dim) = 0;  ///< 0: one norm for each unit; 1: for each input; -1: one for all
};

namespace detail {

/// Base of the norm modules: holds the options, checks them in the constructor, prints them.
template <class Derived, class Options>
class NormImpl : public torch::nn::Cloneable<Derived> {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): as in PyTorch's modules
  NormImpl(Options options_);

  void reset() override {}
  void pretty_print(std::ostream& stream) const override;
  /// Casts the module. Counts, and the state of OnlineLayerNorm, keep their type and bits.
  void to(torch::Dtype type, bool non_blocking = false) override;
  void to(torch::Device device, torch::Dtype type, bool non_blocking = false) override;
  using torch::nn::Module::to;

  Options options;
};

/// Base of the norms that can have a weight, or a weight and a bias.
template <class Derived, class Options>
class AffineNormImpl : public NormImpl<Derived, Options> {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor)
  AffineNormImpl(Options options_);

  void reset() override;
  void reset_parameters();

  at::Tensor weight;  ///< initially 1, or initial_weight; undefined if there is none
  at::Tensor bias;    ///< initially 0; undefined if there is none
};

/// Base of the norms that keep running estimates of mean and variance for evaluation.
template <class Derived, class Options>
class RunningNormImpl : public AffineNormImpl<Derived, Options> {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor)
  RunningNormImpl(Options options_);

  void reset() override;
  /// Sets the mean to 0, the variance to 1 and the count of batches to 0.
  void reset_running_stats();
  void reset_parameters();

  // Undefined without track_running_stats.
  at::Tensor running_mean;
  at::Tensor running_var;          ///< unbiased
  at::Tensor num_batches_tracked;  ///< int64

 private:
  void RegisterEstimates();
};

}  // namespace detail

/// The norm of planish::Norm with the name `norm` (planish::row_norm). Keys: `weight` and `bias`
/// [normalized_shape], if the norm has them.
class RowNormImpl : public detail::AffineNormImpl<RowNormImpl, RowNormOptions> {
 public:
  static constexpr const char* kName = "RowNorm";
  using AffineNormImpl::AffineNormImpl;
  RowNormImpl(std::vector<int64_t> normalized_shape, std::string norm)
      : RowNormImpl(RowNormOptions(std::move(normalized_shape), std::move(norm))) {}

  /// Returns a tensor of the shape of x [..., normalized_shape].
  at::Tensor forward(const at::Tensor& x);
};
TORCH_MODULE(RowNorm);

/// torch::nn::LayerNorm on Planish's kernels: the same options, parameters and state-dict keys
/// (`weight`, `bias`), so checkpoints load both ways.
///
///   y = weight*(x - mean)/sqrt(var + eps) + bias
///
/// over the last dimensions of x, with the biased variance (Ba, Kiros & Hinton 2016, Eq. 3).
class LayerNormImpl : public detail::AffineNormImpl<LayerNormImpl, LayerNormOptions> {
 public:
  static constexpr const char* kName = "LayerNorm";  ///< the name in messages and when printed
  using AffineNormImpl::AffineNormImpl;

  /// Returns a tensor of the shape of x [..., normalized_shape]. With a gate of x's sizes and type
  /// also multiplies by silu(gate); see gated_layer_norm.
  at::Tensor forward(const at::Tensor& x, const std::optional<at::Tensor>& gate = std::nullopt);

  /// Returns forward(x, gate) quantized to int8, and the scale of each row; see
  /// quantized_layer_norm. With groups, the scales are [..., groups].
  std::tuple<at::Tensor, at::Tensor> quantized(
      const at::Tensor& x, const std::optional<at::Tensor>& gate = std::nullopt);

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(std::optional<at::Tensor>())})
};
TORCH_MODULE(LayerNorm);

/// The counterpart of Python's torch.nn.RMSNorm, which torch::nn lacks:
/// `y = weight*x/sqrt(mean(x^2) + eps)` (Zhang & Sennrich 2019). Key: `weight` [normalized_shape].
class RMSNormImpl : public detail::AffineNormImpl<RMSNormImpl, RMSNormOptions> {
 public:
  static constexpr const char* kName = "RMSNorm";
  using AffineNormImpl::AffineNormImpl;

  /// Returns a tensor of the shape of x [..., normalized_shape]. With a gate of x's sizes and type
  /// also multiplies by silu(gate); see gated_layer_norm.
  at::Tensor forward(const at::Tensor& x, const std::optional<at::Tensor>& gate = std::nullopt);

  /// Returns forward(x, gate) quantized to int8, and the scale of each row; see
  /// quantized_layer_norm. With groups, the scales are [..., groups].
  std::tuple<at::Tensor, at::Tensor> quantized(
      const at::Tensor& x, const std::optional<at::Tensor>& gate = std::nullopt);

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(std::optional<at::Tensor>())})
};
TORCH_MODULE(RMSNorm);

/// LayerNorm without weight and bias (Xu et al. 2019, 3.1).
class LayerNormSimpleImpl : public detail::NormImpl<LayerNormSimpleImpl, LayerNormSimpleOptions> {
 public:
  static constexpr const char* kName = "LayerNormSimple";
  using NormImpl::NormImpl;

  /// Returns a tensor of the shape of x [..., normalized_shape].
  at::Tensor forward(const at::Tensor& x);
};
TORCH_MODULE(LayerNormSimple);

/// LayerNormSimple whose backward treats statistics as constants; if both are, dx = rstd*dy (Xu et
/// al. 2019, Eq. 4 and Table 3).
class DetachNormImpl : public detail::NormImpl<DetachNormImpl, DetachNormOptions> {
 public:
  static constexpr const char* kName = "DetachNorm";
  using NormImpl::NormImpl;

  /// Returns a tensor of the shape of x [..., normalized_shape].
  at::Tensor forward(const at::Tensor& x);
};
TORCH_MODULE(DetachNorm);

/// `y = C*(1 - k*xhat)*xhat`, where xhat is the output of LayerNormSimple. Backward treats the
/// factor before the last xhat as a constant (Xu et al. 2019, Eq. 9).
class AdaNormImpl : public detail::NormImpl<AdaNormImpl, AdaNormOptions> {
 public:
  static constexpr const char* kName = "AdaNorm";
  using NormImpl::NormImpl;

  /// Returns a tensor of the shape of x [..., normalized_shape].
  at::Tensor forward(const at::Tensor& x);
};
TORCH_MODULE(AdaNorm);

/// `y = weight*tanh(alpha*x) + bias`, a learnable function in place of a norm (Zhu et al. 2025,
/// "Transformers without Normalization", Algorithm 1). Keys: `alpha` [1]; `weight` and `bias`
/// [normalized_shape], if there are any.
class DyTImpl : public detail::AffineNormImpl<DyTImpl, DyTOptions> {
 public:
  static constexpr const char* kName = "DyT";
  // NOLINTNEXTLINE(google-explicit-constructor)
  DyTImpl(DyTOptions options_);

  void reset() override;
  /// Sets alpha = alpha_init, weight 1 and bias 0.
  void reset_parameters();

  /// Returns a tensor of the shape of x [..., normalized_shape].
  at::Tensor forward(const at::Tensor& x);

  at::Tensor alpha;

 private:
  void RegisterScalars();
};
TORCH_MODULE(DyT);

/// `y = weight*erf(alpha*x + shift) + bias` (Chen et al. 2025, "Stronger Normalization-Free
/// Transformers"). Keys: those of DyT and `shift` [1], initially 0.
class DerfImpl : public detail::AffineNormImpl<DerfImpl, DerfOptions> {
 public:
  static constexpr const char* kName = "Derf";
  // NOLINTNEXTLINE(google-explicit-constructor)
  DerfImpl(DerfOptions options_);

  void reset() override;
  /// Sets alpha = alpha_init, shift 0, weight 1 and bias 0.
  void reset_parameters();

  /// Returns a tensor of the shape of x [..., normalized_shape].
  at::Tensor forward(const at::Tensor& x);

  at::Tensor alpha, shift;

 private:
  void RegisterScalars();
};
TORCH_MODULE(Derf);

/// Online layer normalization (T. Breloff, "Online Layer Normalization", 2016). The module keeps a
/// running mean mu and deviation sigma, initially 0 and 1. Each case x [num_features] first updates
/// both and is then normalized by them:
///
///   mu_t    = alpha*mean(x) + (1 - alpha)*mu
///   s       = sqrt(sum((x - mu_t)^2)/(num_features - 1))
///   sigma_t = alpha*s + (1 - alpha)*sigma
///   y       = weight*(x - mu_t)/sigma_t + bias
///
/// No gradient passes to the state before a case. In training, the rows of x are cases in order,
/// starting from the state after the last call, and the state is updated. In evaluation, the state
/// stays as it is, and each row is normalized as if it were the next case.
///
/// With the schedule "inverse" or "warmup", alpha of case t = 1, 2, ... is 1/t or max(alpha, 1/t).
///
/// Keys: `weight` and `bias` [num_features], if affine; `state` [2], mu and sigma, or [3] with a
/// schedule, which counts the cases. It stays double if the module is cast. Not safe for several
/// threads in training.
class OnlineLayerNormImpl
    : public detail::AffineNormImpl<OnlineLayerNormImpl, OnlineLayerNormOptions> {
 public:
  static constexpr const char* kName = "OnlineLayerNorm";
  // NOLINTNEXTLINE(google-explicit-constructor)
  OnlineLayerNormImpl(OnlineLayerNormOptions options_);

  void reset() override;
  /// Sets mu = 0, sigma = 1, and the number of cases to 0.
  void reset_state();
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;

  /// Returns a tensor of the shape of x [..., num_features]. `advance` says whether to update the
  /// state; by default it is updated in training only.
  at::Tensor forward(const at::Tensor& x, std::optional<bool> advance = std::nullopt);

  double mu() const { return state[0].item<double>(); }     ///< the mean before the next case
  double sigma() const { return state[1].item<double>(); }  ///< the deviation before the next case

  at::Tensor state;

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(std::optional<bool>())})

 private:
  void RegisterState();
};
TORCH_MODULE(OnlineLayerNorm);

/// LayerNorm over the channels of x [N, C] or [N, C, L], separately at each position:
/// LayerNorm({C}) of x [N, L, C], without a permuted copy. Keys: `weight` and `bias` [C].
class LayerNorm1dImpl : public detail::AffineNormImpl<LayerNorm1dImpl, LayerNorm1dOptions> {
 public:
  static constexpr const char* kName = "LayerNorm1d";
  using AffineNormImpl::AffineNormImpl;

  /// Returns a tensor of the shape of x, [N, C] or [N, C, L].
  at::Tensor forward(const at::Tensor& x);
};
TORCH_MODULE(LayerNorm1d);

/// LayerNorm over the channels of x [N, C, H, W], separately at each position. See LayerNorm1d.
class LayerNorm2dImpl : public detail::AffineNormImpl<LayerNorm2dImpl, LayerNorm2dOptions> {
 public:
  static constexpr const char* kName = "LayerNorm2d";
  using AffineNormImpl::AffineNormImpl;

  /// Returns a tensor of the shape and memory format of x [N, C, H, W].
  at::Tensor forward(const at::Tensor& x);
};
TORCH_MODULE(LayerNorm2d);

/// torch::nn::BatchNorm1d on Planish's kernels: the same options, parameters, buffers and
/// state-dict keys, and the option `unbiased` (Ioffe & Szegedy 2015; Ba et al. 2016, Eq. 2).
class BatchNorm1dImpl : public detail::RunningNormImpl<BatchNorm1dImpl, BatchNorm1dOptions> {
 public:
  static constexpr const char* kName = "BatchNorm1d";
  using RunningNormImpl::RunningNormImpl;

  /// Returns a tensor of the shape of x, [N, C] or [N, C, L]. In training, a channel must have at
  /// least 2 elements.
  at::Tensor forward(const at::Tensor& x);
};
TORCH_MODULE(BatchNorm1d);

/// torch::nn::BatchNorm2d on Planish's kernels. See BatchNorm1d.
class BatchNorm2dImpl : public detail::RunningNormImpl<BatchNorm2dImpl, BatchNorm2dOptions> {
 public:
  static constexpr const char* kName = "BatchNorm2d";
  using RunningNormImpl::RunningNormImpl;

  /// Returns a tensor of the shape and memory format of x [N, C, H, W].
  at::Tensor forward(const at::Tensor& x);
};
TORCH_MODULE(BatchNorm2d);

/// torch::nn::GroupNorm on Planish's kernels (Wu & He 2018): the same options, parameters and keys
/// (`weight` and `bias` [num_channels]).
class GroupNormImpl : public detail::AffineNormImpl<GroupNormImpl, GroupNormOptions> {
 public:
  static constexpr const char* kName = "GroupNorm";
  using AffineNormImpl::AffineNormImpl;
  GroupNormImpl(int64_t num_groups, int64_t num_channels)
      : GroupNormImpl(GroupNormOptions(num_groups, num_channels)) {}

  /// Returns a tensor of the shape and memory format of x [N, num_channels, ...].
  at::Tensor forward(const at::Tensor& x);
};
TORCH_MODULE(GroupNorm);

/// torch::nn::InstanceNorm1d on Planish's kernels (Ulyanov et al. 2016): the same options,
/// parameters, buffers and keys. In training, and without running estimates, x must have at least 2
/// spatial elements. Not safe for several threads in training with running estimates.
class InstanceNorm1dImpl
    : public detail::RunningNormImpl<InstanceNorm1dImpl, InstanceNorm1dOptions> {
 public:
  static constexpr const char* kName = "InstanceNorm1d";
  using RunningNormImpl::RunningNormImpl;

  /// Returns a tensor of the shape of x [N, C, L] or [C, L].
  at::Tensor forward(const at::Tensor& x);
};
TORCH_MODULE(InstanceNorm1d);

/// torch::nn::InstanceNorm2d on Planish's kernels. See InstanceNorm1d.
class InstanceNorm2dImpl
    : public detail::RunningNormImpl<InstanceNorm2dImpl, InstanceNorm2dOptions> {
 public:
  static constexpr const char* kName = "InstanceNorm2d";
  using RunningNormImpl::RunningNormImpl;

  /// Returns a tensor of the shape of x [N, C, H, W] or [C, H, W].
  at::Tensor forward(const at::Tensor& x);
};
TORCH_MODULE(InstanceNorm2d);

/// torch::nn::InstanceNorm3d on Planish's kernels. See InstanceNorm1d.
class InstanceNorm3dImpl
    : public detail::RunningNormImpl<InstanceNorm3dImpl, InstanceNorm3dOptions> {
 public:
  static constexpr const char* kName = "InstanceNorm3d";
  using RunningNormImpl::RunningNormImpl;

  /// Returns a tensor of the shape of x [N, C, D, H, W] or [C, D, H, W].
  at::Tensor forward(const at::Tensor& x);
};
TORCH_MODULE(InstanceNorm3d);

/// Batch normalization for recurrent layers (Cooijmans et al. 2016), with separate statistics for
/// each time step. Weight and bias are shared by all steps.
///
/// In training, a step is normalized over the sequences of the batch, and the running estimates of
/// that step are updated as in BatchNorm. Steps from max_length on are normalized, but have no
/// estimates. In evaluation, step t uses the estimates of step t. Steps past the longest sequence
/// seen in training use the estimates of that sequence's last step (section 3).
///
/// All sequences of a batch count at every step, padding included.
///
/// Keys: `weight` and `bias` [C]; `running_mean` and `running_var` [max_length, C];
/// `num_batches_tracked` [max_length].
class RecurrentBatchNormImpl
    : public detail::RunningNormImpl<RecurrentBatchNormImpl, RecurrentBatchNormOptions> {
 public:
  static constexpr const char* kName = "RecurrentBatchNorm";
  using RunningNormImpl::RunningNormImpl;
  RecurrentBatchNormImpl(int64_t num_features, int64_t max_length)
      : RecurrentBatchNormImpl(RecurrentBatchNormOptions(num_features, max_length)) {}

  /// Returns a tensor of the shape of x: [T, B, C], steps `step` to `step + T - 1` of B sequences,
  /// or [B, C], the single step `step`. In training, B must be at least 2.
  at::Tensor forward(const at::Tensor& x, int64_t step = 0);

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(int64_t{0})})

 private:
  at::Tensor Steps(const at::Tensor& x, int64_t first);
  at::Tensor Normalize(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& var);
};
TORCH_MODULE(RecurrentBatchNorm);

/// A weight-normalized weight, `w = g*v/||v||` (Salimans & Kingma 2016; Ba et al. 2016, Eq. 5).
/// There is one norm for each index of dimension `dim`, or one norm for all of v if `dim` is -1.
/// The parameters are g and v; forward() returns w:
///
///   at::linear(x, weight_norm->forward(), bias)
///
/// Keys, as in Python's parametrization: `original0` is g, with the size of v in `dim` and 1 in the
/// other dimensions; `original1` is v.
class WeightNormImpl : public torch::nn::Cloneable<WeightNormImpl> {
 public:
  static constexpr const char* kName = "WeightNorm";
  /// Sets g = ||w|| and v = w, so that forward() returns w.
  explicit WeightNormImpl(const at::Tensor& w, int64_t dim = 0);

  void reset() override;
  void pretty_print(std::ostream& stream) const override;

  at::Tensor forward();

  int64_t dim;
  at::Tensor g, v;
};
TORCH_MODULE(WeightNorm);

/// torch::nn::Linear with a weight-normalized weight, initialized like torch::nn::Linear.
///
/// Keys are those of Python's torch.nn.utils.parametrizations.weight_norm of a Linear:
/// `parametrizations.weight.original0`, `parametrizations.weight.original1`, `bias`.
class WeightNormLinearImpl
    : public detail::NormImpl<WeightNormLinearImpl, WeightNormLinearOptions> {
 public:
  static constexpr const char* kName = "WeightNormLinear";
  explicit WeightNormLinearImpl(const WeightNormLinearOptions& options_);
  WeightNormLinearImpl(int64_t in_features, int64_t out_features)
      : WeightNormLinearImpl(WeightNormLinearOptions(in_features, out_features)) {}

  void reset() override;

  /// Returns [..., out_features] for x [..., in_features].
  at::Tensor forward(const at::Tensor& x);

  torch::nn::ModuleDict parametrizations{nullptr};  ///< a WeightNorm, under `weight`
  at::Tensor bias;                                  ///< [out_features]; undefined if there is none
};
TORCH_MODULE(WeightNormLinear);

}  // namespace PLANISH_API
}  // namespace nn
}  // namespace planish

#endif  // PLANISH_TORCH_NORM_H_
