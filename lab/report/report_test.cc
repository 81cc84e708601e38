#include "lab/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <pugixml.hpp>

#include "lab/analysis/test_runs.h"
#include "lab/base/base64.h"
#include "lab/error.h"
#include "lab/testing/test_folder.h"

namespace planish::lab {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// At batch size 4 layer's error is 0.9 points below none's: [-1.407, -0.260] by
// scipy.stats.ttest_rel. The mean of batch equals that of none.
Runs Sample() {
  const std::vector<std::pair<std::string, std::vector<double>>> finals = {
      {"none", {.058, .060, .061}}, {"layer", {.051, .053, .050}}, {"batch", {.059, .060, .060}}};
  Runs runs;
  for (const auto& [norm, errors] : finals) {
    for (size_t i = 0; i < errors.size(); ++i) {
      runs.push_back(FinishedRun(norm, 4, static_cast<int64_t>(i) + 1, {.5, .09, errors[i]}));
    }
  }
  return runs;
}

// Returns Sample() as runs of pi-mnist, about which a paper makes claims.
Runs MnistSample() {
  Runs runs = Sample();
  for (auto& run : runs) run.config.task = "pi-mnist";
  return runs;
}

// Returns every <svg> of a page, parsed.
std::vector<pugi::xml_document> Drawings(const std::string& page) {
  std::vector<pugi::xml_document> drawings;
  for (size_t begin = page.find("<svg"); begin != std::string::npos;
       begin = page.find("<svg", begin + 1)) {
    const std::string svg = page.substr(begin, page.find("</svg>", begin) + 6 - begin);
    drawings.emplace_back();
    EXPECT_TRUE(drawings.back().load_string(svg.c_str())) << svg;
  }
  return drawings;
}

TEST(ReportTest, ReportsTheFindings) {
  const std::string page = RenderReport(Sample());
  EXPECT_THAT(page,
              HasSubstr("Norm layer reached 5.13% test error (mean of 3 seeds), "
                        "0.83 points lower than norm none (95% interval 0.26 to 1.41 points)."));
  EXPECT_THAT(
      page,
      HasSubstr("Norm batch reached 5.97% test error (mean of 3 "
                "seeds), no clear difference from norm none: 0 (95% interval from 0.25 points "
                "lower to 0.25 points higher)."));
}

TEST(ReportTest, IsTheSameForTheSameRuns) {
  EXPECT_EQ(RenderReport(Sample()), RenderReport(Sample()));
}

TEST(ReportTest, DoesNotDependOnTheOrderOfRuns) {
  Runs reversed = Sample();
  std::reverse(reversed.begin(), reversed.end());
  EXPECT_EQ(RenderReport(reversed), RenderReport(Sample()));
}

TEST(ReportTest, DrawingsAreWellFormedAndDescribed) {
  int charts = 0;
  for (const pugi::xml_document& drawing : Drawings(RenderReport(Sample()))) {
    const pugi::xml_node svg = drawing.child("svg");
    if (std::string(svg.attribute("aria-hidden").value()) == "true") continue;
    ++charts;
    EXPECT_STREQ(svg.attribute("role").value(), "img");
    EXPECT_STRNE(svg.child("desc").text().get(), "");
  }
  EXPECT_EQ(charts, 5);  // the overview; two metrics, each against steps and seconds
}

TEST(ReportTest, HostileNamesAreEscaped) {
  Runs runs = Sample();
  const std::string hostile = "<script>alert('x')</script>\"&é层\x1b[31m\xFF";
  for (auto& run : runs) {
    run.folder = hostile;
    run.config.task = hostile;
    run.config.preset = hostile;
    run.config.settings["note"] = hostile;
    run.config.data.name = run.config.data.description = run.config.data.source = hostile;
    run.config.data.sizes[hostile] = 1;
    run.config.stamps[hostile] = hostile;
    run.config.report.title = run.config.report.source = hostile;
    run.config.metrics[2].label = run.config.metrics[2].unit = hostile;
    if (run.config.settings["norm"] == "batch") {
      run.config.settings["norm"] = hostile;
      run.result->status = "diverged";
      run.result->message = hostile;
    }
  }
  const std::string page = RenderReport(runs);
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(page, Not(HasSubstr("\x1b")));
  EXPECT_THAT(page, Not(HasSubstr("\xFF")));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot;&amp;é层"));
  Drawings(page);
  EXPECT_THAT(RenderTable(runs), Not(HasSubstr("\x1b")));
  EXPECT_THAT(Findings(runs), Not(HasSubstr("\x1b")));
}

TEST(ReportTest, ShowsTextsOfTheModels) {
  Runs runs = Sample();
  EXPECT_THAT(RenderReport(runs), Not(HasSubstr(">Samples<")));
  runs[1].result->samples = {{"300 characters at temperature 1", "To be\nor <not>\xFF"}};
  const std::string page = RenderReport(runs);
  EXPECT_THAT(page, HasSubstr(">Samples<"));
  EXPECT_THAT(page, HasSubstr("none, seed 2: 300 characters at temperature 1</figcaption>"));
  EXPECT_THAT(page, HasSubstr("<pre>To be\nor &lt;not&gt;\xEF\xBF\xBD</pre>"));
}

// The page contains a picture only as an image, whatever is in it.
TEST(ReportTest, ShowsPicturesOfTheModels) {
  Runs runs = Sample();
  const std::string svg = std::string(kSvgBegin) + "><script>alert(1)</script></svg>";
  runs[1].result->samples = {{"a \"line\"", "", svg}, {"another", "words", svg}};
  const std::string page = RenderReport(runs);
  const std::string image = "src=\"data:image/svg+xml;base64," + Base64(svg) + "\">";
  EXPECT_THAT(page, HasSubstr("alt=\"none, seed 2: a &quot;line&quot;\" " + image + "</figure>"));
  EXPECT_THAT(page, HasSubstr(image + "<pre>words</pre></figure>"));
  EXPECT_THAT(page, Not(HasSubstr("alert(1)")));
}

TEST(ReportTest, RunsThatDidNotFinishAreListed) {
  Runs runs = Sample();
  runs[3].result->status = "diverged";
  runs[3].result->message = "the loss is not finite";
  runs[7].result.reset();
  runs.push_back(StartedRun("layer", 4, 9));
  const std::string page = RenderReport(runs);
  EXPECT_THAT(page,
              HasSubstr("norm layer, seed 1: diverged at step 300 (the loss is not finite)."));
  EXPECT_THAT(page, HasSubstr("norm batch, seed 2: not finished; last evaluation at step 300."));
  EXPECT_THAT(page, HasSubstr("norm layer, seed 9: not finished; last evaluation at step 0."));
  EXPECT_THAT(page, HasSubstr("(mean of 2 seeds, 1 diverged)"));
  EXPECT_THAT(page, HasSubstr("over the 2 seeds that both have"));
}

TEST(ReportTest, ClaimsOnOtherDataShowTheNumbersAndNoDifference) {
  Runs runs = MnistSample();
  for (auto& run : runs) {
    run.config.data.name = "drawn digits";
    run.config.data.sha256 = "drawn";
  }
  const std::string page = RenderReport(runs);
  EXPECT_THAT(page, HasSubstr(">agrees on other data</span>"));
  EXPECT_THAT(page, Not(HasSubstr(">agrees</span>")));
  EXPECT_THAT(page, HasSubstr("norm layer 5.13% (mean of 3 seeds), norm batch 5.97%"));
  EXPECT_THAT(page, HasSubstr("The paper used mnist; these runs used drawn digits."));
  EXPECT_THAT(Findings(runs), testing::EndsWith("agrees on other data 1, open 1.\n"));
}

TEST(ReportTest, AClaimOnStepsNamesNormsThatNeverReachedTheTarget) {
  EXPECT_THAT(
      RenderReport(MnistSample()),
      HasSubstr(
          "Steps to test error 5%: norm layer 300 steps (one seed, never in 2), norm batch never "
          "in 3 "
          "seeds. No difference within these steps, counting a run that never gets there with its "
          "last step"));
}

TEST(ReportTest, ReportsHowSoonTheBaselineIsMatched) {
  Runs runs;
  for (const int64_t seed : {1, 2}) {
    runs.push_back(FinishedRun("none", 4, seed, {.5, .4, .2, .3}));
    runs.push_back(FinishedRun("layer", 4, seed, {.4, .2, .1, .1}));
    runs.push_back(FinishedRun("batch", 4, seed, {.5, .4, .3, .3}));
  }
  const std::string page = RenderReport(runs);
  const size_t table =
      page.find("Steps and training seconds to the best validation error of norm none");
  ASSERT_NE(table, std::string::npos);
  const std::string after = page.substr(table, 1500);
  EXPECT_THAT(after, HasSubstr("0.67"));
  EXPECT_THAT(after, HasSubstr("not reached in 2 seeds"));
}

TEST(ReportTest, OneSeedIsReported) {
  const Runs runs = {FinishedRun("none", 4, 1, {.06}), FinishedRun("layer", 4, 1, {.05})};
  EXPECT_THAT(RenderReport(runs),
              HasSubstr("Norm layer reached 5.00% test error (one seed), 1.00 "
                        "points lower than norm none. One seed has no interval, so this can be "
                        "chance."));
  EXPECT_EQ(Findings(runs),
            "With batch size 4, test error (one seed) was 6.00% with norm none, 5.00% with layer "
            "(cannot tell).\n");
}

TEST(ReportTest, EveryTaskAndDataHasASection) {
  Runs runs = Sample();
  runs.push_back(FinishedRun("none", 4, 1, {.2}));
  runs.back().config.task = "letters";
  runs.push_back(FinishedRun("none", 4, 2, {.2}));
  runs.back().config.data.sha256 = "other";
  const std::string page = RenderReport(runs);
  for (const char* id : {"id=\"s0\"", "id=\"s1\"", "id=\"s2\""}) EXPECT_THAT(page, HasSubstr(id));
}

TEST(ReportTest, StampsThatDifferAreNamed) {
  Runs runs = Sample();
  runs[0].config.stamps["cpu"] = "another processor";
  const std::string page = RenderReport(runs);
  EXPECT_THAT(page, HasSubstr("differs: a processor (8 runs); another processor (1 run)"));
  EXPECT_THAT(page, HasSubstr("their seconds cannot be compared"));
}

TEST(ReportTest, RunsWithoutEvaluationsOrMetricsMakeAPage) {
  const Runs started = {StartedRun("none", 4, 1), StartedRun("layer", 4, 1)};
  EXPECT_THAT(RenderReport(started), HasSubstr("No run has evaluated test error yet."));
  EXPECT_THAT(RenderTable(started), HasSubstr("0/1"));
  const lab::Run empty;
  EXPECT_THAT(RenderReport({empty}), HasSubstr("Nothing to compare"));
  RenderTable({empty});
  EXPECT_EQ(Findings({empty}), "");
}

TEST(ReportTest, NoRunsAreAnError) {
  EXPECT_THROW(RenderReport({}), RunError);
  EXPECT_THROW(RenderTable({}), RunError);
  EXPECT_THROW(Findings({}), RunError);
}

// After the baseline, groups are in order, best first; 0.83 points and their sign as in Sample.
TEST(ReportTest, FindingsAreALineForEachPanel) {
  Runs runs = Sample();
  const std::string first =
      "With batch size 4, test error (mean of 3 seeds) was 5.97% with norm none, 5.13% with layer "
      "(0.83 points lower), 5.97% with batch (cannot tell).";
  EXPECT_EQ(Findings(runs), first + "\n");
  runs.push_back(FinishedRun("layer", 8, 1, {.02}));
  runs.push_back(FinishedRun("layer", 16, 1, {.01}));
  EXPECT_EQ(Findings(runs, 1), first + " 2 more in the report.\n");
  EXPECT_EQ(Findings(runs), first +
                                "\nWith batch size 8, test error (one seed) was 2.00% with norm "
                                "layer. 1 more in the report.\n");
}

TEST(ReportTest, FindingsNameMissingRuns) {
  Runs runs = Sample();
  runs[3].result->status = "diverged";  // layer, seed 1
  for (const int batch : {6, 7, 8}) runs[batch].result.reset();
  EXPECT_EQ(Findings(runs),
            "With batch size 4, test error (mean of 3 seeds) was 5.97% with norm none, 5.15% with "
            "layer (cannot tell, 2 seeds); no finished run with batch.\n");
}

// Eleven norms are too many for a line: the best and the worst stay.
TEST(ReportTest, ALongFindingLeavesOutTheMiddle) {
  Runs runs;
  for (int i = 0; i < 11; ++i) {
    runs.push_back(FinishedRun(i == 5 ? "none" : "norm-" + std::to_string(i), 4, 1, {.01 * i}));
  }
  const std::string findings = Findings(runs);
  EXPECT_THAT(findings, HasSubstr("was 5.00% with norm none, 0.00% with norm-0 (cannot tell), "));
  EXPECT_THAT(findings, HasSubstr(" others in between, 10.00% with norm-10 (cannot tell).\n"));
  EXPECT_LE(findings.size(), 161u);
}

TEST(ReportTest, FindingsCountTheVerdictsOnClaims) {
  // The steps to 5% cannot tell, the test error agrees, and the training NLL is not measured.
  EXPECT_THAT(Findings(MnistSample()),
              testing::EndsWith("\nVerdicts on published claims (A paper, section 1): agrees 1, "
                                "open 1.\n"));
}

TEST(ReportTest, TheTableIsAlignedAndFitsTheTerminal) {
  Runs runs = Sample();
  runs[8].result.reset();
  EXPECT_EQ(RenderTable(runs),
            "digits: Digits (mnist)\n"
            "batch size 4, lr 0.001, preset small, 300 updates\n"
            "\n"
            "batch size 4\n"
            "  norm     seeds  final test error (%)           best  against none  seconds\n"
            "  ● none       3           5.97 ± 0.38    5.97 ± 0.38             -     6.00\n"
            "  ▲ batch    2/3         5.90 and 6.00  5.90 and 6.00   cannot tell     6.00\n"
            "  ■ layer      3           5.13 ± 0.38    5.13 ± 0.38        better     6.00\n"
            "\n"
            "±: half-width of the mean's 95% confidence interval; best: at the evaluation\n"
            "with the best validation result; seconds: training time.\n"
            "\n"
            "With batch size 4, norm batch, seed 3: not finished; last evaluation at step\n"
            "  300.\n");
  runs[0].config.settings["norm"] = std::string(100, 'x');
  const std::string wide = RenderTable(runs, {.width = 80, .colour = false});
  EXPECT_THAT(wide, HasSubstr("xxx…"));
}

TEST(ReportTest, TheTableWarnsOfFewUpdates) {
  Runs runs = Sample();
  EXPECT_THAT(RenderTable(runs), Not(HasSubstr("Few updates")));
  for (lab::Run& run : runs) run.result->steps = 99;
  EXPECT_THAT(RenderTable(runs), HasSubstr(", preset small, 99 updates\n"));
  EXPECT_THAT(RenderTable(runs), HasSubstr("\nFew updates: "));
  runs[0].result->steps = 1;
  EXPECT_THAT(RenderTable(runs), HasSubstr(", 1 to 99 updates\n"));
  for (lab::Run& run : runs) run.config.preset = "smoke";
  EXPECT_THAT(RenderTable(runs), Not(HasSubstr("Few updates")));
  EXPECT_THAT(RenderTable(runs), Not(HasSubstr("better")));  // no verdict
}

// Equal means are not ranked.
TEST(ReportTest, FirstScreenNamesAllOfTheBest) {
  Runs runs;
  for (const char* norm : {"none", "layer", "batch"}) {
    for (const int seed : {1, 2}) {
      runs.push_back(FinishedRun(norm, 4, seed, {norm == std::string("none") ? .06 : .05}));
    }
  }
  EXPECT_THAT(RenderReport(runs), HasSubstr("share the best mean test error, 5.00%"));
}

TEST(ReportTest, ColourIsAnsi) {
  const std::string table = RenderTable(Sample(), {.width = 80, .colour = true});
  EXPECT_THAT(table, HasSubstr("\x1b[1mdigits: Digits (mnist)\x1b[0m\n"));
  // The marker of layer norm in its colour.
  EXPECT_THAT(table, HasSubstr("\n  \x1b[38;5;173m■\x1b[0m layer      3 "));
}

TEST(ReportTest, TimingDisturbedByOtherProgramsIsMarked) {
  Runs runs = Sample();
  EXPECT_THAT(RenderReport(runs), HasSubstr("Some runs did not record their CPU time"));
  for (auto& run : runs) {
    run.config.stamps["threads"] = "1";
    run.result->cpu_seconds = run.result->seconds;
  }
  EXPECT_THAT(RenderReport(runs), Not(HasSubstr("CPU time")));
  EXPECT_THAT(RenderTable(runs), Not(HasSubstr("†")));
  runs[3].result->cpu_seconds = 0.5 * runs[3].result->seconds;  // layer, seed 1
  EXPECT_THAT(RenderReport(runs), HasSubstr("<td class=\"number\">6.00†</td>"));
  EXPECT_THAT(RenderReport(runs), HasSubstr("a run got less than 90% of the CPU time"));
  EXPECT_THAT(RenderTable(runs), HasSubstr("better    6.00†\n"));
  EXPECT_THAT(RenderTable(runs), HasSubstr("†: other programs took CPU time from the training.\n"));
}

// A reader without scripts sees everything: nothing is hidden but the boxes of the legends.
TEST(ReportTest, FirstScreenComesBeforeTablesAndFolds) {
  const std::string page = RenderReport(Sample());
  const std::string first =
      page.substr(page.find("<main>"), page.find("</figure>") - page.find("<main>"));
  for (const char* text : {"<p>Asked: ", "<p>Found: norm layer has the best mean test error, 5.13%",
                           "<p>How sure: 3 seeds each", "<svg"}) {
    EXPECT_THAT(first, HasSubstr(text));
  }
  EXPECT_THAT(first, Not(HasSubstr("<table")));
  EXPECT_THAT(first, Not(HasSubstr("<details")));
  EXPECT_THAT(page, HasSubstr("<span class=\"count\">1</span><span class=\"word\">better</span>"));
  EXPECT_THAT(page, HasSubstr("<a href=\"#appendix\">"));
  EXPECT_THAT(page, Not(HasSubstr(" hidden>")));
}

TEST(ReportTest, TwoSeedsAreShownAsTwoValues) {
  Runs runs;
  for (const int64_t seed : {1, 2}) {
    const double step = 0.001 * static_cast<double>(seed);
    runs.push_back(FinishedRun("none", 4, seed, {.06}));
    runs.push_back(FinishedRun("layer", 4, seed, {.05 + step}));
  }
  const std::string page = RenderReport(runs);
  EXPECT_THAT(page, HasSubstr("<td class=\"number\">5.10 and 5.20</td>"));
  EXPECT_THAT(page, HasSubstr("<td class=\"number\">−0.90 and −0.80</td>"));
  EXPECT_THAT(page, HasSubstr("(the two seeds: 0.90 points lower and 0.80 points lower)"));
}

TEST(ReportTest, WritingReplacesTheFileAndLeavesNothingElse) {
  const TestFolder folder;
  WriteFile(folder / "report.html", "old");
  WriteReport(Sample(), folder / "report.html");
  EXPECT_EQ(ReadFile(folder / "report.html"), RenderReport(Sample()));
  EXPECT_THAT(folder.Entries(), ElementsAre("report.html"));
}

TEST(ReportTest, AFileThatCannotBeWrittenIsNamed) {
  const TestFolder folder;
  try {
    WriteReport(Sample(), folder / "absent/report.html");
    FAIL() << "must throw";
  } catch (const RunError& error) {
    EXPECT_THAT(error.what(), HasSubstr("absent"));
  }
}

}  // namespace
}  // namespace planish::lab
