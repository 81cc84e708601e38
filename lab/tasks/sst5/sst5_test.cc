#include "lab/tasks/sst5/sst5.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>

#include "lab/data/source.h"
#include "lab/error.h"
#include "lab/tasks/task_testing.h"

namespace planish::lab {
namespace {

using ::testing::HasSubstr;

class Sst5Test : public TaskTest<MakeSst5> {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(folder / "sst");
    Write("train", "4 a good film\n0 a bad film\n3 good\n\n");
    Write("dev", "2 a film\n");
    Write("test", "1 not so good\n0 bad bad bad\n");
  }
  void Write(const std::string& set, const std::string& text) {
    WriteFile(folder / ("sst/stsa.fine." + set), text);
  }
  std::unique_ptr<Dataset> Load(const Sets& sets = {}) {
    return task->Load(Chosen("paper", sets), folder.path());
  }

  TestFolder folder;
};

TEST_F(Sst5Test, ReadsTheThreeSets) {
  const auto data = Load();
  EXPECT_EQ(data->about.sizes,
            (std::map<std::string, int64_t>{{"train", 3}, {"valid", 1}, {"test", 2}}));
  EXPECT_EQ(data->about.name, "labelled sentences");
  // "a", "film" and "good" occur twice in training; only one of the 6 test words is known, "good".
  EXPECT_THAT(
      data->about.description,
      HasSubstr("6 sentences in five classes (not SST5) read from " + (folder / "sst").string() +
                "; 1 empty line left out; 3 words in the lexicon, 83.3% of the test words"));
  const auto experiment = task->Make(Smoke(), *data);
  const Tensors batch = experiment->Batch(at::arange(3));
  EXPECT_TRUE(batch[2].equal(at::tensor(std::vector<int64_t>{4, 0, 3})));
  EXPECT_TRUE(batch[1].equal(at::tensor(std::vector<int64_t>{3, 3, 1})));
  // By frequency, then bytes: a 1, film 2, good 3.
  EXPECT_TRUE(
      batch[0].equal(at::tensor(std::vector<int32_t>{1, 3, 2, 1, 0, 2, 3, 0, 0}).view({3, 3})));
}

TEST_F(Sst5Test, KnowsTheRealOne) {
  const std::optional<std::filesystem::path> data = DataFolder("");
  if (!data || !std::filesystem::exists(*data / "sst")) {
    GTEST_SKIP() << "PLANISH_DATA does not name a folder with sst";
  }
  EXPECT_EQ(task->Load(PresetSettings(*task, "paper"), *data)->about.name, "sst5");
}

TEST_F(Sst5Test, RefusesFilesItCannotUse) {
  Write("dev", "2 a film\n7 a film\n");
  try {
    Load();
    FAIL() << "no error";
  } catch (const DataError& e) {
    EXPECT_THAT(e.what(), HasSubstr(", line 2: "));
  }
  Write("dev", "\n");
  EXPECT_THROW(Load(), DataError);
  std::filesystem::remove(folder / "sst/stsa.fine.dev");
  EXPECT_THROW(Load(), DataError);
}

}  // namespace
}  // namespace planish::lab
