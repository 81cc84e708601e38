#ifndef PLANISH_LAB_ENGINE_OPTIMIZER_H_
#define PLANISH_LAB_ENGINE_OPTIMIZER_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace planish::lab {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Returns the parameters of a model by name.
NamedTensors ParametersOf(const torch::nn::Module& model);

/// Optimizer of a run. It updates the parameters that it was created with in place.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// Sets the learning rate of all later updates.
  virtual void SetLearningRate(double rate) = 0;

  /// Updates the parameters from their gradients, then clears the gradients, so that backward
  /// stores new buffers instead of adding to old ones. Throws std::runtime_error naming a parameter
  /// that has no gradient.
  virtual void Step() = 0;

  /// Returns the state beside the parameters by name, sharing memory with this object. Checkpoints
  /// store it.
  virtual NamedTensors State() const = 0;

  /// Throws std::invalid_argument with a sentence if `updates` updates cannot have left this state.
  virtual void CheckState(int64_t updates) const = 0;
};

/// Returns the gradients of `parameters` and clears them. Throws std::runtime_error naming the
/// first parameter without a gradient; `optimizer` begins the message.
std::vector<at::Tensor> TakeGradients(const NamedTensors& parameters, std::string_view optimizer);

/// Changes the gradients of a model before an update. Empty: leaves them unchanged.
using Clipping = std::function<void(const std::vector<at::Tensor>& gradients)>;

/// Returns the clipping that scales all gradients by one factor, so that their norm together is at
/// most `limit` (Pascanu et al. 2013, algorithm 1). A limit of 0 disables it.
Clipping ClipTogether(double limit);

/// Returns the clipping that scales each gradient so that its norm is at most `limit`. A limit of 0
/// disables it.
Clipping ClipEach(double limit);

/// Returns the norm of the concatenated gradients as a double tensor on their device.
at::Tensor NormOf(const std::vector<at::Tensor>& gradients);

/// Multiplies the gradients by limit / norm if `norm`, a result of NormOf, is above `limit`. Does
/// not wait for a GPU.
void ScaleToNorm(const std::vector<at::Tensor>& gradients, const at::Tensor& norm, double limit);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_OPTIMIZER_H_
