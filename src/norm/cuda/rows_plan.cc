#include "src/norm/cuda/rows_plan.h"

#include <algorithm>
#include <bit>

#include "src/base/cuda/pack.h"

namespace planish::internal::cuda {
namespace {

// --- Tuning constants (docs/tuning.md) ---

// Threads that fill the largest device there is: with fewer, rows are cut into more threads.
constexpr int64_t kThreadsToFill = int64_t{132} << 10;

// Blocks that streamed rows are cut into, where there are fewer rows: two for each multiprocessor
// of the largest device; and the least columns of each.
constexpr int64_t kBlocksToFill = 264;
constexpr int64_t kPartColumns = 8192;

// Multiprocessors of the largest device that was measured, and blocks of clusters for which
// dgain and dbias are added up, each cluster with sums of its own.
constexpr int64_t kProcessors = 132, kColumnClusterBlocks = 4 * kProcessors;

// Rows of 16 bits that a warp, or a part of one, takes in turn, where there are enough of them.
constexpr int64_t kForwardRowsInTurn = 8;

// Packs of a row that the team's threads read at once, at the least: a line of 128 bytes.
constexpr int64_t kMinTeam = 8;

// --- End of tuning constants ---

int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b != 0); }

// Threads that hold `cols` elements, `held` each.
int64_t ThreadsFor(const RowsWork& work, int held) {
  const int pack = kPackBytes / work.element_bytes;
  return CeilDiv(CeilDiv(work.cols, pack), held / pack);
}

// The team, and the launch, of rows that registers hold: up to `max_held` elements a thread, and
// `max_threads(held)` at most for a row.
template <class MostThreads>
RowsPlan HoldRows(const RowsWork& work, int max_held, const MostThreads& max_threads) {
  RowsPlan plan;
  plan.pack = work.pack;
  plan.aligned = work.pack > 1;
  const auto fits = [&](int held) { return ThreadsFor(work, held) <= max_threads(held); };
  plan.held = 8;
  // The most that leaves threads enough to fill the device and, of short rows, to read lines.
  for (int held = 16; held <= max_held; held *= 2) {
    const int64_t threads = ThreadsFor(work, held);
    const bool many = work.rows >= kThreadsToFill / threads && threads >= kMinTeam;
    if (fits(held) && (many || !fits(plan.held))) plan.held = held;
  }
  if (!fits(plan.held)) {
    plan.streamed = true;
    return plan;
  }
  const int64_t threads = ThreadsFor(work, plan.held);
  if (threads <= kWarpThreads) {
    plan.team = static_cast<int>(std::bit_ceil(static_cast<uint64_t>(threads)));
    plan.launch.threads = kLanesThreads;
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
    if (blocks < 2 || blocks > work.cluster_blocks) continue;
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
  const int64_t max_parts = CeilDiv(work.cols, kPartColumns);
  const int64_t parts = std::clamp<int64_t>(CeilDiv(kBlocksToFill, work.rows), 1, max_parts);
  plan.part_cols = CeilDiv(CeilDiv(work.cols, parts), kMaxThreads) * kMaxThreads;
  plan.parts = CeilDiv(work.cols, plan.part_cols);
  plan.team = kMaxThreads;
  plan.launch = {
      .blocks = work.rows > kMaxBlocks / plan.parts ? kMaxBlocks : work.rows * plan.parts,
      .threads = kMaxThreads};
}

}  // namespace

RowsPlan PlanForward(const RowsWork& work) {
  const auto max_threads = [&](int held) { return MaxForwardThreads(held, work.pack > 1); };
  RowsPlan plan = HoldRows(work, MaxForwardHeld(work.element_bytes), max_threads);
  const int held = ForwardClusterHeld(work.element_bytes);
  if (plan.streamed) {
    if (!ShareRows(work, held, MaxForwardThreads(held, true), plan)) StreamRows(work, plan);
  } else if (!plan.aligned || (work.element_bytes == 2 && plan.team > kWarpThreads)) {
    // Blocks read gains and biases once.
    plan.launch.resident = true;
  } else if (work.element_bytes == 2) {
    // Nor do these read them for each row; but a grid of several times what runs at the same time
    // keeps a device busier.
    const int64_t min_blocks = std::min(plan.launch.blocks, kThreadsToFill / plan.launch.threads);
    plan.launch.blocks = std::max(CeilDiv(plan.launch.blocks, kForwardRowsInTurn), min_blocks);
  }
  return plan;
}

RowsPlan PlanBackward(const RowsWork& work) {
  const auto max_threads = [&](int held) { return MaxBackwardThreads(held, work.element_bytes); };
  RowsPlan plan = HoldRows(work, MaxBackwardHeld(work.element_bytes), max_threads);
  if (plan.streamed &&
      !ShareRows(work, kBackwardClusterHeld, max_threads(kBackwardClusterHeld), plan)) {
    StreamRows(work, plan);
    if (work.columns) {
      plan.partial_rows = kRowsInTurn;
      plan.partials = CeilDiv(work.rows, kRowsInTurn);
    }
  } else if (work.columns) {
    const int cluster = plan.launch.cluster;
    const int64_t teams = plan.launch.threads * cluster / plan.team;  // of a block or cluster
    const int64_t min_partials = CeilDiv(CeilDiv(work.rows, teams), kRowsInTurn);
    // As many blocks as have their registers on the device at the same time, or a multiple: more
    // would only have more sums to add up at the end.
    const int64_t resident = cluster > 1
                                 ? kColumnClusterBlocks / cluster
                                 : kProcessors * (max_threads(plan.held) / plan.launch.threads);
    plan.partials = std::min(plan.launch.blocks / cluster, resident);
    if (plan.partials < min_partials) {
      plan.partials =
          std::min(CeilDiv(min_partials, resident) * resident, plan.launch.blocks / cluster);
    }
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
