#include "src/norm/cuda/columns_plan.h"

#include <algorithm>
#include <bit>

namespace planish::internal::cuda {
namespace {

// --- Tuning constants (docs/tuning.md) ---

// Blocks that fill the largest device: four for each multiprocessor.
constexpr int64_t kBlocksToFill = 528;

// Minimum elements of a channel for each thread, if threads are plentiful.
constexpr int64_t kMinOfThread = 32;

// Elements of each thread in a team of at most a warp, if there are enough.
constexpr int64_t kOfTeamThread = 8;

// Elements of a part that must not depend on the number of channels.
constexpr int64_t kPartAlone = 16384;

// --- End of tuning constants ---

constexpr int64_t kMaxPack = 8;

int TeamFor(int64_t items) {
  return static_cast<int>(
      std::bit_ceil(static_cast<uint64_t>(std::min<int64_t>(items, kWarpThreads))));
}

int64_t BlocksFor(int64_t items, int64_t of_block) {
  return std::min(CeilDiv(items, of_block), kMaxBlocks);
}

ColumnsPlan PlanRuns(const ColumnsWork& work) {
  ColumnsPlan plan;
  plan.pack = work.pack;
  const int64_t n = work.batch * work.spatial;
  if (n <= kColumnsThreads * kOfTeamThread) {
    plan.team = TeamFor(CeilDiv(n, kOfTeamThread));
    plan.part = CeilDiv(n, kMaxPack) * kMaxPack;
  } else {
    const int64_t parts = work.alone
                              ? CeilDiv(n, kPartAlone)
                              : std::clamp<int64_t>(CeilDiv(kBlocksToFill, work.channels), 1,
                                                    CeilDiv(n, kColumnsThreads * kMinOfThread));
    plan.part = CeilDiv(CeilDiv(n, parts), kMaxPack) * kMaxPack;
    plan.parts = CeilDiv(n, plan.part);
  }
  plan.pairs = plan.parts;
  plan.launch.threads = kColumnsThreads;
  plan.launch.blocks = BlocksFor(work.channels * plan.parts, kColumnsThreads / plan.team);
  return plan;
}

}  // namespace

bool AreColumns(int64_t batch, int64_t spatial) { return batch > 1 && spatial < kMinRun; }

ColumnsPlan PlanColumns(const ColumnsWork& work) {
  if (!AreColumns(work.batch, work.spatial)) return PlanRuns(work);
  ColumnsPlan plan;
  plan.columns = true;
  plan.pack = work.pack;
  const int64_t packs = work.channels * work.spatial / work.pack;
  plan.team = TeamFor(packs);
  const int64_t tiles = CeilDiv(packs, plan.team), threads = kColumnsThreads / plan.team;
  const int64_t parts = std::clamp<int64_t>(CeilDiv(kBlocksToFill, tiles), 1,
                                            CeilDiv(work.batch, threads * kMinOfThread));
  plan.part = CeilDiv(work.batch, parts);
  plan.parts = CeilDiv(work.batch, plan.part);
  plan.pairs = plan.parts * work.spatial;
  plan.launch.threads = kColumnsThreads;
  plan.launch.blocks = BlocksFor(tiles * plan.parts, 1);
  return plan;
}

}  // namespace planish::internal::cuda
