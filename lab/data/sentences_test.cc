#include "lab/data/sentences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/error.h"
#include "lab/testing/test_folder.h"

namespace planish::lab {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Returns the message of the DataError of `call`.
template <class Call>
std::string ErrorOf(Call call) {
  try {
    call();
  } catch (const DataError& e) {
    return e.what();
  }
  return "no error";
}

class SentencesTest : public ::testing::Test {
 protected:
  // Reads a file with these lines.
  Sentences Read(const std::string& text, int64_t label = 1) {
    WriteFile(folder / "file", text);
    return reader.Read(folder / "file", label);
  }
  Sentences ReadLabelled(const std::string& text) {
    WriteFile(folder / "file", text);
    return reader.ReadLabelled(folder / "file", 5);
  }

  TestFolder folder;
  SentenceReader reader{4};
};

TEST_F(SentencesTest, SplitsLinesAtBlanks) {
  const Sentences read = Read("good film . \n\tla\u00a0fête  noire\r\nend");
  EXPECT_THAT(read.words, ElementsAre(ElementsAre("good", "film", "."),
                                      ElementsAre("la", "fête", "noire"), ElementsAre("end")));
  EXPECT_THAT(read.labels, ElementsAre(1, 1, 1));
  EXPECT_EQ(reader.Counts(), "");
}

TEST_F(SentencesTest, CountsLeftOutSentences) {
  const Sentences read = Read("\na b c d e\n \t\u00a0\na b c d\n", 0);
  EXPECT_THAT(read.words,
              ElementsAre(ElementsAre("a", "b", "c", "d"), ElementsAre("a", "b", "c", "d")));
  EXPECT_EQ(reader.empty(), 2);
  EXPECT_EQ(reader.cut(), 1);
  EXPECT_EQ(reader.Counts(), "; 2 empty lines left out; 1 sentence cut to 4 words");
  // A class without a sentence is also an empty line.
  EXPECT_THAT(ReadLabelled("3 \n2\n").words, IsEmpty());
  EXPECT_EQ(reader.Counts(), "; 4 empty lines left out; 1 sentence cut to 4 words");
}

TEST_F(SentencesTest, ReadsClasses) {
  const Sentences read = ReadLabelled("4 so good\n0 so\tbad .\n\n2\tmeh\n");
  EXPECT_THAT(read.words, ElementsAre(ElementsAre("so", "good"), ElementsAre("so", "bad", "."),
                                      ElementsAre("meh")));
  EXPECT_THAT(read.labels, ElementsAre(4, 0, 2));
}

TEST_F(SentencesTest, NamesTheLineWhoseClassIsWrong) {
  for (const std::string wrong : {"5", "-1", "12", "x", "good"}) {
    EXPECT_THAT(ErrorOf([&] { ReadLabelled("1 fine\n\n" + wrong + " film\n"); }),
                HasSubstr("file, line 3: it begins with \"" + wrong +
                          "\"; a class from 0 to 4 and a blank were expected"))
        << wrong;
  }
  EXPECT_THAT(ErrorOf([&] { ReadLabelled(" 1 fine\n"); }), HasSubstr("file, line 1: "));
}

TEST_F(SentencesTest, NamesTheLineThatIsNotUtf8) {
  EXPECT_THAT(ErrorOf([&] { Read("fine\ncaf\xe9\n"); }),
              ::testing::AllOf(HasSubstr("UTF-8"), HasSubstr("line 2")));
  EXPECT_THAT(ErrorOf([&] { ReadLabelled("1 fine\n1 caf\xe9\n"); }),
              ::testing::AllOf(HasSubstr("UTF-8"), HasSubstr("line 2")));
}

TEST_F(SentencesTest, NamesAMissingFile) {
  EXPECT_THAT(ErrorOf([&] { reader.Read(folder / "none", 0); }), HasSubstr("none"));
  EXPECT_THAT(ErrorOf([&] { FolderWith(folder.path(), "set", "some.train"); }),
              HasSubstr(" has no file some.train or some.train.gz, itself or in a folder set"));
}

TEST_F(SentencesTest, RefusesAClassWithoutSentences) {
  for (const char* text : {"", "\n \n"}) {
    EXPECT_THAT(ErrorOf([&] { Read(text); }), HasSubstr("file: it has no sentence"));
  }
}

TEST_F(SentencesTest, FindsTheFolder) {
  std::filesystem::create_directory(folder / "set");
  WriteFile(folder / "set/some.train", "");
  EXPECT_EQ(FolderWith(folder.path(), "set", "some.train"), folder / "set");
  EXPECT_EQ(FolderWith(folder / "set", "set", "some.train"), folder / "set");
}

// printf 'good\n\nfilm\n' | sha256sum, in two files, one without the last line's end.
TEST_F(SentencesTest, HashesLines) {
  Read("good\n\n");
  Read("film");
  EXPECT_EQ(reader.Sha256OfLines(),
            "50b592905602088e4f493c72ec63982b62b52455d6e2fe48e6ccf02f5a223eb7");
}

TEST(Lexicon, NumbersWordsByFrequency) {
  Sentences sentences;
  sentences.Add({"b", "a", "c", "b"}, 0);
  sentences.Add({"a", "d", "b", "c"}, 1);
  const Lexicon all(sentences, 1);
  EXPECT_EQ(all.size(), 5);
  EXPECT_THAT((std::vector{all.Number("b"), all.Number("a"), all.Number("c"), all.Number("d"),
                           all.Number("e")}),
              ElementsAre(1, 2, 3, 4, 0));
  const Lexicon frequent(sentences, 2);
  EXPECT_EQ(frequent.size(), 4);
  EXPECT_THAT((std::vector{frequent.Number("c"), frequent.Number("d")}), ElementsAre(3, 0));
}

}  // namespace
}  // namespace planish::lab
