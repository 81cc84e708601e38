#include "lab/tasks/enwik8/enwik8.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "lab/data/text.h"
#include "lab/engine/capabilities.h"
#include "lab/error.h"
#include "lab/model/norms.h"
#include "lab/model/parameter_count.h"
#include "lab/model/transformer_xl.h"
#include "lab/tasks/task_testing.h"
#include "lab/testing/long_tests.h"
#include "lab/testing/test_folder.h"

namespace planish::lab {
namespace {

using ::testing::HasSubstr;

const std::vector<std::string> kNorms = RowNormNames("layer");

class Enwik8Test : public TaskTest<MakeEnwik8> {
 protected:
  std::unique_ptr<Dataset> Synthetic(const Sets& sets = {}) { return task->Load(Smoke(sets), {}); }

  // Returns the data of a text via a file.
  std::unique_ptr<Dataset> Load(const std::string& text) {
    WriteFile(folder / "some.txt", text);
    return task->Load(Smoke(), folder / "some.txt");
  }

  TestFolder folder;
};

// Returns the symbols [N] of smoke's synthetic text.
at::Tensor SyntheticSymbols() {
  const std::string text = MakeText(10'000).characters;
  std::vector<int64_t> symbols;
  for (const int32_t symbol : Vocabulary(text).Encode(text)) symbols.push_back(symbol);
  return at::tensor(symbols, at::kLong);
}

TEST_F(Enwik8Test, ReportsErrors) {
  std::string text;
  while (text.size() < 1'000) text += "abcd";
  const auto error = [&](const std::string& content) -> std::string {
    try {
      Load(content);
    } catch (const DataError& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_THAT(error(""), HasSubstr("some.txt: it is empty"));
  EXPECT_THAT(error(text.substr(0, 99)),
              HasSubstr("some.txt has 99 bytes; enwik8 needs at least 100"));
  EXPECT_THAT(error(std::string(200, 'a')), HasSubstr("two different bytes"));
  const auto data = Load(text);  // 900 for training
  const auto refusal = [&](const Sets& sets) -> std::string {
    try {
      Make(*data, sets);
    } catch (const UsageError& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(refusal({{"target", "100"}}), "no error");
  EXPECT_THAT(refusal({{"target", "101"}}),
              HasSubstr("(batch_size + 1) * target = 909 characters, got 900"));
  EXPECT_THAT(refusal({{"test_bytes", "3"}}),
              HasSubstr("test_bytes must be at least eval_streams"));
  EXPECT_EQ(refusal({{"memory", "0"}, {"eval_memory", "0"}, {"test_memory", "0"}}), "no error");
}

TEST_F(Enwik8Test, HasEveryNormOfRows) {
  for (const SettingSpec& spec : task->settings) {
    if (spec.name != "norm") continue;
    EXPECT_EQ(spec.choices, RowNormNames("layer"));
  }
}

TEST_F(Enwik8Test, GivesEveryNormTheSameStartAndTheSameBatches) {
  const auto data = Synthetic();
  std::map<std::string, at::Tensor> first;
  for (const std::string& norm : kNorms) {
    const auto experiment = Make(*data, {{"norm", norm}});
    at::Generator generator = Generator(1);
    std::map<std::string, at::Tensor> now = {{"order", experiment->PlanEpoch(generator).order}};
    for (const auto& item : experiment->model().named_parameters()) {
      if (item.key().find("norm") == std::string::npos) now[item.key()] = item.value();
    }
    // Two layers of six matrices, two of which have a bias; the embedding and three biases.
    ASSERT_EQ(now.size(), 1u + 2 * 8 + 4);
    if (first.empty()) first = now;
    for (const auto& [name, tensor] : now) EXPECT_TRUE(tensor.equal(first[name])) << norm << name;
  }
}

// Each loss equals that of the model over one whole segment, where every position sees what memory
// and batch have of it. The first loss of the next pass is again without memory.
TEST_F(Enwik8Test, CarriesItsMemory) {
  const auto data = Synthetic();
  const at::Tensor text = SyntheticSymbols();
  const auto experiment =
      Make(*data, {{"dropout", "0"}, {"target", "8"}, {"memory", "24"}, {"init", "0.3"}});
  auto& model = dynamic_cast<TransformerXl&>(experiment->model());
  at::Generator generator = Generator(7);
  for (int pass = 0; pass < 2; ++pass) {
    const EpochPlan plan = experiment->PlanEpoch(generator);
    const at::Tensor starts = plan.batch(0).slice(0, 0, 8);
    for (int64_t batch = 0; batch < 4; ++batch) {  // a memory of 24 holds three of them
      at::manual_seed(1);
      const double loss = experiment->Loss(experiment->Batch(plan.batch(batch))).item<double>();
      std::vector<at::Tensor> x, next;
      for (int64_t s = 0; s < 8; ++s) {
        const int64_t begin = starts[s].item<int64_t>(), end = begin + 8 * (batch + 1);
        x.push_back(text.slice(0, begin, end));
        next.push_back(text.slice(0, end - 7, end + 1));
      }
      const at::NoGradGuard no_grad;
      SegmentMemory none;
      const at::Tensor logits =
          model.forward(at::stack(x), none, {}).view({8, 8 * (batch + 1), -1});
      const double expected = at::cross_entropy_loss(logits.slice(1, 8 * batch).flatten(0, 1),
                                                     at::stack(next).flatten())
                                  .item<double>();
      // Floats of size 1 to 10 through two layers: some hundred roundings.
      EXPECT_NEAR(loss, expected, 5e-5) << pass << " " << batch;
    }
  }
}

// All weights are 0 except the output's bias, so every byte has a fixed probability, and bits are
// counted by hand.
TEST_F(Enwik8Test, MeasuresBitsPerByte) {
  std::string text;
  while (text.size() < 2'000) text += "aabaabc";
  text.resize(2'000);
  const auto data = Load(text);
  const auto experiment = Make(*data, {{"eval_bytes", "99"}, {"test_bytes", "50"}});
  at::NoGradGuard no_grad;
  experiment->model().eval();
  for (at::Tensor& weight : experiment->model().parameters()) weight.zero_();
  const std::vector<double> chances = {0.5, 0.375, 0.125};
  for (const auto& item : experiment->model().named_parameters()) {
    if (item.key() != "output_bias") continue;
    for (int64_t i = 0; i < 3; ++i) item.value()[i] = std::log(chances[static_cast<size_t>(i)]);
  }
  const auto bits = [&](size_t begin, size_t count) {
    double sum = 0;
    for (size_t i = 1; i <= count; ++i) {
      sum -= std::log2(chances[static_cast<size_t>(text[begin + i] - 'a')]);
    }
    return sum / static_cast<double>(count);
  };
  const Values values = experiment->Evaluate(), test = experiment->Test();
  EXPECT_THAT(values, ::testing::SizeIs(2));
  EXPECT_THAT(test, ::testing::SizeIs(1));
  // Four pieces of 24, and of 12; sums of floats of size 1.
  EXPECT_NEAR(values.at("train_bits"), bits(0, 96), 1e-6);
  EXPECT_NEAR(values.at("valid_bits"), bits(1'800, 96), 1e-6);
  EXPECT_NEAR(test.at("test_bits"), bits(1'900, 48), 1e-6);
}

// Compares pieces of 124 bytes in segments of 32 and 16 with pieces in one segment. The memory has
// everything before; window and clamped distances are those of the test.
TEST_F(Enwik8Test, TestsWithALongerMemory) {
  const auto data = Synthetic();
  const auto experiment = Make(
      *data, {{"init", "0.3"}, {"eval_memory", "124"}, {"test_memory", "40"}, {"test_clamp", "5"}});
  auto& model = dynamic_cast<TransformerXl&>(experiment->model());
  at::NoGradGuard no_grad;
  model.eval();
  const at::Tensor text = SyntheticSymbols();
  const auto bits = [&](int64_t begin, const Reach& reach) {
    SegmentMemory none;
    const at::Tensor x = text.slice(0, begin, begin + 496).view({4, 124});
    const at::Tensor next = text.slice(0, begin + 1, begin + 497);
    return at::cross_entropy_loss(model.forward(x, none, reach), next).item<double>() /
           std::log(2.0);
  };
  // Floats of size 1 to 10, in other groups: some hundred roundings.
  EXPECT_NEAR(experiment->Evaluate().at("valid_bits"), bits(9'000, {}), 5e-5);
  const double test = experiment->Test().at("test_bits");
  EXPECT_NEAR(test, bits(9'500, {.window = 40, .clamp = 5}), 5e-5);
  for (const Reach& other : {Reach{.window = 40}, Reach{.window = 20, .clamp = 5}}) {
    EXPECT_GT(std::abs(test - bits(9'500, other)), 1e-4);
  }
}

TEST_F(Enwik8Test, LearnsWithEveryNorm) {
  std::string text;
  while (text.size() < 3'000) text += "aabaabc";
  const auto data = Load(text);
  for (const std::string& norm : NormsToTrain(kNorms)) {
    const Settings settings = Smoke({{"lr", "0.01"}, {"norm", norm}});
    const auto experiment = Make(*data, {{"norm", norm}, {"dropout", "0"}, {"init", "0.15"}});
    TrainEpochs(*task, *experiment, settings, 20);
    at::NoGradGuard no_grad;
    // The letters' frequencies alone need 1.38 bits.
    EXPECT_LT(experiment->Evaluate().at("valid_bits"), 1.3) << norm;
  }
}

TEST_F(Enwik8Test, ResumesWithTheSameBits) {
  for (const Sets& sets :
       {Sets{{"norm", "layer"}, {"memory", "48"}}, Sets{{"norm", "ada"}, {"norm_position", "pre"}},
        Sets{{"norm", "rms"}, {"placement", "peri"}, {"qk_norm", "true"}},
        Sets{{"norm", "layer"}, {"placement", "deepnorm"}},
        Sets{{"norm", "none"}, {"attention_dropout", "0.1"}}}) {
    ExpectExactResume(*task, sets, {1, 34, 2});
  }
}

TEST_F(Enwik8Test, WritesTheSameTextForTheSameSeed) {
  const auto data = Synthetic();
  const auto experiment = Make(*data);
  experiment->model().eval();
  at::NoGradGuard no_grad;
  auto& sampler = dynamic_cast<TextSampler&>(*experiment);
  const auto sample = [&](uint64_t seed, const std::string& prompt) {
    at::Generator generator = Generator(seed);
    return sampler.Sample(prompt, 50, 1, generator);
  };
  // Longer than an evaluation segment, 32.
  const std::string prompt = "Scene 1: the bridge.\nEnter Carl and Anna with the red coat.\n";
  EXPECT_EQ(sample(1, prompt).size(), 50u);
  EXPECT_EQ(sample(1, prompt), sample(1, prompt));
  EXPECT_NE(sample(1, prompt), sample(2, prompt));
  EXPECT_EQ(sample(1, ""), sample(1, "\n"));
  EXPECT_THROW(sample(1, "\x01"), UsageError);
  at::Generator generator = Generator(1);
  const auto samples = experiment->Samples(generator);
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(samples[0].title, "60 bytes at temperature 0.8");
  EXPECT_EQ(samples[0].text.size(), 60u);
}

// Each of 12 layers has 4 attention matrices of 512 x 512, one of positions, two of 512 x 2048 with
// biases, and two norms. The model has the embedding and the biases of output, content and
// position. With the 204 bytes of enwik8 it has 41.06 million parameters; Dai et al. 2019, Table 2,
// print 41M.
TEST_F(Enwik8Test, PaperIsTransformerXlBase) {
  const Sets fewer = {{"target", "16"}, {"memory", "16"}, {"batch_size", "2"}, {"bytes", "10000"}};
  const Settings settings = Chosen("paper", fewer);
  const auto data = task->Load(settings, {});
  at::manual_seed(1);
  const auto experiment = task->Make(settings, *data);
  const int64_t count = ParameterCount(experiment->model());
  const auto formula = [](int64_t symbols) {
    constexpr int64_t kWidth = 512, kInner = 2048;
    const int64_t layer = 5 * kWidth * kWidth + 2 * kWidth * kInner + kInner + kWidth + 4 * kWidth;
    return 12 * layer + symbols * (kWidth + 1) + 2 * kWidth;
  };
  EXPECT_EQ(count, formula(Vocabulary(MakeText(10'000).characters).size()));
  EXPECT_EQ(formula(204), 41'055'436);
  const auto optimizer = task->MakeOptimizer(ParametersOf(experiment->model()), settings);
  at::Generator order = Generator(1);
  const EpochPlan plan = experiment->PlanEpoch(order);
  for (int64_t b = 0; b < 2; ++b) {
    EXPECT_TRUE(std::isfinite(UpdateWeights(*experiment, *optimizer, {{plan.batch(b)}}).loss));
  }
}

}  // namespace
}  // namespace planish::lab
