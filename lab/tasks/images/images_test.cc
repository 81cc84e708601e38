#include "lab/tasks/images/images.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lab/error.h"
#include "lab/model/parameter_count.h"
#include "lab/tasks/digit_cases.h"
#include "lab/tasks/mnist-cnn/mnist_cnn.h"
#include "lab/tasks/task_testing.h"
#include "lab/testing/long_tests.h"

namespace planish::lab {
namespace {

using ImagesTest = TaskTest<MakeImages>;

// Random color images [count, height * width * 3] in `classes` classes: in each, another corner
// pixel is bright.
std::unique_ptr<DigitCases> Spots(const ImageShape& shape, int64_t classes) {
  auto data = std::make_unique<DigitCases>();
  data->shape = shape;
  data->classes = classes;
  const auto fill = [&](Cases* cases, int64_t count) {
    cases->labels = at::arange(count).remainder(classes);
    cases->x = at::rand({count, shape.values()}) * 0.1;
    for (int64_t i = 0; i < count; ++i) {
      // Draws a bright block, which lies in the field of one unit, at the place of the class.
      const at::Tensor image = cases->x[i].view({shape.height, shape.width, shape.channels});
      const int64_t label = cases->labels[i].item<int64_t>();
      image.slice(0, 2, 10).slice(1, 3 * label, 3 * label + 3).fill_(1);
    }
  };
  fill(&data->train, 96);
  fill(&data->valid, 24);
  fill(&data->test, 24);
  data->about.sizes = {{"train", 96}, {"valid", 24}, {"test", 24}};
  return data;
}

// With the same cases the network, its losses and its metrics are those of mnist-cnn, bit for bit.
TEST_F(ImagesTest, TrainsLikeMnistCnn) {
  const auto theirs = MakeMnistCnn();
  const Settings settings = PresetSettings(*theirs, "smoke", {{"hidden", "64"}});
  const auto data = theirs->Load(settings, {});
  const auto a = theirs->MakeSeeded(settings, *data, 1);
  const auto b = task->MakeSeeded(Smoke(), *data, 1);
  TrainEpochs(*theirs, *a, settings, 1);
  TrainEpochs(*task, *b, Smoke(), 1);
  EXPECT_EQ(DeclaredMetrics(*theirs, *a), DeclaredMetrics(*task, *b));
}

TEST_F(ImagesTest, FitsAnySizeColorAndNumberOfClasses) {
  const auto data = Spots({18, 23, 3}, 6);
  // 5 * 5 * 3 * 20 + 20, 5 * 5 * 20 * 50 + 50; 18 x 23 -> 14 x 19 -> 7 x 9 -> 3 x 5 -> 1 x 2.
  const int64_t convolutions = 1520 + 25'050, hidden = 2 * 50 * 64 + 64, output = 64 * 6 + 6;
  EXPECT_EQ(ParameterCount(Make(*data, {{"norm", "none"}})->model()),
            convolutions + hidden + output);
  EXPECT_EQ(ParameterCount(Make(*data, {{"norm", "layer"}})->model()),
            convolutions + hidden + output + 2 * (14 * 19 * 20 + 3 * 5 * 50 + 64));
  const int64_t mlp = 18 * 23 * 3 * 32 + 32 + 32 * 32 + 32 + 32 * 6 + 6;
  EXPECT_EQ(ParameterCount(Make(*data, {{"norm", "none"}, {"model", "mlp"}})->model()), mlp);
  EXPECT_EQ(ParameterCount(Make(*data, {{"norm", "rms"}, {"model", "mlp"}})->model()), mlp + 64);
}

TEST_F(ImagesTest, LearnsWithEveryNorm) {
  const auto data = Spots({18, 23, 3}, 6);
  for (const std::string model : {"cnn", "mlp"}) {
    for (const std::string& norm : NormsToTrain(NormNames())) {
      const Settings settings = Smoke({{"norm", norm}, {"model", model}, {"lr", "0.003"}});
      const auto experiment = task->MakeSeeded(settings, *data, 1);
      TrainEpochs(*task, *experiment, settings, 20);
      const Values values = DeclaredMetrics(*task, *experiment);
      EXPECT_GT(values.at("valid_accuracy"), 0.5) << model << " " << norm;  // chance is 1/6
    }
  }
}

TEST_F(ImagesTest, StartsEveryNormFromTheSameWeights) {
  const auto is_weight = [](const std::string& name, const at::Tensor&) {
    return name.find("norm") == std::string::npos;
  };
  ExpectSameInitialWeights(*task, NormNames(), 8, is_weight);
}

TEST_F(ImagesTest, UsesSyntheticDigitsWithoutData) {
  const auto data = task->Load(Smoke(), {});
  EXPECT_EQ(data->about.sizes,
            (std::map<std::string, int64_t>{{"train", 512}, {"valid", 128}, {"test", 128}}));
  EXPECT_EQ(data->about.source, "embedded");
  const auto experiment = Make(*data);
  const Values values = DeclaredMetrics(*task, *experiment);
  EXPECT_NEAR(values.at("test_nll"), std::log(10), 0.3);  // an untrained model guesses among 10
}

TEST_F(ImagesTest, ResumesExactly) {
  ExpectExactResume(*task, {{"norm", "batch"}, {"train_cases", "160"}});
  ExpectExactResume(*task, {{"norm", "layer"}, {"model", "mlp"}, {"train_cases", "160"}});
}

TEST_F(ImagesTest, RefusesSmallImagesForTheConvolutions) {
  const auto data = Spots({15, 30, 1}, 2);
  try {
    Make(*data);
    FAIL() << "no error";
  } catch (const UsageError& e) {
    EXPECT_STREQ(e.what(),
                 "[images] model must be mlp for images of 15 x 30 pixels, got cnn, which "
                 "needs 16 x 16");
  }
  EXPECT_NO_THROW(Make(*data, {{"model", "mlp"}}));
  const auto smallest = Spots({16, 16, 1}, 2);
  EXPECT_NO_THROW(Make(*smallest));
  EXPECT_THROW(Make(*smallest, {{"norm", "batch"}, {"batch_size", "1"}}), UsageError);
  EXPECT_THROW(Make(*smallest, {{"batch_size", "97"}}), UsageError);
}

}  // namespace
}  // namespace planish::lab
