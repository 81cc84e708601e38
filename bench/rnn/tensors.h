#ifndef PLANISH_BENCH_RNN_TENSORS_H_
#define PLANISH_BENCH_RNN_TENSORS_H_

#include <ATen/ATen.h>

#include <algorithm>

namespace planish::bench::rnn {

/// Returns a tensor on an array that is only read, although tensors have no const.
inline at::Tensor View(const float* data, at::IntArrayRef sizes) {
  return at::from_blob(const_cast<float*>(data), sizes, at::TensorOptions(at::kFloat));
}

/// Copies a tensor's elements to the compared array.
inline void Store(const at::Tensor& tensor, float* to) {
  const at::Tensor numbers = tensor.detach().contiguous();
  std::copy_n(numbers.const_data_ptr<float>(), numbers.numel(), to);
}

}  // namespace planish::bench::rnn

#endif  // PLANISH_BENCH_RNN_TENSORS_H_
