#include "lab/reproduce/arena_plan.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "lab/analysis/arena.h"
#include "lab/error.h"
#include "lab/run/writer.h"
#include "lab/tasks/tasks.h"
#include "lab/testing/test_folder.h"

namespace planish::lab {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<ArenaColumn> TestColumns() {
  return {{"pi-mnist", {{{"norm", "none"}}, {{"norm", "layer"}}}, 1, 2, 3},
          {"mnist-cnn", {{{"norm", "weight"}}}, 2, 3, 6}};
}

class ArenaPlanTest : public testing::Test {
 protected:
  ArenaPlan Plan(ReproduceRequest request = {}) {
    request.out = folder_ / "runs";
    if (request.preset.empty()) request.preset = "smoke";
    return MakeArenaPlan(request, FindTask, TestColumns());
  }

  // Creates the folder of a run that ended with a validation error of `value`.
  static void Finish(const QueuedRun& run, double value, const std::string& status = "finished") {
    RunConfig config;
    config.task = "pi-mnist";
    config.settings = run.plan.settings.values();
    config.seed = run.plan.seed;
    RunResult result;
    result.status = status;
    result.seconds = 60;
    if (status == "finished") {
      result.best = RunResult::Best{"valid_error", 10, {{"valid_error", value}}};
    }
    RunWriter writer(run.plan.folder);
    writer.WriteConfig(config);
    writer.Append({10, 4, 640, 60, {{"valid_error", value}}});
    writer.Finish(result);
  }

  // Returns entries like "none 0.001 1".
  static std::vector<std::string> NamesOf(const std::vector<QueuedRun>& runs) {
    std::vector<std::string> names;
    for (const QueuedRun& run : runs) {
      names.push_back(run.variant + " " + Spelled(run.plan.settings.values().at("lr")) + " " +
                      std::to_string(run.plan.seed));
    }
    return names;
  }

  TestFolder folder_;
};

TEST_F(ArenaPlanTest, TunesAndThenComparesTaskByTask) {
  ArenaPlan plan = Plan();
  // Entries * (rates * tuning seeds + seeds).
  EXPECT_EQ(plan.all.runs.size(), 2u * (5 + 2) + (5 * 2 + 3));
  ASSERT_EQ(plan.stage.runs.size(), 10u);
  for (const QueuedRun& run : plan.stage.runs) EXPECT_EQ(run.plan.seed, kFirstTuningSeed);

  // none is best at its lowest rate; layer diverges at its highest rate, and is best at the one
  // before it.
  for (size_t i = 0; i < 10; ++i) {
    const double value =
        i < 5 ? 0.1 + 0.1 * static_cast<double>(i) : 1 - 0.1 * static_cast<double>(i);
    if (i + 1 < 10) Finish(plan.stage.runs[i], value);
  }
  const std::vector<QueuedRun> tuning = plan.stage.runs;
  plan = Plan();
  EXPECT_EQ(plan.stage.runs.size(), 1u) << "the rest of the tuning";
  Finish(plan.stage.runs[0], 0, "diverged");
  plan = Plan();
  const auto rate = [&](size_t i) { return Spelled(tuning[i].plan.settings.values().at("lr")); };
  EXPECT_THAT(NamesOf(plan.stage.runs),
              ElementsAre("none " + rate(0) + " 1", "none " + rate(0) + " 2",
                          "layer " + rate(8) + " 1", "layer " + rate(8) + " 2"));
  for (const QueuedRun& run : plan.stage.runs) Finish(run, 0.5);
  plan = Plan();
  ASSERT_EQ(plan.stage.runs.size(), 10u);
  EXPECT_EQ(plan.stage.runs.front().variant, "weight");
  for (const QueuedRun& run : plan.stage.runs) Finish(run, 0, "diverged");
  plan = Plan();
  EXPECT_TRUE(plan.stage.runs.empty()) << "an entry that diverges at every rate is not compared";
  EXPECT_EQ(plan.all.Done(), plan.all.runs.size());
}

TEST_F(ArenaPlanTest, HasAGridAroundThePresetsRate) {
  const ArenaPlan plan = Plan();
  std::vector<double> rates;
  for (size_t i = 0; i < 5; ++i) rates.push_back(plan.stage.runs[i].plan.settings.Real("lr"));
  const double usual = rates[2];
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(rates[i], usual * kRateFactors[i], 1e-6 * rates[i]) << i;  // six digits
  }
  EXPECT_EQ(
      plan.stage.runs[2].plan.folder.filename(),
      fmt::format("smoke-none-b{}-s1000001", plan.stage.runs[2].plan.settings.Int("batch_size")));
}

TEST_F(ArenaPlanTest, CanBeDivided) {
  ReproduceRequest request;
  request.tasks = {"mnist-cnn", "mnist-cnn"};
  request.seeds = 1;
  ArenaPlan plan = Plan(request);
  EXPECT_THAT(plan.all.groups, ElementsAre("mnist-cnn"));
  EXPECT_EQ(plan.all.runs.size(), 5u * 2 + 1);
  request = {};
  request.norms = {"layer"};
  plan = Plan(request);
  EXPECT_THAT(plan.all.groups, ElementsAre("pi-mnist"));
  EXPECT_EQ(plan.all.runs.size(), 5u + 2);
  EXPECT_THAT(plan.table,
              HasSubstr("  pi-mnist  smoke         1      5             1      2     7     0"));
}

TEST_F(ArenaPlanTest, RefusesUnknownNames) {
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
  EXPECT_EQ(error([](ReproduceRequest& r) { r.tasks = {"rt"}; }),
            "[reproduce] --tasks must be of pi-mnist, mnist-cnn, got \"rt\"");
  EXPECT_EQ(error([](ReproduceRequest& r) { r.norms = {"layer", "x"}; }),
            "[reproduce] --norms must be of norms that one of the tasks has in the arena, got "
            "\"x\"");
  EXPECT_THAT(error([](ReproduceRequest& r) { r.preset = "x"; }), HasSubstr("preset must be one"));
}

// Six hours of two cores.
TEST(ArenaColumns, AreTrainedInSixHours) {
  ReproduceRequest request;
  request.out = "no-such-folder";
  const ArenaPlan plan = MakeArenaPlan(request, FindTask);
  const QueueSchedule schedule = MakeSchedule(plan.all, 2, std::nullopt);
  EXPECT_LE(schedule.hours, 6);
  EXPECT_EQ(schedule.unknown, 0u);
  std::set<std::filesystem::path> folders;
  for (const QueuedRun& run : plan.all.runs) {
    EXPECT_TRUE(folders.insert(run.plan.folder).second) << run.plan.folder;
  }
}

}  // namespace
}  // namespace planish::lab
