#include "src/norm/cuda/rows.cu"  // NOLINT(bugprone-suspicious-include): CUDA as C++
