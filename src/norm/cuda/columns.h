#ifndef PLANISH_SRC_NORM_CUDA_COLUMNS_H_
#define PLANISH_SRC_NORM_CUDA_COLUMNS_H_

#include <cstdint>

#include "planish/batch_norm.h"
#include "planish/channel_norm.h"
#include "planish/group_norm.h"
#include "planish/online_norm.h"
#include "planish/pointwise_norm.h"
#include "planish/types.h"
#include "planish/weight_norm.h"
#include "src/norm/channel_pass.h"
#include "src/norm/cuda/call.h"
#include "src/norm/cuda/columns_plan.h"
#include "src/norm/cuda/params.h"

// Sums over the channels of [batch, channels, spatial] arrays on a GPU, and elementwise operations.
// Used by batch norm, by weights (rows are channels of one sample) and by rows that are cases in
// order. A call runs a few kernels. The first writes partial sums in double, as pairs, to the
// workspace. The second computes the total sums and the parameters of the elementwise operation,
// with a few threads a channel. The last applies that operation. All addresses are in device
// memory.
namespace planish::internal::cuda {

/// Statistics of channels or positions that the forward pass saved, for xhat = (x - mean) * rstd.
/// `kind` says what the array `rstd` contains.
template <class C>
struct SavedStatistics {
  enum class Rstd : uint8_t {
    kSaved,       ///< rstd
    kOfVariance,  ///< variances: rstd is 1 / sqrt(variance + eps)
    kOfNorm,      ///< norms: rstd is 1 / norm
  };
  const C *mean = nullptr, *mean_lo = nullptr;  // null: 0
  const C* rstd = nullptr;
  Rstd kind = Rstd::kSaved;
  double eps = 0;
  int64_t group = 1;  ///< adjacent channels that share an element
};

/// A pointwise function in device memory.
struct PointwiseCall {
  Pointwise function = Pointwise::kTanh;
  Params alpha, shift;
};

/// Arrays of a pass, with the gain and bias of a place in a channel.
template <class T>
struct ColumnArrays : ChannelArrays<T> {
  Params gain, bias;
  PointwiseCall pointwise = {};
};

/// Parts of a workspace.
struct ColumnsSpace {
  SumPair* pairs = nullptr;
  double* shifts = nullptr;
  void* values = nullptr;
  SumPair* statistics = nullptr;
  int64_t bytes = 0;
};

/// Plans, workspace and stream of a call.
struct ColumnsRun {
  const char* function;  ///< named by errors
  ColumnsPlan sums;
  ColumnsPlan map;  ///< the layout of `sums`, but its own pack, because it accesses other arrays
  ColumnsSpace space;
  void* stream;
};

// Calls with sizes > 0, in device memory.

template <class T>
struct BatchForward : UntypedParams<BatchNormForwardArgs, T> {
  double eps, momentum;
  bool unbiased;
};

template <class T>
struct BatchBackward : UntypedParams<BatchNormBackwardArgs, T> {
  bool unbiased;
};

template <class T>
struct BatchEvaluate : UntypedParams<BatchNormEvaluateArgs, T> {
  double eps;
};

template <class T>
struct BatchEvaluateBackward : UntypedParams<BatchNormEvaluateBackwardArgs, T> {
  double eps;
};

template <class T>
struct WeightForward : UntypedParams<WeightNormForwardArgs, T> {};

template <class T>
struct WeightBackward : UntypedParams<WeightNormBackwardArgs, T> {};

/// Weights of the cases.
struct Alphas {
  double all = 0;
  const double* each = nullptr;

  PLANISH_DEVICE double operator[](int64_t r) const { return each != nullptr ? each[r] : all; }
};

template <class T>
struct OnlineForward : UntypedParams<OnlineNormForwardArgs, T> {
  Alphas alphas;
  OnlineState* state;
};

/// For dx only.
template <class T>
struct OnlineBackward : UntypedParams<OnlineNormBackwardArgs, T> {
  Alphas alphas;
};

/// Its sums are those of groups, its elementwise operation that of channels.
template <class T>
struct GroupForward : UntypedParams<GroupNormForwardArgs, T> {
  double eps;
};

template <class T>
struct GroupBackward : UntypedParams<GroupNormBackwardArgs, T> {
  SumPair* by_group;    ///< [batch, channels] sums of g and g * xhat
  SumPair* by_channel;  ///< [channels, batch] sums of dy and dy * xhat
};

template <class T>
struct PointwiseForward : UntypedParams<PointwiseNormForwardArgs, T> {
  Pointwise function;
};

template <class T>
struct PointwiseBackward : UntypedParams<PointwiseNormBackwardArgs, T> {
  Pointwise function;
};

/// For dgain and dbias only.
template <class T>
struct PositionGradients : UntypedParams<ChannelNormBackwardArgs, T> {};

using internal::ArraysOf;
template <class T>
ChannelArrays<T> ArraysOf(const PositionGradients<T>& call) {
  return {call.batch, call.channels, call.spatial, call.dy, call.x, nullptr};
}

/// Launches the kernels of a call.
template <template <class> class Call, class T>
void RunColumns(const Call<T>& call, const ColumnsRun& run);

#define PLANISH_COLUMNS_CALLS(X, T) \
  X(BatchForward<T>)                \
  X(BatchBackward<T>)               \
  X(BatchEvaluate<T>)               \
  X(BatchEvaluateBackward<T>)       \
  X(WeightForward<T>)               \
  X(WeightBackward<T>)              \
  X(OnlineForward<T>)               \
  X(OnlineBackward<T>)              \
  X(PositionGradients<T>)           \
  X(GroupForward<T>)                \
  X(GroupBackward<T>)               \
  X(PointwiseForward<T>)            \
  X(PointwiseBackward<T>)

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_NORM_CUDA_COLUMNS_H_
