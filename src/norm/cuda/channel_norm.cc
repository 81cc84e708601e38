#include <cstdint>
#include <initializer_list>

#include "planish/cuda.h"
#include "src/norm/check.h"
#include "src/norm/cuda/columns_call.h"
#include "src/norm/cuda/fill.h"
#include "src/norm/cuda/positions.h"
#include "src/norm/element_types.h"

namespace planish::cuda {
inline namespace PLANISH_API {
namespace {

using internal::Recipe;
using internal::cuda::FillEach;
using internal::cuda::KernelSettingsOf;
using internal::cuda::PlanPositions;
using internal::cuda::PositionsShape;
using internal::cuda::Untyped;

constexpr internal::cuda::ColumnsKind kColumns = {.elementwise = false};

template <class T>
PositionsShape PositionsShapeOf(int64_t batch, int64_t channels, int64_t spatial,
                                std::initializer_list<internal::cuda::StridedArray> arrays) {
  return {.batch = batch,
          .channels = channels,
          .spatial = spatial,
          .pack = internal::cuda::PackOf<T>(spatial, arrays),
          .element_bytes = static_cast<int>(sizeof(T))};
}

}  // namespace

template <class T, class P>
int64_t WorkspaceBytes(const ChannelNormForwardArgs<T, P>& args) {
  internal::CheckChannels<T>("WorkspaceBytes", args.batch, args.channels, args.spatial);
  return args.spatial == 1 ? WorkspaceBytes(internal::AsRows(args)) : 0;
}

template <class T, class P>
int64_t WorkspaceBytes(const ChannelNormBackwardArgs<T, P>& args) {
  internal::CheckChannels<T>("WorkspaceBytes", args.batch, args.channels, args.spatial);
  if (args.spatial == 1) return WorkspaceBytes(internal::AsRows(args));
  if (!internal::HasParamGradients(args)) return 0;
  return internal::cuda::ColumnsBytes<T>(args.batch, args.channels, args.spatial, kColumns);
}

template <class T, class P>
void ChannelNormForward(Norm norm, const ChannelNormForwardArgs<T, P>& args,
                        const NormOptions& options) {
  constexpr const char* kFunction = "ChannelNormForward";
  using C = Compute<T>;
  const Recipe recipe = internal::RecipeOf(norm);
  const int64_t total = internal::CheckChannelNorm(kFunction, recipe, args, options);
  if (total == 0) {
    FillEach(kFunction, {args.mean, args.mean_lo, args.rstd}, args.batch * args.spatial,
             internal::cuda::kNanByte, options.stream);
    return;
  }
  if (args.spatial == 1) {  // rows
    NormForward(norm, internal::AsRows(args), options);
    return;
  }
  const internal::cuda::PositionsForward<T> call = {Untyped(args),
                                                    KernelSettingsOf<C>(recipe, options)};
  const PositionsShape shape =
      PositionsShapeOf<T>(args.batch, args.channels, args.spatial, {args.x, args.y});
  RunPositions(kFunction, call, PlanPositions(shape), options.stream);
}

template <class T, class P>
void ChannelNormBackward(Norm norm, const ChannelNormBackwardArgs<T, P>& args,
                         const NormOptions& options) {
  constexpr const char* kFunction = "ChannelNormBackward";
  using C = Compute<T>;
  const Recipe recipe = internal::RecipeOf(norm);
  const int64_t total = internal::CheckChannelNorm(kFunction, recipe, args, options);
  if (total == 0) {
    FillEach(kFunction, {args.dgain, args.dbias}, args.channels, internal::cuda::kZeroByte,
             options.stream);
    return;
  }
  if (args.spatial == 1) {  // rows
    NormBackward(norm, internal::AsRows(args), options);
    return;
  }
  internal::cuda::PositionsBackward<T> call = {Untyped(args), KernelSettingsOf<C>(recipe, options)};
  internal::cuda::DropUnread(recipe, call);
  // Must precede dx, which can be dy.
  if (internal::HasParamGradients(args)) {
    const internal::cuda::UntypedParams<ChannelNormBackwardArgs, T>& untyped = call;
    internal::cuda::RunColumnsCall(kFunction, internal::cuda::PositionGradients<T>{untyped},
                                   kColumns, options);
  }
  if (args.dx == nullptr) return;
  const PositionsShape shape =
      PositionsShapeOf<T>(args.batch, args.channels, args.spatial, {args.dy, call.x, args.dx});
  RunPositions(kFunction, call, PlanPositions(shape), options.stream);
}

#define PLANISH_INSTANTIATE(T, P)                                                                  \
  template int64_t WorkspaceBytes(const ChannelNormForwardArgs<T, P>&);                            \
  template int64_t WorkspaceBytes(const ChannelNormBackwardArgs<T, P>&);                           \
  template void ChannelNormForward(Norm, const ChannelNormForwardArgs<T, P>&, const NormOptions&); \
  template void ChannelNormBackward(Norm, const ChannelNormBackwardArgs<T, P>&, const NormOptions&);
PLANISH_NORM_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace PLANISH_API
}  // namespace planish::cuda
