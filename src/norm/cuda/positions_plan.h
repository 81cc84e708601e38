#ifndef PLANISH_SRC_NORM_CUDA_POSITIONS_PLAN_H_
#define PLANISH_SRC_NORM_CUDA_POSITIONS_PLAN_H_

#include <cstdint>

#include "src/base/cuda/launch.h"

// How norms over the channels of [batch, channels, spatial] numbers are laid out on a GPU: a
// function of the shape and of how the arrays are aligned.
namespace planish::internal::cuda {

/// Threads of a block.
inline constexpr int kPositionsThreads = 256;

/// Positions that a block has at a time, at most: as many as shared memory has room for.
inline constexpr int kMaxPositions = 1024;

/// What there is to do. `pack`: the most positions that a thread may read at once, a divisor of
/// spatial.
struct PositionsWork {
  int64_t batch = 0, channels = 0, spatial = 0;  // all > 0
  int pack = 1;
  int element_bytes = 4;
};

struct PositionsPlan {
  int pack = 1;
  /// Threads beside each other along the positions, a power of two; those above each other have
  /// channels by turns.
  int team = 32;
  Launch launch;
};

PositionsPlan PlanPositions(const PositionsWork& work);

/// Bytes of shared memory: two sums of each thread's positions, and three numbers of each of the
/// block's positions.
constexpr int64_t PositionsBytes(int pack, int team, int compute_bytes) {
  return int64_t{2} * pack * kPositionsThreads * 8 + int64_t{3} * pack * team * compute_bytes;
}

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_NORM_CUDA_POSITIONS_PLAN_H_
