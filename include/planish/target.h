#ifndef PLANISH_TARGET_H_
#define PLANISH_TARGET_H_

#include <string>
#include <vector>

#include "planish/error.h"
#include "planish/version.h"

// The library contains its kernels for several SIMD targets and uses the best one that the
// processor supports. The environment variable PLANISH_TARGET selects another. It is read once, at
// the first call; an unknown or unsupported name makes that call throw ArgumentError.
//
// Targets and Target can be called from several threads at once; SetTarget cannot.
//
// Example: results of a target that every processor has.
//   const std::string best = planish::Target();
//   planish::SetTarget(planish::Targets().back());
//   std::printf("%d", planish::Target() == planish::Targets().back());
//   planish::SetTarget(best);
//   // prints 1
namespace planish {
inline namespace PLANISH_API {

/// Returns the SIMD targets that this processor can run, best first. On x86 they are some of "AVX3"
/// (AVX-512), "AVX2", "SSE4" and "SCALAR" or "EMU128" (no vector instructions).
std::vector<std::string> Targets();

/// Returns the SIMD target in use. Throws ArgumentError if PLANISH_TARGET is invalid.
std::string Target();

/// Makes all later calls use `name`, one of Targets(). Throws ArgumentError for any other name.
/// Must not run while another thread computes.
void SetTarget(const std::string& name);

}  // namespace PLANISH_API
}  // namespace planish

#endif  // PLANISH_TARGET_H_
