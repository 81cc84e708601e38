#ifndef PLANISH_SRC_BASE_CUDA_NO_CUDA_H_
#define PLANISH_SRC_BASE_CUDA_NO_CUDA_H_

#include <string>

#include "planish/error.h"

namespace planish::internal::cuda {

/// Throws the DeviceError of a function in a build without CUDA.
[[noreturn]] inline void FailWithoutCuda(const char* function) {
  throw DeviceError("[" + std::string(function) +
                        "] Planish was built without CUDA; build it with PLANISH_CUDA=ON",
                    0);
}

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_BASE_CUDA_NO_CUDA_H_
