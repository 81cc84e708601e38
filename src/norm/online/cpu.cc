#include "src/norm/online/cpu.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>

#include "planish/online_norm.h"
#include "src/base/aligned.h"
#include "src/base/loop.h"
#include "src/norm/arguments.h"
#include "src/norm/element_types.h"
#include "src/norm/online/turns.h"
#include "src/norm/params.h"
#include "src/norm/rows/cpu.h"
#include "src/norm/rows/rows.h"

namespace planish::internal {
namespace {

constexpr Recipe kRecipe{true, true, true, Output::kAffine};

// --- Tuning constants (docs/tuning.md) ---

// Limits on the elements of a turn, a group of rows; the default is a 64th of all elements. Short
// turns are still in the L2 cache when they are normalized; long turns amortize the work per turn.
constexpr int64_t kShortTurn = int64_t{1} << 14, kLongTurn = int64_t{1} << 16;

// Elements of a turn if one thread processes all rows; limits the statistics it keeps.
constexpr int64_t kSerialTurn = int64_t{1} << 17;

// --- End of tuning constants ---

double AlphaOf(const OnlineNormOptions& options, int64_t r) {
  return options.alphas ? options.alphas[r] : options.alpha;
}

/// One call of OnlineNormForward. The state is updated by all rows in order, on any threads.
template <class T, class P>
class OnlineForward {
 public:
  OnlineForward(const OnlineNormForwardArgs<T, P>& args, const OnlineState& state,
                const OnlineNormOptions& options)
      : args_(args),
        options_(options),
        rows_(args.rows),
        cols_(args.cols),
        turn_rows_(std::clamp<int64_t>(
            std::clamp(rows_ * cols_ / 64, kShortTurn, kLongTurn) / cols_, 1, rows_)),
        kept_(std::clamp<int64_t>(kSerialTurn / cols_, 1, rows_)),
        bytes_(2 * rows_ * cols_ * static_cast<int64_t>(sizeof(T))),
        gains_(args.gain, rows_, cols_, 1, true),
        biases_(args.bias, rows_, cols_, 0, true),
        state_(state),
        turns_((rows_ - 1) / turn_rows_ + 1) {}

  /// Computes all outputs. Returns the state after the last row.
  OnlineState Run() {
    const auto make_statistics = [&] {
      return MakeUninitialized<C>(std::max(3 * kept_, 9 * turn_rows_));
    };
    RunWithScratch(options_.parallel_for, turns_.count(), GrainFor(turn_rows_ * cols_),
                   make_statistics, [&](int64_t begin, int64_t end, const Statistics& statistics) {
                     if (end - begin == turns_.count()) {
                       RunSerially(statistics);
                     } else {
                       RunTurns(begin, end, statistics);
                     }
                   });
    return state_;
  }

 private:
  using C = Compute<T>;
  using Statistics = std::unique_ptr<C[]>;

  /// Replaces the statistics of rows [begin, end) of `call` by the running statistics, in order.
  /// Row 0 of `call` is row `first`.
  void CountIn(int64_t first, const RowsForward<T>& call, int64_t begin, int64_t end) {
    const auto n = static_cast<double>(cols_);
    const double unbiased = n / (n - 1);
    double mean = state_.mean, deviation = state_.deviation;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t r = first + i;
      const double alpha = AlphaOf(options_, r);
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
      if (args_.mean) args_.mean[r] = call.mean[i];
      if (args_.mean_lo) args_.mean_lo[r] = call.mean_lo[i];
      if (args_.rstd) args_.rstd[r] = call.rstd[i];
      if (args_.offset) args_.offset[r] = static_cast<C>(off);
      if (args_.deviation) args_.deviation[r] = static_cast<C>(s);
    }
    state_ = {mean, deviation};
  }

  /// Returns the call for rows [begin, begin + count). mean, mean_lo and rstd are in `statistics`,
  /// `stride` elements apart.
  RowsForward<T> CallOn(int64_t begin, int64_t count, C* statistics, int64_t stride) const {
    return {{.rows = count,
             .cols = cols_,
             .x = args_.x + begin * cols_,
             .gain = gains_.data(),
             .bias = biases_.data(),
             .y = args_.y + begin * cols_,
             .mean = statistics,
             .mean_lo = statistics + stride,
             .rstd = statistics + 2 * stride,
             .x_stride = cols_,
             .y_stride = cols_},
            {.recipe = kRecipe}};
  }

  /// Processes all rows like any other norm over rows.
  void RunSerially(const Statistics& statistics) {
    for (int64_t begin = 0; begin < rows_; begin += kept_) {
      auto call = CallOn(begin, std::min(kept_, rows_ - begin), statistics.get(), kept_);
      call.use_nt_stores = UsesNtStores(bytes_, 1, 1);
      call.prefetch_output = PrefetchesOutput(bytes_, 1, 1);
      const auto revise = [&](int64_t first, int64_t last) { CountIn(begin, call, first, last); };
      const RangeTask task = revise;
      call.revise = &task;
      ForwardRows(call, 0, call.rows);
    }
  }

  /// Processes a thread's turns: every `threads`-th turn, and turns that are due and free. The
  /// former are the same in each call, so the thread's caches can still hold them. While it
  /// normalizes one turn it computes the statistics of its next turn.
  void RunTurns(int64_t range_begin, int64_t range_end, const Statistics& statistics) {
    const int64_t turns = turns_.count(), share = range_end - range_begin;
    const int64_t threads = std::max<int64_t>(1, (turns + share / 2) / share);
    const auto call_of = [&](int64_t turn, int side) {
      const int64_t begin = std::min(turn * turn_rows_, rows_);
      auto call = CallOn(begin, std::min(turn_rows_, rows_ - begin),
                         statistics.get() + side * 3 * turn_rows_, turn_rows_);
      // Results are not prefetched, because the lines after a turn belong to another thread.
      call.use_nt_stores = UsesNtStores(bytes_, share, turns);
      return call;
    };
    const RowsForward<T> none = call_of(turns, 0);
    const auto complete = [&](int64_t turn, const RowsForward<T>& call) {
      CountIn(turn * turn_rows_, call, 0, call.rows);
      turns_.Complete(turn);
    };
    const auto process = [&](int64_t turn) {
      const RowsForward<T> call = call_of(turn, 2);
      MapAndSumRows(none, call);
      complete(turn, call);
      MapAndSumRows(call, none);
    };
    int side = 0;
    int64_t turn = turns_.TakeFrom((range_begin + share / 2) / share % threads, threads);
    RowsForward<T> call = call_of(turn, side);
    MapAndSumRows(none, call);
    while (turn < turns) {
      turns_.Await(turn, process);
      complete(turn, call);
      turn = turns_.TakeFrom(turn + threads, threads);
      side = 1 - side;
      const RowsForward<T> current = call;
      call = call_of(turn, side);
      MapAndSumRows(current, call);
    }
    turns_.Await(turns, process);
  }

  const OnlineNormForwardArgs<T, P>& args_;
  const OnlineNormOptions& options_;
  const int64_t rows_, cols_;
  const int64_t turn_rows_;  // rows of a turn
  const int64_t kept_;       // rows whose statistics a single thread keeps
  const int64_t bytes_;      // of x and y
  const Params<T, P> gains_, biases_;
  OnlineState state_;  // after the completed turns
  Turns turns_;
};

}  // namespace

template <class T, class P>
void ForwardOnline(const OnlineNormForwardArgs<T, P>& args, OnlineState& state,
                   const OnlineNormOptions& options) {
  state = OnlineForward<T, P>(args, state, options).Run();
}

template <class T, class P>
void BackwardOnline(const OnlineNormBackwardArgs<T, P>& args, const OnlineNormOptions& options) {
  const int64_t rows = args.rows, cols = args.cols;
  const auto factors = MakeUninitialized<GradientFactors>(rows);
  const auto n = static_cast<double>(cols);
  for (int64_t r = 0; r < rows; ++r) {
    const double alpha = AlphaOf(options, r), s = static_cast<double>(args.deviation[r]);
    const double reciprocal = static_cast<double>(args.rstd[r]);
    factors[r] = {.mean = alpha,
                  .scale = s == 0 ? 0 : alpha * n / ((n - 1) * s * reciprocal),
                  .shift = alpha * static_cast<double>(args.offset[r]) * reciprocal};
  }
  const bool columns = HasParamGradients(args);
  const Params<T, P> gains(args.gain, rows, cols, 1, true);
  ParamGradients<T, P> dgains(args.dgain, cols, columns), dbiases(args.dbias, cols, columns);
  NormBackwardArgs<T, P> rows_args = AsRows(args);
  SetStrides("OnlineNormBackward", rows_args, kRecipe);
  const RowsBackward<T> call = {WithParams(rows_args, kRecipe, gains, dgains, dbiases),
                                {.recipe = kRecipe},
                                factors.get(),
                                /*use_nt_stores=*/true};
  BackwardMatrix(call, options.parallel_for);
  dgains.Finish();
  dbiases.Finish();
}

#define PLANISH_INSTANTIATE(T, P)                                               \
  template void ForwardOnline(const OnlineNormForwardArgs<T, P>&, OnlineState&, \
                              const OnlineNormOptions&);                        \
  template void BackwardOnline(const OnlineNormBackwardArgs<T, P>&, const OnlineNormOptions&);
PLANISH_NORM_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace planish::internal
