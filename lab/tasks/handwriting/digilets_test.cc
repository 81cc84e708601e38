#include "lab/tasks/handwriting/digilets.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>

#include "lab/data/source.h"
#include "lab/data/test_files.h"
#include "lab/error.h"
#include "lab/testing/test_folder.h"

namespace planish::lab {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Label(size_t character) {
  std::string text;
  for (size_t i = 0; i < kDigiletsCharacters.size(); ++i) {
    text += i == character ? " 1.0" : i == 0 ? "0.0" : " 0.0";
  }
  return text;
}

// Returns three points in two strokes; the second point repeats the first.
std::string Way(const std::string& x = "0.5") {
  return "0.25 0.5 0.1 1 0.0 0.25 0.5 0.1 0 0.02 " + x + " 0.75 0.2 1 0.04";
}

// Returns the lines of a writer who wrote every character once.
std::vector<std::string> Lines(const std::string& x = "0.5") {
  std::vector<std::string> lines;
  for (size_t i = 0; i < kDigiletsCharacters.size(); ++i) {
    lines.push_back(Way(x));
    lines.push_back(Label(i));
  }
  return lines;
}

std::string Joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST(ParseDigilets, ReadsWaysAndLeavesOutSlips) {
  auto lines = Lines();
  lines.push_back(Way("1.5"));
  lines.push_back(Label(11));
  lines.push_back(Way("0.75"));
  lines.push_back(Label(11));
  const DigiletsWriter writer = ParseDigilets(lines, "002.txt");
  EXPECT_EQ(writer.outside, 1);
  EXPECT_EQ(writer.rests, 63);
  EXPECT_EQ(writer.ways[0].size(), 1u);
  ASSERT_EQ(writer.ways[11].size(), 2u);  // "b"
  EXPECT_THAT(writer.ways[11][1],
              ElementsAre(PenPoint{0.25f, 0.5f, true}, PenPoint{0.75f, 0.75f, true}));
}

TEST(ParseDigilets, ReportsErrorsWithTheirLine) {
  const auto error = [](size_t line, const std::string& text) -> std::string {
    auto lines = Lines();
    lines[line - 1] = text;
    try {
      ParseDigilets(lines, "002.txt");
    } catch (const DataError& e) {
      return e.what();
    }
    return "no error";
  };
  const std::string two = "0.5 0.5 0 1 0 ";
  const struct {
    size_t line;
    std::string text, what;
  } cases[] = {
      {3, "", "line 3: it has 0 numbers; five for every point were expected"},
      {5, "1 2 3", "line 5: it has 3 numbers; five for every point were expected"},
      {3, "0.5 x 0 1 0", "line 3: number 2 is \"x\"; a finite number was expected"},
      {3, "0.5 nan 0 1 0", "number 2 is \"nan\"; a finite"},
      {3, "0.5 1e999 0 1 0", "number 2 is \"1e999\"; a finite"},
      {3, two + "101 0.5 0 0 0",
       "a point is at 101, 0.5; coordinates from -100 to 100 were expected"},
      {3, "0.5 0.5 0 0 0", "point 1 has 0 as the start of a stroke; 1 was expected"},
      {3, two + "0.6 0.5 0 2 0", "point 2 has 2 as the start of a stroke; 0 or 1 was expected"},
      {3, two + "0.5 0.5 0 0 0", "all its points are at one place"},
      {4, "1 0 0", "line 4: it has 3 numbers, 1 of them 1 and 2 of them 0; 62 were expected"},
      {4, Label(62), "it has 62 numbers, 0 of them 1 and 62 of them 0"},
      {4, "1" + Label(1).substr(1), "it has 62 numbers, 2 of them 1 and 60 of them 0"},
      {4, "2" + Label(1).substr(1), "it has 62 numbers, 1 of them 1 and 60 of them 0"},
      {5, Way(), "no error"},
  };
  for (const auto& c : cases) EXPECT_THAT(error(c.line, c.text), HasSubstr(c.what)) << c.text;

  auto odd = Lines();
  odd.push_back(Way());
  EXPECT_THROW(ParseDigilets(odd, ""), DataError);
  EXPECT_THROW(ParseDigilets({}, ""), DataError);
  EXPECT_THAT([] { ParseDigilets({Way("-0.5"), Label(3)}, "002.txt"); },
              ::testing::ThrowsMessage<DataError>(
                  HasSubstr("002.txt: it has no character within the unit square")));
}

TEST(ParseDigilets, ReadsFilesWithSomeOfTheCharacters) {
  const DigiletsWriter writer = ParseDigilets({Way(), Label(3), Way(), Label(12)}, "002.txt");
  for (size_t i = 0; i < kDigiletsCharacters.size(); ++i) {
    EXPECT_EQ(writer.ways[i].size(), i == 3 || i == 12 ? 1u : 0u) << i;
  }
}

class ReadDigiletsTest : public ::testing::Test {
 protected:
  // Writes writers 000 and on, each with the last point further right.
  void WriteWriters(int count, size_t characters = kDigiletsCharacters.size()) {
    for (int i = 0; i < count; ++i) {
      std::vector<std::string> lines = Lines(fmt::format("{:.2f}", 0.5 + 0.01 * i));
      lines.resize(2 * characters);
      const std::string text = Joined(lines);
      WriteFile(folder / (fmt::format("{:03}.txt", i) + (i % 2 == 1 ? ".gz" : "")),
                i % 2 == 1 ? Gzip(text) : text);
    }
  }

  TestFolder folder;
};

// Returns the width of a line's first character.
float Across(const WrittenLine& line) { return line.points[1].x - line.points[0].x; }

TEST_F(ReadDigiletsTest, ComposesLinesOfOneWriterEach) {
  WriteWriters(10);
  WriteFile(folder / "INDEX.txt", "no writer");
  const Handwriting data = ReadDigilets(folder.path(), {.train = 200, .held_out = 5});
  ASSERT_EQ(data.train.size(), 200u);
  std::vector<int> of(10, 0);
  for (const WrittenLine& line : data.train) {
    EXPECT_GE(line.text.size(), 24u);
    EXPECT_LE(line.text.size(), 32u);
    EXPECT_EQ(line.text.find_first_not_of(std::string(kDigiletsCharacters) + " "), line.text.npos);
    const auto written = line.text.size() - static_cast<size_t>(std::ranges::count(line.text, ' '));
    ASSERT_EQ(line.points.size(), 2 * written);
    for (size_t i = 0; i < line.points.size(); ++i) {
      EXPECT_TRUE(line.points[i].lifts);
      // Half a step of the tablet about y = .5 or .75, flipped.
      EXPECT_NEAR(line.points[i].y, i % 2 == 0 ? 0.5 : 0.25, 0.5 / 240 + 1e-6);
    }
    // 0.25 wide for writer 0, and 0.01 more for each: within half a step on either side.
    const double writer = (double{Across(line)} - 0.25) / 0.01;
    EXPECT_NEAR(writer, std::round(writer), 1.0 / 274 / 0.01 + 1e-3);
    ++of.at(static_cast<size_t>(std::clamp(std::lround(writer), 0L, 9L)));
  }
  EXPECT_EQ(of[8] + of[9], 0);  // for validation and test
  EXPECT_EQ(std::ranges::count(of, 0), 2);
  for (const WrittenLine& line : data.valid) EXPECT_NEAR(Across(line), 0.33, 1.0 / 274 + 1e-6);
  for (const WrittenLine& line : data.test) EXPECT_NEAR(Across(line), 0.34, 1.0 / 274 + 1e-6);
  EXPECT_NE(data.valid[0].text, data.train[0].text);
  EXPECT_EQ(data.name, "digilets");
  EXPECT_THAT(data.description, HasSubstr("of 8, 1 and 1 writers"));

  const Handwriting fewer = ReadDigilets(folder.path(), {.train = 3, .held_out = 5});
  EXPECT_EQ(fewer.train[2].text, data.train[2].text);
  EXPECT_EQ(fewer.train[2].points, data.train[2].points);
  EXPECT_EQ(ReadDigilets(folder.path(), {.train = 200, .held_out = 5}).sha256, data.sha256);
}

TEST_F(ReadDigiletsTest, ReportsMissingFiles) {
  EXPECT_FALSE(IsDigilets(folder.path()));
  WriteWriters(2);
  EXPECT_TRUE(IsDigilets(folder.path()));
  EXPECT_THAT([&] { ReadDigilets(folder.path(), {}); },
              ::testing::ThrowsMessage<DataError>(
                  HasSubstr(" has the files of 2 writers; at least 3 are needed")));
  WriteWriters(10);
  WriteFile(folder / "004.txt", "1 2\n");
  EXPECT_THAT(
      [&] { ReadDigilets(folder.path(), {}); },
      ::testing::ThrowsMessage<DataError>(HasSubstr("004.txt, line 1: no line with the label")));
}

TEST_F(ReadDigiletsTest, HoldsOutTheLastTwoOfFewWriters) {
  WriteWriters(3);
  const Handwriting data = ReadDigilets(folder.path(), {.train = 20, .held_out = 5});
  for (const WrittenLine& line : data.train) EXPECT_NEAR(Across(line), 0.25, 1.0 / 274 + 1e-6);
  for (const WrittenLine& line : data.valid) EXPECT_NEAR(Across(line), 0.26, 1.0 / 274 + 1e-6);
  for (const WrittenLine& line : data.test) EXPECT_NEAR(Across(line), 0.27, 1.0 / 274 + 1e-6);
}

TEST_F(ReadDigiletsTest, ComposesLinesOfSomeSymbols) {
  WriteWriters(4);
  for (const std::string symbols : {"7", "0123456789", "xyzA", "Qq8"}) {
    const Handwriting data =
        ReadDigilets(folder.path(), {.train = 50, .held_out = 5, .symbols = symbols});
    std::string seen;
    for (const WrittenLine& line : data.train) {
      EXPECT_EQ(line.text.find_first_not_of(symbols + " "), line.text.npos) << line.text;
      seen += line.text;
    }
    for (const char symbol : symbols) EXPECT_NE(seen.find(symbol), seen.npos) << symbol;
    EXPECT_THAT(data.description, HasSubstr("the characters \"" + symbols + "\" of 2, 1 and 1"));
  }
  for (const std::string symbols : {"a!", "\u00e9", "a b"}) {
    EXPECT_THAT([&] { ReadDigilets(folder.path(), {.symbols = symbols}); },
                ::testing::ThrowsMessage<UsageError>(
                    HasSubstr("[handwriting] symbols must be digits and letters")));
  }
}

TEST_F(ReadDigiletsTest, LeavesOutWritersWithoutTheSymbols) {
  WriteWriters(5, 12);  // 0 to 9, a and b
  WriteFile(folder / "005.txt", Joined({Way(), Label(30)}));
  const Handwriting all = ReadDigilets(folder.path(), {.train = 50, .held_out = 5});
  EXPECT_THAT(all.description, HasSubstr("of 4, 1 and 1 writers"));
  for (const WrittenLine& line : all.test) {
    EXPECT_EQ(line.text.find_first_not_of(" u"), line.text.npos) << line.text;
  }
  const Handwriting some =
      ReadDigilets(folder.path(), {.train = 50, .held_out = 5, .symbols = "ab"});
  EXPECT_THAT(some.description, HasSubstr("of 3, 1 and 1 writers"));
  EXPECT_THAT(some.description, HasSubstr(", 1 writer without them"));
  EXPECT_THAT([&] { ReadDigilets(folder.path(), {.symbols = "Z"}); },
              ::testing::ThrowsMessage<DataError>(
                  HasSubstr("has the files of 0 writers of these symbols; at least 3")));
}

TEST_F(ReadDigiletsTest, ReadsSomeWriters) {
  WriteWriters(12);
  const auto across = [&](const std::string& writers) {
    const Handwriting data =
        ReadDigilets(folder.path(), {.train = 30, .held_out = 3, .writers = writers});
    std::set<int64_t> found;
    for (const auto* part : {&data.train, &data.valid, &data.test}) {
      for (const WrittenLine& line : *part) {
        found.insert(std::lround((double{Across(line)} - 0.25) / 0.01 - 0.05));
      }
    }
    return found;
  };
  const auto near = [](const std::set<int64_t>& found, int64_t low, int64_t high) {
    return *found.begin() >= low - 1 && *found.rbegin() <= high + 1;
  };
  EXPECT_TRUE(near(across("0-2"), 0, 2));
  EXPECT_TRUE(near(across(" 9-30"), 9, 11));
  EXPECT_THAT(ReadDigilets(folder.path(), {.writers = "1 3-5  11"}).description,
              HasSubstr("of 3, 1 and 1 writers"));
  for (const std::string writers : {"x", "1,2", "3-1", "-2", "1-", "99", "1 20-30"}) {
    EXPECT_THAT([&] { ReadDigilets(folder.path(), {.writers = writers}); },
                ::testing::ThrowsMessage<UsageError>(HasSubstr("[handwriting] writers must ")))
        << writers;
  }
}

TEST(ReadDigilets, TheRealOne) {
  const std::optional<fs::path> folder = DataFolder("");
  if (!folder || !fs::exists(*folder / "digilets")) {
    GTEST_SKIP() << "PLANISH_DATA does not name a folder with digilets";
  }
  const Handwriting data = ReadDigilets(*folder / "digilets", {.train = 50, .held_out = 10});
  // Counted in Python: 33 of 23,870 ways leave the unit square.
  EXPECT_THAT(data.description, HasSubstr("of 63, 7 and 7 writers"));
  EXPECT_THAT(data.description, HasSubstr("left out: 33 characters beyond the tablet"));
  for (const WrittenLine& line : data.train) {
    EXPECT_GT(line.points.size(), 150u);
    for (const PenPoint& point : line.points) {
      ASSERT_GE(point.y, -0.01f);
      ASSERT_LE(point.y, 1.01f);
    }
  }
}

}  // namespace
}  // namespace planish::lab
