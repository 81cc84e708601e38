#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "planish/cuda_rnn.h"
#include "src/base/check.h"
#include "src/rnn/cell.h"
#include "src/rnn/check.h"
#include "src/rnn/cuda/layer.h"

namespace planish::cuda {
inline namespace PLANISH_API {
namespace {

using internal::Arrays;
using internal::CellRecipe;

CellRecipe CheckedRecipe(const char* function, Cell cell) {
  const CellRecipe recipe = internal::RecipeOf(cell);
  if (recipe.over == internal::Over::kBatch) {
    internal::Fail(function, "cell", "be a cell without batch norm", "one with batch norm");
  }
  return recipe;
}

/// Checks that the byte size of all arguments and workspace together fits a pointer.
template <class T>
void CheckRnnShape(const char* function, const RnnShape& shape) {
  internal::CheckRnnSizes(function, shape);
  // All arrays have fewer than 64 elements for each step, sequence and unit or input.
  const int64_t max_count =
      std::numeric_limits<int64_t>::max() / static_cast<int64_t>(sizeof(T)) / 64;
  const int64_t width = std::max(shape.inputs, shape.hidden);
  const int64_t steps = std::max<int64_t>(1, shape.time), batch = std::max<int64_t>(1, shape.batch);
  if (width > max_count / steps / batch) {
    internal::Fail(function, "time * batch * max(inputs, hidden)",
                   "be at most " + std::to_string(max_count),
                   std::to_string(shape.time) + " * " + std::to_string(shape.batch) + " * " +
                       std::to_string(width));
  }
  if (width > max_count / shape.hidden) {
    internal::Fail(function, "hidden * max(inputs, hidden)",
                   "be at most " + std::to_string(max_count),
                   std::to_string(shape.hidden) + " * " + std::to_string(width));
  }
}

constexpr const char* kOnCpu = "on a GPU";

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
bool RnnFitsPersistent(Cell cell, const RnnShape& shape) {
  const CellRecipe recipe = CheckedRecipe("RnnFitsPersistent", cell);
  CheckRnnShape<T>("RnnFitsPersistent", shape);
  return internal::cuda::FitsPersistent<T>(recipe, shape);
}

template <class T>
int64_t RnnForwardWorkspaceBytes(Cell cell, const RnnShape& shape, bool saved, bool persistent) {
  const CellRecipe recipe = CheckedRecipe("RnnForwardWorkspaceBytes", cell);
  CheckRnnShape<T>("RnnForwardWorkspaceBytes", shape);
  return internal::cuda::ForwardRoomBytes<T>(recipe, shape, saved, persistent);
}

template <class T>
int64_t RnnBackwardWorkspaceBytes(Cell cell, const RnnShape& shape, bool lengths, bool persistent) {
  const CellRecipe recipe = CheckedRecipe("RnnBackwardWorkspaceBytes", cell);
  CheckRnnShape<T>("RnnBackwardWorkspaceBytes", shape);
  return internal::cuda::BackwardRoomBytes<T>(recipe, shape, lengths, persistent);
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
  Arrays arrays(kFunction);
  AddInputs(recipe, args.inputs, arrays);
  AddParams(recipe, shape, args.inputs.params, arrays);
  AddForwardOutputs(recipe, args, arrays);
  const int64_t saved = SavedNumbers<T>(recipe, shape);
  arrays.Output("saved", args.saved, saved);
  arrays.CheckAlignedAndDisjoint();
  if (args.saved != nullptr) {
    internal::CheckBlock(kFunction, "saved", args.saved, saved * static_cast<int64_t>(sizeof(T)));
  }
  internal::CheckWorkspace(kFunction, options,
                           internal::cuda::ForwardRoomBytes<T>(recipe, shape, args.saved != nullptr,
                                                               options.persistent));
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
  AddBackward(recipe, args, arrays);
  arrays.CheckAlignedAndDisjoint();
  internal::CheckBlock(kFunction, "saved", args.saved, saved * static_cast<int64_t>(sizeof(T)));
  internal::CheckWorkspace(kFunction, options,
                           internal::cuda::BackwardRoomBytes<T>(
                               recipe, shape, inputs.lengths != nullptr, options.persistent));
  internal::cuda::BackwardLayer(kFunction, recipe, args, options);
}

template <class T>
void RnnStep(Cell cell, const RnnStepArgs<T>& args, const RnnOptions<T>& options) {
  constexpr const char* kFunction = "RnnStep";
  const CellRecipe recipe = CheckedRecipe(kFunction, cell);
  const RnnShape shape{1, args.batch, args.inputs, args.hidden};
  CheckRnnShape<T>(kFunction, shape);
  internal::CheckEps(kFunction, options.eps);
  Arrays arrays(kFunction);
  AddStepInput(recipe, args, arrays);
  AddParams(recipe, shape, args.params, arrays);
  AddStepStates(args, arrays);
  arrays.CheckAlignedAndDisjoint();
  internal::CheckWorkspace(kFunction, options,
                           internal::cuda::ForwardRoomBytes<T>(recipe, shape, false, false));
  internal::cuda::ForwardLayer(kFunction, recipe, internal::AsForward(args), options);
}

#define PLANISH_INSTANTIATE(T)                                                      \
  template int64_t RnnSavedSize<T>(Cell, const RnnShape&);                          \
  template bool RnnFitsPersistent<T>(Cell, const RnnShape&);                        \
  template int64_t RnnForwardWorkspaceBytes<T>(Cell, const RnnShape&, bool, bool);  \
  template int64_t RnnBackwardWorkspaceBytes<T>(Cell, const RnnShape&, bool, bool); \
  template int64_t RnnStepWorkspaceBytes<T>(Cell, int64_t, int64_t, int64_t);       \
  template void RnnForward(Cell, const RnnForwardArgs<T>&, const RnnOptions<T>&);   \
  template void RnnBackward(Cell, const RnnBackwardArgs<T>&, const RnnOptions<T>&); \
  template void RnnStep(Cell, const RnnStepArgs<T>&, const RnnOptions<T>&);
PLANISH_RNN_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace PLANISH_API
}  // namespace planish::cuda
