#include "lab/tasks/char-lm/char_lm.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "lab/data/source.h"
#include "lab/data/text.h"
#include "lab/engine/capabilities.h"
#include "lab/engine/streams.h"
#include "lab/engine/sweep.h"
#include "lab/engine/train.h"
#include "lab/error.h"
#include "lab/model/recurrent.h"
#include "lab/run/safetensors.h"
#include "lab/tasks/char-lm/model.h"
#include "lab/tasks/task_testing.h"
#include "lab/testing/test_folder.h"

namespace planish::lab {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class CharLmTest : public TaskTest<MakeCharLm> {
 protected:
  // Returns the data of a text via a file.
  std::unique_ptr<Dataset> Load(const std::string& text, const Sets& sets = {}) {
    WriteFile(folder / "some.txt", text);
    return task->Load(Smoke(sets), folder / "some.txt");
  }

  std::string ErrorOf(const std::string& text) {
    try {
      Load(text);
    } catch (const DataError& e) {
      return e.what();
    }
    return "no error";
  }

  RunPlan Plan(const std::string& out, const Sets& sets = {}) {
    SweepRequest request{.preset = "smoke", .values = {}, .seeds = {3}, .out = folder / out};
    for (const auto& [name, value] : sets) request.values.push_back({name, {value}});
    return PlanSweep(*task, request).front();
  }

  Outcome Run(const RunPlan& plan, const Dataset& data, const TrainOptions& options = {}) {
    Progress progress(1, ProgressMode::kQuiet);
    return Train(*task, data, plan, {{"threads", "1"}}, options, progress);
  }

  TestFolder folder;
};

// Returns a text of n characters from a, b and c: aab and aabc in alternation.
std::string Abc(size_t n) {
  std::string text;
  while (text.size() < n) text += "aabaabc";
  return text.substr(0, n);
}

TEST_F(CharLmTest, SplitsTheTextInOrder) {
  const auto data = Load(Abc(1'000));
  EXPECT_EQ(data->about.sizes,
            (std::map<std::string, int64_t>{{"train", 900}, {"valid", 50}, {"test", 50}}));
  EXPECT_EQ(data->about.name, "some.txt");
  EXPECT_THAT(data->about.description, HasSubstr("; 3 different characters"));
  EXPECT_EQ(Load(Abc(1'000), {{"characters", "500"}})->about.sizes.at("train"), 450);
}

TEST_F(CharLmTest, ReportsUnusableTexts) {
  EXPECT_THAT(ErrorOf(""), HasSubstr(": it is empty"));
  EXPECT_THAT(ErrorOf(Abc(339)), HasSubstr(" has 339 characters; char-lm needs at least 340"));
  EXPECT_THAT(ErrorOf(std::string(400, 'a')), HasSubstr("needs two different characters"));
  EXPECT_EQ(ErrorOf(Abc(340)), "no error");
  const auto data = Load(Abc(340));  // 306 for training
  EXPECT_THROW(Make(*data, {{"batch_size", "17"}, {"window", "18"}}), UsageError);
  EXPECT_NO_THROW(Make(*data, {{"batch_size", "16"}, {"window", "18"}}));
}

TEST_F(CharLmTest, GivesEveryCellTheSameStartAndTheSameBatches) {
  const auto data = task->Load(Smoke(), {});
  std::map<std::string, at::Tensor> first;
  for (const std::string& cell : CellNames()) {
    const auto experiment = Make(*data, {{"cell", cell}});
    at::Generator generator = Generator(1);
    std::map<std::string, at::Tensor> now = {{"order", experiment->PlanEpoch(generator).order}};
    for (const auto& item : experiment->model().named_parameters()) {
      if (!item.key().starts_with("recurrent")) now[item.key()] = item.value();
    }
    ASSERT_EQ(now.size(), 4u);  // with the embedding, and weight and bias of the output
    if (first.empty()) first = now;
    for (const auto& [name, tensor] : now) EXPECT_TRUE(tensor.equal(first[name])) << cell << name;
  }
}

// Reference loss of an LSTM over batches that carry its state, and over the first batch of the next
// pass, which starts from zeros.
TEST_F(CharLmTest, MatchesTheReferenceLoss) {
  const std::string text = Abc(340);
  const auto data = Load(text);
  const auto experiment = Make(*data, {{"batch_size", "4"}, {"window", "5"}});
  std::map<std::string, at::Tensor> p;
  for (const auto& item : experiment->model().named_parameters()) {
    const std::string& key = item.key();
    p[key.substr(key.rfind('.') == key.find('.') ? 0 : key.rfind('.') + 1)] =
        item.value().detach().to(at::kDouble);
  }
  at::Tensor bias = p.at("bias_ih_l0");
  if (p.contains("bias_hh_l0")) bias = bias + p.at("bias_hh_l0");
  const auto loss = [&](const at::Tensor& cases, at::Tensor& h, at::Tensor& c) {
    at::Tensor sum = at::zeros({}, at::kDouble);
    for (int64_t t = 0; t < 5; ++t) {
      std::vector<int64_t> x, next;
      for (int64_t s = 0; s < 4; ++s) {
        const auto i = static_cast<size_t>(cases[t * 4 + s].item<int64_t>());
        x.push_back(text[i] - 'a');
        next.push_back(text[i + 1] - 'a');
      }
      const at::Tensor embedded = p.at("embedding.weight").index_select(0, at::tensor(x));
      const std::vector<at::Tensor> gates =
          (at::linear(embedded, p.at("weight_ih_l0"), bias) + at::linear(h, p.at("weight_hh_l0")))
              .chunk(4, 1);  // i, f, g, o
      c = gates[1].sigmoid() * c + gates[0].sigmoid() * gates[2].tanh();
      h = gates[3].sigmoid() * c.tanh();
      const at::Tensor logits = at::linear(h, p.at("output.weight"), p.at("output.bias"));
      for (int64_t s = 0; s < 4; ++s) {
        sum += logits[s].exp().sum().log() - logits[s][next[static_cast<size_t>(s)]];
      }
    }
    return (sum / 20).item<double>();
  };
  at::Generator generator = Generator(7);
  for (int pass = 0; pass < 2; ++pass) {
    const EpochPlan plan = experiment->PlanEpoch(generator);
    at::Tensor h = at::zeros({4, 16}, at::kDouble), c = at::zeros({4, 16}, at::kDouble);
    for (int64_t batch = 0; batch < 3; ++batch) {
      const double expected = loss(plan.batch(batch), h, c);
      // Float against double: values of size 1, some tens of roundings of 6e-8.
      EXPECT_NEAR(experiment->Loss(experiment->Batch(plan.batch(batch))).item<double>(), expected,
                  3e-6)
          << batch;
    }
  }
}

// All weights are 0 except the output's bias, so every character has a fixed probability, and bits
// are counted by hand.
TEST_F(CharLmTest, MeasuresBitsPerCharacter) {
  const std::string text = Abc(2'000);
  const auto data = Load(text);
  const auto experiment = Make(*data);
  at::NoGradGuard no_grad;
  for (at::Tensor& weight : experiment->model().parameters()) weight.zero_();
  const std::vector<double> chances = {0.5, 0.375, 0.125};
  for (const auto& item : experiment->model().named_parameters()) {
    if (item.key() != "output.bias") continue;
    for (int64_t i = 0; i < 3; ++i) item.value()[i] = std::log(chances[static_cast<size_t>(i)]);
  }
  const auto bits = [&](size_t begin) {
    // 99 predicted characters: 16 pieces of 6 and a remainder.
    double sum = 0;
    for (size_t i = 1; i <= 96; ++i) {
      sum -= std::log2(chances[static_cast<size_t>(text[begin + i] - 'a')]);
    }
    return sum / 96;
  };
  const Values values = experiment->Evaluate();
  EXPECT_THAT(values, ::testing::SizeIs(3));
  EXPECT_NEAR(values.at("train_bits"), bits(0), 1e-6);  // sums of 96 floats of size 1
  EXPECT_NEAR(values.at("valid_bits"), bits(1'800), 1e-6);
  EXPECT_NEAR(values.at("test_bits"), bits(1'900), 1e-6);
}

// Pieces longer than an evaluation batch, compared with evaluating each at once.
TEST_F(CharLmTest, EvaluatesPiecesWithTheirState) {
  const auto data = task->Load(Smoke({{"characters", "60000"}}), {});
  const auto experiment = Make(*data);
  at::NoGradGuard no_grad;
  auto& model = dynamic_cast<CharModel&>(experiment->model());
  // Large weights, so that the state matters.
  for (at::Tensor& weight : model.parameters()) weight.mul_(3);
  const std::string text = MakeText(60'000).characters;
  const std::vector<int32_t> numbers = Vocabulary(text).Encode(text);
  double nats = 0;
  for (size_t piece = 0; piece < 16; ++piece) {
    std::vector<int64_t> x, next;
    for (size_t i = 54'000 + piece * 187; i < 54'000 + (piece + 1) * 187; ++i) {  // 2999 / 16
      x.push_back(numbers[i]);
      next.push_back(numbers[i + 1]);
    }
    const at::Tensor logits = model.forward(at::tensor(x).unsqueeze(1), model.ZeroState(1)).first;
    nats += at::cross_entropy_loss(logits, at::tensor(next), {}, at::Reduction::Sum).item<double>();
  }
  // GEMMs of batches of 16 and of 1 round differently, by about 1e-6 for values of size 5.
  EXPECT_NEAR(experiment->Evaluate().at("valid_bits"), nats / (16 * 187) / std::log(2.0), 1e-4);
}

TEST_F(CharLmTest, MeasuresEveryMetricAndKeepsTheState) {
  const auto data = task->Load(Smoke(), {});
  const auto experiment = Make(*data);
  auto& model = dynamic_cast<CharModel&>(experiment->model());
  at::Generator generator = Generator(1);
  const EpochPlan plan = experiment->PlanEpoch(generator);
  experiment->Loss(experiment->Batch(plan.batch(0)));
  at::NoGradGuard no_grad;
  const at::Tensor carried = model.carried().clone();
  EXPECT_GT(carried.abs().max().item<double>(), 0);
  std::vector<std::string> names;
  for (const auto& [name, value] : experiment->Evaluate()) {
    names.push_back(name);
    // 52 characters and small random logits: about log2(52) = 5.7.
    EXPECT_NEAR(value, 5.7, 0.4) << name;
  }
  EXPECT_THAT(names, UnorderedElementsAre("train_bits", "valid_bits", "test_bits"));
  experiment->Samples(generator);
  EXPECT_TRUE(model.carried().equal(carried));
}

TEST_F(CharLmTest, WritesTheSameSampleForTheSameSeed) {
  const auto data = task->Load(Smoke(), {});
  at::NoGradGuard no_grad;
  const auto sample = [&](uint64_t seed, const std::string& temperature) {
    const auto experiment = Make(*data, {{"temperature", temperature}});
    at::Generator generator = Generator(seed);
    return experiment->Samples(generator).at(0);
  };
  EXPECT_EQ(sample(1, "0.8").title, "60 characters at temperature 0.8");
  EXPECT_EQ(sample(1, "0.8").text.size(), 60u);
  EXPECT_EQ(sample(1, "0.8").text, sample(1, "0.8").text);
  EXPECT_NE(sample(1, "0.8").text, sample(2, "0.8").text);
  EXPECT_NE(sample(1, "0.8").text, sample(1, "5").text);
}

// Logits are 4 for b and 0 for a and c: at temperature t the probability of b is e^(4/t) / (e^(4/t)
// + 2).
TEST_F(CharLmTest, DividesLogitsByTheTemperature) {
  const auto data = Load(Abc(400));
  at::NoGradGuard no_grad;
  for (const double temperature : {0.01, 1.0, 4.0}) {
    const auto experiment = Make(
        *data, {{"temperature", std::to_string(temperature)}, {"sample", "4000"}, {"hidden", "1"}});
    for (at::Tensor& weight : experiment->model().parameters()) weight.zero_();
    for (const auto& item : experiment->model().named_parameters()) {
      if (item.key() == "output.bias") item.value()[1] = 4;
    }
    at::Generator generator = Generator(11);
    const std::string text = experiment->Samples(generator).at(0).text;
    const double share = static_cast<double>(std::ranges::count(text, 'b')) / 4000;
    const double expected = 1 / (1 + 2 * std::exp(-4 / temperature));
    // Four standard deviations of a share of 4000.
    EXPECT_NEAR(share, expected, 4 * std::sqrt(expected * (1 - expected) / 4000)) << temperature;
  }
}

TEST_F(CharLmTest, ReadsSequencesOfTheTrainingText) {
  std::string text = Abc(400);
  for (size_t i = 0; i < text.size(); i += 37) text[i] = 'd';  // so that places differ
  const auto data = Load(text);                                // 360 for training
  const auto experiment = Make(*data);
  auto& reader = dynamic_cast<SequenceReader&>(*experiment);
  auto& model = dynamic_cast<CharModel&>(experiment->model());
  EXPECT_EQ(&reader.recurrent(), &model.recurrent());
  const at::Tensor vectors = model.Embed(at::arange(4, at::kLong).unsqueeze(1)).squeeze(1);
  const at::NoGradGuard no_grad;
  for (const int64_t steps : {1, 80, 359}) {
    at::Generator generator = Generator(3), again = Generator(3);
    const auto read = reader.ReadSequences(steps, 5, generator);
    ASSERT_EQ(read.x.sizes(), (std::vector<int64_t>{steps, 5, 8}));
    for (int64_t b = 0; b < 5; ++b) {
      std::string characters;
      for (int64_t t = 0; t < steps; ++t) {
        const at::Tensor same = vectors.eq(read.x[t][b]).all(1).nonzero();
        ASSERT_EQ(same.numel(), 1);
        characters += static_cast<char>('a' + same.item<int64_t>());
      }
      characters += static_cast<char>('a' + read.target[b].item<int64_t>());
      EXPECT_THAT(text.substr(0, 360), HasSubstr(characters));
    }
    EXPECT_TRUE(reader.ReadSequences(steps, 5, again).x.equal(read.x));
  }
  at::Generator generator = Generator(3);
  EXPECT_THROW(reader.ReadSequences(360, 5, generator), UsageError);
}

// An sLSTM's state has log(n), -infinity at the start of each pass.
TEST_F(CharLmTest, StartsEachPassFromTheEmptyState) {
  const auto data = Load(Abc(340));
  const auto experiment = Make(*data, {{"cell", "slstm"}, {"batch_size", "4"}, {"window", "5"}});
  auto& model = dynamic_cast<CharModel&>(experiment->model());
  EXPECT_TRUE(model.carried().equal(model.ZeroState(4)));
  at::Generator generator = Generator(7);
  const EpochPlan plan = experiment->PlanEpoch(generator);
  const auto loss = [&](int64_t batch) {
    return experiment->Loss(experiment->Batch(plan.batch(batch))).item<double>();
  };
  const double first = loss(0), second = loss(1);
  EXPECT_TRUE(model.carried().isfinite().all().item<bool>());
  EXPECT_EQ(loss(0), first);
  EXPECT_EQ(loss(1), second);
}

TEST_F(CharLmTest, HeadsMustDivideTheUnits) {
  const auto data = Load(Abc(400));
  EXPECT_NO_THROW(Make(*data, {{"cell", "slstm"}, {"heads", "4"}}));
  EXPECT_THROW(Make(*data, {{"cell", "slstm"}, {"heads", "3"}}), UsageError);
  EXPECT_THROW(Make(*data, {{"cell", "torch-gru"}, {"heads", "4"}}), UsageError);
}

TEST_F(CharLmTest, BatchNormNeedsTwoStreamsInEachShard) {
  const auto data = Load(Abc(400));
  const auto error = [&](const Sets& sets) -> std::string {
    try {
      Make(*data, sets);
    } catch (const UsageError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(error({{"cell", "bn-gru"}, {"batch_size", "1"}}),
            "[char-lm] batch_size must be at least 2 for batch norm, got 1");
  EXPECT_EQ(error({{"cell", "bn-rnn"}, {"batch_size", "7"}, {"shards", "4"}}),
            "[char-lm] batch_size must be at least 8 for batch norm, got 7");
  EXPECT_EQ(error({{"cell", "bn-rnn"}, {"batch_size", "8"}, {"shards", "4"}}), "");
  EXPECT_EQ(error({{"cell", "ln-rnn"}, {"batch_size", "1"}}), "");
  EXPECT_EQ(error({{"cell", "bn-rnn"}, {"sync_batch_norm", "true"}}),
            "[train] sync_batch_norm must be false in char-lm, whose batch norm has statistics for "
            "each time step, got true");
}

// Evaluations neither depend on the other pieces of the text nor change the estimates.
TEST_F(CharLmTest, EvaluatesBatchNormWithRunningEstimates) {
  const auto data = Load(Abc(3'000));
  const auto experiment = Make(*data, {{"cell", "bn-rnn"}});
  TrainEpochs(*task, *experiment, Smoke({{"lr", "0.02"}}), 3);
  at::NoGradGuard no_grad;
  auto& model = dynamic_cast<CharModel&>(experiment->model());
  model.eval();
  const auto estimates = [&] { return model.named_buffers()["recurrent.running_var_l0"].clone(); };
  const at::Tensor before = estimates();
  EXPECT_GT((before - 1).abs().max().item<double>(), 0.1);
  const at::Tensor x = at::randint(3, {9, 4}, at::kLong);
  const at::Tensor all = model.forward(x, model.ZeroState(4)).first.view({9, 4, 3});
  for (int64_t b = 0; b < 4; ++b) {
    const at::Tensor one = model.forward(x.narrow(1, b, 1), model.ZeroState(1)).first;
    // GEMMs of batches of 4 and of 1 round differently, by about 1e-6.
    EXPECT_LT((all.select(1, b) - one).abs().max().item<double>(), 1e-4);
  }
  experiment->Evaluate();
  EXPECT_TRUE(estimates().equal(before));
}

TEST_F(CharLmTest, LearnsWithEveryCell) {
  const auto data = Load(Abc(3'000));
  for (const std::string& cell : CellNames()) {
    const auto experiment = Make(*data, {{"cell", cell}});
    TrainEpochs(*task, *experiment, Smoke({{"lr", "0.02"}}), 12);
    at::NoGradGuard no_grad;
    // After 240 updates. The letters' frequencies give 1.38 bits, with the last letter .86, with
    // the whole context 0.
    EXPECT_LT(experiment->Evaluate().at("valid_bits"), 0.7) << cell;
  }
}

// Every metric at every step, every tensor of the checkpoint including the carried state, and the
// sample equal those of the uninterrupted run.
TEST_F(CharLmTest, ResumesWithTheSameBits) {
  const auto data = task->Load(Smoke(), {});
  const auto tensors = [](const RunPlan& plan) {
    const auto file = SafetensorsFile::Read(plan.folder / "checkpoint" / "state.safetensors",
                                            Checksum::kRequired);
    std::map<std::string, std::string> all;
    for (const StoredTensor& t : file.tensors()) {
      all[t.name] = std::string(reinterpret_cast<const char*>(t.data.data()), t.data.size());
    }
    return all;
  };
  for (const std::string cell : {"lstm", "ln-lstm", "ln-gru", "slstm", "bn-rnn"}) {
    const RunPlan whole = Plan("whole", {{"cell", cell}});
    ASSERT_EQ(Run(whole, *data), Outcome::kFinished);
    const lab::Run expected = ReadRun(whole.folder);
    // 9,000 characters of training, batches of 128: 70 updates an epoch.
    ASSERT_EQ(expected.result->steps, 140);
    const std::string carried = tensors(whole).at("model.carried");
    EXPECT_NE(carried, std::string(carried.size(), '\0'));
    // Running estimates, of training and of the weights that validation chose.
    for (const std::string set : {"model", "best"}) {
      EXPECT_EQ(tensors(whole).count(set + ".recurrent.running_var_l0"), cell == "bn-rnn");
    }
    // Within an epoch, at its end, right after the start, and twice.
    const std::vector<std::vector<int>> cuts = {{33}, {70}, {1}, {69, 2}};
    for (size_t i = 0; i < cuts.size(); ++i) {
      const RunPlan pieces = Plan("pieces" + std::to_string(i), {{"cell", cell}});
      for (const int piece : cuts[i]) {
        int updates = 0;
        ASSERT_EQ(Run(pieces, *data, {.stop = [&] { return ++updates == piece; }}),
                  Outcome::kInterrupted);
      }
      ASSERT_EQ(Run(pieces, *data), Outcome::kFinished);
      EXPECT_EQ(tensors(pieces), tensors(whole)) << cell << i;
      const lab::Run run = ReadRun(pieces.folder);
      ASSERT_EQ(run.evaluations.size(), expected.evaluations.size());
      for (size_t e = 0; e < run.evaluations.size(); ++e) {
        EXPECT_EQ(run.evaluations[e].step, expected.evaluations[e].step);
        EXPECT_EQ(run.evaluations[e].values, expected.evaluations[e].values) << cell << i;
      }
      EXPECT_EQ(run.result->samples.at(0).text, expected.result->samples.at(0).text);
    }
  }
}

TEST_F(CharLmTest, TrainsOnTheRealText) {
  const std::optional<fs::path> path = DataFolder("");
  if (!path || !fs::exists(*path / "tinyshakespeare")) {
    GTEST_SKIP() << "PLANISH_DATA does not name a folder with tinyshakespeare/input.txt";
  }
  const Settings settings = Smoke({{"characters", "2000000"}});
  const auto data = task->Load(settings, path);
  EXPECT_EQ(data->about.sizes.at("train"), 1'115'394 - 2 * 55'769);
  const auto experiment = Make(*data, {{"hidden", "64"}, {"batch_size", "32"}});
  const auto optimizer =
      task->MakeOptimizer(ParametersOf(experiment->model()), Smoke({{"lr", "0.01"}}));
  at::Generator order = Generator(1);
  const EpochPlan plan = experiment->PlanEpoch(order);
  double last = 0;
  for (int64_t b = 0; b < 300; ++b) {
    const double loss =
        UpdateWeights(*experiment, *optimizer, {{plan.batch(b)}}).loss / std::log(2.0);
    if (b == 0) {
      EXPECT_NEAR(loss, std::log2(65), 0.4);
    }
    if (b >= 250) last += loss / 50;
  }
  EXPECT_LT(last, 3.5);  // the characters' frequencies alone need 4.8 bits
}

}  // namespace
}  // namespace planish::lab
