#include "lab/engine/sgd.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <vector>

namespace planish::lab {

void Sgd::Step() {
  at::NoGradGuard no_grad;
  const std::vector<at::Tensor> gradients = TakeGradients(parameters_, "Sgd");
  for (size_t i = 0; i < gradients.size(); ++i) {
    parameters_[i].second.detach().sub_(gradients[i], learning_rate_);
  }
}

}  // namespace planish::lab
