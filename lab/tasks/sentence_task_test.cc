#include "lab/tasks/sentence_task.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lab/error.h"
#include "lab/model/sentence_classifier.h"
#include "lab/tasks/rt/rt.h"
#include "lab/tasks/sentences/sentences.h"
#include "lab/tasks/sst5/sst5.h"
#include "lab/tasks/task_testing.h"
#include "lab/testing/long_tests.h"

namespace planish::lab {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAreArray;

// Tests of rt, sst5 and sentences on synthetic sentences.
class SentenceTaskTest : public ::testing::TestWithParam<std::string> {
 protected:
  Settings Smoke(const Sets& sets = {}) { return PresetSettings(*task, "smoke", sets); }
  int64_t classes() const { return task->name == "rt" ? 2 : 5; }

  std::unique_ptr<Task> task = GetParam() == "rt"     ? MakeRt()
                               : GetParam() == "sst5" ? MakeSst5()
                                                      : MakeSentencesTask();
};

INSTANTIATE_TEST_SUITE_P(Tasks, SentenceTaskTest, ::testing::Values("rt", "sst5", "sentences"),
                         [](const auto& test) { return test.param; });

const std::vector<std::string>& Norms(const Task& task) {
  return std::ranges::find(task.settings, "norm", &SettingSpec::name)->choices;
}

TEST_P(SentenceTaskTest, MeasuresEveryMetricItDeclares) {
  const auto data = task->Load(Smoke(), {});
  EXPECT_EQ(data->about.name, "synthetic opinions");
  at::manual_seed(1);
  const auto experiment = task->Make(Smoke({{"norm", "layer"}}), *data);
  experiment->model().eval();
  at::NoGradGuard no_grad;
  std::vector<std::string> names = {kTrainLoss};
  Values all = experiment->Evaluate();
  all.merge(experiment->Test());
  for (const auto& [name, value] : all) {
    names.push_back(name);
    // An untrained model guesses.
    if (name.ends_with("_loss")) {
      EXPECT_NEAR(value, std::log(classes()), 0.7);
    } else {
      EXPECT_NEAR(value, 1.0 / static_cast<double>(classes()), 0.2) << name;
    }
  }
  std::vector<std::string> expected = {kTrainLoss, "train_accuracy", "valid_loss", "valid_accuracy",
                                       "test_accuracy"};
  if (task->name == "sentences") expected.push_back("test_loss");
  EXPECT_THAT(names, UnorderedElementsAreArray(expected));
}

// Evaluation batches sentences of similar lengths; results must equal those of each sentence
// separately.
TEST_P(SentenceTaskTest, MetricsMatchSeparateSentences) {
  const auto data = task->Load(Smoke({{"train_cases", "50"}}), {});
  at::manual_seed(1);
  const auto experiment = task->Make(Smoke(), *data);
  auto& model = dynamic_cast<SentenceClassifier&>(experiment->model());
  model.eval();
  at::NoGradGuard no_grad;
  int64_t right = 0;
  for (int64_t i = 0; i < 50; ++i) {
    const Tensors batch = experiment->Batch(at::arange(i, i + 1));
    const at::Tensor logits = model.forward(batch[0], batch[1]);
    right += logits.argmax(1).equal(batch[2]);
    EXPECT_EQ(experiment->Loss(batch).item<double>(),
              at::cross_entropy_loss(logits, batch[2]).item<double>());
  }
  EXPECT_DOUBLE_EQ(experiment->Evaluate().at("train_accuracy"), static_cast<double>(right) / 50);
}

TEST_P(SentenceTaskTest, GathersSentencesUpToTheLongest) {
  const auto data = task->Load(Smoke(), {});
  const auto experiment = task->Make(Smoke(), *data);
  at::Generator generator = at::detail::createCPUGenerator(1);
  const EpochPlan plan = experiment->PlanEpoch(generator);
  EXPECT_EQ(plan.order.size(0), 600);  // every sentence once
  for (int64_t b = 0; b < plan.batches(); ++b) {
    const Tensors batch = experiment->Batch(plan.batch(b));
    const at::Tensor &words = batch[0], lengths = batch[1];
    EXPECT_LE(words.numel(), 512);
    EXPECT_EQ(words.size(1), lengths.max().item<int64_t>());
    EXPECT_EQ(batch[2].sizes(), lengths.sizes());
    EXPECT_GE(batch[2].min().item<int64_t>(), 0);
    EXPECT_LT(batch[2].max().item<int64_t>(), classes());
    // Only 0 after a sentence's end.
    const at::Tensor after = at::arange(words.size(1)) >= lengths.unsqueeze(1);
    EXPECT_EQ(words.masked_select(after).abs().sum().item<int64_t>(), 0);
  }
}

TEST_P(SentenceTaskTest, GivesEveryNormTheSameStartBatchesAndDropout) {
  const auto data = task->Load(Smoke(), {});
  std::map<std::string, at::Tensor> first;
  for (const std::string& norm : Norms(*task)) {
    at::manual_seed(5);
    const auto experiment = task->Make(Smoke({{"norm", norm}}), *data);
    std::map<std::string, at::Tensor> now;
    for (const auto& item : experiment->model().named_parameters()) {
      if (item.key().find("norm") == std::string::npos) now[item.key()] = item.value();
    }
    at::Generator generator = at::detail::createCPUGenerator(1);
    const EpochPlan plan = experiment->PlanEpoch(generator);
    now["order"] = plan.order;
    experiment->Loss(experiment->Batch(plan.batch(0)));
    now["generator"] = at::detail::getDefaultCPUGenerator().get_state();
    if (first.empty()) first = now;
    ASSERT_EQ(now.size(), first.size());
    for (const auto& [name, tensor] : now) EXPECT_TRUE(tensor.equal(first[name])) << norm << name;
  }
}

// 2,000 sentences whose class follows from a few words each: 8 epochs of about 15 updates.
TEST_P(SentenceTaskTest, LearnsWithEveryNorm) {
  for (const std::string& norm : NormsToTrain(Norms(*task))) {
    const Settings settings = Smoke({{"norm", norm},
                                     {"lr", "3e-3"},
                                     {"dropout", "0.1"},
                                     {"train_cases", "2000"},
                                     {"batch_size", "1024"}});
    const auto data = task->Load(settings, {});
    at::manual_seed(1);
    const auto experiment = task->Make(settings, *data);
    TrainEpochs(*task, *experiment, settings, 8);
    at::NoGradGuard no_grad;
    // The most frequent class has 0.53 of 2 classes, and 0.3 of 5.
    EXPECT_GT(experiment->Test().at("test_accuracy"), classes() == 2 ? 0.8 : 0.5) << norm;
  }
}

TEST_P(SentenceTaskTest, ResumesToTheBit) {
  ExpectExactResume(*task);
  ExpectExactResume(*task, {{"norm", "layer"}, {"placement", "sandwich"}, {"qk_norm", "true"}});
}

TEST_P(SentenceTaskTest, LearnsAtEveryPlacement) {
  for (const std::string& placement : PlacementNames("pre")) {
    for (const std::string qk_norm : {"false", "true"}) {
      const Settings settings =
          Smoke({{"norm", "layer"}, {"placement", placement}, {"qk_norm", qk_norm}});
      const auto data = task->Load(settings, {});
      at::manual_seed(1);
      const auto experiment = task->Make(settings, *data);
      EXPECT_LT(LossRatio(*task, *experiment, settings, 64, 20), 0.98) << placement << qk_norm;
    }
  }
}

TEST_P(SentenceTaskTest, RefusesUnknownPlacementsAndNorms) {
  EXPECT_THROW(Smoke({{"placement", "mid"}}), UsageError);
  EXPECT_THROW(Smoke({{"placement", "pre-no-final"}}), UsageError);
  EXPECT_THROW(Smoke({{"qk_norm", "layer"}}), UsageError);
  EXPECT_THROW(Smoke({{"norm", "weight"}}), UsageError);
}

// The printed model, on synthetic sentences.
TEST_P(SentenceTaskTest, TrainsThePaperPreset) {
  const Settings paper = PresetSettings(*task, "paper", {{"batch_size", "256"}});
  const auto data = task->Load(paper, {});
  at::manual_seed(1);
  const auto experiment = task->Make(paper, *data);
  const auto optimizer = task->MakeOptimizer(ParametersOf(experiment->model()), paper);
  at::Generator order = at::detail::createCPUGenerator(1);
  const EpochPlan plan = experiment->PlanEpoch(order);
  for (int64_t b = 0; b < 2; ++b) {
    const at::Tensor batch = plan.batch(b);
    EXPECT_TRUE(std::isfinite(UpdateWeights(*experiment, *optimizer, {&batch, 1}).loss));
  }
}

TEST_P(SentenceTaskTest, RefusesBatchesThatASentenceDoesNotFit) {
  const auto data = task->Load(Smoke(), {});
  EXPECT_THROW(task->Check(Smoke({{"batch_size", "5"}}), *data), UsageError);
  EXPECT_NO_THROW(task->Check(Smoke(), *data));
  // Tokens, not sentences.
  EXPECT_NO_THROW(task->Check(Smoke({{"batch_size", "100000"}}), *data));
}

TEST_P(SentenceTaskTest, NamesMissingFiles) {
  const TestFolder folder;
  try {
    task->Load(Smoke(), folder.path());
    FAIL() << "no error";
  } catch (const DataError& e) {
    EXPECT_THAT(e.what(), HasSubstr(" has no file "));
  }
}

}  // namespace
}  // namespace planish::lab
