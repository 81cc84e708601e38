#ifndef PLANISH_SRC_BASE_SIMD_SIMD_H_
#define PLANISH_SRC_BASE_SIMD_SIMD_H_

// Highway for the kernel files, and dispatch to the SIMD target in use.

#include "src/base/simd/compiled_targets.h"
// Must follow the line above.
#include <hwy/highway.h>

namespace planish::internal {

/// Returns the target in use. Reads PLANISH_TARGET at the first call and throws ArgumentError for a
/// bad name.
const hwy::ChosenTarget& Chosen();

}  // namespace planish::internal

/// Calls the chosen target's version of a function that the file exports with HWY_EXPORT(FUNCTION).
#define PLANISH_DISPATCH(FUNCTION) \
  (*(HWY_DISPATCH_TABLE(FUNCTION)[::planish::internal::Chosen().GetIndex()]))

#endif  // PLANISH_SRC_BASE_SIMD_SIMD_H_
