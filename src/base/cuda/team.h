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
  for (int mask = kWarpThreads / 2; mask > 0; mask /= 2) {
    if (mask >= lanes) continue;
    PLANISH_UNROLL
    for (int i = 0; i < N; ++i) values[i] += XorLane(values[i], mask);
  }
}

/// Each number becomes the largest of `lanes` neighbours in a warp, a power of two.
template <class A>
PLANISH_DEVICE A MaxOverLanes(int lanes, A value) {
  PLANISH_UNROLL
  for (int mask = kWarpThreads / 2; mask > 0; mask /= 2) {
    if (mask >= lanes) continue;
    const A other = XorLane(value, mask);
    value = value > other ? value : other;
  }
  return value;
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

/// A power of two of a warp's threads. All threads of the warp must meet in its functions that take
/// numbers.
class LanesTeam {
 public:
  PLANISH_DEVICE explicit LanesTeam(int size)
      : size_(size),
        lane_(ThreadIndex() & (size - 1)),
        index_(
            static_cast<int>(static_cast<unsigned>(ThreadIndex()) / static_cast<unsigned>(size))),
        count_(
            static_cast<int>(static_cast<unsigned>(BlockThreads()) / static_cast<unsigned>(size))) {
  }

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
    SumOverLanes(size_, values);
  }
  template <class A, class... More>
  PLANISH_DEVICE void Sum(A& first, More&... more) {
    SumEach(*this, first, more...);
  }
  /// The largest over the team.
  template <class A>
  PLANISH_DEVICE A Max(A value) {
    return MaxOverLanes(size_, value);
  }
  /// The value of the team's first thread.
  template <class A>
  PLANISH_DEVICE A First(A value) {
    return FromLane(value, ThreadIndex() % kWarpThreads & -size_);
  }
  /// Whether it is so for any of the threads that meet in this class's functions: those of the
  /// warp.
  PLANISH_DEVICE bool Any(bool same_in_team) const { return AnyLane(same_in_team); }

 private:
  int size_, lane_, index_, count_;
};

/// All of a block of whole warps. All threads of the block must meet in its functions that take
/// numbers.
template <int kMaxSums>
class WarpsTeam {
 public:
  static constexpr int kMaxWarps = 32;
  /// Shared memory that a team of several warps needs.
  static constexpr int64_t kSharedBytes = 2 * kMaxSums * kMaxWarps * sizeof(double);

  PLANISH_DEVICE WarpsTeam() : warps_(BlockThreads() / kWarpThreads) {
    while (lanes_ < warps_) lanes_ *= 2;
  }

  PLANISH_DEVICE int lane() const { return ThreadIndex(); }
  PLANISH_DEVICE int index() const { return 0; }  ///< as LanesTeam's: the block has one
  PLANISH_DEVICE int count() const { return 1; }
  PLANISH_DEVICE int size() const { return BlockThreads(); }
  /// The number of the block, and how many there are.
  PLANISH_DEVICE int64_t group() const { return BlockIndex(); }
  PLANISH_DEVICE int64_t groups() const { return Blocks(); }

  /// Each becomes its sum over the block.
  template <int N, class A>
  PLANISH_DEVICE void SumAll(A (&values)[N]) {
    static_assert(N <= kMaxSums && sizeof(A) <= sizeof(double));
    SumOverLanes(kWarpThreads, values);
    if (warps_ == 1) return;
    A* const slots = NextSlots<A>();
    if (ThreadIndex() % kWarpThreads == 0) {
      PLANISH_UNROLL
      for (int i = 0; i < N; ++i) slots[i * kMaxWarps + ThreadIndex() / kWarpThreads] = values[i];
    }
    SyncBlock();
    const int warp = ThreadIndex() & (lanes_ - 1);
    PLANISH_UNROLL
    for (int i = 0; i < N; ++i) values[i] = warp < warps_ ? slots[i * kMaxWarps + warp] : A{0};
    SumOverLanes(lanes_, values);
  }
  template <class A, class... More>
  PLANISH_DEVICE void Sum(A& first, More&... more) {
    SumEach(*this, first, more...);
  }

  /// The largest over the block.
  template <class A>
  PLANISH_DEVICE A Max(A value) {
    value = MaxOverLanes(kWarpThreads, value);
    if (warps_ == 1) return value;
    A* const slots = NextSlots<A>();
    if (ThreadIndex() % kWarpThreads == 0) slots[ThreadIndex() / kWarpThreads] = value;
    SyncBlock();
    const int warp = ThreadIndex() & (lanes_ - 1);
    return MaxOverLanes(lanes_, warp < warps_ ? slots[warp] : slots[0]);
  }

  /// The value of the block's first thread.
  template <class A>
  PLANISH_DEVICE A First(A value) {
    if (warps_ == 1) return FromLane(value, 0);
    A* const slots = NextSlots<A>();
    if (ThreadIndex() == 0) slots[0] = value;
    SyncBlock();
    return slots[0];
  }

  PLANISH_DEVICE bool Any(bool same_in_team) const { return same_in_team; }

 private:
  // Of the block's shared memory by turns one half and the other: threads may still read one while
  // others write the next.
  template <class A>
  PLANISH_DEVICE A* NextSlots() {
    parity_ ^= 1;
    return reinterpret_cast<A*>(SharedMemory<double>() + parity_ * kMaxSums * kMaxWarps);
  }

  int warps_;
  int lanes_ = 1;  // a power of two, at least as many as there are warps
  int parity_ = 0;
};

/// A power of two of a warp's threads, or all of a block of whole warps. All threads of the block
/// must meet in its functions that take numbers.
template <int kMaxSums>
class Team {
 public:
  static constexpr int64_t kSharedBytes = WarpsTeam<kMaxSums>::kSharedBytes;

  PLANISH_DEVICE explicit Team(int size)
      : size_(size), of_warp_(size < kWarpThreads ? size : kWarpThreads) {}

  PLANISH_DEVICE int lane() const { return InWarp() ? of_warp_.lane() : block_.lane(); }
  PLANISH_DEVICE int index() const { return InWarp() ? of_warp_.index() : block_.index(); }
  PLANISH_DEVICE int count() const { return InWarp() ? of_warp_.count() : block_.count(); }
  PLANISH_DEVICE int size() const { return size_; }
  PLANISH_DEVICE int64_t group() const { return BlockIndex(); }
  PLANISH_DEVICE int64_t groups() const { return Blocks(); }

  template <int N, class A>
  PLANISH_DEVICE void SumAll(A (&values)[N]) {
    return InWarp() ? of_warp_.SumAll(values) : block_.SumAll(values);
  }
  template <class A, class... More>
  PLANISH_DEVICE void Sum(A& first, More&... more) {
    SumEach(*this, first, more...);
  }
  template <class A>
  PLANISH_DEVICE A Max(A value) {
    return InWarp() ? of_warp_.Max(value) : block_.Max(value);
  }
  template <class A>
  PLANISH_DEVICE A First(A value) {
    return InWarp() ? of_warp_.First(value) : block_.First(value);
  }
  PLANISH_DEVICE bool Any(bool same_in_team) const {
    return size_ < kWarpThreads ? AnyLane(same_in_team) : same_in_team;
  }

 private:
  PLANISH_DEVICE bool InWarp() const { return size_ <= kWarpThreads; }

  int size_;
  LanesTeam of_warp_;
  WarpsTeam<kMaxSums> block_;
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
      WarpsTeam<kMaxSums>::kSharedBytes + 2 * kMaxSums * kMaxClusterBlocks * sizeof(double);

  PLANISH_DEVICE ClusterTeam() : rank_(ClusterRank()), blocks_(ClusterBlocks()) {
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
                                WarpsTeam<kMaxSums>::kSharedBytes / sizeof(double) +
                                parity_ * kMaxSums * kMaxClusterBlocks);
  }

  WarpsTeam<kMaxSums> block_;
  int rank_, blocks_;
  int parity_ = 0;
};

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_BASE_CUDA_TEAM_H_
