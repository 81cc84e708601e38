#include "src/rnn/cuda/cells.cu"  // NOLINT(bugprone-suspicious-include): CUDA as C++
