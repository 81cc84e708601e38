#include <ATen/Functions.h>
#include <c10/util/StringUtil.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/serialize.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "planish/torch.h"
#include "src/norm/online/alpha_rule.h"

namespace planish::nn {
namespace {

using at::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Both sides compute in double: sums of some ten terms of size about 1, each rounded to 2^-53, in
// different order. 1e-12 is thousands of such roundings.
constexpr double kDouble = 1e-12;
// Both sides compute in float on values below 10: a few roundings of 2^-24 each.
constexpr double kFloat = 1e-5;

double MaxDifference(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  return (a.detach() - b.detach()).abs().max().item<double>();
}

Tensor Random(at::IntArrayRef shape) { return at::randn(shape, at::kDouble); }

/// Returns `module` in double, with random parameters.
template <class Module>
Module Drawn(Module module) {
  module->to(at::kDouble);
  const at::NoGradGuard no_grad;
  for (Tensor& parameter : module->parameters()) parameter.normal_();
  return module;
}

std::vector<std::string> Keys(const torch::nn::Module& module) {
  std::vector<std::string> keys = module.named_parameters().keys();
  for (const std::string& key : module.named_buffers().keys()) keys.push_back(key);
  return keys;
}

std::string Text(const torch::nn::Module& module) {
  std::ostringstream text;
  text << module;
  return text.str();
}

/// Loads into `to` what `from` saved.
template <class From, class To>
void SaveAndLoad(const From& from, To& to) {
  std::stringstream file;
  torch::save(from, file);
  torch::load(to, file);
}

/// Returns gradients of sum(y*dy) for x and the parameters of `module`.
std::vector<Tensor> Gradients(const std::function<Tensor(const Tensor&)>& forward, const Tensor& x,
                              const std::vector<Tensor>& parameters, const Tensor& dy) {
  std::vector<Tensor> inputs = {x.detach().clone().requires_grad_(true)};
  inputs.insert(inputs.end(), parameters.begin(), parameters.end());
  return torch::autograd::grad({forward(inputs[0])}, inputs, {dy});
}

/// Expects the module's results and gradients to equal those of a composition of PyTorch's
/// operators.
template <class Module, class Composition>
void ExpectIs(Module& module, const Tensor& x, const Composition& composition) {
  const Tensor dy = Random(x.sizes());
  EXPECT_LT(MaxDifference(module->forward(x), composition(x)), kDouble);
  const auto ours =
      Gradients([&](const Tensor& t) { return module->forward(t); }, x, module->parameters(), dy);
  const auto theirs = Gradients(composition, x, module->parameters(), dy);
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_LT(MaxDifference(ours[i], theirs[i]), kDouble) << i;
  }
}

Tensor MeanOf(const Tensor& x) { return x.mean(-1, /*keepdim=*/true); }
Tensor VarOf(const Tensor& x, bool unbiased = false) { return x.var(-1, unbiased, true); }
Tensor XHat(const Tensor& x, double eps) { return (x - MeanOf(x)) / (VarOf(x) + eps).sqrt(); }

// ---- Norms over rows

TEST(LayerNormModule, MatchesItsEquation) {
  at::manual_seed(1);
  auto norm = Drawn(LayerNorm(LayerNormOptions({3, 4}).eps(1e-3)));
  ExpectIs(norm, Random({5, 3, 4}), [&](const Tensor& x) {
    return at::layer_norm(x, {3, 4}, norm->weight, norm->bias, 1e-3);
  });
  auto weight = Drawn(LayerNorm(LayerNormOptions({7}).bias(false)));
  ExpectIs(weight, Random({5, 7}),
           [&](const Tensor& x) { return at::layer_norm(x, {7}, weight->weight); });
  EXPECT_FALSE(weight->bias.defined());
  LayerNorm plain(LayerNormOptions({7}).elementwise_affine(false));
  EXPECT_TRUE(plain->parameters().empty());
  ExpectIs(plain, Random({5, 7}), [&](const Tensor& x) { return at::layer_norm(x, {7}); });
}

TEST(LayerNormModule, SharesCheckpointsWithTorch) {
  at::manual_seed(2);
  torch::nn::LayerNorm theirs(torch::nn::LayerNormOptions({6})), back(theirs->options);
  LayerNorm ours(LayerNormOptions({6}));
  {
    const at::NoGradGuard no_grad;
    theirs->weight.normal_();
    theirs->bias.normal_();
  }
  SaveAndLoad(theirs, ours);
  SaveAndLoad(ours, back);
  const Tensor x = at::randn({4, 6});
  EXPECT_LT(MaxDifference(ours->forward(x), theirs->forward(x)), kFloat);
  EXPECT_TRUE(back->forward(x).equal(theirs->forward(x)));
}

TEST(RMSNormModule, MatchesItsEquation) {
  at::manual_seed(3);
  auto norm = Drawn(RMSNorm(RMSNormOptions({3, 4}).eps(1e-3)));
  ExpectIs(norm, Random({5, 3, 4}), [&](const Tensor& x) {
    return x / (x.square().mean({1, 2}, /*keepdim=*/true) + 1e-3).sqrt() * norm->weight;
  });
  RMSNorm plain(RMSNormOptions({4}).elementwise_affine(false));
  EXPECT_TRUE(plain->parameters().empty());
  // Elements so small that eps matters; the default eps is the type's epsilon.
  const Tensor x = 1e-8 * Random({5, 4});
  EXPECT_LT(MaxDifference(plain->forward(x), at::rms_norm(x, {4})), kDouble);
  EXPECT_GT(MaxDifference(plain->forward(x), at::rms_norm(x, {4}, {}, 0.0)), 0.1);
}

TEST(RMSNormModule, AddsWeightOffsetToTheWeight) {
  at::manual_seed(4);
  auto norm = RMSNorm(RMSNormOptions({6}).eps(1e-3).weight_offset(1));
  EXPECT_TRUE(norm->weight.equal(at::zeros({6})));
  norm = Drawn(norm);
  ExpectIs(norm, Random({5, 6}), [&](const Tensor& x) {
    return x / (x.square().mean(-1, /*keepdim=*/true) + 1e-3).sqrt() * (norm->weight + 1);
  });
  auto layer = Drawn(LayerNorm(LayerNormOptions({6}).weight_offset(-0.5)));
  ExpectIs(layer, Random({5, 6}), [&](const Tensor& x) {
    return at::layer_norm(x, {6}, layer->weight - 0.5, layer->bias);
  });
  // Not rounded to 16 bits: in bfloat16 1 + 2^-9 is 1.
  auto half = RMSNorm(RMSNormOptions({2}).eps(0.0).weight_offset(1));
  half->to(at::kBFloat16);
  half->weight.data().fill_(0x1p-9);
  const Tensor x = at::full({1, 2}, 1 + 0x1p-7, at::kBFloat16);  // xhat is 1
  const Tensor y = half->forward(x);
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(
      y.equal(at::rms_norm(x, {2}, half->weight.to(at::kFloat) + 1, 0.0).to(at::kBFloat16)));
}

TEST(RMSNormModule, NormalizesGroups) {
  at::manual_seed(4);
  auto norm = Drawn(RMSNorm(RMSNormOptions({6}).eps(1e-3).groups(2)));
  ExpectIs(norm, Random({5, 6}), [&](const Tensor& x) {
    return at::rms_norm(x.view({5, 2, 3}), {3}, {}, 1e-3).view({5, 6}) * norm->weight;
  });
  auto layer = Drawn(LayerNorm(LayerNormOptions({6}).groups(3).weight_offset(1)));
  ExpectIs(layer, Random({5, 6}),
           [&](const Tensor& x) { return at::group_norm(x, 3, layer->weight + 1, layer->bias); });
}

/// Checks `found`, the quantized rows of y, against the definition.
void ExpectQuantized(const std::tuple<Tensor, Tensor>& found, const Tensor& y) {
  const Tensor max = y.abs().amax({-1}, true);
  EXPECT_TRUE(at::equal(std::get<0>(found), (y * (127 / max)).round().to(at::kChar)));
  EXPECT_TRUE(at::equal(std::get<1>(found), max / 127));
}

TEST(NormModules, QuantizeTheirOutput) {
  const Tensor x = at::randn({3, 6}), z = at::randn({3, 6});
  auto layer = Drawn(LayerNorm(LayerNormOptions({6})));
  ExpectQuantized(layer->quantized(x), layer(x).detach());
  ExpectQuantized(layer->quantized(x, z), layer(x, z).detach());
  auto rms = Drawn(RMSNorm(RMSNormOptions({6}).groups(2).weight_offset(1).norm_before_gate(false)));
  const auto [quantized, scale] = rms->quantized(x, z);
  EXPECT_EQ(scale.sizes(), (at::IntArrayRef{3, 2}));
  ExpectQuantized({quantized.view({3, 2, 3}), scale.unsqueeze(-1)},
                  rms(x, z).detach().view({3, 2, 3}));
  EXPECT_FALSE(quantized.requires_grad() || scale.requires_grad());
}

TEST(RMSNormModule, MultipliesByAGate) {
  at::manual_seed(5);
  const Tensor z = Random({5, 6});
  const auto silu = [](const Tensor& t) { return t * t.sigmoid(); };
  auto after = Drawn(RMSNorm(RMSNormOptions({6}).eps(1e-3)));
  const Tensor x = Random({5, 6});
  const auto norm = [&](const Tensor& t) { return at::rms_norm(t, {6}, after->weight, 1e-3); };
  EXPECT_TRUE(at::allclose(after(x, z), norm(x) * silu(z), 1e-5, 1e-6));
  auto before = Drawn(RMSNorm(RMSNormOptions({6}).eps(1e-3).norm_before_gate(false)));
  before->weight.data().copy_(after->weight.data());
  EXPECT_TRUE(at::allclose(before(x, z), norm(x * silu(z)), 1e-5, 1e-6));
  EXPECT_TRUE(before(x).equal(after(x)));
  auto layer = Drawn(LayerNorm(LayerNormOptions({6}).groups(2)));
  const Tensor grouped = at::group_norm(x, 2, layer->weight, layer->bias);
  EXPECT_TRUE(at::allclose(layer(x, z), grouped * silu(z), 1e-5, 1e-6));
  torch::nn::Sequential sequential(after);
  EXPECT_TRUE(sequential->forward(x).equal(after(x)));
  EXPECT_EQ(Text(*before),
            "planish::nn::RMSNorm([6], eps=0.001, elementwise_affine=true, "
            "norm_before_gate=false)");
}

TEST(RMSNormModule, RoundsBeforeTheWeight) {
  at::manual_seed(6);
  auto cast = RMSNorm(RMSNormOptions({64}).eps(1e-6).cast_before_weight(true));
  cast->to(at::kBFloat16);
  cast->weight.data().normal_();
  const Tensor x = Random({9, 64}).to(at::kBFloat16);
  const Tensor xhat = planish::rms_norm(x, {64}, {}, 1e-6);
  EXPECT_TRUE(cast(x).equal(xhat * cast->weight));
  EXPECT_FALSE(planish::rms_norm(x, {64}, cast->weight, 1e-6).equal(xhat * cast->weight));
}

// A module by name is the module of that name, to the last bit.
TEST(RowNormModule, IsTheNormOfItsName) {
  at::manual_seed(3);
  const Tensor x = at::randn({6, 7});
  const auto same = [&](const char* norm, auto module) {
    RowNorm by_name(RowNormOptions({7}, norm).eps(1e-3).C(1.5).k(0.2));
    const Tensor a = x.clone().requires_grad_(), b = x.clone().requires_grad_();
    const Tensor y = by_name(a), expected = module(b);
    EXPECT_TRUE(y.equal(expected)) << norm;
    y.square().sum().backward();
    expected.square().sum().backward();
    EXPECT_TRUE(a.grad().equal(b.grad())) << norm;
  };
  const DetachNormOptions detach = DetachNormOptions({7}).eps(1e-3);
  const AdaNormOptions ada = AdaNormOptions({7}).eps(1e-3).C(1.5).k(0.2);
  same("layer", LayerNorm(LayerNormOptions({7}).eps(1e-3)));
  same("layer_simple", LayerNormSimple(LayerNormSimpleOptions({7}).eps(1e-3)));
  same("rms", RMSNorm(RMSNormOptions({7}).eps(1e-3)));
  same("detach", DetachNorm(detach));
  same("detach_mean", DetachNorm(DetachNormOptions(detach).std(false)));
  same("detach_deviation", DetachNorm(DetachNormOptions(detach).mean(false)));
  same("ada", AdaNorm(ada));
  same("ada_as_coded", AdaNorm(AdaNormOptions(ada).as_coded(true)));
}

TEST(LayerNormSimpleModule, MatchesItsEquation) {
  at::manual_seed(4);
  LayerNormSimple norm(LayerNormSimpleOptions({7}).eps(1e-3));
  ExpectIs(norm, Random({5, 7}), [&](const Tensor& x) { return XHat(x, 1e-3); });
}

TEST(DetachNormModule, TreatsSelectedStatisticsAsConstants) {
  at::manual_seed(5);
  for (const bool mean : {false, true}) {
    for (const bool std : {false, true}) {
      DetachNorm norm(DetachNormOptions({7}).mean(mean).std(std).eps(1e-3));
      ExpectIs(norm, Random({5, 7}), [&](const Tensor& x) {
        const Tensor m = MeanOf(x), s = (VarOf(x) + 1e-3).sqrt();
        return (x - (mean ? m.detach() : m)) / (std ? s.detach() : s);
      });
    }
  }
}

TEST(AdaNormModule, MatchesItsEquation) {
  at::manual_seed(6);
  AdaNorm norm(AdaNormOptions({7}).C(2).k(0.2).eps(1e-3));
  ExpectIs(norm, Random({5, 7}), [&](const Tensor& x) {
    const Tensor xhat = XHat(x, 1e-3);
    return 2 * (1 - 0.2 * xhat).detach() * xhat;
  });
  AdaNorm coded(AdaNormOptions({7}).as_coded(true));
  ExpectIs(coded, Random({5, 7}), [&](const Tensor& x) {
    const Tensor xhat = (x - MeanOf(x)) / (VarOf(x, /*unbiased=*/true).sqrt() + 1e-5);
    return (1 - 0.1 * xhat).detach() * xhat;
  });
}

// ---- Online norm

/// Computes one case and updates the state; the state before it is a constant.
Tensor OnlineCase(const Tensor& x, double alpha, double& mu, double& sigma) {
  const Tensor mean = alpha * x.mean() + (1 - alpha) * mu;
  const Tensor s = ((x - mean).square().sum() / (x.numel() - 1)).sqrt();
  const Tensor deviation = alpha * s + (1 - alpha) * sigma;
  mu = mean.item<double>();
  sigma = deviation.item<double>();
  return (x - mean) / deviation;
}

TEST(GroupModules, MatchTorch) {
  at::manual_seed(22);
  const Tensor x = Random({3, 6, 4, 5});
  GroupNorm group = Drawn(GroupNorm(3, 6));
  EXPECT_LT(MaxDifference(group(x), at::group_norm(x, 3, group->weight, group->bias)), kDouble);
  InstanceNorm2d instance =
      Drawn(InstanceNorm2d(InstanceNorm2dOptions(6).affine(true).track_running_stats(true)));
  const Tensor mean = at::zeros({6}, at::kDouble), var = at::ones({6}, at::kDouble);
  const auto expected = [&](bool training) {
    return at::instance_norm(x, instance->weight, instance->bias, mean, var, training, 0.1, 1e-5,
                             false);
  };
  EXPECT_LT(MaxDifference(instance(x), expected(true)), kDouble);
  EXPECT_LT(MaxDifference(instance->running_mean, mean), kDouble);
  EXPECT_LT(MaxDifference(instance->running_var, var), kDouble);
  instance->eval();
  EXPECT_LT(MaxDifference(instance(x), expected(false)), kDouble);
  EXPECT_LT(MaxDifference(instance(x[0]), expected(false)[0]), kDouble);  // without a batch
}

TEST(PointwiseModules, MatchTheirEquations) {
  at::manual_seed(21);
  const Tensor x = Random({5, 4});
  DyT dyt = Drawn(DyT(DyTOptions({4})));
  EXPECT_LT(MaxDifference(dyt(x), dyt->weight * (dyt->alpha * x).tanh() + dyt->bias), kDouble);
  Derf derf = Drawn(Derf(DerfOptions({5, 4})));
  EXPECT_LT(
      MaxDifference(derf(x), derf->weight * (derf->alpha * x + derf->shift).erf() + derf->bias),
      kDouble);
  derf->reset_parameters();
  EXPECT_LT(MaxDifference(derf(x), (x / 2).erf()), kDouble);
}

TEST(OnlineLayerNormModule, UpdatesItsStateOnlyInTraining) {
  at::manual_seed(7);
  const double alpha = 0.3;
  OnlineLayerNorm norm(OnlineLayerNormOptions(5).alpha(alpha));
  norm->to(at::kDouble);
  {
    const at::NoGradGuard no_grad;
    norm->weight.normal_();
    norm->bias.normal_();
  }
  double mu = 0, sigma = 1;
  const auto cases = [&](const Tensor& x) {
    std::vector<Tensor> y;
    for (int64_t i = 0; i < x.size(0); ++i) {
      y.push_back(OnlineCase(x[i], alpha, mu, sigma) * norm->weight + norm->bias);
    }
    return at::stack(y);
  };
  for (int call = 0; call < 2; ++call) {  // the second call starts from the state of the first
    const Tensor x = Random({4, 5}) + 2, dy = Random({4, 5});
    const auto ours =
        Gradients([&](const Tensor& t) { return norm->forward(t); }, x, norm->parameters(), dy);
    const auto theirs = Gradients(cases, x, norm->parameters(), dy);
    for (size_t i = 0; i < ours.size(); ++i) EXPECT_LT(MaxDifference(ours[i], theirs[i]), kDouble);
    EXPECT_NEAR(norm->mu(), mu, kDouble);
    EXPECT_NEAR(norm->sigma(), sigma, kDouble);
  }

  norm->eval();
  const Tensor state = norm->state.clone(), x = Random({4, 5});
  const auto alone = [&](const Tensor& t) {
    std::vector<Tensor> y;
    for (int64_t i = 0; i < t.size(0); ++i) {
      double mu_of_case = mu, sigma_of_case = sigma;
      y.push_back(OnlineCase(t[i], alpha, mu_of_case, sigma_of_case) * norm->weight + norm->bias);
    }
    return at::stack(y);
  };
  ExpectIs(norm, x, alone);
  EXPECT_TRUE(norm->state.equal(state));
  // `advance` overrides either mode.
  EXPECT_LT(MaxDifference(norm->forward(x, /*advance=*/true), cases(x)), kDouble);
  EXPECT_NEAR(norm->mu(), mu, kDouble);
  norm->train();
  EXPECT_LT(MaxDifference(norm->forward(x, /*advance=*/false), alone(x)), kDouble);
  EXPECT_NEAR(norm->mu(), mu, kDouble);
  norm->reset_parameters();
  EXPECT_EQ(norm->mu(), 0);
  EXPECT_EQ(norm->sigma(), 1);
  EXPECT_TRUE(norm->weight.equal(at::ones({5}, at::kDouble)));
}

TEST(OnlineLayerNormModule, FollowsItsSchedule) {
  const auto warmup = [](int64_t t) { return std::max(0.3, 1 / static_cast<double>(t)); };
  at::manual_seed(17);
  OnlineLayerNorm norm(OnlineLayerNormOptions(5).alpha(0.3).affine(false).schedule("warmup"));
  norm->to(at::kDouble);
  double mu = 0, sigma = 1;
  int64_t seen = 0;
  for (const int64_t count : {2, 5}) {  // the second call continues the schedule of the first
    const auto cases = [&](const Tensor& x) {
      std::vector<Tensor> y;
      for (int64_t i = 0; i < x.size(0); ++i) {
        y.push_back(OnlineCase(x[i], warmup(++seen), mu, sigma));
      }
      return at::stack(y);
    };
    const Tensor x = Random({count, 5}) + 2, dy = Random({count, 5});
    const auto ours = Gradients([&](const Tensor& t) { return norm->forward(t); }, x, {}, dy);
    const auto theirs = Gradients(cases, x, {}, dy);
    for (size_t i = 0; i < ours.size(); ++i) EXPECT_LT(MaxDifference(ours[i], theirs[i]), kDouble);
    EXPECT_NEAR(norm->mu(), mu, kDouble);
    EXPECT_NEAR(norm->sigma(), sigma, kDouble);
    EXPECT_EQ(norm->state[2].item<double>(), static_cast<double>(seen));
  }
  norm->eval();
  const Tensor x = Random({3, 5});
  ExpectIs(norm, x, [&](const Tensor& t) {
    std::vector<Tensor> y;
    for (int64_t i = 0; i < t.size(0); ++i) {
      double mu_of_case = mu, sigma_of_case = sigma;
      y.push_back(OnlineCase(t[i], warmup(seen + 1), mu_of_case, sigma_of_case));
    }
    return at::stack(y);
  });
  norm->reset_state();
  EXPECT_EQ(norm->state[2].item<double>(), 0);
}

// The operator has the bits of the core's FillAlphas.
TEST(OnlineAlphas, AreThoseOfTheCore) {
  for (const internal::AlphaRuleName& row : internal::kAlphaRules) {
    for (const int64_t seen : {0, 3, 12345}) {
      std::vector<double> expected(9);
      FillAlphas({.rule = row.rule, .alpha = 0.15}, seen + 1, 9, expected.data());
      const Tensor alphas = online_alphas(at::scalar_tensor(seen, at::kDouble), 9, 0.15, row.name);
      EXPECT_TRUE(alphas.equal(at::tensor(expected, at::kDouble))) << row.name << ' ' << seen;
    }
  }
}

TEST(OnlineLayerNormModule, KeepsTheTypeOfItsStateInCasts) {
  at::manual_seed(8);
  OnlineLayerNorm norm(5);
  norm->forward(at::randn({4, 5}));
  const Tensor state = norm->state.clone();
  torch::nn::Sequential net(norm);
  net->to(at::kBFloat16);
  EXPECT_EQ(norm->weight.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(norm->state.equal(state));  // also its type, double
  net->to(at::kCPU, at::kDouble);
  EXPECT_TRUE(norm->state.equal(state));
  EXPECT_EQ(norm->forward(Random({2, 5})).scalar_type(), at::kDouble);
}

// ---- Norms over channels

TEST(ChannelLayerNormModules, MatchLayerNormOfPermutedInput) {
  at::manual_seed(9);
  const auto permuted = [](const auto& norm, double eps) {
    return [&norm, eps](const Tensor& x) {
      const Tensor last = x.movedim(1, -1);
      return at::layer_norm(last, {3}, norm->weight, norm->bias, eps).movedim(-1, 1);
    };
  };
  auto one = Drawn(LayerNorm1d(LayerNorm1dOptions(3).eps(1e-3)));
  ExpectIs(one, Random({4, 3}), permuted(one, 1e-3));
  ExpectIs(one, Random({4, 3, 5}), permuted(one, 1e-3));
  auto two = Drawn(LayerNorm2d(LayerNorm2dOptions(3).bias(false)));
  ExpectIs(two, Random({2, 3, 4, 5}), permuted(two, 1e-5));
  const Tensor x = Random({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast);
  ExpectIs(two, x, permuted(two, 1e-5));
  EXPECT_TRUE(two->forward(x).is_contiguous(at::MemoryFormat::ChannelsLast));
  LayerNorm2d plain(LayerNorm2dOptions(3).affine(false));
  EXPECT_TRUE(plain->parameters().empty());
  ExpectIs(plain, Random({2, 3, 4, 5}), permuted(plain, 1e-5));
}

// ---- Batch norms

template <class Ours, class Theirs>
void ExpectTrainAlike(Ours ours, Theirs theirs, at::IntArrayRef shape) {
  SCOPED_TRACE(Text(*ours));
  theirs->to(at::kDouble);
  {
    const at::NoGradGuard no_grad;
    for (Tensor& parameter : theirs->parameters()) parameter.normal_();
  }
  ours->to(at::kDouble);
  SaveAndLoad(theirs, ours);
  for (const bool training : {true, true, false}) {
    ours->train(training);
    theirs->train(training);
    const Tensor x = 3 * Random(shape) + 1, dy = Random(shape);
    const auto a =
        Gradients([&](const Tensor& t) { return ours->forward(t); }, x, ours->parameters(), dy);
    const auto b =
        Gradients([&](const Tensor& t) { return theirs->forward(t); }, x, theirs->parameters(), dy);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_LT(MaxDifference(a[i], b[i]), kDouble) << i;
    for (const auto& buffer : theirs->named_buffers()) {
      EXPECT_LT(MaxDifference(ours->named_buffers()[buffer.key()].to(at::kDouble),
                              buffer.value().to(at::kDouble)),
                kDouble)
          << buffer.key();
    }
  }
}

TEST(BatchNormModules, TrainLikeTorch) {
  at::manual_seed(10);
  const auto options = [](const auto& o) {
    return std::pair(BatchNormOptions(o).eps(1e-3), torch::nn::BatchNormOptions(o).eps(1e-3));
  };
  auto [ours, theirs] = options(3);
  ExpectTrainAlike(BatchNorm1d(ours), torch::nn::BatchNorm1d(theirs), {6, 3});
  ExpectTrainAlike(BatchNorm1d(ours), torch::nn::BatchNorm1d(theirs), {4, 3, 5});
  ExpectTrainAlike(BatchNorm2d(ours), torch::nn::BatchNorm2d(theirs), {4, 3, 2, 5});
  ExpectTrainAlike(BatchNorm1d(ours.momentum(std::nullopt)),
                   torch::nn::BatchNorm1d(theirs.momentum(std::nullopt)), {6, 3});
  ExpectTrainAlike(BatchNorm2d(ours.affine(false)), torch::nn::BatchNorm2d(theirs.affine(false)),
                   {4, 3, 2, 5});
  ExpectTrainAlike(BatchNorm1d(ours.track_running_stats(false)),
                   torch::nn::BatchNorm1d(theirs.track_running_stats(false)), {6, 3});
}

TEST(BatchNormModules, UseTheUnbiasedVarianceInTrainingOnRequest) {
  at::manual_seed(11);
  auto norm = Drawn(BatchNorm1d(BatchNorm1dOptions(3).unbiased(true).bias(false)));
  EXPECT_FALSE(norm->bias.defined());
  ExpectIs(norm, Random({4, 3}), [&](const Tensor& x) {
    return (x - x.mean(0)) / (x.var(0, /*unbiased=*/true) + 1e-5).sqrt() * norm->weight;
  });
  norm->eval();
  ExpectIs(norm, Random({4, 3}), [&](const Tensor& x) {
    return (x - norm->running_mean) / (norm->running_var + 1e-5).sqrt() * norm->weight;
  });
}

TEST(BatchNormModules, CountBatchesInInt64AfterCasts) {
  BatchNorm1d norm(3);
  norm->to(at::kBFloat16);
  EXPECT_EQ(norm->running_mean.scalar_type(), at::kBFloat16);
  for (int i = 0; i < 300; ++i) norm->forward(at::ones({2, 3}, at::kBFloat16));
  EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 300);  // bfloat16 stops at 256
  EXPECT_EQ(norm->num_batches_tracked.scalar_type(), at::kLong);
}

/// Computes batch norm of one step, with running estimates if there are any.
Tensor BatchNormOfStep(const Tensor& x, const RecurrentBatchNorm& norm, const Tensor& mean,
                       const Tensor& var) {
  return (x - mean) / (var + norm->options.eps()).sqrt() * norm->weight + norm->bias;
}

TEST(RecurrentBatchNormModule, HasStatisticsForEachStep) {
  at::manual_seed(12);
  auto norm = Drawn(
      RecurrentBatchNorm(RecurrentBatchNormOptions(3, /*max_length=*/4).momentum(0.2).eps(1e-3)));
  const auto training = [&](const Tensor& x) {
    std::vector<Tensor> y;
    for (int64_t t = 0; t < x.size(0); ++t) {
      y.push_back(BatchNormOfStep(x[t], norm, x[t].mean(0), x[t].var(0, /*unbiased=*/false)));
    }
    return at::stack(y);
  };
  ExpectIs(norm, Random({6, 5, 3}), training);  // two more steps than have estimates
  ExpectIs(norm, Random({2, 5, 3}), training);
  EXPECT_TRUE(norm->num_batches_tracked.equal(at::tensor({4, 4, 2, 2}, at::kLong)));

  norm->reset_running_stats();
  const Tensor x = Random({3, 5, 3});
  norm->forward(x.slice(0, 0, 2));
  norm->forward(x[2], /*step=*/2);
  EXPECT_LT(MaxDifference(norm->running_mean.slice(0, 0, 3), 0.2 * x.mean(1)), kDouble);
  EXPECT_LT(MaxDifference(norm->running_var.slice(0, 0, 3), 0.8 + 0.2 * x.var(1, true)), kDouble);
  EXPECT_TRUE(norm->num_batches_tracked.equal(at::tensor({1, 1, 1, 0}, at::kLong)));

  norm->eval();
  const auto evaluation = [&](int64_t first) {
    return [&, first](const Tensor& t) {
      std::vector<Tensor> y;
      for (int64_t i = 0; i < t.size(0); ++i) {
        const int64_t step = std::min<int64_t>(first + i, 2);  // the last step seen in training
        y.push_back(BatchNormOfStep(t[i], norm, norm->running_mean[step], norm->running_var[step]));
      }
      return at::stack(y);
    };
  };
  ExpectIs(norm, Random({6, 5, 3}), evaluation(0));
  const Tensor one = Random({1, 5, 3});
  for (const int64_t step : {1, 7}) {
    EXPECT_LT(MaxDifference(norm->forward(one[0], step), evaluation(step)(one)[0]), kDouble);
  }
}

TEST(RecurrentBatchNormModule, StartsWithItsInitialWeight) {
  RecurrentBatchNorm norm(3, 4);
  EXPECT_TRUE(norm->weight.equal(at::full({3}, 0.1)));
  EXPECT_TRUE(norm->bias.equal(at::zeros({3})));
  const RecurrentBatchNorm other(RecurrentBatchNormOptions(3, 4).initial_weight(0.5).bias(false));
  EXPECT_TRUE(other->weight.equal(at::full({3}, 0.5)));
  EXPECT_FALSE(other->bias.defined());
}

// ---- Weight norm

TEST(WeightNormModule, SeparatesLengthAndDirection) {
  at::manual_seed(13);
  const Tensor w = Random({3, 4});
  for (const int64_t dim : {-1, 0, 1}) {
    WeightNorm norm(w, dim);
    EXPECT_LT(MaxDifference(norm->forward(), w), kDouble) << dim;
    {
      const at::NoGradGuard no_grad;
      norm->g.normal_();
      norm->v.normal_();
    }
    const auto composed = [&] {
      return norm->v * norm->g /
             (dim == -1 ? norm->v.norm() : norm->v.norm(2, at::IntArrayRef{1 - dim}, true));
    };
    EXPECT_LT(MaxDifference(norm->forward(), composed()), kDouble) << dim;
    const auto ours = torch::autograd::grad({norm->forward()}, {norm->g, norm->v}, {w});
    const auto theirs = torch::autograd::grad({composed()}, {norm->g, norm->v}, {w});
    for (size_t i = 0; i < 2; ++i) EXPECT_LT(MaxDifference(ours[i], theirs[i]), kDouble) << dim;
  }
}

TEST(WeightNormLinearModule, StartsLikeTorchLinear) {
  at::manual_seed(14);
  torch::nn::Linear theirs(4, 3);
  at::manual_seed(14);
  WeightNormLinear ours(4, 3);
  const Tensor x = at::randn({2, 4});
  EXPECT_LT(MaxDifference(ours->forward(x), theirs->forward(x)), kFloat);
  // One norm for each unit, as in Python.
  EXPECT_EQ(ours->named_parameters()["parametrizations.weight.original0"].sizes(),
            at::IntArrayRef({3, 1}));
  const WeightNormLinear plain(WeightNormLinearOptions(4, 3).bias(false).dim(1));
  EXPECT_EQ(plain->named_parameters()["parametrizations.weight.original0"].sizes(),
            at::IntArrayRef({1, 4}));
  EXPECT_EQ(plain->parameters().size(), 2u);
}

// ---- Tests of all modules

/// A module, its printed form, its keys, and a call.
struct Entry {
  std::shared_ptr<torch::nn::Module> module;
  std::function<Tensor(torch::nn::Module& module)> forward;
  std::string text;
  std::vector<std::string> keys;
};

template <class Module>
Entry Of(const Module& module, const Tensor& x, const std::string& text,
         const std::vector<std::string>& keys) {
  using Impl = typename Module::ContainedType;
  return {module.ptr(),
          [x](torch::nn::Module& m) { return dynamic_cast<Impl&>(m).forward(x.to(at::kFloat)); },
          "planish::nn::" + text, keys};
}

std::vector<Entry> Table() {
  const Tensor rows = Random({5, 4}), images = Random({2, 4, 3, 3});
  const std::vector<std::string> both = {"weight", "bias"};
  const std::vector<std::string> batch = {"weight", "bias", "running_mean", "running_var",
                                          "num_batches_tracked"};
  return {
      Of(RowNorm(RowNormOptions({4}, "layer").eps(1e-3)), rows,
         "RowNorm([4], norm=layer, C=1, k=0.1, eps=0.001, elementwise_affine=true, bias=true)",
         both),
      Of(RowNorm(std::vector<int64_t>{4}, "rms"), rows,
         "RowNorm([4], norm=rms, C=1, k=0.1, eps=1e-05, elementwise_affine=true, bias=false)",
         {"weight"}),
      Of(RowNorm(RowNormOptions({5, 4}, "ada").C(2)), rows,
         "RowNorm([5, 4], norm=ada, C=2, k=0.1, eps=1e-05, elementwise_affine=false, bias=false)",
         {}),
      Of(LayerNorm(LayerNormOptions({4}).eps(1e-3)), rows,
         "LayerNorm([4], eps=0.001, elementwise_affine=true, bias=true)", both),
      Of(LayerNorm(LayerNormOptions({4}).elementwise_affine(false)), rows,
         "LayerNorm([4], eps=1e-05, elementwise_affine=false, bias=false)", {}),
      Of(RMSNorm(RMSNormOptions({4})), rows, "RMSNorm([4], eps=None, elementwise_affine=true)",
         {"weight"}),
      Of(LayerNormSimple(LayerNormSimpleOptions({5, 4})), rows,
         "LayerNormSimple([5, 4], eps=1e-05)", {}),
      Of(DetachNorm(DetachNormOptions({4}).mean(false)), rows,
         "DetachNorm([4], mean=false, std=true, eps=1e-05)", {}),
      Of(AdaNorm(AdaNormOptions({4}).C(2)), rows,
         "AdaNorm([4], C=2, k=0.1, as_coded=false, eps=1e-05)", {}),
      Of(DyT(DyTOptions({4})), rows, "DyT([4], alpha_init=0.5, elementwise_affine=true, bias=true)",
         {"weight", "bias", "alpha"}),
      Of(Derf(DerfOptions({5, 4}).alpha_init(0.25).bias(false)), rows,
         "Derf([5, 4], alpha_init=0.25, elementwise_affine=true, bias=false)",
         {"weight", "alpha", "shift"}),
      Of(OnlineLayerNorm(OnlineLayerNormOptions(4).alpha(0.5)), rows,
         "OnlineLayerNorm(4, alpha=0.5, affine=true, mu=0, sigma=1)", {"weight", "bias", "state"}),
      Of(OnlineLayerNorm(OnlineLayerNormOptions(4).schedule("inverse")), rows,
         "OnlineLayerNorm(4, alpha=0.1, schedule=inverse, affine=true, mu=0, sigma=1)",
         {"weight", "bias", "state"}),
      Of(LayerNorm1d(4), rows, "LayerNorm1d(4, eps=1e-05, affine=true, bias=true)", both),
      Of(LayerNorm2d(LayerNorm2dOptions(4).bias(false)), images,
         "LayerNorm2d(4, eps=1e-05, affine=true, bias=false)", {"weight"}),
      Of(BatchNorm1d(4), rows,
         "BatchNorm1d(4, eps=1e-05, momentum=0.1, affine=true, bias=true, "
         "track_running_stats=true)",
         batch),
      Of(BatchNorm2d(BatchNorm2dOptions(4)
                         .momentum(std::nullopt)
                         .track_running_stats(false)
                         .unbiased(true)),
         images,
         "BatchNorm2d(4, eps=1e-05, momentum=None, affine=true, bias=true, "
         "track_running_stats=false, unbiased=true)",
         both),
      Of(GroupNorm(GroupNormOptions(2, 4).eps(1e-3)), images,
         "GroupNorm(2, 4, eps=0.001, affine=true, bias=true)", both),
      Of(InstanceNorm1d(InstanceNorm1dOptions(4).affine(true)), Random({2, 4, 3}),
         "InstanceNorm1d(4, eps=1e-05, momentum=0.1, affine=true, bias=true, "
         "track_running_stats=false)",
         both),
      Of(InstanceNorm2d(InstanceNorm2dOptions(4).affine(true).track_running_stats(true)), images,
         "InstanceNorm2d(4, eps=1e-05, momentum=0.1, affine=true, bias=true, "
         "track_running_stats=true)",
         batch),
      Of(RecurrentBatchNorm(4, 3), Random({3, 5, 4}),
         "RecurrentBatchNorm(4, max_length=3, eps=1e-05, momentum=0.1, affine=true, bias=true)",
         batch),
      Of(WeightNormLinear(4, 3), rows,
         "WeightNormLinear(in_features=4, out_features=3, bias=true, dim=0)(\n"
         "  (parametrizations): torch::nn::ModuleDict(\n"
         "    (weight): planish::nn::WeightNorm(dim=0)\n"
         "  )\n"
         ")",
         {"bias", "parametrizations.weight.original0", "parametrizations.weight.original1"}),
  };
}

TEST(NormModules, PrintTheirOptionsAndHaveDocumentedKeys) {
  for (const Entry& entry : Table()) {
    EXPECT_EQ(Text(*entry.module), entry.text);
    EXPECT_EQ(Keys(*entry.module), entry.keys) << entry.text;
  }
}

TEST(NormModules, CloneWithParametersAndBuffers) {
  at::manual_seed(15);
  for (const Entry& entry : Table()) {
    SCOPED_TRACE(entry.text);
    const auto draw = [](torch::nn::Module& module) {
      const at::NoGradGuard no_grad;
      for (Tensor& parameter : module.parameters()) parameter.uniform_(0.5, 1.5);
    };
    // Also inside another module, which assigns to modules that reset() created.
    torch::nn::Sequential outer;
    outer->push_back("0", torch::nn::Identity());
    outer->register_module("norm", entry.module);
    draw(*entry.module);
    entry.forward(*entry.module);  // updates buffers
    entry.module->eval();
    const Tensor y = entry.forward(*entry.module).clone();
    const auto copy = entry.module->clone();
    EXPECT_EQ(Text(*copy), Text(*entry.module));
    EXPECT_FALSE(copy->is_training());
    EXPECT_TRUE(entry.forward(*copy).equal(y));
    draw(*entry.module);
    EXPECT_TRUE(entry.forward(*copy).equal(y));
    if (!entry.module->parameters().empty()) {
      EXPECT_FALSE(entry.forward(*entry.module).equal(y));
    }
  }
}

/// A user's module whose children are norms.
struct BlockImpl : torch::nn::Cloneable<BlockImpl> {
  BlockImpl() { BlockImpl::reset(); }
  void reset() override {
    linear = register_module("linear", WeightNormLinear(4, 3));
    norm = register_module("norm", BatchNorm1d(3));
  }
  Tensor forward(const Tensor& x) { return norm->forward(linear->forward(x)); }
  WeightNormLinear linear{nullptr};
  BatchNorm1d norm{nullptr};
};

TEST(NormModules, CloneAsChildren) {
  at::manual_seed(16);
  BlockImpl block;
  const Tensor x = at::randn({5, 4});
  block.forward(x);
  block.eval();
  const auto copy = std::dynamic_pointer_cast<BlockImpl>(block.clone());
  const Tensor y = block.forward(x);
  EXPECT_TRUE(copy->forward(x).equal(y));
  {
    const at::NoGradGuard no_grad;
    for (Tensor& parameter : block.parameters()) parameter.normal_();
  }
  EXPECT_TRUE(copy->forward(x).equal(y));
  {
    const at::NoGradGuard no_grad;
    for (Tensor& parameter : copy->parameters()) parameter.zero_().add_(1);
  }
  EXPECT_FALSE(copy->forward(x).equal(y));  // uses its own parameters
}

TEST(NormModules, TrainInASequential) {
  at::manual_seed(17);
  torch::nn::Sequential net(torch::nn::Linear(4, 8), RowNorm(RowNormOptions({8}, "layer")),
                            LayerNorm(LayerNormOptions({8})), RMSNorm(RMSNormOptions({8})),
                            LayerNormSimple(LayerNormSimpleOptions({8})),
                            DetachNorm(DetachNormOptions({8})), AdaNorm(AdaNormOptions({8})),
                            DyT(DyTOptions({8})), Derf(DerfOptions({8})), OnlineLayerNorm(8),
                            LayerNorm1d(8), BatchNorm1d(8), RecurrentBatchNorm(8, 1),
                            WeightNormLinear(8, 2));
  const Tensor x = at::randn({16, 4});
  net->forward(x).pow(3).mean().backward();
  for (const auto& item : net->named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_GT(item.value().grad().abs().max().item<double>(), 0) << item.key();
  }
}

// ---- Invalid input

std::string ErrorOf(const std::function<void()>& f) {
  try {
    f();
  } catch (const c10::ValueError& e) {
    return e.what();
  } catch (const std::exception& e) {
    return std::string("not a c10::ValueError: ") + e.what();
  }
  return "no error";
}

TEST(NormModules, RejectInvalidOptions) {
  const double nan = std::nan("");
  const std::vector<std::pair<std::function<void()>, std::string>> cases = {
      {[] { RowNorm(RowNormOptions({3}, "layers")); },
       "[RowNorm] norm must be one of " + c10::Join(", ", row_norm_names()) + ", got layers"},
      {[] { RowNorm(RowNormOptions({1}, "ada_as_coded")); },
       "[RowNorm] normalized_shape must have at least 2 elements with ada_as_coded, got [1]"},
      {[&] { RowNorm(RowNormOptions({3}, "ada").k(nan)); }, "[RowNorm] k must be finite, got nan"},
      {[] { LayerNorm(LayerNormOptions({})); },
       "[LayerNorm] normalized_shape must be one or more sizes, each at least 0, got []"},
      {[] { RMSNorm(RMSNormOptions({3, -2})); },
       "[RMSNorm] normalized_shape must be one or more sizes, each at least 0, got [3, -2]"},
      {[&] { RMSNorm(RMSNormOptions({3}).weight_offset(nan)); },
       "[RMSNorm] weight_offset must be finite, got nan"},
      {[] { LayerNorm(LayerNormOptions({6}).groups(4)); },
       "[LayerNorm] groups must divide normalized_shape, 6, got 4"},
      {[] { RMSNorm(RMSNormOptions({6}).groups(0)); },
       "[RMSNorm] groups must be at least 1, got 0"},
      {[] { RMSNorm(RMSNormOptions({2, 3}).groups(3)); },
       "[RMSNorm] normalized_shape must be one size with 3 groups, got [2, 3]"},
      {[] { RMSNorm(RMSNormOptions({6}).groups(3))(at::ones({2, 3})); },
       "[RMSNorm] x must be [..., 6], got [2, 3]"},
      {[] { LayerNorm(LayerNormOptions({3}).elementwise_affine(false).weight_offset(1)); },
       "[LayerNorm] weight_offset must be 0 without a weight, got 1"},
      {[] { LayerNorm(LayerNormOptions({3}).eps(-1)); },
       "[LayerNorm] eps must be finite and at least 0, got -1"},
      {[&] { RMSNorm(RMSNormOptions({3}).eps(nan)); },
       "[RMSNorm] eps must be finite and at least 0, got nan"},
      {[] { LayerNormSimple(LayerNormSimpleOptions({3}).eps(-1)); },
       "[LayerNormSimple] eps must be finite and at least 0, got -1"},
      {[] { DetachNorm(DetachNormOptions({3}).eps(-1)); },
       "[DetachNorm] eps must be finite and at least 0, got -1"},
      {[&] { AdaNorm(AdaNormOptions({3}).C(nan)); }, "[AdaNorm] C must be finite, got nan"},
      {[&] { AdaNorm(AdaNormOptions({3}).k(INFINITY)); }, "[AdaNorm] k must be finite, got inf"},
      {[] { AdaNorm(AdaNormOptions({1}).as_coded(true)); },
       "[AdaNorm] normalized_shape must have at least 2 elements with as_coded, got [1]"},
      {[] { OnlineLayerNorm(1); }, "[OnlineLayerNorm] num_features must be at least 2, got 1"},
      {[] { OnlineLayerNorm(OnlineLayerNormOptions(3).alpha(0)); },
       "[OnlineLayerNorm] alpha must be above 0 and at most 1, got 0"},
      {[] { OnlineLayerNorm(OnlineLayerNormOptions(3).alpha(1.5)); },
       "[OnlineLayerNorm] alpha must be above 0 and at most 1, got 1.5"},
      {[] { LayerNorm2d(-1); }, "[LayerNorm2d] num_channels must be at least 0, got -1"},
      {[] { LayerNorm1d(LayerNorm1dOptions(3).eps(-1)); },
       "[LayerNorm1d] eps must be finite and at least 0, got -1"},
      {[] { GroupNorm(4, 6); }, "[GroupNorm] num_groups must divide num_channels, 6, got 4"},
      {[] { GroupNorm(0, 6); }, "[GroupNorm] num_groups must be at least 1, got 0"},
      {[] { InstanceNorm3d(-1); }, "[InstanceNorm3d] num_features must be at least 0, got -1"},
      {[] { InstanceNorm1d(InstanceNorm1dOptions(3).momentum(2)); },
       "[InstanceNorm1d] momentum must be from 0 to 1, got 2"},
      {[&] { DyT(DyTOptions({3}).alpha_init(nan)); }, "[DyT] alpha_init must be finite, got nan"},
      {[] { BatchNorm1d(-1); }, "[BatchNorm1d] num_features must be at least 0, got -1"},
      {[] { BatchNorm2d(BatchNorm2dOptions(3).momentum(2)); },
       "[BatchNorm2d] momentum must be from 0 to 1, or None, got 2"},
      {[] { RecurrentBatchNorm(0, 1); },
       "[RecurrentBatchNorm] num_features must be at least 1, got 0"},
      {[] { RecurrentBatchNorm(1, 0); },
       "[RecurrentBatchNorm] max_length must be at least 1, got 0"},
      {[] { RecurrentBatchNorm(RecurrentBatchNormOptions(1, 1).momentum(-1)); },
       "[RecurrentBatchNorm] momentum must be from 0 to 1, got -1"},
      {[&] { RecurrentBatchNorm(RecurrentBatchNormOptions(1, 1).initial_weight(nan)); },
       "[RecurrentBatchNorm] initial_weight must be finite, got nan"},
      {[] { WeightNorm(at::ones({2, 3}), 2); }, "[WeightNorm] dim must be from -1 to 1, got 2"},
      {[] { WeightNormLinear(0, 3); }, "[WeightNormLinear] in_features must be at least 1, got 0"},
  };
  for (const auto& [make, text] : cases) EXPECT_THAT(ErrorOf(make), HasSubstr(text));
}

TEST(NormModules, RejectInvalidInputs) {
  const auto call = [](auto module, const Tensor& x) {
    return ErrorOf([&] { module->forward(x); });
  };
  const Tensor x = at::ones({2, 3});
  EXPECT_THAT(call(LayerNorm(LayerNormOptions({4})), x),
              HasSubstr("[layer_norm] normalized_shape must be the last dimensions of x, which has "
                        "[2, 3], got [4]"));
  OnlineLayerNorm online(OnlineLayerNormOptions(4).affine(false));
  for (const bool training : {true, false}) {
    online->train(training);
    EXPECT_THAT(call(online, x), HasSubstr("[OnlineLayerNorm] x must have 4 elements in its last "
                                           "dimension, got [2, 3]"));
  }
  EXPECT_THAT(call(LayerNorm1d(4), x), HasSubstr("[LayerNorm1d] x must be [N, C] or [N, C, L] with "
                                                 "C = 4, got [2, 3]"));
  EXPECT_THAT(call(LayerNorm2d(3), x),
              HasSubstr("[LayerNorm2d] x must be [N, C, H, W] with C = 3, got [2, 3]"));
  EXPECT_THAT(call(BatchNorm1d(4), x), HasSubstr("[BatchNorm1d] x must be [N, C] or [N, C, L] with "
                                                 "C = 4, got [2, 3]"));
  EXPECT_THAT(call(BatchNorm2d(3), x),
              HasSubstr("[BatchNorm2d] x must be [N, C, H, W] with C = 3, got [2, 3]"));
  EXPECT_THAT(call(RecurrentBatchNorm(4, 2), x),
              HasSubstr("[RecurrentBatchNorm] x must be [T, B, C] or [B, C] with C = 4, got "
                        "[2, 3]"));
  EXPECT_THAT(call(RecurrentBatchNorm(3, 2), at::ones({1, 3})),
              HasSubstr("[RecurrentBatchNorm] x must have at least 2 sequences in training, got "
                        "[1, 1, 3]"));
  EXPECT_THAT(ErrorOf([&] { RecurrentBatchNorm(3, 2)->forward(x, -1); }),
              HasSubstr("[RecurrentBatchNorm] step must be at least 0, got -1"));
}

}  // namespace
}  // namespace planish::nn
