#ifndef PLANISH_BENCH_BASE_THREADS_H_
#define PLANISH_BENCH_BASE_THREADS_H_

#include "planish/parallel.h"

namespace planish::bench {

/// PyTorch's threads, on which every contestant of a process runs: a second pool would fight their
/// spinning.
ParallelFor TorchThreads();

}  // namespace planish::bench

#endif  // PLANISH_BENCH_BASE_THREADS_H_
