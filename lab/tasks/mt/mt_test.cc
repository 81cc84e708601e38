#include "lab/tasks/mt/mt.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <torch/nn/modules/transformer.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "lab/data/source.h"
#include "lab/engine/capabilities.h"
#include "lab/error.h"
#include "lab/model/parameter_count.h"
#include "lab/tasks/mt/bleu.h"
#include "lab/tasks/mt/corpus.h"
#include "lab/tasks/mt/model.h"
#include "lab/tasks/task_testing.h"
#include "lab/testing/long_tests.h"

namespace planish::lab {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class MtTest : public TaskTest<MakeMt> {
 protected:
  // Vocabularies must not stay on the machine.
  MtTest() { setenv("XDG_CACHE_HOME", (folder / "cache").c_str(), 1); }
  ~MtTest() override { unsetenv("XDG_CACHE_HOME"); }

  std::unique_ptr<Dataset> Load(const Sets& sets = {}) { return task->Load(Smoke(sets), {}); }

  std::vector<std::string> NormsOfTask() {
    return std::ranges::find(task->settings, "norm", &SettingSpec::name)->choices;
  }

  TestFolder folder;
};

// Returns the number of parameters with width D, H hidden units and V pieces. An attention has 4
// matrices D D and 4 biases D, a feed-forward sublayer 2 D H + H + D, a norm 2 D. Encoder layers
// have 1, 1, 2 of them, decoder layers 2, 1, 3. Then come the final norms and V D embeddings.
int64_t ByHand(int64_t layers, int64_t d, int64_t h, int64_t v, int64_t norm) {
  const int64_t attention = 4 * d * d + 4 * d, ffn = 2 * d * h + h + d;
  return layers * (3 * attention + 2 * ffn + 5 * norm) + 2 * norm + v * d;
}

TEST_F(MtTest, HasTheParametersOfItsFormula) {
  const auto data = Load();
  const int64_t pieces = dynamic_cast<const Corpus&>(*data).bpe.size();
  for (const auto& [norm, parameters] : std::vector<std::pair<std::string, int64_t>>{
           {"layer", 32}, {"none", 0}, {"layer-simple", 0}, {"ada", 0}}) {
    EXPECT_EQ(ParameterCount(Make(*data, {{"norm", norm}})->model()),
              ByHand(2, 16, 32, pieces, parameters))
        << norm;
  }
  // As in the released code, the layers keep LayerNorm.
  EXPECT_EQ(ParameterCount(Make(*data, {{"norm", "none"}, {"wiring", "code"}})->model()),
            ByHand(2, 16, 32, pieces, 32) - 2 * 32);
}

// transformer_iwslt_de_en with the paper's 10,149 pieces: PyTorch's own Transformer of that size,
// including the final norms, and one embedding. Without these norms, and with fairseq's 8,848
// German and 6,632 English pieces instead of shared ones, the formula gives 39,469,056.
TEST_F(MtTest, HasThePublishedSize) {
  const Settings paper(task->settings);
  TranslationModel model({.vocabulary = paper.Int("vocabulary"),
                          .transformer = {.layers = paper.Int("layers"),
                                          .width = paper.Int("width"),
                                          .heads = paper.Int("heads"),
                                          .ffn = paper.Int("ffn")}});
  EXPECT_EQ(ParameterCount(model), 36'741'632);
  EXPECT_EQ(ByHand(6, 512, 1024, 10'149, 1024), 36'741'632);
  EXPECT_EQ(ByHand(6, 512, 1024, 8'848 + 6'632, 1024) - 2 * 1024, 39'469'056);
  const torch::nn::Transformer theirs(torch::nn::TransformerOptions(512, 4)
                                          .num_encoder_layers(6)
                                          .num_decoder_layers(6)
                                          .dim_feedforward(1024));
  EXPECT_EQ(ParameterCount(model), ParameterCount(*theirs) + 10'149 * 512);
}

TEST_F(MtTest, TrainsAtThePapersSize) {
  const auto data = Load();
  Settings paper(task->settings);
  paper.Set("data", "synthetic");
  at::manual_seed(1);
  const auto experiment = task->Make(paper, *data);
  const auto optimizer = task->MakeOptimizer(ParametersOf(experiment->model()), paper);
  experiment->model().train();
  const std::vector<at::Tensor> batches = {at::tensor({0, 1}, at::kLong),
                                           at::tensor({2, 3}, at::kLong)};
  const double first = UpdateWeights(*experiment, *optimizer, batches).loss;
  // More than ln 200 = 5.3: with one matrix for both, the input piece is the likeliest at first.
  EXPECT_NEAR(first, 7.5, 2.5);
  EXPECT_LT(UpdateWeights(*experiment, *optimizer, batches).loss, first);
}

TEST_F(MtTest, GivesEveryNormTheSameStartAndTheSameBatches) {
  const auto data = Load();
  std::map<std::string, at::Tensor> first;
  for (const std::string wiring : {"paper", "code"}) {
    for (const std::string& norm : NormsOfTask()) {
      const auto experiment = Make(*data, {{"norm", norm}, {"wiring", wiring}});
      at::Generator generator = Generator(1);
      std::map<std::string, at::Tensor> now = {{"order", experiment->PlanEpoch(generator).order},
                                               {"dropout", at::rand({4})}};
      for (const auto& item : experiment->model().named_parameters()) {
        if (item.key().find("norm") == std::string::npos) now[item.key()] = item.value();
      }
      ASSERT_EQ(now.size(), 2u + 1 + 2 * (8 + 14));  // weight and bias of 4 and 7 linear layers
      if (first.empty()) first = now;
      for (const auto& [name, tensor] : now) {
        EXPECT_TRUE(tensor.equal(first[name])) << norm << name;
      }
    }
  }
}

// The model of a preset with its printed vocabularies.
TranslationModel ModelOf(const Settings& s) {
  return TranslationModel({.vocabulary = s.Int("vocabulary"),
                           .source_vocabulary = s.Int("source_vocabulary"),
                           .transformer = {.layers = s.Int("layers"),
                                           .width = s.Int("width"),
                                           .heads = s.Int("heads"),
                                           .ffn = s.Int("ffn")}});
}

// fairseq's transformer_wmt_en_de (6 + 6 layers of 512, 8 heads, 2,048 hidden units) without shared
// matrices, and transformer_wmt_en_de_big_t2t (1024, 16, 4,096) with one.
TEST_F(MtTest, PresetsHaveThePrintedSizes) {
  const Settings vi = Chosen("en-vi");
  EXPECT_EQ(ParameterCount(ModelOf(vi)), ByHand(6, 512, 2048, 7'669 + 2 * 6'669, 1024));
  EXPECT_EQ(vi.Int("heads"), 8);
  EXPECT_EQ(vi.Real("dropout"), 0.1);
  const Settings de = Chosen("en-de");
  const int64_t parameters = ByHand(6, 1024, 4096, 32'765, 2048);
  EXPECT_EQ(parameters, 209'912'832);
  EXPECT_EQ(ByHand(6, de.Int("width"), de.Int("ffn"), de.Int("vocabulary"), 2048), parameters);
  if (RunsLongTests()) {
    EXPECT_EQ(ParameterCount(ModelOf(de)), parameters);
  }
  EXPECT_EQ(de.Int("heads"), 16);
  EXPECT_EQ(de.Real("dropout"), 0.3);
  for (const auto& [settings, warmup] : {std::pair(vi, 8000), std::pair(de, 4000)}) {
    EXPECT_EQ(settings.Int("warmup"), warmup);
    EXPECT_EQ(settings.Real("lr"), 1e-3);
    EXPECT_EQ(settings.Int("batch_size"), 4096);
    EXPECT_EQ(settings.Real("adam_beta2"), 0.98);
    EXPECT_EQ(settings.Int("accumulate"), 1);
  }
}

// Each preset's network on small vocabularies. That of en-de has 176 million weights.
TEST_F(MtTest, TrainsThePrintedNetworks) {
  for (const std::string preset : {"en-vi", "en-de"}) {
    SCOPED_TRACE(preset);
    if (preset == "en-de" && !RunsLongTests()) continue;
    const bool separate = preset == "en-vi";
    const Settings settings = Chosen(preset, {{"data", "synthetic"},
                                              {"direction", "en-de"},
                                              {"train_pairs", "300"},
                                              {"source_vocabulary", separate ? "180" : "0"},
                                              {"vocabulary", "200"}});
    const auto data = task->Load(settings, {});
    at::manual_seed(1);
    const auto experiment = task->Make(settings, *data);
    const auto optimizer = task->MakeOptimizer(ParametersOf(experiment->model()), settings);
    experiment->model().train();
    const std::vector<at::Tensor> batches = {at::tensor({0, 1}, at::kLong)};
    const double first = UpdateWeights(*experiment, *optimizer, batches).loss;
    UpdateWeights(*experiment, *optimizer, batches);
    EXPECT_LT(UpdateWeights(*experiment, *optimizer, batches).loss, first);
  }
}

TEST_F(MtTest, TwoVocabulariesShareNoEmbedding) {
  const Sets sets = {{"source_vocabulary", "150"}, {"dropout", "0"}};
  const auto data = Load(sets);
  const auto& corpus = dynamic_cast<const Corpus&>(*data);
  ASSERT_TRUE(corpus.source_bpe);
  EXPECT_EQ(corpus.source_bpe->size(), 150);
  EXPECT_EQ(corpus.bpe.size(), 200);
  const auto experiment = Make(*data, sets);
  const auto p = experiment->model().named_parameters();
  EXPECT_EQ(p["source_embedding"].sizes(), at::IntArrayRef({150, 16}));
  EXPECT_EQ(p["embedding"].sizes(), at::IntArrayRef({200, 16}));
  EXPECT_EQ(p["output"].sizes(), at::IntArrayRef({200, 16}));
  EXPECT_EQ(ParameterCount(experiment->model()), ByHand(2, 16, 32, 150 + 2 * 200, 32));
  // Normal with variance 1/16, from 2,400 elements or more: the deviation's own is 1.5%.
  for (const char* name : {"source_embedding", "embedding", "output"}) {
    EXPECT_NEAR(p[name].std().item<double>(), 0.25, 0.02) << name;
  }
  // Each matrix gets the gradients of its own side.
  experiment->model().train();
  experiment->Loss(experiment->Batch(at::tensor({3}, at::kLong))).backward();
  const auto used = [&](const char* name) {
    return p[name].grad().abs().sum(1).gt(0).nonzero().squeeze(1);
  };
  const at::Tensor source = corpus.train.source.rows[3];
  EXPECT_TRUE(
      used("source_embedding")
          .equal(
              std::get<0>(at::_unique(source.masked_select(source.ne(Bpe::kPad)))).to(at::kLong)));
  EXPECT_EQ(used("output").numel(), 200);
  ExpectExactResume(*task, {{"source_vocabulary", "150"}, {"bleu_sentences", "3"}}, {1, 2});
}

// The bounds of torch.nn.init.kaiming_uniform_(a=sqrt(5)): 1 / sqrt(inputs). Glorot's are
// sqrt(6 / (inputs + outputs)).
TEST_F(MtTest, StartsFromTheChosenWeights) {
  const auto data = Load();
  const auto bound = [&](const std::string& init, const std::string& name) {
    return Make(*data, {{"init", init}})
        ->model()
        .named_parameters()[name + ".weight"]
        .abs()
        .max()
        .item<double>();
  };
  struct Layer {
    const char* name;
    double glorot;
    double inputs;
    bool attention;
  };
  const double qkv = std::sqrt(6. / (16 + 48)), square = std::sqrt(6. / 32);
  for (const auto& [name, glorot, inputs, attention] :
       {Layer{"encoder.0.attention.qkv", qkv, 16, true},
        Layer{"decoder.1.attention.out", square, 16, true},
        Layer{"decoder.0.cross.query", qkv, 16, true}, Layer{"decoder.0.cross.kv", qkv, 16, true},
        Layer{"encoder.1.ffn.hidden", std::sqrt(6. / 48), 16, false},
        Layer{"decoder.0.ffn.out", std::sqrt(6. / 48), 32, false}}) {
    SCOPED_TRACE(name);
    const double kaiming = 1 / std::sqrt(inputs);
    // The largest of 256 elements or more is below its bound, by more than 4% once in 30,000.
    const auto expect = [&](const std::string& init, double expected) {
      const double found = bound(init, name);
      EXPECT_LE(found, expected * (1 + 1e-6)) << init;  // a float
      EXPECT_GE(found, expected * 0.96) << init;
    };
    expect("glorot", glorot);
    expect("kaiming", kaiming);
    expect("kaiming-attention", attention ? kaiming : glorot);
  }
  EXPECT_TRUE(Make(*data, {{"init", "kaiming"}})
                  ->model()
                  .named_parameters()["encoder.0.ffn.out.bias"]
                  .eq(0)
                  .all()
                  .item<bool>());
}

// Compares the norm at each place.
TEST_F(MtTest, WiresTheNormsAsThePaperOrTheCode) {
  const auto data = Load();
  const auto norms = [&](const std::string& norm, const std::string& wiring) {
    std::vector<std::string> with_gain;
    for (const auto& item :
         Make(*data, {{"norm", norm}, {"wiring", wiring}})->model().named_parameters()) {
      const std::string name = item.key().substr(0, item.key().rfind('.'));
      if (name.ends_with("norm") && item.key().ends_with("weight")) with_gain.push_back(name);
    }
    return with_gain;
  };
  EXPECT_THAT(norms("layer", "paper"), SizeIs(2 * 2 + 2 * 3 + 2));
  EXPECT_EQ(norms("layer", "code"), norms("layer", "paper"));
  EXPECT_THAT(norms("layer-simple", "paper"), SizeIs(0));
  const auto code = norms("layer-simple", "code");
  EXPECT_THAT(code, SizeIs(2 * 2 + 2 * 3));
  for (const std::string& name : code) EXPECT_THAT(name, ::testing::Not(HasSubstr("final")));
}

// wiring=code replaces the last norm of encoder and decoder at every placement.
TEST_F(MtTest, WiresTheLastNormsAtEveryPlacement) {
  const auto data = Load();
  for (const std::string& placement : PlacementNames("pre")) {
    const auto experiment =
        Make(*data, {{"norm", "dyt"}, {"wiring", "code"}, {"placement", placement}});
    std::vector<std::string> places;
    for (const auto& item : experiment->model().named_parameters()) {
      if (item.key().ends_with(".alpha")) places.push_back(item.key());
    }
    if (placement == "post" || placement == "deepnorm") {
      EXPECT_THAT(places, ::testing::UnorderedElementsAre("encoder.1.ffn_norm.alpha",
                                                          "decoder.1.ffn_norm.alpha"));
    } else {
      EXPECT_THAT(places, ::testing::UnorderedElementsAre("encoder.final_norm.alpha",
                                                          "decoder.final_norm.alpha"));
    }
  }
}

// The encoder's factors depend on the decoder (Wang et al. 2022): 0.87 (2^4 * 2)^(-1/16) for two
// and two layers; a decoder's is (12 * 2)^(-1/4).
TEST_F(MtTest, ScalesTheWeightsOfDeepNormAsAnEncoderAndDecoder) {
  const auto data = Load();
  const auto weight = [&](const std::string& placement, const std::string& name) {
    at::manual_seed(3);
    const auto experiment = Make(*data, {{"placement", placement}});
    return experiment->model().named_parameters()[name].detach();
  };
  const auto ratio = [&](const std::string& name) {
    return (weight("deepnorm", name) / weight("pre", name)).mean().item<double>();
  };
  // Floats of size 1, a few roundings.
  EXPECT_NEAR(ratio("encoder.0.ffn.out.weight"), 0.87 * std::pow(32, -1. / 16), 1e-6);
  EXPECT_NEAR(ratio("decoder.0.ffn.out.weight"), std::pow(24, -0.25), 1e-6);
}

// Reference: the whole model in double, without padding or dropout.
at::Tensor LogitsByHand(const torch::nn::Module& model, const at::Tensor& source,
                        const at::Tensor& input, int64_t heads) {
  std::map<std::string, at::Tensor> p;
  for (const auto& item : model.named_parameters()) {
    p[item.key()] = item.value().detach().to(at::kDouble);
  }
  const int64_t width = p.at("embedding").size(1), each = width / heads;
  const auto linear = [&](const at::Tensor& x, const std::string& name) {
    return at::matmul(x, p.at(name + ".weight").t()) + p.at(name + ".bias");
  };
  const auto norm = [&](const at::Tensor& x, const std::string& name) {
    const at::Tensor centred = x - x.mean(1, true);
    return centred / (centred.square().mean(1, true) + 1e-5).sqrt() * p.at(name + ".norm.weight") +
           p.at(name + ".norm.bias");
  };
  const auto embed = [&](const at::Tensor& pieces) {
    at::Tensor x = p.at("embedding").index_select(0, pieces) * std::sqrt(width);
    for (int64_t t = 0; t < x.size(0); ++t) {
      for (int64_t i = 0; i < width; ++i) {
        const double angle =
            static_cast<double>(t) /
            std::pow(10000.0, static_cast<double>(i / 2 * 2) / static_cast<double>(width));
        x[t][i] += i % 2 == 0 ? std::sin(angle) : std::cos(angle);
      }
    }
    return x;
  };
  const auto attend = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          bool causal) {
    std::vector<at::Tensor> parts;
    for (int64_t h = 0; h < heads; ++h) {
      const auto part = [&](const at::Tensor& x) { return x.slice(1, h * each, (h + 1) * each); };
      at::Tensor scores = at::matmul(part(q), part(k).t()) / std::sqrt(each);
      if (causal) {
        scores = scores.masked_fill(at::ones({q.size(0), k.size(0)}, at::kBool).triu(1),
                                    -std::numeric_limits<double>::infinity());
      }
      parts.push_back(at::matmul(scores.softmax(1), part(v)));
    }
    return at::cat(parts, 1);
  };
  const auto self = [&](const at::Tensor& x, const std::string& at_layer, bool causal) {
    const auto qkv =
        linear(norm(x, at_layer + "attention_norm"), at_layer + "attention.qkv").chunk(3, 1);
    return x + linear(attend(qkv[0], qkv[1], qkv[2], causal), at_layer + "attention.out");
  };
  const auto ffn = [&](const at::Tensor& x, const std::string& at_layer) {
    return x + linear(linear(norm(x, at_layer + "ffn_norm"), at_layer + "ffn.hidden").relu(),
                      at_layer + "ffn.out");
  };
  at::Tensor x = embed(source);
  for (const std::string layer : {"encoder.0.", "encoder.1."}) {
    x = ffn(self(x, layer, false), layer);
  }
  const at::Tensor memory = norm(x, "encoder.final_norm");
  x = embed(input);
  for (const std::string layer : {"decoder.0.", "decoder.1."}) {
    x = self(x, layer, true);
    const at::Tensor q = linear(norm(x, layer + "cross_norm"), layer + "cross.query");
    const auto kv = linear(memory, layer + "cross.kv").chunk(2, 1);
    x = x + linear(attend(q, kv[0], kv[1], false), layer + "cross.out");
    x = ffn(x, layer);
  }
  return at::matmul(norm(x, "decoder.final_norm"), p.at("embedding").t());
}

// Compares the loss of a padded batch with smoothed labels with sums over pieces, and the measured
// losses with those without smoothing.
TEST_F(MtTest, MatchesTheReferenceLoss) {
  const auto data = Load();
  const auto& corpus = dynamic_cast<const Corpus&>(*data);
  const auto experiment = Make(*data, {{"label_smoothing", "0.2"}});
  experiment->model().eval();
  const at::NoGradGuard no_grad;
  for (at::Tensor& weight : experiment->model().parameters()) weight.mul_(1.5);
  const auto pieces = static_cast<double>(corpus.bpe.size());
  double smoothed = 0, count = 0;
  for (const int64_t i : {3, 8, 0}) {
    const at::Tensor source =
        corpus.train.source.rows[i].slice(0, 0, corpus.train.source.lengths[i].item<int64_t>());
    const at::Tensor target =
        corpus.train.target.rows[i].slice(0, 0, corpus.train.target.lengths[i].item<int64_t>());
    const at::Tensor input = at::cat({at::full({1}, Bpe::kEnd, at::kInt), target.slice(0, 0, -1)});
    const at::Tensor chances = LogitsByHand(experiment->model(), source, input, 2).log_softmax(1);
    for (int64_t t = 0; t < target.size(0); ++t) {
      smoothed -= 0.8 * chances[t][target[t].item<int64_t>()].item<double>() +
                  0.2 / pieces * chances[t].sum().item<double>();
      ++count;
    }
  }
  const at::Tensor cases = at::tensor({3, 8, 0}, at::kLong);
  // Floats against doubles through four layers: values of size 10, some hundred roundings of 6e-8.
  EXPECT_NEAR(experiment->Loss(experiment->Batch(cases)).item<double>(), smoothed / count, 2e-5);

  double nats = 0, right = 0, all = 0;
  for (int64_t i = 0; i < corpus.valid.size(); ++i) {
    const at::Tensor source =
        corpus.valid.source.rows[i].slice(0, 0, corpus.valid.source.lengths[i].item<int64_t>());
    const at::Tensor target =
        corpus.valid.target.rows[i].slice(0, 0, corpus.valid.target.lengths[i].item<int64_t>());
    const at::Tensor input = at::cat({at::full({1}, Bpe::kEnd, at::kInt), target.slice(0, 0, -1)});
    const at::Tensor chances = LogitsByHand(experiment->model(), source, input, 2).log_softmax(1);
    nats -= chances.gather(1, target.to(at::kLong).unsqueeze(1)).sum().item<double>();
    right += (chances.argmax(1) == target).sum().item<double>();
    all += static_cast<double>(target.size(0));
  }
  const Values values = experiment->Evaluate();
  EXPECT_NEAR(values.at("valid_nats"), nats / all, 2e-5);
  EXPECT_NEAR(values.at("valid_accuracy"), right / all, 1.5 / all);  // a tie can go either way
}

TEST_F(MtTest, MeasuresEveryMetricItDeclares) {
  const auto data = Load();
  const auto experiment = Make(*data);
  experiment->model().eval();
  const at::NoGradGuard no_grad;
  std::vector<std::string> names = {kTrainLoss};
  for (const Values& values : {experiment->Evaluate(), experiment->Test()}) {
    for (const auto& [name, value] : values) names.push_back(name);
  }
  std::vector<std::string> declared;
  for (const MetricSpec& metric : task->metrics) declared.push_back(metric.name);
  EXPECT_THAT(names, ::testing::UnorderedElementsAreArray(declared));
}

TEST_F(MtTest, LearnsToTranslate) {
  const Sets sets = {{"dropout", "0"},      {"attention_dropout", "0"}, {"activation_dropout", "0"},
                     {"train_pairs", "12"}, {"label_smoothing", "0"},   {"lr", "0.005"},
                     {"width", "32"}};
  const auto data = Load(sets);
  const auto& corpus = dynamic_cast<const Corpus&>(*data);
  const std::vector<at::Tensor> batch = {at::arange(corpus.train.size())};
  // Losses start at ln 200 = 5.3 or more; norms with detached statistics progress less (Xu et al.
  // 2019, 3.2).
  for (const std::string& norm : NormsOfTask()) {
    Sets with_norm = sets;
    with_norm.push_back({"norm", norm});
    const auto experiment = Make(*data, with_norm);
    experiment->model().train();
    const auto optimizer = task->MakeOptimizer(ParametersOf(experiment->model()), Smoke(with_norm));
    double loss = 0;
    for (int i = 0; i < 40; ++i) loss = UpdateWeights(*experiment, *optimizer, batch).loss;
    EXPECT_LT(loss, 4) << norm;
    if (norm != "layer") continue;
    for (int i = 0; i < 110; ++i) loss = UpdateWeights(*experiment, *optimizer, batch).loss;
    EXPECT_LT(loss, 0.1);
    experiment->model().eval();
    const at::NoGradGuard no_grad;
    std::vector<std::string> sources, targets;
    for (const SentencePair& pair : corpus.train.text) {
      sources.push_back(pair.source);
      targets.push_back(pair.target);
    }
    const auto ours = dynamic_cast<LineTranslator&>(*experiment).Translate(sources);
    EXPECT_GT(CorpusBleu(ours, targets).score, 90);
  }
}

TEST_F(MtTest, ResumesWithTheSameBits) {
  for (const std::string norm : {"layer", "ada"}) {
    SCOPED_TRACE(norm);
    ExpectExactResume(*task,
                      {{"norm", norm}, {"accumulate", "2"}, {"bleu_sentences", "3"}, {"beam", "1"}},
                      {1, 2});
  }
  for (const std::string placement : {"post", "peri", "deepnorm"}) {
    SCOPED_TRACE(placement);
    ExpectExactResume(
        *task,
        {{"norm", "rms"}, {"placement", placement}, {"qk_norm", "true"}, {"bleu_sentences", "3"}},
        {1, 2});
  }
}

TEST_F(MtTest, TranslatesLinesInOrder) {
  const auto data = Load();
  const auto experiment = Make(*data);
  experiment->model().eval();
  const at::NoGradGuard no_grad;
  auto& translator = dynamic_cast<LineTranslator&>(*experiment);
  EXPECT_THAT(translator.Translate({}), SizeIs(0));
  std::vector<std::string> lines;
  for (int i = 0; i < 40; ++i) {
    lines.push_back(i % 7 == 3 ? "" : std::string(static_cast<size_t>(i), 'a') + " der Hund Ж");
  }
  const auto together = translator.Translate(lines);
  ASSERT_THAT(together, SizeIs(40));
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(together[i], translator.Translate({lines[i]}).at(0)) << i;
    if (lines[i].empty()) {
      EXPECT_EQ(together[i], "");
    }
  }
}

TEST_F(MtTest, RefusesBatchesSmallerThanASentence) {
  const auto data = Load();
  EXPECT_NO_THROW(task->Check(Smoke(), *data));
  try {
    task->Check(Smoke({{"batch_size", "8"}}), *data);
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_THAT(e.what(), HasSubstr("pieces of the longest training pair, got 8"));
  }
}

TEST_F(MtTest, HasBothDirections) {
  const auto there = Load({{"direction", "en-de"}}), back = Load({{"direction", "de-en"}});
  const auto& a = dynamic_cast<const Corpus&>(*there);
  const auto& b = dynamic_cast<const Corpus&>(*back);
  EXPECT_EQ(a.train.text[0].source, b.train.text[0].target);
  EXPECT_EQ(there->about.name, "synthetic en-de");
}

TEST_F(MtTest, TrainsOnRealPairs) {
  const std::optional<fs::path> path = DataFolder("");
  if (!path || !fs::exists(*path / "multi30k")) {
    GTEST_SKIP() << "PLANISH_DATA does not name a folder with multi30k";
  }
  const Settings settings = Chosen("small", {{"train_pairs", "500"}, {"vocabulary", "500"}});
  const auto data = task->Load(settings, path);
  EXPECT_EQ(data->about.name, "multi30k de-en");
  EXPECT_EQ(data->about.sizes.at("test"), 1000);
  at::manual_seed(1);
  const auto experiment = task->Make(settings, *data);
  experiment->model().train();
  const auto optimizer = task->MakeOptimizer(ParametersOf(experiment->model()), settings);
  at::Generator order = Generator(1);
  const EpochPlan plan = experiment->PlanEpoch(order);
  double first = 0, last = 0;
  for (int64_t b = 0; b < 5; ++b) {
    last = UpdateWeights(*experiment, *optimizer, {{plan.batch(0)}}).loss;
    if (b == 0) first = last;
  }
  EXPECT_LT(last, first);
}

}  // namespace
}  // namespace planish::lab
