#include "src/norm/cpu.h"

#include <algorithm>
#include <cstdint>
#include <memory>

#include "src/base/loop.h"
#include "src/norm/recipe.h"
#include "src/norm/rows-inl.h"

namespace planish::internal {
namespace {

// The rows cut into blocks, each with its own partial sums of dgain and dbias. Everything here
// follows from the shape, so that the bits of the sums do too.
struct Blocks {
  Blocks(int64_t rows, int64_t cols) {
    // At most 64 blocks, for they cost memory, and none with less than 2^13 elements, for they
    // cost a pass over the columns.
    const int64_t least = std::max(rows / 64, (int64_t{1} << 13) / cols);
    block_rows = kGroupRows * (least / kGroupRows + 1);
    count = (rows + block_rows - 1) / block_rows;
  }
  int64_t block_rows;
  int64_t count;
};

}  // namespace

template <class T>
void NormForwardCpu(Norm norm, const NormForwardArgs<T>& args, const NormOptions& options) {
  Visit(norm, [&]<Recipe kRecipe>() {
    RunParallel(
        options.parallel_for, args.rows, GrainFor(args.cols),
        [&](int64_t begin, int64_t end) { ForwardRows<kRecipe>(args, options.eps, begin, end); });
  });
}

template <class T>
void NormBackwardCpu(Norm norm, const NormBackwardArgs<T>& args, const NormOptions& options) {
  const int64_t rows = args.rows, cols = args.cols;
  Visit(norm, [&]<Recipe kRecipe>() {
    if (args.dgain == nullptr && args.dbias == nullptr) {
      RunParallel(options.parallel_for, rows, GrainFor(cols), [&](int64_t begin, int64_t end) {
        BackwardRows<kRecipe, T>(args, begin, end, nullptr, nullptr);
      });
      return;
    }
    const Blocks blocks(rows, cols);
    // A block sums groups of rows in T, and the groups in double.
    const auto groups = std::make_unique_for_overwrite<T[]>(blocks.count * 2 * cols);
    const auto totals = std::make_unique_for_overwrite<double[]>(blocks.count * 2 * cols);
    RunParallel(options.parallel_for, blocks.count, GrainFor(blocks.block_rows * cols),
                [&](int64_t first_block, int64_t last_block) {
                  for (int64_t b = first_block; b < last_block; ++b) {
                    T* group = groups.get() + b * 2 * cols;
                    double* total = totals.get() + b * 2 * cols;
                    std::fill_n(total, 2 * cols, 0.0);
                    const int64_t end = std::min(rows, (b + 1) * blocks.block_rows);
                    for (int64_t r = b * blocks.block_rows; r < end; r += kGroupRows) {
                      std::fill_n(group, 2 * cols, T{0});
                      BackwardRows<kRecipe>(args, r, std::min(end, r + kGroupRows), group,
                                            group + cols);
                      for (int64_t c = 0; c < 2 * cols; ++c) total[c] += double{group[c]};
                    }
                  }
                });
    const auto reduce = [&](const double* partials, T* result) {
      if (result == nullptr) return;
      RunParallel(options.parallel_for, cols, GrainFor(blocks.count),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t c = begin; c < end; ++c) {
                      double sum = 0;
                      for (int64_t b = 0; b < blocks.count; ++b) sum += partials[b * 2 * cols + c];
                      result[c] = static_cast<T>(sum);
                    }
                  });
    };
    reduce(totals.get(), args.dgain);
    reduce(totals.get() + cols, args.dbias);
  });
}

template void NormForwardCpu(Norm, const NormForwardArgs<float>&, const NormOptions&);
template void NormForwardCpu(Norm, const NormForwardArgs<double>&, const NormOptions&);
template void NormBackwardCpu(Norm, const NormBackwardArgs<float>&, const NormOptions&);
template void NormBackwardCpu(Norm, const NormBackwardArgs<double>&, const NormOptions&);

}  // namespace planish::internal
