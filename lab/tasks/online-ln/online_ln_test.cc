#include "lab/tasks/online-ln/online_ln.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "lab/engine/train.h"
#include "lab/error.h"
#include "lab/model/parameter_count.h"
#include "lab/tasks/online-ln/model.h"
#include "lab/tasks/task_testing.h"

namespace planish::lab {
namespace {

using ::testing::HasSubstr;

using OnlineLnTest = TaskTest<MakeOnlineLn>;

TEST(OnlineMlp, HasTheExpectedNumberOfParameters) {
  const int64_t products = 784 * 128 + 128 * 128 + 128 * 10;
  // Biases without a norm; with one, its gain and bias. Weight normalization has no bias.
  EXPECT_EQ(ParameterCount(OnlineMlp({.norm = "none"})), products + 266);
  EXPECT_EQ(ParameterCount(OnlineMlp({.norm = "weight"})), products + 2 * 266);
  EXPECT_EQ(ParameterCount(OnlineMlp({.norm = "batch"})), products + 2 * 266);
  EXPECT_EQ(ParameterCount(OnlineMlp({.norm = "layer"})), products + 2 * 266);
  EXPECT_EQ(ParameterCount(OnlineMlp({.norm = "online"})), products + 2 * 266);
}

// Computes the equations case by case.
TEST(OnlineMlp, MatchesItsEquations) {
  struct Case {
    const char* schedule;
    double (*alpha)(double t);
  };
  for (const auto& [schedule, alpha_of] :
       {Case{"constant", [](double /*t*/) { return 0.3; }},
        Case{"inverse", [](double t) { return 1 / t; }},
        Case{"warmup", [](double t) { return std::max(0.3, 1 / t); }}}) {
    SCOPED_TRACE(schedule);
    at::manual_seed(1);
    OnlineMlp model({.norm = "online",
                     .alpha = 0.3,
                     .schedule = schedule,
                     .inputs = 5,
                     .hidden = {4, 3},
                     .classes = 2});
    model.to(at::kDouble);
    const at::Tensor x = at::randn({6, 5}, at::kDouble);
    std::vector<double> mu(3, 0), sigma(3, 1);
    std::vector<at::Tensor> weights;
    for (const auto& p : model.parameters()) {
      if (p.dim() == 2) weights.push_back(p);
    }
    ASSERT_EQ(weights.size(), 3u);
    at::NoGradGuard no_grad;
    std::vector<at::Tensor> rows;
    for (int64_t n = 0; n < 6; ++n) {
      const double alpha = alpha_of(static_cast<double>(n + 1));
      at::Tensor y = x[n];
      for (size_t layer = 0; layer < 3; ++layer) {
        const at::Tensor a = at::mv(weights[layer], y);
        mu[layer] = alpha * a.mean().item<double>() + (1 - alpha) * mu[layer];
        const at::Tensor centred = a - mu[layer];
        const double s =
            std::sqrt(centred.square().sum().item<double>() / static_cast<double>(a.numel() - 1));
        sigma[layer] = alpha * s + (1 - alpha) * sigma[layer];
        y = centred / sigma[layer];  // gain 1, bias 0
        if (layer < 2) y = y.relu();
      }
      rows.push_back(y);
    }
    const at::Tensor actual = model.forward(x);
    // Three layers of sums of at most five products, in double.
    EXPECT_LT((actual - at::stack(rows)).abs().max().item<double>(), 1e-12);
    const auto statistics = model.StatisticsOf(x);
    for (size_t layer = 0; layer < 3; ++layer) {
      EXPECT_NEAR(statistics[layer].mu, mu[layer], 1e-12);
      EXPECT_NEAR(statistics[layer].sigma, sigma[layer], 1e-12);
    }
  }
}

TEST(OnlineMlp, MatchesBatchAndWeightNormalization) {
  at::manual_seed(2);
  const at::Tensor x = at::randn({6, 5}, at::kDouble);
  for (const std::string norm : {"batch", "weight"}) {
    OnlineMlp model({.norm = norm, .inputs = 5, .hidden = {4, 3}, .classes = 2});
    model.to(at::kDouble);
    at::NoGradGuard no_grad;
    for (auto& p : model.parameters()) p.normal_();
    const auto p = model.named_parameters();
    at::Tensor y = x;
    std::vector<at::Tensor> sums;
    for (size_t layer = 0; layer < 3; ++layer) {
      const std::string at = "net." + std::to_string(3 * layer),
                        of = "net." + std::to_string(3 * layer + 1);
      const at::Tensor w = p[at + ".weight"];
      if (norm == "weight") {
        const at::Tensor length = w.square().sum(1, /*keepdim=*/true).sqrt();
        sums.push_back(at::linear(y, p[of + ".gain"].unsqueeze(1) * w / length, p[at + ".bias"]));
        y = sums.back();
      } else {
        sums.push_back(at::linear(y, w));
        const at::Tensor centred = sums.back() - sums.back().mean(0);
        y = centred / (centred.square().mean(0) + 1e-5).sqrt() * p[of + ".norm.weight"] +
            p[of + ".norm.bias"];
      }
      if (layer < 2) y = y.relu();
    }
    // Three layers of sums of at most six terms, in double.
    EXPECT_LT((model.forward(x) - y).abs().max().item<double>(), 1e-12) << norm;
    const auto statistics = model.StatisticsOf(x);
    ASSERT_EQ(statistics.size(), 3u);
    for (size_t layer = 0; layer < 3; ++layer) {
      EXPECT_NEAR(statistics[layer].mu, sums[layer].mean().item<double>(), 1e-12) << norm;
    }
  }
}

TEST(OnlineMlp, StatisticsWithoutAStateAreThoseOfTheCases) {
  OnlineMlp model({.norm = "none", .inputs = 5, .hidden = {4, 3}, .classes = 2});
  at::NoGradGuard no_grad;
  const at::Tensor x = at::randn({7, 5});
  const at::Tensor sums = at::linear(x, model.parameters()[0], model.parameters()[1]);
  const auto statistics = model.StatisticsOf(x);
  ASSERT_EQ(statistics.size(), 3u);
  // Means of 28 and of 7 values around 1, in float.
  EXPECT_NEAR(statistics[0].mu, sums.mean().item<double>(), 1e-6);
  const at::Tensor centred = sums - sums.mean(1, true);
  EXPECT_NEAR(statistics[0].sigma, (centred.square().sum(1) / 3).sqrt().mean().item<double>(),
              1e-6);
}

TEST_F(OnlineLnTest, StartsEveryNormFromTheSameWeights) {
  ExpectSameInitialWeights(*task, {"none", "layer", "batch", "weight", "online-1", "online-0.01"},
                           3, [](const std::string&, const at::Tensor& p) { return p.dim() == 2; });
}

TEST_F(OnlineLnTest, MeasuresEveryMetricItDeclares) {
  const auto data = task->Load(Chosen("smoke"), {});
  const auto experiment = task->Make(Chosen("smoke", {{"norm", "online-0.1"}}), *data);
  const Values values = DeclaredMetrics(*task, *experiment);
  // Evaluation changes no state.
  EXPECT_EQ(values.at("mu_0"), 0);
  EXPECT_EQ(values.at("sigma_2"), 1);
}

TEST_F(OnlineLnTest, LearnsWithEveryNorm) {
  const auto data = task->Load(Chosen("smoke"), {});
  const auto norms = std::ranges::find(task->settings, "norm", &SettingSpec::name)->choices;
  ASSERT_EQ(norms.size(), 9u);
  for (const std::string& norm : norms) {
    at::manual_seed(1);
    const Settings settings = Chosen("smoke", {{"norm", norm}, {"lr", "0.01"}});
    const auto experiment = task->Make(settings, *data);
    EXPECT_LT(LossRatio(*task, *experiment, settings, 64, 21), 0.6) << norm;
  }
}

TEST_F(OnlineLnTest, ResumesExactly) {
  ExpectExactResume(*task, {{"norm", "online-0.03"}, {"batch_size", "64"}});
  // The number of cases continues, too.
  for (const std::string schedule : {"inverse", "warmup"}) {
    ExpectExactResume(
        *task, {{"norm", "online-0.03"}, {"batch_size", "64"}, {"alpha_schedule", schedule}});
  }
}

TEST_F(OnlineLnTest, LearnsWithEverySchedule) {
  const auto data = task->Load(Chosen("smoke"), {});
  for (const std::string schedule : {"inverse", "warmup"}) {
    at::manual_seed(1);
    const Settings settings =
        Chosen("smoke", {{"norm", "online-0.1"}, {"alpha_schedule", schedule}, {"lr", "0.01"}});
    const auto experiment = task->Make(settings, *data);
    EXPECT_LT(LossRatio(*task, *experiment, settings, 64, 21), 0.6) << schedule;
  }
}

TEST_F(OnlineLnTest, RefusesBatchNormOfASingleCase) {
  const auto data = task->Load(Chosen("smoke"), {});
  EXPECT_THROW(task->Make(Chosen("smoke", {{"norm", "batch"}, {"batch_size", "1"}}), *data),
               UsageError);
}

TEST_F(OnlineLnTest, PrintsTheNetwork) {
  const auto data = task->Load(Chosen("smoke"), {});
  const auto experiment = task->Make(Chosen("smoke", {{"norm", "online-0.1"}}), *data);
  at::Generator unused;
  const auto samples = experiment->Samples(unused);
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_THAT(samples[0].text,
              HasSubstr("OnlineLayerNorm(16, alpha=0.1, affine=true, mu=0, sigma=1)"));
}

}  // namespace
}  // namespace planish::lab
