#ifndef PLANISH_SRC_NORM_CUDA_POSITIONS_PLAN_H_
#define PLANISH_SRC_NORM_CUDA_POSITIONS_PLAN_H_

#include <cstdint>

#include "src/base/cuda/launch.h"

// Layout on a GPU of norms over the channels of [batch, channels, spatial] arrays. It depends on
// the shape and on the alignment of the arrays.
namespace planish::internal::cuda {

// --- Tuning constants (docs/tuning.md) ---

/// Threads of a block.
inline constexpr int kPositionsThreads = 256;

/// Limit on the positions of a block at a time, given by shared memory.
inline constexpr int kMaxPositions = 1024;

// --- End of tuning constants ---

/// Work to plan. `pack` is the largest number of positions that a thread can read at once; it
/// divides spatial.
struct PositionsShape {
  int64_t batch = 0, channels = 0, spatial = 0;  // all > 0
  int pack = 1;
  int element_bytes = 4;
};

struct PositionsPlan {
  int pack = 1;
  /// Adjacent threads along the positions, a power of two. The other threads of a block divide the
  /// channels.
  int team = 32;
  Launch launch;
};

PositionsPlan PlanPositions(const PositionsShape& shape);

/// Returns the shared memory in bytes: two sums for each thread's positions, and three values for
/// each of the block's positions.
constexpr int64_t PositionsBytes(int pack, int team, int compute_bytes) {
  return int64_t{2} * pack * kPositionsThreads * 8 + int64_t{3} * pack * team * compute_bytes;
}

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_NORM_CUDA_POSITIONS_PLAN_H_
