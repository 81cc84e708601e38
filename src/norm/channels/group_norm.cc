#include "planish/group_norm.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "src/base/aligned.h"
#include "src/base/loop.h"
#include "src/norm/channels/columns_cpu.h"
#include "src/norm/channels/columns_statistics.h"
#include "src/norm/check.h"
#include "src/norm/element_types.h"
#include "src/norm/params.h"
#include "src/norm/recipe.h"
#include "src/norm/rows/cpu.h"
#include "src/norm/sets.h"

// Groups of few positions are rows of the row norms. Otherwise the channels of all samples are the
// channels of one pass, in groups. With channels last, a sample is a plane whose positions are its
// samples.
namespace planish {
inline namespace PLANISH_API {
namespace {

using internal::ChannelMap;
using internal::ChannelPass;
using internal::ChannelRange;
using internal::ChannelSums;
using internal::Statistics;

// --- Tuning constants (docs/tuning.md) ---

// Positions below which groups of at least kMinRowChannels channels are rows of adjacent elements,
// with gains repeated for each element; groups of any size below internal::kMinSampleRun.
constexpr int64_t kMaxRowSpatial = 32, kMinRowChannels = 4;

// With channels last: columns to reach by placing positions side by side.
constexpr int64_t kMinColumns = 64;

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

  /// Returns where element i of a group is.
  int64_t At(int64_t group, int64_t i) const {
    if (!last) return group * length + i;
    const int64_t groups = channels / size;
    return (group / groups * spatial + i / size) * channels + group % groups * size + i % size;
  }

  /// Returns whether groups are processed as rows.
  bool AreRows() const {
    return !last && (spatial < internal::kMinSampleRun ||
                     (spatial < kMaxRowSpatial && size >= kMinRowChannels));
  }

  int64_t batch, channels, spatial;
  int64_t size;    // channels of a group
  int64_t length;  // elements of a group
  bool last;
};

/// Sets the sizes of a pass and runs it.
template <class T>
void RunGroups(const Groups& of, ChannelPass<T> pass, const ParallelFor& parallel_for) {
  pass.batch = of.last ? of.spatial : 1;
  pass.channels = of.last ? of.channels : of.batch * of.channels;
  pass.spatial = of.last ? 1 : of.spatial;
  pass.planes = of.last ? of.batch : 1;
  pass.group = of.size;
  pass.min_columns = kMinColumns;
  pass.min_run = internal::kMinSampleRun;
  internal::RunChannels(pass, parallel_for);
}

/// Repeats each of the first `count` values `times` times.
template <class C>
void RepeatEach(C* values, int64_t count, int64_t times) {
  for (int64_t i = count - 1; times > 1 && i >= 0; --i) {
    std::fill_n(values + i * times, times, values[i]);
  }
}

/// Parameters of the channels, one for each element of a sample.
template <class T, class P>
class ElementParams {
 public:
  using C = Compute<T>;

  /// Without `needed`, data() is null.
  ElementParams(const P* params, const Groups& of, C missing, bool needed)
      : channels_(params, of.batch, of.channels, missing, needed), data_(channels_.data()) {
    if (!needed || of.spatial == 1) return;
    elements_ = internal::MakeAligned<C>(of.channels * of.spatial);
    std::copy_n(data_, of.channels, elements_.get());
    RepeatEach(elements_.get(), of.channels, of.spatial);
    data_ = elements_.get();
  }

  const C* data() const { return data_; }

 private:
  internal::Params<T, P> channels_;
  internal::AlignedArray<C> elements_;
  const C* data_;
};

/// Writes the [rows, cols] matrix `from` to `to`, transposed. Both can be null.
template <class C>
void Transpose(const C* from, int64_t rows, int64_t cols, C* to) {
  if (from == nullptr || to == nullptr) return;
  for (int64_t c = 0; c < cols; ++c) {
    for (int64_t r = 0; r < rows; ++r) to[c * rows + r] = from[r * cols + c];
  }
}

/// Sets the sizes of a call of row norms whose rows are the groups. With parameters, each group of
/// a sample is a parameter set, and the statistics are [groups, batch] arrays.
template <class Call>
void SetRows(const Groups& of, bool affine, Call& call) {
  const int64_t groups = of.channels / of.size;
  call.recipe = internal::RecipeOf(Norm::kLayer);
  if (!affine) call.recipe = internal::WithoutParams(call.recipe);
  call.rows = of.batch * groups;
  call.cols = of.length;
  call.sets = affine ? groups : 1;
  call.set_rows = 1;
  call.use_nt_stores = true;
}

template <class T, class P>
void ForwardAsRows(const GroupNormForwardArgs<T, P>& args, const Groups& of,
                   const GroupNormOptions& options) {
  using C = Compute<T>;
  const bool affine = args.gain != nullptr || args.bias != nullptr;
  const ElementParams<T, P> gains(args.gain, of, 1, affine), biases(args.bias, of, 0, affine);
  internal::RowsForward<T> call;
  SetRows(of, affine, call);
  call.eps = options.eps;
  call.x = args.x;
  call.y = args.y;
  call.gain = gains.data();
  call.bias = biases.data();
  call.x_stride = call.y_stride = of.length;
  const bool transposed = call.sets > 1;
  const auto statistics = internal::MakeUninitialized<C>(transposed ? 3 * call.rows : 0);
  const auto place = [&](C* array, int i) {
    return transposed && array ? statistics.get() + i * call.rows : array;
  };
  call.mean = place(args.mean, 0);
  call.mean_lo = place(args.mean_lo, 1);
  call.rstd = place(args.rstd, 2);
  internal::ForwardMatrix(call, options.parallel_for);
  if (!transposed) return;
  Transpose(call.mean, args.groups, args.batch, args.mean);
  Transpose(call.mean_lo, args.groups, args.batch, args.mean_lo);
  Transpose(call.rstd, args.groups, args.batch, args.rstd);
}

template <class T, class P>
void BackwardAsRows(const GroupNormBackwardArgs<T, P>& args, const Groups& of,
                    const GroupNormOptions& options) {
  using C = Compute<T>;
  const bool columns = internal::HasParamGradients(args), affine = args.gain || columns;
  const ElementParams<T, P> gains(args.gain, of, 1, affine);
  internal::RowsBackward<T> call;
  SetRows(of, affine, call);
  call.dy = args.dy;
  call.x = args.x;
  call.dx = args.dx;
  call.gain = gains.data();
  call.dy_stride = call.x_stride = call.dx_stride = of.length;
  const bool transposed = call.sets > 1;
  const auto statistics = internal::MakeUninitialized<C>(transposed ? 3 * call.rows : 0);
  const auto place = [&](const C* array, int i) {
    if (!transposed) return array;
    C* const to = statistics.get() + i * call.rows;
    Transpose(array, args.batch, args.groups, to);
    return static_cast<const C*>(to);
  };
  call.mean = place(args.mean, 0);
  call.mean_lo = place(args.mean_lo, 1);
  call.rstd = place(args.rstd, 2);
  const int64_t sample = of.channels * of.spatial;
  const auto sums = internal::MakeAligned<C>(columns ? 2 * sample : 0);  // of each element
  call.dgain = columns ? sums.get() : nullptr;
  call.dbias = columns ? sums.get() + sample : nullptr;
  if (call.sets > 1 && of.batch * sample > 2 * internal::kGrainElements) {
    // A call with several sets has a thread for each block of rows, of which there are few.
    internal::RunParallelAllocating(
        options.parallel_for, call.sets, internal::GrainFor(of.batch * of.length),
        [&](int64_t begin, int64_t end) {
          for (int64_t set = begin; set < end; ++set) {
            internal::BackwardMatrix(internal::SetOf(call, call.recipe, set), SerialFor);
          }
        });
  } else {
    internal::BackwardMatrix(call, options.parallel_for);
  }
  if (!columns) return;
  internal::RunParallel(options.parallel_for, of.channels, internal::GrainFor(2 * of.spatial),
                        [&](int64_t begin, int64_t end) {
                          const auto add = [&](const C* terms, P* gradients) {
                            for (int64_t c = begin; gradients != nullptr && c < end; ++c) {
                              double sum = 0;
                              for (int64_t i = 0; i < of.spatial; ++i) {
                                sum += static_cast<double>(terms[c * of.spatial + i]);
                              }
                              gradients[c] = internal::FromCompute<P>(static_cast<C>(sum));
                            }
                          };
                          add(call.dgain, args.dgain);
                          add(call.dbias, args.dbias);
                        });
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
  if (of.AreRows()) return ForwardAsRows(args, of, options);
  const auto count = static_cast<double>(of.length);
  const double reciprocal = 1 / count;
  const internal::Params<T, P> gains(args.gain, of.batch, of.channels, 1, true);
  const internal::Params<T, P> biases(args.bias, of.batch, of.channels, 0, true);
  const C *const gain = gains.data(), *const bias = biases.data();
  int64_t places[internal::kShiftSamples];  // of the samples in a group
  for (int64_t k = 0; k < internal::kShiftSamples; ++k) {
    places[k] = of.At(0, (of.length - 1) * k / (internal::kShiftSamples - 1));
  }
  ChannelPass<T> pass{
      {.a = args.x, .out = args.y}, ChannelSums::kStatistics, ChannelMap::kNormalize};
  pass.sum_channels = of.last ? 1 : of.size;
  pass.before = [&](const ChannelRange<C>& range) {
    const int64_t groups = range.n / of.size;
    for (int64_t i = 0; i < groups; ++i) {
      const T* x = args.x + of.At(range.begin / of.size + i, 0);
      const double shift = internal::MeanOfSamples(
          internal::kShiftSamples, [&](int64_t k) { return internal::ToDouble(x[places[k]]); });
      range.before[0][i] = static_cast<C>(shift);
    }
    RepeatEach(range.before[0], groups, of.last ? of.size : 1);
  };
  pass.after = [&](const ChannelRange<C>& range) {
    int64_t c = range.begin % of.channels;  // the first channel of the group
    const int64_t sums = of.last ? of.size : 1;
    for (int64_t i = 0; i < range.n; i += of.size) {
      const int64_t group = (range.begin + i) / of.size, at = i / of.size * sums;
      internal::RowSums sum;
      for (int64_t k = at; k < at + sums; ++k) {
        sum.first += range.first[k];
        sum.second += range.second[k];
      }
      const Statistics m = internal::StatisticsOf<C>(
          static_cast<double>(range.before[0][at]), sum, reciprocal, options.eps, [&] {
            return internal::TwoPassStatisticsAt<T>(
                [&](int64_t k) { return internal::ToDouble(args.x[of.At(group, k)]); }, of.length,
                true);
          });
      const double rstd =
          internal::ReciprocalDeviation(m, internal::Deviation::kBiased, options.eps, count);
      const auto xhat =
          internal::SaveStatistics(m, rstd, group, args.mean, args.mean_lo, args.rstd);
      const auto offset = static_cast<double>(xhat.offset);
      for (int64_t k = 0; k < of.size; ++k) {
        const double g = gain[c + k];
        range.parameters[0][i + k] = xhat.mean;
        range.parameters[1][i + k] = static_cast<C>(g * rstd);
        // The bias absorbs mean_lo, which is exact for a constant group.
        range.parameters[2][i + k] = static_cast<C>(bias[c + k] + g * offset);
      }
      c = c + of.size < of.channels ? c + of.size : 0;
    }
  };
  RunGroups(of, pass, options.parallel_for);
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
  if (of.AreRows()) return BackwardAsRows(args, of, options);
  const double reciprocal = 1 / static_cast<double>(of.length);
  const internal::Params<T, P> gains(args.gain, of.batch, channels, 1, true);
  const C* const gain = gains.data();
  // Of the channels of all samples: sums of dy * xhat, then of dy.
  const int64_t all = args.batch * channels;
  const auto sums = internal::MakeUninitialized<double>(has_sums ? 2 * all : 0);
  double* const dgains = sums.get();
  ChannelPass<T> pass{{.a = args.dy, .x = args.x, .out = args.dx},
                      ChannelSums::kGradient,
                      ChannelMap::kGroupGradient};
  pass.before = [&](const ChannelRange<C>& range) {
    const int64_t group = range.begin / of.size, groups = range.n / of.size;
    for (int64_t i = 0; i < groups; ++i) {
      const auto xhat = internal::CoefficientsOf(args.mean[group + i], args.mean_lo[group + i],
                                                 args.rstd[group + i]);
      range.before[0][i] = xhat.mean;
      range.before[1][i] = xhat.rstd;
      range.before[2][i] = xhat.offset;
    }
    for (C* values : range.before) RepeatEach(values, groups, of.size);
  };
  pass.after = [&](const ChannelRange<C>& range) {
    for (int k = 0; k < 2; ++k) std::copy_n(range.before[k], range.n, range.parameters[k]);
    if (has_sums) {
      std::copy_n(range.second, range.n, dgains + range.begin);
      std::copy_n(range.first, range.n, dgains + all + range.begin);
    }
    const int64_t groups = range.n / of.size;
    // Adds the sums of groups of `size` channels, a parameter so that compilers know that it is 1.
    const auto add = [&](int64_t size) {
      int64_t c = range.begin % channels;
      for (int64_t i = 0; i < groups;) {
        const int64_t end = std::min(groups, i + (channels - c) / size);  // of the sample
        for (const C* g = gain + c; i < end; ++i, g += size) {
          const int64_t at = i * size;
          double first = 0, second = 0;
          for (int64_t k = 0; k < size; ++k) {
            const auto value = static_cast<double>(g[k]);
            first += value * range.first[at + k];
            second += value * range.second[at + k];
            range.parameters[4][at + k] = g[k];
          }
          const double mean_g = first * reciprocal, mean_g_xhat = second * reciprocal;
          const double rstd = range.before[1][at], offset = range.before[2][at];
          range.parameters[2][i] = static_cast<C>(mean_g + offset * mean_g_xhat);
          range.parameters[3][i] = static_cast<C>(mean_g_xhat * rstd);
        }
        c = 0;
      }
    };
    of.size == 1 ? add(1) : add(of.size);
    RepeatEach(range.parameters[2], groups, of.size);
    RepeatEach(range.parameters[3], groups, of.size);
  };
  RunGroups(of, pass, options.parallel_for);
  if (!has_sums) return;
  internal::RunParallel(
      options.parallel_for, channels, internal::GrainFor(2 * args.batch),
      [&](int64_t begin, int64_t end) {
        constexpr int64_t kAtOnce = 8;  // channels, a cache line of sums
        const auto add = [&](int64_t first, int64_t n, P* gradients, const double* terms) {
          if (gradients == nullptr) return;
          double sum[kAtOnce] = {};
          for (int64_t b = 0; b < args.batch; ++b) {
            for (int64_t k = 0; k < n; ++k) sum[k] += terms[b * channels + first + k];
          }
          for (int64_t k = 0; k < n; ++k) {
            gradients[first + k] = internal::FromCompute<P>(static_cast<C>(sum[k]));
          }
        };
        for (int64_t c = begin; c < end; c += kAtOnce) {
          const int64_t n = std::min(kAtOnce, end - c);
          add(c, n, args.dgain, dgains);
          add(c, n, args.dbias, dgains + all);
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
