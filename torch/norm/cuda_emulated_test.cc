#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "planish/torch_norm.h"
#include "torch/base/fake_cuda_device.h"

// Norms on the fake CUDA device against the CPU, whose tests compare with references.
namespace planish {
namespace {

using at::Tensor;
using ::testing::HasSubstr;
using tests::ToCpu;
using tests::ToGpu;

using Tensors = std::vector<Tensor>;
using Function = std::function<Tensors(const Tensors&)>;

/// A norm: its inputs, x first, and a function that computes its outputs.
struct Case {
  std::string name;
  std::vector<std::vector<int64_t>> sizes;
  Function function;
  bool channels_last = false;
};

std::vector<Case> Cases() {
  const std::vector<int64_t> rows = {2, 3, 40}, images = {3, 8, 2, 5}, matrix = {6, 10};
  const auto one = [](const Tensor& y) { return Tensors{y}; };
  const auto both = [](const std::tuple<Tensor, Tensor>& results) {
    return Tensors{std::get<0>(results), std::get<1>(results)};
  };
  const auto estimates = [](const Tensor& x, int64_t number) {
    return at::full({x.size(1)}, number, x.options().requires_grad(false));
  };
  return {
      {"layer_norm",
       {rows, {40}, {40}},
       [=](const Tensors& t) { return one(planish::layer_norm(t[0], {40}, t[1], t[2])); }},
      {"layer_norm_simple",
       {rows},
       [=](const Tensors& t) { return one(layer_norm_simple(t[0], {40})); }},
      {"rms_norm",
       {rows, {40}},
       [=](const Tensors& t) { return one(planish::rms_norm(t[0], {40}, t[1])); }},
      {"gated_rms_norm",
       {rows, rows, {40}},
       [=](const Tensors& t) { return one(gated_rms_norm(t[0], t[1], {40}, t[2])); }},
      {"gated_layer_norm, gate first",
       {rows, rows, {40}, {40}},
       [=](const Tensors& t) {
         return one(gated_layer_norm(t[0], t[1], {40}, t[2], t[3], 1e-5, false));
       }},
      {"gated_rms_norm, cast, without a gate",
       {rows, {40}},
       [=](const Tensors& t) {
         return one(gated_rms_norm(t[0], {}, {40}, t[1], 1e-5, true, /*cast_before_weight=*/true));
       }},
      {"quantized_layer_norm",
       {rows, rows, {40}, {40}},
       [=](const Tensors& t) {
         const auto [quantized, scale] = quantized_layer_norm(t[0], {40}, t[2], t[3], 1e-5, t[1]);
         return Tensors{quantized.to(at::kFloat), scale};
       }},
      {"add_quantized_rms_norm",
       {rows, rows, {40}},
       [=](const Tensors& t) {
         const auto [quantized, scale, sum] = add_quantized_rms_norm(t[0], t[1], {40}, t[2]);
         return Tensors{quantized.to(at::kFloat), scale, sum};
       }},
      {"detach_norm", {rows}, [=](const Tensors& t) { return one(detach_norm(t[0], {40})); }},
      {"ada_norm", {rows}, [=](const Tensors& t) { return one(ada_norm(t[0], {40})); }},
      {"add_layer_norm",
       {rows, rows, {40}, {40}},
       [=](const Tensors& t) { return both(add_layer_norm(t[0], t[1], {40}, t[2], t[3])); }},
      {"channel_layer_norm",
       {images, {8}, {8}},
       [=](const Tensors& t) { return one(channel_layer_norm(t[0], t[1], t[2])); }},
      {"channel_layer_norm, channels last",
       {images, {8}, {8}},
       [=](const Tensors& t) { return one(channel_layer_norm(t[0], t[1], t[2])); },
       true},
      {"channel_layer_norm of rows",
       {matrix, {10}, {10}},
       [=](const Tensors& t) { return one(channel_layer_norm(t[0], t[1], t[2])); }},
      {"batch_norm",
       {images, {8}, {8}},
       [=](const Tensors& t) {
         return one(planish::batch_norm(t[0], t[1], t[2], {}, {}, true, .1, 1e-5, false));
       }},
      {"batch_norm, running",
       {images, {8}, {8}},
       [=](const Tensors& t) {
         const Tensor mean = estimates(t[0], 0), var = estimates(t[0], 1);
         const Tensor y = planish::batch_norm(t[0], t[1], t[2], mean, var, true, .1, 1e-5, true);
         return Tensors{y, mean, var};
       }},
      {"batch_norm, channels last",
       {images, {8}, {8}},
       [=](const Tensors& t) {
         return one(planish::batch_norm(t[0], t[1], t[2], {}, {}, true, .1, 1e-5, false));
       },
       true},
      {"batch_norm, evaluation",
       {matrix, {10}, {10}},
       [=](const Tensors& t) {
         return one(planish::batch_norm(t[0], t[1], t[2], estimates(t[0], 1), estimates(t[0], 2),
                                        false, .1, 1e-5, false));
       }},
      {"online_layer_norm",
       {matrix, {10}, {10}},
       [=](const Tensors& t) {
         const Tensor state = at::ones({2}, t[0].options().dtype(at::kDouble).requires_grad(false));
         return both(online_layer_norm(t[0], state, t[1], t[2], .2));
       }},
      {"online_layer_norm, 1/t",
       {matrix, {10}, {10}},
       [=](const Tensors& t) {
         const Tensor state = at::ones({3}, t[0].options().dtype(at::kDouble).requires_grad(false));
         return both(online_layer_norm(t[0], state, t[1], t[2], .2, "inverse"));
       }},
      {"weight_norm",
       {matrix, {6, 1}},
       [=](const Tensors& t) { return one(weight_norm(t[0], t[1], 0)); }},
      {"weight_norm of columns",
       {matrix, {1, 10}},
       [=](const Tensors& t) { return one(weight_norm(t[0], t[1], 1)); }},
  };
}

/// Returns the outputs of a case, and the gradients of its inputs, on the CPU.
Tensors Results(const Case& c, const Tensors& given, bool gpu) {
  const auto place = [&](const Tensor& t) { return gpu ? ToGpu(t) : t; };
  Tensors inputs;
  for (const Tensor& t : given) inputs.push_back(place(t).detach().requires_grad_(true));
  Tensors results = c.function(inputs), differentiable, seeds;
  at::manual_seed(2);
  for (const Tensor& y : results) {
    EXPECT_EQ(y.device(), inputs[0].device()) << c.name;
    const Tensor seed = at::randn(y.sizes(), at::TensorOptions().dtype(y.scalar_type()));
    if (!y.requires_grad()) continue;
    differentiable.push_back(y);
    seeds.push_back(
        place(c.channels_last ? seed.contiguous(at::MemoryFormat::ChannelsLast) : seed));
  }
  // Outputs in int8 have no gradients.
  if (!differentiable.empty()) {
    for (const Tensor& g :
         torch::autograd::grad(differentiable, inputs, seeds, /*retain_graph=*/std::nullopt,
                               /*create_graph=*/false, /*allow_unused=*/true)) {
      if (g.defined()) results.push_back(g);
    }
  }
  for (Tensor& t : results) t = gpu ? ToCpu(t) : t.detach();
  return results;
}

// Sums of at most 40 terms are in another order, so they agree to the type's precision. 16-bit
// types have float statistics on both sides, and results are rounded once: one ulp.
double ToleranceOf(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return 1e-13;
    case at::kFloat:
      return 1e-5;
    case at::kHalf:
      return 2e-3;
    default:
      return 1.6e-2;
  }
}

TEST(NormsOnGpu, MatchTheCpu) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const Case& c : Cases()) {
      at::manual_seed(1);
      Tensors given;
      for (const auto& sizes : c.sizes) given.push_back(at::randn(sizes).to(type));
      if (c.channels_last) given[0] = given[0].contiguous(at::MemoryFormat::ChannelsLast);
      const Tensors expected = Results(c, given, false), found = Results(c, given, true);
      ASSERT_EQ(found.size(), expected.size());
      for (size_t i = 0; i < found.size(); ++i) {
        ASSERT_EQ(found[i].sizes(), expected[i].sizes()) << c.name << " " << i;
        ASSERT_EQ(found[i].strides(), expected[i].strides()) << c.name << " " << i;
        const Tensor a = found[i].to(at::kDouble), b = expected[i].to(at::kDouble);
        const double most = std::max(1.0, b.abs().max().item<double>());
        EXPECT_LE((a - b).abs().max().item<double>(), ToleranceOf(type) * most)
            << c.name << " " << type << ", result " << i;
      }
    }
  }
}

TEST(NormsOnGpu, WriteDxOverUnsharedDy) {
  at::manual_seed(1);
  const Tensor x = ToGpu(at::randn({5, 40})).requires_grad_(true), w = ToGpu(at::randn({5, 40}));
  const Tensor expected = torch::autograd::grad({layer_norm_simple(x, {40})}, {x}, {w})[0];
  const Tensor y = layer_norm_simple(x, {40});
  const void* dy = nullptr;
  y.register_hook([&](const Tensor& gradient) { dy = gradient.const_data_ptr(); });
  const Tensor dx = torch::autograd::grad({(w * y).sum()}, {x})[0];
  EXPECT_EQ(dx.const_data_ptr(), dy);
  EXPECT_TRUE(ToCpu(dx).equal(ToCpu(expected)));
}

TEST(NormsOnGpu, NameTensorsOnAnotherDeviceInErrors) {
  const Tensor x = ToGpu(at::randn({5, 8}));
  try {
    planish::layer_norm(x, {8}, at::ones({8}));
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("[layer_norm] weight must have x's type or Float, and x's device"));
  }
}

}  // namespace
}  // namespace planish
