#ifndef PLANISH_LAB_MODEL_BATCH_STATISTICS_H_
#define PLANISH_LAB_MODEL_BATCH_STATISTICS_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <utility>

namespace planish::lab {

/// Function that sums a CPU tensor over all processes that train together, in place.
using SumOverProcesses = std::function<void(at::Tensor&)>;

/// Module with statistics over the cases of a batch.
class BatchStatistics {
 public:
  virtual ~BatchStatistics() = default;

  /// Computes the statistics of later training passes over the cases of all processes, with `sum`.
  /// Every process must then call the same passes. Empty, the default: over the cases of this one.
  void SetSum(SumOverProcesses sum) { sum_ = std::move(sum); }

 protected:
  bool has_sum() const { return sum_ != nullptr; }

  /// Returns the sum of `t` over the processes, or `t` without SetSum. Its gradient is the sum of
  /// the processes' gradients, because the loss of each depends on it.
  at::Tensor SumOf(const at::Tensor& t) const;

 private:
  SumOverProcesses sum_;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_MODEL_BATCH_STATISTICS_H_
