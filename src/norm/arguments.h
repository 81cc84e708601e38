#ifndef PLANISH_SRC_NORM_ARGUMENTS_H_
#define PLANISH_SRC_NORM_ARGUMENTS_H_

#include <cstdint>

#include "planish/batch_norm.h"
#include "planish/channel_norm.h"
#include "planish/dropout_norm.h"
#include "planish/group_norm.h"
#include "planish/norm.h"
#include "planish/online_norm.h"
#include "planish/pointwise_norm.h"
#include "planish/weight_norm.h"
#include "src/base/check.h"
#include "src/norm/recipe.h"

// The array arguments of all calls of the norms: VisitArguments of src/base/check.h. The checks,
// the tests of errors, the fuzzer and the tests on GPUs derive from it.
namespace planish::internal {

/// Extents of the arrays of a norm.
struct NormExtents {
  Extent all;       ///< input and output
  Extent groups;    ///< one statistic for each group that is normalized together
  Extent features;  ///< gain and bias
};

template <class Args>
constexpr NormExtents RowExtents(const Args& args) {
  int64_t sets = 1;
  if constexpr (requires { args.sets; }) sets = args.sets;
  return {{args.rows, args.cols}, {1, args.rows}, {sets, args.cols}};
}

/// Returns the extents of `groups` groups in a [batch, channels, spatial] array.
template <class Args>
constexpr NormExtents ChannelExtents(const Args& args, int64_t groups) {
  return {{1, args.batch * args.channels * args.spatial}, {1, groups}, {1, args.channels}};
}

/// Returns whether gain, bias and their gradients can be given.
constexpr Presence ParamsPresence(const Recipe& recipe) {
  return NullUnless(recipe.output == Output::kAffine, "for a norm without gain and bias");
}

/// Returns whether a backward call computes gradients of gain or bias.
template <class Args>
constexpr bool HasParamGradients(const Args& args) {
  return args.dgain != nullptr || args.dbias != nullptr;
}

/// Visits the common arrays of the forward calls.
template <class A, class F>
constexpr void VisitForward(const A& args, const NormExtents& n, Presence params, F&& f) {
  f(Argument{"x", &A::x, n.all, kRequired});
  f(Argument{"gain", &A::gain, n.features, params});
  f(Argument{"bias", &A::bias, n.features, params});
  f(Argument{"y", &A::y, n.all, kRequired}.InPlaceOf(args.x));
  f(Argument{"mean", &A::mean, n.groups});
  f(Argument{"mean_lo", &A::mean_lo, n.groups});
  f(Argument{"rstd", &A::rstd, n.groups});
}

/// Visits the common arrays of the backward calls.
template <class A, class F>
constexpr void VisitBackward(const A& args, const NormExtents& n, BackwardReads reads,
                             Presence params, F&& f) {
  f(Argument{"dy", &A::dy, n.all, kRequired});
  f(Argument{"x", &A::x, n.all, RequiredIf(reads.x)});
  f(Argument{"gain", &A::gain, n.features, params});
  f(Argument{"mean", &A::mean, n.groups, RequiredIf(reads.mean)});
  f(Argument{"mean_lo", &A::mean_lo, n.groups, RequiredIf(reads.mean)});
  f(Argument{"rstd", &A::rstd, n.groups, kRequired});
  f(Argument{"dx", &A::dx, n.all}.InPlaceOf(args.dy));
  f(Argument{"dgain", &A::dgain, n.features, params});
  f(Argument{"dbias", &A::dbias, n.features, params});
}

template <class T, class P, class F>
constexpr void VisitArguments(const NormForwardArgs<T, P>& args, const Recipe& recipe, F&& f) {
  using A = NormForwardArgs<T, P>;
  const auto [all, groups, features] = RowExtents(args);
  const Presence params = ParamsPresence(recipe);
  const bool residual = args.residual != nullptr;
  const Presence sum = {.required = residual,
                        .null_reason = residual ? nullptr : "without a residual"};
  f(Argument{"x", &A::x, all, kRequired}.WithStride(&A::x_stride));
  f(Argument{"gain", &A::gain, features, params});
  f(Argument{"bias", &A::bias, features, params});
  f(Argument{"residual", &A::residual, all}.WithStride(&A::residual_stride));
  f(Argument{"gate", &A::gate, all, params}.WithStride(&A::gate_stride));
  const bool quantized = args.quantized != nullptr;
  // An empty array can be null.
  const bool can_quantize = quantized || args.rows == 0 || args.cols == 0;
  const Presence scale = {.required = quantized,
                          .null_reason = can_quantize ? nullptr : "without quantized"};
  f(Argument{"y", &A::y, all, RequiredIf(!quantized)}
        .WithStride(&A::y_stride)
        .InPlaceOf(residual ? nullptr : args.x));
  f(Argument{"quantized", &A::quantized, all}.WithStride(&A::quantized_stride));
  f(Argument{"row_scale", &A::row_scale, groups, scale});
  f(Argument{"sum", &A::sum, all, sum}.WithStride(&A::sum_stride).InPlaceOf(args.x, args.residual));
  f(Argument{"mean", &A::mean, groups});
  f(Argument{"mean_lo", &A::mean_lo, groups});
  f(Argument{"rstd", &A::rstd, groups});
}

template <class T, class P, class F>
constexpr void VisitArguments(const NormBackwardArgs<T, P>& args, const Recipe& recipe, F&& f) {
  using A = NormBackwardArgs<T, P>;
  const auto [all, groups, features] = RowExtents(args);
  const Presence params = ParamsPresence(recipe);
  const BackwardReads reads = ReadsOf(recipe);
  const Presence gated = NullUnless(args.gate != nullptr, "without a gate");
  f(Argument{"dy", &A::dy, all, kRequired}.WithStride(&A::dy_stride));
  f(Argument{"x", &A::x, all, RequiredIf(reads.x)}.WithStride(&A::x_stride));
  f(Argument{"gate", &A::gate, all, params}.WithStride(&A::gate_stride));
  f(Argument{"gain", &A::gain, features, params});
  f(Argument{"bias", &A::bias, features, params});
  f(Argument{"mean", &A::mean, groups, RequiredIf(reads.mean)});
  f(Argument{"mean_lo", &A::mean_lo, groups, RequiredIf(reads.mean)});
  f(Argument{"rstd", &A::rstd, groups, kRequired});
  f(Argument{"dsum", &A::dsum, all, NullUnless(args.dx != nullptr, "without dx")}.WithStride(
      &A::dsum_stride));
  f(Argument{"dx", &A::dx, all}.WithStride(&A::dx_stride).InPlaceOf(args.dy));
  f(Argument{"dgate", &A::dgate, all, gated}.WithStride(&A::dgate_stride));
  f(Argument{"dgain", &A::dgain, features, params});
  f(Argument{"dbias", &A::dbias, features, params});
}

template <class T, class P, class F>
constexpr void VisitArguments(const ChannelNormForwardArgs<T, P>& args, const Recipe& recipe,
                              F&& f) {
  VisitForward(args, ChannelExtents(args, args.batch * args.spatial), ParamsPresence(recipe), f);
}

template <class T, class P, class F>
constexpr void VisitArguments(const ChannelNormBackwardArgs<T, P>& args, const Recipe& recipe,
                              F&& f) {
  VisitBackward(args, ChannelExtents(args, args.batch * args.spatial), ReadsOf(recipe),
                ParamsPresence(recipe), f);
}

// Calls as calls of another function with the same arrays. arguments_test.cc compares the arrays.

/// Copies the arrays that VisitForward visits.
template <class To, class From>
constexpr To WithForwardArrays(To to, const From& from) {
  to.x = from.x;
  to.gain = from.gain;
  to.bias = from.bias;
  to.y = from.y;
  to.mean = from.mean;
  to.mean_lo = from.mean_lo;
  to.rstd = from.rstd;
  return to;
}

/// Copies the arrays that VisitBackward visits.
template <class To, class From>
constexpr To WithBackwardArrays(To to, const From& from) {
  to.dy = from.dy;
  to.x = from.x;
  to.gain = from.gain;
  to.mean = from.mean;
  to.mean_lo = from.mean_lo;
  to.rstd = from.rstd;
  to.dx = from.dx;
  to.dgain = from.dgain;
  to.dbias = from.dbias;
  return to;
}

/// Return a call with spatial = 1, or of the online norm, as a norm of rows.
template <class T, class P>
constexpr NormForwardArgs<T, P> AsRows(const ChannelNormForwardArgs<T, P>& args) {
  return WithForwardArrays(NormForwardArgs<T, P>{.rows = args.batch, .cols = args.channels}, args);
}
template <class T, class P>
constexpr NormBackwardArgs<T, P> AsRows(const ChannelNormBackwardArgs<T, P>& args) {
  return WithBackwardArrays(NormBackwardArgs<T, P>{.rows = args.batch, .cols = args.channels},
                            args);
}
template <class T, class P>
constexpr NormBackwardArgs<T, P> AsRows(const OnlineNormBackwardArgs<T, P>& args) {
  return WithBackwardArrays(NormBackwardArgs<T, P>{.rows = args.rows, .cols = args.cols}, args);
}

/// Returns a call of the online norm as a norm over the channels of samples with one position.
template <class T, class P>
constexpr ChannelNormBackwardArgs<T, P> AsSamples(const OnlineNormBackwardArgs<T, P>& args) {
  return WithBackwardArrays(
      ChannelNormBackwardArgs<T, P>{.batch = args.rows, .channels = args.cols, .spatial = 1}, args);
}

template <class T, class P, class F>
constexpr void VisitArguments(const BatchNormForwardArgs<T, P>& args, F&& f) {
  using A = BatchNormForwardArgs<T, P>;
  const NormExtents n = ChannelExtents(args, args.channels);
  VisitForward(args, n, kOptional, f);
  f(Argument{"running_mean", &A::running_mean, n.groups});
  f(Argument{"running_var", &A::running_var, n.groups});
}

template <class T, class P, class F>
constexpr void VisitArguments(const BatchNormBackwardArgs<T, P>& args, F&& f) {
  VisitBackward(args, ChannelExtents(args, args.channels), {}, kOptional, f);
}

template <class T, class P, class F>
constexpr void VisitArguments(const BatchNormEvaluateArgs<T, P>& args, F&& f) {
  using A = BatchNormEvaluateArgs<T, P>;
  const auto [all, groups, features] = ChannelExtents(args, args.channels);
  f(Argument{"x", &A::x, all, kRequired});
  f(Argument{"gain", &A::gain, features});
  f(Argument{"bias", &A::bias, features});
  f(Argument{"running_mean", &A::running_mean, groups, kRequired});
  f(Argument{"running_var", &A::running_var, groups, kRequired});
  f(Argument{"y", &A::y, all, kRequired}.InPlaceOf(args.x));
}

template <class T, class P, class F>
constexpr void VisitArguments(const BatchNormEvaluateBackwardArgs<T, P>& args, F&& f) {
  using A = BatchNormEvaluateBackwardArgs<T, P>;
  const auto [all, groups, features] = ChannelExtents(args, args.channels);
  const Presence for_dgain = RequiredIf(args.dgain != nullptr);
  f(Argument{"dy", &A::dy, all, kRequired});
  f(Argument{"x", &A::x, all, for_dgain});
  f(Argument{"gain", &A::gain, features});
  f(Argument{"running_mean", &A::running_mean, groups, for_dgain});
  f(Argument{"running_var", &A::running_var, groups, kRequired});
  f(Argument{"dx", &A::dx, all}.InPlaceOf(args.dy));
  f(Argument{"dgain", &A::dgain, features});
  f(Argument{"dbias", &A::dbias, features});
}

template <class T, class P, class F>
constexpr void VisitArguments(const GroupNormForwardArgs<T, P>& args, F&& f) {
  VisitForward(args, ChannelExtents(args, args.batch * args.groups), kOptional, f);
}

template <class T, class P, class F>
constexpr void VisitArguments(const GroupNormBackwardArgs<T, P>& args, F&& f) {
  VisitBackward(args, ChannelExtents(args, args.batch * args.groups), {}, kOptional, f);
}

template <class T, class P, class F>
constexpr void VisitArguments(const WeightNormForwardArgs<T, P>& args, F&& f) {
  using A = WeightNormForwardArgs<T, P>;
  const Extent all = {args.rows, args.cols}, lengths = {1, args.rows};
  f(Argument{"v", &A::v, all, kRequired});
  f(Argument{"g", &A::g, lengths, kRequired});
  f(Argument{"w", &A::w, all, kRequired}.InPlaceOf(args.v));
  f(Argument{"norm", &A::norm, lengths});
}

template <class T, class P, class F>
constexpr void VisitArguments(const WeightNormBackwardArgs<T, P>& args, F&& f) {
  using A = WeightNormBackwardArgs<T, P>;
  const Extent all = {args.rows, args.cols}, lengths = {1, args.rows};
  f(Argument{"dw", &A::dw, all, kRequired});
  f(Argument{"v", &A::v, all, kRequired});
  f(Argument{"g", &A::g, lengths, RequiredIf(args.dv != nullptr)});
  f(Argument{"norm", &A::norm, lengths, kRequired});
  f(Argument{"dv", &A::dv, all}.InPlaceOf(args.dw));
  f(Argument{"dg", &A::dg, lengths});
}

template <class T, class P, class F>
constexpr void VisitArguments(const PointwiseNormForwardArgs<T, P>& args, F&& f) {
  using A = PointwiseNormForwardArgs<T, P>;
  const Extent all = {args.rows, args.cols}, one = {1, 1}, features = {1, args.cols};
  f(Argument{"x", &A::x, all, kRequired});
  f(Argument{"alpha", &A::alpha, one, kRequired});
  f(Argument{"shift", &A::shift, one});
  f(Argument{"gain", &A::gain, features});
  f(Argument{"bias", &A::bias, features});
  f(Argument{"y", &A::y, all, kRequired}.InPlaceOf(args.x));
}

template <class T, class P, class F>
constexpr void VisitArguments(const PointwiseNormBackwardArgs<T, P>& args, F&& f) {
  using A = PointwiseNormBackwardArgs<T, P>;
  const Extent all = {args.rows, args.cols}, one = {1, 1}, features = {1, args.cols};
  f(Argument{"dy", &A::dy, all, kRequired});
  f(Argument{"x", &A::x, all, kRequired});
  f(Argument{"alpha", &A::alpha, one, kRequired});
  f(Argument{"shift", &A::shift, one});
  f(Argument{"gain", &A::gain, features});
  f(Argument{"dx", &A::dx, all}.InPlaceOf(args.dy));
  f(Argument{"dalpha", &A::dalpha, one});
  f(Argument{"dshift", &A::dshift, one});
  f(Argument{"dgain", &A::dgain, features});
  f(Argument{"dbias", &A::dbias, features});
}

template <class T, class P, class F>
constexpr void VisitArguments(const DropoutNormForwardArgs<T, P>& args, const Recipe& recipe,
                              F&& f) {
  using A = DropoutNormForwardArgs<T, P>;
  const auto [all, groups, features] = RowExtents(args);
  const Presence params = ParamsPresence(recipe);
  f(Argument{"x", &A::x, all, kRequired});
  f(Argument{"residual", &A::residual, all});
  f(Argument{"gain", &A::gain, features, params});
  f(Argument{"bias", &A::bias, features, params});
  f(Argument{"sum", &A::sum, all, kRequired}.InPlaceOf(args.x, args.residual));
  f(Argument{"y", &A::y, all, kRequired}.InPlaceOf(args.x));
  f(Argument{"mean", &A::mean, groups});
  f(Argument{"mean_lo", &A::mean_lo, groups});
  f(Argument{"rstd", &A::rstd, groups});
}

template <class T, class P, class F>
constexpr void VisitArguments(const DropoutNormBackwardArgs<T, P>& args, const Recipe& recipe,
                              F&& f) {
  using A = DropoutNormBackwardArgs<T, P>;
  const auto [all, groups, features] = RowExtents(args);
  const Presence params = ParamsPresence(recipe);
  const BackwardReads reads = ReadsOf(recipe);
  const bool has_dx = args.dx || args.dresidual;
  f(Argument{"dy", &A::dy, all, kRequired});
  f(Argument{"sum", &A::sum, all, RequiredIf(reads.x)});
  f(Argument{"gain", &A::gain, features, params});
  f(Argument{"mean", &A::mean, groups, RequiredIf(reads.mean)});
  f(Argument{"mean_lo", &A::mean_lo, groups, RequiredIf(reads.mean)});
  f(Argument{"rstd", &A::rstd, groups, kRequired});
  f(Argument{"dsum", &A::dsum, all, NullUnless(has_dx, "without dx and dresidual")});
  f(Argument{"dx", &A::dx, all}.InPlaceOf(args.dresidual ? nullptr : args.dy));
  f(Argument{"dresidual", &A::dresidual, all}.InPlaceOf(args.dy));
  f(Argument{"dgain", &A::dgain, features, params});
  f(Argument{"dbias", &A::dbias, features, params});
}

template <class T, class P, class F>
constexpr void VisitArguments(const OnlineNormForwardArgs<T, P>& args, F&& f) {
  using A = OnlineNormForwardArgs<T, P>;
  const NormExtents n = RowExtents(args);
  VisitForward(args, n, kOptional, f);
  f(Argument{"offset", &A::offset, n.groups});
  f(Argument{"deviation", &A::deviation, n.groups});
}

template <class T, class P, class F>
constexpr void VisitArguments(const OnlineNormBackwardArgs<T, P>& args, F&& f) {
  using A = OnlineNormBackwardArgs<T, P>;
  const NormExtents n = RowExtents(args);
  VisitBackward(args, n, {}, kOptional, f);
  f(Argument{"offset", &A::offset, n.groups, kRequired});
  f(Argument{"deviation", &A::deviation, n.groups, kRequired});
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_ARGUMENTS_H_
