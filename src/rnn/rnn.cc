#include "planish/rnn.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "src/base/check.h"
#include "src/rnn/arguments.h"
#include "src/rnn/cell.h"
#include "src/rnn/check.h"
#include "src/rnn/cpu/layer.h"
#include "src/rnn/cpu/order.h"
#include "src/rnn/cpu/packed.h"
#include "src/rnn/cpu/sums.h"
#include "src/rnn/element_types.h"

namespace planish {

/// Gives access to what the public classes of rnn.h hold.
struct internal::RnnAccess {
  /// Returns null if `packed` is empty.
  template <class T>
  static const PackedLayer<T>* Layer(const RnnPackedParams<T>& packed) {
    return static_cast<const PackedLayer<T>*>(packed.layer_.get());
  }
  template <class T>
  static ParamSums<T>& Sums(RnnGradientSums<T>& sums) {
    return *static_cast<ParamSums<T>*>(sums.sums_.get());
  }
};

inline namespace PLANISH_API {
namespace {

using internal::Arrays;
using internal::CellRecipe;
using internal::RnnAccess;

template <class T>
void CheckRnnShape(const char* function, const CellRecipe& recipe, const RnnShape& shape) {
  internal::CheckRnnShape<T>(function, recipe, shape, /*arrays=*/32, internal::kUnitsOfLine<T>);
}

/// Checks the packed weights, or adds the parameters to `arrays`.
template <class T>
void AddParams(const char* function, Cell cell, const RnnShape& shape,
               const RnnParams<const T>& params, const RnnPackedParams<T>& packed, Arrays& arrays) {
  if (!packed) return arrays.Add(params, internal::RecipeOf(cell), shape);
  const internal::PackedLayer<T>& layer = *RnnAccess::Layer(packed);
  if (layer.cell() != cell) {
    internal::Fail(function, "packed", "be weights of the same cell", "those of another cell");
  }
  const auto same = [&](const char* size, int64_t packed_size, int64_t expected) {
    if (packed_size == expected) return;
    internal::Fail(function, "packed",
                   std::string("have ") + size + " = " + std::to_string(expected),
                   std::to_string(packed_size));
  };
  same("inputs", layer.shape().inputs, shape.inputs);
  same("hidden", layer.order().hidden, shape.hidden);
  same("projected", layer.shape().projected, shape.projected);
  same("heads", layer.shape().heads, shape.heads);
}

void CheckForBackward(const char* function, bool backward) {
  if (!backward)
    internal::Fail(function, "packed", "be created with backward=true", "backward=false");
}

/// Computes RnnForward with checked arguments.
template <class T>
void Forward(Cell cell, const RnnForwardArgs<T>& args, const RnnOptions<T>& options) {
  const internal::ThreadMemory<T> memory;
  const internal::PackedLayer<T>* packed = RnnAccess::Layer(options.packed);
  if (packed == nullptr) {
    const RnnShape& shape = args.inputs.shape;
    (*memory).packed.Pack(cell, shape, args.inputs.params);
    (*memory).packed.PackWeights(args.inputs.params, options.parallel_for);
    packed = &(*memory).packed;
  }
  internal::ForwardLayer(*packed, args, options, *memory);
}

/// Checks shape, eps, lengths and packed weights of a call. Returns its inputs and parameters.
template <class T>
Arrays CheckedInputs(const char* function, Cell cell, const RnnInputs<T>& inputs,
                     const RnnOptions<T>& options) {
  const RnnShape& shape = inputs.shape;
  const CellRecipe recipe = internal::RecipeOf(cell);
  CheckRnnShape<T>(function, recipe, shape);
  internal::CheckEps(function, options.eps);
  Arrays arrays(function);
  arrays.Add(inputs, recipe);
  for (int64_t b = 0; inputs.lengths != nullptr && b < shape.batch; ++b) {
    if (inputs.lengths[b] < 1 || inputs.lengths[b] > shape.time) {
      internal::Fail(function, "lengths[" + std::to_string(b) + "]",
                     "be at least 1 and at most time, " + std::to_string(shape.time),
                     std::to_string(inputs.lengths[b]));
    }
  }
  AddParams(function, cell, shape, inputs.params, options.packed, arrays);
  return arrays;
}

}  // namespace

template <class T>
int64_t RnnSavedSize(Cell cell, const RnnShape& shape, bool checkpoint) {
  const CellRecipe recipe = internal::RecipeOf(cell);
  CheckRnnShape<T>("RnnSavedSize", recipe, shape);
  return internal::SavedSize<T>(recipe, shape, checkpoint);
}

template <class T>
RnnPackedParams<T>::RnnPackedParams(Cell cell, int64_t inputs, int64_t hidden,
                                    const RnnParams<const T>& params,
                                    const ParallelFor& parallel_for, bool backward,
                                    int64_t projected, int64_t heads, WeightType weight_type)
    : backward_(backward) {
  constexpr const char* kFunction = "RnnPackedParams";
  const CellRecipe recipe = internal::RecipeOf(cell);
  const RnnShape shape{0, 0, inputs, hidden, projected, heads};
  CheckRnnShape<T>(kFunction, recipe, shape);
  internal::CheckWeightType<T>(kFunction, weight_type, backward);
  Arrays arrays(kFunction);
  arrays.Add(params, recipe, shape);
  arrays.CheckAlignedAndDisjoint();
  auto layer = std::make_shared<internal::PackedLayer<T>>();
  layer->Pack(cell, shape, params);
  layer->PackWeights(params, parallel_for, weight_type);
  if (backward) layer->PackTransposed(params, /*dx=*/true, parallel_for);
  layer_ = std::move(layer);
}

template <class T>
RnnGradientSums<T>::RnnGradientSums(const RnnPackedParams<T>& packed) : packed_(packed) {
  constexpr const char* kFunction = "RnnGradientSums";
  if (!packed) internal::Fail(kFunction, "packed", "be packed weights", "none");
  CheckForBackward(kFunction, packed.backward());
  auto sums = std::make_shared<internal::ParamSums<T>>();
  sums->Reset(*RnnAccess::Layer(packed_));
  sums_ = std::move(sums);
}

template <class T>
void RnnGradientSums<T>::Write(const RnnParams<T>& dparams, const ParallelFor& parallel_for) {
  const internal::PackedLayer<T>& layer = *RnnAccess::Layer(packed_);
  Arrays arrays("RnnGradientSums::Write");
  arrays.Add(dparams, layer.call().recipe, layer.shape());
  arrays.CheckAlignedAndDisjoint();
  auto& sums = RnnAccess::Sums(*this);
  sums.Multiply(nullptr, internal::kAllWeights, parallel_for);
  sums.Write(dparams, parallel_for);
}

template <class T>
void RnnForward(Cell cell, const RnnForwardArgs<T>& args, const RnnOptions<T>& options) {
  constexpr const char* kFunction = "RnnForward";
  const CellRecipe recipe = internal::RecipeOf(cell);
  const RnnShape& shape = args.inputs.shape;
  Arrays arrays = CheckedInputs(kFunction, cell, args.inputs, options);
  arrays.Add(args, recipe, internal::SavedSize<T>(recipe, shape, options.checkpoint));
  arrays.CheckAlignedAndDisjoint();
  Forward(cell, args, options);
}

template <class T>
void RnnBackward(Cell cell, const RnnBackwardArgs<T>& args, const RnnOptions<T>& options) {
  constexpr const char* kFunction = "RnnBackward";
  const CellRecipe recipe = internal::RecipeOf(cell);
  const RnnShape& shape = args.inputs.shape;
  Arrays arrays = CheckedInputs(kFunction, cell, args.inputs, options);
  if (options.packed) CheckForBackward(kFunction, options.packed.backward());
  if (args.sums && RnnAccess::Layer(args.sums->packed()) != RnnAccess::Layer(options.packed)) {
    internal::Fail(kFunction, "sums", "be created from options.packed", "sums of other weights");
  }
  arrays.Add(args, recipe, internal::SavedSize<T>(recipe, shape, options.checkpoint));
  arrays.Add(args.dparams, recipe, shape);
  internal::VisitArguments(args.dparams, recipe, shape, [&](const auto& gradient) {
    if (args.sums && args.dparams.*gradient.member) {
      internal::Fail(kFunction, gradient.name, "be null with sums", "an address");
    }
  });
  arrays.CheckAlignedAndDisjoint();
  const internal::ThreadMemory<T> memory;
  const internal::PackedLayer<T>* packed = RnnAccess::Layer(options.packed);
  if (packed == nullptr) {
    internal::PackedLayer<T>& anew = (*memory).packed;
    anew.Pack(cell, shape, args.inputs.params);
    if (options.checkpoint) anew.PackWeights(args.inputs.params, options.parallel_for);
    anew.PackTransposed(args.inputs.params, args.dx != nullptr, options.parallel_for);
    packed = &anew;
  }
  internal::BackwardLayer(*packed, args, options,
                          args.sums ? &RnnAccess::Sums(*args.sums) : nullptr, *memory);
}

template <class T>
void RnnStep(Cell cell, const RnnStepArgs<T>& args, const RnnOptions<T>& options) {
  constexpr const char* kFunction = "RnnStep";
  const CellRecipe recipe = internal::RecipeOf(cell);
  if (recipe.over == internal::Over::kBatch) {
    internal::Fail(kFunction, "cell", "be a cell without batch norm", "one with batch norm");
  }
  const RnnShape shape = internal::ShapeOf(args);
  CheckRnnShape<T>(kFunction, recipe, shape);
  internal::CheckEps(kFunction, options.eps);
  Arrays arrays(kFunction);
  arrays.Add(args, recipe);
  AddParams(kFunction, cell, shape, args.params, options.packed, arrays);
  arrays.CheckAlignedAndDisjoint();
  Forward(cell, internal::AsForward(args), options);
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

}  // namespace PLANISH_API
}  // namespace planish
