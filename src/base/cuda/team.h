#ifndef PLANISH_SRC_BASE_CUDA_TEAM_H_
#define PLANISH_SRC_BASE_CUDA_TEAM_H_

#include <cstdint>

#include "src/base/cuda/kernel.h"

// Threads that put numbers together: the same bits in each of them, whatever the order in which
// they run.
namespace planish::internal::cuda {

/// Each number becomes its sum over `lanes` neighbours in a warp, a power of two.
template <int N, class A>
PLANISH_DEVICE void SumOverLanes(int lanes, A (&values)[N]) {
  PLANISH_UNROLL
  for (int mask = lanes / 2; mask > 0; mask /= 2) {
    PLANISH_UNROLL
    for (int i = 0; i < N; ++i) values[i] += XorLane(values[i], mask);
  }
}

/// The team's SumAll of numbers that are no array.
template <class AnyTeam, class A, class... More>
PLANISH_DEVICE void SumEach(AnyTeam& team, A& first, More&... more) {
  A values[] = {first, more...};
  team.SumAll(values);
  int i = 0;
  first = values[i];
  ((more = values[++i]), ...);
}

/// A power of two of a warp's threads, or all of a block of whole warps. All threads of the block
/// must meet in its functions that take numbers.
template <int kMaxSums>
class Team {
 public:
  static constexpr int kMaxWarps = 32;
  /// Shared memory that a team of several warps needs.
  static constexpr int64_t kSharedBytes = 2 * kMaxSums * kMaxWarps * sizeof(double);

  PLANISH_DEVICE explicit Team(int size)
      : size_(size),
        lane_(ThreadIndex() % size),
        index_(ThreadIndex() / size),
        count_(BlockThreads() / size) {}

  PLANISH_DEVICE int lane() const { return lane_; }
  PLANISH_DEVICE int index() const { return index_; }  ///< among the block's teams
  PLANISH_DEVICE int count() const { return count_; }
  PLANISH_DEVICE int size() const { return size_; }
  /// The number of the block whose teams these are, and how many there are.
  PLANISH_DEVICE int64_t group() const { return BlockIndex(); }
  PLANISH_DEVICE int64_t groups() const { return Blocks(); }

  /// Each becomes its sum over the team.
  template <int N, class A>
  PLANISH_DEVICE void SumAll(A (&values)[N]) {
    static_assert(N <= kMaxSums && sizeof(A) <= sizeof(double));
    if (size_ < kWarpThreads) return SumOverLanes(size_, values);
    SumOverLanes(kWarpThreads, values);
    if (size_ == kWarpThreads) return;
    A* const slots = NextSlots<A>();
    const int warp = ThreadIndex() / kWarpThreads, lane = ThreadIndex() % kWarpThreads;
    if (lane == 0) {
      PLANISH_UNROLL
      for (int i = 0; i < N; ++i) slots[i * kMaxWarps + warp] = values[i];
    }
    SyncBlock();
    const bool has = lane < size_ / kWarpThreads;
    PLANISH_UNROLL
    for (int i = 0; i < N; ++i) values[i] = has ? slots[i * kMaxWarps + lane] : A{0};
    SumOverLanes(kWarpThreads, values);
  }
  template <class A, class... More>
  PLANISH_DEVICE void Sum(A& first, More&... more) {
    SumEach(*this, first, more...);
  }

  /// The largest over the team.
  template <class A>
  PLANISH_DEVICE A Max(A value) {
    value = MaxOverLanes(size_ < kWarpThreads ? size_ : kWarpThreads, value);
    if (size_ <= kWarpThreads) return value;
    A* const slots = NextSlots<A>();
    const int lane = ThreadIndex() % kWarpThreads;
    if (lane == 0) slots[ThreadIndex() / kWarpThreads] = value;
    SyncBlock();
    return MaxOverLanes(kWarpThreads, lane < size_ / kWarpThreads ? slots[lane] : slots[0]);
  }

  /// The value of the team's first thread.
  template <class A>
  PLANISH_DEVICE A First(A value) {
    if (size_ <= kWarpThreads) {
      return FromLane(value, ThreadIndex() % kWarpThreads / size_ * size_);
    }
    A* const slots = NextSlots<A>();
    if (lane_ == 0) slots[0] = value;
    SyncBlock();
    return slots[0];
  }

  /// Whether it is so for any of the threads that meet in this class's functions: those of the
  /// warp, where it has several teams.
  PLANISH_DEVICE bool Any(bool same_in_team) const {
    return size_ < kWarpThreads ? AnyLane(same_in_team) : same_in_team;
  }

 private:
  template <class A>
  static PLANISH_DEVICE A MaxOverLanes(int lanes, A value) {
    for (int mask = lanes / 2; mask > 0; mask /= 2) {
      const A other = XorLane(value, mask);
      value = value > other ? value : other;
    }
    return value;
  }

  // Of the block's shared memory by turns one half and the other: threads may still read one while
  // others write the next.
  template <class A>
  PLANISH_DEVICE A* NextSlots() {
    parity_ ^= 1;
    return reinterpret_cast<A*>(SharedMemory<double>() + parity_ * kMaxSums * kMaxWarps);
  }

  int size_, lane_, index_, count_;
  int parity_ = 0;
};

/// All threads of a cluster of blocks of whole warps. All of them must meet in its functions that
/// take numbers, and where it is made.
///
/// A block's threads put their numbers together first. Then each block writes the result to a place
/// of its own in the shared memory of every block of the cluster, all meet, and each thread reads
/// what its own block was given. So the blocks meet once for a result, and
/// - no block returns too soon: what is written to it is there before it leaves the last meeting;
/// - two places by turns are enough: what goes to the same place again is written after the meeting
///   between the two, to which each thread comes when it has read the first.
template <int kMaxSums>
class ClusterTeam {
 public:
  static constexpr int64_t kSharedBytes =
      Team<kMaxSums>::kSharedBytes + 2 * kMaxSums * kMaxClusterBlocks * sizeof(double);

  PLANISH_DEVICE ClusterTeam()
      : block_(BlockThreads()), rank_(ClusterRank()), blocks_(ClusterBlocks()) {
    SyncCluster();  // nobody writes to a block that has not begun
  }

  PLANISH_DEVICE int lane() const { return rank_ * BlockThreads() + ThreadIndex(); }
  PLANISH_DEVICE int index() const { return 0; }  ///< as Team's: the cluster has one
  PLANISH_DEVICE int count() const { return 1; }
  PLANISH_DEVICE int size() const { return blocks_ * BlockThreads(); }
  /// The number of the cluster, and how many there are.
  PLANISH_DEVICE int64_t group() const {
    return static_cast<unsigned>(BlockIndex()) / static_cast<unsigned>(blocks_);
  }
  PLANISH_DEVICE int64_t groups() const {
    return static_cast<unsigned>(Blocks()) / static_cast<unsigned>(blocks_);
  }

  /// Each becomes its sum over the cluster.
  template <int N, class A>
  PLANISH_DEVICE void SumAll(A (&values)[N]) {
    block_.SumAll(values);
    A* const slots = NextSlots<A>();
    if (ThreadIndex() < blocks_) {
      A* const to = OfBlock(slots, ThreadIndex());
      PLANISH_UNROLL
      for (int i = 0; i < N; ++i) to[i * kMaxClusterBlocks + rank_] = values[i];
    }
    SyncCluster();
    PLANISH_UNROLL
    for (int i = 0; i < N; ++i) {
      values[i] = slots[i * kMaxClusterBlocks];
      ForEachOtherBlock([&](int b) { values[i] += slots[i * kMaxClusterBlocks + b]; });
    }
  }
  template <class A, class... More>
  PLANISH_DEVICE void Sum(A& first, More&... more) {
    SumEach(*this, first, more...);
  }

  /// The largest over the cluster.
  template <class A>
  PLANISH_DEVICE A Max(A value) {
    value = block_.Max(value);
    A* const slots = NextSlots<A>();
    if (ThreadIndex() < blocks_) OfBlock(slots, ThreadIndex())[rank_] = value;
    SyncCluster();
    value = slots[0];
    ForEachOtherBlock([&](int b) { value = value > slots[b] ? value : slots[b]; });
    return value;
  }

  /// The value of the cluster's first thread.
  template <class A>
  PLANISH_DEVICE A First(A value) {
    value = FromLane(value, 0);
    A* const slots = NextSlots<A>();
    if (rank_ == 0 && ThreadIndex() < blocks_) OfBlock(slots, ThreadIndex())[0] = value;
    SyncCluster();
    return slots[0];
  }

  PLANISH_DEVICE bool Any(bool same_in_team) const { return same_in_team; }

 private:
  // Calls f(b) for the blocks behind the first.
  template <class F>
  PLANISH_DEVICE void ForEachOtherBlock(F&& f) const {
    PLANISH_UNROLL
    for (int b = 1; b < kMaxClusterBlocks; ++b) {
      if (b < blocks_) f(b);
    }
  }

  template <class A>
  PLANISH_DEVICE A* NextSlots() {
    parity_ ^= 1;
    return reinterpret_cast<A*>(SharedMemory<double>() +
                                Team<kMaxSums>::kSharedBytes / sizeof(double) +
                                parity_ * kMaxSums * kMaxClusterBlocks);
  }

  Team<kMaxSums> block_;
  int rank_, blocks_;
  int parity_ = 0;
};

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_BASE_CUDA_TEAM_H_
