#ifndef PLANISH_SRC_RNN_ELEMENT_TYPES_H_
#define PLANISH_SRC_RNN_ELEMENT_TYPES_H_

/// The element types of recurrent layers.
#define PLANISH_RNN_TYPES(X) \
  X(float)                   \
  X(double)

#endif  // PLANISH_SRC_RNN_ELEMENT_TYPES_H_
