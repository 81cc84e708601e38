// C++20 code that includes planish/planish.h for the C++ headers, as it could before that header
// became the C interface, still compiles. Remove the test with the include in planish/planish.h.
#include <gtest/gtest.h>
#include <planish/planish.h>

#include <vector>

namespace {

TEST(OldIncludeTest, PlanishHasTheCppHeaders) {
  const std::vector<float> x = {1, 3};
  std::vector<float> y(2);
  planish::NormForward<float>(planish::Norm::kLayer,
                              {.rows = 1, .cols = 2, .x = x.data(), .y = y.data()}, {.eps = 0});
  EXPECT_EQ(y, (std::vector<float>{-1, 1}));
  EXPECT_EQ(planish::RnnSavedSize<float>(planish::Cell::kRnn, {1, 1, 1, 1}), 0);
  EXPECT_STREQ(planish_version(), PLANISH_VERSION);
}

}  // namespace
