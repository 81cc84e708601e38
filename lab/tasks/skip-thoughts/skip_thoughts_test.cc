#include "lab/tasks/skip-thoughts/skip_thoughts.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>

#include "lab/engine/capabilities.h"
#include "lab/error.h"
#include "lab/model/parameter_count.h"
#include "lab/tasks/skip-thoughts/corpus.h"
#include "lab/tasks/skip-thoughts/model.h"
#include "lab/tasks/task_testing.h"

namespace planish::lab {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

const std::vector<std::string> kNorms = {"none", "layer"};

std::vector<int64_t> Numbers(const at::Tensor& t) {
  const at::Tensor flat = t.to(at::kLong).contiguous();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

TEST(WordNumbers, CountWords) {
  const Book book = ParseBook("The cat saw a dog. The cat ran. A bee.", "x");
  const WordNumbers numbers({book}, 6);
  EXPECT_EQ(numbers.size(), 6);
  // "." occurs three times; "a", "cat" and "the" twice, with "the" last in order.
  EXPECT_EQ(numbers.Number("."), 2);
  EXPECT_EQ(numbers.Number("a"), 3);
  EXPECT_EQ(numbers.Number("the"), 5);
  EXPECT_EQ(numbers.Number("dog"), WordNumbers::kUnknown);
  EXPECT_EQ(WordNumbers({book}, 100).size(), 2 + 8);
}

TEST(MakeTriples, TakesNeighboursOfOneBook) {
  const Book one = ParseBook("Aa bb. Cc dd ee ff gg hh. Ii. Jj kk. Ll. Mm nn.", "one");
  const Book two = ParseBook("Oo. Pp. Qq.", "two");
  const WordNumbers numbers({one, two}, 100);
  // The second sentence has seven words including its point: too long for its own triple and the
  // next.
  const Triples all = MakeTriples({one, two}, numbers, 3, 100);
  EXPECT_EQ(all.left_out, 2);
  EXPECT_THAT(Numbers(all.middles), ElementsAre(3, 4, 7));
  EXPECT_THAT(Numbers(all.lengths), ElementsAre(3 * 4 + 2, 2 * 4 + 3, 2 * 4 + 2));
  const auto [words, lengths] = all.sentences.Select(all.middles - 1);
  EXPECT_THAT(Numbers(lengths), ElementsAre(3, 4, 3));
  const int32_t i = numbers.Number("ii"), j = numbers.Number("jj"), k = numbers.Number("kk"),
                o = numbers.Number("oo"), point = numbers.Number(".");
  EXPECT_THAT(Numbers(words.t()), ElementsAre(i, point, 0, 0, j, k, point, 0, o, point, 0, 0));
  EXPECT_THAT(Numbers(MakeTriples({one, two}, numbers, 3, 2).middles), ElementsAre(3, 4));
  EXPECT_EQ(MakeTriples({one, two}, numbers, 10, 100).size(), 4 + 1);
  EXPECT_EQ(all.words, 26);
  EXPECT_EQ(all.unknown, 0);
}

TEST(DrawWords, FollowsZipfsLaw) {
  const int64_t vocabulary = 50, draws = 200'000;
  const at::Tensor p = ZipfLogProbabilities(vocabulary).exp();
  EXPECT_NEAR(p.sum().item<double>(), 1, 1e-12);
  at::manual_seed(3);
  const at::Tensor counts = at::bincount(DrawWords(vocabulary, draws), {}, vocabulary);
  // Five standard deviations of a count.
  const at::Tensor off = (counts - draws * p).abs() / (draws * p * (1 - p)).sqrt();
  EXPECT_LT(off.max().item<double>(), 5);
}

// Computes Eq. 8-10 of Jean et al. 2015, one word at a time.
TEST(SampledLoss, IsASoftmaxAmongDrawnWords) {
  at::manual_seed(4);
  Linear output(3, 9);
  output->to(at::kDouble);
  const at::Tensor states = at::randn({4, 3}, at::kDouble);
  const std::vector<int64_t> targets = {0, 5, 8, 2}, samples = {1, 5, 5, 0, 7};
  const at::Tensor log_q = ZipfLogProbabilities(9);
  double sum = 0;
  for (size_t p = 0; p < 4; ++p) {
    const auto logit = [&](int64_t word) {
      const auto z =
          (output->weight[word].dot(states[static_cast<int64_t>(p)]) + output->bias[word])
              .item<double>();
      return std::exp(z) / (5 * std::exp(log_q[word].item<double>()));
    };
    double all = logit(targets[p]);
    for (const int64_t sample : samples) all += sample == targets[p] ? 0 : logit(sample);
    sum -= std::log(logit(targets[p]) / all);
  }
  const at::Tensor loss =
      SampledLoss(states, output, at::tensor(targets), at::tensor(samples), log_q);
  EXPECT_NEAR(loss.item<double>(), sum, 1e-12 * sum);  // some roundings in double
}

// Averaged over draws, its gradient is close to that of the full softmax.
TEST(SampledLoss, StandsForTheFullSoftmax) {
  at::manual_seed(4);
  Linear output(3, 30);
  const at::Tensor states = at::randn({6, 3}).requires_grad_(true);
  const at::Tensor targets = at::tensor(std::vector<int64_t>{0, 5, 8, 2, 29, 11});
  at::cross_entropy_loss(output->forward(states), targets, {}, at::Reduction::Sum).backward();
  const at::Tensor full = states.grad().clone();
  states.mutable_grad().zero_();
  const at::Tensor log_q = ZipfLogProbabilities(30);
  const int draws = 200;
  for (int i = 0; i < draws; ++i) {
    (SampledLoss(states, output, targets, DrawWords(30, 200), log_q) / draws).backward();
  }
  // The bias falls with the 200 drawn words, noise with their 40,000: a twentieth is detectable.
  EXPECT_LT((states.grad() - full).norm().item<double>(), 0.05 * full.norm().item<double>());
}

class SkipThoughtsTest : public TaskTest<MakeSkipThoughts> {
 protected:
  // Returns the losses of the first updates.
  std::vector<double> Losses(const Dataset& data, int updates, const Sets& sets) {
    const auto experiment = Make(data, sets);
    return LossesOf(*task, *experiment, Smoke(sets), updates, ClipTogether(5));
  }

  std::string ErrorOf(const fs::path& path) {
    try {
      task->Load(Smoke(), path);
    } catch (const DataError& e) {
      return e.what();
    }
    return "no error";
  }

  TestFolder folder;
};

// Reference model from the equations of Ba et al. 2016 (23-28, with PyTorch's z) and of Kiros et
// al. 2015, one word at a time.
struct WrittenOut {
  std::map<std::string, at::Tensor> p;
  bool steps = false;

  at::Tensor Norm(const at::Tensor& z, const at::Tensor& gain, const at::Tensor& bias) const {
    const at::Tensor centred = z - z.mean();
    return centred / (centred.square().mean() + 1e-5).sqrt() * gain + bias;
  }

  at::Tensor Sums(const std::string& layer, const std::string& which, const at::Tensor& x) const {
    const std::string prefix = layer + ".layer.";
    const at::Tensor z = p.at(prefix + "weight_" + which + "_l0").mv(x);
    const auto bias = p.find(prefix + "bias_" + which + "_l0");
    if (bias != p.end()) return z + bias->second;
    const at::Tensor &gain = p.at(prefix + "ln_" + which + "_weight_l0"),
                     shift = p.at(prefix + "ln_" + which + "_bias_l0");
    const int64_t h = z.size(0) / 3;
    const auto part = [&](int64_t begin, int64_t end) {
      return Norm(z.slice(0, begin, end), gain.slice(0, begin, end), shift.slice(0, begin, end));
    };
    return at::cat({part(0, 2 * h), part(2 * h, 3 * h)});
  }

  at::Tensor Step(const std::string& layer, const at::Tensor& x, const at::Tensor& h) const {
    const auto ax = Sums(layer, "ih", x).chunk(3), ah = Sums(layer, "hh", h).chunk(3);
    const at::Tensor r = (ax[0] + ah[0]).sigmoid(), z = (ax[1] + ah[1]).sigmoid();
    return (1 - z) * (ax[2] + r * ah[2]).tanh() + z * h;
  }

  at::Tensor Encode(const std::vector<int64_t>& words) const {
    at::Tensor h = at::zeros({p.at("output.weight").size(1)}, at::kDouble);
    for (const int64_t word : words) h = Step("encoder", p.at("embedding")[word], h);
    return h;
  }

  double Nats(const std::string& layer, const std::vector<int64_t>& words,
              const at::Tensor& vector) const {
    at::Tensor h = steps ? at::zeros_like(vector) : vector;
    double nats = 0;
    for (size_t t = 0; t < words.size(); ++t) {
      at::Tensor x = t == 0 ? at::zeros({p.at("embedding").size(1)}, at::kDouble)
                            : p.at("embedding")[words[t - 1]];
      if (steps) x = at::cat({x, vector});
      h = Step(layer, x, h);
      const at::Tensor logits = p.at("output.weight").mv(h) + p.at("output.bias");
      nats += (logits.exp().sum().log() - logits[words[t]]).item<double>();
    }
    return nats;
  }
};

TEST_F(SkipThoughtsTest, MatchesTheReferenceLoss) {
  const auto data = task->Load(Smoke(), {});
  const Triples& train = dynamic_cast<const ThoughtData&>(*data).train;
  const auto sentence = [&](int64_t row) {
    const auto words = Numbers(train.sentences.words[row]);
    return std::vector<int64_t>(words.begin(),
                                words.begin() + train.sentences.lengths[row].item<int64_t>());
  };
  for (const std::string& norm : kNorms) {
    for (const std::string condition : {"start", "steps"}) {
      const auto experiment = Make(*data, {{"norm", norm}, {"condition", condition}});
      WrittenOut written;
      written.steps = condition == "steps";
      at::NoGradGuard no_grad;
      for (auto& item : experiment->model().named_parameters()) {
        // Initial biases and gains would not affect results.
        if (item.value().dim() == 1) item.value().add_(at::randn_like(item.value()), 0.3);
        written.p[item.key()] = item.value().to(at::kDouble);
      }
      const at::Tensor cases = at::tensor(std::vector<int64_t>{3, 77, 200});
      double sum = 0;
      std::set<size_t> lengths;
      for (const int64_t middle : Numbers(train.middles.index_select(0, cases))) {
        const at::Tensor vector = written.Encode(sentence(middle));
        sum += written.Nats("previous", sentence(middle - 1), vector) +
               written.Nats("next", sentence(middle + 1), vector);
        lengths.insert(sentence(middle).size());
      }
      ASSERT_GT(lengths.size(), 1u) << "the cases should have different lengths";
      const double loss = experiment->Loss(experiment->Batch(cases)).item<double>();
      EXPECT_NEAR(loss, sum, 1e-5 * sum) << norm << condition;  // in float
    }
  }
}

// The embedding has V W parameters, the output (H + 1) V. A GRU of I inputs has 3 H (I + H) weights
// and 6 H biases. With norms it has a gain and a bias for each of the 6 H sums instead.
TEST_F(SkipThoughtsTest, HasTheNumberOfParametersOfTheFormula) {
  const auto data = task->Load(Smoke(), {});
  const int64_t v = dynamic_cast<const ThoughtData&>(*data).numbers.size(), w = 8, h = 16;
  for (const std::string& norm : kNorms) {
    const auto gru = [&](int64_t i) { return 3 * h * (i + h) + (norm == "layer" ? 12 : 6) * h; };
    EXPECT_EQ(ParameterCount(Make(*data, {{"norm", norm}})->model()),
              v * w + (h + 1) * v + 3 * gru(w));
    EXPECT_EQ(ParameterCount(Make(*data, {{"norm", norm}, {"condition", "steps"}})->model()),
              v * w + (h + 1) * v + gru(w) + 2 * gru(w + h));
  }
}

TEST_F(SkipThoughtsTest, StartsEveryNormFromTheSameWeightsAndDraws) {
  const auto data = task->Load(Smoke(), {});
  std::map<std::string, at::Tensor> first;
  for (const std::string& norm : kNorms) {
    for (const std::string cell : {"fused", "composed"}) {
      const auto experiment = Make(*data, {{"norm", norm}, {"cell", cell}, {"softmax", "sampled"}});
      at::Generator order = Generator(1);
      const EpochPlan plan = experiment->PlanEpoch(order);
      std::map<std::string, at::Tensor> now = {{"order", plan.order},
                                               {"drawn", experiment->Batch(plan.batch(0)).back()}};
      for (const auto& item : experiment->model().named_parameters()) {
        if (item.value().dim() == 2) now[item.key()] = item.value();
      }
      ASSERT_EQ(now.size(), 2u + 2 + 3 * 2);  // two of each GRU, embedding and output
      if (first.empty()) first = now;
      for (const auto& [name, tensor] : now) {
        EXPECT_TRUE(tensor.equal(first.at(name))) << norm << cell << name;
      }
    }
  }
  // Orthogonal for each gate, and within 0.1.
  const at::Tensor gate = first.at("next.layer.weight_hh_l0").slice(0, 16, 32).to(at::kDouble);
  EXPECT_LT((gate.mm(gate.t()) - at::eye(16, at::kDouble)).abs().max().item<double>(), 1e-5);
  const double largest = first.at("encoder.layer.weight_ih_l0").abs().max().item<double>();
  EXPECT_LE(largest, 0.1);
  EXPECT_GT(largest, 0.09);
}

TEST_F(SkipThoughtsTest, FusedAndComposedTrainAlike) {
  const auto data = task->Load(Smoke(), {});
  for (const std::string& norm : kNorms) {
    for (const std::string condition : {"start", "steps"}) {
      const Sets sets = {{"norm", norm}, {"condition", condition}};
      Sets composed_sets = sets;
      composed_sets.emplace_back("cell", "composed");
      const std::vector<double> fused = Losses(*data, 20, sets);
      const std::vector<double> composed = Losses(*data, 20, composed_sets);
      for (size_t i = 0; i < fused.size(); ++i) {
        // A relative rounding of 6e-8 an operation in float, enlarged by Adam, whose first steps
        // are signs of gradients.
        EXPECT_NEAR(fused[i], composed[i], 2e-5 * composed[i]) << norm << condition << i;
      }
    }
  }
}

TEST_F(SkipThoughtsTest, LearnsWithEveryNormAndSoftmax) {
  const auto data = task->Load(Smoke(), {});
  const auto& corpus = dynamic_cast<const ThoughtData&>(*data);
  // The cost of words by their frequencies in training, as neighbours.
  const Triples& train = corpus.train;
  at::Tensor counts = at::zeros({corpus.numbers.size()}, at::kDouble);
  for (const int64_t offset : {-1, 1}) {
    const auto [words, lengths] = train.sentences.Select(train.middles + offset);
    counts += at::bincount(words.flatten().to(at::kLong), {}, corpus.numbers.size());
  }
  counts[WordNumbers::kEnd] = 2 * static_cast<double>(train.size());
  const at::Tensor p = counts / counts.sum();
  const double entropy = -(p * p.clamp_min(1e-30).log()).sum().item<double>();
  for (const std::string& norm : kNorms) {
    for (const std::string softmax : {"full", "sampled"}) {
      const Sets sets = {
          {"norm", norm}, {"softmax", softmax}, {"samples", "60"}, {"downstream_cases", "600"}};
      const auto experiment = Make(*data, sets);
      TrainEpochs(*task, *experiment, Smoke(sets), 40, ClipTogether(5));
      at::NoGradGuard no_grad;
      const Values values = experiment->Evaluate();
      EXPECT_LT(values.at("valid_nats"), 0.75 * entropy) << norm << softmax;
      // A coin has 0.5, with a deviation of 0.02. Only this model gets that far in these updates.
      if (norm == "layer" && softmax == "full") {
        EXPECT_GT(values.at("synthetic"), 0.6);
      }
    }
  }
}

TEST_F(SkipThoughtsTest, MeasuresAvailableSets) {
  const auto data = task->Load(Smoke(), {});
  const auto experiment = Make(*data);
  experiment->model().eval();
  at::NoGradGuard no_grad;
  const auto names = [](const Values& values) {
    std::vector<std::string> all;
    for (const auto& [name, value] : values) all.push_back(name);
    return all;
  };
  const Values values = experiment->Evaluate();
  EXPECT_THAT(names(values), ElementsAre("synthetic", "valid_nats"));
  EXPECT_THAT(names(experiment->Test()), ElementsAre("test_synthetic"));
  // Logits near 0: all words are equally likely.
  const auto vocabulary = dynamic_cast<const ThoughtData&>(*data).numbers.size();
  EXPECT_NEAR(values.at("valid_nats"), std::log(static_cast<double>(vocabulary)), 0.2);
  std::set<std::string> declared;
  for (const MetricSpec& metric : task->metrics) declared.insert(metric.name);
  for (const char* name : {"valid_nats", "synthetic", "test_synthetic", "sick_r", "test_mpqa"}) {
    EXPECT_TRUE(declared.contains(name)) << name;
  }
  at::Generator generator = Generator(1);
  const auto samples = experiment->Samples(generator);
  ASSERT_EQ(samples.size(), 6u);
  EXPECT_THAT(samples[1].text, HasSubstr("(nearest of "));
  EXPECT_FALSE(samples[1].text.starts_with(samples[1].title));
}

TEST_F(SkipThoughtsTest, EncodesSentencesIndependently) {
  const auto data = task->Load(Smoke(), {});
  for (const std::string& norm : kNorms) {
    const auto experiment = Make(*data, {{"norm", norm}});
    experiment->model().eval();
    at::NoGradGuard no_grad;
    auto& encoder = dynamic_cast<SentenceEncoder&>(*experiment);
    const std::vector<std::string> sentences = {"Anna saw the boat by the net.", "", "The cow!",
                                                "zzz", "Anna saw the boat by the net ."};
    const at::Tensor all = encoder.EncodeSentences(sentences);
    ASSERT_EQ(all.sizes(), at::IntArrayRef({5, 16}));
    for (size_t i = 0; i < sentences.size(); ++i) {
      const at::Tensor one = encoder.EncodeSentences({sentences[i]})[0];
      // GEMMs of another number of rows can round differently.
      EXPECT_LT((all[static_cast<int64_t>(i)] - one).abs().max().item<double>(), 1e-6) << norm << i;
    }
    EXPECT_LT((all[0] - all[4]).abs().max().item<double>(), 1e-6);
    EXPECT_FALSE(all[0].equal(all[2]));
  }
}

TEST_F(SkipThoughtsTest, ResumesWithTheSameBits) {
  ExpectExactResume(*task, {{"norm", "none"}}, {1, 6, 3});
  ExpectExactResume(*task, {{"norm", "layer"}, {"softmax", "sampled"}}, {2, 9});
}

TEST_F(SkipThoughtsTest, TrainsThePaperPreset) {
  const Settings settings =
      Chosen("paper", {{"norm", "layer"}, {"stories", "20"}, {"batch_size", "2"}});
  EXPECT_EQ(settings.Int("hidden"), 2400);
  EXPECT_EQ(settings.Int("words"), 620);
  EXPECT_EQ(settings.Int("vocabulary"), 20'000);
  EXPECT_EQ(settings.Text("softmax"), "full");
  const auto data = task->Load(settings, {});
  const int64_t v = dynamic_cast<const ThoughtData&>(*data).numbers.size();
  at::manual_seed(1);
  const auto experiment = task->Make(settings, *data);
  EXPECT_EQ(ParameterCount(experiment->model()),
            v * 620 + 2401 * v + 3 * (3 * 2400 * 3020 + 12 * 2400));
  const auto optimizer = task->MakeOptimizer(ParametersOf(experiment->model()), settings);
  at::Generator order = Generator(1);
  const EpochPlan plan = experiment->PlanEpoch(order);
  const double before =
      UpdateWeights(*experiment, *optimizer, {{plan.batch(0)}}, ClipTogether(5)).loss;
  EXPECT_TRUE(std::isfinite(before));
  EXPECT_LT(UpdateWeights(*experiment, *optimizer, {{plan.batch(0)}}, ClipTogether(5)).loss,
            before);
}

TEST_F(SkipThoughtsTest, ReadsBooksAndSets) {
  fs::create_directory(folder / "books");
  WriteFile(folder / "books/a.txt", "One two. Three four five. Six. Seven. Eight nine!\n");
  WriteFile(folder / "books/b.txt", "One two. Three. Six ten.\n");
  const auto data = task->Load(Smoke(), folder / "");
  EXPECT_EQ(data->about.name, "books");
  EXPECT_EQ(data->about.sizes, (std::map<std::string, int64_t>{{"train", 3}, {"valid", 1}}));
  EXPECT_EQ(
      data->about.description,
      "1 books of 5 sentences to train on and 1 of 3 for validation; 3 and 1 triples of sentences, "
      "0 and 0 with one of more than 30 words left out; 13 words, 0.0% of the text are unknown; "
      "sets to judge vectors by: none");
  fs::create_directory(folder / "cr");
  WriteFile(folder / "cr/custrev.all", "1 good\n0 bad\n");
  const auto with_set = task->Load(Smoke(), folder / "");
  EXPECT_THAT(with_set->about.description, HasSubstr("judge vectors by: cr (2 sentences)"));
  EXPECT_NE(with_set->about.sha256, data->about.sha256);

  EXPECT_THROW(task->Check(Smoke({{"batch_size", "4"}}), *data), UsageError);
  EXPECT_THAT(ErrorOf(folder / "none"), HasSubstr("none: No such file or directory"));
  WriteFile(folder / "books/b.txt", "One two. Three.\n");
  EXPECT_THAT(ErrorOf(folder / ""),
              HasSubstr("the validation books have no three consecutive sentences"));
  WriteFile(folder / "cr/custrev.all", "1 good\n3 bad\n");
  EXPECT_THAT(ErrorOf(folder / ""), HasSubstr("custrev.all, line 2"));
}

}  // namespace
}  // namespace planish::lab
