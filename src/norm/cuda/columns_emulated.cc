#include "src/norm/cuda/columns.cu"
