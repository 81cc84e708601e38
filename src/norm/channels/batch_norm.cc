#include "planish/batch_norm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "src/norm/channels/batch_norm_kernels.h"
#include "src/norm/channels/columns_cpu.h"
#include "src/norm/check.h"
#include "src/norm/element_types.h"
#include "src/norm/params.h"

namespace planish {
inline namespace PLANISH_API {
namespace {

using internal::ArraysOf;
using internal::ChannelMap;
using internal::ChannelPass;
using internal::ChannelRange;
using internal::ChannelSums;
using internal::FromCompute;
using internal::kChannelsAtOnce;
using internal::RowCoefficients;
using internal::Statistics;

template <class T, class P>
double GainOf(const P* gain, int64_t c) {
  return gain ? static_cast<double>(internal::ToCompute<Compute<T>>(gain[c])) : 1.0;
}

template <class C>
void Update(C* running, int64_t c, double momentum, double value) {
  if (running == nullptr) return;
  running[c] = static_cast<C>((1 - momentum) * static_cast<double>(running[c]) + momentum * value);
}

template <class C>
double ReciprocalDeviationOf(C running_var, double eps) {
  return 1 / std::sqrt(static_cast<double>(running_var) + eps);
}

template <class C>
void Put(const RowCoefficients<C>& coefficients, int64_t i, C* const* parameters) {
  parameters[0][i] = coefficients.mean;
  parameters[1][i] = coefficients.rstd;
  parameters[2][i] = coefficients.offset;
}

template <class T, class P>
void SaveSums(const ChannelRange<Compute<T>>& range, P* dgain, P* dbias) {
  const auto save = [&](const double* sums, P* to) {
    for (int64_t i = 0; to && i < range.n; ++i) {
      to[range.begin + i] = FromCompute<P>(static_cast<Compute<T>>(sums[i]));
    }
  };
  save(range.second, dgain);
  save(range.first, dbias);
}

}  // namespace

template <class T, class P>
void BatchNormForward(const BatchNormForwardArgs<T, P>& args, const BatchNormOptions& options) {
  constexpr const char* kFunction = "BatchNormForward";
  using C = Compute<T>;
  const int64_t total = internal::CheckBatchNorm(kFunction, args, options);
  const double momentum = internal::CheckedMomentum(kFunction, options);
  const int64_t channels = args.channels, spatial = args.spatial, n = args.batch * spatial;
  if (total == 0) {
    internal::FillEach({args.mean, args.mean_lo, args.rstd}, channels,
                       std::numeric_limits<C>::quiet_NaN());
    return;
  }
  ChannelPass<T> pass{ArraysOf(args), ChannelSums::kStatistics, ChannelMap::kNormalize};
  const auto number_of = [&](int64_t c) {
    return [x = args.x + c * spatial, sample = channels * spatial, spatial](int64_t i) {
      return internal::ToDouble(x[i / spatial * sample + i % spatial]);
    };
  };
  const internal::Params<T, P> gains(args.gain, /*rows=*/0, channels, 1, true);
  const internal::Params<T, P> biases(args.bias, /*rows=*/0, channels, 0, true);
  pass.before = [&](const ChannelRange<C>& range) {
    internal::ShiftChannels(pass, range.begin, range.n, range.before[0]);
  };
  // Recomputes the statistics of channel c, element i of the range, in two passes.
  const auto finish_in_two_passes = [&](int64_t c, const ChannelRange<C>& range, int64_t i) {
    Statistics m = internal::TwoPassStatisticsAt<T>(number_of(c), n, true);
    const double unbiased = static_cast<double>(n) / static_cast<double>(n - 1);
    Update(args.running_mean, c, momentum, m.shift + m.offset / m.scale);
    if (args.running_var) {
      Update(args.running_var, c, momentum, m.var / m.scale / m.scale * unbiased);
    }
    if (options.unbiased) m.var *= unbiased;
    const double rstd = internal::ReciprocalDeviation(m, internal::Deviation::kBiased, options.eps,
                                                      static_cast<double>(n));
    const RowCoefficients<C> coefficients =
        internal::SaveStatistics(m, rstd, c, args.mean, args.mean_lo, args.rstd);
    const auto gain_c = static_cast<double>(gains.data()[c]);
    const auto bias_c = static_cast<double>(biases.data()[c]);
    const double rest = (m.shift - static_cast<double>(coefficients.mean)) + m.offset / m.scale;
    range.parameters[0][i] = coefficients.mean;
    range.parameters[1][i] = static_cast<C>(gain_c * rstd);
    range.parameters[2][i] = static_cast<C>(bias_c - rest * rstd * gain_c);
  };
  pass.after = [&](const ChannelRange<C>& range) {
    internal::BatchStatistics<T> statistics{internal::WithParams(args, gains, biases),
                                            static_cast<double>(n), options.eps, momentum,
                                            options.unbiased};
    for (int64_t from = 0; from < range.n; from += kChannelsAtOnce) {
      const int64_t c = range.begin + from, size = std::min(kChannelsAtOnce, range.n - from);
      bool two_pass[kChannelsAtOnce];
      statistics.begin = c;
      statistics.n = size;
      statistics.shift = range.before[0] + from;
      statistics.first = range.first + from;
      statistics.second = range.second + from;
      for (int k = 0; k < 3; ++k) statistics.parameters[k] = range.parameters[k] + from;
      if (!internal::FinishBatch(statistics, two_pass)) continue;
      for (int64_t i = 0; i < size; ++i) {
        if (two_pass[i]) finish_in_two_passes(c + i, range, from + i);
      }
    }
  };
  internal::RunChannels(pass, options.parallel_for);
}

template <class T, class P>
void BatchNormBackward(const BatchNormBackwardArgs<T, P>& args, const BatchNormOptions& options) {
  constexpr const char* kFunction = "BatchNormBackward";
  using C = Compute<T>;
  const int64_t total = internal::CheckBatchNorm(kFunction, args, options);
  const int64_t n = args.batch * args.spatial;
  if (total == 0) {
    internal::FillEach({args.dgain, args.dbias}, args.channels, P{});
    return;
  }
  ChannelPass<T> pass{ArraysOf(args), ChannelSums::kGradient, ChannelMap::kGradient};
  pass.before = [&](const ChannelRange<C>& range) {
    for (int64_t i = 0, c = range.begin; i < range.n; ++i, ++c) {
      Put(internal::CoefficientsOf(args.mean[c], args.mean_lo[c], args.rstd[c]), i, range.before);
    }
  };
  const auto count = static_cast<double>(n);
  const double degrees = options.unbiased ? count - 1 : count;
  pass.after = [&](const ChannelRange<C>& range) {
    SaveSums<T>(range, args.dgain, args.dbias);
    for (int k = 0; k < internal::kMaxSumParameters; ++k) {
      std::copy_n(range.before[k], range.n, range.parameters[k]);
    }
    C* const* parameters = range.parameters;
    for (int64_t i = 0; i < range.n; ++i) {
      const int64_t c = range.begin + i;
      parameters[3][i] = static_cast<C>(range.first[i] / count);
      parameters[4][i] = static_cast<C>(range.second[i] / degrees);
      parameters[5][i] =
          static_cast<C>(GainOf<T>(args.gain, c) * static_cast<double>(args.rstd[c]));
    }
  };
  internal::RunChannels(pass, options.parallel_for);
}

template <class T, class P>
void BatchNormEvaluate(const BatchNormEvaluateArgs<T, P>& args, const BatchNormOptions& options) {
  constexpr const char* kFunction = "BatchNormEvaluate";
  using C = Compute<T>;
  const int64_t total = internal::CheckBatchEvaluate(kFunction, args, options);
  if (total == 0) return;
  ChannelPass<T> pass{ArraysOf(args), ChannelSums::kNone, ChannelMap::kNormalize};
  pass.after = [&](const ChannelRange<C>& range) {
    for (int64_t i = 0; i < range.n; ++i) {
      const int64_t c = range.begin + i;
      range.parameters[0][i] = args.running_mean[c];
      range.parameters[1][i] = static_cast<C>(
          GainOf<T>(args.gain, c) * ReciprocalDeviationOf(args.running_var[c], options.eps));
      range.parameters[2][i] = args.bias ? internal::ToCompute<C>(args.bias[c]) : C{0};
    }
  };
  internal::RunChannels(pass, options.parallel_for);
}

template <class T, class P>
void BatchNormEvaluateBackward(const BatchNormEvaluateBackwardArgs<T, P>& args,
                               const BatchNormOptions& options) {
  constexpr const char* kFunction = "BatchNormEvaluateBackward";
  using C = Compute<T>;
  const int64_t total = internal::CheckBatchEvaluate(kFunction, args, options);
  if (total == 0) {
    internal::FillEach({args.dgain, args.dbias}, args.channels, P{});
    return;
  }
  ChannelPass<T> pass{ArraysOf(args), ChannelSums::kNone, ChannelMap::kScale};
  if (args.dgain) {
    pass.sums = ChannelSums::kGradient;
  } else if (args.dbias) {
    pass.sums = ChannelSums::kStatistics;  // about 0
  }
  pass.before = [&](const ChannelRange<C>& range) {
    if (args.dgain == nullptr) {
      std::fill_n(range.before[0], range.n, C{0});
      return;
    }
    for (int64_t i = 0, c = range.begin; i < range.n; ++i, ++c) {
      const double rstd = ReciprocalDeviationOf(args.running_var[c], options.eps);
      Put(internal::CoefficientsOf(args.running_mean[c], C{0}, static_cast<C>(rstd)), i,
          range.before);
    }
  };
  pass.after = [&](const ChannelRange<C>& range) {
    SaveSums<T>(range, args.dgain, args.dbias);
    for (int64_t i = 0; i < range.n; ++i) {
      const int64_t c = range.begin + i;
      range.parameters[0][i] = static_cast<C>(
          GainOf<T>(args.gain, c) * ReciprocalDeviationOf(args.running_var[c], options.eps));
    }
  };
  internal::RunChannels(pass, options.parallel_for);
}

PLANISH_NORM_TYPES(PLANISH_BATCH_NORM_FUNCTIONS)

}  // namespace PLANISH_API
}  // namespace planish
