#ifndef PLANISH_LAB_ENGINE_MEMORY_H_
#define PLANISH_LAB_ENGINE_MEMORY_H_

namespace planish::lab {

/// Makes malloc keep freed memory for the life of the process: each training step frees and takes
/// the same activations and gradients, megabytes each, which are then never given back to the
/// system and mapped again. docs/performance.md has what it brings. PLANISH_KEEP_MEMORY=0 in the
/// environment turns it off, for that measurement.
void KeepFreedMemory();

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_MEMORY_H_
