#include "src/rnn/cuda/plan.h"

#include <algorithm>
#include <cstdint>

#include "src/base/cuda/launch.h"

namespace planish::internal::cuda {
namespace {

// --- Tuning constants (docs/tuning.md) ---

// Minimum warps of a block.
constexpr int64_t kMinWarps = 4;

// --- End of tuning constants ---

int64_t RoundUp(int64_t n, int64_t to) { return CeilDiv(n, to) * to; }

// Returns the slices of a layer of at most `max_batch` sequences; units is 0 if there is no plan.
// The caller checks that they fit into shared memory.
PersistentSlices Slice(const CellRecipe& recipe, const RnnShape& shape, int64_t max_batch,
                       int64_t pack, int64_t blocks, int64_t shared_bytes) {
  PersistentSlices slices;
  // A single step reads the weights only once in any case.
  if (blocks < 1 || shape.time < 2 || shape.batch < 1 || shape.batch > max_batch) return slices;
  if (shape.projected > 0) return slices;  // the kernels hold only weight_hh
  // Prevents overflow below.
  if (shape.hidden > blocks * shared_bytes) return slices;
  slices.units = CeilDiv(shape.hidden, blocks);
  slices.blocks = CeilDiv(shape.hidden, slices.units);
  slices.stride = RoundUp(shape.hidden, pack);
  slices.rows = RoundUp(slices.units * recipe.gates(), kPersistentRows);
  slices.weights = slices.rows * slices.stride;
  return slices;
}

// Returns the number of threads of `warps` warps, clamped to the limits.
int ThreadsOf(int64_t warps) {
  constexpr int64_t kMaxWarps = kMaxPersistentThreads / kWarpThreads;
  return static_cast<int>(std::clamp(warps, kMinWarps, kMaxWarps)) * kWarpThreads;
}

}  // namespace

PersistentPlan PlanPersistent(const CellRecipe& recipe, const RnnShape& shape, int element_bytes,
                              int64_t blocks, int64_t shared_bytes) {
  const int64_t batch = shape.batch, pack = 16 / element_bytes;
  PersistentPlan plan{Slice(recipe, shape, kMaxPersistentBatch, pack, blocks, shared_bytes)};
  if (plan.units == 0) return {};
  plan.sums = RoundUp(batch * plan.rows, pack);
  plan.cells = recipe.is_lstm() ? RoundUp(batch * plan.units, pack) : 0;
  plan.norm_coefficients = RoundUp(batch * (recipe.norms() + 1) * 3, pack);
  plan.params = RoundUp((recipe.gates() + 1) * kPersistentParams * plan.units, pack);
  plan.inputs = RoundUp(batch * plan.rows, pack);
  plan.input_coefficients =
      recipe.sums == Sums::kSeparate ? RoundUp(batch * recipe.norms() * 3, pack) : 0;
  plan.shared_bytes = (plan.weights + plan.sums + 2 * plan.cells + plan.norm_coefficients +
                       plan.params + 2 * (plan.inputs + plan.input_coefficients)) *
                      element_bytes;
  if (plan.shared_bytes > shared_bytes) return {};
  plan.threads = ThreadsOf(plan.rows / kPersistentRows * CeilDiv(batch, kPersistentSequences));
  plan.sum_parts = kPersistentPart * batch * recipe.norms() * plan.blocks;
  plan.cell_parts = recipe.cell != CellNorm::kNone ? kPersistentPart * batch * plan.blocks : 0;
  plan.fits = true;
  return plan;
}

PersistentBackwardPlan PlanPersistentBackward(const CellRecipe& recipe, const RnnShape& shape,
                                              int element_bytes, int64_t blocks,
                                              int64_t shared_bytes) {
  const int64_t batch = shape.batch, pack = 16 / element_bytes;
  const bool cell_norm = recipe.cell != CellNorm::kNone;
  PersistentBackwardPlan plan{
      Slice(recipe, shape, kMaxPersistentBackwardBatch, pack, blocks, shared_bytes)};
  if (plan.units == 0) return {};
  plan.lanes = RoundUp(batch, kPersistentSequences);
  plan.gradients = plan.rows * plan.lanes;
  plan.sums = recipe.norms() > 0 ? RoundUp(batch * plan.rows, pack) : 0;
  plan.states = RoundUp(batch * plan.units, pack);
  plan.state_arrays = cell_norm ? 5 : 1 + recipe.cell_parts();
  plan.means = RoundUp(batch * (recipe.norms() + 1) * 2, pack);
  plan.shared_bytes = (plan.weights + plan.gradients + 2 * plan.sums +
                       plan.state_arrays * plan.states + plan.means) *
                      element_bytes;
  if (plan.shared_bytes > shared_bytes) return {};
  plan.threads =
      ThreadsOf(CeilDiv(plan.stride / pack * (plan.lanes / kPersistentSequences), kWarpThreads));
  plan.sum_parts = 2 * batch * recipe.norms() * plan.blocks;
  plan.cell_parts = cell_norm ? 2 * batch * plan.blocks : 0;
  plan.partials = plan.blocks * batch * plan.stride;
  plan.buffers = recipe.norms() > 0 || cell_norm ? 1 : 2;
  plan.fits = true;
  return plan;
}

}  // namespace planish::internal::cuda
