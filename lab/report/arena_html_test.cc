#include "lab/report/arena_html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "lab/analysis/arena.h"
#include "lab/analysis/test_runs.h"
#include "lab/report/report.h"

namespace planish::lab {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Runs ArenaRuns() {
  Runs runs;
  const auto add = [&](const std::string& norm, int64_t seed, double rate, double error) {
    runs.push_back(FinishedRun(norm, 4, seed, {error}));
    runs.back().config.settings["lr"] = rate;
    runs.back().folder += "-" + std::to_string(rate);
  };
  for (const std::string norm : {"none", "layer"}) {
    const bool is_layer = norm == "layer";
    add(norm, kFirstTuningSeed, 0.1, is_layer ? 0.1 : 0.4);
    add(norm, kFirstTuningSeed, 0.2, is_layer ? 0.2 : 0.3);
    for (int64_t seed = 1; seed <= 3; ++seed) {
      add(norm, seed, is_layer ? 0.1 : 0.2,
          0.01 * static_cast<double>(seed) + (is_layer ? 0.1 : 0.3) +
              (is_layer && seed == 2 ? 0.001 : 0));
    }
  }
  return runs;
}

TEST(ArenaHtmlTest, HasARankingAndTheTuning) {
  const std::string page = RenderReport(ArenaRuns());
  EXPECT_THAT(page, HasSubstr("<h2>Arena: Digits (mnist)</h2>"));
  EXPECT_THAT(page, HasSubstr("Each of 2 norms has 2 learning rates and 1 tuning seed."));
  EXPECT_THAT(page, HasSubstr("<td class=\"number\">1</td><th scope=\"row\">layer</th>"));
  EXPECT_THAT(page, HasSubstr("<td class=\"number\">2</td><th scope=\"row\">none</th>"));
  EXPECT_THAT(page, HasSubstr("best mean"));
  EXPECT_THAT(page, HasSubstr("<span class=\"badge worse\">worse</span>"));
  EXPECT_THAT(page, HasSubstr("Tuning: validation error (%) by learning rate"));
  EXPECT_THAT(page, HasSubstr("Each has its own learning rate, which tuning chose."));
  EXPECT_THAT(page, Not(HasSubstr("No run has norm none and otherwise the same settings.")));
  // The tuning seeds are not in the task's own section.
  EXPECT_THAT(page, Not(HasSubstr("1000001")));
}

TEST(ArenaHtmlTest, HasIntervalsOverSeedsAndItems) {
  Runs runs = ArenaRuns();
  for (lab::Run& run : runs) {
    if (IsTuningRun(run)) continue;
    // Wrong for the first of 1,000 images.
    std::vector<int64_t> labels(1000), answers(1000);
    const auto wrong = std::lround(1000 * run.result->best->values.at("test_error"));
    std::fill_n(answers.begin(), wrong, 1);
    run.predictions =
        std::make_shared<Predictions>(PredictionsOf({"label", "prediction"}, {labels, answers}));
  }
  const ArenaTask arena = FindArenas(runs).front();
  EXPECT_FALSE(TwoWayBehind(arena, arena.entries[0]).interval);
  const std::optional<TwoWayInterval> interval = TwoWayBehind(arena, arena.entries[1]).interval;
  ASSERT_TRUE(interval);
  // 200 or 199 of 1,000 items differ: the standard deviation of their share is 0.0126.
  EXPECT_NEAR(interval->low, arena.entries[1].behind.mean - 1.96 * 0.0126, 0.003);
  EXPECT_NEAR(interval->high, arena.entries[1].behind.mean + 1.96 * 0.0126, 0.003);
  const std::string page = RenderReport(runs);
  EXPECT_THAT(page, HasSubstr("<th scope=\"col\" class=\"number\">over seeds and test items</th>"));
  EXPECT_THAT(page, HasSubstr("the ranking does not go by it."));
  for (lab::Run& run : runs) run.predictions = nullptr;
  const std::string without = RenderReport(runs);
  EXPECT_THAT(without, Not(HasSubstr("the ranking does not go by it.")));
  EXPECT_THAT(without, HasSubstr("<li>6 runs without predictions for the test items: intervals"));
}

TEST(ArenaHtmlTest, SaysWhatIsMissing) {
  Runs runs = ArenaRuns();
  std::erase_if(runs, [](const lab::Run& run) { return !IsTuningRun(run); });
  runs.pop_back();
  const std::string page = RenderReport(runs);
  EXPECT_THAT(page, HasSubstr("tuning: 1 of 2 runs"));
  EXPECT_THAT(page, HasSubstr("0 finished"));
  EXPECT_EQ(Findings(runs), "Arena: Digits (mnist): no values yet\n");
  for (lab::Run& run : runs) run = Diverged(run);
  EXPECT_THAT(RenderReport(runs), HasSubstr("diverged at every rate"));
}

TEST(ArenaHtmlTest, IsBriefInATerminal) {
  EXPECT_THAT(
      Findings(ArenaRuns()),
      testing::StartsWith("Arena: Digits (mnist): test error (%) 12.03 ± 2.49 is best, with "
                          "layer\n"));
}

TEST(ArenaHtmlTest, EscapesLabels) {
  Runs runs = ArenaRuns();
  for (lab::Run& run : runs)
    run.config.settings["norm"] = "<b>" + run.config.settings["norm"].get<std::string>();
  EXPECT_THAT(RenderReport(runs), Not(HasSubstr("<b>")));
}

}  // namespace
}  // namespace planish::lab
