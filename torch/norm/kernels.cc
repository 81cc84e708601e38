#include "torch/norm/kernels.h"

#include <ATen/ops/zeros.h>
#include <c10/util/MaybeOwned.h>

#include <cstdint>

#include "planish/batch_norm.h"
#include "planish/channel_norm.h"
#include "planish/cuda.h"
#include "planish/norm.h"
#include "src/norm/recipe.h"
#include "torch/base/device.h"
#include "torch/norm/arrays.h"
#include "torch/norm/gains.h"

namespace planish {

namespace {

using at::Tensor;

/// Returns the core's norm: kLayerSimple for LayerNorm without weight and bias.
Norm CoreNorm(const NormSpec& spec, bool affine) {
  return spec.norm == Norm::kLayer && !affine ? Norm::kLayerSimple : spec.norm;
}

NormOptions CoreOptions(const NormSpec& spec, const Tensor& output) {
  return {.eps = spec.eps,
          .scale = spec.scale,
          .slope = spec.slope,
          .parallel_for = TorchParallelFor,
          .new_outputs =
              output.defined() && internal::IsNewMemory(output.const_data_ptr(), output.nbytes())};
}

cuda::NormOptions GpuOptions(const NormSpec& spec) {
  return {.eps = spec.eps, .scale = spec.scale, .slope = spec.slope};
}

BatchNormOptions CoreBatchOptions(const NormSpec& spec) {
  return {
      .eps = spec.eps, .unbiased = spec.unbiased, .momentum = 1, .parallel_for = TorchParallelFor};
}

cuda::BatchNormOptions GpuBatchOptions(const NormSpec& spec) {
  return {.eps = spec.eps, .unbiased = spec.unbiased, .momentum = 1};
}

// Return `sizes` with the arrays of a call set.
template <class Args, class... Facts>
Args ForwardArgs(const Args& sizes, const NormForwardTensors& t, const Facts&... facts) {
  return WithArrays(sizes,
                    {{"x", t.x},
                     {"gain", t.weight},
                     {"bias", t.bias},
                     {"residual", t.residual},
                     {"gate", t.gate},
                     {"y", t.y},
                     {"quantized", t.quantized},
                     {"row_scale", t.row_scale},
                     {"sum", t.sum},
                     {"mean", t.statistics, 0},
                     {"mean_lo", t.statistics, 1},
                     {"rstd", t.statistics, 2}},
                    facts...);
}
template <class Args, class... Facts>
Args BackwardArgs(const Args& sizes, const NormBackwardTensors& t, const Facts&... facts) {
  return WithArrays(sizes,
                    {{"dy", t.dy},
                     {"x", t.x},
                     {"gate", t.gate},
                     {"gain", t.weight},
                     {"bias", t.bias},
                     {"mean", t.statistics, 0},
                     {"mean_lo", t.statistics, 1},
                     {"rstd", t.statistics, 2},
                     {"dsum", t.dsum},
                     {"dx", t.dx},
                     {"dgate", t.dgate},
                     {"dgain", t.dweight},
                     {"dbias", t.dbias}},
                    facts...);
}

// Return a call with only its sizes set.
template <class Args>
Args RowSizes(const Layout& layout, const Tensor& x, const Tensor& weight) {
  Args args = {.rows = layout.outer, .cols = layout.features};
  if (!HasGains(weight)) return args;
  const GainDims dims = GainDimsOf(x, weight);
  if (dims.empty()) return args;
  args.sets = SizeOf(x, dims.first, dims.last).expect_int();
  args.set_rows = AreInterleaved(x, dims) ? 1 : 0;
  return args;
}
template <class Args>
Args ChannelSizes(const Layout& layout) {
  return {.batch = layout.outer, .channels = layout.features, .spatial = layout.inner};
}

template <class T, class P>
void ForwardRows(const NormSpec& spec, const NormForwardTensors& t, const Layout& layout) {
  const Norm norm = CoreNorm(spec, t.weight.defined() || t.bias.defined() || t.gate.defined());
  auto args = ForwardArgs(RowSizes<NormForwardArgs<T, P>>(layout, t.x, t.weight), t,
                          internal::RecipeOf(norm));
  args.gate_before_norm = spec.gate_before_norm;
  args.cast_before_gain = spec.cast_before_weight;
  const Tensor& output = t.quantized.defined() ? t.quantized : t.y;
  if (t.x.is_cpu()) return NormForward<T, P>(norm, args, CoreOptions(spec, output));
  const GpuCall call(t.x, cuda::WorkspaceBytes(args));
  cuda::NormForward<T, P>(norm, args, call.With(GpuOptions(spec)));
}

template <class T, class P>
void BackwardRows(const NormSpec& spec, const NormBackwardTensors& t, const Layout& layout) {
  const Norm norm = CoreNorm(
      spec, t.weight.defined() || t.dweight.defined() || t.dbias.defined() || t.gate.defined());
  auto args = BackwardArgs(RowSizes<NormBackwardArgs<T, P>>(layout, t.x, t.weight), t,
                           internal::RecipeOf(norm));
  args.gate_before_norm = spec.gate_before_norm;
  if (t.x.is_cpu()) return NormBackward<T, P>(norm, args, CoreOptions(spec, t.dx));
  const GpuCall call(t.x, cuda::WorkspaceBytes(args));
  cuda::NormBackward<T, P>(norm, args, call.With(GpuOptions(spec)));
}

template <class T, class P>
void ForwardChannels(const NormSpec& spec, const NormForwardTensors& t, const Layout& layout) {
  const Norm norm = CoreNorm(spec, t.weight.defined() || t.bias.defined());
  const auto args =
      ForwardArgs(ChannelSizes<ChannelNormForwardArgs<T, P>>(layout), t, internal::RecipeOf(norm));
  if (t.x.is_cpu()) return ChannelNormForward<T, P>(norm, args, CoreOptions(spec, t.y));
  const GpuCall call(t.x, cuda::WorkspaceBytes(args));
  cuda::ChannelNormForward<T, P>(norm, args, call.With(GpuOptions(spec)));
}

template <class T, class P>
void BackwardChannels(const NormSpec& spec, const NormBackwardTensors& t, const Layout& layout) {
  const Norm norm = CoreNorm(spec, t.weight.defined() || t.dweight.defined() || t.dbias.defined());
  const auto args = BackwardArgs(ChannelSizes<ChannelNormBackwardArgs<T, P>>(layout), t,
                                 internal::RecipeOf(norm));
  if (t.x.is_cpu()) return ChannelNormBackward<T, P>(norm, args, CoreOptions(spec, t.dx));
  const GpuCall call(t.x, cuda::WorkspaceBytes(args));
  cuda::ChannelNormBackward<T, P>(norm, args, call.With(GpuOptions(spec)));
}

/// Saves the unbiased variance as a running estimate with momentum 1; 0 if a channel has one
/// element.
template <class T, class P>
void ForwardBatch(const NormSpec& spec, const NormForwardTensors& t, const Layout& layout) {
  constexpr int64_t kVarRow = 3;
  if (t.statistics.defined()) t.statistics.select(0, kVarRow).zero_();
  auto args = ForwardArgs(ChannelSizes<BatchNormForwardArgs<T, P>>(layout), t);
  Tensor mean;
  if (t.statistics.defined() && layout.outer * layout.inner >= 2) {
    mean = at::zeros({layout.features}, t.statistics.options());
    args = WithArrays(args, {{"running_mean", mean}, {"running_var", t.statistics, kVarRow}});
  }
  if (t.x.is_cpu()) return BatchNormForward<T, P>(args, CoreBatchOptions(spec));
  const GpuCall call(t.x, cuda::WorkspaceBytes(args));
  cuda::BatchNormForward<T, P>(args, call.With(GpuBatchOptions(spec)));
}

template <class T, class P>
void BackwardBatch(const NormSpec& spec, const NormBackwardTensors& t, const Layout& layout) {
  const auto args = BackwardArgs(ChannelSizes<BatchNormBackwardArgs<T, P>>(layout), t);
  if (t.x.is_cpu()) return BatchNormBackward<T, P>(args, CoreBatchOptions(spec));
  const GpuCall call(t.x, cuda::WorkspaceBytes(args));
  cuda::BatchNormBackward<T, P>(args, call.With(GpuBatchOptions(spec)));
}

/// Returns `t`, or a copy if its strides are not those that the kernels read.
c10::MaybeOwned<Tensor> KernelArray(const NormSpec& spec, const Tensor& t,
                                    at::MemoryFormat format) {
  return spec.over == Over::kRow ? EvenRows(t) : ContiguousOrBorrowed(t, format);
}

/// Returns the statistics in the order in which the kernels read them.
c10::MaybeOwned<Tensor> KernelStatistics(const Tensor& statistics, const Tensor& x,
                                         const Tensor& weight) {
  if (!HasGains(weight)) return ContiguousOrBorrowed(statistics);
  return c10::MaybeOwned<Tensor>::owned(
      statistics.permute(StatisticsOrder(x, weight)).contiguous());
}

/// Returns whether x has no rows because a dimension with several gains has size 0.
bool HasNoGains(const Tensor& x, const Tensor& weight) {
  if (!HasGains(weight)) return false;
  const GainDims dims = GainDimsOf(x, weight);
  return SizeOf(x, dims.first, dims.last) == 0;
}

}  // namespace

void RunNormForward(const NormSpec& spec, const NormForwardTensors& given) {
  if (HasNoGains(given.x, given.weight)) return;
  const auto weight = ContiguousOrBorrowed(given.weight), bias = ContiguousOrBorrowed(given.bias);
  const at::MemoryFormat format = FormatOf(spec, given.x);
  const auto x = KernelArray(spec, given.x, format);
  const auto residual = KernelArray(spec, given.residual, format);
  const auto gate = KernelArray(spec, given.gate, format);
  const NormForwardTensors t = {
      *x,        *residual,        *gate,           *weight,        *bias, given.y,
      given.sum, given.statistics, given.quantized, given.row_scale};
  const Layout layout = LayoutOf(spec, given.x);
  ByTypes(t.x, t.weight.defined() ? t.weight : t.bias, [&]<class T, class P>() {
    switch (spec.over) {
      case Over::kRow:
        return ForwardRows<T, P>(spec, t, layout);
      case Over::kChannels:
        return ForwardChannels<T, P>(spec, t, layout);
      case Over::kBatch:
        return ForwardBatch<T, P>(spec, t, layout);
    }
  });
}

void RunNormBackward(const NormSpec& spec, const NormBackwardTensors& given) {
  if (HasNoGains(given.x, given.weight)) return;
  const auto weight = ContiguousOrBorrowed(given.weight), bias = ContiguousOrBorrowed(given.bias);
  const auto statistics = KernelStatistics(given.statistics, given.x, given.weight);
  const at::MemoryFormat format = FormatOf(spec, given.x);
  const auto x = KernelArray(spec, given.x, format), dy = KernelArray(spec, given.dy, format);
  const auto dsum = KernelArray(spec, given.dsum, format);
  const auto gate = KernelArray(spec, given.gate, format);
  const NormBackwardTensors t = {*dy,   *dsum,    *x,          *gate,         *statistics, *weight,
                                 *bias, given.dx, given.dgate, given.dweight, given.dbias};
  const Layout layout = LayoutOf(spec, given.x);
  const Tensor& like = t.dweight.defined()  ? t.dweight
                       : t.dbias.defined()  ? t.dbias
                       : t.weight.defined() ? t.weight
                                            : t.bias;
  ByTypes(t.x, like, [&]<class T, class P>() {
    switch (spec.over) {
      case Over::kRow:
        return BackwardRows<T, P>(spec, t, layout);
      case Over::kChannels:
        return BackwardChannels<T, P>(spec, t, layout);
      case Over::kBatch:
        return BackwardBatch<T, P>(spec, t, layout);
    }
  });
}

}  // namespace planish
