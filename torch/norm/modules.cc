#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/norm_except_dim.h>
#include <c10/util/accumulate.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "planish/torch_norm.h"
#include "src/norm/online/alpha_rule.h"
#include "src/norm/recipe.h"
#include "torch/norm/ops.h"

// Modules differ only in their options and in forward(). An option has the same meaning in every
// module; checks, parameters and printing depend only on which options there are.
namespace planish::nn {
inline namespace PLANISH_API {

namespace {

using at::Tensor;

// Buffers that keep their type when a module is cast: a count, and values that float would round.
constexpr std::string_view kKeepTheirType[] = {"num_batches_tracked", "state"};

// ---- Checks

void CheckShape(const char* module, at::IntArrayRef shape) {
  TORCH_CHECK_VALUE(
      !shape.empty() && std::all_of(shape.begin(), shape.end(), [](int64_t n) { return n >= 0; }),
      "[", module, "] normalized_shape must be one or more sizes, each at least 0, got ", shape);
}

void CheckCount(const char* module, const char* name, int64_t count, int64_t minimum) {
  TORCH_CHECK_VALUE(count >= minimum, "[", module, "] ", name, " must be at least ", minimum,
                    ", got ", count);
}

int64_t MinFeatures(const OnlineLayerNormOptions& /*options*/) { return 2; }
int64_t MinFeatures(const BatchNormOptions& /*options*/) { return 0; }
int64_t MinFeatures(const RecurrentBatchNormOptions& /*options*/) { return 1; }
int64_t MinFeatures(const InstanceNormOptions& /*options*/) { return 0; }

/// Checks normalized_shape of norms by the unbiased deviation.
void CheckUnbiased(const char* module, at::IntArrayRef shape, const char* norm) {
  TORCH_CHECK_VALUE(c10::multiply_integers(shape) >= 2, "[", module,
                    "] normalized_shape must have at least 2 elements with ", norm, ", got ",
                    shape);
}

internal::Recipe RecipeOf(const char* module, const RowNormOptions& o) {
  return internal::RecipeOf(FindNamed(module, "norm", internal::kNormNames, o.norm()).norm);
}

template <class Options>
void CheckOptions(const char* module, const Options& o) {
  if constexpr (requires { o.normalized_shape(); }) CheckShape(module, o.normalized_shape());
  if constexpr (requires { o.norm(); }) {
    if (RecipeOf(module, o).deviation == internal::Deviation::kUnbiasedPlusEps) {
      CheckUnbiased(module, o.normalized_shape(), o.norm().c_str());
    }
  }
  if constexpr (requires { o.num_features(); }) {
    CheckCount(module, "num_features", o.num_features(), MinFeatures(o));
  }
  if constexpr (requires { o.num_channels(); }) {
    CheckCount(module, "num_channels", o.num_channels(), 0);
  }
  if constexpr (requires { o.num_groups(); }) {
    CheckCount(module, "num_groups", o.num_groups(), 1);
    TORCH_CHECK_VALUE(o.num_channels() % o.num_groups() == 0, "[", module,
                      "] num_groups must divide num_channels, ", o.num_channels(), ", got ",
                      o.num_groups());
  }
  if constexpr (requires { o.in_features(); }) {
    CheckCount(module, "in_features", o.in_features(), 1);
    CheckCount(module, "out_features", o.out_features(), 1);
  }
  if constexpr (requires { o.max_length(); }) CheckCount(module, "max_length", o.max_length(), 1);
  if constexpr (requires { o.C(); }) CheckFinite(module, "C", o.C());
  if constexpr (requires { o.k(); }) CheckFinite(module, "k", o.k());
  if constexpr (requires { o.as_coded(); }) {
    if (o.as_coded()) CheckUnbiased(module, o.normalized_shape(), "as_coded");
  }
  if constexpr (requires { o.alpha(); }) CheckAlpha(module, o.alpha());
  if constexpr (requires { o.schedule(); }) {
    FindNamed(module, "schedule", internal::kAlphaRules, o.schedule());
  }
  if constexpr (requires { o.alpha_init(); }) CheckFinite(module, "alpha_init", o.alpha_init());
  if constexpr (requires { o.eps(); }) {
    const std::optional<double> eps = o.eps();
    if (eps) CheckEps(module, *eps);
  }
  if constexpr (requires { *o.momentum(); }) {
    if (o.momentum()) CheckMomentum(module, *o.momentum(), ", or None");
  } else if constexpr (requires { o.momentum(); }) {
    CheckMomentum(module, o.momentum());
  }
  if constexpr (requires { o.initial_weight(); }) {
    CheckFinite(module, "initial_weight", o.initial_weight());
  }
  if constexpr (requires { o.weight_offset(); }) {
    CheckFinite(module, "weight_offset", o.weight_offset());
    TORCH_CHECK_VALUE(o.weight_offset() == 0 || o.elementwise_affine(), "[", module,
                      "] weight_offset must be 0 without a weight, got ", o.weight_offset());
  }
  if constexpr (requires { o.groups(); }) {
    const std::vector<int64_t>& shape = o.normalized_shape();
    CheckCount(module, "groups", o.groups(), 1);
    TORCH_CHECK_VALUE(o.groups() == 1 || shape.size() == 1, "[", module,
                      "] normalized_shape must be one size with ", o.groups(), " groups, got ",
                      at::IntArrayRef(shape));
    TORCH_CHECK_VALUE(shape.back() % o.groups() == 0, "[", module,
                      "] groups must divide normalized_shape, ", shape.back(), ", got ",
                      o.groups());
  }
}

/// Checks x of the modules whose names end in 1d and 2d.
void CheckChannels(const char* module, int64_t spatial, const Tensor& x, int64_t channels) {
  const bool dims = spatial == 1 ? x.dim() == 2 || x.dim() == 3 : x.dim() == 4;
  TORCH_CHECK_VALUE(dims && x.size(1) == channels, "[", module, "] x must be ",
                    spatial == 1 ? "[N, C] or [N, C, L]" : "[N, C, H, W]", " with C = ", channels,
                    ", got ", x.sizes());
}

// ---- Parameters and buffers

template <class Options>
std::vector<int64_t> ParameterShape(const Options& o) {
  if constexpr (requires { o.normalized_shape(); }) {
    return o.normalized_shape();
  } else if constexpr (requires { o.num_channels(); }) {
    return {o.num_channels()};
  } else {
    return {o.num_features()};
  }
}

template <class Options>
bool HasWeight(const Options& o) {
  if constexpr (requires { o.elementwise_affine(); }) {
    return o.elementwise_affine();
  } else {
    return o.affine();
  }
}

template <class Options>
bool HasBias(const Options& o) {
  if constexpr (requires { o.bias(); }) {
    return HasWeight(o) && o.bias();
  } else {
    return HasWeight(o);
  }
}
bool HasWeight(const RowNormOptions& o) {
  return o.elementwise_affine() &&
         RecipeOf(RowNormImpl::kName, o).output == internal::Output::kAffine;
}
bool HasBias(const RowNormOptions& o) {
  return HasWeight(o) && o.bias().value_or(RecipeOf(RowNormImpl::kName, o).centre);
}
bool HasBias(const RMSNormOptions& /*options*/) { return false; }
bool HasBias(const WeightNormLinearOptions& o) { return o.bias(); }

template <class Options>
double InitialWeight(const Options& o) {
  if constexpr (requires { o.initial_weight(); }) {
    return o.initial_weight();
  } else if constexpr (requires { o.weight_offset(); }) {
    return 1 - o.weight_offset();
  } else {
    return 1;
  }
}

bool HasEstimates(const BatchNormOptions& o) { return o.track_running_stats(); }
bool HasEstimates(const InstanceNormOptions& o) { return o.track_running_stats(); }
bool HasEstimates(const RecurrentBatchNormOptions& /*options*/) { return true; }

/// Returns the shape of num_batches_tracked; running estimates have one more dimension, features.
std::vector<int64_t> CountShape(const BatchNormOptions& /*options*/) { return {}; }
std::vector<int64_t> CountShape(const InstanceNormOptions& /*options*/) { return {}; }
std::vector<int64_t> CountShape(const RecurrentBatchNormOptions& o) { return {o.max_length()}; }

// ---- Printing

/// Prints the arguments of a module: `4, eps=0.001, affine=true`.
class Arguments {
 public:
  explicit Arguments(std::ostream& stream) : stream_(stream) {}

  /// Prints the first argument, which has no name.
  template <class T>
  void operator()(const T& value) {
    Separate();
    stream_ << std::boolalpha << value;
  }
  template <class T>
  void operator()(const char* name, const T& value) {
    Separate();
    stream_ << std::boolalpha << name << '=' << value;
  }
  void operator()(const char* name, const std::optional<double>& value) {
    if (value) {
      operator()(name, *value);
    } else {
      operator()(name, "None");
    }
  }

 private:
  void Separate() {
    if (!first_) stream_ << ", ";
    first_ = false;
  }

  std::ostream& stream_;
  bool first_ = true;
};

template <class Options>
void Print(const Options& o, Arguments print) {
  if constexpr (requires { o.normalized_shape(); }) print(at::IntArrayRef(o.normalized_shape()));
  if constexpr (requires { o.norm(); }) print("norm", o.norm());
  if constexpr (requires { o.num_features(); }) print(o.num_features());
  if constexpr (requires { o.num_groups(); }) print(o.num_groups());
  if constexpr (requires { o.num_channels(); }) print(o.num_channels());
  if constexpr (requires { o.in_features(); }) {
    print("in_features", o.in_features());
    print("out_features", o.out_features());
  }
  if constexpr (requires { o.max_length(); }) print("max_length", o.max_length());
  if constexpr (requires { o.mean(); }) print("mean", o.mean());
  if constexpr (requires { o.std(); }) print("std", o.std());
  if constexpr (requires { o.C(); }) print("C", o.C());
  if constexpr (requires { o.k(); }) print("k", o.k());
  if constexpr (requires { o.as_coded(); }) print("as_coded", o.as_coded());
  if constexpr (requires { o.alpha(); }) print("alpha", o.alpha());
  if constexpr (requires { o.schedule(); }) {
    if (o.schedule() != "constant") print("schedule", o.schedule());
  }
  if constexpr (requires { o.alpha_init(); }) print("alpha_init", o.alpha_init());
  if constexpr (requires { o.eps(); }) print("eps", o.eps());
  if constexpr (requires { o.momentum(); }) print("momentum", o.momentum());
  if constexpr (requires { o.elementwise_affine(); }) {
    print("elementwise_affine", HasWeight(o));
  }
  if constexpr (requires { o.affine(); }) print("affine", o.affine());
  if constexpr (requires { o.bias(); }) print("bias", HasBias(o));
  if constexpr (requires { o.weight_offset(); }) {
    if (o.weight_offset() != 0) print("weight_offset", o.weight_offset());
  }
  if constexpr (requires { o.groups(); }) {
    if (o.groups() != 1) print("groups", o.groups());
  }
  if constexpr (requires { o.norm_before_gate(); }) {
    if (!o.norm_before_gate()) print("norm_before_gate", false);
    if (o.cast_before_weight()) print("cast_before_weight", true);
  }
  if constexpr (requires { o.track_running_stats(); }) {
    print("track_running_stats", o.track_running_stats());
  }
  if constexpr (requires { o.unbiased(); }) {
    if (o.unbiased()) print("unbiased", true);
  }
  if constexpr (requires { o.dim(); }) print("dim", o.dim());
}

}  // namespace

namespace detail {

template <class Derived, class Options>
NormImpl<Derived, Options>::NormImpl(Options options_) : options(std::move(options_)) {
  CheckOptions(Derived::kName, options);
}

template <class Derived, class Options>
void NormImpl<Derived, Options>::pretty_print(std::ostream& stream) const {
  stream << "planish::nn::" << Derived::kName << '(';
  Print(options, Arguments(stream));
  stream << ')';
}

/// Calls `cast`, then restores the buffers of `module` that keep their type.
template <class Cast>
void CastBut(torch::nn::Module& module, const Cast& cast) {
  std::vector<std::pair<Tensor, Tensor>> kept;
  for (auto& item : module.named_buffers(/*recurse=*/false)) {
    if (std::find(std::begin(kKeepTheirType), std::end(kKeepTheirType), item.key()) !=
        std::end(kKeepTheirType)) {
      kept.emplace_back(item.value(), item.value().detach());
    }
  }
  cast();
  for (auto& [buffer, before] : kept) buffer.set_data(before.to(buffer.device()));
}

template <class Derived, class Options>
void NormImpl<Derived, Options>::to(torch::Dtype type, bool non_blocking) {
  CastBut(*this, [&] { torch::nn::Module::to(type, non_blocking); });
}

template <class Derived, class Options>
void NormImpl<Derived, Options>::to(torch::Device device, torch::Dtype type, bool non_blocking) {
  CastBut(*this, [&] { torch::nn::Module::to(device, type, non_blocking); });
}

template <class Derived, class Options>
AffineNormImpl<Derived, Options>::AffineNormImpl(Options options_)
    : NormImpl<Derived, Options>(std::move(options_)) {
  AffineNormImpl::reset();
}

template <class Derived, class Options>
void AffineNormImpl<Derived, Options>::reset() {
  const auto add = [&](const char* name, bool exists) {
    const Tensor parameter = exists ? at::empty(ParameterShape(this->options)) : Tensor();
    return this->register_parameter(name, parameter, /*requires_grad=*/exists);
  };
  weight = add("weight", HasWeight(this->options));
  bias = add("bias", HasBias(this->options));
  AffineNormImpl::reset_parameters();
}

template <class Derived, class Options>
void AffineNormImpl<Derived, Options>::reset_parameters() {
  const at::NoGradGuard no_grad;
  if (weight.defined()) weight.fill_(InitialWeight(this->options));
  if (bias.defined()) bias.zero_();
}

template <class Derived, class Options>
RunningNormImpl<Derived, Options>::RunningNormImpl(Options options_)
    : AffineNormImpl<Derived, Options>(std::move(options_)) {
  RegisterEstimates();
}

template <class Derived, class Options>
void RunningNormImpl<Derived, Options>::reset() {
  AffineNormImpl<Derived, Options>::reset();
  RegisterEstimates();
}

template <class Derived, class Options>
void RunningNormImpl<Derived, Options>::RegisterEstimates() {
  const bool tracked = HasEstimates(this->options);
  const std::vector<int64_t> counts = CountShape(this->options);
  std::vector<int64_t> sizes = counts;
  sizes.push_back(this->options.num_features());
  running_mean = this->register_buffer("running_mean", tracked ? at::empty(sizes) : Tensor());
  running_var = this->register_buffer("running_var", tracked ? at::empty(sizes) : Tensor());
  num_batches_tracked = this->register_buffer("num_batches_tracked",
                                              tracked ? at::empty(counts, at::kLong) : Tensor());
  reset_running_stats();
}

template <class Derived, class Options>
void RunningNormImpl<Derived, Options>::reset_running_stats() {
  if (!running_mean.defined()) return;
  running_mean.zero_();
  running_var.fill_(1);
  num_batches_tracked.zero_();
}

template <class Derived, class Options>
void RunningNormImpl<Derived, Options>::reset_parameters() {
  reset_running_stats();
  AffineNormImpl<Derived, Options>::reset_parameters();
}

template class NormImpl<RowNormImpl, RowNormOptions>;
template class NormImpl<LayerNormImpl, LayerNormOptions>;
template class NormImpl<RMSNormImpl, RMSNormOptions>;
template class NormImpl<LayerNormSimpleImpl, LayerNormSimpleOptions>;
template class NormImpl<DetachNormImpl, DetachNormOptions>;
template class NormImpl<AdaNormImpl, AdaNormOptions>;
template class NormImpl<DyTImpl, DyTOptions>;
template class NormImpl<DerfImpl, DerfOptions>;
template class NormImpl<OnlineLayerNormImpl, OnlineLayerNormOptions>;
template class NormImpl<LayerNorm1dImpl, LayerNorm1dOptions>;
template class NormImpl<LayerNorm2dImpl, LayerNorm2dOptions>;
template class NormImpl<BatchNorm1dImpl, BatchNorm1dOptions>;
template class NormImpl<BatchNorm2dImpl, BatchNorm2dOptions>;
template class NormImpl<GroupNormImpl, GroupNormOptions>;
template class NormImpl<InstanceNorm1dImpl, InstanceNorm1dOptions>;
template class NormImpl<InstanceNorm2dImpl, InstanceNorm2dOptions>;
template class NormImpl<InstanceNorm3dImpl, InstanceNorm3dOptions>;
template class NormImpl<RecurrentBatchNormImpl, RecurrentBatchNormOptions>;
template class NormImpl<WeightNormLinearImpl, WeightNormLinearOptions>;

template class AffineNormImpl<RowNormImpl, RowNormOptions>;
template class AffineNormImpl<LayerNormImpl, LayerNormOptions>;
template class AffineNormImpl<RMSNormImpl, RMSNormOptions>;
template class AffineNormImpl<DyTImpl, DyTOptions>;
template class AffineNormImpl<DerfImpl, DerfOptions>;
template class AffineNormImpl<OnlineLayerNormImpl, OnlineLayerNormOptions>;
template class AffineNormImpl<LayerNorm1dImpl, LayerNorm1dOptions>;
template class AffineNormImpl<LayerNorm2dImpl, LayerNorm2dOptions>;
template class AffineNormImpl<BatchNorm1dImpl, BatchNorm1dOptions>;
template class AffineNormImpl<BatchNorm2dImpl, BatchNorm2dOptions>;
template class AffineNormImpl<GroupNormImpl, GroupNormOptions>;
template class AffineNormImpl<InstanceNorm1dImpl, InstanceNorm1dOptions>;
template class AffineNormImpl<InstanceNorm2dImpl, InstanceNorm2dOptions>;
template class AffineNormImpl<InstanceNorm3dImpl, InstanceNorm3dOptions>;
template class AffineNormImpl<RecurrentBatchNormImpl, RecurrentBatchNormOptions>;

template class RunningNormImpl<BatchNorm1dImpl, BatchNorm1dOptions>;
template class RunningNormImpl<BatchNorm2dImpl, BatchNorm2dOptions>;
template class RunningNormImpl<InstanceNorm1dImpl, InstanceNorm1dOptions>;
template class RunningNormImpl<InstanceNorm2dImpl, InstanceNorm2dOptions>;
template class RunningNormImpl<InstanceNorm3dImpl, InstanceNorm3dOptions>;
template class RunningNormImpl<RecurrentBatchNormImpl, RecurrentBatchNormOptions>;

}  // namespace detail

// ---- Norms over rows

Tensor RowNormImpl::forward(const Tensor& x) {
  return planish::row_norm(x, options.normalized_shape(), options.norm(), OrNone(weight),
                           OrNone(bias), options.eps(), options.C(), options.k());
}

namespace {

/// Returns weight + offset in float, or in double if x or weight is double.
Tensor WithOffset(const Tensor& x, const Tensor& weight, double offset) {
  if (offset == 0) return weight;
  return weight.to(ComputeType(at::promote_types(x.scalar_type(), weight.scalar_type()))) + offset;
}

/// Splits rows [..., C] into [..., groups, C / groups], for the option `groups`.
class Groups {
 public:
  template <class Options>
  Groups(const char* module, const Options& options, const Tensor& x)
      : groups_(options.groups()), shape_(options.normalized_shape()) {
    if (groups_ == 1) return;
    TORCH_CHECK_VALUE(x.dim() >= 1 && x.size(-1) == shape_[0], "[", module, "] x must be [..., ",
                      shape_[0], "], got ", x.sizes());
    shape_[0] /= groups_;
  }

  const std::vector<int64_t>& shape() const { return shape_; }
  Tensor Of(const Tensor& t) const {
    return groups_ == 1 || !t.defined() ? t : t.unflatten(-1, {groups_, shape_[0]});
  }
  OptionalTensor Gate(const char* module, const Tensor& x, const OptionalTensor& gate) const {
    if (!gate) return gate;
    CheckLike(module, "gate", *gate, x);
    return Of(*gate);
  }
  /// Returns what has one element for each row and group.
  Tensor OfRows(const Tensor& t) const { return groups_ == 1 ? t : t.squeeze(-1); }
  Tensor Together(const Tensor& t) const { return groups_ == 1 ? t : t.flatten(-2); }

 private:
  int64_t groups_;
  std::vector<int64_t> shape_;
};

}  // namespace

Tensor LayerNormImpl::forward(const Tensor& x, const std::optional<Tensor>& gate) {
  const Groups groups(kName, options, x);
  const auto w = OrNone(groups.Of(WithOffset(x, weight, options.weight_offset())));
  const auto b = OrNone(groups.Of(bias));
  const Tensor in = groups.Of(x);
  const Tensor y = gate || options.cast_before_weight()
                       ? planish::gated_layer_norm(in, groups.Gate(kName, x, gate), groups.shape(),
                                                   w, b, options.eps(), options.norm_before_gate(),
                                                   options.cast_before_weight())
                       : planish::layer_norm(in, groups.shape(), w, b, options.eps());
  return groups.Together(y);
}

std::tuple<Tensor, Tensor> LayerNormImpl::quantized(const Tensor& x,
                                                    const std::optional<Tensor>& gate) {
  const Groups groups(kName, options, x);
  const auto w = OrNone(groups.Of(WithOffset(x, weight, options.weight_offset())));
  const auto b = OrNone(groups.Of(bias));
  const auto [q, scale] = planish::quantized_layer_norm(
      groups.Of(x), groups.shape(), w, b, options.eps(), groups.Gate(kName, x, gate),
      options.norm_before_gate(), options.cast_before_weight());
  return {groups.Together(q), groups.OfRows(scale)};
}

Tensor RMSNormImpl::forward(const Tensor& x, const std::optional<Tensor>& gate) {
  const Groups groups(kName, options, x);
  const auto w = OrNone(groups.Of(WithOffset(x, weight, options.weight_offset())));
  const Tensor in = groups.Of(x);
  const Tensor y = gate || options.cast_before_weight()
                       ? planish::gated_rms_norm(in, groups.Gate(kName, x, gate), groups.shape(), w,
                                                 options.eps(), options.norm_before_gate(),
                                                 options.cast_before_weight())
                       : planish::rms_norm(in, groups.shape(), w, options.eps());
  return groups.Together(y);
}

std::tuple<Tensor, Tensor> RMSNormImpl::quantized(const Tensor& x,
                                                  const std::optional<Tensor>& gate) {
  const Groups groups(kName, options, x);
  const auto w = OrNone(groups.Of(WithOffset(x, weight, options.weight_offset())));
  const auto [q, scale] = planish::quantized_rms_norm(
      groups.Of(x), groups.shape(), w, options.eps(), groups.Gate(kName, x, gate),
      options.norm_before_gate(), options.cast_before_weight());
  return {groups.Together(q), groups.OfRows(scale)};
}

Tensor LayerNormSimpleImpl::forward(const Tensor& x) {
  return planish::layer_norm_simple(x, options.normalized_shape(), options.eps());
}

Tensor DetachNormImpl::forward(const Tensor& x) {
  return planish::detach_norm(x, options.normalized_shape(), options.mean(), options.std(),
                              options.eps());
}

Tensor AdaNormImpl::forward(const Tensor& x) {
  return planish::ada_norm(x, options.normalized_shape(), options.C(), options.k(),
                           options.as_coded(), options.eps());
}

// ---- Pointwise functions

DyTImpl::DyTImpl(DyTOptions options_) : AffineNormImpl(std::move(options_)) { RegisterScalars(); }

void DyTImpl::reset() {
  AffineNormImpl::reset();
  RegisterScalars();
}

void DyTImpl::RegisterScalars() {
  alpha = register_parameter("alpha", at::full({1}, options.alpha_init()));
}

void DyTImpl::reset_parameters() {
  AffineNormImpl::reset_parameters();
  const at::NoGradGuard no_grad;
  alpha.fill_(options.alpha_init());
}

Tensor DyTImpl::forward(const Tensor& x) {
  return planish::dyt(x, options.normalized_shape(), alpha, OrNone(weight), OrNone(bias));
}

DerfImpl::DerfImpl(DerfOptions options_) : AffineNormImpl(std::move(options_)) {
  RegisterScalars();
}

void DerfImpl::reset() {
  AffineNormImpl::reset();
  RegisterScalars();
}

void DerfImpl::RegisterScalars() {
  alpha = register_parameter("alpha", at::full({1}, options.alpha_init()));
  shift = register_parameter("shift", at::zeros({1}));
}

void DerfImpl::reset_parameters() {
  AffineNormImpl::reset_parameters();
  const at::NoGradGuard no_grad;
  alpha.fill_(options.alpha_init());
  shift.zero_();
}

Tensor DerfImpl::forward(const Tensor& x) {
  return planish::derf(x, options.normalized_shape(), alpha, OrNone(shift), OrNone(weight),
                       OrNone(bias));
}

// ---- Online norm

OnlineLayerNormImpl::OnlineLayerNormImpl(OnlineLayerNormOptions options_)
    : AffineNormImpl(options_) {
  RegisterState();
}

void OnlineLayerNormImpl::reset() {
  AffineNormImpl::reset();
  RegisterState();
}

void OnlineLayerNormImpl::RegisterState() {
  state =
      register_buffer("state", at::empty({options.schedule() == "constant" ? 2 : 3}, at::kDouble));
  reset_state();
}

void OnlineLayerNormImpl::reset_state() {
  state.zero_();
  state[1] = 1;
}

void OnlineLayerNormImpl::reset_parameters() {
  reset_state();
  AffineNormImpl::reset_parameters();
}

void OnlineLayerNormImpl::pretty_print(std::ostream& stream) const {
  stream << "planish::nn::" << kName << '(';
  Print(options, Arguments(stream));
  if (!state.is_meta()) stream << ", mu=" << mu() << ", sigma=" << sigma();
  stream << ')';
}

Tensor OnlineLayerNormImpl::forward(const Tensor& x, std::optional<bool> advance) {
  TORCH_CHECK_VALUE(x.dim() >= 1 && x.size(-1) == options.num_features(),
                    "[OnlineLayerNorm] x must have ", options.num_features(),
                    " elements in its last dimension, got ", x.sizes());
  if (advance.value_or(is_training())) {
    auto [y, next] = planish::online_layer_norm(x, state, OrNone(weight), OrNone(bias),
                                                options.alpha(), options.schedule());
    const at::NoGradGuard no_grad;
    state.copy_(next);
    return y;
  }
  // All rows start from the same state; computed in its type, double.
  const Tensor alpha = planish::online_alphas(state[-1], 1, options.alpha(), options.schedule());
  const Tensor wide = x.to(at::kDouble);
  const Tensor centred = wide - (alpha * wide.mean(-1, /*keepdim=*/true) + (1 - alpha) * state[0]);
  const Tensor s =
      (centred.square().sum(-1, /*keepdim=*/true) / (options.num_features() - 1)).sqrt();
  Tensor y = centred / (alpha * s + (1 - alpha) * state[1]);
  if (weight.defined()) y = y * weight;
  if (bias.defined()) y = y + bias;
  return y.to(x.scalar_type());
}

// ---- Norms over channels

Tensor LayerNorm1dImpl::forward(const Tensor& x) {
  CheckChannels(kName, 1, x, options.num_channels());
  return planish::channel_layer_norm(x, OrNone(weight), OrNone(bias), options.eps());
}

Tensor LayerNorm2dImpl::forward(const Tensor& x) {
  CheckChannels(kName, 2, x, options.num_channels());
  return planish::channel_layer_norm(x, OrNone(weight), OrNone(bias), options.eps());
}

// ---- Batch norms

namespace {

template <class Module>
Tensor BatchForward(Module& m, const Tensor& x) {
  std::optional<double> momentum = m.options.momentum();
  if (m.is_training() && m.num_batches_tracked.defined()) {
    m.num_batches_tracked.add_(1);
    if (!momentum) momentum = 1 / m.num_batches_tracked.template item<double>();
  }
  return planish::batch_norm(x, OrNone(m.weight), OrNone(m.bias), OrNone(m.running_mean),
                             OrNone(m.running_var), m.is_training() || !m.running_mean.defined(),
                             momentum.value_or(0), m.options.eps(), m.options.unbiased());
}

}  // namespace

Tensor BatchNorm1dImpl::forward(const Tensor& x) {
  CheckChannels(kName, 1, x, options.num_features());
  return BatchForward(*this, x);
}

Tensor BatchNorm2dImpl::forward(const Tensor& x) {
  CheckChannels(kName, 2, x, options.num_features());
  return BatchForward(*this, x);
}

// ---- Norms over groups

Tensor GroupNormImpl::forward(const Tensor& x) {
  TORCH_CHECK_VALUE(x.dim() >= 2 && x.size(1) == options.num_channels(),
                    "[GroupNorm] x must be [N, C, ...] with C = ", options.num_channels(), ", got ",
                    x.sizes());
  return planish::group_norm(x, options.num_groups(), OrNone(weight), OrNone(bias), options.eps());
}

namespace {

/// Normalizes x, which has `spatial` dimensions after the channels, and can lack the batch.
template <class Module>
Tensor InstanceForward(Module& m, int64_t spatial, const Tensor& x) {
  const int64_t channel = x.dim() - spatial - 1;
  TORCH_CHECK_VALUE((channel == 0 || channel == 1) && x.size(channel) == m.options.num_features(),
                    "[", Module::kName, "] x must be [N, C, ...] or [C, ...] with ", spatial,
                    " spatial dimensions and C = ", m.options.num_features(), ", got ", x.sizes());
  // As in PyTorch, num_batches_tracked stays 0.
  const Tensor y = planish::instance_norm(
      channel == 0 ? x.unsqueeze(0) : x, OrNone(m.weight), OrNone(m.bias), OrNone(m.running_mean),
      OrNone(m.running_var), m.is_training() || !m.running_mean.defined(), m.options.momentum(),
      m.options.eps());
  return channel == 0 ? y.squeeze(0) : y;
}

}  // namespace

Tensor InstanceNorm1dImpl::forward(const Tensor& x) { return InstanceForward(*this, 1, x); }
Tensor InstanceNorm2dImpl::forward(const Tensor& x) { return InstanceForward(*this, 2, x); }
Tensor InstanceNorm3dImpl::forward(const Tensor& x) { return InstanceForward(*this, 3, x); }

Tensor RecurrentBatchNormImpl::forward(const Tensor& x, int64_t step) {
  TORCH_CHECK_VALUE((x.dim() == 2 || x.dim() == 3) && x.size(-1) == options.num_features(),
                    "[RecurrentBatchNorm] x must be [T, B, C] or [B, C] with C = ",
                    options.num_features(), ", got ", x.sizes());
  CheckCount(kName, "step", step, 0);
  return x.dim() == 2 ? Steps(x.unsqueeze(0), step).squeeze(0) : Steps(x, step);
}

Tensor RecurrentBatchNormImpl::Steps(const Tensor& x, int64_t first) {
  const int64_t time = x.size(0);
  if (!is_training()) {
    const Tensor longest = num_batches_tracked.gt(0).sum();
    const Tensor steps =
        at::minimum(at::arange(first, first + time, longest.options()), (longest - 1).clamp_min(0));
    return Normalize(x, running_mean.index_select(0, steps), running_var.index_select(0, steps));
  }
  TORCH_CHECK_VALUE(x.size(1) >= 2,
                    "[RecurrentBatchNorm] x must have at least 2 sequences in training, got ",
                    x.sizes());
  const int64_t tracked = std::clamp<int64_t>(options.max_length() - first, 0, time);
  std::vector<Tensor> parts;
  if (tracked > 0) {
    num_batches_tracked.slice(0, first, first + tracked).add_(1);
    parts.push_back(Normalize(x.slice(0, 0, tracked), running_mean.slice(0, first, first + tracked),
                              running_var.slice(0, first, first + tracked)));
  }
  if (tracked < time) parts.push_back(Normalize(x.slice(0, tracked), {}, {}));
  return parts.size() == 1 ? parts[0] : at::cat(parts);
}

// Makes each (step, channel) one channel of batch_norm: one call for all steps.
Tensor RecurrentBatchNormImpl::Normalize(const Tensor& x, const Tensor& mean, const Tensor& var) {
  const int64_t time = x.size(0), batch = x.size(1), channels = x.size(2);
  const auto each_step = [&](const Tensor& vector) {
    return OrNone(vector.defined() ? vector.repeat({time}) : vector);
  };
  const auto flat = [](const Tensor& estimate) {
    return OrNone(estimate.defined() ? estimate.view(-1) : estimate);
  };
  const Tensor y = planish::batch_norm(
      x.transpose(0, 1).reshape({batch, time * channels}), each_step(weight), each_step(bias),
      flat(mean), flat(var), is_training(), options.momentum(), options.eps(), options.unbiased());
  return y.view({batch, time, channels}).transpose(0, 1);
}

// ---- Weight norm

WeightNormImpl::WeightNormImpl(const Tensor& w, int64_t dim_) : dim(dim_), v(w) {
  TORCH_CHECK_VALUE(dim >= -1 && dim < w.dim(), "[WeightNorm] dim must be from -1 to ", w.dim() - 1,
                    ", got ", dim);
  {
    const at::NoGradGuard no_grad;
    g = at::norm_except_dim(w, 2, dim);
  }
  WeightNormImpl::reset();
}

// Copies the present values, because there is no other source to initialize them from.
void WeightNormImpl::reset() {
  g = register_parameter("original0", g.detach().clone());
  v = register_parameter("original1", v.detach().clone());
}

void WeightNormImpl::pretty_print(std::ostream& stream) const {
  stream << "planish::nn::" << kName << "(dim=" << dim << ')';
}

Tensor WeightNormImpl::forward() { return planish::weight_norm(v, g, dim); }

WeightNormLinearImpl::WeightNormLinearImpl(const WeightNormLinearOptions& options_)
    : NormImpl(options_) {
  WeightNormLinearImpl::reset();
}

void WeightNormLinearImpl::reset() {
  const torch::nn::Linear start(
      torch::nn::LinearOptions(options.in_features(), options.out_features()).bias(options.bias()));
  bias = register_parameter("bias", start->bias, /*requires_grad=*/options.bias());
  const WeightNorm weight(start->weight, options.dim());
  parametrizations = register_module(
      "parametrizations",
      torch::nn::ModuleDict(
          std::vector<std::pair<std::string, std::shared_ptr<Module>>>{{"weight", weight.ptr()}}));
}

Tensor WeightNormLinearImpl::forward(const Tensor& x) {
  Tensor weight = parametrizations["weight"]->as<WeightNorm>()->forward();
  return at::linear(x, weight, OrNone(bias));
}

}  // namespace PLANISH_API
}  // namespace planish::nn
