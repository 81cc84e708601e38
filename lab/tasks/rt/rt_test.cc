#include "lab/tasks/rt/rt.h"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <set>

#include "lab/data/source.h"
#include "lab/error.h"
#include "lab/tasks/task_testing.h"

namespace planish::lab {
namespace {

using ::testing::HasSubstr;

class RtTest : public TaskTest<MakeRt> {
 protected:
  // Writes these numbers of sentences, all distinct and of one word.
  void WriteSentences(int positive, int negative) {
    std::filesystem::create_directory(folder / "mr");
    std::string text;
    for (int i = 0; i < positive; ++i) text += fmt::format("good{}\n", i);
    WriteFile(folder / "mr/rt-polarity.pos", text);
    text.clear();
    for (int i = 0; i < negative; ++i) text += fmt::format("bad{} . \n", i);
    WriteFile(folder / "mr/rt-polarity.neg", text);
  }

  std::unique_ptr<Dataset> Load(const Sets& sets = {}) {
    return task->Load(Chosen("paper", sets), folder.path());
  }

  // Returns words, lengths and labels of the training sentences.
  Tensors Train(const Dataset& data, const Sets& sets = {}) {
    const auto experiment = task->Make(Smoke(sets), data);
    return experiment->Batch(at::arange(data.about.sizes.at("train")));
  }

  TestFolder folder;
};

TEST_F(RtTest, SplitsHaveThePapersSizes) {
  WriteSentences(5331, 5331);
  const auto data = Load();
  EXPECT_EQ(data->about.sizes,
            (std::map<std::string, int64_t>{{"train", 8608}, {"valid", 964}, {"test", 1089}}));
  EXPECT_EQ(data->about.name, "labelled sentences");  // RT's number of sentences, but others
  EXPECT_EQ(data->about.source, "files");
  EXPECT_THAT(data->about.description, HasSubstr("10,662 sentences in two classes (not RT)"));
  EXPECT_THAT(data->about.description, HasSubstr("(by the seed: split=1), 1 left over;"));
}

TEST_F(RtTest, SplitsAsTheSettingSays) {
  WriteSentences(60, 60);
  const Sets all = {{"min_count", "1"}};
  const auto first = Train(*Load(all)), again = Train(*Load(all));
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(first[i].equal(again[i]));
  const auto other = Train(*Load({{"min_count", "1"}, {"split", "2"}}));
  EXPECT_FALSE(other[2].equal(first[2]));
  EXPECT_EQ(first[2].size(0), 120 * 8608 / 10661);
  // Negative ones have two words here: labels stay with their sentences.
  EXPECT_TRUE(first[1].eq(2 - first[2]).all().item<bool>());
  // Classes are mixed: there are many runs of one class, while the files have two.
  const at::Tensor changes = first[2].slice(0, 1).ne(first[2].slice(0, 0, -1));
  EXPECT_GT(changes.sum().item<int64_t>(), 20);
  // No sentence twice: every word except "." is in one sentence.
  std::set<int> words;
  const at::Tensor numbers = first[0].select(1, 0);
  for (int64_t i = 0; i < numbers.size(0); ++i) words.insert(numbers[i].item<int>());
  EXPECT_EQ(static_cast<int64_t>(words.size()), numbers.size(0));
}

TEST_F(RtTest, SeedsHaveSplitsOfTheirOwn) {
  WriteSentences(60, 60);
  const auto train = [&](const Sets& sets, int64_t seed) {
    Sets all = {{"min_count", "1"}};
    all.insert(all.end(), sets.begin(), sets.end());
    const auto data = task->Load(task->LoadSettings(Chosen("paper", all), seed), folder.path());
    return Train(*data, all)[2];
  };
  const Sets fixed = {{"split_by_seed", "false"}};
  EXPECT_TRUE(train({}, 3).equal(train({}, 3)));
  EXPECT_FALSE(train({}, 3).equal(train({}, 4)));
  EXPECT_FALSE(train({}, 3).equal(train({{"split", "2"}}, 3)));
  EXPECT_TRUE(train(fixed, 3).equal(train(fixed, 4)));
  EXPECT_TRUE(train(fixed, 3).equal(Train(*Load({{"min_count", "1"}}), {{"min_count", "1"}})[2]));
  for (const int64_t seed : {int64_t{0}, int64_t{-1}, int64_t{1} << 62}) {
    EXPECT_NO_THROW(task->LoadSettings(Chosen("paper"), seed)) << seed;
  }
  // The file's order numbers the test sentences: the first 60 are positive.
  const auto data = task->Load(task->LoadSettings(Smoke(), 3), folder.path());
  const auto experiment = Make(*data);
  experiment->model().eval();
  experiment->Test();
  const Predictions& predictions = *experiment->predictions();
  ASSERT_EQ(predictions.size(), 120 * 1089 / 10661);
  for (size_t i = 0; i < predictions.items.size(); ++i) {
    EXPECT_EQ((*predictions.Find("label"))[i], predictions.items[i] < 60 ? 1 : 0);
  }
}

TEST_F(RtTest, KnowsTheRealOne) {
  const std::optional<std::filesystem::path> data = DataFolder("");
  if (!data || !std::filesystem::exists(*data / "mr")) {
    GTEST_SKIP() << "PLANISH_DATA does not name a folder with mr";
  }
  EXPECT_EQ(task->Load(PresetSettings(*task, "paper"), *data)->about.name, "rt");
}

TEST_F(RtTest, ReadsTheFolderItself) {
  WriteSentences(30, 30);
  EXPECT_NO_THROW(task->Load(Smoke(), folder / "mr"));
}

TEST_F(RtTest, ReportsLeftOutSentences) {
  WriteSentences(30, 30);
  WriteFile(folder / "mr/rt-polarity.pos",
            ReadFile(folder / "mr/rt-polarity.pos") + "\n  \nso very good\n");
  const auto data = Load({{"longest", "2"}});
  EXPECT_THAT(data->about.description,
              HasSubstr("; 2 empty lines left out; 1 sentence cut to 2 words; "));
}

TEST_F(RtTest, RefusesFilesItCannotUse) {
  WriteSentences(30, 30);
  WriteFile(folder / "mr/rt-polarity.neg", "bad\n\xff\n");
  EXPECT_THROW(Load(), DataError);
  std::filesystem::remove(folder / "mr/rt-polarity.neg");
  EXPECT_THROW(Load(), DataError);
  WriteSentences(2, 2);
  try {
    Load();
    FAIL() << "no error";
  } catch (const DataError& e) {
    EXPECT_THAT(e.what(), HasSubstr(" has no validation sentences"));
  }
}

}  // namespace
}  // namespace planish::lab
