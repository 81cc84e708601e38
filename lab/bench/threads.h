#ifndef PLANISH_LAB_BENCH_THREADS_H_
#define PLANISH_LAB_BENCH_THREADS_H_

#include "planish/parallel.h"

namespace planish::bench {

/// PyTorch's threads, on which every contestant of a process runs: a second pool would fight their
/// spinning.
ParallelFor TorchThreads();

}  // namespace planish::bench

#endif  // PLANISH_LAB_BENCH_THREADS_H_
