#include "src/norm/cuda_columns.cu"  // NOLINT(bugprone-suspicious-include): CUDA as C++
