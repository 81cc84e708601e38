#include "src/norm/cuda/gate.cu"
