#ifndef PLANISH_SRC_NORM_DROPOUT_KERNELS_H_
#define PLANISH_SRC_NORM_DROPOUT_KERNELS_H_

#include <array>
#include <cstdint>

#include "planish/dropout_norm.h"
#include "planish/parallel.h"
#include "planish/types.h"

// Dropout of one row, for every element type, with the SIMD target in use. Arguments are not
// checked.
namespace planish::internal {

/// Columns whose random bits are computed together: 16 counters of 4 words of 2 elements.
inline constexpr int64_t kDropoutBlock = 128;

/// Dropout as the kernels need it.
struct DropoutMask {
  explicit DropoutMask(const Dropout& dropout);
  /// Returns the factor of kept elements, 1 / q; 0 if none is kept.
  double scale() const { return keep == 0 ? 0 : 65536.0 / keep; }

  uint32_t keep;  ///< q * 2^16, at most 2^16
  std::array<uint32_t, 2> key;
  uint32_t stream;
};

/// Computes sum = residual + dropout(x) of row `row`; without a residual, dropout(x). `sum` may be
/// one of the inputs. Products with 0 are NaN for infinities and NaN, as in PyTorch.
template <class T>
void DropoutRow(const T* x, const T* residual, int64_t cols, const DropoutMask& mask, int64_t row,
                T* sum);

/// Computes dropout(x) of rows [first, last) of a matrix. x and `out` begin at row 0, and can be
/// the same.
template <class T>
void DropoutRows(const T* x, int64_t first, int64_t last, int64_t cols, const DropoutMask& mask,
                 const ParallelFor& parallel_for, T* out);

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_DROPOUT_KERNELS_H_
