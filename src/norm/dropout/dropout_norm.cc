#include "planish/dropout_norm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "src/base/aligned.h"
#include "src/base/loop.h"
#include "src/norm/check.h"
#include "src/norm/dropout/kernels.h"
#include "src/norm/element_types.h"
#include "src/norm/params.h"
#include "src/norm/recipe.h"

// Dropout and the norm process the same few rows one after the other, while they are in a cache.
namespace planish {
namespace internal {

DropoutMask::DropoutMask(const Dropout& dropout)
    : keep(static_cast<uint32_t>(std::lround((1 - dropout.p) * 65536))),
      key{static_cast<uint32_t>(dropout.seed), static_cast<uint32_t>(dropout.seed >> 32)},
      stream(dropout.stream) {}

template <class T>
void DropoutRows(const T* x, int64_t first, int64_t last, int64_t cols, const DropoutMask& mask,
                 const ParallelFor& parallel_for, T* out) {
  RunParallel(parallel_for, last - first, GrainFor(2 * cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = first + begin; r < first + end; ++r) {
      DropoutRow<T>(x + r * cols, nullptr, cols, mask, r, out + r * cols);
    }
  });
}

}  // namespace internal

inline namespace PLANISH_API {
namespace {

using internal::DropoutMask;
using internal::Recipe;

// --- Tuning constants (docs/tuning.md) ---

// Bytes of a matrix's rows that one thread processes together: they stay in the L2 cache.
constexpr int64_t kBlockBytes = int64_t{1} << 15;
// Like kBlockBytes for backward, whose rows are divided among all threads.
constexpr int64_t kBackwardBytes = int64_t{1} << 20;

// --- End of tuning constants ---

template <class T>
int64_t RowsOf(int64_t bytes, int64_t cols) {
  return std::max<int64_t>(1, bytes / static_cast<int64_t>(sizeof(T)) / std::max<int64_t>(1, cols));
}

/// Checks a call.
template <template <class, class> class Args, class T, class P>
void Check(const char* function, Norm norm, const Args<T, P>& args, const Dropout& dropout,
           const NormOptions& options) {
  const Recipe recipe = internal::RecipeOf(norm);
  if (!(dropout.p >= 0 && dropout.p <= 1)) {
    internal::Fail(function, "p", "be in [0, 1]", internal::Text(dropout.p));
  }
  internal::CheckShape<T>(function, args.rows, args.cols);
  internal::CheckOptions(function, recipe, options, "cols", args.cols, args.rows);
  internal::CheckArrays(function, args, recipe);
}

NormOptions Serial(const NormOptions& options) {
  NormOptions serial = options;
  serial.parallel_for = SerialFor;
  return serial;
}

template <class E>
E* At(E* array, int64_t i) {
  return array ? array + i : nullptr;
}

}  // namespace

template <class T, class P>
void DropoutNormForward(Norm norm, const DropoutNormForwardArgs<T, P>& args, const Dropout& dropout,
                        const NormOptions& options) {
  Check("DropoutNormForward", norm, args, dropout, options);
  const DropoutMask mask(dropout);
  const NormOptions serial = Serial(options);
  const int64_t rows = RowsOf<T>(kBlockBytes, args.cols), blocks = (args.rows + rows - 1) / rows;
  internal::RunParallelAllocating(
      options.parallel_for, blocks, std::max<int64_t>(1, internal::GrainFor(2 * rows * args.cols)),
      [&](int64_t begin, int64_t end) {
        for (int64_t block = begin; block < end; ++block) {
          const int64_t first = block * rows, last = std::min(args.rows, first + rows);
          const int64_t at = first * args.cols;
          for (int64_t r = first; r < last; ++r) {
            const int64_t i = r * args.cols;
            internal::DropoutRow(At(args.x, i), At(args.residual, i), args.cols, mask, r,
                                 At(args.sum, i));
          }
          NormForward<T, P>(norm,
                            {.rows = last - first,
                             .cols = args.cols,
                             .x = At(args.sum, at),
                             .gain = args.gain,
                             .bias = args.bias,
                             .y = At(args.y, at),
                             .mean = At(args.mean, first),
                             .mean_lo = At(args.mean_lo, first),
                             .rstd = At(args.rstd, first)},
                            serial);
        }
      });
}

template <class T, class P>
void DropoutNormBackward(Norm norm, const DropoutNormBackwardArgs<T, P>& args,
                         const Dropout& dropout, const NormOptions& options) {
  using C = Compute<T>;
  Check("DropoutNormBackward", norm, args, dropout, options);
  const DropoutMask mask(dropout);
  const int64_t cols = args.cols;
  const bool columns = args.dgain || args.dbias;
  // The gain and its gradients in the type of the arithmetic, and the sums over rows.
  std::vector<C> gain(args.gain ? cols : 0), dgain(columns ? cols : 0), dbias(columns ? cols : 0);
  std::vector<double> gain_sums(dgain.size()), bias_sums(dbias.size());
  for (size_t c = 0; c < gain.size(); ++c) gain[c] = internal::ToCompute<C>(args.gain[c]);
  T* const gradient = args.dresidual ? args.dresidual : args.dx;
  const int64_t rows = RowsOf<T>(kBackwardBytes, cols);
  for (int64_t first = 0; first < args.rows; first += rows) {
    const int64_t last = std::min(args.rows, first + rows), at = first * cols;
    NormBackward<T, C>(norm,
                       {.rows = last - first,
                        .cols = cols,
                        .dy = At(args.dy, at),
                        .x = At(args.sum, at),
                        .gain = args.gain ? gain.data() : nullptr,
                        .mean = At(args.mean, first),
                        .mean_lo = At(args.mean_lo, first),
                        .rstd = At(args.rstd, first),
                        .dx = At(gradient, at),
                        .dgain = columns ? dgain.data() : nullptr,
                        .dbias = columns ? dbias.data() : nullptr,
                        .dsum = At(args.dsum, at)},
                       options);
    for (size_t c = 0; c < dgain.size(); ++c) {
      gain_sums[c] += static_cast<double>(dgain[c]);
      bias_sums[c] += static_cast<double>(dbias[c]);
    }
    if (args.dx == nullptr) continue;
    internal::DropoutRows<T>(gradient, first, last, cols, mask, options.parallel_for, args.dx);
  }
  for (size_t c = 0; c < dgain.size(); ++c) {
    const C of_gain = internal::Plain(static_cast<C>(gain_sums[c]));
    const C of_bias = internal::Plain(static_cast<C>(bias_sums[c]));
    if (args.dgain) args.dgain[c] = internal::FromCompute<P>(of_gain);
    if (args.dbias) args.dbias[c] = internal::FromCompute<P>(of_bias);
  }
}

#define PLANISH_INSTANTIATE(T, P)                                                               \
  template void DropoutNormForward(Norm, const DropoutNormForwardArgs<T, P>&, const Dropout&,   \
                                   const NormOptions&);                                         \
  template void DropoutNormBackward(Norm, const DropoutNormBackwardArgs<T, P>&, const Dropout&, \
                                    const NormOptions&);
PLANISH_NORM_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace PLANISH_API

#define PLANISH_INSTANTIATE(T)                                                                 \
  template void internal::DropoutRows(const T*, int64_t, int64_t, int64_t, const DropoutMask&, \
                                      const ParallelFor&, T*);
PLANISH_ELEMENT_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace planish
