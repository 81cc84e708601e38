#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>

#include "lab/error.h"
#include "lab/papers/paper.h"

namespace planish::lab {
namespace {

// Names in one part of a paper exist in the other parts.
TEST(Papers, AreConsistent) {
  for (const Paper& paper : Papers()) {
    SCOPED_TRACE(paper.name);
    EXPECT_FALSE(paper.title.empty());
    EXPECT_FALSE(paper.preset.empty());
    std::set<std::string> names;
    for (const PaperColumn& column : paper.columns) {
      SCOPED_TRACE(column.name);
      EXPECT_TRUE(names.insert(column.name).second);
      EXPECT_FALSE(column.metric.empty());
      EXPECT_FALSE(column.train_curve.empty());
      EXPECT_FALSE(column.valid_curve.empty());
      EXPECT_FALSE(column.paper_data.empty());
      EXPECT_GE(column.seeds, 3);
      if (column.runs_of.empty()) {
        EXPECT_GT(column.minutes, 0);
      }
      EXPECT_EQ(std::set<std::string>(column.norms.begin(), column.norms.end()).size(),
                column.norms.size());
    }
    std::set<std::string> norms, printed_only;
    for (const PaperRow& row : paper.rows) {
      EXPECT_TRUE(norms.insert(row.norm).second) << row.norm;
      if (row.printed_only) printed_only.insert(row.norm);
    }
    for (const PaperColumn& column : paper.columns) {
      SCOPED_TRACE(column.name);
      for (const auto& [norm, value] : column.printed) {
        EXPECT_TRUE(norms.contains(norm)) << norm;
        EXPECT_NE(std::ranges::find(column.norms, norm) != column.norms.end(),
                  printed_only.contains(norm))
            << norm;
      }
      if (column.runs_of.empty()) continue;
      const PaperColumn* runs = paper.FindColumn(column.runs_of);
      ASSERT_NE(runs, nullptr);
      EXPECT_TRUE(runs->runs_of.empty());
      EXPECT_EQ(runs->task, column.task);
      EXPECT_EQ(runs->settings, column.settings);
      EXPECT_EQ(runs->norms, column.norms);
    }
    for (const PaperTable& table : paper.tables) {
      EXPECT_FALSE(table.lines.empty()) << table.name;
      for (const std::string& column : table.columns) {
        EXPECT_NE(paper.FindColumn(column), nullptr) << column;
      }
      for (const PaperTable::Line& line : table.lines) {
        EXPECT_TRUE(norms.contains(line.norm)) << line.norm;
        EXPECT_TRUE(line.against.empty() || norms.contains(line.against)) << line.against;
      }
    }
    for (const PaperFigure& figure : paper.figures) {
      for (const std::string& column : figure.columns) {
        EXPECT_NE(paper.FindColumn(column), nullptr) << column;
      }
      for (const std::string& norm : figure.norms) EXPECT_TRUE(norms.contains(norm)) << norm;
    }
    for (const PaperClaim& claim : paper.claims) {
      SCOPED_TRACE(claim.text);
      double sum = 0;
      for (const auto& [norm, weight] : claim.contrast) {
        EXPECT_TRUE(norms.contains(norm)) << norm;
        sum += weight;
      }
      EXPECT_EQ(sum, 0);  // the contrast of equal values is 0
      using Of = PaperClaim::Of;
      EXPECT_TRUE(!claim.no_worse || claim.of == Of::kTest);
      EXPECT_TRUE(claim.against.empty() || paper.FindColumn(claim.against) != nullptr);
      if (claim.of == Of::kSteps || claim.of == Of::kSeconds || claim.of == Of::kSecondsToBest) {
        ASSERT_EQ(claim.contrast.size(), 2u);
        EXPECT_EQ(claim.contrast[0].second, 1);
      }
      for (const std::string& column : claim.columns) {
        EXPECT_NE(paper.FindColumn(column), nullptr) << column;
      }
      EXPECT_GE(claim.min_columns, 1);
      EXPECT_LE(claim.min_columns, static_cast<int>(claim.columns.size()));
    }
  }
}

TEST(Papers, AreFoundByName) {
  EXPECT_EQ(FindPaper("xu2019").columns.size(), 9u);
  try {
    FindPaper("xu");
    FAIL() << "must throw";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "[reproduce] paper must be one of xu2019, ba2016, arena, got \"xu\"");
  }
}

TEST(Papers, GiveThePrintedValues) {
  const Paper& paper = FindPaper("xu2019");
  EXPECT_EQ(paper.Printed("ada", *paper.FindColumn("ptb")), 89.23);
  EXPECT_EQ(paper.Printed("layer", *paper.FindColumn("enwik8")), 1.07);
  EXPECT_TRUE(std::isnan(*paper.Printed("none", *paper.FindColumn("en-de"))));
  EXPECT_EQ(paper.Printed("rms", *paper.FindColumn("ptb")), std::nullopt);
  for (const PaperRow& row : paper.rows) {
    for (const PaperColumn& column : paper.columns) {
      EXPECT_TRUE(paper.Printed(row.norm, column)) << row.norm << " " << column.name;
    }
  }
}

// Texts have no placeholder left, and the printed values support each claim on a column's metric.
TEST(Papers, SupportTheClaimsAboutTasks) {
  int supported = 0;
  for (const Paper& paper : Papers()) {
    for (const TaskClaims& of : paper.task_claims) {
      SCOPED_TRACE(of.column);
      const PaperColumn* column = paper.FindColumn(of.column);
      ASSERT_NE(column, nullptr);
      for (const TaskClaims::Claim& claim : of.claims) {
        SCOPED_TRACE(claim.text);
        EXPECT_THAT(column->norms, testing::IsSupersetOf({claim.better, claim.worse}));
        const auto better = paper.Printed(claim.better, *column);
        const auto worse = paper.Printed(claim.worse, *column);
        if (!claim.metric.empty() || !better || !worse || claim.no_worse) continue;
        EXPECT_TRUE(column->lower_is_better ? *better < *worse : *better > *worse);
        ++supported;
      }
    }
  }
  EXPECT_GT(supported, 40);
  for (const char* task : {"mt", "order-embedding", "skip-thoughts", "draw", "pi-mnist"}) {
    const std::vector<ClaimSpec> claims = ClaimsOf(task);
    EXPECT_FALSE(claims.empty()) << task;
    for (const ClaimSpec& claim : claims) {
      EXPECT_THAT(claim.text + claim.source, testing::Not(testing::HasSubstr("{")));
      EXPECT_FALSE(claim.data.empty()) << claim.text;
    }
  }
  EXPECT_TRUE(ClaimsOf("char-lm").empty());
}

TEST(Papers, PutPrintedValuesIntoTexts) {
  const PaperColumn& enwik8 = *FindPaper("xu2019").FindColumn("enwik8");
  EXPECT_EQ(enwik8.WithPrinted("{detach-std} and {layer}"), "1.10 and 1.07");
  EXPECT_EQ(FindPaper("xu2019").FindColumn("de-en")->WithPrinted("{none}"), "34.0");
  EXPECT_THROW(enwik8.WithPrinted("{rms}"), std::logic_error);
  EXPECT_THROW(enwik8.WithPrinted("{layer"), std::logic_error);
  const std::vector<ClaimSpec> claims = ClaimsOf("rt");
  ASSERT_EQ(claims.size(), 6u);
  EXPECT_EQ(claims[0].source, "Xu et al. 2019, Table 1: 77.21% and 76.85%");
  EXPECT_EQ(claims[0].metric, "test_accuracy");
  EXPECT_EQ(claims[0].data, "rt");
}

TEST(Papers, NameRunsThatColumnsShare) {
  const Paper& ba = FindPaper("ba2016");
  EXPECT_EQ(ba.FindColumn("skip-thoughts")->LabelOfRuns(), "Skip-thoughts");
  EXPECT_EQ(ba.FindColumn("sick-rho")->LabelOfMetric(), "Skip-thoughts, SICK rho");
  EXPECT_EQ(ba.FindColumn("convnet")->LabelOfRuns(), "ConvNet");
  EXPECT_EQ(ba.FindColumn("convnet")->LabelOfMetric(), "ConvNet");
  // Columns of the same runs have one name for them.
  for (const PaperColumn& column : ba.columns) {
    if (column.runs_of.empty()) continue;
    EXPECT_EQ(column.LabelOfRuns(), ba.FindColumn(column.runs_of)->LabelOfRuns()) << column.name;
  }
}

}  // namespace
}  // namespace planish::lab
