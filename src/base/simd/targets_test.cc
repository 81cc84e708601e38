#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "planish/norm.h"
#include "planish/target.h"

namespace planish {
namespace {

std::string Joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

TEST(TargetTest, TheBestIsInUse) {
  ASSERT_FALSE(Targets().empty());
  EXPECT_EQ(Target(), Targets().front());
}

TEST(TargetTest, EachMayBeSet) {
  const std::string before = Target();
  for (const std::string& target : Targets()) {
    SetTarget(target);
    EXPECT_EQ(Target(), target);
    const float x[] = {1, 3};
    float y[2] = {};
    NormForward<float>(Norm::kLayer, {.rows = 1, .cols = 2, .x = x, .y = y}, {.eps = 0});
    EXPECT_EQ(y[0], -1) << target;
    EXPECT_EQ(y[1], 1) << target;
  }
  SetTarget(before);
}

TEST(TargetTest, OtherNamesAreErrors) {
  const std::string before = Target();
  for (const std::string name : {"", "avx2", "AVX7", "best"}) {
    try {
      SetTarget(name);
      FAIL() << "no error for " << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), "[SetTarget] target must be one of " + Joined(Targets()) +
                                  ", got \"" + name + "\"");
    }
    EXPECT_EQ(Target(), before);
  }
}

}  // namespace
}  // namespace planish
