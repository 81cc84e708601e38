#ifndef PLANISH_SRC_BASE_SIMD_GEMM_H_
#define PLANISH_SRC_BASE_SIMD_GEMM_H_

#include <cstdint>
#include <functional>

#include "planish/parallel.h"
#include "src/base/aligned.h"

// Products of matrices of float or double, one of them packed beforehand for the registers of the
// instruction set in use: c = a * w^T, c [m, n], a [m, k], w [n, k], rows one behind the other at
// any stride. Nothing is checked here.
//
// A number of c is the sum over blocks of kGemmDepth products, each added up in order, the blocks
// in order. So its bits do not depend on which rows and columns are computed together, nor on
// threads; they may depend on the instruction set.
namespace planish::internal {

inline constexpr int64_t kGemmDepth = 256;

/// Tiles of rows that are computed, and handed out to threads, together: enough for the panels that
/// they share, and few enough for their numbers of c to stay near.
inline constexpr int64_t kTilesOfPart = 16;

/// Rows of a by columns of packed w, of one call of a kernel.
template <class T>
struct GemmTask {
  int64_t rows;
  const T* a;
  int64_t a_stride;
  bool a_transposed;
  int64_t a_block, a_block_stride;
  const T* packed;
  int64_t n, k;
  int64_t panel_begin, panel_end;
  T* c;
  int64_t c_stride;
  bool accumulate;
};

/// What a target multiplies with.
template <class T>
struct GemmKernels {
  int64_t panel;  ///< columns computed together
  int64_t rows;   ///< rows computed together
  void (*multiply)(const GemmTask<T>& task);
  /// Packs `panel` columns of `depth` numbers each into `to`: one number of each, then the next.
  void (*pack)(const T* const* columns, int64_t depth, T* to);
  /// The same of whole panels that lie in rows, one for each number of the depth, one behind the
  /// other: `panels` of them, to distances of depth * panel.
  void (*pack_rows)(const T* const* rows, int64_t panels, int64_t depth, T* to);
};

/// w [n, k] in memory: w[j, i] is data[j * stride + i], or, transposed, data[i * stride + j].
template <class T>
struct GemmMatrix {
  const T* data = nullptr;
  int64_t n = 0;
  int64_t k = 0;
  int64_t stride = 0;
  bool transposed = false;
};

/// w in panels of columns of c, laid out in the order in which a product reads it. The target in
/// use when it is packed multiplies with it.
template <class T>
class PackedMatrix {
 public:
  /// Packs w. Memory is kept from call to call where it is large enough.
  void Pack(const GemmMatrix<T>& w, const ParallelFor& parallel_for);

  /// Packs w with its rows in memory in another order, `rows` of them: the row i is row_of(i), or
  /// zeros where that is negative. These are columns of c, or, transposed, the depth, and take the
  /// place of n or k. A recurrent layer so puts the gates of a unit side by side.
  void Pack(const GemmMatrix<T>& w, int64_t rows, const std::function<int64_t(int64_t)>& row_of,
            const ParallelFor& parallel_for);

  /// Allocates what Pack needs for a transposed w of up to n columns and k of depth. The matrix
  /// that is packed is lost. Throws std::bad_alloc.
  void ReserveTransposed(int64_t n, int64_t k);

  int64_t columns() const { return columns_; }
  int64_t depth() const { return depth_; }
  /// Panel p has the columns from p * panel() on, panel() of them but for the last.
  int64_t panel() const { return kernels_.panel; }
  int64_t panels() const { return (columns_ + panel() - 1) / panel(); }

  const GemmKernels<T>& kernels() const { return kernels_; }
  const T* data() const { return data_.data(); }
  /// Of the memory that is kept, which an earlier matrix may have needed.
  int64_t bytes() const { return data_.bytes(); }
  /// Of the matrix itself, with its padding: what a product reads.
  int64_t matrix_bytes() const {
    return panels() * panel() * depth_ * static_cast<int64_t>(sizeof(T));
  }

 private:
  /// The panels [begin, end) of a transposed w, row(i) of it for the numbers [from, from + depth)
  /// of the depth; null for zeros. `to` is where panel 0 is.
  template <class F>
  void PackBlock(const F& row, int64_t from, int64_t depth, int64_t begin, int64_t end,
                 T* to) const;

  // Blocks of kGemmDepth numbers of the depth; in each block its panels; in each panel, for one
  // number of the depth after the other, that of each of its columns. Columns beyond the last are
  // zeros.
  Buffer<T> data_;
  int64_t columns_ = 0, depth_ = 0;
  GemmKernels<T> kernels_{1, 1, nullptr, nullptr, nullptr};
};

/// c [rows, packed.columns()] = a * w^T, or, with `accumulate`, c + a * w^T. a [rows,
/// packed.depth()]: a[r, i] is a[r * a_stride + i], or, transposed, a[i * a_stride + r]. Rows may
/// lie in blocks of a_block each, which begin a_block_stride numbers apart: then a[r, i] is a[r /
/// a_block * a_block_stride + r % a_block * a_stride + i]. c shares no memory with a.
template <class T>
struct GemmArgs {
  int64_t rows = 0;
  const T* a = nullptr;
  int64_t a_stride = 0;
  bool a_transposed = false;
  int64_t a_block = 0;  ///< 0: all rows lie a_stride apart
  int64_t a_block_stride = 0;
  T* c = nullptr;
  int64_t c_stride = 0;
  bool accumulate = false;
};

/// The columns of c of the panels [panel_begin, panel_end), on the calling thread. Callers split
/// rows or panels over threads as they like.
template <class T>
void Multiply(const GemmArgs<T>& args, const PackedMatrix<T>& packed, int64_t panel_begin,
              int64_t panel_end);

/// All of c, of an a without blocks.
template <class T>
void MultiplyAll(const GemmArgs<T>& args, const PackedMatrix<T>& packed,
                 const ParallelFor& parallel_for);

/// c [n, k] = a^T * b, or with `accumulate` c + a^T * b: the sum over m of a [m, n] times b [m, k],
/// as the gradient of weights is. c shares no memory with a or b.
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

/// Packs b into `scratch`, some rows at a time, whose memory serves the next call. After
/// ReserveTransposedScratch of at least m and k it allocates nothing.
template <class T>
void MultiplyTransposed(const GemmTransposedArgs<T>& args, PackedMatrix<T>& scratch,
                        const ParallelFor& parallel_for);

/// Allocates the scratch of MultiplyTransposed with up to m and k. Throws std::bad_alloc.
template <class T>
void ReserveTransposedScratch(int64_t m, int64_t k, PackedMatrix<T>& scratch);

}  // namespace planish::internal

#endif  // PLANISH_SRC_BASE_SIMD_GEMM_H_
