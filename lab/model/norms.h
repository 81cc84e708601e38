#ifndef PLANISH_LAB_MODEL_NORMS_H_
#define PLANISH_LAB_MODEL_NORMS_H_

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
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

/// Rows of a norm in one backward pass, in double: [rows, elements normalized together]. Rows that
/// no gradient reaches, such as padding, are left out.
struct NormRows {
  at::Tensor x;
  at::Tensor g;   ///< gradient of the normalized values: dL/dy times the gain or AdaNorm's factor
  at::Tensor dx;  ///< dL/dx
  at::Tensor sigma;  ///< [rows]
};

/// The statistics of a row that gradients flow through, in a norm that subtracts the mean.
struct NormPaths {
  bool via_mean = true, via_deviation = true;
  bool unbiased = false;  ///< sigma is the unbiased deviation plus eps
};

/// Module whose output has its input's shape; `none` returns its input.
class NormModule : public torch::nn::Module {
 public:
  at::Tensor forward(const at::Tensor& x);

  /// Returns the weight with which the layer before the norm computes the norm's input. `weight`
  /// normalizes w, whose dimension `dim` has the units; all other norms return w.
  virtual at::Tensor Weight(const at::Tensor& w, int64_t /*dim*/ = 0) { return w; }

  /// Sets the gains of `weight` to the lengths of w, so that Weight(w, dim) is w at first, as for
  /// all other norms.
  virtual void StartFrom(const at::Tensor& /*w*/, int64_t /*dim*/ = 0) {}

  /// Starts to record the gradients before and after the norm, without changing them: the backward
  /// passes of later forward passes add to WatchedSums. Does not record synchronized batch norm.
  void Watch();

  /// Ends the recording. Returns sums over the rows of all recorded backward passes, as [kSums]
  /// doubles on the CPU. Sums of several processes can be added.
  at::Tensor WatchedSums();

  /// Starts to call `record` in the backward passes of later forward passes, like Watch; an empty
  /// function ends it.
  void Watch(std::function<void(const NormRows&)> record) { record_ = std::move(record); }

  /// Returns the paths of the gradients; nullopt for norms whose rows are not centred, or are
  /// channels.
  virtual std::optional<NormPaths> Paths() const { return {}; }

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
  std::function<void(const NormRows&)> record_;
};

/// Returns the names that MakeNorm knows: none, batch, weight, those of planish::Norm (layer,
/// layer-simple, rms, detach, detach-mean, detach-std, ada, ada-as-coded), group, and the
/// elementwise functions dyt and derf.
const std::vector<std::string>& NormNames();

/// Returns the names without batch, whose statistics depend on other cases and positions, and
/// without weight, which needs a layer of weights directly before each norm. `first`, a task's
/// default, comes first.
std::vector<std::string> RowNormNames(const std::string& first);

/// Returns true for a norm made for an ablation: layer norm whose gradient is detached, and AdaNorm
/// as its authors coded it.
bool IsAblation(const std::string& norm);

/// Returns the norm called `name` over the last dimensions of its input. `shape` has their sizes:
/// {C} for [..., C], {H, W, C} for images [N, H, W, C]. Batch norm normalizes each of the C
/// channels over all cases; it takes {C, H, W} for images [N, C, H, W]. `weight` has a gain for
/// each of C units, and its caller uses NormModule::Weight. Draws no random numbers, so that models
/// that differ only in the norm start from the same weights. Throws UsageError for an unknown name.
std::shared_ptr<NormModule> MakeNorm(const std::string& name, const std::vector<int64_t>& shape,
                                     const NormOptions& options = {});

/// Returns true for norms whose parameters and statistics are those of channels, wherever the
/// channels of an image are: batch and weight. Their shape is {C}.
bool IsOfChannels(const std::string& norm);

/// Returns layer(x), computed with norm.Weight of the layer's weight: the input of the norm. Layer
/// is torch::nn::Linear, Linear or torch::nn::Conv2d.
template <class Layer>
at::Tensor InputOfNorm(NormModule& norm, Layer& layer, const at::Tensor& x) {
  // The module keeps its parameter; only the handle that `forward` reads is replaced.
  struct Restored {
    at::Tensor& handle;
    const at::Tensor parameter = handle;
    ~Restored() { handle = parameter; }
  } weight{layer->weight};
  layer->weight = norm.Weight(weight.parameter);
  return layer->forward(x);
}

}  // namespace planish::lab

#endif  // PLANISH_LAB_MODEL_NORMS_H_
