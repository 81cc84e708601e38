// Channel kernels of one element type, PLANISH_ELEMENT. Compiled once for each element type;
// includes itself once for each target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/norm/channels/columns.cc"
#include "src/base/simd/compiled_targets.h"
// Must follow the line above and precede all other includes.
#include <hwy/foreach_target.h>
// Must precede the headers that are compiled for each target.
#include <hwy/highway.h>

#include "src/base/simd/simd.h"
#include "src/norm/channels/batch_norm-inl.h"
#include "src/norm/channels/batch_norm_kernels.h"
#include "src/norm/channels/columns-inl.h"
#include "src/norm/channels/columns.h"
#include "src/norm/channels/weight_norm-inl.h"
#include "src/norm/channels/weight_norm_kernels.h"
// Must be last: it defines T and C, which the templates of the other headers use as parameters.
#include "src/norm/element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {
namespace {

static_assert(hn::MaxLanes(Full()) <= kMinSampleRun && hn::MaxLanes(Full()) < kPeriodPad);

/// Calls f(d) with the widest vectors that `cols` columns fill.
template <class F>
HWY_INLINE void VisitWidth(int64_t cols, F&& f) {
  if (cols < static_cast<int64_t>(hn::Lanes(Full()))) {
    f(One());
  } else {
    f(Full());
  }
}

template <class F>
HWY_INLINE void VisitSums(ChannelSums sums, F&& f) {
  if (sums == ChannelSums::kStatistics) {
    f(std::integral_constant<ChannelSums, ChannelSums::kStatistics>());
  } else {
    f(std::integral_constant<ChannelSums, ChannelSums::kGradient>());
  }
}

void ColumnShifts(const T* x, int64_t stride, int64_t rows, int64_t cols, C* shift) {
  ShiftColumnsWith(Full(), x, stride, rows, cols, shift);
}

void ColumnSums(ChannelSums sums, const T* a, const T* x, int64_t stride, int64_t rows,
                int64_t cols, const SumParameters<C>& parameters, double* first, double* second) {
  VisitSums(sums, [&](auto which) HWY_ATTR {
    VisitWidth(cols, [&](auto d) HWY_ATTR {
      SumColumnsOf<which()>(d, a, x, stride, rows, cols, parameters, first, second);
    });
  });
}

void RunSums(ChannelSums sums, const T* a, const T* x, int64_t stride, int64_t runs, int64_t n,
             const SumParameters<C>& parameters, double* first, double* second) {
  VisitSums(sums, [&](auto which) HWY_ATTR {
    VisitWidth(n, [&](auto d) HWY_ATTR {
      SumRunsOf<which()>(d, a, x, stride, runs, n, parameters, first, second);
    });
  });
}

void MapRowsOnTarget(ChannelMap map, const MapArrays<T>& arrays, int64_t stride, int64_t rows,
                     int64_t begin, int64_t end, int64_t run, int64_t period,
                     const MapParameters<C>& parameters, bool use_nt_stores) {
  const auto visit = [&](auto which) HWY_ATTR {
    VisitNtStores(use_nt_stores, [&](auto nt_stores) HWY_ATTR {
      MapRowsOf<which(), nt_stores()>(Full(), arrays, stride, rows, begin, end, run, period,
                                      parameters);
    });
  };
  if (map == ChannelMap::kNormalize) {
    visit(std::integral_constant<ChannelMap, ChannelMap::kNormalize>());
  } else if (map == ChannelMap::kGradient) {
    visit(std::integral_constant<ChannelMap, ChannelMap::kGradient>());
  } else if (map == ChannelMap::kGroupGradient) {
    visit(std::integral_constant<ChannelMap, ChannelMap::kGroupGradient>());
  } else if (map == ChannelMap::kScale) {
    visit(std::integral_constant<ChannelMap, ChannelMap::kScale>());
  } else if (map == ChannelMap::kTanh) {
    visit(std::integral_constant<ChannelMap, ChannelMap::kTanh>());
  } else {
    visit(std::integral_constant<ChannelMap, ChannelMap::kErf>());
  }
}

bool BatchFinish(const BatchStatistics<T>& args, bool* two_pass) {
  return FinishBatchOf(args, two_pass);
}

/// Processes rows [begin, end) with the widest vectors that a row fills.
template <class Args>
HWY_INLINE void WeightsOf(const Args& args, int64_t begin, int64_t end, bool use_nt_stores) {
  const auto run = [&](auto d) HWY_ATTR {
    VisitNtStores(use_nt_stores && ArraysOf(args).out,
                  [&](auto nt_stores) HWY_ATTR { WeightRowsOf<nt_stores()>(d, args, begin, end); });
  };
  using Narrow = hn::CappedTag<C, 4>;
  if (args.cols >= static_cast<int64_t>(hn::Lanes(Full()))) {
    run(Full());
  } else if (!std::is_same_v<Narrow, Full> &&
             args.cols >= static_cast<int64_t>(hn::Lanes(Narrow()))) {
    run(Narrow());
  } else {
    run(One());
  }
}

void WeightsForward(const WeightNormForwardArgs<T, C>& args, int64_t begin, int64_t end,
                    bool use_nt_stores) {
  WeightsOf(args, begin, end, use_nt_stores);
}

void WeightsBackward(const WeightNormBackwardArgs<T, C>& args, int64_t begin, int64_t end,
                     bool use_nt_stores) {
  WeightsOf(args, begin, end, use_nt_stores);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace planish::internal {

HWY_EXPORT(ColumnShifts);
HWY_EXPORT(ColumnSums);
HWY_EXPORT(RunSums);
HWY_EXPORT(MapRowsOnTarget);
HWY_EXPORT(BatchFinish);
HWY_EXPORT(WeightsForward);
HWY_EXPORT(WeightsBackward);

template <class T>
void ShiftColumns(const T* x, int64_t stride, int64_t rows, int64_t cols, Compute<T>* shift) {
  PLANISH_DISPATCH(ColumnShifts)(x, stride, rows, cols, shift);
}
template <class T>
void SumColumns(ChannelSums sums, const T* a, const T* x, int64_t stride, int64_t rows,
                int64_t cols, const SumParameters<Compute<T>>& parameters, double* first,
                double* second) {
  PLANISH_DISPATCH(ColumnSums)(sums, a, x, stride, rows, cols, parameters, first, second);
}
template <class T>
void SumRuns(ChannelSums sums, const T* a, const T* x, int64_t stride, int64_t runs, int64_t n,
             const SumParameters<Compute<T>>& parameters, double* first, double* second) {
  PLANISH_DISPATCH(RunSums)(sums, a, x, stride, runs, n, parameters, first, second);
}
template <class T>
void MapRows(ChannelMap map, const MapArrays<T>& arrays, int64_t stride, int64_t rows,
             int64_t begin, int64_t end, int64_t run, int64_t period,
             const MapParameters<Compute<T>>& parameters, bool use_nt_stores) {
  PLANISH_DISPATCH(MapRowsOnTarget)
  (map, arrays, stride, rows, begin, end, run, period, parameters, use_nt_stores);
}

template <class T>
bool FinishBatch(const BatchStatistics<T>& args, bool* two_pass) {
  return PLANISH_DISPATCH(BatchFinish)(args, two_pass);
}

template <class T>
void NormalizeWeights(const WeightNormForwardArgs<T, Compute<T>>& args, int64_t begin, int64_t end,
                      bool use_nt_stores) {
  PLANISH_DISPATCH(WeightsForward)(args, begin, end, use_nt_stores);
}
template <class T>
void WeightGradients(const WeightNormBackwardArgs<T, Compute<T>>& args, int64_t begin, int64_t end,
                     bool use_nt_stores) {
  PLANISH_DISPATCH(WeightsBackward)(args, begin, end, use_nt_stores);
}

using Element = PLANISH_ELEMENT;
template void ShiftColumns(const Element*, int64_t, int64_t, int64_t, Compute<Element>*);
template void SumColumns(ChannelSums, const Element*, const Element*, int64_t, int64_t, int64_t,
                         const SumParameters<Compute<Element>>&, double*, double*);
template void SumRuns(ChannelSums, const Element*, const Element*, int64_t, int64_t, int64_t,
                      const SumParameters<Compute<Element>>&, double*, double*);
template void MapRows(ChannelMap, const MapArrays<Element>&, int64_t, int64_t, int64_t, int64_t,
                      int64_t, int64_t, const MapParameters<Compute<Element>>&, bool);
template bool FinishBatch(const BatchStatistics<Element>&, bool*);
template void NormalizeWeights<Element>(const WeightNormForwardArgs<Element, Compute<Element>>&,
                                        int64_t, int64_t, bool);
template void WeightGradients<Element>(const WeightNormBackwardArgs<Element, Compute<Element>>&,
                                       int64_t, int64_t, bool);

}  // namespace planish::internal
#endif  // HWY_ONCE
