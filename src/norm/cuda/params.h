#ifndef PLANISH_SRC_NORM_CUDA_PARAMS_H_
#define PLANISH_SRC_NORM_CUDA_PARAMS_H_

#include <cstdint>

#include "src/base/cuda/elements.h"

// Gains and biases, and their gradients: in the element type, in float, or absent.
namespace planish::internal::cuda {

/// Gains or biases of type T or float. With null data every element is a default value.
struct Params {
  const void* data = nullptr;
  bool is_float = false;
};

/// Returns parameter i, or `none` if there are no parameters.
template <class T, class C = Compute<T>>
PLANISH_DEVICE C ParamAt(const Params& params, int64_t i, C none) {
  if (params.data == nullptr) return none;
  return params.is_float ? static_cast<C>(static_cast<const float*>(params.data)[i])
                         : static_cast<C>(ToCompute(static_cast<const T*>(params.data)[i]));
}

/// Loads N parameters starting with i.
template <class T, int N, class C>
PLANISH_DEVICE void LoadParams(const Params& params, int64_t i, C none, C* to) {
  if (params.data == nullptr) {
    PLANISH_UNROLL
    for (int j = 0; j < N; ++j) to[j] = none;
  } else if (params.is_float) {
    Load<N>(static_cast<const float*>(params.data) + i, to);
  } else {
    Load<N>(static_cast<const T*>(params.data) + i, to);
  }
}

/// Gradients of gains or biases, of type T or float. Null: not requested.
struct ParamGradients {
  void* data = nullptr;
  bool is_float = false;
};

template <class T>
PLANISH_DEVICE void SetParam(const ParamGradients& params, int64_t i, Compute<T> value) {
  if (params.data == nullptr) return;
  if (params.is_float) {
    static_cast<float*>(params.data)[i] = static_cast<float>(value);
  } else {
    static_cast<T*>(params.data)[i] = FromCompute<T>(value);
  }
}

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_NORM_CUDA_PARAMS_H_
