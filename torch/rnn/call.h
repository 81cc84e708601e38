#ifndef PLANISH_TORCH_RNN_CALL_H_
#define PLANISH_TORCH_RNN_CALL_H_

#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/library.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "planish/rnn.h"
#include "planish/torch_rnn.h"
#include "src/rnn/cell.h"
#include "torch/base/core.h"
#include "torch/rnn/fields.h"

// The arguments of a layer's operators, their checks, and their conversion for the core.
namespace planish {

/// The arguments common to all operators.
struct Call {
  Cell cell{};
  RnnTensors tensors;
  RnnSettings settings;

  const at::Tensor& tensor(size_t field) const { return tensors.*kFields[field].member; }
  internal::CellRecipe recipe() const { return internal::RecipeOf(cell); }
  /// Returns the tensors that can have gradients.
  c10::SmallVector<at::Tensor, kDifferentiables> differentiables() const {
    c10::SmallVector<at::Tensor, kDifferentiables> list;
    for (size_t i = 0; i < kDifferentiables; ++i) list.push_back(tensor(i));
    return list;
  }
};

/// The padding of `saved`, in elements. `saved` has the larger of the CPU's and a GPU's size on
/// every device, because the meta kernel does not know the device. A GPU rounds each of
/// at most ten arrays up to 16 bytes, which takes up to three floats.
inline constexpr int64_t kSavedSlack = 32;

using SymSizes = c10::SmallVector<c10::SymInt, 3>;

/// The sizes of RnnShape. `outputs` is O, with or without a projection.
struct Sizes {
  c10::SymInt time, batch, inputs, hidden, outputs;
  int64_t heads = 1;
  bool projects = false;

  RnnShape ints() const {
    const auto to_int = [](const c10::SymInt& size) { return size.guard_int(__FILE__, __LINE__); };
    return {
        to_int(time), to_int(batch), to_int(inputs), to_int(hidden), projects ? to_int(outputs) : 0,
        heads};
  }
};

/// Returns the cell with the name. Throws if there is none.
Cell CellOf(const char* function, std::string_view name);
/// Returns the type of weights with the name. Throws if there is none.
WeightType WeightTypeOf(const char* function, std::string_view name);

/// Returns whether a cell has a tensor.
bool Takes(size_t field, const internal::CellRecipe& recipe);
/// Returns the sizes of a tensor.
SymSizes SizesOf(size_t field, const internal::CellRecipe& recipe, const Sizes& sizes);

/// Checks that a tensor has these sizes.
void CheckSizes(const char* function, const char* name, const at::Tensor& t, const SymSizes& sizes);
/// Checks that a tensor has the type and device of x, or of weight_ih if there is no x.
void CheckLike(const char* function, const char* name, const at::Tensor& t, const Call& call);

/// Checks that the tensors from field `first` to the weights are given, which Python's schema
/// ensures.
void CheckGiven(const char* function, const RnnTensors& tensors, size_t first);

/// Returns the sizes of a layer's weights, with T = B = 0. The number of heads is H divided by the
/// columns of weight_hh, unless there is a projection.
Sizes WeightSizes(const internal::CellRecipe& recipe, const RnnTensors& tensors);

/// Checks the parameters. Returns their sizes, with T = B = 0.
Sizes CheckParams(const char* function, const Call& call);

/// Checks types and shapes for x [T, B, I], and eps.
Sizes CheckCall(const char* function, const Call& call);

/// Checks that the cell can compute single steps.
void CheckHasSteps(const char* function, const Call& call);

/// Checks a step with x [B, I]. Returns it as a layer with T = 1.
Call CheckStep(const char* function, const Call& call);

/// The derivatives of a call's results that are needed.
struct Wanted {
  bool gradients = false;
  bool tangents = false;  ///< forward-mode derivatives

  explicit Wanted(at::TensorList inputs)
      : gradients(torch::autograd::compute_requires_grad(inputs)),
        tangents(torch::autograd::isFwGradDefinedTensorList(inputs)) {}
  bool any() const { return gradients || tangents; }
};

/// Registers RnnLayer and RnnSteps for Python, and rnn_fold_biases.
void RegisterLayer(torch::Library& library);

/// Returns the differentiable tensors in the type of the arithmetic.
RnnTensors WideTensors(const RnnTensors& tensors);

/// Returns the tensors for the core: contiguous, and in the type of the arithmetic. Skips the
/// parameters unless `params`.
RnnTensors Computed(const RnnTensors& tensors, bool params = true);

/// Returns the parameters among `tensors` for the core.
template <class T>
RnnParams<const T> CoreParams(const internal::CellRecipe& recipe, const RnnTensors& tensors) {
  RnnParams<const T> params;
  const auto table = internal::ParamsOf<const T>(recipe, {});
  for (size_t i = 0; i < table.size(); ++i) {
    params.*table[i].member = Data<T>(tensors.*kFields[kFirstParam + i].member);
  }
  return params;
}

template <class T>
RnnInputs<T> CoreInputs(const Call& call, const RnnTensors& tensors, const RnnShape& shape) {
  return {.shape = shape,
          .x = Data<T>(tensors.x),
          .params = CoreParams<T>(call.recipe(), tensors),
          .h0 = Data<T>(tensors.h0),
          .c0 = Data<T>(tensors.c0),
          .lengths = Data<int64_t>(tensors.lengths),
          .resets = reinterpret_cast<const uint8_t*>(Data<bool>(tensors.resets)),
          .h_reset = Data<T>(tensors.h_reset),
          .c_reset = Data<T>(tensors.c_reset),
          .reverse = call.settings.reverse};
}

template <class T>
RnnOptions<T> CoreOptions(const RnnSettings& settings) {
  RnnOptions<T> options;
  options.eps = settings.eps;
  options.checkpoint = settings.checkpoint;
  options.parallel_for = TorchParallelFor;
  return options;
}

}  // namespace planish

#endif  // PLANISH_TORCH_RNN_CALL_H_
