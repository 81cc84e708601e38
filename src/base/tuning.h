#ifndef PLANISH_SRC_BASE_TUNING_H_
#define PLANISH_SRC_BASE_TUNING_H_

#include <cstdint>

// The thresholds that decide how work is done, all of them, each with what it was measured by.
// None changes a result by a bit but where the last cache is far: there TileBytes decides what sums
// dgain and dbias of norms over channels are made of, ManyRows those of batch norm, and
// TransposedGradientColumns of transposed-inl.h in which order dx of narrow rows is summed.
namespace planish::internal {

/// Elements that are worth a thread of their own: some ten microseconds of work, against one or two
/// for waking a thread.
inline constexpr int64_t kGrainElements = int64_t{1} << 15;

/// Products of two numbers, of matrices, that are worth a thread of their own: for one row, which
/// takes as long as reading the matrix, a good ten microseconds, for many rows half of that.
inline constexpr int64_t kGrainProducts = int64_t{1} << 19;

/// The same of a step of few sequences, for which threads wait from step to step anyway.
inline constexpr int64_t kGrainStepProducts = int64_t{1} << 17;

/// Sequences from which on threads take sequences each. Below, a thread's share of a step's product
/// would be a row or two, for which it would read all weights: it takes columns instead.
inline constexpr int64_t kMinSplitSequences = 4;

/// Rows of steps' inputs that are multiplied with the weights together: enough for the weights to
/// be read seldom, few enough for the sums to be in a cache when their step comes.
inline constexpr int64_t kInputRows = 256;

/// Bytes that a recurrent layer's call leaves to the next one of its thread. Of memory that is
/// newly mapped each page costs a fault: 3 of 100 parts of a layer of 256 units.
inline constexpr int64_t kKeptBytes = int64_t{1} << 26;

/// Columns from which on one row is split over threads: below, a row is work for ten microseconds
/// or so, and rows are handed out whole.
inline constexpr int64_t kLongRowColumns = int64_t{1} << 17;

/// Backward with dgain and dbias hands out blocks of rows, each with sums of its own. Where there
/// are fewer than kMinRowBlocks of them, for there are few rows, and kTiledColumns or more, it
/// hands out tiles of columns, if there are more of these: it reads twice, but every thread has
/// work. For the one or two threads that blocks suffice for, these take .55 to .85 of the time of
/// tiles.
inline constexpr int64_t kMinRowBlocks = 8;
inline constexpr int64_t kTiledColumns = 2048;

/// Whether the first-level cache has room for the same columns of four rows of dy, x and dx, which
/// lie a power of two apart where rows do, so that they compete for the same few lines of it. One
/// of 48 KB has 12 such lines, one of 32 KB eight: there tiles of four rows take 1.2 to 1.5 times
/// as long as of two.
bool FirstCacheHoldsManyRows();

/// Bytes of rows that are added to a residual, or to the gradient of one, before they are
/// normalised, or after: they stay in the second-level cache between the two. As few as fit in the
/// first one make each turn too short for the processor to read ahead in.
inline constexpr int64_t kResidualBytes = int64_t{1} << 18;

/// Whether the last cache is far: the slices of a mesh of many cores, as Intel's server processors
/// have it, from which a core reads hardly faster than from memory (there 30 GB/s and 28, where one
/// of AMD's, of 32 MB for eight cores, gives 69 and 41).
bool LastCacheIsFar();

/// Bytes of a second-level cache; a megabyte where the system does not say.
int64_t SecondCacheBytes();

/// Whether a thread that has `part` of `whole` of a call, which reads and writes `bytes` in all,
/// asks for the lines of its results ahead of their use: where the last cache is far, and more than
/// the second one holds. From 8 to 16 MB norms over rows take .6 to .9 of the time so, norms over
/// channels (32 x 384 x 196) .55; within that cache the requests cost up to a tenth.
inline bool AsksForResults(int64_t bytes, int64_t part, int64_t whole) {
  return LastCacheIsFar() &&
         static_cast<double>(bytes) * static_cast<double>(part) >
             static_cast<double>(SecondCacheBytes()) * static_cast<double>(whole);
}

/// Most bytes of a recurrent layer's weights that each thread reads for itself at every step, for
/// the sequences that it has. Of larger ones threads take columns each, and meet twice a step:
/// where the last cache is far, and the second one does not hold them all beside what else a step
/// needs (on two threads 8 sequences of 400 units take .67 of the time forward, .82 in training; 32
/// of 256 units, whose weights it holds, would take 1.05 and 1.1). Elsewhere no weights are too
/// large.
int64_t OwnWeightBytes();

/// Sets it, for tests. Not to be called while another thread computes.
void SetOwnWeightBytes(int64_t bytes);

/// Bytes of the arrays that are read twice, first for sums and then for the output, that stay in
/// a cache between the two: channels are taken that many at a time. More than the second-level
/// cache holds: a wider tile reads longer stretches of each sample, and that is worth more than the
/// second reading from the last cache costs (from memory on one thread half a megabyte gave .36 to
/// .66 of a copy, four .59 to .73).
inline constexpr int64_t kTileBytes = int64_t{1} << 22;

/// The same of norms over channels, whose tiles have all of them: twice as many where the last
/// cache is far (from memory on two threads backward of 32 x 2,048 x 512 and of 16 x 1,024 x 1,024
/// takes .71 of the time; four times as many are no better).
int64_t TileBytes();

/// The same of channels that lie in long runs, whose tiles read long stretches however few they
/// are: a quarter of the second-level cache where the last one is far (of a copy's speed from
/// memory batch norm has .70 to .83 so, and .42 to .51 with four megabytes).
int64_t RunTileBytes();

/// Rows from which on their columns are not taken in tiles for batch norm: their sums are read and
/// written more often than the second reading costs (on AMD's Zen 4 4,096 x 2,048 takes .46 to .49
/// of the time so, 2,048 x 1,024 .72; fewer rows are too few blocks for that: 1,024 x 2,048 would
/// take 1.03 to 1.15, 256 x 2,048 1.06 to 1.45). A quarter of them where the last cache is far,
/// whose second-level cache has few places for rows a power of two apart (512 x 1,024 takes .55 to
/// .83 there, 1,024 x 4,096 .58 to .81; 256 x 4,096 on two threads would take 1.1 to 1.3).
int64_t ManyRows();

/// Bytes read and written from which on results are stored past the caches.
struct StreamingLimits {
  /// By all threads: three quarters of the last cache. Well within it ordinary stores are faster;
  /// towards its end and beyond they cost a read of what they overwrite. On two threads the two
  /// meet near all of it.
  int64_t call;

  /// By one thread: half of the last cache. There ordinary stores take 1.0 to 1.2 times as long,
  /// and at five eighths 1.2 to 2.5 times. Where the last cache is far no more than eight times
  /// the second-level one. A norm alone is faster so from twice that cache on, and has .9 to .97 of
  /// a copy's speed where ordinary stores have .85 down to .45; but one whose results are read next
  /// pays for their way to memory and back, and that is even at six to ten times.
  int64_t thread;
};
StreamingLimits Streaming();

/// Sets them, for tests of what is stored past the caches. Not to be called while another thread
/// computes.
void SetStreaming(const StreamingLimits& limits);

/// Whether a thread stores its results past the caches that has `part` of `whole` of a call, which
/// reads and writes `bytes` in all.
inline bool Streams(int64_t bytes, int64_t part, int64_t whole) {
  const StreamingLimits limits = Streaming();
  return bytes >= limits.call ||
         static_cast<double>(bytes) * static_cast<double>(part) >=
             static_cast<double>(limits.thread) * static_cast<double>(whole);
}

/// Whether the `bytes` that a recurrent layer keeps for backward go past the caches: what no cache
/// would have when backward reads them. From the limit of all threads on, and where the last cache
/// is far, whose lines are as slow to read as memory, from that of one thread on (there, of .89 to
/// 1.0 of the time; at half of it 1.0 to 1.06).
inline bool KeepsPastCaches(int64_t bytes) {
  const StreamingLimits limits = Streaming();
  return bytes >= limits.call || (LastCacheIsFar() && bytes >= limits.thread);
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_BASE_TUNING_H_
