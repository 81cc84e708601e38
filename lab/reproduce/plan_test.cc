#include "lab/reproduce/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lab/error.h"
#include "lab/run/writer.h"
#include "lab/tasks/tasks.h"
#include "lab/testing/test_folder.h"

namespace planish::lab {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Returns two columns of pi-mnist: "a" with two norms and three seeds; "b" with another batch size,
// a norm that the paper does not have, and two seeds.
Paper MakeTestPaper() {
  PaperColumn a;
  a.name = "a";
  a.task = "pi-mnist";
  a.settings = {{"batch_size", 64}};
  a.norms = {"none", "layer"};
  a.seeds = 3;
  a.minutes = 6;
  PaperColumn b = a;
  b.name = "b";
  b.settings = {{"batch_size", 32}};
  b.norms = {"none", "rms"};
  b.seeds = 2;
  b.minutes = 12;
  Paper paper;
  paper.name = "test";
  paper.title = "A test paper";
  paper.preset = "smoke";
  PaperColumn c = a;  // another metric of the same runs
  c.name = "c";
  c.metric = "test_nll";
  c.runs_of = "a";
  paper.columns = {a, b, c};
  paper.rows = {{"none", "w/o"}, {"layer", "LN"}};
  return paper;
}

class PlanTest : public testing::Test {
 protected:
  ReproducePlan Plan(ReproduceRequest request = {}) {
    request.out = folder_ / "runs";
    return MakePlan(paper_, request, FindTask);
  }

  // Returns entries like "a none 1": column, norm, seed.
  static std::vector<std::string> Order(const ReproducePlan& plan) {
    std::vector<std::string> names;
    for (const QueuedRun& run : plan.queue.runs) {
      names.push_back(plan.queue.groups[run.group] + " " + run.variant + " " +
                      std::to_string(run.plan.seed));
    }
    return names;
  }

  // Creates the folder of a planned run that ended after `seconds`, like `train`.
  static void Finish(const QueuedRun& run, double seconds, const std::string& status) {
    RunConfig config;
    config.settings = run.plan.settings.values();
    RunResult result;
    result.status = status;
    result.seconds = seconds - 1;
    result.evaluation_seconds = 1;
    RunWriter writer(run.plan.folder);
    writer.WriteConfig(config);
    writer.Append({10, 4, 640, result.seconds, {{"loss", 1}}});
    writer.Finish(result);
  }

  TestFolder folder_;
  Paper paper_ = MakeTestPaper();
};

TEST_F(PlanTest, OrdersRunsBySeedWithThePapersNormsFirst) {
  EXPECT_THAT(Order(Plan()), ElementsAre("a none 1", "a layer 1", "b none 1",  //
                                         "a none 2", "a layer 2", "b none 2",  //
                                         "a none 3", "a layer 3",              //
                                         "b rms 1", "b rms 2"));
}

TEST_F(PlanTest, KeepsTheRequestedOrderOfColumns) {
  ReproduceRequest request;
  request.tasks = {"b", "a"};
  request.norms = {"layer"};
  request.seeds = 2;
  EXPECT_THAT(Order(Plan(request)),
              ElementsAre("b layer 1", "a layer 1", "b layer 2", "a layer 2"));
  request.tasks = {"pi-mnist"};
  EXPECT_THAT(Order(Plan(request)),
              ElementsAre("a layer 1", "b layer 1", "a layer 2", "b layer 2"));
}

TEST_F(PlanTest, LeavesOutNormsThatATaskLacks) {
  paper_.columns[1].task = "draw";
  ReproduceRequest request;
  request.norms = {"none", "batch"};
  request.seeds = 1;
  EXPECT_THAT(Order(Plan(request)), ElementsAre("a none 1", "b none 1", "a batch 1"));
  request.norms = {"batch"};
  const ReproducePlan plan = Plan(request);
  EXPECT_THAT(Order(plan), ElementsAre("a batch 1"));
  EXPECT_EQ(plan.columns.size(), 1);
}

TEST_F(PlanTest, GivesTheArgumentsOfTrain) {
  const QueuedRun run = Plan().queue.runs[1];
  EXPECT_EQ(run.plan.folder, folder_ / "runs/pi-mnist/smoke-layer-b64-s1");
  EXPECT_THAT(run.arguments,
              ElementsAre("train", "pi-mnist", "--preset", "smoke", "--norm", "layer", "--set",
                          "batch_size=64", "--seed", "1", "--out", (folder_ / "runs").string()));
  EXPECT_EQ(run.Name(), "pi-mnist smoke-layer-b64-s1");
}

TEST_F(PlanTest, RefusesUnknownNames) {
  const auto error = [&](auto change) -> std::string {
    ReproduceRequest request;
    change(request);
    try {
      Plan(request);
    } catch (const UsageError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(error([](ReproduceRequest& r) { r.tasks = {"c"}; }),
            "[reproduce] --tasks must be of a, b, pi-mnist, got \"c\"");
  EXPECT_EQ(error([](ReproduceRequest& r) { r.norms = {"layer", "x"}; }),
            "[reproduce] --norms must be of norms that one of the columns' tasks has, got \"x\"");
  EXPECT_THAT(error([](ReproduceRequest& r) { r.preset = "x"; }), HasSubstr("preset must be one"));
  EXPECT_EQ(error([](ReproduceRequest& r) { r.norms = {"layer", "none", "layer"}; }),
            "[reproduce] --norms must name each norm once, got \"layer,none,layer\"");
}

TEST_F(PlanTest, EstimatesFromRunsOfTheNormThenOfTheColumnThenFromTheTable) {
  ReproducePlan plan = Plan();
  EXPECT_EQ(plan.queue.estimates.Minutes(0), 6);
  EXPECT_FALSE(plan.queue.estimates.Measured(0));
  Finish(plan.queue.runs[0], 120, "finished");  // a none 1
  Finish(plan.queue.runs[3], 240, "finished");  // a none 2
  Finish(plan.queue.runs[1], 30, "diverged");   // a layer 1: done, but no whole run to measure
  plan = Plan();
  EXPECT_EQ(plan.queue.Done(), 3u);
  EXPECT_TRUE(plan.queue.runs[1].done);
  EXPECT_EQ(plan.queue.estimates.Minutes(plan.queue.runs[0]), 3);
  EXPECT_EQ(plan.queue.estimates.Minutes(plan.queue.runs[1]), 3);
  EXPECT_EQ(plan.queue.estimates.Minutes(plan.queue.runs[2]), 12);
  EXPECT_TRUE(plan.queue.estimates.Measured(0));
  plan.queue.estimates.Add(plan.queue.runs[1], 9);
  EXPECT_EQ(plan.queue.estimates.Minutes(plan.queue.runs[1]), 9);
  EXPECT_EQ(plan.queue.estimates.Minutes(0), 5);
}

TEST_F(PlanTest, AnUnfinishedRunHasLessLeft) {
  const ReproducePlan plan = Plan();
  RunConfig config;
  config.settings = {{"epochs", 4}};
  {
    RunWriter writer(plan.queue.runs[0].plan.folder);
    writer.WriteConfig(config);
    writer.Append({10, 1, 640, 2.0, {{"loss", 1}}});
  }
  const ReproducePlan again = Plan();
  EXPECT_FALSE(again.queue.runs[0].done);
  EXPECT_EQ(again.queue.estimates.Left(again.queue.runs[0]), 4.5);  // 6 minutes, a quarter done
}

TEST_F(PlanTest, ARunWithAnArchivedResultIsDone) {
  const ReproducePlan plan = Plan();
  Finish(plan.queue.runs[0], 120, "finished");
  const std::filesystem::path folder = plan.queue.runs[0].plan.folder;
  const std::filesystem::path archive = folder.parent_path() / "a.runs.tar.gz";
  const RunFiles files = {ReadFile(folder / "config.json"), ReadFile(folder / "metrics.jsonl"),
                          ReadFile(folder / "result.json")};
  AddToArchive(archive, {{folder.filename().string(), files}});
  std::filesystem::remove_all(folder);
  EXPECT_EQ(Plan().queue.Done(), 1u);
  EXPECT_TRUE(Plan().queue.runs[0].done);
  EXPECT_EQ(Plan().queue.estimates.Minutes(plan.queue.runs[0]), 2);
  // A run with another value of a setting, such as one of a former version.
  const size_t size = files.config.find("\"batch_size\": 64");
  ASSERT_NE(size, std::string::npos);
  std::filesystem::remove(archive);
  RunFiles other = files;
  other.config.replace(size, 16, "\"batch_size\": 65");
  AddToArchive(archive, {{folder.filename().string(), other}});
  EXPECT_EQ(Plan().queue.Done(), 0u);
  WriteFile(archive, "");
  EXPECT_EQ(Plan().queue.Done(), 0u);
}

TEST_F(PlanTest, ABrokenRunIsStillToDo) {
  const ReproducePlan plan = Plan();
  Finish(plan.queue.runs[0], 60, "finished");
  WriteFile(plan.queue.runs[0].plan.folder / "result.json", "");
  EXPECT_FALSE(Plan().queue.runs[0].done);
}

TEST_F(PlanTest, OtherPresetsThanThePapersAreOfUnknownLength) {
  ReproduceRequest request;
  request.preset = "small";
  const ReproducePlan plan = Plan(request);
  EXPECT_EQ(plan.queue.estimates.Minutes(0), std::nullopt);
  const QueueSchedule schedule = MakeSchedule(plan.queue, 2, 1);
  EXPECT_EQ(schedule.unknown, 10u);
  EXPECT_EQ(schedule.left, 0u);
  EXPECT_THAT(
      RenderPlan(plan),
      HasSubstr("  all                               10     0                          ?\n"));
}

TEST_F(PlanTest, TheBudgetSelectsFittingRunsInOrder) {
  const ReproducePlan plan = Plan();
  // a: six runs of 6 minutes, b: four of 12, one after another: 36 + 48 minutes.
  const QueueSchedule all = MakeSchedule(plan.queue, 1, std::nullopt);
  EXPECT_EQ(all.runs, 10u);
  EXPECT_NEAR(all.hours, 84 / 60.0, 1e-12);
  // On two: a1 a1 | b1 a2 | a2 b2 | a3 a3 | b b: jobs end at 6 6 18 12 18 30 24 30 36 42.
  EXPECT_NEAR(MakeSchedule(plan.queue, 2, std::nullopt).hours, 42 / 60.0, 1e-12);
  // Half an hour: 6 + 6 + 12 (seed 1), then 6; the 12 of b's seed 2 do not fit into the rest.
  const QueueSchedule some = MakeSchedule(plan.queue, 1, 0.5);
  EXPECT_EQ(some.runs, 4u);
  EXPECT_EQ(some.left, 6u);
  EXPECT_NEAR(some.hours, 30 / 60.0, 1e-12);
}

TEST_F(PlanTest, IsATable) {
  Finish(Plan().queue.runs[0], 120, "finished");
  EXPECT_EQ(RenderPlan(Plan()),
            "A test paper, preset smoke\n"
            "\n"
            "  column  task      norms  seeds  runs  done  minutes a run  hours left\n"
            "  a       pi-mnist      2      3     6     1       2.0 here        0.17\n"
            "  b       pi-mnist      2      2     4     0           12.0        0.80\n"
            "  all                               10     1                       0.97\n");
}

// Names in lab/papers exist in the tasks.
TEST(Papers, NameMetricsAndSettingsOfTheTasks) {
  for (const Paper& paper : Papers()) {
    for (const PaperColumn& column : paper.columns) {
      SCOPED_TRACE(paper.name + " " + column.name);
      const Task* task = nullptr;
      ASSERT_NO_THROW(task = &FindTask(column.task));
      EXPECT_EQ(task->report.compare, "norm");
      const auto metric = std::ranges::find(task->metrics, column.metric, &MetricSpec::name);
      ASSERT_NE(metric, task->metrics.end()) << column.metric;
      EXPECT_EQ(metric->lower_is_better, column.lower_is_better);
      EXPECT_EQ(metric->unit == "%", column.unit.starts_with("%"));
      // A task with several printed metrics has its own headline.
      const std::string& runs = column.runs_of.empty() ? column.name : column.runs_of;
      const bool several = std::ranges::any_of(
          paper.columns, [&](const PaperColumn& other) { return other.runs_of == runs; });
      if (!several) {
        EXPECT_EQ(task->report.headline, column.metric);
      }
      std::vector<std::string> curves = column.Curves();
      curves.insert(curves.end(), {column.train_curve, column.valid_curve});
      for (const std::string& curve : curves) {
        EXPECT_NE(std::ranges::find(task->metrics, curve, &MetricSpec::name), task->metrics.end())
            << curve;
      }
      if (!column.runs_of.empty()) continue;
      ReproduceRequest request;  // the preset, norms and settings
      request.out = "runs";
      request.tasks = {column.name};
      EXPECT_NO_THROW(MakePlan(paper, request, FindTask));
    }
  }
}

}  // namespace
}  // namespace planish::lab
