#include "lab/tasks/attentive-reader/attentive_reader.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "lab/data/source.h"
#include "lab/error.h"
#include "lab/model/parameter_count.h"
#include "lab/tasks/attentive-reader/attention_picture.h"
#include "lab/tasks/attentive-reader/cloze.h"
#include "lab/tasks/attentive-reader/corpus.h"
#include "lab/tasks/task_testing.h"
#include "lab/testing/test_folder.h"

namespace planish::lab {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

const std::vector<std::string> kNorms = {"none", "layer", "batch", "batch-everywhere"};

class AttentiveReaderTest : public TaskTest<MakeAttentiveReader> {
 protected:
  std::unique_ptr<Dataset> Synthetic(const Sets& sets = {}) { return task->Load(Smoke(sets), {}); }

  // Returns the losses of the first `count` updates.
  std::vector<double> Losses(const Dataset& data, const Sets& sets, int count,
                             at::ScalarType type = at::kFloat) {
    const auto experiment = Make(data, sets);
    experiment->model().to(type);
    const Settings settings = Smoke(sets);
    return LossesOf(*task, *experiment, settings, count, task->MakeClipping(settings));
  }

  TestFolder folder;
};

TEST_F(AttentiveReaderTest, BatchesHaveDistinctQuestionsOfSimilarLength) {
  const auto data = Synthetic();
  const auto& corpus = dynamic_cast<const ReaderCorpus&>(*data);
  const auto experiment = Make(*data);
  at::Generator generator = Generator(1);
  const EpochPlan plan = experiment->PlanEpoch(generator);
  ASSERT_EQ(plan.batches(), 18);  // of 300 questions, 16 each
  std::set<int64_t> seen;
  int64_t padding = 0;
  for (int64_t b = 0; b < plan.batches(); ++b) {
    const at::Tensor numbers = plan.batch(b) % 300;
    for (int64_t i = 0; i < 16; ++i) seen.insert(numbers[i].item<int64_t>());
    const at::Tensor lengths = corpus.train.passage_lengths.index_select(0, numbers);
    padding += (lengths.max() - lengths).sum().item<int64_t>();
  }
  EXPECT_EQ(seen.size(), 18u * 16);
  // Passages have about 25 to 45 words: random batches would have about ten times 288.
  EXPECT_LT(padding, 288 * 2);
}

TEST_F(AttentiveReaderTest, PermutesEntitiesInEveryBatch) {
  const auto data = Synthetic();
  const auto& corpus = dynamic_cast<const ReaderCorpus&>(*data);
  const auto experiment = Make(*data);
  at::Generator generator = Generator(1);
  const EpochPlan plan = experiment->PlanEpoch(generator);
  std::set<std::vector<int64_t>> permutations;
  for (int64_t b = 0; b < plan.batches(); ++b) {
    const Tensors batch = experiment->Batch(plan.batch(b));
    const at::Tensor numbers = plan.batch(b) % 300;
    std::vector<int64_t> permutation(8, -1);
    const auto compare = [&](const at::Tensor& rows, const at::Tensor& words) {
      const at::Tensor before = rows.index_select(0, numbers).t().slice(0, 0, words.size(0));
      for (int64_t t = 0; t < words.size(0); ++t) {
        for (int64_t i = 0; i < 16; ++i) {
          const auto from = before[t][i].item<int64_t>(), to = words[t][i].item<int64_t>();
          if (from >= 8) {
            EXPECT_EQ(from, to);
          } else {
            int64_t& expected = permutation[static_cast<size_t>(from)];
            if (expected < 0) expected = to;
            EXPECT_EQ(to, expected);
          }
        }
      }
    };
    compare(corpus.train.passages, batch[0]);
    compare(corpus.train.questions, batch[2]);
    compare(corpus.train.answers.unsqueeze(1), batch[4].unsqueeze(0));
    EXPECT_TRUE(batch[1].equal(corpus.train.passage_lengths.index_select(0, numbers)));
    EXPECT_TRUE(batch[3].equal(corpus.train.question_lengths.index_select(0, numbers)));
    EXPECT_EQ(std::set<int64_t>(permutation.begin(), permutation.end()).size(), 8u);
    EXPECT_GE(*std::ranges::min_element(permutation), 0);
    EXPECT_LT(*std::ranges::max_element(permutation), 8);
    permutations.insert(permutation);
  }
  EXPECT_EQ(permutations.size(), 18u);
}

TEST_F(AttentiveReaderTest, GivesEveryNormTheSameBatches) {
  const auto data = Synthetic();
  std::vector<at::Tensor> first;
  for (const std::string& norm : kNorms) {
    const auto experiment = Make(*data, {{"norm", norm}, {"estimate_batches", "1"}});
    at::NoGradGuard no_grad;
    experiment->model().eval();
    experiment->Evaluate();  // must not affect the training after it
    std::vector<at::Tensor> now;
    for (const uint64_t epoch : {1, 2}) {
      at::Generator generator = Generator(epoch);
      const EpochPlan plan = experiment->PlanEpoch(generator);
      experiment->Evaluate();
      for (const int64_t b : {0, 1, 17}) {
        for (const at::Tensor& tensor : experiment->Batch(plan.batch(b))) now.push_back(tensor);
      }
    }
    now.push_back(at::rand({4}));  // the next draw of dropout
    if (first.empty()) first = now;
    ASSERT_EQ(first.size(), now.size());
    for (size_t i = 0; i < now.size(); ++i) EXPECT_TRUE(now[i].equal(first[i])) << norm << i;
  }
}

// All weights are 0 except the biases of the logits, so errors are counted by hand.
TEST_F(AttentiveReaderTest, MeasuresErrorsAndLosses) {
  const Sets sets = {{"permute", "training"}};
  const auto data = Synthetic(sets);
  const auto& corpus = dynamic_cast<const ReaderCorpus&>(*data);
  const auto experiment = Make(*data, sets);
  at::NoGradGuard no_grad;
  experiment->model().eval();
  for (const auto& item : experiment->model().named_parameters()) {
    item.value().zero_();
    if (item.key() == "logits_bias") item.value().copy_(at::arange(8) * 0.1);
  }
  const auto expect = [&](const NumberedQuestions& set, int64_t count, double loss, double error,
                          double passage_error) {
    double log_sum = 0, expected_loss = 0, wrong = 0, passage_wrong = 0;
    for (int i = 0; i < 8; ++i) log_sum += std::exp(0.1 * i);
    for (int64_t i = 0; i < count; ++i) {
      const auto answer = set.answers[i].item<int64_t>();
      int64_t largest = -1;
      for (int64_t t = 0; t < set.passage_lengths[i].item<int64_t>(); ++t) {
        const auto word = set.passages[i][t].item<int64_t>();
        if (word < 8) largest = std::max(largest, word);
      }
      expected_loss += std::log(log_sum) - 0.1 * static_cast<double>(answer);
      wrong += answer != 7;
      passage_wrong += answer != largest;
    }
    const auto n = static_cast<double>(count);
    EXPECT_NEAR(loss, expected_loss / n, 1e-6);  // sums of sixty floats of size 1
    EXPECT_DOUBLE_EQ(error, wrong / n);
    EXPECT_DOUBLE_EQ(passage_error, passage_wrong / n);
    EXPECT_GT(passage_wrong, 0);
    EXPECT_GT(wrong, passage_wrong);
  };
  const Values v = experiment->Evaluate(), t = experiment->Test();
  expect(corpus.valid, 60, v.at("valid_loss"), v.at("valid_error"), v.at("valid_passage_error"));
  expect(corpus.test, 60, t.at("test_loss"), t.at("test_error"), t.at("test_passage_error"));
  // Permuted, the same biases belong to other entities, but always the same ones.
  const Sets always = {{"permute", "always"}};
  const auto permuting = Make(*data, always);
  permuting->model().eval();
  for (const auto& item : permuting->model().named_parameters()) {
    item.value().zero_();
    if (item.key() == "logits_bias") item.value().copy_(at::arange(8) * 0.1);
  }
  EXPECT_NE(permuting->Evaluate().at("valid_loss"), v.at("valid_loss"));
  EXPECT_EQ(permuting->Evaluate(), permuting->Evaluate());
}

TEST_F(AttentiveReaderTest, MeasuresEveryMetricItDeclares) {
  const auto data = Synthetic();
  for (const std::string& norm : kNorms) {
    const auto experiment = Make(*data, {{"norm", norm}});
    at::NoGradGuard no_grad;
    experiment->model().eval();
    std::vector<std::string> names;
    for (const Values& values : {experiment->Evaluate(), experiment->Test()}) {
      for (const auto& [name, value] : values) {
        names.push_back(name);
        EXPECT_TRUE(std::isfinite(value)) << name;
      }
    }
    EXPECT_THAT(names, UnorderedElementsAre("train_error", "valid_loss", "valid_error",
                                            "valid_passage_error", "test_loss", "test_error",
                                            "test_passage_error"));
  }
}

// Even chances of eight entities are 2.08 nats; those of the three or four in a passage, 1.25.
TEST_F(AttentiveReaderTest, LearnsWithEveryNorm) {
  const auto data = Synthetic();
  for (const std::string& norm : kNorms) {
    const std::vector<double> losses =
        Losses(*data, {{"norm", norm}, {"dropout", "0"}, {"hidden", "24"}}, 200);
    double last = 0;
    for (size_t i = 150; i < 200; ++i) last += losses[i] / 50;
    EXPECT_NEAR(losses[0], std::log(8.0), 0.5) << norm;
    EXPECT_LT(last, 1.9) << norm;
  }
}

TEST_F(AttentiveReaderTest, TrainsWithComposedCellsAsWithFusedOnes) {
  const auto data = Synthetic();
  for (const std::string& norm : kNorms) {
    // In double, because LN of the first states, which are 0, enlarges a difference 300 times:
    // after ten updates in float nothing would be comparable.
    const Sets sets = {{"norm", norm}};
    const Sets composed_sets = {{"norm", norm}, {"cell", "composed"}};
    const std::vector<double> fused = Losses(*data, sets, 20, at::kDouble);
    const std::vector<double> composed = Losses(*data, composed_sets, 20, at::kDouble);
    // Values of size 2: one rounding is 2e-16, which an update with LN enlarges about threefold,
    // 3^20 = 3e9. An error in an equation changes the first digits.
    for (size_t i = 0; i < 20; ++i) EXPECT_NEAR(fused[i], composed[i], 1e-5) << norm << i;
  }
}

TEST_F(AttentiveReaderTest, UsesThePapersGain) {
  const auto data = Synthetic();
  const auto gain = [&](const std::string& norm, const std::string& setting) {
    const auto experiment = Make(*data, {{"norm", norm}, {"gain", setting}});
    for (const auto& item : experiment->model().named_parameters()) {
      if (item.key().ends_with("ln_hh_weight_l0")) return item.value()[0].item<float>();
    }
    return -1.0F;
  };
  EXPECT_EQ(gain("layer", "paper"), 1.0F);
  EXPECT_EQ(gain("batch", "paper"), 0.1F);
  EXPECT_EQ(gain("layer", "0.1"), 0.1F);
  EXPECT_EQ(gain("batch-everywhere", "1"), 1.0F);
}

TEST_F(AttentiveReaderTest, RepeatsTheErrorsOfTheReleasedCodeOnRequest) {
  const auto data = Synthetic();
  const auto gates_are_equal = [&](const Sets& sets) {
    const auto experiment = Make(*data, sets);
    const at::Tensor w = experiment->model().named_parameters()["passage_lstm.layer.weight_hh_l0"];
    return w.slice(0, 0, 16).equal(w.slice(0, 16, 32));
  };
  EXPECT_FALSE(gates_are_equal({}));
  EXPECT_TRUE(gates_are_equal({{"compat", "theano"}}));
  // Clipping to norm 0.1 then gives 0.1 sqrt(n), and scales Adam's moments accordingly.
  const auto norm_after = [&](const Sets& sets) {
    const auto experiment = Make(*data, sets);
    const Settings settings = Smoke(sets);
    const auto optimizer = task->MakeOptimizer(ParametersOf(experiment->model()), settings);
    at::Generator order = Generator(1);
    const EpochPlan plan = experiment->PlanEpoch(order);
    at::manual_seed(6);  // dropout
    UpdateWeights(*experiment, *optimizer, {{plan.batch(0)}}, task->MakeClipping(settings));
    double square = 0;
    for (const auto& [name, t] : optimizer->State()) {
      if (name.starts_with("adam.first_moment.")) square += (t / 0.1).square().sum().item<double>();
    }
    return std::sqrt(square);
  };
  const double free = norm_after({{"compat", "theano"}, {"clip", "0"}});
  ASSERT_GT(free, 0.1);
  // Sums of thousands of squares in float.
  EXPECT_NEAR(norm_after({{"compat", "theano"}, {"clip", "0.1"}}), 0.1 * std::sqrt(free), 1e-5);
  EXPECT_NEAR(norm_after({{"clip", "0.1"}}), 0.1, 1e-5);
}

TEST_F(AttentiveReaderTest, ResumesWithTheSameBits) {
  for (const std::string norm : {"layer", "batch-everywhere"}) {
    ExpectExactResume(*task, {{"norm", norm}}, {1, 17, 2});
  }
  // Gradients above 0.01 are clipped, which includes all.
  ExpectExactResume(*task, {{"norm", "layer"}, {"compat", "theano"}, {"clip", "0.1"}}, {1, 17, 2});
}

TEST_F(AttentiveReaderTest, ShowsItsAttention) {
  const auto data = Synthetic();
  const auto& corpus = dynamic_cast<const ReaderCorpus&>(*data);
  const auto experiment = Make(*data);
  at::NoGradGuard no_grad;
  experiment->model().eval();
  at::Generator generator = Generator(1);
  const std::vector<RunResult::Sample> samples = experiment->Samples(generator);
  ASSERT_EQ(samples.size(), 3u);
  EXPECT_THAT(samples[0].title, StartsWith("attention over a passage; the answer, @entity"));
  EXPECT_THAT(samples[0].text, StartsWith("question: "));
  EXPECT_THAT(samples[0].text, HasSubstr("@placeholder"));
  EXPECT_THAT(samples[0].text,
              HasSubstr("answer: @entity" + std::to_string(corpus.shown[0].answer)));
  EXPECT_TRUE(samples[0].svg.starts_with(kSvgBegin));
  EXPECT_TRUE(samples[0].svg.ends_with("</svg>"));
}

TEST(AttentionPicture, DarkensWordsByTheirShare) {
  const std::string svg = AttentionPicture({"a&b", "caf\xc3\xa9", "c"}, {0.2, 0.4, 0});
  EXPECT_THAT(
      svg, HasSubstr("fill-opacity=\"0.500\"/><text x=\"10\" y=\"26\" textLength=\"27\">a&amp;b<"));
  EXPECT_THAT(svg,
              HasSubstr("fill-opacity=\"1.000\"/><text x=\"46\" y=\"26\" textLength=\"36\">caf"));
  EXPECT_THAT(svg, HasSubstr("fill-opacity=\"0.000\""));
  const std::string long_line =
      AttentionPicture(std::vector<std::string>(100, "word"), std::vector<double>(100, 0.01));
  EXPECT_THAT(long_line, HasSubstr("viewBox=\"0 0 720 202\""));  // seven lines of 15 words
  EXPECT_EQ(AttentionText({"a", "b", "c"}, {0.049, 0.051, 0.9}), "a b [5%] c [90%]");
  EXPECT_TRUE(AttentionPicture({}, {}).ends_with("</svg>"));
}

TEST_F(AttentiveReaderTest, ReadsQuestionsElseBooks) {
  const auto load = [&](const Sets& sets = {}) { return task->Load(Smoke(sets), folder.path()); };
  EXPECT_THROW(load(), DataError);
  const auto write_book = [&](const std::string& name, const std::string& a, const std::string& b) {
    std::string text;
    for (int i = 0; i < 40; ++i) {
      text +=
          "Then " + (i % 2 == 0 ? a : b) + " said to " + (i % 2 == 0 ? b : a) + " it was fine. ";
    }
    WriteFile(folder / name, text);
  };
  write_book("one.txt", "Anna", "Bertha");
  write_book("two.txt", "Carl", "Dora");
  write_book("three.txt", "Emil", "Frida");
  const auto books = load();
  EXPECT_EQ(books->about.name, "books");
  EXPECT_EQ(books->about.sizes.at("train"), 36);
  EXPECT_THAT(books->about.description, HasSubstr("; 8 entities, 8 words in the lexicon"));
  EXPECT_EQ(load({{"eval_cases", "7"}})->about.sizes.at("test"), 7);

  for (const std::string part : {"training", "validation", "test"}) {
    fs::create_directories(folder.path() / "cnn/questions" / part);
    for (const std::string file : {"a.question", "b.question"}) {
      WriteFile(folder.path() / "cnn/questions" / part / file,
                "url\n\na @entity2 b . c @entity5 d c .\n\n@placeholder " + part +
                    " b\n\n@entity5\n\n@entity5:X\n@entity2:Y\n");
    }
  }
  const auto files = load();
  EXPECT_EQ(files->about.name, "questions");
  const auto& corpus = dynamic_cast<const ReaderCorpus&>(*files);
  EXPECT_EQ(corpus.entities, 6);
  // Entities, the unknown word, the placeholder, and a b . c d training, in some order.
  EXPECT_EQ(corpus.symbols, 6 + 1 + 1 + 6);
  EXPECT_EQ(corpus.train.answers[0].item<int64_t>(), 5);
  // "validation" is not in training.
  EXPECT_EQ(corpus.valid.questions[0][1].item<int32_t>(), 6);
  EXPECT_NE(corpus.train.questions[0][1].item<int32_t>(), 6);
  EXPECT_EQ(corpus.valid.questions[0][2].item<int32_t>(),
            corpus.train.questions[0][2].item<int32_t>());
  const auto rare = load({{"min_count", "3"}});
  EXPECT_EQ(dynamic_cast<const ReaderCorpus&>(*rare).symbols, 6 + 1 + 1 + 3);  // b . c
}

TEST_F(AttentiveReaderTest, TrainsAtThePapersSizes) {
  const Sets sets = {{"train_cases", "128"}, {"eval_cases", "10"}};
  Settings settings = Chosen("paper", sets);
  const auto data = task->Load(settings, {});
  const auto& corpus = dynamic_cast<const ReaderCorpus&>(*data);
  for (const std::string& norm : kNorms) {
    settings.Set("norm", norm);
    at::manual_seed(5);
    const auto experiment = task->Make(settings, *data);
    const int64_t count = ParameterCount(experiment->model());
    // Words, entities, six square matrices of 240 and three vectors. Two LSTMs with 240 inputs, 240
    // units and initial states (torch::nn::LSTM has 462,720 parameters), gains and biases.
    const int64_t lstm = norm == "none" ? 462'720 : norm == "layer" ? 466'080 : 464'160;
    EXPECT_EQ(count, corpus.symbols * 240 + 6 * 57'600 + 720 + corpus.entities * 241 +
                         2 * (lstm + 480) + (norm == "batch-everywhere" ? 2'400 : 0))
        << norm;
    const auto optimizer = task->MakeOptimizer(ParametersOf(experiment->model()), settings);
    at::Generator order = Generator(1);
    const EpochPlan plan = experiment->PlanEpoch(order);
    ASSERT_EQ(plan.batches(), 2);
    for (int64_t b = 0; b < 2; ++b) {
      // Small initial embeddings: near the even chances of 30 entities.
      EXPECT_NEAR(UpdateWeights(*experiment, *optimizer, {{plan.batch(b)}}, ClipTogether(10)).loss,
                  std::log(30.0), 0.3)
          << norm;
    }
  }
}

TEST_F(AttentiveReaderTest, ReadsRealBooks) {
  const std::optional<fs::path> path = DataFolder("");
  if (!path || !fs::exists(*path / "books" / "dracula.txt.gz")) {
    GTEST_SKIP() << "PLANISH_DATA does not name a folder with books/*.txt.gz";
  }
  const Sets sets = {{"train_cases", "15001"}, {"eval_cases", "1000"}, {"min_count", "5"}};
  const auto data = task->Load(Smoke(sets), path);
  EXPECT_EQ(data->about.sizes.at("train"), 15001);
  EXPECT_EQ(data->about.sizes.at("valid"), 1000);
  EXPECT_EQ(data->about.sizes.at("test"), 1000);
  const auto& corpus = dynamic_cast<const ReaderCorpus&>(*data);
  EXPECT_EQ(corpus.entities, 8);
  // Words that occur five times in training are also most of the words of other books.
  const double unknown = corpus.valid.passages.eq(8).sum().item<double>();
  const double padding = static_cast<double>(corpus.valid.passages.numel()) -
                         corpus.valid.passage_lengths.sum().item<double>();
  EXPECT_LT(unknown - padding, 0.2 * corpus.valid.passage_lengths.sum().item<double>());
  for (const double loss : Losses(*data, sets, 2)) EXPECT_NEAR(loss, std::log(8.0), 0.3);
}

}  // namespace
}  // namespace planish::lab
