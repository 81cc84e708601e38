#ifndef PLANISH_SRC_NORM_CUDA_COLUMNS_CALL_H_
#define PLANISH_SRC_NORM_CUDA_COLUMNS_CALL_H_

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "src/base/check.h"
#include "src/base/cuda/pack.h"
#include "src/norm/cuda/columns.h"

// Packs, plans and workspace of a checked call for the kernels of columns.h.
namespace planish::internal::cuda {

/// Computed quantities of a call. Its plan and its workspace depend on them.
struct ColumnsKind {
  bool sums = true, elementwise = true;
  bool statistics = false;  ///< statistics of each channel
  /// A channel's bits must not depend on the number of channels.
  bool independent_of_channel_count = false;
};

/// Returns `shape` with the pack that its sizes and arrays allow.
template <class T>
ColumnsShape Packed(ColumnsShape shape, std::initializer_list<StridedArray> arrays) {
  shape.pack = PackOf<T>(
      AreColumns(shape.batch, shape.spatial) ? shape.channels * shape.spatial : shape.spatial,
      arrays);
  return shape;
}

/// Divides `workspace` into its parts. If it is null, computes only the size.
template <class T>
ColumnsSpace CutSpace(const ColumnsShape& shape, const ColumnsPlan& plan, const ColumnsKind& kind,
                      void* workspace) {
  ColumnsSpace space;
  char* begin = static_cast<char*>(workspace);
  const auto take = [&]<class N>(N*& part, int64_t count) {
    if (begin != nullptr) part = reinterpret_cast<N*>(begin + space.bytes);
    space.bytes += (count * static_cast<int64_t>(sizeof(N)) + 15) / 16 * 16;
  };
  if (kind.sums) take(space.pairs, shape.channels * plan.pairs);
  if (kind.sums) take(space.shifts, shape.channels);
  Compute<T>* values = nullptr;
  if (kind.elementwise) take(values, shape.channels * kMaxMapParameters);
  space.values = values;
  if (kind.statistics) take(space.statistics, shape.channels);
  return space;
}

/// Returns the workspace for a shape, in bytes, for any alignment of the arrays.
template <class T>
int64_t ColumnsBytes(int64_t batch, int64_t channels, int64_t spatial, const ColumnsKind& kind) {
  int64_t max = 0;
  if (batch == 0 || channels == 0 || spatial == 0) return max;
  ColumnsShape shape = {.batch = batch,
                        .channels = channels,
                        .spatial = spatial,
                        .independent_of_channel_count = kind.independent_of_channel_count};
  for (const int pack : {1, kFullPack<T>}) {
    shape.pack = pack;
    if (pack != Packed<T>(shape, {}).pack && pack != 1) continue;
    max = std::max(max, CutSpace<T>(shape, PlanColumns(shape), kind, nullptr).bytes);
  }
  return max;
}

/// Plans and runs `call`. Sums read a and x; the elementwise operation also writes out.
template <template <class> class Call, class T, class Options>
void RunColumnsCall(const char* function, const Call<T>& call, const ColumnsKind& kind,
                    const Options& options) {
  const ChannelArrays<T> arrays = ArraysOf(call);
  const ColumnsShape shape = {.batch = arrays.batch,
                              .channels = arrays.channels,
                              .spatial = arrays.spatial,
                              .independent_of_channel_count = kind.independent_of_channel_count};
  const ColumnsShape sums = Packed<T>(shape, {arrays.a, arrays.x});
  const ColumnsPlan plan = PlanColumns(sums);
  const ColumnsRun run = {.function = function,
                          .sums = plan,
                          .map = PlanColumns(Packed<T>(shape, {arrays.a, arrays.x, arrays.out})),
                          .space = CutSpace<T>(sums, plan, kind, options.workspace),
                          .stream = options.stream};
  CheckWorkspace(function, options, run.space.bytes);
  RunColumns(call, run);
}

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_NORM_CUDA_COLUMNS_CALL_H_
