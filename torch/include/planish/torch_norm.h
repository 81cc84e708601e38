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
#include <tuple>
#include <utility>
#include <vector>

// Normalisation as functions and torch::nn modules.
namespace planish {

// All functions take float, double, bfloat16 and float16 on the CPU or a GPU, contiguous or not,
// and return x's type; weight and bias can have another of these types. Parameters that are neither
// of x's type nor float are converted at each call. Arithmetic and statistics are in float, for
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

// Modules throw c10::ValueError when an option is out of range. What they are called with is
// checked as planish's functions check it.

/// Options of LayerNorm: torch::nn::LayerNormOptions, and `bias` as Python's has it.
struct LayerNormOptions {
  // NOLINTNEXTLINE(google-explicit-constructor): LayerNorm(shape), as in PyTorch
  LayerNormOptions(std::vector<int64_t> normalized_shape)
      : normalized_shape_(std::move(normalized_shape)) {}
  TORCH_ARG(std::vector<int64_t>, normalized_shape);  ///< one or more sizes
  TORCH_ARG(double, eps) = 1e-5;                      ///< at least 0
  /// false: no weight and no bias (LayerNorm-simple, Xu et al. 2019, 3.1).
  TORCH_ARG(bool, elementwise_affine) = true;
  TORCH_ARG(bool, bias) = true;  ///< false: a weight alone
};

/// Options of RMSNorm, as torch.nn.RMSNorm has them.
struct RMSNormOptions {
  // NOLINTNEXTLINE(google-explicit-constructor)
  RMSNormOptions(std::vector<int64_t> normalized_shape)
      : normalized_shape_(std::move(normalized_shape)) {}
  TORCH_ARG(std::vector<int64_t>, normalized_shape);
  /// Without: the distance from 1 to the next number of the type that is computed in.
  TORCH_ARG(std::optional<double>, eps) = std::nullopt;
  TORCH_ARG(bool, elementwise_affine) = true;  ///< false: no weight
};

/// Options of LayerNormSimple.
struct LayerNormSimpleOptions {
  // NOLINTNEXTLINE(google-explicit-constructor)
  LayerNormSimpleOptions(std::vector<int64_t> normalized_shape)
      : normalized_shape_(std::move(normalized_shape)) {}
  TORCH_ARG(std::vector<int64_t>, normalized_shape);
  TORCH_ARG(double, eps) = 1e-5;
};

/// Options of DetachNorm: which moments are constants in backward.
struct DetachNormOptions {
  // NOLINTNEXTLINE(google-explicit-constructor)
  DetachNormOptions(std::vector<int64_t> normalized_shape)
      : normalized_shape_(std::move(normalized_shape)) {}
  TORCH_ARG(std::vector<int64_t>, normalized_shape);
  TORCH_ARG(bool, mean) = true;
  TORCH_ARG(bool, std) = true;  ///< the deviation
  TORCH_ARG(double, eps) = 1e-5;
};

/// Options of AdaNorm. The paper has k = 1/10 and tunes C.
struct AdaNormOptions {
  // NOLINTNEXTLINE(google-explicit-constructor)
  AdaNormOptions(std::vector<int64_t> normalized_shape)
      : normalized_shape_(std::move(normalized_shape)) {}
  TORCH_ARG(std::vector<int64_t>, normalized_shape);  ///< at least 2 numbers with as_coded
  TORCH_ARG(double, C) = 1;
  TORCH_ARG(double, k) = 0.1;
  TORCH_ARG(bool, as_coded) = false;  ///< the xhat of the authors' code: planish::ada_norm
  TORCH_ARG(double, eps) = 1e-5;
};

/// Options of OnlineLayerNorm.
struct OnlineLayerNormOptions {
  // NOLINTNEXTLINE(google-explicit-constructor)
  OnlineLayerNormOptions(int64_t num_features) : num_features_(num_features) {}
  TORCH_ARG(int64_t, num_features);  ///< at least 2
  TORCH_ARG(double, alpha) = 0.1;    ///< above 0, at most 1; may be set between calls
  TORCH_ARG(bool, affine) = true;    ///< false: no weight and no bias
};

/// Options of LayerNorm1d and LayerNorm2d.
struct ChannelLayerNormOptions {
  // NOLINTNEXTLINE(google-explicit-constructor)
  ChannelLayerNormOptions(int64_t num_channels) : num_channels_(num_channels) {}
  TORCH_ARG(int64_t, num_channels);
  TORCH_ARG(double, eps) = 1e-5;
  TORCH_ARG(bool, affine) = true;  ///< false: no weight and no bias
  TORCH_ARG(bool, bias) = true;    ///< false: a weight alone
};
using LayerNorm1dOptions = ChannelLayerNormOptions;
using LayerNorm2dOptions = ChannelLayerNormOptions;

/// Options of BatchNorm1d and BatchNorm2d: torch::nn::BatchNormOptions, and `bias` and `unbiased`.
struct BatchNormOptions {
  // NOLINTNEXTLINE(google-explicit-constructor)
  BatchNormOptions(int64_t num_features) : num_features_(num_features) {}
  TORCH_ARG(int64_t, num_features);
  TORCH_ARG(double, eps) = 1e-5;
  /// From 0 to 1. Without: running estimates are averages over all batches.
  TORCH_ARG(std::optional<double>, momentum) = 0.1;
  TORCH_ARG(bool, affine) = true;               ///< false: no weight and no bias
  TORCH_ARG(bool, bias) = true;                 ///< false: a weight alone
  TORCH_ARG(bool, track_running_stats) = true;  ///< false: evaluation is as training
  /// Divides by the root of the unbiased variance in training (Ba et al. 2016, 6.6, for batches of
  /// 4); running_var is the unbiased one in either case.
  TORCH_ARG(bool, unbiased) = false;
};
using BatchNorm1dOptions = BatchNormOptions;
using BatchNorm2dOptions = BatchNormOptions;

/// Options of RecurrentBatchNorm.
struct RecurrentBatchNormOptions {
  RecurrentBatchNormOptions(int64_t num_features, int64_t max_length)
      : num_features_(num_features), max_length_(max_length) {}
  TORCH_ARG(int64_t, num_features);  ///< at least 1
  TORCH_ARG(int64_t, max_length);    ///< at least 1: the steps that have estimates
  TORCH_ARG(double, eps) = 1e-5;
  TORCH_ARG(double, momentum) = 0.1;        ///< from 0 to 1
  TORCH_ARG(bool, affine) = true;           ///< false: no weight and no bias
  TORCH_ARG(bool, bias) = true;             ///< false: a weight alone
  TORCH_ARG(double, initial_weight) = 0.1;  ///< with 1 gradients vanish (Cooijmans et al., 4)
  TORCH_ARG(bool, unbiased) = false;        ///< as BatchNormOptions has it
};

/// Options of WeightNormLinear: torch::nn::LinearOptions, and `dim`.
struct WeightNormLinearOptions {
  WeightNormLinearOptions(int64_t in_features, int64_t out_features)
      : in_features_(in_features), out_features_(out_features) {}
  TORCH_ARG(int64_t, in_features);   ///< at least 1
  TORCH_ARG(int64_t, out_features);  ///< at least 1
  TORCH_ARG(bool, bias) = true;
  TORCH_ARG(int64_t, dim) = 0;  ///< 0: a norm for each unit, 1: for each input, -1: one
};

namespace detail {

/// What the norms share: options, checked when a module is made, and printed.
template <class Derived, class Options>
class NormImpl : public torch::nn::Cloneable<Derived> {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): as PyTorch's modules
  NormImpl(Options options_);

  void reset() override {}
  void pretty_print(std::ostream& stream) const override;
  /// A count and the state of OnlineLayerNorm keep their type and their bits.
  void to(torch::Dtype type, bool non_blocking = false) override;
  void to(torch::Device device, torch::Dtype type, bool non_blocking = false) override;
  using torch::nn::Module::to;

  Options options;
};

/// A norm that may have a weight, or a weight and a bias.
template <class Derived, class Options>
class AffineNormImpl : public NormImpl<Derived, Options> {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor)
  AffineNormImpl(Options options_);

  void reset() override;
  void reset_parameters();

  at::Tensor weight;  ///< starts at 1, or initial_weight; undefined when there is none
  at::Tensor bias;    ///< starts at 0; undefined when there is none
};

/// A norm with running estimates of moments, for evaluation.
template <class Derived, class Options>
class RunningNormImpl : public AffineNormImpl<Derived, Options> {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor)
  RunningNormImpl(Options options_);

  void reset() override;
  /// Estimates of the start: mean 0, variance 1, no batch seen.
  void reset_running_stats();
  void reset_parameters();

  at::Tensor running_mean;         ///< undefined, as the others, without track_running_stats
  at::Tensor running_var;          ///< of the unbiased variance
  at::Tensor num_batches_tracked;  ///< int64

 private:
  void RegisterEstimates();
};

}  // namespace detail

/// torch::nn::LayerNorm on Planish's kernels: the same options, parameters and state-dict keys
/// (`weight`, `bias`), so checkpoints load both ways.
///
///   y = weight*(x - mean)/sqrt(var + eps) + bias
///
/// over the last dimensions of x, var biased (Ba, Kiros & Hinton 2016, Eq. 3).
class LayerNormImpl : public detail::AffineNormImpl<LayerNormImpl, LayerNormOptions> {
 public:
  static constexpr const char* kName = "LayerNorm";  ///< as errors and printing have it
  using AffineNormImpl::AffineNormImpl;

  /// x: [..., normalized_shape] -> the same shape.
  at::Tensor forward(const at::Tensor& x);
};
TORCH_MODULE(LayerNorm);

/// Python's torch.nn.RMSNorm, which torch::nn lacks: y = weight*x/sqrt(mean(x^2) + eps) (Zhang &
/// Sennrich 2019). Key: `weight` [normalized_shape].
class RMSNormImpl : public detail::AffineNormImpl<RMSNormImpl, RMSNormOptions> {
 public:
  static constexpr const char* kName = "RMSNorm";
  using AffineNormImpl::AffineNormImpl;

  /// x: [..., normalized_shape] -> the same shape.
  at::Tensor forward(const at::Tensor& x);
};
TORCH_MODULE(RMSNorm);

/// LayerNorm without weight and bias (Xu et al. 2019, 3.1).
class LayerNormSimpleImpl : public detail::NormImpl<LayerNormSimpleImpl, LayerNormSimpleOptions> {
 public:
  static constexpr const char* kName = "LayerNormSimple";
  using NormImpl::NormImpl;

  /// x: [..., normalized_shape] -> the same shape.
  at::Tensor forward(const at::Tensor& x);
};
TORCH_MODULE(LayerNormSimple);

/// LayerNormSimple forward; backward takes moments for constants, dx = rstd*dy with both (Xu et al.
/// 2019, Eq. 4 and Table 3).
class DetachNormImpl : public detail::NormImpl<DetachNormImpl, DetachNormOptions> {
 public:
  static constexpr const char* kName = "DetachNorm";
  using NormImpl::NormImpl;

  /// x: [..., normalized_shape] -> the same shape.
  at::Tensor forward(const at::Tensor& x);
};
TORCH_MODULE(DetachNorm);

/// y = C*(1 - k*xhat)*xhat, xhat LayerNormSimple's and the factor before it a constant in backward
/// (Xu et al. 2019, Eq. 9).
class AdaNormImpl : public detail::NormImpl<AdaNormImpl, AdaNormOptions> {
 public:
  static constexpr const char* kName = "AdaNorm";
  using NormImpl::NormImpl;

  /// x: [..., normalized_shape] -> the same shape.
  at::Tensor forward(const at::Tensor& x);
};
TORCH_MODULE(AdaNorm);

/// Online LayerNorm (T. Breloff, "Online Layer Normalization", 2016): one mean mu and one deviation
/// sigma, at the start 0 and 1, that a case x [num_features] moves and uses:
///
///   mu_t    = alpha*mean(x) + (1 - alpha)*mu
///   s       = sqrt(sum((x - mu_t)^2)/(num_features - 1))
///   sigma_t = alpha*s + (1 - alpha)*sigma
///   y       = weight*(x - mu_t)/sigma_t + bias
///
/// Gradients do not pass to the state that a case found. Training: the rows of x are cases in
/// order, the first finds the state that the last call left, and the state moves on. Evaluation:
/// the state stays, and every row is taken as the one case that follows it.
///
/// Keys: `weight` and `bias` [num_features], of affine; `state` [2], mu and sigma, double whatever
/// the module is cast to.
class OnlineLayerNormImpl
    : public detail::AffineNormImpl<OnlineLayerNormImpl, OnlineLayerNormOptions> {
 public:
  static constexpr const char* kName = "OnlineLayerNorm";
  // NOLINTNEXTLINE(google-explicit-constructor)
  OnlineLayerNormImpl(OnlineLayerNormOptions options_);

  void reset() override;
  /// Back to mu = 0, sigma = 1.
  void reset_state();
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;

  /// x: [..., num_features] -> the same shape. advance: whether the state moves on; without: in
  /// training.
  at::Tensor forward(const at::Tensor& x, std::optional<bool> advance = std::nullopt);

  double mu() const { return state[0].item<double>(); }     ///< the mean that the next case finds
  double sigma() const { return state[1].item<double>(); }  ///< the deviation that it finds

  at::Tensor state;

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(std::optional<bool>())})

 private:
  void RegisterState();
};
TORCH_MODULE(OnlineLayerNorm);

/// LayerNorm over the channels of x [N, C] or [N, C, L], at each position for itself: what
/// LayerNorm({C}) does of x [N, L, C], without permuting. Keys: `weight` and `bias` [C].
class LayerNorm1dImpl : public detail::AffineNormImpl<LayerNorm1dImpl, LayerNorm1dOptions> {
 public:
  static constexpr const char* kName = "LayerNorm1d";
  using AffineNormImpl::AffineNormImpl;

  /// x: [N, C] or [N, C, L] -> the same shape.
  at::Tensor forward(const at::Tensor& x);
};
TORCH_MODULE(LayerNorm1d);

/// LayerNorm over the channels of x [N, C, H, W], at each position for itself. See LayerNorm1d.
class LayerNorm2dImpl : public detail::AffineNormImpl<LayerNorm2dImpl, LayerNorm2dOptions> {
 public:
  static constexpr const char* kName = "LayerNorm2d";
  using AffineNormImpl::AffineNormImpl;

  /// x: [N, C, H, W] -> the same shape and memory format.
  at::Tensor forward(const at::Tensor& x);
};
TORCH_MODULE(LayerNorm2d);

/// torch::nn::BatchNorm1d on Planish's kernels: the same options, parameters, buffers and
/// state-dict keys, and the option `unbiased` (Ioffe & Szegedy 2015; Ba et al. 2016, Eq. 2).
class BatchNorm1dImpl : public detail::RunningNormImpl<BatchNorm1dImpl, BatchNorm1dOptions> {
 public:
  static constexpr const char* kName = "BatchNorm1d";
  using RunningNormImpl::RunningNormImpl;

  /// x: [N, C] or [N, C, L] -> the same shape. In training at least 2 numbers a channel.
  at::Tensor forward(const at::Tensor& x);
};
TORCH_MODULE(BatchNorm1d);

/// torch::nn::BatchNorm2d on Planish's kernels. See BatchNorm1d.
class BatchNorm2dImpl : public detail::RunningNormImpl<BatchNorm2dImpl, BatchNorm2dOptions> {
 public:
  static constexpr const char* kName = "BatchNorm2d";
  using RunningNormImpl::RunningNormImpl;

  /// x: [N, C, H, W] -> the same shape and memory format.
  at::Tensor forward(const at::Tensor& x);
};
TORCH_MODULE(BatchNorm2d);

/// BatchNorm for recurrent layers (Cooijmans et al. 2016): every time step has its own moments.
///
/// In training a step is normalised over the sequences of the batch, and the running estimates of
/// that step move by momentum, as BatchNorm's do. Weight and bias are one for all steps. In
/// evaluation step t uses the estimates of step t, or, past the longest sequence seen in training,
/// those of that sequence's last step (section 3). Steps from max_length on are normalised in
/// training all the same, and leave no estimate. All sequences of a batch count at every step:
/// padding is data.
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

  /// x: [T, B, C], steps `step` to `step + T - 1` of B sequences, or [B, C], the one step `step` ->
  /// the same shape. In training B is at least 2.
  at::Tensor forward(const at::Tensor& x, int64_t step = 0);

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(int64_t{0})})

 private:
  at::Tensor Steps(const at::Tensor& x, int64_t first);
  at::Tensor Normalise(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& var);
};
TORCH_MODULE(RecurrentBatchNorm);

/// A weight in polar form, w = g*v/||v|| (Salimans & Kingma 2016; Ba et al. 2016, Eq. 5), with a
/// norm for each index of dimension `dim`, or one for all of v with -1. g and v are parameters, and
/// forward gives w, as a layer's own weight would be used:
///
///   at::linear(x, weight_norm->forward(), bias)
///
/// Keys: `original0`, g, with v's size in dim and 1 in the others, and `original1`, v, as those of
/// Python's parametrization are called.
class WeightNormImpl : public torch::nn::Cloneable<WeightNormImpl> {
 public:
  static constexpr const char* kName = "WeightNorm";
  /// At the start forward gives w: g = ||w||, v = w.
  explicit WeightNormImpl(const at::Tensor& w, int64_t dim = 0);

  void reset() override;
  void pretty_print(std::ostream& stream) const override;

  at::Tensor forward();

  int64_t dim;
  at::Tensor g, v;
};
TORCH_MODULE(WeightNorm);

/// torch::nn::Linear with a weight-normalised weight. Starts as torch::nn::Linear does.
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

  /// x: [..., in_features] -> [..., out_features].
  at::Tensor forward(const at::Tensor& x);

  torch::nn::ModuleDict parametrizations{nullptr};  ///< of the weight alone, a WeightNorm
  at::Tensor bias;  ///< [out_features]; undefined when there is none
};
TORCH_MODULE(WeightNormLinear);

}  // namespace nn
}  // namespace planish

#endif  // PLANISH_TORCH_NORM_H_
