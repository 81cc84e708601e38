#ifndef PLANISH_LAB_ENGINE_GRADIENT_BUCKETS_H_
#define PLANISH_LAB_ENGINE_GRADIENT_BUCKETS_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "lab/engine/processes.h"

namespace planish::lab {

/// All-reduce of gradients that overlaps the backward pass: c10d's Reducer sends each bucket of
/// gradients as soon as it is computed. The order of additions is that of Processes::Sum.
class GradientBuckets {
 public:
  /// `processes` must outlive this object, and have more than one process. Every process must
  /// create it, with the same parameters.
  GradientBuckets(std::vector<at::Tensor> parameters, Processes& processes);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  /// Runs the backward pass of `loss`, which must depend on all parameters, and sets the gradient
  /// of each parameter to the sum over all processes. `earlier` are gradients of this process's
  /// earlier losses, each the concatenation of all parameters' gradients; each bucket adds them, in
  /// their order, before it is sent. Throws RunError if another process has ended.
  void Backward(const at::Tensor& loss, std::vector<at::Tensor> earlier);

 private:
  class Sum;
  struct Parts;

  std::unique_ptr<Parts> parts_;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_GRADIENT_BUCKETS_H_
