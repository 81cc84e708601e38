#include "lab/queue/sweep_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lab/error.h"
#include "lab/tasks/tasks.h"
#include "lab/testing/test_folder.h"

namespace planish::lab {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

class SweepFileTest : public testing::Test {
 protected:
  SweepPlan Plan(const std::string& text) {
    WriteFile(file_, text);
    return PlanSweepFile(file_, "out", FindTask);
  }

  // Returns the message of the UsageError or DataError, without the file's name.
  std::string Error(const std::string& text) {
    std::string message;
    try {
      Plan(text);
    } catch (const UsageError& error) {
      message = error.what();
    } catch (const DataError& error) {
      message = std::string("data: ") + error.what();
    }
    const size_t at = message.find(file_.string());
    if (at != std::string::npos) message.replace(at, file_.string().size(), "FILE");
    return message;
  }

  static std::vector<std::string> Names(const SweepPlan& plan) {
    std::vector<std::string> names;
    for (const QueuedRun& run : plan.queue.runs) names.push_back(run.Name());
    return names;
  }

  TestFolder folder_;
  std::filesystem::path file_ = folder_ / "a.toml";
};

TEST_F(SweepFileTest, PlansTheGridSeedBySeed) {
  const SweepPlan plan = Plan(
      "preset = \"smoke\"\n"
      "seeds = 2\n"
      "[[sweep]]\n"
      "task = \"pi-mnist\"\n"
      "norm = [\"none\", \"layer\"]\n"
      "batch_size = [32, 16]\n"
      "[[sweep]]\n"
      "task = \"char-lm\"\n"
      "seeds = [7]\n"
      "cell = \"lstm\"\n"
      "lr = 1e-3\n");
  EXPECT_THAT(Names(plan),
              ElementsAre("pi-mnist smoke-none-b32-s1", "pi-mnist smoke-none-b16-s1",
                          "pi-mnist smoke-layer-b32-s1", "pi-mnist smoke-layer-b16-s1",
                          StartsWith("char-lm smoke-lstm-b"), "pi-mnist smoke-none-b32-s2",
                          "pi-mnist smoke-none-b16-s2", "pi-mnist smoke-layer-b32-s2",
                          "pi-mnist smoke-layer-b16-s2"));
  EXPECT_EQ(plan.queue.runs[4].plan.seed, 7);
  EXPECT_EQ(plan.queue.runs[4].plan.settings.Real("lr"), 1e-3);
  // clang-format off
  EXPECT_EQ(RenderSweep(plan),
            "  task      preset              settings  seeds  runs  done  minutes a run  hours left\n"
            "  pi-mnist  smoke   2 norm, 2 batch_size      2     8     0              ?           ?\n"
            "  char-lm   smoke    cell=lstm, lr=0.001      1     1     0              ?           ?\n"
            "  all                                               9     0                          ?\n");
  // clang-format on
}

TEST_F(SweepFileTest, TheDefaultsAreTheFirstPresetAndSeedOne) {
  const SweepPlan plan = Plan("[[sweep]]\ntask = \"pi-mnist\"\nnorm = \"layer\"\n");
  ASSERT_EQ(plan.queue.runs.size(), 1u);
  EXPECT_EQ(plan.queue.runs[0].plan.seed, 1);
  EXPECT_EQ(plan.queue.runs[0].plan.preset, FindTask("pi-mnist").presets.front().name);
}

TEST_F(SweepFileTest, HasTheNormsOfTheTaskUnlessSomeAreNamed) {
  const SweepPlan plan = Plan("[[sweep]]\ntask = \"order-embedding\"\nlr = [1e-3, 1e-2]\n");
  std::vector<std::string> norms;
  for (const QueuedRun& run : plan.queue.runs) {
    norms.push_back(run.variant);
    EXPECT_THAT(run.arguments, ::testing::Contains("--norm"));
  }
  EXPECT_THAT(norms, ::testing::ElementsAre("none", "none", "layer", "layer"));
  EXPECT_EQ(Plan("[[sweep]]\ntask = \"char-lm\"\n").queue.runs.size(), 1u);
}

// Planning is linear in the numbers of values, seeds and sweeps: a quadratic one takes seconds.
TEST_F(SweepFileTest, PlansTenThousandValuesSeedsAndSweeps) {
  std::string rates, seeds, sweeps;
  for (int i = 1; i <= 10'000; ++i) {
    rates += std::to_string(i) + "e-6,\n";
    seeds += std::to_string(20'000 - i) + ",\n";
    sweeps +=
        "[[sweep]]\ntask = \"pi-mnist\"\nnorm = \"none\"\nlr = " + std::to_string(i) + "e-6\n";
  }
  const std::string task = "preset = \"smoke\"\n[[sweep]]\ntask = \"pi-mnist\"\nnorm = \"none\"\n";
  for (const std::string& text : {task + "lr = [" + rates + "]\n", sweeps}) {
    const SweepPlan plan = Plan(text);
    ASSERT_EQ(plan.queue.runs.size(), 10'000u);
    EXPECT_THAT(plan.queue.runs[2999].Name(), HasSubstr("-lr=0.003-s1"));
    EXPECT_FALSE(RenderSweep(plan).empty());
  }
  const SweepPlan plan = Plan(task + "seeds = [" + seeds + "]\n");
  ASSERT_EQ(plan.queue.runs.size(), 10'000u);
  EXPECT_EQ(plan.queue.runs[2999].plan.seed, 17'000);
}

TEST_F(SweepFileTest, RefusesWhatItDoesNotKnow) {
  const std::string task = "[[sweep]]\ntask = \"pi-mnist\"\n";
  EXPECT_EQ(Error(""), "[sweep] FILE, line 1: there must be at least one [[sweep]], got none");
  EXPECT_EQ(Error("x = 1\n" + task),
            "[sweep] FILE, line 1: the keys before the first [[sweep]] must be of preset, seeds, "
            "got \"x\"");
  EXPECT_EQ(Error("sweep = 1\n"),
            "[sweep] FILE, line 1: sweep must be a list of tables: [[sweep]]");
  EXPECT_EQ(Error("[sweep]\ntask = \"pi-mnist\"\n"),
            "[sweep] FILE, line 1: sweep must be a list of tables: [[sweep]]");
  EXPECT_EQ(Error("[[sweep]]\n"), "[sweep] FILE, line 1: task must be given, got none");
  EXPECT_THAT(Error("[[sweep]]\ntask = \"x\"\n"),
              StartsWith("[sweep] FILE, line 2: task must be one of "));
  EXPECT_THAT(Error("[[sweep]]\ntask = 3\n"),
              StartsWith("[sweep] FILE, line 2: task must be a text"));
  EXPECT_THAT(Error(task + "preset = \"x\"\n"),
              StartsWith("[sweep] FILE, line 3: preset must be one of "));
  EXPECT_THAT(Error(task + "x = 1\n"), StartsWith("[sweep] FILE, line 3: name must be one of "));
  EXPECT_THAT(Error(task + "norm = \"x\"\n"), StartsWith("[sweep] FILE, line 3: norm must be "));
  EXPECT_THAT(Error(task + "norm = []\n"),
              StartsWith("[sweep] FILE, line 3: norm must have a value"));
  EXPECT_THAT(Error(task + "lr = 1979-05-27\n"),
              StartsWith("[sweep] FILE, line 3: lr must be a text, number or boolean"));
  EXPECT_THAT(Error(task + "lr = [[1]]\n"), StartsWith("[sweep] FILE, line 3: lr must be a text"));
  EXPECT_THAT(Error(task + "seeds = 0\n"), HasSubstr("seeds must be from 1 to 1000, got 0"));
  EXPECT_THAT(Error(task + "seeds = [1, 1]\n"), HasSubstr("each seed once, got 1 twice"));
  EXPECT_THAT(Error(task + "seeds = [-1]\n"), HasSubstr("seeds must be integers from 0 to 2^53"));
  EXPECT_THAT(Error(task + "seeds = \"1\"\n"), HasSubstr("seeds must be a number of seeds"));
  EXPECT_THAT(Error(task + task),
              StartsWith("[sweep] FILE, line 3: the sweep of line 1 has the run pi-mnist "));
}

TEST_F(SweepFileTest, NamesTheLineOfTheValue) {
  const std::string task = "[[sweep]]\ntask = \"pi-mnist\"\n";
  EXPECT_THAT(Error(task + "lr = [\n  1e-3,\n  -1,\n]\n"),
              HasSubstr("line 5: lr must be at least 0"));
  EXPECT_THAT(Error(task + "lr = [\n  1e-3,\n\n  0.001]\n"),
              HasSubstr("line 6: lr must name each value once, got 0.001 twice"));
  EXPECT_THAT(Error(task + "lr =  [ # rates\n  1e-3,\n  [1]]\n"),
              HasSubstr("line 5: lr must be a text"));
  EXPECT_THAT(Error(task + "x = [\n  1]\n"), HasSubstr("line 3: name must be one of "));
  EXPECT_THAT(Error(task + "seeds = [\n  1,\n  1]\n"), HasSubstr("line 5: seeds must list"));
  EXPECT_THAT(Error(task + "seeds = [\n  1,\n  -1]\n"),
              HasSubstr("line 5: seeds must be integers"));
  EXPECT_THAT(Error("preset = \"smoke\"\n" + task + "preset = \"x\"\n"),
              HasSubstr("line 4: preset must be one of "));
  EXPECT_THAT(Error("\npreset = \"x\"\n" + task), HasSubstr("line 2: preset must be one of "));
  EXPECT_THAT(Error("[[sweep]]\ntask = \"online-ln\"\nshards = [1,\n2]\n"),
              HasSubstr("line 4: shards must be 1 in online-ln"));
}

TEST_F(SweepFileTest, RefusesWhatIsNotToml) {
  EXPECT_THAT(Error("[[sweep]]\ntask = \n"), StartsWith("data: FILE, line 2: "));
  EXPECT_THAT(Error("a = 1\na = 2\n"), StartsWith("data: FILE, line 2: "));
  EXPECT_THAT(Error("a = i\n"), testing::AllOf(StartsWith("data: FILE, line 1: "),
                                               testing::Not(testing::HasSubstr("\n"))));
  EXPECT_THAT(Error(std::string(200000, '[')), StartsWith("data: FILE, line 1: "));
  std::string parts = "a";
  for (int i = 0; i < 100000; ++i) parts += ".a";
  EXPECT_EQ(Error("\n" + parts + " = 1"),
            "data: FILE, line 2: there must be at most 100 dots in a row of keys");
  EXPECT_THAT(Error("[" + parts + "]"), StartsWith("data: FILE, line 1: "));
  EXPECT_THAT(Error(std::string(2 << 20, '#')),
              StartsWith("data: cannot read FILE: a sweep file must have at most 1048576 bytes"));
  std::filesystem::remove(file_);
  EXPECT_THROW(PlanSweepFile(file_, "out", FindTask), DataError);
  std::filesystem::create_directory(file_);
  EXPECT_THROW(PlanSweepFile(file_, "out", FindTask), DataError);
}

TEST(ShellLine, QuotesWhatAShellWouldChange) {
  EXPECT_EQ(ShellLine({"planish", "--set", "lr=1e-3", "a b", "", "it's", "$x", "/tmp/a_1"}),
            "planish --set lr=1e-3 'a b' '' 'it'\\''s' '$x' /tmp/a_1");
}

}  // namespace
}  // namespace planish::lab
