#ifndef PLANISH_SRC_NORM_CUDA_COLUMNS_CALL_H_
#define PLANISH_SRC_NORM_CUDA_COLUMNS_CALL_H_

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "src/base/check.h"
#include "src/base/cuda/pack.h"
#include "src/norm/cuda/columns.h"

// From a checked call to the kernels of columns.h: packs, plans and workspace.
namespace planish::internal::cuda {

/// Returns `work` with the pack that its sizes and arrays allow.
template <class T>
ColumnsWork Packed(ColumnsWork work, std::initializer_list<Place> places) {
  work.pack = PackOf<T>(
      AreColumns(work.batch, work.spatial) ? work.channels * work.spatial : work.spatial, places);
  return work;
}

/// Parts of the workspace that a call needs.
struct ColumnsNeeds {
  bool sums = true, maps = true, online = false;
};

/// Returns the workspace for a shape, in bytes, for any alignment of the arrays.
template <class T>
int64_t ColumnsBytes(ColumnsWork work, const ColumnsNeeds& needs) {
  int64_t max = 0;
  if (work.batch == 0 || work.channels == 0 || work.spatial == 0) return max;
  for (const int pack : {1, kFullPack<T>}) {
    work.pack = pack;
    if (pack != Packed<T>(work, {}).pack && pack != 1) continue;
    const ColumnsSpace space =
        CutSpace<T>(work, PlanColumns(work), needs.sums, needs.maps, needs.online, nullptr);
    max = std::max(max, space.bytes);
  }
  return max;
}

/// Plans and runs `call`. Sums read a and x; the map also writes out.
template <class T, template <class> class Call, class Options>
void RunColumnsCall(const char* function, const Call<T>& call, bool alone,
                    const ColumnsNeeds& needs, const Options& options) {
  const ColumnArrays<T>& arrays = call.arrays;
  const ColumnsWork work = {.batch = arrays.batch,
                            .channels = arrays.channels,
                            .spatial = arrays.spatial,
                            .alone = alone};
  const ColumnsWork sums = Packed<T>(work, {arrays.a, arrays.x});
  const ColumnsPlan plan = PlanColumns(sums);
  const ColumnsPlan map = PlanColumns(Packed<T>(work, {arrays.a, arrays.x, arrays.out}));
  const ColumnsSpace space =
      CutSpace<T>(sums, plan, needs.sums, needs.maps, needs.online, options.workspace);
  CheckWorkspace(function, options, space.bytes);
  RunColumns(function, call, plan, map, space, options.stream);
}

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_NORM_CUDA_COLUMNS_CALL_H_
