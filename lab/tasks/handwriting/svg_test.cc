#include "lab/tasks/handwriting/svg.h"

#include <gtest/gtest.h>

#include <limits>
#include <pugixml.hpp>

#include "lab/run/results.h"

namespace planish::lab {
namespace {

TEST(StrokesSvg, DrawsStrokes) {
  const std::string svg = StrokesSvg({{1, 2}, {3, 4, true}, {-1, 0, true}, {5, 5}, {6, -1, true}},
                                     10, "a < b & \"c\"\1");
  EXPECT_TRUE(svg.starts_with(kSvgBegin));
  EXPECT_TRUE(svg.ends_with("</svg>"));
  pugi::xml_document document;
  ASSERT_TRUE(document.load_string(svg.c_str()));
  const pugi::xml_node root = document.child("svg");
  EXPECT_STREQ(root.child("title").text().get(), "a < b & \"c\" ");
  EXPECT_STREQ(root.child("path").attribute("d").value(),
               "M10.0 20.0L30.0 40.0M-10.0 0.0h0M50.0 50.0L60.0 -10.0");
  // From -10 to 60 and from -10 to 50, with a margin of 8.
  EXPECT_STREQ(root.attribute("viewBox").value(), "-18.0 -18.0 86.0 76.0");
  EXPECT_STREQ(root.attribute("width").value(), "86");
}

TEST(StrokesSvg, EndsAtPointsThatAreNotFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::string svg = StrokesSvg({{1, 2}, {3, 4}, {nan, 1}, {5, 5}}, 1, "");
  EXPECT_NE(svg.find("d=\"M1.0 2.0L3.0 4.0\""), svg.npos);
  pugi::xml_document document;
  EXPECT_TRUE(document.load_string(StrokesSvg({}, 1, "").c_str()));
}

}  // namespace
}  // namespace planish::lab
