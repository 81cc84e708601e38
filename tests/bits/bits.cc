// Hashes the core's results for many inputs.
//   planish_bits > FILE            prints the hashes
//   planish_bits --compare FILE    prints the cases whose results differ from FILE in any bit
#include "tests/bits/bits.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "planish/batch_norm.h"
#include "planish/channel_norm.h"
#include "planish/group_norm.h"
#include "planish/norm.h"
#include "planish/online_norm.h"
#include "planish/parallel.h"
#include "planish/pointwise_norm.h"
#include "planish/rnn.h"
#include "planish/target.h"
#include "planish/weight_norm.h"
#include "src/base/tuning.h"
#include "src/norm/element_types.h"
#include "src/rnn/element_types.h"

namespace planish::bits {
namespace {

constexpr double kEps = 1e-3;

/// A user's ParallelFor: always three ranges, the last one first.
void InThreeParts(int64_t begin, int64_t end, int64_t /*grain*/, RangeTask task) {
  for (int64_t part = 3; part-- > 0;) {
    const int64_t from = begin + (end - begin) * part / 3;
    const int64_t to = begin + (end - begin) * (part + 1) / 3;
    if (from < to) task(from, to);
  }
}

enum class Values { kPlain, kFar, kScaled, kBroken };
struct NamedValues {
  const char* name;
  Values values;
};
constexpr NamedValues kValues[] = {{"plain", Values::kPlain},
                                   {"far", Values::kFar},
                                   {"scaled", Values::kScaled},
                                   {"broken", Values::kBroken}};

/// Returns a value of a row from u in [-1, 1).
template <class T>
double Value(Values values, int64_t row, bool middle, double u) {
  constexpr bool kHalf = std::is_same_v<T, float16>, kWide = std::is_same_v<T, double>;
  constexpr double kInf = std::numeric_limits<double>::infinity();
  switch (values) {
    case Values::kFar:  // a mean that is large beside the deviation
      if (kHalf) return 1000 + 8 * u;
      return 1e6 + (std::is_same_v<T, bfloat16> ? 1e4 : 1) * u;
    case Values::kScaled:  // squares that overflow, or vanish
      if (row % 2 == 0) return u * (kHalf ? 6e4 : kWide ? 1e200 : 1e30);
      return u * (kHalf ? 1e-6 : kWide ? 1e-200 : 1e-30);
    case Values::kBroken:
      if (row % 6 == 4) return 7;
      if (row % 6 == 5) return 0;
      if (middle && row % 6 == 1) return std::numeric_limits<double>::quiet_NaN();
      if (middle && row % 6 > 1) return row % 6 == 2 ? kInf : -kInf;
      return u;
    default:
      return 1 + 3 * u;
  }
}

/// Optional inputs and settings of a call.
struct Variant {
  const char* name;
  bool gain = true, bias = true;
  bool in_place = false;  ///< y = x and dx = dy; also a forward call that saves no statistics
  bool residual = false;  ///< added to x
  int64_t gap = 0;        ///< elements from one row to the next
  int64_t offset = 0;     ///< elements by which arrays are not aligned to a cache line
  bool parts = false;     ///< whether the caller has a ParallelFor
  bool dx = true;         ///< false: only the gradients of the parameters
  bool new_outputs = false;
};
constexpr Variant kFull = {.name = "full"};
constexpr Variant kBare = {.name = "bare", .gain = false, .bias = false, .in_place = true};
constexpr Variant kOffset = {.name = "offset", .bias = false, .offset = 1, .parts = true};
constexpr Variant kResidual = {.name = "residual", .residual = true, .gap = 3};
constexpr Variant kParams = {.name = "params", .dx = false};
constexpr Variant kBiasOnly = {.name = "bias", .gain = false, .dx = false};
constexpr Variant kFresh = {.name = "fresh", .new_outputs = true};

/// The inputs of a norm.
template <class T, class P>
struct Inputs {
  Inputs(int64_t rows, int64_t cols, int64_t params, int64_t statistics, const Variant& v,
         Values values = Values::kPlain)
      : stride(cols + v.gap),
        x(rows * stride, v.offset),
        dy(rows * stride, v.offset),
        residual(v.residual ? rows * stride : 0),
        dsum(v.residual ? rows * stride : 0),
        gain(params, v.offset),
        bias(params, v.offset),
        running(statistics),
        statistics(statistics) {
    Random random(static_cast<uint64_t>(rows * 7919 + cols));
    for (int64_t i = 0; i < x.size(); ++i) {
      const int64_t row = i / stride;
      const bool middle = i % stride == cols / 2;
      x.data()[i] = From<T>(Value<T>(values, row, middle, random.Uniform()));
    }
    for (Array<T>* array : {&dy, &residual, &dsum}) Fill(*array, random, 0);
    Fill(gain, random, 1);
    Fill(bias, random, 0);
    Fill(running, random, 1.5);
  }

  template <class E>
  static void Fill(Array<E>& array, Random& random, double mean) {
    for (int64_t i = 0; i < array.size(); ++i) array.data()[i] = From<E>(mean + random.Uniform());
  }

  int64_t stride;
  Array<T> x, dy, residual, dsum;
  Array<P> gain, bias;
  Array<Compute<T>> running;
  int64_t statistics;
};

/// Calls forward(f) and backward(b), whose sizes are set, with all arrays that F and B have.
template <class T, class P, class F, class B, class Forward, class Backward>
void Both(Hash& hash, const Inputs<T, P>& in, const Variant& v, F f, B b, Forward&& forward,
          Backward&& backward) {
  const Array<T> unset(in.x.size(), v.offset);
  Array<T> y = v.in_place ? in.x : unset, dx = v.in_place ? in.dy : unset;
  Array<T> sum(in.residual.size());
  Array<P> dgain(in.gain.size(), v.offset), dbias = dgain;
  Array<Compute<T>> mean(in.statistics), mean_lo = mean, rstd = mean, offset = mean,
                                         deviation = mean;
  Array<Compute<T>> running_mean = in.running, running_var = in.running;

  f.x = v.in_place ? y.data() : in.x.data();
  f.y = y.data();
  b.x = v.residual ? sum.data() : in.x.data();
  b.dy = v.in_place ? dx.data() : in.dy.data();
  if (v.dx) b.dx = dx.data();
  if (v.gain) f.gain = b.gain = in.gain.data(), b.dgain = dgain.data();
  if (v.bias) f.bias = in.bias.data(), b.dbias = dbias.data();
  if constexpr (requires { f.running_mean; }) {
    f.running_mean = running_mean.data(), f.running_var = running_var.data();
  }
  if constexpr (requires { b.running_mean; }) {
    b.running_mean = running_mean.data(), b.running_var = running_var.data();
  }
  if constexpr (requires { f.residual; }) {
    f.x_stride = f.y_stride = b.x_stride = b.dx_stride = b.dy_stride = in.stride;
    if (v.residual) {
      f.residual = in.residual.data(), f.sum = sum.data(), b.dsum = in.dsum.data();
      f.residual_stride = f.sum_stride = b.dsum_stride = in.stride;
    }
  }
  if (v.in_place) {
    forward(f);
    y.AddTo(hash);
    y = in.x;
    f.x = f.y = y.data();
  }
  if constexpr (requires { f.mean; }) {
    b.mean = f.mean = mean.data();
    b.mean_lo = f.mean_lo = mean_lo.data();
    b.rstd = f.rstd = rstd.data();
  }
  if constexpr (requires { f.deviation; }) {
    b.offset = f.offset = offset.data();
    b.deviation = f.deviation = deviation.data();
  }
  forward(f);
  backward(b);
  for (const Array<T>* array : {&y, &sum, &dx}) array->AddTo(hash);
  for (const Array<P>* array : {&dgain, &dbias}) array->AddTo(hash);
  for (const auto* array :
       {&mean, &mean_lo, &rstd, &offset, &deviation, &running_mean, &running_var}) {
    array->AddTo(hash);
  }
}

struct NormInfo {
  const char* name;
  Norm norm;
  bool affine;  ///< whether it takes gain and bias
};
constexpr NormInfo kNorms[] = {{"layer", Norm::kLayer, true},
                               {"rms", Norm::kRms, true},
                               {"layer_simple", Norm::kLayerSimple, false},
                               {"detach", Norm::kDetach, false},
                               {"detach_mean", Norm::kDetachMean, false},
                               {"detach_deviation", Norm::kDetachDeviation, false},
                               {"ada", Norm::kAda, false},
                               {"ada_as_coded", Norm::kAdaAsCoded, false}};

NormOptions OptionsOf(const Variant& v) {
  NormOptions options = {.eps = kEps, .scale = 1.25, .slope = 0.3, .new_outputs = v.new_outputs};
  if (v.parts) options.parallel_for = InThreeParts;
  return options;
}

/// Set of the norms and variants that are computed with a shape, from all to one.
enum class Reach { kAll, kFew, kOne };

/// Calls f(info, variant) for the norms and variants of a shape.
template <class F>
void ForNorms(Reach reach, int64_t cols, const Variant& v, F&& f) {
  for (const NormInfo& info : kNorms) {
    if ((reach != Reach::kAll || !v.dx) && !info.affine) continue;
    if (reach == Reach::kOne && info.norm != Norm::kLayer) continue;
    if (info.norm == Norm::kAdaAsCoded && cols < 2) continue;
    Variant own = v;
    own.gain = v.gain && info.affine;
    own.bias = v.bias && info.affine;
    f(info, own);
  }
}

struct RowShape {
  int64_t rows, cols;
  Reach reach = Reach::kAll;
};
// clang-format off
// Both sides of the widths at which kernels change; then rows for a few threads, and long rows.
constexpr RowShape kRowShapes[] = {
    {0, 5}, {5, 0}, {1, 1}, {11, 2}, {11, 8}, {11, 9}, {70, 16}, {70, 33}, {11, 79}, {11, 80},
    {11, 639}, {11, 640}, {37, 1000}, {9, 1024}, {5, 4096}, {5, 4097},
    {150, 1000, Reach::kFew}, {40, 2500, Reach::kFew}, {1100, 100, Reach::kFew},
    {15000, 7, Reach::kFew}, {40000, 1, Reach::kFew}, {2, (1 << 17) + 5, Reach::kFew}};
// 8 to 32 MiB in float, also where rows begin anywhere in a cache line.
constexpr RowShape kLargeRows[] = {
    {4096, 2048, Reach::kOne}, {3401, 1021, Reach::kOne}, {110011, 31, Reach::kOne},
    {480001, 7, Reach::kOne}, {430000, 8, Reach::kOne}, {7, 1 << 19, Reach::kOne},
    {2048, 1024, Reach::kOne}};
// clang-format on
constexpr RowShape kValueRows[] = {{13, 9}, {70, 33}, {13, 1000}, {7, 4097}};

template <class T, class P>
void Rows(Report& report, const std::string& types, const RowShape& shape, const Variant& v,
          const NamedValues& values) {
  const auto& [rows, cols, reach] = shape;
  const Inputs<T, P> in(rows, cols, cols, rows, v, values.values);
  const std::string where = " " + types + " " + std::to_string(rows) + "x" + std::to_string(cols) +
                            " " + v.name + " " + values.name;
  ForNorms(reach, cols, v, [&](const NormInfo& info, const Variant& own) {
    report.Case(std::string("rows ") + info.name + where, [&](Hash& hash) {
      Both(
          hash, in, own, NormForwardArgs<T, P>{.rows = rows, .cols = cols},
          NormBackwardArgs<T, P>{.rows = rows, .cols = cols},
          [&](const auto& f) { NormForward<T, P>(info.norm, f, OptionsOf(v)); },
          [&](const auto& b) { NormBackward<T, P>(info.norm, b, OptionsOf(v)); });
    });
  });
  if (v.residual || v.new_outputs) return;
  if (cols >= 2) {
    report.Case("online" + where, [&](Hash& hash) {
      OnlineNormOptions options = {.alpha = 0.2, .parallel_for = OptionsOf(v).parallel_for};
      std::vector<double> alphas(static_cast<size_t>(rows), 0.3);
      for (size_t row = 0; row < alphas.size(); row += 2) alphas[row] = 0.05;
      if (v.in_place) options.alphas = alphas.data();
      OnlineState state = {.mean = 0.25, .deviation = 1.5};
      Both(
          hash, in, v, OnlineNormForwardArgs<T, P>{.rows = rows, .cols = cols},
          OnlineNormBackwardArgs<T, P>{.rows = rows, .cols = cols},
          [&](const auto& f) {
            state = {.mean = 0.25, .deviation = 1.5};
            OnlineNormForward<T, P>(f, state, options);
          },
          [&](const auto& b) { OnlineNormBackward<T, P>(b, options); });
      hash.Add(&state.mean, 1);
      hash.Add(&state.deviation, 1);
    });
  }
  for (const Pointwise f : {Pointwise::kTanh, Pointwise::kErf}) {
    report.Case((f == Pointwise::kTanh ? "tanh" : "erf") + where, [&](Hash& hash) {
      const Array<T> unset(rows * cols, v.offset);
      Array<T> y = v.in_place ? in.x : unset, dx = v.in_place ? in.dy : unset;
      Array<P> alpha(1), dalpha(1), dshift(1), dgain(cols, v.offset), dbias(cols, v.offset);
      *alpha.data() = From<P>(0.625);
      const P* shift = f == Pointwise::kErf ? alpha.data() : nullptr;
      const ParallelFor parallel_for = OptionsOf(v).parallel_for;
      PointwiseNormForward<T, P>(f,
                                 {.rows = rows,
                                  .cols = cols,
                                  .x = v.in_place ? y.data() : in.x.data(),
                                  .alpha = alpha.data(),
                                  .shift = shift,
                                  .gain = in.gain.data(),
                                  .bias = in.bias.data(),
                                  .y = y.data()},
                                 parallel_for);
      PointwiseNormBackward<T, P>(f,
                                  {.rows = rows,
                                   .cols = cols,
                                   .dy = v.in_place ? dx.data() : in.dy.data(),
                                   .x = in.x.data(),
                                   .alpha = alpha.data(),
                                   .shift = shift,
                                   .gain = in.gain.data(),
                                   .dx = v.dx ? dx.data() : nullptr,
                                   .dalpha = dalpha.data(),
                                   .dshift = dshift.data(),
                                   .dgain = dgain.data(),
                                   .dbias = dbias.data()},
                                  parallel_for);
      for (const Array<T>* array : {&y, &dx}) array->AddTo(hash);
      for (const Array<P>* array : {&dalpha, &dshift, &dgain, &dbias}) array->AddTo(hash);
    });
  }
  const Inputs<T, P> lengths(rows, cols, rows, rows, v, values.values);
  report.Case("weight" + where, [&](Hash& hash) {
    const Array<T> unset(rows * cols, v.offset);
    Array<T> w = v.in_place ? lengths.x : unset, dv = v.in_place ? lengths.dy : unset;
    Array<Compute<T>> norm(rows);
    Array<P> dg(rows, v.offset);
    const ParallelFor parallel_for = OptionsOf(v).parallel_for;
    WeightNormForward<T, P>({.rows = rows,
                             .cols = cols,
                             .v = v.in_place ? w.data() : lengths.x.data(),
                             .g = lengths.gain.data(),
                             .w = w.data(),
                             .norm = norm.data()},
                            parallel_for);
    WeightNormBackward<T, P>({.rows = rows,
                              .cols = cols,
                              .dw = v.in_place ? dv.data() : lengths.dy.data(),
                              .v = lengths.x.data(),
                              .g = lengths.gain.data(),
                              .norm = norm.data(),
                              .dv = v.dx ? dv.data() : nullptr,
                              .dg = dg.data()},
                             parallel_for);
    for (const Array<T>* array : {&w, &dv}) array->AddTo(hash);
    dg.AddTo(hash);
    norm.AddTo(hash);
  });
}

struct ImageShape {
  int64_t batch, channels, spatial;
  Reach reach = Reach::kAll;
};
// clang-format off
constexpr ImageShape kImageShapes[] = {
    {0, 3, 5}, {2, 0, 3}, {2, 5, 0}, {1, 1, 1}, {1, 3, 2}, {3, 5, 7}, {4, 17, 49}, {2, 64, 196},
    {2, 3, 999}, {37, 300, 1}, {70, 8, 1}, {600, 33, 1}, {9, 1, 33}, {8, 96, 196, Reach::kFew},
    {3, 10, 4096, Reach::kFew}, {2500, 30, 1, Reach::kFew}, {64, 2100, 1, Reach::kFew}, {8, 20000, 1, Reach::kFew}};
// 9 to 14 MiB in float.
constexpr ImageShape kLargeImages[] = {
    {14, 256, 1024, Reach::kOne}, {3400, 1024, 1, Reach::kOne}, {28, 300, 421, Reach::kOne},
    {32, 384, 196, Reach::kOne}};
// clang-format on
constexpr ImageShape kValueImages[] = {{3, 5, 7}, {2, 64, 49}, {37, 30, 1}};

template <class T, class P>
void Images(Report& report, const std::string& types, const ImageShape& shape, const Variant& v,
            const NamedValues& values) {
  const auto& [batch, channels, spatial, reach] = shape;
  const std::string where = " " + types + " " + std::to_string(batch) + "x" +
                            std::to_string(channels) + "x" + std::to_string(spatial) + " " +
                            v.name + " " + values.name;
  const auto inputs = [&](int64_t statistics) {
    return Inputs<T, P>(batch * channels, spatial, channels, statistics, v, values.values);
  };
  const auto sizes = [&]<class A>(A args) {
    args.batch = batch, args.channels = channels, args.spatial = spatial;
    return args;
  };
  const Inputs<T, P> positions = inputs(batch * spatial), in = inputs(channels);
  ForNorms(reach, channels, v, [&](const NormInfo& info, const Variant& own) {
    report.Case(std::string("channels ") + info.name + where, [&](Hash& hash) {
      Both(
          hash, positions, own, sizes(ChannelNormForwardArgs<T, P>()),
          sizes(ChannelNormBackwardArgs<T, P>()),
          [&](const auto& f) { ChannelNormForward<T, P>(info.norm, f, OptionsOf(v)); },
          [&](const auto& b) { ChannelNormBackward<T, P>(info.norm, b, OptionsOf(v)); });
    });
  });
  BatchNormOptions options = {.eps = kEps, .parallel_for = OptionsOf(v).parallel_for};
  if (v.in_place) options.unbiased = true, options.momentum.reset(), options.batches = 3;
  if (batch * spatial != 1) {
    report.Case("batch" + where, [&](Hash& hash) {
      Both(
          hash, in, v, sizes(BatchNormForwardArgs<T, P>()), sizes(BatchNormBackwardArgs<T, P>()),
          [&](const auto& f) { BatchNormForward<T, P>(f, options); },
          [&](const auto& b) { BatchNormBackward<T, P>(b, options); });
    });
  }
  for (const bool last : {false, true}) {
    // Groups of the largest of these sizes that divides the channels.
    const int64_t size = channels % 8 == 0 ? 8 : channels % 3 == 0 ? 3 : 1;
    const int64_t groups = std::max<int64_t>(1, channels / size);
    const GroupNormOptions group_options = {
        .eps = kEps, .channels_last = last, .parallel_for = OptionsOf(v).parallel_for};
    auto forward = sizes(GroupNormForwardArgs<T, P>());
    auto backward = sizes(GroupNormBackwardArgs<T, P>());
    forward.groups = backward.groups = groups;
    const Inputs<T, P> of_groups = inputs(batch * groups);
    report.Case((last ? "group last" : "group") + where, [&](Hash& hash) {
      Both(
          hash, of_groups, v, forward, backward,
          [&](const auto& f) { GroupNormForward<T, P>(f, group_options); },
          [&](const auto& b) { GroupNormBackward<T, P>(b, group_options); });
    });
  }
  report.Case("batch evaluate" + where, [&](Hash& hash) {
    Both(
        hash, in, v, sizes(BatchNormEvaluateArgs<T, P>()),
        sizes(BatchNormEvaluateBackwardArgs<T, P>()),
        [&](const auto& f) { BatchNormEvaluate<T, P>(f, options); },
        [&](const auto& b) { BatchNormEvaluateBackward<T, P>(b, options); });
  });
}

template <class T, class P>
void Norms(Report& report, const std::string& types) {
  const NamedValues& plain = kValues[0];
  for (const RowShape& shape : kRowShapes) {
    for (const Variant& v : {kFull, kBare, kOffset, kParams, kResidual}) {
      Rows<T, P>(report, types, shape, v, plain);
    }
  }
  for (const ImageShape& shape : kImageShapes) {
    for (const Variant& v : {kFull, kBare, kOffset, kParams, kBiasOnly}) {
      Images<T, P>(report, types, shape, v, plain);
    }
  }
  for (const NamedValues& values : kValues) {
    if (values.values == Values::kPlain) continue;
    for (const RowShape& shape : kValueRows) Rows<T, P>(report, types, shape, kFull, values);
    for (const ImageShape& shape : kValueImages) Images<T, P>(report, types, shape, kFull, values);
  }
}

/// Calls that are large enough for non-temporal stores and for all threads.
template <class T, class P>
void LargeNorms(Report& report, const std::string& types) {
  constexpr bool kHalf = sizeof(T) == 2;
  for (RowShape shape : std::span(kLargeRows).first(kHalf ? 3 : std::size(kLargeRows))) {
    if (kHalf) shape.rows *= 2;
    Rows<T, P>(report, types, shape, kFull, kValues[0]);
    if (shape.cols != 2048 && shape.cols != 1021) continue;
    for (const Variant& v : {kResidual, kFresh}) Rows<T, P>(report, types, shape, v, kValues[0]);
  }
  for (const ImageShape& shape : kLargeImages) {
    Images<T, P>(report, types, shape, kFull, kValues[0]);
  }
}

/// Optional inputs and settings of a call of a recurrent layer.
struct RnnVariant {
  const char* name;
  int64_t time, batch, inputs;
  bool states = true;   ///< first states, and gradients of the last ones
  bool ragged = false;  ///< lengths and resets
  bool reverse = false, checkpoint = false, packed = false;
  bool affine = true;              ///< optional parameters
  bool dx = true, dparams = true;  ///< the requested gradients
  bool broken = false;             ///< NaN in a sequence
  int64_t min_hidden = 1, max_hidden = 200;
};
constexpr RnnVariant kRnnVariants[] = {
    {.name = "weights",
     .time = 5,
     .batch = 3,
     .inputs = 7,
     .states = false,
     .affine = false,
     .dx = false},
    {.name = "inputs", .time = 4, .batch = 4, .inputs = 16, .dparams = false},
    {.name = "ragged", .time = 6, .batch = 5, .inputs = 9, .ragged = true},
    {.name = "reverse", .time = 6, .batch = 5, .inputs = 9, .ragged = true, .reverse = true},
    {.name = "packed", .time = 4, .batch = 2, .inputs = 33, .packed = true},
    {.name = "broken", .time = 3, .batch = 9, .inputs = 5, .broken = true, .max_hidden = 17},
    {.name = "one", .time = 1, .batch = 1, .inputs = 1},
    {.name = "no steps", .time = 0, .batch = 2, .inputs = 3, .max_hidden = 3},
    {.name = "no sequences", .time = 2, .batch = 0, .inputs = 3, .max_hidden = 3},
    {.name = "many", .time = 9, .batch = 65, .inputs = 20, .min_hidden = 17, .max_hidden = 17},
    {.name = "checkpoint",
     .time = 9,
     .batch = 64,
     .inputs = 20,
     .ragged = true,
     .checkpoint = true,
     .min_hidden = 16,
     .max_hidden = 17}};
/// A layer that saves more for backward than an L3 cache holds.
constexpr RnnVariant kLargeRnn = {.name = "large", .time = 105, .batch = 65, .inputs = 40};

template <class T>
class Layer {
 public:
  Layer(const CellInfo& info, const RnnVariant& v, int64_t hidden)
      : info_(info),
        v_(v),
        shape_{v.time, v.batch, v.inputs, hidden},
        states_(v.batch * hidden),
        cells_(states_ * info.recipe.cell_parts()) {
    Random random(static_cast<uint64_t>(hidden * 31 + v.time));
    in_.shape = shape_;
    T* x = values_.Uniform(random, v.time * v.batch * v.inputs, 2);
    if (v.broken) x[v.batch * v.inputs + v.inputs] = From<T>(NAN);  // time 1, sequence 1
    in_.x = x;
    const auto table = internal::ParamsOf<const T>(info.recipe, shape_);
    for (const auto& [index, size, columns, mean] : ParamsOf(info, shape_)) {
      if (!v.affine && columns == 0) continue;
      const double scale = columns > 0 ? 2 / std::sqrt(static_cast<double>(columns)) : 0.5;
      in_.params.*table[index].member = values_.Uniform(random, size, scale, mean);
    }
    const bool c = info.lstm();
    dy_ = values_.Uniform(random, v.time * states_);
    if (v.states) {
      in_.h0 = values_.Uniform(random, states_), dh_n_ = values_.Uniform(random, states_);
      if (c) in_.c0 = values_.Uniform(random, cells_), dc_n_ = values_.Uniform(random, cells_);
    }
    if (v.ragged) {
      for (int64_t b = 0; b < v.batch; ++b) {
        lengths_.push_back(1 + static_cast<int64_t>(random.Next() % v.time));
      }
      for (int64_t i = 0; i < v.time * v.batch; ++i) resets_.push_back(random.Next() % 4 == 0);
      in_.lengths = lengths_.data(), in_.resets = resets_.data();
      in_.h_reset = values_.Uniform(random, hidden);
      if (c) in_.c_reset = values_.Uniform(random, hidden * info.recipe.cell_parts());
    }
    in_.reverse = v.reverse;
  }

  /// Computes the layer forward, with and without saving for backward, and backward.
  void Sequences(Hash& hash) const {
    Arrays<T> out, saved;
    RnnForwardArgs<T> f = {.inputs = Given()};
    RnnBackwardArgs<T> b = {.inputs = Given(), .dy = dy_, .dh_n = dh_n_, .dc_n = dc_n_};
    const RnnOptions<T> options = Options();
    for (const bool keep : {false, true}) {
      f.y = out.Unset(v_.time * states_);
      f.h_n = out.Unset(states_);
      if (info_.lstm()) f.c_n = out.Unset(cells_);
      if (keep) f.saved = saved.Unset(RnnSavedSize<T>(info_.cell, shape_, v_.checkpoint));
      RnnForward<T>(info_.cell, f, options);
    }
    b.y = f.y, b.saved = f.saved;
    if (v_.dx) b.dx = out.Unset(v_.time * v_.batch * v_.inputs);
    if (v_.states) b.dh0 = out.Unset(states_);
    if (v_.ragged) b.dh_reset = out.Unset(shape_.hidden);
    if (info_.lstm() && v_.states) b.dc0 = out.Unset(cells_);
    if (info_.lstm() && v_.ragged)
      b.dc_reset = out.Unset(shape_.hidden * info_.recipe.cell_parts());
    if (v_.dparams) b.dparams = Gradients(out);
    RnnBackward<T>(info_.cell, b, options);
    out.AddTo(hash);
  }

  /// Computes single steps: in place without gradients, and with gradients back to the first step,
  /// where those of the parameters are summed over all steps.
  void Steps(Hash& hash) const {
    RnnOptions<T> options = Options();
    const RnnPackedParams<T> packed(info_.cell, v_.inputs, shape_.hidden, in_.params,
                                    options.parallel_for, true);
    Arrays<T> out, saved;
    T* h = out.Unset(states_);
    T* c = info_.lstm() ? out.Unset(cells_) : nullptr;
    RnnStepArgs<T> step = {.batch = v_.batch,
                           .inputs = v_.inputs,
                           .hidden = shape_.hidden,
                           .params = in_.params,
                           .h = in_.h0,
                           .c = in_.c0,
                           .h_next = h,
                           .c_next = c};
    RnnForwardArgs<T> f = {
        .inputs = {.shape = {1, v_.batch, v_.inputs, shape_.hidden}, .h0 = in_.h0, .c0 = in_.c0}};
    std::vector<RnnForwardArgs<T>> taken;
    for (int64_t t = 0; t < v_.time; ++t) {
      options.packed = t % 2 ? packed : RnnPackedParams<T>();
      step.x = in_.x + t * v_.batch * v_.inputs;
      RnnStep<T>(info_.cell, step, options);
      step.h = h, step.c = c;
      out.AddTo(hash);
      options.packed = packed;
      f.inputs.x = step.x;
      f.y = out.Unset(states_);
      f.c_n = info_.lstm() ? out.Unset(cells_) : nullptr;
      f.saved = saved.Unset(RnnSavedSize<T>(info_.cell, f.inputs.shape));
      RnnForward<T>(info_.cell, f, options);
      taken.push_back(f);
      f.inputs.h0 = f.y, f.inputs.c0 = f.c_n;
    }
    RnnGradientSums<T> sums(packed);
    const T *dh = dh_n_, *dc = dc_n_;
    for (int64_t t = v_.time; t-- > 0;) {
      const RnnForwardArgs<T>& was = taken[static_cast<size_t>(t)];
      RnnBackwardArgs<T> b = {.inputs = was.inputs,
                              .y = was.y,
                              .saved = was.saved,
                              .dy = dy_ + t * states_,
                              .dh_n = dh,
                              .dc_n = dc,
                              .sums = &sums};
      b.dx = out.Unset(v_.batch * v_.inputs);
      dh = b.dh0 = out.Unset(states_);
      if (info_.lstm()) dc = b.dc0 = out.Unset(cells_);
      RnnBackward<T>(info_.cell, b, options);
    }
    sums.Write(Gradients(out), options.parallel_for);
    out.AddTo(hash);
  }

 private:
  RnnInputs<T> Given() const {
    RnnInputs<T> given = in_;
    if (v_.packed) given.params = {};
    return given;
  }

  RnnOptions<T> Options() const {
    RnnOptions<T> options = {.eps = kEps, .checkpoint = v_.checkpoint};
    if (v_.packed) {
      options.parallel_for = InThreeParts;
      options.packed = RnnPackedParams<T>(info_.cell, v_.inputs, shape_.hidden, in_.params,
                                          options.parallel_for, true);
    }
    return options;
  }

  /// Returns arrays for the gradients of all parameters that the cell takes.
  RnnParams<T> Gradients(Arrays<T>& out) const {
    RnnParams<T> gradients;
    for (const auto& param : internal::ParamsOf<T>(info_.recipe, shape_)) {
      if (param.taken) gradients.*param.member = out.Unset(param.size);
    }
    return gradients;
  }

  CellInfo info_;
  RnnVariant v_;
  RnnShape shape_;
  int64_t states_, cells_;  // elements of h and of c
  Arrays<T> values_;
  std::vector<int64_t> lengths_;
  std::vector<uint8_t> resets_;
  RnnInputs<T> in_;
  const T *dy_ = nullptr, *dh_n_ = nullptr, *dc_n_ = nullptr;
};

template <class T>
void Layers(Report& report, const std::string& type) {
  const auto sequences = [&](const CellInfo& info, const RnnVariant& v, int64_t hidden) {
    const Layer<T> layer(info, v, hidden);
    const std::string where =
        std::string(info.name) + " " + type + " " + std::to_string(hidden) + " " + v.name;
    report.Case("rnn " + where, [&](Hash& hash) { layer.Sequences(hash); });
    if (info.over_batch() || v.ragged || v.checkpoint || v.name == kLargeRnn.name) return;
    report.Case("steps " + where, [&](Hash& hash) { layer.Steps(hash); });
  };
  for (const internal::NamedCell& named : internal::kNamedCells) {
    const CellInfo info(named);
    for (const int64_t hidden : {1, 3, 16, 17, 64, 200}) {
      for (const RnnVariant& v : kRnnVariants) {
        if (v.min_hidden <= hidden && hidden <= v.max_hidden) sequences(info, v, hidden);
      }
    }
    if (info.cell == Cell::kLnLstm && sizeof(T) == 4) sequences(info, kLargeRnn, 64);
  }
}

/// Tunings that together cover all code paths. The first one is this machine's.
constexpr const char* kTunings[] = {
    "",
    "slow_l3=1",
    "nt_store_call_bytes=0,nt_store_saved_bytes=0",
    ("slow_l3=1,l1_holds_four_rows=0,nt_store_call_bytes=1099511627776,"
     "nt_store_thread_bytes=1099511627776,prefetch_output_bytes=0,own_weight_bytes=0,"
     "run_tile_bytes=0,untiled_rows=0"),
    "l1_bytes=1,l2_bytes=1,l3_bytes=1",
    ("l1_bytes=1048576,l2_bytes=1099511627776,l3_bytes=1099511627776,slow_l3=0,"
     "untiled_rows=1099511627776")};

int Main(int argc, char** argv) {
#ifdef __GLIBC__
  // Keeps large arrays in the heap. Otherwise page faults would take most of the time.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
  if (!Report::Understands(argc, argv)) return 2;
  std::optional<internal::ScopedTuning> tuning;
  Report report({.targets = Targets(),
                 .set_target = SetTarget,
                 .set_threads = SetThreads,
                 .set_tuning = [&](size_t turn) {
                   tuning.emplace(internal::TuningFor(internal::MachineCaches(),
                                                      kTunings[turn % std::size(kTunings)]));
                 }});
  LargeNorms<float, float>(report, "float/float");
  LargeNorms<bfloat16, float>(report, "bfloat16/float");
#define PLANISH_BITS_NORMS(T, P) Norms<T, P>(report, #T "/" #P);
  PLANISH_NORM_TYPES(PLANISH_BITS_NORMS)
#undef PLANISH_BITS_NORMS
#define PLANISH_BITS_LAYERS(T) Layers<T>(report, #T);
  PLANISH_RNN_TYPES(PLANISH_BITS_LAYERS)
#undef PLANISH_BITS_LAYERS
  return report.Finish(argc, argv);
}

}  // namespace
}  // namespace planish::bits

int main(int argc, char** argv) { return planish::bits::Main(argc, argv); }
