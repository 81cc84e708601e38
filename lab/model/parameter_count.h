#ifndef PLANISH_LAB_MODEL_PARAMETER_COUNT_H_
#define PLANISH_LAB_MODEL_PARAMETER_COUNT_H_

#include <torch/nn/module.h>

#include <cstdint>

namespace planish::lab {

/// Returns the number of trained elements of a model.
inline int64_t ParameterCount(const torch::nn::Module& model) {
  int64_t count = 0;
  for (const at::Tensor& parameter : model.parameters()) count += parameter.numel();
  return count;
}

}  // namespace planish::lab

#endif  // PLANISH_LAB_MODEL_PARAMETER_COUNT_H_
