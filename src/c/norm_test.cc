// Norms of the C interface have the bits of the C++ interface, and its errors as codes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "src/c/testing.h"
#include "src/norm/arguments.h"
#include "src/norm/element_types.h"
#include "src/norm/recipe.h"
#include "src/norm/reference.h"

namespace planish {
namespace {

using internal::RecipeOf;
using tests::CStructs;
using tests::ExpectSameCall;

template <class T, class P>
struct Types {
  using Element = T;
  using Param = P;
};
#define PLANISH_TYPES(T, P) Types<T, P>,
using AllTypes = ::testing::Types<PLANISH_NORM_TYPES(PLANISH_TYPES) Types<float, float>>;
#undef PLANISH_TYPES

template <class Types>
class CNormTest : public ::testing::Test {
 protected:
  /// Returns arguments as a C struct.
  template <class S, class Args>
  static S Make(CStructs& structs, const Args& args) {
    return structs.Make<S, typename Types::Element, typename Types::Param>(args);
  }
};
TYPED_TEST_SUITE(CNormTest, AllTypes);

TYPED_TEST(CNormTest, RowsAndChannelsHaveTheBitsOfCpp) {
  using T = typename TypeParam::Element;
  using P = typename TypeParam::Param;
  const NormOptions options{.eps = 1e-3, .scale = 1.5, .slope = 0.2};
  for (const Norm norm : tests::kNorms) {
    SCOPED_TRACE(tests::NameOf(norm));
    const auto number = static_cast<planish_norm>(norm);
    const internal::Recipe recipe = RecipeOf(norm);
    const auto c_options = [&](CStructs& s) {
      return s.Make<planish_norm_options, float>(options);
    };
    for (const bool flags : {false, true}) {
      ExpectSameCall(
          "planish_norm_forward",
          NormForwardArgs<T, P>{
              .rows = 3, .cols = 37, .gate_before_norm = flags, .cast_before_gain = flags},
          [&](const auto& args) { NormForward<T, P>(norm, args, options); },
          [&](CStructs& s, const auto& args) {
            const auto to = TestFixture::template Make<planish_norm_forward_args>(s, args);
            const auto to_options = c_options(s);
            return planish_norm_forward(number, &to, &to_options);
          },
          recipe);
      ExpectSameCall(
          "planish_norm_backward",
          NormBackwardArgs<T, P>{.rows = 3, .cols = 37, .gate_before_norm = flags},
          [&](const auto& args) { NormBackward<T, P>(norm, args, options); },
          [&](CStructs& s, const auto& args) {
            const auto to = TestFixture::template Make<planish_norm_backward_args>(s, args);
            const auto to_options = c_options(s);
            return planish_norm_backward(number, &to, &to_options);
          },
          recipe);
    }
    ExpectSameCall(
        "planish_channel_norm_forward",
        ChannelNormForwardArgs<T, P>{.batch = 2, .channels = 5, .spatial = 7},
        [&](const auto& args) { ChannelNormForward<T, P>(norm, args, options); },
        [&](CStructs& s, const auto& args) {
          const auto to = TestFixture::template Make<planish_channel_norm_forward_args>(s, args);
          const auto to_options = c_options(s);
          return planish_channel_norm_forward(number, &to, &to_options);
        },
        recipe);
    ExpectSameCall(
        "planish_channel_norm_backward",
        ChannelNormBackwardArgs<T, P>{.batch = 2, .channels = 5, .spatial = 7},
        [&](const auto& args) { ChannelNormBackward<T, P>(norm, args, options); },
        [&](CStructs& s, const auto& args) {
          const auto to = TestFixture::template Make<planish_channel_norm_backward_args>(s, args);
          const auto to_options = c_options(s);
          return planish_channel_norm_backward(number, &to, &to_options);
        },
        recipe);
  }
}

TYPED_TEST(CNormTest, BatchNormHasTheBitsOfCpp) {
  using T = typename TypeParam::Element;
  using P = typename TypeParam::Param;
  for (const bool average : {false, true}) {
    BatchNormOptions options{.eps = 1e-3, .unbiased = average, .momentum = 0.3, .batches = 4};
    if (average) options.momentum = std::nullopt;
    const auto c_options = [&](CStructs& s) {
      return s.Make<planish_batch_norm_options, float>(options);
    };
    ExpectSameCall(
        "planish_batch_norm_forward",
        BatchNormForwardArgs<T, P>{.batch = 4, .channels = 3, .spatial = 5},
        [&](const auto& args) { BatchNormForward<T, P>(args, options); },
        [&](CStructs& s, const auto& args) {
          const auto to = TestFixture::template Make<planish_batch_norm_forward_args>(s, args);
          const auto to_options = c_options(s);
          return planish_batch_norm_forward(&to, &to_options);
        });
    ExpectSameCall(
        "planish_batch_norm_backward",
        BatchNormBackwardArgs<T, P>{.batch = 4, .channels = 3, .spatial = 5},
        [&](const auto& args) { BatchNormBackward<T, P>(args, options); },
        [&](CStructs& s, const auto& args) {
          const auto to = TestFixture::template Make<planish_batch_norm_backward_args>(s, args);
          const auto to_options = c_options(s);
          return planish_batch_norm_backward(&to, &to_options);
        });
    ExpectSameCall(
        "planish_batch_norm_evaluate",
        BatchNormEvaluateArgs<T, P>{.batch = 4, .channels = 3, .spatial = 5},
        [&](const auto& args) { BatchNormEvaluate<T, P>(args, options); },
        [&](CStructs& s, const auto& args) {
          const auto to = TestFixture::template Make<planish_batch_norm_evaluate_args>(s, args);
          const auto to_options = c_options(s);
          return planish_batch_norm_evaluate(&to, &to_options);
        });
    ExpectSameCall(
        "planish_batch_norm_evaluate_backward",
        BatchNormEvaluateBackwardArgs<T, P>{.batch = 4, .channels = 3, .spatial = 5},
        [&](const auto& args) { BatchNormEvaluateBackward<T, P>(args, options); },
        [&](CStructs& s, const auto& args) {
          const auto to =
              TestFixture::template Make<planish_batch_norm_evaluate_backward_args>(s, args);
          const auto to_options = c_options(s);
          return planish_batch_norm_evaluate_backward(&to, &to_options);
        });
  }
}

TYPED_TEST(CNormTest, WeightNormHasTheBitsOfCpp) {
  using T = typename TypeParam::Element;
  using P = typename TypeParam::Param;
  ExpectSameCall(
      "planish_weight_norm_forward", WeightNormForwardArgs<T, P>{.rows = 3, .cols = 37},
      [&](const auto& args) { WeightNormForward<T, P>(args); },
      [&](CStructs& s, const auto& args) {
        const auto to = TestFixture::template Make<planish_weight_norm_forward_args>(s, args);
        return planish_weight_norm_forward(&to, nullptr);
      });
  ExpectSameCall(
      "planish_weight_norm_backward", WeightNormBackwardArgs<T, P>{.rows = 3, .cols = 37},
      [&](const auto& args) { WeightNormBackward<T, P>(args); },
      [&](CStructs& s, const auto& args) {
        const auto to = TestFixture::template Make<planish_weight_norm_backward_args>(s, args);
        const planish_parallel_for serial = {planish_serial_for, nullptr};
        return planish_weight_norm_backward(&to, &serial);
      });
}

TYPED_TEST(CNormTest, GroupNormHasTheBitsOfCpp) {
  using T = typename TypeParam::Element;
  using P = typename TypeParam::Param;
  for (const bool last : {false, true}) {
    const GroupNormOptions options{.eps = 1e-3, .channels_last = last};
    const auto c_options = [&](CStructs& s) {
      return s.template Make<planish_group_norm_options, float>(options);
    };
    ExpectSameCall(
        "planish_group_norm_forward",
        GroupNormForwardArgs<T, P>{.batch = 2, .groups = 3, .channels = 6, .spatial = 5},
        [&](const auto& args) { GroupNormForward<T, P>(args, options); },
        [&](CStructs& s, const auto& args) {
          const auto to = TestFixture::template Make<planish_group_norm_forward_args>(s, args);
          const auto to_options = c_options(s);
          return planish_group_norm_forward(&to, &to_options);
        });
    ExpectSameCall(
        "planish_group_norm_backward",
        GroupNormBackwardArgs<T, P>{.batch = 2, .groups = 3, .channels = 6, .spatial = 5},
        [&](const auto& args) { GroupNormBackward<T, P>(args, options); },
        [&](CStructs& s, const auto& args) {
          const auto to = TestFixture::template Make<planish_group_norm_backward_args>(s, args);
          const auto to_options = c_options(s);
          return planish_group_norm_backward(&to, &to_options);
        });
  }
}

TYPED_TEST(CNormTest, PointwiseNormHasTheBitsOfCpp) {
  using T = typename TypeParam::Element;
  using P = typename TypeParam::Param;
  for (const Pointwise f : {Pointwise::kTanh, Pointwise::kErf}) {
    const auto number = static_cast<planish_pointwise>(f);
    ExpectSameCall(
        "planish_pointwise_norm_forward", PointwiseNormForwardArgs<T, P>{.rows = 3, .cols = 37},
        [&](const auto& args) { PointwiseNormForward<T, P>(f, args); },
        [&](CStructs& s, const auto& args) {
          const auto to = TestFixture::template Make<planish_pointwise_norm_forward_args>(s, args);
          return planish_pointwise_norm_forward(number, &to, nullptr);
        });
    ExpectSameCall(
        "planish_pointwise_norm_backward", PointwiseNormBackwardArgs<T, P>{.rows = 3, .cols = 37},
        [&](const auto& args) { PointwiseNormBackward<T, P>(f, args); },
        [&](CStructs& s, const auto& args) {
          const auto to = TestFixture::template Make<planish_pointwise_norm_backward_args>(s, args);
          const planish_parallel_for serial = {planish_serial_for, nullptr};
          return planish_pointwise_norm_backward(number, &to, &serial);
        });
  }
}

TYPED_TEST(CNormTest, OnlineNormHasTheBitsOfCpp) {
  using T = typename TypeParam::Element;
  using P = typename TypeParam::Param;
  const double alphas[] = {0.1, 0.5, 0.9};
  for (const double* each : {static_cast<const double*>(nullptr), &alphas[0]}) {
    const OnlineNormOptions options{.alpha = 0.25, .alphas = each};
    OnlineState expected{0.5, 2};
    planish_online_state first{};  // after the first call; later ones have other arrays
    bool called = false;
    ExpectSameCall(
        "planish_online_norm_forward", OnlineNormForwardArgs<T, P>{.rows = 3, .cols = 37},
        [&](const auto& args) { OnlineNormForward<T, P>(args, expected, options); },
        [&](CStructs& s, const auto& args) {
          const auto to = TestFixture::template Make<planish_online_norm_forward_args>(s, args);
          const auto to_options = s.template Make<planish_online_norm_options, float>(options);
          planish_online_state state = {0.5, 2};
          const planish_status status = planish_online_norm_forward(&to, &state, &to_options);
          if (!called) first = state;
          called = true;
          return status;
        });
    EXPECT_EQ(first.mean, expected.mean);
    EXPECT_EQ(first.deviation, expected.deviation);
    EXPECT_NE(first.deviation, 2);
    ExpectSameCall(
        "planish_online_norm_backward", OnlineNormBackwardArgs<T, P>{.rows = 3, .cols = 37},
        [&](const auto& args) { OnlineNormBackward<T, P>(args, options); },
        [&](CStructs& s, const auto& args) {
          const auto to = TestFixture::template Make<planish_online_norm_backward_args>(s, args);
          const auto to_options = s.template Make<planish_online_norm_options, float>(options);
          return planish_online_norm_backward(&to, &to_options);
        });
  }
}

/// A layer norm of two rows, with its C structs filled as a C program does.
struct LayerNorm {
  LayerNorm() {
    EXPECT_EQ(planish_norm_forward_args_init(&forward, sizeof forward), PLANISH_OK);
    forward.type = PLANISH_FLOAT;
    forward.rows = kRows;
    forward.cols = kCols;
    forward.x = x;
    forward.gain = gain;
    forward.bias = bias;
    forward.y = y;
    forward.mean = mean;
    forward.mean_lo = mean_lo;
    forward.rstd = rstd;
    EXPECT_EQ(planish_norm_backward_args_init(&backward, sizeof backward), PLANISH_OK);
    backward.type = PLANISH_FLOAT;
    backward.rows = kRows;
    backward.cols = kCols;
    backward.dy = dy;
    backward.x = x;
    backward.gain = gain;
    backward.mean = mean;
    backward.mean_lo = mean_lo;
    backward.rstd = rstd;
    backward.dx = dx;
    backward.dgain = dgain;
    backward.dbias = dbias;
    EXPECT_EQ(planish_norm_options_init(&options, sizeof options), PLANISH_OK);
    std::mt19937 random(3);
    for (float* array : {x, dy}) {
      const auto values = tests::Normal<float>(kRows * kCols, random, 3);
      std::copy(values.begin(), values.end(), array);
    }
  }

  planish_status Forward() { return planish_norm_forward(PLANISH_NORM_LAYER, &forward, &options); }

  static constexpr int64_t kRows = 2, kCols = 5;
  float x[10], dy[10], y[10] = {}, dx[10], mean[2], mean_lo[2], rstd[2], dgain[5], dbias[5];
  float gain[5] = {1, 2, -1, 0.5, 3}, bias[5] = {0, 1, 2, 3, 4};
  planish_norm_forward_args forward;
  planish_norm_backward_args backward;
  planish_norm_options options;
};

TEST(CLayerNormTest, MatchesItsEquationsInDouble) {
  LayerNorm p;
  ASSERT_EQ(p.Forward(), PLANISH_OK);
  ASSERT_EQ(planish_norm_backward(PLANISH_NORM_LAYER, &p.backward, nullptr), PLANISH_OK);
  const internal::Recipe recipe = RecipeOf(Norm::kLayer);
  std::vector<double> dgain(p.kCols), dbias(p.kCols);
  const std::vector<double> gain(p.gain, p.gain + p.kCols);
  for (int64_t r = 0; r < p.kRows; ++r) {
    const std::vector<double> x(p.x + r * p.kCols, p.x + (r + 1) * p.kCols);
    const std::vector<double> dy(p.dy + r * p.kCols, p.dy + (r + 1) * p.kCols);
    const auto xhat = internal::ReferenceXhat(recipe, x, 1e-5);
    const double mean = internal::ReferenceMean(recipe, x);
    const double rstd = internal::ReferenceRstd(recipe, x, mean, 1e-5);
    const auto dx = internal::ReferenceGradient(recipe, {}, xhat, rstd, gain, dy);
    for (int64_t i = 0; i < p.kCols; ++i) {
      // A few roundings of values below 32: 2^-24 * 32 each.
      EXPECT_NEAR(p.y[r * p.kCols + i], p.gain[i] * xhat[i] + p.bias[i], 1e-5);
      EXPECT_NEAR(p.dx[r * p.kCols + i], dx[i], 1e-5);
      dgain[i] += dy[i] * xhat[i];
      dbias[i] += dy[i];
    }
  }
  for (int64_t i = 0; i < p.kCols; ++i) {
    EXPECT_NEAR(p.dgain[i], dgain[i], 1e-5);
    EXPECT_NEAR(p.dbias[i], dbias[i], 1e-5);
  }
}

/// Returns the message of a call that must find an invalid argument and write nothing.
std::string Error(LayerNorm& p, planish_status status) {
  EXPECT_EQ(status, PLANISH_INVALID_ARGUMENT);
  for (const float value : p.y) EXPECT_EQ(value, 0);
  return planish_error_message();
}

TEST(CNormErrorsTest, ArgumentsAndOptions) {
  LayerNorm p;
  const std::string function = "[planish_norm_forward] ";
  EXPECT_EQ(Error(p, planish_norm_forward(PLANISH_NORM_LAYER, nullptr, nullptr)),
            function + "args must point to a planish_norm_forward_args, got null");
  EXPECT_EQ(Error(p, planish_norm_forward(99, &p.forward, nullptr)),
            function + "norm must be a constant of planish_norm, got 99");
  // The value of a norm, with bits above those of the C++ type.
  EXPECT_EQ(Error(p, planish_norm_forward(256, &p.forward, nullptr)),
            function + "norm must be a constant of planish_norm, got 256");

  const auto with = [&](auto change) {
    LayerNorm q;
    change(q);
    return Error(q, q.Forward());
  };
  EXPECT_EQ(with([](LayerNorm& q) { q.forward.struct_size = 0; }),
            function + "args.struct_size must be set by planish_norm_forward_args_init, got 0");
  EXPECT_EQ(with([](LayerNorm& q) { q.options.struct_size = 8; }),
            function + "options.struct_size must be set by planish_norm_options_init, got 8");
  EXPECT_EQ(with([](LayerNorm& q) { q.forward.type = 0; }),
            function +
                "type must be PLANISH_FLOAT (1), PLANISH_DOUBLE (2), PLANISH_BFLOAT16 (3) or "
                "PLANISH_FLOAT16 (4), got 0");
  EXPECT_EQ(with([](LayerNorm& q) { q.forward.type = 5; }).substr(0, 28), function + "type ");
  EXPECT_EQ(with([](LayerNorm& q) { q.forward.param_type = PLANISH_DOUBLE; }),
            function + "param_type must be 0, PLANISH_FLOAT (1) or type, got 2");
  EXPECT_EQ(with([](LayerNorm& q) { q.forward.rows = -1; }),
            function + "rows must be at least 0, got -1");
  EXPECT_EQ(with([](LayerNorm& q) { q.forward.cols = INT64_MAX; }),
            function +
                "rows * cols must be at most 2305843009213693951, got 2 * "
                "9223372036854775807");
  EXPECT_EQ(with([](LayerNorm& q) { q.forward.x_stride = 4; }),
            function + "x_stride must be 0 or at least cols (5), got 4");
  EXPECT_EQ(with([](LayerNorm& q) { q.forward.x = nullptr; }),
            function + "x must point to 40 bytes, got null");
  EXPECT_EQ(with([](LayerNorm& q) { q.forward.mean = &q.x[1]; }),
            function + "mean must not overlap x, got 8 bytes in common");
  EXPECT_EQ(with([](LayerNorm& q) { q.options.eps = -1; }),
            function + "eps must be finite and at least 0, got -1");
  EXPECT_EQ(with([](LayerNorm& q) { q.options.slope = NAN; }),
            function + "slope must be finite, got nan");

  planish_online_norm_forward_args online;
  ASSERT_EQ(planish_online_norm_forward_args_init(&online, sizeof online), PLANISH_OK);
  online.type = PLANISH_FLOAT;
  online.cols = 2;
  EXPECT_EQ(planish_online_norm_forward(&online, nullptr, nullptr), PLANISH_INVALID_ARGUMENT);
  EXPECT_STREQ(planish_error_message(),
               "[planish_online_norm_forward] state must point to a planish_online_state, got "
               "null");
}

TEST(CNormErrorsTest, MomentumOutOfRange) {
  planish_batch_norm_forward_args args;
  ASSERT_EQ(planish_batch_norm_forward_args_init(&args, sizeof args), PLANISH_OK);
  EXPECT_EQ(args.spatial, 1);
  args.type = PLANISH_DOUBLE;
  planish_batch_norm_options options;
  ASSERT_EQ(planish_batch_norm_options_init(&options, sizeof options), PLANISH_OK);
  EXPECT_EQ(options.momentum, 0.1);
  options.momentum = -0.5;
  EXPECT_EQ(planish_batch_norm_forward(&args, &options), PLANISH_INVALID_ARGUMENT);
  EXPECT_STREQ(planish_error_message(),
               "[planish_batch_norm_forward] momentum must be in [0, 1], got -0.5");
}

/// A norm of many rows, so that work is split.
struct LargeNorm {
  LargeNorm() : x(kRows * kCols), y(x.size()) {
    std::mt19937 random(5);
    x = tests::Normal<float>(kRows * kCols, random);
    EXPECT_EQ(planish_norm_forward_args_init(&args, sizeof args), PLANISH_OK);
    args.type = PLANISH_FLOAT;
    args.rows = kRows;
    args.cols = kCols;
    args.x = x.data();
    args.y = y.data();
    EXPECT_EQ(planish_norm_options_init(&options, sizeof options), PLANISH_OK);
  }
  planish_status Call() { return planish_norm_forward(PLANISH_NORM_RMS, &args, &options); }

  static constexpr int64_t kRows = 256, kCols = 2048;
  std::vector<float> x, y;
  planish_norm_forward_args args;
  planish_norm_options options;
};

TEST(CThreadsTest, ParallelForOfTheCallerGetsItsContext) {
  LargeNorm expected, actual;
  ASSERT_EQ(expected.Call(), PLANISH_OK);
  int calls = 0;
  ParallelFor split = tests::SplitIn(3, &calls);
  actual.options.parallel_for = {tests::CallParallelFor, &split};
  ASSERT_EQ(actual.Call(), PLANISH_OK);
  EXPECT_EQ(actual.y, expected.y);
  EXPECT_GT(calls, 0);

  split = tests::OnThreads(4);
  LargeNorm threads;
  threads.options.parallel_for = actual.options.parallel_for;
  ASSERT_EQ(threads.Call(), PLANISH_OK);
  EXPECT_EQ(threads.y, expected.y);
}

TEST(CThreadsTest, FailureOfAParallelForIsACode) {
  LargeNorm p;
  p.options.parallel_for.function = [](void* context, int64_t begin, int64_t end, int64_t,
                                       planish_run_range run, const void* task) -> int32_t {
    run(task, begin, end);
    return *static_cast<int*>(context);
  };
  int returned = 42;
  p.options.parallel_for.context = &returned;
  EXPECT_EQ(p.Call(), PLANISH_CALLBACK_FAILED);
  EXPECT_STREQ(planish_error_message(),
               "[planish_norm_forward] parallel_for must return 0, got 42");
  returned = 0;
  EXPECT_EQ(p.Call(), PLANISH_OK);
}

TEST(CThreadsTest, ExceptionOfAParallelForIsACode) {
  LargeNorm p;
  p.options.parallel_for.function = [](void*, int64_t, int64_t, int64_t, planish_run_range,
                                       const void*) -> int32_t { throw 7; };
  EXPECT_EQ(p.Call(), PLANISH_INTERNAL_ERROR);
}

TEST(CThreadsTest, ThreadsCanCallAtOnce) {
  LargeNorm expected;
  ASSERT_EQ(expected.Call(), PLANISH_OK);
  std::vector<LargeNorm> calls(4);
  std::vector<std::thread> threads;
  for (LargeNorm& call : calls) {
    call.args.x = call.x.data();
    call.args.y = call.y.data();
    threads.emplace_back([&call] { EXPECT_EQ(call.Call(), PLANISH_OK); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const LargeNorm& call : calls) EXPECT_EQ(call.y, expected.y);
}

}  // namespace
}  // namespace planish
