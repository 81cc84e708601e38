#ifndef PLANISH_SRC_BASE_SIMD_SIMD_H_
#define PLANISH_SRC_BASE_SIMD_SIMD_H_

// Highway as every kernel file includes it, and how a call reaches the instruction set in use.

#include "src/base/simd/compiled_targets.h"
// After the line above.
#include <hwy/highway.h>

namespace planish::internal {

/// The target in use; reads PLANISH_TARGET at the first call. Throws Error for a bad name.
const hwy::ChosenTarget& Chosen();

}  // namespace planish::internal

/// Calls the target's version of a function for which the file has HWY_EXPORT(FUNCTION).
#define PLANISH_DISPATCH(FUNCTION) \
  (*(HWY_DISPATCH_TABLE(FUNCTION)[::planish::internal::Chosen().GetIndex()]))

#endif  // PLANISH_SRC_BASE_SIMD_SIMD_H_
