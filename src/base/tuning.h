#ifndef PLANISH_SRC_BASE_TUNING_H_
#define PLANISH_SRC_BASE_TUNING_H_

#include <cstdint>

// The thresholds that decide how work is done, all of them, each with what it was measured by.
// None changes a result by a bit.
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
inline constexpr int64_t kFewSequences = 4;

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
/// are fewer than kFewBlocks of them, for there are few rows, and kTiledColumns or more, it hands
/// out tiles of columns, if there are more of these: it reads twice, but every thread has work. For
/// the one or two threads that blocks suffice for, these take .55 to .85 of the time of tiles.
inline constexpr int64_t kFewBlocks = 8;
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

/// Bytes of the arrays that are read twice, first for sums and then for the output, that stay in
/// a cache between the two: channels are taken that many at a time. More than the second-level
/// cache holds: a wider tile reads longer stretches of each sample, and that is worth more than the
/// second reading from the last cache costs (from memory on one thread half a megabyte gave .36 to
/// .66 of a copy, four .59 to .73).
inline constexpr int64_t kTileBytes = int64_t{1} << 22;

/// Bytes read and written from which on results are stored past the caches: three quarters of the
/// last cache. Well within it ordinary stores are faster; towards its end and beyond they cost a
/// read of what they overwrite. On two threads the two meet near all of it.
int64_t StreamingBytes();

/// The same where one thread does all of the work: half of the last cache. There ordinary stores
/// take 1.0 to 1.2 times as long, and at five eighths 1.2 to 2.5 times.
int64_t StreamingBytesAlone();

/// Whether results are stored past the caches where so many bytes are read and written.
inline bool Streams(int64_t bytes, bool alone) {
  return bytes >= (alone ? StreamingBytesAlone() : StreamingBytes());
}

/// Sets it, for tests of what is stored past the caches. Not to be called while another thread
/// computes.
void SetStreamingBytes(int64_t bytes);

}  // namespace planish::internal

#endif  // PLANISH_SRC_BASE_TUNING_H_
