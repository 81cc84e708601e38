#include "lab/engine/schedule.h"

#include <gtest/gtest.h>

namespace planish::lab {
namespace {

TEST(Schedule, RisesToThePeak) {
  for (const std::string& shape : ScheduleNames()) {
    const Schedule schedule{shape, 0.5, 4};
    EXPECT_DOUBLE_EQ(schedule.Rate(1, 0), 0.125) << shape;
    EXPECT_DOUBLE_EQ(schedule.Rate(3, 0), 0.375) << shape;
    EXPECT_DOUBLE_EQ(schedule.Rate(4, 0), 0.5) << shape;
  }
}

TEST(Schedule, FallsAsNamed) {
  EXPECT_DOUBLE_EQ((Schedule{"constant", 0.5, 0}).Rate(1000, 0.9), 0.5);
  // The square roots of 4/16 and 1/16.
  EXPECT_DOUBLE_EQ((Schedule{"inverse-sqrt", 0.5, 4}).Rate(16, 0.9), 0.25);
  EXPECT_DOUBLE_EQ((Schedule{"inverse-sqrt", 0.5, 0}).Rate(16, 0.9), 0.125);
  const Schedule cosine{"cosine", 0.5, 0};
  EXPECT_DOUBLE_EQ(cosine.Rate(1, 0), 0.5);
  EXPECT_NEAR(cosine.Rate(10, 0.5), 0.25, 1e-16);
  EXPECT_NEAR(cosine.Rate(20, 1), 0, 1e-16);
}

}  // namespace
}  // namespace planish::lab
