#include "lab/tasks/convnet/convnet.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lab/engine/train.h"
#include "lab/error.h"
#include "lab/model/parameter_count.h"
#include "lab/tasks/convnet/borders.h"
#include "lab/tasks/convnet/model.h"
#include "lab/tasks/task_testing.h"
#include "lab/testing/long_tests.h"

namespace planish::lab {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

using ConvNetTest = TaskTest<MakeConvNet>;

TEST(ConvNet, HasTheExpectedNumberOfParameters) {
  // Kernels of 9 and biases; 7 * 7 * 64 inputs of the linear layer.
  const int64_t weights = (9 * 32 + 32) + (9 * 32 * 32 + 32) + (9 * 32 * 64 + 64) +
                          (9 * 64 * 64 + 64) + (3136 * 256 + 256) + (256 * 10 + 10);
  EXPECT_EQ(ParameterCount(ConvNet({.norm = "none"})), weights);
  const int64_t units = 2 * 28 * 28 * 32 + 2 * 14 * 14 * 64, channels = 2 * 32 + 2 * 64;
  EXPECT_EQ(ParameterCount(ConvNet({.norm = "layer"})), weights + 2 * (units + 256));
  EXPECT_EQ(ParameterCount(ConvNet({.norm = "batch"})), weights + 2 * (channels + 256));
  EXPECT_EQ(ParameterCount(ConvNet({.norm = "layer-channels"})), weights + 2 * (channels + 256));
  EXPECT_EQ(ParameterCount(ConvNet({.norm = "layer-simple"})), weights);
}

// Compares the network with one of PyTorch's own functions, channels first.
TEST(ConvNet, MatchesPyTorchsFunctions) {
  for (const std::string norm : {"none", "layer", "layer-channels", "batch"}) {
    SCOPED_TRACE(norm);
    at::manual_seed(1);
    ConvNet model({.norm = norm, .channels = 3, .hidden = 6, .side = 8, .classes = 5});
    model.to(at::kDouble);
    const auto p = model.named_parameters();
    at::NoGradGuard no_grad;
    for (const auto& item : p) {  // gains and biases that matter
      if (item.key().find("_norm") != std::string::npos)
        item.value().add_(at::rand_like(item.value()));
    }
    const auto normalize = [&](const at::Tensor& y, const std::string& name) {
      if (norm == "none") return y;
      const at::Tensor gain = p[name + "_norm.norm.weight"], bias = p[name + "_norm.norm.bias"];
      if (norm == "batch") {
        return at::batch_norm(y, gain, bias, {}, {}, /*training=*/true, 0.1, 1e-5, false);
      }
      if (y.dim() == 2) return at::layer_norm(y, y.sizes()[1], gain, bias);
      if (norm == "layer-channels") {
        return at::layer_norm(y.permute({0, 2, 3, 1}), y.size(1), gain, bias).permute({0, 3, 1, 2});
      }
      // [H, W, C] -> [C, H, W]
      return at::layer_norm(y, y.sizes().slice(1), gain.permute({2, 0, 1}),
                            bias.permute({2, 0, 1}));
    };
    const at::Tensor x = at::rand({6, 64}, at::kDouble);
    at::Tensor y = x.view({6, 1, 8, 8});
    std::vector<at::Tensor> sums, activated;
    for (int i = 0; i < 4; ++i) {
      const std::string name = "convolution" + std::to_string(i);
      sums.push_back(at::conv2d(y, p[name + ".weight"], p[name + ".bias"], 1, 1));
      y = normalize(sums.back(), name).relu();
      activated.push_back(y);
      if (i % 2 == 1) y = at::max_pool2d(y, 2);
    }
    y = y.permute({0, 2, 3, 1}).flatten(1);
    y = normalize(at::linear(y, p["hidden.weight"], p["hidden.bias"]), "hidden").relu();
    y = at::linear(y, p["output.weight"], p["output.bias"]);
    // Sums of at most 54 products of values around 1, in another order, in double.
    EXPECT_LT((model.forward(x) - y).abs().max().item<double>(), 1e-12);
    const std::vector<ConvNet::Units> units = model.UnitsOf(x);
    ASSERT_EQ(units.size(), 4u);
    for (size_t i = 0; i < 4; ++i) {
      const auto difference = [](const at::Tensor& nhwc, const at::Tensor& nchw) {
        return (nhwc.permute({0, 3, 1, 2}) - nchw).abs().max().item<double>();
      };
      EXPECT_LT(difference(units[i].sums, sums[i]), 1e-12);
      EXPECT_LT(difference(units[i].activated, activated[i]), 1e-12);
    }
  }
}

TEST(StatisticsOf, TellsTheBorderFromTheRest) {
  EXPECT_EQ(BorderWidth(28), 3);
  EXPECT_EQ(BorderWidth(14), 1);
  EXPECT_EQ(BorderWidth(3), 1);
  // One channel of 3 x 3, two cases: the centre is 4 and 8, the rest 1 and 3; nonzero in one case,
  // and never.
  at::Tensor sums = at::ones({2, 3, 3, 1});
  sums[1].fill_(3);
  sums[0][1][1] = 4;
  sums[1][1][1] = 8;
  at::Tensor activated = at::zeros({2, 3, 3, 1});
  activated[1][1][1] = 2;
  const auto [border, inside] = StatisticsOf({sums, activated});
  EXPECT_DOUBLE_EQ(border.on, 0);
  EXPECT_DOUBLE_EQ(inside.on, 0.5);
  EXPECT_DOUBLE_EQ(border.mean, 2);
  EXPECT_DOUBLE_EQ(inside.mean, 6);
  // Unbiased: half the difference squared, twice, in float.
  EXPECT_NEAR(border.deviation, std::sqrt(2.0), 1e-6);
  EXPECT_NEAR(inside.deviation, std::sqrt(8.0), 1e-6);
}

TEST_F(ConvNetTest, StartsEveryNormFromTheSameWeights) {
  ExpectSameInitialWeights(*task, ConvNetNorms(), 12,
                           [](const std::string& name, const at::Tensor&) {
                             return name.find("_norm") == std::string::npos;
                           });
}

TEST_F(ConvNetTest, MeasuresEveryMetricItDeclares) {
  for (const std::string images : {"digits", "shapes"}) {
    const Settings settings = Chosen("smoke", {{"images", images}});
    const auto data = task->Load(settings, {});
    EXPECT_EQ(data->about.name, "drawn " + images);
    const auto experiment = task->Make(settings, *data);
    const Values values = DeclaredMetrics(*task, *experiment);
    const at::NoGradGuard no_grad;
    EXPECT_GT(values.at("inside_on"), 0.1);
    EXPECT_LT(values.at("inside_on"), 0.9);
    at::Generator unused;
    const auto samples = experiment->Samples(unused);
    ASSERT_EQ(samples.size(), 1u);
    EXPECT_EQ(std::ranges::count(samples[0].text, '\n'), 2 + 4);  // two header lines
    EXPECT_THAT(samples[0].title, HasSubstr("64 validation cases"));
  }
}

TEST_F(ConvNetTest, LearnsWithEveryNorm) {
  const auto data = task->Load(Chosen("smoke"), {});
  for (const std::string& norm : NormsToTrain(ConvNetNorms())) {
    at::manual_seed(1);
    const Settings settings = Chosen("smoke", {{"norm", norm}, {"lr", "0.002"}});
    const auto experiment = task->Make(settings, *data);
    // dyt is the slowest: its ratio is .96 after 61 updates and .66 after 121.
    EXPECT_LT(LossRatio(*task, *experiment, settings, 64, 121), 0.8) << norm;
  }
}

TEST_F(ConvNetTest, ResumesExactly) { ExpectExactResume(*task, {{"norm", "batch"}}); }

TEST_F(ConvNetTest, AppliesItsSettings) {
  EXPECT_THAT(task->data_settings, Contains("images"));
  const auto data = task->Load(Chosen("smoke"), {});
  EXPECT_THROW(task->Make(Chosen("smoke", {{"norm", "batch"}, {"batch_size", "1"}}), *data),
               UsageError);
  EXPECT_THROW(task->Check(Chosen("smoke", {{"valid_cases", "1"}}), *data), UsageError);
  EXPECT_THROW(Chosen("smoke", {{"images", "clothes"}}), UsageError);
}

TEST_F(ConvNetTest, TrainsThePapersNetwork) {
  const Settings settings = Chosen("paper", {{"norm", "layer-channels"},
                                             {"train_cases", "32"},
                                             {"valid_cases", "2"},
                                             {"test_cases", "1"}});
  const auto data = task->Load(settings, {});
  const auto experiment = task->Make(settings, *data);
  EXPECT_LT(LossRatio(*task, *experiment, settings, 32, 4), 1);
}

}  // namespace
}  // namespace planish::lab
