#include "planish/version_info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "planish/target.h"
#include "src/base/cuda/device.h"
#include "src/base/tuning.h"

namespace planish {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

std::map<std::string, std::string> Facts() {
  const auto facts = VersionInfo();
  return {facts.begin(), facts.end()};
}

TEST(VersionInfoTest, StatesTheBuild) {
  const auto facts = Facts();
  EXPECT_EQ(facts.at("version"), PLANISH_VERSION);
  EXPECT_THAT(facts.at("compiler"), MatchesRegex("(gcc|clang) [0-9]+.*"));
  EXPECT_THAT(facts.at("cuda"), MatchesRegex("none|[0-9]+\\.[0-9]+"));
  for (const std::string& target : Targets()) EXPECT_THAT(facts.at("targets"), HasSubstr(target));
}

TEST(VersionInfoTest, StatesTargetAndTuningInUse) {
  const std::string before = Target();
  SetTarget("SCALAR");
  EXPECT_EQ(Facts().at("target"), "SCALAR");
  SetTarget(before);
  const internal::ScopedTuning other(internal::TuningFor({}, "l2_bytes=3145728,untiled_rows=7"));
  EXPECT_THAT(Facts().at("tuning"), HasSubstr("l2_bytes=3145728,"));
  EXPECT_THAT(Facts().at("tuning"), HasSubstr(",untiled_rows=7"));
}

}  // namespace
}  // namespace planish
