#ifndef PLANISH_LAB_ENGINE_ADAM_H_
#define PLANISH_LAB_ENGINE_ADAM_H_

#include <ATen/core/Tensor.h>

#include <vector>

#include "lab/engine/optimizer.h"
#include "lab/engine/settings.h"

namespace planish::lab {

/// Adam (Kingma & Ba 2014, algorithm 1) on ATen's fused kernel: one pass over weights, gradients
/// and both moments.
class Adam : public Optimizer {
 public:
  struct Options {
    double learning_rate = 1e-3;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
  };

  /// Moments start at zero.
  Adam(NamedTensors parameters, const Options& options);

  void SetLearningRate(double rate) override { options_.learning_rate = rate; }
  void Step() override;

  /// Returns "adam.first_moment.NAME", "adam.second_moment.NAME" and "adam.step.NAME" of each
  /// parameter.
  NamedTensors State() const override;
  void CheckState(int64_t updates) const override;

 protected:
  /// Moves the weights after `updates` updates, this one included. A derived class can correct the
  /// moments otherwise.
  virtual void Move(const std::vector<at::Tensor>& gradients, double updates);

  /// Calls the kernel, which corrects the moments for `updates`.
  void Apply(const std::vector<at::Tensor>& gradients, double updates, double learning_rate);

  const Options& options() const { return options_; }

 private:
  Options options_;
  NamedTensors parameters_;
  std::vector<at::Tensor> weights_, first_moments_, second_moments_;
  // Kept on the CPU, because reading a count from a GPU waits for the gradients.
  std::vector<at::Tensor> steps_;
};

/// Returns the options of the settings lr, adam_beta1, adam_beta2 and adam_eps.
Adam::Options AdamOptionsOf(const Settings& settings);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_ADAM_H_
