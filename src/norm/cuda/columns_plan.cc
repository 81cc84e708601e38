#include "src/norm/cuda/columns_plan.h"

#include <algorithm>
#include <bit>

namespace planish::internal::cuda {
namespace {

// --- Tuning constants (docs/tuning.md) ---

// Blocks that fill the largest device: four for each multiprocessor.
constexpr int64_t kBlocksToFill = 528;

// Minimum elements of a channel for each thread, if threads are plentiful.
constexpr int64_t kMinThreadElements = 32;

// Elements of each thread in a team of at most a warp, if there are enough.
constexpr int64_t kTeamThreadElements = 8;

// Elements of a part that must not depend on the number of channels.
constexpr int64_t kIndependentPartElements = 16384;

// --- End of tuning constants ---

constexpr int64_t kMaxPack = 8;

int TeamFor(int64_t items) {
  return static_cast<int>(
      std::bit_ceil(static_cast<uint64_t>(std::min<int64_t>(items, kWarpThreads))));
}

int64_t BlocksFor(int64_t items, int64_t of_block) {
  return std::min(CeilDiv(items, of_block), kMaxBlocks);
}

ColumnsPlan PlanRuns(const ColumnsShape& shape) {
  ColumnsPlan plan;
  plan.pack = shape.pack;
  const int64_t n = shape.batch * shape.spatial;
  if (n <= kColumnsThreads * kTeamThreadElements) {
    plan.team = TeamFor(CeilDiv(n, kTeamThreadElements));
    plan.part = CeilDiv(n, kMaxPack) * kMaxPack;
  } else {
    const int64_t parts =
        shape.independent_of_channel_count
            ? CeilDiv(n, kIndependentPartElements)
            : std::clamp<int64_t>(CeilDiv(kBlocksToFill, shape.channels), 1,
                                  CeilDiv(n, kColumnsThreads * kMinThreadElements));
    plan.part = CeilDiv(CeilDiv(n, parts), kMaxPack) * kMaxPack;
    plan.parts = CeilDiv(n, plan.part);
  }
  plan.pairs = plan.parts;
  plan.launch.threads = kColumnsThreads;
  plan.launch.blocks = BlocksFor(shape.channels * plan.parts, kColumnsThreads / plan.team);
  return plan;
}

}  // namespace

bool AreColumns(int64_t batch, int64_t spatial) { return batch > 1 && spatial < kMinRun; }

ColumnsPlan PlanColumns(const ColumnsShape& shape) {
  if (!AreColumns(shape.batch, shape.spatial)) return PlanRuns(shape);
  ColumnsPlan plan;
  plan.columns = true;
  plan.pack = shape.pack;
  const int64_t packs = shape.channels * shape.spatial / shape.pack;
  plan.team = TeamFor(packs);
  const int64_t tiles = CeilDiv(packs, plan.team), threads = kColumnsThreads / plan.team;
  const int64_t parts = std::clamp<int64_t>(CeilDiv(kBlocksToFill, tiles), 1,
                                            CeilDiv(shape.batch, threads * kMinThreadElements));
  plan.part = CeilDiv(shape.batch, parts);
  plan.parts = CeilDiv(shape.batch, plan.part);
  plan.pairs = plan.parts * shape.spatial;
  plan.launch.threads = kColumnsThreads;
  plan.launch.blocks = BlocksFor(tiles * plan.parts, 1);
  return plan;
}

}  // namespace planish::internal::cuda
