#include <algorithm>
#include <cstdint>

#include "planish/cuda.h"
#include "src/norm/check.h"
#include "src/norm/cuda/columns_call.h"
#include "src/norm/cuda/fill.h"
#include "src/norm/element_types.h"

// The channels of all samples are the channels of one sample. Forward sums over groups, backward
// over channels.
namespace planish::cuda {
inline namespace PLANISH_API {
namespace {

using internal::cuda::ColumnsKind;
using internal::cuda::ColumnsPlan;
using internal::cuda::ColumnsRun;
using internal::cuda::ColumnsShape;
using internal::cuda::ColumnsSpace;
using internal::cuda::FillEach;
using internal::cuda::kFullPack;
using internal::cuda::Packed;
using internal::cuda::PlanColumns;
using internal::cuda::SumPair;
using internal::cuda::Untyped;

template <class Args>
ColumnsShape ChannelShape(const Args& args) {
  return {.batch = 1, .channels = args.batch * args.channels, .spatial = args.spatial};
}

template <class T, class P>
ColumnsShape SumShape(const GroupNormForwardArgs<T, P>& args) {
  return {.batch = 1,
          .channels = args.batch * args.groups,
          .spatial = args.channels / args.groups * args.spatial};
}
template <class T, class P>
ColumnsShape SumShape(const GroupNormBackwardArgs<T, P>& args) {
  return ChannelShape(args);
}

/// The workspace of a call.
struct GroupSpace {
  ColumnsSpace sums;
  SumPair* by_group = nullptr;
  SumPair* by_channel = nullptr;
  int64_t bytes = 0;
};

/// Divides `workspace` into its parts. If it is null, computes only the size.
template <class T, class Args>
GroupSpace CutGroupSpace(const Args& args, const ColumnsShape& sums, const ColumnsPlan& plan,
                         void* workspace) {
  GroupSpace space;
  space.sums = internal::cuda::CutSpace<T>(sums, plan, {.elementwise = false}, workspace);
  char* begin = static_cast<char*>(workspace);
  space.bytes = space.sums.bytes;
  const auto take = [&]<class N>(N*& part, int64_t count) {
    if (begin != nullptr) part = reinterpret_cast<N*>(begin + space.bytes);
    space.bytes += (count * static_cast<int64_t>(sizeof(N)) + 15) / 16 * 16;
  };
  const int64_t channels = args.batch * args.channels;
  Compute<T>* values = nullptr;
  take(values, channels * internal::kMaxMapParameters);
  space.sums.values = values;
  if constexpr (requires { args.dgain; }) {
    take(space.by_group, channels);
    take(space.by_channel, channels);
  }
  return space;
}

template <template <class, class> class Args, class T, class P>
int64_t GroupBytes(const Args<T, P>& args) {
  constexpr const char* kFunction = "WorkspaceBytes";
  if (internal::CheckGroupSizes<T>(kFunction, args) == 0) return 0;
  int64_t max = 0;
  ColumnsShape shape = SumShape(args);
  for (const int pack : {1, kFullPack<T>}) {
    shape.pack = pack;
    if (pack != Packed<T>(shape, {}).pack && pack != 1) continue;
    max = std::max(max, CutGroupSpace<T>(args, shape, PlanColumns(shape), nullptr).bytes);
  }
  return max;
}

/// Plans and runs a checked call. make(space) returns it.
template <template <class, class> class Args, class T, class P, class Make>
void RunGroupCall(const char* function, const Args<T, P>& args, const GroupNormOptions& options,
                  const Make& make) {
  const internal::ChannelArrays<T> arrays = internal::ArraysOf(args);
  const ColumnsShape sums = Packed<T>(SumShape(args), {arrays.a, arrays.x});
  const ColumnsShape map = Packed<T>(ChannelShape(args), {arrays.a, arrays.x, arrays.out});
  const ColumnsPlan plan = PlanColumns(sums);
  const GroupSpace space = CutGroupSpace<T>(args, sums, plan, options.workspace);
  internal::CheckWorkspace(function, options, space.bytes);
  const ColumnsRun run = {.function = function,
                          .sums = plan,
                          .map = PlanColumns(map),
                          .space = space.sums,
                          .stream = options.stream};
  RunColumns(make(space), run);
}

}  // namespace

template <class T, class P>
int64_t WorkspaceBytes(const GroupNormForwardArgs<T, P>& args) {
  return GroupBytes(args);
}
template <class T, class P>
int64_t WorkspaceBytes(const GroupNormBackwardArgs<T, P>& args) {
  return GroupBytes(args);
}

template <class T, class P>
void GroupNormForward(const GroupNormForwardArgs<T, P>& args, const GroupNormOptions& options) {
  constexpr const char* kFunction = "GroupNormForward";
  const int64_t total = internal::CheckGroupNorm(kFunction, args, options);
  if (total == 0) {
    FillEach(kFunction, {args.mean, args.mean_lo, args.rstd}, args.batch * args.groups,
             internal::cuda::kNanByte, options.stream);
    return;
  }
  RunGroupCall(kFunction, args, options, [&](const GroupSpace&) {
    return internal::cuda::GroupForward<T>{Untyped(args), options.eps};
  });
}

template <class T, class P>
void GroupNormBackward(const GroupNormBackwardArgs<T, P>& args, const GroupNormOptions& options) {
  constexpr const char* kFunction = "GroupNormBackward";
  const int64_t total = internal::CheckGroupNorm(kFunction, args, options);
  if (total == 0) {
    FillEach(kFunction, {args.dgain, args.dbias}, args.channels, internal::cuda::kZeroByte,
             options.stream);
    return;
  }
  RunGroupCall(kFunction, args, options, [&](const GroupSpace& space) {
    return internal::cuda::GroupBackward<T>{Untyped(args), space.by_group, space.by_channel};
  });
}

#define PLANISH_INSTANTIATE(T, P)                                                             \
  template int64_t WorkspaceBytes(const GroupNormForwardArgs<T, P>&);                         \
  template int64_t WorkspaceBytes(const GroupNormBackwardArgs<T, P>&);                        \
  template void GroupNormForward(const GroupNormForwardArgs<T, P>&, const GroupNormOptions&); \
  template void GroupNormBackward(const GroupNormBackwardArgs<T, P>&, const GroupNormOptions&);
PLANISH_NORM_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace PLANISH_API
}  // namespace planish::cuda
