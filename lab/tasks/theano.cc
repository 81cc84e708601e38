#include "lab/tasks/theano.h"

#include <cmath>

namespace planish::lab {

SettingSpec TheanoAdamSetting() {
  return Choice("adam", "textbook",
                "bias correction; theano: that of common Theano code, with larger first updates",
                {"textbook", "theano"});
}

void TheanoAdam::Move(const std::vector<at::Tensor>& gradients, double updates) {
  const Options& o = options();
  // With this large a count the kernel's bias correction is 1.
  Apply(gradients, 1e30,
        o.learning_rate *
            (std::sqrt(1 - std::pow(1 - o.beta2, updates)) / (1 - std::pow(1 - o.beta1, updates))));
}

Clipping ClipByRoot(double limit) {
  if (limit <= 0) return {};
  return [limit](const std::vector<at::Tensor>& gradients) {
    ScaleToNorm(gradients, NormOf(gradients).sqrt(), limit);
  };
}

}  // namespace planish::lab
