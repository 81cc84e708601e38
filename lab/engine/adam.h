#ifndef PLANISH_LAB_ENGINE_ADAM_H_
#define PLANISH_LAB_ENGINE_ADAM_H_

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace planish::lab {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Adam (Kingma & Ba 2014, algorithm 1) on ATen's fused kernel: one pass over weights, gradients
/// and both moments.
class Adam {
 public:
  struct Options {
    double learning_rate = 1e-3;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    /// Uses the bias correction of much Theano code (order-embeddings, skip-thoughts), whose betas
    /// are 1 minus the paper's.
    /// Update t corrects the moments by 1 - (1 - beta)^t in place of 1 - beta^t and adds epsilon to
    /// the root of the uncorrected second moment.
    /// With the default betas the first updates are then about 3 to 6.5 times as large.
    bool theano = false;
  };

  /// Updates `parameters` in place. Moments start at zero.
  Adam(NamedTensors parameters, const Options& options);

  /// Sets the learning rate of all later updates.
  void SetLearningRate(double rate) { options_.learning_rate = rate; }

  /// Updates the parameters from their gradients, then clears the gradients, so that backward
  /// stores new buffers instead of adding to old ones. Throws std::runtime_error naming a parameter
  /// that has no gradient.
  void Step();

  /// Returns moments and step counts by name, sharing memory with this object. Checkpoints store
  /// them.
  NamedTensors State() const;

 private:
  Options options_;
  NamedTensors parameters_;
  std::vector<at::Tensor> weights_, first_moments_, second_moments_, steps_;
  std::vector<at::Tensor> forever_;  // large step counts: no correction
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_ADAM_H_
