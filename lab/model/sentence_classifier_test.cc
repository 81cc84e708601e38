#include "lab/model/sentence_classifier.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <cmath>

namespace planish::lab {
namespace {

SentenceClassifier::Options Small() {
  return {.words = 11,
          .longest = 9,
          .classes = 3,
          .encoder = {.layers = 2, .width = 8, .heads = 2, .ffn = 12, .dropout = 0.5}};
}

// Compares with each sentence computed separately without padding. The encoder has its own tests.
TEST(SentenceClassifier, MatchesSeparateSentences) {
  at::manual_seed(1);
  SentenceClassifier model(Small());
  model.to(at::kDouble);
  model.eval();
  const std::vector<int64_t> lengths = {4, 1, 6};
  const at::Tensor words = at::randint(11, {3, 6}, at::kInt);
  const at::Tensor logits = model.forward(words, at::tensor(lengths));

  auto parameters = model.named_parameters();
  TransformerEncoder encoder(Small().encoder);
  encoder.to(at::kDouble);
  encoder.eval();
  at::NoGradGuard no_grad;
  for (auto& item : encoder.named_parameters()) {
    item.value().copy_(parameters["encoder." + item.key()]);
  }
  for (int64_t b = 0; b < 3; ++b) {
    const int64_t length = lengths[static_cast<size_t>(b)];
    at::Tensor x = at::empty({1, length, 8}, at::kDouble);
    for (int64_t t = 0; t < length; ++t) {
      x[0][t] = parameters["embedding"][words[b][t].item<int64_t>()] * std::sqrt(8.0) +
                SinusoidalPositions(9, 8)[t];
    }
    const at::Tensor mean = encoder.forward(x, {})[0].sum(0) / static_cast<double>(length);
    const at::Tensor expected =
        at::mv(parameters["output.weight"], mean) + parameters["output.bias"];
    // Values of size 1 from sums of tens of terms in double.
    EXPECT_LT((logits[b] - expected).abs().max().item<double>(), 1e-12) << b;
  }
}

TEST(SentenceClassifier, DoesNotSeePadding) {
  at::manual_seed(2);
  SentenceClassifier model(Small());
  model.eval();
  const at::Tensor words = at::randint(11, {2, 5}, at::kInt);
  const at::Tensor lengths = at::tensor(std::vector<int64_t>{3, 5});
  const at::Tensor before = model.forward(words, lengths);
  words[0].slice(0, 3).fill_(7);
  EXPECT_TRUE(model.forward(words, lengths).equal(before));
}

TEST(SentenceClassifier, DropsOnlyInTraining) {
  at::manual_seed(3);
  SentenceClassifier model(Small());
  const at::Tensor words = at::randint(11, {2, 5}, at::kInt);
  const at::Tensor lengths = at::tensor(std::vector<int64_t>{5, 5});
  EXPECT_FALSE(model.forward(words, lengths).equal(model.forward(words, lengths)));
  model.eval();
  EXPECT_TRUE(model.forward(words, lengths).equal(model.forward(words, lengths)));
}

TEST(SentenceClassifier, HasThePapersSize) {
  const SentenceClassifier model({.words = 9000,
                                  .longest = 60,
                                  .classes = 2,
                                  .encoder = {.layers = 4, .width = 128, .heads = 4, .ffn = 128}});
  int64_t count = 0;
  for (const at::Tensor& p : model.parameters()) count += p.numel();
  // Embeddings; six square matrices with biases and two norms a layer; the last norm; classes.
  const int64_t square = 128 * 128 + 128;
  EXPECT_EQ(count, 9000 * 128 + 4 * (6 * square + 4 * 128) + 2 * 128 + 2 * 128 + 2);
}

}  // namespace
}  // namespace planish::lab
