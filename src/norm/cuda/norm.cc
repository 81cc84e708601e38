#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "planish/cuda.h"
#include "src/base/check.h"
#include "src/base/cuda/device.h"
#include "src/base/cuda/pack.h"
#include "src/norm/check.h"
#include "src/norm/cuda/fill.h"
#include "src/norm/cuda/rows.h"
#include "src/norm/cuda/rows_plan.h"
#include "src/norm/element_types.h"
#include "src/norm/recipe.h"
#include "src/norm/sets.h"

namespace planish::cuda {
inline namespace PLANISH_API {
namespace {

using internal::Recipe;
using internal::cuda::KernelSettingsOf;
using internal::cuda::kFullPack;
using internal::cuda::RowsPlan;
using internal::cuda::RowsShape;
using internal::cuda::StridedArray;
using internal::cuda::Untyped;

template <class T>
RowsShape RowsShapeOf(int64_t rows, int64_t cols, bool columns,
                      std::initializer_list<StridedArray> arrays) {
  return {.rows = rows,
          .cols = cols,
          .pack = internal::cuda::PackOf<T>(cols, arrays),
          .element_bytes = static_cast<int>(sizeof(T)),
          .columns = columns,
          .cluster_blocks = internal::cuda::MaxClusterBlocks()};
}

// Returns the maximum over all alignments and devices.
template <template <class, class> class Args, class T, class P, class Bytes>
int64_t MaxBytes(const Args<T, P>& args, bool columns, const Bytes& bytes) {
  internal::CheckRowSizes("WorkspaceBytes", args);
  int64_t max = 0;
  if (args.rows == 0 || args.cols == 0) return max;
  for (const int pack : {1, kFullPack<T>}) {
    if (args.cols % pack != 0) continue;
    for (int blocks = 1; blocks <= internal::cuda::kMaxClusterBlocks; blocks *= 2) {
      max = std::max(max, bytes(RowsShape{.rows = args.rows / args.sets,
                                          .cols = args.cols,
                                          .pack = pack,
                                          .element_bytes = static_cast<int>(sizeof(T)),
                                          .columns = columns,
                                          .cluster_blocks = blocks}));
    }
  }
  return max;
}

}  // namespace

int Devices() { return internal::cuda::Devices(); }

template <class T, class P>
int64_t WorkspaceBytes(const NormForwardArgs<T, P>& args) {
  return MaxBytes(args, false, [](const RowsShape& shape) {
    return ForwardWorkspaceBytes(shape, PlanForward(shape));
  });
}

template <class T, class P>
int64_t WorkspaceBytes(const NormBackwardArgs<T, P>& args) {
  return MaxBytes(args, internal::HasParamGradients(args), [](const RowsShape& shape) {
    return BackwardWorkspaceBytes(shape, PlanBackward(shape), sizeof(Compute<T>));
  });
}

namespace {

// Launches the kernels for a checked call with one parameter set and at least one element.
template <class T, class P>
void ForwardSet(const char* function, const Recipe& recipe, const NormForwardArgs<T, P>& args,
                const NormOptions& options) {
  const RowsShape shape = RowsShapeOf<T>(args.rows, args.cols, false,
                                         {{args.x, args.x_stride},
                                          {args.y, args.y_stride},
                                          {args.residual, args.residual_stride},
                                          {args.sum, args.sum_stride},
                                          args.gain,
                                          args.bias});
  const RowsPlan plan = PlanForward(shape);
  internal::CheckWorkspace(function, options, ForwardWorkspaceBytes(shape, plan));
  const internal::cuda::Forward<T> call = {Untyped(args),
                                           KernelSettingsOf<Compute<T>>(recipe, options)};
  RunForward(function, call, plan, options.stream, options.workspace);
}

template <class T, class P>
void BackwardSet(const char* function, const Recipe& recipe, const NormBackwardArgs<T, P>& args,
                 const NormOptions& options) {
  const bool columns = internal::HasParamGradients(args);
  if (!columns && args.dx == nullptr) return;
  internal::cuda::Backward<T> call = {Untyped(args), KernelSettingsOf<Compute<T>>(recipe, options)};
  internal::cuda::DropUnread(recipe, call);
  const RowsShape shape = RowsShapeOf<T>(args.rows, args.cols, columns,
                                         {{args.dy, args.dy_stride},
                                          {call.x, args.x_stride},
                                          {args.dx, args.dx_stride},
                                          {args.dsum, args.dsum_stride},
                                          args.gain});
  const RowsPlan plan = PlanBackward(shape);
  internal::CheckWorkspace(function, options,
                           BackwardWorkspaceBytes(shape, plan, sizeof(Compute<T>)));
  RunBackward(function, call, plan, options.stream, options.workspace);
}

}  // namespace

template <class T, class P>
void NormForward(Norm norm, const NormForwardArgs<T, P>& arguments, const NormOptions& options) {
  constexpr const char* kFunction = "NormForward";
  const Recipe recipe = internal::RecipeOf(norm);
  const auto args = internal::CheckRowNorm(kFunction, recipe, arguments, options);
  if (args.rows == 0) return;
  if (args.cols == 0) {
    internal::cuda::FillEach(kFunction, {args.mean, args.mean_lo, args.rstd}, args.rows,
                             internal::cuda::kNanByte, options.stream);
    return;
  }
  for (int64_t set = 0; set < args.sets; ++set) {
    ForwardSet(kFunction, recipe, internal::SetOf(args, recipe, set), options);
  }
}

template <class T, class P>
void NormBackward(Norm norm, const NormBackwardArgs<T, P>& arguments, const NormOptions& options) {
  constexpr const char* kFunction = "NormBackward";
  const Recipe recipe = internal::RecipeOf(norm);
  const auto args = internal::CheckRowNorm(kFunction, recipe, arguments, options);
  if (args.rows == 0 || args.cols == 0) {
    internal::cuda::FillEach(kFunction, {args.dgain, args.dbias}, args.sets * args.cols,
                             internal::cuda::kZeroByte, options.stream);
    return;
  }
  for (int64_t set = 0; set < args.sets; ++set) {
    BackwardSet(kFunction, recipe, internal::SetOf(args, recipe, set), options);
  }
}

#define PLANISH_INSTANTIATE(T, P)                                                    \
  template int64_t WorkspaceBytes(const NormForwardArgs<T, P>&);                     \
  template int64_t WorkspaceBytes(const NormBackwardArgs<T, P>&);                    \
  template void NormForward(Norm, const NormForwardArgs<T, P>&, const NormOptions&); \
  template void NormBackward(Norm, const NormBackwardArgs<T, P>&, const NormOptions&);
PLANISH_NORM_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace PLANISH_API
}  // namespace planish::cuda
