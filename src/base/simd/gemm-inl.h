// Kernels of gemm.h. Compiled once for each target, in namespace HWY_NAMESPACE.
#if defined(PLANISH_SRC_BASE_SIMD_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLANISH_SRC_BASE_SIMD_GEMM_INL_H_
#undef PLANISH_SRC_BASE_SIMD_GEMM_INL_H_
#else
#define PLANISH_SRC_BASE_SIMD_GEMM_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "src/base/simd/gemm.h"
#include "src/base/simd/simd.h"
// Must follow hwy/highway.h.
#include <hwy/cache_control.h>

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// --- Tuning constants (docs/tuning.md) ---

// Rows of a tile of c. The tile has two vectors a row and stays in registers; two more registers
// hold elements of w, one an element of a. Without FMA a product needs another one.
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
inline constexpr int kTileRows = 14;
inline constexpr int64_t kPaddedRows = 16;
#elif HWY_TARGET == HWY_AVX2 || !HWY_ARCH_X86
inline constexpr int kTileRows = 6;
inline constexpr int64_t kPaddedRows = 8;
#else
inline constexpr int kTileRows = 4;
inline constexpr int64_t kPaddedRows = 4;
#endif

// Limit on tiles of a copied at a time: they stay in the L2 cache while panels pass through L1.
// Each panel is read once for each group of tiles, so groups have equal sizes.
template <class T>
inline constexpr int64_t kMaxCopiedTiles = 40 / static_cast<int64_t>(sizeof(T));

// --- End of tuning constants ---

template <class T>
constexpr int64_t PanelColumns() {
  return 2 * static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<T>()));
}

// How a product reads the weights of a WeightType. Weight is an element of packed w, and Copy an
// element of a copied a.

/// WeightType::kFull.
template <class T>
struct FullWeights {
  using Weight = T;
  using Copy = T;
};
/// WeightType::kBfloat16. A Weight is a pair of adjacent depths, the first in the lower half.
struct Bfloat16Weights {
  using Weight = uint32_t;
  using Copy = float;
};
/// WeightType::kInt8. The weights of two depths are adjacent. Rows of a are quantized to int16.
struct Int8Weights {
  using Weight = int8_t;
  using Copy = int16_t;
};

template <class Weights>
inline constexpr bool kIsBfloat16 = std::is_same_v<Weights, Bfloat16Weights>;
template <class Weights>
inline constexpr bool kIsInt8 = std::is_same_v<Weights, Int8Weights>;

/// Returns the elements of packed w in a column of `depth` depths.
template <class Weights>
HWY_INLINE constexpr int64_t WeightsOf(int64_t depth) {
  if constexpr (kIsBfloat16<Weights>) return (depth + 1) / 2;
  if constexpr (kIsInt8<Weights>) return (depth + 1) / 2 * 2;
  return depth;
}

/// Scales of a product of integers: those of the rows of a, and of the columns of a panel.
struct Scales {
  const float* rows = nullptr;
  const float* columns = nullptr;
};

// Elements from one row to the next of a copied tile of a. A compile-time constant that keeps the
// rows in different cache sets. With kByRow a tile is row-major; else it has kPaddedRows elements
// for each k.
template <class T>
constexpr int64_t RowStride() {
  return kGemmDepth + 64 / static_cast<int64_t>(sizeof(T));
}
template <class T>
constexpr int64_t TileSize() {
  return kPaddedRows * RowStride<T>();
}

// Accumulators are named variables: GCC 12 keeps an array in memory, even one with constant
// indices, and stores each element after every step.
#define PLANISH_GEMM_ROWS(F) \
  F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11) F(12) F(13)
#define PLANISH_GEMM_DECLARE(r) \
  auto left##r = hn::Zero(d);   \
  auto right##r = hn::Zero(d);
#define PLANISH_GEMM_STEP(r)                                            \
  if constexpr ((r) < kRows) {                                          \
    const auto x = hn::Set(d, kByRow ? a[(r) * RowStride<T>()] : a[r]); \
    left##r = hn::MulAdd(x, w_left, left##r);                           \
    right##r = hn::MulAdd(x, w_right, right##r);                        \
  }
#define PLANISH_GEMM_BFLOAT16_STEP(f)                      \
  {                                                        \
    const auto w_left = f(d, left), w_right = f(d, right); \
    PLANISH_GEMM_ROWS(PLANISH_GEMM_STEP)                   \
  }
#define PLANISH_GEMM_PREFETCH(r)               \
  if constexpr ((r) < kRows) {                 \
    hwy::Prefetch(c + (r) * c_stride);         \
    hwy::Prefetch(c + (r) * c_stride + lanes); \
  }
#define PLANISH_GEMM_ADD(r)                                                 \
  if constexpr ((r) < kRows) {                                              \
    left##r = hn::Add(hn::LoadU(d, c + (r) * c_stride), left##r);           \
    right##r = hn::Add(hn::LoadU(d, c + (r) * c_stride + lanes), right##r); \
  }
#define PLANISH_GEMM_STORE(r)                            \
  if constexpr ((r) < kRows) {                           \
    hn::StoreU(left##r, d, c + (r) * c_stride);          \
    hn::StoreU(right##r, d, c + (r) * c_stride + lanes); \
  }

/// Returns the weights of the first depth of pairs.
template <class D>
HWY_INLINE hn::Vec<D> FirstOfPairs(D d, hn::Vec<hn::RebindToUnsigned<D>> pairs) {
  return hn::BitCast(d, hn::ShiftLeft<16>(pairs));
}
/// Returns the weights of the second depth of pairs.
template <class D>
HWY_INLINE hn::Vec<D> SecondOfPairs(D d, hn::Vec<hn::RebindToUnsigned<D>> pairs) {
  return hn::BitCast(d, hn::And(pairs, hn::Set(hn::RebindToUnsigned<D>(), 0xFFFF0000u)));
}

/// Computes kRows rows of a panel of c: `depth` products of a copied tile of a with the panel of w,
/// added to c if `accumulate`. Prefetches c.
template <class T, class Weights, int kRows, bool kByRow>
HWY_NOINLINE void Tile(const T* HWY_RESTRICT a, const typename Weights::Weight* HWY_RESTRICT w,
                       int64_t depth, T* HWY_RESTRICT c, int64_t c_stride, bool accumulate,
                       const Scales& /*scales*/) {
  const hn::ScalableTag<T> d;
  constexpr int64_t kColumns = PanelColumns<T>();
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  PLANISH_GEMM_ROWS(PLANISH_GEMM_DECLARE)
  PLANISH_GEMM_ROWS(PLANISH_GEMM_PREFETCH)
  if constexpr (kIsBfloat16<Weights>) {
    static_assert(kByRow);
    const hn::RebindToUnsigned<decltype(d)> pairs;
    int64_t i = 0;
    for (; i + 2 <= depth; i += 2) {
      const auto left = hn::LoadU(pairs, w), right = hn::LoadU(pairs, w + lanes);
      PLANISH_GEMM_BFLOAT16_STEP(FirstOfPairs)
      ++a;
      PLANISH_GEMM_BFLOAT16_STEP(SecondOfPairs)
      ++a;
      w += kColumns;
    }
    if (i < depth) {
      const auto left = hn::LoadU(pairs, w), right = hn::LoadU(pairs, w + lanes);
      PLANISH_GEMM_BFLOAT16_STEP(FirstOfPairs)
    }
  } else {
    for (int64_t i = 0; i < depth; ++i) {
      const auto w_left = hn::LoadU(d, w);
      const auto w_right = hn::LoadU(d, w + lanes);
      PLANISH_GEMM_ROWS(PLANISH_GEMM_STEP)
      w += kColumns;
      a += kByRow ? 1 : kPaddedRows;
    }
  }
  if (accumulate) {
    PLANISH_GEMM_ROWS(PLANISH_GEMM_ADD)
  }
  PLANISH_GEMM_ROWS(PLANISH_GEMM_STORE)
}

#define PLANISH_GEMM_SUMS(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7)
#define PLANISH_GEMM_SUM(i) auto sum##i = hn::Zero(d);
// Sum i belongs to row i / kVectors and vector i % kVectors; two vectors make a panel.
#define PLANISH_GEMM_SUM_STEP(i)                                                           \
  {                                                                                        \
    constexpr int kVector = (i) % kVectors;                                                \
    const auto w_i = hn::LoadU(d, w + (kVector / 2) * panel + at + (kVector % 2) * lanes); \
    sum##i = hn::MulAdd((i) < kVectors ? x0 : x1, w_i, sum##i);                            \
  }
#define PLANISH_GEMM_SUM_PAIR(i)                                                               \
  {                                                                                            \
    constexpr int kVector = (i) % kVectors;                                                    \
    const auto w_i = hn::LoadU(pairs, w + (kVector / 2) * panel + at + (kVector % 2) * lanes); \
    sum##i = hn::MulAdd((i) < kVectors ? x0 : x1, FirstOfPairs(d, w_i), sum##i);               \
    sum##i = hn::MulAdd((i) < kVectors ? next0 : next1, SecondOfPairs(d, w_i), sum##i);        \
  }
#define PLANISH_GEMM_SUM_LAST(i)                                                               \
  {                                                                                            \
    constexpr int kVector = (i) % kVectors;                                                    \
    const auto w_i = hn::LoadU(pairs, w + (kVector / 2) * panel + at + (kVector % 2) * lanes); \
    sum##i = hn::MulAdd((i) < kVectors ? x0 : x1, FirstOfPairs(d, w_i), sum##i);               \
  }
#define PLANISH_GEMM_SUM_STORE(i)                                               \
  {                                                                             \
    T* to = c + ((i) / kVectors) * c_stride + ((i) % kVectors) * lanes;         \
    hn::StoreU(accumulate ? hn::Add(hn::LoadU(d, to), sum##i) : sum##i, d, to); \
  }

/// Computes one or two rows of several panels of c, like Tile. Has enough sums to hide the latency
/// of additions, and reads w in enough places to use the memory bandwidth. Reads a in place.
template <class T, class Weights, int kRows>
HWY_NOINLINE void RowsOfPanels(const T* HWY_RESTRICT a, int64_t a_stride,
                               const typename Weights::Weight* HWY_RESTRICT w, int64_t depth,
                               T* HWY_RESTRICT c, int64_t c_stride, bool accumulate,
                               const Scales& /*scales*/) {
  const hn::ScalableTag<T> d;
  constexpr int kVectors = 8 / kRows;
  constexpr int64_t kColumns = PanelColumns<T>();
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t panel = WeightsOf<Weights>(depth) * kColumns;
  PLANISH_GEMM_SUMS(PLANISH_GEMM_SUM)
  int64_t at = 0;
  if constexpr (kIsBfloat16<Weights>) {
    const hn::RebindToUnsigned<decltype(d)> pairs;
    int64_t i = 0;
    for (; i + 2 <= depth; i += 2, at += kColumns) {
      const T* second = a + (kRows > 1 ? a_stride : 0) + i;
      const auto x0 = hn::Set(d, a[i]), next0 = hn::Set(d, a[i + 1]);
      const auto x1 = hn::Set(d, second[0]), next1 = hn::Set(d, second[1]);
      PLANISH_GEMM_SUMS(PLANISH_GEMM_SUM_PAIR)
    }
    if (i < depth) {
      const auto x0 = hn::Set(d, a[i]), x1 = hn::Set(d, kRows > 1 ? a[a_stride + i] : T{0});
      PLANISH_GEMM_SUMS(PLANISH_GEMM_SUM_LAST)
    }
  } else {
    for (int64_t i = 0; i < depth; ++i, at += kColumns) {
      const auto x0 = hn::Set(d, a[i]);
      const auto x1 = hn::Set(d, kRows > 1 ? a[a_stride + i] : T{0});
      PLANISH_GEMM_SUMS(PLANISH_GEMM_SUM_STEP)
    }
  }
  PLANISH_GEMM_SUMS(PLANISH_GEMM_SUM_STORE)
}

// --- Products of integers ---

#if HWY_TARGET == HWY_SCALAR
struct Pair {
  int32_t first, second;
};
HWY_INLINE Pair LoadPairs(const int8_t* w) { return {w[0], w[1]}; }
HWY_INLINE Pair SetPair(const int16_t* a) { return {a[0], a[1]}; }
struct PairSums {
  int32_t sum = 0;
  HWY_INLINE void Add(Pair w, Pair x) { sum += w.first * x.first + w.second * x.second; }
  HWY_INLINE hn::Vec<hn::ScalableTag<float>> Get() const {
    return hn::Set(hn::ScalableTag<float>(), static_cast<float>(sum));
  }
};
#else
using Int32s = hn::ScalableTag<int32_t>;
using Int16s = hn::Repartition<int16_t, Int32s>;
/// Returns the weights of two depths, for a vector of columns.
HWY_INLINE hn::Vec<Int16s> LoadPairs(const int8_t* w) {
  return hn::PromoteTo(Int16s(), hn::LoadU(hn::Rebind<int8_t, Int16s>(), w));
}
/// Returns the elements of a for two depths, for each column.
HWY_INLINE hn::Vec<Int16s> SetPair(const int16_t* a) {
  int32_t bits;
  std::memcpy(&bits, a, sizeof bits);
  return hn::BitCast(Int16s(), hn::Set(Int32s(), bits));
}
/// Exact sums of a vector of columns. A block of the depth cannot overflow them.
struct PairSums {
  static_assert(kGemmDepth * 127 * 32767 <= std::numeric_limits<int32_t>::max());
  hn::Vec<Int32s> sum, other;
  HWY_INLINE PairSums() : sum(hn::Zero(Int32s())), other(sum) {}
  HWY_INLINE void Add(hn::Vec<Int16s> w, hn::Vec<Int16s> x) {
    sum = hn::ReorderWidenMulAccumulate(Int32s(), w, x, sum, other);
  }
  HWY_INLINE hn::Vec<hn::ScalableTag<float>> Get() const {
    return hn::ConvertTo(hn::ScalableTag<float>(), hn::RearrangeToOddPlusEven(sum, other));
  }
};
#endif

/// Quantizes a row [depth] to integers in [-32767, 32767], and appends a 0 if depth is odd. `to`
/// has RowStride elements. Returns the scale of the integers, NaN if an element is not finite.
HWY_INLINE float QuantizeRow(const float* HWY_RESTRICT row, int64_t depth,
                             int16_t* HWY_RESTRICT to) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> ints;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t whole = depth / lanes * lanes;
  HWY_ALIGN float last[hn::MaxLanes(hn::ScalableTag<float>())] = {};
  std::copy_n(row + whole, depth - whole, last);
  // The bits of absolute values have the order of the values, with NaN as the largest.
  auto max = hn::Zero(ints);
  const auto include = [&](const float* from) HWY_ATTR {
    max = hn::Max(max, hn::BitCast(ints, hn::Abs(hn::LoadU(d, from))));
  };
  for (int64_t i = 0; i < whole; i += lanes) include(row + i);
  include(last);
  const int32_t bits = hn::GetLane(hn::MaxOfLanes(ints, max));
  float largest;
  std::memcpy(&largest, &bits, sizeof largest);
  const bool finite = largest <= std::numeric_limits<float>::max();
  largest = std::max(finite ? largest : 1.f, kMinQuantized);
  const auto inverse = hn::Set(d, 32767 / largest);
  const hn::Rebind<int16_t, decltype(d)> shorts;
  const auto quantize = [&](const float* from, int64_t i) HWY_ATTR {
    const auto rounded = hn::NearestInt(hn::Mul(hn::LoadU(d, from), inverse));
    hn::StoreU(hn::DemoteTo(shorts, rounded), shorts, to + i);
  };
  for (int64_t i = 0; i < whole; i += lanes) quantize(row + i, i);
  quantize(last, whole);
  if (depth % 2 != 0) to[depth] = 0;
  return finite ? largest / 32767 : std::numeric_limits<float>::quiet_NaN();
}

#define PLANISH_GEMM_INT8_DECLARE(r) PairSums left##r, right##r;
#define PLANISH_GEMM_INT8_STEP(r)                           \
  if constexpr ((r) < kRows) {                              \
    const auto x = SetPair(a + (r) * RowStride<int16_t>()); \
    left##r.Add(w_left, x);                                 \
    right##r.Add(w_right, x);                               \
  }
#define PLANISH_GEMM_INT8_STORE(r)                                              \
  if constexpr ((r) < kRows) {                                                  \
    const auto scale = hn::Set(d, scales.rows[r]);                              \
    float* to = c + (r) * c_stride;                                             \
    StoreScaled(left##r, hn::Mul(scale, scale_left), to, accumulate);           \
    StoreScaled(right##r, hn::Mul(scale, scale_right), to + lanes, accumulate); \
  }

/// Stores sums times their scale, or adds them.
HWY_INLINE void StoreScaled(const PairSums& sums, hn::Vec<hn::ScalableTag<float>> scale, float* to,
                            bool accumulate) {
  const hn::ScalableTag<float> d;
  const auto value = hn::Mul(sums.Get(), scale);
  hn::StoreU(accumulate ? hn::Add(hn::LoadU(d, to), value) : value, d, to);
}

/// Like Tile, for a quantized tile of a.
template <int kRows>
HWY_NOINLINE void TileOfInt8(const int16_t* HWY_RESTRICT a, const int8_t* HWY_RESTRICT w,
                             int64_t depth, float* HWY_RESTRICT c, int64_t c_stride,
                             bool accumulate, const Scales& scales) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  PLANISH_GEMM_ROWS(PLANISH_GEMM_INT8_DECLARE)
  PLANISH_GEMM_ROWS(PLANISH_GEMM_PREFETCH)
  for (int64_t i = 0; i < depth; i += 2) {
    const auto w_left = LoadPairs(w), w_right = LoadPairs(w + 2 * lanes);
    PLANISH_GEMM_ROWS(PLANISH_GEMM_INT8_STEP)
    w += 2 * PanelColumns<float>();
    a += 2;
  }
  const auto scale_left = hn::LoadU(d, scales.columns);
  const auto scale_right = hn::LoadU(d, scales.columns + lanes);
  PLANISH_GEMM_ROWS(PLANISH_GEMM_INT8_STORE)
}

#define PLANISH_GEMM_INT8_SUM(i) PairSums sum##i;
#define PLANISH_GEMM_INT8_SUM_STEP(i)                                                       \
  {                                                                                         \
    constexpr int kVector = (i) % kVectors;                                                 \
    const auto w_i = LoadPairs(w + (kVector / 2) * panel + at + (kVector % 2) * 2 * lanes); \
    sum##i.Add(w_i, (i) < kVectors ? x0 : x1);                                              \
  }
#define PLANISH_GEMM_INT8_SUM_STORE(i)                                                          \
  {                                                                                             \
    constexpr int kRow = (i) / kVectors, kVector = (i) % kVectors;                              \
    const auto scale =                                                                          \
        hn::Mul(hn::Set(d, scales.rows[kRow]), hn::LoadU(d, scales.columns + kVector * lanes)); \
    StoreScaled(sum##i, scale, c + kRow * c_stride + kVector * lanes, accumulate);              \
  }

/// Like RowsOfPanels, for quantized rows of a.
template <int kRows>
HWY_NOINLINE void RowsOfInt8Panels(const int16_t* HWY_RESTRICT a, int64_t a_stride,
                                   const int8_t* HWY_RESTRICT w, int64_t depth,
                                   float* HWY_RESTRICT c, int64_t c_stride, bool accumulate,
                                   const Scales& scales) {
  const hn::ScalableTag<float> d;
  constexpr int kVectors = 8 / kRows;
  constexpr int64_t kColumns = PanelColumns<float>();
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t panel = WeightsOf<Int8Weights>(depth) * kColumns;
  PLANISH_GEMM_SUMS(PLANISH_GEMM_INT8_SUM)
  for (int64_t i = 0, at = 0; i < depth; i += 2, at += 2 * kColumns) {
    const auto x0 = SetPair(a + i), x1 = SetPair(a + (kRows > 1 ? a_stride : 0) + i);
    PLANISH_GEMM_SUMS(PLANISH_GEMM_INT8_SUM_STEP)
  }
  PLANISH_GEMM_SUMS(PLANISH_GEMM_INT8_SUM_STORE)
}

#undef PLANISH_GEMM_ROWS
#undef PLANISH_GEMM_DECLARE
#undef PLANISH_GEMM_STEP
#undef PLANISH_GEMM_ADD
#undef PLANISH_GEMM_PREFETCH
#undef PLANISH_GEMM_STORE
#undef PLANISH_GEMM_SUMS
#undef PLANISH_GEMM_SUM
#undef PLANISH_GEMM_SUM_STEP
#undef PLANISH_GEMM_SUM_STORE
#undef PLANISH_GEMM_SUM_PAIR
#undef PLANISH_GEMM_SUM_LAST
#undef PLANISH_GEMM_BFLOAT16_STEP
#undef PLANISH_GEMM_INT8_DECLARE
#undef PLANISH_GEMM_INT8_STEP
#undef PLANISH_GEMM_INT8_STORE
#undef PLANISH_GEMM_INT8_SUM
#undef PLANISH_GEMM_INT8_SUM_STEP
#undef PLANISH_GEMM_INT8_SUM_STORE

template <class T, class Weights>
using TileFunction = void (*)(const typename Weights::Copy* a, const typename Weights::Weight* w,
                              int64_t depth, T* c, int64_t c_stride, bool accumulate,
                              const Scales& scales);

template <class T, class Weights, bool kByRow, int kRows>
constexpr TileFunction<T, Weights> TileOf() {
  if constexpr (kIsInt8<Weights>) {
    return &TileOfInt8<kRows>;
  } else {
    return &Tile<T, Weights, kRows, kByRow>;
  }
}

template <class T, class Weights, bool kByRow, int... kRows>
constexpr std::array<TileFunction<T, Weights>, kTileRows> TilesOf(
    std::integer_sequence<int, kRows...>) {
  return {TileOf<T, Weights, kByRow, kRows + 1>()...};
}

/// Tile for 1, 2, ... rows.
template <class T, class Weights, bool kByRow>
inline constexpr auto kTiles =
    TilesOf<T, Weights, kByRow>(std::make_integer_sequence<int, kTileRows>());

/// Returns the address of a row of a.
template <class T>
HWY_INLINE const T* RowAt(const GemmTask<T>& task, int64_t row) {
  if (task.a_block == 0) return task.a + row * task.a_stride;
  return task.a + row / task.a_block * task.a_block_stride + row % task.a_block * task.a_stride;
}

/// Copies or quantizes a for rows [row, row + rows) and k in [from, from + depth) in the layout of
/// Tile. Writes the scales of quantized rows.
template <class T, class Copy>
HWY_INLINE void CopyTile(const GemmTask<T>& task, int64_t row, int64_t rows, int64_t from,
                         int64_t depth, Copy* to, float* scales) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* a = RowAt(task, row + r) + from;
    if constexpr (std::is_same_v<Copy, T>) {
      std::copy_n(a, depth, to + r * RowStride<T>());
    } else {
      scales[r] = QuantizeRow(a, depth, to + r * RowStride<Copy>());
    }
  }
}

/// Copies a transposed a for several tiles. rows[t] is the first row of tile t, and rows[tiles] the
/// end of the last one.
template <class T>
HWY_INLINE void CopyTransposed(const GemmTask<T>& task, const int64_t* rows, int64_t tiles,
                               int64_t from, int64_t depth, T* to) {
  // Copies padded rows as vectors (std::copy would call memmove). After the last tiles there can be
  // too few rows for whole vectors.
  const hn::ScalableTag<T> d;
  constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(d));
  static_assert(kPaddedRows % kLanes == 0);
  int64_t whole = tiles;
  while (whole > 0 && rows[whole - 1] + kPaddedRows > task.rows) --whole;
  for (int64_t i = 0; i < depth; ++i) {
    const T* a = task.a + (from + i) * task.a_stride;
    T* tile = to + i * kPaddedRows;
    for (int64_t t = 0; t < whole; ++t, tile += TileSize<T>()) {
      for (int64_t r = 0; r < kPaddedRows; r += kLanes) {
        hn::Store(hn::LoadU(d, a + rows[t] + r), d, tile + r);
      }
    }
    for (int64_t t = whole; t < tiles; ++t, tile += TileSize<T>()) {
      for (int64_t r = 0; r < rows[t + 1] - rows[t]; ++r) tile[r] = a[rows[t] + r];
    }
  }
}

/// Calls f(c, c_stride) for `rows` rows of one panel of c, starting at (row, column). Uses a copy
/// if the panel extends beyond the last column.
template <class T, class F>
HWY_INLINE void WithPanel(const GemmTask<T>& task, int64_t row, int64_t rows, int64_t column,
                          bool accumulate, const F& f) {
  constexpr int64_t kColumns = PanelColumns<T>();
  T* c = task.c + row * task.c_stride + column;
  const int64_t columns = std::min(kColumns, task.n - column);
  if (columns == kColumns) return f(c, task.c_stride);
  HWY_ALIGN T copy[kTileRows * kColumns];
  for (int64_t r = 0; accumulate && r < rows; ++r) {
    std::copy_n(c + r * task.c_stride, columns, copy + r * kColumns);
    std::fill_n(copy + r * kColumns + columns, kColumns - columns, T{0});
  }
  f(copy, kColumns);
  for (int64_t r = 0; r < rows; ++r) {
    std::copy_n(copy + r * kColumns, columns, c + r * task.c_stride);
  }
}

/// Returns panel p of the block of packed w that starts at depth `from` and has `depth` depths.
template <class Weights, class T>
HWY_INLINE const typename Weights::Weight* PanelAt(const GemmTask<T>& task, int64_t from,
                                                   int64_t depth, int64_t p) {
  constexpr int64_t kColumns = PanelColumns<T>();
  const int64_t columns = (task.n + kColumns - 1) / kColumns * kColumns;
  return static_cast<const typename Weights::Weight*>(task.packed) +
         WeightsOf<Weights>(from) * columns + p * WeightsOf<Weights>(depth) * kColumns;
}

/// Computes tiles [begin, end) of `all`, which share the rows evenly. Processes one block of k
/// after another, so that its part of w stays in a cache for all tiles.
template <class Weights, class T>
HWY_INLINE void MultiplyTiles(const GemmTask<T>& task, int64_t begin, int64_t end, int64_t all) {
  using Copy = typename Weights::Copy;
  constexpr int64_t kColumns = PanelColumns<T>();
  constexpr int64_t kTilesAtOnce = kMaxCopiedTiles<Copy>;
  constexpr bool kMayBeTransposed = std::is_same_v<Weights, FullWeights<T>>;
  HWY_ALIGN Copy copies[kTilesAtOnce * TileSize<Copy>()];
  float scales[kTilesAtOnce * kTileRows];
  const auto& functions =
      task.a_transposed ? kTiles<T, Weights, !kMayBeTransposed> : kTiles<T, Weights, true>;
  const int64_t groups = (end - begin + kTilesAtOnce - 1) / kTilesAtOnce;
  for (int64_t from = 0; from < task.k; from += kGemmDepth) {
    const int64_t depth = std::min(kGemmDepth, task.k - from);
    const bool accumulate = task.accumulate || from > 0;
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t first = begin + (end - begin) * g / groups;
      const int64_t tiles = begin + (end - begin) * (g + 1) / groups - first;
      int64_t rows[kTilesAtOnce + 1];  // first row of each tile
      for (int64_t t = 0; t <= tiles; ++t) rows[t] = task.rows * (first + t) / all;
      if constexpr (kMayBeTransposed) {
        if (task.a_transposed) CopyTransposed(task, rows, tiles, from, depth, copies);
      }
      for (int64_t t = 0; !task.a_transposed && t < tiles; ++t) {
        CopyTile(task, rows[t], rows[t + 1] - rows[t], from, depth, copies + t * TileSize<Copy>(),
                 scales + t * kTileRows);
      }
      for (int64_t p = task.panel_begin; p < task.panel_end; ++p) {
        const auto* w = PanelAt<Weights>(task, from, depth, p);
        for (int64_t t = 0; t < tiles; ++t) {
          const int64_t count = rows[t + 1] - rows[t];
          const Scales of_tile{scales + t * kTileRows, task.scales + p * kColumns};
          WithPanel(task, rows[t], count, p * kColumns, accumulate,
                    [&](T* c, int64_t stride) HWY_ATTR {
                      functions[count - 1](copies + t * TileSize<Copy>(), w, depth, c, stride,
                                           accumulate, of_tile);
                    });
        }
      }
    }
  }
}

/// Computes all tiles, in parts whose elements of c stay in a cache.
template <class Weights, class T>
HWY_INLINE void MultiplyManyTiles(const GemmTask<T>& task) {
  const int64_t all = (task.rows + kTileRows - 1) / kTileRows;
  const int64_t parts = (all + kTilesOfPart - 1) / kTilesOfPart;
  for (int64_t p = 0; p < parts; ++p) {
    MultiplyTiles<Weights>(task, all * p / parts, all * (p + 1) / parts, all);
  }
}

/// Computes one or two rows with RowsOfPanels.
template <class Weights, int kRows, class T>
HWY_INLINE void MultiplyRows(const GemmTask<T>& task) {
  using Copy = typename Weights::Copy;
  constexpr int64_t kColumns = PanelColumns<T>();
  constexpr int64_t kPanels = 4 / kRows;
  // Incomplete panels are computed one at a time by Tile.
  const int64_t whole = std::min(task.panel_end, task.n / kColumns);
  const int64_t whole_groups =
      task.panel_begin + std::max<int64_t>(0, whole - task.panel_begin) / kPanels * kPanels;
  for (int64_t from = 0; from < task.k; from += kGemmDepth) {
    const int64_t depth = std::min(kGemmDepth, task.k - from);
    const bool accumulate = task.accumulate || from > 0;
    const Copy* a;
    int64_t a_stride;
    [[maybe_unused]] HWY_ALIGN Copy copies[kIsInt8<Weights> ? kRows * RowStride<Copy>() : 1];
    float row_scales[kRows];
    if constexpr (kIsInt8<Weights>) {
      CopyTile(task, 0, kRows, from, depth, copies, row_scales);
      a = copies;
      a_stride = RowStride<Copy>();
    } else {
      a = task.a + from;
      a_stride = RowAt(task, kRows - 1) - task.a;
    }
    int64_t p = task.panel_begin;
    for (; p < whole_groups; p += kPanels) {
      const auto* w = PanelAt<Weights>(task, from, depth, p);
      T* c = task.c + p * kColumns;
      const Scales scales{row_scales, task.scales + p * kColumns};
      if constexpr (kIsInt8<Weights>) {
        RowsOfInt8Panels<kRows>(a, a_stride, w, depth, c, task.c_stride, accumulate, scales);
      } else {
        RowsOfPanels<T, Weights, kRows>(a, a_stride, w, depth, c, task.c_stride, accumulate,
                                        scales);
      }
    }
    for (; p < task.panel_end; ++p) {
      for (int64_t r = 0; r < kRows; ++r) {
        const Scales scales{row_scales + r, task.scales + p * kColumns};
        WithPanel(task, r, 1, p * kColumns, accumulate, [&](T* c, int64_t stride) HWY_ATTR {
          TileOf<T, Weights, true, 1>()(a + r * a_stride, PanelAt<Weights>(task, from, depth, p),
                                        depth, c, stride, accumulate, scales);
        });
      }
    }
  }
}

/// See GemmKernels::pack. Transposes squares with a side of 16 bytes in registers.
template <class T>
HWY_NOINLINE void PackPanel(const T* const* columns, int64_t depth, T* to) {
  constexpr int64_t kColumns = PanelColumns<T>();
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  constexpr int64_t kSide = 16 / static_cast<int64_t>(sizeof(T));
  const hn::FixedTag<T, kSide> d;
  for (; i + kSide <= depth; i += kSide) {
    for (int64_t j = 0; j < kColumns; j += kSide) {
      T* at = to + i * kColumns + j;
      if constexpr (kSide == 4) {
        const hn::RepartitionToWide<hn::FixedTag<T, kSide>> pairs;
        const auto a = hn::LoadU(d, columns[j] + i), b = hn::LoadU(d, columns[j + 1] + i);
        const auto e = hn::LoadU(d, columns[j + 2] + i), f = hn::LoadU(d, columns[j + 3] + i);
        const auto ab_low = hn::BitCast(pairs, hn::InterleaveLower(d, a, b));
        const auto ab_high = hn::BitCast(pairs, hn::InterleaveUpper(d, a, b));
        const auto ef_low = hn::BitCast(pairs, hn::InterleaveLower(d, e, f));
        const auto ef_high = hn::BitCast(pairs, hn::InterleaveUpper(d, e, f));
        const auto put = [&](auto v, int64_t row)
                             HWY_ATTR { hn::StoreU(hn::BitCast(d, v), d, at + row * kColumns); };
        put(hn::InterleaveLower(pairs, ab_low, ef_low), 0);
        put(hn::InterleaveUpper(pairs, ab_low, ef_low), 1);
        put(hn::InterleaveLower(pairs, ab_high, ef_high), 2);
        put(hn::InterleaveUpper(pairs, ab_high, ef_high), 3);
      } else {
        const auto a = hn::LoadU(d, columns[j] + i), b = hn::LoadU(d, columns[j + 1] + i);
        hn::StoreU(hn::InterleaveLower(d, a, b), d, at);
        hn::StoreU(hn::InterleaveUpper(d, a, b), d, at + kColumns);
      }
    }
  }
#endif
  for (; i < depth; ++i) {
    for (int64_t j = 0; j < kColumns; ++j) to[i * kColumns + j] = columns[j][i];
  }
}

/// See GemmKernels::pack_rows.
template <class T>
HWY_NOINLINE void PackRows(const T* const* rows, int64_t panels, int64_t depth, T* to) {
  constexpr int64_t kColumns = PanelColumns<T>();
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < depth; ++i) {
    const T* from = rows[i];
    T* line = to + i * kColumns;
    for (int64_t p = 0; p < panels; ++p, from += kColumns, line += depth * kColumns) {
      hn::StoreU(hn::LoadU(d, from), d, line);
      hn::StoreU(hn::LoadU(d, from + lanes), d, line + lanes);
    }
  }
}

template <class Weights, class T>
HWY_INLINE void MultiplyTask(const GemmTask<T>& task) {
  if (task.a_transposed || task.rows > 2) {
    MultiplyManyTiles<Weights>(task);
  } else if (task.rows == 2) {
    MultiplyRows<Weights, 2>(task);
  } else {
    MultiplyRows<Weights, 1>(task);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#endif  // PLANISH_SRC_BASE_SIMD_GEMM_INL_H_
