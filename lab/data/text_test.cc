#include "lab/data/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>

#include "lab/data/source.h"
#include "lab/data/test_files.h"
#include "lab/error.h"
#include "lab/testing/test_folder.h"

namespace planish::lab {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string ErrorOf(const fs::path& path) {
  try {
    ReadText(path, 100);
  } catch (const DataError& e) {
    return e.what();
  }
  return "no error";
}

// Guards the bytes: runs on the synthetic text are comparable only if the text is equal. A change
// of the grammar changes this hash.
TEST(MakeText, IsTheSameEverywhere) {
  EXPECT_EQ(MakeText(400'000).sha256,
            "2461591ab380441a35885f602ef484c3630c6464c528a842f5a8745faa75089d");
}

TEST(MakeText, IsTheBeginningOfALongerOne) {
  const Text whole = MakeText(20'000), part = MakeText(7'001);
  EXPECT_EQ(part.characters, whole.characters.substr(0, 7'001));
  EXPECT_NE(MakeText(7'001, 2).characters, part.characters);
}

TEST(MakeText, KeepsTheRulesOfItsGrammar) {
  std::istringstream lines(MakeText(50'000).characters);
  std::string line, cast;
  int scenes = 0, speeches = 0;
  std::vector<std::string> people;
  while (std::getline(lines, line)) {
    if (line.starts_with("Scene ")) {
      EXPECT_THAT(line, StartsWith("Scene " + std::to_string(++scenes) + ": the "));
    } else if (line.starts_with("Enter ")) {
      cast = line.substr(6);
      people = {cast.substr(0, cast.find(' '))};
      const size_t second = cast.find(" and ") + 5;
      people.push_back(cast.substr(second, cast.find(' ', second) - second));
      speeches = 0;
    } else if (line.starts_with("Exeunt ")) {
      EXPECT_EQ(line.substr(7), cast);
      EXPECT_GE(speeches, 3);
      EXPECT_LE(speeches, 8);
    } else if (!line.empty()) {
      EXPECT_THAT(line, StartsWith(people[static_cast<size_t>(speeches++ % 2)] + ": "));
      EXPECT_EQ(std::ranges::count(line, '"') % 2, 0) << line;
    }
  }
  EXPECT_GT(scenes, 50);
}

// A play of one scene with its choices counted by hand.
TEST(MakeText, ReportsItsEntropy) {
  const Text scene = MakeText(211, 578);
  ASSERT_EQ(scene.characters,
            "Scene 1: the bridge.\n"
            "Enter Carl and Anna with the red coat.\n"
            "Carl: Frida said: \"Every ghost catches a quiet child.\"\n"
            "Anna: One king!\n"
            "Carl: Dora said: \"Some children hide.\"\n"
            "Exeunt Carl and Anna with the red coat.\n\n");
  // People (8 * 7), thing (8), place (8), speeches (6).
  double bits = 3 + std::log2(7) + 3 + 3 + std::log2(6);
  // Sentences (3), kind (6), who (8). The clause: number (2), determiner (3), adjective or none,
  // noun (16), clause or none (1 of 4), object or none, verb (8). The object: number, determiner,
  // adjective (12) or none, noun, clause or none.
  bits += std::log2(3) + std::log2(6) + 3;
  bits += 1 + std::log2(3) + 1 + 4 + 2 + 1 + 3;
  bits += 1 + std::log2(3) + 1 + std::log2(12) + 4 + 2;
  // Sentences, kind, count (6), noun.
  bits += std::log2(3) + std::log2(6) + std::log2(6) + 4;
  // Like the first, without an object.
  bits += std::log2(3) + std::log2(6) + 3;
  bits += 1 + std::log2(3) + 1 + 4 + 2 + 1 + 3;
  ASSERT_TRUE(scene.entropy);
  EXPECT_NEAR(*scene.entropy, bits / 211, 1e-12);  // sums of 40 terms below 4
  EXPECT_THAT(MakeText(400'000).description, HasSubstr("0.504 bits a character"));
  EXPECT_EQ(scene.source, "embedded");
}

TEST(MakeText, RefusesLengthsItHasNot) {
  EXPECT_THROW(MakeText(0), UsageError);
  EXPECT_THROW(MakeText(kMaxSyntheticText + 1), UsageError);
}

TEST(ReadText, ReadsTheFirstCharacters) {
  const TestFolder temp;
  const std::string bytes = "a\tb\xff\n";
  WriteFile(temp / "some.txt", bytes);
  const Text text = ReadText(temp / "some.txt", 100);
  EXPECT_EQ(text.characters, bytes);
  EXPECT_EQ(text.name, "some.txt");
  EXPECT_EQ(text.source, "files");
  EXPECT_EQ(text.description, "5 bytes read from " + (temp / "some.txt").string());
  EXPECT_FALSE(text.entropy);
  EXPECT_EQ(ReadText(temp / "some.txt", 3).characters, bytes.substr(0, 3));
  EXPECT_NE(ReadText(temp / "some.txt", 3).sha256, text.sha256);
}

TEST(ReadText, ReadsMoreThanAPiece) {
  const TestFolder temp;
  std::string bytes;
  for (int i = 0; i < 2'500'000; ++i) bytes += static_cast<char>('a' + i % 23);
  WriteFile(temp / "long", bytes);
  EXPECT_EQ(ReadText(temp / "long", 1 << 30).characters, bytes);
  EXPECT_EQ(ReadText(temp / "long", 2'000'000).characters, bytes.substr(0, 2'000'000));
}

TEST(ReadText, FindsTheFileOfAFolder) {
  const TestFolder temp;
  EXPECT_THAT(ErrorOf(temp.path()), HasSubstr("input.txt"));
  fs::create_directories(temp / "tinyshakespeare");
  WriteFile(temp / "tinyshakespeare/input.txt", "deep");
  EXPECT_EQ(ReadText(temp.path(), 100).characters, "deep");
  EXPECT_EQ(ReadText(temp.path(), 100).name, "tinyshakespeare");
  WriteFile(temp / "input.txt", "flat");
  EXPECT_EQ(ReadText(temp.path(), 100).characters, "flat");
}

TEST(ReadText, ReadsPlainAndGzipAlike) {
  const TestFolder temp;
  WriteFile(temp / "book.txt", "a\xff\n");
  WriteFile(temp / "book.txt.gz", Gzip("a\xff\n"));
  WriteFile(temp / "input.txt.gz", Gzip("a\xff\n"));
  const Text plain = ReadText(temp / "book.txt", 100);
  for (const fs::path& file : {temp / "book.txt.gz", temp.path()}) {
    EXPECT_EQ(ReadText(file, 100).characters, plain.characters);
    EXPECT_EQ(ReadText(file, 100).sha256, plain.sha256);
  }
  EXPECT_EQ(ReadText(temp.path(), 100).name, temp.path().filename().string());
}

TEST(ReadText, LeavesOutAByteOrderMark) {
  const TestFolder temp;
  WriteFile(temp / "marked", "\xef\xbb\xbfround");
  EXPECT_EQ(ReadText(temp / "marked", 100).characters, "round");
  for (const int64_t max_characters : {1, 2, 5, 6}) {
    EXPECT_EQ(ReadText(temp / "marked", max_characters).characters,
              std::string("round").substr(0, static_cast<size_t>(max_characters)));
  }
  WriteFile(temp / "marked", "\xef\xbb\xbf");
  EXPECT_THAT(ErrorOf(temp / "marked"), HasSubstr("marked: it is empty"));
  WriteFile(temp / "marked", "\xff\xfer\0o\0");
  EXPECT_THAT(ErrorOf(temp / "marked"), HasSubstr("marked: it is in UTF-16: convert it"));
}

TEST(ReadText, ReportsErrors) {
  const TestFolder temp;
  EXPECT_THAT(ErrorOf(temp / "none.txt"), HasSubstr("none.txt: No such"));
  WriteFile(temp / "empty.txt", "");
  EXPECT_THAT(ErrorOf(temp / "empty.txt"), HasSubstr("empty.txt: it is empty"));
  WriteFile(temp / "picture.png", "\x89PNG\r\n\x1a\n\0\0\0\rIHDR"s);
  EXPECT_THAT(ErrorOf(temp / "picture.png"), HasSubstr("byte 8 is zero: it is not text"));
  WriteFile(temp / "data.sqlite", "SQLite format 3\0"s);
  EXPECT_THAT(ErrorOf(temp / "data.sqlite"), HasSubstr("byte 15 is zero: it is not text"));
}

TEST(ReadText, TheRealOne) {
  const std::optional<fs::path> folder = DataFolder("");
  if (!folder || !fs::exists(*folder / "tinyshakespeare")) {
    GTEST_SKIP() << "PLANISH_DATA does not name a folder with tinyshakespeare/input.txt";
  }
  const Text text = ReadText(*folder, 1 << 30);
  EXPECT_EQ(text.name, "tinyshakespeare");
  EXPECT_EQ(text.characters.size(), 1'115'394u);
  EXPECT_EQ(Vocabulary(text.characters).size(), 65);
  EXPECT_THAT(text.characters, StartsWith("First Citizen:\nBefore we proceed"));
}

TEST(OpenText, MakesOneOnlyWithoutAPath) {
  const TestFolder temp;
  EXPECT_THROW(OpenText(temp / "none.txt", 10), DataError);
  EXPECT_EQ(OpenText(std::nullopt, 10).characters, MakeText(10).characters);
  EXPECT_EQ(OpenText(std::nullopt, 1 << 30).characters.size(), size_t{kMaxSyntheticText});
}

TEST(Vocabulary, NumbersTheCharactersThatOccur) {
  const Vocabulary vocabulary("hello\n\xc3\xa9");
  EXPECT_EQ(vocabulary.size(), 7);  // \n e h l o c3 a9
  EXPECT_THAT(vocabulary.Encode("hole\n"), ElementsAre(2, 4, 3, 1, 0));
  EXPECT_THAT(vocabulary.Encode("\xa9\xc3"), ElementsAre(5, 6));
  std::string back;
  for (const int32_t index : vocabulary.Encode("hello\n")) back += vocabulary.Decode(index);
  EXPECT_EQ(back, "hello\n");
  EXPECT_THROW(vocabulary.Encode("x"), DataError);
  EXPECT_TRUE(vocabulary.Contains("\n"));
  EXPECT_FALSE(vocabulary.Contains("x"));
  std::string all;
  for (int byte = 255; byte >= 0; --byte) all += static_cast<char>(byte);
  EXPECT_EQ(Vocabulary(all).size(), 256);
  EXPECT_THAT(Vocabulary(all).Encode(std::string("\0\xff", 2)), ElementsAre(0, 255));
}

// "a", two characters of two bytes, one of four bytes, and a line feed.
constexpr char kMixed[] = "a\xc3\xa9\xc3\xa9\xf0\x9f\x98\x80\n";

TEST(ReadText, CountsCharacters) {
  const TestFolder temp;
  WriteFile(temp / "mixed", kMixed);
  for (const auto& [count, bytes] :
       {std::pair(1, 1), {2, 3}, {3, 5}, {4, 9}, {5, 10}, {6, 10}, {1000, 10}}) {
    const Text text = ReadText(temp / "mixed", count, TextUnit::kCharacter);
    EXPECT_EQ(text.characters, std::string(kMixed).substr(0, static_cast<size_t>(bytes)));
    EXPECT_THAT(text.description,
                StartsWith(std::to_string(std::min(count, 5)) + " characters read from "));
    EXPECT_EQ(CountUnits(text.characters, text.unit), std::min(count, 5));
  }
  EXPECT_EQ(CountUnits(kMixed, TextUnit::kByte), 10);
  // Byte order marks and gzip are handled as for bytes.
  WriteFile(temp / "marked", Gzip("\xef\xbb\xbf" + std::string(kMixed)));
  EXPECT_EQ(ReadText(temp / "marked", 3, TextUnit::kCharacter).characters, "a\xc3\xa9\xc3\xa9");
}

TEST(ReadText, NamesTheLineThatIsNotUtf8) {
  const TestFolder temp;
  const auto error = [&](const std::string& bytes) -> std::string {
    WriteFile(temp / "text", bytes);
    try {
      ReadText(temp / "text", 100, TextUnit::kCharacter);
    } catch (const DataError& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(error("caf\xc3\xa9\nab\xe9\n"),
            (temp / "text").string() +
                ", line 2: byte 0xe9 at column 3 is not UTF-8: convert the text first (iconv), or "
                "read its bytes with --set unit=byte");
  EXPECT_THAT(error("\xc3"), HasSubstr("line 1: byte 0xc3 at column 1"));  // truncated
  EXPECT_THAT(error("\xed\xa0\x80"), HasSubstr("line 1: byte 0xed"));      // a surrogate
  EXPECT_EQ(error(std::string(99, 'a') + "\n\xe9"), "no error");           // beyond the limit
}

TEST(Vocabulary, NumbersCharactersInTheOrderOfTheirCodePoints) {
  const Vocabulary vocabulary(kMixed, TextUnit::kCharacter);
  EXPECT_EQ(vocabulary.size(), 4);
  EXPECT_THAT(vocabulary.Encode(kMixed), ElementsAre(1, 2, 2, 3, 0));
  EXPECT_EQ(vocabulary.Decode(2), "\xc3\xa9");
  EXPECT_EQ(vocabulary.Decode(3), "\xf0\x9f\x98\x80");
  EXPECT_TRUE(vocabulary.Contains("\xc3\xa9"));
  EXPECT_FALSE(vocabulary.Contains("\xc3\xa8"));
  EXPECT_THROW(vocabulary.Encode("\xc3\xa8"), DataError);
  EXPECT_THROW(vocabulary.Encode("\xc3"), DataError);
  // More than 256 characters.
  std::string many;
  for (char a = '\x80'; a <= '\xbf' && a < 0; ++a) {
    for (char b = '\x80'; b < '\x88'; ++b) many += {'\xe4', a, b};
  }
  EXPECT_EQ(Vocabulary(many, TextUnit::kCharacter).size(), 512);
  EXPECT_EQ(Vocabulary(many, TextUnit::kCharacter).Encode(many).back(), 511);
}

}  // namespace
}  // namespace planish::lab
