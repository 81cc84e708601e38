#include "lab/engine/sweep.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/engine/toy_task.h"
#include "lab/error.h"

namespace planish::lab {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Folders(const SweepRequest& request) {
  static const ToyTask task;
  std::vector<std::string> folders;
  for (const RunPlan& plan : PlanSweep(task, request)) folders.push_back(plan.folder.string());
  return folders;
}

std::string ErrorOf(const SweepRequest& request) {
  try {
    Folders(request);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "no error";
}

TEST(Sweep, HasARunForEachCombinationAndSeed) {
  EXPECT_THAT(
      Folders({.values = {{"norm", {"none", "layer"}}, {"batch_size", {"8", "4"}}},
               .seeds = {1, 2},
               .out = "o"}),
      ElementsAre("o/toy/paper-none-b8-s1", "o/toy/paper-none-b4-s1", "o/toy/paper-layer-b8-s1",
                  "o/toy/paper-layer-b4-s1", "o/toy/paper-none-b8-s2", "o/toy/paper-none-b4-s2",
                  "o/toy/paper-layer-b8-s2", "o/toy/paper-layer-b4-s2"));
}

TEST(Sweep, NamesSettingsThatDifferFromThePreset) {
  EXPECT_THAT(
      Folders({.values = {{"lr", {"0.01", "0.001"}}, {"epochs", {"3"}}}, .seeds = {7}, .out = "o"}),
      ElementsAre("o/toy/paper-none-b5-lr=0.01-s7", "o/toy/paper-none-b5-s7"));
}

TEST(Sweep, UsesTheFirstPresetByDefault) {
  SweepRequest request{.values = {}, .seeds = {7}, .out = "o"};
  const ToyTask task;
  const RunPlan plan = PlanSweep(task, request).front();
  EXPECT_EQ(plan.preset, "paper");
  EXPECT_EQ(plan.settings.Int("batch_size"), 5);  // the preset's value, not the default
}

TEST(Sweep, RefusesInvalidRequests) {
  EXPECT_EQ(ErrorOf({.preset = "huge", .seeds = {1}}),
            "[train] preset must be one of paper, got \"huge\"");
  EXPECT_EQ(ErrorOf({.values = {{"norm", {"none"}}, {"norm", {"layer"}}}, .seeds = {1}}),
            "[train] norm must be given once, got several lists: write norm=A,B");
  EXPECT_EQ(ErrorOf({.values = {{"lr", {"0.1", "1e-1"}}}, .seeds = {1}}),
            "[train] lr must name each value once, got 1e-1 twice");
  EXPECT_THAT(ErrorOf({.values = {{"norm", {"group"}}}, .seeds = {1}}),
              ::testing::HasSubstr("norm must be one of"));
}

TEST(AddComparedValues, AddsTheNormsUnlessOneIsNamed) {
  const ToyTask task;
  SweepRequest request{.values = {{"lr", {"0.1"}}}, .seeds = {1}};
  AddComparedValues(task, request);
  ASSERT_EQ(request.values.size(), 2u);
  EXPECT_EQ(request.values[0].first, "norm");  // varies slowest
  EXPECT_THAT(request.values[0].second, ElementsAre("none", "layer"));
  AddComparedValues(task, request);
  EXPECT_EQ(request.values.size(), 2u);
  request.values = {{"norm", {"layer"}}};
  AddComparedValues(task, request);
  EXPECT_THAT(request.values.front().second, ElementsAre("layer"));
}

TEST(NormSetting, ComparesAllButAblations) {
  EXPECT_THAT(
      NormSetting({"none", "detach", "layer", "detach-mean", "ada", "ada-as-coded"}).compared,
      ElementsAre("none", "layer", "ada"));
}

// Planning is linear in the number of values: a quadratic one takes seconds.
TEST(Sweep, PlansTenThousandValues) {
  std::vector<std::string> rates;
  for (int i = 1; i <= 10'000; ++i) rates.push_back(std::to_string(i) + "e-6");
  SweepRequest request{.values = {{"lr", rates}}, .seeds = {1}, .out = "o"};
  const std::vector<std::string> folders = Folders(request);
  ASSERT_EQ(folders.size(), 10'000u);
  EXPECT_EQ(folders[2999], "o/toy/paper-none-b5-lr=0.003-s1");
  request.values[0].second.push_back("3e-3");
  EXPECT_EQ(ErrorOf(request), "[train] lr must name each value once, got 3e-3 twice");
}

TEST(SplitList, SplitsAtCommas) {
  EXPECT_THAT(SplitList("--norm", "a"), ElementsAre("a"));
  EXPECT_THAT(SplitList("--norm", "a,b,c"), ElementsAre("a", "b", "c"));
  for (const char* text : {"", ",", "a,", ",a", "a,,b"})
    EXPECT_THROW(SplitList("--norm", text), UsageError) << text;
}

TEST(Sweep, RefusesMoreRunsThanItsLimit) {
  std::vector<std::string> numbers;
  for (int i = 1; i <= 400; ++i) numbers.push_back(std::to_string(i));
  SweepRequest request{.values = {{"lr", numbers}}, .seeds = {1}, .out = "o"};
  EXPECT_EQ(Folders(request).size(), 400u);
  request.values.emplace_back("epochs", numbers);
  EXPECT_EQ(ErrorOf(request), "[train] a sweep must have at most 100000 runs, got more");
}

}  // namespace
}  // namespace planish::lab
