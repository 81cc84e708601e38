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
