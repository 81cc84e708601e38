#include "lab/tasks/order-embedding/synthetic_scenes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "lab/tasks/order-embedding/captions.h"

namespace planish::lab {
namespace {

using ::testing::Each;
using ::testing::EndsWith;
using ::testing::SizeIs;

TEST(MakeScenes, TellsEachFiveTimesInBothLanguages) {
  const SyntheticScenes scenes = MakeScenes(20);
  EXPECT_THAT(scenes.english, SizeIs(100));
  EXPECT_THAT(scenes.german, SizeIs(100));
  EXPECT_THAT(scenes.english, Each(EndsWith(".")));
  // Equal on every machine.
  EXPECT_EQ(scenes.english[0], "A lady paints a lime ball on a bridge.");
  EXPECT_EQ(scenes.german[0], "Frau; malt Ball, grün.");
}

TEST(MakeScenes, BeginsMoreOfThemWithTheSame) {
  const SyntheticScenes few = MakeScenes(3), more = MakeScenes(30);
  EXPECT_TRUE(std::equal(few.english.begin(), few.english.end(), more.english.begin()));
  EXPECT_TRUE(std::equal(few.german.begin(), few.german.end(), more.german.begin()));
}

// Five lines together tell nearly all of a scene, so few scenes are ambiguous.
TEST(MakeScenes, AreDistinguishable) {
  const SyntheticScenes scenes = MakeScenes(1000);
  std::set<std::set<std::string>> german;
  for (size_t i = 0; i < scenes.german.size(); i += kCaptionsPerImage) {
    std::set<std::string> words;
    for (size_t k = i; k < i + kCaptionsPerImage; ++k) {
      for (const std::string& word : WordsOf(scenes.german[k], false)) words.insert(word);
    }
    german.insert(words);
  }
  EXPECT_GT(german.size(), 950u);
}

}  // namespace
}  // namespace planish::lab
