#ifndef PLANISH_SRC_NORM_CUDA_COLUMNS_H_
#define PLANISH_SRC_NORM_CUDA_COLUMNS_H_

#include <cstdint>

#include "planish/online_norm.h"
#include "planish/types.h"
#include "src/norm/cuda/columns_plan.h"
#include "src/norm/cuda/params.h"
#include "src/norm/cuda/rows.h"

// Sums over the channels of [batch, channels, spatial] numbers on a GPU, what becomes of them, and
// maps of these numbers: batch normalisation, weights, whose rows are channels of one sample, and
// rows that are cases in order. Each call is a few kernels: sums of parts of channels, in double,
// in pairs in the workspace; then, a few threads a channel, the sums of these and the numbers of
// the map; then the map. All addresses are the device's.
namespace planish::internal::cuda {

/// What is summed, of numbers a.
enum class ColumnSums : uint8_t {
  kMoments,         ///< d and d^2, d = a - shift; the shift is the channel's first number, or given
  kSquares,         ///< a^2, of double in two parts: of large numbers and of others
  kGradient,        ///< a and a * xhat, xhat of the channel's moments
  kGradientOfRows,  ///< g and g * xhat, g = gain * a, the gain that of the place in the run
  kGradientOfPositions,  ///< a and a * xhat, xhat of the moments of the sample's position
};

/// What a number becomes.
enum class ColumnMap : uint8_t {
  kNormalise,       ///< (a - mean) * scale + bias; numbers of a channel: {mean, scale, bias}
  kGradient,        ///< ((a - mean_g) - xhat * mean_g_xhat) * scale; numbers: {mean, rstd, offset,
                    ///< mean_g, mean_g_xhat, scale}; xhat = (x - mean) * rstd + offset
  kScale,           ///< a * scale; numbers: {scale}
  kNormaliseRows,   ///< xhat * gain + bias, those of the place; numbers: {mean, rstd, offset}
  kGradientOfRows,  ///< as kGradient, of gain * a
};

inline constexpr int kMaxElements = 6;

/// Where xhat comes from: (x - mean) * rstd, of channels or of positions.
template <class C>
struct SavedMoments {
  enum class Rstd : uint8_t {
    kSaved,
    kOfVariance,  ///< 1 / sqrt(rstd + eps)
    kOfNorm,      ///< 1 / rstd
  };
  const C *mean = nullptr, *mean_lo = nullptr;  // or null: 0
  const C* rstd = nullptr;
  Rstd kind = Rstd::kSaved;
  double eps = 0;
};

/// The arrays of a call.
template <class T>
struct ColumnArrays {
  int64_t batch, channels, spatial;  // all > 0
  const T* a = nullptr;
  const T* x = nullptr;  // of gradients
  T* out = nullptr;      // or null: no map
  Params gain, bias;     // of places in a run
};

/// The rooms of a workspace.
struct ColumnsSpace {
  SumPair* pairs = nullptr;
  double* shifts = nullptr;
  void* numbers = nullptr;
  SumPair* moments = nullptr;
  int64_t bytes = 0;
};

/// Cut out of `workspace`, which may be null for its size alone. `sums` and `maps`: whether there
/// are any; of `online` norms moments of their own for each channel, too.
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
    space.numbers = take(work.channels * kMaxElements * static_cast<int64_t>(sizeof(Compute<T>)));
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
  C *mean, *mean_lo, *rstd, *running_mean, *running_var;  // or null
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

/// Evaluation: of y where x is null, and else of gradients.
template <class T>
struct BatchEvaluate {
  using C = Compute<T>;
  ColumnArrays<T> arrays;  // a is x, or dy; x is null where no dgain is asked for
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
  Compute<T>* norm;  // or null
};

template <class T>
struct WeightBackward {
  ColumnArrays<T> arrays;  // a is dw, x is v, out is dv
  Params g;
  const Compute<T>* norm;
  ParamGradients dg;
};

/// The weight of each case.
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
  C *mean, *mean_lo, *rstd, *offset, *deviation;  // or null
};

template <class T>
struct OnlineBackward {
  using C = Compute<T>;
  ColumnArrays<T> arrays;  // a is dy, out is dx; likewise
  Alphas alphas;
  SavedMoments<C> saved;
  const C *offset, *deviation;
};

/// Sums over rows [batch] of columns [channels * spatial], with xhat of positions.
template <class T>
struct PositionGradients {
  ColumnArrays<T> arrays;  // a is dy
  SavedMoments<Compute<T>> saved;
  ParamGradients dgain, dbias;
};

/// Launch the kernels. `function` is named in errors; `map` has the layout of `plan` with packs of
/// its own, for it touches other arrays.
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
