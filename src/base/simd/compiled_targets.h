#ifndef PLANISH_SRC_BASE_SIMD_COMPILED_TARGETS_H_
#define PLANISH_SRC_BASE_SIMD_COMPILED_TARGETS_H_

// SIMD targets that kernels are compiled for. Must be included before any header of Highway.

// Also targets below the compiler's default: tests run each.
#define HWY_COMPILE_ALL_ATTAINABLE

// Their bits in hwy/detect_targets.h; versions of Highway lack some of the names. SSE2, SSSE3 and
// later AVX-512 targets gain little and cost compile time. SVE is left out: its vectors have no
// size, and kernels keep vectors in arrays and structs.
#define PLANISH_TARGET_AVX3 (1LL << 8)  // AVX-512
#define PLANISH_TARGET_AVX2 (1LL << 9)
#define PLANISH_TARGET_SSE4 (1LL << 11)
#define PLANISH_TARGET_NEON (1LL << 28)
#define PLANISH_TARGET_NEON_WITHOUT_AES (1LL << 29)
#define PLANISH_TARGET_SCALAR (1LL << 62)

// The build passes PLANISH_TARGETS (cmake/PlanishTargets.cmake). All other targets are disabled, so
// that another version of Highway or another compiler adds none.
#define HWY_DISABLED_TARGETS (~PLANISH_TARGETS)

// SCALAR in place of EMU128, which newer compilers would get: its DemoteTo makes FLT_MAX of an
// infinite double (Highway 1.0 to 1.2).
#define HWY_BROKEN_EMU128 1

#endif  // PLANISH_SRC_BASE_SIMD_COMPILED_TARGETS_H_
