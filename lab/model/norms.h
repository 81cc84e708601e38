#ifndef PLANISH_LAB_MODEL_NORMS_H_
#define PLANISH_LAB_MODEL_NORMS_H_

#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <vector>

// Which normalisation a model uses is a name in its settings; this is the one place that turns the
// name into a module.
namespace planish::lab {

/// What a model says of the place where it wants a norm.
struct NormOptions {
  double epsilon = 1e-5;
  bool unbiased_variance = false;  ///< batch: divide by N - 1 in training (Ba et al. 2016, 6.6)
};

/// A module N x C -> N x C; `none` gives a module that returns its input.
class NormModule : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& x) = 0;
};

/// Names that MakeNorm knows: none, batch, layer, layer-simple, rms, detach, detach-mean,
/// detach-deviation, ada: norms of planish::nn with the options that they have by default.
const std::vector<std::string>& NormNames();

/// The norm called `name` over rows of `channels`. Draws no random numbers, so that models that
/// differ in the norm alone start from the same weights. Throws UsageError for an unknown name.
std::shared_ptr<NormModule> MakeNorm(const std::string& name, int64_t channels,
                                     const NormOptions& options = {});

}  // namespace planish::lab

#endif  // PLANISH_LAB_MODEL_NORMS_H_
