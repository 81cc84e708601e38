#ifndef PLANISH_SRC_RNN_CUDA_TESTING_H_
#define PLANISH_SRC_RNN_CUDA_TESTING_H_

#include <algorithm>
#include <iterator>
#include <memory>
#include <vector>

#include "planish/cuda.h"
#include "planish/cuda_rnn.h"
#include "src/base/cuda/device.h"
#include "src/norm/cuda/norm_testing.h"
#include "src/rnn/arguments.h"
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
    const internal::CellRecipe recipe = internal::RecipeOf(cell_);
    const auto saved = std::ssize(result_.saved);
    std::vector<ArrayArgument> arrays;
    const auto add = [&](auto& args, const auto&... facts) {
      std::ranges::move(ArraysOf(args, facts...), std::back_inserter(arrays));
    };
    add(forward_.inputs, recipe);
    add(forward_.inputs.params, recipe, shape_);
    add(forward_, recipe, saved);
    add(backward_.dparams, recipe, shape_);
    // Backward reads the inputs and outputs of forward.
    for (const ArrayArgument& array : ArraysOf(backward_, recipe, saved)) {
      if (array.name != "y" && array.name != "saved") arrays.push_back(array);
    }
    arrays_ = std::make_unique<ArraysOnDevice>(arrays, Layout());
    backward_.inputs = forward_.inputs;
    backward_.y = forward_.y;
    backward_.saved = forward_.saved;
    options_.eps = p.layer.eps;
  }

  /// The arguments, which a test can change before a call.
  RnnForwardArgs<T>& forward() { return forward_; }
  RnnBackwardArgs<T>& backward() { return backward_; }
  cuda::RnnOptions<T>& options() { return options_; }

  void Forward() {
    const WithWorkspace options(options_, cuda::WorkspaceBytes(cell_, forward_, options_));
    cuda::RnnForward<T>(cell_, forward_, options);
    internal::cuda::Synchronize();
  }
  void Backward() {
    const WithWorkspace options(options_, cuda::WorkspaceBytes(cell_, backward_, options_));
    cuda::RnnBackward<T>(cell_, backward_, options);
    internal::cuda::Synchronize();
  }
  /// Returns the present contents of the outputs.
  RnnResult<T> Result() {
    arrays_->Get();
    return result_;
  }

 private:
  Cell cell_;
  RnnShape shape_;
  RnnResult<T> result_;
  std::unique_ptr<ArraysOnDevice> arrays_;
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

}  // namespace planish::tests

#endif  // PLANISH_SRC_RNN_CUDA_TESTING_H_
