#include "lab/model/norms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <utility>

#include "lab/error.h"
#include "planish/torch.h"

namespace planish::lab {

namespace {

class NoNorm final : public NormModule {
 public:
  at::Tensor forward(const at::Tensor& x) override { return x; }
};

// A norm of planish::nn behind the interface.
template <class Layer>
class Wrapped final : public NormModule {
 public:
  explicit Wrapped(Layer norm) : norm_(register_module("norm", std::move(norm))) {}
  at::Tensor forward(const at::Tensor& x) override { return norm_->forward(x); }

 private:
  Layer norm_;
};

using Module = std::shared_ptr<NormModule>;

template <class Layer>
Module Wrap(Layer norm) {
  return std::make_shared<Wrapped<Layer>>(std::move(norm));
}

Module Detach(int64_t channels, double epsilon, bool mean, bool deviation) {
  return Wrap(
      nn::DetachNorm(nn::DetachNormOptions({channels}).mean(mean).std(deviation).eps(epsilon)));
}

struct Entry {
  std::string name;
  Module (*make)(int64_t channels, const NormOptions& options);
};

const std::vector<Entry>& Table() {
  using Options = const NormOptions&;
  static const std::vector<Entry> table = {
      {"none", [](int64_t, Options) -> Module { return std::make_shared<NoNorm>(); }},
      {"batch",
       [](int64_t c, Options o) {
         return Wrap(nn::BatchNorm1d(
             nn::BatchNorm1dOptions(c).eps(o.epsilon).unbiased(o.unbiased_variance)));
       }},
      {"layer",
       [](int64_t c, Options o) {
         return Wrap(nn::LayerNorm(nn::LayerNormOptions({c}).eps(o.epsilon)));
       }},
      {"layer-simple",
       [](int64_t c, Options o) {
         return Wrap(nn::LayerNormSimple(nn::LayerNormSimpleOptions({c}).eps(o.epsilon)));
       }},
      {"rms", [](int64_t c,
                 Options o) { return Wrap(nn::RMSNorm(nn::RMSNormOptions({c}).eps(o.epsilon))); }},
      {"detach", [](int64_t c, Options o) { return Detach(c, o.epsilon, true, true); }},
      {"detach-mean", [](int64_t c, Options o) { return Detach(c, o.epsilon, true, false); }},
      {"detach-deviation", [](int64_t c, Options o) { return Detach(c, o.epsilon, false, true); }},
      {"ada", [](int64_t c,
                 Options o) { return Wrap(nn::AdaNorm(nn::AdaNormOptions({c}).eps(o.epsilon))); }},
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
