#include "lab/model/norms.h"

#include <ATen/ops/batch_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "lab/error.h"
#include "planish/torch.h"

namespace planish::lab {

namespace {

class NoNorm final : public NormModule {
 public:
  at::Tensor forward(const at::Tensor& x) override { return x; }
};

class LayerNorm final : public NormModule {
 public:
  LayerNorm(int64_t channels, double epsilon, bool affine)
      : norm_(register_module(
            "norm",
            nn::LayerNorm(
                nn::LayerNormOptions({channels}).eps(epsilon).elementwise_affine(affine)))) {}
  at::Tensor forward(const at::Tensor& x) override { return norm_->forward(x); }

 private:
  nn::LayerNorm norm_;
};

// Batch normalisation (Ba et al. 2016 Eq 2) on ATen's kernel, with running estimates (momentum 0.1)
// for evaluation.
class BatchNorm final : public NormModule {
 public:
  BatchNorm(int64_t channels, const NormOptions& options)
      : options_(options),
        weight_(register_parameter("weight", at::ones({channels}))),
        bias_(register_parameter("bias", at::zeros({channels}))),
        running_mean_(register_buffer("running_mean", at::zeros({channels}))),
        running_var_(register_buffer("running_var", at::ones({channels}))) {}

  at::Tensor forward(const at::Tensor& x) override {
    if (!is_training() || !options_.unbiased_variance)
      return Normalise(x, weight_, options_.epsilon);
    // With v the biased variance and r = (N-1)/N, the unbiased one is v/r, and
    // 1/sqrt(v/r + eps) = sqrt(r) / sqrt(v + r*eps): the biased kernel with another eps and gain.
    const auto n = static_cast<double>(x.size(0));
    const double r = (n - 1) / n;
    return Normalise(x, weight_ * std::sqrt(r), r * options_.epsilon);
  }

 private:
  at::Tensor Normalise(const at::Tensor& x, const at::Tensor& gain, double epsilon) {
    return at::batch_norm(x, gain, bias_, running_mean_, running_var_, is_training(),
                          /*momentum=*/0.1, epsilon, /*cudnn_enabled=*/true);
  }

  NormOptions options_;
  at::Tensor weight_, bias_, running_mean_, running_var_;
};

struct Entry {
  std::string name;
  std::shared_ptr<NormModule> (*make)(int64_t channels, const NormOptions& options);
};

const std::vector<Entry>& Table() {
  using Module = std::shared_ptr<NormModule>;
  static const std::vector<Entry> table = {
      {"none", [](int64_t, const NormOptions&) -> Module { return std::make_shared<NoNorm>(); }},
      {"batch",
       [](int64_t c, const NormOptions& o) -> Module { return std::make_shared<BatchNorm>(c, o); }},
      {"layer",
       [](int64_t c, const NormOptions& o) -> Module {
         return std::make_shared<LayerNorm>(c, o.epsilon, true);
       }},
      {"layer-simple",
       [](int64_t c, const NormOptions& o) -> Module {
         return std::make_shared<LayerNorm>(c, o.epsilon, false);
       }},
  };
  return table;
}

}  // namespace

const std::vector<std::string>& NormNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Entry& entry : Table()) all.push_back(entry.name);
    return all;
  }();
  return names;
}

std::shared_ptr<NormModule> MakeNorm(const std::string& name, int64_t channels,
                                     const NormOptions& options) {
  for (const Entry& entry : Table()) {
    if (entry.name == name) return entry.make(channels, options);
  }
  throw UsageError(fmt::format("[MakeNorm] norm must be one of {} but has \"{}\"",
                               fmt::join(NormNames(), ", "), name));
}

}  // namespace planish::lab
