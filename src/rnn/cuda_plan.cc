#include "src/rnn/cuda_plan.h"

#include <algorithm>
#include <cstdint>

#include "src/base/cuda_launch.h"

namespace planish::internal::cuda {
namespace {

int64_t Parts(int64_t n, int64_t size) { return (n + size - 1) / size; }
int64_t RoundUp(int64_t n, int64_t to) { return Parts(n, to) * to; }

}  // namespace

OnChipPlan PlanOnChip(const CellRecipe& recipe, const RnnShape& shape, int element_bytes,
                      int64_t blocks, int64_t shared_bytes) {
  const int64_t batch = shape.batch, hidden = shape.hidden, gates = recipe.gates();
  // A step by itself would read the weights once either way.
  if (blocks < 1 || shape.time < 2 || batch < 1 || batch > kMostOnChipBatch) return {};
  // A bound that keeps what follows from overflow.
  if (hidden > blocks * shared_bytes) return {};
  const int64_t pack = 16 / element_bytes;
  OnChipPlan plan;
  plan.units = Parts(hidden, blocks);
  plan.blocks = Parts(hidden, plan.units);
  plan.stride = RoundUp(hidden, pack);
  plan.rows = RoundUp(plan.units * gates, kOnChipRows);
  plan.weights = plan.rows * plan.stride;
  plan.sums = RoundUp(batch * plan.rows, pack);
  plan.cells = recipe.is_lstm() ? RoundUp(batch * plan.units, pack) : 0;
  plan.maps = RoundUp(batch * (recipe.norms() + 1) * 3, pack);
  plan.shared_bytes = (plan.weights + plan.sums + 2 * plan.cells + plan.maps) * element_bytes;
  if (plan.shared_bytes > shared_bytes) return {};
  const int64_t groups = plan.rows / kOnChipRows * Parts(batch, kOnChipSequences);
  constexpr int64_t kLeastWarps = 4, kMostWarps = kMostOnChipThreads / kWarpThreads;
  plan.threads = static_cast<int>(std::clamp(groups, kLeastWarps, kMostWarps)) * kWarpThreads;
  plan.sum_parts = kOnChipPart * batch * recipe.norms() * plan.blocks;
  plan.cell_parts = recipe.cell != CellNorm::kNone ? kOnChipPart * batch * plan.blocks : 0;
  plan.fits = true;
  return plan;
}

}  // namespace planish::internal::cuda
