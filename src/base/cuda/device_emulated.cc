#include "src/base/cuda/device.cu"  // NOLINT(bugprone-suspicious-include): CUDA as C++
