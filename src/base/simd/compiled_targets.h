#ifndef PLANISH_SRC_BASE_SIMD_COMPILED_TARGETS_H_
#define PLANISH_SRC_BASE_SIMD_COMPILED_TARGETS_H_

// For which instruction sets kernels are compiled. To be included before any header of Highway.

// All targets and not only those better than the compiler's default: tests run each.
#define HWY_COMPILE_ALL_ATTAINABLE
// x86: AVX-512 (AVX3), AVX2, SSE4 and none (SCALAR). Those between them, SSE2, SSSE3 and later
// AVX-512s, by their bits, as older versions of Highway have no names for them: kernels gain little
// there, and each takes its time to compile.
#if defined(__x86_64__)
#define HWY_DISABLED_TARGETS \
  ((1LL << 14) | (1LL << 12) | (1LL << 7) | (1LL << 6) | (1LL << 5) | (1LL << 4))
#endif

#endif  // PLANISH_SRC_BASE_SIMD_COMPILED_TARGETS_H_
