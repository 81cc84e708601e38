#ifndef PLANISH_LAB_TASKS_THEANO_H_
#define PLANISH_LAB_TASKS_THEANO_H_

#include <ATen/core/Tensor.h>

#include <vector>

#include "lab/engine/adam.h"
#include "lab/engine/settings.h"

// Updates as in the Theano code of papers, where it differs from what the papers print.
namespace planish::lab {

/// Returns the setting adam: "textbook" or "theano", TheanoAdam.
SettingSpec TheanoAdamSetting();

/// Adam with the bias correction of much Theano code (order-embeddings, skip-thoughts), whose betas
/// are 1 minus the paper's. Update t corrects the moments by 1 - (1 - beta)^t instead of
/// 1 - beta^t, and adds epsilon to the root of the uncorrected second moment. With the default
/// betas, the first updates are about 3 to 6.5 times as large.
class TheanoAdam final : public Adam {
 public:
  using Adam::Adam;

 private:
  void Move(const std::vector<at::Tensor>& gradients, double updates) override;
};

/// Returns the clipping of the attentive reader's code, which takes the root of the norm instead of
/// the norm. A norm n above limit^2 becomes limit * sqrt(n); others are unchanged. A limit of 0
/// disables clipping.
Clipping ClipByRoot(double limit);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_THEANO_H_
