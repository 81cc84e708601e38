#include "src/rnn/cuda/persistent_backward.cu"  // NOLINT(bugprone-suspicious-include): CUDA as C++
