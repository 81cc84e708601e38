#include "planish/rnn.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "src/base/check.h"
#include "src/rnn/cell.h"
#include "src/rnn/cpu.h"
#include "src/rnn/order.h"
#include "src/rnn/packed.h"
#include "src/rnn/sums.h"

namespace planish {
namespace {

using internal::Array;
using internal::CellRecipe;
using internal::VectorArray;

/// Sizes with which no array, of those given and those that are worked in, is larger than a pointer
/// can span: none has more than 32 * T * B * max(I, P) or 4 * P * max(I, P) numbers, P for H and
/// the padding that kernels add.
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
  const int64_t padded = shape.hidden > most ? most : internal::PaddedUnits<T>(shape.hidden);
  const int64_t padded_width = std::max(width, padded);
  const int64_t steps = std::max<int64_t>(1, shape.time), batch = std::max<int64_t>(1, shape.batch);
  if (padded_width > most / steps / batch) {
    internal::Fail(function, "time * batch * max(inputs, hidden)",
                   "be at most " + std::to_string(most),
                   std::to_string(shape.time) + " * " + std::to_string(shape.batch) + " * " +
                       std::to_string(width));
  }
  if (padded_width > most / padded) {
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
  /// Those that are given. It allocates no memory, as a step should not.
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
constexpr const char* kSums = "with sums";

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

/// Checks packed parameters, or adds the others.
template <class T>
void AddParams(const char* function, Cell cell, const RnnShape& shape,
               const RnnParams<const T>& params, const RnnPackedParams<T>& packed, Arrays& arrays) {
  if (!packed) return AddParams(internal::RecipeOf(cell), shape, params, arrays);
  const internal::PackedLayer<T>& layer = *packed.layer();
  if (layer.cell() != cell) {
    internal::Fail(function, "packed", "be of the same cell", "another one's parameters");
  }
  const auto same = [&](const char* size, int64_t packed_size, int64_t expected) {
    if (packed_size == expected) return;
    internal::Fail(function, "packed",
                   std::string("be of ") + size + " " + std::to_string(expected),
                   std::to_string(packed_size));
  };
  same("inputs", layer.inputs(), shape.inputs);
  same("hidden", layer.order().hidden, shape.hidden);
}

/// Those among the parameters' gradients that are given.
template <class T>
void AddGradients(const CellRecipe& recipe, const RnnShape& shape, const RnnParams<T>& dparams,
                  Arrays& arrays) {
  const auto params = internal::ParamsOf<T>(recipe, shape);
  for (size_t i = 0; i < params.size(); ++i) {
    const T* data = dparams.*params[i].member;
    if (!params[i].taken) arrays.MustBeNull(kGradientNames[i], data, kNotTaken);
    arrays.Output(kGradientNames[i], data, params[i].size);
  }
}

void CheckForBackward(const char* function, bool backward) {
  if (!backward) internal::Fail(function, "packed", "be packed for backward", "not been so");
}

/// RnnForward, of checked arguments.
template <class T>
void Forward(Cell cell, const RnnForwardArgs<T>& args, const RnnOptions<T>& options) {
  const internal::ThreadMemory<T> memory;
  const internal::PackedLayer<T>* packed = options.packed.layer();
  if (packed == nullptr) {
    const RnnShape& shape = args.inputs.shape;
    (*memory).packed.Pack(cell, shape.inputs, shape.hidden, args.inputs.params);
    (*memory).packed.PackWeights(args.inputs.params, options.parallel_for);
    packed = &(*memory).packed;
  }
  internal::ForwardLayer(*packed, args, options, *memory);
}

/// All but the parameters.
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
  return internal::SavedSize<T>(recipe, shape, checkpoint);
}

template <class T>
RnnPackedParams<T>::RnnPackedParams(Cell cell, int64_t inputs, int64_t hidden,
                                    const RnnParams<const T>& params,
                                    const ParallelFor& parallel_for, bool backward)
    : backward_(backward) {
  constexpr const char* kFunction = "RnnPackedParams";
  const CellRecipe recipe = internal::RecipeOf(cell);
  const RnnShape shape{0, 0, inputs, hidden};
  CheckRnnShape<T>(kFunction, shape);
  Arrays arrays(kFunction);
  AddParams(recipe, shape, params, arrays);
  arrays.CheckAlignedAndApart();
  auto layer = std::make_shared<internal::PackedLayer<T>>();
  layer->Pack(cell, inputs, hidden, params);
  layer->PackWeights(params, parallel_for);
  if (backward) layer->PackTransposed(params, /*dx=*/true, parallel_for);
  layer_ = std::move(layer);
}

template <class T>
RnnGradientSums<T>::RnnGradientSums(const RnnPackedParams<T>& packed) : packed_(packed) {
  constexpr const char* kFunction = "RnnGradientSums";
  if (!packed) internal::Fail(kFunction, "packed", "be packed parameters", "none");
  CheckForBackward(kFunction, packed.backward());
  sums_ = std::make_unique<internal::ParamSums<T>>();
  sums_->Reset(*packed_.layer());
}
template <class T>
RnnGradientSums<T>::~RnnGradientSums() = default;
template <class T>
RnnGradientSums<T>::RnnGradientSums(RnnGradientSums&&) noexcept = default;
template <class T>
RnnGradientSums<T>& RnnGradientSums<T>::operator=(RnnGradientSums&&) noexcept = default;

template <class T>
void RnnGradientSums<T>::Write(const RnnParams<T>& dparams, const ParallelFor& parallel_for) {
  const internal::PackedLayer<T>& layer = *packed_.layer();
  Arrays arrays("RnnGradientSums::Write");
  AddGradients(layer.call().recipe, {0, 0, layer.inputs(), layer.order().hidden}, dparams, arrays);
  arrays.CheckAlignedAndApart();
  sums_->Multiply(nullptr, true, true, parallel_for);
  sums_->Write(dparams, parallel_for);
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
  AddParams(kFunction, cell, shape, args.inputs.params, options.packed, arrays);
  arrays.NeededOutput("y", args.y, shape.time * states);
  if (!recipe.is_lstm()) arrays.MustBeNull("c_n", args.c_n, kNoCell);
  arrays.Output("h_n", args.h_n, states);
  arrays.Output("c_n", args.c_n, states);
  arrays.Output("saved", args.saved, internal::SavedSize<T>(recipe, shape, options.checkpoint));
  arrays.CheckAlignedAndApart();
  Forward(cell, args, options);
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
  AddParams(kFunction, cell, shape, args.inputs.params, options.packed, arrays);
  if (options.packed) CheckForBackward(kFunction, options.packed.backward());
  if (args.sums && args.sums->packed().layer() != options.packed.layer()) {
    internal::Fail(kFunction, "sums", "be of options.packed", "other parameters");
  }
  arrays.NeededInput("y", args.y, shape.time * states);
  arrays.NeededInput("saved", args.saved,
                     internal::SavedSize<T>(recipe, shape, options.checkpoint));
  if (!recipe.is_lstm()) {
    arrays.MustBeNull("dc_n", args.dc_n, kNoCell);
    arrays.MustBeNull("dc0", args.dc0, kNoCell);
    arrays.MustBeNull("dc_reset", args.dc_reset, kNoCell);
  }
  arrays.Input("dy", args.dy, shape.time * states);
  arrays.Input("dh_n", args.dh_n, states);
  arrays.Input("dc_n", args.dc_n, states);
  arrays.Output("dx", args.dx, shape.time * shape.batch * shape.inputs);
  AddGradients(recipe, shape, args.dparams, arrays);
  const auto dparams = internal::ParamsOf<T>(recipe, shape);
  for (size_t i = 0; args.sums && i < dparams.size(); ++i) {
    arrays.MustBeNull(kGradientNames[i], args.dparams.*dparams[i].member, kSums);
  }
  arrays.Output("dh0", args.dh0, states);
  arrays.Output("dc0", args.dc0, states);
  arrays.Output("dh_reset", args.dh_reset, shape.hidden);
  arrays.Output("dc_reset", args.dc_reset, shape.hidden);
  arrays.CheckAlignedAndApart();
  const internal::ThreadMemory<T> memory;
  const internal::PackedLayer<T>* packed = options.packed.layer();
  if (packed == nullptr) {
    internal::PackedLayer<T>& anew = (*memory).packed;
    anew.Pack(cell, shape.inputs, shape.hidden, args.inputs.params);
    if (options.checkpoint) anew.PackWeights(args.inputs.params, options.parallel_for);
    anew.PackTransposed(args.inputs.params, args.dx != nullptr, options.parallel_for);
    packed = &anew;
  }
  internal::BackwardLayer(*packed, args, options, args.sums ? &args.sums->sums() : nullptr,
                          *memory);
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
  AddParams(kFunction, cell, shape, args.params, options.packed, arrays);
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
  Forward(cell, forward, options);
}

#define PLANISH_INSTANTIATE(T)                                                      \
  template class RnnPackedParams<T>;                                                \
  template class RnnGradientSums<T>;                                                \
  template int64_t RnnSavedSize<T>(Cell, const RnnShape&, bool);                    \
  template void RnnForward(Cell, const RnnForwardArgs<T>&, const RnnOptions<T>&);   \
  template void RnnBackward(Cell, const RnnBackwardArgs<T>&, const RnnOptions<T>&); \
  template void RnnStep(Cell, const RnnStepArgs<T>&, const RnnOptions<T>&);
PLANISH_RNN_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace planish
