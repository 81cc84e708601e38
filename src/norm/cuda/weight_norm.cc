#include <cstdint>

#include "planish/cuda.h"
#include "src/norm/check.h"
#include "src/norm/cuda/columns_call.h"
#include "src/norm/cuda/fill.h"
#include "src/norm/element_types.h"

// A row of weights is a channel of one sample.
namespace planish::cuda {
inline namespace PLANISH_API {

using internal::cuda::FillEach;
using internal::cuda::GradientsOf;
using internal::cuda::kZeroByte;
using internal::cuda::ParamsOf;
using internal::cuda::RunColumnsCall;

template <class T>
int64_t WeightNormWorkspaceBytes(int64_t rows, int64_t cols) {
  internal::CheckShape<T>("WeightNormWorkspaceBytes", rows, cols);
  return internal::cuda::ColumnsBytes<T>(
      {.batch = 1, .channels = rows, .spatial = cols, .alone = true}, {});
}

template <class T, class P>
void WeightNormForward(const WeightNormForwardArgs<T, P>& args, const WeightNormOptions& options) {
  constexpr const char* kFunction = "WeightNormForward";
  internal::CheckWeightNorm(kFunction, args);
  if (args.rows == 0 || args.cols == 0) {
    FillEach(kFunction, {args.norm}, args.rows, kZeroByte, options.stream);
    return;
  }
  const internal::cuda::WeightForward<T> call = {
      .arrays = {1, args.rows, args.cols, args.v, nullptr, args.w, {}, {}},
      .g = ParamsOf(args.g),
      .norm = args.norm};
  RunColumnsCall(kFunction, call, true, {}, options);
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
  const internal::cuda::WeightBackward<T> call = {
      .arrays = {1, args.rows, args.cols, args.dw, args.v, args.dv, {}, {}},
      .g = ParamsOf(args.g),
      .norm = args.norm,
      .dg = GradientsOf(args.dg)};
  RunColumnsCall(kFunction, call, true, {}, options);
}

#define PLANISH_INSTANTIATE(T, P)                                                                \
  template void WeightNormForward(const WeightNormForwardArgs<T, P>&, const WeightNormOptions&); \
  template void WeightNormBackward(const WeightNormBackwardArgs<T, P>&, const WeightNormOptions&);
PLANISH_NORM_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE
#define PLANISH_INSTANTIATE(T) template int64_t WeightNormWorkspaceBytes<T>(int64_t, int64_t);
PLANISH_ELEMENT_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace PLANISH_API
}  // namespace planish::cuda
