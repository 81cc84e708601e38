#include <cstdint>

#include "planish/cuda.h"
#include "src/norm/check.h"
#include "src/norm/cuda/columns_call.h"
#include "src/norm/cuda/fill.h"
#include "src/norm/element_types.h"

// A column is a channel with one element in each sample.
namespace planish::cuda {
inline namespace PLANISH_API {
namespace {

using internal::cuda::ColumnsKind;
using internal::cuda::FillEach;
using internal::cuda::kZeroByte;
using internal::cuda::RunColumnsCall;
using internal::cuda::Untyped;

template <class T, class P>
ColumnsKind KindOf(const PointwiseNormForwardArgs<T, P>&) {
  return {.sums = false};
}
template <class T, class P>
ColumnsKind KindOf(const PointwiseNormBackwardArgs<T, P>&) {
  return {.statistics = true};
}

template <template <class, class> class Args, class T, class P>
int64_t PointwiseBytes(const Args<T, P>& args) {
  internal::CheckShape<T>("WorkspaceBytes", args.rows, args.cols);
  return internal::cuda::ColumnsBytes<T>(args.rows, args.cols, 1, KindOf(args));
}

}  // namespace

template <class T, class P>
int64_t WorkspaceBytes(const PointwiseNormForwardArgs<T, P>& args) {
  return PointwiseBytes(args);
}
template <class T, class P>
int64_t WorkspaceBytes(const PointwiseNormBackwardArgs<T, P>& args) {
  return PointwiseBytes(args);
}

template <class T, class P>
void PointwiseNormForward(Pointwise function, const PointwiseNormForwardArgs<T, P>& args,
                          const PointwiseNormOptions& options) {
  constexpr const char* kFunction = "PointwiseNormForward";
  internal::CheckPointwise(kFunction, function, args);
  if (args.rows == 0 || args.cols == 0) return;
  const internal::cuda::PointwiseForward<T> call = {Untyped(args), function};
  RunColumnsCall(kFunction, call, KindOf(args), options);
}

template <class T, class P>
void PointwiseNormBackward(Pointwise function, const PointwiseNormBackwardArgs<T, P>& args,
                           const PointwiseNormOptions& options) {
  constexpr const char* kFunction = "PointwiseNormBackward";
  internal::CheckPointwise(kFunction, function, args);
  if (args.rows == 0 || args.cols == 0) {
    FillEach(kFunction, {args.dgain, args.dbias}, args.cols, kZeroByte, options.stream);
    FillEach(kFunction, {args.dalpha, args.dshift}, 1, kZeroByte, options.stream);
    return;
  }
  const internal::cuda::PointwiseBackward<T> call = {Untyped(args), function};
  RunColumnsCall(kFunction, call, KindOf(args), options);
}

#define PLANISH_INSTANTIATE(T, P)                                                        \
  template int64_t WorkspaceBytes(const PointwiseNormForwardArgs<T, P>&);                \
  template int64_t WorkspaceBytes(const PointwiseNormBackwardArgs<T, P>&);               \
  template void PointwiseNormForward(Pointwise, const PointwiseNormForwardArgs<T, P>&,   \
                                     const PointwiseNormOptions&);                       \
  template void PointwiseNormBackward(Pointwise, const PointwiseNormBackwardArgs<T, P>&, \
                                      const PointwiseNormOptions&);
PLANISH_NORM_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace PLANISH_API
}  // namespace planish::cuda
