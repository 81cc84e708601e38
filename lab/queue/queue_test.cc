#include "lab/queue/queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lab/tasks/tasks.h"

namespace planish::lab {
namespace {

using testing::ElementsAre;

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

}  // namespace
}  // namespace planish::lab
