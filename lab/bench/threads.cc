#include "lab/bench/threads.h"

#include <ATen/Parallel.h>

#include <cstdint>

namespace planish::bench {

ParallelFor TorchThreads() {
  return [](int64_t begin, int64_t end, int64_t grain, RangeTask task) {
    at::parallel_for(begin, end, grain, task);
  };
}

}  // namespace planish::bench
