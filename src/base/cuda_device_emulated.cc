#include "src/base/cuda_device.cu"  // NOLINT(bugprone-suspicious-include): CUDA as C++
