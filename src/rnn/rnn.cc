#include "planish/rnn.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "src/base/check.h"
#include "src/rnn/cell.h"
#include "src/rnn/cpu.h"

namespace planish {
namespace {

using internal::Array;
using internal::CellRecipe;
using internal::VectorArray;

/// Sizes with which no array, of those given and those that are worked in, is larger than a pointer
/// can span: none has more than 32 * T * B * max(I, H) or 4 * H * max(I, H) numbers.
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
  const int64_t most = std::numeric_limits<int64_t>::max() / static_cast<int64_t>(sizeof(T)) / 32;
  const int64_t width = std::max(shape.inputs, shape.hidden);
  const int64_t steps = std::max<int64_t>(1, shape.time), batch = std::max<int64_t>(1, shape.batch);
  const std::string rows = std::to_string(shape.time) + " * " + std::to_string(shape.batch);
  if (width > most / steps / batch) {
    internal::Fail(function, "time * batch * max(inputs, hidden)",
                   "be at most " + std::to_string(most), rows + " * " + std::to_string(width));
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
    inputs_.push_back(VectorArray(name, data, size));
  }
  template <class T>
  void NeededInput(const char* name, const T* data, int64_t size) {
    Input(name, data, size);
    internal::CheckNotNull(function_, {inputs_.back()});
  }
  template <class T>
  void Output(const char* name, const T* data, int64_t size, const T* may_be = nullptr) {
    outputs_.push_back(VectorArray(name, data, size));
    outputs_.back().may_be = may_be;
  }
  template <class T>
  void NeededOutput(const char* name, const T* data, int64_t size, const T* may_be = nullptr) {
    Output(name, data, size, may_be);
    internal::CheckNotNull(function_, {outputs_.back()});
  }
  void MustBeNull(const char* name, const void* data, const char* reason) const {
    if (data == nullptr) return;
    internal::Fail(function_, name, std::string("be null ") + reason, "an address");
  }

  void CheckAlignedAndApart() const {
    for (const Array& input : inputs_) internal::CheckAligned(function_, {input});
    for (size_t i = 0; i < outputs_.size(); ++i) {
      internal::CheckAligned(function_, {outputs_[i]});
      for (const Array& input : inputs_) internal::CheckApart(function_, {outputs_[i]}, {input});
      for (size_t j = 0; j < i; ++j) {
        internal::CheckApart(function_, {outputs_[i]}, {outputs_[j]});
      }
    }
  }

 private:
  const char* function_;
  std::vector<Array> inputs_, outputs_;
};

constexpr const char* kNoCell = "for a cell without c";
constexpr const char* kNotTaken = "for a cell without it";
constexpr const char* kNoResets = "without resets";

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

template <class T>
void AddInputs(const char* function, const CellRecipe& recipe, const RnnInputs<T>& inputs,
               Arrays& arrays) {
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
  AddParams(recipe, shape, inputs.params, arrays);
  arrays.Input("h0", inputs.h0, states);
  arrays.Input("c0", inputs.c0, states);
  arrays.Input("lengths", inputs.lengths, shape.batch);
  arrays.Input("resets", inputs.resets, steps);
  arrays.Input("h_reset", inputs.h_reset, shape.hidden);
  arrays.Input("c_reset", inputs.c_reset, shape.hidden);
  for (int64_t b = 0; inputs.lengths != nullptr && b < shape.batch; ++b) {
    if (inputs.lengths[b] < 1 || inputs.lengths[b] > shape.time) {
      internal::Fail(function, "lengths[" + std::to_string(b) + "]",
                     "be at least 1 and at most time, " + std::to_string(shape.time),
                     std::to_string(inputs.lengths[b]));
    }
  }
}

}  // namespace

template <class T>
int64_t RnnSavedSize(Cell cell, const RnnShape& shape, bool checkpoint) {
  const CellRecipe recipe = internal::RecipeOf(cell);
  CheckRnnShape<T>("RnnSavedSize", shape);
  return internal::SavedSize(recipe, shape, checkpoint);
}

template <class T>
void RnnForward(Cell cell, const RnnForwardArgs<T>& args, const RnnOptions<T>& options) {
  constexpr const char* kFunction = "RnnForward";
  const CellRecipe recipe = internal::RecipeOf(cell);
  const RnnShape& shape = args.inputs.shape;
  CheckRnnShape<T>(kFunction, shape);
  internal::CheckEps(kFunction, options.eps);
  const int64_t states = shape.batch * shape.hidden;
  Arrays arrays(kFunction);
  AddInputs(kFunction, recipe, args.inputs, arrays);
  arrays.NeededOutput("y", args.y, shape.time * states);
  if (!recipe.is_lstm()) arrays.MustBeNull("c_n", args.c_n, kNoCell);
  arrays.Output("h_n", args.h_n, states);
  arrays.Output("c_n", args.c_n, states);
  arrays.Output("saved", args.saved, internal::SavedSize(recipe, shape, options.checkpoint));
  arrays.CheckAlignedAndApart();
  internal::ForwardLayer(recipe, args, options);
}

template <class T>
void RnnBackward(Cell cell, const RnnBackwardArgs<T>& args, const RnnOptions<T>& options) {
  constexpr const char* kFunction = "RnnBackward";
  const CellRecipe recipe = internal::RecipeOf(cell);
  const RnnShape& shape = args.inputs.shape;
  CheckRnnShape<T>(kFunction, shape);
  internal::CheckEps(kFunction, options.eps);
  const int64_t states = shape.batch * shape.hidden;
  Arrays arrays(kFunction);
  AddInputs(kFunction, recipe, args.inputs, arrays);
  arrays.NeededInput("y", args.y, shape.time * states);
  arrays.NeededInput("saved", args.saved, internal::SavedSize(recipe, shape, options.checkpoint));
  if (!recipe.is_lstm()) {
    arrays.MustBeNull("dc_n", args.dc_n, kNoCell);
    arrays.MustBeNull("dc0", args.dc0, kNoCell);
    arrays.MustBeNull("dc_reset", args.dc_reset, kNoCell);
  }
  arrays.Input("dy", args.dy, shape.time * states);
  arrays.Input("dh_n", args.dh_n, states);
  arrays.Input("dc_n", args.dc_n, states);
  arrays.Output("dx", args.dx, shape.time * shape.batch * shape.inputs);
  const auto params = internal::ParamsOf<T>(recipe, shape);
  for (size_t i = 0; i < params.size(); ++i) {
    const T* data = args.dparams.*params[i].member;
    if (!params[i].taken) arrays.MustBeNull(kGradientNames[i], data, kNotTaken);
    arrays.Output(kGradientNames[i], data, params[i].size);
  }
  arrays.Output("dh0", args.dh0, states);
  arrays.Output("dc0", args.dc0, states);
  arrays.Output("dh_reset", args.dh_reset, shape.hidden);
  arrays.Output("dc_reset", args.dc_reset, shape.hidden);
  arrays.CheckAlignedAndApart();
  internal::BackwardLayer(recipe, args, options);
}

template <class T>
void RnnStep(Cell cell, const RnnStepArgs<T>& args, const RnnOptions<T>& options) {
  constexpr const char* kFunction = "RnnStep";
  const CellRecipe recipe = internal::RecipeOf(cell);
  if (recipe.over == internal::Over::kBatch) {
    internal::Fail(kFunction, "cell", "be one without batch norm", "one with it");
  }
  RnnForwardArgs<T> forward;
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
  forward.inputs.shape = shape;
  forward.inputs.x = args.x;
  forward.inputs.params = args.params;
  forward.inputs.h0 = args.h;
  forward.inputs.c0 = args.c;
  forward.y = args.h_next;
  forward.c_n = args.c_next;
  internal::ForwardLayer(recipe, forward, options);
}

#define PLANISH_INSTANTIATE(T)                                                      \
  template int64_t RnnSavedSize<T>(Cell, const RnnShape&, bool);                    \
  template void RnnForward(Cell, const RnnForwardArgs<T>&, const RnnOptions<T>&);   \
  template void RnnBackward(Cell, const RnnBackwardArgs<T>&, const RnnOptions<T>&); \
  template void RnnStep(Cell, const RnnStepArgs<T>&, const RnnOptions<T>&);
PLANISH_RNN_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace planish
