#include "lab/tasks/skip-thoughts/books.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "lab/data/synthetic_stories.h"
#include "lab/data/test_files.h"
#include "lab/error.h"

namespace planish::lab {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

template <class F>
std::string ErrorOf(F&& f) {
  try {
    f();
  } catch (const DataError& e) {
    return e.what();
  }
  return "no error";
}

TEST(ParseBook, JoinsLinesAndLeavesHeadingsOut) {
  const Book book = ParseBook(
      "[Illustration: a\nhare]\n\nCHAPTER I.\n\nAlice was very\r\ntired of _sitting_. She\nslept\n"
      "\t\n  “Why?” she said.\n",
      "alice");
  EXPECT_THAT(book.sentences,
              ElementsAre(ElementsAre("alice", "was", "very", "tired", "of", "sitting", "."),
                          ElementsAre("she", "slept"),
                          ElementsAre("\"", "why", "?", "\"", "she", "said", ".")));
}

TEST(ParseBook, NamesTheLineThatIsNotUtf8) {
  EXPECT_EQ(ErrorOf([] { ParseBook("fine\n\nb\xfcse\n", "x.txt"); }),
            "x.txt, line 3: byte 0xfc at column 2 is not UTF-8");
}

TEST(ReadBooks, ReadsPlainAndPackedFilesInOrder) {
  const TestFolder folder;
  fs::create_directory(folder / "books");
  WriteFile(folder / "books/b.txt", "One. Two.\n");
  WriteFile(folder / "books/a.txt.gz", Gzip("Three.\n"));
  WriteFile(folder / "books/INDEX.tsv", "none\n");
  const Library library = ReadBooks(folder / "");
  EXPECT_THAT(library.train, SizeIs(1));
  EXPECT_EQ(library.train[0].name, "a");
  EXPECT_EQ(library.valid[0].name, "b");
  EXPECT_EQ(library.description, "1 books of 1 sentences to train on and 1 of 2 for validation");
  EXPECT_EQ(ReadBooks(folder / "books").sha256, library.sha256);
  // Twelve books: only the tenth is held out.
  for (int i = 0; i < 10; ++i)
    WriteFile(folder / ("books/c" + std::to_string(i) + ".txt"), "Four.");
  const Library twelve = ReadBooks(folder / "");
  EXPECT_THAT(twelve.train, SizeIs(11));
  ASSERT_THAT(twelve.valid, SizeIs(1));
  EXPECT_EQ(twelve.valid[0].name, "c7");
  EXPECT_NE(twelve.sha256, library.sha256);
}

TEST(ReadBooks, ReportsMissingBooks) {
  const TestFolder folder;
  EXPECT_THAT(ErrorOf([&] { ReadBooks(folder / "none"); }), HasSubstr("cannot read "));
  WriteFile(folder / "a.txt", "One.");
  EXPECT_THAT(
      ErrorOf([&] { ReadBooks(folder / ""); }),
      HasSubstr(" (*.txt or *.txt.gz), itself or in a folder books; at least two are needed"));
  WriteFile(folder / "b.txt", "CHAPTER\n");
  EXPECT_THAT(ErrorOf([&] { ReadBooks(folder / ""); }), HasSubstr("b.txt: it has no sentence"));
  WriteFile(folder / "b.txt.gz", Gzip("Two.").substr(0, 12));
  fs::remove(folder / "b.txt");
  EXPECT_THAT(ErrorOf([&] { ReadBooks(folder / ""); }), HasSubstr("b.txt.gz"));
}

TEST(MakeStories, MakesTheSameOnEveryMachine) {
  const Library library = MakeStories(80);
  EXPECT_THAT(library.train, SizeIs(80));
  EXPECT_THAT(library.valid, SizeIs(10));
  EXPECT_EQ(library.train[0].sentences[0][1], "went");
  for (const Book& story : library.train) {
    EXPECT_GE(story.sentences.size(), 5u);
    EXPECT_LE(story.sentences.size(), 9u);
  }
  // Changes with the data.
  EXPECT_EQ(library.sha256.substr(0, 16), "73554f5fef072a8c");
  EXPECT_THROW(MakeStories(0), UsageError);
}

TEST(StoryTeller, TellsOfEveryPlace) {
  StoryTeller teller(3);
  std::set<size_t> places;
  for (int i = 0; i < 100; ++i) places.insert(teller.Sentence().second);
  EXPECT_THAT(places, ElementsAre(0, 1, 2, 3));
}

TEST(ReadBooks, ReadsRealBooks) {
  const char* data = std::getenv("PLANISH_DATA");
  if (!data || !fs::is_directory(fs::path(data) / "books")) {
    GTEST_SKIP() << "PLANISH_DATA names no folder with books";
  }
  const Library library = ReadBooks(data);
  EXPECT_GT(library.train.size(), library.valid.size());
  for (const Book& book : library.train) EXPECT_GT(book.sentences.size(), 500u) << book.name;
}

TEST(ReadBooks, ReadsABookInTwoFormsOnce) {
  const TestFolder folder;
  WriteFile(folder / "a.txt", "Plain one.\n");
  WriteFile(folder / "a.txt.gz", Gzip("Packed one.\n"));
  WriteFile(folder / "b.txt", "Another one.\n");
  const Library library = ReadBooks(folder.path());
  ASSERT_EQ(library.train.size() + library.valid.size(), 2u);
  EXPECT_EQ(library.train[0].sentences[0][0], "plain");
}

}  // namespace
}  // namespace planish::lab
