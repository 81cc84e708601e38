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
using internal::cuda::WorkspaceBytesOf;

CellRecipe CheckedRecipe(const char* function, Cell cell) {
  const CellRecipe recipe = internal::RecipeOf(cell);
  if (recipe.over == internal::Over::kBatch) {
    internal::Fail(function, "cell", "be a cell without batch norm", "one with batch norm");
  }
  return recipe;
}

template <class T>
void CheckRnnShape(const char* function, const CellRecipe& recipe, const RnnShape& shape) {
  internal::CheckRnnShape<T>(function, recipe, shape, /*arrays=*/64, /*units=*/1);
}

template <class T>
int64_t SavedElements(const CellRecipe& recipe, const RnnShape& shape) {
  return internal::cuda::SavedBytes<T>(recipe, shape) / static_cast<int64_t>(sizeof(T));
}

template <template <class> class Args, class T>
int64_t CheckedBytes(Cell cell, const Args<T>& args, const RnnOptions<T>& options) {
  constexpr const char* kFunction = "WorkspaceBytes";
  const CellRecipe recipe = CheckedRecipe(kFunction, cell);
  CheckRnnShape<T>(kFunction, recipe, args.inputs.shape);
  return WorkspaceBytesOf(recipe, args, options.persistent);
}

}  // namespace

template <class T>
int64_t RnnSavedSize(Cell cell, const RnnShape& shape) {
  const CellRecipe recipe = CheckedRecipe("RnnSavedSize", cell);
  CheckRnnShape<T>("RnnSavedSize", recipe, shape);
  return SavedElements<T>(recipe, shape);
}

template <class T>
bool RnnFitsPersistent(Cell cell, const RnnShape& shape) {
  const CellRecipe recipe = CheckedRecipe("RnnFitsPersistent", cell);
  CheckRnnShape<T>("RnnFitsPersistent", recipe, shape);
  return internal::cuda::FitsPersistent<T>(recipe, shape);
}

template <class T>
int64_t WorkspaceBytes(Cell cell, const RnnForwardArgs<T>& args, const RnnOptions<T>& options) {
  return CheckedBytes(cell, args, options);
}

template <class T>
int64_t WorkspaceBytes(Cell cell, const RnnBackwardArgs<T>& args, const RnnOptions<T>& options) {
  return CheckedBytes(cell, args, options);
}

template <class T>
int64_t WorkspaceBytes(Cell cell, const RnnStepArgs<T>& args, const RnnOptions<T>& options) {
  return CheckedBytes(cell, internal::AsForward(args), options);
}

template <class T>
void RnnForward(Cell cell, const RnnForwardArgs<T>& args, const RnnOptions<T>& options) {
  constexpr const char* kFunction = "RnnForward";
  const CellRecipe recipe = CheckedRecipe(kFunction, cell);
  const RnnShape& shape = args.inputs.shape;
  CheckRnnShape<T>(kFunction, recipe, shape);
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
  internal::CheckWorkspace(kFunction, options, WorkspaceBytesOf(recipe, args, options.persistent));
  internal::cuda::ForwardLayer(kFunction, recipe, args, options);
}

template <class T>
void RnnBackward(Cell cell, const RnnBackwardArgs<T>& args, const RnnOptions<T>& options) {
  constexpr const char* kFunction = "RnnBackward";
  const CellRecipe recipe = CheckedRecipe(kFunction, cell);
  const RnnInputs<T>& inputs = args.inputs;
  const RnnShape& shape = inputs.shape;
  CheckRnnShape<T>(kFunction, recipe, shape);
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
  internal::CheckWorkspace(kFunction, options, WorkspaceBytesOf(recipe, args, options.persistent));
  internal::cuda::BackwardLayer(kFunction, recipe, args, options);
}

template <class T>
void RnnStep(Cell cell, const RnnStepArgs<T>& args, const RnnOptions<T>& options) {
  constexpr const char* kFunction = "RnnStep";
  const CellRecipe recipe = CheckedRecipe(kFunction, cell);
  const RnnShape shape = internal::ShapeOf(args);
  CheckRnnShape<T>(kFunction, recipe, shape);
  internal::CheckEps(kFunction, options.eps);
  Arrays arrays(kFunction);
  arrays.Add(args, recipe);
  arrays.Add(args.params, recipe, shape);
  arrays.CheckAlignedAndDisjoint();
  const RnnForwardArgs<T> layer = internal::AsForward(args);
  internal::CheckWorkspace(kFunction, options, WorkspaceBytesOf(recipe, layer, options.persistent));
  internal::cuda::ForwardLayer(kFunction, recipe, layer, options);
}

#define PLANISH_INSTANTIATE(T)                                                            \
  template int64_t RnnSavedSize<T>(Cell, const RnnShape&);                                \
  template bool RnnFitsPersistent<T>(Cell, const RnnShape&);                              \
  template int64_t WorkspaceBytes(Cell, const RnnForwardArgs<T>&, const RnnOptions<T>&);  \
  template int64_t WorkspaceBytes(Cell, const RnnBackwardArgs<T>&, const RnnOptions<T>&); \
  template int64_t WorkspaceBytes(Cell, const RnnStepArgs<T>&, const RnnOptions<T>&);     \
  template void RnnForward(Cell, const RnnForwardArgs<T>&, const RnnOptions<T>&);         \
  template void RnnBackward(Cell, const RnnBackwardArgs<T>&, const RnnOptions<T>&);       \
  template void RnnStep(Cell, const RnnStepArgs<T>&, const RnnOptions<T>&);
PLANISH_RNN_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace PLANISH_API
}  // namespace planish::cuda
