#include "lab/tasks/skip-thoughts/words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace planish::lab {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(PlainPunctuation, WritesQuotesAndDashesInOneWay) {
  EXPECT_EQ(PlainPunctuation("“So”\u2014he said\u2026 ‘it\u2019s _very_\u00a0odd’ ``x''"),
            "\"So\"--he said... 'it's very odd' \"x\"");
  EXPECT_EQ(PlainPunctuation("na\u00efve"), "na\u00efve");
}

TEST(SplitIntoSentences, FindsTheEndsOfSentences) {
  EXPECT_THAT(SplitIntoSentences("He left. She stayed! Why? No one knew..."),
              ElementsAre("He left.", "She stayed!", "Why?", "No one knew..."));
  EXPECT_THAT(SplitIntoSentences("\"How so?\" said he. \"Oh! my dear.\" She went."),
              ElementsAre("\"How so?\" said he.", "\"Oh! my dear.\"", "She went."));
  EXPECT_THAT(
      SplitIntoSentences("Mr. Long saw Mrs. Bennet and J. Smith, i.e. two. And I. Then he."),
      ElementsAre("Mr. Long saw Mrs. Bennet and J. Smith, i.e. two.", "And I.", "Then he."));
  EXPECT_THAT(SplitIntoSentences("It cost 3.50 in all... and then more. 12 men came. no end"),
              ElementsAre("It cost 3.50 in all... and then more.", "12 men came. no end"));
  EXPECT_THAT(SplitIntoSentences("  no end at all "), ElementsAre("no end at all"));
  EXPECT_THAT(SplitIntoSentences(" "), IsEmpty());
}

TEST(SplitIntoWords, SeparatesContractions) {
  EXPECT_THAT(SplitIntoWords("I don't think he's “well-known”, they'll say."),
              ElementsAre("i", "do", "n't", "think", "he", "'s", "\"", "well-known", "\"", ",",
                          "they", "'ll", "say", "."));
  EXPECT_THAT(SplitIntoWords("o'clock 'Tis 1,000.5 (3.) dogs'"),
              ElementsAre("o'clock", "'", "tis", "1,000.5", "(", "3", ".", ")", "dogs", "'"));
}

TEST(SplitIntoWords, LeavesWordsThatAreApartAsTheyAre) {
  EXPECT_THAT(SplitIntoWords("it does n't show the camera 's name ; . "),
              ElementsAre("it", "does", "n't", "show", "the", "camera", "'s", "name", ";", "."));
}

TEST(SplitIntoWords, PutsDashesAndPointsTogether) {
  EXPECT_THAT(SplitIntoWords("Well\u2014yes ... or--no---- ....."),
              ElementsAre("well", "--", "yes", "...", "or", "--", "no", "--", "..."));
}

TEST(SplitIntoWords, LowersLatinCapitals) {
  EXPECT_THAT(SplitIntoWords("\u00c9mile \u00d7 \u00df"),
              ElementsAre("\u00e9mile", "\u00d7", "\u00df"));
  EXPECT_THAT(SplitIntoWords(" \t "), IsEmpty());
}

}  // namespace
}  // namespace planish::lab
