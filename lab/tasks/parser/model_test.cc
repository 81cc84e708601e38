#include "lab/tasks/parser/model.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>

#include "lab/model/parameter_count.h"

namespace planish::lab {
namespace {

using ::testing::ElementsAre;

TEST(FindPairs, GivesEachPairARow) {
  const at::Tensor tokens = at::tensor({3, 5, 0,  //
                                        4, 5, 3,  //
                                        3, 5, 0})
                                .to(at::kInt)
                                .view({3, 3});
  const TokenPairs pairs = FindPairs(tokens, 6);
  EXPECT_THAT(pairs.offsets, ElementsAre(0, 2, 3, 5));
  EXPECT_TRUE(pairs.tokens.equal(at::tensor({3, 4, 5, 0, 3}, at::kLong)));
  EXPECT_TRUE(pairs.rows.equal(at::tensor({0, 2, 3, 1, 2, 4, 0, 2, 3}).to(at::kInt)));
}

// Value and gradients equal those of concatenated embeddings and a linear layer.
TEST(TokenLinear, IsALinearLayerOverEmbeddings) {
  at::manual_seed(1);
  TokenLinear layer(/*tokens=*/11, /*positions=*/4, /*embedding=*/3, /*outputs=*/7);
  layer.to(at::kDouble);
  const auto p = layer.named_parameters();
  const at::Tensor tokens = at::randint(11, {20, 4}, at::kInt);
  const at::Tensor probe = at::randn({20, 7}, at::kDouble);
  std::vector<at::Tensor> inputs = {p["embedding"], p["weight"], p["bias"]};

  const at::Tensor y = layer.forward(tokens, layer.weight());
  const auto gradients = torch::autograd::grad({(y * probe).sum()}, inputs);
  const at::Tensor x = p["embedding"].index_select(0, tokens.flatten()).view({20, 12});
  const at::Tensor expected = x.mm(p["weight"].view({12, 7})) + p["bias"];
  const auto expected_gradients = torch::autograd::grad({(expected * probe).sum()}, inputs);
  // Sums of at most 80 products in double, in another order.
  EXPECT_LT((y - expected).abs().max().item<double>(), 1e-13);
  for (size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_LT((gradients[i] - expected_gradients[i]).abs().max().item<double>(), 1e-12) << i;
  }
}

TEST(ParserModel, HasTheSizeOfItsFormula) {
  // PTB as counted by Chen & Manning: 45 tags, 40 relations, hence 1 + 2 * 40 transitions; 10,000
  // words here. Embeddings, 2400 * 512 + 512, 512 * 512 + 512, 512 * 81 + 81.
  ParserModel::Options options;
  options.tokens = 10'085;
  options.outputs = 81;
  const int64_t size = 50 * 10'085 + 2400 * 512 + 512 + 512 * 512 + 512 + 512 * 81 + 81;
  EXPECT_EQ(ParameterCount(ParserModel(options)), size);
  options.norm = "layer";
  EXPECT_EQ(ParameterCount(ParserModel(options)), size + 2 * 2 * 512);
  for (const char* norm : {"layer-simple", "detach", "ada"}) {
    options.norm = norm;
    EXPECT_EQ(ParameterCount(ParserModel(options)), size) << norm;
  }
  // Chen & Manning's own: one hidden layer of 200.
  options = {.tokens = 10'085, .hidden = 200, .layers = 1, .outputs = 81};
  EXPECT_EQ(ParameterCount(ParserModel(options)), 50 * 10'085 + 2400 * 200 + 200 + 200 * 81 + 81);
}

TEST(ParserModel, MatchesItsDefinition) {
  const std::map<std::string, at::Tensor (*)(const at::Tensor&)> activations = {
      {"relu", [](const at::Tensor& x) { return x.relu(); }},
      {"cube", [](const at::Tensor& x) { return x * x * x; }},
      {"tanh", [](const at::Tensor& x) { return x.tanh(); }}};
  for (const auto& [name, activation] : activations) {
    for (const std::string norm : {"none", "layer"}) {
      at::manual_seed(1);
      ParserModel model({.norm = norm,
                         .activation = name,
                         .tokens = 13,
                         .features = 5,
                         .embedding = 4,
                         .hidden = 6,
                         .layers = 2,
                         .outputs = 3});
      model.to(at::kDouble);
      model.eval();
      const auto p = model.named_parameters();
      const auto hidden = [&](at::Tensor x) {
        if (norm == "layer") x = at::layer_norm(x, {6});
        return activation(x);
      };
      const at::Tensor features = at::randint(13, {9, 5}, at::kInt);
      at::Tensor x = p["input.embedding"].index_select(0, features.flatten()).view({9, 20});
      x = hidden(x.mm(p["input.weight"].view({20, 6})) + p["input.bias"]);
      x = hidden(at::linear(x, p["hidden1.weight"], p["hidden1.bias"]));
      x = at::linear(x, p["output.weight"], p["output.bias"]);
      // Sums of at most 20 products in double, after norms of width 6.
      EXPECT_LT((model.forward(features) - x).abs().max().item<double>(), 1e-11) << name << norm;
    }
  }
}

TEST(ParserModel, DropsHiddenUnitsOnlyInTraining) {
  at::manual_seed(1);
  ParserModel model(
      {.tokens = 13, .features = 5, .embedding = 4, .hidden = 64, .layers = 1, .outputs = 3});
  const at::Tensor features = at::randint(13, {9, 5}, at::kInt);
  model.eval();
  EXPECT_TRUE(model.forward(features).equal(model.forward(features)));
  model.train();
  EXPECT_FALSE(model.forward(features).equal(model.forward(features)));
}

}  // namespace
}  // namespace planish::lab
