#include "lab/report/overview.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <limits>
#include <map>
#include <pugixml.hpp>

namespace planish::lab {
namespace {

using testing::HasSubstr;
using testing::Not;

// Returns the chart of a figure, parsed.
pugi::xml_document Drawing(const Markup& figure) {
  const std::string& html = figure.html();
  pugi::xml_document drawing;
  const size_t begin = html.find("<svg viewBox=\"0 0 560");
  EXPECT_TRUE(
      drawing.load_string(html.substr(begin, html.find("</svg>", begin) + 6 - begin).c_str()));
  return drawing;
}

IntervalChart Intervals(std::vector<IntervalRow> rows) {
  return {.id = "x",
          .heading = "Difference",
          .x_name = "error (points)",
          .reference = 0,
          .x_text = [](double value) { return std::to_string(value); },
          .rows = std::move(rows)};
}

TEST(RenderIntervals, DescribesEveryRow) {
  const pugi::xml_document drawing = Drawing(RenderIntervals(Intervals({{.label = "layer",
                                                                         .style = {},
                                                                         .low = -2,
                                                                         .middle = -1,
                                                                         .high = 0,
                                                                         .values = {},
                                                                         .text = "1 lower"},
                                                                        {.label = "batch",
                                                                         .style = {},
                                                                         .low = 1,
                                                                         .middle = 2,
                                                                         .high = 3,
                                                                         .values = {},
                                                                         .text = "2 higher"}})));
  const pugi::xml_node svg = drawing.child("svg");
  EXPECT_STREQ(svg.attribute("role").value(), "img");
  EXPECT_STREQ(svg.child("desc").text().get(), "layer: 1 lower. batch: 2 higher.");
  EXPECT_STREQ(svg.attribute("aria-describedby").value(),
               svg.child("desc").attribute("id").value());
}

TEST(RenderIntervals, ShowsTwoSeedsAsTwoValues) {
  const std::string two =
      RenderIntervals(Intervals({{.label = "a", .style = {}, .middle = 1, .values = {0.5, 1.5}}}))
          .html();
  EXPECT_THAT(two, Not(HasSubstr("class=\"interval\"")));
  EXPECT_THAT(two, HasSubstr("class=\"marker\""));
}

TEST(RenderIntervals, HugeAndEqualValuesStayInsideTheChart) {
  constexpr double kHuge = std::numeric_limits<double>::max();
  for (const auto& [low, high] : {std::pair(-kHuge, kHuge), {0.0, 0.0}, {1e-300, 1e-300}}) {
    const std::string html =
        RenderIntervals(
            Intervals({{.label = "a", .style = {}, .low = low, .middle = low, .high = high}}))
            .html();
    EXPECT_THAT(html, Not(HasSubstr("nan")));
    EXPECT_THAT(html, Not(HasSubstr("inf")));
  }
}

TEST(RenderIntervals, WithoutRowsIsStillADrawing) {
  EXPECT_FALSE(Drawing(RenderIntervals(Intervals({}))).child("svg").empty());
}

TEST(RenderOutcomes, FillsSignsOfThePapersOwnData) {
  OutcomeChart chart{.id = "x",
                     .heading = "Claims",
                     .columns = {"RT", "PTB"},
                     .rows = {{"1 layer > none",
                               {{Outcome::kAgrees, true}, {Outcome::kDiffers, false}},
                               "As claimed in RT"}}};
  const std::string html = RenderOutcomes(chart).html();
  EXPECT_THAT(html, HasSubstr("class=\"outcome agrees\""));
  EXPECT_THAT(html, HasSubstr("class=\"outcome differs outline\""));
  EXPECT_THAT(html, HasSubstr("1 layer &gt; none: As claimed in RT."));
  // The key has only what the chart has.
  EXPECT_THAT(html, HasSubstr("</svg>agrees</li>"));
  EXPECT_THAT(html, HasSubstr("</svg>differs on other data</li>"));
  EXPECT_THAT(html, Not(HasSubstr("</svg>equivalent</li>")));
}

// Signs are at least 18 units apart, so that 100 of them need several lines.
TEST(RenderOutcomes, WrapsLongRows) {
  OutcomeChart chart{.id = "x", .heading = "Statements", .columns = {}, .rows = {}};
  chart.rows.push_back({"a", std::vector<OutcomeCell>(100, {Outcome::kAgrees, true}), ""});
  chart.rows.push_back({"b", {}, ""});
  const pugi::xml_document drawing = Drawing(RenderOutcomes(chart));
  std::map<double, std::vector<double>> lines;  // y -> x of the tips
  for (const pugi::xpath_node& node : drawing.select_nodes("//path[@class='outcome agrees']")) {
    double x = 0, y = 0;
    ASSERT_EQ(std::sscanf(node.node().attribute("d").value(), "M%lf %lf", &x, &y), 2);
    lines[y].push_back(x);
  }
  EXPECT_EQ(lines.size(), 7u);  // 15 fit into the 282 units beside the labels
  for (const auto& [y, places] : lines) {
    for (size_t i = 1; i < places.size(); ++i) EXPECT_GE(places[i] - places[i - 1], 18);
  }
}

}  // namespace
}  // namespace planish::lab
