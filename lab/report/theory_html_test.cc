#include "lab/report/theory_html.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <pugixml.hpp>

#include "lab/analysis/test_runs.h"
#include "lab/error.h"
#include "lab/report/plot.h"
#include "lab/report/report.h"

namespace planish::lab {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TheoryResult Result() {
  TheoryResult result{.name = "geometry", .title = "Fisher <matrices>"};
  result.settings = {{"units", 6}, {"norm", {"layer", "rms"}}, {"run", "pi-mnist, norm layer"}};
  result.statements = {{"Ba & others, Eq. 1", "It holds.", TheoryVerdict::kHolds, "error 0"},
                       {"Ba & others, Eq. 2", "It fails.", TheoryVerdict::kFails, "error 1"}};
  result.tables = {{"A table.", {"kind", "error"}, {{"first", 0.12345}, {"second", NAN}}}};
  result.charts = {{"Errors",
                    "H",
                    "relative error",
                    true,
                    true,
                    {{"a", {{1, 0.1}, {10, 0.01}, {100, 0}}}, {"b", {{1, 1}, {100, NAN}}}}},
                   {"Without values", "H", "error", true, true, {{"a", {{1, 0}}}}},
                   {"One point", "H", "error", true, true, {{"a", {{2, 3}}}}},
                   {"Huge", "H", "error", false, false, {{"a", {{0, -1e308}, {1, 1e308}}}}}};
  return result;
}

TEST(TheoryHtmlTest, HasStatementsTablesAndCharts) {
  const std::string page = RenderReport({}, {.theory = {Result()}});
  EXPECT_THAT(page, HasSubstr("<h2>Theory of the papers, measured</h2>"));
  EXPECT_THAT(page, HasSubstr("Found: 1 hold, 0 only with a correction that its measurement names; "
                              "0 hold in some cases only, and 1 do not hold."));
  EXPECT_THAT(page, HasSubstr("<h3>Fisher &lt;matrices&gt;: pi-mnist, norm layer</h3>"));
  EXPECT_THAT(page, HasSubstr("<span class=\"badge does-not-hold\">does not hold</span>"));
  EXPECT_THAT(page, HasSubstr("Ba &amp; others, Eq. 2. Measured: error 1."));
  EXPECT_THAT(page, HasSubstr("<th scope=\"row\">first</th><td class=\"number\">0.123</td>"));
  EXPECT_THAT(page, HasSubstr("<td class=\"number\">-</td>"));
  EXPECT_THAT(page, HasSubstr("planish analyze geometry: units 6; norm layer, rms."));
  EXPECT_THAT(page, HasSubstr("data-at=\"H 1|H 10\" data-value=\"0.100|0.0100\""));
  EXPECT_THAT(page, HasSubstr("One point: error"));
  EXPECT_THAT(page, Not(HasSubstr("Without values")));
  EXPECT_THAT(page, Not(HasSubstr("nan")));
}

TEST(TheoryHtmlTest, PlacesPointsOnLogarithmicAxes) {
  std::string html = RenderTheorySection({Result()}, "t").body.html();
  html = html.substr(html.find("<figure>"));
  html.resize(html.find("</figure>") + 9);
  pugi::xml_document document;
  ASSERT_TRUE(document.load_string(html.c_str())) << html;
  // From 1 to 10 is the same distance on the page as from 0.1 to 0.01 on the other axis, in shares
  // of the axes: x from 1 to 10, y from 0.01 to 1, with 4% of space at both ends.
  const std::string path =
      document.select_node("//path[@class='mean']").node().attribute("d").value();
  double x0 = 0, y0 = 0, x1 = 0, y1 = 0;
  ASSERT_EQ(std::sscanf(path.c_str(), "M%lf %lfL%lf %lf", &x0, &y0, &x1, &y1), 4) << path;
  const double width = 560 - 66 - 18, height = 350 - 12 - 56;
  EXPECT_NEAR(x1 - x0, width / 1.08, 0.11);  // coordinates have one decimal
  EXPECT_NEAR(y1 - y0, height / 1.08 / 2, 0.11);
}

TEST(TheoryHtmlTest, StandsBesideRuns) {
  const Runs runs = {FinishedRun("none", 4, 1, {.2}), FinishedRun("layer", 4, 1, {.1})};
  const std::string page = RenderReport(runs, {.theory = {Result(), Result()}});
  EXPECT_THAT(page, HasSubstr("<a href=\"#theory\">Theory of the papers, measured</a>"));
  EXPECT_THAT(page, HasSubstr("Found: 2 hold, 0 only with a correction that its measurement names; "
                              "0 hold in some cases only, and 2 do not hold."));
  EXPECT_THAT(RenderReport(runs), Not(HasSubstr("#theory")));
  EXPECT_THAT(
      Findings(runs, 2, {.theory = {Result()}}),
      HasSubstr("Theory of the papers, measured: 2 statements; holds: 1, does not hold: 1\n"));
  EXPECT_THROW(RenderReport({}, {}), RunError);
}

// Ticks of an axis on which neighboring numbers differ by less than a step.
TEST(TheoryHtmlTest, DrawsValuesThatDifferByRounding) {
  for (const double value : {0.25, 1.0, 100.0, 0x1p53, -0x1p60, 1e300}) {
    TheoryResult result = Result();
    result.charts = {{"c",
                      "x",
                      "y",
                      false,
                      false,
                      {{"a", {{1, value}, {2, std::nextafter(value, 2e300)}}},
                       {"b", {{value, 1}, {std::nextafter(value, 2e300), 2}}}}}};
    EXPECT_THAT(RenderTheorySection({result}, "t").body.html(), Not(HasSubstr("nan")));
  }
  EXPECT_LE((Axis{.low = 1, .high = std::nextafter(1, 2)}).Ticks().size(), 6u);
  EXPECT_LE((Axis{.low = 0x1p53, .high = 0x1p53 + 2}).Ticks().size(), 6u);
}

}  // namespace
}  // namespace planish::lab
