#include "src/rnn/cuda_on_chip.cu"  // NOLINT(bugprone-suspicious-include): CUDA as C++
