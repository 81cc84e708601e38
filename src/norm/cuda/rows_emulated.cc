#include "src/norm/cuda/rows.cu"
