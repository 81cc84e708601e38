// Sums and elementwise operations of channels. Compiled once for each target, in namespace
// HWY_NAMESPACE.
#if defined(PLANISH_SRC_NORM_CHANNELS_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLANISH_SRC_NORM_CHANNELS_COLUMNS_INL_H_
#undef PLANISH_SRC_NORM_CHANNELS_COLUMNS_INL_H_
#else
#define PLANISH_SRC_NORM_CHANNELS_COLUMNS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "src/base/simd/erf-inl.h"
#include "src/base/simd/math-inl.h"
#include "src/norm/channels/columns.h"
#include "src/norm/rows/prefetch-inl.h"
#include "src/norm/rows/row_ends-inl.h"
#include "src/norm/rows/shared-inl.h"
#include "src/norm/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {
namespace {

// --- Tuning constants (docs/tuning.md) ---

/// Column limit for combining unaligned rows in a buffer for non-temporal stores, and the elements
/// of that buffer. The two ends of wider rows cost less than a copy.
inline constexpr int64_t kBufferedColumns = 128, kNtBuffer = 2048;

/// Rows that share the loads of the parameters of their columns.
inline constexpr int64_t kMappedRows = 4;

/// Elements of a run that are summed in C before the sum continues in double.
inline constexpr int64_t kRunElements = 1024;

// --- End of tuning constants ---

/// Writes lanes [from, to) of v to p[from], p[from + 1], ...
template <class D, class T>
HWY_INLINE void WriteLanes(D d, Vec<D> v, int64_t from, int64_t to, T* p) {
  HWY_ALIGN T lanes[hn::MaxLanes(D())];
  Write(d, v, lanes);
  for (int64_t i = from; i < to; ++i) p[i] = lanes[i];
}

/// Writes `rows` contiguous rows with non-temporal stores, from a buffer that map(r, n, buffer)
/// fills with rows [r, r + n). cols <= kBufferedColumns.
template <class D, class T, class Map>
HWY_INLINE void NtStoreRows(D d, T* out, int64_t rows, int64_t cols, const Map& map) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  HWY_ALIGN T buffer[kNtBuffer + hn::MaxLanes(D())];
  const int64_t at_once = kNtBuffer / cols;
  int64_t held = 0;  // elements kept between iterations, less than a vector
  for (int64_t r = 0; r < rows; r += at_once) {
    const int64_t n = std::min(at_once, rows - r);
    map(r, n, buffer + held);
    held += n * cols;
    int64_t i = std::min(held, RowLayout<true, D, T>(d, out, held).lead);
    std::copy_n(buffer, i, out);
    for (; i + lanes <= held; i += lanes) NtStoreCopy(d, buffer + i, out + i);
    std::copy_n(buffer + i, held - i, buffer);
    out += i;
    held -= i;
  }
  std::copy_n(buffer, held, out);
}

// --- Sources of parameters: value(d, k) is parameter k of each lane. ---

/// One set of parameters for each column, from column j on. A copy of the pointers, because stores
/// cannot change it.
template <class C, int kCount>
struct ColumnValues {
  const C* at[kCount];
  HWY_INLINE ColumnValues(const C* const* from, int64_t j) {
    for (int k = 0; k < kCount; ++k) at[k] = from[k] + j;
  }
  template <class D>
  HWY_INLINE Vec<D> operator()(D d, int k) const {
    return hn::LoadU(d, at[k]);
  }
};

/// One set of parameters for all lanes. A copy, because stores cannot change it.
template <class C, int kCount>
struct RunValues {
  C value[kCount];
  HWY_INLINE RunValues(const C* const* at, int64_t i) {
    for (int k = 0; k < kCount; ++k) value[k] = at[k][i];
  }
  template <class D>
  HWY_INLINE Vec<D> operator()(D d, int k) const {
    return hn::Set(d, value[k]);
  }
};

/// One set of parameters for the first `lanes` lanes, another for the rest.
template <class C, int kCount>
struct EdgeValues {
  const RunValues<C, kCount>& before;
  const RunValues<C, kCount>& after;
  int64_t lanes;
  template <class D>
  HWY_INLINE Vec<D> operator()(D d, int k) const {
    return hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(lanes)), before(d, k), after(d, k));
  }
};

// --- Sums ---

template <ChannelSums kSums, class D, class T, class Values>
HWY_INLINE void AddTerms(D d, const T* a, const T* x, const Values& value, Vec<D>& first,
                         Vec<D>& second) {
  if constexpr (kSums == ChannelSums::kStatistics) {
    const Vec<D> v = hn::Sub(Read(d, a), value(d, 0));
    first = hn::Add(first, v);
    second = hn::MulAdd(v, v, second);
  } else {
    const Vec<D> dy = Read(d, a);
    const Vec<D> xhat = hn::MulAdd(hn::Sub(Read(d, x), value(d, 0)), value(d, 1), value(d, 2));
    first = hn::Add(first, dy);
    second = hn::MulAdd(dy, xhat, second);
  }
}

/// Adds each lane to one double.
template <class D>
HWY_INLINE void AddToDoubles(D d, Vec<D> v, double* p) {
  if constexpr (hn::MaxLanes(D()) == 1) {
    *p += static_cast<double>(hn::GetLane(v));
  } else if constexpr (sizeof(hn::TFromD<D>) == sizeof(double)) {
    hn::StoreU(hn::Add(hn::LoadU(d, p), v), d, p);
  } else {
#if HWY_TARGET != HWY_SCALAR  // has neither halves nor more than one lane
    const hn::Half<D> half;
    const hn::Rebind<double, hn::Half<D>> wide;
    double* upper = p + hn::Lanes(wide);
    hn::StoreU(hn::Add(hn::LoadU(wide, p), hn::PromoteTo(wide, hn::LowerHalf(half, v))), wide, p);
    hn::StoreU(hn::Add(hn::LoadU(wide, upper), hn::PromoteTo(wide, hn::UpperHalf(half, v))), wide,
               upper);
#endif
  }
}

/// Computes SumColumns for `rows` rows (kSumRows with kWhole) and cols >= lanes.
template <ChannelSums kSums, bool kWhole, class D, class T>
HWY_INLINE void SumGroup(D d, const T* a, const T* x, int64_t stride, int64_t rows, int64_t cols,
                         const SumParameters<hn::TFromD<D>>& parameters, double* first,
                         double* second) {
  using C = hn::TFromD<D>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto sum = [&](int64_t c, Vec<D>& v, Vec<D>& w) HWY_ATTR {
    const ColumnValues<C, ParameterCount(kSums)> value(parameters.at, c);
    v = w = hn::Zero(d);
    for (int64_t r = 0; r < (kWhole ? kSumRows : rows); ++r) {
      // Prefetches the next group: the hardware prefetcher does not follow strided rows.
      PrefetchFar(a + (r + kSumRows) * stride + c);
      if constexpr (kSums == ChannelSums::kGradient) {
        PrefetchFar(x + (r + kSumRows) * stride + c);
      }
      AddTerms<kSums>(d, a + r * stride + c, x + r * stride + c, value, v, w);
    }
  };
  Vec<D> v, w;
  int64_t c = 0;
  for (; c + lanes <= cols; c += lanes) {
    sum(c, v, w);
    AddToDoubles(d, v, first + c);
    AddToDoubles(d, w, second + c);
  }
  if (c == cols) return;
  // Masks the lanes that have already been counted.
  const auto mask = LastLanes(d, cols - c);
  c = cols - lanes;
  sum(c, v, w);
  AddToDoubles(d, hn::IfThenElseZero(mask, v), first + c);
  AddToDoubles(d, hn::IfThenElseZero(mask, w), second + c);
}

/// Sets two_pass[i] for each lane that is false in `accurate`. Returns whether any two_pass[i] is
/// set.
template <class D>
HWY_INLINE bool MarkTwoPass(D d, hn::Mask<D> accurate, bool* two_pass) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  std::fill_n(two_pass, lanes, false);
  if (hn::AllTrue(d, accurate)) return false;
  HWY_ALIGN hn::TFromD<D> flags[hn::MaxLanes(D())];
  hn::StoreU(hn::IfThenElseZero(accurate, hn::Set(d, 1)), d, flags);
  for (int64_t i = 0; i < lanes; ++i) two_pass[i] = flags[i] == 0;
  return true;
}

/// Implements ShiftColumns.
template <class D, class T>
void ShiftColumnsWith(D d, const T* x, int64_t stride, int64_t rows, int64_t cols,
                      Compute<T>* shift) {
  const auto at = [&](int64_t i) { return x + (rows - 1) * i / 7 * stride; };  // 0 to 7
  ForColumns(d, cols, [&](auto tag, int64_t c) HWY_ATTR {
    // Equal values double, which is exact.
    const auto two = [&](int64_t i) HWY_ATTR {
      return hn::Add(Read(tag, at(i) + c), Read(tag, at(i + 4) + c));
    };
    const auto sum = hn::Add(hn::Add(two(0), two(2)), hn::Add(two(1), two(3)));
    hn::StoreU(hn::Mul(sum, hn::Set(tag, Compute<T>{0.125})), tag, shift + c);
  });
}

template <ChannelSums kSums, class D, class T>
HWY_NOINLINE void SumColumnsOf(D d, const T* a, const T* x, int64_t stride, int64_t rows,
                               int64_t cols, const SumParameters<Compute<T>>& parameters,
                               double* first, double* second) {
  int64_t r = 0;
  for (; r + kSumRows <= rows; r += kSumRows) {
    SumGroup<kSums, true>(d, a + r * stride, x + r * stride, stride, kSumRows, cols, parameters,
                          first, second);
  }
  if (r == rows) return;
  SumGroup<kSums, false>(d, a + r * stride, x + r * stride, stride, rows - r, cols, parameters,
                         first, second);
}

#if HWY_MAX_BYTES >= 32 && HWY_TARGET != HWY_SCALAR
/// Whether the sums of eight runs are added together.
template <class D>
inline constexpr bool kSumsEight =
    std::is_same_v<hn::TFromD<D>, float> && hn::MaxLanes(D()) >= hn::MaxLanes(Eight());

/// The sums of eight runs in lanes.
template <class D>
struct EightSums {
  Vec<Eight> first[8], second[8];

  HWY_INLINE void Set(D d, int64_t i, Vec<D> v, Vec<D> w) {
    first[i] = FoldToEight(d, v);
    second[i] = FoldToEight(d, w);
  }
  /// Adds the sums of the first `count` runs to doubles, in the order of AddLanes.
  HWY_INLINE void AddTo(int64_t count, double* firsts, double* seconds) const {
    HWY_ALIGN float sums[2][8];
    hn::Store(SumsOfEight(first), Eight(), sums[0]);
    hn::Store(SumsOfEight(second), Eight(), sums[1]);
    for (int64_t i = 0; i < count; ++i) {
      firsts[i] += static_cast<double>(sums[0][i]);
      seconds[i] += static_cast<double>(sums[1][i]);
    }
  }
};
#else
template <class D>
inline constexpr bool kSumsEight = false;
template <class D>
struct EightSums {};
#endif

/// Implements SumRuns for n >= lanes. Short runs are summed eight at a time.
template <ChannelSums kSums, class D, class T>
HWY_NOINLINE void SumRunsOf(D d, const T* a_, const T* x_, int64_t stride, int64_t runs, int64_t n,
                            const SumParameters<Compute<T>>& parameters, double* first,
                            double* second) {
  using C = hn::TFromD<D>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const bool eight_at_once = kSumsEight<D> && n <= kRunElements;
  const int64_t at_once = eight_at_once ? 8 : 1;
  for (int64_t r0 = 0; r0 < runs; r0 += at_once) {
    const int64_t count = std::min(at_once, runs - r0);
    for (int64_t begin = 0; begin < n; begin += kRunElements) {
      const int64_t end = std::min(n, begin + kRunElements);
      EightSums<D> eight;
      for (int64_t r = r0; r < r0 + count; ++r) {
        const T* a = a_ + r * stride;
        const T* x = x_ + r * stride;
        const RunValues<C, ParameterCount(kSums)> value(parameters.at, r);
        Vec<D> v0 = hn::Zero(d), w0 = v0, v1 = v0, w1 = v0;
        int64_t i = begin;
        for (; i + 2 * lanes <= end; i += 2 * lanes) {
          AddTerms<kSums>(d, a + i, x + i, value, v0, w0);
          AddTerms<kSums>(d, a + i + lanes, x + i + lanes, value, v1, w1);
        }
        if (i + lanes <= end) {
          AddTerms<kSums>(d, a + i, x + i, value, v0, w0);
          i += lanes;
        }
        if (i < end) {
          const auto mask = LastLanes(d, end - i);
          Vec<D> v = hn::Zero(d), w = v;
          AddTerms<kSums>(d, a + end - lanes, x + end - lanes, value, v, w);
          v1 = hn::Add(v1, hn::IfThenElseZero(mask, v));
          w1 = hn::Add(w1, hn::IfThenElseZero(mask, w));
        }
        if constexpr (kSumsEight<D>) {
          if (eight_at_once) {
            eight.Set(d, r - r0, hn::Add(v0, v1), hn::Add(w0, w1));
            continue;
          }
        }
        const LaneSums<C> sums = AddLanes(d, hn::Add(v0, v1), hn::Add(w0, w1));
        first[r] += static_cast<double>(sums.first);
        second[r] += static_cast<double>(sums.second);
      }
      if constexpr (kSumsEight<D>) {
        if (!eight_at_once) continue;
        for (int64_t k = count; k < 8; ++k) eight.Set(d, k, hn::Zero(d), hn::Zero(d));
        eight.AddTo(count, first + r0, second + r0);
      }
    }
  }
}

// --- Elementwise operations ---

/// Returns the function of kMap and its derivative at z.
template <ChannelMap kMap, class D>
HWY_INLINE ValueAndSlope<D> PointwiseOf(D d, Vec<D> z) {
  if constexpr (kMap == ChannelMap::kTanh) {
    return TanhAndSlope(d, z);
  } else {
    return ErfAndSlope(d, z);
  }
}

template <ChannelMap kMap, class D, class T, class Values>
HWY_INLINE Vec<D> Mapped(D d, const MapArrays<T>& arrays, int64_t i, const Values& value) {
  const Vec<D> a = Read(d, arrays.a + i);
  if constexpr (kMap == ChannelMap::kNormalize) {
    return hn::MulAdd(hn::Sub(a, value(d, 0)), value(d, 1), value(d, 2));
  } else if constexpr (kMap == ChannelMap::kGroupGradient) {
    const Vec<D> centred = hn::Sub(Read(d, arrays.x + i), value(d, 0));
    const Vec<D> g = hn::MulSub(a, value(d, 4), value(d, 2));
    return hn::Mul(hn::NegMulAdd(centred, value(d, 3), g), value(d, 1));
  } else if constexpr (kMap == ChannelMap::kGradient) {
    const Vec<D> x = Read(d, arrays.x + i);
    const Vec<D> xhat = hn::MulAdd(hn::Sub(x, value(d, 0)), value(d, 1), value(d, 2));
    return hn::Mul(hn::NegMulAdd(xhat, value(d, 4), hn::Sub(a, value(d, 3))), value(d, 5));
  } else if constexpr (IsPointwise(kMap)) {
    const Vec<D> z = hn::MulAdd(a, value(d, 0), value(d, 1));
    const Vec<D> f = kMap == ChannelMap::kTanh ? Tanh(d, z) : Erf(d, z);
    return hn::MulAdd(f, value(d, 2), value(d, 3));
  } else {
    return hn::Mul(a, value(d, 0));
  }
}

/// Processes the whole vectors in [i, end), and returns the index after them. value_at(i) gives the
/// parameters of vector i. Prefetches up to `limit`.
template <ChannelMap kMap, bool kNtStores, class D, class T, class ValueAt>
HWY_INLINE int64_t MapWhole(D d, const MapArrays<T>& arrays, int64_t i, int64_t end, int64_t limit,
                            const ValueAt& value_at) {
  constexpr int64_t kAhead = kPrefetchFarBytes / sizeof(T);
  const int64_t distance = arrays.ahead * static_cast<int64_t>(sizeof(T));
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto map = [&](int64_t at) HWY_ATTR {
    Put<kNtStores>(d, Mapped<kMap>(d, arrays, at, value_at(at)), arrays.out + at);
  };
  for (; i + 2 * lanes <= end; i += 2 * lanes) {
    if (!kNtStores && arrays.prefetch_output) {
      PrefetchOutput(arrays.out + i, 2 * lanes);
    } else if (kNtStores && arrays.ahead != 0) {
      PrefetchTwo(d, arrays.a + i, distance);
      if constexpr (IsGradient(kMap)) PrefetchTwo(d, arrays.x + i, distance);
    } else if (kNtStores && i + kAhead < limit) {
      PrefetchTwo(d, arrays.a + i);
      if constexpr (IsGradient(kMap)) PrefetchTwo(d, arrays.x + i);
    }
    map(i);
    map(i + lanes);
  }
  if (i + lanes <= end) {
    map(i);
    i += lanes;
  }
  return i;
}

/// Processes elements [begin, end) with parameters for each column. Those of element i are at
/// (i - from) % period, with from <= begin < from + period.
template <ChannelMap kMap, bool kNtStores, class D, class T>
HWY_INLINE void MapColumnsOf(D d, const MapArrays<T>& arrays, int64_t begin, int64_t end,
                             int64_t from, int64_t period,
                             const MapParameters<Compute<T>>& parameters) {
  using Values = ColumnValues<hn::TFromD<D>, ParameterCount(kMap)>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  if (end - begin < lanes) {
    const OneLane<D> single;
    for (int64_t i = begin; i < end; ++i) {
      if (i - from >= period) from += period;
      const Values value(parameters.at, i - from);
      Write(single, Mapped<kMap>(single, arrays, i, value), arrays.out + i);
    }
    return;
  }
  const auto vector_at = [&](int64_t at, int64_t j) HWY_ATTR {
    return Mapped<kMap>(d, arrays, at, Values(parameters.at, j < period ? j : j % period));
  };
  const int64_t last = end - lanes, last_j = last - from;
  const int64_t lead = RowLayout<kNtStores, D, T>(d, arrays.out + begin, end - begin).lead;
  Vec<D> tail = hn::Zero(d);
  if constexpr (kNtStores) {
    if (lead > 0) {
      WriteLanes(d, vector_at(begin, begin - from), 0, lead, arrays.out + begin);
    }
  } else if ((end - begin) % lanes != 0) {
    // Computed first: the last vector overlaps the one before, whose input can be overwritten in
    // place.
    tail = vector_at(last, last_j);
  }
  const Values values(parameters.at, 0);
  int64_t i = begin + lead;
  while (i + lanes <= end) {
    if (i - from >= period) from += period;
    const Values start(values.at, -from);
    // A vector that extends beyond the period finds the repeated parameters there.
    i = MapWhole<kMap, kNtStores>(d, arrays, i, std::min(end, from + period + lanes - 1), end,
                                  [=](int64_t at) HWY_ATTR { return Values(start.at, at); });
  }
  if (i == end) return;
  if constexpr (kNtStores) {
    WriteLanes(d, vector_at(last, last_j), i - last, lanes, arrays.out + last);
  } else {
    Write(d, tail, arrays.out + last);
  }
}

/// Processes elements [begin, end) with one set of parameters for each run.
template <ChannelMap kMap, bool kNtStores, class D, class T>
HWY_INLINE void MapRunsOf(D d, const MapArrays<T>& arrays, int64_t begin, int64_t end, int64_t run,
                          int64_t period, const MapParameters<Compute<T>>& parameters) {
  using C = hn::TFromD<D>;
  using Values = RunValues<C, ParameterCount(kMap)>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  if (end - begin < lanes) {
    const OneLane<D> single;
    for (int64_t i = begin; i < end; ++i) {
      const Values value(parameters.at, i / run % period);
      Write(single, Mapped<kMap>(single, arrays, i, value), arrays.out + i);
    }
    return;
  }
  // Returns the results of the vector at i, which starts in run q and can extend into the next run.
  const auto vector_at = [&](int64_t i, int64_t q) HWY_ATTR {
    const Values value(parameters.at, q % period), next(parameters.at, (q + 1) % period);
    const EdgeValues<C, ParameterCount(kMap)> edge{value, next, std::min(lanes, (q + 1) * run - i)};
    return Mapped<kMap>(d, arrays, i, edge);
  };
  const int64_t last = end - lanes;
  const int64_t lead = RowLayout<kNtStores, D, T>(d, arrays.out + begin, end - begin).lead;
  Vec<D> tail = hn::Zero(d);
  if constexpr (kNtStores) {
    if (lead > 0) {
      WriteLanes(d, vector_at(begin, begin / run), 0, lead, arrays.out + begin);
    }
  } else if ((end - begin) % lanes != 0) {
    tail = vector_at(last, last / run);  // overlaps the vector before it, so computed first
  }
  int64_t i = begin + lead, q = i / run, at = q % period;
  while (i + lanes <= end) {
    const int64_t to = (q + 1) * run, after = at + 1 < period ? at + 1 : 0;
    const Values value(parameters.at, at);
    i = MapWhole<kMap, kNtStores>(d, arrays, i, std::min(end, to), end,
                                  [&](int64_t) HWY_ATTR { return value; });
    if (i < to && i + lanes <= end) {
      const Values next(parameters.at, after);
      const EdgeValues<C, ParameterCount(kMap)> edge{value, next, to - i};
      Put<kNtStores>(d, Mapped<kMap>(d, arrays, i, edge), arrays.out + i);
      i += lanes;
    }
    ++q;
    at = after;
  }
  if (i == end) return;
  if constexpr (kNtStores) {
    WriteLanes(d, vector_at(last, last / run), i - last, lanes, arrays.out + last);
  } else {
    Write(d, tail, arrays.out + last);
  }
}

/// Processes elements [begin, end), at least a vector, of kMappedRows rows, which share the loads
/// of the parameters. Those of element i are at i.
template <ChannelMap kMap, class D, class T>
HWY_INLINE void MapColumnsAtOnce(D d, const MapArrays<T>& arrays, int64_t stride, int64_t begin,
                                 int64_t end, const MapParameters<Compute<T>>& parameters) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int kCount = ParameterCount(kMap);
  const ColumnValues<hn::TFromD<D>, kCount> values(parameters.at, 0);
  const MapArrays<T> local = arrays;
  const auto map = [&](int64_t i, Vec<D>* out) HWY_ATTR {
    Vec<D> value[kCount];
    for (int k = 0; k < kCount; ++k) value[k] = hn::LoadU(d, values.at[k] + i);
    for (int64_t r = 0; r < kMappedRows; ++r) {
      out[r] = Mapped<kMap>(d, local, i + r * stride, [&](D, int k) HWY_ATTR { return value[k]; });
    }
  };
  const auto write = [&](int64_t i, const Vec<D>* out) HWY_ATTR {
    for (int64_t r = 0; r < kMappedRows; ++r) Write(d, out[r], local.out + i + r * stride);
  };
  // The last vector overlaps the one before, whose input can be overwritten in place.
  Vec<D> tail[kMappedRows], out[kMappedRows];
  const int64_t last = end - lanes;
  if ((end - begin) % lanes != 0) {
    map(last, tail);
  } else {
    std::fill_n(tail, kMappedRows, hn::Zero(d));  // GCC for ARM64 warns otherwise
  }
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) {
    map(i, out);
    write(i, out);
  }
  if (i < end) write(last, tail);
}

/// Implements MapRows.
template <ChannelMap kMap, bool kNtStores, class D, class T>
HWY_NOINLINE void MapRowsOf(D d, MapArrays<T> arrays, int64_t stride, int64_t rows, int64_t begin,
                            int64_t end, int64_t run, int64_t period,
                            const MapParameters<Compute<T>>& parameters) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  // Non-temporal stores need whole cache lines of a row. Functions have more to do than to load.
  const bool at_once = !kNtStores && !IsPointwise(kMap) && !arrays.prefetch_output && run == 1 &&
                       end <= period && end - begin >= lanes;
  for (int64_t r = 0; r < rows; ++r) {
    if constexpr (!kNtStores && !IsPointwise(kMap)) {
      if (at_once && rows - r >= kMappedRows) {
        MapColumnsAtOnce<kMap>(d, arrays, stride, begin, end, parameters);
        arrays.a += kMappedRows * stride;
        arrays.x += kMappedRows * stride;
        arrays.out += kMappedRows * stride;
        r += kMappedRows - 1;
        continue;
      }
    }
    if (IsPointwise(kMap) || run == 1) {
      MapColumnsOf<kMap, kNtStores>(d, arrays, begin, end, begin - begin % period, period,
                                    parameters);
    } else if constexpr (!IsPointwise(kMap)) {
      MapRunsOf<kMap, kNtStores>(d, arrays, begin, end, run, period, parameters);
    }
    arrays.a += stride;
    arrays.x += stride;
    arrays.out += stride;
  }
  FinishStores<kNtStores>();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#endif  // PLANISH_SRC_NORM_CHANNELS_COLUMNS_INL_H_
