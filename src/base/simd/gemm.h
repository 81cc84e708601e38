#ifndef PLANISH_SRC_BASE_SIMD_GEMM_H_
#define PLANISH_SRC_BASE_SIMD_GEMM_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "planish/parallel.h"
#include "planish/types.h"
#include "src/base/aligned.h"

// Matrix products of float or double: c [m, n] = a [m, k] * w^T, with w [n, k] packed for the
// registers of the SIMD target in use. Rows can have any stride. Arguments are not checked. An
// element of c adds products in order within blocks of kGemmDepth, then the blocks in order. Its
// bits do not depend on threads or on the rows and columns computed together, but can depend on the
// SIMD target.
//
// w can be rounded to bfloat16, which gives the bits of the product with the rounded w. Or w is
// rounded to int8, with a scale for each row. Then each row of a is rounded to int16 in each block
// of kGemmDepth, with a scale; sums of a block are exact.
namespace planish::internal {

// --- Tuning constants (docs/tuning.md) ---

/// Products of a block of the depth, which are added in order. Determines the order of sums.
inline constexpr int64_t kGemmDepth = 256;

/// Tiles of rows that are computed together, and are the unit of work for threads. Enough to share
/// panels; few enough for their elements of c to stay in a cache.
inline constexpr int64_t kTilesOfPart = 16;

// --- End of tuning constants ---

/// The smallest largest magnitude of quantized rows. Scales are then normal numbers.
inline constexpr float kMinQuantized = 0x1p-100f;

/// Arguments of one kernel call: rows of a times panels of packed w.
template <class T>
struct GemmTask {
  int64_t rows;
  const T* a;
  int64_t a_stride;
  bool a_transposed;
  int64_t a_block, a_block_stride;
  const void* packed;
  const float* scales;  ///< of the columns of int8 weights
  int64_t n, k;
  int64_t panel_begin, panel_end;
  T* c;
  int64_t c_stride;
  bool accumulate;
};

/// Kernels of a SIMD target.
template <class T>
struct GemmKernels {
  int64_t panel;  ///< columns computed together
  int64_t rows;   ///< rows computed together
  /// By WeightType; for double only kFull.
  std::array<void (*)(const GemmTask<T>& task), 3> multiply;
  /// Packs `panel` columns of `depth` elements each into `to`: the first element of all columns,
  /// then the second, and so on.
  void (*pack)(const T* const* columns, int64_t depth, T* to);
  /// Packs `panels` whole panels from `depth` rows, each of which contains the panels one after
  /// another. Panels in `to` are depth * panel elements apart.
  void (*pack_rows)(const T* const* rows, int64_t panels, int64_t depth, T* to);
};

/// w [n, k] in memory: w[j, i] is data[j * stride + i], or data[i * stride + j] if `transposed`.
template <class T>
struct GemmMatrix {
  const T* data = nullptr;
  int64_t n = 0;
  int64_t k = 0;
  int64_t stride = 0;
  bool transposed = false;
};

/// Packed w, in panels of columns of c, in the order in which a product reads it. The SIMD target
/// in use at packing time also multiplies.
template <class T>
class PackedMatrix {
 public:
  /// Packs w. Reuses the memory of earlier calls if it is large enough.
  void Pack(const GemmMatrix<T>& w, const ParallelFor& parallel_for);

  /// Packs w with `rows` rows of memory in another order: row i is row_of(i), or zeros if that is
  /// negative. `rows` replaces n, or k if w is transposed. A recurrent layer uses this to
  /// interleave the gates of a unit. Types other than kFull are for T = float and a w that is not
  /// transposed.
  void Pack(const GemmMatrix<T>& w, int64_t rows, const std::function<int64_t(int64_t)>& row_of,
            const ParallelFor& parallel_for, WeightType type = WeightType::kFull);

  /// Allocates memory for packing a transposed w of up to n columns and depth k. Discards the
  /// packed matrix. Throws std::bad_alloc.
  void ReserveTransposed(int64_t n, int64_t k);

  int64_t columns() const { return columns_; }
  int64_t depth() const { return depth_; }
  /// Columns of a panel; panel p starts at column p * panel(), and the last panel can have fewer.
  int64_t panel() const { return kernels_.panel; }
  int64_t panels() const { return (columns_ + panel() - 1) / panel(); }

  const GemmKernels<T>& kernels() const { return kernels_; }
  /// Returns the product with the weights of this type.
  auto multiply() const { return kernels_.multiply[static_cast<size_t>(type_)]; }
  const void* data() const { return data_.data(); }
  /// Returns the scales of the columns of int8 weights, with padding.
  const float* scales() const { return scales_.data(); }
  /// Returns the allocated bytes, which can exceed matrix_bytes().
  int64_t bytes() const { return data_.bytes() + scales_.bytes(); }
  /// Returns the bytes that a product reads, padding included.
  int64_t matrix_bytes() const {
    const int64_t of_scales = type_ == WeightType::kInt8 ? sizeof(float) : 0;
    return panels() * panel() * (BytesOf(depth_) + of_scales);
  }

 private:
  /// Returns the bytes of a column of `depth` depths. Rounded weights have an even number of them.
  int64_t BytesOf(int64_t depth) const {
    if (type_ == WeightType::kFull) return depth * static_cast<int64_t>(sizeof(T));
    return (depth + 1) / 2 * 2 * (type_ == WeightType::kBfloat16 ? 2 : 1);
  }

  /// Packs a panel for rounded weights.
  void PackRounded(const T* const* columns, int64_t depth, int64_t p, std::byte* to) const;

  /// Packs panels [begin, end) of a transposed w for depths [from, from + depth). row(i) is the row
  /// of depth i, or null for zeros; `to` is the address of panel 0.
  template <class F>
  void PackBlock(const F& row, int64_t from, int64_t depth, int64_t begin, int64_t end,
                 T* to) const;

  // Blocks of kGemmDepth depths, each with all panels; in a panel, the elements of its columns for
  // one depth after another. Rounded weights have two depths of a column side by side. Columns
  // beyond the last are zeros.
  Buffer<std::byte> data_;
  Buffer<float> scales_;
  WeightType type_ = WeightType::kFull;
  int64_t columns_ = 0, depth_ = 0;
  GemmKernels<T> kernels_{1, 1, {}, nullptr, nullptr};
};

/// Matrix product c = a * w^T, or c += a * w^T if `accumulate`. c is [rows, packed.columns()] and
/// must not overlap a [rows, packed.depth()]. Element a[r, i] is a[r * a_stride + i], or a[i *
/// a_stride + r] if `a_transposed`. With a_block, it is a[r / a_block * a_block_stride + r %
/// a_block * a_stride + i].
template <class T>
struct GemmArgs {
  int64_t rows = 0;
  const T* a = nullptr;
  int64_t a_stride = 0;
  bool a_transposed = false;
  int64_t a_block = 0;  ///< 0: all rows are a_stride apart
  int64_t a_block_stride = 0;
  T* c = nullptr;
  int64_t c_stride = 0;
  bool accumulate = false;
};

/// Computes the columns of c in panels [panel_begin, panel_end) on the calling thread.
template <class T>
void Multiply(const GemmArgs<T>& args, const PackedMatrix<T>& packed, int64_t panel_begin,
              int64_t panel_end);

/// Computes all of c, for an a without blocks.
template <class T>
void MultiplyAll(const GemmArgs<T>& args, const PackedMatrix<T>& packed,
                 const ParallelFor& parallel_for);

/// Matrix product c = a^T * b, or c += a^T * b if `accumulate`, for the gradient of weights. a is
/// [m, n], b is [m, k], and c [n, k] must not overlap them.
template <class T>
struct GemmTransposedArgs {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  const T* a = nullptr;
  int64_t a_stride = 0;
  const T* b = nullptr;
  int64_t b_stride = 0;
  T* c = nullptr;
  int64_t c_stride = 0;
  bool accumulate = false;
};

/// Computes c, packing a block of rows of b at a time into `scratch`. Allocates nothing after
/// ReserveTransposedScratch with at least this m and k.
template <class T>
void MultiplyTransposed(const GemmTransposedArgs<T>& args, PackedMatrix<T>& scratch,
                        const ParallelFor& parallel_for);

/// Allocates the scratch of MultiplyTransposed for up to m and k. Throws std::bad_alloc.
template <class T>
void ReserveTransposedScratch(int64_t m, int64_t k, PackedMatrix<T>& scratch);

}  // namespace planish::internal

#endif  // PLANISH_SRC_BASE_SIMD_GEMM_H_
