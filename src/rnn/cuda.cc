#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "planish/cuda_rnn.h"
#include "src/base/check.h"
#include "src/rnn/cell.h"
#include "src/rnn/cuda_layer.h"

namespace planish::cuda {
namespace {

using internal::Array;
using internal::CellRecipe;
using internal::VectorArray;

constexpr int64_t kAlignment = 16;  ///< in bytes, of what is saved and of the workspace

CellRecipe CheckedRecipe(const char* function, Cell cell) {
  const CellRecipe recipe = internal::RecipeOf(cell);
  if (recipe.over == internal::Over::kBatch) {
    internal::Fail(function, "cell", "be one without batch norm", "one with it");
  }
  return recipe;
}

/// Sizes with which no array, of those given and those that are worked in, is larger than a pointer
/// can span, nor all of them together.
template <class T>
void CheckRnnShape(const char* function, const RnnShape& shape) {
  const auto at_least = [&](const char* name, int64_t size, int64_t least) {
    if (size < least) {
      internal::Fail(function, name, "be at least " + std::to_string(least), std::to_string(size));
    }
  };
  at_least("time", shape.time, 0);
  at_least("batch", shape.batch, 0);
  at_least("inputs", shape.inputs, 1);
  at_least("hidden", shape.hidden, 1);
  // There are fewer than 64 numbers for each step, sequence and unit or input.
  const int64_t most = std::numeric_limits<int64_t>::max() / static_cast<int64_t>(sizeof(T)) / 64;
  const int64_t width = std::max(shape.inputs, shape.hidden);
  const int64_t steps = std::max<int64_t>(1, shape.time), batch = std::max<int64_t>(1, shape.batch);
  if (width > most / steps / batch) {
    internal::Fail(function, "time * batch * max(inputs, hidden)",
                   "be at most " + std::to_string(most),
                   std::to_string(shape.time) + " * " + std::to_string(shape.batch) + " * " +
                       std::to_string(width));
  }
  if (width > most / shape.hidden) {
    internal::Fail(function, "hidden * max(inputs, hidden)", "be at most " + std::to_string(most),
                   std::to_string(shape.hidden) + " * " + std::to_string(width));
  }
}

/// Collects the arrays of a call and checks them together.
class Arrays {
 public:
  explicit Arrays(const char* function) : function_(function) {}

  template <class T>
  void Input(const char* name, const T* data, int64_t size) {
    inputs_.Add(VectorArray(name, data, size));
  }
  template <class T>
  void NeededInput(const char* name, const T* data, int64_t size) {
    internal::CheckNotNull(function_, {VectorArray(name, data, size)});
    Input(name, data, size);
  }
  template <class T>
  void Output(const char* name, const T* data, int64_t size, const T* may_be = nullptr) {
    Array array = VectorArray(name, data, size);
    array.may_be = may_be;
    outputs_.Add(array);
  }
  template <class T>
  void NeededOutput(const char* name, const T* data, int64_t size, const T* may_be = nullptr) {
    internal::CheckNotNull(function_, {VectorArray(name, data, size)});
    Output(name, data, size, may_be);
  }
  void MustBeNull(const char* name, const void* data, const char* reason) const {
    if (data == nullptr) return;
    internal::Fail(function_, name, std::string("be null ") + reason, "an address");
  }
  void CheckBlock(const char* name, const void* data, int64_t needed) const {
    if (needed == 0) return;
    if (data == nullptr) {
      internal::Fail(function_, name, "point to " + std::to_string(needed) + " bytes", "null");
    }
    if (const auto beyond = reinterpret_cast<uintptr_t>(data) % kAlignment; beyond != 0) {
      internal::Fail(function_, name, "be aligned to 16 bytes",
                     "an address " + std::to_string(beyond) + " bytes beyond");
    }
  }

  void CheckAlignedAndApart() const {
    for (const Array& input : inputs_) internal::CheckAligned(function_, {input});
    for (const Array* output = outputs_.begin(); output != outputs_.end(); ++output) {
      internal::CheckAligned(function_, {*output});
      for (const Array& input : inputs_) internal::CheckApart(function_, {*output}, {input});
      for (const Array* other = outputs_.begin(); other != output; ++other) {
        internal::CheckApart(function_, {*output}, {*other});
      }
    }
  }

 private:
  /// Those that are given. It allocates no memory.
  class List {
   public:
    void Add(const Array& array) {
      if (array.data != nullptr) arrays_.at(size_++) = array;
    }
    const Array* begin() const { return arrays_.data(); }
    const Array* end() const { return arrays_.data() + size_; }

   private:
    std::array<Array, 2 * internal::kParams> arrays_{};
    size_t size_ = 0;
  };

  const char* function_;
  List inputs_, outputs_;
};

constexpr const char* kNoCell = "for a cell without c";
constexpr const char* kNotTaken = "for a cell without it";
constexpr const char* kNoResets = "without resets";
constexpr const char* kOnCpu = "on a GPU";

// Names of the parameters' gradients, in the order of ParamsOf.
constexpr const char* kGradientNames[internal::kParams] = {
    "dweight_ih",    "dweight_hh",  "dbias",      "dbias_hn", "dln_ih_weight", "dln_ih_bias",
    "dln_hh_weight", "dln_hh_bias", "dln_weight", "dln_bias", "dln_c_weight",  "dln_c_bias"};

template <class T>
void AddParams(const CellRecipe& recipe, const RnnShape& shape, const RnnParams<const T>& params,
               Arrays& arrays) {
  for (const auto& param : internal::ParamsOf<const T>(recipe, shape)) {
    const T* data = params.*param.member;
    if (!param.taken) arrays.MustBeNull(param.name, data, kNotTaken);
    arrays.Input(param.name, data, param.size);
  }
  arrays.NeededInput("weight_ih", params.weight_ih, recipe.gates() * shape.hidden * shape.inputs);
  arrays.NeededInput("weight_hh", params.weight_hh, recipe.gates() * shape.hidden * shape.hidden);
}

/// All but the parameters.
template <class T>
void AddInputs(const CellRecipe& recipe, const RnnInputs<T>& inputs, Arrays& arrays) {
  const RnnShape& shape = inputs.shape;
  const int64_t steps = shape.time * shape.batch, states = shape.batch * shape.hidden;
  if (!recipe.is_lstm()) {
    arrays.MustBeNull("c0", inputs.c0, kNoCell);
    arrays.MustBeNull("c_reset", inputs.c_reset, kNoCell);
  }
  if (inputs.resets == nullptr && steps > 0) {
    arrays.MustBeNull("h_reset", inputs.h_reset, kNoResets);
    arrays.MustBeNull("c_reset", inputs.c_reset, kNoResets);
  }
  arrays.NeededInput("x", inputs.x, steps * shape.inputs);
  arrays.Input("h0", inputs.h0, states);
  arrays.Input("c0", inputs.c0, states);
  arrays.Input("lengths", inputs.lengths, shape.batch);
  arrays.Input("resets", inputs.resets, steps);
  arrays.Input("h_reset", inputs.h_reset, shape.hidden);
  arrays.Input("c_reset", inputs.c_reset, shape.hidden);
}

template <class T>
void CheckWorkspace(const char* function, const Arrays& arrays, const RnnOptions<T>& options,
                    int64_t needed) {
  arrays.CheckBlock("workspace", options.workspace, needed);
  if (options.workspace_bytes < needed) {
    internal::Fail(function, "workspace_bytes", "be at least " + std::to_string(needed),
                   std::to_string(options.workspace_bytes));
  }
}

/// Numbers that are saved, of checked sizes.
template <class T>
int64_t SavedNumbers(const CellRecipe& recipe, const RnnShape& shape) {
  return internal::cuda::SavedBytes<T>(recipe, shape) / static_cast<int64_t>(sizeof(T));
}

}  // namespace

template <class T>
int64_t RnnSavedSize(Cell cell, const RnnShape& shape) {
  const CellRecipe recipe = CheckedRecipe("RnnSavedSize", cell);
  CheckRnnShape<T>("RnnSavedSize", shape);
  return SavedNumbers<T>(recipe, shape);
}

template <class T>
bool RnnFitsOnChip(Cell cell, const RnnShape& shape) {
  const CellRecipe recipe = CheckedRecipe("RnnFitsOnChip", cell);
  CheckRnnShape<T>("RnnFitsOnChip", shape);
  return internal::cuda::FitsOnChip<T>(recipe, shape);
}

template <class T>
int64_t RnnForwardWorkspaceBytes(Cell cell, const RnnShape& shape, bool saved, bool on_chip) {
  const CellRecipe recipe = CheckedRecipe("RnnForwardWorkspaceBytes", cell);
  CheckRnnShape<T>("RnnForwardWorkspaceBytes", shape);
  return internal::cuda::ForwardRoomBytes<T>(recipe, shape, saved, on_chip);
}

template <class T>
int64_t RnnBackwardWorkspaceBytes(Cell cell, const RnnShape& shape, bool lengths) {
  const CellRecipe recipe = CheckedRecipe("RnnBackwardWorkspaceBytes", cell);
  CheckRnnShape<T>("RnnBackwardWorkspaceBytes", shape);
  return internal::cuda::BackwardRoomBytes<T>(recipe, shape, lengths);
}

template <class T>
int64_t RnnStepWorkspaceBytes(Cell cell, int64_t batch, int64_t inputs, int64_t hidden) {
  const CellRecipe recipe = CheckedRecipe("RnnStepWorkspaceBytes", cell);
  const RnnShape shape{1, batch, inputs, hidden};
  CheckRnnShape<T>("RnnStepWorkspaceBytes", shape);
  return internal::cuda::ForwardRoomBytes<T>(recipe, shape, false, false);
}

template <class T>
void RnnForward(Cell cell, const RnnForwardArgs<T>& args, const RnnOptions<T>& options) {
  constexpr const char* kFunction = "RnnForward";
  const CellRecipe recipe = CheckedRecipe(kFunction, cell);
  const RnnShape& shape = args.inputs.shape;
  CheckRnnShape<T>(kFunction, shape);
  internal::CheckEps(kFunction, options.eps);
  const int64_t states = shape.batch * shape.hidden;
  Arrays arrays(kFunction);
  AddInputs(recipe, args.inputs, arrays);
  AddParams(recipe, shape, args.inputs.params, arrays);
  arrays.NeededOutput("y", args.y, shape.time * states);
  if (!recipe.is_lstm()) arrays.MustBeNull("c_n", args.c_n, kNoCell);
  arrays.Output("h_n", args.h_n, states);
  arrays.Output("c_n", args.c_n, states);
  const int64_t saved = SavedNumbers<T>(recipe, shape);
  arrays.Output("saved", args.saved, saved);
  arrays.CheckAlignedAndApart();
  if (args.saved != nullptr) {
    arrays.CheckBlock("saved", args.saved, saved * static_cast<int64_t>(sizeof(T)));
  }
  CheckWorkspace(
      kFunction, arrays, options,
      internal::cuda::ForwardRoomBytes<T>(recipe, shape, args.saved != nullptr, options.on_chip));
  internal::cuda::ForwardLayer(kFunction, recipe, args, options);
}

template <class T>
void RnnBackward(Cell cell, const RnnBackwardArgs<T>& args, const RnnOptions<T>& options) {
  constexpr const char* kFunction = "RnnBackward";
  const CellRecipe recipe = CheckedRecipe(kFunction, cell);
  const RnnInputs<T>& inputs = args.inputs;
  const RnnShape& shape = inputs.shape;
  CheckRnnShape<T>(kFunction, shape);
  internal::CheckEps(kFunction, options.eps);
  const int64_t states = shape.batch * shape.hidden;
  Arrays arrays(kFunction);
  AddInputs(recipe, inputs, arrays);
  AddParams(recipe, shape, inputs.params, arrays);
  arrays.MustBeNull("sums", args.sums, kOnCpu);
  arrays.NeededInput("y", args.y, shape.time * states);
  const int64_t saved = SavedNumbers<T>(recipe, shape);
  arrays.NeededInput("saved", args.saved, saved);
  if (!recipe.is_lstm()) {
    arrays.MustBeNull("dc_n", args.dc_n, kNoCell);
    arrays.MustBeNull("dc0", args.dc0, kNoCell);
    arrays.MustBeNull("dc_reset", args.dc_reset, kNoCell);
  }
  arrays.Input("dy", args.dy, shape.time * states);
  arrays.Input("dh_n", args.dh_n, states);
  arrays.Input("dc_n", args.dc_n, states);
  arrays.Output("dx", args.dx, shape.time * shape.batch * shape.inputs);
  const auto dparams = internal::ParamsOf<T>(recipe, shape);
  for (size_t i = 0; i < dparams.size(); ++i) {
    const T* data = args.dparams.*dparams[i].member;
    if (!dparams[i].taken) arrays.MustBeNull(kGradientNames[i], data, kNotTaken);
    arrays.Output(kGradientNames[i], data, dparams[i].size);
  }
  arrays.Output("dh0", args.dh0, states);
  arrays.Output("dc0", args.dc0, states);
  arrays.Output("dh_reset", args.dh_reset, shape.hidden);
  arrays.Output("dc_reset", args.dc_reset, shape.hidden);
  arrays.CheckAlignedAndApart();
  arrays.CheckBlock("saved", args.saved, saved * static_cast<int64_t>(sizeof(T)));
  CheckWorkspace(kFunction, arrays, options,
                 internal::cuda::BackwardRoomBytes<T>(recipe, shape, inputs.lengths != nullptr));
  internal::cuda::BackwardLayer(kFunction, recipe, args, options);
}

template <class T>
void RnnStep(Cell cell, const RnnStepArgs<T>& args, const RnnOptions<T>& options) {
  constexpr const char* kFunction = "RnnStep";
  const CellRecipe recipe = CheckedRecipe(kFunction, cell);
  const RnnShape shape{1, args.batch, args.inputs, args.hidden};
  CheckRnnShape<T>(kFunction, shape);
  internal::CheckEps(kFunction, options.eps);
  const int64_t states = args.batch * args.hidden;
  Arrays arrays(kFunction);
  if (!recipe.is_lstm()) {
    arrays.MustBeNull("c", args.c, kNoCell);
    arrays.MustBeNull("c_next", args.c_next, kNoCell);
  }
  arrays.NeededInput("x", args.x, args.batch * args.inputs);
  AddParams(recipe, shape, args.params, arrays);
  arrays.Input("h", args.h, states);
  arrays.Input("c", args.c, states);
  arrays.NeededOutput("h_next", args.h_next, states, args.h);
  arrays.Output("c_next", args.c_next, states, args.c);
  arrays.CheckAlignedAndApart();
  CheckWorkspace(kFunction, arrays, options,
                 internal::cuda::ForwardRoomBytes<T>(recipe, shape, false, false));
  RnnForwardArgs<T> forward;
  forward.inputs.shape = shape;
  forward.inputs.x = args.x;
  forward.inputs.params = args.params;
  forward.inputs.h0 = args.h;
  forward.inputs.c0 = args.c;
  forward.y = args.h_next;
  forward.c_n = args.c_next;
  internal::cuda::ForwardLayer(kFunction, recipe, forward, options);
}

#define PLANISH_INSTANTIATE(T)                                                      \
  template int64_t RnnSavedSize<T>(Cell, const RnnShape&);                          \
  template bool RnnFitsOnChip<T>(Cell, const RnnShape&);                            \
  template int64_t RnnForwardWorkspaceBytes<T>(Cell, const RnnShape&, bool, bool);  \
  template int64_t RnnBackwardWorkspaceBytes<T>(Cell, const RnnShape&, bool);       \
  template int64_t RnnStepWorkspaceBytes<T>(Cell, int64_t, int64_t, int64_t);       \
  template void RnnForward(Cell, const RnnForwardArgs<T>&, const RnnOptions<T>&);   \
  template void RnnBackward(Cell, const RnnBackwardArgs<T>&, const RnnOptions<T>&); \
  template void RnnStep(Cell, const RnnStepArgs<T>&, const RnnOptions<T>&);
PLANISH_RNN_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace planish::cuda
