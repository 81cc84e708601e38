#include "lab/model/residual.h"

#include <ATen/TensorOperators.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "lab/error.h"
#include "lab/model/dropout.h"

namespace planish::lab {

namespace {

struct PlacementRow {
  const char* name;
  Placement placement;
  bool input, output, after_sum, embedding, final;  // where norms are
};
constexpr PlacementRow kPlacements[] = {
    {"pre", Placement::kPre, true, false, false, false, true},
    {"post", Placement::kPost, false, false, true, false, false},
    {"peri", Placement::kPeri, true, true, false, true, true},
    {"sandwich", Placement::kSandwich, true, true, false, false, true},
    {"deepnorm", Placement::kDeepNorm, false, false, true, false, false},
    {kPreNoFinalName, Placement::kPreNoFinal, true, false, false, false, false},
};

const PlacementRow& RowOf(Placement placement) {
  return *std::ranges::find(kPlacements, placement, &PlacementRow::placement);
}

ResidualFactors Factors(Placement placement, double alpha, double beta) {
  if (placement != Placement::kDeepNorm) return {};
  return {alpha, beta};
}

}  // namespace

std::vector<std::string> PlacementNames(const std::string& first) {
  std::vector<std::string> names;
  for (const PlacementRow& row : kPlacements) {
    if (row.placement != Placement::kPreNoFinal) names.emplace_back(row.name);
  }
  std::ranges::stable_partition(names, [&](const std::string& name) { return name == first; });
  return names;
}

Placement PlacementOf(const std::string& name) {
  std::vector<std::string> names;
  for (const PlacementRow& row : kPlacements) {
    if (row.name == name) return row.placement;
    names.emplace_back(row.name);
  }
  throw UsageError(fmt::format("[PlacementOf] placement must be one of {}, got \"{}\"",
                               fmt::join(names, ", "), name));
}

bool HasInputNorm(Placement placement) { return RowOf(placement).input; }
bool HasFinalNorm(Placement placement) { return RowOf(placement).final; }
bool HasEmbeddingNorm(Placement placement) { return RowOf(placement).embedding; }

ResidualFactors FactorsOfStack(Placement placement, int64_t layers) {
  const auto n = static_cast<double>(layers);
  return Factors(placement, std::pow(2 * n, 0.25), std::pow(8 * n, -0.25));
}

ResidualFactors FactorsOfEncoder(Placement placement, int64_t layers, int64_t decoder_layers) {
  const double product =
      std::pow(static_cast<double>(layers), 4) * static_cast<double>(decoder_layers);
  return Factors(placement, 0.81 * std::pow(product, 1. / 16), 0.87 * std::pow(product, -1. / 16));
}

ResidualFactors FactorsOfDecoder(Placement placement, int64_t layers) {
  const auto m = static_cast<double>(layers);
  return Factors(placement, std::pow(3 * m, 0.25), std::pow(12 * m, -0.25));
}

Residual::Residual(torch::nn::Module& layer, const std::string& name,
                   const ResidualOptions& options,
                   const std::function<std::shared_ptr<NormModule>()>& make_norm)
    : options_(options), norm_(layer.register_module(name + "_norm", make_norm())) {
  if (RowOf(options.placement).output) {
    out_norm_ = layer.register_module(name + "_out_norm", make_norm());
  }
}

at::Tensor Residual::Input(const at::Tensor& x) const {
  return HasInputNorm(options_.placement) ? norm_->forward(x) : x;
}

at::Tensor Residual::Output(const at::Tensor& x, const at::Tensor& y, bool training) const {
  const at::Tensor sum =
      AddDropout(options_.alpha == 1 ? x : x * options_.alpha,
                 out_norm_ ? out_norm_->forward(y) : y, options_.dropout, training);
  return RowOf(options_.placement).after_sum ? norm_->forward(sum) : sum;
}

}  // namespace planish::lab
