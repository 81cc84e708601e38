#include "torch/norm/kernels.h"

#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <type_traits>

#include "planish/batch_norm.h"
#include "planish/channel_norm.h"
#include "planish/cuda.h"
#include "planish/norm.h"
#include "torch/base/device.h"
#include "torch/norm/arrays.h"

namespace planish {

namespace {

using at::Tensor;

/// x as [outer, features, inner] in memory. inner is 1 for rows and in channels-last format.
struct Layout {
  int64_t outer = 1, features = 1, inner = 1;
};

Layout LayoutOf(const NormSpec& spec, const Tensor& x, at::MemoryFormat format) {
  Layout layout;
  const int64_t feature = FeatureDim(spec, x);
  layout.features = x.size(feature);
  for (int64_t d = 0; d < feature; ++d) layout.outer *= x.size(d);
  for (int64_t d = feature + 1; d < x.dim(); ++d) layout.inner *= x.size(d);
  if (format != at::MemoryFormat::Contiguous) {
    layout.outer *= layout.inner;
    layout.inner = 1;
  }
  return layout;
}

/// Pointers to the rows of the moments, null if they are not saved.
template <class C>
struct StatisticsPointers {
  C *mean = nullptr, *mean_lo = nullptr, *rstd = nullptr, *var = nullptr;
};

template <class C>
StatisticsPointers<C> StatisticsPointersOf(const Tensor& moments) {
  if (!moments.defined()) return {};
  auto* data = [&] {
    if constexpr (std::is_const_v<C>) {
      return moments.const_data_ptr<std::remove_const_t<C>>();
    } else {
      return moments.mutable_data_ptr<C>();
    }
  }();
  const int64_t groups = moments.numel() / moments.size(0);
  return {data, data + groups, data + 2 * groups,
          moments.size(0) > 3 ? data + 3 * groups : nullptr};
}

// Returns the core's norm: kLayerSimple for LayerNorm without gain and bias.
Norm Recipe(const NormSpec& spec, bool affine) {
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

template <class T>
int64_t ChannelBytes(const Layout& layout) {
  return cuda::ChannelNormWorkspaceBytes<T>(layout.outer, layout.features, layout.inner);
}

template <class T>
int64_t BatchBytes(const Layout& layout) {
  return cuda::BatchNormWorkspaceBytes<T>(layout.outer, layout.features, layout.inner);
}

// Return the arguments of a call without sizes and strides.
template <template <class, class> class Args, class T, class P>
Args<T, P> ForwardArgs(const NormForwardTensors& t) {
  const auto moments = StatisticsPointersOf<Compute<T>>(t.moments);
  Args<T, P> args;
  args.x = Array<const T>(t.x);
  args.gain = Array<const P>(t.weight);
  args.bias = Array<const P>(t.bias);
  args.y = Array<T>(t.y);
  args.mean = moments.mean;
  args.mean_lo = moments.mean_lo;
  args.rstd = moments.rstd;
  return args;
}
template <template <class, class> class Args, class T, class P>
Args<T, P> BackwardArgs(const NormBackwardTensors& t) {
  const auto moments = StatisticsPointersOf<const Compute<T>>(t.moments);
  Args<T, P> args;
  args.dy = Array<const T>(t.dy);
  args.x = Array<const T>(t.x);
  args.gain = Array<const P>(t.weight);
  args.mean = moments.mean;
  args.mean_lo = moments.mean_lo;
  args.rstd = moments.rstd;
  args.dx = Array<T>(t.dx);
  args.dgain = Array<P>(t.dweight);
  args.dbias = Array<P>(t.dbias);
  return args;
}

template <class Args>
void SetSizes(Args& args, const Layout& layout) {
  args.batch = layout.outer;
  args.channels = layout.features;
  args.spatial = layout.inner;
}

// Sets an array of rows and its stride.
template <class T>
void SetRows(const Rows& rows, T*& array, int64_t& stride) {
  array = rows.template array<T>();
  stride = rows.stride;
}

template <class T, class P>
void ForwardRows(const NormSpec& spec, const NormForwardTensors& t) {
  const Rows x = RowsOf(t.x), residual = RowsOf(t.residual);
  auto args = ForwardArgs<NormForwardArgs, T, P>(t);
  args.rows = x.rows;
  args.cols = x.cols;
  SetRows(x, args.x, args.x_stride);
  SetRows(residual, args.residual, args.residual_stride);
  args.sum = Array<T>(t.sum);
  const Norm norm = Recipe(spec, args.gain || args.bias);
  if (t.x.is_cpu()) return NormForward<T, P>(norm, args, CoreOptions(spec, t.y));
  const GpuCall call(t.x, cuda::NormForwardWorkspaceBytes<T>(x.rows, x.cols));
  cuda::NormForward<T, P>(norm, args, call.With(GpuOptions(spec)));
}

template <class T, class P>
void BackwardRows(const NormSpec& spec, const NormBackwardTensors& t) {
  const Rows x = RowsOf(t.x), dy = RowsOf(t.dy), dsum = RowsOf(t.dsum);
  auto args = BackwardArgs<NormBackwardArgs, T, P>(t);
  args.rows = x.rows;
  args.cols = x.cols;
  SetRows(dy, args.dy, args.dy_stride);
  SetRows(x, args.x, args.x_stride);
  SetRows(dsum, args.dsum, args.dsum_stride);
  const bool gradients = args.dgain || args.dbias;
  const Norm norm = Recipe(spec, args.gain || gradients);
  if (t.x.is_cpu()) return NormBackward<T, P>(norm, args, CoreOptions(spec, t.dx));
  const GpuCall call(t.x, cuda::NormBackwardWorkspaceBytes<T>(x.rows, x.cols, gradients));
  cuda::NormBackward<T, P>(norm, args, call.With(GpuOptions(spec)));
}

template <class T, class P>
void ForwardChannels(const NormSpec& spec, const NormForwardTensors& t, const Layout& layout) {
  auto args = ForwardArgs<ChannelNormForwardArgs, T, P>(t);
  SetSizes(args, layout);
  const Norm norm = Recipe(spec, args.gain || args.bias);
  if (t.x.is_cpu()) return ChannelNormForward<T, P>(norm, args, CoreOptions(spec, t.y));
  const GpuCall call(t.x, ChannelBytes<T>(layout));
  cuda::ChannelNormForward<T, P>(norm, args, call.With(GpuOptions(spec)));
}

template <class T, class P>
void BackwardChannels(const NormSpec& spec, const NormBackwardTensors& t, const Layout& layout) {
  auto args = BackwardArgs<ChannelNormBackwardArgs, T, P>(t);
  SetSizes(args, layout);
  const Norm norm = Recipe(spec, args.gain || args.dgain || args.dbias);
  if (t.x.is_cpu()) return ChannelNormBackward<T, P>(norm, args, CoreOptions(spec, t.dx));
  const GpuCall call(t.x, ChannelBytes<T>(layout));
  cuda::ChannelNormBackward<T, P>(norm, args, call.With(GpuOptions(spec)));
}

// Saves the unbiased variance as a running estimate with momentum 1; 0 if a channel has one
// element.
template <class T, class P>
void ForwardBatch(const NormSpec& spec, const NormForwardTensors& t, const Layout& layout) {
  Compute<T>* const var = StatisticsPointersOf<Compute<T>>(t.moments).var;
  if (var) t.moments.select(0, 3).zero_();
  const bool several = var && layout.outer * layout.inner >= 2;
  const Tensor mean = several ? at::zeros({layout.features}, t.moments.options()) : Tensor();
  auto args = ForwardArgs<BatchNormForwardArgs, T, P>(t);
  SetSizes(args, layout);
  args.running_mean = Array<Compute<T>>(mean);
  args.running_var = several ? var : nullptr;
  if (t.x.is_cpu()) return BatchNormForward<T, P>(args, CoreBatchOptions(spec));
  const GpuCall call(t.x, BatchBytes<T>(layout));
  cuda::BatchNormForward<T, P>(args, call.With(GpuBatchOptions(spec)));
}

template <class T, class P>
void BackwardBatch(const NormSpec& spec, const NormBackwardTensors& t, const Layout& layout) {
  auto args = BackwardArgs<BatchNormBackwardArgs, T, P>(t);
  SetSizes(args, layout);
  if (t.x.is_cpu()) return BatchNormBackward<T, P>(args, CoreBatchOptions(spec));
  const GpuCall call(t.x, BatchBytes<T>(layout));
  cuda::BatchNormBackward<T, P>(args, call.With(GpuBatchOptions(spec)));
}

}  // namespace

void RunNormForward(const NormSpec& spec, const NormForwardTensors& given) {
  const auto weight = ContiguousOrBorrowed(given.weight), bias = ContiguousOrBorrowed(given.bias);
  const at::MemoryFormat format = FormatOf(spec, given.x);
  const bool rows = spec.over == Over::kRow;  // rows can have any stride
  const auto x =
      rows ? c10::MaybeOwned<Tensor>::borrowed(given.x) : ContiguousOrBorrowed(given.x, format);
  const NormForwardTensors t = {*x,      given.residual, *weight,      *bias,
                                given.y, given.sum,      given.moments};
  ByTypes(t.x, t.weight.defined() ? t.weight : t.bias, [&]<class T, class P>() {
    if (rows) return ForwardRows<T, P>(spec, t);
    const Layout layout = LayoutOf(spec, t.x, format);
    if (spec.over == Over::kBatch) {
      ForwardBatch<T, P>(spec, t, layout);
    } else {
      ForwardChannels<T, P>(spec, t, layout);
    }
  });
}

void RunNormBackward(const NormSpec& spec, const NormBackwardTensors& given) {
  const auto weight = ContiguousOrBorrowed(given.weight);
  const auto moments = ContiguousOrBorrowed(given.moments);
  const at::MemoryFormat format = FormatOf(spec, given.x);
  const bool rows = spec.over == Over::kRow;
  const auto array = [&](const Tensor& t) {
    return rows ? c10::MaybeOwned<Tensor>::borrowed(t) : ContiguousOrBorrowed(t, format);
  };
  const auto x = array(given.x), dy = array(given.dy);
  const NormBackwardTensors t = {*dy,      given.dsum,    *x,         *moments, *weight,
                                 given.dx, given.dweight, given.dbias};
  const Tensor& like = t.dweight.defined() ? t.dweight : t.dbias.defined() ? t.dbias : t.weight;
  ByTypes(t.x, like, [&]<class T, class P>() {
    if (rows) return BackwardRows<T, P>(spec, t);
    const Layout layout = LayoutOf(spec, t.x, format);
    if (spec.over == Over::kBatch) {
      BackwardBatch<T, P>(spec, t, layout);
    } else {
      BackwardChannels<T, P>(spec, t, layout);
    }
  });
}

}  // namespace planish
