// Kernels of one element type, PLANISH_ELEMENT. Compiled once for each element type; includes
// itself once for each target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/norm/channels/channel_norm_kernels.cc"
#include "src/base/simd/compiled_targets.h"
// Must follow the line above and precede all other includes.
#include <hwy/foreach_target.h>
// Must precede the headers that are compiled for each target.
#include <hwy/highway.h>

#include "src/base/simd/simd.h"
#include "src/norm/channels/channel_norm-inl.h"
#include "src/norm/channels/channel_norm_kernels.h"
// Must be last: it defines T and C, which the templates of the other headers use as parameters.
#include "src/norm/element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {
namespace {

template <class F>
HWY_INLINE void VisitBool(bool value, F&& f) {
  if (value) {
    f(std::true_type());
  } else {
    f(std::false_type());
  }
}

bool FinishOfColumns(const Recipe& recipe, double eps, int64_t n, int64_t cols, const C* shift,
                     const double* first, const double* second,
                     const ColumnStatistics<C>& statistics, bool* two_pass) {
  return FinishColumnsOf<T>(recipe, eps, n, cols, shift, first, second, statistics, two_pass);
}

void StatisticsOfSaved(const C* mean, const C* mean_lo, const C* rstd, int64_t cols,
                       const ColumnStatistics<C>& statistics) {
  SavedColumnsOf(mean, mean_lo, rstd, cols, statistics);
}

void FinishOfGradients(const Recipe& recipe, double eps, int64_t n, int64_t cols, const C* rstd,
                       const double* first, const double* second, C* mean_g, C* mean_g_xhat) {
  FinishGradientsOf(recipe, eps, n, cols, rstd, first, second, mean_g, mean_g_xhat);
}

void ForwardMap(const ColumnsForward<T>& args) {
  VisitOutput(args.recipe, [&](auto output, auto centre) HWY_ATTR {
    VisitBool(args.each, [&](auto each) HWY_ATTR {
      VisitNtStores(args.use_nt_stores, [&](auto nt_stores) HWY_ATTR {
        MapForwardOf<output(), centre(), each(), nt_stores()>(Full(), args);
      });
    });
  });
}

/// Calls f(output, read_x, each) with the values of `args` as constants.
template <class F>
HWY_INLINE void VisitBackward(const ColumnsBackward<T>& args, F&& f) {
  VisitGradient(args.recipe, [&](auto output, auto read_x) HWY_ATTR {
    if constexpr (output() == Output::kAffine) {
      VisitBool(args.each, [&](auto each) HWY_ATTR { f(output, read_x, each); });
    } else {
      f(output, read_x, std::false_type());
    }
  });
}

void BackwardSum(const ColumnsBackward<T>& args, double* first, double* second, double* dgain,
                 double* dbias) {
  VisitBackward(args, [&](auto output, auto read_x, auto each) HWY_ATTR {
    constexpr bool kAffine = output() == Output::kAffine;
    const auto sum = [&](auto d) HWY_ATTR {
      if (kAffine && dgain) {
        SumBackwardOf<output(), read_x(), each(), kAffine>(d, args, first, second, dgain, dbias);
      } else {
        SumBackwardOf<output(), read_x(), each(), false>(d, args, first, second, nullptr, nullptr);
      }
    };
    if (args.cols < static_cast<int64_t>(hn::Lanes(Full()))) {
      sum(One());
    } else {
      sum(Full());
    }
  });
}

void BackwardMap(const ColumnsBackward<T>& args) {
  VisitBackward(args, [&](auto output, auto read_x, auto each) HWY_ATTR {
    VisitNtStores(args.use_nt_stores, [&](auto nt_stores) HWY_ATTR {
      MapBackwardOf<output(), read_x(), each(), nt_stores()>(Full(), args);
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace planish::internal {

HWY_EXPORT(FinishOfColumns);
HWY_EXPORT(StatisticsOfSaved);
HWY_EXPORT(FinishOfGradients);
HWY_EXPORT(ForwardMap);
HWY_EXPORT(BackwardSum);
HWY_EXPORT(BackwardMap);

template <class T>
bool FinishColumns(const Recipe& recipe, double eps, int64_t n, int64_t cols,
                   const Compute<T>* shift, const double* first, const double* second,
                   const ColumnStatistics<Compute<T>>& statistics, bool* two_pass) {
  return PLANISH_DISPATCH(FinishOfColumns)(recipe, eps, n, cols, shift, first, second, statistics,
                                           two_pass);
}
template <class T>
void SavedColumns(const Compute<T>* mean, const Compute<T>* mean_lo, const Compute<T>* rstd,
                  int64_t cols, const ColumnStatistics<Compute<T>>& statistics) {
  PLANISH_DISPATCH(StatisticsOfSaved)(mean, mean_lo, rstd, cols, statistics);
}
template <class T>
void FinishGradients(const Recipe& recipe, double eps, int64_t n, int64_t cols,
                     const Compute<T>* rstd, const double* first, const double* second,
                     Compute<T>* mean_g, Compute<T>* mean_g_xhat) {
  PLANISH_DISPATCH(FinishOfGradients)
  (recipe, eps, n, cols, rstd, first, second, mean_g, mean_g_xhat);
}
template <class T>
void MapForward(const ColumnsForward<T>& args) {
  PLANISH_DISPATCH(ForwardMap)(args);
}
template <class T>
void SumBackward(const ColumnsBackward<T>& args, double* first, double* second, double* dgain,
                 double* dbias) {
  PLANISH_DISPATCH(BackwardSum)(args, first, second, dgain, dbias);
}
template <class T>
void MapBackward(const ColumnsBackward<T>& args) {
  PLANISH_DISPATCH(BackwardMap)(args);
}

using Element = PLANISH_ELEMENT;
template bool FinishColumns<Element>(const Recipe&, double, int64_t, int64_t,
                                     const Compute<Element>*, const double*, const double*,
                                     const ColumnStatistics<Compute<Element>>&, bool*);
template void SavedColumns<Element>(const Compute<Element>*, const Compute<Element>*,
                                    const Compute<Element>*, int64_t,
                                    const ColumnStatistics<Compute<Element>>&);
template void FinishGradients<Element>(const Recipe&, double, int64_t, int64_t,
                                       const Compute<Element>*, const double*, const double*,
                                       Compute<Element>*, Compute<Element>*);
template void MapForward(const ColumnsForward<Element>&);
template void SumBackward(const ColumnsBackward<Element>&, double*, double*, double*, double*);
template void MapBackward(const ColumnsBackward<Element>&);

}  // namespace planish::internal
#endif  // HWY_ONCE
