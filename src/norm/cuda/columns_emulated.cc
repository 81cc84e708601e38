#include "src/norm/cuda/columns.cu"  // NOLINT(bugprone-suspicious-include): CUDA as C++
