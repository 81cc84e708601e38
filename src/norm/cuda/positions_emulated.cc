#include "src/norm/cuda/positions.cu"  // NOLINT(bugprone-suspicious-include): CUDA as C++
