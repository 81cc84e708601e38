#include "lab/tasks/mnist-cnn/mnist_cnn.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "lab/engine/train.h"
#include "lab/error.h"
#include "lab/model/norms.h"
#include "lab/model/parameter_count.h"
#include "lab/tasks/digit_cases.h"
#include "lab/tasks/mnist-cnn/model.h"
#include "lab/tasks/task_testing.h"
#include "lab/testing/long_tests.h"

namespace planish::lab {
namespace {

using ::testing::UnorderedElementsAre;

using MnistCnnTest = TaskTest<MakeMnistCnn>;

TEST(DigitCnn, HasTheExpectedNumberOfParameters) {
  // 5*5*1*20 + 20, 5*5*20*50 + 50, (4*4*50)*500 + 500, 500*10 + 10: 431,080, like Caffe's LeNet.
  const int64_t weights = 520 + 25'050 + 400'500 + 5'010;
  EXPECT_EQ(weights, 431'080);
  EXPECT_EQ(ParameterCount(DigitCnn({.norm = "none"})), weights);
  EXPECT_EQ(ParameterCount(DigitCnn({.norm = "layer-simple"})), weights);
  // Gain and bias of a case's 24*24*20 and 8*8*50 elements, and of the linear layer's 500.
  EXPECT_EQ(ParameterCount(DigitCnn({.norm = "layer"})), weights + 2 * (11'520 + 3'200 + 500));
  EXPECT_EQ(ParameterCount(DigitCnn({.norm = "layer", .norm_convolutions = false})),
            weights + 2 * 500);
  EXPECT_EQ(ParameterCount(DigitCnn({.norm = "batch"})), weights + 2 * (20 + 50 + 500));
}

// Compares the network with one of PyTorch's own functions, channels first and ReLU before the
// maximum.
TEST(DigitCnn, MatchesPyTorchsFunctions) {
  for (const std::string norm : {"none", "layer", "batch"}) {
    SCOPED_TRACE(norm);
    at::manual_seed(1);
    DigitCnn model({.norm = norm,
                    .channels = {3, 4},
                    .hidden = 6,
                    .shape = {.height = 20, .width = 24, .channels = 2},
                    .classes = 5});
    model.to(at::kDouble);
    const auto p = model.named_parameters();
    {
      at::NoGradGuard no_grad;  // gains and biases that matter
      for (const auto& item : p) {
        if (item.key().find("_norm") != std::string::npos)
          item.value().add_(at::rand_like(item.value()));
      }
    }
    const auto normalize = [&](const at::Tensor& y, const std::string& name) {
      if (norm == "none") return y;
      const at::Tensor gain = p[name + "_norm.norm.weight"], bias = p[name + "_norm.norm.bias"];
      if (norm == "batch") {
        return at::batch_norm(y, gain, bias, {}, {}, /*training=*/true, 0.1, 1e-5, false);
      }
      if (y.dim() == 2) return at::layer_norm(y, y.sizes()[1], gain, bias);
      // [H, W, C] -> [C, H, W]
      return at::layer_norm(y, y.sizes().slice(1), gain.permute({2, 0, 1}),
                            bias.permute({2, 0, 1}));
    };
    const at::Tensor x = at::rand({6, 20 * 24 * 2}, at::kDouble);
    at::Tensor y = x.view({6, 20, 24, 2}).permute({0, 3, 1, 2});
    for (const std::string name : {"convolution0", "convolution1"}) {
      y = at::conv2d(y, p[name + ".weight"], p[name + ".bias"]);
      y = at::max_pool2d(normalize(y, name).relu(), 2);
    }
    y = y.permute({0, 2, 3, 1}).flatten(1);
    y = normalize(at::linear(y, p["hidden.weight"], p["hidden.bias"]), "hidden").relu();
    y = at::linear(y, p["output.weight"], p["output.bias"]);

    const at::Tensor actual = model.forward(x);
    // Sums of at most 75 products of values around 1, in another order, in double.
    EXPECT_LT((actual - y).abs().max().item<double>(), 1e-12);

    const at::Tensor dy = at::rand({6, 5}, at::kDouble);
    std::vector<at::Tensor> parameters;
    for (const auto& item : p) parameters.push_back(item.value());
    const std::vector<at::Tensor> expected_gradients = torch::autograd::grad({y}, parameters, {dy});
    const std::vector<at::Tensor> gradients = torch::autograd::grad({actual}, parameters, {dy});
    for (size_t i = 0; i < parameters.size(); ++i) {
      // Sums over 6 cases of up to 256 positions, of products as above.
      EXPECT_LT((gradients[i] - expected_gradients[i]).abs().max().item<double>(), 1e-10)
          << p.keys()[i];
    }
  }
}

TEST_F(MnistCnnTest, StartsEveryNormFromTheSameWeights) {
  ExpectSameInitialWeights(*task, NormNames(), 8, [](const std::string& name, const at::Tensor&) {
    return name.find("_norm") == std::string::npos;
  });
}

TEST_F(MnistCnnTest, MeasuresEveryMetricItDeclares) {
  const auto data = task->Load(Chosen("smoke"), {});
  const auto experiment = task->Make(Chosen("smoke"), *data);
  experiment->model().eval();
  const Values evaluation = experiment->Evaluate(), test = experiment->Test();
  std::vector<std::string> names;
  for (const Values& values : {evaluation, test}) {
    for (const auto& [name, value] : values) {
      names.push_back(name);
      // Ten balanced classes and small random logits: chance.
      if (name.ends_with("_accuracy")) {
        EXPECT_NEAR(value, 0.1, 0.12) << name;
      } else {
        EXPECT_NEAR(value, std::log(10), 0.2) << name;
      }
    }
  }
  EXPECT_THAT(names, UnorderedElementsAre("train_nll", "train_accuracy", "valid_nll",
                                          "valid_accuracy", "test_nll", "test_accuracy"));
}

TEST_F(MnistCnnTest, LearnsWithEveryNorm) {
  const auto data = task->Load(Chosen("smoke"), {});
  for (const std::string& norm : NormsToTrain(NormNames())) {
    at::manual_seed(1);
    const Settings settings = Chosen("smoke", {{"norm", norm}, {"lr", "0.003"}});
    const auto experiment = task->Make(settings, *data);
    TrainEpochs(*task, *experiment, settings, 3);
    at::NoGradGuard no_grad;
    // 48 updates on 512 images reach 64% to 88%; chance is 10%.
    EXPECT_GT(experiment->Evaluate().at("valid_accuracy"), 0.5) << norm;
  }
}

TEST_F(MnistCnnTest, ResumesExactly) {
  ExpectExactResume(*task, {{"norm", "batch"}, {"train_cases", "160"}});  // 5 batches, twice
}

TEST_F(MnistCnnTest, AppliesItsSettings) {
  const Settings settings =
      Chosen("smoke", {{"norm", "layer"}, {"norm_at", "linear"}, {"hidden", "7"}});
  const auto data = task->Load(settings, {});
  const auto experiment = task->Make(settings, *data);
  EXPECT_EQ(ParameterCount(experiment->model()), 520 + 25'050 + 801 * 7 + 8 * 10 + 2 * 7);
  EXPECT_THROW(task->Make(Chosen("smoke", {{"norm", "batch"}, {"batch_size", "1"}}), *data),
               UsageError);
  EXPECT_THROW(Chosen("smoke", {{"norm_at", "none"}}), UsageError);
  EXPECT_THROW(task->Load(Chosen("smoke", {{"train_cases", "999999"}}), {}), UsageError);
}

TEST_F(MnistCnnTest, TrainsThePapersNetwork) {
  const Settings settings = Chosen(
      "paper", {{"norm", "ada"}, {"train_cases", "64"}, {"valid_cases", "1"}, {"test_cases", "1"}});
  const auto data = task->Load(settings, {});
  const auto experiment = task->Make(settings, *data);
  EXPECT_LT(LossRatio(*task, *experiment, settings, 64, 4), 1);
}

}  // namespace
}  // namespace planish::lab
