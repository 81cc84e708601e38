#include "lab/tasks/mt/bleu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

namespace planish::lab {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Texts = std::vector<std::string>;

TEST(Tokenize13a, SeparatesPunctuation) {
  EXPECT_THAT(Tokenize13a("Hello, world! (It's 3.5-fold; 1,000.)"),
              ElementsAre("Hello", ",", "world", "!", "(", "It's", "3.5", "-", "fold", ";", "1,000",
                          ".", ")"));
  EXPECT_THAT(Tokenize13a("well-known 5-6 a...b"),
              ElementsAre("well-known", "5", "-", "6", "a", ".", ".", ".", "b"));
  EXPECT_THAT(Tokenize13a("&quot;A&amp;B&quot; &lt;x&gt; <skipped>"),
              ElementsAre("\"", "A", "&", "B", "\"", "<", "x", ">"));
  EXPECT_THAT(Tokenize13a("€5, „gut“."), ElementsAre("€5", ",", "„gut“", "."));
  EXPECT_THAT(Tokenize13a("a\u00a0b\u202fc\u3000 \n"), ElementsAre("a", "b", "c"));
  EXPECT_THAT(Tokenize13a(" \u2009"), IsEmpty());
}

// Counts by hand. Hypothesis: the cat sat on mat (5 tokens); reference: the cat sat on the mat (6).
TEST(CorpusBleu, CountsClippedNGrams) {
  const Bleu bleu = CorpusBleu(Texts{"the cat sat on mat"}, Texts{"the cat sat on the mat"});
  EXPECT_THAT(bleu.precisions, ElementsAre(100, 75, 100 * 2.0 / 3, 50));
  EXPECT_DOUBLE_EQ(bleu.brevity, std::exp(1 - 6.0 / 5));
  // Rounding errors of a product of four.
  EXPECT_NEAR(bleu.score, 100 * std::exp(-.2) * std::pow(1 * .75 * 2 / 3 * .5, .25), 1e-10);
  // A word counts at most as often as in the reference.
  EXPECT_DOUBLE_EQ(CorpusBleu(Texts{"the the the the"}, Texts{"the dog"}).precisions[0], 25);
}

TEST(CorpusBleu, IsAHundredForTheSame) {
  const Texts lines = {"one two three four five.", "six seven eight nine"};
  EXPECT_NEAR(CorpusBleu(lines, lines).score, 100, 1e-10);
}

TEST(CorpusBleu, SmoothsOrdersWithoutAMatch) {
  const Bleu bleu = CorpusBleu(Texts{"a b x c d"}, Texts{"a b y c d"});
  // 4 of 5, 2 of 4, 0 of 3 and 0 of 2.
  EXPECT_THAT(bleu.precisions, ElementsAre(80, 50, 100 / (2 * 3.0), 100 / (4 * 2.0)));
}

TEST(CorpusBleu, IsNoughtWithoutFourTokensOrAMatch) {
  EXPECT_EQ(CorpusBleu(Texts{"a b"}, Texts{"a b"}).score, 0);
  EXPECT_EQ(CorpusBleu(Texts{"a b c d e"}, Texts{"v w x y z"}).score, 0);
  EXPECT_EQ(CorpusBleu(Texts{""}, Texts{"a b"}).score, 0);
  EXPECT_EQ(CorpusBleu(Texts{}, Texts{}).score, 0);
  EXPECT_THROW(CorpusBleu(Texts{"a"}, Texts{}), std::invalid_argument);
}

}  // namespace
}  // namespace planish::lab
