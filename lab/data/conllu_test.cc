#include "lab/data/conllu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "lab/data/source.h"
#include "lab/data/test_files.h"
#include "lab/error.h"
#include "lab/testing/test_folder.h"

namespace planish::lab {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Returns a line of CoNLL-U with these columns, such as "2 saw 0 root".
std::string Line(const std::string& id, const std::string& form, const std::string& head,
                 const std::string& relation) {
  return id + "\t" + form + "\t_\tNOUN\tNN\t_\t" + head + "\t" + relation + "\t_\t_\n";
}

const std::string kDogs = Line("1", "dogs", "2", "nsubj") + Line("2", "bark", "0", "root");

std::string ErrorOf(const std::string& text) {
  try {
    ParseConllu(text, "some.conllu");
  } catch (const DataError& e) {
    return e.what();
  }
  return "no error";
}

TEST(ParseConllu, ReadsTreesAndCountsSkippedLines) {
  const Treebank treebank = ParseConllu(
      "# sent_id = 1\n# text = It's done\n" + Line("1-2", "It's", "_", "_") +
          "1\tIt\tit\tPRON\tPRP\tCase=Nom\t3\tnsubj:pass\t3:nsubj:pass\t_\n" +
          Line("2", "'s", "3", "aux") + Line("2.1", "being", "_", "_") +
          Line("3", "done", "0", "root") + "\n" + Line("0.1", "so", "_", "_") + kDogs + "\n",
      "some.conllu");
  ASSERT_EQ(treebank.trees.size(), 2u);
  EXPECT_EQ(treebank.ranges, 1);
  EXPECT_EQ(treebank.empty_nodes, 2);
  const std::vector<TreeWord>& words = treebank.trees[0].words;
  ASSERT_EQ(words.size(), 3u);
  EXPECT_EQ(words[0].form, "It");
  EXPECT_EQ(words[0].upos, "PRON");
  EXPECT_EQ(words[0].xpos, "PRP");
  EXPECT_EQ(words[0].head, 3);
  EXPECT_EQ(words[0].relation, "nsubj:pass");
  EXPECT_EQ(words[2].head, 0);
  EXPECT_EQ(treebank.trees[1].words.size(), 2u);
}

TEST(ParseConllu, AcceptsOtherLineEndsAndEmptyLines) {
  std::string text = "\n\n" + kDogs + "\n\n" + kDogs + "\n";
  EXPECT_EQ(ParseConllu(text, "").trees.size(), 2u);
  std::string windows;
  for (const char c : text) windows += c == '\n' ? std::string("\r\n") : std::string(1, c);
  EXPECT_EQ(ParseConllu(windows, "").trees[1].words[1].relation, "root");
}

TEST(ParseConllu, ReportsErrorsWithTheirLine) {
  const std::string good = "# one\n" + kDogs + "\n";  // four lines
  const auto word = [](const char* id, const char* head) { return Line(id, "x", head, "dep"); };
  const struct {
    std::string text, line, what;
  } cases[] = {
      {good + "1\tx\t_\tNOUN\tNN\t_\t0\troot\t_\n\n", "5",
       "it has 9 columns; 10 with tabs between them were expected"},
      {good + "1\tx\t_\tNOUN\tNN\t_\t0\troot\t_\t_\t_\n\n", "5", "it has 11 columns; 10"},
      {good + "1 x _ NOUN NN _ 0 root _ _\n\n", "5", "it has 1 column; 10"},
      {good + "1\t\t_\tNOUN\tNN\t_\t0\troot\t_\t_\n\n", "5", "column 2 is empty"},
      {good + "1\tx\t_\tNOUN\tNN\t_\t0\troot\t_\t\n\n", "5", "column 10 is empty"},
      {good + word("2", "0") + "\n", "5", "the id is \"2\"; 1 was expected"},
      {good + word("1", "0") + word("3", "1") + "\n", "6", "the id is \"3\"; 2 was expected"},
      {good + word("1", "0") + word("2", "1") + word("2", "1") + "\n", "7",
       "the id is \"2\"; 3 was expected"},
      {good + word("x", "0") + "\n", "5", "the id is \"x\"; 1 was expected"},
      {good + word("-1", "0") + "\n", "5", "the id is \"-1\"; 1 was expected"},
      {good + word("2-3", "_") + word("1", "0") + "\n", "5",
       "; one from 1, outside of any other, was expected"},
      {good + word("1-2", "_") + word("1", "0") + word("2-3", "_") + "\n", "7",
       "the range of ids is \"2-3\"; one from 2, outside of any other, was expected"},
      {good + word("2-1", "_") + word("1", "0") + "\n", "5",
       "; one from 1, outside of any other, was expected"},
      {good + word("1-3", "_") + word("1", "0") + word("2", "1") + "\n", "5",
       "the range of ids ends at 3, but the sentence has 2 words"},
      {good + word("1", "0") + word("2.1", "_") + "\n", "6",
       "the id of an empty node is \"2.1\"; one from 1.1 was expected"},
      {good + word("1-2", "_") + "\n", "6", "it ends a sentence without words"},
      {good + word("1", "0") + word("2", "3") + "\n", "6",
       "the head is 3, but the sentence has 2 words"},
      {good + word("1", "0") + word("2", "-1") + "\n", "6", "the head is \"-1\""},
      {good + word("1", "_") + "\n", "5",
       "the head is \"_\"; the number of a word, or 0, was expected"},
      {good + word("1", "99999999999") + "\n", "5", "the head is \"99999999999\""},
      {good + word("1", "2") + word("2", "1") + "\n", "5",
       "the sentence that begins here has no root, a word whose head is 0"},
      {good + word("1", "0") + word("2", "1") + word("3", "0") + "\n", "7",
       "the head is 0, but word 1 is already the root"},
      {good + word("1", "0") + word("2", "2") + "\n", "6",
       "the heads lead back to this word, not to the root"},
      {good + word("1", "0") + word("2", "1") + word("3", "4") + word("4", "5") + word("5", "3") +
           "\n",
       "7", "lead back to this word"},
      {good + kDogs + "# two\n" + kDogs + "\n", "7", "a comment is inside a sentence"},
      {good + kDogs + kDogs + "\n", "7",
       "the id is \"1\"; 3 was expected: is the empty line before a sentence missing?"},
      {good + kDogs, "6", "the empty line that ends a sentence is missing after it"},
      {good + kDogs.substr(0, kDogs.size() - 1), "6",
       "the empty line that ends a sentence is missing"},
      {good + Line("1", "caf\xe9", "0", "root") + "\n", "5", "byte 0xe9 at column 6 is not UTF-8"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(ErrorOf(c.text),
                AllOf(StartsWith("some.conllu, line " + c.line + ": "), HasSubstr(c.what)))
        << c.text;
  }
  for (const char* text : {"", "\n\n", "# only a comment\n"}) {
    EXPECT_EQ(ErrorOf(text), "cannot read some.conllu: it has no sentence");
  }
  EXPECT_EQ(ErrorOf(good), "no error");
}

class ReadTreebanksTest : public ::testing::Test {
 protected:
  static std::string ErrorOf(const fs::path& path) {
    try {
      ReadTreebanks(path);
    } catch (const DataError& e) {
      return e.what();
    }
    return "no error";
  }
  TestFolder folder;
};

TEST_F(ReadTreebanksTest, FindsPlainAndCompressedFiles) {
  const std::string one = kDogs + "\n", two = one + one;
  fs::create_directories(folder / "ud_ewt");
  WriteFile(folder / "ud_ewt/en_ewt-ud-train.conllu.gz", Gzip(two + one));
  WriteFile(folder / "ud_ewt/en_ewt-ud-dev.conllu", two);
  WriteFile(folder / "ud_ewt/en_ewt-ud-test.conllu.gz", Gzip(one));
  WriteFile(folder / "ud_ewt/train.txt", "something else");
  const TreebankSet set = ReadTreebanks(folder.path());
  EXPECT_EQ(set.train.trees.size(), 3u);
  EXPECT_EQ(set.valid.trees.size(), 2u);
  EXPECT_EQ(set.test.trees.size(), 1u);
  EXPECT_EQ(set.name, "ud_ewt");
  EXPECT_EQ(set.source, "files");
  EXPECT_THAT(set.description, HasSubstr("0 lines of multiword tokens and 0 of empty nodes"));

  fs::create_directories(folder / "ptb");
  WriteFile(folder / "ptb/train.conll", two + one);
  WriteFile(folder / "ptb/valid.conll.gz", Gzip(two));
  WriteFile(folder / "ptb/test.conll", one);
  for (const fs::path& path : {folder / "ptb", folder / "ptb/"}) {
    const TreebankSet same = ReadTreebanks(path);
    EXPECT_EQ(same.name, "ptb");
    EXPECT_EQ(same.sha256, set.sha256);  // of the texts, however they are stored
  }
}

TEST_F(ReadTreebanksTest, ReportsMissingFiles) {
  const std::string one = kDogs + "\n";
  EXPECT_THAT(ErrorOf(folder.path()), HasSubstr(" has no files *train*.conllu[.gz]"));
  EXPECT_THAT(ErrorOf(folder / "nowhere"), HasSubstr(" has no files *train*.conllu[.gz]"));
  WriteFile(folder / "a-train.conllu", one);
  WriteFile(folder / "a-test.conllu", one);
  EXPECT_THAT(ErrorOf(folder.path()), HasSubstr(" has no dev file; "));
  WriteFile(folder / "a-dev.conllu", one);
  EXPECT_EQ(ErrorOf(folder.path()), "no error");
  WriteFile(folder / "a-dev.conllu.gz", "not read: the plain file is");
  EXPECT_EQ(ErrorOf(folder.path()), "no error");
  WriteFile(folder / "b-dev.conllu.gz", Gzip(one));
  EXPECT_THAT(ErrorOf(folder.path()),
              HasSubstr("has more than one dev file: a-dev.conllu and b-dev.conllu.gz"));
  fs::remove(folder / "b-dev.conllu.gz");
  WriteFile(folder / "a-test.conllu", one + kDogs);
  EXPECT_THAT(ErrorOf(folder.path()), HasSubstr("a-test.conllu, line 5: the empty line that ends"));
}

TEST_F(ReadTreebanksTest, RefusesBrokenFiles) {
  const std::string one = kDogs + "\n";
  for (const char* name : {"train.conllu", "dev.conllu"}) WriteFile(folder / name, one);
  const std::string packed = Gzip(one);
  WriteFile(folder / "test.conllu.gz", packed.substr(0, packed.size() - 9));
  EXPECT_THAT(ErrorOf(folder.path()), HasSubstr("test.conllu.gz: its gzip stream is truncated"));
  std::string spoilt = packed;
  spoilt[packed.size() - 5] ^= 1;  // of the checksum
  WriteFile(folder / "test.conllu.gz", spoilt);
  EXPECT_THAT(ErrorOf(folder.path()), HasSubstr("test.conllu.gz: its gzip stream is damaged"));
  fs::remove(folder / "test.conllu.gz");
  fs::create_directories(folder / "test.conllu");
  EXPECT_THAT(ErrorOf(folder.path()), HasSubstr("test.conllu: it is a folder, not a file"));
}

TEST(ReadTreebanks, TheRealOne) {
  const std::optional<fs::path> folder = DataFolder("");
  if (!folder || !fs::exists(*folder / "ud_ewt")) {
    GTEST_SKIP() << "PLANISH_DATA does not name a folder with ud_ewt";
  }
  // Counts of the treebank's own documentation and of grep.
  const TreebankSet set = ReadTreebanks(*folder);
  EXPECT_EQ(set.train.trees.size(), 12'544u);
  EXPECT_EQ(set.valid.trees.size(), 2'001u);
  EXPECT_EQ(set.test.trees.size(), 2'077u);
  const auto words = [](const Treebank& treebank) {
    size_t count = 0;
    for (const DependencyTree& tree : treebank.trees) count += tree.words.size();
    return count;
  };
  EXPECT_EQ(words(set.train), 204'577u);
  EXPECT_EQ(words(set.valid), 25'147u);
  EXPECT_EQ(words(set.test), 25'094u);
  EXPECT_EQ(set.train.ranges, 2'614);
  EXPECT_EQ(set.train.empty_nodes, 37);
  EXPECT_EQ(set.test.ranges, 354);
}

}  // namespace
}  // namespace planish::lab
