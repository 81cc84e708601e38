#ifndef PLANISH_SRC_BASE_CUDA_LAUNCH_H_
#define PLANISH_SRC_BASE_CUDA_LAUNCH_H_

#include <cstdint>

namespace planish::internal::cuda {

/// Returns a / b, rounded up.
constexpr int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b != 0); }

inline constexpr int kWarpThreads = 32;

/// Launch configuration. `shared_bytes` is dynamic shared memory. Blocks of a cluster are neighbors
/// that run concurrently and can access each other's shared memory; `blocks` is a multiple of
/// `cluster`.
struct Launch {
  int64_t blocks = 1, blocks_y = 1;
  int threads = kWarpThreads;
  int64_t shared_bytes = 0;
  int cluster = 1;
  /// Set if blocks loop over the work. No more blocks are launched than are resident at once.
  bool resident = false;
};

/// Limits of a launch that all devices support.
inline constexpr int64_t kMaxBlocks = 0x7fffffff, kMaxBlocksY = 0xffff;
inline constexpr int kMaxThreads = 1024;
inline constexpr int kMaxClusterBlocks = 8;                    ///< on devices with clusters
inline constexpr int64_t kMaxSharedBytes = int64_t{48} << 10;  ///< without opting in to more

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_BASE_CUDA_LAUNCH_H_
