#include "lab/analysis/sequential.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <random>

#include "lab/error.h"
#include "lab/testing/test_folder.h"

namespace planish::lab {
namespace {

using testing::DoubleNear;
using testing::Pointwise;

double Level(double z) { return std::erfc(z / std::sqrt(2.0)); }

TEST(SequentialTest, LevelsAreThePublishedOnes) {
  const std::vector<double> levels = LookLevels({0.2, 0.4, 0.6, 0.8, 1});
  // Five equal looks at 5% (R's ldbounds, whose coarse grid is right to 2e-4).
  const double published[] = {4.8769, 3.3569, 2.6803, 2.2898, 2.0310};
  ASSERT_EQ(levels.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_GT(levels[i], Level(published[i] + 2e-4)) << i;
    EXPECT_LT(levels[i], Level(published[i] - 2e-4)) << i;
  }
  // scipy: norm.isf of the spent error, and the root of its integral over the first look (quad).
  const double exact[] = {4.876884948776417, 3.3570119215746317};
  for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(levels[i] / Level(exact[i]), 1, 1e-9) << i;
}

TEST(SequentialTest, LevelsOfNoWorseAreThoseOfOneSidedTests) {
  const std::vector<double> levels = LookLevels({0.2, 0.4, 0.6, 0.8, 1}, kNoWorseError);
  // scipy, as above, for the one-sided error 2 * (1 - Phi(1.96 / sqrt(fraction))).
  const double exact[] = {4.229195059299924, 2.8881365482985726};
  for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(levels[i] / Level(exact[i]), 1, 1e-9) << i;
  EXPECT_THAT(LookLevels({1}, kNoWorseError), Pointwise(DoubleNear(1e-12), {0.10}));
  EXPECT_NEAR(DecidedBy({0.2, 0.4, 0.6, 0.8, 1}, 0, kNoWorseError), 0.10, 1e-9);
}

TEST(SequentialTest, OneLookSpendsAllError) {
  EXPECT_THAT(LookLevels({1}), Pointwise(DoubleNear(1e-12), {0.05}));
  EXPECT_NEAR(SpentError(1), 0.05, 1e-12);
  EXPECT_NEAR(DecidedBy({1}, 0), 0.05, 1e-12);
  // (z(.975) + z(.8)); the far side adds 1e-6 to the power.
  EXPECT_NEAR(DriftFor({1}, 0.8), 1.959963984540054 + 0.8416212335729143, 1e-5);
}

TEST(SequentialTest, AnEarlyLookSpendsNothing) {
  const std::vector<double> levels = LookLevels({0.001, 1});
  EXPECT_EQ(levels[0], 0);
  EXPECT_NEAR(levels[1], 0.05, 1e-9);
}

TEST(SequentialTest, RefusesFractionsThatDoNotRise) {
  EXPECT_THROW(LookLevels({0.5, 0.5}), RunError);
  EXPECT_THROW(LookLevels({0}), RunError);
  EXPECT_THROW(LookLevels({0.5, 1.1}), RunError);
  EXPECT_THROW(LookLevels({std::nan("")}), RunError);
}

// Sums of normal values, looked at after `fractions` of 40.
TEST(SequentialTest, ErrorAndPowerAreThoseOfASimulation) {
  const std::vector<double> fractions = {0.25, 0.3, 0.75, 1};
  const std::vector<double> levels = LookLevels(fractions);
  constexpr int kTrials = 200'000;
  std::mt19937_64 generator(1);
  std::normal_distribution<double> normal;
  EXPECT_NEAR(DecidedBy(fractions, 0), 0.05, 1e-9);
  for (const double drift : {0.0, 2.0}) {
    int decided = 0;
    for (int trial = 0; trial < kTrials; ++trial) {
      double sum = 0, last = 0;
      for (size_t i = 0; i < fractions.size(); ++i) {
        const double step = fractions[i] - std::exchange(last, fractions[i]);
        sum += drift * step + std::sqrt(step) * normal(generator);
        if (Level(std::abs(sum) / std::sqrt(last)) < levels[i]) {
          ++decided;
          break;
        }
      }
    }
    const double expected = DecidedBy(fractions, drift);
    // Four standard deviations of a share of kTrials.
    EXPECT_NEAR(decided / double{kTrials}, expected,
                4 * std::sqrt(expected * (1 - expected) / kTrials));
  }
}

TEST(SequentialTest, PowerIsReachedAtItsDrift) {
  const std::vector<double> fractions = {0.2, 0.4, 0.6, 0.8, 1};
  const double drift = DriftFor(fractions, 0.8);
  EXPECT_NEAR(DecidedBy(fractions, drift), 0.8, 1e-9);
  for (const double error : {kDifferenceError, kNoWorseError}) {
    for (const double power : {error + 0.001, 0.5, 0.999}) {
      EXPECT_NEAR(DecidedBy({0.5, 1}, DriftFor({0.5, 1}, power, error), error), power, 1e-9);
    }
  }
  // Five looks need 2.8% more seeds than one (Jennison and Turnbull 2000, table 2.4, has 1.028 for
  // O'Brien and Fleming's own bounds, which differ in the third decimal).
  EXPECT_NEAR(std::pow(drift / DriftFor({1}, 0.8), 2), 1.028, 0.005);
}

TEST(SequentialTest, ConditionalPowerFollowsFromWhatWasSeen) {
  // Half of the seeds, no effect so far: S(1) is normal with the mean drift / 2 and variance 1/2.
  // The last bound of two equal looks is 1.9686 (ldbounds).
  const double bound = 1.9686;
  for (const double drift : {0.0, 2.8}) {
    const double expected = Level((bound - drift / 2) / std::sqrt(0.5)) / 2 +
                            Level((bound + drift / 2) / std::sqrt(0.5)) / 2;
    EXPECT_NEAR(ConditionalPower({0.5}, 0, drift), expected, 1e-4) << drift;
  }
  EXPECT_GT(ConditionalPower({0.5}, 3, 0), 0.5);
  EXPECT_EQ(ConditionalPower({1}, 3, 0), 0);
}

TEST(SequentialTest, LooksAreWrittenAndRead) {
  const TestFolder folder;
  SequentialTests tests{"xu2019", {}};
  tests.tests.push_back({"rt", {{"layer", 1}, {"none", -1}}, 40, {{5, 0.25, 1e-9, 0}}});
  tests.tests.push_back({"sst5", {{"ada", 1}, {"layer", -1}}, 9, {{5, 0.5, 0.01, 0}}});
  tests.tests[1].looks.push_back({9, 0.03125, 0.05, -1});
  tests.tests.push_back({"rt", {{"layer", 1}, {"none", -1}}, 20, {{5, 0.001, 0.01, 1}}, 0.125});
  WriteLooks(folder / kLooksFile, tests);
  const SequentialTests read = ReadLooks(folder / kLooksFile);
  EXPECT_EQ(read.paper, "xu2019");
  ASSERT_EQ(read.tests.size(), 3u);
  const SequentialTest* const rt = read.Find("rt", {{"layer", 1}, {"none", -1}});
  ASSERT_NE(rt, nullptr);
  EXPECT_EQ(rt->planned, 40);
  EXPECT_EQ(rt->SignOf(rt->contrast), 0);
  EXPECT_THAT(rt->Fractions({40, 50}), testing::ElementsAre(5.0 / 40, 1, 1));
  EXPECT_EQ(rt->looks.at(0).level, 1e-9);
  EXPECT_EQ(read.tests[1].SignOf({{"ada", 1}, {"layer", -1}}), -1);
  EXPECT_EQ(read.tests[1].SignOf({{"layer", 1}, {"ada", -1}}), 1);
  EXPECT_EQ(read.Find("sst5", {{"layer", 1}, {"ada", -1}}), &read.tests[1]);
  EXPECT_EQ(read.tests[1].looks.at(1).p, 0.03125);
  EXPECT_EQ(read.Find("rt", {{"ada", 1}, {"layer", -1}}), nullptr);
  // A test of "no worse" is of one direction, and has nothing to do with that of the difference.
  EXPECT_EQ(read.FindNoWorse("rt", {{"none", -1}, {"layer", 1}}), &read.tests[2]);
  EXPECT_EQ(read.FindNoWorse("rt", {{"none", 1}, {"layer", -1}}), nullptr);
  EXPECT_EQ(read.FindNoWorse("sst5", {{"ada", 1}, {"layer", -1}}), nullptr);
  EXPECT_EQ(read.tests[2].margin, 0.125);
  EXPECT_EQ(read.tests[2].Error(), kNoWorseError);
  EXPECT_FALSE(rt->margin);
  EXPECT_EQ(read.Find("sst5", {{"layer", 1}, {"none", -1}}), nullptr);
}

TEST(SequentialTest, RefusesFilesThatAreNone) {
  const TestFolder folder;
  const std::string head = R"({"format": "planish-looks/1", "paper": "xu2019", "tests": [)";
  const std::string test = R"({"column": "rt", "contrast": {"layer": 1, "none": -1},)";
  for (
      const std::string& text :
      {std::string(), std::string("[]"), std::string("{}"), head,
       std::string(R"({"format": "planish-looks/2", "paper": "xu2019", "tests": []})"),
       head + test + R"("planned_seeds": 0, "looks": []}]})",
       head + test + R"("planned_seeds": 1e99, "looks": []}]})",
       head + test + R"("planned_seeds": 9}]})",
       head + test + R"("margin": 0, "planned_seeds": 9, "looks": []}]})",
       head + test + R"("margin": "x", "planned_seeds": 9, "looks": []}]})",
       head + test +
           R"("planned_seeds": 9, "looks": [{"seeds": 5, "p": 2, "level": 0, "sign": 0}]}]})",
       head + test +
           R"("planned_seeds": 9, "looks": [{"seeds": 5, "p": 0.5, "level": 0.1, "sign": 1}]}]})"}) {
    std::ofstream(folder / kLooksFile) << text;
    EXPECT_THROW(ReadLooks(folder / kLooksFile), RunError) << text;
  }
  EXPECT_THROW(ReadLooks(folder / "absent.json"), RunError);
}

TEST(SequentialTest, FindsTheLooksOfEachPaperOnce) {
  const TestFolder folder;
  for (const char* name : {"a", "b", "c", "d"}) std::filesystem::create_directory(folder / name);
  WriteLooks(folder / "a" / kLooksFile, {"xu2019", {{"rt", {{"layer", 1}, {"none", -1}}, 9, {}}}});
  WriteLooks(folder / "b" / kLooksFile, {"xu2019", {}});
  WriteLooks(folder / "c" / kLooksFile, {"ba2016", {}});
  std::ofstream(folder / "d" / kLooksFile) << "{";
  const FoundLooks found = FindLooks({folder / "."});
  ASSERT_EQ(found.papers.size(), 2u);
  EXPECT_EQ(found.papers[0].tests.size(), 1u);
  EXPECT_EQ(found.papers[1].paper, "ba2016");
  EXPECT_THAT(found.faults, testing::ElementsAre(testing::HasSubstr("another file has looks"),
                                                 testing::HasSubstr("is no file of looks")));
  EXPECT_TRUE(FindLooks({folder / "a" / kLooksFile, folder / "absent"}).papers.empty());
}

}  // namespace
}  // namespace planish::lab
