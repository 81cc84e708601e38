#include "lab/report/chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <pugixml.hpp>

#include "lab/analysis/test_runs.h"

namespace planish::lab {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Draws the curves of `errors` of each seed, all in one group.
class ChartTest : public testing::Test {
 protected:
  Curve CurveOfErrors(const std::vector<std::vector<double>>& seeds) {
    runs_.clear();
    for (const std::vector<double>& errors : seeds) {
      runs_.push_back(FinishedRun("none", 4, static_cast<int64_t>(runs_.size()), errors));
    }
    sections_ = Summarize(runs_);
    return CurveOf(sections_[0].panels[0].groups[0], "test_error");
  }

  pugi::xml_document Draw(const Curve& curve, bool against_seconds = false) {
    Chart chart;
    chart.id = "id";
    chart.heading = "test error (%) against <steps>";
    chart.metric = {"test_error", "test error", "%", true};
    chart.against_seconds = against_seconds;
    chart.axis = ValueAxis({curve}, true);
    chart.series = {{"none & \"more\"", {}, curve}};
    pugi::xml_document document;
    const std::string svg = RenderChart(chart).html();
    EXPECT_TRUE(document.load_string(svg.c_str())) << svg;
    EXPECT_THAT(svg, Not(HasSubstr("nan")));
    EXPECT_THAT(svg, Not(HasSubstr("inf")));
    return document;
  }

  Runs runs_;
  std::vector<Section> sections_;
};

TEST_F(ChartTest, TheAxisIsLogarithmicIfValuesSpanAFactorOfFour) {
  EXPECT_TRUE(ValueAxis({CurveOfErrors({{.4, .1}})}, true).log);
  EXPECT_FALSE(ValueAxis({CurveOfErrors({{.39, .1}})}, true).log);
  EXPECT_FALSE(ValueAxis({CurveOfErrors({{.4, .1}})}, false).log);
  EXPECT_FALSE(ValueAxis({CurveOfErrors({{.4, -.1}})}, true).log);
}

TEST_F(ChartTest, ZerosStayOnTheEdgeOfALogarithmicAxis) {
  const Curve curve = CurveOfErrors({{.4, .1, 0}});
  const Axis axis = ValueAxis({curve}, true);
  EXPECT_TRUE(axis.log);
  EXPECT_TRUE(axis.has_zero);
  const pugi::xml_document svg = Draw(curve);
  const std::string line = svg.select_node("//path[@class='mean']").node().attribute("d").value();
  const std::string bottom = svg.child("svg").attribute("data-bottom").value();
  EXPECT_THAT(line, testing::EndsWith(" " + bottom + ".0"));
}

TEST_F(ChartTest, PlacesAreLogarithms) {
  Axis axis;
  axis.low = .01;
  axis.high = 1;
  axis.log = true;
  EXPECT_NEAR(axis.Place(.1), .5, 1e-12);
  EXPECT_NEAR(axis.Place(1), 1, 1e-12);
  EXPECT_LT(axis.Place(0), 0);
  EXPECT_LT(axis.Place(-5), 0);
  EXPECT_THAT(axis.Ticks(), ElementsAre(.01, .02, .05, .1, .2, .5, 1));
}

TEST_F(ChartTest, TicksAreRound) {
  EXPECT_THAT(CostAxis(1000).Ticks(), ElementsAre(0, 500, 1000));
  EXPECT_FALSE(std::signbit(CostAxis(1000).Ticks()[0]));
  Axis axis;
  axis.low = -.1;
  axis.high = .32;
  EXPECT_THAT(axis.Ticks(),
              ElementsAre(DoubleNear(-.1, 1e-12), DoubleNear(0, 1e-12), DoubleNear(.1, 1e-12),
                          DoubleNear(.2, 1e-12), DoubleNear(.3, 1e-12)));
}

TEST_F(ChartTest, EveryAxisHasAFewTicks) {
  for (const double low : {1e-300, 1e-20, 3e-4, .021, .7, 20., 1e10}) {
    for (const double ratio : {4., 5., 9., 40., 1e3, 1e7, 1e30, 1e250}) {
      if (low * ratio > 1e300) continue;
      const Axis axis = ValueAxis({CurveOfErrors({{low, low * ratio}})}, true);
      ASSERT_TRUE(axis.log);
      EXPECT_GE(axis.Ticks().size(), 2u) << low << " " << ratio;
      EXPECT_LE(axis.Ticks().size(), 10u) << low << " " << ratio;
    }
  }
  for (const double value : {-1e308, -3., 0., 1e-300, 1., 1e308}) {
    const Axis axis = ValueAxis({CurveOfErrors({{value}})}, false);
    EXPECT_GE(axis.Ticks().size(), 2u) << value;
    EXPECT_LE(axis.Ticks().size(), 12u) << value;
  }
}

TEST_F(ChartTest, DrawsMeanBandAndSeeds) {
  const pugi::xml_document svg = Draw(CurveOfErrors({{.4, .1}, {.5, .2}, {.3, .1}}));
  EXPECT_EQ(svg.select_nodes("//path[@class='mean']").size(), 1u);
  EXPECT_EQ(svg.select_nodes("//path[@class='band']").size(), 1u);
  EXPECT_EQ(svg.select_nodes("//path[@class='single']").size(), 3u);
  EXPECT_EQ(svg.select_nodes("//path[@class='cross']").size(), 0u);
}

TEST_F(ChartTest, ASingleSeedHasNoBand) {
  const pugi::xml_document svg = Draw(CurveOfErrors({{.4, .1}}));
  EXPECT_EQ(svg.select_nodes("//path[@class='band']").size(), 0u);
}

TEST_F(ChartTest, TheBandOfTwoSeedsIsTheirRange) {
  // The t-interval of two seeds would be 12.7 standard errors wide and leave the chart.
  const Curve curve = CurveOfErrors({{.4, .1}, {.2, .1}});
  const pugi::xml_document svg = Draw(curve);
  const std::string band = svg.select_node("//path[@class='band']").node().attribute("d").value();
  const pugi::xml_document high = Draw(CurveOfErrors({{.4, .1}}));
  const std::string line = high.select_node("//path[@class='mean']").node().attribute("d").value();
  EXPECT_THAT(band, testing::StartsWith(line));
}

TEST_F(ChartTest, OneEvaluationIsAMarker) {
  const pugi::xml_document svg = Draw(CurveOfErrors({{.4}}), true);
  EXPECT_NE(std::string(svg.select_node("//path[@class='marker']").node().attribute("d").value()),
            "");
}

TEST_F(ChartTest, ADivergedRunEndsInACross) {
  CurveOfErrors({{.4, .1}, {.4, 1e9}});
  runs_[1].result->status = "diverged";
  sections_ = Summarize(runs_);
  const Curve curve = CurveOf(sections_[0].panels[0].groups[0], "test_error");
  EXPECT_LT(ValueAxis({curve}, true).high, 1);  // it does not determine the axis
  EXPECT_EQ(Draw(curve).select_nodes("//path[@class='cross']").size(), 1u);
}

TEST_F(ChartTest, HasATextAlternative) {
  const pugi::xml_document svg = Draw(CurveOfErrors({{.4, .1}}));
  const pugi::xml_node root = svg.child("svg");
  EXPECT_STREQ(root.attribute("role").value(), "img");
  EXPECT_STREQ(root.attribute("aria-label").value(), "test error (%) against <steps>");
  EXPECT_STREQ(root.attribute("aria-describedby").value(),
               root.child("desc").attribute("id").value());
  EXPECT_STREQ(root.child("desc").text().get(),
               "Line chart of test error (%) against steps, logarithmic axis. none & \"more\": "
               "40.00% at step 100, 10.00% at step 200.");
}

TEST_F(ChartTest, LongRunsAreThinned) {
  std::vector<double> errors;
  for (int i = 0; i < 5000; ++i) errors.push_back(.5 / (i + 1));
  const pugi::xml_document svg = Draw(CurveOfErrors({errors}));
  const std::string line = svg.select_node("//path[@class='mean']").node().attribute("d").value();
  EXPECT_LE(std::count(line.begin(), line.end(), 'L'), 400);
  EXPECT_GE(std::count(line.begin(), line.end(), 'L'), 300);
}

TEST_F(ChartTest, ExtremeValuesStayInTheDrawing) {
  Draw(CurveOfErrors({{1e308, -1e308}, {-1e308, 1e308}}));
  Draw(CurveOfErrors({{1e-308, 1e308}}));
  Draw(CurveOfErrors({{0, 0}}));
}

}  // namespace
}  // namespace planish::lab
