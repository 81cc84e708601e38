#ifndef PLANISH_LAB_MODEL_BATCH_STATISTICS_H_
#define PLANISH_LAB_MODEL_BATCH_STATISTICS_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <utility>

namespace planish::lab {

/// Function that sums a CPU tensor over all processes that train together, in place.
using SumOverProcesses = std::function<void(at::Tensor&)>;

/// Interface of modules that compute statistics over the cases of a batch.
class BatchStatistics {
 public:
  virtual ~BatchStatistics() = default;

  /// Computes the statistics of later training passes over the cases of all processes, with `sum`.
  /// All processes must then run the same passes. Without `sum`, the default, the statistics are
  /// over the cases of this process.
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
