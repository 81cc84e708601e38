#include "lab/report/export.h"

#include <gtest/gtest.h>

#include "lab/analysis/test_runs.h"

namespace planish::lab {
namespace {

using Json = nlohmann::ordered_json;

// Returns the lines of RenderCsv without their line ends.
std::vector<std::string> Lines(const Runs& runs, ExportRow row) {
  std::vector<std::string> lines;
  const std::string text = RenderCsv(runs, row);
  for (size_t begin = 0, end; (end = text.find("\r\n", begin)) != std::string::npos;
       begin = end + 2) {
    lines.push_back(text.substr(begin, end - begin));
  }
  return lines;
}

TEST(ExportTest, GroupHasMeansAndIntervalsOfItsFinishedSeeds) {
  Runs runs = {FinishedRun("layer", 4, 1, {0.5, 0.25}), FinishedRun("layer", 4, 2, {0.5, 0.75}),
               Diverged(FinishedRun("layer", 4, 3, {0.5, 0.5}))};
  const Json groups = Json::parse(RenderJson(runs, ExportRow::kGroup))["groups"];
  ASSERT_EQ(groups.size(), 1U);
  const Json& group = groups[0];
  EXPECT_EQ(group["compared"], "norm");
  EXPECT_EQ(group["value"], "layer");
  EXPECT_EQ(group["settings"], Json::object());  // nothing varies
  EXPECT_EQ(group["seeds"], Json({{"total", 3}, {"finished", 2}, {"diverged", 1}}));
  EXPECT_EQ(group["metrics"]["test_error"]["final"]["mean"], 0.5);
  // t(0.975, 1 degree of freedom) = 12.7062047361747, and the standard error is 0.25.
  EXPECT_NEAR(group["metrics"]["test_error"]["final"]["half_width"].get<double>(), 3.17655118,
              1e-7);
  EXPECT_EQ(group["metrics"]["test_error"]["best"]["mean"], 0.375);
}

TEST(ExportTest, OneSeedHasNoInterval) {
  const Json group =
      Json::parse(RenderJson({FinishedRun("layer", 4, 1, {0.1})}, ExportRow::kGroup))["groups"][0];
  EXPECT_EQ(group["metrics"]["test_error"]["final"]["mean"], 0.1);
  EXPECT_TRUE(group["metrics"]["test_error"]["final"]["half_width"].is_null());
}

TEST(ExportTest, UnfinishedRunHasNullsInJsonAndEmptyFieldsInCsv) {
  const Runs runs = {StartedRun("layer", 4, 1)};
  const Json run = Json::parse(RenderJson(runs, ExportRow::kRun))["runs"][0];
  EXPECT_EQ(run["status"], "unfinished");
  EXPECT_TRUE(run["steps"].is_null());
  EXPECT_TRUE(run["final"]["test_error"].is_null());
  const auto lines = Lines(runs, ExportRow::kRun);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_TRUE(lines[1].ends_with(",,,,,,,,")) << lines[1];  // final and best of four metrics
  EXPECT_EQ(std::ranges::count(lines[0], ','), std::ranges::count(lines[1], ','));
}

TEST(ExportTest, CsvQuotesSeparatorsQuotesAndLineEnds) {
  lab::Run run = StartedRun("layer", 4, 1);
  run.config.settings = Json{{"a,b", "x\ny"}, {"c", "\"q\""}, {"list", {1, "2"}}, {"é", "ü"}};
  run.folder = std::string("f\xff");
  const std::string text = RenderCsv({run}, ExportRow::kRun);
  EXPECT_NE(text.find(",\"settings.a,b\",settings.c,settings.list,settings.é,"), text.npos) << text;
  EXPECT_NE(text.find(",\"x\ny\",\"\"\"q\"\"\",\"[1,\"\"2\"\"]\",ü,"), text.npos) << text;
  EXPECT_NE(text.find("\r\nf\xef\xbf\xbd,digits,"), text.npos) << text;
}

TEST(ExportTest, RunsOfSeveralTasksShareColumnsByName) {
  lab::Run other = StartedRun("layer", 4, 1);
  other.config.settings = Json{{"width", Json{{"an", "object"}}}, {"norm", "layer"}};
  other.config.metrics = {{"bits", "bits", "", true}};
  const auto lines = Lines({StartedRun("none", 4, 1), other}, ExportRow::kRun);
  ASSERT_EQ(lines.size(), 3U);
  for (const char* column : {"settings.width", "settings.norm", "final.bits", "best.test_error"}) {
    EXPECT_NE(lines[0].find(column), std::string::npos) << column;
  }
  EXPECT_LT(lines[0].find("settings.width"), lines[0].find("steps"));
  EXPECT_NE(lines[2].find("\"{\"\"an\"\":\"\"object\"\"}\""), std::string::npos) << lines[2];
}

TEST(ExportTest, NoRunsGiveNoRows) {
  EXPECT_EQ(Json::parse(RenderJson({}, ExportRow::kRun))["runs"], Json::array());
  EXPECT_EQ(RenderCsv({}, ExportRow::kGroup), "\r\n");
}

}  // namespace
}  // namespace planish::lab
