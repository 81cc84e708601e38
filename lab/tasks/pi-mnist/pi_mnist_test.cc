#include "lab/tasks/pi-mnist/pi_mnist.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/error.h"
#include "lab/model/norms.h"
#include "lab/model/parameter_count.h"
#include "lab/tasks/pi-mnist/model.h"
#include "lab/tasks/task_testing.h"

namespace planish::lab {
namespace {

using ::testing::UnorderedElementsAre;

using PiMnistTest = TaskTest<MakePiMnist>;

TEST(PixelMlp, HasThePapersSize) {
  // 784*1000 + 1000 + 1000*1000 + 1000 + 1000*10 + 10 weights and biases.
  PixelMlp none({.norm = "none"});
  EXPECT_EQ(ParameterCount(none), 1'796'010);
  PixelMlp layer({.norm = "layer"});  // gain and bias of two hidden layers, none on the logits
  EXPECT_EQ(ParameterCount(layer), 1'796'010 + 4'000);
  PixelMlp simple({.norm = "layer-simple"});
  EXPECT_EQ(ParameterCount(simple), 1'796'010);
  PixelMlp batch({.norm = "batch", .norm_on_logits = true});  // on all layers
  EXPECT_EQ(ParameterCount(batch), 1'796'010 + 4'020);
}

TEST(PixelMlp, MatchesItsDefinition) {
  at::manual_seed(1);
  PixelMlp model({.norm = "layer", .inputs = 5, .width = 7, .depth = 1, .classes = 3});
  model.to(at::kDouble);
  const auto p = model.named_parameters();
  const at::Tensor x = at::randn({4, 5}, at::kDouble);
  const at::Tensor hidden =
      at::layer_norm(at::linear(x, p["linear0.weight"], p["linear0.bias"]), {7}).relu();
  const at::Tensor expected = at::linear(hidden, p["linear1.weight"], p["linear1.bias"]);
  // Both sides sum at most 7 terms in double.
  EXPECT_LT((model.forward(x) - expected).abs().max().item<double>(), 1e-13);
}

TEST_F(PiMnistTest, StartsEveryNormFromTheSameWeights) {
  const auto data = task->Load(Smoke(), {});
  std::vector<at::Tensor> first;
  for (const std::string& norm : NormNames()) {
    at::manual_seed(9);
    const auto experiment = task->Make(Smoke({{"norm", norm}}), *data);
    std::vector<at::Tensor> weights;
    for (const auto& item : experiment->model().named_parameters()) {
      if (item.key().starts_with("linear")) weights.push_back(item.value());
    }
    ASSERT_EQ(weights.size(), 6u);
    if (first.empty()) first = weights;
    for (size_t i = 0; i < 6; ++i) EXPECT_TRUE(weights[i].equal(first[i])) << norm;
  }
}

TEST_F(PiMnistTest, MeasuresEveryMetricItDeclares) {
  const auto data = task->Load(Smoke(), {});
  const auto experiment = task->Make(Smoke(), *data);
  experiment->model().eval();
  std::vector<std::string> names;
  for (const auto& [name, value] : experiment->Evaluate()) {
    names.push_back(name);
    // Ten balanced classes and small random logits: chance.
    if (name.ends_with("_error")) {
      EXPECT_NEAR(value, 0.9, 0.12) << name;
    } else {
      EXPECT_NEAR(value, std::log(10), 0.2) << name;
    }
  }
  EXPECT_THAT(names, UnorderedElementsAre("train_nll", "train_error", "valid_nll", "valid_error",
                                          "test_nll", "test_error"));
}

TEST_F(PiMnistTest, LearnsWithEveryNorm) {
  const auto data = task->Load(Smoke(), {});
  for (const std::string& norm : NormNames()) {
    at::manual_seed(1);
    const Settings settings = Smoke({{"norm", norm}, {"batch_size", "32"}, {"lr", "0.003"}});
    const auto experiment = task->Make(settings, *data);
    TrainEpochs(*task, *experiment, settings, 10);
    at::NoGradGuard no_grad;
    // 160 updates: far below chance, which is 0.9.
    EXPECT_LT(experiment->Evaluate().at("train_error"), 0.5) << norm;
  }
}

TEST_F(PiMnistTest, UsesTheUnbiasedVarianceAtBatchSizeFour) {
  const auto data = task->Load(Smoke(), {});
  const auto loss = [&](const std::string& variance, const std::string& size) {
    at::manual_seed(1);
    const auto experiment = task->Make(
        Smoke({{"norm", "batch"}, {"bn_variance", variance}, {"batch_size", size}}), *data);
    experiment->model().train();
    return experiment->Loss(experiment->Batch(at::arange(std::stol(size)))).item<double>();
  };
  EXPECT_EQ(loss("auto", "4"), loss("unbiased", "4"));
  EXPECT_NE(loss("auto", "4"), loss("biased", "4"));
  EXPECT_EQ(loss("auto", "128"), loss("biased", "128"));
}

TEST_F(PiMnistTest, RefusesBatchNormOfASingleCase) {
  const auto data = task->Load(Smoke(), {});
  EXPECT_THROW(task->Make(Smoke({{"norm", "batch"}, {"batch_size", "1"}}), *data), UsageError);
}

TEST_F(PiMnistTest, ReportsTooFewImages) {
  EXPECT_THROW(task->Load(Smoke({{"train_cases", "9999999"}}), {}), UsageError);
}

}  // namespace
}  // namespace planish::lab
