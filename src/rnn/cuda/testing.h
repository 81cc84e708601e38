#ifndef PLANISH_SRC_RNN_CUDA_TESTING_H_
#define PLANISH_SRC_RNN_CUDA_TESTING_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "planish/cuda.h"
#include "planish/cuda_rnn.h"
#include "src/base/cuda/device.h"
#include "src/norm/cuda/norm_testing.h"
#include "src/rnn/testing.h"

// Tools for tests of recurrent layers on a GPU: a layer in device memory, and its results.
namespace planish::tests {

/// The arrays of a layer and all of its results, on the device.
template <class T>
class RnnOnDevice {
 public:
  explicit RnnOnDevice(const RnnProblem<T>& p) : cell_(p.layer.cell), shape_(p.layer.shape) {
    result_ = Unwritten(p);
    result_.saved.assign(static_cast<size_t>(cuda::RnnSavedSize<T>(cell_, shape_)), Unset<T>());
    // Builds the arguments for the host, then replaces host addresses by device addresses.
    forward_ = ForwardArgs(p, result_);
    backward_ = BackwardArgs(p, result_);
    RnnInputs<T>& in = forward_.inputs;
    const auto input = [&](const std::vector<T>& values) -> const T* { return Place(values); };
    in.x = input(p.layer.x);
    in.h0 = input(p.layer.h0);
    in.c0 = input(p.layer.c0);
    in.h_reset = input(p.layer.h_reset);
    in.c_reset = input(p.layer.c_reset);
    lengths_.emplace_back(p.layer.lengths);
    resets_.emplace_back(p.layer.resets);
    in.lengths = lengths_.back().OrNull();
    in.resets = resets_.back().OrNull();
    const auto params = internal::ParamsOf<const T>(internal::RecipeOf(cell_), shape_);
    for (size_t i = 0; i < params.size(); ++i) {
      in.params.*params[i].member =
          input(p.layer.*internal::kReferenceArrays<T>[kFirstParam + i].member);
    }
    forward_.y = Output(result_.y);
    forward_.h_n = Output(result_.h);
    forward_.c_n = Output(result_.c);
    forward_.saved = Output(result_.saved);
    backward_.inputs = in;
    backward_.y = forward_.y;
    backward_.saved = forward_.saved;
    backward_.dy = input(p.loss.y);
    backward_.dh_n = input(p.loss.h);
    backward_.dc_n = input(p.loss.c);
    auto& gradients = result_.gradients;
    backward_.dx = Output(gradients[kX]);
    backward_.dh0 = Output(gradients[kH0]);
    backward_.dc0 = Output(gradients[kC0]);
    backward_.dh_reset = Output(gradients[kHReset]);
    backward_.dc_reset = Output(gradients[kCReset]);
    const auto dparams = internal::ParamsOf<T>(internal::RecipeOf(cell_), shape_);
    for (size_t i = 0; i < dparams.size(); ++i) {
      backward_.dparams.*dparams[i].member = Output(gradients[kFirstParam + i]);
    }
    options_.eps = p.layer.eps;
  }

  /// The arguments, which a test can change before a call.
  RnnForwardArgs<T>& forward() { return forward_; }
  RnnBackwardArgs<T>& backward() { return backward_; }
  cuda::RnnOptions<T>& options() { return options_; }

  void Forward() {
    OnDevice<char> space(Bytes(cuda::RnnForwardWorkspaceBytes<T>(
        cell_, shape_, forward_.saved != nullptr, options_.persistent)));
    cuda::RnnForward<T>(cell_, forward_, With(space));
    internal::cuda::Synchronize();
  }
  void Backward() {
    OnDevice<char> space(Bytes(cuda::RnnBackwardWorkspaceBytes<T>(
        cell_, shape_, backward_.inputs.lengths != nullptr, options_.persistent)));
    cuda::RnnBackward<T>(cell_, backward_, With(space));
    internal::cuda::Synchronize();
  }
  /// Returns the present contents of the outputs.
  RnnResult<T> Result() {
    for (const auto& [values, at] : outputs_) *values = at->Get();
    return result_;
  }

 private:
  /// Returns memory that is initially NaN.
  static std::vector<char> Bytes(int64_t n) {
    return std::vector<char>(static_cast<size_t>(n), -1);
  }
  cuda::RnnOptions<T> With(OnDevice<char>& space) const {
    cuda::RnnOptions<T> options = options_;
    options.workspace = space.data();
    options.workspace_bytes = space.bytes();
    return options;
  }
  T* Place(const std::vector<T>& values) {
    arrays_.emplace_back(values);
    return arrays_.back().OrNull();
  }
  T* Output(std::vector<T>& values) {
    T* place = Place(values);
    outputs_.push_back({&values, &arrays_.back()});
    return place;
  }

  Cell cell_;
  RnnShape shape_;
  RnnResult<T> result_;
  std::deque<OnDevice<T>> arrays_;
  std::deque<OnDevice<int64_t>> lengths_;
  std::deque<OnDevice<uint8_t>> resets_;
  struct OutputPlace {
    std::vector<T>* values;
    OnDevice<T>* at;
  };
  std::vector<OutputPlace> outputs_;
  RnnForwardArgs<T> forward_;
  RnnBackwardArgs<T> backward_;
  cuda::RnnOptions<T> options_;
};

/// Computes forward, then backward, on the device.
template <class T>
RnnResult<T> ApplyOnDevice(const RnnProblem<T>& p, bool persistent = false) {
  RnnOnDevice<T> device(p);
  device.options().persistent = persistent;
  device.Forward();
  device.Backward();
  return device.Result();
}

/// Returns the cells that have CUDA kernels.
inline std::vector<Cell> CudaCells() {
  std::vector<Cell> cells;
  for (const Cell cell : internal::kCells) {
    if (internal::RecipeOf(cell).over == internal::Over::kRow) cells.push_back(cell);
  }
  return cells;
}

}  // namespace planish::tests

#endif  // PLANISH_SRC_RNN_CUDA_TESTING_H_
