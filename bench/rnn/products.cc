#include <algorithm>
#include <cstdint>
#include <memory>

#include "bench/rnn/contestants.h"
#include "lab/bench/threads.h"
#include "src/base/aligned.h"
#include "src/base/simd/gemm.h"
#include "src/base/tuning.h"
#include "src/rnn/cell.h"

namespace planish::bench::rnn {

namespace {

using internal::AlignedArray;
using internal::GemmArgs;
using internal::MakeAligned;
using internal::PackedMatrix;

// Workspace of the GEMMs: packed weights, the gates or their gradients, and constant states, which
// all steps multiply.
struct Workspace {
  PackedMatrix<float> ih, hh, ih_transposed, hh_transposed;
  PackedMatrix<float> scratch;  // of MultiplyTransposed
  AlignedArray<float> gates;    // [T * B, G]
  AlignedArray<float> states;   // [B, H]
  ParallelFor parallel_for = TorchThreads();
};

// Computes `steps` consecutive GEMMs. With enough rows, each thread has its own rows, which need no
// other rows. With few rows, or weights too large for one thread's cache, each thread has some
// columns, and threads synchronize after every step.
void Recur(const GemmArgs<float>& step, int64_t steps, const PackedMatrix<float>& packed,
           const ParallelFor& parallel_for) {
  constexpr int64_t kRowsAGrain = 4;
  if (step.rows < 2 * kRowsAGrain ||
      packed.matrix_bytes() > internal::CurrentTuning().own_weight_bytes) {
    for (int64_t t = 0; t < steps; ++t) internal::MultiplyAll(step, packed, parallel_for);
    return;
  }
  parallel_for(0, step.rows, kRowsAGrain, [&](int64_t begin, int64_t end) {
    GemmArgs<float> rows = step;
    rows.rows = end - begin;
    rows.a += begin * step.a_stride;
    rows.c += begin * step.c_stride;
    for (int64_t t = 0; t < steps; ++t) internal::Multiply(rows, packed, 0, packed.panels());
  });
}

}  // namespace

Contestant MakeProducts(Cell cell, const Case& c, const Arrays& arrays) {
  const RnnShape s = c.shape;
  const int64_t columns = internal::RecipeOf(cell).gates() * s.hidden;
  const int64_t rows = s.time * s.batch;
  const auto workspace = std::make_shared<Workspace>();
  workspace->ih.Pack(
      {.data = arrays.all.weight_ih, .n = columns, .k = s.inputs, .stride = s.inputs},
      workspace->parallel_for);
  workspace->hh.Pack(
      {.data = arrays.all.weight_hh, .n = columns, .k = s.hidden, .stride = s.hidden},
      workspace->parallel_for);
  workspace->gates = MakeAligned<float>(rows * columns);
  workspace->states = MakeAligned<float>(s.batch * s.hidden);
  std::fill_n(workspace->states.get(), s.batch * s.hidden, 0.5f);
  const auto forward = [=] {
    internal::MultiplyAll<float>({.rows = rows,
                                  .a = arrays.x,
                                  .a_stride = s.inputs,
                                  .c = workspace->gates.get(),
                                  .c_stride = columns},
                                 workspace->ih, workspace->parallel_for);
    Recur({.rows = s.batch,
           .a = workspace->states.get(),
           .a_stride = s.hidden,
           .c = workspace->gates.get(),
           .c_stride = columns},
          s.time, workspace->hh, workspace->parallel_for);
  };
  if (c.mode != Mode::kTraining) return {.call = forward};
  workspace->ih_transposed.Pack({.data = arrays.all.weight_ih,
                                 .n = s.inputs,
                                 .k = columns,
                                 .stride = s.inputs,
                                 .transposed = true},
                                workspace->parallel_for);
  workspace->hh_transposed.Pack({.data = arrays.all.weight_hh,
                                 .n = s.hidden,
                                 .k = columns,
                                 .stride = s.hidden,
                                 .transposed = true},
                                workspace->parallel_for);
  return {.call = [=] {
    forward();
    Recur({.rows = s.batch,
           .a = workspace->gates.get(),
           .a_stride = columns,
           .c = workspace->states.get(),
           .c_stride = s.hidden},
          s.time, workspace->hh_transposed, workspace->parallel_for);
    std::fill_n(workspace->states.get(), s.batch * s.hidden, 0.5f);
    internal::MultiplyAll<float>({.rows = rows,
                                  .a = workspace->gates.get(),
                                  .a_stride = columns,
                                  .c = arrays.dx,
                                  .c_stride = s.inputs},
                                 workspace->ih_transposed, workspace->parallel_for);
    const auto gradient = [&](const float* b, int64_t k, float* dweight) {
      internal::MultiplyTransposed<float>({.m = rows,
                                           .n = columns,
                                           .k = k,
                                           .a = workspace->gates.get(),
                                           .a_stride = columns,
                                           .b = b,
                                           .b_stride = k,
                                           .c = dweight,
                                           .c_stride = k},
                                          workspace->scratch, workspace->parallel_for);
    };
    gradient(arrays.x, s.inputs, arrays.dall.weight_ih);
    gradient(arrays.dy, s.hidden,
             arrays.dall.weight_hh);  // dy replaces the states
  }};
}

}  // namespace planish::bench::rnn
