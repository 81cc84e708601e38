#include "src/rnn/cuda/persistent_forward.cu"  // NOLINT(bugprone-suspicious-include): CUDA as C++
