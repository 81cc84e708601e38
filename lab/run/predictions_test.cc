#include "lab/run/predictions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "lab/data/test_files.h"
#include "lab/run/gzip.h"

namespace planish::lab {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kAll = int64_t{1} << 30;

// Returns the error of UnpackPredictions for a table.
std::string FaultOfTable(const std::string& text) {
  try {
    UnpackPredictions(Gzip(text));
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "";
}

TEST(Predictions, AreACsvTable) {
  const Predictions predictions = PredictionsOf({"label", "prediction"}, {{7, 0, 2}, {7, 1, 2}});
  const std::string packed = PackPredictions(predictions);
  EXPECT_EQ(UnpackGzip(packed, kAll), "label,prediction\n7,7\n0,1\n2,2\n");
  EXPECT_EQ(UnpackPredictions(packed), predictions);
  EXPECT_EQ(*predictions.Find("prediction"), (std::vector<int64_t>{7, 1, 2}));
  EXPECT_EQ(predictions.Find("item"), nullptr);
}

TEST(Predictions, AreOrderedByItem) {
  Predictions predictions = PredictionsOf({"label"}, {{1, 2, 3}});
  predictions.items = {5, 0, 9};
  const std::string packed = PackPredictions(predictions);
  EXPECT_EQ(UnpackGzip(packed, kAll), "item,label\n0,2\n5,1\n9,3\n");
  EXPECT_EQ(UnpackPredictions(packed), (Predictions{{"label"}, {{2, 1, 3}}, {0, 5, 9}}));
  predictions.items = {2, 0, 1};  // numbered once they are in order
  EXPECT_EQ(UnpackGzip(PackPredictions(predictions), kAll), "label\n2\n3\n1\n");
}

TEST(Predictions, KeepLargeValuesAndASingleItem) {
  constexpr int64_t kLargest = 0x7fffffffffffffff;
  Predictions predictions = PredictionsOf({"a"}, {{kLargest}});
  EXPECT_EQ(UnpackPredictions(PackPredictions(predictions)), predictions);
  predictions.items = {kLargest};
  EXPECT_EQ(UnpackPredictions(PackPredictions(predictions)), predictions);
}

TEST(Predictions, RefuseOtherTables) {
  EXPECT_EQ(FaultOfTable(""), "its last line has no end");
  EXPECT_EQ(FaultOfTable("label\n1"), "its last line has no end");
  EXPECT_EQ(FaultOfTable("label\n"), "it has no rows");
  EXPECT_EQ(FaultOfTable("item\n1\n"), "it has only the column item");
  EXPECT_THAT(FaultOfTable("\n1\n"), StartsWith("line 1 must have the distinct names"));
  EXPECT_THAT(FaultOfTable("a,a\n1,1\n"), StartsWith("line 1 must have the distinct names"));
  EXPECT_EQ(FaultOfTable("a,b\n1\n"), "line 2 must have 2 fields, got 1");
  EXPECT_EQ(FaultOfTable("a\n1\n\n2\n"), "line 3: the fields must be whole numbers, got \"\"");
  for (const std::string field : {"-1", "1.5", "x", " 1", "9223372036854775808", "1\r"}) {
    EXPECT_THAT(FaultOfTable("a\n" + field + "\n"), HasSubstr("must be whole numbers")) << field;
  }
  EXPECT_EQ(FaultOfTable("item,a\n3,1\n3,1\n"), "line 3: items must ascend, got 3 after 3");
  EXPECT_THAT(FaultOfTable("item,a\n-1,1\n"), HasSubstr("must be whole numbers"));
}

TEST(Predictions, RefuseDamagedFiles) {
  const std::string packed = PackPredictions(PredictionsOf({"label"}, {{1, 2, 3}}));
  for (size_t size = 0; size < packed.size(); ++size) {
    EXPECT_THROW(UnpackPredictions(packed.substr(0, size)), std::invalid_argument) << size;
  }
  EXPECT_THROW(UnpackPredictions("label\n1\n"), std::invalid_argument);
  EXPECT_THROW(UnpackPredictions(packed + "x"), std::invalid_argument);
  const std::string large = Gzip(std::string(kMaxPredictionsBytes + 1, '1'));
  EXPECT_THROW(UnpackPredictions(large), std::invalid_argument);
}

}  // namespace
}  // namespace planish::lab
