#ifndef PLANISH_SRC_BASE_TUNING_H_
#define PLANISH_SRC_BASE_TUNING_H_

#include <cstdint>

// Thresholds that select how work is done; docs/tuning.md has the measurements behind them. They do
// not change results, with one exception: on processors with a distant L3 cache (LastCacheIsFar),
// TileBytes and ManyRows change the order of the sums of dgain and dbias, and
// TransposedGradientColumns (transposed-inl.h) that of dx.
namespace planish::internal {

/// Elements that are worth a thread: about ten microseconds of work, against one or two to wake a
/// thread.
inline constexpr int64_t kGrainElements = int64_t{1} << 15;

/// Multiply-adds of a matrix product that are worth a thread.
inline constexpr int64_t kGrainProducts = int64_t{1} << 19;

/// Multiply-adds of a recurrent step that are worth a thread. Lower, because the threads wait for
/// each step anyway.
inline constexpr int64_t kGrainStepProducts = int64_t{1} << 17;

/// Smallest batch of a recurrent layer that is split by sequences. A smaller batch is split by
/// columns of the matrix product, so that each thread reads only its share of the weights.
inline constexpr int64_t kMinSplitSequences = 4;

/// Rows of inputs multiplied by the weights at once. Many, so that weights are read rarely; few, so
/// that the products are still in a cache when their step needs them.
inline constexpr int64_t kInputRows = 256;

/// Workspace bytes that a recurrent layer's call keeps for the next call of its thread. Saves the
/// page faults of newly mapped memory.
inline constexpr int64_t kKeptBytes = int64_t{1} << 26;

/// Columns from which one row is split over threads. Shorter rows are assigned whole.
inline constexpr int64_t kLongRowColumns = int64_t{1} << 17;

/// Backward with dgain and dbias assigns blocks of rows to threads, each with its own partial sums.
/// With fewer than kMinRowBlocks blocks and at least kTiledColumns columns it assigns tiles of
/// columns instead, if there are more of them. Tiles read their inputs twice but occupy all
/// threads.
inline constexpr int64_t kMinRowBlocks = 8;
inline constexpr int64_t kTiledColumns = 2048;

/// Returns whether the L1 cache holds the same columns of four rows of dy, x and dx. Rows a power
/// of two apart map to the same sets: 12 lines in a cache of 48 KB, 8 lines in one of 32 KB.
bool FirstCacheHoldsManyRows();

/// Bytes of rows that are added to a residual (or to its gradient) before or after they are
/// normalized. They stay in the L2 cache between the two passes.
inline constexpr int64_t kResidualBytes = int64_t{1} << 18;

/// Returns whether the L3 cache is distant: the mesh of Intel server processors, from which a core
/// reads hardly faster than from memory.
bool LastCacheIsFar();

/// Returns the size of the L2 cache in bytes; 1 MB if the system does not report it.
int64_t SecondCacheBytes();

/// Returns whether a thread with `part` of the `whole` of a call that reads and writes `bytes`
/// prefetches its output lines. True for a distant L3 cache and a share larger than the L2 cache.
inline bool AsksForResults(int64_t bytes, int64_t part, int64_t whole) {
  return LastCacheIsFar() &&
         static_cast<double>(bytes) * static_cast<double>(part) >
             static_cast<double>(SecondCacheBytes()) * static_cast<double>(whole);
}

/// Returns the largest size of a recurrent layer's weights, in bytes, for which threads split the
/// batch and each reads all weights. With larger weights threads split the columns and meet twice a
/// step. Unlimited unless the L3 cache is distant.
int64_t OwnWeightBytes();

/// Sets OwnWeightBytes, for tests. Must not run while another thread computes.
void SetOwnWeightBytes(int64_t bytes);

/// Bytes of input that norms over channels read twice, for sums and for the output, as one tile.
/// Larger than the L2 cache: a wider tile reads longer runs of each sample, which outweighs reading
/// from the L3 cache the second time.
inline constexpr int64_t kTileBytes = int64_t{1} << 22;

/// Returns kTileBytes for tiles that contain all channels; twice as much if the L3 cache is
/// distant.
int64_t TileBytes();

/// Returns kTileBytes for channels in long runs; a quarter of the L2 cache if the L3 cache is
/// distant. Tiles of long runs read long stretches however few channels they have.
int64_t RunTileBytes();

/// Returns the number of rows from which batch norm does not tile their columns. Partial sums of
/// many rows are read and written more often than a second pass over the input costs. Fewer if the
/// L3 cache is distant, because rows a power of two apart compete in its L2 cache.
int64_t ManyRows();

/// Bytes read and written by a call from which its results use non-temporal stores.
struct StreamingLimits {
  /// Limit for all threads together. Below it ordinary stores are faster; above it they read the
  /// lines that they overwrite.
  int64_t call;

  /// Limit for the share of one thread. At most eight times the L2 cache if the L3 cache is
  /// distant: a norm by itself would gain from less, but a reader of its results would then load
  /// them from memory.
  int64_t thread;
};
StreamingLimits Streaming();

/// Sets the limits, for tests of non-temporal stores. Must not run while another thread computes.
void SetStreaming(const StreamingLimits& limits);

/// Returns whether a thread with `part` of the `whole` of a call that reads and writes `bytes` uses
/// non-temporal stores.
inline bool Streams(int64_t bytes, int64_t part, int64_t whole) {
  const StreamingLimits limits = Streaming();
  return bytes >= limits.call ||
         static_cast<double>(bytes) * static_cast<double>(part) >=
             static_cast<double>(limits.thread) * static_cast<double>(whole);
}

/// Returns whether a recurrent layer uses non-temporal stores for the `bytes` that it saves for
/// backward: if no cache would still hold them then. With a distant L3 cache the limit of one
/// thread applies.
inline bool KeepsPastCaches(int64_t bytes) {
  const StreamingLimits limits = Streaming();
  return bytes >= limits.call || (LastCacheIsFar() && bytes >= limits.thread);
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_BASE_TUNING_H_
