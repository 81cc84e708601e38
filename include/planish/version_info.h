#ifndef PLANISH_VERSION_INFO_H_
#define PLANISH_VERSION_INFO_H_

#include <string>
#include <utility>
#include <vector>

#include "planish/version.h"

// Facts about the library, for logs and error reports. The function can be called from several
// threads at once, but not while SetTarget runs (target.h).
//
// Example:
//   for (const auto& [name, value] : planish::VersionInfo()) std::printf("%s ", name.c_str());
//   // prints version compiler targets target cuda tuning
namespace planish {
inline namespace PLANISH_API {

/// Returns names and values of facts about this build of the library and its use of this machine:
/// - version: PLANISH_VERSION, of the library;
/// - compiler: name and version of the compiler;
/// - targets: SIMD targets that the kernels are compiled for, best first (target.h);
/// - target: the SIMD target in use;
/// - cuda: version of CUDA that the GPU kernels are compiled with, or "none";
/// - tuning: caches of the machine, and what PLANISH_TUNING overrides, in its form (core.h).
///
/// Later versions can add names. Throws ArgumentError if PLANISH_TARGET or PLANISH_TUNING is
/// invalid.
std::vector<std::pair<std::string, std::string>> VersionInfo();

}  // namespace PLANISH_API
}  // namespace planish

#endif  // PLANISH_VERSION_INFO_H_
