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

/// Computes kRows rows of a panel of c: `depth` products of a copied tile of a with the panel of w,
/// added to c if `accumulate`. Prefetches c.
template <class T, int kRows, bool kByRow>
HWY_NOINLINE void Tile(const T* HWY_RESTRICT a, const T* HWY_RESTRICT w, int64_t depth,
                       T* HWY_RESTRICT c, int64_t c_stride, bool accumulate) {
  const hn::ScalableTag<T> d;
  constexpr int64_t kColumns = PanelColumns<T>();
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  PLANISH_GEMM_ROWS(PLANISH_GEMM_DECLARE)
  PLANISH_GEMM_ROWS(PLANISH_GEMM_PREFETCH)
  for (int64_t i = 0; i < depth; ++i) {
    const auto w_left = hn::LoadU(d, w);
    const auto w_right = hn::LoadU(d, w + lanes);
    PLANISH_GEMM_ROWS(PLANISH_GEMM_STEP)
    w += kColumns;
    a += kByRow ? 1 : kPaddedRows;
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
#define PLANISH_GEMM_SUM_STORE(i)                                               \
  {                                                                             \
    T* to = c + ((i) / kVectors) * c_stride + ((i) % kVectors) * lanes;         \
    hn::StoreU(accumulate ? hn::Add(hn::LoadU(d, to), sum##i) : sum##i, d, to); \
  }

/// Computes one or two rows of several panels of c, like Tile. Has enough sums to hide the latency
/// of additions, and reads w in enough places to use the memory bandwidth. Reads a in place.
template <class T, int kRows>
HWY_NOINLINE void RowsOfPanels(const T* HWY_RESTRICT a, int64_t a_stride, const T* HWY_RESTRICT w,
                               int64_t depth, T* HWY_RESTRICT c, int64_t c_stride,
                               bool accumulate) {
  const hn::ScalableTag<T> d;
  constexpr int kVectors = 8 / kRows;
  constexpr int64_t kColumns = PanelColumns<T>();
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t panel = depth * kColumns;
  PLANISH_GEMM_SUMS(PLANISH_GEMM_SUM)
  for (int64_t i = 0, at = 0; i < depth; ++i, at += kColumns) {
    const auto x0 = hn::Set(d, a[i]);
    const auto x1 = hn::Set(d, kRows > 1 ? a[a_stride + i] : T{0});
    PLANISH_GEMM_SUMS(PLANISH_GEMM_SUM_STEP)
  }
  PLANISH_GEMM_SUMS(PLANISH_GEMM_SUM_STORE)
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

template <class T>
using TileFunction = void (*)(const T* a, const T* w, int64_t depth, T* c, int64_t c_stride,
                              bool accumulate);

template <class T, bool kByRow, int... kRows>
constexpr std::array<TileFunction<T>, kTileRows> TilesOf(std::integer_sequence<int, kRows...>) {
  return {&Tile<T, kRows + 1, kByRow>...};
}

/// Tile for 1, 2, ... rows.
template <class T, bool kByRow>
inline constexpr auto kTiles = TilesOf<T, kByRow>(std::make_integer_sequence<int, kTileRows>());

/// Returns the address of a row of a.
template <class T>
HWY_INLINE const T* RowAt(const GemmTask<T>& task, int64_t row) {
  if (task.a_block == 0) return task.a + row * task.a_stride;
  return task.a + row / task.a_block * task.a_block_stride + row % task.a_block * task.a_stride;
}

/// Copies a for rows [row, row + rows) and k in [from, from + depth) in the layout of Tile.
template <class T>
HWY_INLINE void CopyTile(const GemmTask<T>& task, int64_t row, int64_t rows, int64_t from,
                         int64_t depth, T* to) {
  for (int64_t r = 0; r < rows; ++r) {
    std::copy_n(RowAt(task, row + r) + from, depth, to + r * RowStride<T>());
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

/// Returns the packed panels for k >= from.
template <class T>
HWY_INLINE const T* BlockAt(const GemmTask<T>& task, int64_t from) {
  constexpr int64_t kColumns = PanelColumns<T>();
  return task.packed + from * ((task.n + kColumns - 1) / kColumns * kColumns);
}

/// Computes tiles [begin, end) of `all`, which share the rows evenly. Processes one block of k
/// after another, so that its part of w stays in a cache for all tiles.
template <class T>
HWY_INLINE void MultiplyTiles(const GemmTask<T>& task, int64_t begin, int64_t end, int64_t all) {
  constexpr int64_t kColumns = PanelColumns<T>();
  constexpr int64_t kTilesAtOnce = kMaxCopiedTiles<T>;
  HWY_ALIGN T copies[kTilesAtOnce * TileSize<T>()];
  const auto& functions = task.a_transposed ? kTiles<T, false> : kTiles<T, true>;
  const int64_t groups = (end - begin + kTilesAtOnce - 1) / kTilesAtOnce;
  for (int64_t from = 0; from < task.k; from += kGemmDepth) {
    const int64_t depth = std::min(kGemmDepth, task.k - from);
    const bool accumulate = task.accumulate || from > 0;
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t first = begin + (end - begin) * g / groups;
      const int64_t tiles = begin + (end - begin) * (g + 1) / groups - first;
      int64_t rows[kTilesAtOnce + 1];  // first row of each tile
      for (int64_t t = 0; t <= tiles; ++t) rows[t] = task.rows * (first + t) / all;
      if (task.a_transposed) {
        CopyTransposed(task, rows, tiles, from, depth, copies);
      } else {
        for (int64_t t = 0; t < tiles; ++t) {
          CopyTile(task, rows[t], rows[t + 1] - rows[t], from, depth, copies + t * TileSize<T>());
        }
      }
      for (int64_t p = task.panel_begin; p < task.panel_end; ++p) {
        const T* w = BlockAt(task, from) + p * depth * kColumns;
        for (int64_t t = 0; t < tiles; ++t) {
          const int64_t count = rows[t + 1] - rows[t];
          WithPanel(
              task, rows[t], count, p * kColumns, accumulate, [&](T* c, int64_t stride) HWY_ATTR {
                functions[count - 1](copies + t * TileSize<T>(), w, depth, c, stride, accumulate);
              });
        }
      }
    }
  }
}

/// Computes all tiles, in parts whose elements of c stay in a cache.
template <class T>
HWY_INLINE void MultiplyManyTiles(const GemmTask<T>& task) {
  const int64_t all = (task.rows + kTileRows - 1) / kTileRows;
  const int64_t parts = (all + kTilesOfPart - 1) / kTilesOfPart;
  for (int64_t p = 0; p < parts; ++p) {
    MultiplyTiles(task, all * p / parts, all * (p + 1) / parts, all);
  }
}

/// Computes one or two rows with RowsOfPanels.
template <class T, int kRows>
HWY_INLINE void MultiplyRows(const GemmTask<T>& task) {
  constexpr int64_t kColumns = PanelColumns<T>();
  constexpr int64_t kPanels = 4 / kRows;
  // Incomplete panels are computed one at a time by Tile.
  const int64_t whole = std::min(task.panel_end, task.n / kColumns);
  const int64_t whole_groups =
      task.panel_begin + std::max<int64_t>(0, whole - task.panel_begin) / kPanels * kPanels;
  const int64_t a_stride = RowAt(task, kRows - 1) - task.a;
  for (int64_t from = 0; from < task.k; from += kGemmDepth) {
    const int64_t depth = std::min(kGemmDepth, task.k - from);
    const bool accumulate = task.accumulate || from > 0;
    const T* w = BlockAt(task, from);
    int64_t p = task.panel_begin;
    for (; p < whole_groups; p += kPanels) {
      RowsOfPanels<T, kRows>(task.a + from, a_stride, w + p * depth * kColumns, depth,
                             task.c + p * kColumns, task.c_stride, accumulate);
    }
    for (; p < task.panel_end; ++p) {
      for (int64_t r = 0; r < kRows; ++r) {
        WithPanel(task, r, 1, p * kColumns, accumulate, [&](T* c, int64_t stride) HWY_ATTR {
          Tile<T, 1, true>(task.a + r * a_stride + from, w + p * depth * kColumns, depth, c, stride,
                           accumulate);
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

template <class T>
HWY_INLINE void MultiplyTask(const GemmTask<T>& task) {
  if (task.a_transposed || task.rows > 2) {
    MultiplyManyTiles(task);
  } else if (task.rows == 2) {
    MultiplyRows<T, 2>(task);
  } else {
    MultiplyRows<T, 1>(task);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#endif  // PLANISH_SRC_BASE_SIMD_GEMM_INL_H_
