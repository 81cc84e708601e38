#ifndef PLANISH_SRC_NORM_CUDA_COLUMNS_H_
#define PLANISH_SRC_NORM_CUDA_COLUMNS_H_

#include <cstdint>

#include "planish/online_norm.h"
#include "planish/types.h"
#include "src/norm/cuda/columns_plan.h"
#include "src/norm/cuda/params.h"
#include "src/norm/cuda/rows.h"

// Sums over the channels of [batch, channels, spatial] arrays on a GPU, and maps of their elements.
// Used by batch norm, by weights (rows are channels of one sample) and by rows that are cases in
// order. A call runs a few kernels: partial sums in double, as pairs in the workspace; then the
// total sums and the map parameters, a few threads a channel; then the map. All addresses are in
// device memory.
namespace planish::internal::cuda {

/// Sums over elements a.
enum class ColumnSums : uint8_t {
  kMoments,   ///< d and d^2, d = a - shift; the shift is the channel's first element, or given
  kSquares,   ///< a^2; for double in two parts, large elements and others
  kGradient,  ///< a and a * xhat, xhat by the channel's statistics
  kGradientOfRows,       ///< g and g * xhat, g = gain * a, with the gain of the place in the run
  kGradientOfPositions,  ///< a and a * xhat, xhat by the statistics of the sample's position
};

/// Map of an element.
enum class ColumnMap : uint8_t {
  kNormalize,  ///< (a - mean) * scale + bias; parameters of a channel: {mean, scale, bias}
  kGradient,   ///< ((a - mean_g) - xhat * mean_g_xhat) * scale; parameters: {mean, rstd, offset,
               ///< mean_g, mean_g_xhat, scale}; xhat = (x - mean) * rstd + offset
  kScale,      ///< a * scale; parameters: {scale}
  kNormalizeRows,   ///< xhat * gain + bias, those of the place; parameters: {mean, rstd, offset}
  kGradientOfRows,  ///< kGradient of gain * a
};

inline constexpr int kMaxElements = 6;

/// Saved statistics of channels or positions, for xhat = (x - mean) * rstd.
template <class C>
struct SavedMoments {
  enum class Rstd : uint8_t {
    kSaved,
    kOfVariance,  ///< 1 / sqrt(rstd + eps)
    kOfNorm,      ///< 1 / rstd
  };
  const C *mean = nullptr, *mean_lo = nullptr;  // null: 0
  const C* rstd = nullptr;
  Rstd kind = Rstd::kSaved;
  double eps = 0;
};

/// Arrays of a call.
template <class T>
struct ColumnArrays {
  int64_t batch, channels, spatial;  // all > 0
  const T* a = nullptr;
  const T* x = nullptr;  // for gradients
  T* out = nullptr;      // null: no map
  Params gain, bias;     // for places in a run
};

/// Parts of a workspace.
struct ColumnsSpace {
  SumPair* pairs = nullptr;
  double* shifts = nullptr;
  void* values = nullptr;
  SumPair* moments = nullptr;
  int64_t bytes = 0;
};

/// Divides `workspace` into its parts; with null it only computes the size. `sums`, `maps`: whether
/// the call has any. `online` norms also need statistics of each channel.
template <class T>
ColumnsSpace CutSpace(const ColumnsWork& work, const ColumnsPlan& plan, bool sums, bool maps,
                      bool online, void* workspace) {
  ColumnsSpace space;
  char* begin = static_cast<char*>(workspace);
  const auto take = [&](int64_t bytes) {
    char* room = begin == nullptr ? nullptr : begin + space.bytes;
    space.bytes += (bytes + 15) / 16 * 16;
    return static_cast<void*>(room);
  };
  if (sums) space.pairs = static_cast<SumPair*>(take(PairBytes(work, plan)));
  if (sums) space.shifts = static_cast<double*>(take(work.channels * int64_t{sizeof(double)}));
  if (maps) {
    space.values = take(work.channels * kMaxElements * static_cast<int64_t>(sizeof(Compute<T>)));
  }
  if (online) {
    space.moments = static_cast<SumPair*>(take(work.channels * int64_t{sizeof(SumPair)}));
  }
  return space;
}

template <class T>
struct BatchForward {
  using C = Compute<T>;
  ColumnArrays<T> arrays;  // a is x, out is y
  Params gain, bias;
  C *mean, *mean_lo, *rstd, *running_mean, *running_var;  // may be null
  double eps, momentum;
  bool unbiased;
};

template <class T>
struct BatchBackward {
  using C = Compute<T>;
  ColumnArrays<T> arrays;  // a is dy, out is dx
  SavedMoments<C> saved;
  Params gain;
  ParamGradients dgain, dbias;
  bool unbiased;
};

/// Evaluation: forward, or gradients if `backward`.
template <class T>
struct BatchEvaluate {
  using C = Compute<T>;
  ColumnArrays<T> arrays;  // a is x or dy; x is null without dgain
  bool backward;
  Params gain, bias;
  const C *running_mean, *running_var;
  ParamGradients dgain, dbias;
  double eps;
};

template <class T>
struct WeightForward {
  ColumnArrays<T> arrays;  // a is v, out is w
  Params g;
  Compute<T>* norm;  // may be null
};

template <class T>
struct WeightBackward {
  ColumnArrays<T> arrays;  // a is dw, x is v, out is dv
  Params g;
  const Compute<T>* norm;
  ParamGradients dg;
};

/// Weights of the cases.
struct Alphas {
  double all = 0;
  const double* each = nullptr;
};

template <class T>
struct OnlineForward {
  using C = Compute<T>;
  ColumnArrays<T> arrays;  // a is x, out is y; rows are channels of one sample
  Alphas alphas;
  OnlineState* state;
  C *mean, *mean_lo, *rstd, *offset, *deviation;  // may be null
};

template <class T>
struct OnlineBackward {
  using C = Compute<T>;
  ColumnArrays<T> arrays;  // a is dy, out is dx; rows are channels of one sample
  Alphas alphas;
  SavedMoments<C> saved;
  const C *offset, *deviation;
};

/// Sums over rows [batch] of columns [channels * spatial], with xhat by position.
template <class T>
struct PositionGradients {
  ColumnArrays<T> arrays;  // a is dy
  SavedMoments<Compute<T>> saved;
  ParamGradients dgain, dbias;
};

/// Launch the kernels; errors name `function`. `map` has the layout of `plan`, but its own packs,
/// because it accesses other arrays.
#define PLANISH_COLUMNS_CALLS(X) \
  X(BatchForward)                \
  X(BatchBackward)               \
  X(BatchEvaluate)               \
  X(WeightForward)               \
  X(WeightBackward)              \
  X(OnlineForward)               \
  X(OnlineBackward)              \
  X(PositionGradients)
#define PLANISH_DECLARE(Call)                                                         \
  template <class T>                                                                  \
  void RunColumns(const char* function, const Call<T>& call, const ColumnsPlan& plan, \
                  const ColumnsPlan& map, const ColumnsSpace& space, void* stream);
PLANISH_COLUMNS_CALLS(PLANISH_DECLARE)
#undef PLANISH_DECLARE

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_NORM_CUDA_COLUMNS_H_
