#include "lab/analysis/reproduction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "lab/analysis/test_runs.h"
#include "lab/report/paper_html.h"
#include "lab/report/power_table.h"
#include "lab/report/report.h"

namespace planish::lab {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const Paper& Xu() { return FindPaper("xu2019"); }

// Runs of a column: norm -> values of seeds 1, 2, ...
using Column = std::map<std::string, std::vector<double>>;

void Add(Runs& runs, const std::string& column, const std::string& data, const Column& values) {
  for (const auto& [norm, seeds] : values) {
    for (size_t i = 0; i < seeds.size(); ++i) {
      runs.push_back(ColumnRun(column, norm, static_cast<int64_t>(i) + 1, seeds[i], data));
    }
  }
}

// Runs with their sections and reproductions, which point into it.
struct Measurement {
  explicit Measurement(Runs given) : runs(std::move(given)), sections(Summarize(runs)) {
    reproductions = FindReproductions(sections);
  }
  const Reproduction& xu() const { return reproductions.at(0); }
  LineResult Line(const std::string& column, const std::string& norm, const std::string& against) {
    return Judge(xu(), xu().At(column), {norm, against});
  }
  PaperClaimResult Claim(const std::string& start) {
    for (PaperClaimResult& result : JudgeClaims(xu())) {
      if (result.claim->text.starts_with(start)) return result;
    }
    ADD_FAILURE() << "no claim starts with " << start;
    return {};
  }

  Runs runs;
  std::vector<Section> sections;
  std::vector<Reproduction> reproductions;
};

Measurement MeasureColumn(const std::string& column, const std::string& data,
                          const Column& values) {
  Runs runs;
  Add(runs, column, data, values);
  return Measurement(std::move(runs));
}

// Layer norm 2 points above none, surely: differences .02, .021, .019.
const Column kLayerBetter = {{"none", {.70, .71, .72}}, {"layer", {.72, .731, .739}}};

TEST(PrintedSign, IsThatOfTheTable) {
  const auto sign = [](const char* column, const Contrast& contrast) {
    return PrintedSign(Xu(), *Xu().FindColumn(column), contrast);
  };
  const Contrast layer_over_none = {{"layer", 1}, {"none", -1}};
  EXPECT_EQ(sign("rt", layer_over_none), 1);       // 77.21, 76.85
  EXPECT_EQ(sign("mnist", layer_over_none), -1);   // 99.13, 99.14
  EXPECT_EQ(sign("enwik8", layer_over_none), -1);  // 1.07, 1.04, lower is better
  EXPECT_EQ(sign("en-de", layer_over_none), 1);    // 28.3, diverged
  EXPECT_EQ(sign("en-de", {{"none", 1}, {"layer", -1}}), -1);
  EXPECT_EQ(sign("en-de", {{"detach", 1}, {"none", -1}}), 0);         // both diverged
  EXPECT_EQ(sign("de-en", {{"layer-simple", 1}, {"layer", -1}}), 0);  // 35.5, 35.5
  EXPECT_EQ(sign("rt", {{"rms", 1}, {"layer", -1}}), 0);              // no such row
  // 40.54 - 2 * 40.04 + 38.55 = -.99; a sum with diverged values has no sign.
  const Contrast three = {{"layer-simple", 1}, {"detach", -2}, {"none", 1}};
  EXPECT_EQ(sign("sst5", three), -1);
  EXPECT_EQ(sign("en-de", three), 0);
}

// The claims' counts are the paper's own: its printed values must support them.
TEST(PrintedSign, BearsOutEveryClaimOnResults) {
  for (const PaperClaim& claim : Xu().claims) {
    if (claim.of != PaperClaim::Of::kTest) continue;
    int holds = 0;
    for (const std::string& column : claim.columns) {
      const int sign = PrintedSign(Xu(), *Xu().FindColumn(column), claim.contrast);
      holds += sign > 0 || (claim.no_worse && sign == 0);
    }
    EXPECT_EQ(holds, claim.min_columns) << claim.text;
  }
}

TEST(Reproduction, FindsColumnsByTaskAndSettings) {
  Runs runs;
  Add(runs, "en-de", "multi30k", {{"layer", {30}}});
  Add(runs, "de-en", "multi30k", {{"layer", {31}}});
  const Measurement m(std::move(runs));
  ASSERT_EQ(m.reproductions.size(), 1u);
  EXPECT_EQ(m.xu().At("en-de").panel->settings["direction"], "en-de");
  EXPECT_EQ(m.xu().At("de-en").panel->settings["direction"], "de-en");
  EXPECT_EQ(m.xu().At("en-vi").panel, nullptr);
  EXPECT_FALSE(m.xu().At("en-de").own_data);
}

TEST(Reproduction, IgnoresOtherTasks) {
  EXPECT_THAT(FindReproductions(Summarize({FinishedRun("layer", 4, 1, {.1})})), IsEmpty());
}

TEST(Reproduction, ChoosesThePanelWithMostRuns) {
  Runs runs;
  Add(runs, "rt", "rt", {{"layer", {.7, .7}}, {"none", {.7}}});
  for (int64_t seed : {1, 2}) {
    lab::Run run = ColumnRun("rt", "layer", seed, .9, "rt");
    run.config.preset = "paper";
    runs.push_back(run);
  }
  const Measurement m(std::move(runs));
  EXPECT_EQ(m.xu().At("rt").panel->settings["preset"], "small");
  EXPECT_EQ(m.xu().At("rt").other_panels, 1);
}

TEST(LineVerdict, FollowsTheRule) {
  Measurement m = MeasureColumn("rt", "rt", kLayerBetter);
  EXPECT_EQ(m.Line("rt", "layer", "none").verdict, Verdict::kAgrees);
  EXPECT_EQ(m.Line("rt", "none", "layer").verdict, Verdict::kAgrees);
  EXPECT_EQ(m.Line("rt", "ada", "layer").verdict, Verdict::kNotMeasured);
  EXPECT_NEAR(m.Line("rt", "layer", "none").difference.value().mean, .02, 1e-12);
  // MNIST prints LayerNorm below no norm.
  EXPECT_EQ(MeasureColumn("mnist", "mnist", kLayerBetter).Line("mnist", "layer", "none").verdict,
            Verdict::kDiffers);
  EXPECT_EQ(MeasureColumn("rt", "rt", {{"none", {.70, .71, .72}}, {"layer", {.71, .70, .72}}})
                .Line("rt", "layer", "none")
                .verdict,
            Verdict::kOpen);
}

TEST(LineVerdict, LowerIsBetterOnEnwik8) {
  // layer is surely higher, hence worse, as printed.
  EXPECT_EQ(MeasureColumn("enwik8", "enwik8", kLayerBetter).Line("enwik8", "layer", "none").verdict,
            Verdict::kAgrees);
}

TEST(LineVerdict, ASubstituteAgreesOrDiffersOnOtherData) {
  // MNIST prints LayerNorm below no norm.
  EXPECT_EQ(MeasureColumn("mnist", "drawn", kLayerBetter).Line("mnist", "layer", "none").verdict,
            Verdict::kDiffersOnOtherData);
  EXPECT_EQ(MeasureColumn("rt", "drawn", {{"none", {.70, .71, .72}}, {"layer", {.71, .70, .72}}})
                .Line("rt", "layer", "none")
                .verdict,
            Verdict::kOpen);
  Measurement m = MeasureColumn("rt", "drawn", kLayerBetter);
  const LineResult result = m.Line("rt", "layer", "none");
  EXPECT_EQ(result.verdict, Verdict::kAgreesOnOtherData);
  EXPECT_EQ(result.difference.sign, 1);
}

TEST(LineVerdict, SmokeRunsGetNone) {
  Runs runs;
  Add(runs, "rt", "rt", kLayerBetter);
  for (lab::Run& run : runs) run.config.preset = "smoke";
  Measurement m(runs);
  EXPECT_EQ(m.Line("rt", "layer", "none").verdict, Verdict::kNoVerdict);
  EXPECT_EQ(m.Claim("LayerNorm is better").verdict, Verdict::kNoVerdict);
  EXPECT_THAT(m.Claim("LayerNorm is better").Columns(1, true), IsEmpty());
  const std::string page = RenderReport(runs);
  EXPECT_THAT(page, Not(HasSubstr("badge agrees")));
  EXPECT_THAT(page, Not(HasSubstr("badge differs")));
  EXPECT_THAT(page, Not(HasSubstr("badge better")));
  EXPECT_THAT(page, HasSubstr("smoke run: no verdict"));
  EXPECT_THAT(Findings(runs),
              HasSubstr("no verdict            LayerNorm is better than no normalization"));
  EXPECT_THAT(RenderTable(runs),
              HasSubstr("Smoke runs only check that the task runs: no verdict."));
  // Other runs of the column are preferred, even if there are fewer.
  Add(runs, "rt", "rt", {{"layer", {.7}}});
  EXPECT_EQ(Measurement(runs).xu().At("rt").panel->settings["preset"], "small");
}

TEST(LineVerdict, AnIntervalWithoutWidthCannotTell) {
  const LineResult result =
      MeasureColumn("rt", "rt", {{"none", {.70, .71, .72}}, {"layer", {.71, .72, .73}}})
          .Line("rt", "layer", "none");
  // Differences of .01 up to rounding.
  EXPECT_EQ(result.verdict, Verdict::kOpen);
  EXPECT_EQ(result.difference.doubt, "the same in every seed, so there is no interval");
}

TEST(LineVerdict, APrintedTieCannotBeAgreedWith) {
  // Enwik8: AdaNorm and LayerNorm both 1.07.
  const LineResult result =
      MeasureColumn("enwik8", "enwik8",
                    {{"ada", {1.70, 1.71, 1.72}}, {"layer", {1.72, 1.731, 1.739}}})
          .Line("enwik8", "ada", "layer");
  EXPECT_EQ(result.verdict, Verdict::kOpen);
  EXPECT_EQ(result.difference.sign, 1);
}

// RT prints DetachNorm 0.45 points below no norm; the sampling error, 1.29 points, is the margin.
TEST(LineVerdict, IsEquivalentWithinTheMargin) {
  // 0, .1 and -.1 points: 0 ± .17 points, scipy: t(.95, 2) * std / sqrt(3).
  const Column close = {{"none", {.700, .710, .720}}, {"detach", {.700, .711, .719}}};
  EXPECT_EQ(MeasureColumn("rt", "rt", close).Line("rt", "detach", "none").verdict,
            Verdict::kEquivalent);
  EXPECT_EQ(MeasureColumn("rt", "drawn", close).Line("rt", "detach", "none").verdict,
            Verdict::kOpen);
  // 0 ± 1.5 points.
  const Column wide = {{"none", {.700, .710, .720}}, {"detach", {.700, .719, .711}}};
  EXPECT_EQ(MeasureColumn("rt", "rt", wide).Line("rt", "detach", "none").verdict, Verdict::kOpen);
  // Equal in every seed: no interval.
  const Column equal = {{"none", {.70, .71, .72}}, {"detach", {.70, .71, .72}}};
  EXPECT_EQ(MeasureColumn("rt", "rt", equal).Line("rt", "detach", "none").verdict, Verdict::kOpen);
}

TEST(LineVerdict, DivergenceIsAResult) {
  Runs runs;
  Add(runs, "rt", "rt", {{"layer", {.7, .71}}});
  for (int64_t seed : {1, 2}) runs.push_back(Diverged(ColumnRun("rt", "none", seed, 0, "rt")));
  Measurement m(runs);
  const LineResult result = m.Line("rt", "layer", "none");
  EXPECT_TRUE(result.difference.by_divergence);
  EXPECT_EQ(result.verdict, Verdict::kAgrees);
  // One diverged run is not enough.
  runs.pop_back();
  EXPECT_EQ(Measurement(runs).Line("rt", "layer", "none").verdict, Verdict::kOpen);
}

TEST(LineVerdict, SurvivorsAreNotSurelyBetter) {
  Runs runs;
  Add(runs, "rt", "rt", kLayerBetter);
  runs.push_back(Diverged(ColumnRun("rt", "layer", 4, 0, "rt")));
  const LineResult result = Measurement(runs).Line("rt", "layer", "none");
  EXPECT_EQ(result.verdict, Verdict::kOpen);
  EXPECT_EQ(result.difference.doubt, "more runs of the better norm diverged");
  // More runs of the worse norm can diverge.
  runs.back() = Diverged(ColumnRun("rt", "none", 4, 0, "rt"));
  EXPECT_EQ(Measurement(runs).Line("rt", "layer", "none").verdict, Verdict::kAgrees);
}

TEST(Contrasts, ArePairedOverTheSeedsThatAllHave) {
  // layer-simple - 2 detach + none of seeds 1 and 2: .1, .3; seed 3 has no detach.
  Measurement m = MeasureColumn(
      "rt", "rt", {{"layer-simple", {.5, .6, .9}}, {"detach", {.3, .2}}, {"none", {.2, .1, .1}}});
  const ContrastResult result =
      MeasureContrast(*m.xu().At("rt").panel, {{"layer-simple", 1}, {"detach", -2}, {"none", 1}},
                      *m.xu().At("rt").metric, {Measure::kBest});
  EXPECT_EQ(result.value().count, 2);
  EXPECT_NEAR(result.value().mean, .2, 1e-12);
}

// Returns runs of columns in which ada is surely better than layer.
Runs AdaBetterIn(const std::vector<std::string>& own, const std::vector<std::string>& substitutes) {
  const Column better = {{"layer", {.70, .71, .72}}, {"ada", {.72, .731, .739}}};
  Runs runs;
  for (const std::string& column : own) Add(runs, column, Xu().FindColumn(column)->data, better);
  for (const std::string& column : substitutes) Add(runs, column, "substitute", better);
  return runs;
}

TEST(PaperClaims, OtherDataWhenOnlySubstitutesDecide) {
  const std::string claim = "AdaNorm is better";
  Measurement three(AdaBetterIn({"rt", "sst5", "mnist"}, {}));
  EXPECT_EQ(three.Claim(claim).verdict, Verdict::kOpen);
  EXPECT_THAT(three.Claim(claim).Columns(1, true), ElementsAre("RT", "SST5", "MNIST"));
  Measurement seven(AdaBetterIn({"rt", "sst5", "mnist"}, {"en-de", "de-en", "en-vi", "ptb"}));
  EXPECT_EQ(seven.Claim(claim).verdict, Verdict::kAgreesOnOtherData);
  EXPECT_THAT(seven.Claim(claim).Columns(1, false), ElementsAre("En-De", "De-En", "En-Vi", "PTB"));
  EXPECT_EQ(seven.Claim(claim).printed, 7);
}

TEST(PaperClaims, DifferWhenTooFewColumnsAreOpen) {
  // Seven of eight: two failures on the paper's own data are too many.
  const Column worse = {{"ada", {.70, .71, .72}}, {"layer", {.72, .731, .739}}};
  Runs runs;
  Add(runs, "rt", "rt", worse);
  EXPECT_EQ(Measurement(runs).Claim("AdaNorm is better").verdict, Verdict::kOpen);
  Add(runs, "mnist", "mnist", worse);
  EXPECT_EQ(Measurement(runs).Claim("AdaNorm is better").verdict, Verdict::kDiffers);
}

TEST(PaperClaims, AgreeWhenEnoughColumnsHold) {
  // Four of eight: layer-simple over layer.
  const Column better = {{"layer", {.70, .71, .72}}, {"layer-simple", {.72, .731, .739}}};
  Runs runs;
  for (const char* column : {"rt", "sst5", "mnist"}) {
    Add(runs, column, Xu().FindColumn(column)->data, better);
  }
  EXPECT_EQ(Measurement(runs).Claim("The bias and gain do not help").verdict, Verdict::kOpen);
  // Lower is better.
  Add(runs, "enwik8", "enwik8", {{"layer-simple", {.70, .71, .72}}, {"layer", {.72, .731, .739}}});
  EXPECT_EQ(Measurement(runs).Claim("The bias and gain do not help").verdict, Verdict::kAgrees);
}

TEST(PaperClaims, OnCurvesReadTheLastEvaluation) {
  Runs runs;
  for (int64_t seed = 1; seed <= 3; ++seed) {
    const double noise = 0.001 * static_cast<double>(seed * seed);
    for (const char* column : {"en-vi", "ptb", "de-en"}) {
      runs.push_back(ColumnRun(column, "layer", seed, 1, "substitute", .2 + noise, .8));
      runs.push_back(ColumnRun(column, "ada", seed, 1, "substitute", .3, .6 + noise));
    }
  }
  Measurement m(runs);
  EXPECT_EQ(m.Claim("LayerNorm ends with a lower training loss than AdaNorm").verdict,
            Verdict::kAgreesOnOtherData);
  EXPECT_THAT(
      m.Claim("LayerNorm ends with a higher validation loss than AdaNorm").Columns(1, false),
      ElementsAre("En-Vi", "PTB", "De-En"));
}

TEST(PaperPage, ShowsTablesClaimsAndFigures) {
  Runs runs;
  Add(runs, "rt", "rt", kLayerBetter);
  Add(runs, "ptb", "ud_ewt", kLayerBetter);
  for (int64_t seed : {1, 2, 3}) runs.push_back(Diverged(ColumnRun("rt", "ada", seed, 0, "rt")));
  const std::string page = RenderReport(runs);
  EXPECT_THAT(page, HasSubstr("id=\"paper-xu2019\""));
  for (const char* text : {"Table 1. ", "Table 2, top. ", "Table 3. ", "Table 4. ", "Figure 3. "}) {
    EXPECT_THAT(page, HasSubstr(text));
  }
  // Columns without runs are named once, and are in no table and no figure.
  EXPECT_THAT(
      page,
      HasSubstr(
          "Columns without runs: En-De; De-En; En-Vi; Enwik8; SST5; MNIST; De-En, every norm."));
  EXPECT_THAT(page, Not(HasSubstr("not run")));
  EXPECT_THAT(page, Not(HasSubstr("no runs")));
  EXPECT_THAT(page, HasSubstr("73.00 ± 2.37"));  // scipy: t(.975, 2) * std / sqrt(3)
  EXPECT_THAT(page, HasSubstr("diverged 3 of 3"));
  EXPECT_THAT(page, HasSubstr("77.21 ± 1.29"));  // printed, with its sampling error
  EXPECT_THAT(page,
              HasSubstr("ud_ewt, 3 seeds</span><span class=\"aside\">other or unknown data<"));
  EXPECT_THAT(page, HasSubstr("other or unknown data: ud_ewt"));
  EXPECT_THAT(page, HasSubstr(">agrees on other data</span>"));
  EXPECT_THAT(page, HasSubstr("Made up in rt."));  // the task's notes
  EXPECT_THAT(page, HasSubstr("PTB: training loss (nats)"));
}

// Table 1 of Ba et al. 2016 needs no runs, only a page with the paper.
TEST(PaperPage, MeasuresInvariances) {
  Runs runs = {FinishedRun("layer", 4, 1, {.1})};
  runs[0].config.task = "draw";
  runs[0].config.settings["glimpses"] = 16;
  const std::string page = RenderReport(runs);
  const size_t begin = page.find("<h4>Table 1. Invariance properties"),
               end = page.find("<h4>", begin + 1);
  ASSERT_LT(begin, end);
  ASSERT_NE(end, page.npos);
  const std::string table = page.substr(begin, end - begin);
  const auto count = [&](const std::string& text) {
    size_t found = 0;
    for (size_t at = table.find(text); at != table.npos; at = table.find(text, at + 1)) ++found;
    return found;
  };
  // Ten of 18 cells are printed and measured as invariant, eight are not.
  EXPECT_EQ(count(">Invariant<span class=\"aside\">below 1e-12</span></td>"), 10u);
  EXPECT_EQ(count(">Invariant</td>"), 10u);
  EXPECT_EQ(count(">No<span class=\"aside\">"), 8u);
  EXPECT_EQ(count(">No</td>"), 8u);
  EXPECT_EQ(count("badge agrees"), 18u);
  EXPECT_EQ(count("badge differs"), 0u);
  EXPECT_THAT(table, HasSubstr(">Single training case re-scaling</th>"));
  EXPECT_THAT(table, HasSubstr("Section 5.1 says that all three are invariant"));
  EXPECT_EQ(RenderReport(runs), page);
  EXPECT_THAT(
      Findings(runs),
      HasSubstr("agrees                Table 1: Invariance properties under the normalization "
                "methods. [18 of 18 cells, computed for this report]\n"));
}

TEST(PaperPage, IsAbsentWithoutThePapersTasks) {
  EXPECT_THAT(RenderReport({FinishedRun("layer", 4, 1, {.1})}), Not(HasSubstr("paper-")));
}

TEST(PaperPage, ComesAfterTheRunsWhereLittleOfThePaperWasRun) {
  const auto paper_first = [](const Runs& runs) {
    const std::string page = RenderReport(runs);
    const size_t paper = page.find("<section id=\"paper-xu2019\""),
                 section = page.find("id=\"s0\"");
    EXPECT_NE(paper, page.npos);
    EXPECT_NE(section, page.npos);
    return paper < section;
  };
  Runs runs;
  for (const char* column : {"rt", "ptb", "en-de"}) Add(runs, column, "substitute", kLayerBetter);
  EXPECT_FALSE(paper_first(runs));
  for (const char* column : {"en-vi", "mnist"}) Add(runs, column, "substitute", kLayerBetter);
  EXPECT_TRUE(paper_first(runs));  // five of nine
}

TEST(PaperPage, NamesClaimsWithoutMeasurements) {
  Runs runs;
  Add(runs, "rt", "rt", {{"none", {.7, .71, .72}}});
  const std::string page = RenderReport(runs);
  const std::string paper = page.substr(page.find("<section id=\"paper-xu2019\""));
  EXPECT_THAT(paper, HasSubstr("Without runs: LayerNorm is better than no "));
  EXPECT_THAT(paper, Not(HasSubstr("badge not-measured")));
}

TEST(PaperPage, TheTerminalHasALineForEachClaimThatWasMeasured) {
  Runs runs;
  Add(runs, "rt", "rt", kLayerBetter);
  EXPECT_THAT(
      Findings(runs),
      HasSubstr("open                  LayerNorm is better than no normalization on six of eight "
                "datasets. [as claimed in 1 (1 on the paper's data)]\n"));
  EXPECT_THAT(Findings(runs), Not(HasSubstr("AdaNorm is better than LayerNorm")));
  EXPECT_THAT(Findings(runs), HasSubstr("without runs          En-De; De-En; En-Vi; Enwik8; SST5; "
                                        "MNIST; PTB; De-En, every norm\n"));
}

// Validation falls linearly over 400 steps and 8 seconds. Without a norm it falls to .6. With layer
// norm it falls to .1 and passes .6 between steps 100 (.775) and 200 (.55). In seed 3 it falls to
// .4 and passes .6 between steps 200 (.7) and 300 (.55).
TEST(Contrasts, OfEffortCountStepsAndSecondsToTheOthersBest) {
  Runs runs;
  for (const int64_t seed : {1, 2, 3, 4}) {
    runs.push_back(ColumnRun("rt", "none", seed, .7, "rt", .5, .6));
    runs.push_back(ColumnRun("rt", "layer", seed, .7, "rt", .5, seed == 3 ? .4 : .1));
  }
  const auto measured = [](const Runs& given, const Contrast& contrast, Effort effort) {
    const Measurement m(given);
    const ColumnRuns& column = m.xu().At("rt");
    return MeasureContrast(*column.panel, contrast, *ChosenBy(*column.section),
                           {Measure::kCatchUp, 0, effort});
  };
  const Contrast layer_none = {{"layer", 1}, {"none", -1}};
  const ContrastResult steps = measured(runs, layer_none, Effort::kSteps);
  EXPECT_TRUE(steps.measured);
  // Four evaluations: each step can be 100 earlier.
  EXPECT_EQ(steps.sign, 0);
  EXPECT_DOUBLE_EQ(steps.value().mean, -175);
  EXPECT_DOUBLE_EQ(measured(runs, layer_none, Effort::kSeconds).value().mean, -3.5);
  const Runs alike(runs.begin(), runs.begin() + 4);  // seeds 1 and 2
  EXPECT_DOUBLE_EQ(measured(alike, layer_none, Effort::kSteps).value().mean, -200);
  EXPECT_EQ(measured(alike, layer_none, Effort::kSteps).sign, 0);
  EXPECT_GT(measured(alike, layer_none, Effort::kSteps).value().half_width.value(), 100);

  // Reversed: none never reaches .1, and counts with all of its steps.
  const ContrastResult never = measured(runs, {{"none", 1}, {"layer", -1}}, Effort::kSteps);
  EXPECT_DOUBLE_EQ(never.value().mean, 0);
  EXPECT_EQ(never.sign, 0);
  EXPECT_EQ(never.doubt, "at least this, because 4 seeds never got there");
  const ContrastResult one =
      measured({runs[0], runs[1]}, {{"none", 1}, {"layer", -1}}, Effort::kSteps);
  EXPECT_EQ(one.doubt, "at least this, because 1 seed never got there; one seed has no interval");

  runs[1] = Diverged(runs[1]);
  const ContrastResult survivors = measured(runs, layer_none, Effort::kSteps);
  EXPECT_EQ(survivors.value().count, 3);
  EXPECT_EQ(survivors.sign, 0);
  EXPECT_EQ(survivors.more_diverged, 1);
  EXPECT_FALSE(measured(runs, {{"ada", 1}, {"none", -1}}, Effort::kSteps).measured);
}

TEST(PaperClaims, NoWorseIsAsSureAsItsLooks) {
  Runs runs;
  Add(runs, "rt", "rt", {{"layer-simple", {.700, .711, .720}}, {"layer", {.701, .710, .7201}}});
  const std::vector<Section> sections = Summarize(runs);
  const Contrast contrast = {{"layer-simple", 1}, {"layer", -1}};
  const auto in_rt = [&](const std::vector<SequentialTests>& looks, size_t claim) {
    const std::vector<Reproduction> found = FindReproductions(sections, looks);
    const std::vector<PaperClaimResult> results = JudgeClaims(found.at(0));
    for (const PaperClaimResult::Column& column : results.at(claim).columns) {
      if (column.runs->column->name == "rt") return column.contrast;
    }
    throw std::out_of_range("rt");
  };
  // Claim 2 is "no worse", claim 3 "outperforms".
  EXPECT_EQ(in_rt({}, 1).sign, 1);
  const SequentialTest undecided{"rt", contrast, 40, {{3, 0.01, 1e-9, 0}}, 0.5};
  EXPECT_EQ(in_rt({{"xu2019", {undecided}}}, 1).sign, 0);
  EXPECT_EQ(in_rt({{"xu2019", {undecided}}}, 1).margin, 0.5);
  EXPECT_THAT(in_rt({{"xu2019", {undecided}}}, 1).doubt,
              HasSubstr("because 3 of 40 planned seeds were looked at"));
  EXPECT_EQ(in_rt({{"xu2019", {undecided}}}, 2).doubt, "") << "it is another test";
  const SequentialTest decided{"rt", contrast, 4, {{3, 0.01, 0.02, 1}}, 0.5};
  EXPECT_EQ(in_rt({{"xu2019", {decided}}}, 1).sign, 1);
  // Looks at the difference do not concern "no worse".
  const SequentialTest difference{"rt", contrast, 40, {{3, 0.9, 1e-9, 0}}};
  EXPECT_EQ(in_rt({{"xu2019", {difference}}}, 1).sign, 1);
  EXPECT_EQ(in_rt({{"xu2019", {difference}}}, 1).doubt, "");
}

TEST(PowerTableTest, SaysWhatIsDecidedAndWhatIsHopeless) {
  Runs runs;
  Add(runs, "rt", "rt", {{"none", {.70, .71, .72}}, {"layer", {.72, .731, .739}}});
  Add(runs, "mnist", "mnist", {{"none", {.95, .99, .91}}, {"layer", {.99, .90, .99}}});
  const Measurement measured(std::move(runs));
  const std::string table = RenderPower(Xu(), measured.runs, {}, {.width = 100});
  EXPECT_THAT(table, testing::ContainsRegex("1  RT +.0\\.36 .*decided"));
  EXPECT_THAT(table, testing::ContainsRegex("1  MNIST +-0\\.01 .*above 100,000 +hopeless"));
  EXPECT_THAT(table, HasSubstr("1  LayerNorm is better than no normalization"));
}

}  // namespace
}  // namespace planish::lab
