#ifndef PLANISH_LAB_ENGINE_MEMORY_H_
#define PLANISH_LAB_ENGINE_MEMORY_H_

#include <exception>

namespace planish::lab {

/// Makes malloc keep freed memory for the life of the process, so that a training step reuses the
/// pages that the step before freed. Without it, how much glibc keeps depends on the order of
/// frees.
/// PLANISH_KEEP_MEMORY=0 in the environment turns it off (measured in docs/performance.md).
void KeepFreedMemory();

/// Limits the process's data to the machine's memory. A model that is too large then gets
/// std::bad_alloc or libtorch's error; otherwise the system would kill the process or a neighbour.
/// A lower existing limit (ulimit -d) stays.
void LimitMemory();

/// Returns true if `error` is std::bad_alloc or libtorch's error for a failed allocation.
bool IsOutOfMemory(const std::exception& error);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_MEMORY_H_
