#include "torch/norm/derivatives.h"

#include <ATen/ExpandUtils.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cstdint>
#include <vector>

#include "torch/norm/gains.h"

namespace planish {

namespace {

using at::Tensor;

/// Statistics of x as differentiable functions of x, and sums over groups of elements. Uses no
/// in-place operators, which torch.export does not allow; ATen's `1 - t` and `1 / t` contain one.
class Statistics {
 public:
  Statistics(const NormSpec& spec, const NormInputs& inputs) : spec_(spec) {
    const Tensor& x = inputs.x;
    const int64_t feature = FeatureDim(spec, x);
    for (int64_t d = 0; d < x.dim(); ++d) {
      (d == feature ? feature_ : others_).push_back(d);
      parameter_shape_.push_back(d == feature ? x.sym_size(d) : c10::SymInt(1));
      const bool kept = (d == feature) == (spec.over == Over::kBatch);
      statistics_shape_.push_back(kept ? x.sym_size(d) : c10::SymInt(1));
    }
    for (const int64_t d : Dims()) count_ *= x.sym_size(d);

    // Subtracting the saved mean cancels nothing; only the mean of the rest depends on x.
    const Tensor wide = Wide(x);
    if (!IsCentered(spec.norm)) {
      centred_ = wide;
    } else {
      centred_ = wide - SavedRow(inputs.statistics, 0) - SavedRow(inputs.statistics, 1);
      if (ViaMean(spec.norm)) centred_ = centred_ - Mean(centred_);
    }
    if (!ViaDeviation(spec.norm)) {
      rstd = SavedRow(inputs.statistics, 2);
    } else if (AddsEpsToDeviation(spec.norm)) {
      deviation = (Mean(centred_.square()) * Unbiasing()).sqrt();
      rstd = (deviation + spec.eps).reciprocal();
      b = Unbiasing() * (deviation.reciprocal() * spec.eps + 1);
    } else if (spec.unbiased) {
      const Tensor var = Mean(centred_.square()) * Unbiasing();
      rstd = (var + spec.eps).rsqrt();
      b = at::full_like(var, Unbiasing());
    } else {
      rstd = (Mean(centred_.square()) + spec.eps).rsqrt();
    }
    xhat = centred_ * rstd;
  }

  Tensor xhat;  ///< [as x]
  // One element for each group, broadcastable to x.
  Tensor rstd;
  Tensor deviation;  ///< only for kAdaAsCoded
  Tensor b;          ///< the factor before xhat * mean(g * xhat); undefined: 1

  /// Returns the mean over each group.
  Tensor Mean(const Tensor& t) const { return t.mean(Dims(), /*keepdim=*/true); }

  /// Returns the sum over all dimensions except those of `weight`; if it is undefined, except the
  /// features.
  Tensor SumToParameter(const Tensor& t, const Tensor& weight, at::ScalarType type) const {
    if (HasGains(weight)) return at::sum_to(t, weight.sym_sizes()).to(type);
    return (others_.empty() ? t : t.sum(others_)).to(type);
  }

  /// Returns a weight in a shape that broadcasts to x.
  Tensor Parameter(const Tensor& t) const {
    return HasGains(t) ? Wide(t) : Wide(t).view_symint(parameter_shape_);
  }

  /// Returns dL/dxhat from dy.
  Tensor ThroughOutput(const Tensor& dy, const Tensor& weight) const {
    if (IsAda(spec_.norm)) return dy * Factor();
    return weight.defined() ? dy * Parameter(weight) : dy;
  }

  /// Returns AdaNorm's scale * (1 - slope * xhat), a constant for all derivatives.
  Tensor Factor() const { return at::rsub(xhat.detach() * spec_.slope, 1) * spec_.scale; }

  /// Returns g - a * mean(g) - b * xhat * mean(g * xhat), which is dx / rstd. The map is symmetric.
  Tensor Project(const Tensor& g) const {
    Tensor result = g;
    if (ViaMean(spec_.norm)) result = result - Mean(g);
    if (ViaDeviation(spec_.norm)) result = result - TimesB(xhat * Mean(g * xhat));
    return result;
  }

  Tensor TimesB(const Tensor& t) const { return b.defined() ? b * t : t; }

  /// Returns the gradient of x from those of xhat and rstd. drstd is the mean over a group. Adds
  /// `more` to the gradient of the centred x.
  Tensor ToX(const Tensor& dxhat, const Tensor& drstd, const Tensor& more) const {
    Tensor dcentred = rstd * dxhat;
    if (ViaDeviation(spec_.norm)) {
      dcentred = dcentred - TimesB(xhat * (rstd * Mean(dxhat * xhat) + rstd.square() * drstd));
    }
    if (more.defined()) dcentred = dcentred + more;
    return ViaMean(spec_.norm) ? dcentred - Mean(dcentred) : dcentred;
  }

  /// Returns the gradient of the centred x that passes through b, from db, the mean over a group.
  /// Only the b of kAdaAsCoded depends on x.
  Tensor ThroughB(const Tensor& db) const {
    const Tensor slope = Unbiasing() * -spec_.eps / deviation.square();
    return db * slope * Unbiasing() / deviation * centred_;
  }

 private:
  const std::vector<int64_t>& Dims() const {
    return spec_.over == Over::kBatch ? others_ : feature_;
  }

  /// Returns a row of the saved statistics in a shape that broadcasts to x.
  Tensor SavedRow(const Tensor& statistics, int64_t row) const {
    return statistics.select(0, row).reshape_symint(statistics_shape_);
  }

  c10::SymFloat Unbiasing() const { return BesselFactor(count_); }

  NormSpec spec_;
  std::vector<int64_t> feature_, others_;
  std::vector<c10::SymInt> parameter_shape_, statistics_shape_;
  c10::SymInt count_ = 1;
  Tensor centred_;
};

Tensor Plus(const Tensor& a, const Tensor& b) { return a.defined() ? a + b : b; }

Tensor AsType(const Tensor& t, const Tensor& like) {
  return t.defined() ? t.to(like.scalar_type()) : t;
}

}  // namespace

Tensor ComposedStatistics(const NormSpec& spec, const Tensor& x_) {
  const Tensor x = Wide(x_);
  std::vector<int64_t> dims;
  c10::SymInt n = 1;
  const int64_t feature = FeatureDim(spec, x);
  for (int64_t d = 0; d < x.dim(); ++d) {
    if ((d == feature) == (spec.over == Over::kBatch)) continue;
    dims.push_back(d);
    n *= x.sym_size(d);
  }
  Tensor mean = x.mean(dims, /*keepdim=*/true);
  if (!IsCentered(spec.norm)) mean = at::zeros_like(mean);
  const Tensor rest = x - mean;  // the mean of `rest` is the rounding error of `mean`
  const Tensor mean_lo = IsCentered(spec.norm) ? rest.mean(dims, /*keepdim=*/true) : mean;
  const Tensor biased = (rest - mean_lo).square().mean(dims, /*keepdim=*/true);
  const bool ada = AddsEpsToDeviation(spec.norm);
  const Tensor var = ada || spec.unbiased ? biased * BesselFactor(n) : biased;
  const Tensor rstd = ada ? (var.sqrt() + spec.eps).reciprocal() : (var + spec.eps).rsqrt();
  std::vector<Tensor> rows = {mean, mean_lo, rstd};
  if (spec.over == Over::kBatch) {  // not BesselFactor(n): ONNX has no symbolic factors
    rows.push_back(at::var(rest, dims, /*unbiased=*/true, /*keepdim=*/true));
  }
  return at::stack(rows).reshape_symint(StatisticsSizes(spec, x)).detach();
}

Tensor ComposedNorm(const NormSpec& spec, const NormInputs& inputs) {
  const Statistics s(spec, inputs);
  Tensor y = s.ThroughOutput(s.xhat, inputs.weight);
  if (inputs.bias.defined()) y = y + s.Parameter(inputs.bias);
  return AsType(y, inputs.x);
}

NormGradients ComposedNormBackward(const NormSpec& spec, const Tensor& dy, const Tensor& dsum,
                                   const NormInputs& inputs, std::array<bool, 3> mask) {
  const Statistics s(spec, inputs);
  const Tensor wide = Wide(dy);
  const at::ScalarType type = (inputs.weight.defined() ? inputs.weight : inputs.x).scalar_type();
  NormGradients gradients;
  if (mask[0]) {
    const Tensor dx = s.rstd * s.Project(s.ThroughOutput(wide, inputs.weight));
    gradients.dx = AsType(dsum.defined() ? dx + dsum : dx, inputs.x);
  }
  if (mask[1]) gradients.dweight = s.SumToParameter(wide * s.xhat, inputs.weight, type);
  if (mask[2]) gradients.dbias = s.SumToParameter(wide, inputs.weight, type);
  return gradients;
}

NormBackwardGradients NormBackwardBackward(const NormSpec& spec, const NormGradients& g_,
                                           const Tensor& dy_, const NormInputs& inputs) {
  const Statistics s(spec, inputs);
  const Tensor u = Wide(g_.dx), dy = Wide(dy_);
  const Tensor weight = inputs.weight;
  Tensor ddy, dweight, dxhat, drstd, dcentred;
  if (u.defined()) {
    const Tensor g = s.ThroughOutput(dy, weight), dg = s.rstd * s.Project(u);
    ddy = s.ThroughOutput(dg, weight);
    if (weight.defined()) dweight = s.SumToParameter(dg * dy, weight, weight.scalar_type());
    if (ViaDeviation(spec.norm)) {
      const Tensor gx = s.Mean(g * s.xhat), ux = s.Mean(u * s.xhat);
      dxhat = -s.TimesB(s.rstd * (u * gx + g * ux));
      drstd = s.Mean(u * s.Project(g));
      if (AddsEpsToDeviation(spec.norm)) dcentred = s.ThroughB(-s.rstd * gx * ux);
    }
  }
  if (g_.dweight.defined()) {
    const Tensor ddweight = s.Parameter(g_.dweight);
    ddy = Plus(ddy, s.xhat * ddweight);
    dxhat = Plus(dxhat, dy * ddweight);
  }
  if (g_.dbias.defined()) ddy = Plus(ddy, s.Parameter(g_.dbias).expand_as(dy));
  Tensor dx;
  if (dxhat.defined()) {
    dx = s.ToX(dxhat, drstd.defined() ? drstd : at::zeros_like(s.rstd), dcentred);
  }
  return {AsType(ddy, dy_), AsType(dx, inputs.x), dweight};
}

}  // namespace planish
