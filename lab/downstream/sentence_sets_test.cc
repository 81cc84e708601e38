#include "lab/downstream/sentence_sets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "lab/data/test_files.h"
#include "lab/error.h"

namespace planish::lab {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kHead =
    "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n";

class SentenceSets : public ::testing::Test {
 protected:
  fs::path File(const std::string& content) {
    WriteFile(folder / "file", content);
    return folder / "file";
  }

  template <class F>
  std::string ErrorOf(const std::string& content, F&& read) {
    try {
      read(File(content));
    } catch (const DataError& e) {
      return e.what();
    }
    return "no error";
  }

  std::string SickError(const std::string& content) { return ErrorOf(content, ReadSick); }
  std::string ClassError(const std::string& content) {
    return ErrorOf(content, [](const fs::path& file) { ReadClassified(file, "x"); });
  }

  TestFolder folder;
};

TEST_F(SentenceSets, ReadsSickWithEitherLineEnd) {
  for (const bool windows : {false, true}) {
    std::string content = kHead + "1\tA dog.\tA cat.\t4.5\tNEUTRAL\n6\tOne\tTwo\t1\tNEUTRAL\n";
    if (windows) {
      for (size_t i = 0; (i = content.find('\n', i)) != content.npos; i += 2) {
        content.replace(i, 1, "\r\n");
      }
    }
    const RelatedPairs pairs = ReadSick(File(content));
    EXPECT_THAT(pairs.a, ElementsAre("A dog.", "One"));
    EXPECT_THAT(pairs.b, ElementsAre("A cat.", "Two"));
    EXPECT_THAT(pairs.scores, ElementsAre(4.5, 1));
  }
}

TEST_F(SentenceSets, NamesTheLineOfSickThatIsWrong) {
  EXPECT_THAT(SickError(kHead + "1\ta\tb\t4\tX\n2\ta\tb\t4\n"),
              HasSubstr("line 3: it has 4 columns; 5 were expected"));
  for (const char* score : {"0.9", "5.1", "nan", "four", "", "4 "}) {
    EXPECT_THAT(SickError(kHead + "1\ta\tb\t" + score + "\tX\n"),
                HasSubstr(std::string("line 2: the score is \"") + score))
        << score;
  }
  EXPECT_THAT(SickError(kHead + "1\ta\t \t4\tX\n"), HasSubstr("the sentence in column 3 is empty"));
  EXPECT_THAT(SickError("1\ta\tb\t4\tX\n"),
              HasSubstr("line 1: column 4 is \"4\"; relatedness_score was expected"));
  EXPECT_THAT(SickError(kHead), HasSubstr("has no pairs"));
  EXPECT_THAT(SickError(""), HasSubstr("has no pairs"));
}

TEST_F(SentenceSets, ReadsClasses) {
  const ClassifiedSentences set = ReadClassified(File("1 good film\n0 bad\n0 \n"), "cr");
  EXPECT_THAT(set.sentences, ElementsAre("good film", "bad", ""));
  EXPECT_THAT(set.labels, ElementsAre(1, 0, 0));
  EXPECT_EQ(set.empty, 1);
  EXPECT_EQ(set.name, "cr");
}

// 0x85 is an ellipsis in Windows-1252, and a line end in ISO 8859.
TEST_F(SentenceSets, ReadsFilesThatAreNotUtf8AsWindows1252) {
  const ClassifiedSentences set =
      ReadClassified(File("1 so\x85 on \x93it\x94 caf\xe9\n0 x\n"), "subj");
  EXPECT_THAT(set.sentences, ElementsAre("so… on “it” café", "x"));
  EXPECT_THAT(ReadClassified(File("1 caf\xc3\xa9\n0 x\n"), "x").sentences,
              ElementsAre("café", "x"));
}

TEST_F(SentenceSets, NamesTheLineOfAClassThatIsWrong) {
  EXPECT_THAT(ClassError("1 a\n2 b\n"),
              HasSubstr("line 2: it begins with \"2\"; 0 or 1 and a blank were expected"));
  EXPECT_THAT(ClassError("1 a\n0\tb\n"), HasSubstr("line 2"));
  EXPECT_THAT(ClassError("1 a\n\n0 b\n"), HasSubstr("line 2"));
  EXPECT_THAT(ClassError("1 a\n1 b\n"), HasSubstr("all its sentences have class 1"));
  EXPECT_THAT(ClassError("0 a\n"), HasSubstr("all its sentences have class 0"));
  EXPECT_THAT(ClassError(""), HasSubstr("it is empty"));
  EXPECT_THAT(ClassError("1 a\xff\n0 \x81\n"),
              HasSubstr("line 2: byte 0x81 at column 3 is neither UTF-8 nor Windows-1252"));
}

TEST_F(SentenceSets, FindsTheSetsThatAreThere) {
  EXPECT_TRUE(ReadSentenceEvaluationSets(folder / "").empty());
  EXPECT_EQ(ReadSentenceEvaluationSets(folder / "").description, "none");
  fs::create_directory(folder / "mr");
  WriteFile(folder / "mr/rt-polarity.pos", "fine .\n");
  EXPECT_THROW(ReadSentenceEvaluationSets(folder / ""), DataError);
  WriteFile(folder / "mr/rt-polarity.neg", "dull .\nbad .\n");
  WriteFile(folder / "custrev.all", "1 good\n0 \n");
  const SentenceEvaluationSets sets = ReadSentenceEvaluationSets(folder / "");
  EXPECT_EQ(sets.description, "mr (3 sentences), cr (2 sentences, 1 empty)");
  EXPECT_THAT(sets.classified[0].labels, ElementsAre(1, 0, 0));
  EXPECT_FALSE(sets.sick);
  WriteFile(folder / "SICK_trial.txt", kHead + "1\ta\tb\t4\tX\n");
  try {
    ReadSentenceEvaluationSets(folder / "");
    FAIL();
  } catch (const DataError& e) {
    EXPECT_THAT(e.what(), HasSubstr("has no SICK_train.txt, SICK_test_annotated.txt"));
  }
}

TEST_F(SentenceSets, MakesASet) {
  const SentenceEvaluationSets sets = MakeSentenceEvaluationSets(200);
  ASSERT_EQ(sets.classified.size(), 1u);
  EXPECT_EQ(sets.classified[0].size(), 200);
  // Half of the places: 100 expected, with a standard deviation of 7.
  EXPECT_NEAR(static_cast<double>(std::ranges::count(sets.classified[0].labels, 1)), 100, 35);
}

TEST_F(SentenceSets, ReadsTheRealOnes) {
  const char* data = std::getenv("PLANISH_DATA");
  if (!data || !fs::is_directory(fs::path(data) / "sick")) {
    GTEST_SKIP() << "PLANISH_DATA names no folder with sick";
  }
  EXPECT_EQ(
      ReadSentenceEvaluationSets(data).description,
      "sick (9,927 pairs), mr (10,662 sentences), cr (3,775 sentences, 4 empty), subj (10,000 "
      "sentences), mpqa (10,606 sentences, 3 empty)");
}

}  // namespace
}  // namespace planish::lab
