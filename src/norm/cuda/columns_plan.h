#ifndef PLANISH_SRC_NORM_CUDA_COLUMNS_PLAN_H_
#define PLANISH_SRC_NORM_CUDA_COLUMNS_PLAN_H_

#include <cstdint>

#include "src/base/cuda/launch.h"

// How sums over the channels of [batch, channels, spatial] numbers, and maps of these numbers, are
// laid out on a GPU: a function of the shape and of how the arrays are aligned.
namespace planish::internal::cuda {

/// Threads of a block.
inline constexpr int kColumnsThreads = 256;

/// Numbers of a sample's channel from which on they are read as a run; fewer are read as columns
/// of a matrix whose rows are samples.
inline constexpr int64_t kMinRun = 64;

/// Two sums of a part of a channel.
struct SumPair {
  double first, second;
};

/// What there is to do. `pack`: the most numbers that a thread may read at once: a divisor of
/// spatial or, of columns, of channels * spatial.
struct ColumnsWork {
  int64_t batch = 0, channels = 0, spatial = 0;  // all > 0
  int pack = 1;
  bool alone = false;  ///< a channel's bits must not depend on how many there are beside it
};

struct ColumnsPlan {
  bool columns = false;  ///< channels are columns, else runs
  int pack = 1;
  /// Threads that share a run, a power of two up to 32 or the block; or threads beside each other
  /// along the columns, a power of two up to 32.
  int team = kColumnsThreads;
  int64_t parts = 1;  ///< of a channel, each summed by another team or block
  int64_t part = 0;   ///< numbers of a part of a run, a multiple of 8; or samples of one of columns
  int64_t pairs = 1;  ///< of sums of a channel: one for each part, of columns for each column's
  Launch launch;
};

/// Whether channels are read as columns.
bool AreColumns(int64_t batch, int64_t spatial);

ColumnsPlan PlanColumns(const ColumnsWork& work);

/// Bytes of the sums of all channels.
int64_t PairBytes(const ColumnsWork& work, const ColumnsPlan& plan);

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_NORM_CUDA_COLUMNS_PLAN_H_
