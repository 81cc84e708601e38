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
template <class C>
class ElementParams {
 public:
  /// `params` can be null; data() then is, too.
  ElementParams(const C* params, const Groups& of) : data_(params) {
    if (params == nullptr || of.spatial == 1) return;
    elements_ = internal::MakeAligned<C>(of.channels * of.spatial);
    std::copy_n(params, of.channels, elements_.get());
    RepeatEach(elements_.get(), of.channels, of.spatial);
    data_ = elements_.get();
  }

  const C* data() const { return data_; }

 private:
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

template <class T, class C = Compute<T>>
void ForwardAsRows(const GroupNormForwardArgs<T, C>& args, const Groups& of,
                   const GroupNormOptions& options) {
  const ElementParams<C> gains(args.gain, of), biases(args.bias, of);
  internal::RowsForward<T> call;
  SetRows(of, args.gain != nullptr, call);
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

template <class T, class C = Compute<T>>
void BackwardAsRows(const GroupNormBackwardArgs<T, C>& args, const Groups& of,
                    const GroupNormOptions& options) {
  const bool columns = args.dgain != nullptr;
  const ElementParams<C> gains(args.gain, of);
  internal::RowsBackward<T> call;
  SetRows(of, args.gain != nullptr, call);
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
                          const auto add = [&](const C* terms, C* gradients) {
                            for (int64_t c = begin; c < end; ++c) {
                              double sum = 0;
                              for (int64_t i = 0; i < of.spatial; ++i) {
                                sum += static_cast<double>(terms[c * of.spatial + i]);
                              }
                              gradients[c] = static_cast<C>(sum);
                            }
                          };
                          add(call.dgain, args.dgain);
                          add(call.dbias, args.dbias);
                        });
}

/// Computes the channels of all samples in one pass. gain and bias are not null.
template <class T, class C = Compute<T>>
void ForwardAsChannels(const GroupNormForwardArgs<T, C>& args, const Groups& of,
                       const GroupNormOptions& options) {
  const auto count = static_cast<double>(of.length);
  const double reciprocal = 1 / count;
  const C *const gain = args.gain, *const bias = args.bias;
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

/// Like ForwardAsChannels. dgain and dbias are both null or both not null.
template <class T, class C = Compute<T>>
void BackwardAsChannels(const GroupNormBackwardArgs<T, C>& args, const Groups& of,
                        const GroupNormOptions& options) {
  const int64_t channels = args.channels;
  const bool has_sums = args.dgain != nullptr;
  const double reciprocal = 1 / static_cast<double>(of.length);
  const C* const gain = args.gain;
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
  internal::RunParallel(options.parallel_for, channels, internal::GrainFor(2 * args.batch),
                        [&](int64_t begin, int64_t end) {
                          constexpr int64_t kAtOnce = 8;  // channels, a cache line of sums
                          const auto add = [&](int64_t first, int64_t n, C* gradients,
                                               const double* terms) {
                            double sum[kAtOnce] = {};
                            for (int64_t b = 0; b < args.batch; ++b) {
                              for (int64_t k = 0; k < n; ++k)
                                sum[k] += terms[b * channels + first + k];
                            }
                            for (int64_t k = 0; k < n; ++k) {
                              gradients[first + k] = static_cast<C>(sum[k]);
                            }
                          };
                          for (int64_t c = begin; c < end; c += kAtOnce) {
                            const int64_t n = std::min(kAtOnce, end - c);
                            add(c, n, args.dgain, dgains);
                            add(c, n, args.dbias, dgains + all);
                          }
                        });
}

}  // namespace

template <class T, class P>
void GroupNormForward(const GroupNormForwardArgs<T, P>& args, const GroupNormOptions& options) {
  if (internal::CheckGroupNorm("GroupNormForward", args, options) == 0) {
    internal::FillEach({args.mean, args.mean_lo, args.rstd}, args.batch * args.groups,
                       std::numeric_limits<Compute<T>>::quiet_NaN());
    return;
  }
  const Groups of(args, options);
  const bool needed = args.gain != nullptr || args.bias != nullptr || !of.AreRows();
  const internal::Params<T, P> gains(args.gain, args.batch, args.channels, 1, needed);
  const internal::Params<T, P> biases(args.bias, args.batch, args.channels, 0, needed);
  const auto call = internal::WithParams(args, gains, biases);
  of.AreRows() ? ForwardAsRows<T>(call, of, options) : ForwardAsChannels<T>(call, of, options);
}

template <class T, class P>
void GroupNormBackward(const GroupNormBackwardArgs<T, P>& args, const GroupNormOptions& options) {
  const int64_t channels = args.channels;
  if (internal::CheckGroupNorm("GroupNormBackward", args, options) == 0) {
    internal::FillEach({args.dgain, args.dbias}, channels, P{});
    return;
  }
  const bool columns = internal::HasParamGradients(args);
  if (args.dx == nullptr && !columns) return;
  const Groups of(args, options);
  const bool needed = args.gain != nullptr || columns || !of.AreRows();
  const internal::Params<T, P> gains(args.gain, args.batch, channels, 1, needed);
  internal::ParamGradients<T, P> dgains(args.dgain, channels, columns);
  internal::ParamGradients<T, P> dbiases(args.dbias, channels, columns);
  const auto call =
      internal::WithParams(args, internal::RecipeOf(Norm::kLayer), gains, dgains, dbiases);
  of.AreRows() ? BackwardAsRows<T>(call, of, options) : BackwardAsChannels<T>(call, of, options);
  dgains.Finish();
  dbiases.Finish();
}

#define PLANISH_INSTANTIATE(T, P)                                                             \
  template void GroupNormForward(const GroupNormForwardArgs<T, P>&, const GroupNormOptions&); \
  template void GroupNormBackward(const GroupNormBackwardArgs<T, P>&, const GroupNormOptions&);
PLANISH_NORM_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace PLANISH_API
}  // namespace planish
