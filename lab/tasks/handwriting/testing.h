#ifndef PLANISH_LAB_TASKS_HANDWRITING_TESTING_H_
#define PLANISH_LAB_TASKS_HANDWRITING_TESTING_H_

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>

#include <cstdint>

namespace planish::lab {

/// Returns normal values in double, determined by the seed.
inline at::Tensor Normal(at::IntArrayRef sizes, uint64_t seed) {
  return at::normal(0.0, 1.0, sizes, at::detail::createCPUGenerator(seed),
                    at::TensorOptions(at::kDouble));
}

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_HANDWRITING_TESTING_H_
