#ifndef PLANISH_SRC_NORM_ELEMENT_TYPES_H_
#define PLANISH_SRC_NORM_ELEMENT_TYPES_H_

#include "planish/types.h"

/// The element types of the norms. PLANISH_NORM_TYPES of norm.h pairs them with types of
/// parameters.
#define PLANISH_ELEMENT_TYPES(X) \
  X(float)                       \
  X(double)                      \
  X(bfloat16)                    \
  X(float16)

#endif  // PLANISH_SRC_NORM_ELEMENT_TYPES_H_
