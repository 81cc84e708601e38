#include "src/rnn/cuda/persistent_backward.cu"
