#include "lab/tasks/attentive-reader/synthetic_cloze.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace planish::lab {
namespace {

TEST(MakeCloze, GivesTheSameQuestionsEverywhere) {
  const ClozeSets sets = MakeCloze({.train = 100, .held_out = 20});
  EXPECT_EQ(sets.train.size(), 100u);
  EXPECT_EQ(sets.valid.size(), 20u);
  EXPECT_EQ(sets.test.size(), 20u);
  EXPECT_EQ(sets.name, "synthetic questions");
  EXPECT_EQ(sets.source, "embedded");
  // Hash of the text that QuestionText writes: changes with the grammar.
  EXPECT_EQ(sets.sha256, "bf761512581e16d2015e872dce04a6e41bddae2a4b96aa811ee2a3d77a7da9f0");
  EXPECT_NE(MakeCloze({.train = 100, .held_out = 20, .seed = 2}).sha256, sets.sha256);
  EXPECT_EQ(
      QuestionText(sets.valid[0], sets.words),
      "made story 1\n\nin the cellar the ladder was hidden by @entity23 . @entity23 stole the boat "
      "of @entity12 . @entity16 put the violin in the tower . then the helmet of @entity16 was "
      "taken away by @entity12 .\n\n@placeholder has lost the boat .\n\n"
      "@entity12\n\n");
}

TEST(MakeCloze, PassagesAnswerTheirQuestions) {
  const ClozeSets sets = MakeCloze({.train = 2'000, .held_out = 10, .entities = 12});
  EXPECT_EQ(sets.entities(), 12);
  std::map<int32_t, int> answers;
  int64_t most_frequent = 0;
  for (const ClozeQuestion& q : sets.train) {
    EXPECT_EQ(std::ranges::count(q.question, kPlaceholder), 1);
    EXPECT_EQ(std::ranges::count(q.passage, kPlaceholder), 0);
    std::map<int32_t, int> counts;
    for (const ClozeToken token : q.passage) {
      if (IsEntity(token)) ++counts[EntityOf(token)];
    }
    EXPECT_GE(counts.size(), 3u);
    EXPECT_LE(counts.size(), 4u);
    EXPECT_TRUE(counts.contains(q.answer));
    ++answers[q.answer];
    const auto highest =
        std::ranges::max_element(counts, {}, [](const auto& c) { return c.second; });
    most_frequent += highest->first == q.answer;
  }
  EXPECT_EQ(answers.size(), 12u);
  // Without the question, the most frequent entity is right in less than half of the cases.
  EXPECT_LT(most_frequent, 1'000);
}

}  // namespace
}  // namespace planish::lab
