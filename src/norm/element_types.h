#ifndef PLANISH_SRC_NORM_ELEMENT_TYPES_H_
#define PLANISH_SRC_NORM_ELEMENT_TYPES_H_

#include "planish/types.h"

/// The element types of the norms.
#define PLANISH_ELEMENT_TYPES(X) \
  X(float)                       \
  X(double)                      \
  X(bfloat16)                    \
  X(float16)

/// The pairs of element type T and parameter type P that the norms are instantiated for.
#define PLANISH_NORM_TYPES(X) \
  X(float, float)             \
  X(double, double)           \
  X(double, float)            \
  X(bfloat16, bfloat16)       \
  X(bfloat16, float)          \
  X(float16, float16)         \
  X(float16, float)

/// Instantiates the functions of batch norm of the current namespace.
#define PLANISH_BATCH_NORM_FUNCTIONS(T, P)                                                      \
  template void BatchNormForward(const BatchNormForwardArgs<T, P>&, const BatchNormOptions&);   \
  template void BatchNormBackward(const BatchNormBackwardArgs<T, P>&, const BatchNormOptions&); \
  template void BatchNormEvaluate(const BatchNormEvaluateArgs<T, P>&, const BatchNormOptions&); \
  template void BatchNormEvaluateBackward(const BatchNormEvaluateBackwardArgs<T, P>&,           \
                                          const BatchNormOptions&);

#endif  // PLANISH_SRC_NORM_ELEMENT_TYPES_H_
