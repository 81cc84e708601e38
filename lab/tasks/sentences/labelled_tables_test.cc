#include "lab/tasks/sentences/labelled_tables.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "lab/data/test_files.h"
#include "lab/error.h"
#include "lab/testing/test_folder.h"

namespace planish::lab {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

class LabelledTablesTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((folder / name).parent_path());
    WriteFile(folder / name, text);
  }
  SentenceSets Read(const std::string& name, const LabelledTables& options = {}) {
    return ReadLabelledTables(folder / name, options);
  }
  SentenceSets ReadText(const std::string& text, const LabelledTables& options = {}) {
    Write("a.csv", text);
    return Read("a.csv", options);
  }
  // Returns the message of the DataError.
  std::string ErrorOf(const std::string& name, const LabelledTables& options = {}) {
    try {
      Read(name, options);
    } catch (const DataError& e) {
      return e.what();
    }
    return "no error";
  }
  std::string ErrorOfText(const std::string& text, const LabelledTables& options = {}) {
    Write("a.csv", text);
    return ErrorOf("a.csv", options);
  }

  // Writes a table of these numbers of rows for each class, one class after the other. Texts are
  // distinct single words that begin with the class.
  void WriteClasses(const std::string& name, const std::map<std::string, int>& counts) {
    std::string text = "text,label\n";
    for (const auto& [label, count] : counts) {
      for (int i = 0; i < count; ++i) text += fmt::format("{0}-{1},{0}\n", label, i);
    }
    Write(name, text);
  }

  TestFolder folder;
};

// Returns the single words of a set's sentences.
std::vector<std::string> Words(const Sentences& set) {
  std::vector<std::string> words;
  for (const auto& sentence : set.words) {
    EXPECT_EQ(sentence.size(), 1u);
    words.push_back(sentence.front());
  }
  return words;
}

std::vector<int64_t> CountsOf(const Sentences& set, int64_t classes) {
  std::vector<int64_t> counts(static_cast<size_t>(classes));
  for (const int64_t label : set.labels) ++counts.at(static_cast<size_t>(label));
  return counts;
}

TEST_F(LabelledTablesTest, ReadsAFileForEachSet) {
  Write("set/train.tsv", "label\tsentence\n10\tgood \"film\n2\tso\tbad\n");
  EXPECT_THAT(ErrorOf("set"), HasSubstr("train.tsv, line 3: it has 3 fields; line 1 has 2"));
  Write("set/train.tsv", "label\tsentence\n10\tgood \"film\n2\tso bad\n");
  Write("set/dev.csv.gz", Gzip("sentence,label\n\"so,\nso\", 2 \n"));
  Write("set/test.jsonl", "{\"label\": 10, \"sentence\": \"la\\u00a0f\\u00eate\"}\n");
  Write("set/notes.csv", "not,read\n");
  const SentenceSets sets = Read("set");
  EXPECT_THAT(sets.train.words,
              ElementsAre(ElementsAre("good", "\"film"), ElementsAre("so", "bad")));
  EXPECT_THAT(sets.train.labels, ElementsAre(1, 0));  // 2 is before 10
  EXPECT_THAT(sets.valid.words, ElementsAre(ElementsAre("so,", "so")));
  EXPECT_THAT(sets.valid.labels, ElementsAre(0));
  EXPECT_THAT(sets.test.words, ElementsAre(ElementsAre("la", "fête")));
  EXPECT_THAT(sets.test.labels, ElementsAre(1));
  EXPECT_EQ(sets.classes, 2);
  EXPECT_EQ(sets.name, "set");
  EXPECT_EQ(sets.source, "files");
  EXPECT_THAT(sets.description,
              AllOf(HasSubstr("4 sentences read from " + (folder / "set").string()),
                    HasSubstr("texts of column \"sentence\" (by its name)"),
                    EndsWith("; 2 classes: \"2\" (2), \"10\" (2); sets by files")));
  // The same below a data folder.
  std::filesystem::rename(folder / "set", folder / "sentences");
  EXPECT_EQ(Read("").sha256, sets.sha256);
  EXPECT_EQ(Read("").name, "sentences");
}

TEST_F(LabelledTablesTest, ReadsTheSetsOfAColumn) {
  const std::string text =
      "split,text,label\ntest,a,x\ntrain,b,y\nDev,c,x\ntraining,d,x\nvalidation,e,y\ntest,f,y\n";
  const SentenceSets sets = ReadText(text);
  EXPECT_THAT(Words(sets.train), ElementsAre("b", "d"));
  EXPECT_THAT(sets.train.labels, ElementsAre(1, 0));
  EXPECT_THAT(Words(sets.valid), ElementsAre("c", "e"));
  EXPECT_THAT(Words(sets.test), ElementsAre("a", "f"));
  EXPECT_THAT(sets.description, EndsWith("; sets of column \"split\" (by its name)"));
  EXPECT_EQ(sets.name, "a");
  const SentenceSets given =
      ReadText("text,label,part\na,x,test\nb,y,train\nc,x,train\nd,y,valid\n", {.split = "part"});
  EXPECT_THAT(Words(given.train), ElementsAre("b", "c"));
  EXPECT_THAT(given.description, EndsWith("; sets of column \"part\""));
}

TEST_F(LabelledTablesTest, DrawsTheSameShareOfEachClass) {
  const std::map<std::string, int> counts = {{"a", 1000}, {"b", 203}, {"c", 57}, {"d", 10}};
  WriteClasses("a.csv", counts);
  const SentenceSets sets = Read("a.csv", {.sets = {.valid_share = 0.2, .test_share = 0.1}});
  EXPECT_EQ(sets.valid.size(), 254);  // of 1270
  EXPECT_EQ(sets.test.size(), 127);
  EXPECT_EQ(sets.train.size(), 889);
  std::vector<double> sizes;
  for (const auto& [label, count] : counts) sizes.push_back(count);
  // Totals are rounded, so a class differs by less than one sentence.
  for (const auto& [set, share] : {std::pair(&sets.valid, 0.2), {&sets.test, 0.1}}) {
    const std::vector<int64_t> found = CountsOf(*set, 4);
    for (size_t c = 0; c < 4; ++c)
      EXPECT_LT(std::abs(static_cast<double>(found[c]) - share * sizes[c]), 1) << c;
  }
  // Disjoint and complete; labels stay with their texts.
  std::set<std::string> all;
  for (const Sentences* set : {&sets.train, &sets.valid, &sets.test}) {
    const std::vector<std::string> words = Words(*set);
    for (size_t i = 0; i < words.size(); ++i) {
      EXPECT_TRUE(all.insert(words[i]).second) << words[i];
      EXPECT_EQ(words[i][0], 'a' + set->labels[i]);
    }
  }
  EXPECT_EQ(all.size(), 1270u);
  // Shuffled: the file has its classes in order.
  EXPECT_FALSE(std::ranges::is_sorted(sets.train.labels));
  EXPECT_THAT(
      sets.description,
      HasSubstr("valid_share=0.2 and test_share=0.1 at random in each class (split_seed=1)"));
}

TEST_F(LabelledTablesTest, DrawsTheSameForTheSameSeed) {
  WriteClasses("a.csv", {{"a", 60}, {"b", 40}});
  const SentenceSets first = Read("a.csv"), again = Read("a.csv"),
                     other = Read("a.csv", {.sets = {.seed = 2}});
  EXPECT_EQ(first.train.words, again.train.words);
  EXPECT_EQ(first.test.words, again.test.words);
  EXPECT_NE(first.train.words, other.train.words);
  EXPECT_NE(first.test.words, other.test.words);
}

TEST_F(LabelledTablesTest, KeepsATrainingRowOfEveryClass) {
  WriteClasses("a.csv", {{"a", 2}, {"b", 2}, {"c", 2}, {"d", 3}});
  const SentenceSets sets = Read("a.csv", {.sets = {.valid_share = 0.45, .test_share = 0.45}});
  for (const int64_t count : CountsOf(sets.train, 4)) EXPECT_GE(count, 1);
  EXPECT_GT(sets.test.size(), 0);
  EXPECT_GT(sets.valid.size(), 0);
}

TEST_F(LabelledTablesTest, DrawsOnlyTheSetThatIsMissing) {
  WriteClasses("train.csv", {{"a", 50}, {"b", 50}});
  WriteClasses("test.csv", {{"a", 3}, {"b", 2}});
  const SentenceSets sets = Read("");
  EXPECT_EQ(sets.train.size(), 90);
  EXPECT_EQ(sets.valid.size(), 10);
  EXPECT_EQ(sets.test.size(), 5);
  EXPECT_THAT(sets.description, HasSubstr("; sets by files, valid_share=0.1 at random"));
}

TEST_F(LabelledTablesTest, ReducesTrainingSentencesAtRandomInTheirOrder) {
  WriteClasses("train.csv", {{"a", 50}, {"b", 50}});
  WriteClasses("valid.csv", {{"a", 2}, {"b", 2}});
  WriteClasses("test.csv", {{"a", 2}, {"b", 2}});
  const SentenceSets all = Read(""), some = Read("", {.sets = {.max_train = 20}});
  EXPECT_EQ(all.train.size(), 100);
  EXPECT_EQ(some.train.size(), 20);
  EXPECT_TRUE(std::ranges::is_sorted(some.train.labels));
  EXPECT_EQ(std::ranges::count(some.train.labels, 1) % 20 == 0, false);  // both classes
  EXPECT_EQ(some.test.size(), 4);
}

TEST_F(LabelledTablesTest, ChoosesColumns) {
  // By name.
  EXPECT_THAT(ReadText("id,Review,Class\n1,a,x\n2,b,y\n3,c,x\n4,d,y\n").description,
              AllOf(HasSubstr("texts of column \"Review\" (by its name)"),
                    HasSubstr("labels of column \"Class\" (by its name)")));
  // By contents: an id is neither.
  EXPECT_THAT(
      ReadText("id,what,kind\n1,a film,x\n2,b film,y\n3,c film,x\n4,d film,y\n").description,
      AllOf(HasSubstr("texts of column \"what\" (by its contents)"),
            HasSubstr("labels of column \"kind\" (by its contents)")));
  // Without a header, by contents or number.
  const std::string plain = "x,a film\ny,b film\nx,c film\ny,d film\n";
  for (const LabelledTables& options :
       {LabelledTables{.header = false}, {.text = "2", .label = "1", .header = false}}) {
    const SentenceSets sets = ReadText(plain, options);
    EXPECT_EQ(sets.train.size() + sets.valid.size() + sets.test.size(), 4);
    EXPECT_THAT(sets.description, HasSubstr("texts of column \"2\""));
  }
  const std::string two =
      "a,b,c,d\nso good,x,u,so so\nso bad,y,v,so la\nnot so,x,u,oh no\nso la,y,v,a b\n";
  EXPECT_THAT(ErrorOfText(two),
              EndsWith("a.csv: the column of the texts is not clear: choose one with --set text=; "
                       R"(the columns are "a", "b", "c", "d")"));
  EXPECT_THAT(ErrorOfText(two, {.text = "a"}), HasSubstr("the column of the labels is not clear"));
  EXPECT_EQ(ErrorOfText(two, {.text = "a", .label = "c"}), "no error");
  EXPECT_THAT(ErrorOfText(two, {.text = "a", .label = "a"}),
              HasSubstr("texts and labels are both the column \"a\""));
  EXPECT_THAT(ErrorOfText(two, {.text = "e"}), HasSubstr("it has no column \"e\", only \"a\""));
}

TEST_F(LabelledTablesTest, SortsClasses) {
  const auto classes = [&](const std::string& first, const std::string& second) {
    std::string text = "text,label\n";
    for (int i = 0; i < 10; ++i) text += fmt::format("a,{}\nb,{}\n", first, second);
    const SentenceSets sets = ReadText(text);
    return sets.description.substr(sets.description.find("2 classes: "));
  };
  EXPECT_THAT(classes("10", "9"), HasSubstr("2 classes: \"9\" (10), \"10\" (10);"));
  EXPECT_THAT(classes("-1", "-2"), HasSubstr("2 classes: \"-2\" (10), \"-1\" (10);"));
  EXPECT_THAT(classes("10", "9.5"), HasSubstr("2 classes: \"10\" (10), \"9.5\" (10);"));
  EXPECT_THAT(classes("b", "B"), HasSubstr("2 classes: \"B\" (10), \"b\" (10);"));
  std::map<std::string, int> many;
  for (char c = 'a'; c <= 'z'; ++c) many[std::string(1, c)] = 10;
  WriteClasses("b.csv", many);
  EXPECT_EQ(Read("b.csv").classes, 26);
  EXPECT_THAT(Read("b.csv").description,
              AllOf(HasSubstr("26 classes: \"a\" (10), "), HasSubstr("\"l\" (10), 14 more; ")));
}

TEST_F(LabelledTablesTest, CountsWhatItLeavesOut) {
  EXPECT_THAT(
      ReadText("text,label\n\nso very good,x\nso,y\nso,x\nso,y\n", {.longest = 2}).description,
      EndsWith("; 1 sentence cut to 2 words; 1 empty line left out"));
}

TEST_F(LabelledTablesTest, NamesTheLineThatIsWrong) {
  const std::string start = "text,label\na,x\nb,y\nc,x\n";
  for (const auto& [text, error] : std::vector<std::pair<std::string, std::string>>{
           {start + "d,z\ne,w\nf,y\n",
            "a.csv, line 5: no other row has the label \"z\"; each must be in two rows or more"},
           {start + ",y\n", "a.csv, line 5: the text in column \"text\" is empty"},
           {start + "\" \u00a0\n\",y\n", "a.csv, line 5: the text in column \"text\" is empty"},
           {start + "d, \n", "a.csv, line 5: the label in column \"label\" is empty"},
           {"text,label\n,x\n,y\n", "a.csv, line 2: the text in column \"text\" is empty"},
           {start + "d,y,e\n", "a.csv, line 5: it has 3 fields; line 1 has 2"},
           {start + "caf\xe9,y\n", "a.csv, line 5: byte 0xe9 at column 4 is not UTF-8"},
           {"text,label\na,x\nb,x\n",
            "a.csv: all rows have the label \"x\"; two classes or more are needed"},
           {"text,label,split\na,x,train\nb,y,train\nc,x,holdout\nd,y,test\n",
            "a.csv, line 4: the set in column \"split\" is \"holdout\"; train, valid, validation, "
            "val, dev or test was expected"},
           {"text,label,split\na,x,train\nb,x,valid\nc,y,test\nd,y,test\n",
            "a.csv, line 4: no training row has the label \"y\""},
       }) {
    EXPECT_THAT(ErrorOfText(text), HasSubstr(error)) << text;
  }
  Write("a.jsonl", "{\"text\": \"a\", \"label\": 1}\n{\"text\": [\"b\"], \"label\": 1}\n");
  EXPECT_THAT(ErrorOf("a.jsonl"),
              HasSubstr("a.jsonl, line 2: the text in column \"text\" is missing, "
                        "or not a text, number or boolean"));
}

TEST_F(LabelledTablesTest, NamesMissingAndUnclearFiles) {
  EXPECT_THAT(ErrorOf(""), HasSubstr(" has no file that ends in .tsv, .csv or .jsonl"));
  WriteClasses("valid.csv", {{"a", 2}, {"b", 2}});
  EXPECT_THAT(ErrorOf(""), HasSubstr(" has no file train.tsv, train.csv or train.jsonl"));
  WriteClasses("train.csv", {{"a", 20}, {"b", 20}});
  EXPECT_EQ(ErrorOf(""), "no error");
  Write("train.csv.gz", "not read");
  EXPECT_EQ(ErrorOf(""), "no error");
  Write("dev.jsonl", "not read");
  EXPECT_THAT(ErrorOf(""), HasSubstr("valid.csv: dev.jsonl is of the same set"));
  std::filesystem::remove(folder / "dev.jsonl");
  Write("valid.csv", "text,class\na,b\n");
  EXPECT_THAT(ErrorOf(""), HasSubstr("valid.csv: it has no column \"label\""));
  EXPECT_THROW(Read("", {.split = "label"}), UsageError);
}

}  // namespace
}  // namespace planish::lab
