#ifndef PLANISH_LAB_ENGINE_GRADIENT_BUCKETS_H_
#define PLANISH_LAB_ENGINE_GRADIENT_BUCKETS_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "lab/engine/processes.h"

namespace planish::lab {

/// Sums of gradients over processes that are sent while backward computes further gradients, by
/// c10d's Reducer. Gradients are added in the order of Processes::Sum, whatever the buckets.
class GradientBuckets {
 public:
  /// `processes` must outlive this object, and have more than one process. Every process must
  /// create it, with the same parameters.
  GradientBuckets(std::vector<at::Tensor> parameters, Processes& processes);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  /// Computes the gradients of `loss`, which must depend on all parameters, and sets the gradient
  /// of each parameter to its sum over all processes. Before a gradient is sent, those of `earlier`
  /// are added to it in their order; each is the concatenated gradients of all parameters. Throws
  /// RunError if another process has ended.
  void Backward(const at::Tensor& loss, std::vector<at::Tensor> earlier);

 private:
  class Sum;
  struct Parts;

  std::unique_ptr<Parts> parts_;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_GRADIENT_BUCKETS_H_
