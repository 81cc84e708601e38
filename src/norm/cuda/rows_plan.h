#ifndef PLANISH_SRC_NORM_CUDA_ROWS_PLAN_H_
#define PLANISH_SRC_NORM_CUDA_ROWS_PLAN_H_

#include <cstdint>

#include "src/base/cuda/launch.h"

// How a norm over rows is laid out on a GPU: a function of the shape, of how the arrays are aligned
// and, for rows that are too long for a block, of the blocks that a cluster may have, so that
// results are the same on every device that has the same of them, and so that it is tested without
// one.
namespace planish::internal::cuda {

// --- Tuning constants (docs/tuning.md) ---

/// Elements of a row that a thread holds in registers, at most. Backward holds x, dy and two sums
/// of each.
constexpr int MaxForwardHeld(int element_bytes) {
  return element_bytes == 2 ? 32 : element_bytes == 4 ? 16 : 8;
}
constexpr int MaxBackwardHeld(int element_bytes) { return element_bytes == 8 ? 8 : 16; }

/// And those that it holds where blocks of a cluster share the row: as many as let two blocks of
/// kClusterThreads have their registers on one multiprocessor, so that one reads while the other
/// writes. Backward holds four numbers for each.
inline constexpr int kClusterThreads = 512;
constexpr int ForwardClusterHeld(int element_bytes) { return element_bytes == 8 ? 8 : 16; }
inline constexpr int kBackwardClusterHeld = 8;

/// Threads that share a row, at most: as many as there are registers for.
constexpr int MaxForwardThreads(int held, bool aligned) {
  return held > 16 ? 512 : held > 8 && !aligned ? 768 : 1024;
}
constexpr int MaxBackwardThreads(int held, int element_bytes) {
  return held > 8 || element_bytes == 8 ? 512 : 1024;
}

/// Threads of a block whose rows are held by one warp or less.
inline constexpr int kLanesThreads = 256;

/// Such blocks of a forward pass that have their registers on one multiprocessor at the same time:
/// as many as leave a thread registers enough, also for the next row where it fetches that ahead.
constexpr int LanesBlocks(int element_bytes, bool aligned) {
  if (element_bytes == 2) return aligned ? 3 : 2;
  return aligned ? 4 : 3;
}

/// Rows that one thread adds up terms of dgain and dbias of, one after the other in the type that
/// is computed with. Their sums are added in double.
inline constexpr int64_t kRowsInTurn = 256;

// --- End of tuning constants ---

/// The bound that gives a thread its registers: with 32 elements, no more than let 640 threads have
/// theirs on one multiprocessor.
constexpr int BoundOfForwardThreads(int held, bool aligned) {
  return held > 16 ? 640 : MaxForwardThreads(held, aligned);
}

struct RowsPlan {
  /// Whether a row is read again for each pass over it, for it is too long for the registers of a
  /// block, or of the cluster of blocks that `launch` may have.
  bool streamed = false;
  int pack = 1;           ///< elements that are read and written at once, where it is streamed
  bool aligned = false;   ///< rows begin and end at multiples of 16 bytes
  int held = 8;           ///< elements of a row that a thread holds
  int team = 32;          ///< threads that share a row: a power of two up to 32, or whole warps
                          ///< of a block or of a cluster's blocks
  int64_t parts = 1;      ///< blocks that share a row, where it is streamed
  int64_t part_cols = 0;  ///< columns of each, but of the last
  Launch launch;
  /// Of backward with dgain and dbias: partial sums of each column.
  int64_t partials = 0;
  /// Columns' sums of streamed rows: rows of each partial sum.
  int64_t partial_rows = 0;
};

/// What there is to do: with `pack`, the most numbers that all arrays and strides let a thread read
/// at once, and the size of one in bytes.
struct RowsWork {
  int64_t rows = 0, cols = 0;
  int pack = 1;
  int element_bytes = 4;
  bool columns = false;    ///< dgain and dbias are asked for
  int cluster_blocks = 1;  ///< the most of a cluster: a power of two; 1: there are none
};

RowsPlan PlanForward(const RowsWork& work);
RowsPlan PlanBackward(const RowsWork& work);

/// Bytes of workspace of a plan, whose sums are of `compute_bytes`.
int64_t ForwardWorkspaceBytes(const RowsWork& work, const RowsPlan& plan);
int64_t BackwardWorkspaceBytes(const RowsWork& work, const RowsPlan& plan, int compute_bytes);

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_NORM_CUDA_ROWS_PLAN_H_
