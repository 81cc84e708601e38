#include "lab/report/gradients.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/analysis/test_runs.h"
#include "lab/report/report.h"

namespace planish::lab {
namespace {

using testing::HasSubstr;
using testing::Not;

NormGradients Norm(const std::string& name, double mean_ratio, double variance_ratio) {
  NormGradients norm;
  norm.norm = name;
  norm.rows = 10;
  norm.sigma = 2;
  norm.mean_before = 0.4;
  norm.variance_before = 16;
  norm.mean_detached = 0.2;
  norm.variance_detached = 4;
  norm.mean_after = mean_ratio * norm.mean_detached;
  norm.variance_after = variance_ratio * norm.variance_detached;
  return norm;
}

// Returns a run with two norms. The ratios of the second are those of the first plus 0.2.
Run WithGradients(const std::string& norm, int64_t seed, double mean, double variance) {
  Run run = FinishedRun(norm, 4, seed, {.3, .2, .1});
  run.evaluations[0].gradients = {Norm("first", 9, 9)};  // an older evaluation
  run.evaluations[1].gradients = {Norm("first", mean, variance),
                                  Norm("second", mean, variance + .2)};
  return run;
}

TEST(Gradients, AreMeansOverSeedsOfTheLastEvaluationThatHasThem) {
  const Runs runs = {WithGradients("layer", 1, 0, .5), WithGradients("layer", 2, 0, .7)};
  const std::vector<LayerGradients> layers = GradientsOf(Summarize(runs)[0].panels[0].groups[0]);
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(layers[0].layer, "first");
  EXPECT_EQ(layers[0].mean_ratio.mean, 0);
  EXPECT_NEAR(layers[0].variance_ratio.mean, .6, 1e-12);
  EXPECT_EQ(layers[0].variance_ratio.count, 2);
  EXPECT_NEAR(layers[0].variance.mean, 2.4, 1e-12);
  EXPECT_NEAR(layers[1].variance_ratio.mean, .8, 1e-12);
}

TEST(Gradients, ANormWithoutAGradientHasNoRatio) {
  Runs runs = {WithGradients("layer", 1, 0, .5)};
  runs[0].evaluations[1].gradients[0].variance_detached = 0;
  runs[0].evaluations[1].gradients[0].mean_detached = 0;
  const std::vector<LayerGradients> layers = GradientsOf(Summarize(runs)[0].panels[0].groups[0]);
  ASSERT_EQ(layers.size(), 1u);
  EXPECT_EQ(layers[0].layer, "second");
}

TEST(Gradients, TheTheoremKnowsTheNorms) {
  EXPECT_EQ(TheoremOf("detach").mean, "1");
  EXPECT_EQ(TheoremOf("detach-mean").variance, "at most 1");
  EXPECT_EQ(TheoremOf("detach-std").mean, "0");
  EXPECT_EQ(TheoremOf("detach-std").variance, "1");
  EXPECT_EQ(TheoremOf("ada").variance, "at most 1");
  EXPECT_EQ(TheoremOf("rms").mean, "–");
}

TEST(Gradients, HaveATableAndCharts) {
  const Runs runs = {WithGradients("layer", 1, 0, .5), WithGradients("layer", 2, 0, .7),
                     WithGradients("detach", 1, 1, 1), FinishedRun("none", 4, 1, {.3, .2, .1})};
  const std::string page = RenderReport(runs);
  EXPECT_THAT(page, HasSubstr("Gradients at the norms"));
  EXPECT_THAT(page, HasSubstr("0.600 to 0.800"));
  EXPECT_THAT(page, HasSubstr("norms from input to output"));
  EXPECT_THAT(page, HasSubstr("layer: 0.600 at first, 0.800 at second."));
}

TEST(Gradients, AreNotSpokenOfWithoutAny) {
  EXPECT_THAT(RenderReport({FinishedRun("layer", 4, 1, {.1})}), Not(HasSubstr("Gradients")));
}

}  // namespace
}  // namespace planish::lab
