// The C interface for GPUs in a library that is built without CUDA.
#include <gtest/gtest.h>

#include <string>

#include "src/c/testing.h"
#include "src/norm/arguments.h"
#include "src/norm/recipe.h"

namespace planish {
namespace {

TEST(CNoCudaTest, CallsReturnTheirCode) {
  EXPECT_EQ(planish_cuda_devices(), 0);
  alignas(16) char memory[4096];
  planish_cuda_norm_options options;
  ASSERT_EQ(planish_cuda_norm_options_init(&options, sizeof options), PLANISH_OK);
  options.workspace = memory;
  options.workspace_bytes = sizeof memory;
  float x[6] = {1, 2, 3, 4, 5, 9};
  planish_norm_forward_args args;
  ASSERT_EQ(planish_norm_forward_args_init(&args, sizeof args), PLANISH_OK);
  args.type = PLANISH_FLOAT;
  args.rows = 2;
  args.cols = 3;
  args.x = args.y = x;
  EXPECT_EQ(planish_cuda_norm_forward(PLANISH_NORM_LAYER, &args, &options), PLANISH_NO_CUDA);
  EXPECT_STREQ(planish_error_message(),
               "[planish_cuda_norm_forward] Planish was built without CUDA; build it with "
               "PLANISH_CUDA=ON");
  // Arguments are checked first.
  args.rows = -1;
  EXPECT_EQ(planish_cuda_norm_forward(PLANISH_NORM_LAYER, &args, &options),
            PLANISH_INVALID_ARGUMENT);
  EXPECT_STREQ(planish_error_message(),
               "[planish_cuda_norm_forward] rows must be at least 0, got -1");
}

}  // namespace
}  // namespace planish
