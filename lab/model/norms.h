#ifndef PLANISH_LAB_MODEL_NORMS_H_
#define PLANISH_LAB_MODEL_NORMS_H_

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lab/run/results.h"

// Norms by name. Only this file turns the name in a model's settings into a module.
namespace planish::lab {

/// Options of a norm at its place in a model.
struct NormOptions {
  double epsilon = 1e-5;
  bool unbiased_variance = false;  ///< batch: divide by N - 1 in training (Ba et al. 2016, 6.6)
  double ada_c = 1;                ///< C of AdaNorm (Xu et al. 2019, Eq. 9)
  double ada_k = 0.1;              ///< k of AdaNorm
};

/// Module whose output has its input's shape; `none` returns its input.
class NormModule : public torch::nn::Module {
 public:
  at::Tensor forward(const at::Tensor& x);

  /// Starts to record the gradients before and after the norm, without changing them: the backward
  /// passes of later forward passes add to WatchedSums. Does not record synchronized batch norm.
  void Watch();

  /// Ends the recording. Returns sums over the rows of all recorded backward passes, as [kSums]
  /// doubles on the CPU. Sums of several processes can be added.
  at::Tensor WatchedSums();

  /// Returns the means over rows of WatchedSums, with an empty name; nullopt if no backward pass
  /// reached an input that needs a gradient.
  static std::optional<NormGradients> GradientsOf(const at::Tensor& sums);

  static constexpr int64_t kSums = 8;  ///< rows, and a sum for each member of NormGradients

 protected:
  /// `dimensions`: number of last dimensions that are normalized together.
  explicit NormModule(int64_t dimensions) : dimensions_(dimensions) {}
  int64_t dimensions() const { return dimensions_; }

  virtual at::Tensor Normalize(const at::Tensor& x) = 0;

  /// Returns whether statistics depend on x only. If not, forward passes are not recorded.
  virtual bool HasOwnStatistics() const { return true; }

  /// Returns `t`, which has the input's shape, as rows: [rows, elements normalized together].
  virtual at::Tensor Rows(const at::Tensor& t) const;

  /// Returns sigma of each of these rows.
  virtual at::Tensor Sigma(const at::Tensor& rows) const = 0;

  /// Returns the factor from dL/dy to the gradient of the normalized values: the gain or AdaNorm's
  /// factor; undefined means 1. `x` is the input.
  virtual at::Tensor Factor(const at::Tensor& /*x*/) const { return {}; }

 private:
  class Sums;
  int64_t dimensions_;
  std::shared_ptr<Sums> sums_;  // while watched
};

/// Returns the names that MakeNorm knows: none, batch, those of planish::Norm (layer, layer-simple,
/// rms, detach, detach-mean, detach-std, ada, ada-as-coded), group, and the elementwise functions
/// dyt and derf.
const std::vector<std::string>& NormNames();

/// Returns the names without batch, whose statistics depend on other cases and positions. `first`,
/// a task's default, comes first.
std::vector<std::string> RowNormNames(const std::string& first);

/// Returns the norm called `name` over the last dimensions of its input. `shape` has their sizes:
/// {C} for [..., C], {C, H, W} for images [N, C, H, W]. Batch norm normalizes each of the C
/// channels over all cases. Draws no random numbers, so that models that differ only in the norm
/// start from the same weights. Throws UsageError for an unknown name.
std::shared_ptr<NormModule> MakeNorm(const std::string& name, const std::vector<int64_t>& shape,
                                     const NormOptions& options = {});

}  // namespace planish::lab

#endif  // PLANISH_LAB_MODEL_NORMS_H_
