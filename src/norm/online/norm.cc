#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "planish/online_norm.h"
#include "src/base/await.h"
#include "src/base/check.h"
#include "src/base/loop.h"
#include "src/norm/online/check.h"
#include "src/norm/params.h"
#include "src/norm/rows/cpu.h"
#include "src/norm/rows/rows.h"

namespace planish {
namespace {

using internal::Output;
using internal::Recipe;

constexpr Recipe kRecipe{true, true, true, Output::kAffine};

// Limits on the elements of a turn, a group of rows; the default is a 64th of all elements. Short
// turns are still in the L2 cache when they are normalized; long turns amortize the work per turn.
constexpr int64_t kShortTurn = int64_t{1} << 14, kLongTurn = int64_t{1} << 16;

// Elements of a turn if one thread processes all rows; limits the statistics it keeps.
constexpr int64_t kTurnAlone = int64_t{1} << 17;

// State passed from turn to turn, whichever thread processes them.
struct Chain {
  double mean, deviation;
  std::vector<std::atomic<bool>> taken;  // for each turn
  std::atomic<uint64_t> turns{0};        // number of completed turns
};

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
  const int64_t turn_elements = std::clamp(rows * cols / 64, kShortTurn, kLongTurn);
  const int64_t most = std::clamp<int64_t>(turn_elements / cols, 1, rows);
  const int64_t turns = (rows - 1) / most + 1;
  const int64_t bytes = 2 * rows * cols * static_cast<int64_t>(sizeof(T));
  const auto n = static_cast<double>(cols);
  const double unbiased = n / (n - 1);
  Chain chain{.mean = state.mean,
              .deviation = state.deviation,
              .taken = std::vector<std::atomic<bool>>(static_cast<size_t>(turns))};
  // Replaces the statistics of single rows by the running ones, in order, for rows [begin, end) of
  // `call`. Row 0 of `call` is row `first`.
  const auto count_in = [&](int64_t first, const internal::RowsForward<T>& call, int64_t begin,
                            int64_t end) {
    double mean = chain.mean, deviation = chain.deviation;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t r = first + i;
      const double alpha = AlphaOf(options, r);
      const double own = static_cast<double>(call.mean[i]) + static_cast<double>(call.mean_lo[i]);
      // With eps = 0, rstd is 1 over the case's own biased deviation.
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
    chain.mean = mean;
    chain.deviation = deviation;
  };
  // Returns the call for rows [begin, begin + count). mean, mean_lo and rstd are in `moments`,
  // `stride` elements apart.
  const auto call_on = [&](int64_t begin, int64_t count, C* moments, int64_t stride) {
    internal::RowsForward<T> call;
    call.recipe = kRecipe;
    call.rows = count;
    call.cols = cols;
    call.x = args.x + begin * cols;
    call.y = args.y + begin * cols;
    call.x_stride = call.y_stride = cols;
    call.gain = gains.data();
    call.bias = biases.data();
    call.mean = moments;
    call.mean_lo = moments + stride;
    call.rstd = moments + 2 * stride;
    return call;
  };
  // A single thread processes the rows like any other norm over rows.
  const int64_t kept = std::clamp<int64_t>(kTurnAlone / cols, 1, rows);
  const auto make_moments = [&] {
    return std::make_unique_for_overwrite<C[]>(std::max(3 * kept, 9 * most));
  };
  using Statistics = std::unique_ptr<C[]>;
  const auto take_all = [&](const Statistics& moments) {
    for (int64_t begin = 0; begin < rows; begin += kept) {
      auto call = call_on(begin, std::min(kept, rows - begin), moments.get(), kept);
      call.stream = internal::Streams(bytes, 1, 1);
      call.ask = internal::AsksForResults(bytes, 1, 1);
      const auto revise = [&](int64_t first, int64_t last) { count_in(begin, call, first, last); };
      const RangeTask task = revise;
      call.revise = &task;
      internal::ForwardRows(call, 0, call.rows);
    }
  };
  // Each thread processes every `threads`-th turn, always the same ones, which its caches can still
  // hold. It also takes turns that are due but not taken, because a range can start late or run on
  // the same thread. While it normalizes one turn it computes the statistics of its next turn. A
  // waiting thread waits only for a turn that another thread is processing.
  const auto take_turns = [&](int64_t range_begin, int64_t range_end, const Statistics& moments) {
    const int64_t share = range_end - range_begin;
    if (share == turns) {
      take_all(moments);
      return;
    }
    const int64_t threads = std::max<int64_t>(1, (turns + share / 2) / share);
    const auto call_of = [&](int64_t turn, int side) {
      const int64_t begin = std::min(turn * most, rows);
      auto call =
          call_on(begin, std::min(most, rows - begin), moments.get() + side * 3 * most, most);
      // No prefetch of results: the lines behind a turn belong to another thread.
      call.stream = internal::Streams(bytes, share, turns);
      return call;
    };
    const internal::RowsForward<T> none = call_of(turns, 0);
    const auto take = [&](int64_t turn) { return !chain.taken[turn].exchange(true); };
    const auto take_own = [&](int64_t turn) {
      while (turn < turns && !take(turn)) turn += threads;
      return turn;
    };
    const auto publish = [&](int64_t turn, const internal::RowsForward<T>& call) {
      count_in(turn * most, call, 0, call.rows);
      chain.turns.store(static_cast<uint64_t>(turn) + 1, std::memory_order_release);
      chain.turns.notify_all();
    };
    const auto await = [&](int64_t turn) {
      uint64_t seen = chain.turns.load(std::memory_order_acquire);
      while (static_cast<int64_t>(seen) < turn) {
        if (!take(static_cast<int64_t>(seen))) {
          seen = internal::AwaitChange(chain.turns, seen);
          continue;
        }
        const internal::RowsForward<T> call = call_of(static_cast<int64_t>(seen), 2);
        internal::MapAndSumRows(none, call);
        publish(static_cast<int64_t>(seen), call);
        internal::MapAndSumRows(call, none);
        ++seen;
      }
    };
    int side = 0;
    int64_t turn = take_own((range_begin + share / 2) / share % threads);
    internal::RowsForward<T> call = call_of(turn, side);
    internal::MapAndSumRows(none, call);
    while (turn < turns) {
      await(turn);
      publish(turn, call);
      turn = take_own(turn + threads);
      side = 1 - side;
      const internal::RowsForward<T> map = call;
      call = call_of(turn, side);
      internal::MapAndSumRows(map, call);
    }
    await(turns);
  };
  internal::RunWithScratch(options.parallel_for, turns, internal::GrainFor(most * cols),
                           make_moments, take_turns);
  state = {chain.mean, chain.deviation};
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
  internal::ParamGradients<T, P> dgains(args.dgain, cols, columns),
      dbiases(args.dbias, cols, columns);
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
