#include "lab/queue/children.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <map>
#include <string>

#include "lab/error.h"
#include "lab/testing/test_folder.h"

namespace planish::lab {
namespace {

// Waits for all, however long it takes.
std::map<size_t, Children::Ended> WaitForAll(Children& children) {
  std::map<size_t, Children::Ended> all;
  while (children.running() > 0) {
    for (Children::Ended& ended : children.Wait(1000)) all[ended.id] = std::move(ended);
  }
  return all;
}

// The shell replaces planish: it can do whatever a child can do.
TEST(Children, GiveStatusAndTheLastLineOfStderr) {
  Children children("/bin/sh");
  children.Start(1, {"-c", "exit 0"});
  children.Start(2, {"-c", "echo one >&2; echo two >&2; echo out; exit 3"});
  children.Start(3, {"-c", "kill -KILL $$"});
  EXPECT_EQ(children.running(), 3u);
  const auto ended = WaitForAll(children);
  ASSERT_EQ(ended.size(), 3u);
  EXPECT_EQ(ended.at(1).status, 0);
  EXPECT_EQ(ended.at(1).error, "");
  EXPECT_EQ(ended.at(2).status, 3);
  EXPECT_EQ(ended.at(2).error, "two");
  EXPECT_EQ(ended.at(3).status, 128 + SIGKILL);
}

TEST(Children, AreTerminatedInOrder) {
  Children children("/bin/sh");
  children.Start(7, {"-c",
                     "trap 'echo saved >&2; exit 143' TERM; echo ready >&2; while true; do sleep "
                     "0.01; done"});
  // Waits until the trap is set.
  children.Wait(10'000);
  children.Terminate();
  const auto ended = WaitForAll(children);
  EXPECT_EQ(ended.at(7).status, 143);
  EXPECT_EQ(ended.at(7).error, "saved");
}

TEST(Children, WriteMoreThanAPipeHolds) {
  Children children("/bin/sh");
  children.Start(1, {"-c", "i=0; while [ $i -lt 20000 ]; do echo line $i >&2; i=$((i+1)); done"});
  EXPECT_EQ(WaitForAll(children).at(1).error, "line 19999");
}

TEST(Children, ReportTheirProgress) {
  Children children("/bin/sh");
  EXPECT_FALSE(children.Report(4));
  children.Start(4, {"-c",
                     "printf '\\0360.25 12.0 \\nx\\n\\0360.5 7.5 testing\\n' >&2; exec sleep "
                     "1000"});
  while (!children.Report(4) || children.Report(4)->phase.empty()) children.Wait(100);
  EXPECT_EQ(children.Report(4)->fraction, 0.5);
  EXPECT_EQ(children.Report(4)->seconds_left, 7.5);
  EXPECT_EQ(children.Report(4)->phase, "testing");
  children.Terminate();
  EXPECT_EQ(WaitForAll(children).at(4).error, "x");
  EXPECT_FALSE(children.Report(4));
  children.Start(5, {"-c", "echo $PLANISH_PROGRESS_REPORT >&2"});
  EXPECT_EQ(WaitForAll(children).at(5).error, "1");
}

TEST(Children, AreNotLeftBehind) {
  const TestFolder folder;
  const std::string file = (folder / "pid").string();
  {
    Children children("/bin/sh");
    children.Start(1, {"-c", "echo $$ > '" + file + "'; echo ready >&2; exec sleep 1000"});
    // Waits until the child has written the file.
    children.Wait(10'000);
  }
  const pid_t pid = std::stoi(ReadFile(file));
  EXPECT_EQ(kill(pid, 0), -1);
  EXPECT_EQ(errno, ESRCH);
}

TEST(Children, NameAMissingProgram) {
  Children children("/nowhere/planish");
  try {
    children.Start(1, {});
    FAIL() << "must throw";
  } catch (const RunError& error) {
    EXPECT_STREQ(error.what(), "cannot start /nowhere/planish: No such file or directory");
  }
  EXPECT_EQ(children.running(), 0u);
  EXPECT_TRUE(children.Wait(1000).empty());
}

}  // namespace
}  // namespace planish::lab
