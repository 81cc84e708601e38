#ifndef PLANISH_SRC_NORM_CUDA_ROWS_PLAN_H_
#define PLANISH_SRC_NORM_CUDA_ROWS_PLAN_H_

#include <cstdint>

#include "src/base/cuda/launch.h"

// Layout on a GPU of norms over rows. It depends on the shape and on the alignment of the arrays.
// For rows that are too long for a block it also depends on the device's largest cluster.
namespace planish::internal::cuda {

// --- Tuning constants (docs/tuning.md) ---

/// Return the largest number of elements of a row in a thread's registers. For each element,
/// backward holds x, dy and two sums.
constexpr int MaxForwardHeld(int element_bytes) {
  return element_bytes == 2 ? 32 : element_bytes == 4 ? 16 : 8;
}
constexpr int MaxBackwardHeld(int element_bytes) { return element_bytes == 8 ? 8 : 16; }

/// Threads of a block, and elements in a thread's registers, if a cluster shares the row. Two such
/// blocks fit on a multiprocessor, so that one reads while the other writes.
inline constexpr int kClusterThreads = 512;
constexpr int ForwardClusterHeld(int element_bytes) { return element_bytes == 8 ? 8 : 16; }
inline constexpr int kBackwardClusterHeld = 8;

/// Return the largest number of threads that share a row, limited by registers. `shifted` is
/// IsShifted of the row.
constexpr int MaxForwardThreads(int held, bool shifted) {
  return held > 16 ? 512 : held > 8 && shifted ? 768 : 1024;
}
constexpr int MaxBackwardThreads(int held, int element_bytes) {
  return held > 8 || element_bytes == 8 ? 512 : 1024;
}

/// Threads of a block if at most one warp shares a row.
inline constexpr int kLanesThreads = 256;

/// Returns how many of these blocks fit on a multiprocessor in forward. Leaves a thread enough
/// registers, also for the next row if it is fetched ahead.
constexpr int LanesBlocks(int element_bytes, bool shifted) {
  return shifted ? 2 : element_bytes == 2 ? 3 : 4;
}

/// Rows whose terms of dgain and dbias a thread adds in the type of the computation. These partial
/// sums are added in double.
inline constexpr int64_t kRowsInTurn = 256;

// --- End of tuning constants ---

/// Returns the launch bound in threads, which limits a thread's registers.
constexpr int BoundOfForwardThreads(int held, bool shifted) {
  return held > 16 ? 640 : MaxForwardThreads(held, shifted);
}

/// Returns whether rows are read in packs that are shifted (RowAccess::kShiftedPacks).
constexpr bool IsShifted(int element_bytes, bool aligned) { return element_bytes == 2 && !aligned; }

struct RowsPlan {
  /// Set if each pass reads the row again, because it exceeds the registers of a block or cluster.
  bool multi_pass = false;
  int pack = 1;           ///< elements that are read and written at once, with multi_pass
  bool aligned = false;   ///< rows begin and end at multiples of 16 bytes
  int held = 8;           ///< elements of a row in a thread's registers
  int team = 32;          ///< threads that share a row: a power of two up to 32, or whole warps
                          ///< of a block or of a cluster's blocks
  int64_t parts = 1;      ///< blocks that share a row, with multi_pass
  int64_t part_cols = 0;  ///< columns of each part except the last
  Launch launch;
  /// Partial sums of each column, for dgain and dbias.
  int64_t partials = 0;
  /// Rows of each partial sum, with multi_pass.
  int64_t partial_rows = 0;
};

/// Work to plan. `pack` is the largest number of elements that a thread can read at once from all
/// arrays.
struct RowsShape {
  int64_t rows = 0, cols = 0;
  int pack = 1;
  int element_bytes = 4;
  bool columns = false;    ///< dgain or dbias is requested
  int cluster_blocks = 1;  ///< largest cluster, a power of two; 1: no clusters
};

RowsPlan PlanForward(const RowsShape& shape);
RowsPlan PlanBackward(const RowsShape& shape);

/// Return the workspace of a plan in bytes. `compute_bytes` is the size of partial sums of columns.
int64_t ForwardWorkspaceBytes(const RowsShape& shape, const RowsPlan& plan);
int64_t BackwardWorkspaceBytes(const RowsShape& shape, const RowsPlan& plan, int compute_bytes);

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_NORM_CUDA_ROWS_PLAN_H_
