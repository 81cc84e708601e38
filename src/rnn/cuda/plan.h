#ifndef PLANISH_SRC_RNN_CUDA_PLAN_H_
#define PLANISH_SRC_RNN_CUDA_PLAN_H_

#include <cstdint>

#include "src/rnn/cell.h"

// How a layer is laid out on the chip of a GPU, whose blocks keep the weights of the state for all
// steps: a function of numbers alone, so that it is tested without one.
namespace planish::internal::cuda {

/// A warp multiplies so many rows of weights by the states of so many sequences at once: its lanes
/// then have a sum each.
inline constexpr int kPersistentRows = 4, kPersistentSequences = 8;
/// As many as have the registers for it.
inline constexpr int kMaxPersistentThreads = 384;
/// Parameters of a gate: two gains and a bias; and of a unit: a gain and two biases.
inline constexpr int kPersistentParams = 3;
/// Numbers of which a block's part of a norm is made.
inline constexpr int kPersistentPart = 3;
/// Sequences at most: of more, products of matrices by tensor cores take less time than reading all
/// states in every block.
inline constexpr int64_t kMaxPersistentBatch = 64;

/// And backward, which puts a part of the gradient of all states from every block to every other
/// one through memory.
inline constexpr int64_t kMaxPersistentBackwardBatch = 32;

/// What the blocks have of a layer. Here and below sizes are in numbers; each array of shared
/// memory begins at a multiple of 16 bytes.
struct PersistentSlices {
  bool fits = false;    ///< else all else is 0
  int64_t units = 0;    ///< of a block, with all their gates; the last may have fewer
  int64_t blocks = 0;   ///< as many as have a unit
  int threads = 0;      ///< of a block
  int64_t stride = 0;   ///< from one row of weights, or one state, to the next
  int64_t rows = 0;     ///< rows of weights, with those that fill up a group of kPersistentRows
  int64_t weights = 0;  ///< [rows, stride]
  int64_t shared_bytes = 0;
};

struct PersistentPlan : PersistentSlices {
  int64_t sums = 0;        ///< [B, rows] of the product
  int64_t cells = 0;       ///< [B, units] c, and as much for o
  int64_t maps = 0;        ///< [B, norms + 1] of three numbers
  int64_t params = 0;      ///< of the block's gates, and of its units
  int64_t inputs = 0;      ///< [B, rows] of zx, twice: of a step and of the next one
  int64_t input_maps = 0;  ///< [B, norms] of three numbers, twice, where zx has a norm of its own
  /// Numbers of type double of the memory in which blocks tell each other their part of the norms
  /// of the sums, [B, norms, blocks, kPersistentPart], and of that of c, [B, blocks,
  /// kPersistentPart].
  int64_t sum_parts = 0, cell_parts = 0;
};

struct PersistentBackwardPlan : PersistentSlices {
  int64_t lanes = 0;      ///< B rounded up to a group of kPersistentSequences
  int64_t gradients = 0;  ///< [rows, lanes] of zh
  int64_t sums = 0;       ///< [B, rows] of the norms' numbers, and as much for xhat
  int64_t states = 0;     ///< [B, units], `state_arrays` times
  int state_arrays = 0;   ///< dh, dc, and of a norm of c the gradients of o and c, and xhat
  int64_t means = 0;      ///< [B, norms + 1] of two numbers
  /// Numbers of type double in which blocks tell each other their part of the norms' sums,
  /// [B, norms, blocks, 2] and [B, blocks, 2].
  int64_t sum_parts = 0, cell_parts = 0;
  /// Each block's part of the gradient of the state, [blocks, B, stride], `buffers` times: two
  /// where no other meeting lies between reading one and writing the next.
  int64_t partials = 0;
  int buffers = 0;
};

/// With `blocks` blocks at most, of `shared_bytes`.
PersistentPlan PlanPersistent(const CellRecipe& recipe, const RnnShape& shape, int element_bytes,
                              int64_t blocks, int64_t shared_bytes);
PersistentBackwardPlan PlanPersistentBackward(const CellRecipe& recipe, const RnnShape& shape,
                                              int element_bytes, int64_t blocks,
                                              int64_t shared_bytes);

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_RNN_CUDA_PLAN_H_
