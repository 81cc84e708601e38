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

// The arguments of a layer's operators: as a struct, checked, and as the core takes them.
namespace planish {

/// What all operators take.
struct Call {
  Cell cell{};
  RnnTensors tensors;
  RnnSettings settings;

  const at::Tensor& tensor(size_t field) const { return tensors.*kFields[field].member; }
  internal::CellRecipe recipe() const { return internal::RecipeOf(cell); }
  /// Those that can have gradients.
  c10::SmallVector<at::Tensor, kDifferentiables> differentiables() const {
    c10::SmallVector<at::Tensor, kDifferentiables> list;
    for (size_t i = 0; i < kDifferentiables; ++i) list.push_back(tensor(i));
    return list;
  }
};

/// What rnn_forward saves has the same size on every device, since the kernel of shapes alone
/// cannot tell on which it is: for each step and sequence the larger of the CPU's and a GPU's, and
/// this, for each of a GPU's ten arrays at most is rounded up to 16 bytes, by three floats.
inline constexpr int64_t kSavedSlack = 32;

using SymSizes = c10::SmallVector<c10::SymInt, 3>;

struct Sizes {
  c10::SymInt time, batch, inputs, hidden;

  RnnShape ints() const {
    const auto number = [](const c10::SymInt& size) { return size.guard_int(__FILE__, __LINE__); };
    return {number(time), number(batch), number(inputs), number(hidden)};
  }
};

/// The cell of that name. Throws where there is none.
Cell CellOf(const char* function, std::string_view name);

/// Whether a cell takes one of the tensors, and which size it then has.
bool Takes(size_t field, const internal::CellRecipe& recipe);
SymSizes SizesOf(size_t field, const internal::CellRecipe& recipe, const Sizes& sizes);

/// Checks that a tensor has these sizes, and that it has x's type and device, or weight_ih's where
/// there is no x.
void CheckSizes(const char* function, const char* name, const at::Tensor& t, const SymSizes& sizes);
void CheckLike(const char* function, const char* name, const at::Tensor& t, const Call& call);

/// Checks that there are the tensors that a caller in Python could not leave out: from the field
/// `first` on to the weights.
void CheckGiven(const char* function, const RnnTensors& tensors, size_t first);

/// Checks the parameters. Returns the sizes that they have, T and B being 0.
Sizes CheckParams(const char* function, const Call& call);

/// Checks types and shapes, with x [T, B, I].
Sizes CheckCall(const char* function, const Call& call);

/// Checks that the cell is one that goes step by step.
void CheckIsOfSteps(const char* function, const Call& call);

/// Checks a step, with x [B, I]. Returns it as a layer with T = 1.
Call CheckStep(const char* function, const Call& call);

/// What derivatives of a call's results are wanted.
struct Wanted {
  bool gradients = false;
  bool tangents = false;  ///< forward-mode derivatives

  explicit Wanted(at::TensorList inputs)
      : gradients(torch::autograd::compute_requires_grad(inputs)),
        tangents(torch::autograd::isFwGradDefinedTensorList(inputs)) {}
  bool any() const { return gradients || tangents; }
};

/// RnnSteps for Python: torch.classes.planish.RnnSteps(cell, params, eps, packed, sources, frozen),
/// with parameters and sources by their names, step(x, h, c) and unfreeze().
void RegisterSteps(torch::Library& library);

/// Those that can have gradients in the type that they are computed in.
RnnTensors WideTensors(const RnnTensors& tensors);

/// As the core takes them: contiguous, and of the type that they are computed in. The parameters
/// may be left out.
RnnTensors Computed(const RnnTensors& tensors, bool params = true);

/// The parameters among `tensors`, in the schemas' order, as the core's.
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
