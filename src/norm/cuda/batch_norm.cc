#include <cstdint>

#include "planish/cuda.h"
#include "src/norm/check.h"
#include "src/norm/cuda/columns_call.h"
#include "src/norm/cuda/fill.h"
#include "src/norm/element_types.h"

namespace planish::cuda {
inline namespace PLANISH_API {
namespace {

using internal::cuda::ColumnsKind;
using internal::cuda::FillEach;
using internal::cuda::RunColumnsCall;
using internal::cuda::Untyped;

// Training computes sums and outputs, evaluation outputs and the requested sums.
template <class T, class P>
ColumnsKind KindOf(const BatchNormForwardArgs<T, P>&) {
  return {};
}
template <class T, class P>
ColumnsKind KindOf(const BatchNormBackwardArgs<T, P>&) {
  return {};
}
template <class T, class P>
ColumnsKind KindOf(const BatchNormEvaluateArgs<T, P>&) {
  return {.sums = false};
}
template <class T, class P>
ColumnsKind KindOf(const BatchNormEvaluateBackwardArgs<T, P>& args) {
  return {.sums = internal::HasParamGradients(args)};
}

template <template <class, class> class Args, class T, class P>
int64_t ChannelBytes(const Args<T, P>& args) {
  internal::CheckChannels<T>("WorkspaceBytes", args.batch, args.channels, args.spatial);
  return internal::cuda::ColumnsBytes<T>(args.batch, args.channels, args.spatial, KindOf(args));
}

}  // namespace

template <class T, class P>
int64_t WorkspaceBytes(const BatchNormForwardArgs<T, P>& args) {
  return ChannelBytes(args);
}
template <class T, class P>
int64_t WorkspaceBytes(const BatchNormBackwardArgs<T, P>& args) {
  return ChannelBytes(args);
}
template <class T, class P>
int64_t WorkspaceBytes(const BatchNormEvaluateArgs<T, P>& args) {
  return ChannelBytes(args);
}
template <class T, class P>
int64_t WorkspaceBytes(const BatchNormEvaluateBackwardArgs<T, P>& args) {
  return ChannelBytes(args);
}

template <class T, class P>
void BatchNormForward(const BatchNormForwardArgs<T, P>& args, const BatchNormOptions& options) {
  constexpr const char* kFunction = "BatchNormForward";
  const int64_t total = internal::CheckBatchNorm(kFunction, args, options);
  if (total == 0) {
    FillEach(kFunction, {args.mean, args.mean_lo, args.rstd}, args.channels,
             internal::cuda::kNanByte, options.stream);
    return;
  }
  const internal::cuda::BatchForward<T> call = {
      Untyped(args), options.eps, internal::CheckedMomentum(kFunction, options), options.unbiased};
  RunColumnsCall(kFunction, call, KindOf(args), options);
}

template <class T, class P>
void BatchNormBackward(const BatchNormBackwardArgs<T, P>& args, const BatchNormOptions& options) {
  constexpr const char* kFunction = "BatchNormBackward";
  const int64_t total = internal::CheckBatchNorm(kFunction, args, options);
  if (total == 0) {
    FillEach(kFunction, {args.dgain, args.dbias}, args.channels, internal::cuda::kZeroByte,
             options.stream);
    return;
  }
  const internal::cuda::BatchBackward<T> call = {Untyped(args), options.unbiased};
  RunColumnsCall(kFunction, call, KindOf(args), options);
}

template <class T, class P>
void BatchNormEvaluate(const BatchNormEvaluateArgs<T, P>& args, const BatchNormOptions& options) {
  constexpr const char* kFunction = "BatchNormEvaluate";
  const int64_t total = internal::CheckBatchEvaluate(kFunction, args, options);
  if (total == 0) return;
  const internal::cuda::BatchEvaluate<T> call = {Untyped(args), options.eps};
  RunColumnsCall(kFunction, call, KindOf(args), options);
}

template <class T, class P>
void BatchNormEvaluateBackward(const BatchNormEvaluateBackwardArgs<T, P>& args,
                               const BatchNormOptions& options) {
  constexpr const char* kFunction = "BatchNormEvaluateBackward";
  const int64_t total = internal::CheckBatchEvaluate(kFunction, args, options);
  if (total == 0) {
    FillEach(kFunction, {args.dgain, args.dbias}, args.channels, internal::cuda::kZeroByte,
             options.stream);
    return;
  }
  const internal::cuda::BatchEvaluateBackward<T> call = {Untyped(args), options.eps};
  RunColumnsCall(kFunction, call, KindOf(args), options);
}

#define PLANISH_INSTANTIATE(T, P)                                              \
  template int64_t WorkspaceBytes(const BatchNormForwardArgs<T, P>&);          \
  template int64_t WorkspaceBytes(const BatchNormBackwardArgs<T, P>&);         \
  template int64_t WorkspaceBytes(const BatchNormEvaluateArgs<T, P>&);         \
  template int64_t WorkspaceBytes(const BatchNormEvaluateBackwardArgs<T, P>&); \
  PLANISH_BATCH_NORM_FUNCTIONS(T, P)
PLANISH_NORM_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace PLANISH_API
}  // namespace planish::cuda
