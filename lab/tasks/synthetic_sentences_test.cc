#include "lab/tasks/synthetic_sentences.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace planish::lab {
namespace {

bool Has(const std::vector<std::string>& sentence, const std::string& word) {
  return std::ranges::find(sentence, word) != sentence.end();
}

TEST(SyntheticSentences, AreTheSameEverywhere) {
  const SentenceSets two = MakeSentences({});
  EXPECT_EQ(two.sha256, "a3cd28a83d7d23573a23ca2fa47291cba6d38c763c5391b4639ef5590547f782");
  EXPECT_EQ(MakeSentences({.classes = 5}).sha256,
            "4ee795d15510ccb120c6c1fc5ffab9b1fbae76a3731ecdd0fa871bc6af39bbed");
  EXPECT_NE(MakeSentences({.seed = 2}).sha256, two.sha256);
  EXPECT_EQ(two.train.size(), 2000);
  EXPECT_EQ(two.valid.size(), 400);
  EXPECT_EQ(two.test.size(), 400);
  EXPECT_EQ(two.source, "embedded");
}

TEST(SyntheticSentences, HaveEveryClassOftenEnough) {
  for (const int64_t classes : {2, 5}) {
    std::map<int64_t, int> counts;
    for (const int64_t label : MakeSentences({.classes = classes}).train.labels) ++counts[label];
    ASSERT_EQ(counts.size(), static_cast<size_t>(classes));
    EXPECT_EQ(counts.begin()->first, 0);
    for (const auto& [label, count] : counts) EXPECT_GT(count, 150) << label;
  }
}

// Sentences of one clause, by hand.
TEST(SyntheticSentences, HaveTheClassOfTheirWords) {
  const SentenceSets sets = MakeSentences({.classes = 5, .train = 20000});
  const std::map<std::string, int64_t> plain = {
      {"superb", 4}, {"funny", 3}, {"dull", 1}, {"awful", 0}};
  std::set<std::string> met;
  for (int64_t i = 0; i < sets.train.size(); ++i) {
    const auto& words = sets.train.words[static_cast<size_t>(i)];
    const int64_t label = sets.train.labels[static_cast<size_t>(i)];
    EXPECT_EQ(words.back(), ".");
    if (Has(words, "and") || Has(words, "but")) continue;
    for (const auto& [adjective, expected] : plain) {
      if (!Has(words, adjective)) continue;
      const bool good = expected > 2;
      const char* form = "plain";
      if (Has(words, "not")) {
        EXPECT_EQ(label, good ? 1 : 3);
        form = "not";
      } else if (Has(words, "very")) {
        EXPECT_EQ(label, good ? 4 : 0);
        form = "very";
      } else if (Has(words, "slightly")) {
        EXPECT_EQ(label, good ? 3 : 1);
        form = "slightly";
      } else {
        EXPECT_EQ(label, expected);
      }
      met.insert(adjective + (" " + std::string(form)));
    }
    if (Has(words, "june")) {
      EXPECT_EQ(label, 2);
    }
  }
  EXPECT_EQ(met.size(), 16u);  // four adjectives in four forms
}

}  // namespace
}  // namespace planish::lab
