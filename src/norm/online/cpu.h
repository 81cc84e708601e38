#ifndef PLANISH_SRC_NORM_ONLINE_CPU_H_
#define PLANISH_SRC_NORM_ONLINE_CPU_H_

#include "planish/online_norm.h"

// online_norm.h on the CPU. Arguments are already checked, and rows > 0.
namespace planish::internal {

/// Computes OnlineNormForward.
template <class T, class P>
void ForwardOnline(const OnlineNormForwardArgs<T, P>& args, OnlineState& state,
                   const OnlineNormOptions& options);

/// Computes OnlineNormBackward.
template <class T, class P>
void BackwardOnline(const OnlineNormBackwardArgs<T, P>& args, const OnlineNormOptions& options);

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_ONLINE_CPU_H_
