#include "src/norm/cuda_positions.cu"  // NOLINT(bugprone-suspicious-include): CUDA as C++
