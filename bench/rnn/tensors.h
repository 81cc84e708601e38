#ifndef PLANISH_BENCH_RNN_TENSORS_H_
#define PLANISH_BENCH_RNN_TENSORS_H_

#include <ATen/ATen.h>

#include <algorithm>

namespace planish::bench::rnn {

/// Returns a tensor on an array. The caller must not write to the tensor.
inline at::Tensor View(const float* data, at::IntArrayRef sizes) {
  return at::from_blob(const_cast<float*>(data), sizes, at::TensorOptions(at::kFloat));
}

/// Copies a tensor's elements to the compared array.
inline void Store(const at::Tensor& tensor, float* to) {
  const at::Tensor contiguous = tensor.detach().contiguous();
  std::copy_n(contiguous.const_data_ptr<float>(), contiguous.numel(), to);
}

}  // namespace planish::bench::rnn

#endif  // PLANISH_BENCH_RNN_TENSORS_H_
