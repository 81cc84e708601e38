#include <algorithm>
#include <cstdint>

#include "planish/cuda.h"
#include "src/norm/check.h"
#include "src/norm/cuda/columns_call.h"
#include "src/norm/cuda/fill.h"
#include "src/norm/element_types.h"

// A case is a channel of one sample: its sums do not depend on the number of cases in a call.
namespace planish::cuda {
inline namespace PLANISH_API {
namespace {

using internal::cuda::Alphas;
using internal::cuda::ColumnsNeeds;
using internal::cuda::ColumnsWork;
using internal::cuda::GradientsOf;
using internal::cuda::ParamsOf;
using internal::cuda::RunColumnsCall;

// Workspace needs of sums along rows, and of sums over rows.
constexpr ColumnsNeeds kRows = {.online = true}, kColumns = {.maps = false};

// The argument beside OnlineNormForwardArgs.
struct StateArgs {
  OnlineState* state;
};
template <class F>
void VisitArguments(const StateArgs&, F&& f) {
  f(internal::Argument{"state", &StateArgs::state, {1, 1}, internal::kRequired});
}

Alphas CheckedAlphas(const char* function, const OnlineNormOptions& options, int64_t cols) {
  internal::CheckCases(function, cols);
  if (options.alphas == nullptr) internal::CheckAlpha(function, "alpha", options.alpha);
  return {options.alpha, options.alphas};
}

}  // namespace

template <class T>
int64_t OnlineNormWorkspaceBytes(int64_t rows, int64_t cols) {
  constexpr const char* kFunction = "OnlineNormWorkspaceBytes";
  internal::CheckShape<T>(kFunction, rows, cols);
  internal::CheckCases(kFunction, cols);
  return std::max(
      internal::cuda::ColumnsBytes<T>(
          {.batch = 1, .channels = rows, .spatial = cols, .alone = true}, kRows),
      internal::cuda::ColumnsBytes<T>({.batch = rows, .channels = cols, .spatial = 1}, kColumns));
}

template <class T, class P>
void OnlineNormForward(const OnlineNormForwardArgs<T, P>& args, OnlineState* state,
                       const OnlineNormOptions& options) {
  constexpr const char* kFunction = "OnlineNormForward";
  internal::CheckShape<T>(kFunction, args.rows, args.cols);
  const Alphas alphas = CheckedAlphas(kFunction, options, args.cols);
  internal::Arrays arrays(kFunction);
  arrays.Add(args);
  arrays.Add(StateArgs{state});
  arrays.CheckAlignedAndDisjoint();
  if (args.rows == 0) return;
  const internal::cuda::OnlineForward<T> call = {
      .arrays = {1, args.rows, args.cols, args.x, nullptr, args.y, ParamsOf(args.gain),
                 ParamsOf(args.bias)},
      .alphas = alphas,
      .state = state,
      .mean = args.mean,
      .mean_lo = args.mean_lo,
      .rstd = args.rstd,
      .offset = args.offset,
      .deviation = args.deviation};
  RunColumnsCall(kFunction, call, true, kRows, options);
}

template <class T, class P>
void OnlineNormBackward(const OnlineNormBackwardArgs<T, P>& args,
                        const OnlineNormOptions& options) {
  constexpr const char* kFunction = "OnlineNormBackward";
  const int64_t rows = args.rows, cols = args.cols;
  internal::CheckShape<T>(kFunction, rows, cols);
  const Alphas alphas = CheckedAlphas(kFunction, options, cols);
  internal::CheckArrays(kFunction, args);
  if (rows == 0) {
    internal::cuda::FillEach(kFunction, {args.dgain, args.dbias}, cols, internal::cuda::kZeroByte,
                             options.stream);
    return;
  }
  // Must precede all writes.
  internal::CheckWorkspace(kFunction, options, OnlineNormWorkspaceBytes<T>(rows, cols));
  const internal::cuda::SavedMoments<Compute<T>> saved = {
      .mean = args.mean, .mean_lo = args.mean_lo, .rstd = args.rstd};
  // Must precede dx, which can be dy.
  if (args.dgain != nullptr || args.dbias != nullptr) {
    const internal::cuda::PositionGradients<T> call = {
        .arrays = {rows, cols, 1, args.dy, args.x, nullptr, {}, {}},
        .saved = saved,
        .dgain = GradientsOf(args.dgain),
        .dbias = GradientsOf(args.dbias)};
    RunColumnsCall(kFunction, call, false, kColumns, options);
  }
  if (args.dx == nullptr) return;
  const internal::cuda::OnlineBackward<T> call = {
      .arrays = {1, rows, cols, args.dy, args.x, args.dx, ParamsOf(args.gain), {}},
      .alphas = alphas,
      .saved = saved,
      .offset = args.offset,
      .deviation = args.deviation};
  RunColumnsCall(kFunction, call, true, kRows, options);
}

#define PLANISH_INSTANTIATE(T, P)                                                   \
  template void OnlineNormForward(const OnlineNormForwardArgs<T, P>&, OnlineState*, \
                                  const OnlineNormOptions&);                        \
  template void OnlineNormBackward(const OnlineNormBackwardArgs<T, P>&, const OnlineNormOptions&);
PLANISH_NORM_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE
#define PLANISH_INSTANTIATE(T) template int64_t OnlineNormWorkspaceBytes<T>(int64_t, int64_t);
PLANISH_ELEMENT_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace PLANISH_API
}  // namespace planish::cuda
