#include "src/rnn/cuda/persistent_forward.cu"
