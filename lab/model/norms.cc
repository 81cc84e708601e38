#include "lab/model/norms.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/accumulate.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "lab/base/norm_name.h"
#include "lab/error.h"
#include "lab/model/batch_statistics.h"
#include "planish/torch.h"
#include "src/norm/recipe.h"

namespace planish::lab {

// Sums over the rows of all backward passes.
class NormModule::Sums {
 public:
  void Add(const NormRows& rows) {
    const at::Tensor mean = rows.g.mean(1).abs(), variance = rows.g.var(1, /*unbiased=*/false);
    const at::Tensor terms[] = {rows.sigma,
                                mean,
                                variance,
                                mean / rows.sigma,
                                variance / rows.sigma.square(),
                                rows.dx.mean(1).abs(),
                                rows.dx.var(1, /*unbiased=*/false)};
    sums_[0] += static_cast<double>(rows.g.size(0));
    for (size_t i = 1; i < sums_.size(); ++i) sums_[i] += terms[i - 1].sum().item<double>();
  }

  at::Tensor ToTensor() const { return at::tensor(sums_, at::kDouble); }

 private:
  std::array<double, kSums> sums_ = {};
};

at::Tensor NormModule::forward(const at::Tensor& x) {
  if ((!sums_ && !record_) || !x.requires_grad() || !HasOwnStatistics()) return Normalize(x);
  // A view, because gradients that reach x through a residual connection are not the norm's. A
  // copy, because in-place changes of the output must not lose its hook.
  const at::Tensor in = x.view_as(x);
  const at::Tensor y = Normalize(in).clone();
  const auto dy = std::make_shared<at::Tensor>();
  y.register_hook([dy](const at::Tensor& gradient) { *dy = gradient; });
  in.register_hook([this, dy, sums = sums_, record = record_,
                    x = x.detach()](const at::Tensor& dx) {
    at::NoGradGuard no_grad;
    const at::Tensor x_double = x.to(at::kDouble), factor = Factor(x_double);
    at::Tensor g = dy->to(at::kDouble);
    if (factor.defined()) g = g * factor;
    g = Rows(g);
    const at::Tensor rows_x = Rows(x_double), reached = g.ne(0).any(1);
    const auto kept = [&](const at::Tensor& t) { return t.index({reached}); };
    const NormRows rows{kept(rows_x), kept(g), kept(Rows(dx.to(at::kDouble))), kept(Sigma(rows_x))};
    if (rows.g.size(0) == 0) return;  // the variances would warn on stderr
    if (sums) sums->Add(rows);
    if (record) record(rows);
  });
  return y;
}

void NormModule::Watch() { sums_ = std::make_shared<Sums>(); }

at::Tensor NormModule::WatchedSums() {
  const std::shared_ptr<Sums> sums = std::exchange(sums_, nullptr);
  return sums ? sums->ToTensor() : at::zeros({kSums}, at::kDouble);
}

std::optional<NormGradients> NormModule::GradientsOf(const at::Tensor& sums) {
  const double* sum = sums.const_data_ptr<double>();
  if (sum[0] == 0) return std::nullopt;
  const auto mean = [&](int i) { return sum[i] / sum[0]; };
  return NormGradients{
      "",     static_cast<int64_t>(sum[0]), mean(1), mean(2), mean(3), mean(4), mean(5), mean(6),
      mean(7)};
}

at::Tensor NormModule::Rows(const at::Tensor& t) const {
  return t.flatten(-dimensions_).flatten(0, -2);
}

namespace {

using Module = std::shared_ptr<NormModule>;
using Shape = const std::vector<int64_t>&;
using Options = const NormOptions&;

class NoNorm : public NormModule {
 public:
  explicit NoNorm(int64_t dimensions) : NormModule(dimensions) {}

 private:
  at::Tensor Normalize(const at::Tensor& x) override { return x; }
  at::Tensor Sigma(const at::Tensor& rows) const override {
    return at::ones({rows.size(0)}, rows.options());
  }
};

// Weight normalization (Salimans & Kingma 2016, Eq. 2; Ba et al. 2016, 5.1): the weights of unit i
// are gain_i * v_i / |v_i|. Nothing else is done to the unit's output.
class WeightNorm final : public NoNorm {
 public:
  explicit WeightNorm(Shape shape)
      : NoNorm(static_cast<int64_t>(shape.size())),
        gain_(register_parameter("gain", at::ones({shape[0]}))) {}

  at::Tensor Weight(const at::Tensor& w, int64_t dim) override {
    return planish::weight_norm(w, gain_, dim);
  }
  void StartFrom(const at::Tensor& w, int64_t dim) override {
    const at::NoGradGuard no_grad;
    gain_.copy_(w.transpose(0, dim).flatten(1).norm(2, at::IntArrayRef{1}));
  }

 private:
  at::Tensor gain_;
};

// A norm over rows.
class RowNorm final : public NormModule {
 public:
  RowNorm(const internal::NormName& norm, Shape shape, Options options)
      : NormModule(static_cast<int64_t>(shape.size())),
        recipe_(internal::RecipeOf(norm.norm)),
        norm_(register_module("norm", nn::RowNorm(nn::RowNormOptions(shape, norm.name)
                                                      .eps(options.epsilon)
                                                      .C(options.ada_c)
                                                      .k(options.ada_k)))) {}

  std::optional<NormPaths> Paths() const override {
    if (!recipe_.centre) return {};
    return NormPaths{recipe_.via_mean, recipe_.via_scale,
                     recipe_.deviation == internal::Deviation::kUnbiasedPlusEps};
  }

 private:
  at::Tensor Normalize(const at::Tensor& x) override { return norm_->forward(x); }

  at::Tensor Sigma(const at::Tensor& rows) const override {
    const double eps = norm_->options.eps();
    if (recipe_.deviation == internal::Deviation::kUnbiasedPlusEps) return rows.std(1) + eps;
    const at::Tensor square =
        recipe_.centre ? rows.var(1, /*unbiased=*/false) : rows.square().mean(1);
    return (square + eps).sqrt();
  }

  at::Tensor Factor(const at::Tensor& x) const override {
    switch (recipe_.output) {
      case internal::Output::kAffine:
        return norm_->weight.to(x.scalar_type());
      case internal::Output::kAdaptive: {
        const at::Tensor rows = Rows(x);
        const at::Tensor xhat = (rows - rows.mean(1, /*keepdim=*/true)) / Sigma(rows).unsqueeze(1);
        return (norm_->options.C() * (1 - norm_->options.k() * xhat)).view_as(x);
      }
      case internal::Output::kIdentity:
        break;
    }
    return {};
  }

  internal::Recipe recipe_;
  nn::RowNorm norm_;
};

// Group normalization (Wu & He 2018): normalizes groups of channels, over all positions of an
// image; each channel has its own gain and bias. Its rows are the groups.
class GroupNorm final : public NormModule {
 public:
  GroupNorm(Shape shape, Options options)
      : NormModule(static_cast<int64_t>(shape.size())),
        size_(c10::multiply_integers(shape) / shape.back()),
        groups_(GroupsOf(shape.back(), size_)),
        eps_(options.epsilon),
        weight_(register_parameter("weight", at::ones({shape.back()}))),
        bias_(register_parameter("bias", at::zeros({shape.back()}))) {}

  std::optional<NormPaths> Paths() const override { return NormPaths{}; }

 private:
  at::Tensor Normalize(const at::Tensor& x) override {
    if (size_ > 1) {
      return planish::group_norm(Images(x).transpose(1, 2), groups_, weight_, bias_, eps_)
          .transpose(1, 2)
          .reshape(x.sizes());
    }
    // group_norm is slow for a single position.
    const at::Tensor groups = Groups(x);
    return planish::layer_norm(groups, {groups.size(-1)}, OfElements(weight_), OfElements(bias_),
                               eps_)
        .view_as(x);
  }
  at::Tensor Rows(const at::Tensor& t) const override { return Groups(t).flatten(0, -2); }
  at::Tensor Sigma(const at::Tensor& rows) const override {
    return (rows.var(1, /*unbiased=*/false) + eps_).sqrt();
  }
  at::Tensor Factor(const at::Tensor& x) const override {
    const at::Tensor gain = weight_.to(x.scalar_type());
    return gain.expand_as(Images(x)).reshape(x.sizes());
  }

  // Reshapes a tensor of x's shape to [cases, positions, channels].
  at::Tensor Images(const at::Tensor& t) const { return t.reshape({-1, size_, weight_.size(0)}); }
  // Reshapes a tensor of x's shape to [..., groups, elements per group].
  at::Tensor Groups(const at::Tensor& t) const {
    if (size_ == 1) return t.flatten(-dimensions()).unflatten(-1, {groups_, -1});
    return Images(t).unflatten(2, {groups_, -1}).transpose(1, 2).flatten(2);
  }
  // Parameters of channels as [groups, channels per group].
  at::Tensor OfElements(const at::Tensor& t) const { return t.view({groups_, -1}); }

  int64_t size_, groups_;  // size_: elements of a channel
  double eps_;
  at::Tensor weight_, bias_;
};

// Elementwise replacement of a norm: weight * f(alpha * x + shift) + bias. alpha and shift are
// scalars; weight and bias have the shape of a row.
struct ElementFunction {
  const char* name;
  at::Tensor (*derivative)(const at::Tensor& x);  ///< of f
  bool has_shift;                                 ///< calls derf, else dyt
};
constexpr ElementFunction kElementFunctions[] = {
    // Zhu, Chen, He, LeCun & Liu 2025, "Transformers without Normalization", Algorithm 1.
    {"dyt", [](const at::Tensor& x) { return at::rsub(x.tanh().square(), 1); }, false},
    // Chen, Lu, Zhu, Sun & Liu 2025, "Stronger Normalization-Free Transformers".
    {"derf",
     [](const at::Tensor& x) { return x.square().neg().exp() * (2 * std::numbers::inv_sqrtpi); },
     true},
};

class ElementwiseNorm final : public NormModule {
 public:
  ElementwiseNorm(const ElementFunction& row, Shape shape)
      : NormModule(static_cast<int64_t>(shape.size())),
        row_(row),
        alpha_(register_parameter("alpha", at::full({1}, 0.5))),
        weight_(register_parameter("weight", at::ones(shape))),
        bias_(register_parameter("bias", at::zeros(shape))) {
    if (row.has_shift) shift_ = register_parameter("shift", at::zeros({1}));
  }

 private:
  at::Tensor Normalize(const at::Tensor& x) override {
    const at::IntArrayRef shape = weight_.sizes();
    return row_.has_shift ? planish::derf(x, shape, alpha_, shift_, weight_, bias_)
                          : planish::dyt(x, shape, alpha_, weight_, bias_);
  }

  // The derivative of the argument of f is alpha, so 1 / alpha takes the place of the deviation.
  at::Tensor Sigma(const at::Tensor& rows) const override {
    return alpha_.detach().to(rows.scalar_type()).reciprocal().expand({rows.size(0)});
  }
  at::Tensor Factor(const at::Tensor& x) const override {
    return row_.derivative(Argument(x)) * weight_.to(x.scalar_type());
  }

  // Returns alpha * x + shift in the type of x.
  at::Tensor Argument(const at::Tensor& x) const {
    const at::Tensor scaled = x * alpha_.to(x.scalar_type());
    return shift_.defined() ? scaled + shift_.to(x.scalar_type()) : scaled;
  }

  const ElementFunction& row_;
  at::Tensor alpha_, weight_, bias_, shift_;
};

// Batch norm over cases and, for images, positions. Rows are channels.
template <class Layer>
class BatchNorm final : public NormModule, public BatchStatistics {
 public:
  BatchNorm(Layer norm, int64_t dimensions)
      : NormModule(dimensions), norm_(register_module("norm", std::move(norm))) {}

 private:
  bool HasOwnStatistics() const override { return !has_sum(); }
  at::Tensor Normalize(const at::Tensor& x) override {
    if (is_training() && has_sum()) return NormalizeTogether(x);
    if constexpr (std::is_same_v<Layer, nn::BatchNorm1d>) {
      return norm_->forward(x.flatten(0, -2)).view_as(x);
    } else {
      return norm_->forward(x);
    }
  }
  at::Tensor Rows(const at::Tensor& t) const override {
    const int64_t channel = std::is_same_v<Layer, nn::BatchNorm1d> ? t.dim() - 1 : 1;
    return t.transpose(0, channel).flatten(1);
  }
  at::Tensor Sigma(const at::Tensor& rows) const override {
    return (rows.var(1, norm_->options.unbiased()) + norm_->options.eps()).sqrt();
  }
  at::Tensor Factor(const at::Tensor& x) const override {
    return OverChannels(norm_->weight.to(x.scalar_type()));
  }

  // Returns a value for each channel in a shape that x can be multiplied with.
  static at::Tensor OverChannels(const at::Tensor& t) {
    return std::is_same_v<Layer, nn::BatchNorm1d> ? t : t.view({1, -1, 1, 1});
  }

  // Normalizes by the statistics of all processes' x.
  at::Tensor NormalizeTogether(const at::Tensor& x) {
    const auto total = [&](const at::Tensor& t) {
      return Rows(t).sum(1, /*keepdim=*/false, at::kDouble);
    };
    at::Tensor count, shift;
    {
      at::NoGradGuard no_grad;
      const at::Tensor cases = at::full(
          {1}, static_cast<double>(x.numel() / norm_->options.num_features()), at::kDouble);
      const at::Tensor sums = SumOf(at::cat({total(x), cases.to(x.device())}));
      count = sums.slice(0, -1);
      shift = (sums.slice(0, 0, -1) / count).to(x.scalar_type());
    }
    // Any shift gives the same statistics; the rounded mean keeps them exact.
    const at::Tensor centred = x - OverChannels(shift);
    const at::Tensor sums =
        SumOf(at::stack({total(centred), total(centred.to(at::kDouble).square())}));
    const at::Tensor rest = sums[0] / count, variance = sums[1] / count - rest.square();
    const at::Tensor unbiased = variance * (count / (count - 1));
    UpdateEstimates(shift + rest.detach(), unbiased.detach());
    const at::Tensor rstd =
        ((norm_->options.unbiased() ? unbiased : variance) + norm_->options.eps()).rsqrt();
    const at::Tensor scale = rstd * norm_->weight;
    return (centred * OverChannels(scale.to(x.scalar_type()))) +
           OverChannels((norm_->bias - rest * scale).to(x.scalar_type()));
  }

  void UpdateEstimates(const at::Tensor& mean, const at::Tensor& variance) {
    at::NoGradGuard no_grad;
    norm_->num_batches_tracked.add_(1);
    const double momentum =
        norm_->options.momentum().value_or(1 / norm_->num_batches_tracked.template item<double>());
    norm_->running_mean.lerp_(mean.to(norm_->running_mean.scalar_type()), momentum);
    norm_->running_var.lerp_(variance.to(norm_->running_var.scalar_type()), momentum);
  }

  Layer norm_;
};

Module Batch(Shape shape, Options o) {
  const nn::BatchNormOptions options =
      nn::BatchNormOptions(shape[0]).eps(o.epsilon).unbiased(o.unbiased_variance);
  if (shape.size() == 1) {
    return std::make_shared<BatchNorm<nn::BatchNorm1d>>(nn::BatchNorm1d(options), 1);
  }
  return std::make_shared<BatchNorm<nn::BatchNorm2d>>(nn::BatchNorm2d(options), 3);
}

constexpr char kNone[] = "none", kBatch[] = "batch", kWeight[] = "weight", kGroup[] = "group";

}  // namespace

const std::vector<std::string>& NormNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all = {kNone, kBatch, kWeight};
    for (const internal::NormName& row : internal::kNormNames) all.push_back(LabNameOf(row));
    all.push_back(kGroup);
    for (const ElementFunction& row : kElementFunctions) all.push_back(row.name);
    return all;
  }();
  return names;
}

bool IsOfChannels(const std::string& norm) { return norm == kBatch || norm == kWeight; }

std::vector<std::string> RowNormNames(const std::string& first) {
  std::vector<std::string> names = NormNames();
  std::erase_if(names, IsOfChannels);
  std::ranges::stable_partition(names, [&](const std::string& name) { return name == first; });
  return names;
}

bool IsAblation(const std::string& norm) {
  return norm.starts_with("detach") || norm == "ada-as-coded";
}

std::shared_ptr<NormModule> MakeNorm(const std::string& name, const std::vector<int64_t>& shape,
                                     const NormOptions& options) {
  if (name == kNone) return std::make_shared<NoNorm>(static_cast<int64_t>(shape.size()));
  if (name == kBatch) return Batch(shape, options);
  if (name == kWeight) return std::make_shared<WeightNorm>(shape);
  if (name == kGroup) return std::make_shared<GroupNorm>(shape, options);
  for (const internal::NormName& row : internal::kNormNames) {
    if (LabNameOf(row) == name) return std::make_shared<RowNorm>(row, shape, options);
  }
  for (const ElementFunction& row : kElementFunctions) {
    if (row.name == name) return std::make_shared<ElementwiseNorm>(row, shape);
  }
  throw UsageError(fmt::format("[MakeNorm] norm must be one of {}, got \"{}\"",
                               fmt::join(NormNames(), ", "), name));
}

}  // namespace planish::lab
