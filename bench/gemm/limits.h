#ifndef PLANISH_BENCH_GEMM_LIMITS_H_
#define PLANISH_BENCH_GEMM_LIMITS_H_

#include <cstdint>

// What a product can reach at the most, in the widest vectors of the machine: multiply-adds that
// touch no memory, and a read of the weights that computes nothing.
namespace planish::bench {

/// Additions and multiplications of one Multiplications call.
int64_t OperationsOfMultiplications();

/// Multiplies and adds in registers alone. Returns a number so that the work is not left out.
float Multiplications();

/// Reads `n` numbers, in four streams. Returns a number so that the work is not left out.
float Read(const float* data, int64_t n);

}  // namespace planish::bench

#endif  // PLANISH_BENCH_GEMM_LIMITS_H_
