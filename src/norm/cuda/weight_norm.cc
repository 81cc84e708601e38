#include <cstdint>

#include "planish/cuda.h"
#include "src/norm/check.h"
#include "src/norm/cuda/columns_call.h"
#include "src/norm/cuda/fill.h"
#include "src/norm/element_types.h"

// A row of weights is a channel of one sample.
namespace planish::cuda {
inline namespace PLANISH_API {
namespace {

using internal::cuda::FillEach;
using internal::cuda::kZeroByte;
using internal::cuda::RunColumnsCall;
using internal::cuda::Untyped;

constexpr internal::cuda::ColumnsKind kWeights = {.independent_of_channel_count = true};

template <template <class, class> class Args, class T, class P>
int64_t WeightBytes(const Args<T, P>& args) {
  internal::CheckShape<T>("WorkspaceBytes", args.rows, args.cols);
  return internal::cuda::ColumnsBytes<T>(1, args.rows, args.cols, kWeights);
}

}  // namespace

template <class T, class P>
int64_t WorkspaceBytes(const WeightNormForwardArgs<T, P>& args) {
  return WeightBytes(args);
}
template <class T, class P>
int64_t WorkspaceBytes(const WeightNormBackwardArgs<T, P>& args) {
  return WeightBytes(args);
}

template <class T, class P>
void WeightNormForward(const WeightNormForwardArgs<T, P>& args, const WeightNormOptions& options) {
  constexpr const char* kFunction = "WeightNormForward";
  internal::CheckWeightNorm(kFunction, args);
  if (args.rows == 0 || args.cols == 0) {
    FillEach(kFunction, {args.norm}, args.rows, kZeroByte, options.stream);
    return;
  }
  RunColumnsCall(kFunction, internal::cuda::WeightForward<T>{Untyped(args)}, kWeights, options);
}

template <class T, class P>
void WeightNormBackward(const WeightNormBackwardArgs<T, P>& args,
                        const WeightNormOptions& options) {
  constexpr const char* kFunction = "WeightNormBackward";
  internal::CheckWeightNorm(kFunction, args);
  if (args.rows == 0 || args.cols == 0) {
    FillEach(kFunction, {args.dg}, args.rows, kZeroByte, options.stream);
    return;
  }
  RunColumnsCall(kFunction, internal::cuda::WeightBackward<T>{Untyped(args)}, kWeights, options);
}

#define PLANISH_INSTANTIATE(T, P)                                                                \
  template int64_t WorkspaceBytes(const WeightNormForwardArgs<T, P>&);                           \
  template int64_t WorkspaceBytes(const WeightNormBackwardArgs<T, P>&);                          \
  template void WeightNormForward(const WeightNormForwardArgs<T, P>&, const WeightNormOptions&); \
  template void WeightNormBackward(const WeightNormBackwardArgs<T, P>&, const WeightNormOptions&);
PLANISH_NORM_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace PLANISH_API
}  // namespace planish::cuda
