#ifndef PLANISH_SRC_NORM_CUDA_POSITIONS_H_
#define PLANISH_SRC_NORM_CUDA_POSITIONS_H_

#include <cstdint>

#include "planish/channel_norm.h"
#include "src/norm/cuda/call.h"
#include "src/norm/cuda/positions_plan.h"

// Norms over the channels of [batch, channels, spatial] arrays on a GPU. All addresses are in
// device memory.
namespace planish::internal::cuda {

/// A call of ChannelNormForward with sizes > 0.
template <class T>
struct PositionsForward : UntypedParams<ChannelNormForwardArgs, T>, KernelSettings<Compute<T>> {};

/// A call of ChannelNormBackward with sizes > 0, for dx only. The kernels of columns.h compute
/// dgain and dbias. x, mean and mean_lo are null if they are not read.
template <class T>
struct PositionsBackward : UntypedParams<ChannelNormBackwardArgs, T>, KernelSettings<Compute<T>> {};

/// Launch the kernels; errors name `function`.
template <class T>
void RunPositions(const char* function, const PositionsForward<T>& call, const PositionsPlan& plan,
                  void* stream);
template <class T>
void RunPositions(const char* function, const PositionsBackward<T>& call, const PositionsPlan& plan,
                  void* stream);

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_NORM_CUDA_POSITIONS_H_
