#ifndef PLANISH_SRC_NORM_CHANNELS_CHANNEL_NORM_KERNELS_H_
#define PLANISH_SRC_NORM_CHANNELS_CHANNEL_NORM_KERNELS_H_

#include <cstdint>

#include "planish/types.h"
#include "src/norm/recipe.h"

// The kernels of norms down the columns of a matrix, whose rows are channels, or several channels
// side by side; for every element type and the instruction set in use. They check nothing. Sums of
// forward are SumColumns of columns.h.
namespace planish::internal {

/// Moments of columns in the type that numbers are computed with; offset as in RowCoefficients.
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

/// The moments that forward saved, of which mean and mean_lo may be null; moments.mean_lo is not
/// written.
template <class T>
void SavedColumns(const Compute<T>* mean, const Compute<T>* mean_lo, const Compute<T>* rstd,
                  int64_t cols, const ColumnMoments<Compute<T>>& moments);

/// What dx takes from the sums of columns of `n` numbers: the means of g and of g * xhat.
template <class T>
void FinishGradients(const Recipe& recipe, double eps, int64_t n, int64_t cols,
                     const Compute<T>* rstd, const double* first, const double* second,
                     Compute<T>* mean_g, Compute<T>* mean_g_xhat);

/// Rows that are taken together: they share what belongs to the columns.
inline constexpr int kRowsAtOnce = 4;

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
  bool ask = false;   // for y's lines, ahead of their use
  int64_t ahead = 0;  // numbers from here to those to be asked for; 0: none

  /// The `n` rows from r on.
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
  bool ask = false;   // as in forward
  int64_t ahead = 0;  // likewise

  /// The `n` rows from r on.
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

#endif  // PLANISH_SRC_NORM_CHANNELS_CHANNEL_NORM_KERNELS_H_
