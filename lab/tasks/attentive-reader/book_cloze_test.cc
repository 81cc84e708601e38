#include "lab/tasks/attentive-reader/book_cloze.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
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

std::string Text(const BookSentence& sentence) {
  std::string text;
  for (const BookToken& token : sentence) text += (text.empty() ? "" : " ") + token.text;
  return text;
}

// Returns the sentences of each stretch with separated tokens.
std::vector<std::vector<std::string>> Split(const std::string& text) {
  std::vector<std::vector<std::string>> stretches;
  for (const auto& stretch : SplitBook(text)) {
    auto& sentences = stretches.emplace_back();
    for (const BookSentence& sentence : stretch) sentences.push_back(Text(sentence));
  }
  return stretches;
}

TEST(SplitBook, JoinsLinesAndSplitsSentences) {
  EXPECT_THAT(Split("He came\nhome. She\r\nleft!\n\nThen it rained.\n"),
              ElementsAre(ElementsAre("He came home .", "She left !", "Then it rained .")));
}

TEST(SplitBook, KeepsSpeechTogether) {
  EXPECT_THAT(Split("“Who are you?” said the Caterpillar. “I—I hardly know, sir…” Alice sighed."),
              ElementsAre(ElementsAre("\" Who are you ? \" said the Caterpillar .",
                                      "\" I -- I hardly know , sir ... \"", "Alice sighed .")));
  EXPECT_THAT(Split("\"No!\" he cried. \"Go away.\""),
              ElementsAre(ElementsAre("\" No ! \" he cried .", "\" Go away . \"")));
}

TEST(SplitBook, KnowsAbbreviationsAndInitials) {
  EXPECT_THAT(Split("Mr. Darcy met Dr. J. Watson. It cost 1,500 francs. I did. A dog ran."),
              ElementsAre(ElementsAre("Mr. Darcy met Dr. J. Watson .", "It cost 1,500 francs .",
                                      "I did .", "A dog ran .")));
}

TEST(SplitBook, SeparatesWords) {
  EXPECT_THAT(Split("Tom’s well-known dog didn't _see_ the James' café -- at 4 o'clock."),
              ElementsAre(ElementsAre(
                  "Tom 's well-known dog didn't see the James ' café -- at 4 o'clock .")));
}

TEST(SplitBook, EndsStretchesAtHeadings) {
  EXPECT_THAT(Split("One.\n\nCHAPTER II.\n\nThe Pool of Tears\n\nTwo. THE END.\n\n* * *\n\nThree."),
              ElementsAre(ElementsAre("One ."), ElementsAre("Two ."), ElementsAre("Three .")));
  EXPECT_TRUE(Split("").empty());
  EXPECT_TRUE(Split("\n\nonly a heading\n").empty());
}

// Returns a book with enough occurrences of its names.
std::string Book() {
  std::string text;
  for (int i = 0; i < 6; ++i) {
    text +=
        "Then Mr. Darcy said so, and Elizabeth laughed. Soon Tom Buchanan went home, and Buchanan "
        "slept. In those days London was far away, and Mrs. Darcy knew. Again Tom said that Rose "
        "came. A rose, a rose, a rose. Here d'Artagnan turned, and D'Artagnan laughed.\n\n";
  }
  return text;
}

TEST(FindNames, TellsNamesAndWhoIsWho) {
  const auto stretches = SplitBook(Book());
  const BookNames names = FindNames(stretches);
  std::map<std::string, bool> found;
  for (const auto& entity : names.entities) found[entity.name] = entity.character;
  // London acts like no person; a rose is often without a capital and so no name.
  EXPECT_EQ(found, (std::map<std::string, bool>{{"Mr. Darcy", true},
                                                {"Elizabeth", true},
                                                {"Tom Buchanan", true},
                                                {"London", false},
                                                {"Mrs. Darcy", true},
                                                {"d'Artagnan", true},
                                                {"D'Artagnan", true}}));
  // "Soon Tom Buchanan went home, and Buchanan slept." is one entity, as is Tom two sentences
  // later.
  const auto& mentions = names.mentions[0];
  ASSERT_EQ(mentions[1].size(), 2u);
  EXPECT_EQ(mentions[1][0].begin, 1u);
  EXPECT_EQ(mentions[1][0].end, 3u);
  EXPECT_EQ(mentions[1][0].entity, mentions[1][1].entity);
  EXPECT_EQ(mentions[1][0].entity, mentions[3][0].entity);
  // Mr. Darcy and Mrs. Darcy are different entities.
  EXPECT_NE(mentions[0][0].entity, mentions[2][1].entity);
}

class BookClozeTest : public ::testing::Test {
 protected:
  // Returns a book whose people have names that no other book has.
  static std::string Story(const std::string& a, const std::string& b, int sentences) {
    std::string text;
    for (int i = 0; i < sentences; ++i) {
      text += "Then " + (i % 2 == 0 ? a : b) + " said to " + (i % 2 == 0 ? b : a) +
              " it was number " + std::to_string(i) + ". ";
    }
    return text + "\n";
  }

  void WriteBooks() {
    fs::create_directories(folder / "books");
    WriteFile(folder / "books/one.txt", Story("Anna", "Bertha", 60));
    WriteFile(folder / "books/two.txt.gz", Gzip(Story("Carl", "Dora", 60)));
    WriteFile(folder / "books/three.txt", Story("Emil", "Frida", 60));
    WriteFile(folder / "books/four.txt", Story("Gustav", "Hanna", 60));
    WriteFile(folder / "books/INDEX.tsv", "one\n");
  }

  std::string ErrorOf(const BookCloze& request = {}) {
    try {
      MakeBookCloze(folder.path(), request);
    } catch (const DataError& e) {
      return e.what();
    }
    return "no error";
  }

  TestFolder folder;
};

TEST_F(BookClozeTest, PassagesAnswerQuestionsAndBooksStayInOnePart) {
  EXPECT_FALSE(HasBooks(folder.path()));
  WriteBooks();
  EXPECT_TRUE(HasBooks(folder.path()));
  EXPECT_TRUE(HasBooks(folder / "books"));
  const BookCloze request{.train = 80, .held_out = 30, .entities = 9};
  const ClozeSets sets = MakeBookCloze(folder.path(), request);
  EXPECT_EQ(sets.train.size(), 80u);  // of 2 * 56
  EXPECT_EQ(sets.valid.size(), 30u);
  EXPECT_EQ(sets.test.size(), 30u);
  EXPECT_EQ(sets.name, "books");
  EXPECT_THAT(sets.description, HasSubstr("of 2 + 1 + 1 books"));
  std::map<std::string, std::set<const void*>> sets_of_book;
  std::set<int32_t> numbers;
  for (const auto* set : {&sets.train, &sets.valid, &sets.test}) {
    for (const ClozeQuestion& q : *set) {
      sets_of_book[q.source.substr(0, q.source.find(','))].insert(set);
      EXPECT_EQ(std::ranges::count(q.question, kPlaceholder), 1);
      EXPECT_EQ(std::ranges::count(q.passage, EntityToken(q.answer)), 4);
      EXPECT_EQ(std::ranges::count(q.question, EntityToken(q.answer)), 0);
      EXPECT_EQ(q.names.size(), 2u);
      EXPECT_EQ(std::ranges::count(q.passage, kPlaceholder), 0);
      numbers.insert(q.answer);
      EXPECT_LT(q.answer, 9);
      // Four sentences, then the next one.
      const std::string passage = ClozeText(sets.words, q.passage);
      const std::string question = ClozeText(sets.words, q.question);
      const auto number = [](const std::string& text) {
        return std::stoi(text.substr(text.rfind("number ") + 7));
      };
      EXPECT_EQ(number(question), number(passage) + 1);
      EXPECT_EQ(std::stoi(q.source.substr(q.source.rfind(' '))), number(question) + 1);
    }
  }
  EXPECT_EQ(numbers.size(), 9u);
  EXPECT_EQ(sets_of_book.size(), 4u);
  for (const auto& [book, in] : sets_of_book) EXPECT_EQ(in.size(), 1u) << book;
}

TEST_F(BookClozeTest, GivesTheSameAsItsFiles) {
  WriteBooks();
  const ClozeSets made = MakeBookCloze(folder.path(), {.train = 50, .held_out = 10});
  // A book in two forms counts once.
  WriteFile(folder / "books/two.txt", Story("Carl", "Dora", 60));
  WriteFile(folder / "books/one.txt.gz", Gzip(Story("Anna", "Bertha", 60)));
  EXPECT_EQ(MakeBookCloze(folder / "books", {.train = 50, .held_out = 10}).sha256, made.sha256);
  EXPECT_NE(MakeBookCloze(folder.path(), {.train = 50, .held_out = 10, .seed = 2}).sha256,
            made.sha256);
  WriteQuestions(made, folder / "cloze");
  const ClozeSets read = ReadQuestions(folder / "cloze", {});
  EXPECT_EQ(read.sha256, made.sha256);
  EXPECT_EQ(read.name, made.name);
  for (size_t i = 0; i < read.test.size(); ++i) EXPECT_EQ(read.test[i].names, made.test[i].names);
}

// Adding a book changes the roles of books, but nothing within a book.
TEST_F(BookClozeTest, QuestionsDependOnlyOnTheirBook) {
  WriteBooks();
  const auto of_one = [&] {
    const ClozeSets sets = MakeBookCloze(folder.path(), {.train = 1000, .held_out = 1000});
    std::set<std::string> texts;
    for (const auto* set : {&sets.train, &sets.valid, &sets.test}) {
      for (const ClozeQuestion& q : *set) {
        if (q.source.starts_with("book one,")) texts.insert(QuestionText(q, sets.words));
      }
    }
    return texts;
  };
  const auto before = of_one();
  EXPECT_EQ(before.size(), 56u);
  fs::remove(folder / "books/four.txt");
  EXPECT_EQ(of_one(), before);
}

TEST_F(BookClozeTest, KeepsToItsLimits) {
  WriteBooks();
  // "Then Anna said to Bertha it was number 3 ." has ten words.
  EXPECT_EQ(ErrorOf({.longest_passage = 40, .longest_question = 10}), "no error");
  EXPECT_THAT(ErrorOf({.longest_passage = 39}), HasSubstr("gives no training questions"));
  EXPECT_THAT(ErrorOf({.longest_question = 9}), HasSubstr("gives no "));
  EXPECT_THAT(ErrorOf({.shortest_question = 11}), HasSubstr("gives no "));
  EXPECT_THAT(ErrorOf({.min_entities = 3}), HasSubstr("gives no "));
  EXPECT_THAT(ErrorOf({.entities = 1}), HasSubstr("gives no "));
  const ClozeSets apart = MakeBookCloze(folder.path(), {.stride = 5});
  EXPECT_EQ(apart.test.size(), 12u);  // passages begin at sentences 0, 5, ... 55
}

TEST_F(BookClozeTest, ReportsErrors) {
  EXPECT_THAT(ErrorOf(), HasSubstr(" has no books *.txt or *.txt.gz, itself or in a folder books"));
  WriteBooks();
  fs::remove(folder / "books/one.txt");
  fs::remove(folder / "books/two.txt.gz");
  EXPECT_THAT(ErrorOf(), HasSubstr(" has 2 books; at least three are needed"));
  WriteFile(folder / "books/two.txt", "fine\ncaf\xe9\n");
  EXPECT_THAT(ErrorOf(), HasSubstr("two.txt, line 2: byte 0xe9 at column 4 is not UTF-8"));
  WriteFile(folder / "books/two.txt", Gzip(Story("Carl", "Dora", 60)).substr(0, 50));
  EXPECT_THAT(ErrorOf(), HasSubstr("gzip"));
}

}  // namespace
}  // namespace planish::lab
