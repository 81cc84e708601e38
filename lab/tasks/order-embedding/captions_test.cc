#include "lab/tasks/order-embedding/captions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <numeric>

#include "lab/data/test_files.h"
#include "lab/error.h"

namespace planish::lab {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Returns `rows` as dense rows.
std::vector<std::vector<float>> Dense(const FeatureRows& rows) {
  std::vector<std::vector<float>> all;
  for (int64_t r = 0; r < rows.rows; ++r) {
    if (!rows.dense.empty()) {
      const auto first = rows.dense.begin() + r * rows.width;
      all.emplace_back(first, first + rows.width);
      continue;
    }
    std::vector<float>& row = all.emplace_back(rows.width);
    for (auto i = static_cast<size_t>(rows.begins[static_cast<size_t>(r)]);
         i < static_cast<size_t>(rows.begins[static_cast<size_t>(r) + 1]); ++i) {
      row[static_cast<size_t>(rows.columns[i])] = rows.values[i];
    }
  }
  return all;
}

// Returns an array [rows, width] of floats in NumPy's format.
std::string Npy(int64_t rows, int64_t width, const std::vector<float>& numbers) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" +
                       std::to_string(rows) + ", " + std::to_string(width) + "), }";
  header.append(118 - 1 - header.size(), ' ');
  std::string file = "\x93NUMPY\x01";
  file += '\0';
  file += "v";
  file += '\0';
  return file + header + '\n' +
         std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float));
}

std::string Lines(int64_t count, const std::string& text) {
  std::string lines;
  for (int64_t i = 0; i < count; ++i) lines += text + " " + std::to_string(i) + "\n";
  return lines;
}

class CaptionsTest : public ::testing::Test {
 protected:
  // Writes three images for training, two for validation and one for testing, with two features
  // each.
  void WriteFiles(const fs::path& place) {
    fs::create_directories(place);
    WriteFile(place / "train_ims.npy", Npy(3, 2, {3, 4, 0, -2, 0, 0}));
    WriteFile(place / "train_caps.txt", Lines(15, "a dog"));
    WriteFile(place / "dev_ims.npy", Npy(2, 2, {1, 0, 0, 1}));
    WriteFile(place / "dev_caps.txt", Lines(10, "a  cat\t"));
    WriteFile(place / "test_ims.npy.gz", Gzip(Npy(1, 2, {0, 5})));
    WriteFile(place / "test_caps.txt", " \n\n.\na\nb\n");
  }
  void WriteMulti30k(const fs::path& place) {
    fs::create_directories(place);
    for (const auto& [split, count] :
         {std::pair<std::string, int64_t>("train", 4), {"val", 2}, {"test_2016", 1}}) {
      for (const std::string k : {"1", "2", "3", "4", "5"}) {
        WriteFile(place / (split + "." + k + ".en.gz"), Gzip(Lines(count, "Dog " + k)));
        WriteFile(place / (split + "." + k + ".de"), Lines(count, "Hund"));
      }
    }
  }

  CaptionSets Open(const fs::path& place, const CaptionRequest& request = {}) {
    return OpenCaptions(place, request);
  }
  std::string ErrorOf(const fs::path& place, const CaptionRequest& request = {}) {
    try {
      Open(place, request);
    } catch (const DataError& e) {
      return e.what();
    }
    return "no error";
  }
  TestFolder folder;
};

TEST_F(CaptionsTest, ReadsPrecomputedFeatures) {
  const fs::path place = folder / "coco_precomp";
  WriteFiles(place);
  const CaptionSets sets = Open(place);
  EXPECT_EQ(sets.name, "coco");
  EXPECT_EQ(sets.source, "files");
  EXPECT_TRUE(sets.tokenized);
  EXPECT_THAT(Dense(sets.train.images),
              ElementsAre(ElementsAre(0.6F, 0.8F), ElementsAre(0, -1), ElementsAre(0, 0)));
  EXPECT_EQ(sets.train.captions[14], "a dog 14");
  EXPECT_THAT(WordsOf(sets.valid.captions[3], sets.tokenized), ElementsAre("a", "cat", "3"));
  EXPECT_THAT(Dense(sets.test.images), ElementsAre(ElementsAre(0, 1)));
  EXPECT_THAT(
      sets.description,
      AllOf(HasSubstr("coco, read from "),
            HasSubstr(": 3 training images, 2 for validation, 1 for testing, five captions each; 2 "
                      "captions without words kept; 1 image with no features kept")));
}

TEST_F(CaptionsTest, CutsTheTrainingSet) {
  WriteFiles(folder / "set");
  const CaptionSets all = Open(folder / "set"), cut = Open(folder / "set", {.train_images = 2});
  EXPECT_EQ(cut.train.size(), 2);
  EXPECT_EQ(cut.train.captions.size(), 10u);
  EXPECT_EQ(cut.train.images.dense.size(), 4u);
  EXPECT_EQ(cut.valid.size(), 2);
  EXPECT_NE(cut.sha256, all.sha256);
  EXPECT_EQ(Open(folder / "set").sha256, all.sha256);
}

TEST_F(CaptionsTest, PrefersTheWholeTestSet) {
  WriteFiles(folder / "set");
  WriteFile(folder / "set/testall_ims.npy", Npy(2, 2, {1, 0, 0, 1}));
  WriteFile(folder / "set/testall_caps.txt", Lines(10, "a cat"));
  EXPECT_EQ(Open(folder / "set").test.size(), 2);
}

TEST_F(CaptionsTest, ChecksPrecomputedFeatures) {
  const fs::path place = folder / "set";
  const auto error = [&](const std::string& file, const std::string& content) {
    WriteFiles(place);
    WriteFile(place / file, content);
    return ErrorOf(place);
  };
  EXPECT_THAT(
      error("dev_caps.txt", Lines(9, "a")),
      HasSubstr("dev_caps.txt: it has 9 lines; 10 were expected, 5 for each of the 2 images "
                "of dev_ims.npy"));
  EXPECT_THAT(error("dev_caps.txt", Lines(11, "a")),
              HasSubstr(": it has 11 lines; 10 were expected"));
  EXPECT_THAT(error("dev_ims.npy", Npy(2, 3, {1, 0, 0, 1, 0, 0})),
              HasSubstr((place / "dev_ims.npy").string() +
                        ": its rows have 3 elements, but those of train_ims.npy have 2"));
  EXPECT_THAT(error("train_ims.npy", Npy(3, 2, {3, 4, 0, NAN, 0, 0})),
              HasSubstr("row 1, counted from 0, has elements that are not finite"));
  EXPECT_THAT(error("train_ims.npy", Npy(3, 0, {})),
              HasSubstr("it has 2 dimensions and no elements; "));
  EXPECT_THAT(error("train_ims.npy", "x"),
              HasSubstr("train_ims.npy: it begins with \\x78; NumPy's"));
  EXPECT_THAT(error("train_caps.txt", Lines(14, "a") + "\xff\n"),
              HasSubstr(", line 15: byte 0xff at column 1 is not UTF-8"));
  std::string flat = Npy(6, 1, {3, 4, 0, 1, 0, 0});
  flat.replace(flat.find("(6, 1)"), 6, "(6,  )");
  EXPECT_THAT(error("train_ims.npy", flat),
              HasSubstr("it has 1 dimension; the shape (images, features) was expected"));
  WriteFiles(place);
  WriteFile(place / "dev_ims.npy", Npy(0, 2, {}));
  WriteFile(place / "dev_caps.txt", "");
  EXPECT_THAT(ErrorOf(place), HasSubstr("has no validation images"));
  fs::remove(place / "dev_caps.txt");
  EXPECT_THAT(ErrorOf(place), HasSubstr("has no file dev_caps.txt or dev_caps.txt.gz"));
}

TEST_F(CaptionsTest, ReadsMulti30k) {
  for (const std::string below : {"", "task2", "multi30k/task2"}) {
    const fs::path root = folder / ("root" + std::to_string(below.size()));
    WriteMulti30k(root / below);
    const CaptionSets sets = Open(root, {.features = 8});
    EXPECT_EQ(sets.name, "multi30k");
    EXPECT_FALSE(sets.tokenized);
    EXPECT_EQ(sets.train.size(), 4);
    EXPECT_EQ(sets.valid.size(), 2);
    EXPECT_EQ(sets.test.size(), 1);
    EXPECT_EQ(sets.train.captions.size(), 20u);
    // The second image's third caption.
    EXPECT_EQ(sets.train.captions[7], "Dog 3 1");
    EXPECT_EQ(sets.train.images.width, 8);
    EXPECT_THAT(sets.description,
                HasSubstr("; an image is represented by 8 hashed TF-IDF features"));
  }
}

TEST_F(CaptionsTest, ChecksMulti30k) {
  WriteMulti30k(folder.path());
  WriteFile(folder / "val.4.de", "Hund\n");
  EXPECT_THAT(ErrorOf(folder.path()), HasSubstr("val.4.de: it has 1 line, but val.1.de has 2"));
  for (const std::string k : {"1", "2", "3", "5"}) {
    WriteFile(folder / ("val." + k + ".de"), "Hund\n");
  }
  EXPECT_THAT(ErrorOf(folder.path()), HasSubstr("val.1.de: it has 1 line, but val.1.en has 2"));
  fs::remove(folder / "val.4.de");
  EXPECT_THAT(ErrorOf(folder.path()), HasSubstr("has no file val.4.de or val.4.de.gz"));
  EXPECT_THAT(ErrorOf(folder / "nothing"), HasSubstr(": it is not a folder"));
  EXPECT_THROW(OpenCaptions({}, {.data = "multi30k"}), UsageError);
  EXPECT_THROW(OpenCaptions({}, {.data = "files"}), UsageError);
}

TEST_F(CaptionsTest, GeneratesSyntheticScenes) {
  const CaptionSets sets = OpenCaptions({}, {.train_images = 100, .features = 64});
  EXPECT_EQ(sets.name, "synthetic scenes");
  EXPECT_EQ(sets.source, "embedded");
  EXPECT_EQ(sets.train.size(), 100);
  EXPECT_EQ(sets.valid.size(), 200);
  EXPECT_EQ(sets.test.size(), 200);
  EXPECT_EQ(sets.train.images.width, 64);
  EXPECT_EQ(sets.sha256,
            OpenCaptions(folder.path(), {.data = "synthetic", .train_images = 100}).sha256);
}

TEST(WordsOf, SplitsCaptions) {
  EXPECT_THAT(WordsOf("A man's T-shirt, \"red\" (it's)...", false),
              ElementsAre("a", "man's", "t-shirt", "red", "it's"));
  EXPECT_THAT(WordsOf("Über 3 Männer\u00a0– ein „Hund“ - nicht’s ÄÖÜß×", false),
              ElementsAre("über", "3", "männer", "ein", "hund", "nicht's", "äöüß×"));
  EXPECT_THAT(WordsOf("'quoted' -x- a-", false), ElementsAre("quoted", "x", "a"));
  EXPECT_THAT(WordsOf(" \t.,", false), IsEmpty());
  EXPECT_THAT(WordsOf(" A man 's\that .", true), ElementsAre("A", "man", "'s", "hat", "."));
}

// By hand, with a width at which FNV-1a of "a", "b" and "c" differ. Both texts have a; one has b
// twice, the other c.
TEST(HashedTfidf, WeighsWords) {
  const std::vector<std::string> lines = {"a b", "B", "a.", "c"};
  const HashedTfidf tfidf(1 << 20, lines, 2);
  const FeatureRows rows = tfidf.Rows(lines);
  EXPECT_EQ(rows.rows, 2);
  EXPECT_THAT(rows.begins, ElementsAre(0, 2, 4));
  const double a = 1, b = 2 * (std::log(1.5) + 1);  // ln(3/3) + 1; ln(3/2) + 1, twice
  std::vector<float> first(rows.values.begin(), rows.values.begin() + 2);
  std::ranges::sort(first);
  // Rounded to floats once.
  EXPECT_FLOAT_EQ(first[0], static_cast<float>(a / std::hypot(a, b)));
  EXPECT_FLOAT_EQ(first[1], static_cast<float>(b / std::hypot(a, b)));
  // The common word is in the same column.
  std::vector<int32_t> shared;
  std::ranges::set_intersection(std::vector(rows.columns.begin(), rows.columns.begin() + 2),
                                std::vector(rows.columns.begin() + 2, rows.columns.end()),
                                std::back_inserter(shared));
  EXPECT_EQ(shared.size(), 1u);
  // An unseen word has the largest weight: ln(3/1) + 1. Without words a row is 0.
  const FeatureRows others = tfidf.Rows(std::vector<std::string>{"a", "d", "", "?"});
  EXPECT_THAT(others.begins, ElementsAre(0, 2, 2));
  const double d = std::log(3.0) + 1;
  EXPECT_FLOAT_EQ(*std::ranges::max_element(others.values),
                  static_cast<float>(d / std::hypot(1, d)));
}

TEST(HashedTfidf, CountsWordsOfOneColumnTogether) {
  const std::vector<std::string> lines = {"a b c d e f"};
  const FeatureRows rows = HashedTfidf(1, lines, 1).Rows(lines);
  EXPECT_THAT(rows.columns, ElementsAre(0));
  EXPECT_THAT(rows.values, ElementsAre(1));
}

// FNV-1a, 64 bits: the published values of "a" and "foobar" (Fowler, Noll, Vo: draft-eastlake-fnv).
TEST(HashedTfidf, HashesWithFnv) {
  const auto column = [](const std::string& word, uint64_t hash) {
    const std::vector<std::string> lines = {word};
    EXPECT_THAT(HashedTfidf(1'000'003, lines, 1).Rows(lines).columns,
                ElementsAre(static_cast<int32_t>(hash % 1'000'003)));
  };
  column("a", 0xaf63dc4c8601ec8c);
  column("foobar", 0x85944171f73967e8);
}

TEST(OpenCaptions, ReadsTheRealSet) {
  const char* data = std::getenv("PLANISH_DATA");
  if (data == nullptr || !fs::is_directory(fs::path(data) / "multi30k/task2")) {
    GTEST_SKIP() << "PLANISH_DATA has no multi30k/task2";
  }
  const CaptionSets sets = OpenCaptions(fs::path(data), {});
  EXPECT_EQ(sets.train.size(), 29'000);
  EXPECT_EQ(sets.valid.size(), 1'014);
  EXPECT_EQ(sets.test.size(), 1'000);
}

}  // namespace
}  // namespace planish::lab
