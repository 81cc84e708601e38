// The analyses on few rows, and the form of their results.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <random>
#include <string>
#include <vector>

#include "lab/error.h"
#include "lab/testing/test_folder.h"
#include "lab/theory/analyses.h"
#include "lab/theory/result.h"
#include "lab/theory/result_files.h"
#include "lab/theory/rows.h"

namespace planish::lab {
namespace {

const TheoryAnalysis& Find(const std::string& name) {
  for (const TheoryAnalysis& analysis : Analyses()) {
    if (analysis.name == name) return analysis;
  }
  throw UsageError("no analysis " + name);
}

double NumberIn(const TheoryTable& table, size_t row, size_t column) {
  return std::get<double>(table.rows.at(row).at(column));
}

TEST(Rows, AreNormalized) {
  for (const RowKind kind : kRowKinds) {
    for (const size_t width : {2, 3, 64, 1000}) {
      std::mt19937_64 random(5);
      std::vector<double> row(width);
      DrawRow(kind, random, row);
      NormalizeRow(row);
      const RowMoments moments = MomentsOf(row);
      // Sums of at most 1,000 terms, of squares up to 1,000.
      EXPECT_NEAR(moments.mean, 0, 1e-12) << NameOf(kind);
      EXPECT_NEAR(moments.variance, 1, 1e-12) << NameOf(kind);
    }
  }
}

TEST(Rows, MomentsAreExactForALargeMean) {
  const std::vector<double> row = {1e9 + 1, 1e9 + 2, 1e9 + 3, 1e9 + 6};
  EXPECT_EQ(MomentsOf(row).mean, 1e9 + 3);
  EXPECT_EQ(MomentsOf(row).variance, 3.5);
}

TEST(Gradients, TheoremHolds) {
  for (const double width : {2, 3, 17, 4096}) {
    const TheoryResult result =
        RunAnalysis(Find("gradients"), {{"rows", width > 100 ? 20 : 3000}, {"width", width}});
    ASSERT_EQ(result.statements.size(), 4u);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(result.statements[i].verdict, TheoryVerdict::kHolds)
          << result.statements[i].measured;
    }
    EXPECT_EQ(result.statements[3].verdict, TheoryVerdict::kHoldsCorrected);
    const TheoryTable& table = result.tables[0];
    ASSERT_EQ(table.rows.size(), 4u);
    for (size_t r = 0; r < 4; ++r) EXPECT_EQ(NumberIn(table, r, 4), 0);
    EXPECT_NEAR(NumberIn(table, 0, 3), 1, 1e-9);
    EXPECT_NEAR(NumberIn(table, 3, 3), 1, 1e-9);
    EXPECT_LT(NumberIn(table, 1, 3), 1);
  }
}

TEST(Theorem2, NeedsABoundForAllLengths) {
  const TheoryResult result = RunAnalysis(Find("theorem2"), {{"elements", 5000}});
  ASSERT_EQ(result.statements.size(), 4u);
  EXPECT_EQ(result.statements[0].verdict, TheoryVerdict::kHolds) << result.statements[0].measured;
  EXPECT_EQ(result.statements[1].verdict, TheoryVerdict::kHoldsCorrected);
  EXPECT_EQ(result.statements[2].verdict, TheoryVerdict::kHolds) << result.statements[2].measured;
  EXPECT_EQ(result.statements[3].verdict, TheoryVerdict::kHolds) << result.statements[3].measured;
  const TheoryTable& table = result.tables[0];
  for (const size_t column : {2, 3, 4}) EXPECT_NEAR(NumberIn(table, 0, column), 0.1, 1e-12);
  // k + c (H - 2) / sqrt(H - 1), with k = c = 0.1 and H = 4,096.
  EXPECT_NEAR(NumberIn(table, 1, 4), 0.1 + 0.1 * 4094 / std::sqrt(4095), 1e-9);
  for (const size_t row : {2, 3, 4}) EXPECT_GT(NumberIn(table, row, 1), 1e-3);
}

TEST(Theorem2, ShareBeyondIsThatOfTheSpike) {
  // A spike is sqrt(H - 1), beyond 1 / k = 2 from H = 6; it is one element in H.
  const TheoryResult result = RunAnalysis(Find("theorem2"), {{"k", 0.5}, {"elements", 3000}});
  EXPECT_NEAR(NumberIn(result.tables[1], 4, 1), 100.0 / 64, 1e-12);
  EXPECT_NEAR(NumberIn(result.tables[1], 4, 4), std::sqrt(4095), 1e-9);
}

// With one unit's variance the whole of LayerNorm: two units give y = gain * sign(a_1 - a_2) / 2, a
// step function of x. Its best affine fit leaves sqrt(1 - 2 / pi) for normal x.
TEST(Reparametrization, OfTwoUnitsIsAStep) {
  const TheoryResult result =
      RunAnalysis(Find("reparametrization"), {{"units", 2}, {"cases", 2000}});
  ASSERT_EQ(result.statements.size(), 2u);
  for (const TheoryStatement& statement : result.statements) {
    EXPECT_EQ(statement.verdict, TheoryVerdict::kHolds) << statement.measured;
  }
  for (size_t row = 0; row < result.tables[0].rows.size(); ++row) {
    // 6,000 cases and more: the standard error is about 0.01.
    EXPECT_NEAR(NumberIn(result.tables[0], row, 3), std::sqrt(1 - 2 / std::numbers::pi), 0.03);
    EXPECT_LE(NumberIn(result.tables[0], row, 1), 1e-14);
    EXPECT_LE(NumberIn(result.tables[0], row, 2), 1e-14);
  }
}

TEST(Analyses, SettingsAreChecked) {
  const auto error = [](const std::string& name, double value) -> std::string {
    try {
      RunAnalysis(Find("gradients"), {{name, value}});
    } catch (const UsageError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(error("width", 1),
            "[analyze gradients] --width must be a whole number from 2 to 4096, got 1");
  EXPECT_EQ(error("width", 2.5),
            "[analyze gradients] --width must be a whole number from 2 to 4096, got 2.5");
  EXPECT_EQ(error("rows", NAN),
            "[analyze gradients] --rows must be a whole number from 1 to 1000000000, got nan");
  EXPECT_EQ(error("height", 2), "[analyze gradients] setting must be one of its own, got height");
}

// A function in place of an analysis, which shows what it is given.
TheoryAnalysis Echo(AnalysisFiles files) {
  return {.name = "echo",
          .summary = "Echo",
          .settings = {},
          .lists = {{"norm", "norms", {"layer", "rms"}, {}}, {"other", "", {"a", "b"}, {"b"}}},
          .files = files,
          .measure = [](const AnalysisSettings& settings) {
            TheoryResult result;
            result.settings["given"] = settings.List("norm").size() + settings.List("other").size();
            result.settings["run"] = settings.input().runs.at(0).string();
            return result;
          }};
}

TEST(Analyses, ListsAndFilesAreChecked) {
  const auto error = [](AnalysisFiles files, const AnalysisInput& input) -> std::string {
    try {
      RunAnalysis(Echo(files), {}, input);
    } catch (const UsageError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(error(AnalysisFiles::kNone, {.lists = {{"norm", {"layer", "group"}}}}),
            "[analyze echo] --norm must be names of layer, rms, got \"group\"");
  EXPECT_EQ(error(AnalysisFiles::kNone, {.lists = {{"norm", {}}}}),
            "[analyze echo] --norm must not be empty");
  EXPECT_EQ(error(AnalysisFiles::kNone, {.lists = {{"norms", {"layer"}}}}),
            "[analyze echo] setting must be one of its own, got norms");
  EXPECT_EQ(error(AnalysisFiles::kData, {.runs = {"folder"}}),
            "[analyze echo] does not read a run, got folder");
  EXPECT_EQ(error(AnalysisFiles::kRun, {.runs = {"a", "b"}}),
            "[analyze echo] RUN must be one folder, got 2");
  EXPECT_EQ(error(AnalysisFiles::kRuns, {.runs = {"a", "b"}}), "");
  EXPECT_EQ(error(AnalysisFiles::kNone, {.data = "folder"}),
            "[analyze echo] reads no data, got folder");
  EXPECT_EQ(error(AnalysisFiles::kRun, {.data = "folder"}),
            "[analyze echo] reads no data without a run, got folder");
  const TheoryResult result =
      RunAnalysis(Echo(AnalysisFiles::kRun), {}, {.runs = {"folder"}, .data = "data"});
  EXPECT_EQ(result.settings.dump(),
            R"({"norm":["layer","rms"],"other":["b"],"given":3,"run":"folder"})");
}

// The widest numbers must not cut names to equal texts.
TEST(Theorem2, NamesEachFunctionInEightyColumns) {
  for (const double k : {0.001, 0.1, 10.0}) {
    const TheoryResult result = RunAnalysis(Find("theorem2"), {{"k", k}, {"elements", 500}});
    const std::string text = RenderTheory(result);
    for (const auto& row : result.tables[0].rows) {
      EXPECT_NE(text.find("\n  " + std::get<std::string>(row[0]) + "  "), std::string::npos)
          << text;
    }
  }
}

TEST(InitialGains, OfZeroLetNoGradientPass) {
  const TheoryResult result = RunAnalysis(Find("initialization"), {});
  EXPECT_EQ(NumberIn(result.tables[0], 0, 2), 0);
  EXPECT_EQ(NumberIn(result.tables[0], 0, 3), 0);
  EXPECT_GT(NumberIn(result.tables[0], 1, 2), 1);
  EXPECT_EQ(result.statements[0].verdict, TheoryVerdict::kHoldsCorrected);
}

TEST(Analyses, AreTheSameForASeed) {
  for (const TheoryAnalysis& analysis : Analyses()) {
    const std::map<std::string, std::map<std::string, double>> sizes = {
        {"gradients", {{"rows", 500}}},
        {"theorem2", {{"elements", 500}}},
        {"geometry", {{"largest", 6}, {"cases", 8}}},
        {"invariance", {{"units", 8}, {"inputs", 4}, {"cases", 8}, {"steps", 2}}},
        {"reparametrization", {{"units", 5}, {"cases", 4}}},
        {"initialization", {{"units", 5}, {"cases", 4}}},
        {"stability", {{"units", 4}, {"steps", 8}, {"seeds", 2}}},
        {"implicit-lr", {{"width", 5}, {"cases", 20}, {"batch", 8}, {"steps", 3}, {"seeds", 2}}},
        {"shift", {{"width", 5}, {"cases", 20}, {"batch", 8}, {"steps", 3}, {"seeds", 2}}}};
    std::map<std::string, double> few = sizes.at(analysis.name);
    const auto once = ToJson(RunAnalysis(analysis, few)).dump();
    EXPECT_EQ(ToJson(RunAnalysis(analysis, few)).dump(), once);
    few["seed"] = 2;
    EXPECT_NE(ToJson(RunAnalysis(analysis, few)).dump(), once);
  }
}

TEST(Result, HasTextAndJson) {
  TheoryResult result{.name = "n", .title = "Title"};
  result.settings = {{"rows", 3}};
  result.statements = {{"Source", "Statement.", TheoryVerdict::kFails, "because"}};
  result.tables = {{"Caption", {"a", "b"}, {{"x", 0.123456}, {"y", NAN}}}};
  result.charts = {{"Heading", "x", "y", true, false, {{"line", {{1, 2}, {3, 4}}}}}};
  EXPECT_EQ(RenderTheory(result),
            "Title\n\nCaption\n  a      b\n  x  0.123\n  y      -\n\n"
            "Statement. (Source)\n  does not hold\n  because\n");
  EXPECT_EQ(
      ToJson(result).dump(),
      R"({"analysis":"n","title":"Title","settings":{"rows":3},"statements":[{"source":)"
      R"("Source","text":"Statement.","verdict":"does not hold","measured":"because"}],)"
      R"("tables":[{"caption":"Caption","head":["a","b"],"rows":[["x",0.123456],["y",null]]}],)"
      R"("charts":[{"heading":"Heading","x_label":"x","y_label":"y","log_x":true,"log_y":false,)"
      R"("lines":[{"name":"line","points":[[1.0,2.0],[3.0,4.0]]}]}]})");
}

TEST(Result, SurvivesJson) {
  for (const TheoryAnalysis& analysis : {Find("theorem2"), Find("gradients")}) {
    const TheoryResult result =
        RunAnalysis(analysis, {{analysis.name == "gradients" ? "rows" : "elements", 500}});
    const auto json = ToJson(result);
    EXPECT_EQ(ToJson(TheoryFromJson(json)).dump(), json.dump());
  }
  TheoryResult gap{.name = "n", .title = "Title"};
  gap.tables = {{"Caption", {"a"}, {{NAN}}}};
  gap.charts = {{"Heading", "x", "y", true, false, {{"line", {{1, INFINITY}}}}}};
  EXPECT_EQ(ToJson(TheoryFromJson(ToJson(gap))).dump(), ToJson(gap).dump());
}

TEST(Result, FilesAreFound) {
  const TestFolder folder;
  const auto write = [&](const std::string& name, const std::string& text) {
    std::filesystem::create_directories((folder / name).parent_path());
    WriteFile(folder / name, text);
  };
  const std::string first = ToJson({.name = "first", .title = "First"}).dump();
  const std::string second = ToJson({.name = "second", .title = "Second"}).dump();
  write("theory/b/2.json", second);
  write("theory/1.json", first);
  write("theory/other.json", R"({"rows": 3})");
  write("theory/1.txt", first);
  write("runs/run/config.json", "{}");
  write("runs/run/analysis.json", first);
  write("runs/3.json", second);
  write("bad/cut.json", first.substr(0, 60));
  write("bad/verdict.json",
        R"({"analysis":"n","title":"","settings":{},"statements":[{"source":"","text":"",)"
        R"("verdict":"perhaps","measured":""}],"tables":[],"charts":[]})");
  write("bad/row.json", R"({"analysis":"n","title":"","settings":{},"statements":[],"charts":[],)"
                        R"("tables":[{"caption":"","head":["a","b"],"rows":[["x"]]}]})");
  const auto names = [](const FoundTheory& found) {
    std::string text;
    for (const TheoryResult& result : found.results) text += result.name + " ";
    return text;
  };
  FoundTheory found = FindTheoryResults({folder / "theory", folder / "theory/1.json"});
  EXPECT_EQ(names(found), "first second ");
  EXPECT_EQ(found.roots.size(), 2u);
  // A result of two folders counts once, and both are its roots.
  write("copies/1.json", first);
  found = FindTheoryResults({folder / "theory", folder / "copies"});
  EXPECT_EQ(names(found), "first second ");
  EXPECT_EQ(found.roots.size(), 2u);
  found = FindTheoryResults({folder / "runs"});
  EXPECT_EQ(names(found), "second first ");
  EXPECT_TRUE(found.roots.empty());
  found = FindTheoryResults({folder / "bad", folder / "none", folder / "theory/1.txt"});
  EXPECT_EQ(names(found), "");
  ASSERT_EQ(found.faults.size(), 3u);
  for (const std::string& fault : found.faults) {
    EXPECT_NE(fault.find(".json is no result of planish analyze: "), std::string::npos) << fault;
  }
  // A file that is named is never passed over in silence.
  EXPECT_EQ(FindTheoryResults({folder / "theory/other.json"}).faults.size(), 1u);
}

}  // namespace
}  // namespace planish::lab
