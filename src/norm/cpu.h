#ifndef PLANISH_SRC_NORM_CPU_H_
#define PLANISH_SRC_NORM_CPU_H_

#include "planish/norm.h"

// NormForward and NormBackward on the CPU, for arguments that norm.cc has checked. cols > 0.
namespace planish::internal {

template <class T>
void NormForwardCpu(Norm norm, const NormForwardArgs<T>& args, const NormOptions& options);

template <class T>
void NormBackwardCpu(Norm norm, const NormBackwardArgs<T>& args, const NormOptions& options);

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_CPU_H_
