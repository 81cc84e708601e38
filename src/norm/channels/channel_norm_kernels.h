#ifndef PLANISH_SRC_NORM_CHANNELS_CHANNEL_NORM_KERNELS_H_
#define PLANISH_SRC_NORM_CHANNELS_CHANNEL_NORM_KERNELS_H_

#include <cstdint>

#include "planish/types.h"
#include "src/norm/recipe.h"

// Kernels of norms down the columns of a matrix whose rows are channels, or several channels side
// by side. For every element type, with the SIMD target in use. Arguments are not checked. The sums
// of forward are SumColumns of columns.h.
namespace planish::internal {

/// Statistics of columns in the type of the arithmetic; offset as in RowCoefficients.
template <class C>
struct ColumnStatistics {
  C* mean;
  C* mean_lo;
  C* rstd;
  C* offset;
};

/// Computes the statistics of columns of `n` elements from their sums about `shift`. Sets
/// two_pass[c] where the sums are too inaccurate, and returns whether any two_pass[c] is set.
template <class T>
bool FinishColumns(const Recipe& recipe, double eps, int64_t n, int64_t cols,
                   const Compute<T>* shift, const double* first, const double* second,
                   const ColumnStatistics<Compute<T>>& statistics, bool* two_pass);

/// Loads the saved statistics; mean and mean_lo can be null. Does not write statistics.mean_lo.
template <class T>
void SavedColumns(const Compute<T>* mean, const Compute<T>* mean_lo, const Compute<T>* rstd,
                  int64_t cols, const ColumnStatistics<Compute<T>>& statistics);

/// Computes the means of g and of g * xhat from the sums of columns of `n` elements.
template <class T>
void FinishGradients(const Recipe& recipe, double eps, int64_t n, int64_t cols,
                     const Compute<T>* rstd, const double* first, const double* second,
                     Compute<T>* mean_g, Compute<T>* mean_g_xhat);

// --- Tuning constants (docs/tuning.md) ---

/// Rows processed together, which share the parameters of columns.
inline constexpr int kRowsAtOnce = 4;

// --- End of tuning constants ---

template <class T>
struct ColumnsForward {
  using C = Compute<T>;
  Recipe recipe;
  C scale = 1, slope = 0;  // for Output::kAdaptive
  int64_t stride = 0, rows = 0, cols = 0;
  const T* x = nullptr;
  T* y = nullptr;
  const C* gain = nullptr;  // both set for Output::kAffine: [rows], or [rows, stride] if `each`
  const C* bias = nullptr;
  bool each = false;
  const C* mean = nullptr;  // [cols]
  const C* rstd = nullptr;
  const C* offset = nullptr;
  bool use_nt_stores = false;
  bool prefetch_output = false;  // prefetches the lines of y
  int64_t ahead = 0;             // prefetch distance in elements; 0: none

  /// Returns the call for rows [r, r + n).
  ColumnsForward From(int64_t r, int64_t n) const {
    ColumnsForward call = *this;
    const int64_t at = r * stride, parameters = each ? at : r;
    call.rows = n;
    call.x += at;
    call.y += at;
    if (gain) call.gain += parameters;
    if (bias) call.bias += parameters;
    return call;
  }
};

/// Computes y.
template <class T>
void MapForward(const ColumnsForward<T>& args);

template <class T>
struct ColumnsBackward {
  using C = Compute<T>;
  Recipe recipe;
  C scale = 1, slope = 0;
  int64_t stride = 0, rows = 0, cols = 0;
  const T* dy = nullptr;
  const T* x = nullptr;
  T* dx = nullptr;
  const C* gain = nullptr;
  bool each = false;
  const C* mean = nullptr;  // [cols]
  const C* rstd = nullptr;
  const C* offset = nullptr;
  const C* mean_g = nullptr;  // read by MapBackward only
  const C* mean_g_xhat = nullptr;
  bool use_nt_stores = false;
  bool prefetch_output = false;  // prefetches the lines of dx
  int64_t ahead = 0;             // as in ColumnsForward

  /// Returns the call for rows [r, r + n).
  ColumnsBackward From(int64_t r, int64_t n) const {
    ColumnsBackward call = *this;
    const int64_t at = r * stride;
    call.rows = n;
    call.dy += at;
    call.x += at;
    if (dx) call.dx += at;
    if (gain) call.gain += each ? at : r;
    return call;
  }
};

/// Adds the sums over rows of g and of g * xhat to first[c] and second[c]. Unless dgain and dbias
/// are null, adds dy * xhat to dgain and dy to dbias. Adds each row's sums at [row], or its terms
/// at [row, column] if `each`.
template <class T>
void SumBackward(const ColumnsBackward<T>& args, double* first, double* second, double* dgain,
                 double* dbias);

/// Computes dx.
template <class T>
void MapBackward(const ColumnsBackward<T>& args);

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_CHANNELS_CHANNEL_NORM_KERNELS_H_
