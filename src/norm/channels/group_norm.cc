#include "planish/group_norm.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <new>

#include "src/base/aligned.h"
#include "src/base/loop.h"
#include "src/norm/channels/columns_cpu.h"
#include "src/norm/channels/columns_statistics.h"
#include "src/norm/check.h"
#include "src/norm/element_types.h"
#include "src/norm/params.h"

// The channels of all samples are the channels of one pass, in groups. With channels last, a sample
// is a pass whose positions are its samples.
namespace planish {
inline namespace PLANISH_API {
namespace {

using internal::ChannelMap;
using internal::ChannelPass;
using internal::ChannelRange;
using internal::ChannelSums;
using internal::Statistics;

// --- Tuning constants (docs/tuning.md) ---

// With channels last: elements of a sample from which it is split over threads, and samples below
// which each is.
constexpr int64_t kSplitSample = int64_t{1} << 18, kMinSamples = 8;

// --- End of tuning constants ---

/// Sizes of a call, and the places of its groups in memory. Group g of all samples is group
/// g % groups of sample g / groups; channel c likewise.
struct Groups {
  template <class Args>
  Groups(const Args& args, const GroupNormOptions& options)
      : batch(args.batch),
        channels(args.channels),
        spatial(args.spatial),
        size(args.channels / args.groups),
        length(size * spatial),
        last(options.channels_last) {}

  /// Returns where element i of a group is, in a sample if channels are last.
  int64_t At(int64_t group, int64_t i) const {
    return last ? i / size * channels + group * size + i % size : group * length + i;
  }

  int64_t batch, channels, spatial;
  int64_t size;    // channels of a group
  int64_t length;  // elements of a group
  bool last;
};

/// Runs the passes of all channels. With channels last a sample is a pass, whose samples are the
/// positions. make(sample) returns the pass of a sample, or of all, without its sizes.
template <class Make>
void RunGroups(const Groups& of, const ParallelFor& parallel_for, const Make& make) {
  const auto run = [&](int64_t sample, const ParallelFor& parallel) {
    auto pass = make(sample);
    pass.batch = of.last ? of.spatial : 1;
    pass.channels = of.last ? of.channels : of.batch * of.channels;
    pass.spatial = of.last ? 1 : of.spatial;
    pass.group = of.size;
    if (!of.last) pass.min_run = internal::kMinSampleRun;
    internal::RunChannels(pass, parallel);
  };
  const int64_t elements = of.channels * of.spatial;
  if (!of.last || elements >= kSplitSample || of.batch < kMinSamples) {
    for (int64_t b = 0; b < (of.last ? of.batch : 1); ++b) run(b, parallel_for);
    return;
  }
  std::atomic<bool> failed = false;  // a task must not throw
  internal::RunParallel(parallel_for, of.batch, internal::GrainFor(elements),
                        [&](int64_t begin, int64_t end) {
                          try {
                            for (int64_t b = begin; b < end; ++b) run(b, SerialFor);
                          } catch (const std::bad_alloc&) {
                            failed = true;
                          }
                        });
  if (failed) throw std::bad_alloc();
}

template <class C, class P>
C ParameterOf(const P* values, int64_t c, C missing) {
  return values ? internal::Plain(internal::ToCompute<C>(values[c])) : missing;
}

}  // namespace

template <class T, class P>
void GroupNormForward(const GroupNormForwardArgs<T, P>& args, const GroupNormOptions& options) {
  constexpr const char* kFunction = "GroupNormForward";
  using C = Compute<T>;
  const int64_t total = internal::CheckGroupNorm(kFunction, args, options);
  if (total == 0) {
    internal::FillEach({args.mean, args.mean_lo, args.rstd}, args.batch * args.groups,
                       std::numeric_limits<C>::quiet_NaN());
    return;
  }
  const Groups of(args, options);
  const auto count = static_cast<double>(of.length);
  RunGroups(of, options.parallel_for, [&](int64_t sample) {
    const int64_t offset = sample * of.channels * of.spatial, first_group = sample * args.groups;
    const T* x = args.x + offset;
    ChannelPass<T> pass{
        {.a = x, .out = args.y + offset}, ChannelSums::kStatistics, ChannelMap::kNormalize};
    const auto at = [=](int64_t group, int64_t i) {
      return internal::ToDouble(x[of.At(group, i)]);
    };
    pass.before = [=](const ChannelRange<C>& range) {
      for (int64_t i = 0; i < range.n;) {
        const int64_t c = range.begin + i, group = c / of.size;
        const int64_t n = std::min(range.n - i, (group + 1) * of.size - c);
        const double shift =
            internal::MeanOfSamples(of.length, [&](int64_t element) { return at(group, element); });
        std::fill_n(range.before[0] + i, n, static_cast<C>(shift));
        i += n;
      }
    };
    pass.after = [=, &args, &options](const ChannelRange<C>& range) {
      for (int64_t i = 0; i < range.n; i += of.size) {
        const int64_t group = (range.begin + i) / of.size;
        internal::RowSums sums;
        for (int64_t k = i; k < i + of.size; ++k) {
          sums.first += range.first[k];
          sums.second += range.second[k];
        }
        const Statistics m = internal::StatisticsOf<C>(
            static_cast<double>(range.before[0][i]), sums, 1 / count, options.eps, [&] {
              return internal::TwoPassStatisticsAt<T>(
                  [&](int64_t element) { return at(group, element); }, of.length, true);
            });
        const double rstd =
            internal::ReciprocalDeviation(m, internal::Deviation::kBiased, options.eps, count);
        const auto xhat = internal::SaveStatistics(m, rstd, first_group + group, args.mean,
                                                   args.mean_lo, args.rstd);
        for (int64_t k = i; k < i + of.size; ++k) {
          const int64_t c = (range.begin + k) % of.channels;
          const double gain = ParameterOf(args.gain, c, C{1});
          // The bias absorbs mean_lo, which is exact for a constant group.
          const double bias = ParameterOf(args.bias, c, C{0});
          range.parameters[0][k] = xhat.mean;
          range.parameters[1][k] = static_cast<C>(gain * rstd);
          range.parameters[2][k] = static_cast<C>(bias + gain * static_cast<double>(xhat.offset));
        }
      }
    };
    return pass;
  });
}

template <class T, class P>
void GroupNormBackward(const GroupNormBackwardArgs<T, P>& args, const GroupNormOptions& options) {
  constexpr const char* kFunction = "GroupNormBackward";
  using C = Compute<T>;
  const int64_t total = internal::CheckGroupNorm(kFunction, args, options);
  const int64_t channels = args.channels;
  if (total == 0) {
    internal::FillEach({args.dgain, args.dbias}, channels, P{});
    return;
  }
  const bool has_sums = internal::HasParamGradients(args);
  if (args.dx == nullptr && !has_sums) return;
  const Groups of(args, options);
  const auto count = static_cast<double>(of.length);
  // Of the channels of all samples: sums of dy * xhat, then of dy.
  const int64_t all = args.batch * channels;
  const auto sums = internal::MakeUninitialized<double>(has_sums ? 2 * all : 0);
  double* const dgains = sums.get();
  RunGroups(of, options.parallel_for, [&](int64_t sample) {
    const int64_t offset = sample * channels * of.spatial;
    const int64_t first_group = sample * args.groups, first_channel = sample * channels;
    ChannelPass<T> pass{
        {.a = args.dy + offset, .x = args.x + offset, .out = args.dx ? args.dx + offset : nullptr},
        ChannelSums::kGradient,
        ChannelMap::kGroupGradient};
    pass.before = [=, &args](const ChannelRange<C>& range) {
      for (int64_t i = 0; i < range.n; ++i) {
        const int64_t group = first_group + (range.begin + i) / of.size;
        const auto xhat =
            internal::CoefficientsOf(args.mean[group], args.mean_lo[group], args.rstd[group]);
        range.before[0][i] = xhat.mean;
        range.before[1][i] = xhat.rstd;
        range.before[2][i] = xhat.offset;
      }
    };
    pass.after = [=, &args](const ChannelRange<C>& range) {
      for (int k = 0; k < internal::kMaxSumParameters; ++k) {
        std::copy_n(range.before[k], range.n, range.parameters[k]);
      }
      if (has_sums) {
        std::copy_n(range.second, range.n, dgains + first_channel + range.begin);
        std::copy_n(range.first, range.n, dgains + all + first_channel + range.begin);
      }
      for (int64_t i = 0; i < range.n; i += of.size) {
        double first = 0, second = 0;
        for (int64_t k = i; k < i + of.size; ++k) {
          const C gain = ParameterOf(args.gain, (range.begin + k) % channels, C{1});
          range.parameters[5][k] = gain;
          first += static_cast<double>(gain) * range.first[k];
          second += static_cast<double>(gain) * range.second[k];
        }
        std::fill_n(range.parameters[3] + i, of.size, static_cast<C>(first / count));
        std::fill_n(range.parameters[4] + i, of.size, static_cast<C>(second / count));
      }
    };
    return pass;
  });
  if (!has_sums) return;
  internal::RunParallel(options.parallel_for, channels, internal::GrainFor(2 * args.batch),
                        [&](int64_t begin, int64_t end) {
                          for (int64_t c = begin; c < end; ++c) {
                            double dgain = 0, dbias = 0;
                            for (int64_t i = c; i < all; i += channels) {
                              dgain += dgains[i];
                              dbias += dgains[all + i];
                            }
                            if (args.dgain)
                              args.dgain[c] = internal::FromCompute<P>(static_cast<C>(dgain));
                            if (args.dbias)
                              args.dbias[c] = internal::FromCompute<P>(static_cast<C>(dbias));
                          }
                        });
}

#define PLANISH_INSTANTIATE(T, P)                                                             \
  template void GroupNormForward(const GroupNormForwardArgs<T, P>&, const GroupNormOptions&); \
  template void GroupNormBackward(const GroupNormBackwardArgs<T, P>&, const GroupNormOptions&);
PLANISH_NORM_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace PLANISH_API
}  // namespace planish
