#include "lab/base/nearest.h"

#include <gtest/gtest.h>

namespace planish::lab {
namespace {

TEST(NearestTest, EditDistanceCountsEachEditOnce) {
  EXPECT_EQ(EditDistance("", ""), 0U);
  EXPECT_EQ(EditDistance("abc", ""), 3U);
  EXPECT_EQ(EditDistance("", "abc"), 3U);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3U);
  EXPECT_EQ(EditDistance("trian", "train"), 1U);
  EXPECT_EQ(EditDistance("ca", "abc"), 3U);  // 2 if a byte could be edited twice
}

TEST(NearestTest, SuggestsOnlyWhatIsNear) {
  const std::vector<std::string> choices = {"--batch-size", "--seed", "--seeds", "--preset", "-o"};
  EXPECT_EQ(Nearest("--batchsize", choices), "--batch-size");
  EXPECT_EQ(Nearest("--sede", choices), "--seed");
  EXPECT_EQ(Nearest("--seedss", choices), "--seeds");
  EXPECT_EQ(Nearest("--pre", choices), "--preset");
  EXPECT_EQ(Nearest("--bogus", choices), std::nullopt);
  EXPECT_EQ(Nearest("-x", choices), std::nullopt);
  EXPECT_EQ(Nearest("", choices), std::nullopt);
  EXPECT_EQ(Nearest("x", {}), std::nullopt);
  EXPECT_EQ(Nearest(std::string(100000, 'a'), choices), std::nullopt);
}

}  // namespace
}  // namespace planish::lab
