#ifndef PLANISH_TORCH_H_
#define PLANISH_TORCH_H_

// Planish for C++ users of PyTorch: functions and torch::nn modules on the core's kernels.
#include "planish/torch_norm.h"
#include "planish/torch_rnn.h"

#endif  // PLANISH_TORCH_H_
