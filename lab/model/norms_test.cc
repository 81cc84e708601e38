#include "lab/model/norms.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <iterator>
#include <string>
#include <tuple>
#include <vector>

#include "lab/error.h"
#include "lab/model/linear.h"
#include "src/norm/recipe.h"

namespace planish::lab {
namespace {

TEST(Norms, AreThoseOfTheCoreAndOthers) {
  std::vector<std::string> names = NormNames();
  EXPECT_EQ(names.size(), 6 + std::size(internal::kNormNames));
  EXPECT_THAT(names, ::testing::IsSupersetOf({"none", "batch", "weight", "layer-simple",
                                              "detach-std", "group", "dyt", "derf"}));
  std::erase_if(
      names, [](const auto& name) { return name == "batch" || name == "weight" || name == "rms"; });
  names.insert(names.begin(), "rms");
  EXPECT_EQ(RowNormNames("rms"), names);
  EXPECT_THROW(MakeNorm("instance", {3}), UsageError);
}

TEST(Norms, DrawNoRandomNumbers) {
  const at::Tensor before = at::detail::getDefaultCPUGenerator().get_state();
  for (const std::string& name : NormNames()) {
    auto norm = MakeNorm(name, {8});
    norm->forward(at::ones({4, 8}));
    EXPECT_TRUE(at::detail::getDefaultCPUGenerator().get_state().equal(before)) << name;
  }
}

TEST(Norms, NormalizeAsNamed) {
  at::manual_seed(1);
  const at::Tensor x = at::randn({16, 8}) * 3 + 5;
  EXPECT_TRUE(MakeNorm("none", {8})->forward(x).is_same(x));
  // Means and deviations of floats below 20, sums of at most 16 terms: 1e-5 is 20 roundings.
  for (const std::string name : {"layer", "layer-simple", "detach", "detach-mean", "detach-std"}) {
    const at::Tensor y = MakeNorm(name, {8})->forward(x);
    EXPECT_LT(y.mean(1).abs().max().item<double>(), 1e-5) << name;
    EXPECT_LT((y.var(1, /*unbiased=*/false) - 1).abs().max().item<double>(), 1e-4)
        << name;  // eps / var
  }
  const at::Tensor y = MakeNorm("batch", {8})->forward(x);
  EXPECT_LT(y.mean(0).abs().max().item<double>(), 1e-5);
  EXPECT_LT((y.var(0, /*unbiased=*/false) - 1).abs().max().item<double>(), 1e-4);
  // Values of size 1 to 3 from the same floats: 1e-5 is about twenty roundings.
  const at::Tensor rms = x / (x.square().mean(1, /*keepdim=*/true) + 1e-5).sqrt();
  EXPECT_LT((MakeNorm("rms", {8})->forward(x) - rms).abs().max().item<double>(), 1e-5);
  const at::Tensor xhat = MakeNorm("layer-simple", {8})->forward(x);
  const at::Tensor ada = (1 - 0.1 * xhat) * xhat;
  EXPECT_LT((MakeNorm("ada", {8})->forward(x) - ada).abs().max().item<double>(), 1e-5);
}

// Values of size 1 from floats of size 3, sums of at most 12 terms: 1e-5 is twenty roundings.
TEST(Norms, GroupsAreThoseOfGroupNorm) {
  at::manual_seed(9);
  const std::tuple<std::vector<int64_t>, int64_t> cases[] = {
      {{64}, 8}, {{50}, 5}, {{8}, 2}, {{3}, 1}, {{2, 3, 20}, 5}, {{1, 1, 7}, 1}, {{2, 2, 6}, 6}};
  for (const auto& [shape, groups] : cases) {
    auto norm = MakeNorm("group", shape);
    const auto p = norm->named_parameters();
    {
      at::NoGradGuard no_grad;
      p["weight"].uniform_(0.5, 2);
      p["bias"].uniform_(-1, 1);
    }
    std::vector<int64_t> sizes = {5};
    sizes.insert(sizes.end(), shape.begin(), shape.end());
    const at::Tensor x = at::randn(sizes) * 3;
    const at::Tensor expected =
        at::group_norm(x.movedim(-1, 1), groups, p["weight"], p["bias"]).movedim(1, -1);
    EXPECT_LT((norm->forward(x) - expected).abs().max().item<double>(), 1e-5) << sizes;
    const at::Tensor sequence = MakeNorm("group", shape)->forward(x.unsqueeze(1));
    EXPECT_EQ(sequence.sizes(), x.unsqueeze(1).sizes());
  }
}

// In double: values of size 1, a few roundings each.
TEST(Norms, FunctionsOfElementsAreThoseOfTheirPapers) {
  at::manual_seed(8);
  const at::Tensor x = at::randn({16, 8}, at::kDouble) * 3;
  for (const std::string name : {"dyt", "derf"}) {
    auto norm = MakeNorm(name, {8});
    norm->to(at::kDouble);
    const auto y = [&] { return norm->forward(x); };
    EXPECT_LT((y() - (name == "dyt" ? (x / 2).tanh() : (x / 2).erf())).abs().max().item<double>(),
              1e-15);
    const auto p = norm->named_parameters();
    EXPECT_EQ(p.size(), name == "dyt" ? 3 : 4);
    at::NoGradGuard no_grad;
    p["alpha"].fill_(0.25);
    p["weight"].uniform_(0.5, 2);
    p["bias"].uniform_(-1, 1);
    if (name == "derf") p["shift"].fill_(0.75);
    const at::Tensor inner = name == "dyt" ? (x * 0.25).tanh() : (x * 0.25 + 0.75).erf();
    EXPECT_LT((y() - (inner * p["weight"] + p["bias"])).abs().max().item<double>(), 1e-15) << name;
  }
}

double Largest(const at::Tensor& t) { return t.abs().max().item<double>(); }

// In double: rows of 15 elements of size 1, a few roundings each.
TEST(Norms, WeightNormalizesTheLayerBeforeIt) {
  at::manual_seed(10);
  const auto check = [](auto layer, const at::Tensor& x, const std::string& name) {
    layer->to(at::kDouble);
    auto norm = MakeNorm("weight", {4});
    norm->to(at::kDouble);
    norm->StartFrom(layer->weight);
    const at::Tensor before = layer->forward(x);
    EXPECT_LT(Largest(InputOfNorm(*norm, layer, x) - before), 1e-14) << name;

    const at::Tensor gain = norm->named_parameters()["gain"];
    {
      at::NoGradGuard no_grad;
      gain.uniform_(0.5, 2);
    }
    const at::Tensor v = layer->weight;
    const auto by_hand = [&] {
      const at::Tensor rows = v.flatten(1);
      return (gain.unsqueeze(1) * rows / rows.square().sum(1, /*keepdim=*/true).sqrt()).view_as(v);
    };
    const at::Tensor w = norm->Weight(v);
    EXPECT_LT(Largest(w - by_hand()), 1e-15) << name;
    EXPECT_LT((norm->Weight(v.transpose(0, 1), 1) - w.transpose(0, 1)).abs().max().item<double>(),
              1e-15);
    const at::Tensor y = InputOfNorm(*norm, layer, x);
    EXPECT_TRUE(layer->weight.is_same(v)) << "the layer keeps its parameter";
    EXPECT_TRUE(norm->forward(y).is_same(y)) << "outputs stay unchanged";
    const at::Tensor dw = at::randn_like(v);
    const std::vector<at::Tensor> inputs = {v, gain};
    const auto expected = torch::autograd::grad({by_hand()}, inputs, {dw});
    const auto gradients = torch::autograd::grad({norm->Weight(v)}, inputs, {dw});
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_LT(Largest(gradients[i] - expected[i]), 1e-14) << name << i;
    }
    EXPECT_THROW(InputOfNorm(*norm, layer, x.flatten(0, -1)), c10::Error);
    EXPECT_TRUE(layer->weight.is_same(v)) << "after an exception";
  };
  check(torch::nn::Linear(15, 4), at::randn({3, 15}, at::kDouble), "Linear");
  check(Linear(15, 4), at::randn({2, 3, 15}, at::kDouble), "the lab's Linear");
  check(torch::nn::Conv2d(torch::nn::Conv2dOptions(5, 4, {3, 1})),
        at::randn({2, 5, 6, 7}, at::kDouble), "Conv2d");
  // All other norms leave the weight as it is.
  for (const std::string& name : RowNormNames("layer")) {
    torch::nn::Linear layer(15, 4);
    auto norm = MakeNorm(name, {4});
    norm->StartFrom(layer->weight);
    EXPECT_TRUE(norm->Weight(layer->weight).is_same(layer->weight)) << name;
    const at::Tensor x = at::randn({3, 15});
    EXPECT_TRUE(InputOfNorm(*norm, layer, x).equal(layer->forward(x))) << name;
  }
}

// dx = rstd*(dy - a*mean(dy) - b*xhat*mean(dy*xhat)), where a or b is 0 for a constant statistic
// (Xu et al. 2019, Eq 4). Values of size 1 from means of 8: 2e-6 is some roundings.
TEST(Norms, DetachTheStatisticsOfTheirNames) {
  at::manual_seed(3);
  const at::Tensor x = at::randn({16, 8}), dy = at::randn({16, 8});
  const at::Tensor rstd = (x.var(1, /*unbiased=*/false, /*keepdim=*/true) + 1e-5).rsqrt();
  const at::Tensor xhat = (x - x.mean(1, true)) * rstd;
  const std::tuple<std::string, double, double> cases[] = {
      {"layer-simple", 1, 1}, {"detach", 0, 0}, {"detach-mean", 0, 1}, {"detach-std", 1, 0}};
  for (const auto& [name, a, b] : cases) {
    const at::Tensor input = x.clone().requires_grad_(true);
    MakeNorm(name, {8})->forward(input).backward(dy);
    const at::Tensor expected =
        rstd * (dy - a * dy.mean(1, true) - b * xhat * (dy * xhat).mean(1, true));
    EXPECT_LT((input.grad() - expected).abs().max().item<double>(), 2e-6) << name;
  }
}

// Compares with the definition in the same precision: floats of size 1, a few roundings each.
TEST(Norms, BatchDividesByTheRequestedVariance) {
  at::manual_seed(2);
  const at::Tensor x = at::randn({4, 8}), dy = at::randn({4, 8});
  for (const bool unbiased : {false, true}) {
    auto norm = MakeNorm("batch", {8}, {.epsilon = 0.1, .unbiased_variance = unbiased});
    at::Tensor a = x.clone().requires_grad_(true), b = x.clone().requires_grad_(true);
    const at::Tensor y = norm->forward(a);
    const at::Tensor expected = (b - b.mean(0)) / (b.var(0, unbiased) + 0.1).sqrt();
    EXPECT_LT((y - expected).abs().max().item<double>(), 1e-6) << unbiased;
    y.backward(dy);
    expected.backward(dy);
    EXPECT_LT((a.grad() - b.grad()).abs().max().item<double>(), 2e-6) << unbiased;
    // Running estimates: 0.9 * start + 0.1 * (mean, unbiased variance), used for evaluation.
    norm->eval();
    const at::Tensor mean = 0.1 * x.mean(0), var = 0.9 + 0.1 * x.var(0, true);
    EXPECT_LT((norm->forward(x) - (x - mean) / (var + 0.1).sqrt()).abs().max().item<double>(),
              1e-6);
  }
}

TEST(Norms, TakeTheLastDimensionsAndTheChannelsOfImages) {
  at::manual_seed(4);
  const at::Tensor x = at::randn({3, 5, 4, 2}, at::kDouble) + 2;
  for (const std::string& name : NormNames()) {
    if (name == "none" || name == "weight") continue;
    auto norm = MakeNorm(name, {5, 4, 2});
    norm->to(at::kDouble);
    const at::Tensor y = norm->forward(x);
    if (name == "batch") {
      EXPECT_LT(y.mean({0, 2, 3}).abs().max().item<double>(), 1e-14);
      continue;
    }
    if (name == "group") continue;  // of channels
    auto flat = MakeNorm(name, {40});
    flat->to(at::kDouble);
    EXPECT_TRUE(y.equal(flat->forward(x.flatten(1)).view_as(x))) << name;
  }
  // Batch norm of sequences normalizes all positions of a channel together.
  auto batch = MakeNorm("batch", {5});
  batch->to(at::kDouble);
  const at::Tensor y = batch->forward(at::randn({3, 7, 5}, at::kDouble));
  EXPECT_LT(y.mean({0, 1}).abs().max().item<double>(), 1e-14);
}

// Xu et al. 2019, Theorem 1, in double: equal up to rounding of sums of at most 60 terms.
TEST(Norms, WatchGradients) {
  at::manual_seed(5);
  const std::vector<std::vector<int64_t>> shapes = {{6}, {5, 2, 3}};
  for (const std::vector<int64_t>& shape : shapes) {
    std::vector<int64_t> sizes = {4};
    sizes.insert(sizes.end(), shape.begin(), shape.end());
    const at::Tensor x = at::randn(sizes, at::kDouble) * 3, dy = at::randn(sizes, at::kDouble) + 1;
    for (const std::string& name : NormNames()) {
      auto norm = MakeNorm(name, shape);
      norm->to(at::kDouble);
      for (at::Tensor& p : norm->parameters()) {
        at::NoGradGuard no_grad;
        p.uniform_(0.5, 2);
      }
      at::Tensor plain = x.clone().requires_grad_(true), watched = x.clone().requires_grad_(true);
      (norm->forward(plain) + plain).backward(dy);
      EXPECT_FALSE(NormModule::GradientsOf(norm->WatchedSums())) << name;
      norm->Watch();
      // In place, as a model can continue.
      norm->forward(watched).add_(watched).backward(dy);
      EXPECT_TRUE(watched.grad().equal(plain.grad())) << name;
      const auto g = NormModule::GradientsOf(norm->WatchedSums());
      ASSERT_TRUE(g) << name;
      const int64_t groups = name == "group" && shape.size() == 3 ? 3 : 1;
      EXPECT_EQ(g->rows, name == "batch" ? shape[0] : 4 * groups) << name;
      const double rounding = 1e-13 * (g->mean_detached + g->variance_detached);
      // eps is 1e-5 of a variance of nine: mean(dx*xhat) is not exactly 0 for the centred norms.
      const bool is_identity = name == "none" || name == "weight";
      if (is_identity || name == "detach" || name == "dyt" || name == "derf") {
        EXPECT_NEAR(g->mean_after, g->mean_detached, rounding) << name;
        EXPECT_NEAR(g->variance_after, g->variance_detached, rounding) << name;
      } else if (name == "detach-std") {
        EXPECT_NEAR(g->mean_after, 0, rounding);
        EXPECT_NEAR(g->variance_after, g->variance_detached, rounding);
      } else if (name == "detach-mean") {
        EXPECT_NEAR(g->mean_after, g->mean_detached, rounding);
        EXPECT_LT(g->variance_after, 0.99 * g->variance_detached);
      } else if (name != "rms") {
        EXPECT_NEAR(g->mean_after, 0, rounding) << name;
        EXPECT_LT(g->variance_after, 0.999 * g->variance_detached) << name;
      }
      EXPECT_EQ(g->sigma == 1, is_identity);
      EXPECT_FALSE(NormModule::GradientsOf(norm->WatchedSums())) << "it ends with the call";
    }
  }
}

TEST(Norms, WatchOutputsThatAreChangedInPlace) {
  at::manual_seed(7);
  const at::Tensor data = at::randn({4, 6}, at::kDouble);
  for (const std::string& name : NormNames()) {
    auto norm = MakeNorm(name, {6});
    norm->to(at::kDouble);
    std::vector<at::Tensor> gradients;
    for (const bool watch : {false, true}) {
      const at::Tensor leaf = data.clone().requires_grad_(true);
      if (watch) norm->Watch();
      norm->forward(leaf * 2).relu_().sum().backward();
      gradients.push_back(leaf.grad());
    }
    EXPECT_TRUE(gradients[0].equal(gradients[1])) << name;
    const auto g = NormModule::GradientsOf(norm->WatchedSums());
    ASSERT_TRUE(g) << name;
    // Without a norm the gradient is ReLU's: 1 for positive inputs.
    if (name == "none") {
      EXPECT_DOUBLE_EQ(g->mean_before, data.gt(0).to(at::kDouble).mean(1).mean().item<double>());
    }
  }
}

// The rows that a watcher sees: x, the gradient of xhat and dx by autograd through the module, and
// sums over them that are those of WatchedSums.
TEST(Norms, GiveTheRowsOfABackwardPass) {
  at::manual_seed(9);
  const at::Tensor x = at::randn({3, 2, 12}, at::kDouble).mul(3).requires_grad_(true);
  const at::Tensor dy = at::randn({3, 2, 12}, at::kDouble);
  for (const std::string& name : RowNormNames("layer")) {
    auto norm = MakeNorm(name, {12});
    norm->to(at::kDouble);
    for (at::Tensor& p : norm->parameters()) {
      at::NoGradGuard no_grad;
      p.uniform_(0.5, 2);
    }
    int calls = 0;
    NormRows rows;
    norm->Watch();
    norm->Watch([&](const NormRows& given) {
      ++calls;
      rows = given;
    });
    x.mutable_grad() = at::Tensor();
    norm->forward(x).backward(dy);
    norm->Watch({});
    ASSERT_EQ(calls, 1) << name;
    EXPECT_TRUE(rows.x.view_as(x).equal(x)) << name;
    EXPECT_TRUE(rows.dx.view_as(x).equal(x.grad())) << name;
    const NormGradients sums = *NormModule::GradientsOf(norm->WatchedSums());
    EXPECT_EQ(sums.rows, rows.g.size(0)) << name;
    EXPECT_NEAR(sums.sigma, rows.sigma.mean().item<double>(), 1e-14 * sums.sigma) << name;
    EXPECT_NEAR(sums.variance_after, rows.dx.var(1, false).mean().item<double>(), 1e-14) << name;
    if (name == "layer") {
      EXPECT_TRUE(rows.g.view_as(x).equal(dy * norm->parameters()[0]));
      const at::Tensor variance = x.var({2}, /*unbiased=*/false, /*keepdim=*/false).flatten();
      EXPECT_TRUE(rows.sigma.allclose((variance + 1e-5).sqrt(), 1e-14, 0));
    }
    norm->forward(x).backward(dy);
    EXPECT_EQ(calls, 1) << name;
    const std::optional<NormPaths> paths = norm->Paths();
    const bool is_centred = name == "layer" || name == "layer-simple" || name == "group" ||
                            name.starts_with("detach") || name.starts_with("ada");
    ASSERT_EQ(paths.has_value(), is_centred) << name;
    if (!paths) continue;
    EXPECT_EQ(paths->via_mean, name != "detach" && name != "detach-mean") << name;
    EXPECT_EQ(paths->via_deviation, name != "detach" && name != "detach-std") << name;
    EXPECT_EQ(paths->unbiased, name == "ada-as-coded") << name;
  }
}

TEST(Norms, LeaveRowsOutThatNoGradientReaches) {
  at::manual_seed(6);
  auto norm = MakeNorm("detach", {4});
  norm->Watch();
  const at::Tensor x = at::randn({3, 2, 4}).requires_grad_(true);
  norm->forward(x).narrow(0, 0, 2).sum().backward();
  EXPECT_EQ(NormModule::GradientsOf(norm->WatchedSums())->rows, 4);
  norm->Watch();
  norm->forward(at::randn({3, 4}));
  EXPECT_FALSE(NormModule::GradientsOf(norm->WatchedSums())) << "an input without a gradient";
  norm->Watch();
  ::testing::internal::CaptureStderr();
  (norm->forward(x) * 0).sum().backward();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_FALSE(NormModule::GradientsOf(norm->WatchedSums())) << "no row that a gradient reaches";
}

}  // namespace
}  // namespace planish::lab
