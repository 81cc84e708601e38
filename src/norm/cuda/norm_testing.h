#ifndef PLANISH_SRC_NORM_CUDA_NORM_TESTING_H_
#define PLANISH_SRC_NORM_CUDA_NORM_TESTING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "planish/cuda.h"
#include "src/base/arguments_testing.h"
#include "src/base/cuda/device.h"
#include "src/base/cuda/launch.h"
#include "src/norm/arguments.h"
#include "src/norm/testing.h"

// Device arrays, and results of a problem from a GPU, for the tests.
namespace planish::tests {

/// A test that is skipped where there is no GPU.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::Devices() == 0) GTEST_SKIP() << "there is no GPU";
  }
};

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

/// Device copies of the arrays of a call.
class ArraysOnDevice {
 public:
  /// Replaces the addresses and strides in the arguments by those of the copies.
  ArraysOnDevice(const std::vector<ArrayArgument>& arrays, const Layout& layout) {
    for (const ArrayArgument& array : arrays) {
      if (array.data() == nullptr) continue;
      Copy copy = {.host = array.output ? static_cast<char*>(array.data()) : nullptr,
                   .rows = array.extent.rows,
                   .row_bytes = array.extent.cols * array.element_bytes};
      copy.stride = copy.row_bytes + (array.stride ? layout.padding * array.element_bytes : 0);
      const auto replaced = std::ranges::find_if(
          copies_, [&](const Copy& input) { return array.in_place[0] == input.source; });
      if (layout.in_place && array.in_place[0] && replaced != copies_.end()) {
        copy.device = replaced->device;
      } else {
        std::vector<char> rows(static_cast<size_t>(copy.rows * copy.stride), -1);  // padded by NaNs
        copy.ForEachRow(rows, static_cast<char*>(array.data()),
                        [](char* row, char* host, size_t n) { std::memcpy(row, host, n); });
        copy.device = std::make_shared<OnDevice<char>>(rows, layout.offset * array.element_bytes);
      }
      copy.source = array.data();
      array.Set(copy.device->data());
      if (array.stride) *array.stride = array.extent.cols + layout.padding;
      copies_.push_back(copy);
    }
  }

  /// Copies the outputs to the host's arrays.
  void Get() {
    for (const Copy& copy : copies_) {
      if (copy.host == nullptr) continue;
      std::vector<char> rows = copy.device->Get();
      copy.ForEachRow(rows, copy.host,
                      [](char* row, char* host, size_t n) { std::memcpy(host, row, n); });
    }
  }

 private:
  struct Copy {
    char* host;  // of an output
    int64_t rows, row_bytes, stride = 0;
    const void* source = nullptr;
    std::shared_ptr<OnDevice<char>> device;

    template <class F>
    void ForEachRow(std::vector<char>& padded, char* dense, const F& f) const {
      for (int64_t r = 0; r < rows; ++r) {
        f(padded.data() + r * stride, dense + r * row_bytes, static_cast<size_t>(row_bytes));
      }
    }
  };

  std::vector<Copy> copies_;
};

/// Calls call(args) with device copies of the arrays in `args`, then copies the outputs back.
template <class Args, class Call, class... Facts>
void RunOnDevice(Args args, const Layout& layout, const Call& call, const Facts&... facts) {
  ArraysOnDevice arrays(ArraysOf(args, facts...), layout);
  call(args);
  arrays.Get();
}

/// Options with a workspace for the call with `args`. The workspace is initially NaN. It is freed
/// with the object, after the call has finished.
template <class Options>
class WithWorkspace {
 public:
  template <class Args>
  WithWorkspace(const Options& options, const Args& args)
      : WithWorkspace(options, cuda::WorkspaceBytes(args)) {}
  WithWorkspace(Options options, int64_t bytes)
      : space_(std::vector<char>(static_cast<size_t>(bytes), -1)), options_(std::move(options)) {
    options_.workspace = space_.data();
    options_.workspace_bytes = space_.bytes();
  }
  operator const Options&() const { return options_; }

 private:
  OnDevice<char> space_;
  Options options_;
};

/// Checks that backward computes each subset of dx, dgain and dbias with the bits that they have in
/// `expected`, and does not change the others. `call(args)` is the call.
template <class Problem, class Result, class Call, class... Facts>
void ExpectEachSubsetOfGradients(const Problem& p, const Result& expected, const Call& call,
                                 const Facts&... facts) {
  const Result unset(p);
  for (int subset = 0; subset < 8; ++subset) {
    const bool dx = subset & 1, dgain = subset & 2, dbias = subset & 4;
    Result out = expected;
    out.dx = unset.dx;
    out.dgain = unset.dgain;
    out.dbias = unset.dbias;
    auto args = BackwardArgs(p, out);
    if (!dx) args.dx = nullptr;
    if (!dgain) args.dgain = nullptr;
    if (!dbias) args.dbias = nullptr;
    RunOnDevice(args, {}, call, facts...);
    EXPECT_TRUE(SameBits(out.dx, dx ? expected.dx : unset.dx)) << subset;
    EXPECT_TRUE(SameBits(out.dgain, dgain ? expected.dgain : unset.dgain)) << subset;
    EXPECT_TRUE(SameBits(out.dbias, dbias ? expected.dbias : unset.dbias)) << subset;
  }
}

/// Runs forward, then backward, on the device.
template <class T, class P>
Result<T, P> ApplyOnDevice(const Problem<T, P>& p, const Layout& layout = {}) {
  Result<T, P> out(p);
  const internal::Recipe recipe = internal::RecipeOf(p.norm);
  const cuda::NormOptions options = {.eps = p.eps, .scale = p.scale, .slope = p.slope};
  RunOnDevice(
      ForwardArgs(p, out), layout,
      [&](const auto& args) { cuda::NormForward(p.norm, args, WithWorkspace(options, args)); },
      recipe);
  RunOnDevice(
      BackwardArgs(p, out), layout,
      [&](const auto& args) { cuda::NormBackward(p.norm, args, WithWorkspace(options, args)); },
      recipe);
  return out;
}

}  // namespace planish::tests

#endif  // PLANISH_SRC_NORM_CUDA_NORM_TESTING_H_
