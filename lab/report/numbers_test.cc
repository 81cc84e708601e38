#include "lab/report/numbers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "lab/analysis/arena.h"
#include "lab/analysis/test_runs.h"
#include "lab/report/export.h"
#include "lab/report/report.h"

namespace planish::lab {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<Json>& Table(const std::vector<NumbersTable>& tables, const std::string& name) {
  const auto table = std::ranges::find(tables, name, &NumbersTable::name);
  if (table == tables.end()) throw std::out_of_range(name);
  return table->rows;
}

TEST(NumbersTest, HaveTheValuesOfThePaperAndTheRuns) {
  Runs runs;
  const double layer[] = {.770, .781, .779}, none[] = {.751, .760, .755};
  for (int64_t seed = 1; seed <= 3; ++seed) {
    runs.push_back(ColumnRun("rt", "layer", seed, layer[seed - 1], "rt"));
    runs.push_back(ColumnRun("rt", "none", seed, none[seed - 1], "rt"));
  }
  const std::vector<NumbersTable> tables = NumbersOf(runs, {});
  EXPECT_EQ(Table(tables, "groups").size(), 2u);
  const std::vector<Json>& cells = Table(tables, "paper_tables");
  const auto cell = std::ranges::find_if(cells, [](const Json& row) {
    return row["table"] == "Table 1" && row["norm"] == "layer" && row["column"] == "RT";
  });
  ASSERT_NE(cell, cells.end());
  EXPECT_EQ((*cell)["printed"], 77.21);
  EXPECT_NEAR((*cell)["printed_difference"].get<double>(), 77.21 - 76.85, 1e-12);
  EXPECT_EQ((*cell)["verdict"], "agrees");
  // scipy.stats.ttest_rel of 77, 78.1, 77.9 and 75.1, 76, 75.5
  EXPECT_NEAR((*cell)["difference"]["mean"].get<double>(), 6.4 / 3, 1e-12);
  EXPECT_NEAR((*cell)["difference"]["p"].get<double>(), 0.004606643479995603, 1e-9);
  EXPECT_EQ((*cell)["difference"]["seeds"], 3);
  EXPECT_EQ((*cell)["unit"], "points");
  EXPECT_EQ((*cell)["difference"]["unit"], "points");
  const std::vector<Json>& claims = Table(tables, "paper_claims");
  EXPECT_EQ(claims.size(), FindPaper("xu2019").claims.size());
  const std::vector<Json>& metrics = Table(tables, "metrics");
  ASSERT_EQ(metrics.size(), 3u);
  EXPECT_EQ(metrics[2]["metric"], "test_accuracy");
  EXPECT_EQ(metrics[2]["unit"], "%");
  EXPECT_EQ(metrics[2]["lower_is_better"], false);
  const std::vector<Json>& differences = Table(tables, "differences");
  EXPECT_FALSE(Table(tables, "curves").empty());
  EXPECT_LE(differences.size(), 1u);
  // One row for each column, and CSV with as many lines.
  const std::string csv = CsvOf(cells);
  EXPECT_EQ(std::ranges::count(csv, '\n'), std::ssize(cells) + 1);
  const Json json = Json::parse(NumbersJson(tables));
  EXPECT_EQ(json["format"], "planish-report/1");
  for (const NumbersTable& table : tables) EXPECT_EQ(json[table.name].size(), table.rows.size());
}

TEST(NumbersTest, HaveThePowerOfThePapersClaims) {
  Runs runs;
  const double layer[] = {.770, .781, .779}, none[] = {.751, .760, .755};
  for (int64_t seed = 1; seed <= 3; ++seed) {
    runs.push_back(ColumnRun("rt", "layer", seed, layer[seed - 1], "rt"));
    runs.push_back(ColumnRun("rt", "none", seed, none[seed - 1], "rt"));
  }
  std::vector<Json> rows = Table(NumbersOf(runs, {}), "power");
  ASSERT_EQ(rows.size(), 1u);
  const Json& row = rows[0];
  EXPECT_EQ(row["number"], 1);
  EXPECT_EQ(row["column"], "RT");
  EXPECT_NEAR(row["printed_difference"].get<double>(), 77.21 - 76.85, 1e-12);
  EXPECT_NEAR(row["deviation"].get<double>(), 0.2516611478423583, 1e-9);  // numpy.std, ddof=1
  EXPECT_EQ(row["unit"], "points");
  EXPECT_EQ(row["seeds"], 3);
  EXPECT_NEAR(row["needed"].get<int>(), 7, 1);  // scipy.stats.nct, as in power_test.cc
  EXPECT_EQ(row["decided"], true);
  EXPECT_TRUE(row["more_minutes"].is_null());
  // The same interval is not sure at an early look.
  const SequentialTests looks{"xu2019",
                              {{"rt", {{"layer", 1}, {"none", -1}}, 40, {{3, 0.0046, 1e-12, 0}}}}};
  rows = Table(NumbersOf(runs, {.looks = {looks}}), "power");
  EXPECT_EQ(rows.at(0)["decided"], false);
  // Training takes 8 seconds a run.
  const double missing = rows[0]["needed"].get<int>() - 3;
  EXPECT_NEAR(rows[0]["more_minutes"].get<double>(), missing * 2 * 8 / 60, 1e-9);
}

// Returns the run with predictions of 1,000 test sentences that have its accuracy: right ones from
// the sentence `shift` on, then wrong ones.
Run WithPredictions(Run run, size_t shift) {
  const double accuracy = run.result->best->values.at("test_accuracy");
  std::vector<int64_t> labels(1000), answers(1000, 1);
  for (size_t i = 0; i < labels.size(); ++i) {
    if (static_cast<double>(i) < 1000 * accuracy - 0.5) answers[(i + shift) % 1000] = 0;
  }
  run.predictions =
      std::make_shared<Predictions>(PredictionsOf({"label", "prediction"}, {labels, answers}));
  return run;
}

TEST(NumbersTest, HaveIntervalsOverSeedsAndItems) {
  Runs runs;
  const double layer[] = {.770, .781, .779}, none[] = {.751, .760, .755};
  for (int64_t seed = 1; seed <= 3; ++seed) {
    // The norms are right on other items: the second interval is much wider than the first.
    runs.push_back(WithPredictions(ColumnRun("rt", "layer", seed, layer[seed - 1], "rt"), 0));
    runs.push_back(WithPredictions(ColumnRun("rt", "none", seed, none[seed - 1], "rt"), 500));
  }
  const auto cell_of = [](const std::vector<NumbersTable>& tables) {
    for (const Json& row : Table(tables, "paper_tables")) {
      if (row["norm"] == "layer" && row["column"] == "RT" && row.contains("difference")) {
        return row["difference"];
      }
    }
    throw std::out_of_range("no cell");
  };
  const Json difference = cell_of(NumbersOf(runs, {}));
  const Json& items = difference["seeds_and_items"];
  EXPECT_GT(difference["low"], 0);
  EXPECT_LT(items["low"], 0);
  EXPECT_GT(items["high"], difference["high"]);
  EXPECT_EQ(items["items"], 1000);
  EXPECT_EQ(items["left_out"], "");
  EXPECT_EQ(Table(NumbersOf(runs, {}), "paper_claim_columns")[0]["difference"]["seeds_and_items"],
            items);
  const std::string page = RenderReport(runs);
  EXPECT_THAT(page, HasSubstr("over seeds and test items: −"));
  EXPECT_THAT(page, HasSubstr(", includes 0"));
  EXPECT_THAT(page, Not(HasSubstr("without predictions")));

  runs[3].predictions = nullptr;
  const Json left_out = cell_of(NumbersOf(runs, {}))["seeds_and_items"];
  EXPECT_TRUE(left_out["low"].is_null());
  EXPECT_EQ(left_out["left_out"], "1 of 6 runs have no usable predictions");
  EXPECT_THAT(RenderReport(runs), HasSubstr("1 run without predictions for the test items, of 6:"));
}

TEST(NumbersTest, SayWhyValuesAfterTheLastStepHaveNoIntervalOverItems) {
  Runs runs;
  for (int64_t seed = 1; seed <= 3; ++seed) {
    const double noise = 0.001 * static_cast<double>(seed % 2);
    runs.push_back(ColumnRun("enwik8", "layer", seed, 1.5, "a part", 1.1 + noise, 1.4));
    runs.push_back(ColumnRun("enwik8", "layer-simple", seed, 1.6, "a part", 1.2, 1.3));
  }
  const std::vector<NumbersTable> tables = NumbersOf(runs, {});
  int curves = 0;
  for (const Json& row : Table(tables, "paper_claim_columns")) {
    const Json& items = row["difference"]["seeds_and_items"];
    EXPECT_TRUE(items["low"].is_null());
    EXPECT_EQ(items["left_out"], "no predictions are saved for this metric");
    curves += row["number"] == 4 || row["number"] == 5;
  }
  EXPECT_EQ(curves, 2);
  const std::string page = RenderReport(runs);
  EXPECT_THAT(page, HasSubstr("They have no interval over seeds and test items"));
  EXPECT_THAT(page, HasSubstr("After the last step, training loss has no interval over seeds and "
                              "test items: no predictions are saved for this metric."));
}

TEST(NumbersTest, HaveTheRankingOfTunedRuns) {
  Runs runs;
  for (const auto& [norm, error] : {std::pair("layer", 0.1), {"none", 0.2}}) {
    for (const double rate : {0.1, 0.2}) {
      for (const int64_t seed : {kFirstTuningSeed, int64_t{1}, int64_t{2}}) {
        if (seed < kFirstTuningSeed && rate != 0.1) continue;
        runs.push_back(
            FinishedRun(norm, 4, seed, {error + rate + 0.001 * static_cast<double>(seed % 7)}));
        runs.back().config.settings["lr"] = rate;
        runs.back().folder += "-" + std::to_string(rate);
      }
    }
  }
  const std::vector<NumbersTable> tables = NumbersOf(runs, {});
  const std::vector<Json>& entries = Table(tables, "arena");
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0]["entry"], "layer");
  EXPECT_EQ(entries[0]["rank"], 1);
  EXPECT_EQ(entries[0]["lr"], 0.1);
  EXPECT_EQ(Table(tables, "tuning").size(), 4u);
  EXPECT_EQ(entries[1]["behind"]["seeds_and_items"]["left_out"],
            "4 of 4 runs have no usable predictions");
}

TEST(NumbersTest, HaveTheTheory) {
  TheoryResult result{.name = "shift",
                      .title = "Shift",
                      .statements = {{"section 1", "It holds.", TheoryVerdict::kHolds, "0.5"}},
                      .tables = {{"values", {"norm", "shift"}, {{"layer", 0.25}, {"none", NAN}}}},
                      .charts = {}};
  const std::vector<NumbersTable> tables = NumbersOf({}, {.theory = {result}});
  EXPECT_EQ(Table(tables, "theory_statements")[0]["verdict"], "holds");
  const std::vector<Json>& values = Table(tables, "theory_values");
  ASSERT_EQ(values.size(), 4u);
  EXPECT_EQ(values[1]["value"], 0.25);
  EXPECT_TRUE(values[3]["value"].is_null());
  EXPECT_THAT(NumbersJson(tables), HasSubstr("\"groups\": []"));
  EXPECT_EQ(CsvOf(Table(tables, "groups")), "\r\n");
}

}  // namespace
}  // namespace planish::lab
