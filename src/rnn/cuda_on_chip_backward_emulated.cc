#include "src/rnn/cuda_on_chip_backward.cu"  // NOLINT(bugprone-suspicious-include): CUDA as C++
