#include "lab/tasks/handwriting/strokes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "lab/error.h"
#include "lab/tasks/handwriting/synthetic_strokes.h"
#include "lab/testing/test_folder.h"

namespace planish::lab {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(WithoutRests, DropsRepeatsWithinAStroke) {
  // The second stroke begins where the first ended, and ends resting.
  EXPECT_THAT(
      WithoutRests({{1, 1}, {1, 1}, {2, 1}, {2, 1, true}, {2, 1}, {3, 1}, {3, 1, true}}),
      ElementsAre(PenPoint{1, 1}, PenPoint{2, 1, true}, PenPoint{2, 1}, PenPoint{3, 1, true}));
  EXPECT_THAT(WithoutRests({{1, 1}, {1, 1, true}}), ElementsAre(PenPoint{1, 1, true}));
}

TEST(MakeStrokes, WritesTheSameLinesEverywhere) {
  const Handwriting data = MakeStrokes({.train = 50, .held_out = 7});
  EXPECT_EQ(data.train.size(), 50u);
  EXPECT_EQ(data.valid.size(), 7u);
  EXPECT_EQ(data.test.size(), 7u);
  EXPECT_EQ(data.source, "embedded");
  for (const WrittenLine& line : data.train) {
    EXPECT_GE(line.text.size(), 24u);
    EXPECT_LE(line.text.size(), 31u);
    EXPECT_EQ(line.text.find_first_not_of("aeilnorst "), line.text.npos);
    EXPECT_GT(line.points.size(), 100u);
    EXPECT_LT(line.points.size(), 500u);
    EXPECT_TRUE(line.points.back().lifts);
    for (size_t i = 1; i < line.points.size(); ++i) {
      const PenPoint &p = line.points[i], &before = line.points[i - 1];
      EXPECT_LT(std::abs(p.y), 130);
      // A stroke continues by 18 units, widened, slanted, and with noise.
      if (before.lifts) continue;
      EXPECT_LT(std::hypot(p.x - before.x, p.y - before.y), 50);
    }
  }
  const Handwriting fewer = MakeStrokes({.train = 5, .held_out = 7});
  EXPECT_EQ(fewer.train[4].points, data.train[4].points);
  EXPECT_NE(data.valid[0].points, data.train[0].points);
  // The hash is equal on all machines.
  EXPECT_EQ(fewer.sha256.substr(0, 16), "f89dbcf0ae0b9bea");
}

TEST(OpenHandwriting, FindsAvailableData) {
  const TestFolder folder;
  EXPECT_EQ(OpenHandwriting({}, {.train = 2, .held_out = 1}).name, "synthetic strokes");
  EXPECT_THAT(
      [&] { OpenHandwriting(folder.path(), {}); },
      ::testing::ThrowsMessage<DataError>(HasSubstr(" has neither IAM-OnDB's lineStrokes")));
  fs::create_directories(folder / "iam-ondb/lineStrokes");
  EXPECT_THAT([&] { OpenHandwriting(folder.path(), {}); },
              ::testing::ThrowsMessage<DataError>(HasSubstr(" has no files FORM-NUMBER.xml")));
  const TestFolder other;
  fs::create_directories(other / "digilets");
  WriteFile(other / "digilets/001.txt", "");
  EXPECT_THAT([&] { OpenHandwriting(other.path(), {}); },
              ::testing::ThrowsMessage<DataError>(
                  HasSubstr("001.txt: it has no character within the unit square")));
  EXPECT_THROW(OpenHandwriting({}, {.symbols = "ab"}), UsageError);
  EXPECT_THROW(OpenHandwriting({}, {.writers = "1"}), UsageError);
}

}  // namespace
}  // namespace planish::lab
