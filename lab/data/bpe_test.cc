#include "lab/data/bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sentencepiece_trainer.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <unordered_map>

#include "lab/data/sha256.h"
#include "lab/error.h"
#include "lab/testing/test_folder.h"

namespace planish::lab {
namespace {

namespace fs = std::filesystem;
using ::testing::Each;
using ::testing::EndsWith;
using ::testing::SizeIs;
using ::testing::StartsWith;

const std::vector<std::string>& SomeLines() {
  static const std::vector<std::string> lines = {
      "the dog sees the dogs",    "the cat sees the cats", "Die Königin trägt das Buch.",
      "Die Könige tragen Bücher", "a dog, a cat",          "dogs and cats"};
  return lines;
}

TEST(Bpe, TrainsReversiblePieces) {
  const Bpe bpe = Bpe::Train(SomeLines(), 60);
  EXPECT_LE(bpe.size(), 60);
  for (const std::string& line : SomeLines()) {
    const std::vector<int32_t> pieces = bpe.Encode(line);
    EXPECT_THAT(pieces, Each(::testing::Gt(2)));
    EXPECT_EQ(bpe.Decode(pieces), line);
  }
  // Frequent words are one piece.
  EXPECT_THAT(bpe.Encode("the"), SizeIs(1));
}

TEST(Bpe, HasAnUnknownPieceForUnseenCharacters) {
  const Bpe bpe = Bpe::Train(SomeLines(), 60);
  const std::vector<int32_t> pieces = bpe.Encode("the ж");
  EXPECT_EQ(pieces.back(), Bpe::kUnknown);
  EXPECT_EQ(bpe.Decode(pieces), "the  \u2047 ");
}

TEST(Bpe, LeavesOutPaddingAndEnd) {
  const Bpe bpe = Bpe::Train(SomeLines(), 60);
  std::vector<int32_t> pieces = bpe.Encode("a cat");
  pieces.insert(pieces.end(), {1, 0, 0});
  EXPECT_EQ(bpe.Decode(pieces), "a cat");
  EXPECT_THROW(bpe.Decode(std::vector<int32_t>{static_cast<int32_t>(bpe.size())}), DataError);
  EXPECT_THROW(bpe.Decode(std::vector<int32_t>{-1}), DataError);
}

TEST(Bpe, IsTheSameEveryTime) {
  EXPECT_EQ(Bpe::Train(SomeLines(), 60).model(), Bpe::Train(SomeLines(), 60).model());
}

TEST(Bpe, GivesFewerPiecesIfTheLinesHaveNoMore) {
  EXPECT_LT(Bpe::Train(SomeLines(), 5000).size(), 200);
}

TEST(Bpe, RefusesAVocabularySmallerThanTheAlphabet) {
  try {
    Bpe::Train(SomeLines(), 10);
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_THAT(e.what(), StartsWith("[Bpe] vocabulary must hold at least every character of the "
                                     "text, got 10 pieces"));
  }
}

// Vocabularies without a piece: no <pad>, and </s> elsewhere.
TEST(Bpe, RefusesForeignVocabularies) {
  const auto error = [](std::unordered_map<std::string, std::string> options) {
    options.insert({{"model_type", "bpe"},
                    {"vocab_size", "60"},
                    {"hard_vocab_limit", "false"},
                    {"minloglevel", "2"}});
    std::string model;
    const TestFolder folder;
    std::string all;
    for (const std::string& line : SomeLines()) all += line + "\n";
    WriteFile(folder / "lines", all);
    options["input"] = (folder / "lines").string();
    EXPECT_TRUE(sentencepiece::SentencePieceTrainer::Train(options, nullptr, &model).ok());
    try {
      const Bpe bpe(model);
    } catch (const DataError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(error({}), "the vocabulary has <pad> nowhere; index 0 was expected");
  EXPECT_EQ(error({{"pad_id", "0"}, {"eos_id", "2"}, {"unk_id", "1"}, {"bos_id", "-1"}}),
            "the vocabulary has </s> at index 2; index 1 was expected");
  EXPECT_THROW(Bpe("no model"), DataError);
  EXPECT_THROW(Bpe(""), DataError);
}

TEST(TrainOnce, CachesTheModel) {
  const TestFolder temp;
  const fs::path folder = temp / "a" / "b";
  const Bpe first = Bpe::TrainOnce(SomeLines(), 60, folder);
  std::vector<fs::path> files(fs::directory_iterator(folder), {});
  ASSERT_EQ(files.size(), 1u);
  EXPECT_THAT(files[0].filename().string(), StartsWith("bpe-60-nfkc3-"));
  EXPECT_THAT(ReadFile(files[0]), EndsWith(first.model()));
  // It is read, not written again.
  const auto written = fs::last_write_time(files[0]) - std::chrono::hours(1);
  fs::last_write_time(files[0], written);
  EXPECT_EQ(Bpe::TrainOnce(SomeLines(), 60, folder).model(), first.model());
  EXPECT_EQ(fs::last_write_time(files[0]), written);
  // Other lines or another size use another file.
  Bpe::TrainOnce(SomeLines(), 50, folder);
  Bpe::TrainOnce(std::span(SomeLines()).subspan(1), 60, folder);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 3);
}

TEST(TrainOnce, ReplacesTheVocabularyOfOtherLinesOrSizes) {
  const TestFolder folder, elsewhere;
  const Bpe first = Bpe::TrainOnce(SomeLines(), 60, folder.path());
  const fs::path file = folder / folder.Entries().at(0);
  const std::string kept = ReadFile(file);
  Bpe::TrainOnce(SomeLines(), 50, elsewhere.path());
  Bpe::TrainOnce(std::span(SomeLines()).subspan(1), 60, elsewhere.path());
  for (const std::string& other : elsewhere.Entries()) {
    WriteFile(file, ReadFile(elsewhere / other));
    EXPECT_EQ(Bpe::TrainOnce(SomeLines(), 60, folder.path()).model(), first.model()) << other;
    EXPECT_EQ(ReadFile(file), kept) << other;
  }
}

TEST(TrainOnce, DoesNotReadFoldersAndPipes) {
  const TestFolder folder;
  const Bpe first = Bpe::TrainOnce(SomeLines(), 60, folder.path());
  const fs::path file = folder / folder.Entries().at(0);
  fs::remove(file);
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  EXPECT_EQ(Bpe::TrainOnce(SomeLines(), 60, folder.path()).model(), first.model());
  EXPECT_TRUE(fs::is_fifo(file));
  fs::remove(file);
  fs::create_directory(file);
  EXPECT_EQ(Bpe::TrainOnce(SomeLines(), 60, folder.path()).model(), first.model());
  EXPECT_TRUE(fs::is_directory(file));
}

/// Returns a kept file with another vocabulary under the key of `kept`, as another user could make
/// it: the checksum is right.
std::string Forged(const Bpe& other, int64_t size) {
  Sha256 lines, sum;
  const auto add = [](Sha256& sha, const std::string& line) {
    const std::string text = line + "\n";
    sha.Update({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  };
  for (const std::string& line : SomeLines()) add(lines, line);
  add(sum, std::to_string(size) + " 3 " + lines.Hex());
  add(sum, other.model());
  return sum.Hex() + "\n" + other.model();
}

TEST(TrainOnce, ReadsNothingThatAnotherUserCouldHaveWritten) {
  const TestFolder folder, elsewhere;
  const Bpe first = Bpe::TrainOnce(SomeLines(), 60, folder.path());
  const fs::path file = folder / folder.Entries().at(0);
  const std::string kept = ReadFile(file);
  const Bpe other = Bpe::Train(SomeLines(), 50);
  const std::string forged = Forged(other, 60);
  WriteFile(file, forged);
  ASSERT_EQ(Bpe::TrainOnce(SomeLines(), 60, folder.path()).model(), other.model())
      << "the forged file is not what it should be";

  const auto expect_replaced = [&] {
    EXPECT_EQ(Bpe::TrainOnce(SomeLines(), 60, folder.path()).model(), first.model());
    EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(file)));
    EXPECT_EQ(ReadFile(file), kept);
    struct stat status;
    ASSERT_EQ(lstat(file.c_str(), &status), 0);
    EXPECT_EQ(status.st_uid, geteuid());
    EXPECT_EQ(status.st_mode & S_IWOTH, 0);
  };
  WriteFile(file, forged);
  fs::permissions(file, fs::perms(0666));
  expect_replaced();
  WriteFile(elsewhere / "model", forged);
  fs::remove(file);
  fs::create_symlink(elsewhere / "model", file);
  expect_replaced();
  EXPECT_EQ(ReadFile(elsewhere / "model"), forged);
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  WriteFile(file, forged);
  ASSERT_EQ(chown(file.c_str(), 65534, 65534), 0);
  expect_replaced();
}

TEST(TrainOnce, TrainsAgainIfTheFileIsDamaged) {
  const TestFolder folder;
  const Bpe first = Bpe::TrainOnce(SomeLines(), 60, folder.path());
  const fs::path file = folder / folder.Entries().at(0);
  const std::string kept = ReadFile(file);
  // sentencepiece itself accepts many of these as models.
  for (size_t i = 0; i < kept.size(); i += kept.size() / 20) {
    std::string flipped = kept;
    flipped[i] ^= 1;
    for (const std::string& damaged : {kept.substr(0, i), flipped}) {
      WriteFile(file, damaged);
      EXPECT_EQ(Bpe::TrainOnce(SomeLines(), 60, folder.path()).model(), first.model()) << i;
      EXPECT_EQ(ReadFile(file), kept) << i;
    }
  }
}

TEST(TrainOnce, WorksWithoutAPlaceToKeep) {
  const TestFolder folder;
  WriteFile(folder / "file", "");
  const std::string expected = Bpe::Train(SomeLines(), 60).model();
  EXPECT_EQ(Bpe::TrainOnce(SomeLines(), 60, std::nullopt).model(), expected);
  EXPECT_EQ(Bpe::TrainOnce(SomeLines(), 60, folder / "file").model(), expected);
}

TEST(CacheFolder, FollowsTheXdgSpecification) {
  const char* cache = getenv("XDG_CACHE_HOME");
  const char* home = getenv("HOME");
  const std::string old_cache = cache ? cache : "", old_home = home ? home : "";
  setenv("XDG_CACHE_HOME", "/some/cache", 1);
  setenv("HOME", "/home/somebody", 1);
  EXPECT_EQ(CacheFolder(), "/some/cache/planish");
  setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_EQ(CacheFolder(), "/home/somebody/.cache/planish");
  unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(CacheFolder(), "/home/somebody/.cache/planish");
  unsetenv("HOME");
  EXPECT_EQ(CacheFolder(), std::nullopt);
  if (cache) setenv("XDG_CACHE_HOME", old_cache.c_str(), 1);
  if (home) setenv("HOME", old_home.c_str(), 1);
}

}  // namespace
}  // namespace planish::lab
