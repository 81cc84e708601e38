#include "src/norm/cuda/positions.cu"
