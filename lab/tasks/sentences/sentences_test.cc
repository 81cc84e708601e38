#include "lab/tasks/sentences/sentences.h"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "lab/error.h"
#include "lab/tasks/rt/rt.h"
#include "lab/tasks/sst5/sst5.h"
#include "lab/tasks/task_testing.h"

namespace planish::lab {
namespace {

using ::testing::HasSubstr;

class SentencesTaskTest : public TaskTest<MakeSentencesTask> {
 protected:
  TestFolder folder;
};

TEST_F(SentencesTaskTest, HasAsManyClassesAsTheTable) {
  std::string text = "text,label\n";
  for (int i = 0; i < 70; ++i) text += fmt::format("word{} of class,{}\n", i % 7, i % 7);
  WriteFile(folder / "a.csv", text);
  const auto data = task->Load(Smoke(), folder / "a.csv");
  EXPECT_EQ(data->about.sizes,
            (std::map<std::string, int64_t>{{"train", 56}, {"valid", 7}, {"test", 7}}));
  EXPECT_EQ(data->about.name, "a");
  const auto experiment = Make(*data);
  const Tensors batch = experiment->Batch(at::arange(56));
  EXPECT_EQ(batch[2].max().item<int64_t>(), 6);
  const Values values = DeclaredMetrics(*task, *experiment);
  // An untrained model guesses among 7.
  EXPECT_NEAR(values.at("test_loss"), std::log(7), 0.7);
}

// The same sentences as sst5's and as a table give equal bits.
TEST_F(SentencesTaskTest, TrainsLikeSst5) {
  const auto sst5 = MakeSst5();
  for (const std::string part : {"train", "dev", "test"}) {
    std::string lines, table = "label\ttext\n";
    for (int i = 0; i < 40; ++i) {
      const std::string row = fmt::format("{}{}very {} film {}\n", (3 * i) % 5, "{}", i % 5, i % 3);
      lines += fmt::format(fmt::runtime(row), ' ');
      table += fmt::format(fmt::runtime(row), '\t');
    }
    WriteFile(folder / ("stsa.fine." + part), lines);
    WriteFile(folder / (part + ".tsv"), table);
  }
  const Settings theirs = PresetSettings(*sst5, "smoke");
  const auto their_data = sst5->Load(theirs, folder.path());
  const auto our_data = task->Load(Smoke(), folder.path());
  const auto a = sst5->MakeSeeded(theirs, *their_data, 1);
  const auto b = task->MakeSeeded(Smoke(), *our_data, 1);
  const Tensors batch = a->Batch(at::arange(40)), same = b->Batch(at::arange(40));
  for (size_t i = 0; i < batch.size(); ++i) EXPECT_TRUE(batch[i].equal(same[i])) << i;
  TrainEpochs(*sst5, *a, theirs, 1);
  const Values expected = DeclaredMetrics(*sst5, *a);
  const auto c = task->MakeSeeded(Smoke(), *our_data, 1);
  TrainEpochs(*task, *c, Smoke(), 1);
  const Values values = DeclaredMetrics(*task, *c);
  for (const auto& [name, value] : expected) EXPECT_EQ(values.at(name), value) << name;
}

TEST_F(SentencesTaskTest, RefusesColumnsWithoutData) {
  for (const std::string name : {"text", "label", "split"}) {
    EXPECT_THROW(task->Load(Smoke({{name, "a"}}), {}), UsageError) << name;
  }
  EXPECT_THROW(Smoke({{"test_share", "0.5"}}), UsageError);
}

}  // namespace
}  // namespace planish::lab
