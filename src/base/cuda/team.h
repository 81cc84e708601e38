#ifndef PLANISH_SRC_BASE_CUDA_TEAM_H_
#define PLANISH_SRC_BASE_CUDA_TEAM_H_

#include <cstdint>

#include "src/base/cuda/kernel.h"

// Reductions over teams of threads. All threads get the same bits, in any order of threads.
namespace planish::internal::cuda {

/// Replaces each value by its sum over `lanes` neighbors in a warp, a power of two.
template <int N, class A>
PLANISH_DEVICE void SumOverLanes(int lanes, A (&values)[N]) {
  PLANISH_UNROLL
  for (int mask = kWarpThreads / 2; mask > 0; mask /= 2) {
    if (mask >= lanes) continue;
    PLANISH_UNROLL
    for (int i = 0; i < N; ++i) values[i] += XorLane(values[i], mask);
  }
}

/// Returns the largest value of `lanes` neighbors in a warp, a power of two.
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

/// Calls the team's SumAll with separate values.
template <class AnyTeam, class A, class... More>
PLANISH_DEVICE void SumEach(AnyTeam& team, A& first, More&... more) {
  A values[] = {first, more...};
  team.SumAll(values);
  int i = 0;
  first = values[i];
  ((more = values[++i]), ...);
}

/// A team of a power of two of a warp's threads. All threads of the warp must call the functions
/// that take values.
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
  /// Return the index of the teams' block, and the number of blocks.
  PLANISH_DEVICE int64_t group() const { return BlockIndex(); }
  PLANISH_DEVICE int64_t groups() const { return Blocks(); }

  /// Replaces each value by its sum over the team.
  template <int N, class A>
  PLANISH_DEVICE void SumAll(A (&values)[N]) {
    SumOverLanes(size_, values);
  }
  template <class A, class... More>
  PLANISH_DEVICE void Sum(A& first, More&... more) {
    SumEach(*this, first, more...);
  }
  /// Returns the largest value of the team.
  template <class A>
  PLANISH_DEVICE A Max(A value) {
    return MaxOverLanes(size_, value);
  }
  /// Returns the value of the team's first thread.
  template <class A>
  PLANISH_DEVICE A First(A value) {
    return FromLane(value, ThreadIndex() % kWarpThreads & -size_);
  }
  /// Returns whether the argument is true in any thread of the warp.
  PLANISH_DEVICE bool Any(bool same_in_team) const { return AnyLane(same_in_team); }

 private:
  int size_, lane_, index_, count_;
};

/// The team of all threads of a block of whole warps. All of them must call the functions that take
/// values.
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
  PLANISH_DEVICE int index() const { return 0; }  ///< the block has one team
  PLANISH_DEVICE int count() const { return 1; }
  PLANISH_DEVICE int size() const { return BlockThreads(); }
  /// Return the index of the block, and the number of blocks.
  PLANISH_DEVICE int64_t group() const { return BlockIndex(); }
  PLANISH_DEVICE int64_t groups() const { return Blocks(); }

  /// Replaces each value by its sum over the block.
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

  /// Returns the largest value of the block.
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

  /// Returns the value of the block's first thread.
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
  // Returns the halves of the slots alternately: some threads can still read one half while others
  // write the next.
  template <class A>
  PLANISH_DEVICE A* NextSlots() {
    parity_ ^= 1;
    return reinterpret_cast<A*>(SharedMemory<double>() + parity_ * kMaxSums * kMaxWarps);
  }

  int warps_;
  int lanes_ = 1;  // warps_, rounded up to a power of two
  int parity_ = 0;
};

/// A LanesTeam or a WarpsTeam. All threads of the block must call the functions that take values.
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

/// The team of all threads of a cluster of blocks of whole warps. All of them must call the
/// constructor and the functions that take values. Each block writes its result to its slot in the
/// shared memory of every block, and reads all slots after one SyncCluster. Two sets of slots
/// alternate: all threads have read a set before the SyncCluster after which it is written again.
template <int kMaxSums>
class ClusterTeam {
 public:
  static constexpr int64_t kSharedBytes =
      WarpsTeam<kMaxSums>::kSharedBytes + 2 * kMaxSums * kMaxClusterBlocks * sizeof(double);

  PLANISH_DEVICE ClusterTeam() : rank_(ClusterRank()), blocks_(ClusterBlocks()) {
    SyncCluster();  // no block writes to a block that has not started
  }

  PLANISH_DEVICE int lane() const { return rank_ * BlockThreads() + ThreadIndex(); }
  PLANISH_DEVICE int index() const { return 0; }  ///< the cluster has one team
  PLANISH_DEVICE int count() const { return 1; }
  PLANISH_DEVICE int size() const { return blocks_ * BlockThreads(); }
  /// Return the index of the cluster, and the number of clusters.
  PLANISH_DEVICE int64_t group() const {
    return static_cast<unsigned>(BlockIndex()) / static_cast<unsigned>(blocks_);
  }
  PLANISH_DEVICE int64_t groups() const {
    return static_cast<unsigned>(Blocks()) / static_cast<unsigned>(blocks_);
  }

  /// Replaces each value by its sum over the cluster.
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

  /// Returns the largest value of the cluster.
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

  /// Returns the value of the cluster's first thread.
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
  // Calls f(b) for all blocks except the first.
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

/// The threads of a block as a matrix: each row consists of `width` adjacent threads, a power of
/// two. All threads of the block must call the functions that take values.
struct ThreadMatrix {
  int threads, thread, width, x, y, rows;

  PLANISH_DEVICE explicit ThreadMatrix(int row_threads)
      : threads(BlockThreads()),
        thread(ThreadIndex()),
        width(row_threads),
        x(thread % width),
        y(thread / width),
        rows(threads / width) {}

  /// Sums N pairs of values over each column, in the first 2 * N * threads elements of shared
  /// memory. Sum returns the results until the next call.
  template <int N>
  PLANISH_DEVICE void SumColumns(const double (&first)[N], const double (&second)[N]) const {
    double* slots = SharedMemory<double>();  // [2 * N, threads]
    SyncBlock();                             // others can still be reading the previous sums
    PLANISH_UNROLL
    for (int j = 0; j < N; ++j) {
      slots[2 * j * threads + thread] = first[j];
      slots[(2 * j + 1) * threads + thread] = second[j];
    }
    SyncBlock();
    for (int half = rows / 2; half > 0; half /= 2) {
      if (y < half) {
        PLANISH_UNROLL
        for (int j = 0; j < 2 * N; ++j) {
          slots[j * threads + thread] += slots[j * threads + thread + half * width];
        }
      }
      SyncBlock();
    }
  }

  /// Returns the sum of the first (`which` = 0) or second (1) values of pair j in the thread's
  /// column.
  PLANISH_DEVICE double Sum(int which, int j) const {
    return SharedMemory<double>()[(2 * j + which) * threads + x];
  }
};

/// Sums each lane's values over the warps of a block, in order. Returns the sums in the threads of
/// the first warp, and `value` in other threads. Uses an element of shared memory for each of the
/// kWarps * kWarpThreads threads.
template <int kWarps>
PLANISH_DEVICE double SumOverWarps(double value) {
  double* slots = SharedMemory<double>();  // [warps, lanes]
  slots[ThreadIndex()] = value;
  SyncBlock();
  if (ThreadIndex() < kWarpThreads) {
    for (int w = 1; w < kWarps; ++w) value += slots[w * kWarpThreads + ThreadIndex()];
  }
  SyncBlock();
  return value;
}

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_BASE_CUDA_TEAM_H_
