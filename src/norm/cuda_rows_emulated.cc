#include "src/norm/cuda_rows.cu"  // NOLINT(bugprone-suspicious-include): CUDA as C++
