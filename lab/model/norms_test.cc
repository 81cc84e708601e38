#include "lab/model/norms.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "lab/error.h"

namespace planish::lab {
namespace {

using ::testing::ElementsAre;

TEST(Norms, AreATable) {
  EXPECT_THAT(NormNames(), ElementsAre("none", "batch", "layer", "layer-simple", "rms", "detach",
                                       "detach-mean", "detach-deviation", "ada"));
  EXPECT_THROW(MakeNorm("group", 3), UsageError);
}

TEST(Norms, DrawNoRandomNumbers) {
  const at::Tensor before = at::detail::getDefaultCPUGenerator().get_state();
  for (const std::string& name : NormNames()) {
    auto norm = MakeNorm(name, 8);
    norm->forward(at::ones({4, 8}));
    EXPECT_TRUE(at::detail::getDefaultCPUGenerator().get_state().equal(before)) << name;
  }
}

TEST(Norms, NormaliseWhatTheirNamesSay) {
  at::manual_seed(1);
  const at::Tensor x = at::randn({16, 8}) * 3 + 5;
  EXPECT_TRUE(MakeNorm("none", 8)->forward(x).is_same(x));
  // Means and deviations of float numbers below 20, sums of at most 16 terms: 1e-5 is 20 roundings.
  for (const std::string name :
       {"layer", "layer-simple", "detach", "detach-mean", "detach-deviation"}) {
    const at::Tensor y = MakeNorm(name, 8)->forward(x);
    EXPECT_LT(y.mean(1).abs().max().item<double>(), 1e-5) << name;
    EXPECT_LT((y.var(1, /*unbiased=*/false) - 1).abs().max().item<double>(), 1e-4)
        << name;  // eps / var
  }
  const at::Tensor y = MakeNorm("batch", 8)->forward(x);
  EXPECT_LT(y.mean(0).abs().max().item<double>(), 1e-5);
  EXPECT_LT((y.var(0, /*unbiased=*/false) - 1).abs().max().item<double>(), 1e-4);
  // Numbers of size 1 to 3 from the same float numbers: 1e-5 is some twenty roundings.
  const at::Tensor rms = x / (x.square().mean(1, /*keepdim=*/true) + 1e-5).sqrt();
  EXPECT_LT((MakeNorm("rms", 8)->forward(x) - rms).abs().max().item<double>(), 1e-5);
  const at::Tensor xhat = MakeNorm("layer-simple", 8)->forward(x);
  const at::Tensor ada = (1 - 0.1 * xhat) * xhat;
  EXPECT_LT((MakeNorm("ada", 8)->forward(x) - ada).abs().max().item<double>(), 1e-5);
}

// dx = rstd*(dy - a*mean(dy) - b*xhat*mean(dy*xhat)), where a and b are 0 for a moment that is a
// constant (Xu et al. 2019, Eq 4). Numbers of size 1 from means of 8: 2e-6 is some roundings.
TEST(Norms, DetachWhatTheirNamesSay) {
  at::manual_seed(3);
  const at::Tensor x = at::randn({16, 8}), dy = at::randn({16, 8});
  const at::Tensor rstd = (x.var(1, /*unbiased=*/false, /*keepdim=*/true) + 1e-5).rsqrt();
  const at::Tensor xhat = (x - x.mean(1, true)) * rstd;
  const std::tuple<std::string, double, double> cases[] = {
      {"layer-simple", 1, 1}, {"detach", 0, 0}, {"detach-mean", 0, 1}, {"detach-deviation", 1, 0}};
  for (const auto& [name, a, b] : cases) {
    const at::Tensor input = x.clone().requires_grad_(true);
    MakeNorm(name, 8)->forward(input).backward(dy);
    const at::Tensor expected =
        rstd * (dy - a * dy.mean(1, true) - b * xhat * (dy * xhat).mean(1, true));
    EXPECT_LT((input.grad() - expected).abs().max().item<double>(), 2e-6) << name;
  }
}

// Against the definition, in the same precision: float numbers of size 1, a few roundings each.
TEST(Norms, BatchDividesByTheVarianceAskedFor) {
  at::manual_seed(2);
  const at::Tensor x = at::randn({4, 8}), dy = at::randn({4, 8});
  for (const bool unbiased : {false, true}) {
    auto norm = MakeNorm("batch", 8, {.epsilon = 0.1, .unbiased_variance = unbiased});
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

}  // namespace
}  // namespace planish::lab
