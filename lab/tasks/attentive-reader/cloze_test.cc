#include "lab/tasks/attentive-reader/cloze.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "lab/data/test_files.h"
#include "lab/error.h"
#include "lab/testing/test_folder.h"

namespace planish::lab {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr char kQuestion[] =
    "http://example.org/story\n"
    "\n"
    "( @entity1 ) the mayor of @entity40 met @entity3 . they spoke ! @entity3 left .\n"
    "\n"
    "@placeholder left the mayor of @entity40\n"
    "\n"
    "@entity3\n"
    "\n"
    "@entity1:CNN\n"
    "@entity3:Ann: the elder\n"
    "@entity40:Rome\n";

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(ClozeWords, NumbersWordsAndEntities) {
  ClozeWords words;
  EXPECT_EQ(words.Token("@placeholder"), kPlaceholder);
  EXPECT_EQ(words.Token("the"), 1);
  EXPECT_EQ(words.Token("@entity12"), EntityToken(12));
  EXPECT_EQ(words.Token("a"), 2);
  EXPECT_EQ(words.Token("the"), 1);
  // A text that only begins like an entity is a word.
  EXPECT_EQ(words.Token("@entity12's"), 3);
  EXPECT_EQ(words.Token("@entity-1"), 4);
  EXPECT_EQ(words.Token("@entity"), 5);
  EXPECT_EQ(words.Token("@entity1000000"), 6);
  EXPECT_EQ(words.size(), 7);
  EXPECT_EQ(words.Text(EntityToken(12)), "@entity12");
  EXPECT_EQ(words.Text(2), "a");
  EXPECT_TRUE(IsEntity(EntityToken(0)));
  EXPECT_FALSE(IsEntity(kPlaceholder));
  EXPECT_EQ(EntityOf(EntityToken(7)), 7);
}

TEST(ParseQuestion, ReadsTheOutputOfQuestionText) {
  ClozeWords words;
  const ClozeQuestion q = ParseQuestion(Lines(kQuestion), "x", &words);
  EXPECT_EQ(q.source, "http://example.org/story");
  EXPECT_EQ(q.passage.size(), 16u);
  EXPECT_EQ(q.passage[1], EntityToken(1));
  EXPECT_EQ(ClozeText(words, q.question), "@placeholder left the mayor of @entity40");
  EXPECT_EQ(q.answer, 3);
  EXPECT_THAT(q.names, ElementsAre(Pair(1, "CNN"), Pair(3, "Ann: the elder"), Pair(40, "Rome")));
  EXPECT_EQ(QuestionText(q, words), kQuestion);
}

TEST(ParseQuestion, ReportsErrorsWithTheirLine) {
  const auto error = [](size_t line, const std::string& instead) -> std::string {
    std::vector<std::string> lines = Lines(kQuestion);
    if (instead == "(end)") {
      lines.resize(line - 1);
    } else {
      lines[line - 1] = instead;
    }
    ClozeWords words;
    try {
      ParseQuestion(lines, "some.question", &words);
    } catch (const DataError& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(error(1, "(end)"),
            "some.question, line 1: it is the end of the file; the source was expected");
  EXPECT_THAT(error(5, "(end)"),
              HasSubstr("line 5: it is the end of the file; the question was expected"));
  EXPECT_THAT(error(1, " "), HasSubstr("line 1: it is empty; the source was expected"));
  EXPECT_THAT(error(3, ""), HasSubstr("line 3: it is empty; the passage was expected"));
  EXPECT_THAT(error(2, "more"), HasSubstr("line 2: it is \"more\"; an empty line was expected"));
  EXPECT_THAT(error(8, "@entity1:CNN"),
              HasSubstr("line 8: it is \"@entity1:CNN\"; an empty line was expected"));
  EXPECT_THAT(
      error(5, "who left the mayor of @entity40 ?"),
      HasSubstr("line 5: the question has no @placeholder: \"who left the mayor of @entity40 ?\""));
  EXPECT_THAT(error(7, "Ann"),
              HasSubstr("line 7: it is \"Ann\"; an entity such as @entity3 was expected"));
  EXPECT_THAT(error(7, "@entity99999999999"),
              HasSubstr("line 7: it is \"@entity99999999999\"; an entity"));
  EXPECT_THAT(error(7, "@entity2"), HasSubstr(" is not among the entities named below"));
  EXPECT_THAT(error(9, "(end)"), HasSubstr(" is not among the entities named below"));
  EXPECT_THAT(
      error(9, "CNN"),
      HasSubstr("line 9: it is \"CNN\"; the name of an entity, such as @entity3:name, was"));
  EXPECT_THAT(error(9, "@entity1"), HasSubstr("line 9: it is \"@entity1\"; the name of an entity"));
  EXPECT_THAT(error(10, "@entity1:Ann"),
              HasSubstr("line 10: an earlier line names the entity of \"@entity1:Ann\""));
  EXPECT_EQ(error(7, "@entity3 "), "no error");
  EXPECT_EQ(error(9, ""), "no error");
}

class ReadQuestionsTest : public ::testing::Test {
 protected:
  void Write(const std::string& below, const std::string& text = kQuestion) {
    fs::create_directories((folder / below).parent_path());
    WriteFile(folder / below, text);
  }
  // Writes one question for each part, below `root`.
  void WriteParts(const std::string& root) {
    for (const char* part : {"training", "validation", "test"}) {
      Write(root + part + "/a.question");
    }
  }
  std::string ErrorOf() {
    try {
      ReadQuestions(folder.path(), {});
    } catch (const DataError& e) {
      return e.what();
    }
    return "no error";
  }
  static std::string Asked(const std::string& passage, const std::string& question) {
    return "url\n\n" + passage + "\n\n" + question + "\n\n@entity1\n\n@entity1:A\n";
  }

  TestFolder folder;
};

TEST_F(ReadQuestionsTest, FindsThePartsInEveryPossibleFolder) {
  for (const char* root :
       {"", "questions/", "cnn/", "cnn/questions/", "dailymail/", "dailymail/questions/"}) {
    const TestFolder fresh;
    EXPECT_FALSE(HasQuestions(fresh.path()));
    for (const char* part : {"training", "validation", "test"}) {
      fs::create_directories(fresh.path() / root / part);
      WriteFile(fresh.path() / root / part / "a.question", kQuestion);
    }
    EXPECT_TRUE(HasQuestions(fresh.path()));
    EXPECT_EQ(ReadQuestions(fresh.path(), {}).train.size(), 1u) << root;
  }
}

TEST_F(ReadQuestionsTest, ReadsFilesInOrderOfTheirNames) {
  WriteParts("");
  Write("training/c.question", Asked("@entity1 is here .", "@placeholder c"));
  Write("training/b.question", Asked("@entity1 is here .", "@placeholder b"));
  Write("training/notes.txt", "no question");
  WriteFile(folder / "test" / "z.question", Gzip(kQuestion));
  const ClozeSets all = ReadQuestions(folder.path(), {});
  ASSERT_EQ(all.train.size(), 3u);
  EXPECT_EQ(ClozeText(all.words, all.train[1].question), "@placeholder b");
  EXPECT_EQ(all.test.size(), 2u);
  EXPECT_EQ(all.entities(), 41);
  EXPECT_EQ(all.name, "questions");
  EXPECT_EQ(all.source, "files");
  EXPECT_THAT(all.description, HasSubstr("3 training, 1 validation and 2 test questions"));
  // Names are kept only in parts that use them.
  EXPECT_TRUE(all.train[0].names.empty());
  EXPECT_EQ(all.valid[0].names.size(), 3u);

  const ClozeSets few = ReadQuestions(folder.path(), {.train = 2, .held_out = 1});
  EXPECT_EQ(few.train.size(), 2u);
  EXPECT_EQ(few.test.size(), 1u);
  EXPECT_THAT(few.description, HasSubstr("2 of 3 training, 1 validation and 1 of 2 test"));
  EXPECT_NE(few.sha256, all.sha256);
}

TEST_F(ReadQuestionsTest, CutsPassagesAndQuestions) {
  WriteParts("");
  Write("training/a.question",
        Asked("a b . c d ! \" @entity1 f . g ? h @entity1 d .", "what @placeholder f d"));
  const auto read = [&](QuestionsRequest request) {
    ClozeSets sets = ReadQuestions(folder.path(), request);
    return std::pair(ClozeText(sets.words, sets.train[0].passage),
                     ClozeText(sets.words, sets.train[0].question));
  };
  EXPECT_EQ(read({.sentences = 9}).first, "a b . c d ! \" @entity1 f . g ? h @entity1 d .");
  EXPECT_EQ(read({.sentences = 2, .by_overlap = false}).first, "a b . c d ! \"");
  // Words of the question: none, d, f, none, d.
  EXPECT_EQ(read({.sentences = 2}).first, "c d ! \" @entity1 f .");
  EXPECT_EQ(read({.sentences = 3}).first, "c d ! \" @entity1 f . h @entity1 d .");
  EXPECT_EQ(read({.sentences = 9, .longest_passage = 5}).first, "a b . c d");
  EXPECT_EQ(read({.longest_question = 3}).second, "what @placeholder f");
  EXPECT_EQ(read({.longest_question = 2}).second, "what @placeholder");
  EXPECT_EQ(read({.longest_question = 1}).second, "@placeholder");
  Write("training/a.question", Asked("@entity1 .", "k l m n @placeholder"));
  EXPECT_EQ(read({.longest_question = 3}).second, "m n @placeholder");
  // A passage without its answer is counted; the other two are unchanged.
  const ClozeSets sets = ReadQuestions(folder.path(), {.sentences = 1, .by_overlap = false});
  EXPECT_THAT(sets.description, HasSubstr("; 0 answers are not in their passage"));
  const ClozeSets lost = ReadQuestions(folder.path(), {.longest_passage = 1});
  EXPECT_THAT(lost.description, HasSubstr("; 2 answers are not in their passage"));
}

TEST_F(ReadQuestionsTest, ReadsTheOutputOfWriteQuestions) {
  // From a book, with more than four sentences.
  ClozeSets sets;
  const std::string of_book =
      "book x, sentence 3\n\na . b . c . d . e . @entity1 .\n\n@placeholder g .\n\n@entity1\n\n"
      "@entity1:Ann\n";
  for (auto* set : {&sets.train, &sets.valid, &sets.test}) {
    set->push_back(ParseQuestion(Lines(of_book), "x", &sets.words));
  }
  WriteQuestions(sets, folder.path());
  EXPECT_EQ(ReadFile(folder / "questions/training/0000000.question"), of_book);
  const ClozeSets read = ReadQuestions(folder.path(), {});
  EXPECT_EQ(read.name, "books");
  EXPECT_EQ(read.sha256, HashQuestions(sets));
  EXPECT_EQ(ClozeText(read.words, read.train[0].passage), "a . b . c . d . e . @entity1 .");
  EXPECT_THROW(WriteQuestions(sets, folder.path()), RunError);
  WriteFile(folder / "file", "");
  EXPECT_THROW(WriteQuestions(sets, folder / "file"), RunError);
}

TEST_F(ReadQuestionsTest, ReportsErrors) {
  EXPECT_THAT(ErrorOf(),
              HasSubstr(" has no folders training, validation and test, itself or in a folder"));
  WriteParts("");
  EXPECT_EQ(ErrorOf(), "no error");
  fs::remove(folder / "validation/a.question");
  EXPECT_THAT(ErrorOf(), HasSubstr("validation has no files *.question"));
  Write("validation/b.question", "url\n\npassage\n");
  EXPECT_THAT(
      ErrorOf(),
      HasSubstr(
          "validation/b.question, line 4: it is the end of the file; an empty line was expected"));
  Write("validation/b.question", "url\n\ncaf\xe9\n");
  EXPECT_THAT(ErrorOf(), HasSubstr("b.question, line 3: byte 0xe9 at column 4 is not UTF-8"));
  Write("validation/b.question", Gzip(kQuestion).substr(0, 60));
  EXPECT_THAT(ErrorOf(), HasSubstr("gzip"));
}

}  // namespace
}  // namespace planish::lab
