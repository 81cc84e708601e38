#ifndef PLANISH_SRC_NORM_ROWS_ROWS_H_
#define PLANISH_SRC_NORM_ROWS_ROWS_H_

#include <concepts>
#include <cstdint>

#include "planish/norm.h"
#include "planish/parallel.h"
#include "planish/types.h"
#include "src/norm/recipe.h"

// Row kernels for T float, double, bfloat16 and float16, with the SIMD target in use. Arguments are
// not checked. The result of a row does not depend on the kernel or on the range that contains the
// row.
namespace planish::internal {

template <class T>
concept IsHalf = std::same_as<T, bfloat16> || std::same_as<T, float16>;

// --- Tuning constants (docs/tuning.md) ---

/// Columns that a sum covers in lanes before it continues in double. Bounds the rounding error for
/// rows of any length; also the unit in which rows are split over threads.
inline constexpr int64_t kChunk = 1024;

/// Rows that a column's sum covers before it continues in double.
inline constexpr int64_t kGroupRows = 256;

/// Columns from which one row is split over threads. Shorter rows are assigned whole.
inline constexpr int64_t kLongRowColumns = int64_t{1} << 17;

/// Bytes of rows that are added to a residual (or to its gradient) before or after they are
/// normalized. They stay in the L2 cache between the two passes.
inline constexpr int64_t kResidualBytes = int64_t{1} << 18;

// --- End of tuning constants ---

/// Part of a forward call: everything, statistics only, or y from given statistics.
enum class Pass { kAll, kStatistics, kResults };

/// A call of NormForward for the kernels. gain and bias are both set for Output::kAffine, else
/// null. A residual is added into sum beforehand, by ForwardMatrix only.
template <class T>
struct RowsForward : NormForwardArgs<T, Compute<T>>, NormSettings<Compute<T>> {
  // Applied to xhat after it is rounded to T, with gain 1 and bias 0 (null for Output::kIdentity)
  // in the norm. Null without cast_before_gain. In ForwardMatrix only, like the gate.
  const Compute<T>* cast_gain = nullptr;
  const Compute<T>* cast_bias = nullptr;
  bool use_nt_stores = false;    // stores y with non-temporal stores
  bool prefetch_output = false;  // prefetches the lines of y; only without use_nt_stores
  Pass pass = Pass::kAll;
  // Called for rows [begin, end), in order, after their mean, mean_lo and rstd (not null then) are
  // saved. It can replace the saved statistics; y uses the replaced values.
  const RangeTask* revise = nullptr;
};

/// Computes rows [begin, end) of NormForward.
template <class T>
void ForwardRows(const RowsForward<T>& args, int64_t begin, int64_t end);

/// Computes two calls with the same recipe and columns at once: y of `current` from its saved
/// statistics, and the statistics of `next`.
template <class T>
void MapAndSumRows(const RowsForward<T>& current, const RowsForward<T>& next);

/// Computes columns [begin, end) of y for one row from its saved statistics. `begin` is a multiple
/// of kChunk, and `end` is one or cols.
template <class T>
void MapColumns(const RowsForward<T>& args, int64_t row, int64_t begin, int64_t end);

/// SumChunks writes the sums of d = x - shift and of d^2 of chunks [begin, end) of a row to sums[2
/// * chunk] and sums[2 * chunk + 1]. FinishRow computes the statistics from the sums of all chunks.
template <class T>
void SumChunks(const RowsForward<T>& args, int64_t row, int64_t begin, int64_t end, double* sums);
template <class T>
void FinishRow(const RowsForward<T>& args, int64_t row, const double* sums);

/// Factors of one row, replacing a recipe's a and b: dx = rstd * (g - mean * mean(g) - scale *
/// (xhat - shift) * mean(g * xhat)).
struct GradientFactors {
  double mean = 1, scale = 1, shift = 0;
};

/// A call of NormBackward for the kernels. gain is set for Output::kAffine; mean and mean_lo can be
/// null, for 0. BackwardMatrix adds dsum to dx afterwards, and only it reads a gate and, with a
/// gate, bias, which is not null then. It writes dgain and dbias, which are both null or both not
/// null. Kernels add to the given sums instead.
template <class T>
struct RowsBackward : NormBackwardArgs<T, Compute<T>>, NormSettings<Compute<T>> {
  const GradientFactors* factors = nullptr;  // [rows], or null for the recipe's factors
  bool use_nt_stores = false;
  bool prefetch_output = false;  // as in RowsForward
};

/// Computes rows [begin, end) of NormBackward: dx, and adds the terms of dgain and dbias to the
/// arrays unless they are null.
template <class T>
void BackwardRows(const RowsBackward<T>& args, int64_t begin, int64_t end, Compute<T>* dgain,
                  Compute<T>* dbias);

/// Computes the sums of g and of g * xhat of a row, with the layout of SumChunks.
template <class T>
void SumGradientChunks(const RowsBackward<T>& args, int64_t row, int64_t begin, int64_t end,
                       double* sums);

/// Computes columns [first, last), at least kChunk, of rows [begin, end). If dx is not null, the
/// sums of row r are at sums[2 * (r - begin)] and the next element. Adds the terms of dgain and
/// dbias (starting at column `first`) unless they are null.
template <class T>
void GradientTile(const RowsBackward<T>& args, int64_t begin, int64_t end, int64_t first,
                  int64_t last, const double* sums, Compute<T>* dgain, Compute<T>* dbias);

/// Computes out[c], for c < n, as the sum of element c over `count` arrays, `stride` apart, in
/// double.
template <class T>
void SumPartials(const Compute<T>* partials, int64_t count, int64_t stride, int64_t n,
                 Compute<T>* out);

/// Converts `n` parameters to Compute<P>. NaNs become plain, as conversion to 16 bits requires.
template <class P>
void WidenParameters(const P* parameters, int64_t n, Compute<P>* values);

/// Rounds `n` values to P.
template <class P>
void RoundParameters(const Compute<P>* values, int64_t n, P* parameters);

/// Returns whether one of n values, used with rows of T, is NaN.
template <class T>
bool AnyNan(const Compute<T>* values, int64_t n);

/// Computes out = a + b for n elements, rounded to T. out can be a or b.
template <class T>
void AddColumns(const T* a, const T* b, int64_t n, T* out);

/// Like AddColumns, but stores `out` with non-temporal stores and also writes the sums to `kept`.
template <class T>
void AddColumnsKept(const T* a, const T* b, int64_t n, T* out, T* kept);

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_ROWS_ROWS_H_
