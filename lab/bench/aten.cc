// The layout of the dispatch table below, as libtorch is built for x86-64.
#ifdef __x86_64__
#define HAVE_AVX2_CPU_DEFINITION
#define HAVE_AVX512_CPU_DEFINITION
#endif

#include "lab/bench/aten.h"

#include <ATen/ATen.h>
#include <ATen/native/layer_norm.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>
#include <string>
#include <vector>

#include "lab/bench/contestants.h"
#include "lab/bench/methods.h"

namespace planish::bench {

namespace {

// Returns the sizes of a row norm's matrix.
std::vector<int64_t> Matrix(const Case& c) { return {c.rows * c.spatial, c.cols}; }

// Returns the operators that PyTorch's users write for a norm over rows. `gain` and `bias` have the
// type of x.
at::Tensor Compose(const Method& method, const at::Tensor& x, const at::Tensor& gate,
                   const at::Tensor& gain, const at::Tensor& bias, const at::Tensor& scalars,
                   int64_t heads) {
  if (method.over == Over::kElement) {
    const at::Tensor z = scalars[0] * x + scalars[1];
    return (method.function == Pointwise::kTanh ? at::tanh(z) : at::erf(z)) * gain + bias;
  }
  const at::Tensor input = method.gate == Gate::kBefore ? x * at::silu(gate) : x;
  const int64_t rows = x.size(0), cols = x.size(1) / heads;
  at::Tensor y;
  if (heads > 1) {
    const at::Tensor parts = input.view({rows, heads, cols});
    y = method.norm == Norm::kRms ? at::rms_norm(parts, {cols}, {}, kEps)
                                  : at::layer_norm(parts, {cols}, {}, {}, kEps);
    y = y * gain.view({heads, cols});
    if (method.bias) y = y + bias.view({heads, cols});
    y = y.view({rows, heads * cols});
  } else if (method.cast) {
    const bool half = x.element_size() == 2;
    const at::Tensor wide = half ? input.to(at::kFloat) : input;
    const at::Tensor rstd = at::rsqrt(wide.pow(2).mean(-1, true) + kEps);
    y = (wide * rstd).to(x.scalar_type()) * gain;
  } else if (method.norm == Norm::kRms) {
    y = at::rms_norm(input, {cols}, gain, kEps);
  } else {
    y = at::layer_norm(input, {cols}, gain, bias, kEps);
  }
  return method.gate == Gate::kAfter ? y * at::silu(gate) : y;
}

// How often the operators of Compose round a value to a 16-bit type: silu, products, norm, sum; in
// backward about as often.
constexpr int kRoundings = 6;

// Makes a contestant of Compose: forward without gradients, or the backward of its graph.
Contestant MakeComposed(const Method& method, const Case& c, const Arrays& arrays) {
  const Type parameter = ParameterType(c.type);
  const int64_t heads = GroupsOf(method, c);
  const auto parameters = [&](const void* data, int64_t n) {
    return View(data, {n}, parameter).to(ScalarType(c.type));
  };
  const bool gated = method.gate != Gate::kNone;
  std::vector<at::Tensor> in = {
      View(arrays.x, Matrix(c), c.type),
      gated ? View(arrays.gate, Matrix(c), c.type) : at::Tensor(), parameters(arrays.gain, c.cols),
      method.bias ? parameters(arrays.bias, c.cols) : at::Tensor(), parameters(arrays.scalars, 2)};
  const auto compose = [=](const std::vector<at::Tensor>& t) {
    return Compose(method, t[0], t[1], t[2], t[3], t[4], heads);
  };
  if (c.direction == Direction::kForward) {
    const auto y = std::make_shared<at::Tensor>();
    return {.call =
                [=] {
                  const c10::InferenceMode inference;
                  *y = compose(in);
                },
            .fetch =
                [=, out = View(arrays.out, Matrix(c), c.type)]() mutable {
                  const c10::InferenceMode inference;
                  out.copy_(*y);
                },
            .roundings = kRoundings};
  }
  std::vector<at::Tensor> inputs, to;
  const auto differentiate = [&](size_t i, void* gradient, at::IntArrayRef sizes, Type type) {
    in[i] = in[i].detach().set_requires_grad(true);
    inputs.push_back(in[i]);
    to.push_back(View(gradient, sizes, type));
  };
  differentiate(0, arrays.out, Matrix(c), c.type);
  if (gated) differentiate(1, arrays.dgate, Matrix(c), c.type);
  differentiate(2, arrays.dgain, {c.cols}, parameter);
  if (method.bias) differentiate(3, arrays.dbias, {c.cols}, parameter);
  if (method.over == Over::kElement) differentiate(4, arrays.dscalars, {2}, parameter);
  const at::Tensor y = compose(in), dy = View(arrays.dy, Matrix(c), c.type);
  const auto gradients = std::make_shared<std::vector<at::Tensor>>();
  return {
      .call = [=] { *gradients = torch::autograd::grad({y}, inputs, {dy}, /*retain_graph=*/true); },
      .fetch =
          [=]() mutable {
            const at::NoGradGuard no_grad;
            for (size_t i = 0; i < to.size(); ++i) to[i].copy_((*gradients)[i]);
          },
      .roundings = kRoundings};
}

}  // namespace

bool HasAten(const std::string& method) {
  const Method& m = FindMethod(method);
  return m.over == Over::kHead || m.over == Over::kElement || m.over == Over::kGroup ||
         (m.over == Over::kRow &&
          (m.norm == Norm::kLayer || m.norm == Norm::kLayerSimple || m.norm == Norm::kRms));
}

// Calls the kernels with outputs, which excludes the operators' allocations and the output copies
// of native_layer_norm.out.
Contestant MakeAten(const std::string& method, const Case& c, const Arrays& arrays) {
  const Method& found = FindMethod(method);
  if (!HasAten(method)) return {.absent = "has no kernel for this norm"};
  const bool composed = IsOfRows(found) && method != "layer" && method != "layer-simple";
  if (composed && found.gate != Gate::kNone && !c.gated) return {.absent = "needs a gated case"};
  if (composed) return MakeComposed(found, c, arrays);
  if (!found.gain && ParameterType(c.type) != c.type) {
    return {.absent = "has no kernel without a gain for statistics in float"};
  }
#ifdef __x86_64__
  const c10::InferenceMode inference;  // no version counters
  if (found.over == Over::kGroup) return MakeAtenGroups(found, c, arrays);
  const at::Tensor x = View(arrays.x, Matrix(c), c.type);
  const Type parameter = ParameterType(c.type);
  // The kernels accept undefined tensors for a norm without gain and bias.
  const auto parameters = [&](const void* data) {
    return method == "layer" ? View(data, {c.cols}, parameter) : at::Tensor();
  };
  const at::Tensor gain = parameters(arrays.gain);
  at::Tensor out = View(arrays.out, Matrix(c), c.type);
  if (c.direction == Direction::kForward) {
    const at::Tensor bias = parameters(arrays.bias);
    return {.call = [=]() mutable {
      at::native::LayerNormKernel(at::kCPU, x, gain, bias, x.size(0), x.size(1), kEps, &out,
                                  nullptr, nullptr);
    }};
  }
  const at::Tensor dy = View(arrays.dy, Matrix(c), c.type);
  const at::Tensor mean = View(arrays.mean, {c.rows * c.spatial}, parameter);
  const at::Tensor rstd = View(arrays.rstd, {c.rows * c.spatial}, parameter);
  at::Tensor dgain = parameters(arrays.dgain);
  at::Tensor dbias = parameters(arrays.dbias);
  return {.call = [=]() mutable {
    at::native::LayerNormBackwardKernel(at::kCPU, dy, x, mean, rstd, gain, x.size(0), x.size(1),
                                        &out, &dgain, &dbias);
  }};
#else
  (void)c, (void)arrays;
  return {.absent = "its kernels are called on x86-64 only"};
#endif
}

}  // namespace planish::bench
