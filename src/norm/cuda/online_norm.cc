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
using internal::cuda::ColumnsKind;
using internal::cuda::RunColumnsCall;
using internal::cuda::Untyped;

// Sums along rows, and sums over rows.
constexpr ColumnsKind kRows = {.statistics = true, .independent_of_channel_count = true},
                      kColumns = {.elementwise = false};

// Description of the argument `state`, which OnlineNormForwardArgs does not contain.
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

template <class T>
void CheckSizes(int64_t rows, int64_t cols) {
  constexpr const char* kFunction = "WorkspaceBytes";
  internal::CheckShape<T>(kFunction, rows, cols);
  internal::CheckCases(kFunction, cols);
}

}  // namespace

template <class T, class P>
int64_t WorkspaceBytes(const OnlineNormForwardArgs<T, P>& args) {
  CheckSizes<T>(args.rows, args.cols);
  return internal::cuda::ColumnsBytes<T>(1, args.rows, args.cols, kRows);
}

template <class T, class P>
int64_t WorkspaceBytes(const OnlineNormBackwardArgs<T, P>& args) {
  const int64_t rows = args.rows, cols = args.cols;
  CheckSizes<T>(rows, cols);
  // The two parts of a call run one after the other.
  return std::max(internal::HasParamGradients(args)
                      ? internal::cuda::ColumnsBytes<T>(rows, cols, 1, kColumns)
                      : 0,
                  args.dx != nullptr ? internal::cuda::ColumnsBytes<T>(1, rows, cols, kRows) : 0);
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
  const internal::cuda::OnlineForward<T> call = {Untyped(args), alphas, state};
  RunColumnsCall(kFunction, call, kRows, options);
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
  internal::CheckWorkspace(kFunction, options, WorkspaceBytes(args));
  // Must precede dx, which can be dy.
  if (internal::HasParamGradients(args)) {
    ChannelNormBackwardArgs<T, P> columns = internal::AsSamples(args);
    columns.gain = nullptr;
    columns.dx = nullptr;
    RunColumnsCall(kFunction, internal::cuda::PositionGradients<T>{Untyped(columns)}, kColumns,
                   options);
  }
  if (args.dx == nullptr) return;
  const internal::cuda::OnlineBackward<T> call = {Untyped(args), alphas};
  RunColumnsCall(kFunction, call, kRows, options);
}

#define PLANISH_INSTANTIATE(T, P)                                                   \
  template int64_t WorkspaceBytes(const OnlineNormForwardArgs<T, P>&);              \
  template int64_t WorkspaceBytes(const OnlineNormBackwardArgs<T, P>&);             \
  template void OnlineNormForward(const OnlineNormForwardArgs<T, P>&, OnlineState*, \
                                  const OnlineNormOptions&);                        \
  template void OnlineNormBackward(const OnlineNormBackwardArgs<T, P>&, const OnlineNormOptions&);
PLANISH_NORM_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace PLANISH_API
}  // namespace planish::cuda
