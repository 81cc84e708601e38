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
    /// Update t corrects its moments, which start at zero, by 1 - (1 - beta)^t in place of 1 -
    /// beta^t, and has epsilon beside the root of the uncorrected second moment: what much code for
    /// Theano does (such as that of order-embeddings and of skip-thoughts), whose betas are 1 minus
    /// the paper's. By default the first updates are then about 3 to 6.5 times as large.
    bool theano = false;
  };

  /// `parameters` are updated in place. Moments start at zero.
  Adam(NamedTensors parameters, const Options& options);

  /// The learning rate of the updates from here on.
  void SetLearningRate(double rate) { options_.learning_rate = rate; }

  /// One update from the parameters' gradients, which are then dropped (backward hands over its own
  /// buffers instead of adding to old ones). Throws std::runtime_error naming a parameter that has
  /// no gradient.
  void Step();

  /// Moments and step counts by name, sharing memory with this object: what a checkpoint holds.
  NamedTensors State() const;

 private:
  Options options_;
  NamedTensors parameters_;
  std::vector<at::Tensor> weights_, first_moments_, second_moments_, steps_;
  std::vector<at::Tensor> forever_;  // of theano: steps so late that the kernel corrects nothing
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_ADAM_H_
