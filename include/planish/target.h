#ifndef PLANISH_TARGET_H_
#define PLANISH_TARGET_H_

#include <string>
#include <vector>

#include "planish/error.h"

// The library holds its kernels for several instruction sets and takes the best that the processor
// has. The environment variable PLANISH_TARGET names another one: it is read once, at the first
// call, and a name that is unknown or that the processor lacks makes that call throw Error.
namespace planish {

/// The instruction sets that can run here, best first: some of "AVX3" (AVX-512), "AVX2", "SSE4" and
/// "SCALAR" or "EMU128" (no vector instructions). Architectures other than x86 have their own
/// names.
std::vector<std::string> Targets();

/// The instruction set in use.
std::string Target();

/// Makes all later calls use `name`, one of Targets(). Throws Error for any other name. Not to be
/// called while another thread computes.
void SetTarget(const std::string& name);

}  // namespace planish

#endif  // PLANISH_TARGET_H_
