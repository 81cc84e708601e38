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

// Another compiler, or another version of Highway, adds none.
TEST(TargetTest, OnlyListedTargetsAreCompiled) {
#if defined(__x86_64__)
  const std::vector<std::string> listed = {"AVX3", "AVX2", "SSE4", "SCALAR"};
#elif defined(__aarch64__)
  const std::vector<std::string> listed = {"NEON", "NEON_WITHOUT_AES", "SCALAR"};
#else
  const std::vector<std::string> listed = {"SCALAR"};
#endif
  auto next = listed.begin();
  for (const std::string& target : Targets()) {  // in this order
    next = std::find(next, listed.end(), target);
    ASSERT_NE(next, listed.end()) << Joined(Targets());
  }
  EXPECT_EQ(Targets().back(), "SCALAR");
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
