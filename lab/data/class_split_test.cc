#include "lab/data/class_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace planish::lab {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string_view> LabelsOf(const Classes& classes) {
  std::vector<std::string_view> labels;
  for (const Class& of : classes.classes) labels.push_back(of.label);
  return labels;
}

// Returns `count` cases of each of the labels, in turn.
std::vector<std::string_view> InTurn(const std::vector<std::string_view>& labels, int count) {
  std::vector<std::string_view> all;
  for (int i = 0; i < count; ++i) all.insert(all.end(), labels.begin(), labels.end());
  return all;
}

// Returns all cases of a split in order.
std::vector<size_t> Sorted(const ClassSplit& split) {
  std::vector<size_t> all;
  for (const auto& set : split.cases) all.insert(all.end(), set.begin(), set.end());
  std::ranges::sort(all);
  return all;
}

TEST(RoleOf, KnowsTheNamesOfSets) {
  EXPECT_EQ(RoleOf("Training"), kTrain);
  EXPECT_EQ(RoleOf("dev"), kValid);
  EXPECT_EQ(RoleOf("VAL"), kValid);
  EXPECT_EQ(RoleOf("test"), kTest);
  EXPECT_EQ(RoleOf("tests"), std::nullopt);
  EXPECT_EQ(RoleOf(""), std::nullopt);
}

TEST(NumberClasses, OrdersNumbersByValueAndTextsByBytes) {
  const std::vector<std::string_view> numbers = {"10", "9", "-1", "9"};
  const Classes classes = NumberClasses(numbers);
  EXPECT_THAT(LabelsOf(classes), ElementsAre("-1", "9", "10"));
  EXPECT_THAT(classes.of_case, ElementsAre(2, 1, 0, 1));
  EXPECT_EQ(classes.Text(), "3 classes: \"-1\" (1), \"9\" (2), \"10\" (1)");
  const std::vector<std::string_view> texts = {"10", "9", "b", "B"};
  EXPECT_THAT(LabelsOf(NumberClasses(texts)), ElementsAre("10", "9", "B", "b"));
  EXPECT_THAT(LabelsOf(NumberClasses({})), IsEmpty());
}

TEST(NumberClasses, FindsTheFirstSingleCase) {
  const std::vector<std::string_view> labels = {"b", "c", "b", "a"};
  EXPECT_EQ(NumberClasses(labels).Single()->label, "c");
  const std::vector<std::string_view> twice = {"b", "b", "a", "a"};
  EXPECT_EQ(NumberClasses(twice).Single(), nullptr);
}

TEST(SplitByClass, TakesTheSameShareOfEachClass) {
  const std::vector<std::string_view> labels = InTurn({"a", "b"}, 50);
  const Classes classes = NumberClasses(labels);
  const ClassSplit split = SplitByClass({.seed = 3, .valid_share = 0.1, .test_share = 0.2}, classes,
                                        std::vector<Role>(labels.size(), kTrain));
  EXPECT_EQ(split.cases[kTrain].size(), 70u);
  EXPECT_EQ(split.cases[kValid].size(), 10u);
  EXPECT_EQ(split.cases[kTest].size(), 20u);
  for (const size_t i : {kTrain, kValid, kTest}) {
    const auto of_a =
        std::ranges::count_if(split.cases[i], [&](size_t c) { return classes.of_case[c] == 0; });
    EXPECT_EQ(2 * of_a, std::ssize(split.cases[i])) << i;
  }
  std::vector<size_t> all(labels.size());
  std::iota(all.begin(), all.end(), size_t{0});
  EXPECT_EQ(Sorted(split), all);
  EXPECT_EQ(split.untrained, std::nullopt);
  EXPECT_EQ(split.description,
            "valid_share=0.1 and test_share=0.2 at random in each class "
            "(split_seed=3)");
}

TEST(SplitByClass, KeepsATrainingCaseOfEachClass) {
  const std::vector<std::string_view> labels = InTurn({"a", "b", "c"}, 2);
  const ClassSplit split =
      SplitByClass({.valid_share = 0.45, .test_share = 0.45}, NumberClasses(labels),
                   std::vector<Role>(labels.size(), kTrain));
  EXPECT_EQ(split.cases[kTrain].size(), 3u);
  EXPECT_EQ(split.untrained, std::nullopt);
}

TEST(SplitByClass, KeepsGivenSetsAndTheirOrder) {
  const std::vector<std::string_view> labels = InTurn({"a", "b"}, 4);
  const std::vector<Role> roles = {kTrain, kTrain, kTest, kTest, kValid, kValid, kTrain, kTrain};
  const ClassSplit split = SplitByClass({}, NumberClasses(labels), roles);
  EXPECT_THAT(split.cases[kTrain], ElementsAre(0, 1, 6, 7));
  EXPECT_THAT(split.cases[kValid], ElementsAre(4, 5));
  EXPECT_THAT(split.cases[kTest], ElementsAre(2, 3));
  EXPECT_THAT(split.description, IsEmpty());
  ClassSplit shuffled = SplitByClass({.shuffle = true}, NumberClasses(labels), roles);
  std::ranges::sort(shuffled.cases[kTrain]);
  EXPECT_EQ(shuffled.cases[kTrain], split.cases[kTrain]);
}

TEST(SplitByClass, DrawsOnlyTheMissingSet) {
  const std::vector<std::string_view> labels = InTurn({"a", "b"}, 20);
  std::vector<Role> roles(labels.size(), kTrain);
  roles[0] = roles[1] = kTest;
  const ClassSplit split = SplitByClass({}, NumberClasses(labels), roles);
  EXPECT_EQ(split.cases[kTest].size(), 2u);
  EXPECT_EQ(split.cases[kValid].size(), 4u);  // a tenth of the other 38, rounded
  EXPECT_THAT(split.description, HasSubstr("valid_share=0.1 at random"));
}

TEST(SplitByClass, FindsAClassWithoutTrainingCases) {
  const std::vector<std::string_view> labels = {"a", "b", "a", "b", "a"};
  const ClassSplit split =
      SplitByClass({}, NumberClasses(labels), {kTrain, kTest, kTrain, kValid, kTrain});
  EXPECT_EQ(split.untrained, 1u);
}

TEST(SplitByClass, ReducesTrainingToARandomChoiceInItsOrder) {
  const std::vector<std::string_view> labels = InTurn({"a", "b"}, 50);
  const std::vector<Role> roles(labels.size(), kTrain);
  const ClassSplit all = SplitByClass({}, NumberClasses(labels), roles);
  const ClassSplit some = SplitByClass({.max_train = 10}, NumberClasses(labels), roles);
  ASSERT_EQ(some.cases[kTrain].size(), 10u);
  EXPECT_EQ(some.cases[kTest], all.cases[kTest]);
  auto at = all.cases[kTrain].begin();
  for (const size_t i : some.cases[kTrain]) {
    at = std::find(at, all.cases[kTrain].end(), i);
    ASSERT_NE(at, all.cases[kTrain].end());
  }
}

}  // namespace
}  // namespace planish::lab
