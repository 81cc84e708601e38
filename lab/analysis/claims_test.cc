#include "lab/analysis/claims.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/analysis/findings.h"
#include "lab/analysis/test_runs.h"

namespace planish::lab {
namespace {

using testing::SizeIs;

// Returns the claim that layer norm has a lower test error than batch norm, read at `measure`.
ClaimSpec LayerIsBetter(const std::string& measure = "final") {
  ClaimSpec claim = LowerErrorClaim("layer", "batch");
  claim.measure = measure;
  return claim;
}

ClaimResult Judge(const Section& section, const ClaimSpec& claim) {
  return JudgeClaims(section, {claim}).front();
}

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
  const Runs runs = ThreeNorms();
  const std::vector<Section> sections = Summarize(runs);
  ClaimSpec claim = LowerErrorClaim(param.better, param.worse);
  claim.where["batch_size"] = param.batch_size;
  claim.data = param.data;
  const std::vector<ClaimResult> results = JudgeClaims(sections[0], {claim});
  ASSERT_THAT(results, SizeIs(1));
  EXPECT_EQ(VerdictText(results[0].verdict), VerdictText(param.verdict));
}

INSTANTIATE_TEST_SUITE_P(
    Rule, VerdictTest,
    testing::Values(
        VerdictCase{"SureAndSameSign", "layer", "batch", "mnist", 4, Verdict::kAgrees},
        VerdictCase{"SureAndOtherSign", "batch", "layer", "mnist", 4, Verdict::kDiffers},
        VerdictCase{"IncludesZero", "layer", "none", "mnist", 4, Verdict::kOpen},
        VerdictCase{"OtherDataSameSign", "layer", "batch", "cifar", 4, Verdict::kAgreesOnOtherData},
        VerdictCase{"OtherDataOtherSign", "batch", "layer", "cifar", 4,
                    Verdict::kDiffersOnOtherData},
        VerdictCase{"OtherConditions", "layer", "batch", "mnist", 128, Verdict::kNotMeasured},
        VerdictCase{"NoSuchGroup", "layer", "weight", "mnist", 4, Verdict::kNotMeasured}),
    [](const auto& param_info) { return std::string(param_info.param.name); });

TEST(Claims, OneSeedCannotTell) {
  const Runs runs = {FinishedRun("layer", 4, 1, {.01}), FinishedRun("batch", 4, 1, {.9})};
  const std::vector<Section> sections = Summarize(runs);
  EXPECT_EQ(Judge(sections[0], LayerIsBetter()).verdict, Verdict::kOpen);
}

TEST(Claims, AClaimOnStepsToBestCountsFewerAsBetter) {
  Runs runs;
  for (const int64_t seed : {1, 2, 3}) {
    runs.push_back(FinishedRun("layer", 4, seed, {.1, .2, .2}));
    std::vector<double> late(20, .3);
    late[seed == 3 ? 17 : 18] = .1;
    runs.push_back(FinishedRun("batch", 4, seed, late));
  }
  ClaimSpec claim = LayerIsBetter("steps to best");
  claim.metric = "accuracy";  // its direction must not matter
  const std::vector<Section> sections = Summarize(runs);
  const ClaimResult result = Judge(sections[0], claim);
  EXPECT_EQ(result.verdict, Verdict::kAgrees);
  // -1800, -1800 and -1700
  EXPECT_DOUBLE_EQ(result.contrast.comparison.difference.mean, -5300 / 3.0);
}

TEST(Claims, BestEvaluationsOnACoarseGridCannotTell) {
  Runs runs;
  for (const int64_t seed : {1, 2, 3}) {
    runs.push_back(FinishedRun("layer", 4, seed, {.1, .2, .2}));
    runs.push_back(FinishedRun("batch", 4, seed, {.3, .2, .1}));
  }
  const std::vector<Section> sections = Summarize(runs);
  const ClaimResult result = Judge(sections[0], LayerIsBetter("steps to best"));
  EXPECT_EQ(result.contrast.comparison.difference.mean, -200);
  EXPECT_EQ(result.verdict, Verdict::kOpen);
}

TEST(Claims, SmokeRunsAndRunsOnFewCasesGetNoVerdict) {
  for (const bool smoke : {true, false}) {
    Runs runs = ThreeNorms();
    for (auto& run : runs) {
      if (smoke) {
        run.config.preset = "smoke";
      } else {
        run.config.data.sizes["train"] = 512;
      }
    }
    const std::vector<Section> sections = Summarize(runs);
    const ClaimResult result = Judge(sections[0], LayerIsBetter());
    EXPECT_EQ(result.verdict, Verdict::kNoVerdict);
    EXPECT_EQ(result.evidence, smoke ? Evidence::kSmoke : Evidence::kFewCases);
    EXPECT_GT(result.contrast.comparison.better, 0);  // the values exist even without a verdict
  }
}

TEST(Claims, TheNameOfTheDataHasNoPartInAVerdict) {
  Runs runs = ThreeNorms();
  for (auto& run : runs) run.config.data.sha256 = "another";
  EXPECT_EQ(Judge(Summarize(runs)[0], LayerIsBetter()).verdict, Verdict::kAgreesOnOtherData);
}

// layer reaches 0.2 at steps 100, 200 and 100.
Runs StepsToRuns(const std::vector<std::vector<double>>& batch) {
  Runs runs;
  const std::vector<std::vector<double>> layer = {{.2, .1, .1}, {.3, .2, .1}, {.2, .2, .2}};
  for (size_t i = 0; i < layer.size(); ++i) {
    runs.push_back(FinishedRun("layer", 4, static_cast<int64_t>(i), layer[i]));
    runs.push_back(FinishedRun("batch", 4, static_cast<int64_t>(i), batch[i]));
  }
  return runs;
}

TEST(Claims, AClaimOnStepsToATargetComparesThem) {
  std::vector<double> late(10, .3);
  late.back() = .2;
  const Runs runs = StepsToRuns(std::vector<std::vector<double>>(3, late));
  const std::vector<Section> sections = Summarize(runs);
  const ClaimResult result = Judge(sections[0], LayerIsBetter("steps to 0.2"));
  EXPECT_EQ(result.metric.label, "steps to test error 20%");
  // Differences -900, -800 and -900, each up to 100 less or more. The widest interval is that of
  // -1000, -700 and -1000, about -900 +- 430.2.
  EXPECT_NEAR(result.contrast.comparison.difference.mean, -2600 / 3.0, 1e-10);
  EXPECT_NEAR(result.contrast.comparison.difference.low(), -900 - 4.302652729749 * 100, 1e-6);
  EXPECT_EQ(result.contrast.comparison.bounded, 0);
  EXPECT_EQ(result.verdict, Verdict::kAgrees);
}

TEST(Claims, ASideThatNeverReachesTheTargetCountsAtItsLastStep) {
  const std::vector<std::vector<double>> never(3, std::vector<double>(10, .9));
  const Runs runs = StepsToRuns(never);
  const std::vector<Section> sections = Summarize(runs);
  const ClaimResult result = Judge(sections[0], LayerIsBetter("steps to 0.2"));
  EXPECT_EQ(result.contrast.comparison.a.count, 3);
  EXPECT_EQ(result.contrast.comparison.b.count, 0);
  EXPECT_EQ(result.contrast.comparison.bounded, 3);
  EXPECT_NEAR(result.contrast.comparison.difference.mean, -2600 / 3.0, 1e-10);
  EXPECT_EQ(result.verdict, Verdict::kAgrees);

  ClaimSpec opposite = LowerErrorClaim("batch", "layer");
  opposite.measure = "steps to 0.2";
  EXPECT_EQ(Judge(sections[0], opposite).verdict, Verdict::kDiffers);
}

// With evaluations every 100 steps, crossings at 100 to 300 steps overlap.
TEST(Claims, ACoarseGridDecidesNothing) {
  const Runs runs = StepsToRuns({{.3, .3, .2}, {.3, .3, .2}, {.3, .3, .2}});
  EXPECT_EQ(Judge(Summarize(runs)[0], LayerIsBetter("steps to 0.2")).verdict, Verdict::kOpen);
}

TEST(Claims, AClaimOfNoWorseNeedsAMargin) {
  Runs runs;
  for (int64_t seed = 0; seed < 4; ++seed) {
    const double noise = seed % 2 == 0 ? 0.0005 : -0.0005;
    runs.push_back(FinishedRun("layer", 4, seed, {0.100 + noise}));
    runs.push_back(FinishedRun("batch", 4, seed, {0.099 - noise}));
  }
  const std::vector<Section> sections = Summarize(runs);
  // layer has 0.1 points more; 90% interval +- 0.136 points.
  ClaimSpec claim = LayerIsBetter("best");
  EXPECT_EQ(Judge(sections[0], claim).verdict, Verdict::kOpen);
  claim.no_worse = true;
  EXPECT_EQ(Judge(sections[0], claim).verdict, Verdict::kOpen);
  claim.margin = 0.2;
  EXPECT_EQ(Judge(sections[0], claim).verdict, Verdict::kOpen);
  claim.margin = 0.3;
  const ClaimResult result = Judge(sections[0], claim);
  EXPECT_EQ(result.verdict, Verdict::kAgrees);
  EXPECT_EQ(result.contrast.margin, 0.3);
  EXPECT_LT(PValueOf(result.metric, result.contrast).value(), 0.05);
  ClaimSpec opposite = LowerErrorClaim("layer", "batch");
  opposite.no_worse = true;
  opposite.margin = 1e-6;
  EXPECT_EQ(Judge(sections[0], opposite).verdict, Verdict::kOpen);
}

TEST(Claims, MarksPairsFromTwoProcessors) {
  Runs runs = ThreeNorms();
  for (auto& run : runs) run.config.stamps["cpu"] = "one";
  EXPECT_FALSE(Judge(Summarize(runs)[0], LayerIsBetter()).contrast.mixes_processors);
  for (auto& run : runs) {
    if (run.config.settings["norm"] == "batch" && run.config.seed == 1) {
      run.config.stamps["cpu"] = "another";
    }
  }
  EXPECT_TRUE(Judge(Summarize(runs)[0], LayerIsBetter()).contrast.mixes_processors);
}

TEST(Claims, ASideThatStoppedEarlierBoundsNothing) {
  const Runs runs = StepsToRuns({{.9}, {.9}, {.9}});
  const std::vector<Section> sections = Summarize(runs);
  const ClaimResult result = Judge(sections[0], LayerIsBetter("steps to 0.2"));
  // Seed 1 of layer needs 200 steps, but batch ran only 100.
  EXPECT_EQ(result.contrast.comparison.difference.count, 2);
}

TEST(Claims, ATargetThatNobodyReachesCannotTell) {
  const Runs runs = StepsToRuns(std::vector<std::vector<double>>(3, {.9}));
  const std::vector<Section> sections = Summarize(runs);
  EXPECT_EQ(Judge(sections[0], LayerIsBetter("steps to 1e-3")).verdict, Verdict::kOpen);
  EXPECT_EQ(Judge(sections[0], LayerIsBetter("steps to 0.1x")).verdict, Verdict::kNotMeasured);
}

TEST(Claims, AClaimOnTheWayToTheOthersBestComparesStepsOrSeconds) {
  for (const bool steps : {true, false}) {
    const Runs runs = CatchUpRuns();
    ClaimSpec claim = LayerIsBetter(steps ? "steps to worse's best" : "seconds to worse's best");
    claim.metric = "valid_error";
    const std::vector<Section> sections = Summarize(runs);
    const ClaimResult result = Judge(sections[0], claim);
    // In seed 3 layer counts with all of its 300 steps, the number that batch took.
    EXPECT_EQ(result.contrast.comparison.bounded, 1);
    EXPECT_EQ(result.contrast.comparison.a.count, 2);
    EXPECT_EQ(result.contrast.comparison.b.count, 3);
    EXPECT_NEAR(result.contrast.comparison.difference.mean, (steps ? -100 : -2) / 3.0, 1e-12);
    EXPECT_EQ(result.verdict, Verdict::kOpen);
    EXPECT_EQ(result.metric.label,
              std::string(steps ? "steps" : "seconds") + " to the other's best validation error");
  }
}

TEST(Claims, AClaimWithAnUnknownMeasureIsNotMeasured) {
  const Runs runs = ThreeNorms();
  const std::vector<Section> sections = Summarize(runs);
  EXPECT_EQ(Judge(sections[0], LayerIsBetter("median")).verdict, Verdict::kNotMeasured);
}

// Norms that are compared when every run of one diverged.
TEST(Claims, AreDecidedByANormThatAlwaysDiverged) {
  Runs runs = ThreeNorms();
  for (auto& run : runs) {
    if (run.config.settings["norm"] == "batch") run = Diverged(run);
  }
  const std::vector<Section> sections = Summarize(runs);
  const ClaimResult result = Judge(sections[0], LayerIsBetter());
  EXPECT_TRUE(result.contrast.by_divergence);
  EXPECT_EQ(result.verdict, Verdict::kAgrees);
  EXPECT_EQ(MeasuredText(sections[0], result),
            "Final test error: norm layer 5.10% (mean of 3 seeds), norm batch diverged in 3 seeds. "
            "Every run of one norm diverged.");
}

TEST(Claims, DoNotHoldForSurvivors) {
  Runs runs = ThreeNorms();
  runs.push_back(Diverged(FinishedRun("layer", 4, 3, {.5})));
  const std::vector<Section> sections = Summarize(runs);
  const ClaimResult result = Judge(sections[0], LayerIsBetter());
  EXPECT_EQ(result.contrast.comparison.better, 1);
  EXPECT_EQ(result.verdict, Verdict::kOpen);
  EXPECT_TRUE(
      MeasuredText(sections[0], result).ends_with("); more runs of the better norm diverged."));
}

}  // namespace
}  // namespace planish::lab
