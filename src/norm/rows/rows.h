#ifndef PLANISH_SRC_NORM_ROWS_ROWS_H_
#define PLANISH_SRC_NORM_ROWS_ROWS_H_

#include <concepts>
#include <cstdint>

#include "planish/parallel.h"
#include "planish/types.h"
#include "src/norm/recipe.h"

// The kernels over rows, for T float, double, bfloat16 and float16, of the instruction set in use.
// They check nothing. A row's result is the same whichever of them and whatever range made it.
namespace planish::internal {

template <class T>
concept IsHalf = std::same_as<T, bfloat16> || std::same_as<T, float16>;

/// Columns that a sum runs over in lanes before it goes on in double: it bounds the rounding error
/// for rows of any length, and it is how rows are cut for threads.
inline constexpr int64_t kChunk = 1024;

/// Rows that a column's sum runs over before it goes on in double.
inline constexpr int64_t kGroupRows = 256;

/// What MapAndSumRows does with a call: its moments alone, or y by moments that are there.
enum class Pass { kAll, kMoments, kResults };

template <class T>
struct RowsForward {
  using C = Compute<T>;
  Recipe recipe;
  double eps = 0;
  C scale = 1, slope = 0;  // of Output::kAdaptive
  int64_t rows = 0, cols = 0;
  const T* x = nullptr;
  int64_t x_stride = 0;
  const C* gain = nullptr;  // Output::kAffine has both; others have none
  const C* bias = nullptr;
  T* y = nullptr;
  int64_t y_stride = 0;
  C* mean = nullptr;  // these may be null
  C* mean_lo = nullptr;
  C* rstd = nullptr;
  bool stream = false;  // y is not to go through the caches
  bool ask = false;     // if it does, for its lines ahead of their use
  Pass pass = Pass::kAll;
  // Called for rows [begin, end), all in their order, when mean, mean_lo and rstd of theirs, which
  // are not null then, are saved: it may put others in their place, and y is by those.
  const RangeTask* revise = nullptr;
  const T* residual = nullptr;  // added to x, into sum, before all this: by ForwardMatrix alone
  int64_t residual_stride = 0;
  T* sum = nullptr;
  int64_t sum_stride = 0;
};

/// Rows [begin, end) of NormForward.
template <class T>
void ForwardRows(const RowsForward<T>& args, int64_t begin, int64_t end);

/// Two calls of the same recipe and columns at once: y of `map`, by the moments that are there, and
/// mean, mean_lo and rstd of `next`.
template <class T>
void MapAndSumRows(const RowsForward<T>& map, const RowsForward<T>& next);

/// Columns [begin, end) of y of one row whose moments are given. begin is a multiple of kChunk, and
/// so is end, unless it is cols.
template <class T>
void MapColumns(const RowsForward<T>& args, int64_t row, int64_t begin, int64_t end);

/// Of one row, chunk by chunk, [begin, end) in chunks: the sums of d = x - shift and of d^2, at
/// sums[2 * chunk] and sums[2 * chunk + 1]; then its moments, from the sums of all chunks.
template <class T>
void SumChunks(const RowsForward<T>& args, int64_t row, int64_t begin, int64_t end, double* sums);
template <class T>
void FinishRow(const RowsForward<T>& args, int64_t row, const double* sums);

/// Of one row, in place of a recipe's a and b: dx = rstd * (g - mean * mean(g) -
/// scale * (xhat - shift) * mean(g * xhat)).
struct GradientFactors {
  double mean = 1, scale = 1, shift = 0;
};

template <class T>
struct RowsBackward {
  using C = Compute<T>;
  Recipe recipe;
  double eps = 0;
  C scale = 1, slope = 0;
  int64_t rows = 0, cols = 0;
  const T* dy = nullptr;
  int64_t dy_stride = 0;
  const T* x = nullptr;
  int64_t x_stride = 0;
  const C* gain = nullptr;  // Output::kAffine has it
  const C* mean = nullptr;  // null: 0
  const C* mean_lo = nullptr;
  const C* rstd = nullptr;
  const GradientFactors* factors = nullptr;  // [rows], or null for the recipe's
  T* dx = nullptr;                           // may be null
  int64_t dx_stride = 0;
  bool stream = false;
  bool ask = false;         // as in forward
  const T* dsum = nullptr;  // added to dx after all this: by BackwardMatrix alone
  int64_t dsum_stride = 0;
};

/// Rows [begin, end) of NormBackward: dx, and, if dgain and dbias are not null, their terms added
/// to those.
template <class T>
void BackwardRows(const RowsBackward<T>& args, int64_t begin, int64_t end, Compute<T>* dgain,
                  Compute<T>* dbias);

/// Of one row, chunk by chunk: the sums of g and of g * xhat, as SumChunks.
template <class T>
void SumGradientChunks(const RowsBackward<T>& args, int64_t row, int64_t begin, int64_t end,
                       double* sums);

/// Columns [first, last), at least kChunk, of rows [begin, end): dx, from the sums of row r at
/// sums[2 * (r - begin)] and the next; and, if dgain and dbias are not null, their terms added to
/// those of columns `first` and on. Without dx, `sums` is not read.
template <class T>
void GradientTile(const RowsBackward<T>& args, int64_t begin, int64_t end, int64_t first,
                  int64_t last, const double* sums, Compute<T>* dgain, Compute<T>* dbias);

/// out[c] = the sum over `count` arrays, `stride` apart, of their numbers c < n, taken in double.
template <class T>
void SumPartials(const Compute<T>* partials, int64_t count, int64_t stride, int64_t n,
                 Compute<T>* out);

/// `n` parameters in the type that is computed with; NaN as arithmetic makes it, which rounding to
/// 16 bits expects.
template <class P>
void WidenParameters(const P* parameters, int64_t n, Compute<P>* numbers);

/// `n` numbers rounded to parameters' type.
template <class P>
void RoundParameters(const Compute<P>* numbers, int64_t n, P* parameters);

/// Whether one of n numbers, with which numbers of T are computed, is NaN.
template <class T>
bool AnyNan(const Compute<T>* numbers, int64_t n);

/// out = a + b over n numbers, rounded to T. out may be a or b.
template <class T>
void AddColumns(const T* a, const T* b, int64_t n, T* out);

/// Likewise with `out` past the caches, and all the same in `kept`, which stays in them.
template <class T>
void AddColumnsKept(const T* a, const T* b, int64_t n, T* out, T* kept);

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_ROWS_ROWS_H_
