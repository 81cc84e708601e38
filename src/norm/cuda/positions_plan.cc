#include "src/norm/cuda/positions_plan.h"

#include <algorithm>
#include <bit>

namespace planish::internal::cuda {
namespace {

// --- Tuning constants (docs/tuning.md) ---

// Channels of a thread, if there are enough.
constexpr int64_t kChannelsOfThread = 8;

// Minimum adjacent bytes to read. With fewer, memory transfers would include unused bytes.
constexpr int64_t kMinBytes = 128, kMinBytesOneByOne = 32;

// Blocks that fill the largest device. With fewer blocks, each has fewer positions.
constexpr int64_t kBlocksToFill = 264;

// --- End of tuning constants ---

}  // namespace

PositionsPlan PlanPositions(const PositionsShape& shape) {
  PositionsPlan plan;
  plan.pack = shape.pack;
  const int64_t packs = shape.batch * (shape.spatial / shape.pack);
  const int64_t pack_bytes = int64_t{shape.pack} * shape.element_bytes;
  const int64_t min_team = (shape.pack > 1 ? kMinBytes : kMinBytesOneByOne) / pack_bytes;
  const int64_t max_team = std::min<int64_t>(kPositionsThreads, kMaxPositions / shape.pack);
  // Threads along the channels: as many as there are channels, unless memory transfers would be
  // split.
  const int64_t rows = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::min<int64_t>(
      CeilDiv(shape.channels, kChannelsOfThread), kPositionsThreads / min_team))));
  int64_t team = std::clamp(kPositionsThreads / rows, min_team, max_team);
  while (team > min_team && CeilDiv(packs, team) < kBlocksToFill) team /= 2;
  plan.team = static_cast<int>(team);
  plan.launch.threads = kPositionsThreads;
  plan.launch.blocks = std::min(CeilDiv(packs, team), kMaxBlocks);
  return plan;
}

}  // namespace planish::internal::cuda
