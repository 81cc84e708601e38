// Norms over the sequences of a batch, forward and backward. Compiled once for each SIMD target, in
// the namespace HWY_NAMESPACE.
#if defined(PLANISH_SRC_RNN_CPU_BATCH_NORMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLANISH_SRC_RNN_CPU_BATCH_NORMS_INL_H_
#undef PLANISH_SRC_RNN_CPU_BATCH_NORMS_INL_H_
#else
#define PLANISH_SRC_RNN_CPU_BATCH_NORMS_INL_H_
#endif

#include <cstdint>

#include "src/rnn/cpu/cells.h"
#include "src/rnn/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {
namespace {

/// Calls f(state, vector) for one or four vectors. The states are separate variables, because GCC
/// 12 would keep an array of them in memory.
template <int kVectors, class State, class F>
HWY_INLINE void ForVectors(State& a, State& b, State& c, State& d, const F& f) {
  static_assert(kVectors == 1 || kVectors == 4);
  f(a, 0);
  if constexpr (kVectors > 1) f(b, 1), f(c, 2), f(d, 3);
}

// --- Tuning constants (docs/tuning.md) ---

/// The largest number of rows that are copied when they are first read, and later read from the
/// copy. Rows can be a page apart, and then conflict in the cache's sets. More rows are read in
/// place.
inline constexpr int64_t kCopiedRows = 64;

/// The vectors of columns that are processed together. A single vector would wait for memory and
/// for the latency of its sum.
inline constexpr int kColumnVectors = 4;

// --- End of tuning constants ---

/// Calls f.Do<vectors, copied>(j) for all columns; j is the first column.
template <class T, class F>
HWY_INLINE void ForColumns(const BatchColumns<T>& columns, const F& f) {
  constexpr int64_t n = kLanes<T>;
  const bool copied = columns.count <= kCopiedRows;
  int64_t j = 0;
  for (; j + kColumnVectors * n <= columns.columns; j += kColumnVectors * n) {
    copied ? f.template Do<kColumnVectors, true>(j) : f.template Do<kColumnVectors, false>(j);
  }
  for (; j < columns.columns; j += n)
    copied ? f.template Do<1, true>(j) : f.template Do<1, false>(j);
}

/// Returns the vectors of row i of p [., columns.stride], in the copy or in place.
template <int kVectors, bool kCopied, class T>
HWY_INLINE const T* Again(const BatchColumns<T>& columns, const T* p, const T* copy, int64_t i) {
  return kCopied ? copy + i * kVectors * kLanes<T> : p + columns.rows[i] * columns.stride;
}

template <class T>
struct BatchNormColumns {
  const BatchColumns<T>& columns;
  const T* z;
  T eps;
  T *xhat, *rstd, *copy;

  struct Statistics {
    V<T> sum, square, mean, rest, rstd;
    HWY_INLINE Statistics()
        : sum(hn::Zero(Tag<T>())), square(sum), mean(sum), rest(sum), rstd(sum) {}
  };

  template <int kVectors, bool kCopied>
  HWY_NOINLINE void Do(int64_t j) const {
    const Tag<T> d;
    constexpr int64_t n = kLanes<T>;
    const auto count = All<T>(static_cast<T>(columns.count));
    Statistics a, b, c, e;
    for (int64_t i = 0; i < columns.count; ++i) {
      const T* row = z + j + columns.rows[i] * columns.stride;
      T* to = copy + i * kVectors * n;
      ForVectors<kVectors>(a, b, c, e, [&](Statistics& m, int64_t v) HWY_ATTR {
        const auto value = Get(row + v * n);
        if constexpr (kCopied) Put<T>(value, to + v * n);
        m.sum = hn::Add(m.sum, value);
      });
    }
    ForVectors<kVectors>(a, b, c, e, [&](Statistics& m, int64_t) HWY_ATTR {
      m.mean = hn::Div(m.sum, count);
      m.sum = hn::Zero(d);
    });
    for (int64_t i = 0; i < columns.count; ++i) {
      const T* row = Again<kVectors, kCopied>(columns, z + j, copy, i);
      ForVectors<kVectors>(a, b, c, e, [&](Statistics& m, int64_t v) HWY_ATTR {
        const auto distance = hn::Sub(Get(row + v * n), m.mean);
        m.sum = hn::Add(m.sum, distance);
        m.square = hn::MulAdd(distance, distance, m.square);
      });
    }
    ForVectors<kVectors>(a, b, c, e, [&](Statistics& m, int64_t v) HWY_ATTR {
      m.rest = hn::Div(m.sum, count);
      const auto variance = hn::NegMulAdd(m.rest, m.rest, hn::Div(m.square, count));
      const auto deviation = hn::Sqrt(hn::Add(hn::Max(variance, hn::Zero(d)), All<T>(eps)));
      // Keeps NaN, which Max can lose.
      m.rstd = hn::IfThenElse(hn::IsNaN(variance), variance, hn::Div(All<T>(1), deviation));
      Put<T>(m.rstd, rstd + j + v * n);
    });
    for (int64_t i = 0; i < columns.count; ++i) {
      const T* row = Again<kVectors, kCopied>(columns, z + j, copy, i);
      T* to = xhat + j + columns.rows[i] * columns.stride;
      ForVectors<kVectors>(a, b, c, e, [&](Statistics& m, int64_t v) HWY_ATTR {
        const auto distance = hn::Sub(hn::Sub(Get(row + v * n), m.mean), m.rest);
        Put<T>(hn::Mul(distance, m.rstd), to + v * n);
      });
    }
  }
};

template <class T>
void BatchNorm(const BatchColumns<T>& columns, const T* z, T eps, T* xhat, T* rstd) {
  HWY_ALIGN T copy[kCopiedRows * kColumnVectors * kLanes<T>];
  ForColumns(columns, BatchNormColumns<T>{columns, z, eps, xhat, rstd, copy});
}

template <class T>
struct BatchNormBackwardColumns {
  const BatchColumns<T>& columns;
  T* d;
  const T *xhat, *rstd, *gain;
  T *dgain, *copied_d, *copied_xhat;

  struct Sums {
    V<T> sum, dot, scale;
    HWY_INLINE Sums() : sum(hn::Zero(Tag<T>())), dot(sum), scale(sum) {}
  };

  template <int kVectors, bool kCopied>
  HWY_NOINLINE void Do(int64_t j) const {
    constexpr int64_t n = kLanes<T>;
    const auto count = All<T>(static_cast<T>(columns.count));
    Sums a, b, c, e;
    for (int64_t i = 0; i < columns.count; ++i) {
      const int64_t at = j + columns.rows[i] * columns.stride, to = i * kVectors * n;
      ForVectors<kVectors>(a, b, c, e, [&](Sums& s, int64_t v) HWY_ATTR {
        const auto d_i = Get(d + at + v * n), xhat_i = Get(xhat + at + v * n);
        if constexpr (kCopied) {
          Put<T>(d_i, copied_d + to + v * n);
          Put<T>(xhat_i, copied_xhat + to + v * n);
        }
        s.sum = hn::Add(s.sum, d_i);
        s.dot = hn::MulAdd(d_i, xhat_i, s.dot);
      });
    }
    ForVectors<kVectors>(a, b, c, e, [&](Sums& s, int64_t v) HWY_ATTR {
      AddTo<T>(dgain + j + v * n, s.dot);
      s.sum = hn::Div(s.sum, count);
      s.dot = hn::Div(s.dot, count);
      s.scale = hn::Mul(Get(gain + j + v * n), Get(rstd + j + v * n));
    });
    for (int64_t i = 0; i < columns.count; ++i) {
      const T* row_d = Again<kVectors, kCopied, T>(columns, d + j, copied_d, i);
      const T* row_xhat = Again<kVectors, kCopied, T>(columns, xhat + j, copied_xhat, i);
      T* to = d + j + columns.rows[i] * columns.stride;
      ForVectors<kVectors>(a, b, c, e, [&](Sums& s, int64_t v) HWY_ATTR {
        const auto rest = hn::Sub(Get(row_d + v * n), s.sum);
        Put<T>(hn::Mul(s.scale, hn::NegMulAdd(Get(row_xhat + v * n), s.dot, rest)), to + v * n);
      });
    }
  }
};

template <class T>
void BatchNormBackward(const BatchColumns<T>& columns, T* d, const T* xhat, const T* rstd,
                       const T* gain, T* dgain) {
  HWY_ALIGN T copied_d[kCopiedRows * kColumnVectors * kLanes<T>];
  HWY_ALIGN T copied_xhat[kCopiedRows * kColumnVectors * kLanes<T>];
  ForColumns(columns, BatchNormBackwardColumns<T>{columns, d, xhat, rstd, gain, dgain, copied_d,
                                                  copied_xhat});
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#endif  // PLANISH_SRC_RNN_CPU_BATCH_NORMS_INL_H_
