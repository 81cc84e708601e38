#include "planish/online_norm.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>

#include "src/base/check.h"
#include "src/base/loop.h"
#include "src/norm/cpu.h"
#include "src/norm/online_norm_check.h"
#include "src/norm/params.h"
#include "src/norm/rows.h"

namespace planish {
namespace {

using internal::Output;
using internal::Recipe;

constexpr Recipe kRecipe{true, true, true, Output::kAffine};

// Elements for each thread whose moments are taken before the first of them is normalised, while
// those before them are: the second-level cache has them still. More come from memory twice; with
// fewer the threads, which meet once a wave, wait. And rows, however long they are: threads share
// out rows.
constexpr int64_t kWave = int64_t{1} << 16;
constexpr int64_t kLeastRows = 16;

// How many rows a wave has.
int64_t RowsPerWave(const ParallelFor& parallel_for, int64_t rows, int64_t cols) {
  if (rows * cols <= kWave) return rows;
  std::atomic<int64_t> threads = 0;
  internal::RunParallel(parallel_for, rows, internal::GrainFor(cols),
                        [&](int64_t, int64_t) { ++threads; });
  return std::min(rows, std::max(threads * kWave / cols, kLeastRows));
}

void CheckOnline(const char* function, const OnlineNormOptions& options, int64_t rows,
                 int64_t cols) {
  internal::CheckCases(function, cols);
  if (options.alphas == nullptr) return internal::CheckAlpha(function, "alpha", options.alpha);
  for (int64_t r = 0; r < rows; ++r) {
    internal::CheckAlpha(function, "alphas[" + std::to_string(r) + "]", options.alphas[r]);
  }
}

double AlphaOf(const OnlineNormOptions& options, int64_t r) {
  return options.alphas ? options.alphas[r] : options.alpha;
}

}  // namespace

template <class T, class P>
void OnlineNormForward(const OnlineNormForwardArgs<T, P>& args, OnlineState& state,
                       const OnlineNormOptions& options) {
  constexpr const char* kFunction = "OnlineNormForward";
  using C = Compute<T>;
  const int64_t rows = args.rows, cols = args.cols;
  internal::CheckShape<T>(kFunction, rows, cols);
  CheckOnline(kFunction, options, rows, cols);
  internal::CheckFinite(kFunction, "state.mean", state.mean);
  if (!std::isfinite(state.deviation) || state.deviation < 0) {
    internal::Fail(kFunction, "state.deviation", "be finite and at least 0",
                   std::to_string(state.deviation));
  }
  internal::CheckOnlineForward(kFunction, args);
  if (rows == 0) return;

  const internal::Params<T, P> gains(args.gain, rows, cols, 1, true),
      biases(args.bias, rows, cols, 0, true);
  const int64_t wave = RowsPerWave(options.parallel_for, rows, cols);
  const auto moments = std::make_unique_for_overwrite<C[]>(6 * wave);
  const auto wave_at = [&](int64_t begin) {
    C* const own = moments.get() + begin / wave % 2 * 3 * wave;
    internal::RowsForward<T> call;
    call.recipe = kRecipe;
    call.rows = std::clamp<int64_t>(rows - begin, 0, wave);
    call.cols = cols;
    call.x = args.x + std::min(begin, rows) * cols;
    call.y = args.y + std::min(begin, rows) * cols;
    call.x_stride = call.y_stride = cols;
    call.gain = gains.data();
    call.bias = biases.data();
    call.mean = own;
    call.mean_lo = own + wave;
    call.rstd = own + 2 * wave;
    return call;
  };
  // Of `before` the results, and of `call`, the wave after it, the moments.
  const int64_t bytes = 2 * rows * cols * static_cast<int64_t>(sizeof(T));
  internal::RowsForward<T> before = wave_at(rows), call = wave_at(0);
  const auto run = [&] {
    const int64_t n = std::max(before.rows, call.rows);
    internal::RunParallel(options.parallel_for, n, internal::GrainFor(cols),
                          [&](int64_t begin, int64_t end) {
                            internal::RowsForward<T> map = before;
                            map.stream = internal::Streams(bytes, end - begin == n);
                            internal::MapAndSumRows(map, call, begin, end);
                          });
  };
  run();
  const auto n = static_cast<double>(cols);
  const double unbiased = n / (n - 1);
  double mean = state.mean, deviation = state.deviation;
  for (int64_t begin = 0; begin < rows; begin += wave) {
    for (int64_t i = 0; i < call.rows; ++i) {
      const int64_t r = begin + i;
      const double alpha = AlphaOf(options, r);
      const double own = static_cast<double>(call.mean[i]) + static_cast<double>(call.mean_lo[i]);
      // Without eps rstd is 1 over the case's own biased deviation.
      const double own_deviation = 1 / static_cast<double>(call.rstd[i]);
      mean = alpha * own + (1 - alpha) * mean;
      const double off = own - mean;
      const double s = std::sqrt((own_deviation * own_deviation + off * off) * unbiased);
      deviation = alpha * s + (1 - alpha) * deviation;
      call.mean[i] = static_cast<C>(mean);
      call.mean_lo[i] = static_cast<C>(mean - static_cast<double>(call.mean[i]));
      call.rstd[i] = static_cast<C>(1 / deviation);
      if (args.mean) args.mean[r] = call.mean[i];
      if (args.mean_lo) args.mean_lo[r] = call.mean_lo[i];
      if (args.rstd) args.rstd[r] = call.rstd[i];
      if (args.offset) args.offset[r] = static_cast<C>(off);
      if (args.deviation) args.deviation[r] = static_cast<C>(s);
    }
    before = call;
    call = wave_at(begin + wave);
    run();
  }
  state = {mean, deviation};
}

template <class T, class P>
void OnlineNormBackward(const OnlineNormBackwardArgs<T, P>& args,
                        const OnlineNormOptions& options) {
  constexpr const char* kFunction = "OnlineNormBackward";
  const int64_t rows = args.rows, cols = args.cols;
  internal::CheckShape<T>(kFunction, rows, cols);
  CheckOnline(kFunction, options, rows, cols);
  internal::CheckOnlineBackward(kFunction, args);
  if (rows == 0) {
    internal::FillEach({args.dgain, args.dbias}, cols, P{});
    return;
  }

  const auto factors = std::make_unique_for_overwrite<internal::GradientFactors[]>(rows);
  const auto n = static_cast<double>(cols);
  for (int64_t r = 0; r < rows; ++r) {
    const double alpha = AlphaOf(options, r), s = static_cast<double>(args.deviation[r]);
    const double reciprocal = static_cast<double>(args.rstd[r]);
    factors[r] = {.mean = alpha,
                  .scale = s == 0 ? 0 : alpha * n / ((n - 1) * s * reciprocal),
                  .shift = alpha * static_cast<double>(args.offset[r]) * reciprocal};
  }
  const bool columns = args.dgain || args.dbias;
  const internal::Params<T, P> gains(args.gain, rows, cols, 1, true);
  internal::ParamSums<T, P> dgains(args.dgain, cols, columns), dbiases(args.dbias, cols, columns);
  internal::RowsBackward<T> call;
  call.recipe = kRecipe;
  call.rows = rows;
  call.cols = cols;
  call.dy = args.dy;
  call.x = args.x;
  call.dx = args.dx;
  call.dy_stride = call.x_stride = call.dx_stride = cols;
  call.gain = gains.data();
  call.mean = args.mean;
  call.mean_lo = args.mean_lo;
  call.rstd = args.rstd;
  call.factors = factors.get();
  call.stream = true;
  internal::BackwardMatrix(call, dgains.data(), dbiases.data(), options.parallel_for);
  dgains.Finish();
  dbiases.Finish();
}

#define PLANISH_INSTANTIATE(T, P)                                                   \
  template void OnlineNormForward(const OnlineNormForwardArgs<T, P>&, OnlineState&, \
                                  const OnlineNormOptions&);                        \
  template void OnlineNormBackward(const OnlineNormBackwardArgs<T, P>&, const OnlineNormOptions&);
PLANISH_NORM_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace planish
