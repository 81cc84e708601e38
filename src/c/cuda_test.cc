// GPU calls of the C interface have the bits of the C++ interface. Runs on the emulation of a GPU,
// whose device memory is host memory.
#include "planish/cuda.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "planish/cuda_rnn.h"
#include "src/c/testing.h"
#include "src/norm/arguments.h"
#include "src/norm/recipe.h"
#include "src/rnn/testing.h"

namespace planish {
namespace {

using tests::CStructs;
using tests::ExpectSameCall;

/// Device memory for one call.
class Workspace {
 public:
  explicit Workspace(int64_t bytes) : memory_(static_cast<size_t>(bytes / 8 + 1)), bytes_(bytes) {}

  template <class Options>
  Options In(Options options) {
    options.workspace = memory_.data();
    options.workspace_bytes = bytes_;
    return options;
  }

 private:
  std::vector<double> memory_;  // aligned to 16 bytes
  int64_t bytes_;
};

/// Returns the size that a C function writes.
template <class F>
int64_t Written(const F& f) {
  int64_t size = -1;
  EXPECT_EQ(f(&size), PLANISH_OK) << planish_error_message();
  return size;
}

/// Compares a call whose C options are an S, and the workspace that `c_workspace` writes.
template <class S, class CArgs, class Args, class Options, class Cpp, class C, class... Facts>
void ExpectSame(const std::string& function, const Args& sizes, const Options& options,
                planish_status (*c_workspace)(const CArgs*, int64_t*), const Cpp& cpp, const C& c,
                const Facts&... facts) {
  ExpectSameCall(
      function, sizes,
      [&](const auto& args) { cpp(args, Workspace(cuda::WorkspaceBytes(args)).In(options)); },
      [&](CStructs& structs, const auto& args) {
        const CArgs to = structs.Make<CArgs, float>(args);
        const int64_t bytes = Written([&](int64_t* size) { return c_workspace(&to, size); });
        EXPECT_EQ(bytes, cuda::WorkspaceBytes(args));
        Workspace workspace(bytes);
        const S to_options = structs.Make<S, float>(workspace.In(options));
        return c(&to, &to_options);
      },
      facts...);
}

TEST(CCudaTest, EmulationHasADevice) { EXPECT_GE(planish_cuda_devices(), 1); }

TEST(CCudaTest, RowsAndChannelsHaveTheBitsOfCpp) {
  const cuda::NormOptions options{.eps = 1e-3, .scale = 1.5, .slope = 0.2};
  using O = planish_cuda_norm_options;
  for (const Norm norm : tests::kNorms) {
    SCOPED_TRACE(tests::NameOf(norm));
    const auto number = static_cast<planish_norm>(norm);
    const internal::Recipe recipe = internal::RecipeOf(norm);
    ExpectSame<O, planish_norm_forward_args>(
        "planish_cuda_norm_forward", NormForwardArgs<float>{.rows = 3, .cols = 37}, options,
        planish_cuda_norm_forward_workspace,
        [&](const auto& args, const auto& o) { cuda::NormForward<float>(norm, args, o); },
        [&](const auto* args, const auto* o) { return planish_cuda_norm_forward(number, args, o); },
        recipe);
    ExpectSame<O, planish_norm_backward_args>(
        "planish_cuda_norm_backward", NormBackwardArgs<float>{.rows = 3, .cols = 37}, options,
        planish_cuda_norm_backward_workspace,
        [&](const auto& args, const auto& o) { cuda::NormBackward<float>(norm, args, o); },
        [&](const auto* args, const auto* o) {
          return planish_cuda_norm_backward(number, args, o);
        },
        recipe);
    ExpectSame<O, planish_channel_norm_forward_args>(
        "planish_cuda_channel_norm_forward",
        ChannelNormForwardArgs<float>{.batch = 2, .channels = 5, .spatial = 7}, options,
        planish_cuda_channel_norm_forward_workspace,
        [&](const auto& args, const auto& o) { cuda::ChannelNormForward<float>(norm, args, o); },
        [&](const auto* args, const auto* o) {
          return planish_cuda_channel_norm_forward(number, args, o);
        },
        recipe);
    ExpectSame<O, planish_channel_norm_backward_args>(
        "planish_cuda_channel_norm_backward",
        ChannelNormBackwardArgs<float>{.batch = 2, .channels = 5, .spatial = 7}, options,
        planish_cuda_channel_norm_backward_workspace,
        [&](const auto& args, const auto& o) { cuda::ChannelNormBackward<float>(norm, args, o); },
        [&](const auto* args, const auto* o) {
          return planish_cuda_channel_norm_backward(number, args, o);
        },
        recipe);
  }
}

TEST(CCudaTest, BatchNormHasTheBitsOfCpp) {
  const cuda::BatchNormOptions options{.eps = 1e-3, .unbiased = true, .momentum = 0.3};
  using O = planish_cuda_batch_norm_options;
  ExpectSame<O, planish_batch_norm_forward_args>(
      "planish_cuda_batch_norm_forward",
      BatchNormForwardArgs<float>{.batch = 4, .channels = 3, .spatial = 5}, options,
      planish_cuda_batch_norm_forward_workspace, cuda::BatchNormForward<float, float>,
      planish_cuda_batch_norm_forward);
  ExpectSame<O, planish_batch_norm_backward_args>(
      "planish_cuda_batch_norm_backward",
      BatchNormBackwardArgs<float>{.batch = 4, .channels = 3, .spatial = 5}, options,
      planish_cuda_batch_norm_backward_workspace, cuda::BatchNormBackward<float, float>,
      planish_cuda_batch_norm_backward);
  ExpectSame<O, planish_batch_norm_evaluate_args>(
      "planish_cuda_batch_norm_evaluate",
      BatchNormEvaluateArgs<float>{.batch = 4, .channels = 3, .spatial = 5}, options,
      planish_cuda_batch_norm_evaluate_workspace, cuda::BatchNormEvaluate<float, float>,
      planish_cuda_batch_norm_evaluate);
  ExpectSame<O, planish_batch_norm_evaluate_backward_args>(
      "planish_cuda_batch_norm_evaluate_backward",
      BatchNormEvaluateBackwardArgs<float>{.batch = 4, .channels = 3, .spatial = 5}, options,
      planish_cuda_batch_norm_evaluate_backward_workspace,
      cuda::BatchNormEvaluateBackward<float, float>, planish_cuda_batch_norm_evaluate_backward);
}

TEST(CCudaTest, WeightNormHasTheBitsOfCpp) {
  using O = planish_cuda_weight_norm_options;
  ExpectSame<O, planish_weight_norm_forward_args>(
      "planish_cuda_weight_norm_forward", WeightNormForwardArgs<float>{.rows = 3, .cols = 37},
      cuda::WeightNormOptions{}, planish_cuda_weight_norm_forward_workspace,
      cuda::WeightNormForward<float, float>, planish_cuda_weight_norm_forward);
  ExpectSame<O, planish_weight_norm_backward_args>(
      "planish_cuda_weight_norm_backward", WeightNormBackwardArgs<float>{.rows = 3, .cols = 37},
      cuda::WeightNormOptions{}, planish_cuda_weight_norm_backward_workspace,
      cuda::WeightNormBackward<float, float>, planish_cuda_weight_norm_backward);
}

TEST(CCudaTest, GroupNormHasTheBitsOfCpp) {
  const cuda::GroupNormOptions options{.eps = 1e-3};
  using O = planish_cuda_group_norm_options;
  ExpectSame<O, planish_group_norm_forward_args>(
      "planish_cuda_group_norm_forward",
      GroupNormForwardArgs<float>{.batch = 2, .groups = 3, .channels = 6, .spatial = 5}, options,
      planish_cuda_group_norm_forward_workspace, cuda::GroupNormForward<float, float>,
      planish_cuda_group_norm_forward);
  ExpectSame<O, planish_group_norm_backward_args>(
      "planish_cuda_group_norm_backward",
      GroupNormBackwardArgs<float>{.batch = 2, .groups = 3, .channels = 6, .spatial = 5}, options,
      planish_cuda_group_norm_backward_workspace, cuda::GroupNormBackward<float, float>,
      planish_cuda_group_norm_backward);
}

TEST(CCudaTest, PointwiseNormHasTheBitsOfCpp) {
  using O = planish_cuda_pointwise_norm_options;
  for (const Pointwise f : {Pointwise::kTanh, Pointwise::kErf}) {
    const auto number = static_cast<planish_pointwise>(f);
    ExpectSame<O, planish_pointwise_norm_forward_args>(
        "planish_cuda_pointwise_norm_forward",
        PointwiseNormForwardArgs<float>{.rows = 3, .cols = 37}, cuda::PointwiseNormOptions{},
        planish_cuda_pointwise_norm_forward_workspace,
        [&](const auto& args, const auto& o) { cuda::PointwiseNormForward<float>(f, args, o); },
        [&](const auto* args, const auto* o) {
          return planish_cuda_pointwise_norm_forward(number, args, o);
        });
    ExpectSame<O, planish_pointwise_norm_backward_args>(
        "planish_cuda_pointwise_norm_backward",
        PointwiseNormBackwardArgs<float>{.rows = 3, .cols = 37}, cuda::PointwiseNormOptions{},
        planish_cuda_pointwise_norm_backward_workspace,
        [&](const auto& args, const auto& o) { cuda::PointwiseNormBackward<float>(f, args, o); },
        [&](const auto* args, const auto* o) {
          return planish_cuda_pointwise_norm_backward(number, args, o);
        });
  }
}

TEST(CCudaTest, OnlineNormHasTheBitsOfCpp) {
  using O = planish_cuda_online_norm_options;
  const cuda::OnlineNormOptions options{.alpha = 0.25};
  OnlineState expected{0.5, 2};
  planish_online_state first{};  // after the first call; later ones have other arrays
  bool called = false;
  ExpectSame<O, planish_online_norm_forward_args>(
      "planish_cuda_online_norm_forward", OnlineNormForwardArgs<float>{.rows = 3, .cols = 37},
      options, planish_cuda_online_norm_forward_workspace,
      [&](const auto& args, const auto& o) { cuda::OnlineNormForward<float>(args, &expected, o); },
      [&](const auto* args, const auto* o) {
        planish_online_state state = {0.5, 2};
        const planish_status status = planish_cuda_online_norm_forward(args, &state, o);
        if (!called) first = state;
        called = true;
        return status;
      });
  EXPECT_EQ(first.mean, expected.mean);
  EXPECT_EQ(first.deviation, expected.deviation);
  EXPECT_NE(first.deviation, 2);
  ExpectSame<O, planish_online_norm_backward_args>(
      "planish_cuda_online_norm_backward", OnlineNormBackwardArgs<float>{.rows = 3, .cols = 37},
      options, planish_cuda_online_norm_backward_workspace, cuda::OnlineNormBackward<float, float>,
      planish_cuda_online_norm_backward);
}

/// Computes a matrix product, of either interface's arguments.
template <class Args>
void Multiply(const Args& args) {
  const auto* const a = static_cast<const float*>(args.a);
  const auto* const b = static_cast<const float*>(args.b);
  auto* const c = static_cast<float*>(args.c);
  for (int64_t i = 0; i < args.rows; ++i) {
    for (int64_t j = 0; j < args.cols; ++j) {
      float sum = args.accumulate ? c[i * args.cols + j] : 0;
      for (int64_t k = 0; k < args.inner; ++k) {
        sum += (args.a_transposed ? a[k * args.rows + i] : a[i * args.inner + k]) *
               (args.b_transposed ? b[j * args.inner + k] : b[k * args.cols + j]);
      }
      c[i * args.cols + j] = sum;
    }
  }
}

/// Matrix products of a test: counts calls, and fails from one on.
struct Products {
  int calls = 0;
  int fails_at = -1;
};
int32_t MultiplyInC(void* context, const planish_cuda_matmul_args* args) {
  auto& products = *static_cast<Products*>(context);
  EXPECT_EQ(args->struct_size, sizeof *args);
  EXPECT_EQ(args->type, PLANISH_FLOAT);
  EXPECT_EQ(args->reserved, 0);
  if (products.calls++ == products.fails_at) return 5;
  Multiply(*args);
  return 0;
}

constexpr RnnShape kShape = {4, 3, 4, 6};
constexpr planish_rnn_shape kCShape = {4, 3, 4, 6};

TEST(CCudaTest, LayersHaveTheBitsOfCpp) {
  for (const Cell cell : tests::CudaCells()) {
    SCOPED_TRACE(tests::NameOf(cell));
    const auto number = static_cast<planish_cell>(cell);
    const tests::RnnProblem<float> p(cell, kShape, {.resets = true});
    const int64_t saved = Written([&](int64_t* size) {
      return planish_cuda_rnn_saved_size(number, PLANISH_FLOAT, &kCShape, size);
    });
    EXPECT_EQ(saved, cuda::RnnSavedSize<float>(cell, kShape));
    tests::RnnResult<float> expected = tests::Unwritten(p);
    expected.saved.assign(static_cast<size_t>(saved), 0);
    tests::RnnResult<float> out = expected;
    int64_t forward_bytes = 0, backward_bytes = 0;
    {
      cuda::RnnOptions<float> options{.eps = 1e-3};
      options.matmul = Multiply<cuda::MatmulArgs<float>>;
      const auto forward = tests::ForwardArgs(p, expected);
      const auto backward = tests::BackwardArgs(p, expected);
      forward_bytes = cuda::WorkspaceBytes(cell, forward, options);
      backward_bytes = cuda::WorkspaceBytes(cell, backward, options);
      cuda::RnnForward(cell, forward, Workspace(forward_bytes).In(options));
      cuda::RnnBackward(cell, backward, Workspace(backward_bytes).In(options));
    }
    Products products;
    planish_cuda_rnn_options options;
    ASSERT_EQ(planish_cuda_rnn_options_init(&options, sizeof options), PLANISH_OK);
    options.eps = 1e-3;
    options.matmul = {MultiplyInC, &products};
    CStructs structs;
    const auto forward_args = tests::ForwardArgs(p, out);
    const auto backward_args = tests::BackwardArgs(p, out);
    const auto forward = structs.Make<planish_rnn_forward_args, float>(forward_args);
    const auto backward = structs.Make<planish_rnn_backward_args, float>(backward_args);
    EXPECT_EQ(Written([&](int64_t* bytes) {
                return planish_cuda_rnn_forward_workspace(number, &forward, &options, bytes);
              }),
              forward_bytes);
    EXPECT_EQ(Written([&](int64_t* bytes) {
                return planish_cuda_rnn_backward_workspace(number, &backward, &options, bytes);
              }),
              backward_bytes);
    Workspace forward_workspace(forward_bytes), backward_workspace(backward_bytes);
    options = forward_workspace.In(options);
    ASSERT_EQ(planish_cuda_rnn_forward(number, &forward, &options), PLANISH_OK)
        << planish_error_message();
    options = backward_workspace.In(options);
    ASSERT_EQ(planish_cuda_rnn_backward(number, &backward, &options), PLANISH_OK)
        << planish_error_message();
    EXPECT_EQ(out.DiffersIn(expected), "");
    EXPECT_TRUE(tests::SameBits(out.saved, expected.saved));
    EXPECT_GT(products.calls, 0);

    products = {.fails_at = 1};
    EXPECT_EQ(planish_cuda_rnn_backward(number, &backward, &options), PLANISH_CALLBACK_FAILED);
    EXPECT_STREQ(planish_error_message(),
                 "[planish_cuda_rnn_backward] matmul must return 0, got 5");
  }
}

TEST(CCudaTest, StepsHaveTheBitsOfCpp) {
  for (const Cell cell : {Cell::kLnLstm, Cell::kSlstm}) {
    for (const int64_t heads : {1, 2}) {
      const tests::RnnProblem<float> p(
          cell, {.time = 1, .batch = 3, .inputs = 4, .hidden = 6, .heads = heads});
      const auto inputs = p.Inputs();
      std::vector<float> h(18), c(p.layer.c0.size()), h_c(h), c_c(c);
      RnnStepArgs<float> args{.batch = 3, .inputs = 4, .hidden = 6, .x = inputs.x};
      args.params = inputs.params;
      args.h = inputs.h0;
      args.c = inputs.c0;
      args.h_next = h.data();
      args.c_next = c.data();
      args.heads = heads;
      const int64_t bytes = cuda::WorkspaceBytes(cell, args);
      Workspace workspace(bytes);
      cuda::RnnStep(cell, args, workspace.In(cuda::RnnOptions<float>{}));
      args.h_next = h_c.data();
      args.c_next = c_c.data();
      CStructs structs;
      const auto to = structs.Make<planish_rnn_step_args, float>(args);
      const auto number = static_cast<planish_cell>(cell);
      planish_cuda_rnn_options options;
      ASSERT_EQ(planish_cuda_rnn_options_init(&options, sizeof options), PLANISH_OK);
      EXPECT_EQ(Written([&](int64_t* size) {
                  return planish_cuda_rnn_step_workspace(number, &to, &options, size);
                }),
                bytes);
      options = workspace.In(options);
      ASSERT_EQ(planish_cuda_rnn_step(number, &to, &options), PLANISH_OK)
          << planish_error_message();
      EXPECT_EQ(h, h_c);
      EXPECT_EQ(c, c_c);
      EXPECT_NE(h, std::vector<float>(h.size()));
      EXPECT_NE(c, std::vector<float>(c.size()));
    }
  }
}

TEST(CCudaTest, FitsPersistentIsThatOfCpp) {
  int32_t fits = -1;
  ASSERT_EQ(planish_cuda_rnn_fits_persistent(PLANISH_CELL_LSTM, PLANISH_FLOAT, &kCShape, &fits),
            PLANISH_OK);
  EXPECT_EQ(fits, cuda::RnnFitsPersistent<float>(Cell::kLstm, kShape) ? 1 : 0);
}

std::string Error(planish_status status) {
  EXPECT_EQ(status, PLANISH_INVALID_ARGUMENT);
  return planish_error_message();
}

TEST(CCudaErrorsTest, SizesAndOptions) {
  int64_t bytes = 7;
  planish_norm_forward_args rows;
  ASSERT_EQ(planish_norm_forward_args_init(&rows, sizeof rows), PLANISH_OK);
  rows.rows = rows.cols = 1;
  EXPECT_EQ(Error(planish_cuda_norm_forward_workspace(&rows, &bytes)),
            "[planish_cuda_norm_forward_workspace] type must be PLANISH_FLOAT (1), PLANISH_DOUBLE "
            "(2), PLANISH_BFLOAT16 (3) or PLANISH_FLOAT16 (4), got 0");
  rows.type = PLANISH_FLOAT;
  EXPECT_EQ(Error(planish_cuda_norm_forward_workspace(&rows, nullptr)),
            "[planish_cuda_norm_forward_workspace] bytes must point to a number, got null");
  EXPECT_EQ(Error(planish_cuda_norm_forward_workspace(nullptr, &bytes)),
            "[planish_cuda_norm_forward_workspace] args must point to a planish_norm_forward_args, "
            "got null");
  rows.rows = -1;
  EXPECT_EQ(Error(planish_cuda_norm_forward_workspace(&rows, &bytes)),
            "[planish_cuda_norm_forward_workspace] rows must be at least 0, got -1");
  planish_rnn_step_args step;
  ASSERT_EQ(planish_rnn_step_args_init(&step, sizeof step), PLANISH_OK);
  step.type = PLANISH_FLOAT;
  step.batch = step.inputs = step.hidden = 1;
  EXPECT_EQ(Error(planish_cuda_rnn_step_workspace(PLANISH_CELL_LSTM, &step, nullptr, nullptr)),
            "[planish_cuda_rnn_step_workspace] bytes must point to a number, got null");
  EXPECT_EQ(Error(planish_cuda_rnn_step_workspace(PLANISH_CELL_BN_LSTM, &step, nullptr, &bytes)),
            "[planish_cuda_rnn_step_workspace] cell must be a cell without batch norm, got one "
            "with batch norm");
  EXPECT_EQ(
      Error(planish_cuda_rnn_saved_size(PLANISH_CELL_LSTM, PLANISH_FLOAT16, &kCShape, &bytes)),
      "[planish_cuda_rnn_saved_size] type must be PLANISH_FLOAT (1) or PLANISH_DOUBLE (2), "
      "got 4");
  EXPECT_EQ(Error(planish_cuda_rnn_saved_size(99, PLANISH_FLOAT, &kCShape, &bytes)),
            "[planish_cuda_rnn_saved_size] cell must be a constant of planish_cell, got 99");
  EXPECT_EQ(bytes, 7);

  std::vector<float> x(64 * 64);
  planish_norm_backward_args args;
  ASSERT_EQ(planish_norm_backward_args_init(&args, sizeof args), PLANISH_OK);
  args.type = PLANISH_FLOAT;
  args.rows = args.cols = 64;
  args.dy = args.x = args.mean = args.mean_lo = args.rstd = x.data();
  std::vector<float> dgain(64);
  args.dgain = dgain.data();
  EXPECT_EQ(Error(planish_cuda_norm_backward(PLANISH_NORM_LAYER, &args, nullptr)).substr(0, 47),
            "[planish_cuda_norm_backward] workspace must poi");
}

}  // namespace
}  // namespace planish
