#include "planish/weight_norm.h"

#include <ATen/TensorOperators.h>
#include <torch/library.h>

#include <array>
#include <cstdint>
#include <utility>

#include "planish/cuda.h"
#include "planish/torch_norm.h"
#include "torch/base/autograd.h"
#include "torch/base/device.h"
#include "torch/norm/ops.h"

// weight_norm: weight norm of the rows of a matrix, and of any dimension composed of it.
namespace planish {

namespace {

using at::Tensor;

constexpr char kName[] = "weight_norm";

/// The results of weight_norm_forward. `norm` has one element for each row of v.
struct WeightNormOutputs {
  Tensor w, norm;
};

/// The results of weight_norm_backward, each undefined unless it is requested.
struct WeightNormGradients {
  Tensor dv, dg;
};

WeightNormOutputs CallForward(const Tensor& v, const Tensor& g) {
  static const auto op =
      FindOperator<OperatorPair(const Tensor&, const Tensor&)>("planish::weight_norm_forward");
  auto [w, norm] = op.call(v, g);
  return {std::move(w), std::move(norm)};
}

WeightNormGradients CallBackward(const Tensor& dw, const Tensor& v, const Tensor& g,
                                 const Tensor& norm, std::array<bool, 2> mask) {
  static const auto op =
      FindOperator<OperatorPair(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                std::array<bool, 2>)>("planish::weight_norm_backward");
  auto [dv, dg] = op.call(dw, v, g, norm, mask);
  return {std::move(dv), std::move(dg)};
}

void CheckForward(const Tensor& v, const Tensor& g) {
  TORCH_CHECK_VALUE(v.dim() == 2, "[weight_norm] v must have 2 dimensions, got ", v.dim());
  CheckX(kName, v, 2);
  CheckVector(kName, "g", g, v, v.sym_size(0));
}

WeightNormOutputs ForwardMeta(const Tensor& v, const Tensor& g) {
  CheckForward(v, g);
  return {EmptyOn(v, v.sym_sizes(), v.scalar_type()),
          EmptyOn(v, {v.sym_size(0)}, ComputeType(v.scalar_type()))};
}

WeightNormOutputs Forward(const Tensor& v_, const Tensor& g_) {
  auto [w, norm] = ForwardMeta(v_, g_);
  const Tensor v = v_.contiguous(), g = g_.contiguous();
  ByTypes(v, g, [&]<class T, class P>() {
    const auto args = WithArrays<WeightNormForwardArgs<T, P>>(
        {.rows = v.size(0), .cols = v.size(1)}, {{"v", v}, {"g", g}, {"w", w}, {"norm", norm}});
    if (v.is_cpu()) return WeightNormForward<T, P>(args, TorchParallelFor);
    const GpuCall call(v, cuda::WorkspaceBytes(args));
    cuda::WeightNormForward<T, P>(args, call.With(cuda::WeightNormOptions()));
  });
  return {std::move(w), std::move(norm)};
}

WeightNormGradients BackwardMeta(const Tensor& dw, const Tensor& v, const Tensor& g,
                                 const Tensor& norm, std::array<bool, 2> mask) {
  CheckForward(v, g);
  CheckLike(kName, "dw", dw, v, "v");
  TORCH_CHECK_VALUE(
      norm.sym_numel() == v.sym_size(0) && norm.scalar_type() == ComputeType(v.scalar_type()),
      "[weight_norm] norm must have [", v.sym_size(0), "] ", ComputeType(v.scalar_type()), ", got ",
      norm.sym_sizes(), " ", norm.scalar_type());
  return {mask[0] ? EmptyOn(v, v.sym_sizes(), v.scalar_type()) : Tensor(),
          mask[1] ? EmptyOn(v, {v.sym_size(0)}, g.scalar_type()) : Tensor()};
}

WeightNormGradients Backward(const Tensor& dw_, const Tensor& v_, const Tensor& g_,
                             const Tensor& norm_, std::array<bool, 2> mask) {
  auto [dv, dg] = BackwardMeta(dw_, v_, g_, norm_, mask);
  const Tensor dw = dw_.contiguous(), v = v_.contiguous();
  const Tensor g = g_.contiguous(), norm = norm_.contiguous();
  ByTypes(v, g, [&]<class T, class P>() {
    const auto args = WithArrays<WeightNormBackwardArgs<T, P>>(
        {.rows = v.size(0), .cols = v.size(1)},
        {{"dw", dw}, {"v", v}, {"g", g}, {"norm", norm}, {"dv", dv}, {"dg", dg}});
    if (v.is_cpu()) return WeightNormBackward<T, P>(args, TorchParallelFor);
    const GpuCall call(v, cuda::WorkspaceBytes(args));
    cuda::WeightNormBackward<T, P>(args, call.With(cuda::WeightNormOptions()));
  });
  return {std::move(dv), std::move(dg)};
}

// ---- The equations in PyTorch's operators, for higher derivatives

Tensor NormOf(const Tensor& v) { return Wide(v).norm(2, at::IntArrayRef{1}, /*keepdim=*/true); }

WeightNormOutputs ForwardAutograd(const Tensor& v, const Tensor& g) {
  if (AnyTangent(v, g)) {
    CheckForward(v, g);
    const Tensor norm = NormOf(v);
    return {(Wide(v) * (Wide(g).unsqueeze(1) / norm)).to(v.scalar_type()),
            norm.squeeze(1).detach()};
  }
  const auto forward = [&] { return CallForward(v, g); };
  if (!torch::autograd::compute_requires_grad(v, g)) return BelowAutograd(forward);
  return WithHistory(
      "PlanishWeightNormBackward", {v, g}, forward,
      [&](const WeightNormOutputs& outputs) { return Tensors{v, g, outputs.norm}; },
      [](const WeightNormOutputs& outputs) { return Tensors{outputs.w}; },
      [](const Tensors& gradients, const Tensors& kept, const auto& needed) {
        if (!gradients[0].defined()) return Tensors(2);
        const auto [dv, dg] =
            CallBackward(gradients[0], kept[0], kept[1], kept[2], {needed(0), needed(1)});
        return Tensors{dv, dg};
      });
}

WeightNormGradients BackwardAutograd(const Tensor& dw, const Tensor& v, const Tensor& g,
                                     const Tensor& saved, std::array<bool, 2> mask) {
  if (!AnyTangent(dw, v, g) && !torch::autograd::compute_requires_grad(dw, v, g)) {
    return BelowAutograd([&] { return CallBackward(dw, v, g, saved, mask); });
  }
  CheckForward(v, g);
  const Tensor norm = NormOf(v), unit = Wide(v) / norm;
  const Tensor dg = (Wide(dw) * unit).sum(1, /*keepdim=*/true);
  const Tensor dv = Wide(g).unsqueeze(1) / norm * (Wide(dw) - unit * dg);
  return {mask[0] ? dv.to(v.scalar_type()) : Tensor(),
          mask[1] ? dg.squeeze(1).to(g.scalar_type()) : Tensor()};
}

Tensor WeightNorm(const Tensor& v, const Tensor& g_, int64_t dim) {
  const OptionalTensor given = g_, none;
  const KernelParameters parameters(v, given, none);
  const Tensor& g = *parameters.weight();
  TORCH_CHECK_VALUE(dim >= -1 && dim < v.dim(), "[weight_norm] dim must be from -1 to ",
                    v.dim() - 1, ", got ", dim);
  if (dim == -1) {  // one norm of the whole tensor, as in PyTorch
    TORCH_CHECK_VALUE(g.sym_numel() == 1, "[weight_norm] g must have one element, got ",
                      g.sym_sizes());
    return CallForward(v.reshape({1, -1}), g.reshape({1})).w.view_symint(v.sym_sizes());
  }
  TORCH_CHECK_VALUE(g.sym_numel() == v.sym_size(dim), "[weight_norm] g must have ", v.sym_size(dim),
                    " elements, got ", g.sym_sizes());
  const Tensor first = v.transpose(0, dim);
  const Tensor rows = v.dim() == 1 ? first.unsqueeze(1) : first.flatten(1);
  return CallForward(rows, g.flatten())
      .w.view_symint(first.sym_sizes())
      .transpose(0, dim)
      .contiguous();
}

}  // namespace

inline namespace PLANISH_API {

Tensor weight_norm(const Tensor& v, const Tensor& g, int64_t dim) { return WeightNorm(v, g, dim); }

}  // namespace PLANISH_API

TORCH_LIBRARY_FRAGMENT(planish, m) {
  m.def("weight_norm_forward(Tensor v, Tensor g) -> (Tensor w, Tensor norm)");
  m.def(
      "weight_norm_backward(Tensor dw, Tensor v, Tensor g, Tensor norm, bool[2] mask) -> (Tensor "
      "dv, Tensor dg)");
  m.def("weight_norm(Tensor v, Tensor g, int dim=0) -> Tensor");
}

void RegisterWeightNorm(torch::Library& m) {
  m.impl("weight_norm_forward", TupleKernel<Forward>::Call);
  m.impl("weight_norm_backward", TupleKernel<Backward>::Call);
}

TORCH_LIBRARY_IMPL(planish, CPU, m) { RegisterWeightNorm(m); }
TORCH_LIBRARY_IMPL(planish, CUDA, m) { RegisterWeightNorm(m); }

TORCH_LIBRARY_IMPL(planish, Meta, m) {
  m.impl("weight_norm_forward", TupleKernel<ForwardMeta>::Call);
  m.impl("weight_norm_backward", TupleKernel<BackwardMeta>::Call);
}

TORCH_LIBRARY_IMPL(planish, Autograd, m) {
  m.impl("weight_norm_forward", TupleKernel<ForwardAutograd>::Call);
  m.impl("weight_norm_backward", TupleKernel<BackwardAutograd>::Call);
}

TORCH_LIBRARY_IMPL(planish, CompositeImplicitAutograd, m) { m.impl("weight_norm", WeightNorm); }
TORCH_LIBRARY_IMPL(planish, FuncTorchBatchedDecomposition, m) { m.impl("weight_norm", WeightNorm); }

}  // namespace planish
