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

TEST(Duration, SaysWhatIsKnown) {
  EXPECT_EQ(Duration({.runs = 2, .unknown = 2}), "2 runs of unknown duration");
  EXPECT_EQ(Duration({.runs = 1, .unknown = 1}), "1 run of unknown duration");
  EXPECT_EQ(Duration({.runs = 3, .unknown = 2, .hours = 1.46}),
            "about 1.5 hours and 2 runs of unknown duration");
  EXPECT_EQ(Duration({.runs = 3, .hours = 0.06}), "about 0.1 hours");
  EXPECT_EQ(Duration({.runs = 3, .hours = 0.04}), "less than 0.1 hours");
}

TEST(QueueSweep, GivesSettingsTheirPresentNames) {
  SweepRequest sweep;
  sweep.preset = "smoke";
  sweep.values = {{"norm", {"layer"}}, {"norm_position", {"pre"}}};
  sweep.seeds = {1};
  const std::vector<QueuedRun> runs = QueueSweep(FindTask("enwik8"), sweep, 0);
  EXPECT_THAT(runs.front().arguments, testing::Contains("placement=pre-no-final"));
}

class SecondsLeftTest : public testing::Test {
 protected:
  SecondsLeftTest() {
    queue_.groups = {"a"};
    queue_.estimates = Estimates({std::nullopt});
    for (int i = 0; i < 5; ++i) {
      queue_.runs.push_back({.group = 0, .plan = {Settings({}), "", 1, {}}, .variant = "layer"});
    }
  }
  RunQueue queue_;
};

TEST_F(SecondsLeftTest, IsUnknownBeforeTheFirstRunHasASpeed) {
  EXPECT_EQ(SecondsLeft(queue_, {{0, 5, {}}}, {1, 2}, 1), std::nullopt);
  EXPECT_EQ(SecondsLeft(queue_, {}, {1}, 1), std::nullopt);
  EXPECT_EQ(SecondsLeft(queue_, {}, {}, 1), 0);
}

TEST_F(SecondsLeftTest, TakesTheSpeedOfTheRunningForTheWaiting) {
  // 5 + 15 seconds a run.
  EXPECT_EQ(SecondsLeft(queue_, {{0, 5, 15}}, {1, 2}, 1), 15 + 2 * 20);
  // A second one, whose speed is unknown, needs 20 - 8 more seconds; each has one of the two
  // others.
  EXPECT_EQ(SecondsLeft(queue_, {{0, 5, 15}, {1, 8, {}}}, {2, 3}, 2), 15 + 20);
  EXPECT_EQ(SecondsLeft(queue_, {{0, 5, 15}, {1, 30, {}}}, {}, 2), 15);
}

TEST_F(SecondsLeftTest, TakesTheTimeOfFinishedRunsForTheWaiting) {
  queue_.estimates.Add(queue_.runs[0], 1);
  EXPECT_EQ(SecondsLeft(queue_, {{1, 10, 30}}, {2, 3, 4}, 1), 30 + 3 * 60);
  EXPECT_EQ(SecondsLeft(queue_, {{1, 10, {}}}, {2}, 2), 60);  // on the other job
  EXPECT_EQ(SecondsLeft(queue_, {{1, 70, {}}}, {}, 1), 0);
  queue_.runs[2].part_done = 0.5;
  EXPECT_EQ(SecondsLeft(queue_, {}, {2}, 1), 30);
}

// A group of which some durations are known has a sum, the others a question mark.
TEST(RenderQueue, AddsKnownDurations) {
  RunQueue queue;
  queue.groups = {"a", "b"};
  queue.estimates = Estimates({std::nullopt, std::nullopt});
  for (const size_t group : {0, 0, 0, 1}) {
    queue.runs.push_back({.group = group, .plan = {Settings({}), "", 1, {}}, .variant = "layer"});
  }
  queue.runs[2].variant = "none";
  queue.runs[0].done = true;
  queue.estimates.Add(queue.runs[0], 90);
  EXPECT_EQ(RenderQueue(queue, {"one", "two"}, {{"a", "-"}, {"b", "-"}}),
            "  one  two  runs  done  minutes a run  hours left\n"
            "  a    -       3     1      90.0 here        3.00\n"
            "  b    -       1     0              ?           ?\n"
            "  all          4     1                   3.00 + ?\n");
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
