#include "lab/tasks/theano.h"

#include <ATen/Functions.h>

#include <cmath>

namespace planish::lab {

SettingSpec TheanoAdamSetting() {
  return Choice("adam", "textbook",
                "bias correction; theano: that of common Theano code, with larger first updates",
                {"textbook", "theano"});
}

TheanoAdam::TheanoAdam(const NamedTensors& parameters, const Options& options)
    : Adam(parameters, options) {
  for (const auto& [name, weight] : parameters) {
    forever_.push_back(at::full({}, 1e30, weight.options().dtype(at::kFloat)));
  }
}

void TheanoAdam::Move(const std::vector<at::Tensor>& gradients, double updates) {
  const Options& o = options();
  Apply(gradients, forever_,
        o.learning_rate *
            (std::sqrt(1 - std::pow(1 - o.beta2, updates)) / (1 - std::pow(1 - o.beta1, updates))));
}

Clipping ClipByRoot(double limit) {
  if (limit <= 0) return {};
  return [limit](const std::vector<at::Tensor>& gradients) {
    const double norm = NormOf(gradients);
    if (norm > limit * limit) at::_foreach_mul_(gradients, limit / std::sqrt(norm));
  };
}

}  // namespace planish::lab
