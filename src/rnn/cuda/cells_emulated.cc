#include "src/rnn/cuda/cells.cu"
