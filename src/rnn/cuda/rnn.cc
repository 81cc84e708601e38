#include <cstdint>
#include <string>

#include "planish/cuda_rnn.h"
#include "src/base/check.h"
#include "src/rnn/cell.h"
#include "src/rnn/check.h"
#include "src/rnn/cuda/layer.h"
#include "src/rnn/element_types.h"

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

template <class T>
void CheckRnnShape(const char* function, const RnnShape& shape) {
  internal::CheckRnnShape<T>(function, shape, /*arrays=*/64, /*units=*/1);
}

template <class T>
int64_t SavedElements(const CellRecipe& recipe, const RnnShape& shape) {
  return internal::cuda::SavedBytes<T>(recipe, shape) / static_cast<int64_t>(sizeof(T));
}

}  // namespace

template <class T>
int64_t RnnSavedSize(Cell cell, const RnnShape& shape) {
  const CellRecipe recipe = CheckedRecipe("RnnSavedSize", cell);
  CheckRnnShape<T>("RnnSavedSize", shape);
  return SavedElements<T>(recipe, shape);
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
  return internal::cuda::ForwardWorkspaceBytes<T>(recipe, shape, saved, persistent);
}

template <class T>
int64_t RnnBackwardWorkspaceBytes(Cell cell, const RnnShape& shape, bool lengths, bool persistent) {
  const CellRecipe recipe = CheckedRecipe("RnnBackwardWorkspaceBytes", cell);
  CheckRnnShape<T>("RnnBackwardWorkspaceBytes", shape);
  return internal::cuda::BackwardWorkspaceBytes<T>(recipe, shape, lengths, persistent);
}

template <class T>
int64_t RnnStepWorkspaceBytes(Cell cell, int64_t batch, int64_t inputs, int64_t hidden) {
  const CellRecipe recipe = CheckedRecipe("RnnStepWorkspaceBytes", cell);
  const RnnShape shape{1, batch, inputs, hidden};
  CheckRnnShape<T>("RnnStepWorkspaceBytes", shape);
  return internal::cuda::ForwardWorkspaceBytes<T>(recipe, shape, false, false);
}

template <class T>
void RnnForward(Cell cell, const RnnForwardArgs<T>& args, const RnnOptions<T>& options) {
  constexpr const char* kFunction = "RnnForward";
  const CellRecipe recipe = CheckedRecipe(kFunction, cell);
  const RnnShape& shape = args.inputs.shape;
  CheckRnnShape<T>(kFunction, shape);
  internal::CheckEps(kFunction, options.eps);
  Arrays arrays(kFunction);
  const int64_t saved = SavedElements<T>(recipe, shape);
  arrays.Add(args.inputs, recipe);
  arrays.Add(args.inputs.params, recipe, shape);
  arrays.Add(args, recipe, saved);
  arrays.CheckAlignedAndDisjoint();
  if (args.saved != nullptr) {
    internal::CheckBlock(kFunction, "saved", args.saved, saved * static_cast<int64_t>(sizeof(T)));
  }
  internal::CheckWorkspace(kFunction, options,
                           internal::cuda::ForwardWorkspaceBytes<T>(
                               recipe, shape, args.saved != nullptr, options.persistent));
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
  if (args.sums) internal::Fail(kFunction, "sums", "be null on a GPU", "an address");
  const int64_t saved = SavedElements<T>(recipe, shape);
  Arrays arrays(kFunction);
  arrays.Add(inputs, recipe);
  arrays.Add(inputs.params, recipe, shape);
  arrays.Add(args, recipe, saved);
  arrays.Add(args.dparams, recipe, shape);
  arrays.CheckAlignedAndDisjoint();
  internal::CheckBlock(kFunction, "saved", args.saved, saved * static_cast<int64_t>(sizeof(T)));
  internal::CheckWorkspace(kFunction, options,
                           internal::cuda::BackwardWorkspaceBytes<T>(
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
  arrays.Add(args, recipe);
  arrays.Add(args.params, recipe, shape);
  arrays.CheckAlignedAndDisjoint();
  internal::CheckWorkspace(kFunction, options,
                           internal::cuda::ForwardWorkspaceBytes<T>(recipe, shape, false, false));
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
