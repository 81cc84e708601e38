#include <ATen/Parallel.h>

#include <memory>
#include <vector>

#include "bench/norm/contestants.h"
#include "bench/norm/methods.h"
#include "bench/norm/types.h"
#include "planish/batch_norm.h"
#include "planish/channel_norm.h"
#include "planish/norm.h"

namespace planish::bench {

namespace {

NormOptions Options() { return {.eps = kEps, .parallel_for = TorchThreads()}; }

// What a forward pass saves for backward.
template <class P>
struct Saved {
  explicit Saved(int64_t n) : mean(n), mean_lo(n), rstd(n) {}
  std::vector<P> mean, mean_lo, rstd;
};

template <class T>
Contestant MakeRows(const Method& method, const Case& c, const Arrays& arrays) {
  using P = Compute<T>;
  NormForwardArgs<T, P> forward{.rows = c.rows,
                                .cols = c.cols,
                                .x = static_cast<const T*>(arrays.x),
                                .y = static_cast<T*>(arrays.out)};
  if (method.gain) forward.gain = static_cast<const P*>(arrays.gain);
  if (method.bias) forward.bias = static_cast<const P*>(arrays.bias);
  if (c.direction == Direction::kForward) {
    return {.call = [norm = method.norm, forward, options = Options()] {
      NormForward(norm, forward, options);
    }};
  }
  const auto saved = std::make_shared<Saved<P>>(c.rows);
  forward.mean = saved->mean.data();
  forward.mean_lo = saved->mean_lo.data();
  forward.rstd = saved->rstd.data();
  NormForward(method.norm, forward, Options());
  NormBackwardArgs<T, P> backward{.rows = c.rows,
                                  .cols = c.cols,
                                  .dy = static_cast<const T*>(arrays.dy),
                                  .x = forward.x,
                                  .gain = forward.gain,
                                  .mean = forward.mean,
                                  .mean_lo = forward.mean_lo,
                                  .rstd = forward.rstd,
                                  .dx = static_cast<T*>(arrays.out)};
  if (method.gain) backward.dgain = static_cast<P*>(arrays.dgain);
  if (method.bias) backward.dbias = static_cast<P*>(arrays.dbias);
  return {.call = [norm = method.norm, backward, saved, options = Options()] {
    NormBackward(norm, backward, options);
  }};
}

template <class T>
Contestant MakePositions(const Method& method, const Case& c, const Arrays& arrays) {
  using P = Compute<T>;
  ChannelNormForwardArgs<T, P> forward{.batch = c.rows,
                                       .channels = c.cols,
                                       .spatial = c.spatial,
                                       .x = static_cast<const T*>(arrays.x),
                                       .gain = static_cast<const P*>(arrays.gain),
                                       .bias = static_cast<const P*>(arrays.bias),
                                       .y = static_cast<T*>(arrays.out)};
  if (c.direction == Direction::kForward) {
    return {.call = [norm = method.norm, forward, options = Options()] {
      ChannelNormForward(norm, forward, options);
    }};
  }
  const auto saved = std::make_shared<Saved<P>>(c.rows * c.spatial);
  forward.mean = saved->mean.data();
  forward.mean_lo = saved->mean_lo.data();
  forward.rstd = saved->rstd.data();
  ChannelNormForward(method.norm, forward, Options());
  const ChannelNormBackwardArgs<T, P> backward{.batch = c.rows,
                                               .channels = c.cols,
                                               .spatial = c.spatial,
                                               .dy = static_cast<const T*>(arrays.dy),
                                               .x = forward.x,
                                               .gain = forward.gain,
                                               .mean = forward.mean,
                                               .mean_lo = forward.mean_lo,
                                               .rstd = forward.rstd,
                                               .dx = static_cast<T*>(arrays.out),
                                               .dgain = static_cast<P*>(arrays.dgain),
                                               .dbias = static_cast<P*>(arrays.dbias)};
  return {.call = [norm = method.norm, backward, saved, options = Options()] {
    ChannelNormBackward(norm, backward, options);
  }};
}

// Batch normalisation in training, without running estimates.
template <class T>
Contestant MakeChannels(const Case& c, const Arrays& arrays) {
  using P = Compute<T>;
  const BatchNormOptions options{.eps = kEps, .parallel_for = TorchThreads()};
  BatchNormForwardArgs<T, P> forward{.batch = c.rows,
                                     .channels = c.cols,
                                     .spatial = c.spatial,
                                     .x = static_cast<const T*>(arrays.x),
                                     .gain = static_cast<const P*>(arrays.gain),
                                     .bias = static_cast<const P*>(arrays.bias),
                                     .y = static_cast<T*>(arrays.out)};
  if (c.direction == Direction::kForward) {
    return {.call = [=] { BatchNormForward(forward, options); }};
  }
  const auto saved = std::make_shared<Saved<P>>(c.cols);
  forward.mean = saved->mean.data();
  forward.mean_lo = saved->mean_lo.data();
  forward.rstd = saved->rstd.data();
  BatchNormForward(forward, options);
  const BatchNormBackwardArgs<T, P> backward{.batch = c.rows,
                                             .channels = c.cols,
                                             .spatial = c.spatial,
                                             .dy = static_cast<const T*>(arrays.dy),
                                             .x = forward.x,
                                             .gain = forward.gain,
                                             .mean = forward.mean,
                                             .mean_lo = forward.mean_lo,
                                             .rstd = forward.rstd,
                                             .dx = static_cast<T*>(arrays.out),
                                             .dgain = static_cast<P*>(arrays.dgain),
                                             .dbias = static_cast<P*>(arrays.dbias)};
  return {.call = [=] { BatchNormBackward(backward, options), static_cast<void>(saved); }};
}

}  // namespace

ParallelFor TorchThreads() {
  return [](int64_t begin, int64_t end, int64_t grain, RangeTask task) {
    at::parallel_for(begin, end, grain, task);
  };
}

Contestant MakePlanish(const std::string& method, const Case& c, const Arrays& arrays) {
  const Method& found = FindMethod(method);
  return VisitType(c.type, [&]<class T>() -> Contestant {
    if (found.over == Over::kChannel) return MakeChannels<T>(c, arrays);
    if (found.over == Over::kPosition) return MakePositions<T>(found, c, arrays);
    if (c.spatial != 1) return {.absent = "normalises rows"};
    return MakeRows<T>(found, c, arrays);
  });
}

}  // namespace planish::bench
