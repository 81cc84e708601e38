#include "lab/report/overview.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
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

}  // namespace
}  // namespace planish::lab
