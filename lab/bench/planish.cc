#include <memory>
#include <vector>

#include "lab/bench/contestants.h"
#include "lab/bench/methods.h"
#include "lab/bench/threads.h"
#include "lab/bench/types.h"
#include "planish/batch_norm.h"
#include "planish/channel_norm.h"
#include "planish/group_norm.h"
#include "planish/norm.h"
#include "planish/online_norm.h"
#include "planish/pointwise_norm.h"

namespace planish::bench {

namespace {

NormOptions Options() { return {.eps = kEps, .parallel_for = TorchThreads()}; }

// Statistics that a forward pass saves for backward.
template <class P>
struct Saved {
  explicit Saved(int64_t n) : mean(n), mean_lo(n), rstd(n) {}
  std::vector<P> mean, mean_lo, rstd;
};

// Copies arguments that every norm's backward shares with forward, whose struct has the saved
// statistics.
template <class T, class BackwardArgs, class ForwardArgs>
BackwardArgs BackwardOf(const ForwardArgs& forward, const Arrays& arrays) {
  using P = Compute<T>;
  BackwardArgs backward;
  backward.dy = static_cast<const T*>(arrays.dy);
  backward.x = forward.x;
  backward.gain = forward.gain;
  backward.mean = forward.mean;
  backward.mean_lo = forward.mean_lo;
  backward.rstd = forward.rstd;
  backward.dx = static_cast<T*>(arrays.out);
  backward.dgain = static_cast<P*>(arrays.dgain);
  backward.dbias = static_cast<P*>(arrays.dbias);
  return backward;
}

// Makes a norm over the rows of x, of c.cols elements, or over their heads.
template <class T>
Contestant MakeRows(const Method& method, const Case& c, const Arrays& arrays) {
  using P = Compute<T>;
  const int64_t sets = GroupsOf(method, c);
  NormForwardArgs<T, P> forward{.rows = c.rows * c.spatial * sets,
                                .cols = c.cols / sets,
                                .x = static_cast<const T*>(arrays.x),
                                .y = static_cast<T*>(arrays.out),
                                .sets = sets,
                                .set_rows = 1,
                                .gate_before_norm = method.gate == Gate::kBefore,
                                .cast_before_gain = method.cast};
  if (sets == 1) forward.set_rows = 0;
  if (method.gate != Gate::kNone) forward.gate = static_cast<const T*>(arrays.gate);
  if (method.gain) forward.gain = static_cast<const P*>(arrays.gain);
  if (method.bias) forward.bias = static_cast<const P*>(arrays.bias);
  if (c.direction == Direction::kForward) {
    return {.call = [norm = method.norm, forward, options = Options()] {
      NormForward(norm, forward, options);
    }};
  }
  const auto saved = std::make_shared<Saved<P>>(forward.rows);
  forward.mean = saved->mean.data();
  forward.mean_lo = saved->mean_lo.data();
  forward.rstd = saved->rstd.data();
  NormForward(method.norm, forward, Options());
  NormBackwardArgs<T, P> backward{.rows = forward.rows,
                                  .cols = forward.cols,
                                  .dy = static_cast<const T*>(arrays.dy),
                                  .x = forward.x,
                                  .gain = forward.gain,
                                  .mean = forward.mean,
                                  .mean_lo = forward.mean_lo,
                                  .rstd = forward.rstd,
                                  .dx = static_cast<T*>(arrays.out),
                                  .sets = forward.sets,
                                  .set_rows = forward.set_rows,
                                  .bias = forward.bias,
                                  .gate = forward.gate,
                                  .gate_before_norm = forward.gate_before_norm,
                                  .cast_before_gain = forward.cast_before_gain};
  if (forward.gate) backward.dgate = static_cast<T*>(arrays.dgate);
  if (method.gain) backward.dgain = static_cast<P*>(arrays.dgain);
  if (method.bias) backward.dbias = static_cast<P*>(arrays.dbias);
  return {.call = [norm = method.norm, backward, saved, options = Options()] {
    NormBackward(norm, backward, options);
  }};
}

template <class T>
Contestant MakeElements(const Method& method, const Case& c, const Arrays& arrays) {
  using P = Compute<T>;
  const auto* scalars = static_cast<const P*>(arrays.scalars);
  if (c.direction == Direction::kForward) {
    const PointwiseNormForwardArgs<T, P> args{.rows = c.rows * c.spatial,
                                              .cols = c.cols,
                                              .x = static_cast<const T*>(arrays.x),
                                              .alpha = scalars,
                                              .shift = scalars + 1,
                                              .gain = static_cast<const P*>(arrays.gain),
                                              .bias = static_cast<const P*>(arrays.bias),
                                              .y = static_cast<T*>(arrays.out)};
    return {.call = [function = method.function, args, threads = TorchThreads()] {
      PointwiseNormForward(function, args, threads);
    }};
  }
  auto* dscalars = static_cast<P*>(arrays.dscalars);
  const PointwiseNormBackwardArgs<T, P> args{.rows = c.rows * c.spatial,
                                             .cols = c.cols,
                                             .dy = static_cast<const T*>(arrays.dy),
                                             .x = static_cast<const T*>(arrays.x),
                                             .alpha = scalars,
                                             .shift = scalars + 1,
                                             .gain = static_cast<const P*>(arrays.gain),
                                             .dx = static_cast<T*>(arrays.out),
                                             .dalpha = dscalars,
                                             .dshift = dscalars + 1,
                                             .dgain = static_cast<P*>(arrays.dgain),
                                             .dbias = static_cast<P*>(arrays.dbias)};
  return {.call = [function = method.function, args, threads = TorchThreads()] {
    PointwiseNormBackward(function, args, threads);
  }};
}

template <class T>
Contestant MakeOnline(const Case& c, const Arrays& arrays) {
  using P = Compute<T>;
  const OnlineNormOptions options{.parallel_for = TorchThreads()};
  OnlineNormForwardArgs<T, P> forward{.rows = c.rows,
                                      .cols = c.cols,
                                      .x = static_cast<const T*>(arrays.x),
                                      .gain = static_cast<const P*>(arrays.gain),
                                      .bias = static_cast<const P*>(arrays.bias),
                                      .y = static_cast<T*>(arrays.out)};
  const auto run = [options](const auto& args) {
    OnlineState state;
    OnlineNormForward(args, state, options);
  };
  if (c.direction == Direction::kForward) return {.call = [=] { run(forward); }};
  const auto saved = std::make_shared<Saved<P>>(c.rows), more = std::make_shared<Saved<P>>(c.rows);
  forward.mean = saved->mean.data();
  forward.mean_lo = saved->mean_lo.data();
  forward.rstd = saved->rstd.data();
  forward.offset = more->mean.data();
  forward.deviation = more->rstd.data();
  run(forward);
  auto backward = BackwardOf<T, OnlineNormBackwardArgs<T, P>>(forward, arrays);
  backward.rows = c.rows;
  backward.cols = c.cols;
  backward.offset = forward.offset;
  backward.deviation = forward.deviation;
  return {.call = [=] {
    OnlineNormBackward(backward, options), static_cast<void>(saved), static_cast<void>(more);
  }};
}

// Makes a contestant of a norm over [samples, channels, spatial] from its two functions.
template <class T, class ForwardArgs, class BackwardArgs, class Forward, class Backward>
Contestant MakeOverChannels(const Case& c, const Arrays& arrays, int64_t statistics,
                            const Forward& forward, const Backward& backward) {
  using P = Compute<T>;
  ForwardArgs args{.batch = c.rows,
                   .channels = c.cols,
                   .spatial = c.spatial,
                   .x = static_cast<const T*>(arrays.x),
                   .gain = static_cast<const P*>(arrays.gain),
                   .bias = static_cast<const P*>(arrays.bias),
                   .y = static_cast<T*>(arrays.out)};
  if (c.direction == Direction::kForward) return {.call = [=] { forward(args); }};
  const auto saved = std::make_shared<Saved<P>>(statistics);
  args.mean = saved->mean.data();
  args.mean_lo = saved->mean_lo.data();
  args.rstd = saved->rstd.data();
  forward(args);
  auto back = BackwardOf<T, BackwardArgs>(args, arrays);
  back.batch = c.rows;
  back.channels = c.cols;
  back.spatial = c.spatial;
  return {.call = [=] { backward(back), static_cast<void>(saved); }};
}

template <class T>
Contestant MakePositions(const Method& method, const Case& c, const Arrays& arrays) {
  using P = Compute<T>;
  const Norm norm = method.norm;
  const NormOptions options = Options();
  return MakeOverChannels<T, ChannelNormForwardArgs<T, P>, ChannelNormBackwardArgs<T, P>>(
      c, arrays, c.rows * c.spatial,
      [=](const auto& args) { ChannelNormForward<T, P>(norm, args, options); },
      [=](const auto& args) { ChannelNormBackward<T, P>(norm, args, options); });
}

template <class T>
Contestant MakeGroups(const Method& method, const Case& c, const Arrays& arrays) {
  using P = Compute<T>;
  const int64_t groups = GroupsOf(method, c);
  const GroupNormOptions options{
      .eps = kEps, .channels_last = method.channels_last, .parallel_for = TorchThreads()};
  return MakeOverChannels<T, GroupNormForwardArgs<T, P>, GroupNormBackwardArgs<T, P>>(
      c, arrays, c.rows * groups,
      [=](auto args) {
        args.groups = groups;
        GroupNormForward<T, P>(args, options);
      },
      [=](auto args) {
        args.groups = groups;
        GroupNormBackward<T, P>(args, options);
      });
}

// Makes batch normalization in training, without running estimates.
template <class T>
Contestant MakeChannels(const Case& c, const Arrays& arrays) {
  using P = Compute<T>;
  const BatchNormOptions options{.eps = kEps, .parallel_for = TorchThreads()};
  return MakeOverChannels<T, BatchNormForwardArgs<T, P>, BatchNormBackwardArgs<T, P>>(
      c, arrays, c.cols, [=](const auto& args) { BatchNormForward<T, P>(args, options); },
      [=](const auto& args) { BatchNormBackward<T, P>(args, options); });
}

}  // namespace

Contestant MakePlanish(const std::string& method, const Case& c, const Arrays& arrays) {
  const Method& found = FindMethod(method);
  return VisitType(c.type, [&]<class T>() -> Contestant {
    if (found.over == Over::kChannel) return MakeChannels<T>(c, arrays);
    if (found.over == Over::kPosition) return MakePositions<T>(found, c, arrays);
    if (found.over == Over::kGroup) return MakeGroups<T>(found, c, arrays);
    if (found.over == Over::kElement) return MakeElements<T>(found, c, arrays);
    if (found.over == Over::kRows && c.spatial != 1) return {.absent = "normalizes rows"};
    if (found.over == Over::kRows) return MakeOnline<T>(c, arrays);
    if (found.gate != Gate::kNone && !c.gated) return {.absent = "needs a gated case"};
    return MakeRows<T>(found, c, arrays);
  });
}

}  // namespace planish::bench
