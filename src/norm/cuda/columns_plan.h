#ifndef PLANISH_SRC_NORM_CUDA_COLUMNS_PLAN_H_
#define PLANISH_SRC_NORM_CUDA_COLUMNS_PLAN_H_

#include <cstdint>

#include "src/base/cuda/launch.h"

// Layout on a GPU of sums over channels and of elementwise operations, for [batch, channels,
// spatial] arrays. It depends on the shape and on the alignment of the arrays.
namespace planish::internal::cuda {

// --- Tuning constants (docs/tuning.md) ---

/// Threads of a block.
inline constexpr int kColumnsThreads = 256;

/// Spatial size from which a sample's channel is read as a run. Shorter runs are read as columns of
/// a matrix whose rows are samples.
inline constexpr int64_t kMinRun = 64;

// --- End of tuning constants ---

/// Two sums of a part of a channel.
struct SumPair {
  double first, second;
};

/// Shape to plan for. `pack` is the largest number of elements that a thread can read at once. It
/// divides spatial, or channels * spatial for columns.
struct ColumnsShape {
  int64_t batch = 0, channels = 0, spatial = 0;  // all > 0
  int pack = 1;
  /// A channel's bits must not depend on the number of channels.
  bool independent_of_channel_count = false;
};

struct ColumnsPlan {
  bool columns = false;  ///< channels are columns, else runs
  int pack = 1;
  /// For runs: threads that share a run, a power of two up to 32, or a whole block. For columns:
  /// adjacent threads along the columns, a power of two up to 32.
  int team = kColumnsThreads;
  int64_t parts = 1;  ///< parts of a channel, each summed by its own team or block
  int64_t part =
      0;  ///< elements of a part of a run, a multiple of 8; or samples of a part of columns
  int64_t pairs =
      1;  ///< pairs of sums of a channel: one for each part, and for each column of columns
  Launch launch;
};

/// Returns whether channels are read as columns.
bool AreColumns(int64_t batch, int64_t spatial);

ColumnsPlan PlanColumns(const ColumnsShape& shape);

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_NORM_CUDA_COLUMNS_PLAN_H_
