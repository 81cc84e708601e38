#include "src/norm/cuda/rows_plan.h"

#include <algorithm>
#include <bit>

#include "src/base/cuda/pack.h"

namespace planish::internal::cuda {
namespace {

// --- Tuning constants (docs/tuning.md) ---

// Threads that fill the largest device. With fewer, rows are divided among more threads.
constexpr int64_t kThreadsToFill = int64_t{132} << 10;

// Number of blocks to reach in a multi-pass plan: two for each multiprocessor of the largest
// device. With fewer rows, several blocks share a row. kPartColumns is the minimum of columns of a
// block.
constexpr int64_t kBlocksToFill = 264;
constexpr int64_t kPartColumns = 8192;

// Multiprocessors of the largest device, and blocks in clusters that sum dgain and dbias. Each
// cluster has its own partial sums.
constexpr int64_t kProcessors = 132, kColumnClusterBlocks = 4 * kProcessors;

// Rows of 16-bit elements that a team of at most a warp processes one after the other, if there are
// enough.
constexpr int64_t kForwardRowsInTurn = 8;

// Minimum of packs of a row that a team reads at once: a line of 128 bytes.
constexpr int64_t kMinTeam = 8;

// --- End of tuning constants ---

// Returns the threads that hold a row with `held` elements each.
int64_t ThreadsFor(const RowsShape& shape, int held) {
  const int pack = kPackBytes / shape.element_bytes;
  return CeilDiv(CeilDiv(shape.cols, pack), held / pack);
}

// Returns the plan for rows in the registers of at most a block. A thread holds up to `max_held`
// elements, and up to `max_threads(held)` threads share a row. Sets multi_pass if rows are too
// long.
template <class MostThreads>
RowsPlan HoldRows(const RowsShape& shape, int max_held, const MostThreads& max_threads) {
  RowsPlan plan;
  plan.pack = shape.pack;
  plan.aligned = shape.pack > 1;
  const auto fits = [&](int held) { return ThreadsFor(shape, held) <= max_threads(held); };
  plan.held = 8;
  // Chooses the largest value with enough threads to fill the device and, for short rows, to read
  // whole lines.
  for (int held = 16; held <= max_held; held *= 2) {
    const int64_t threads = ThreadsFor(shape, held);
    const bool many = shape.rows >= kThreadsToFill / threads && threads >= kMinTeam;
    if (fits(held) && (many || !fits(plan.held))) plan.held = held;
  }
  if (!fits(plan.held)) {
    plan.multi_pass = true;
    return plan;
  }
  const int64_t threads = ThreadsFor(shape, plan.held);
  if (threads <= kWarpThreads) {
    plan.team = static_cast<int>(std::bit_ceil(static_cast<uint64_t>(threads)));
    plan.launch.threads = kLanesThreads;
  } else {
    plan.team = static_cast<int>(CeilDiv(threads, kWarpThreads) * kWarpThreads);
    plan.launch.threads = plan.team;
  }
  plan.launch.blocks = std::min(CeilDiv(shape.rows, plan.launch.threads / plan.team), kMaxBlocks);
  return plan;
}

// Changes the plan to rows in the registers of a cluster, with `held` elements a thread and blocks
// of up to `max_threads`. Returns false without a change if rows are too long for that.
bool ShareRows(const RowsShape& shape, int held, int max_threads, RowsPlan& plan) {
  const int64_t threads = ThreadsFor(shape, held);
  for (const int of_block : {std::min(kClusterThreads, max_threads), max_threads}) {
    const int64_t blocks = CeilDiv(threads, of_block);
    if (blocks < 2 || blocks > shape.cluster_blocks) continue;
    const int cluster = static_cast<int>(std::bit_ceil(static_cast<uint64_t>(blocks)));
    plan.multi_pass = false;
    plan.held = held;
    plan.launch.cluster = cluster;
    plan.launch.threads =
        static_cast<int>(CeilDiv(CeilDiv(threads, cluster), kWarpThreads) * kWarpThreads);
    plan.team = plan.launch.threads * cluster;
    plan.launch.blocks = std::min(shape.rows, kMaxBlocks / cluster) * cluster;
    return true;
  }
  return false;
}

void PlanMultiPass(const RowsShape& shape, RowsPlan& plan) {
  const int64_t max_parts = CeilDiv(shape.cols, kPartColumns);
  const int64_t parts = std::clamp<int64_t>(CeilDiv(kBlocksToFill, shape.rows), 1, max_parts);
  plan.part_cols = CeilDiv(CeilDiv(shape.cols, parts), kMaxThreads) * kMaxThreads;
  plan.parts = CeilDiv(shape.cols, plan.part_cols);
  plan.team = kMaxThreads;
  plan.launch = {
      .blocks = shape.rows > kMaxBlocks / plan.parts ? kMaxBlocks : shape.rows * plan.parts,
      .threads = kMaxThreads};
}

}  // namespace

RowsPlan PlanForward(const RowsShape& shape) {
  const bool shifted = IsShifted(shape.element_bytes, shape.pack > 1);
  const auto max_threads = [&](int held) { return MaxForwardThreads(held, shifted); };
  RowsPlan plan = HoldRows(shape, MaxForwardHeld(shape.element_bytes), max_threads);
  const int held = ForwardClusterHeld(shape.element_bytes);
  if (plan.multi_pass) {
    if (!ShareRows(shape, held, MaxForwardThreads(held, false), plan)) PlanMultiPass(shape, plan);
  } else if (shifted || (shape.element_bytes == 2 && plan.team > kWarpThreads)) {
    // Each block reads gains and biases once.
    plan.launch.resident = true;
  } else if (shape.element_bytes == 2) {
    // Fewer blocks read gains and biases less often, but a grid larger than the resident one keeps
    // the device busier.
    const int64_t min_blocks = std::min(plan.launch.blocks, kThreadsToFill / plan.launch.threads);
    plan.launch.blocks = std::max(CeilDiv(plan.launch.blocks, kForwardRowsInTurn), min_blocks);
  }
  return plan;
}

RowsPlan PlanBackward(const RowsShape& shape) {
  const auto max_threads = [&](int held) { return MaxBackwardThreads(held, shape.element_bytes); };
  RowsPlan plan = HoldRows(shape, MaxBackwardHeld(shape.element_bytes), max_threads);
  if (plan.multi_pass &&
      !ShareRows(shape, kBackwardClusterHeld, max_threads(kBackwardClusterHeld), plan)) {
    PlanMultiPass(shape, plan);
    if (shape.columns) {
      plan.partial_rows = kRowsInTurn;
      plan.partials = CeilDiv(shape.rows, kRowsInTurn);
    }
  } else if (shape.columns) {
    const int cluster = plan.launch.cluster;
    const int64_t teams = plan.launch.threads * cluster / plan.team;  // of a block or cluster
    const int64_t min_partials = CeilDiv(CeilDiv(shape.rows, teams), kRowsInTurn);
    // The blocks that are resident at the same time, or a multiple. More blocks would only add
    // partial sums.
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

int64_t ForwardWorkspaceBytes(const RowsShape& shape, const RowsPlan& plan) {
  if (!plan.multi_pass || plan.parts == 1) return 0;
  return shape.rows * plan.parts * 4 * static_cast<int64_t>(sizeof(double));
}

int64_t BackwardWorkspaceBytes(const RowsShape& shape, const RowsPlan& plan, int compute_bytes) {
  const int64_t sums = plan.multi_pass && plan.parts > 1
                           ? shape.rows * plan.parts * 2 * static_cast<int64_t>(sizeof(double))
                           : 0;
  return sums + plan.partials * 2 * shape.cols * compute_bytes;
}

}  // namespace planish::internal::cuda
