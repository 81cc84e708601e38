// Statistics of batch norm. Compiled once for each target, in namespace HWY_NAMESPACE.
#if defined(PLANISH_SRC_NORM_CHANNELS_BATCH_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLANISH_SRC_NORM_CHANNELS_BATCH_NORM_INL_H_
#undef PLANISH_SRC_NORM_CHANNELS_BATCH_NORM_INL_H_
#else
#define PLANISH_SRC_NORM_CHANNELS_BATCH_NORM_INL_H_
#endif

#include <cstdint>

#include "src/norm/channels/batch_norm_kernels.h"
#include "src/norm/channels/columns-inl.h"
#include "src/norm/statistics-inl.h"
#include "src/norm/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {
namespace {

/// Implements FinishBatch: StatisticsOf, ReciprocalDeviation and SaveStatistics for vectors of
/// channels.
template <class T>
bool FinishBatchOf(const BatchStatistics<T>& args, bool* two_pass) {
  using C = Compute<T>;
  const double unbiased = args.count / (args.count - 1);
  bool any = false;
  ForColumns(hn::ScalableTag<double>(), args.n, [&](auto d, int64_t i) HWY_ATTR {
    const hn::Rebind<C, decltype(d)> narrow;
    const auto read = [&](const C* p) HWY_ATTR { return Widened(d, hn::LoadU(narrow, p + i)); };
    const auto reciprocal = hn::Set(d, 1 / args.count);
    const auto shift = read(args.shift);
    const auto offset = hn::Mul(hn::LoadU(d, args.first + i), reciprocal);
    const auto square = hn::Mul(hn::LoadU(d, args.second + i), reciprocal);
    const auto var = hn::Sub(square, hn::Mul(offset, offset));
    const auto accurate = SumsAreAccurate<C>(d, var, square, args.eps);
    const auto larger = hn::Mul(var, hn::Set(d, unbiased));
    const auto update = [&](C* running, auto value) HWY_ATTR {
      if (running == nullptr) return;
      const auto old = read(running);
      const auto sum = hn::Add(hn::Mul(hn::Set(d, 1 - args.momentum), old),
                               hn::Mul(hn::Set(d, args.momentum), value));
      hn::StoreU(Narrowed(narrow, hn::IfThenElse(accurate, sum, old)), narrow, running + i);
    };
    const auto at = [&](auto* p) HWY_ATTR { return p ? p + args.begin : nullptr; };
    update(at(args.running_mean), hn::Add(shift, offset));
    update(at(args.running_var), larger);
    const auto deviation = hn::Sqrt(hn::Add(args.unbiased ? larger : var, hn::Set(d, args.eps)));
    const auto rstd = hn::Div(hn::Set(d, 1.0), deviation);
    const auto mean = Narrowed(narrow, hn::Add(shift, offset));
    const auto rest = hn::Add(hn::Sub(shift, Widened(d, mean)), offset);
    const auto save = [&](auto v, C* p) HWY_ATTR {
      if (p) hn::StoreU(v, narrow, p + i);
    };
    save(mean, at(args.mean));
    save(Narrowed(narrow, rest), at(args.mean_lo));
    save(Narrowed(narrow, rstd), at(args.rstd));
    // The bias absorbs mean_lo, which is exact for a constant channel.
    const auto gain = read(at(args.gain));
    save(mean, args.parameters[0]);
    save(Narrowed(narrow, hn::Mul(gain, rstd)), args.parameters[1]);
    save(Narrowed(narrow, hn::Sub(read(at(args.bias)), hn::Mul(hn::Mul(rest, rstd), gain))),
         args.parameters[2]);
    any |= MarkTwoPass(d, accurate, two_pass + i);
  });
  return any;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#endif  // PLANISH_SRC_NORM_CHANNELS_BATCH_NORM_INL_H_
