#include "src/norm/cuda/rows_plan.h"

#include <algorithm>
#include <bit>

namespace planish::internal::cuda {
namespace {

// Threads that fill the largest device there is: with fewer, rows are cut into more threads.
constexpr int64_t kThreadsToFill = int64_t{132} << 10;

// Blocks that streamed rows are cut into, where there are fewer rows: two for each multiprocessor
// of the largest device; and the least columns of each.
constexpr int64_t kBlocksToFill = 264;
constexpr int64_t kPartColumns = 8192;

// Blocks of backward that add up dgain and dbias, each with sums of its own, or each cluster.
constexpr int64_t kColumnBlocks = 528;

int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b != 0); }

// Threads that hold `cols` numbers, `held` each.
int64_t ThreadsFor(const RowsWork& work, int held) {
  const int64_t packs = CeilDiv(work.cols, work.pack);
  return CeilDiv(packs, held / work.pack);
}

// The team, and the launch, of rows that registers hold: `max_threads(held)` at most for one.
template <class MostThreads>
RowsPlan HoldRows(const RowsWork& work, const MostThreads& max_threads) {
  RowsPlan plan;
  plan.pack = work.pack;
  const auto fits = [&](int held) { return ThreadsFor(work, held) <= max_threads(held); };
  plan.held = 8;
  if (work.element_bytes < 8 && fits(kMaxHeld) &&
      (!fits(8) || work.rows >= kThreadsToFill / ThreadsFor(work, kMaxHeld))) {
    plan.held = kMaxHeld;
  }
  if (!fits(plan.held)) {
    plan.streamed = true;
    return plan;
  }
  const int64_t threads = ThreadsFor(work, plan.held);
  if (threads <= kWarpThreads) {
    plan.team = static_cast<int>(std::bit_ceil(static_cast<uint64_t>(threads)));
    plan.launch.threads = kSmallTeamThreads;
  } else {
    plan.team = static_cast<int>(CeilDiv(threads, kWarpThreads) * kWarpThreads);
    plan.launch.threads = plan.team;
  }
  plan.launch.blocks = std::min(CeilDiv(work.rows, plan.launch.threads / plan.team), kMaxBlocks);
  return plan;
}

// The same for rows that are too long for a block: `held` numbers a thread of a cluster of blocks
// of up to `max_threads`. False, and no change, where they are too long for that, too.
bool ShareRows(const RowsWork& work, int held, int max_threads, RowsPlan& plan) {
  const int64_t threads = ThreadsFor(work, held);
  for (const int of_block : {std::min(kClusterThreads, max_threads), max_threads}) {
    const int64_t blocks = CeilDiv(threads, of_block);
    if (blocks > work.cluster_blocks) continue;
    const int cluster = static_cast<int>(std::bit_ceil(static_cast<uint64_t>(blocks)));
    plan.streamed = false;
    plan.held = held;
    plan.launch.cluster = cluster;
    plan.launch.threads =
        static_cast<int>(CeilDiv(CeilDiv(threads, cluster), kWarpThreads) * kWarpThreads);
    plan.team = plan.launch.threads * cluster;
    plan.launch.blocks = std::min(work.rows, kMaxBlocks / cluster) * cluster;
    return true;
  }
  return false;
}

void StreamRows(const RowsWork& work, RowsPlan& plan) {
  const int64_t most = CeilDiv(work.cols, kPartColumns);
  const int64_t parts = std::clamp<int64_t>(CeilDiv(kBlocksToFill, work.rows), 1, most);
  plan.part_cols = CeilDiv(CeilDiv(work.cols, parts), kMaxThreads) * kMaxThreads;
  plan.parts = CeilDiv(work.cols, plan.part_cols);
  plan.team = kMaxThreads;
  plan.launch = {
      .blocks = work.rows > kMaxBlocks / plan.parts ? kMaxBlocks : work.rows * plan.parts,
      .threads = kMaxThreads};
}

}  // namespace

RowsPlan PlanForward(const RowsWork& work) {
  RowsPlan plan = HoldRows(work, [&](int) { return MaxForwardThreads(work.pack); });
  if (plan.streamed && !ShareRows(work, ForwardClusterHeld(work.element_bytes),
                                  MaxForwardThreads(work.pack), plan)) {
    StreamRows(work, plan);
  }
  return plan;
}

RowsPlan PlanBackward(const RowsWork& work) {
  RowsPlan plan = HoldRows(
      work, [&](int held) { return MaxBackwardThreads(work.pack, held, work.element_bytes); });
  if (plan.streamed &&
      !ShareRows(work, kBackwardClusterHeld,
                 MaxBackwardThreads(work.pack, kBackwardClusterHeld, work.element_bytes), plan)) {
    StreamRows(work, plan);
    if (work.columns) {
      plan.partial_rows = kRowsInTurn;
      plan.partials = CeilDiv(work.rows, kRowsInTurn);
    }
  } else if (work.columns) {
    const int cluster = plan.launch.cluster;
    const int64_t teams = plan.launch.threads * cluster / plan.team;  // of a block or cluster
    const int64_t least = CeilDiv(CeilDiv(work.rows, teams), kRowsInTurn);
    plan.partials = std::max(std::min(plan.launch.blocks, kColumnBlocks) / cluster, least);
    plan.launch.blocks = plan.partials * cluster;
  }
  return plan;
}

int64_t ForwardWorkspaceBytes(const RowsWork& work, const RowsPlan& plan) {
  if (!plan.streamed || plan.parts == 1) return 0;
  return work.rows * plan.parts * 4 * static_cast<int64_t>(sizeof(double));
}

int64_t BackwardWorkspaceBytes(const RowsWork& work, const RowsPlan& plan, int compute_bytes) {
  const int64_t sums = plan.streamed && plan.parts > 1
                           ? work.rows * plan.parts * 2 * static_cast<int64_t>(sizeof(double))
                           : 0;
  return sums + plan.partials * 2 * work.cols * compute_bytes;
}

}  // namespace planish::internal::cuda
