#ifndef PLANISH_SRC_RNN_CUDA_PLAN_H_
#define PLANISH_SRC_RNN_CUDA_PLAN_H_

#include <cstdint>

#include "src/rnn/cell.h"

// Layout of a layer in a persistent kernel, whose blocks keep weight_hh in shared memory for all
// steps. It depends only on sizes, so it can be tested without a GPU.
namespace planish::internal::cuda {

// --- Tuning constants (docs/tuning.md) ---

/// The rows of weights and the sequences that a warp multiplies at once. Each lane gets one sum.
inline constexpr int kPersistentRows = 4, kPersistentSequences = 8;
/// The largest block that has enough registers per thread.
inline constexpr int kMaxPersistentThreads = 384;
/// The largest batch. For more sequences, matrix products on tensor cores are faster than reading
/// all states in every block.
inline constexpr int64_t kMaxPersistentBatch = 64;

/// The largest batch backward, where every block sends a partial sum of all states' gradients to
/// every other block through memory.
inline constexpr int64_t kMaxPersistentBackwardBatch = 32;

/// Lanes that compute a block's partial statistics of a norm, and lanes that combine those of all
/// blocks. A block has enough threads for all of its norms at once, because latency dominates.
inline constexpr int kPartLanes = 8, kJoinLanes = 16;

/// The loads that a lane issues before it uses the first, when it sums distant elements in the L2
/// cache.
inline constexpr int kReadsAtOnce = 8;

// --- End of tuning constants ---

/// The parameters of a gate (two gains and a bias), and of a unit (a gain and two biases).
inline constexpr int kPersistentParams = 3;
/// The elements of a block's partial statistics of a norm.
inline constexpr int kPersistentPart = 3;

/// The slices of a layer in the blocks. Sizes are in elements. Each array in shared memory is
/// aligned to 16 bytes.
struct PersistentSlices {
  bool fits = false;    ///< if false, all other members are 0
  int64_t units = 0;    ///< units of a block, with all their gates; the last block can have fewer
  int64_t blocks = 0;   ///< number of blocks with units
  int threads = 0;      ///< threads of a block
  int64_t stride = 0;   ///< distance between rows of weights, and between states
  int64_t rows = 0;     ///< rows of weights, rounded up to a multiple of kPersistentRows
  int64_t weights = 0;  ///< [rows, stride]
  int64_t shared_bytes = 0;
};

struct PersistentPlan : PersistentSlices {
  int64_t sums = 0;               ///< [B, rows] results of the matrix product
  int64_t cells = 0;              ///< [B, units] c; the same size for o, or an sLSTM's log(n)
  int64_t norm_coefficients = 0;  ///< [B, norms + 1] coefficients of kNormCoefficients elements
  int64_t params = 0;             ///< parameters of the block's gates and units
  int64_t inputs = 0;             ///< [B, rows] zx, two buffers: of this step and of the next one
  int64_t input_coefficients =
      0;  ///< [B, norms] coefficients of zx, two buffers, if zx has its own norm
  /// Doubles through which blocks exchange partial statistics: [B, norms, blocks, kPersistentPart]
  /// for the sums, [B, blocks, kPersistentPart] for c.
  int64_t sum_parts = 0, cell_parts = 0;
};

struct PersistentBackwardPlan : PersistentSlices {
  int64_t lanes = 0;      ///< B rounded up to a multiple of kPersistentSequences
  int64_t gradients = 0;  ///< [rows, lanes] the gradient of zh
  int64_t sums = 0;       ///< [B, rows] g of the norms; the same size for xhat
  int64_t states = 0;     ///< [B, units], `state_arrays` times
  /// dh and dc, in an sLSTM of c and log(n); with a norm of c also the gradients of o and c, and
  /// xhat
  int state_arrays = 0;
  int64_t means = 0;  ///< [B, norms + 1] pairs of means
  /// Doubles through which blocks exchange partial sums of the norms: [B, norms, blocks, 2] for the
  /// sums, [B, blocks, 2] for c.
  int64_t sum_parts = 0, cell_parts = 0;
  /// Each block's partial sum of the states' gradient, [blocks, B, stride], `buffers` times. Two
  /// are needed if no grid barrier separates reading one from writing the next.
  int64_t partials = 0;
  int buffers = 0;
};

/// Returns a plan with at most `blocks` blocks of `shared_bytes` shared memory.
PersistentPlan PlanPersistent(const CellRecipe& recipe, const RnnShape& shape, int element_bytes,
                              int64_t blocks, int64_t shared_bytes);
PersistentBackwardPlan PlanPersistentBackward(const CellRecipe& recipe, const RnnShape& shape,
                                              int element_bytes, int64_t blocks,
                                              int64_t shared_bytes);

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_RNN_CUDA_PLAN_H_
