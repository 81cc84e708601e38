#ifndef PLANISH_SRC_NORM_CUDA_NORM_TESTING_H_
#define PLANISH_SRC_NORM_CUDA_NORM_TESTING_H_

#include <cstdint>
#include <vector>

#include "planish/cuda.h"
#include "src/base/cuda/device.h"
#include "src/base/cuda/launch.h"
#include "src/norm/testing.h"

// Device arrays, and results of a problem from a GPU, for the tests.
namespace planish::tests {

/// Array on the device, `offset` elements from the start of its memory.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& values, int64_t offset = 0)
      : offset_(offset), size_(std::ssize(values)) {
    memory_ = internal::cuda::Allocate((offset + size_) * Bytes());
    internal::cuda::CopyToDevice(data(), values.data(), size_ * Bytes());
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { internal::cuda::Free(memory_); }

  T* data() { return static_cast<T*>(memory_) + offset_; }
  /// Returns null for an empty array.
  T* OrNull() { return size_ == 0 ? nullptr : data(); }
  int64_t bytes() const { return size_ * Bytes(); }
  std::vector<T> Get() {
    internal::cuda::Synchronize();
    std::vector<T> values(static_cast<size_t>(size_));
    internal::cuda::CopyToHost(values.data(), data(), size_ * Bytes());
    return values;
  }

 private:
  static constexpr int64_t Bytes() { return sizeof(T); }

  int64_t offset_, size_;
  void* memory_ = nullptr;
};

/// Limits the device's clusters to a number of blocks (1: no clusters) during its lifetime.
class ClustersUpTo {
 public:
  explicit ClustersUpTo(int blocks) { internal::cuda::LimitClusterBlocks(blocks); }
  ClustersUpTo(const ClustersUpTo&) = delete;
  ClustersUpTo& operator=(const ClustersUpTo&) = delete;
  ~ClustersUpTo() { internal::cuda::LimitClusterBlocks(internal::cuda::kMaxClusterBlocks); }
};

/// Returns the cluster limits to test for rows of `cols` elements: the device's and, if one block
/// need not hold the row, none.
inline std::vector<int> ClustersFor(int64_t cols) {
  constexpr int64_t kHeldByAnyBlock = 2048;  // doubles in single elements, backward
  if (cols <= kHeldByAnyBlock) return {internal::cuda::kMaxClusterBlocks};
  return {internal::cuda::kMaxClusterBlocks, 1};
}

/// Layout of a problem in device memory.
struct Layout {
  int64_t offset = 0;     ///< elements from an aligned address to the first of each array
  int64_t padding = 0;    ///< elements between rows
  bool in_place = false;  ///< y is x, and dx is dy
};

/// Returns the rows with `padding` NaNs behind each.
template <class T>
std::vector<T> Padded(const std::vector<T>& values, int64_t rows, int64_t cols, int64_t padding) {
  std::vector<T> padded(static_cast<size_t>(rows * (cols + padding)), Unset<T>());
  for (int64_t r = 0; r < rows; ++r) {
    std::copy_n(values.begin() + r * cols, cols, padded.begin() + r * (cols + padding));
  }
  return padded;
}

template <class T>
std::vector<T> Unpadded(const std::vector<T>& padded, int64_t rows, int64_t cols, int64_t padding) {
  std::vector<T> values(static_cast<size_t>(rows * cols));
  for (int64_t r = 0; r < rows; ++r) {
    std::copy_n(padded.begin() + r * (cols + padding), cols, values.begin() + r * cols);
  }
  return values;
}

/// Runs forward, then backward, on the device.
template <class T, class P>
Result<T, P> ApplyOnDevice(const Problem<T, P>& p, const Layout& layout = {}) {
  using C = Compute<T>;
  Result<T, P> out(p);
  const int64_t rows = p.rows, cols = p.cols, stride = cols + layout.padding;
  const auto pad = [&](const std::vector<T>& v) { return Padded(v, rows, cols, layout.padding); };
  OnDevice<T> x(pad(p.x), layout.offset), dy(pad(p.dy), layout.offset);
  OnDevice<T> kept_x(pad(p.x), layout.offset);
  OnDevice<T> y(pad(out.y), layout.offset), dx(pad(out.dx), layout.offset);
  OnDevice<P> gain(p.gain, layout.offset), bias(p.bias, layout.offset);
  OnDevice<P> dgain(out.dgain, layout.offset), dbias(out.dbias, layout.offset);
  OnDevice<C> mean(out.mean), mean_lo(out.mean_lo), rstd(out.rstd);
  const bool affine = IsAffine(p.norm);
  OnDevice<char> forward_space(
      std::vector<char>(static_cast<size_t>(cuda::NormForwardWorkspaceBytes<T>(rows, cols)), -1));
  OnDevice<char> backward_space(std::vector<char>(
      static_cast<size_t>(cuda::NormBackwardWorkspaceBytes<T>(rows, cols, affine)), -1));
  cuda::NormOptions options = {.eps = p.eps, .scale = p.scale, .slope = p.slope};
  options.workspace = forward_space.data();
  options.workspace_bytes = forward_space.bytes();
  T* to = layout.in_place ? x.data() : y.data();
  cuda::NormForward<T, P>(p.norm,
                          {.rows = rows,
                           .cols = cols,
                           .x = x.data(),
                           .gain = gain.OrNull(),
                           .bias = bias.OrNull(),
                           .y = to,
                           .mean = mean.data(),
                           .mean_lo = mean_lo.data(),
                           .rstd = rstd.data(),
                           .x_stride = stride,
                           .y_stride = stride},
                          options);
  options.workspace = backward_space.data();
  options.workspace_bytes = backward_space.bytes();
  T* back = layout.in_place ? dy.data() : dx.data();
  cuda::NormBackward<T, P>(p.norm,
                           {.rows = rows,
                            .cols = cols,
                            .dy = dy.data(),
                            .x = kept_x.data(),
                            .gain = gain.OrNull(),
                            .mean = mean.data(),
                            .mean_lo = mean_lo.data(),
                            .rstd = rstd.data(),
                            .dx = back,
                            .dgain = affine ? dgain.data() : nullptr,
                            .dbias = affine ? dbias.data() : nullptr,
                            .dy_stride = stride,
                            .x_stride = stride,
                            .dx_stride = stride},
                           options);
  out.y = Unpadded((layout.in_place ? x : y).Get(), rows, cols, layout.padding);
  out.dx = Unpadded((layout.in_place ? dy : dx).Get(), rows, cols, layout.padding);
  out.mean = mean.Get();
  out.mean_lo = mean_lo.Get();
  out.rstd = rstd.Get();
  out.dgain = dgain.Get();
  out.dbias = dbias.Get();
  return out;
}

}  // namespace planish::tests

#endif  // PLANISH_SRC_NORM_CUDA_NORM_TESTING_H_
