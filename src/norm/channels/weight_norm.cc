#include "planish/weight_norm.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "src/norm/channels/columns_cpu.h"
#include "src/norm/channels/weight_norm_kernels.h"
#include "src/norm/check.h"
#include "src/norm/element_types.h"
#include "src/norm/params.h"

// A row of weights is a channel of one sample, and v / ||v|| is its xhat with mean 0.
namespace planish {
inline namespace PLANISH_API {
namespace {

using internal::ArraysOf;
using internal::ChannelMap;
using internal::ChannelPass;
using internal::ChannelRange;
using internal::ChannelSums;
using internal::Statistics;

template <class T, class P>
double LengthOf(const P* g, int64_t r) {
  return static_cast<double>(internal::ToCompute<Compute<T>>(g[r]));
}

template <class T>
int64_t Bytes(int64_t n) {
  return n * static_cast<int64_t>(sizeof(T));
}

}  // namespace

template <class T, class P>
void WeightNormForward(const WeightNormForwardArgs<T, P>& args, const ParallelFor& parallel_for) {
  constexpr const char* kFunction = "WeightNormForward";
  using C = Compute<T>;
  const int64_t rows = args.rows, cols = args.cols;
  internal::CheckWeightNorm(kFunction, args);
  if (rows == 0 || cols == 0) {
    internal::FillEach({args.norm}, rows, C{0});
    return;
  }
  if (cols < internal::kNarrowWeights) {
    const internal::Params<T, P> lengths(args.g, /*rows=*/0, rows, 1, true);
    auto call = std::bit_cast<WeightNormForwardArgs<T, C>>(args);
    call.g = lengths.data();
    internal::RunParallel(
        parallel_for, rows, internal::GrainFor(cols), [&](int64_t begin, int64_t end) {
          internal::NormalizeWeights<T>(
              call, begin, end,
              internal::UsesNtStores(2 * Bytes<T>(rows * cols), end - begin, rows));
        });
    return;
  }
  ChannelPass<T> pass{ArraysOf(args), ChannelSums::kStatistics, ChannelMap::kScale};
  pass.before = [](const ChannelRange<C>& range) { std::fill_n(range.before[0], range.n, C{0}); };
  const double reciprocal = 1 / static_cast<double>(cols);
  pass.after = [&](const ChannelRange<C>& range) {
    for (int64_t i = 0; i < range.n; ++i) {
      const int64_t r = range.begin + i;
      const Statistics m = internal::StatisticsOf<C>(0, {0, range.second[i]}, reciprocal, 0, [&] {
        return internal::TwoPassStatistics(args.v + r * cols, cols, false);
      });
      double length = std::sqrt(m.var * static_cast<double>(cols)) / m.scale;
      // An overflowed sum gives NaN, not a large norm.
      if (!(length <= std::numeric_limits<double>::max())) {
        length = std::numeric_limits<double>::quiet_NaN();
      }
      if (args.norm) args.norm[r] = static_cast<C>(length);
      range.parameters[0][i] = static_cast<C>(LengthOf<T>(args.g, r) / length);
    }
  };
  internal::RunChannels(pass, parallel_for);
}

template <class T, class P>
void WeightNormBackward(const WeightNormBackwardArgs<T, P>& args, const ParallelFor& parallel_for) {
  constexpr const char* kFunction = "WeightNormBackward";
  using C = Compute<T>;
  const int64_t rows = args.rows, cols = args.cols;
  internal::CheckWeightNorm(kFunction, args);
  if (rows == 0 || cols == 0) {
    internal::FillEach({args.dg}, rows, P{});
    return;
  }
  if (cols < internal::kNarrowWeights) {
    const internal::Params<T, P> lengths(args.g, /*rows=*/0, rows, 1, args.dv != nullptr);
    internal::ParamGradients<T, P> dlengths(args.dg, rows, args.dg != nullptr);
    auto call = std::bit_cast<WeightNormBackwardArgs<T, C>>(args);
    call.g = lengths.data();
    call.dg = dlengths.data();
    internal::RunParallel(
        parallel_for, rows, internal::GrainFor(cols), [&](int64_t begin, int64_t end) {
          internal::WeightGradients<T>(
              call, begin, end,
              internal::UsesNtStores(3 * Bytes<T>(rows * cols), end - begin, rows));
        });
    dlengths.Finish();
    return;
  }
  ChannelPass<T> pass{ArraysOf(args), ChannelSums::kGradient, ChannelMap::kGradient};
  pass.before = [&](const ChannelRange<C>& range) {
    for (int64_t i = 0; i < range.n; ++i) {
      range.before[0][i] = range.before[2][i] = 0;  // mean 0
      range.before[1][i] = static_cast<C>(1 / static_cast<double>(args.norm[range.begin + i]));
    }
  };
  pass.after = [&](const ChannelRange<C>& range) {
    for (int k = 0; k < internal::kMaxSumParameters; ++k) {
      std::copy_n(range.before[k], range.n, range.parameters[k]);
    }
    for (int64_t i = 0; i < range.n; ++i) {
      const int64_t r = range.begin + i;
      const C dg_r = static_cast<C>(range.second[i]);
      if (args.dg) args.dg[r] = internal::FromCompute<P>(dg_r);
      range.parameters[3][i] = 0;
      range.parameters[4][i] = dg_r;
      range.parameters[5][i] =
          args.dv ? static_cast<C>(LengthOf<T>(args.g, r) / static_cast<double>(args.norm[r]))
                  : C{0};
    }
  };
  internal::RunChannels(pass, parallel_for);
}

#define PLANISH_INSTANTIATE(T, P)                                                          \
  template void WeightNormForward(const WeightNormForwardArgs<T, P>&, const ParallelFor&); \
  template void WeightNormBackward(const WeightNormBackwardArgs<T, P>&, const ParallelFor&);
PLANISH_NORM_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace PLANISH_API
}  // namespace planish
