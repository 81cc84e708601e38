#include "lab/tasks/handwriting/corpus.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lab/error.h"

namespace planish::lab {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Alphabet, HasTheSymbolsOfThePaper) {
  const Alphabet paper(false), digits(true);
  EXPECT_EQ(paper.size(), 57);  // Ba et al. 2016, 6.5
  EXPECT_EQ(digits.size(), 67);
  // Z is the 26th capital; the digit, the mark and the two-byte umlaut are others.
  EXPECT_THAT(paper.Encode(" ,AZaz7?ü."), ElementsAre(1, 2, 5, 30, 31, 56, 0, 0, 0, 3));
  EXPECT_THAT(digits.Encode("a07"), ElementsAre(31, 57, 64));
  EXPECT_THAT(CharactersOf("a\u00fc."), ElementsAre("a", "\u00fc", "."));
}

// Two lines for training: offsets (1, 2), (3, 0) and (2, 1).
Handwriting Small() {
  Handwriting data;
  data.train = {{"ab", {{0, 0}, {1, 2, true}, {4, 2, true}}},
                {"c 4", {{5, 5, true}, {7, 6, true}}}};
  data.valid = {{"d", {{0, 0}, {3, 1, true}}}};
  data.test = {{"a", {{0, 0}, {1, 0, true}}}};
  data.name = "small";
  data.description = "three";
  return data;
}

TEST(HandwritingCorpus, ScalesOffsets) {
  const HandwritingCorpus corpus(Small(), Alphabet(false), 500);
  // x: 1, 3, 2, mean 2 and variance 2/3; y: 2, 0, 1, variance 2/3 and mean 1.
  EXPECT_FLOAT_EQ(corpus.scale.mean[0], 2);
  EXPECT_FLOAT_EQ(corpus.scale.mean[1], 1);
  EXPECT_FLOAT_EQ(corpus.scale.deviation[0], std::sqrt(2.0f / 3));
  const float step = std::sqrt(1.5f);
  const at::Tensor expected =
      at::tensor({0.f, 0.f, 0.f, -step, step, 1.f, step, -step, 1.f}).view({3, 3});
  EXPECT_TRUE(at::allclose(corpus.train.Line(0), expected));
  EXPECT_TRUE(at::allclose(corpus.valid.Line(0)[1], at::tensor({step, 0.f, 1.f})));
  EXPECT_EQ(corpus.train.texts[1], "c 4");
  // From the pen's position, and back.
  const auto points = corpus.Trace(corpus.train.Line(0).slice(0, 1));
  ASSERT_EQ(points.size(), 2u);
  EXPECT_FLOAT_EQ(points[0].x, 1);
  EXPECT_FLOAT_EQ(points[0].y, 2);
  EXPECT_TRUE(points[0].lifts);
  EXPECT_FLOAT_EQ(points[1].x, 4);
  EXPECT_FLOAT_EQ(points[1].y, 2);
}

TEST(HandwritingCorpus, RecordsKnownSymbols) {
  const HandwritingCorpus corpus(Small(), Alphabet(false), 500);
  EXPECT_TRUE(corpus.known[31] && corpus.known[33] && corpus.known[0]);  // a, c and others
  EXPECT_FALSE(corpus.known[34]);                                        // d
  EXPECT_THAT(corpus.about.description,
              HasSubstr("three; 2 points a training line on average, of which 1 steps count; 1 of "
                        "7 characters are \"others\" among 57 symbols"));
  EXPECT_EQ(corpus.about.sizes,
            (std::map<std::string, int64_t>{{"train", 2}, {"valid", 1}, {"test", 1}}));
  Handwriting still = Small();
  still.train = {{"a", {{0, 0}, {0, 1}, {0, 3, true}}}};
  EXPECT_THAT([&] { HandwritingCorpus(still, Alphabet(false), 500); },
              ::testing::ThrowsMessage<DataError>(HasSubstr("no variance in x")));
}

TEST(LineSet, GathersBatches) {
  const HandwritingCorpus corpus(Small(), Alphabet(false), 500);
  const Tensors batch = corpus.train.Batch(at::tensor({1, 0}, at::kLong));
  const at::Tensor first = corpus.train.Line(0), second = corpus.train.Line(1);
  ASSERT_EQ(batch[0].sizes(), at::IntArrayRef({2, 2, 3}));
  EXPECT_TRUE(batch[0].select(1, 1).equal(first.slice(0, 0, 2)));
  EXPECT_TRUE(batch[0][0][0].equal(second[0]));
  EXPECT_TRUE(batch[1].equal(at::tensor({1, 2}, at::kLong)));
  EXPECT_TRUE(batch[2].equal(at::tensor({33, 1, 0, 31, 32, -1}, at::kLong).view({2, 3})));
  // Rows t * 2 + line: line 1 has one step, line 0 two.
  EXPECT_TRUE(batch[3].equal(at::tensor({0, 1, 3}, at::kLong)));
  EXPECT_TRUE(batch[4].equal(at::stack({second[1], first[1], first[2]})));
  // The text is no longer than the batch's, even in a set with longer ones.
  EXPECT_EQ(corpus.train.Batch(at::tensor({0}, at::kLong))[2].size(1), 2);
}

TEST(LineSet, CutsLines) {
  const HandwritingCorpus corpus(Small(), Alphabet(false), 1);
  const Tensors batch = corpus.train.Batch(at::tensor({0, 1}, at::kLong));
  EXPECT_EQ(batch[0].size(0), 1);
  EXPECT_TRUE(batch[4][0].equal(corpus.train.Line(0)[1]));
  EXPECT_EQ(corpus.train.Line(0).size(0), 3);  // for a pen that continues
}

}  // namespace
}  // namespace planish::lab
