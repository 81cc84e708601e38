#ifndef PLANISH_SRC_BASE_CUDA_LAUNCH_H_
#define PLANISH_SRC_BASE_CUDA_LAUNCH_H_

#include <cstdint>

namespace planish::internal::cuda {

inline constexpr int kWarpThreads = 32;

/// The size of a grid, of blocks of so many threads, with so much dynamic shared memory. The blocks
/// of a cluster, neighbours, run at the same time and reach each other's shared memory: `blocks` is
/// a multiple of it.
struct Launch {
  int64_t blocks = 1, blocks_y = 1;
  int threads = kWarpThreads;
  int64_t shared_bytes = 0;
  int cluster = 1;
};

/// The most of each that a launch may have, on every device there is.
inline constexpr int64_t kMaxBlocks = 0x7fffffff, kMaxBlocksY = 0xffff;
inline constexpr int kMaxThreads = 1024;
inline constexpr int kMaxClusterBlocks = 8;                    ///< where there are clusters
inline constexpr int64_t kMaxSharedBytes = int64_t{48} << 10;  ///< without asking for more

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_BASE_CUDA_LAUNCH_H_
