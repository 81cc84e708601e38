#include "src/base/simd/gemm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/base/simd/gemm.cc"
#include "src/base/simd/compiled_targets.h"
// Must follow the line above and precede all other includes.
#include <hwy/foreach_target.h>
// Must precede the headers that are compiled for each target.
#include <hwy/highway.h>

#include "src/base/loop.h"
#include "src/base/simd/gemm-inl.h"
#include "src/base/simd/simd.h"
#include "src/base/tuning.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {
namespace {

void MultiplyFloats(const GemmTask<float>& task) { MultiplyTask<FullWeights<float>>(task); }
void MultiplyBfloat16(const GemmTask<float>& task) { MultiplyTask<Bfloat16Weights>(task); }
void MultiplyInt8(const GemmTask<float>& task) { MultiplyTask<Int8Weights>(task); }
void MultiplyDoubles(const GemmTask<double>& task) { MultiplyTask<FullWeights<double>>(task); }

GemmKernels<float> FloatKernels() {
  return {PanelColumns<float>(),
          kTileRows,
          {&MultiplyFloats, &MultiplyBfloat16, &MultiplyInt8},
          &PackPanel<float>,
          &PackRows<float>};
}
GemmKernels<double> DoubleKernels() {
  return {
      PanelColumns<double>(), kTileRows, {&MultiplyDoubles}, &PackPanel<double>, &PackRows<double>};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace planish::internal {

HWY_EXPORT(FloatKernels);
HWY_EXPORT(DoubleKernels);

namespace {

template <class T>
GemmKernels<T> Kernels();
template <>
GemmKernels<float> Kernels() {
  return PLANISH_DISPATCH(FloatKernels)();
}
template <>
GemmKernels<double> Kernels() {
  return PLANISH_DISPATCH(DoubleKernels)();
}

// --- Tuning constants (docs/tuning.md) ---

// Rows of b that MultiplyTransposed packs at a time.
constexpr int64_t kRowsAtOnce = 4 * kGemmDepth;

// --- End of tuning constants ---

// Upper bound on the columns of a panel: two of the largest vectors of floats.
constexpr int64_t kMaxPanel = 2 * kAlignment / static_cast<int64_t>(sizeof(float));

/// Returns the scale of a row of int8 weights, or of padding for null. It is NaN if an element is
/// not finite.
template <class T>
float Int8Scale(const T* row, int64_t depth) {
  float largest = kMinQuantized;
  for (int64_t i = 0; row && i < depth; ++i) {
    if (!std::isfinite(row[i])) return std::numeric_limits<float>::quiet_NaN();
    largest = std::max(largest, static_cast<float>(std::abs(row[i])));
  }
  return largest / 127;
}

int8_t ToInt8(float value, float scale) {
  return std::isnan(scale) ? int8_t{0} : static_cast<int8_t>(std::nearbyint(value / scale));
}

/// Source of padding.
template <class T>
alignas(kAlignment) constexpr T kZeros[kGemmDepth] = {};

}  // namespace

template <class T>
void PackedMatrix<T>::Pack(const GemmMatrix<T>& w, const ParallelFor& parallel_for) {
  Pack(w, w.transposed ? w.k : w.n, nullptr, parallel_for);
}

template <class T>
void PackedMatrix<T>::Pack(const GemmMatrix<T>& w, int64_t rows,
                           const std::function<int64_t(int64_t)>& row_of,
                           const ParallelFor& parallel_for, WeightType type) {
  kernels_ = Kernels<T>();
  type_ = type;
  columns_ = w.transposed ? w.n : rows;
  depth_ = w.transposed ? rows : w.k;
  const int64_t padded = panels() * panel();
  std::byte* const data = data_.Get(BytesOf(depth_) * padded);
  const auto row = [&](int64_t i) -> const T* {
    const int64_t from = i >= rows ? -1 : row_of ? row_of(i) : i;
    return from < 0 ? nullptr : w.data + from * w.stride;
  };
  if (type == WeightType::kInt8) {
    float* const scales = scales_.Get(padded);
    for (int64_t j = 0; j < padded; ++j) scales[j] = Int8Scale(row(j), depth_);
  }
  RunParallel(parallel_for, panels(), GrainFor(panel() * depth_), [&](int64_t begin, int64_t end) {
    for (int64_t from = 0; from < depth_; from += kGemmDepth) {
      const int64_t depth = std::min(kGemmDepth, depth_ - from);
      std::byte* const to = data + BytesOf(from) * padded;
      if (w.transposed) {
        PackBlock(row, from, depth, begin, end, reinterpret_cast<T*>(to));
        continue;
      }
      for (int64_t p = begin; p < end; ++p) {
        std::array<const T*, kMaxPanel> columns;
        for (int64_t j = 0; j < panel(); ++j) {
          const T* column = row(p * panel() + j);
          columns[static_cast<size_t>(j)] = column ? column + from : kZeros<T>;
        }
        std::byte* const panel_to = to + p * panel() * BytesOf(depth);
        if (type == WeightType::kFull) {
          kernels_.pack(columns.data(), depth, reinterpret_cast<T*>(panel_to));
        } else {
          PackRounded(columns.data(), depth, p, panel_to);
        }
      }
    }
  });
}

template <class T>
void PackedMatrix<T>::PackRounded(const T* const* columns, int64_t depth, int64_t p,
                                  std::byte* to) const {
  if constexpr (std::is_same_v<T, float>) {
    for (int64_t i = 0; i < depth; i += 2) {
      for (int64_t j = 0; j < panel(); ++j) {
        const float first = columns[j][i], second = i + 1 < depth ? columns[j][i + 1] : 0.f;
        const int64_t pair = i / 2 * panel() + j;
        if (type_ == WeightType::kBfloat16) {
          reinterpret_cast<uint32_t*>(to)[pair] =
              ToBfloat16(first).bits | static_cast<uint32_t>(ToBfloat16(second).bits) << 16;
        } else {
          const float scale = scales_.data()[p * panel() + j];
          auto* const pairs = reinterpret_cast<int8_t*>(to) + 2 * pair;
          pairs[0] = ToInt8(first, scale);
          pairs[1] = ToInt8(second, scale);
        }
      }
    }
  }
}

template <class T>
void PackedMatrix<T>::ReserveTransposed(int64_t n, int64_t k) {
  kernels_ = Kernels<T>();
  type_ = WeightType::kFull;
  columns_ = depth_ = 0;
  data_.Get((n + panel() - 1) / panel() * panel() * BytesOf(k));
}

template <class T>
template <class F>
void PackedMatrix<T>::PackBlock(const F& row, int64_t from, int64_t depth, int64_t begin,
                                int64_t end, T* to) const {
  // Panels that rows fill entirely. The rows of padding are read for at most kPanels panels.
  const int64_t whole = std::min(end, columns_ / panel());
  constexpr int64_t kPanels = kGemmDepth / kMaxPanel;
  for (int64_t p = begin; p < whole; p += kPanels) {
    const int64_t panels = std::min(kPanels, whole - p);
    std::array<const T*, kGemmDepth> rows;
    for (int64_t i = 0; i < depth; ++i) {
      const T* from_row = row(from + i);
      rows[static_cast<size_t>(i)] = from_row ? from_row + p * panel() : kZeros<T>;
    }
    kernels_.pack_rows(rows.data(), panels, depth, to + p * panel() * depth);
  }
  for (int64_t p = std::max(begin, whole); p < end; ++p) {
    const int64_t n = columns_ - p * panel();
    for (int64_t i = 0; i < depth; ++i) {
      T* line = to + (p * depth + i) * panel();
      const T* from_row = row(from + i);
      std::copy_n(from_row ? from_row + p * panel() : kZeros<T>, n, line);
      std::fill(line + n, line + panel(), T{0});
    }
  }
}

template <class T>
void Multiply(const GemmArgs<T>& args, const PackedMatrix<T>& packed, int64_t panel_begin,
              int64_t panel_end) {
  if (args.rows == 0 || panel_begin >= panel_end) return;
  if (packed.depth() == 0) {
    const int64_t first = panel_begin * packed.panel();
    const int64_t columns = std::min(packed.columns(), panel_end * packed.panel()) - first;
    for (int64_t r = 0; !args.accumulate && r < args.rows; ++r) {
      std::fill_n(args.c + r * args.c_stride + first, columns, T{0});
    }
    return;
  }
  packed.multiply()({.rows = args.rows,
                     .a = args.a,
                     .a_stride = args.a_stride,
                     .a_transposed = args.a_transposed,
                     .a_block = args.a_block,
                     .a_block_stride = args.a_block_stride,
                     .packed = packed.data(),
                     .scales = packed.scales(),
                     .n = packed.columns(),
                     .k = packed.depth(),
                     .panel_begin = panel_begin,
                     .panel_end = panel_end,
                     .c = args.c,
                     .c_stride = args.c_stride,
                     .accumulate = args.accumulate});
}

template <class T>
void MultiplyAll(const GemmArgs<T>& args, const PackedMatrix<T>& packed,
                 const ParallelFor& parallel_for) {
  // A work item is one panel of some rows; items of the same rows are adjacent.
  const int64_t chunk_rows = kTilesOfPart * packed.kernels().rows;
  const int64_t chunks = (args.rows + chunk_rows - 1) / chunk_rows;
  const int64_t panels = packed.panels();
  if (chunks == 0 || panels == 0) return;
  const int64_t rows = (args.rows + chunks - 1) / chunks;
  const int64_t products = rows * packed.panel() * std::max<int64_t>(1, packed.depth());
  RunParallel(parallel_for, chunks * panels, std::max<int64_t>(1, kGrainProducts / products),
              [&](int64_t begin, int64_t end) {
                while (begin < end) {
                  const int64_t chunk = begin / panels, first = begin % panels;
                  const int64_t last = std::min(panels, first + end - begin);
                  const int64_t row = args.rows * chunk / chunks;
                  GemmArgs<T> part = args;
                  part.rows = args.rows * (chunk + 1) / chunks - row;
                  part.a += row * (args.a_transposed ? 1 : args.a_stride);
                  part.c += row * args.c_stride;
                  Multiply(part, packed, first, last);
                  begin += last - first;
                }
              });
}

template <class T>
void MultiplyTransposed(const GemmTransposedArgs<T>& args, PackedMatrix<T>& scratch,
                        const ParallelFor& parallel_for) {
  // Runs once for m = 0, to clear c.
  for (int64_t from = 0; from == 0 || from < args.m; from += kRowsAtOnce) {
    const int64_t depth = std::min(kRowsAtOnce, args.m - from);
    scratch.Pack({.data = args.b + from * args.b_stride,
                  .n = args.k,
                  .k = depth,
                  .stride = args.b_stride,
                  .transposed = true},
                 parallel_for);
    MultiplyAll<T>({.rows = args.n,
                    .a = args.a + from * args.a_stride,
                    .a_stride = args.a_stride,
                    .a_transposed = true,
                    .c = args.c,
                    .c_stride = args.c_stride,
                    .accumulate = args.accumulate || from > 0},
                   scratch, parallel_for);
  }
}

template <class T>
void ReserveTransposedScratch(int64_t m, int64_t k, PackedMatrix<T>& scratch) {
  scratch.ReserveTransposed(k, std::min(kRowsAtOnce, m));
}

template class PackedMatrix<float>;
template class PackedMatrix<double>;
template void ReserveTransposedScratch(int64_t, int64_t, PackedMatrix<float>&);
template void ReserveTransposedScratch(int64_t, int64_t, PackedMatrix<double>&);
template void Multiply(const GemmArgs<float>&, const PackedMatrix<float>&, int64_t, int64_t);
template void Multiply(const GemmArgs<double>&, const PackedMatrix<double>&, int64_t, int64_t);
template void MultiplyAll(const GemmArgs<float>&, const PackedMatrix<float>&, const ParallelFor&);
template void MultiplyAll(const GemmArgs<double>&, const PackedMatrix<double>&, const ParallelFor&);
template void MultiplyTransposed(const GemmTransposedArgs<float>&, PackedMatrix<float>&,
                                 const ParallelFor&);
template void MultiplyTransposed(const GemmTransposedArgs<double>&, PackedMatrix<double>&,
                                 const ParallelFor&);

}  // namespace planish::internal
#endif  // HWY_ONCE
