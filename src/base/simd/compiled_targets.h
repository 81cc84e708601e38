#ifndef PLANISH_SRC_BASE_SIMD_COMPILED_TARGETS_H_
#define PLANISH_SRC_BASE_SIMD_COMPILED_TARGETS_H_

// SIMD targets that kernels are compiled for. Must be included before any header of Highway.

// Also targets below the compiler's default: tests run each.
#define HWY_COMPILE_ALL_ATTAINABLE

// All other targets are disabled, so that another version of Highway or another compiler adds none.
// Given by their bits in hwy/detect_targets.h, because versions of Highway lack some of the names.
#if defined(__x86_64__)
// AVX3 (AVX-512), AVX2, SSE4. SSE2, SSSE3 and later AVX-512 targets gain little and cost compile
// time.
#define PLANISH_VECTOR_TARGETS ((1LL << 8) | (1LL << 9) | (1LL << 11))
#elif defined(__aarch64__)
// NEON with and without AES. SVE is left out: its vectors have no size, and kernels keep vectors in
// arrays and structs.
#define PLANISH_VECTOR_TARGETS ((1LL << 28) | (1LL << 29))
#else
#define PLANISH_VECTOR_TARGETS 0LL
#endif
#define HWY_DISABLED_TARGETS (~(PLANISH_VECTOR_TARGETS | (1LL << 62)))  // SCALAR

// SCALAR in place of EMU128, which newer compilers would get: its DemoteTo makes FLT_MAX of an
// infinite double (Highway 1.0 to 1.2).
#define HWY_BROKEN_EMU128 1

#endif  // PLANISH_SRC_BASE_SIMD_COMPILED_TARGETS_H_
