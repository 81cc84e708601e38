#include "lab/model/transformer_xl.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

namespace planish::lab {
namespace {

TransformerXl::Options Small() {
  return {.symbols = 7, .layers = 3, .width = 6, .heads = 2, .head_width = 4, .inner = 5};
}

// Returns Small() with each placement, without and with norms of queries and keys.
std::vector<TransformerXl::Options> Placements() {
  std::vector<std::string> names = PlacementNames("post");
  names.emplace_back(kPreNoFinalName);
  std::vector<TransformerXl::Options> all;
  for (const std::string& name : names) {
    for (const bool qk_norm : {false, true}) {
      all.push_back(Small());
      all.back().placement = PlacementOf(name);
      all.back().qk_norm = qk_norm;
    }
  }
  return all;
}

// Returns a model of doubles in evaluation mode. Its weights are large enough for attention to be
// far from uniform, and its gains and biases differ from their initial values.
std::shared_ptr<TransformerXl> Model(TransformerXl::Options options) {
  at::manual_seed(3);
  options.deviation = 0.5;
  auto model = std::make_shared<TransformerXl>(options);
  model->to(at::kDouble);
  model->eval();
  const at::NoGradGuard no_grad;
  for (at::Tensor& weight : model->parameters()) {
    if (weight.dim() == 1) weight.add_(at::randn_like(weight), 0.3);
  }
  return model;
}

at::Tensor Symbols(int64_t batch, int64_t length) {
  at::Generator generator = at::detail::createCPUGenerator(5);
  return at::randint(7, {batch, length}, generator, at::kLong);
}

std::map<std::string, at::Tensor> Weights(const TransformerXl& model) {
  std::map<std::string, at::Tensor> weights;
  for (const auto& item : model.named_parameters()) weights[item.key()] = item.value().detach();
  return weights;
}

// Reference: the model for one whole sequence [T], position by position.
at::Tensor WrittenOut(const TransformerXl& model, const TransformerXl::Options& o,
                      const at::Tensor& x, int64_t window, int64_t clamp) {
  const auto p = Weights(model);
  const int64_t length = x.size(0);
  const bool is_post = o.placement == Placement::kPost || o.placement == Placement::kDeepNorm;
  const bool has_two = o.placement == Placement::kPeri || o.placement == Placement::kSandwich;
  const double alpha =
      o.placement == Placement::kDeepNorm ? std::pow(2 * static_cast<double>(o.layers), 0.25) : 1;
  const auto norm = [&](const at::Tensor& row, const std::string& name) {
    if (o.norm == "none") return row;
    const at::Tensor centred = row - row.mean();
    return centred / (centred.square().mean() + 1e-5).sqrt() * p.at(name + ".norm.weight") +
           p.at(name + ".norm.bias");
  };
  const auto sinusoid = [&](int64_t distance) {
    std::vector<double> row;
    for (const bool cosine : {false, true}) {
      for (int64_t i = 0; i < o.width; i += 2) {
        const double angle =
            static_cast<double>(distance) /
            std::pow(10000.0, static_cast<double>(i) / static_cast<double>(o.width));
        row.push_back(cosine ? std::cos(angle) : std::sin(angle));
      }
    }
    return at::tensor(row, at::kDouble);
  };
  std::vector<at::Tensor> rows;
  for (int64_t t = 0; t < length; ++t) {
    rows.push_back(p.at("embedding.weight")[x[t].item<int64_t>()] *
                   std::sqrt(static_cast<double>(o.width)));
    if (o.placement == Placement::kPeri) rows.back() = norm(rows.back(), "embedding_norm");
  }
  for (int64_t layer = 0; layer < o.layers; ++layer) {
    const std::string name = "layers." + std::to_string(layer) + ".";
    const auto times = [&](const std::string& weight, const at::Tensor& row) {
      return p.at(name + weight + ".weight").matmul(row);
    };
    std::vector<at::Tensor> inputs = rows, next;
    for (at::Tensor& row : inputs) {
      if (!is_post) row = norm(row, name + "attention_norm");
    }
    for (int64_t t = 0; t < length; ++t) {
      std::vector<at::Tensor> heads;
      for (int64_t h = 0; h < o.heads; ++h) {
        const auto part = [&](const at::Tensor& row, int64_t from = 0) {
          return row.slice(0, from + h * o.head_width, from + (h + 1) * o.head_width);
        };
        const auto normed = [&](const at::Tensor& row, const char* which) {
          return o.qk_norm ? norm(row, name + which) : row;
        };
        const at::Tensor q =
            normed(part(times("query", inputs[static_cast<size_t>(t)])), "query_norm");
        std::vector<at::Tensor> scores, values;
        for (int64_t j = 0; j <= t; ++j) {
          if (window > 0 && t - j >= window) continue;
          const at::Tensor kv = times("key_value", inputs[static_cast<size_t>(j)]);
          const int64_t distance = clamp > 0 ? std::min(t - j, clamp) : t - j;
          const at::Tensor r = part(times("position", sinusoid(distance)));
          const at::Tensor key = normed(part(kv), "key_norm");
          scores.push_back((q.dot(key) + q.dot(r) + part(p.at("content_bias")).dot(key) +
                            part(p.at("position_bias")).dot(r)) /
                           std::sqrt(static_cast<double>(o.head_width)));
          values.push_back(part(kv, o.heads * o.head_width));
        }
        heads.push_back(at::stack(scores).softmax(0).matmul(at::stack(values)));
      }
      const auto sum = [&](const at::Tensor& row, const at::Tensor& result,
                           const std::string& half) {
        if (is_post) return norm(alpha * row + result, name + half + "_norm");
        return row + (has_two ? norm(result, name + half + "_out_norm") : result);
      };
      at::Tensor y =
          sum(rows[static_cast<size_t>(t)], times("attended", at::cat(heads)), "attention");
      const at::Tensor input = is_post ? y : norm(y, name + "feedforward_norm");
      const at::Tensor inner = (times("inner", input) + p.at(name + "inner.bias")).clamp_min(0);
      y = sum(y, times("outer", inner) + p.at(name + "outer.bias"), "feedforward");
      next.push_back(y);
    }
    rows = next;
  }
  for (at::Tensor& row : rows) {
    if (!is_post && o.placement != Placement::kPreNoFinal) row = norm(row, "final_norm");
  }
  return at::stack(rows).matmul(p.at("embedding.weight").t()) + p.at("output_bias");
}

// Doubles of size 1 to 100 through three layers: 1e-10 is about ten thousand roundings.
constexpr double kTolerance = 1e-10;

double Difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

// Returns the logits of x [B, T] read in segments of these lengths, [B, T, V].
at::Tensor InSegments(TransformerXl& model, const at::Tensor& x,
                      const std::vector<int64_t>& lengths, const Reach& reach) {
  SegmentMemory memory;
  std::vector<at::Tensor> logits;
  int64_t begin = 0;
  for (const int64_t length : lengths) {
    const at::Tensor segment = x.slice(1, begin, begin + length);
    logits.push_back(model.forward(segment, memory, reach).view({x.size(0), length, -1}));
    begin += length;
  }
  EXPECT_EQ(begin, x.size(1));
  return at::cat(logits, 1);
}

TEST(TransformerXl, IsTheModelWrittenOut) {
  const at::NoGradGuard no_grad;
  const at::Tensor x = Symbols(2, 9);
  for (const std::string norm : {"layer", "none"}) {
    for (const TransformerXl::Options& placed : Placements()) {
      TransformerXl::Options options = placed;
      options.norm = norm;
      const auto model = Model(options);
      for (const Reach& reach :
           {Reach{}, Reach{.window = 3}, Reach{.clamp = 4}, Reach{.window = 5, .clamp = 2}}) {
        SegmentMemory memory;
        const at::Tensor logits = model->forward(x, memory, reach).view({2, 9, -1});
        EXPECT_TRUE(memory.empty());
        for (int64_t b = 0; b < 2; ++b) {
          const at::Tensor expected = WrittenOut(*model, options, x[b], reach.window, reach.clamp);
          EXPECT_LT(Difference(logits[b], expected), kTolerance)
              << norm << static_cast<int>(options.placement) << options.qk_norm << " window "
              << reach.window << " clamp " << reach.clamp;
        }
      }
    }
  }
}

// Segments with all of their past in memory equal the whole sequence. With a window, the memory
// needs only the positions in it.
TEST(TransformerXl, ReadsSegmentsAsOneWithMemory) {
  const at::NoGradGuard no_grad;
  const at::Tensor x = Symbols(2, 12);
  for (const TransformerXl::Options& options : Placements()) {
    const auto model = Model(options);
    const at::Tensor whole = InSegments(*model, x, {12}, {});
    for (const std::vector<int64_t>& lengths :
         std::vector<std::vector<int64_t>>{{4, 4, 4}, {1, 8, 3}, {5, 1, 1, 1, 4}}) {
      EXPECT_LT(Difference(InSegments(*model, x, lengths, {.memory = 12}), whole), kTolerance);
      EXPECT_LT(Difference(InSegments(*model, x, lengths, {.memory = 4, .window = 5}),
                           InSegments(*model, x, {12}, {.window = 5})),
                kTolerance);
      // A memory that is too short makes a difference.
      EXPECT_GT(Difference(InSegments(*model, x, lengths, {.memory = 3, .window = 5}),
                           InSegments(*model, x, {12}, {.window = 5})),
                1e-3);
    }
  }
}

TEST(TransformerXl, RemembersTheLastPositionsWithoutGradient) {
  const auto model = Model(Small());
  const at::Tensor x = Symbols(2, 12);
  SegmentMemory memory;
  for (const auto& [length, remembered] :
       std::vector<std::pair<int64_t, int64_t>>{{2, 2}, {4, 5}, {5, 5}, {1, 5}}) {
    const SegmentMemory before = memory;
    model->forward(x.slice(1, 0, length), memory, {.memory = 5});
    ASSERT_EQ(memory.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(memory[i].sizes(), at::IntArrayRef({2, remembered, 6}));
      EXPECT_FALSE(memory[i].requires_grad());
    }
    // The first layer's memory is the embeddings.
    const at::Tensor embedded =
        at::embedding(Weights(*model).at("embedding.weight"), x.slice(1, 0, length)) *
        std::sqrt(6.0);
    EXPECT_TRUE(memory[0].slice(1, remembered - length).equal(embedded)) << length;
    if (length == 1) {
      EXPECT_TRUE(memory[2].slice(1, 0, 4).equal(before[2].slice(1, 1)));
    }
  }
}

TEST(TransformerXl, SeesNothingOfTheFuture) {
  const at::NoGradGuard no_grad;
  const auto model = Model(Small());
  const at::Tensor x = Symbols(1, 10);
  const at::Tensor before = InSegments(*model, x, {4, 6}, {.memory = 4});
  for (int64_t t = 0; t < 10; ++t) {
    at::Tensor changed = x.clone();
    changed[0][t] = (changed[0][t] + 1) % 7;
    const at::Tensor after = InSegments(*model, changed, {4, 6}, {.memory = 4});
    EXPECT_TRUE(after.slice(1, 0, t).equal(before.slice(1, 0, t))) << t;
    EXPECT_GT(Difference(after.slice(1, t, t + 1), before.slice(1, t, t + 1)), 1e-3) << t;
  }
}

TEST(TransformerXl, DropsEquallyForEveryNormInTraining) {
  const at::Tensor x = Symbols(2, 8);
  std::vector<at::Tensor> states;
  for (const std::string norm : {"none", "layer", "detach", "ada"}) {
    TransformerXl::Options options = Small();
    options.norm = norm;
    options.attention_dropout = 0.2;
    const auto model = Model(options);
    const auto run = [&] {
      SegmentMemory memory;
      return model->forward(x, memory, {.memory = 4});
    };
    EXPECT_TRUE(run().equal(run()));
    model->train();
    at::manual_seed(9);
    const at::Tensor first = run(), second = run();
    EXPECT_FALSE(first.equal(second));
    states.push_back(at::detail::getDefaultCPUGenerator().get_state());
    EXPECT_TRUE(states.back().equal(states.front())) << norm;
  }
}

// Weights from N(0, deviation), biases of 0: with 18,000 values the deviation is right to 1%; three
// standard deviations are 1.6%.
TEST(TransformerXl, DrawsItsWeights) {
  at::manual_seed(1);
  const TransformerXl model(
      {.symbols = 50, .layers = 2, .width = 32, .heads = 2, .head_width = 16, .inner = 64});
  std::vector<at::Tensor> drawn;
  for (const auto& [name, weight] : Weights(model)) {
    if (name.find("norm") != name.npos) continue;
    if (weight.dim() == 2 || name == "content_bias" || name == "position_bias") {
      drawn.push_back(weight.flatten());
    } else {
      EXPECT_EQ(weight.abs().max().item<double>(), 0) << name;
    }
  }
  const at::Tensor all = at::cat(drawn);
  EXPECT_EQ(all.numel(), 50 * 32 + 2 * (5 * 32 * 32 + 2 * 32 * 64) + 2 * 32);
  EXPECT_NEAR(all.std().item<double>(), 0.02, 0.02 * 0.016);
}

// (8 * 2)^(-1/4) = 1/2 for two layers.
TEST(TransformerXl, DeepNormScalesTheWeightsOfValuesOutputsAndFeedforward) {
  TransformerXl::Options options = Small();
  options.layers = 2;
  const auto weights = [&](Placement placement) {
    options.placement = placement;
    at::manual_seed(2);
    return Weights(TransformerXl(options));
  };
  const auto post = weights(Placement::kPost), deep = weights(Placement::kDeepNorm);
  ASSERT_EQ(post.size(), deep.size());
  for (const auto& [name, weight] : post) {
    at::Tensor expected = weight.clone();
    for (const std::string scaled : {"attended.weight", "inner.weight", "outer.weight"}) {
      if (name.ends_with(scaled)) expected.mul_(0.5);
    }
    if (name.ends_with("key_value.weight")) expected.slice(0, 8).mul_(0.5);
    EXPECT_TRUE(deep.at(name).equal(expected)) << name;
  }
}

}  // namespace
}  // namespace planish::lab
