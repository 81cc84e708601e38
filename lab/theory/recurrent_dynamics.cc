#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/matmul.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "lab/theory/recurrent_stability.h"
#include "src/rnn/cell.h"

namespace planish::lab {
namespace {

// Scaled, so that squares neither overflow nor underflow.
double SizeOf(std::span<const double> values) {
  double largest = 0, squares = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  if (largest == 0) largest = 1;  // zeros, or NaN
  for (const double value : values) squares += (value / largest) * (value / largest);
  return largest * std::sqrt(squares / static_cast<double>(values.size()));
}

// Returns a matrix [rows, cols] that must not be written to.
at::Tensor Matrix(const double* data, int64_t rows, int64_t cols) {
  return at::from_blob(const_cast<double*>(data), {rows, cols}, at::kDouble);
}

// A step is too small for several threads.
void RunSerially(int64_t begin, int64_t end, int64_t /*grain*/, RangeTask task) {
  task(begin, end);
}

}  // namespace

Dynamics MeasureDynamics(const DynamicsArgs& args) {
  const at::NoGradGuard no_grad;
  const auto steps = static_cast<size_t>(args.shape.time);
  const auto batch = static_cast<size_t>(args.shape.batch);
  const auto inputs = static_cast<size_t>(args.shape.inputs);
  const auto hidden = static_cast<size_t>(args.shape.hidden);
  const internal::CellRecipe recipe = internal::RecipeOf(args.cell);
  const size_t sums_size = static_cast<size_t>(recipe.gates()) * hidden, state = batch * hidden;
  const size_t cell_state = static_cast<size_t>(recipe.cell_parts()) * state;
  RnnShape step_shape = args.shape;
  step_shape.time = 1;
  const auto saved_size = static_cast<size_t>(RnnSavedSize<double>(args.cell, step_shape));
  const RnnOptions<double> options{
      .eps = args.eps,
      .parallel_for = RunSerially,
      .packed = RnnPackedParams<double>(args.cell, args.shape.inputs, args.shape.hidden,
                                        args.params, RunSerially, true)};
  const at::Tensor w_ih = Matrix(args.params.weight_ih, sums_size, inputs).t();
  const at::Tensor w_hh = Matrix(args.params.weight_hh, sums_size, hidden).t();

  Dynamics dynamics;
  dynamics.h.resize(steps * state);
  std::vector<double> c(steps * cell_state), saved(steps * saved_size);
  // The layer's step t, from the states after step t - 1.
  const auto step_inputs = [&](size_t t) {
    RnnInputs<double> step{.shape = step_shape, .x = args.x + t * batch * inputs};
    if (t > 0) {
      step.h0 = dynamics.h.data() + (t - 1) * state;
      if (cell_state > 0) step.c0 = c.data() + (t - 1) * cell_state;
    }
    return step;
  };
  for (size_t t = 0; t < steps; ++t) {
    const RnnInputs<double> step = step_inputs(t);
    at::Tensor sums = at::matmul(Matrix(step.x, batch, inputs), w_ih);
    if (t > 0) sums.addmm_(Matrix(step.h0, batch, hidden), w_hh);
    dynamics.summed_size.push_back(
        SizeOf({sums.const_data_ptr<double>(), static_cast<size_t>(sums.numel())}));
    RnnForward<double>(args.cell,
                       {.inputs = step,
                        .y = dynamics.h.data() + t * state,
                        .c_n = cell_state > 0 ? c.data() + t * cell_state : nullptr,
                        .saved = saved_size > 0 ? saved.data() + t * saved_size : nullptr},
                       options);
  }

  if (args.dh_n == nullptr) return dynamics;
  dynamics.dh.resize(steps * state);
  dynamics.dx_n.resize(batch * inputs);
  std::copy(args.dh_n, args.dh_n + state, dynamics.dh.end() - static_cast<ptrdiff_t>(state));
  std::vector<double> dc_n(cell_state), dc_0(cell_state);
  for (size_t t = steps; t-- > 0;) {
    const bool first = t == 0, last = t + 1 == steps;
    RnnBackward<double>(args.cell,
                        {.inputs = step_inputs(t),
                         .y = dynamics.h.data() + t * state,
                         .saved = saved_size > 0 ? saved.data() + t * saved_size : nullptr,
                         .dh_n = dynamics.dh.data() + t * state,
                         .dc_n = cell_state > 0 ? dc_n.data() : nullptr,
                         .dx = last ? dynamics.dx_n.data() : nullptr,
                         .dh0 = first ? nullptr : dynamics.dh.data() + (t - 1) * state,
                         .dc0 = cell_state > 0 && !first ? dc_0.data() : nullptr},
                        options);
    std::swap(dc_n, dc_0);
  }
  for (size_t t = 0; t < steps; ++t) {
    dynamics.gradient_size.push_back(SizeOf({dynamics.dh.data() + t * state, state}));
  }
  return dynamics;
}

}  // namespace planish::lab
