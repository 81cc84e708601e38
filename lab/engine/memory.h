#ifndef PLANISH_LAB_ENGINE_MEMORY_H_
#define PLANISH_LAB_ENGINE_MEMORY_H_

#include <exception>

namespace planish::lab {

/// Makes malloc keep freed memory for the life of the process, so that no training step faults in
/// fresh pages for the activations and gradients that the step before freed. glibc raises its own
/// thresholds towards the same end, but how far depends on the order of frees (docs/performance.md
/// has the measurement). PLANISH_KEEP_MEMORY=0 in the environment turns it off, for that
/// measurement.
void KeepFreedMemory();

/// Keeps the process's data within the machine's memory: a model that is too large then gets
/// std::bad_alloc, or libtorch's error, where the system would kill the process or a neighbour. A
/// lower limit that is there (ulimit -d) stays.
void LimitMemory();

/// Returns true if `error` is std::bad_alloc or libtorch's error for memory that it did not get.
bool IsOutOfMemory(const std::exception& error);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_MEMORY_H_
