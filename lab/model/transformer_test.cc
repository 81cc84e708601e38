#include "lab/model/transformer.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "lab/error.h"
#include "lab/model/parameter_count.h"

namespace planish::lab {
namespace {

using ::testing::ElementsAre;

using Weights = std::map<std::string, at::Tensor>;

constexpr double kEpsilon = 1e-5;

TEST(InitialWeights, HaveNames) {
  EXPECT_THAT(InitialWeightsNames(), ElementsAre("glorot", "kaiming", "kaiming-attention"));
  EXPECT_EQ(InitialWeightsOf("kaiming-attention"), InitialWeights::kKaimingAttention);
  try {
    InitialWeightsOf("he");
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_STREQ(e.what(),
                 "[InitialWeightsOf] init must be one of glorot, kaiming, kaiming-attention, got "
                 "\"he\"");
  }
}

// Results of size 1 to 10 from sums of some tens of terms in double, a few layers deep.
constexpr double kDouble = 1e-12;

TransformerOptions Small() {
  return {.layers = 2,
          .width = 12,
          .heads = 3,
          .ffn = 20,
          .dropout = 0.1,
          .attention_dropout = 0.2,
          .activation_dropout = 0.3,
          .norm = "layer",
          .final_norm = "layer",
          .norm_options = {.epsilon = kEpsilon}};
}

// Redraws all parameters, so that biases and gains matter, and returns them.
Weights Randomise(torch::nn::Module& model) {
  at::NoGradGuard no_grad;
  model.to(at::kDouble);
  Weights weights;
  for (auto& item : model.named_parameters()) {
    weights[item.key()] = item.value().copy_(at::randn_like(item.value()) * 0.5);
  }
  return weights;
}

double Distance(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

// Reference Transformer for one sequence without padding, x [T, D], one head at a time.
class Plain {
 public:
  Plain(Weights weights, const TransformerOptions& options)
      : w_(std::move(weights)), heads_(options.heads), options_(options) {}

  // Two layers.
  at::Tensor Encode(at::Tensor x) const {
    const double alpha = options_.placement == Placement::kDeepNorm ? std::pow(4, 0.25) : 1;
    x = Start(x);
    for (const std::string at : {"0.", "1."}) {
      x = Sum(at + "attention", x, alpha,
              [&](const at::Tensor& in) { return SelfAttention(at + "attention.", in, false); });
      x = Sum(at + "ffn", x, alpha,
              [&](const at::Tensor& in) { return FeedForward(at + "ffn.", in); });
    }
    return End(x);
  }

  at::Tensor Decode(at::Tensor x, const at::Tensor& memory) const {
    const double alpha = options_.placement == Placement::kDeepNorm ? std::pow(6, 0.25) : 1;
    x = Start(x);
    for (const std::string at : {"0.", "1."}) {
      x = Sum(at + "attention", x, alpha,
              [&](const at::Tensor& in) { return SelfAttention(at + "attention.", in, true); });
      x = Sum(at + "cross", x, alpha, [&](const at::Tensor& in) {
        const at::Tensor kv = Linear(at + "cross.kv", memory);
        return Linear(at + "cross.out", Heads(at + "cross.", Linear(at + "cross.query", in),
                                              kv.chunk(2, 1)[0], kv.chunk(2, 1)[1], false));
      });
      x = Sum(at + "ffn", x, alpha,
              [&](const at::Tensor& in) { return FeedForward(at + "ffn.", in); });
    }
    return End(x);
  }

 private:
  bool IsPost() const {
    return options_.placement == Placement::kPost || options_.placement == Placement::kDeepNorm;
  }

  at::Tensor Start(const at::Tensor& x) const {
    return options_.placement == Placement::kPeri ? Norm("embedding_norm", x) : x;
  }
  at::Tensor End(const at::Tensor& x) const { return IsPost() ? x : Norm("final_norm", x); }

  // Returns the stream x after the sublayer f.
  template <class F>
  at::Tensor Sum(const std::string& name, const at::Tensor& x, double alpha, const F& f) const {
    if (IsPost()) return Norm(name + "_norm", alpha * x + f(x));
    const at::Tensor y = f(Norm(name + "_norm", x));
    return x + (options_.placement == Placement::kPre ? y : Norm(name + "_out_norm", y));
  }

  at::Tensor Linear(const std::string& name, const at::Tensor& x) const {
    return at::matmul(x, w_.at(name + ".weight").t()) + w_.at(name + ".bias");
  }

  at::Tensor Norm(const std::string& name, const at::Tensor& x) const {
    const at::Tensor centred = x - x.mean(1, true);
    const at::Tensor xhat = centred / (centred.square().mean(1, true) + kEpsilon).sqrt();
    return xhat * w_.at(name + ".norm.weight") + w_.at(name + ".norm.bias");
  }

  at::Tensor SelfAttention(const std::string& name, const at::Tensor& x, bool causal) const {
    const auto qkv = Linear(name + "qkv", x).chunk(3, 1);
    return Linear(name + "out", Heads(name, qkv[0], qkv[1], qkv[2], causal));
  }

  // With `causal`, position t sees the first t + 1 positions; otherwise all.
  at::Tensor Heads(const std::string& name, const at::Tensor& q, const at::Tensor& k,
                   const at::Tensor& v, bool causal) const {
    const int64_t size = q.size(1) / heads_;
    std::vector<at::Tensor> positions;
    for (int64_t t = 0; t < q.size(0); ++t) {
      const int64_t seen = causal ? t + 1 : k.size(0);
      std::vector<at::Tensor> heads;
      for (int64_t h = 0; h < heads_; ++h) {
        const auto part = [&](const at::Tensor& x) { return x.slice(1, h * size, (h + 1) * size); };
        const auto normed = [&](const char* which, const at::Tensor& x) {
          return options_.qk_norm ? Norm(name + which, part(x)) : part(x);
        };
        const at::Tensor e =
            (at::mv(normed("key_norm", k).slice(0, 0, seen), normed("query_norm", q)[t]) /
             std::sqrt(size))
                .exp();
        heads.push_back(at::mv(part(v).slice(0, 0, seen).t(), e / e.sum()));
      }
      positions.push_back(at::cat(heads));
    }
    return at::stack(positions);
  }

  at::Tensor FeedForward(const std::string& name, const at::Tensor& x) const {
    return Linear(name + "out", Linear(name + "hidden", x).clamp_min(0));
  }

  Weights w_;
  int64_t heads_;
  TransformerOptions options_;
};

// Returns Small() with each placement, without and with norms of queries and keys.
std::vector<TransformerOptions> Placements() {
  std::vector<TransformerOptions> all;
  for (const std::string& name : PlacementNames("pre")) {
    for (const bool qk_norm : {false, true}) {
      all.push_back(Small());
      all.back().placement = PlacementOf(name);
      all.back().qk_norm = qk_norm;
    }
  }
  return all;
}

class TransformerTest : public ::testing::Test {
 protected:
  void SetUp() override { at::manual_seed(1); }
};

TEST_F(TransformerTest, KnowsPositionsByTheirSinusoids) {
  const at::Tensor positions = SinusoidalPositions(50, 6);
  ASSERT_THAT(positions.sizes(), ElementsAre(50, 6));
  for (int p = 0; p < 50; ++p) {
    for (int i = 0; i < 3; ++i) {
      const double angle = p / std::pow(10000.0, 2 * i / 6.0);
      // Rounded to float once, from values of at most 1.
      EXPECT_NEAR(positions[p][2 * i].item<double>(), std::sin(angle), 1e-7);
      EXPECT_NEAR(positions[p][2 * i + 1].item<double>(), std::cos(angle), 1e-7);
    }
  }
  EXPECT_THROW(SinusoidalPositions(3, 5), UsageError);
}

TEST_F(TransformerTest, MasksPadding) {
  constexpr double kMinus = -std::numeric_limits<double>::infinity();
  const at::Tensor mask = PaddingMask(at::tensor(std::vector<int64_t>{2, 3, 1}), 3);
  ASSERT_THAT(mask.sizes(), ElementsAre(3, 1, 1, 3));
  const at::Tensor expected =
      at::tensor({0.0, 0.0, kMinus, 0.0, 0.0, 0.0, 0.0, kMinus, kMinus}).to(at::kFloat);
  EXPECT_TRUE(mask.flatten().equal(expected));
  EXPECT_FALSE(PaddingMask(at::tensor(std::vector<int64_t>{3, 3}), 3).defined());
}

// Compares with sequences computed separately without padding. Here huge values fill the padding.
TEST_F(TransformerTest, EncoderMatchesTheReference) {
  for (const TransformerOptions& options : Placements()) {
    TransformerEncoder encoder(options);
    const Plain plain(Randomise(encoder), options);
    encoder.eval();
    const std::vector<int64_t> lengths = {5, 7, 1};
    at::Tensor x = at::randn({3, 7, 12}, at::kDouble);
    for (int64_t b = 0; b < 3; ++b) x[b].slice(0, lengths[b]).fill_(1e30);
    const at::Tensor y = encoder.forward(x, PaddingMask(at::tensor(lengths), 7));
    for (int64_t b = 0; b < 3; ++b) {
      const at::Tensor expected = plain.Encode(x[b].slice(0, 0, lengths[b]));
      EXPECT_LT(Distance(y[b].slice(0, 0, lengths[b]), expected), kDouble) << b;
    }
    // Without padding there is no mask.
    const at::Tensor whole = encoder.forward(x.slice(0, 1, 2), {});
    EXPECT_LT(Distance(whole[0], plain.Encode(x[1])), kDouble);
  }
}

TEST_F(TransformerTest, DecoderMatchesTheReference) {
  for (const TransformerOptions& options : Placements()) {
    TransformerDecoder decoder(options);
    const Plain plain(Randomise(decoder), options);
    decoder.eval();
    const at::Tensor x = at::randn({2, 6, 12}, at::kDouble);
    at::Tensor memory = at::randn({2, 4, 12}, at::kDouble);
    memory[1].slice(0, 3).fill_(1e30);
    const at::Tensor y =
        decoder.forward(x, memory, PaddingMask(at::tensor(std::vector<int64_t>{4, 3}), 4));
    EXPECT_LT(Distance(y[0], plain.Decode(x[0], memory[0])), kDouble);
    EXPECT_LT(Distance(y[1], plain.Decode(x[1], memory[1].slice(0, 0, 3))), kDouble);
  }
}

// A beam search of 2 over 3 sequences, the first of which is dropped on the way, must match the
// whole sequences at each step.
void ExpectStepsEqualWholeSequences(const TransformerOptions& options) {
  TransformerDecoder decoder(options);
  Randomise(decoder);
  decoder.eval();
  at::NoGradGuard no_grad;
  const auto index = [](std::vector<int64_t> rows) { return at::tensor(rows); };
  at::Tensor memory = at::randn({3, 5, 12}, at::kDouble);
  at::Tensor lengths = index({5, 2, 4});
  DecoderState state = decoder.Start(memory, PaddingMask(lengths, 5));

  at::Tensor tokens = at::randn({3, 1, 12}, at::kDouble);  // all positions so far
  const auto step = [&] {
    const int64_t k = tokens.size(0) / memory.size(0);
    const at::Tensor whole = decoder.forward(tokens, memory.repeat_interleave(k, 0),
                                             PaddingMask(lengths.repeat_interleave(k), 5));
    const at::Tensor y = decoder.Step(tokens.slice(1, -1), state);
    EXPECT_THAT(y.sizes(), ElementsAre(tokens.size(0), 1, 12));
    // Relative to larger results, which models without a norm have.
    const double size = std::max(1.0, whole.abs().max().item<double>() / 10);
    EXPECT_LT(Distance(y.select(1, 0), whole.select(1, -1)), kDouble * size);
  };
  const auto go_on = [&](const at::Tensor& rows) {
    tokens =
        at::cat({tokens.index_select(0, rows), at::randn({rows.size(0), 1, 12}, at::kDouble)}, 1);
    state.Reorder(rows);
    step();
  };
  step();
  go_on(index({0, 0, 1, 1, 2, 2}));
  go_on(index({1, 0, 2, 2, 5, 4}));
  // The first sequence has ended.
  const at::Tensor rest = index({1, 2});
  memory = memory.index_select(0, rest);
  lengths = lengths.index_select(0, rest);
  state.ReorderMemory(rest);
  go_on(index({3, 2, 5, 5}));
  go_on(index({1, 0, 2, 3}));
}

TEST_F(TransformerTest, StepsEqualWholeSequences) {
  for (const TransformerOptions& options : Placements()) ExpectStepsEqualWholeSequences(options);
  for (const std::string& norm : RowNormNames("layer")) {
    TransformerOptions options = Small();
    options.norm = options.final_norm = norm;
    options.placement = Placement::kPeri;
    options.qk_norm = true;
    ExpectStepsEqualWholeSequences(options);
  }
}

TEST_F(TransformerTest, HeadsCanHaveWidthOne) {
  for (const bool qk_norm : {false, true}) {
    TransformerOptions options = Small();
    options.heads = options.width;
    options.norm = options.final_norm = "dyt";
    options.qk_norm = qk_norm;
    ExpectStepsEqualWholeSequences(options);
    TransformerDecoder decoder(options);
    const at::Tensor x = at::randn({4, 3, 12}), memory = at::randn({4, 5, 12});
    for (const auto& item : decoder.named_modules("", /*include_self=*/false)) {
      if (auto norm = std::dynamic_pointer_cast<NormModule>(item.value())) norm->Watch();
    }
    decoder.forward(x, memory, PaddingMask(at::tensor(std::vector<int64_t>{5, 2, 3, 4}), 5))
        .sum()
        .backward();
  }
}

TEST_F(TransformerTest, LaterPositionsLeaveEarlierOnesUnchanged) {
  TransformerDecoder decoder(Small());
  decoder.eval();
  const at::Tensor memory = at::randn({1, 3, 12});
  at::Tensor x = at::randn({1, 6, 12});
  const at::Tensor before = decoder.forward(x, memory, {}).slice(1, 0, 4).clone();
  x.slice(1, 4).add_(1);
  EXPECT_TRUE(decoder.forward(x, memory, {}).slice(1, 0, 4).equal(before));
}

// A rate of 1 drops everything.
TEST_F(TransformerTest, DropsAtTheDocumentedPlaces) {
  const at::Tensor x = at::randn({2, 4, 12}, at::kDouble),
                   memory = at::randn({2, 3, 12}, at::kDouble);
  TransformerOptions options = Small();
  options.layers = 1;
  options.norm = options.final_norm = "none";
  options.dropout = options.attention_dropout = options.activation_dropout = 0;
  const auto encode = [&](const TransformerOptions& o, bool train) {
    at::manual_seed(2);
    TransformerEncoder encoder(o);
    Randomise(encoder);
    encoder.train(train);
    return encoder.forward(x, {});
  };
  const at::Tensor full = encode(options, false);
  EXPECT_TRUE(encode(options, true).equal(full));

  TransformerOptions all = options;
  all.dropout = 1;
  EXPECT_TRUE(encode(all, true).equal(x));
  EXPECT_TRUE(encode(all, false).equal(full));
  TransformerDecoder decoder(all);
  decoder.to(at::kDouble);
  EXPECT_TRUE(decoder.forward(x, memory, {}).equal(x));

  // The result of a sublayer is then its last bias.
  TransformerOptions some = options;
  some.activation_dropout = 1;
  at::manual_seed(2);
  FeedForward ffn(some);
  const Weights w = Randomise(ffn);
  EXPECT_LT(Distance(ffn.forward(x), w.at("out.bias").expand({2, 4, 12})), kDouble);
  some.attention_dropout = 1;
  SelfAttention attention(some);
  const Weights a = Randomise(attention);
  EXPECT_LT(Distance(attention.forward(x, {}, false), a.at("out.bias").expand({2, 4, 12})),
            kDouble);
  CrossAttention cross(some);
  const Weights c = Randomise(cross);
  EXPECT_LT(
      Distance(cross.forward(x, cross.Project(memory), {}), c.at("out.bias").expand({2, 4, 12})),
      kDouble);
  attention.eval();
  EXPECT_GT(Distance(attention.forward(x, {}, false), a.at("out.bias").expand({2, 4, 12})), 0.01);
}

// Attention with dropout is composed of other operators: at a rate that rounds to 0 it equals the
// fused one, including masks.
TEST_F(TransformerTest, AttentionWithAndWithoutDropoutAgrees) {
  TransformerOptions options = Small();
  options.dropout = options.activation_dropout = 0;
  options.attention_dropout = 1e-9;
  TransformerDecoder decoder(options);
  Randomise(decoder);
  const at::Tensor x = at::randn({2, 6, 12}, at::kDouble),
                   memory = at::randn({2, 3, 12}, at::kDouble);
  const at::Tensor mask = PaddingMask(at::tensor(std::vector<int64_t>{3, 2}), 3);
  const at::Tensor composed = decoder.forward(x, memory, mask);
  decoder.eval();
  EXPECT_LT(Distance(decoder.forward(x, memory, mask), composed), kDouble);
}

TEST_F(TransformerTest, HasTheKnownSizes) {
  const auto attention = [](int64_t d) { return 4 * (d * d + d); };
  const auto ffn = [](int64_t d, int64_t f) { return d * f + f + f * d + d; };
  TransformerOptions base;  // Vaswani et al.'s base model
  // torch.nn.Transformer(), which is pre-norm's size too, has 44,140,544 parameters.
  EXPECT_EQ(ParameterCount(TransformerEncoder(base)),
            6 * (attention(512) + ffn(512, 2048) + 4 * 512) + 1024);
  EXPECT_EQ(ParameterCount(TransformerEncoder(base)) + ParameterCount(TransformerDecoder(base)),
            44'140'544);
  // transformer_iwslt_de_en without embeddings.
  TransformerOptions iwslt{.heads = 4, .ffn = 1024};
  EXPECT_EQ(ParameterCount(TransformerDecoder(iwslt)),
            6 * (2 * attention(512) + ffn(512, 1024) + 6 * 512) + 1024);
}

TEST_F(TransformerTest, LayersAndEndCanHaveDifferentNorms) {
  const auto norms = [](const torch::nn::Module& model) {
    std::vector<std::string> names;
    for (const auto& item : model.named_parameters()) {
      if (item.key().find("norm.norm.weight") != std::string::npos) names.push_back(item.key());
    }
    return names;
  };
  TransformerOptions options = Small();
  options.layers = 1;
  options.final_norm = "none";
  EXPECT_THAT(norms(TransformerEncoder(options)),
              ElementsAre("0.attention_norm.norm.weight", "0.ffn_norm.norm.weight"));
  EXPECT_THAT(norms(TransformerDecoder(options)),
              ElementsAre("0.attention_norm.norm.weight", "0.cross_norm.norm.weight",
                          "0.ffn_norm.norm.weight"));
  std::swap(options.norm, options.final_norm);
  EXPECT_THAT(norms(TransformerEncoder(options)), ElementsAre("final_norm.norm.weight"));
  EXPECT_THAT(norms(TransformerDecoder(options)), ElementsAre("final_norm.norm.weight"));
}

// Uniform up to sqrt(6 / (inputs + outputs)), where queries, keys and values are one matrix: of
// some thousand values the largest is near that.
TEST_F(TransformerTest, StartsAllNormsFromTheSameWeights) {
  TransformerOptions options{.layers = 1, .width = 64, .heads = 4, .ffn = 96};
  std::map<std::string, double> bounds = {{"0.attention.qkv.weight", std::sqrt(6.0 / 256)},
                                          {"0.attention.out.weight", std::sqrt(6.0 / 128)},
                                          {"0.cross.query.weight", std::sqrt(6.0 / 256)},
                                          {"0.cross.kv.weight", std::sqrt(6.0 / 256)},
                                          {"0.cross.out.weight", std::sqrt(6.0 / 128)},
                                          {"0.ffn.hidden.weight", std::sqrt(6.0 / 160)},
                                          {"0.ffn.out.weight", std::sqrt(6.0 / 160)}};
  Weights first;
  for (const std::string& norm : NormNames()) {
    options.norm = options.final_norm = norm;
    at::manual_seed(4);
    TransformerDecoder decoder(options);
    Weights now;
    for (const auto& item : decoder.named_parameters()) {
      if (item.key().find("norm") == std::string::npos) now[item.key()] = item.value();
    }
    ASSERT_EQ(now.size(), 14u);
    if (first.empty()) first = now;
    for (const auto& [name, w] : now) EXPECT_TRUE(w.equal(first[name])) << norm << " " << name;
  }
  for (const auto& [name, w] : first) {
    const double largest = w.abs().max().item<double>();
    if (name.ends_with("bias")) {
      EXPECT_EQ(largest, 0) << name;
    } else {
      EXPECT_LE(largest, bounds.at(name) * (1 + 1e-6)) << name;
      EXPECT_GT(largest, bounds.at(name) * 0.99) << name;
    }
  }
}

// Without a norm at the end, the last norm of the last layer is the final one.
TEST_F(TransformerTest, EveryPlacementHasItsNorms) {
  const auto norms = [](const torch::nn::Module& model, const std::string& name) {
    std::vector<std::string> places;
    for (const auto& item : model.named_parameters()) {
      if (item.key().ends_with(name)) places.push_back(item.key());
    }
    std::ranges::sort(places);
    return places;
  };
  TransformerOptions options = Small();
  options.layers = 1;
  options.norm = "dyt";
  for (const Placement placement : {Placement::kPost, Placement::kDeepNorm}) {
    options.placement = placement;
    const TransformerDecoder decoder(options);
    EXPECT_THAT(norms(decoder, "alpha"),
                ElementsAre("0.attention_norm.alpha", "0.cross_norm.alpha"));
    EXPECT_THAT(norms(decoder, "norm.norm.weight"), ElementsAre("0.ffn_norm.norm.weight"));
  }
  options.qk_norm = true;
  options.placement = Placement::kPeri;
  EXPECT_THAT(norms(TransformerEncoder(options), "alpha"),
              ElementsAre("0.attention.key_norm.alpha", "0.attention.query_norm.alpha",
                          "0.attention_norm.alpha", "0.attention_out_norm.alpha",
                          "0.ffn_norm.alpha", "0.ffn_out_norm.alpha", "embedding_norm.alpha"));
  options.placement = Placement::kSandwich;
  const TransformerEncoder sandwich(options);
  EXPECT_THAT(norms(sandwich, "embedding_norm.alpha"), ElementsAre());
  EXPECT_THAT(norms(sandwich, "norm.norm.weight"), ElementsAre("final_norm.norm.weight"));
}

// DeepNorm scales the weights of values, outputs and feed-forward; all draws are the same.
TEST_F(TransformerTest, EveryPlacementStartsFromTheSameDraws) {
  TransformerOptions options = Small();
  const auto weights = [&](Placement placement) {
    options.placement = placement;
    at::manual_seed(7);
    Weights all;
    TransformerEncoder encoder(options);
    TransformerDecoder decoder(options);
    for (const auto& item : encoder.named_parameters()) all["e." + item.key()] = item.value();
    for (const auto& item : decoder.named_parameters()) all["d." + item.key()] = item.value();
    std::erase_if(all,
                  [](const auto& item) { return item.first.find("norm") != std::string::npos; });
    return all;
  };
  const Weights pre = weights(Placement::kPre);
  for (const std::string& name : PlacementNames("pre")) {
    for (const auto& [key, weight] : weights(PlacementOf(name))) {
      at::Tensor expected = pre.at(key).clone();
      const bool scaled =
          name == "deepnorm" && key.ends_with("weight") && key.find("query") == std::string::npos;
      if (scaled) {
        // Encoder: (8 * 2)^(-1/4); decoder: (12 * 2)^(-1/4).
        const double beta = key[0] == 'e' ? 0.5 : std::pow(24, -0.25);
        const int64_t first = key.find("qkv") != std::string::npos  ? 24
                              : key.find("kv") != std::string::npos ? 12
                                                                    : 0;
        const at::NoGradGuard no_grad;
        expected.slice(0, first).mul_(beta);
      }
      EXPECT_TRUE(weight.equal(expected)) << name << " " << key;
    }
  }
}

TEST_F(TransformerTest, RefusesHeadsThatDoNotDivideTheWidth) {
  TransformerOptions options = Small();
  options.heads = 5;
  EXPECT_THROW(TransformerEncoder{options}, UsageError);
  EXPECT_THROW(CrossAttention{options}, UsageError);
}

}  // namespace
}  // namespace planish::lab
