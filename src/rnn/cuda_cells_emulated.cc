#include "src/rnn/cuda_cells.cu"  // NOLINT(bugprone-suspicious-include): CUDA as C++
