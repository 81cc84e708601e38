// A call of the C interface that gets no memory returns PLANISH_OUT_OF_MEMORY and writes nothing,
// whichever allocation fails. A step with packed weights allocates none.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "src/base/allocation_hook.h"
#include "src/c/testing.h"
#include "src/rnn/testing.h"

namespace planish {
namespace {

/// Calls f with memory for 0, 1, 2, ... allocations until it succeeds. Each call is on a new
/// thread, which has no cached workspace.
template <class F>
void FailEveryAllocation(const F& f) {
  for (int count = 0;; ++count) {
    planish_status status = PLANISH_OK;
    std::string message;
    std::thread([&] {
      EXPECT_TRUE(tests::EndsWithAllocations(count, [&] { status = f(); }));
      message = planish_error_message();
    }).join();
    if (status == PLANISH_OK) {
      EXPECT_GT(count, 0) << "nothing is allocated";
      return;
    }
    ASSERT_EQ(status, PLANISH_OUT_OF_MEMORY) << message;
    EXPECT_NE(message.find("] memory could not be allocated"), std::string::npos) << message;
  }
}

TEST(CAllocationTest, NormsWriteNothing) {
  const tests::Problem<float> p(Norm::kLayer, 300, 70);
  tests::Result<float> out(p);
  NormForward<float>(p.norm, tests::ForwardArgs(p, out), p.Options());
  tests::CStructs structs;
  const auto args = structs.Make<planish_norm_backward_args, float>(tests::BackwardArgs(p, out));
  const tests::Result<float> before = out;
  FailEveryAllocation([&] {
    EXPECT_EQ(before.DiffersIn(out), "");
    return planish_norm_backward(PLANISH_NORM_LAYER, &args, nullptr);
  });
  EXPECT_NE(before.DiffersIn(out), "");
}

TEST(CAllocationTest, RecurrentLayers) {
  const tests::RnnProblem<float> p(Cell::kLnLstm, {4, 2, 5, 6});
  tests::RnnResult<float> out = tests::Unwritten(p);
  tests::CStructs structs;
  const auto forward_args = tests::ForwardArgs(p, out);
  const auto args = structs.Make<planish_rnn_forward_args, float>(forward_args);
  const auto params = structs.Make<planish_rnn_params, float>(forward_args.inputs.params);
  FailEveryAllocation([&] { return planish_rnn_forward(PLANISH_CELL_LN_LSTM, &args, nullptr); });

  planish_rnn_pack_args pack;
  ASSERT_EQ(planish_rnn_pack_args_init(&pack, sizeof pack), PLANISH_OK);
  pack.type = PLANISH_FLOAT;
  pack.backward = 1;
  pack.inputs = 5;
  pack.hidden = 6;
  pack.params = &params;
  planish_rnn_packed* packed = nullptr;
  FailEveryAllocation([&] {
    EXPECT_EQ(packed, nullptr);
    return planish_rnn_pack(PLANISH_CELL_LN_LSTM, &pack, &packed);
  });
  planish_rnn_gradient_sums* sums = nullptr;
  FailEveryAllocation([&] {
    EXPECT_EQ(sums, nullptr);
    return planish_rnn_gradient_sums_create(packed, &sums);
  });
  planish_rnn_gradient_sums_free(sums);
  planish_rnn_packed_free(packed);
}

// The message must also be stored if no memory is left.
TEST(CAllocationTest, ErrorsWithoutMemoryHaveACode) {
  planish_norm_forward_args args;
  ASSERT_EQ(planish_norm_forward_args_init(&args, sizeof args), PLANISH_OK);
  planish_status status = PLANISH_OK;
  EXPECT_TRUE(tests::EndsWithAllocations(
      0, [&] { status = planish_norm_forward(PLANISH_NORM_LAYER, &args, nullptr); }));
  EXPECT_EQ(status, PLANISH_OUT_OF_MEMORY);
  EXPECT_STREQ(planish_error_message(), "[planish_norm_forward] memory could not be allocated");
}

TEST(CAllocationTest, PackedStepsAllocateNothing) {
  const tests::RnnProblem<float> p(Cell::kLnLstm, {1, 2, 5, 6});
  const auto inputs = p.Inputs();
  tests::CStructs structs;
  const auto params = structs.Make<planish_rnn_params, float>(inputs.params);
  planish_rnn_pack_args pack;
  ASSERT_EQ(planish_rnn_pack_args_init(&pack, sizeof pack), PLANISH_OK);
  pack.type = PLANISH_FLOAT;
  pack.inputs = 5;
  pack.hidden = 6;
  pack.params = &params;
  planish_rnn_packed* packed = nullptr;
  ASSERT_EQ(planish_rnn_pack(PLANISH_CELL_LN_LSTM, &pack, &packed), PLANISH_OK);

  planish_rnn_options options;
  ASSERT_EQ(planish_rnn_options_init(&options, sizeof options), PLANISH_OK);
  options.packed = packed;
  options.parallel_for.function = planish_serial_for;
  std::vector<float> h(12), c(12);
  planish_rnn_step_args args;
  ASSERT_EQ(planish_rnn_step_args_init(&args, sizeof args), PLANISH_OK);
  args.type = PLANISH_FLOAT;
  args.batch = 2;
  args.inputs = 5;
  args.hidden = 6;
  args.x = p.layer.x.data();
  args.h = args.h_next = h.data();
  args.c = args.c_next = c.data();
  ASSERT_EQ(planish_rnn_step(PLANISH_CELL_LN_LSTM, &args, &options), PLANISH_OK);
  const int before = tests::allocations;
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(planish_rnn_step(PLANISH_CELL_LN_LSTM, &args, &options), PLANISH_OK);
  }
  EXPECT_EQ(tests::allocations, before);
  planish_rnn_packed_free(packed);
}

}  // namespace
}  // namespace planish
