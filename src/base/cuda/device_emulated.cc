#include "src/base/cuda/device.cu"
