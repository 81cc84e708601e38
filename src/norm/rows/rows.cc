// Row kernels of one element type, PLANISH_ELEMENT. Compiled once for each element type; includes
// itself once for each target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/norm/rows/rows.cc"
#include "src/base/simd/compiled_targets.h"
// Must follow the line above and precede all other includes.
#include <hwy/foreach_target.h>
// Must precede the headers that are compiled for each target.
#include <hwy/highway.h>

#include "src/base/simd/simd.h"
#include "src/norm/rows/backward-inl.h"
#include "src/norm/rows/backward_tiles-inl.h"
#include "src/norm/rows/forward-inl.h"
#include "src/norm/rows/narrow-inl.h"
#include "src/norm/rows/row_ends-inl.h"
#include "src/norm/rows/rows.h"
#include "src/norm/rows/shared-inl.h"
#include "src/norm/rows/transposed-inl.h"
// Must be last: it defines T and C, which the templates of the other headers use as parameters.
#include "src/norm/element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {
namespace {

/// Eight lanes, if the target has more and the narrow-row kernels exist.
#if HWY_MAX_BYTES >= 32 && HWY_TARGET != HWY_SCALAR
constexpr bool kHasNarrow = std::is_same_v<C, float>;
using Narrow = hn::CappedTag<C, 8>;
#else
[[maybe_unused]] constexpr bool kHasNarrow = false;
using Narrow = Full;
#endif

/// Calls f(d, nt_stores) with the widest vectors that a row fills, and whether to use non-temporal
/// stores.
template <class F>
HWY_INLINE void VisitWidth(int64_t cols, bool use_nt_stores, F&& f) {
  if (cols >= static_cast<int64_t>(hn::Lanes(Full()))) {
    VisitNtStores(use_nt_stores, [&](auto nt_stores) HWY_ATTR { f(Full(), nt_stores); });
  } else if (!std::is_same_v<Narrow, Full> && cols >= static_cast<int64_t>(hn::Lanes(Narrow()))) {
    f(Narrow(), std::false_type());
  } else {
    f(One(), std::false_type());
  }
}

/// Returns whether `rows` rows are too narrow for ForwardRowsWide.
HWY_INLINE bool IsNarrow([[maybe_unused]] const RowsForward<T>& args,
                         [[maybe_unused]] int64_t rows) {
#if HWY_MAX_BYTES >= 32 && HWY_TARGET != HWY_SCALAR
  if constexpr (kHasNarrow) {
    const bool to_memory =
        (args.use_nt_stores && args.y_stride == args.cols) || args.prefetch_output;
    return args.cols <= kTransposedColumns ||
           (rows >= kMinNarrowRows && args.cols < NarrowColumns<T>(to_memory));
  }
#endif
  return false;
}

/// Computes ForwardRows for narrow rows.
template <Output kOutput, bool kCentre>
HWY_INLINE void ForwardNarrowRows([[maybe_unused]] const RowsForward<T>& args,
                                  [[maybe_unused]] int64_t begin, [[maybe_unused]] int64_t end) {
#if HWY_MAX_BYTES >= 32 && HWY_TARGET != HWY_SCALAR
  if constexpr (kHasNarrow) {
    const auto run = [&](auto nt_stores) HWY_ATTR {
      if (args.cols <= kTransposedColumns) {
        ForwardRowsTransposed<kOutput, kCentre, nt_stores()>(args, begin, end);
      } else {
        ForwardRowsNarrow<kOutput, kCentre, nt_stores()>(Full(), args, begin, end);
      }
    };
    // Only contiguous rows form whole vectors for non-temporal stores.
    if (args.use_nt_stores && args.y_stride == args.cols) {
      run(std::true_type());
    } else {
      run(std::false_type());
    }
  }
#endif
}

void ForwardRowsOf(const RowsForward<T>& args, int64_t begin, int64_t end) {
  VisitOutput(args.recipe, [&](auto output, auto centre) HWY_ATTR {
    if (IsNarrow(args, end - begin)) {
      ForwardNarrowRows<output(), centre()>(args, begin, end);
      return;
    }
    VisitWidth(args.cols, args.use_nt_stores, [&](auto d, auto nt_stores) HWY_ATTR {
      static constexpr auto kLoops =
          ForwardLoops<nt_stores(), decltype(d), T>::template Of<output(), centre()>();
      ForwardRowsWide(kLoops, args, begin, end);
    });
  });
}

void SumChunksOf(const RowsForward<T>& args, int64_t row, int64_t begin, int64_t end,
                 double* sums) {
  SumRowChunks(Full(), args, row, begin, end, sums);
}

void FinishRowOf(const RowsForward<T>& args, int64_t row, const double* sums) {
  FinishRowChunks(Full(), args, row, sums);
}

void MapAndSumRowsOf(const RowsForward<T>& current, const RowsForward<T>& next) {
  VisitOutput(current.recipe, [&](auto output, auto centre) HWY_ATTR {
    if (IsNarrow(current, std::max(current.rows, next.rows))) {
      RowsForward<T> statistics = next, results = current;
      statistics.pass = Pass::kStatistics;
      results.pass = Pass::kResults;
      ForwardNarrowRows<output(), centre()>(statistics, 0, next.rows);
      ForwardNarrowRows<output(), centre()>(results, 0, current.rows);
      return;
    }
    VisitWidth(current.cols, current.use_nt_stores, [&](auto d, auto nt_stores) HWY_ATTR {
      static constexpr auto kLoops =
          ForwardLoops<nt_stores(), decltype(d), T>::template Of<output(), centre()>();
      MapAndSumRowsWide(kLoops, current, next);
    });
  });
}

void MapColumnsOf(const RowsForward<T>& args, int64_t row, int64_t begin, int64_t end) {
  VisitOutput(args.recipe, [&](auto output, auto centre) HWY_ATTR {
    VisitNtStores(args.use_nt_stores, [&](auto nt_stores) HWY_ATTR {
      MapRowColumns<output(), centre(), nt_stores()>(Full(), args, row, begin, end);
    });
  });
}

void BackwardRowsOf(const RowsBackward<T>& args, int64_t begin, int64_t end, C* dgain, C* dbias) {
  VisitGradient(args.recipe, [&](auto output, auto read_x) HWY_ATTR {
    constexpr bool kAffine = output() == Output::kAffine;
    const bool columns = kAffine && dgain;
    const int64_t cols = args.cols;  // a local variable: below, compilers know that it is not small
    if (args.dx == nullptr) {
      if (!columns) return;
      VisitWidth(cols, false, [&](auto d, auto) HWY_ATTR {
        GradientColumnsWide<output()>(d, args, begin, end, dgain, dbias);
      });
      return;
    }
#if HWY_MAX_BYTES >= 32 && HWY_TARGET != HWY_SCALAR
    if constexpr (kHasNarrow) {
      if (cols <= kTransposedGradientColumns) {
        const auto run = [&](auto has_columns) HWY_ATTR {
          if (args.use_nt_stores && args.dx_stride == cols) {
            BackwardRowsTransposed<output(), read_x(), has_columns(), true>(args, begin, end, dgain,
                                                                            dbias);
          } else {
            BackwardRowsTransposed<output(), read_x(), has_columns(), false>(args, begin, end,
                                                                             dgain, dbias);
          }
        };
        if (columns) {
          run(std::bool_constant<kAffine>());
        } else {
          run(std::false_type());
        }
        return;
      }
      const bool use_nt_stores = args.use_nt_stores && args.dx_stride == cols;
      if (cols < NarrowGradientColumns<T>(use_nt_stores || args.prefetch_output)) {
        const auto run = [&](auto has_columns, auto nt_stores) HWY_ATTR {
          BackwardRowsNarrow<output(), read_x(), has_columns(), nt_stores()>(Full(), args, begin,
                                                                             end, dgain, dbias);
        };
        const auto visit = [&](auto has_columns) HWY_ATTR {
          use_nt_stores ? run(has_columns, std::true_type()) : run(has_columns, std::false_type());
        };
        if (columns) {
          visit(std::bool_constant<kAffine>());
        } else {
          visit(std::false_type());
        }
        return;
      }
    }
#endif
    VisitWidth(cols, args.use_nt_stores, [&](auto d, auto nt_stores) HWY_ATTR {
      using Loops = BackwardLoops<nt_stores(), decltype(d), T>;
      static constexpr Loops kLoops = Loops::template Of<output(), read_x(), false>();
      static constexpr Loops kColumnLoops = Loops::template Of<output(), read_x(), kAffine>();
      BackwardRowsWide(columns ? kColumnLoops : kLoops, args, begin, end, columns ? dgain : nullptr,
                       columns ? dbias : nullptr);
    });
  });
}

void SumGradientChunksOf(const RowsBackward<T>& args, int64_t row, int64_t begin, int64_t end,
                         double* sums) {
  VisitGradient(args.recipe, [&](auto output, auto read_x) HWY_ATTR {
    SumRowGradientChunks<output(), read_x()>(Full(), args, row, begin, end, sums);
  });
}

void GradientTileOf(const RowsBackward<T>& args, int64_t begin, int64_t end, int64_t first,
                    int64_t last, const double* sums, C* dgain, C* dbias) {
  VisitGradient(args.recipe, [&](auto output, auto read_x) HWY_ATTR {
    constexpr bool kAffine = output() == Output::kAffine;
    const auto run = [&](auto dx, auto columns, auto nt_stores) HWY_ATTR {
      GradientTileWide<output(), read_x(), dx(), columns(), nt_stores()>(
          Full(), args, begin, end, first, last, sums, dgain, dbias);
    };
    constexpr std::true_type kYes;
    constexpr std::false_type kNo;
    constexpr std::bool_constant<kHasNtStores> kNtStores;
    const bool use_nt_stores = args.use_nt_stores && args.dx;
    if (kAffine && dgain && args.dx) {
      constexpr std::bool_constant<kAffine> kColumns;
      use_nt_stores ? run(kYes, kColumns, kNtStores) : run(kYes, kColumns, kNo);
    } else if (args.dx) {
      use_nt_stores ? run(kYes, kNo, kNtStores) : run(kYes, kNo, kNo);
    } else if constexpr (kAffine) {
      if (dgain) run(kNo, kYes, kNo);
    }
  });
}

template <class D>
HWY_INLINE void SumPartialsAt(D d, const C* partials, int64_t count, int64_t stride, C* out) {
  auto sum = hn::Zero(d);
  for (int64_t i = 0; i < count; ++i) {
    sum = hn::Add(sum, Widened(d, hn::LoadU(hn::Rebind<C, D>(), partials + i * stride)));
  }
  const hn::Rebind<C, D> narrow;
  hn::StoreU(Narrowed(narrow, sum), narrow, out);
}

void SumPartialsOf(const C* partials, int64_t count, int64_t stride, int64_t n, C* out) {
  ForColumns(hn::ScalableTag<double>(), n, [&](auto d, int64_t c) HWY_ATTR {
    SumPartialsAt(d, partials + c, count, stride, out + c);
  });
}

void WideParameters(const T* parameters, int64_t n, C* values) {
  ForColumns(Full(), n, [&](auto d, int64_t i) HWY_ATTR {
    hn::StoreU(PlainNan(d, Read(d, parameters + i)), d, values + i);
  });
}

void RoundedParameters(const C* values, int64_t n, T* parameters) {
  ForColumns(Full(), n, [&](auto d, int64_t i) HWY_ATTR {
    Write(d, PlainNan(d, hn::LoadU(d, values + i)), parameters + i);
  });
}

bool HasNan(const C* values, int64_t n) {
  bool none = true;
  ForColumns(Full(), n, [&](auto d, int64_t i) HWY_ATTR {
    none &= hn::AllFalse(d, hn::IsNaN(hn::LoadU(d, values + i)));
  });
  return !none;
}

void AddColumnsOf(const T* a, const T* b, int64_t n, T* out) {
  ForColumns(Full(), n, [&](auto d, int64_t c) HWY_ATTR {
    Write(d, hn::Add(Read(d, a + c), Read(d, b + c)), out + c);
  });
}

void AddColumnsKeptOf(const T* a, const T* b, int64_t n, T* out, T* kept) {
  const Full d;
  const One one;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto add_one = [&](int64_t c) HWY_ATTR {
    const auto sum = hn::Add(Read(one, a + c), Read(one, b + c));
    Write(one, sum, out + c);
    Write(one, sum, kept + c);
  };
  int64_t c = 0;
  for (const int64_t lead = std::min(n, RowLayout<kHasNtStores, Full, T>(d, out, n).lead); c < lead;
       ++c) {
    add_one(c);
  }
  for (; c + lanes <= n; c += lanes) {
    const auto sum = hn::Add(Read(d, a + c), Read(d, b + c));
    Put<kHasNtStores>(d, sum, out + c);
    Write(d, sum, kept + c);
  }
  for (; c < n; ++c) add_one(c);
  FinishStores<kHasNtStores>();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace planish::internal {

HWY_EXPORT(ForwardRowsOf);
HWY_EXPORT(SumChunksOf);
HWY_EXPORT(FinishRowOf);
HWY_EXPORT(MapAndSumRowsOf);
HWY_EXPORT(MapColumnsOf);
HWY_EXPORT(BackwardRowsOf);
HWY_EXPORT(SumGradientChunksOf);
HWY_EXPORT(GradientTileOf);
HWY_EXPORT(SumPartialsOf);
HWY_EXPORT(WideParameters);
HWY_EXPORT(RoundedParameters);
HWY_EXPORT(HasNan);
HWY_EXPORT(AddColumnsOf);
HWY_EXPORT(AddColumnsKeptOf);

template <class T>
void ForwardRows(const RowsForward<T>& args, int64_t begin, int64_t end) {
  PLANISH_DISPATCH(ForwardRowsOf)(args, begin, end);
}
template <class T>
void SumChunks(const RowsForward<T>& args, int64_t row, int64_t begin, int64_t end, double* sums) {
  PLANISH_DISPATCH(SumChunksOf)(args, row, begin, end, sums);
}
template <class T>
void FinishRow(const RowsForward<T>& args, int64_t row, const double* sums) {
  PLANISH_DISPATCH(FinishRowOf)(args, row, sums);
}
template <class T>
void MapAndSumRows(const RowsForward<T>& current, const RowsForward<T>& next) {
  PLANISH_DISPATCH(MapAndSumRowsOf)(current, next);
}
template <class T>
void MapColumns(const RowsForward<T>& args, int64_t row, int64_t begin, int64_t end) {
  PLANISH_DISPATCH(MapColumnsOf)(args, row, begin, end);
}
template <class T>
void BackwardRows(const RowsBackward<T>& args, int64_t begin, int64_t end, Compute<T>* dgain,
                  Compute<T>* dbias) {
  PLANISH_DISPATCH(BackwardRowsOf)(args, begin, end, dgain, dbias);
}
template <class T>
void SumGradientChunks(const RowsBackward<T>& args, int64_t row, int64_t begin, int64_t end,
                       double* sums) {
  PLANISH_DISPATCH(SumGradientChunksOf)(args, row, begin, end, sums);
}
template <class T>
void GradientTile(const RowsBackward<T>& args, int64_t begin, int64_t end, int64_t first,
                  int64_t last, const double* sums, Compute<T>* dgain, Compute<T>* dbias) {
  PLANISH_DISPATCH(GradientTileOf)(args, begin, end, first, last, sums, dgain, dbias);
}
template <class T>
void SumPartials(const Compute<T>* partials, int64_t count, int64_t stride, int64_t n,
                 Compute<T>* out) {
  PLANISH_DISPATCH(SumPartialsOf)(partials, count, stride, n, out);
}
template <class P>
void WidenParameters(const P* parameters, int64_t n, Compute<P>* values) {
  PLANISH_DISPATCH(WideParameters)(parameters, n, values);
}
template <class P>
void RoundParameters(const Compute<P>* values, int64_t n, P* parameters) {
  PLANISH_DISPATCH(RoundedParameters)(values, n, parameters);
}
template <class T>
bool AnyNan(const Compute<T>* values, int64_t n) {
  return PLANISH_DISPATCH(HasNan)(values, n);
}
template <class T>
void AddColumns(const T* a, const T* b, int64_t n, T* out) {
  PLANISH_DISPATCH(AddColumnsOf)(a, b, n, out);
}
template <class T>
void AddColumnsKept(const T* a, const T* b, int64_t n, T* out, T* kept) {
  PLANISH_DISPATCH(AddColumnsKeptOf)(a, b, n, out, kept);
}

using Element = PLANISH_ELEMENT;
template void ForwardRows(const RowsForward<Element>&, int64_t, int64_t);
template void SumChunks(const RowsForward<Element>&, int64_t, int64_t, int64_t, double*);
template void FinishRow(const RowsForward<Element>&, int64_t, const double*);
template void MapAndSumRows(const RowsForward<Element>&, const RowsForward<Element>&);
template void MapColumns(const RowsForward<Element>&, int64_t, int64_t, int64_t);
template void BackwardRows(const RowsBackward<Element>&, int64_t, int64_t, Compute<Element>*,
                           Compute<Element>*);
template void SumGradientChunks(const RowsBackward<Element>&, int64_t, int64_t, int64_t, double*);
template void GradientTile(const RowsBackward<Element>&, int64_t, int64_t, int64_t, int64_t,
                           const double*, Compute<Element>*, Compute<Element>*);
template void SumPartials<Element>(const Compute<Element>*, int64_t, int64_t, int64_t,
                                   Compute<Element>*);
template void WidenParameters(const Element*, int64_t, Compute<Element>*);
template void RoundParameters(const Compute<Element>*, int64_t, Element*);
template bool AnyNan<Element>(const Compute<Element>*, int64_t);
template void AddColumns(const Element*, const Element*, int64_t, Element*);
template void AddColumnsKept(const Element*, const Element*, int64_t, Element*, Element*);

}  // namespace planish::internal
#endif  // HWY_ONCE
