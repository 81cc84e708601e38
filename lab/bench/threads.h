#ifndef PLANISH_LAB_BENCH_THREADS_H_
#define PLANISH_LAB_BENCH_THREADS_H_

#include "planish/parallel.h"

namespace planish::bench {

/// Returns PyTorch's threads. Every contestant of a process uses them, because a second pool would
/// compete with spinning threads.
ParallelFor TorchThreads();

}  // namespace planish::bench

#endif  // PLANISH_LAB_BENCH_THREADS_H_
