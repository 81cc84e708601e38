#ifndef PLANISH_SRC_BASE_SIMD_COMPILED_TARGETS_H_
#define PLANISH_SRC_BASE_SIMD_COMPILED_TARGETS_H_

// SIMD targets that kernels are compiled for. Must be included before any header of Highway.

// Also targets below the compiler's default: tests run each.
#define HWY_COMPILE_ALL_ATTAINABLE
// x86: AVX-512 (AVX3), AVX2, SSE4 and SCALAR. SSE2, SSSE3 and later AVX-512 targets are disabled:
// they gain little and cost compile time. Given by their bits, because older versions of Highway
// lack their names.
#if defined(__x86_64__)
#define HWY_DISABLED_TARGETS \
  ((1LL << 14) | (1LL << 12) | (1LL << 7) | (1LL << 6) | (1LL << 5) | (1LL << 4))
#endif

#endif  // PLANISH_SRC_BASE_SIMD_COMPILED_TARGETS_H_
