#include "lab/data/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/data/test_files.h"
#include "lab/error.h"
#include "lab/testing/test_folder.h"

// tests/python/test_tables.py compares the values with Python's csv and json.
namespace planish::lab {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Optional;

class TableTest : public ::testing::Test {
 protected:
  Table Read(const std::string& name, const std::string& text, bool header = true) {
    WriteFile(folder / name, text);
    return ReadTable(folder / name, header);
  }
  // Returns the message of the DataError without the folder.
  std::string ErrorOf(const std::string& name, const std::string& text) {
    try {
      Read(name, text);
    } catch (const DataError& e) {
      return e.what();
    }
    return "no error";
  }

  TestFolder folder;
};

TEST_F(TableTest, ReadsQuotedFields) {
  const Table table =
      Read("a.csv", "\xef\xbb\xbfid,text\r\n\r\n1,\"so, \"\"good\"\"\r\nand\"\r\n2,\n");
  EXPECT_THAT(table.columns, ElementsAre("id", "text"));
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_THAT(table.rows[0].fields, ElementsAre(Optional(std::string("1")),
                                                Optional(std::string("so, \"good\"\r\nand"))));
  EXPECT_THAT(table.rows[1].fields,
              ElementsAre(Optional(std::string("2")), Optional(std::string())));
  EXPECT_EQ(table.rows[0].line, 3);
  EXPECT_EQ(table.rows[1].line, 5);
  EXPECT_EQ(table.empty, 1);
}

TEST_F(TableTest, ReadsWithoutAHeader) {
  const Table table = Read("a.tsv", "good \"film\t1\nbad\t0\n", false);
  EXPECT_THAT(table.columns, ElementsAre("1", "2"));
  EXPECT_THAT(table.rows[0].fields,
              ElementsAre(Optional(std::string("good \"film")), Optional(std::string("1"))));
  EXPECT_EQ(table.rows[0].line, 1);
}

TEST_F(TableTest, LeavesFieldsThatAreNoTextEmpty) {
  const Table table =
      Read("a.jsonl", "{\"a\": \"x\", \"b\": [1]}\n\n{\"b\": 1.50, \"c\": null}\r\n");
  EXPECT_THAT(table.columns, ElementsAre("a", "b", "c"));
  EXPECT_THAT(table.rows[0].fields,
              ElementsAre(Optional(std::string("x")), std::nullopt, std::nullopt));
  EXPECT_THAT(table.rows[1].fields,
              ElementsAre(std::nullopt, Optional(std::string("1.5")), std::nullopt));
  EXPECT_EQ(table.rows[1].line, 3);
}

TEST_F(TableTest, HashesTheSameLinesAlike) {
  const std::string text = "a,b\n1,2\n";
  std::vector<std::string> hashes;
  for (const std::string& content : {text, "\xef\xbb\xbf" + text, Gzip(text),
                                     std::string("a,b\r\n1,2"), std::string("a,b\n1,3\n")}) {
    WriteFile(folder / "a.csv", content);
    Sha256 sha;
    ReadTable(folder / "a.csv", true, &sha);
    hashes.push_back(sha.Hex());
  }
  for (size_t i = 1; i < 4; ++i) EXPECT_EQ(hashes[i], hashes[0]) << i;
  EXPECT_NE(hashes[4], hashes[0]);
}

TEST_F(TableTest, FindsColumnsByNameAndNumber) {
  const Table table = Read("a.csv", "2,text,,\nx,y,z,w\n");
  EXPECT_EQ(table.Column("text"), 1u);
  EXPECT_EQ(table.Column("2"), 0u);  // a name before a number
  EXPECT_EQ(table.Column("4"), 3u);
  for (const char* wrong : {"0", "5", "-1", "Text", "text ", "1x", "99999999999999999999"}) {
    try {
      table.Column(wrong);
      ADD_FAILURE() << wrong;
    } catch (const DataError& e) {
      EXPECT_THAT(e.what(), EndsWith(std::string("a.csv: it has no column \"") + wrong +
                                     R"(", only "2", "text", "", "")"));
    }
  }
}

TEST_F(TableTest, NamesTheLineThatIsWrong) {
  struct Case {
    const char *name, *text, *error;
  };
  for (const Case& c : {
           Case{"a.csv", "a,b\n1,2\n1,2,3\n", "a.csv, line 3: it has 3 fields; line 1 has 2"},
           Case{"a.csv", "\na,b\n\"1\n\n\"\n", "a.csv, line 3: it has 1 field; line 2 has 2"},
           Case{"a.tsv", "a\tb\n1\n", "a.tsv, line 2: it has 1 field; line 1 has 2"},
           Case{"a.csv", "a,b\n1,\"2\n3,4\n", "a.csv, line 2: a quote is not closed"},
           Case{"a.csv", "a,b\n1,\"2\n3\" x\n",
                "a.csv, line 3: a comma or the line's end was expected after a closing quote"},
           Case{"a.csv", "a,b,a\n1,2,3\n", "a.csv, line 1: two columns are called \"a\""},
           Case{"a.csv", "a,b\n1,caf\xe9\n", "a.csv, line 2: byte 0xe9 at column 6 is not UTF-8"},
           Case{"a.csv", "a,b\n\"1\ncaf\xe9\",2\n", "a.csv, line 3: byte 0xe9 at column 4"},
           Case{"a.tsv", "a\tb\nx\xc3\xa9\t1\ny\xe9\t2\n", "a.tsv, line 3: byte 0xe9 at column 2"},
           Case{"a.jsonl", "{\"a\": 1}\n{\"a\": }\n",
                "a.jsonl, line 2: not JSON (syntax error at byte"},
           Case{"a.jsonl", "\n[1]\n", "a.jsonl, line 2: not a JSON object"},
           Case{"a.jsonl", "{\"a\": 1, \"a\": 2}\n", "a.jsonl, line 1: the key \"a\" twice"},
           Case{"a.csv", "a,b\n", "a.csv: it has no rows"},
           Case{"a.csv", "", "a.csv: it has no rows"},
           Case{"a.jsonl", "\n", "a.jsonl: it has no rows"},
           Case{"a.txt", "a,b\n1,2\n", "a.txt: its name must end in .tsv, .csv or .jsonl"},
       }) {
    EXPECT_THAT(ErrorOf(c.name, c.text), HasSubstr(c.error)) << c.text;
  }
}

TEST(TableStem, TakesTheEndingOff) {
  EXPECT_EQ(TableStem("a/b.csv"), "b");
  EXPECT_EQ(TableStem("b.x.TSV.GZ"), "b.x");
  EXPECT_EQ(TableStem("b.jsonl.gz"), "b");
  EXPECT_EQ(TableStem("b.csv.zip"), std::nullopt);
  EXPECT_EQ(TableStem("csv"), std::nullopt);
  EXPECT_EQ(TableStem(".gz"), std::nullopt);
}

}  // namespace
}  // namespace planish::lab
