#ifndef PLANISH_SRC_BASE_FACTS_H_
#define PLANISH_SRC_BASE_FACTS_H_

#include <string>
#include <vector>

#include "src/base/tuning.h"

// Facts that VersionInfo states. Apart from simd.h and tuning.h, which all kernels include.
namespace planish::internal {

/// Returns the SIMD targets that the kernels are compiled for, best first. The processor need not
/// support them.
std::vector<std::string> CompiledTargets();

/// Returns the shortest overrides that describe `tuning`: TuningFor makes it from them and any
/// caches.
std::string OverridesOf(const Tuning& tuning);

}  // namespace planish::internal

#endif  // PLANISH_SRC_BASE_FACTS_H_
