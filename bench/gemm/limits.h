#ifndef PLANISH_BENCH_GEMM_LIMITS_H_
#define PLANISH_BENCH_GEMM_LIMITS_H_

#include <cstdint>

// Limits of a GEMM in the widest vectors of the machine: multiply-adds without memory access, and a
// read of the weights without arithmetic.
namespace planish::bench {

/// Returns the additions and multiplications of one Multiplications call.
int64_t OperationsOfMultiplications();

/// Multiplies and adds in registers only. Returns a value so that the work is not optimized away.
float Multiplications();

/// Reads `n` elements in four streams. Returns a value so that the work is not optimized away.
float Read(const float* data, int64_t n);

}  // namespace planish::bench

#endif  // PLANISH_BENCH_GEMM_LIMITS_H_
