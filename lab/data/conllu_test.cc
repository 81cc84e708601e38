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
using ::testing::EndsWith;
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
       "have 10 columns with tabs between them, got 9"},
      {good + "1\tx\t_\tNOUN\tNN\t_\t0\troot\t_\t_\t_\n\n", "5", "tabs between them, got 11"},
      {good + "1 x _ NOUN NN _ 0 root _ _\n\n", "5", "tabs between them, got 1"},
      {good + "1\t\t_\tNOUN\tNN\t_\t0\troot\t_\t_\n\n", "5", "have no empty column, got one"},
      {good + "1\tx\t_\tNOUN\tNN\t_\t0\troot\t_\t\n\n", "5", "have no empty column, got one"},
      {good + word("2", "0") + "\n", "5", "have the id 1, got \"2\""},
      {good + word("1", "0") + word("3", "1") + "\n", "6", "have the id 2, got \"3\""},
      {good + word("1", "0") + word("2", "1") + word("2", "1") + "\n", "7",
       "have the id 3, got \"2\""},
      {good + word("x", "0") + "\n", "5", "have the id 1, got \"x\""},
      {good + word("-1", "0") + "\n", "5", "have the id 1, got \"-1\""},
      {good + word("2-3", "_") + word("1", "0") + "\n", "5", "a range of ids from 1, outside"},
      {good + word("1-2", "_") + word("1", "0") + word("2-3", "_") + "\n", "7",
       "a range of ids from 2, outside of any other, got \"2-3\""},
      {good + word("2-1", "_") + word("1", "0") + "\n", "5", "a range of ids from 1, outside"},
      {good + word("1-3", "_") + word("1", "0") + word("2", "1") + "\n", "5",
       "a range of ids up to 2 at most, got 3"},
      {good + word("1", "0") + word("2.1", "_") + "\n", "6", "an id from 1.1"},
      {good + word("1-2", "_") + "\n", "6", "end a sentence with a word in it, got none"},
      {good + word("1", "0") + word("2", "3") + "\n", "6", "a head from 0 to 2, got 3"},
      {good + word("1", "0") + word("2", "-1") + "\n", "6", "for a head, got \"-1\""},
      {good + word("1", "_") + "\n", "5", "have the number of a word, or 0, for a head, got \"_\""},
      {good + word("1", "99999999999") + "\n", "5", "for a head, got \"99999999999\""},
      {good + word("1", "2") + word("2", "1") + "\n", "5",
       "begin a sentence with one root, a word whose head is 0, got none"},
      {good + word("1", "0") + word("2", "1") + word("3", "0") + "\n", "7",
       "one root, got 0, as word 1"},
      {good + word("1", "0") + word("2", "2") + "\n", "6",
       "have a head that leads to the root, got one that leads back to it"},
      {good + word("1", "0") + word("2", "1") + word("3", "4") + word("4", "5") + word("5", "3") +
           "\n",
       "7", "leads back to it"},
      {good + kDogs + "# two\n" + kDogs + "\n", "7",
       "be a word or an empty line, in a sentence, got a comment"},
      {good + kDogs + kDogs + "\n", "7",
       "have the id 3, got \"1\": is the empty line before a sentence missing?"},
      {good + kDogs, "6", "have an empty line after it, since it ends a sentence, got none"},
      {good + kDogs.substr(0, kDogs.size() - 1), "6", "have an empty line after it"},
      {good + Line("1", "caf\xe9", "0", "root") + "\n", "5", "be UTF-8, got bytes that are not"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(ErrorOf(c.text),
                AllOf(StartsWith("[ReadConllu] some.conllu, line " + c.line + ", must "),
                      HasSubstr(c.what)))
        << c.text;
  }
  for (const char* text : {"", "\n\n", "# only a comment\n"}) {
    EXPECT_EQ(ErrorOf(text), "[ReadConllu] some.conllu has no sentence");
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
  EXPECT_THAT(ErrorOf(folder.path()), HasSubstr("must hold *train*.conllu[.gz]"));
  EXPECT_THAT(ErrorOf(folder / "nowhere"), HasSubstr("must hold *train*.conllu[.gz]"));
  WriteFile(folder / "a-train.conllu", one);
  WriteFile(folder / "a-test.conllu", one);
  EXPECT_THAT(ErrorOf(folder.path()), EndsWith("got no dev file"));
  WriteFile(folder / "a-dev.conllu", one);
  EXPECT_EQ(ErrorOf(folder.path()), "no error");
  WriteFile(folder / "a-dev.conllu.gz", "not read: the plain file is");
  EXPECT_EQ(ErrorOf(folder.path()), "no error");
  WriteFile(folder / "b-dev.conllu.gz", Gzip(one));
  EXPECT_THAT(ErrorOf(folder.path()),
              HasSubstr("must hold one dev file, got a-dev.conllu and b-dev.conllu.gz"));
  fs::remove(folder / "b-dev.conllu.gz");
  WriteFile(folder / "a-test.conllu", one + kDogs);
  EXPECT_THAT(ErrorOf(folder.path()), HasSubstr("a-test.conllu, line 5, must have an empty line"));
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
