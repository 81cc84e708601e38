#include <cstdint>

#include "planish/cuda.h"
#include "src/norm/check.h"
#include "src/norm/cuda/columns_call.h"
#include "src/norm/cuda/fill.h"
#include "src/norm/element_types.h"

namespace planish::cuda {
inline namespace PLANISH_API {
namespace {

using internal::cuda::FillEach;
using internal::cuda::RunColumnsCall;
using internal::cuda::Untyped;

}  // namespace

template <class T>
int64_t BatchNormWorkspaceBytes(int64_t batch, int64_t channels, int64_t spatial) {
  internal::CheckChannels<T>("BatchNormWorkspaceBytes", batch, channels, spatial);
  return internal::cuda::ColumnsBytes<T>(batch, channels, spatial, {});
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
  RunColumnsCall(kFunction, call, {}, options);
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
  RunColumnsCall(kFunction, call, {}, options);
}

template <class T, class P>
void BatchNormEvaluate(const BatchNormEvaluateArgs<T, P>& args, const BatchNormOptions& options) {
  constexpr const char* kFunction = "BatchNormEvaluate";
  const int64_t total = internal::CheckBatchEvaluate(kFunction, args, options);
  if (total == 0) return;
  const internal::cuda::BatchEvaluate<T> call = {Untyped(args), options.eps};
  RunColumnsCall(kFunction, call, {.sums = false}, options);
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
  RunColumnsCall(kFunction, call, {.sums = args.dgain != nullptr || args.dbias != nullptr},
                 options);
}

#define PLANISH_INSTANTIATE(T, P)                                                               \
  template void BatchNormForward(const BatchNormForwardArgs<T, P>&, const BatchNormOptions&);   \
  template void BatchNormBackward(const BatchNormBackwardArgs<T, P>&, const BatchNormOptions&); \
  template void BatchNormEvaluate(const BatchNormEvaluateArgs<T, P>&, const BatchNormOptions&); \
  template void BatchNormEvaluateBackward(const BatchNormEvaluateBackwardArgs<T, P>&,           \
                                          const BatchNormOptions&);
PLANISH_NORM_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE
#define PLANISH_INSTANTIATE(T) \
  template int64_t BatchNormWorkspaceBytes<T>(int64_t, int64_t, int64_t);
PLANISH_ELEMENT_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace PLANISH_API
}  // namespace planish::cuda
