#include "planish/batch_norm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "src/norm/batch_norm_check.h"
#include "src/norm/columns_cpu.h"
#include "src/norm/params.h"

namespace planish {
namespace {

using internal::ChannelMap;
using internal::ChannelPass;
using internal::ChannelSums;
using internal::FromCompute;
using internal::Moments;
using internal::RowMap;
using internal::RowSums;

template <class T, class P>
double GainOf(const P* gain, int64_t c) {
  return gain ? static_cast<double>(internal::ToCompute<Compute<T>>(gain[c])) : 1.0;
}

/// A number that is near `value` in C.
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
void Put(const RowMap<C>& map, C* numbers) {
  numbers[0] = map.mean;
  numbers[1] = map.rstd;
  numbers[2] = map.offset;
}

template <class T, class P>
void SaveSums(const RowSums& sums, int64_t c, P* dgain, P* dbias) {
  if (dgain) dgain[c] = FromCompute<P>(static_cast<Compute<T>>(sums.second));
  if (dbias) dbias[c] = FromCompute<P>(static_cast<Compute<T>>(sums.first));
}

}  // namespace

template <class T, class P>
void BatchNormForward(const BatchNormForwardArgs<T, P>& args, const BatchNormOptions& options) {
  constexpr const char* kFunction = "BatchNormForward";
  using C = Compute<T>;
  const int64_t total = internal::CheckBatchForward(kFunction, args, options);
  const double momentum = internal::CheckedMomentum(kFunction, options);
  const int64_t channels = args.channels, spatial = args.spatial, n = args.batch * spatial;
  if (total == 0) {
    internal::FillEach({args.mean, args.mean_lo, args.rstd}, channels,
                       std::numeric_limits<C>::quiet_NaN());
    return;
  }
  ChannelPass<T> pass(args.batch, channels, spatial);
  pass.a = args.x;
  pass.out = args.y;
  pass.sums = ChannelSums::kMoments;
  pass.map = ChannelMap::kNormalise;
  const auto number_of = [&](int64_t c) {
    return [x = args.x + c * spatial, sample = channels * spatial, spatial](int64_t i) {
      return internal::ToDouble(x[i / spatial * sample + i % spatial]);
    };
  };
  pass.before = [&](int64_t c, C* numbers) { numbers[0] = internal::ShiftNear(pass, c); };
  const double reciprocal = 1 / static_cast<double>(n);
  const double unbiased = static_cast<double>(n) / static_cast<double>(n - 1);
  pass.after = [&](int64_t c, const C* before, const RowSums& sums, C* numbers) {
    Moments m = internal::MomentsOf<C>(
        static_cast<double>(before[0]), sums, reciprocal, options.eps,
        [&] { return internal::CarefulMomentsAt<T>(number_of(c), n, true); });
    Update(args.running_mean, c, momentum, m.shift + m.offset / m.scale);
    if (args.running_var) {
      Update(args.running_var, c, momentum, m.var / m.scale / m.scale * unbiased);
    }
    if (options.unbiased) m.var *= unbiased;
    const double deviation = internal::ReciprocalDeviation(m, internal::Deviation::kBiased,
                                                           options.eps, static_cast<double>(n));
    const RowMap<C> map =
        internal::SaveMoments(m, deviation, c, args.mean, args.mean_lo, args.rstd);
    // What the rounded mean leaves of the mean goes into the bias: exact for a constant channel.
    const double gain_c = GainOf<T>(args.gain, c);
    const double rest = (m.shift - static_cast<double>(map.mean)) + m.offset / m.scale;
    const double bias_c =
        args.bias ? static_cast<double>(internal::ToCompute<C>(args.bias[c])) : 0.0;
    numbers[0] = map.mean;
    numbers[1] = static_cast<C>(gain_c * deviation);
    numbers[2] = static_cast<C>(bias_c - rest * deviation * gain_c);
  };
  internal::RunChannels(pass, options.parallel_for);
}

template <class T, class P>
void BatchNormBackward(const BatchNormBackwardArgs<T, P>& args, const BatchNormOptions& options) {
  constexpr const char* kFunction = "BatchNormBackward";
  using C = Compute<T>;
  const int64_t total = internal::CheckBatchBackward(kFunction, args, options);
  const int64_t channels = args.channels, n = args.batch * args.spatial;
  if (total == 0) {
    internal::FillEach({args.dgain, args.dbias}, channels, P{});
    return;
  }
  ChannelPass<T> pass(args.batch, channels, args.spatial);
  pass.a = args.dy;
  pass.x = args.x;
  pass.out = args.dx;
  pass.sums = ChannelSums::kGradient;
  pass.map = ChannelMap::kGradient;
  pass.before = [&](int64_t c, C* numbers) {
    Put(internal::MapOf(args.mean[c], args.mean_lo[c], args.rstd[c]), numbers);
  };
  const auto count = static_cast<double>(n);
  const double degrees = options.unbiased ? count - 1 : count;
  pass.after = [&](int64_t c, const C* before, const RowSums& sums, C* numbers) {
    SaveSums<T>(sums, c, args.dgain, args.dbias);
    std::copy_n(before, internal::kSumNumbers, numbers);
    numbers[3] = static_cast<C>(sums.first / count);
    numbers[4] = static_cast<C>(sums.second / degrees);
    numbers[5] = static_cast<C>(GainOf<T>(args.gain, c) * static_cast<double>(args.rstd[c]));
  };
  internal::RunChannels(pass, options.parallel_for);
}

template <class T, class P>
void BatchNormEvaluate(const BatchNormEvaluateArgs<T, P>& args, const BatchNormOptions& options) {
  constexpr const char* kFunction = "BatchNormEvaluate";
  using C = Compute<T>;
  const int64_t total = internal::CheckBatchEvaluate(kFunction, args, options);
  const int64_t channels = args.channels;
  if (total == 0) return;
  ChannelPass<T> pass(args.batch, channels, args.spatial);
  pass.a = args.x;
  pass.out = args.y;
  pass.map = ChannelMap::kNormalise;
  pass.after = [&](int64_t c, const C*, const RowSums&, C* numbers) {
    numbers[0] = args.running_mean[c];
    numbers[1] = static_cast<C>(GainOf<T>(args.gain, c) *
                                ReciprocalDeviationOf(args.running_var[c], options.eps));
    numbers[2] = args.bias ? internal::ToCompute<C>(args.bias[c]) : C{0};
  };
  internal::RunChannels(pass, options.parallel_for);
}

template <class T, class P>
void BatchNormEvaluateBackward(const BatchNormEvaluateBackwardArgs<T, P>& args,
                               const BatchNormOptions& options) {
  constexpr const char* kFunction = "BatchNormEvaluateBackward";
  using C = Compute<T>;
  const int64_t total = internal::CheckBatchEvaluateBackward(kFunction, args, options);
  const int64_t channels = args.channels;
  if (total == 0) {
    internal::FillEach({args.dgain, args.dbias}, channels, P{});
    return;
  }
  ChannelPass<T> pass(args.batch, channels, args.spatial);
  pass.a = args.dy;
  pass.x = args.dgain ? args.x : nullptr;
  pass.out = args.dx;
  pass.map = ChannelMap::kScale;
  if (args.dgain) {
    pass.sums = ChannelSums::kGradient;
  } else if (args.dbias) {
    pass.sums = ChannelSums::kMoments;  // about 0
  }
  pass.before = [&](int64_t c, C* numbers) {
    if (args.dgain == nullptr) return;
    const double rstd = ReciprocalDeviationOf(args.running_var[c], options.eps);
    Put(internal::MapOf(args.running_mean[c], C{0}, static_cast<C>(rstd)), numbers);
  };
  pass.after = [&](int64_t c, const C*, const RowSums& sums, C* numbers) {
    SaveSums<T>(sums, c, args.dgain, args.dbias);
    numbers[0] = static_cast<C>(GainOf<T>(args.gain, c) *
                                ReciprocalDeviationOf(args.running_var[c], options.eps));
  };
  internal::RunChannels(pass, options.parallel_for);
}

#define PLANISH_INSTANTIATE(T, P)                                                               \
  template void BatchNormForward(const BatchNormForwardArgs<T, P>&, const BatchNormOptions&);   \
  template void BatchNormBackward(const BatchNormBackwardArgs<T, P>&, const BatchNormOptions&); \
  template void BatchNormEvaluate(const BatchNormEvaluateArgs<T, P>&, const BatchNormOptions&); \
  template void BatchNormEvaluateBackward(const BatchNormEvaluateBackwardArgs<T, P>&,           \
                                          const BatchNormOptions&);
PLANISH_NORM_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace planish
