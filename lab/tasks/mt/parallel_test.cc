#include "lab/tasks/mt/parallel.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "lab/data/source.h"
#include "lab/data/test_files.h"
#include "lab/error.h"

namespace planish::lab {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class ParallelTest : public ::testing::Test {
 protected:
  // Writes files of three splits, of languages xx and yy, into `below`.
  void WriteSplits(const std::vector<std::string>& stems, const std::string& from = "xx",
                   const std::string& to = "yy", const std::string& below = "") {
    fs::create_directories(folder / below);
    for (const std::string& stem : stems) {
      WriteFile(folder / below / (stem + "." + from), "one " + stem + "\ntwo\n");
      WriteFile(folder / below / (stem + "." + to), "eins " + stem + "\nzwei\n");
    }
  }

  ParallelText Open(const std::string& data, const std::string& direction = "xx-yy") {
    return OpenParallel(folder.path(), {.data = data, .direction = direction});
  }

  std::string ErrorOf(const std::string& data, const std::string& direction = "xx-yy") {
    try {
      Open(data, direction);
    } catch (const DataError& e) {
      return std::string("data: ") + e.what();
    } catch (const UsageError& e) {
      return std::string("usage: ") + e.what();
    }
    return "no error";
  }

  TestFolder folder;
};

TEST_F(ParallelTest, ReadsFilesInBothDirections) {
  WriteSplits({"train", "dev", "test"});
  const ParallelText text = Open("files");
  ASSERT_EQ(text.train.size(), 2u);
  EXPECT_EQ(text.train[0].source, "one train");
  EXPECT_EQ(text.train[1].target, "zwei");
  EXPECT_EQ(text.valid[0].target, "eins dev");
  EXPECT_EQ(text.test[0].source, "one test");
  EXPECT_EQ(text.name, "files xx-yy");
  EXPECT_EQ(text.source, "files");
  EXPECT_EQ(text.description,
            fmt::format("files xx to yy, read from {}: 2 training pairs, 2 for validation, 2 for "
                        "testing",
                        folder.path().string()));
  const ParallelText back = Open("files", "yy-xx");
  EXPECT_EQ(back.train[0].source, "eins train");
  EXPECT_EQ(back.train[0].target, "one train");
  EXPECT_NE(back.sha256, text.sha256);
}

TEST_F(ParallelTest, ReadsGzipAndTheNamesOfValidation) {
  WriteSplits({"train", "dev", "val", "valid", "test"});
  fs::remove(folder / "train.xx");
  WriteFile(folder / "train.xx.gz", Gzip("packed\ntwo\n"));
  EXPECT_EQ(Open("files").train[0].source, "packed");
  EXPECT_EQ(Open("files").valid[0].source, "one valid");
}

TEST_F(ParallelTest, FindsTheFoldersOfTheSets) {
  WriteSplits({"train", "val", "test_2016_flickr"}, "en", "de", "multi30k/task1");
  WriteSplits({"train_sample4600", "valid", "test"}, "de", "en", "iwslt14_deen");
  EXPECT_EQ(Open("multi30k", "en-de").test[0].source, "one test_2016_flickr");
  EXPECT_EQ(Open("auto", "de-en").name, "multi30k de-en");
  EXPECT_EQ(Open("iwslt14", "de-en").train[0].source, "one train_sample4600");
  const ParallelText inside =
      OpenParallel(folder / "multi30k", {.data = "multi30k", .direction = "de-en"});
  EXPECT_EQ(inside.train[0].source, "eins train");
  WriteSplits({"train"}, "de", "en", "iwslt14_deen");  // the whole set, if it exists
  EXPECT_EQ(Open("iwslt14", "de-en").train[0].source, "one train");
}

TEST_F(ParallelTest, CountsPairsWithAnEmptySide) {
  WriteSplits({"train", "dev", "test"});
  WriteFile(folder / "train.xx", "a\n\nb\nc\n");
  WriteFile(folder / "train.yy", "A\nB\n \t\nC\n");
  const ParallelText text = Open("files");
  ASSERT_EQ(text.train.size(), 2u);
  EXPECT_EQ(text.train[1].source, "c");
  EXPECT_EQ(text.train[1].target, "C");
  EXPECT_THAT(text.description, HasSubstr("; 2 pairs with an empty side left out"));
  WriteFile(folder / "dev.yy", "\n\n");
  EXPECT_THAT(ErrorOf("files"), HasSubstr("has no validation pairs"));
}

TEST_F(ParallelTest, KeepsTheFirstTrainingPairs) {
  WriteSplits({"train", "dev", "test"});
  const ParallelText text =
      OpenParallel(folder.path(), {.data = "files", .direction = "xx-yy", .train_pairs = 1});
  ASSERT_EQ(text.train.size(), 1u);
  EXPECT_EQ(text.train[0].source, "one train");
  EXPECT_THAT(text.description, HasSubstr(": 1 training pairs of 2, 2 for validation"));
  EXPECT_NE(text.sha256, Open("files").sha256);
}

TEST_F(ParallelTest, ReportsErrors) {
  EXPECT_THAT(ErrorOf("files"),
              HasSubstr(" has no sentence pairs: files NAME.xx and NAME.yy, where NAME is train"));
  WriteSplits({"train", "test"});
  EXPECT_THAT(ErrorOf("files"), HasSubstr(", where NAME is valid or val or dev"));
  WriteSplits({"dev"});
  WriteFile(folder / "test.yy", "eins\n");
  EXPECT_THAT(ErrorOf("files"), HasSubstr("test.yy: it has 1 line, but test.xx has 2"));
  fs::remove(folder / "test.yy");
  EXPECT_THAT(ErrorOf("files"), HasSubstr(" has test.xx, but no test.yy"));
  WriteFile(folder / "test.yy", "ei\xffns\nzwei\n");
  EXPECT_THAT(ErrorOf("files"), HasSubstr("test.yy, line 1: byte 0xff at column 3 is not "
                                          "UTF-8"));
  EXPECT_THAT(ErrorOf("tatoeba", "en-de"), HasSubstr(" has no file deu.txt or deu.txt.gz"));
  EXPECT_THROW(OpenParallel(folder / "none", {}), DataError);
}

TEST_F(ParallelTest, RefusesInvalidRequests) {
  for (const char* direction : {"en", "en-", "-de", "en-en", "en-de-fr", "../x-y", ""}) {
    EXPECT_THAT(ErrorOf("files", direction), HasSubstr("usage: [mt] direction must be two "))
        << direction;
  }
  EXPECT_THAT(ErrorOf("multi30k", "en-fr"),
              HasSubstr("usage: [mt] direction must be en-de or de-en for data=multi30k"));
  EXPECT_THROW(OpenParallel({}, {.data = "tatoeba"}), UsageError);
}

TEST_F(ParallelTest, SplitsATableByItsSentences) {
  std::string table;
  for (int i = 0; i < 400; ++i) {
    // Each English sentence has two translations; every tenth one shares the second with another.
    table += fmt::format("English {0}\tDeutsch {0}\n", i);
    table += fmt::format("English {0}\tAuch Deutsch {1}\tnote\n", i, i % 10 == 0 ? 0 : i);
  }
  WriteFile(folder / "deu.txt.gz", Gzip(table));
  const ParallelText text = Open("tatoeba", "en-de");
  EXPECT_EQ(text.test.size(), 20u);  // a twentieth of 400
  EXPECT_EQ(text.valid.size(), 20u);
  std::set<std::string> held_out;
  for (const auto* split : {&text.valid, &text.test}) {
    for (const SentencePair& pair : *split) {
      EXPECT_THAT(pair.target, ::testing::StartsWith("Deutsch"));
      EXPECT_TRUE(held_out.insert(pair.source).second);
      held_out.insert(pair.target);
    }
  }
  EXPECT_GE(text.train.size(), 640u);
  for (const SentencePair& pair : text.train) {
    EXPECT_FALSE(held_out.contains(pair.source)) << pair.source;
    EXPECT_FALSE(held_out.contains(pair.target)) << pair.target;
    EXPECT_THAT(pair.target, Not(HasSubstr("note")));
  }
  EXPECT_THAT(text.description,
              HasSubstr(fmt::format("; {} training pairs left out", 800 - text.train.size())));
  // Not in the order of the file.
  EXPECT_FALSE(std::ranges::is_sorted(text.train, {}, &SentencePair::source));
  EXPECT_EQ(Open("tatoeba", "en-de").sha256, text.sha256);
  // The file itself, and the other direction.
  const ParallelText back =
      OpenParallel(folder / "deu.txt.gz", {.data = "tatoeba", .direction = "de-en"});
  EXPECT_EQ(back.test[0].source, text.test[0].target);

  WriteFile(folder / "deu.txt.gz", Gzip(table + "no tab\n"));
  EXPECT_THAT(ErrorOf("tatoeba", "en-de"), HasSubstr(", line 801: it has no tab"));
}

// Returns lines "one I", a tab and "eins I".
std::string Table(int first, int count, const std::string& end = "") {
  std::string table;
  for (int i = first; i < first + count; ++i)
    table += fmt::format("one {0}\teins {0}{1}\n", i, end);
  return table;
}

TEST_F(ParallelTest, DrawsTheSetsOfATable) {
  WriteFile(folder / "pairs.tsv.gz", Gzip("\xef\xbb\xbf" + Table(0, 100, "\tby me") + "\tleft\n"));
  const auto open = [&](const fs::path& path, const std::string& direction,
                        const std::string& columns = "", int64_t seed = 1) {
    return OpenParallel(
        path, {.data = "auto", .direction = direction, .columns = columns, .split_seed = seed});
  };
  const ParallelText text = open(folder / "pairs.tsv.gz", "xx-yy");
  EXPECT_EQ(text.name, "files xx-yy");
  EXPECT_EQ(text.train.size(), 90u);
  EXPECT_EQ(text.valid.size(), 5u);
  EXPECT_EQ(text.test.size(), 5u);
  EXPECT_THAT(text.train[0].source, ::testing::StartsWith("one "));
  EXPECT_EQ("eins" + text.train[0].source.substr(3), text.train[0].target);
  EXPECT_THAT(text.description,
              HasSubstr("5 for testing, sets at random (split_seed=1); 1 pair with an empty side "
                        "left out; 100 lines cut after a second tab"));
  EXPECT_EQ(open(folder.path(), "xx-yy").sha256, text.sha256);  // the only table of the folder
  EXPECT_NE(open(folder.path(), "xx-yy", "", 2).sha256, text.sha256);
  // The names of the columns, and the other direction.
  EXPECT_EQ(open(folder.path(), "xx-yy", "xx-yy").sha256, text.sha256);
  const ParallelText back = open(folder.path(), "yy-xx", "xx-yy");
  EXPECT_THAT(back.train[0].source, ::testing::StartsWith("eins "));
  EXPECT_THROW(open(folder.path(), "xx-yy", "xx-zz"), UsageError);
  EXPECT_THROW(open(folder.path(), "xx-yy", "xx"), UsageError);
  EXPECT_THROW(OpenParallel({}, {.direction = "de-en", .columns = "de-en"}), UsageError);
  WriteFile(folder / "bad.txt", Table(0, 3) + "no tab\x1b\n");
  EXPECT_THAT(
      [&] { open(folder / "bad.txt", "xx-yy"); },
      ::testing::ThrowsMessage<DataError>(HasSubstr(
          "bad.txt, line 4: it has no tab; xx, a tab and yy were expected: \"no tab\\x1b\"")));
  EXPECT_THAT(ErrorOf("files"), HasSubstr(" has several files: files NAME.xx and NAME.yy"));
}

TEST_F(ParallelTest, ReadsATableForEachSet) {
  WriteFile(folder / "train.tsv", Table(0, 10));
  WriteFile(folder / "dev.txt", Table(10, 3));
  EXPECT_THAT(ErrorOf("files"), HasSubstr(" has train.tsv and dev.txt, but no file for the test"));
  WriteFile(folder / "test.tsv.gz", Gzip(Table(20, 2)));
  const ParallelText text = Open("files");
  EXPECT_EQ(text.train[0].source, "one 0");
  EXPECT_EQ(text.valid[0].target, "eins 10");
  EXPECT_EQ(text.test[1].source, "one 21");
}

TEST_F(ParallelTest, DrawsTheSetsOfTwoParallelFiles) {
  std::string from, to;
  for (int i = 0; i < 60; ++i) {
    from += fmt::format("one {}\n", i);
    to += fmt::format("eins {}\n", i);
  }
  WriteFile(folder / "some.corpus.xx.gz", Gzip(from));
  WriteFile(folder / "some.corpus.yy", to);
  WriteFile(folder / "readme.txt", "no pairs");
  const ParallelText text = Open("files");
  EXPECT_EQ(text.train.size(), 54u);
  for (const char* name : {"some.corpus.xx.gz", "some.corpus.yy"}) {
    EXPECT_EQ(OpenParallel(folder / name, {.data = "auto", .direction = "xx-yy"}).sha256,
              text.sha256);
  }
  fs::rename(folder / "some.corpus.yy", folder / "train.yy");
  fs::rename(folder / "some.corpus.xx.gz", folder / "train.xx.gz");
  EXPECT_EQ(Open("files").sha256, text.sha256);  // only the name differs
  WriteFile(folder / "train.yy", to + "more\n");
  EXPECT_THAT(ErrorOf("files"), HasSubstr("train.yy: it has 61 lines, but train.xx.gz has 60"));
}

TEST_F(ParallelTest, GeneratesSyntheticPairsWithoutAFolder) {
  const ParallelText text = OpenParallel({}, {.data = "auto", .direction = "de-en"});
  EXPECT_EQ(text.name, "synthetic de-en");
  EXPECT_EQ(text.source, "embedded");
  EXPECT_EQ(text.train.size(), 4'000u);
  EXPECT_EQ(text.valid.size(), 200u);
  EXPECT_EQ(text.test.size(), 200u);
  std::set<std::string> known;
  for (const SentencePair& pair : text.train) known.insert(pair.target);
  for (const SentencePair& pair : text.test) EXPECT_FALSE(known.contains(pair.target));
  EXPECT_EQ(OpenParallel(folder.path(), {.data = "synthetic", .direction = "de-en"}).sha256,
            text.sha256);
}

TEST(OpenParallel, ReadsTheRealOnes) {
  const std::optional<fs::path> data = DataFolder("");
  if (!data || !fs::exists(*data / "multi30k") || !fs::exists(*data / "tatoeba_deu_eng") ||
      !fs::exists(*data / "iwslt14_deen")) {
    GTEST_SKIP() << "PLANISH_DATA does not name a folder with multi30k, tatoeba_deu_eng and "
                    "iwslt14_deen";
  }
  const ParallelText flickr = OpenParallel(data, {.data = "multi30k"});
  EXPECT_EQ(flickr.train.size(), 29'000u);
  EXPECT_EQ(flickr.valid.size(), 1'014u);
  EXPECT_EQ(flickr.test.size(), 1'000u);
  EXPECT_EQ(flickr.train[0].source, "Two young, White males are outside near many bushes.");
  const ParallelText ted = OpenParallel(data, {.data = "iwslt14", .direction = "de-en"});
  EXPECT_EQ(ted.train.size(), 4'600u);
  EXPECT_EQ(ted.valid.size(), 7'283u);
  EXPECT_EQ(ted.test.size(), 6'750u);
  const ParallelText tatoeba = OpenParallel(data, {.data = "tatoeba"});
  EXPECT_EQ(tatoeba.test.size(), 2'000u);
  EXPECT_GT(tatoeba.valid.size(), 1'500u);
  EXPECT_GT(tatoeba.train.size(), 150'000u);
}

TEST(OpenParallelTest, TakesNoOtherTableForTatoeba) {
  const TestFolder folder;
  WriteFile(folder / "vi.txt", "one\tmot\n");
  EXPECT_THAT([&] { OpenParallel(folder / "vi.txt", {.data = "tatoeba"}); },
              ::testing::ThrowsMessage<DataError>(
                  HasSubstr("vi.txt: Tatoeba's file is called deu.txt or deu.txt.gz")));
}

TEST(DirectionOfTableTest, NamesOnlyLanguagesThatFilesName) {
  const TestFolder folder;
  const auto direction = [&](const std::string& name) {
    return DirectionOfTable(folder / name, "de-en");
  };
  for (const char* name : {"pairs.tsv", "iwslt15.vi-en.tsv", "vi_en.txt.gz", "x.de", "x.en.gz",
                           "my-set.tsv", "VI-EN.tsv", "en-en.tsv", "navi-end.tsv"}) {
    WriteFile(folder / name, "");
  }
  EXPECT_EQ(direction("pairs.tsv"), "source-target");
  EXPECT_EQ(direction("iwslt15.vi-en.tsv"), "vi-en");
  EXPECT_EQ(direction("vi_en.txt.gz"), "vi-en");
  for (const char* name : {"my-set.tsv", "VI-EN.tsv", "en-en.tsv", "navi-end.tsv"}) {
    EXPECT_EQ(direction(name), "source-target") << name;
  }
  // Parallel files have the languages in their names.
  EXPECT_EQ(direction("x.de"), std::nullopt);
  EXPECT_EQ(direction("x.en.gz"), std::nullopt);
  EXPECT_EQ(direction("none"), std::nullopt);
  EXPECT_EQ(direction(""), std::nullopt);  // a folder with parallel files
  fs::create_directories(folder / "data.fr-en");
  EXPECT_EQ(direction("data.fr-en"), std::nullopt);  // without a table
  WriteFile(folder / "data.fr-en/train.tsv", "");
  EXPECT_EQ(direction("data.fr-en"), "fr-en");
  EXPECT_EQ(direction("data.fr-en/train.tsv"), "fr-en");
}

}  // namespace
}  // namespace planish::lab
