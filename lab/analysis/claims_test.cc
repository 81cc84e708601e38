#include "lab/analysis/claims.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/analysis/findings.h"
#include "lab/analysis/test_runs.h"

namespace planish::lab {
namespace {

using testing::SizeIs;

struct VerdictCase {
  const char* name;
  const char* better;
  const char* worse;
  const char* data;
  int batch_size;
  Verdict verdict;
};

void PrintTo(const VerdictCase& param, std::ostream* out) { *out << param.name; }

class VerdictTest : public testing::TestWithParam<VerdictCase> {};

TEST_P(VerdictTest, FollowsTheRule) {
  const VerdictCase& param = GetParam();
  Runs runs = ThreeNorms();
  for (auto& run : runs) {
    ClaimSpec claim = LowerErrorClaim(param.better, param.worse);
    claim.where["batch_size"] = param.batch_size;
    claim.data = param.data;
    run.config.report.claims = {claim};
  }
  const std::vector<Section> sections = Summarize(runs);
  const std::vector<ClaimResult> results = JudgeClaims(sections[0]);
  ASSERT_THAT(results, SizeIs(1));
  EXPECT_EQ(VerdictText(results[0].verdict), VerdictText(param.verdict));
}

INSTANTIATE_TEST_SUITE_P(
    Rule, VerdictTest,
    testing::Values(
        VerdictCase{"SureAndSameSign", "layer", "batch", "mnist", 4, Verdict::kAgrees},
        VerdictCase{"SureAndOtherSign", "batch", "layer", "mnist", 4, Verdict::kDiffers},
        VerdictCase{"IncludesZero", "layer", "none", "mnist", 4, Verdict::kCannotTell},
        VerdictCase{"OtherDataSameSign", "layer", "batch", "cifar", 4, Verdict::kOtherData},
        VerdictCase{"OtherDataOtherSign", "batch", "layer", "cifar", 4, Verdict::kOtherData},
        VerdictCase{"OtherConditions", "layer", "batch", "mnist", 128, Verdict::kNotMeasured},
        VerdictCase{"NoSuchGroup", "layer", "weight", "mnist", 4, Verdict::kNotMeasured}),
    [](const auto& param_info) { return std::string(param_info.param.name); });

TEST(Claims, OneSeedCannotTell) {
  Runs runs = {FinishedRun("layer", 4, 1, {.01}), FinishedRun("batch", 4, 1, {.9})};
  for (auto& run : runs) run.config.report.claims = {LowerErrorClaim("layer", "batch")};
  const std::vector<Section> sections = Summarize(runs);
  EXPECT_EQ(JudgeClaims(sections[0])[0].verdict, Verdict::kCannotTell);
}

TEST(Claims, AClaimOnStepsToBestCountsFewerAsBetter) {
  Runs runs;
  for (const int64_t seed : {1, 2, 3}) {
    runs.push_back(FinishedRun("layer", 4, seed, {.1, .2, .2}));
    runs.push_back(FinishedRun("batch", 4, seed,
                               seed == 3 ? std::vector{.3, .1, .2} : std::vector{.3, .2, .1}));
  }
  for (auto& run : runs) {
    ClaimSpec claim = LowerErrorClaim("layer", "batch");
    claim.metric = "accuracy";  // its direction must not matter
    claim.measure = "steps to best";
    run.config.report.claims = {claim};
  }
  const std::vector<Section> sections = Summarize(runs);
  const ClaimResult result = JudgeClaims(sections[0])[0];
  EXPECT_EQ(result.verdict, Verdict::kAgrees);
  EXPECT_DOUBLE_EQ(result.contrast.comparison.difference.mean, -500 / 3.0);  // -200, -200 and -100
}

TEST(Claims, AnIntervalWithoutWidthCannotTell) {
  Runs runs;
  for (const int64_t seed : {1, 2, 3}) {
    runs.push_back(FinishedRun("layer", 4, seed, {.1, .2, .2}));
    runs.push_back(FinishedRun("batch", 4, seed, {.3, .2, .1}));
  }
  for (auto& run : runs) {
    run.config.report.claims = {LowerErrorClaim("layer", "batch")};
    run.config.report.claims[0].measure = "steps to best";
  }
  const std::vector<Section> sections = Summarize(runs);
  EXPECT_EQ(JudgeClaims(sections[0])[0].contrast.comparison.difference.mean, -200);
  EXPECT_EQ(JudgeClaims(sections[0])[0].verdict, Verdict::kCannotTell);
}

TEST(Claims, SmokeRunsAndRunsOnFewCasesGetNoVerdict) {
  for (const bool smoke : {true, false}) {
    Runs runs = ThreeNorms();
    for (auto& run : runs) {
      run.config.report.claims = {LowerErrorClaim("layer", "batch")};
      if (smoke) {
        run.config.preset = "smoke";
      } else {
        run.config.data.sizes["train"] = 512;
      }
    }
    const std::vector<Section> sections = Summarize(runs);
    const ClaimResult result = JudgeClaims(sections[0])[0];
    EXPECT_EQ(result.verdict, Verdict::kNoVerdict);
    EXPECT_EQ(result.evidence, smoke ? Evidence::kSmoke : Evidence::kFewCases);
    EXPECT_GT(result.contrast.comparison.better, 0);  // the values exist even without a verdict
  }
}

TEST(Claims, TheNameOfTheDataHasNoPartInAVerdict) {
  Runs runs = ThreeNorms();
  for (auto& run : runs) {
    run.config.report.claims = {LowerErrorClaim("layer", "batch")};
    run.config.data.sha256 = "another";
  }
  EXPECT_EQ(JudgeClaims(Summarize(runs)[0])[0].verdict, Verdict::kOtherData);
}

// layer reaches 0.2 at steps 100, 200 and 100.
Runs StepsToRuns(const std::vector<std::vector<double>>& batch, const std::string& better) {
  Runs runs;
  const std::vector<std::vector<double>> layer = {{.2, .1, .1}, {.3, .2, .1}, {.2, .2, .2}};
  for (size_t i = 0; i < layer.size(); ++i) {
    runs.push_back(FinishedRun("layer", 4, static_cast<int64_t>(i), layer[i]));
    runs.push_back(FinishedRun("batch", 4, static_cast<int64_t>(i), batch[i]));
  }
  for (auto& run : runs) {
    ClaimSpec claim = LowerErrorClaim(better, better == "layer" ? "batch" : "layer");
    claim.measure = "steps to 0.2";
    run.config.report.claims = {claim};
  }
  return runs;
}

TEST(Claims, AClaimOnStepsToATargetComparesThem) {
  const Runs runs = StepsToRuns({{.3, .3, .2}, {.3, .3, .2}, {.3, .3, .2}}, "layer");
  const std::vector<Section> sections = Summarize(runs);
  const ClaimResult result = JudgeClaims(sections[0])[0];
  EXPECT_EQ(result.metric.label, "steps to test error 20%");
  // Differences -200, -100 and -200: by scipy.stats.ttest_rel -166.7 and [-310.1, -23.3].
  EXPECT_NEAR(result.contrast.comparison.difference.mean, -500 / 3.0, 1e-10);
  EXPECT_NEAR(result.contrast.comparison.difference.low(), -310.0884, 1e-4);
  EXPECT_EQ(result.contrast.comparison.bounded, 0);
  EXPECT_EQ(result.verdict, Verdict::kAgrees);
}

TEST(Claims, ASideThatNeverReachesTheTargetCountsAtItsLastStep) {
  const std::vector<std::vector<double>> never(3, {.9, .9, .9});
  const Runs runs = StepsToRuns(never, "layer");
  const std::vector<Section> sections = Summarize(runs);
  const ClaimResult result = JudgeClaims(sections[0])[0];
  EXPECT_EQ(result.contrast.comparison.a.count, 3);
  EXPECT_EQ(result.contrast.comparison.b.count, 0);
  EXPECT_EQ(result.contrast.comparison.bounded, 3);
  EXPECT_NEAR(result.contrast.comparison.difference.mean, -500 / 3.0, 1e-10);
  EXPECT_EQ(result.verdict, Verdict::kAgrees);

  const Runs contrary = StepsToRuns(never, "batch");
  const std::vector<Section> contrary_sections = Summarize(contrary);
  EXPECT_EQ(JudgeClaims(contrary_sections[0])[0].verdict, Verdict::kDiffers);
}

TEST(Claims, ASideThatStoppedEarlierBoundsNothing) {
  const Runs runs = StepsToRuns({{.9}, {.9}, {.9}}, "layer");
  const std::vector<Section> sections = Summarize(runs);
  // Seed 1 of layer needs 200 steps, but batch ran only 100.
  EXPECT_EQ(JudgeClaims(sections[0])[0].contrast.comparison.difference.count, 2);
}

TEST(Claims, ATargetThatNobodyReachesCannotTell) {
  Runs runs = StepsToRuns(std::vector<std::vector<double>>(3, {.9}), "layer");
  for (auto& run : runs) run.config.report.claims[0].measure = "steps to 1e-3";
  const std::vector<Section> sections = Summarize(runs);
  EXPECT_EQ(JudgeClaims(sections[0])[0].verdict, Verdict::kCannotTell);
  for (auto& run : runs) run.config.report.claims[0].measure = "steps to 0.1x";
  const std::vector<Section> malformed = Summarize(runs);
  EXPECT_EQ(JudgeClaims(malformed[0])[0].verdict, Verdict::kNotMeasured);
}

TEST(Claims, AClaimOnTheWayToTheOthersBestComparesStepsOrSeconds) {
  for (const bool steps : {true, false}) {
    Runs runs = CatchUpRuns();
    for (auto& run : runs) {
      ClaimSpec claim = LowerErrorClaim("layer", "batch");
      claim.metric = "valid_error";
      claim.measure = steps ? "steps to worse's best" : "seconds to worse's best";
      run.config.report.claims = {claim};
    }
    const std::vector<Section> sections = Summarize(runs);
    const ClaimResult result = JudgeClaims(sections[0])[0];
    // In seed 3 layer counts with all of its 300 steps, the number that batch took.
    EXPECT_EQ(result.contrast.comparison.bounded, 1);
    EXPECT_EQ(result.contrast.comparison.a.count, 2);
    EXPECT_EQ(result.contrast.comparison.b.count, 3);
    EXPECT_NEAR(result.contrast.comparison.difference.mean, (steps ? -100 : -2) / 3.0, 1e-12);
    EXPECT_EQ(result.verdict, Verdict::kCannotTell);
    EXPECT_EQ(result.metric.label,
              std::string(steps ? "steps" : "seconds") + " to the other's best validation error");
  }
}

TEST(Claims, AClaimWithAnUnknownMeasureIsNotMeasured) {
  Runs runs = ThreeNorms();
  for (auto& run : runs) {
    run.config.report.claims = {LowerErrorClaim("layer", "batch")};
    run.config.report.claims[0].measure = "median";
  }
  const std::vector<Section> sections = Summarize(runs);
  EXPECT_EQ(JudgeClaims(sections[0])[0].verdict, Verdict::kNotMeasured);
}

// Norms that are compared when every run of one diverged.
TEST(Claims, AreDecidedByANormThatAlwaysDiverged) {
  Runs runs = ThreeNorms();
  for (auto& run : runs) {
    run.config.report.claims = {LowerErrorClaim("layer", "batch")};
    if (run.config.settings["norm"] == "batch") run = Diverged(run);
  }
  const std::vector<Section> sections = Summarize(runs);
  const ClaimResult result = JudgeClaims(sections[0])[0];
  EXPECT_TRUE(result.contrast.by_divergence);
  EXPECT_EQ(result.verdict, Verdict::kAgrees);
  EXPECT_EQ(MeasuredText(sections[0], result),
            "Final test error: norm layer 5.10% (mean of 3 seeds), norm batch diverged in 3 seeds; "
            "every run of one norm diverged.");
}

TEST(Claims, DoNotHoldForSurvivors) {
  Runs runs = ThreeNorms();
  runs.push_back(Diverged(FinishedRun("layer", 4, 3, {.5})));
  for (auto& run : runs) run.config.report.claims = {LowerErrorClaim("layer", "batch")};
  const std::vector<Section> sections = Summarize(runs);
  const ClaimResult result = JudgeClaims(sections[0])[0];
  EXPECT_EQ(result.contrast.comparison.better, 1);
  EXPECT_EQ(result.verdict, Verdict::kCannotTell);
  EXPECT_TRUE(
      MeasuredText(sections[0], result).ends_with("); more runs of the better norm diverged."));
}

}  // namespace
}  // namespace planish::lab
