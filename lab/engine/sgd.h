#ifndef PLANISH_LAB_ENGINE_SGD_H_
#define PLANISH_LAB_ENGINE_SGD_H_

#include <utility>

#include "lab/engine/optimizer.h"

namespace planish::lab {

/// Gradient descent without momentum: w becomes w - learning_rate * dL/dw.
class Sgd final : public Optimizer {
 public:
  Sgd(NamedTensors parameters, double learning_rate)
      : learning_rate_(learning_rate), parameters_(std::move(parameters)) {}

  void SetLearningRate(double rate) override { learning_rate_ = rate; }
  void Step() override;
  NamedTensors State() const override { return {}; }
  void CheckState(int64_t /*updates*/) const override {}

 private:
  double learning_rate_;
  NamedTensors parameters_;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_SGD_H_
