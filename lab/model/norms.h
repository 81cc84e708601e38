#ifndef PLANISH_LAB_MODEL_NORMS_H_
#define PLANISH_LAB_MODEL_NORMS_H_

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lab/run/results.h"

// Which normalisation a model uses is a name in its settings; this is the one place that turns the
// name into a module.
namespace planish::lab {

/// What a model says of the place where it wants a norm.
struct NormOptions {
  double epsilon = 1e-5;
  bool unbiased_variance = false;  ///< batch: divide by N - 1 in training (Ba et al. 2016, 6.6)
  double ada_c = 1;                ///< C of AdaNorm (Xu et al. 2019, Eq. 9)
  double ada_k = 0.1;              ///< k of AdaNorm
};

/// A module whose output has its input's shape; `none` gives one that returns its input.
class NormModule : public torch::nn::Module {
 public:
  at::Tensor forward(const at::Tensor& x);

  /// From now on forward passes are watched: their backward passes add to what Watched returns,
  /// which is empty at first. Gradients keep their bits.
  void Watch();

  /// What backward passes have left since Watch, with an empty name, and ends watching. Nothing
  /// when none has come through to an input that needs a gradient.
  std::optional<NormGradients> Watched();

 protected:
  /// `dimensions`: how many of the last ones are normalised together.
  explicit NormModule(int64_t dimensions) : dimensions_(dimensions) {}

  virtual at::Tensor Normalise(const at::Tensor& x) = 0;

  /// `t`, which has the shape of the input, as rows: [rows, numbers normalised together].
  virtual at::Tensor Rows(const at::Tensor& t) const;

  /// sigma of each of these rows.
  virtual at::Tensor Sigma(const at::Tensor& rows) const = 0;

  /// What dL/dy is multiplied with to be the gradient of the normalised numbers: gain, or AdaNorm's
  /// factor; 1 where it is undefined. `x` is the input.
  virtual at::Tensor Factor(const at::Tensor& /*x*/) const { return {}; }

 private:
  class Sums;
  int64_t dimensions_;
  std::shared_ptr<Sums> sums_;  // while watched
};

/// Names that MakeNorm knows: none, batch, layer, layer-simple, rms, detach, detach-mean,
/// detach-std, ada: norms of planish::nn.
const std::vector<std::string>& NormNames();

/// The norm called `name` over the last dimensions of its input, which have the sizes `shape`: {C}
/// for [..., C], {C, H, W} for images [N, C, H, W]. Batch norm takes the numbers of each of the C
/// channels, of all cases, together. Draws no random numbers, so that models that differ in the
/// norm alone start from the same weights. Throws UsageError for an unknown name.
std::shared_ptr<NormModule> MakeNorm(const std::string& name, const std::vector<int64_t>& shape,
                                     const NormOptions& options = {});

}  // namespace planish::lab

#endif  // PLANISH_LAB_MODEL_NORMS_H_
