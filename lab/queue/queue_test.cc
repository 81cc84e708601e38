#include "lab/queue/queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "lab/error.h"
#include "lab/tasks/tasks.h"
#include "lab/testing/test_folder.h"

namespace planish::lab {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(QueueSweep, GivesTheArgumentsOfTrain) {
  SweepRequest sweep;
  sweep.preset = "smoke";
  sweep.values = {{"cell", {"lstm", "ln-lstm"}}, {"batch_size", {"4"}}, {"lr", {"0.010"}}};
  sweep.seeds = {3};
  sweep.out = "runs";
  const std::vector<QueuedRun> runs = QueueSweep(FindTask("char-lm"), sweep, 7);
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[1].group, 7u);
  EXPECT_EQ(runs[1].variant, "ln-lstm");
  EXPECT_THAT(runs[1].arguments,
              ElementsAre("train", "char-lm", "--preset", "smoke", "--cell", "ln-lstm", "--set",
                          "batch_size=4", "--set", "lr=0.01", "--seed", "3", "--out", "runs"));
  EXPECT_EQ(runs[1].Name(), "char-lm " + runs[1].plan.folder.filename().string());
}

TEST(RunQueue, AFolderThatCannotBeListedIsNamed) {
  const TestFolder folder;
  SweepRequest sweep;
  sweep.preset = "smoke";
  sweep.seeds = {1};
  sweep.out = folder.path();
  RunQueue queue;
  queue.runs = QueueSweep(FindTask("pi-mnist"), sweep, 0);
  queue.FindResults();
  EXPECT_FALSE(queue.runs[0].done);
  std::filesystem::create_symlink("pi-mnist", folder / "pi-mnist");  // a loop
  EXPECT_THAT([&] { queue.FindResults(); },
              ThrowsMessage<RunError>(HasSubstr("cannot read " + (folder / "pi-mnist").string())));
}

}  // namespace
}  // namespace planish::lab
