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
  bool sums = true, maps = true;
  bool statistics = false;  ///< statistics of each channel
  bool alone = false;       ///< a channel's bits must not depend on the number of channels
};

/// Returns `work` with the pack that its sizes and arrays allow.
template <class T>
ColumnsWork Packed(ColumnsWork work, std::initializer_list<Place> places) {
  work.pack = PackOf<T>(
      AreColumns(work.batch, work.spatial) ? work.channels * work.spatial : work.spatial, places);
  return work;
}

/// Divides `workspace` into its parts. If it is null, computes only the size.
template <class T>
ColumnsSpace CutSpace(const ColumnsWork& work, const ColumnsPlan& plan, const ColumnsKind& kind,
                      void* workspace) {
  ColumnsSpace space;
  char* begin = static_cast<char*>(workspace);
  const auto take = [&]<class N>(N*& part, int64_t count) {
    if (begin != nullptr) part = reinterpret_cast<N*>(begin + space.bytes);
    space.bytes += (count * static_cast<int64_t>(sizeof(N)) + 15) / 16 * 16;
  };
  if (kind.sums) take(space.pairs, work.channels * plan.pairs);
  if (kind.sums) take(space.shifts, work.channels);
  Compute<T>* values = nullptr;
  if (kind.maps) take(values, work.channels * kMaxMapParameters);
  space.values = values;
  if (kind.statistics) take(space.statistics, work.channels);
  return space;
}

/// Returns the workspace for a shape, in bytes, for any alignment of the arrays.
template <class T>
int64_t ColumnsBytes(int64_t batch, int64_t channels, int64_t spatial, const ColumnsKind& kind) {
  int64_t max = 0;
  if (batch == 0 || channels == 0 || spatial == 0) return max;
  ColumnsWork work = {
      .batch = batch, .channels = channels, .spatial = spatial, .alone = kind.alone};
  for (const int pack : {1, kFullPack<T>}) {
    work.pack = pack;
    if (pack != Packed<T>(work, {}).pack && pack != 1) continue;
    max = std::max(max, CutSpace<T>(work, PlanColumns(work), kind, nullptr).bytes);
  }
  return max;
}

/// Plans and runs `call`. Sums read a and x; the map also writes out.
template <template <class> class Call, class T, class Options>
void RunColumnsCall(const char* function, const Call<T>& call, const ColumnsKind& kind,
                    const Options& options) {
  const ChannelArrays<T> arrays = ArraysOf(call);
  const ColumnsWork work = {.batch = arrays.batch,
                            .channels = arrays.channels,
                            .spatial = arrays.spatial,
                            .alone = kind.alone};
  const ColumnsWork sums = Packed<T>(work, {arrays.a, arrays.x});
  const ColumnsPlan plan = PlanColumns(sums);
  const ColumnsRun run = {.function = function,
                          .sums = plan,
                          .map = PlanColumns(Packed<T>(work, {arrays.a, arrays.x, arrays.out})),
                          .space = CutSpace<T>(sums, plan, kind, options.workspace),
                          .stream = options.stream};
  CheckWorkspace(function, options, run.space.bytes);
  RunColumns(call, run);
}

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_NORM_CUDA_COLUMNS_CALL_H_
