#ifndef PLANISH_SRC_NORM_CHANNEL_NORM_KERNELS_H_
#define PLANISH_SRC_NORM_CHANNEL_NORM_KERNELS_H_

#include <cstdint>

#include "planish/types.h"
#include "src/norm/recipe.h"

// The kernels of norms down the columns of a matrix, whose rows are channels, or several channels
// side by side; for every element type and the instruction set in use. They check nothing. Sums of
// forward are SumColumns of columns.h.
namespace planish::internal {

/// A number near the mean of each column: the mean of a few of its numbers, of a constant column
/// that constant.
template <class T>
void ShiftColumns(const T* x, int64_t stride, int64_t rows, int64_t cols, Compute<T>* shift);

/// Moments of columns in the type that numbers are computed with; offset as in RowMap.
template <class C>
struct ColumnMoments {
  C* mean;
  C* mean_lo;
  C* rstd;
  C* offset;
};

/// The moments of columns of `n` numbers from their sums about `shift`. Sets careful[c] where these
/// do not serve, and returns whether there is such a column.
template <class T>
bool FinishColumns(const Recipe& recipe, double eps, int64_t n, int64_t cols,
                   const Compute<T>* shift, const double* first, const double* second,
                   const ColumnMoments<Compute<T>>& moments, bool* careful);

template <class T>
struct ColumnsForward {
  using C = Compute<T>;
  Recipe recipe;
  C scale = 1, slope = 0;  // of Output::kAdaptive
  int64_t stride = 0, rows = 0, cols = 0;
  const T* x = nullptr;
  T* y = nullptr;
  const C* gain = nullptr;  // Output::kAffine has both: [rows], or with `each` [rows, stride]
  const C* bias = nullptr;
  bool each = false;
  const C* mean = nullptr;  // [cols]
  const C* rstd = nullptr;
  const C* offset = nullptr;
  bool stream = false;
};

/// y.
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
  const C* mean_g = nullptr;  // MapBackward alone reads these
  const C* mean_g_xhat = nullptr;
  bool stream = false;
};

/// Adds the sums over rows of g and of g * xhat to first[c] and second[c], and, if dgain and dbias
/// are not null, each row's sums of dy * xhat and of dy to those, at [row], or with `each` their
/// terms, at [row, column].
template <class T>
void SumBackward(const ColumnsBackward<T>& args, double* first, double* second, double* dgain,
                 double* dbias);

/// dx.
template <class T>
void MapBackward(const ColumnsBackward<T>& args);

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_CHANNEL_NORM_KERNELS_H_
