// Every invalid argument has an exact error text, and an error writes nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "planish/norm.h"
#include "src/base/arguments_testing.h"
#include "src/norm/arguments.h"
#include "src/norm/testing.h"

namespace planish {
namespace {

using tests::ErrorOf;
using tests::Problem;
using tests::Result;

/// Returns the address `bytes` beyond another: misaligned for T.
template <class T>
T* Beyond(T* address, int64_t bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(address) + static_cast<uintptr_t>(bytes));
}

/// Returns the addresses of the arrays of a call by name.
template <class Args, class... Facts>
std::map<std::string, const void*> ArraysOf(const Args& args, const Facts&... facts) {
  std::map<std::string, const void*> arrays;
  internal::ForEachArgument(
      args, [&](const auto& argument) { arrays[argument.name] = args.*argument.member; }, facts...);
  return arrays;
}

/// Returns a call whose arrays all have different addresses, which are never read.
template <class Args, class... Facts>
Args WithArrays(const Facts&... facts) {
  static float memory[32];
  Args args;
  float* next = memory;
  internal::ForEachArgument(
      args, [&](const auto& argument) { args.*argument.member = next++; }, facts...);
  return args;
}

TEST(Calls, OfAnotherFunctionHaveTheSameArrays) {
  const internal::Recipe recipe = internal::RecipeOf(Norm::kLayer);
  const auto forward = WithArrays<ChannelNormForwardArgs<float, float>>(recipe);
  auto expected = ArraysOf(forward, recipe);
  for (const char* name : {"residual", "sum", "gate", "quantized", "row_scale"}) {
    expected[name] = nullptr;
  }
  EXPECT_EQ(ArraysOf(internal::AsRows(forward), recipe), expected);

  const auto backward = WithArrays<ChannelNormBackwardArgs<float, float>>(recipe);
  expected = ArraysOf(backward, recipe);
  for (const char* name : {"dsum", "gate", "bias", "dgate"}) expected[name] = nullptr;
  EXPECT_EQ(ArraysOf(internal::AsRows(backward), recipe), expected);

  const auto online = WithArrays<OnlineNormBackwardArgs<float, float>>();
  expected = ArraysOf(online);
  EXPECT_EQ(expected.erase("offset") + expected.erase("deviation"), 2u);
  EXPECT_EQ(ArraysOf(internal::AsSamples(online), recipe), expected);
  for (const char* name : {"dsum", "gate", "bias", "dgate"}) expected[name] = nullptr;
  EXPECT_EQ(ArraysOf(internal::AsRows(online), recipe), expected);
}

class ForwardErrorTest : public ::testing::Test {
 protected:
  ForwardErrorTest() : p_(Norm::kLayer, 2, 3), out_(p_), residual_(6), sum_(6) {}

  /// Returns the error of valid arguments and options after `change`.
  template <class F>
  std::string Error(F&& change, Norm norm = Norm::kLayer) {
    auto args = tests::ForwardArgs(p_, out_);
    if (!takes_params_) args.gain = args.bias = nullptr;
    NormOptions options;
    change(args, options);
    const Result<float> before = out_;
    const std::string error = ErrorOf([&] { NormForward<float>(norm, args, options); });
    if (!error.empty()) {
      EXPECT_EQ(out_.DiffersIn(before), "") << error;
    }
    return error;
  }

  Problem<float> p_;
  Result<float> out_;
  std::vector<float> residual_, sum_;
  bool takes_params_ = true;
};

TEST_F(ForwardErrorTest, RightArguments) {
  EXPECT_EQ(Error([](auto&, auto&) {}), "");
}

TEST_F(ForwardErrorTest, Sets) {
  EXPECT_EQ(Error([](auto& a, auto&) { a.sets = 0; }),
            "[NormForward] sets must be at least 1, got 0");
  EXPECT_EQ(Error([](auto& a, auto&) { a.sets = 3; }),
            "[NormForward] rows must be a multiple of sets (3), got 2");
  EXPECT_EQ(Error([](auto& a, auto&) { a.sets = 2, a.set_rows = 2; }),
            "[NormForward] set_rows must be 0, 1 or rows / sets (1), got 2");
  EXPECT_EQ(Error([](auto& a, auto&) { a.rows = 0, a.sets = int64_t{1} << 60; }),
            "[NormForward] sets * cols must be at most 2305843009213693951, got "
            "1152921504606846976 * 3");
  std::vector<float> gains(12, 1);
  const auto with = [&](auto& a) { a.sets = 2, a.gain = gains.data(), a.bias = nullptr; };
  EXPECT_EQ(Error([&](auto& a, auto&) { with(a); }), "");
  // gains[5] is the last gain of the second parameter set.
  EXPECT_EQ(Error([&](auto& a, auto&) { with(a), a.rstd = &gains[5]; }),
            "[NormForward] rstd must not overlap gain, got 4 bytes in common");
}

TEST_F(ForwardErrorTest, Sizes) {
  EXPECT_EQ(Error([](auto& a, auto&) { a.rows = -1; }),
            "[NormForward] rows must be at least 0, got -1");
  EXPECT_EQ(Error([](auto& a, auto&) { a.cols = -7; }),
            "[NormForward] cols must be at least 0, got -7");
  EXPECT_EQ(Error([](auto& a, auto&) { a.rows = a.cols = int64_t{1} << 32; }),
            "[NormForward] rows * cols must be at most 2305843009213693951, got 4294967296 * "
            "4294967296");
  EXPECT_EQ(Error([](auto& a, auto&) { a.rows = INT64_MAX, a.cols = INT64_MAX; }),
            "[NormForward] rows * cols must be at most 2305843009213693951, got "
            "9223372036854775807 * 9223372036854775807");
  EXPECT_EQ(Error([](auto& a, auto&) { a.rows = 0, a.cols = INT64_MAX; }),
            "[NormForward] rows * cols must be at most 2305843009213693951, got 0 * "
            "9223372036854775807");
  // Rows without elements have statistics.
  EXPECT_EQ(Error([](auto& a, auto&) { a.rows = int64_t{1} << 62, a.cols = 0; }),
            "[NormForward] rows must be at most 2305843009213693951, got 4611686018427387904");
}

TEST_F(ForwardErrorTest, Strides) {
  EXPECT_EQ(Error([](auto& a, auto&) { a.x_stride = 2; }),
            "[NormForward] x_stride must be 0 or at least cols (3), got 2");
  EXPECT_EQ(Error([](auto& a, auto&) { a.y_stride = -3; }),
            "[NormForward] y_stride must be 0 or at least cols (3), got -3");
  EXPECT_EQ(Error([](auto& a, auto&) { a.residual_stride = 1; }),
            "[NormForward] residual_stride must be 0 or at least cols (3), got 1");
  EXPECT_EQ(Error([](auto& a, auto&) { a.sum_stride = INT64_MIN; }),
            "[NormForward] sum_stride must be 0 or at least cols (3), got -9223372036854775808");
  EXPECT_EQ(Error([](auto& a, auto&) { a.x_stride = int64_t{1} << 61; }),
            "[NormForward] rows * x_stride must be at most 2305843009213693951, got 2 * "
            "2305843009213693952");
  EXPECT_EQ(Error([](auto& a, auto&) { a.rows = 1, a.x_stride = INT64_MAX / 4; }), "");
}

TEST_F(ForwardErrorTest, Options) {
  EXPECT_EQ(Error([](auto&, auto& o) { o.eps = -1e-5; }),
            "[NormForward] eps must be finite and at least 0, got -1e-05");
  EXPECT_EQ(Error([](auto&, auto& o) { o.eps = NAN; }),
            "[NormForward] eps must be finite and at least 0, got nan");
  EXPECT_EQ(Error([](auto&, auto& o) { o.eps = INFINITY; }),
            "[NormForward] eps must be finite and at least 0, got inf");
  EXPECT_EQ(Error([](auto&, auto& o) { o.eps = 0; }), "");
  EXPECT_EQ(Error([](auto&, auto& o) { o.scale = NAN; }),
            "[NormForward] scale must be finite, got nan");
  EXPECT_EQ(Error([](auto&, auto& o) { o.slope = -INFINITY; }),
            "[NormForward] slope must be finite, got -inf");
}

TEST_F(ForwardErrorTest, Norms) {
  EXPECT_EQ(Error([](auto&, auto&) {}, static_cast<Norm>(99)),
            "[Norm] norm must be a value of planish::Norm, got 99");
  EXPECT_EQ(Error([](auto&, auto&) {}, static_cast<Norm>(8)),
            "[Norm] norm must be a value of planish::Norm, got 8");
  for (const Norm norm : tests::kNorms) {
    if (tests::IsAffine(norm)) continue;
    EXPECT_EQ(Error([](auto&, auto&) {}, norm),
              "[NormForward] gain must be null for a norm without gain and bias, got an "
              "address");
    EXPECT_EQ(Error([](auto& a, auto&) { a.gain = nullptr; }, norm),
              "[NormForward] bias must be null for a norm without gain and bias, got an "
              "address");
  }
  takes_params_ = false;
  EXPECT_EQ(Error([](auto& a, auto&) { a.rows = 6, a.cols = 1; }, Norm::kAdaAsCoded),
            "[NormForward] cols must be at least 2 for a norm with the unbiased deviation, got "
            "1");
  EXPECT_EQ(Error([](auto& a, auto&) { a.rows = 0, a.cols = 1; }, Norm::kAdaAsCoded), "");
}

TEST_F(ForwardErrorTest, Null) {
  EXPECT_EQ(Error([](auto& a, auto&) { a.x = nullptr; }),
            "[NormForward] x must point to 24 bytes, got null");
  EXPECT_EQ(Error([](auto& a, auto&) { a.y = nullptr; }),
            "[NormForward] y must point to 24 bytes, got null");
  EXPECT_EQ(Error([](auto& a, auto&) { a.x = nullptr, a.x_stride = 5; }),
            "[NormForward] x must point to 32 bytes, got null");
  EXPECT_EQ(Error([](auto& a, auto&) { a.rows = 0, a.x = nullptr, a.y = nullptr; }), "");
  EXPECT_EQ(Error([](auto& a, auto&) { a.cols = 0, a.x = nullptr, a.y = nullptr; }), "");
}

TEST_F(ForwardErrorTest, Misaligned) {
  EXPECT_EQ(
      Error([](auto& a, auto&) { a.y = Beyond(a.y, 3); }),
      "[NormForward] y must be aligned to 4 bytes, got an address 3 bytes past a multiple of 4");
}

TEST_F(ForwardErrorTest, Overlaps) {
  EXPECT_EQ(Error([](auto& a, auto&) { a.y = const_cast<float*>(a.x) + 1; }),
            "[NormForward] y must not overlap x, got 20 bytes in common");
  EXPECT_EQ(Error([](auto& a, auto&) { a.rstd = const_cast<float*>(a.gain) - 1; }),
            "[NormForward] rstd must not overlap gain, got 4 bytes in common");
  // The gap between strided rows belongs to the array.
  EXPECT_EQ(Error([](auto& a, auto&) {
              a.rows = 2, a.cols = 1, a.x_stride = 5;
              a.y = const_cast<float*>(a.x) + 2, a.mean = a.mean_lo = a.rstd = nullptr;
            }),
            "[NormForward] y must not overlap x, got 8 bytes in common");
  std::vector<float> adjacent(8);  // y, then mean: adjacent arrays do not overlap
  EXPECT_EQ(Error([&](auto& a, auto&) { a.y = &adjacent[0], a.mean = &adjacent[6]; }), "");
  EXPECT_EQ(Error([&](auto& a, auto&) { a.mean = &adjacent[0], a.y = &adjacent[2]; }), "");
}

TEST_F(ForwardErrorTest, InPlace) {
  std::vector<float> x = p_.x;
  EXPECT_EQ(Error([&](auto& a, auto&) { a.x = a.y = x.data(); }), "");
  EXPECT_EQ(Error([&](auto& a, auto&) { a.x = a.y = x.data(), a.rows = 1, a.y_stride = 4; }),
            "[NormForward] y_stride must equal x_stride (3) if y is x, got 4");
}

TEST_F(ForwardErrorTest, Residual) {
  const auto with = [this](auto& a) {
    a.residual = residual_.data();
    a.sum = sum_.data();
  };
  EXPECT_EQ(Error([&](auto& a, auto&) { with(a); }), "");
  EXPECT_EQ(Error([&](auto& a, auto&) { with(a), a.sum = nullptr; }),
            "[NormForward] sum must point to 24 bytes, got null");
  EXPECT_EQ(Error([&](auto& a, auto&) { with(a), a.residual = nullptr; }),
            "[NormForward] sum must be null without a residual, got an address");
  EXPECT_EQ(Error([&](auto& a, auto&) { with(a), a.sum = residual_.data(); }), "");
  std::vector<float> x = p_.x;
  EXPECT_EQ(Error([&](auto& a, auto&) { with(a), a.x = a.sum = x.data(); }), "");
  EXPECT_EQ(Error([&](auto& a, auto&) { with(a), a.x = a.y = x.data(); }),
            "[NormForward] y must not overlap x, got 24 bytes in common");
  EXPECT_EQ(Error([&](auto& a, auto&) {
              with(a), a.rows = 1, a.sum = residual_.data(), a.residual_stride = 6;
            }),
            "[NormForward] sum_stride must equal residual_stride (6) if sum is residual, got "
            "3");
  EXPECT_EQ(
      Error([&](auto& a, auto&) { with(a), a.rows = 1, a.x = a.sum = x.data(), a.sum_stride = 5; }),
      "[NormForward] sum_stride must equal x_stride (3) if sum is x, got 5");
}

class BackwardErrorTest : public ::testing::Test {
 protected:
  BackwardErrorTest() : p_(Norm::kLayer, 2, 3), out_(p_), dsum_(6) {
    NormForward<double>(Norm::kLayer, tests::ForwardArgs(p_, out_));
  }

  template <class F>
  std::string Error(F&& change, Norm norm = Norm::kLayer) {
    auto args = tests::BackwardArgs(p_, out_);
    if (!takes_params_) args.gain = nullptr, args.dgain = args.dbias = nullptr;
    NormOptions options;
    change(args, options);
    const Result<double> before = out_;
    const std::string error = ErrorOf([&] { NormBackward<double>(norm, args, options); });
    if (!error.empty()) {
      EXPECT_EQ(out_.DiffersIn(before), "") << error;
    }
    return error;
  }

  Problem<double> p_;
  Result<double> out_;
  std::vector<double> dsum_;
  bool takes_params_ = true;
};

TEST_F(BackwardErrorTest, RightArguments) {
  EXPECT_EQ(Error([](auto&, auto&) {}), "");
}

TEST_F(BackwardErrorTest, SizesStridesAndOptions) {
  EXPECT_EQ(Error([](auto& a, auto&) { a.rows = -1; }),
            "[NormBackward] rows must be at least 0, got -1");
  EXPECT_EQ(Error([](auto& a, auto&) { a.cols = INT64_MIN; }),
            "[NormBackward] cols must be at least 0, got -9223372036854775808");
  EXPECT_EQ(Error([](auto& a, auto&) { a.rows = 0, a.cols = int64_t{1} << 60; }),
            "[NormBackward] rows * cols must be at most 1152921504606846975, got 0 * "
            "1152921504606846976");
  EXPECT_EQ(Error([](auto& a, auto&) { a.dy_stride = 2; }),
            "[NormBackward] dy_stride must be 0 or at least cols (3), got 2");
  EXPECT_EQ(Error([](auto& a, auto&) { a.x_stride = 1; }),
            "[NormBackward] x_stride must be 0 or at least cols (3), got 1");
  EXPECT_EQ(Error([](auto& a, auto&) { a.dx_stride = -1; }),
            "[NormBackward] dx_stride must be 0 or at least cols (3), got -1");
  EXPECT_EQ(Error([](auto& a, auto&) { a.dsum_stride = 2; }),
            "[NormBackward] dsum_stride must be 0 or at least cols (3), got 2");
  EXPECT_EQ(Error([](auto& a, auto&) { a.dx_stride = int64_t{1} << 60; }),
            "[NormBackward] rows * dx_stride must be at most 1152921504606846975, got 2 * "
            "1152921504606846976");
  EXPECT_EQ(Error([](auto&, auto& o) { o.eps = NAN; }),
            "[NormBackward] eps must be finite and at least 0, got nan");
  EXPECT_EQ(Error([](auto&, auto& o) { o.scale = INFINITY; }),
            "[NormBackward] scale must be finite, got inf");
  EXPECT_EQ(Error([](auto&, auto& o) { o.slope = NAN; }),
            "[NormBackward] slope must be finite, got nan");
}

TEST_F(BackwardErrorTest, Null) {
  EXPECT_EQ(Error([](auto& a, auto&) { a.mean_lo = nullptr; }),
            "[NormBackward] mean_lo must point to 16 bytes, got null");
  EXPECT_EQ(Error([](auto& a, auto&) { a.dx = a.dgain = a.dbias = nullptr; }), "");
  EXPECT_EQ(Error([&](auto& a, auto&) { a.dx = nullptr, a.dsum = dsum_.data(); }),
            "[NormBackward] dsum must be null without dx, got an address");
}

// A norm reads what its gradient needs and does not require the rest.
TEST_F(BackwardErrorTest, NotRead) {
  takes_params_ = false;
  const auto without_statistics = [](auto& a, auto&) { a.mean = a.mean_lo = nullptr; };
  const auto without_x = [](auto& a, auto&) { a.x = nullptr, a.mean = a.mean_lo = nullptr; };
  EXPECT_EQ(Error(without_statistics, Norm::kRms), "");
  EXPECT_EQ(Error(without_x, Norm::kRms), "[NormBackward] x must point to 48 bytes, got null");
  EXPECT_EQ(Error(without_x, Norm::kDetach), "");
  EXPECT_EQ(Error(without_x, Norm::kDetachDeviation), "");
  for (const Norm norm :
       {Norm::kLayer, Norm::kLayerSimple, Norm::kDetachMean, Norm::kAda, Norm::kAdaAsCoded}) {
    EXPECT_EQ(Error(without_statistics, norm),
              "[NormBackward] mean must point to 16 bytes, got null");
  }
}

TEST_F(BackwardErrorTest, Overlaps) {
  EXPECT_EQ(Error([](auto& a, auto&) { a.dx = const_cast<double*>(a.x); }),
            "[NormBackward] dx must not overlap x, got 48 bytes in common");
  EXPECT_EQ(Error([](auto& a, auto&) { a.dx = const_cast<double*>(a.dy) - 1; }),
            "[NormBackward] dx must not overlap dy, got 40 bytes in common");
  std::vector<double> dy = p_.dy;
  EXPECT_EQ(Error([&](auto& a, auto&) { a.dy = a.dx = dy.data(); }), "");
  EXPECT_EQ(Error([&](auto& a, auto&) { a.dy = a.dx = dy.data(), a.rows = 1, a.dx_stride = 9; }),
            "[NormBackward] dx_stride must equal dy_stride (3) if dx is dy, got 9");
}

TEST_F(BackwardErrorTest, Norms) {
  EXPECT_EQ(Error([](auto&, auto&) {}, static_cast<Norm>(200)),
            "[Norm] norm must be a value of planish::Norm, got 200");
  EXPECT_EQ(Error([](auto&, auto&) {}, Norm::kLayerSimple),
            "[NormBackward] gain must be null for a norm without gain and bias, got an address");
  EXPECT_EQ(Error([](auto& a, auto&) { a.gain = nullptr; }, Norm::kAda),
            "[NormBackward] dgain must be null for a norm without gain and bias, got an "
            "address");
  EXPECT_EQ(Error([](auto& a, auto&) { a.gain = nullptr, a.dgain = nullptr; }, Norm::kDetach),
            "[NormBackward] dbias must be null for a norm without gain and bias, got an "
            "address");
  takes_params_ = false;
  EXPECT_EQ(Error([](auto& a, auto&) { a.cols = 1; }, Norm::kAdaAsCoded),
            "[NormBackward] cols must be at least 2 for a norm with the unbiased deviation, got "
            "1");
}

// ---- The arrays of every call

/// Expects the errors of every array of a call with `args`, whose sizes are set. Leaves out the
/// arrays named in `except`. `sizes` is the number of sizes in Args.
template <class Args, class Call, class... Facts>
void ExpectErrors(const std::string& function, Args args, size_t sizes, const Call& call,
                  const std::vector<std::string>& except, const Facts&... facts) {
  SCOPED_TRACE(function);
  const auto memory = tests::SetArrays(args, except, facts...);
  const auto arrays = tests::ArraysOf(args, facts...);
  const auto strides = std::ranges::count_if(arrays, [](const auto& a) { return a.stride; });
  // Checks that `facts` name every array: each member of Args is a size, a pointer to an array or a
  // stride. All flags together count as one size.
  EXPECT_EQ(sizeof(Args) / sizeof(void*), sizes + arrays.size() + static_cast<size_t>(strides));
  tests::ExpectArrayErrors(function, arrays, [&] { call(args); });
}

TEST(ArrayErrorsTest, Rows) {
  for (const Norm norm : tests::kNorms) {
    SCOPED_TRACE(tests::NameOf(norm));
    const internal::Recipe recipe = internal::RecipeOf(norm);
    const auto forward = [&](const auto& args) { NormForward(norm, args); };
    const auto backward = [&](const auto& args) { NormBackward(norm, args); };
    using Forward = NormForwardArgs<bfloat16, float>;
    using Backward = NormBackwardArgs<double>;
    ExpectErrors("NormForward", Forward{.rows = 2, .cols = 3}, 5, forward, {}, recipe);
    ExpectErrors("NormForward", Forward{.rows = 2, .cols = 3}, 5, forward, {"residual", "gate"},
                 recipe);
    ExpectErrors("NormBackward", Backward{.rows = 2, .cols = 3}, 5, backward, {}, recipe);
    ExpectErrors("NormBackward", Backward{.rows = 2, .cols = 3}, 5, backward, {"dx"}, recipe);
    ExpectErrors("NormBackward", Backward{.rows = 2, .cols = 3}, 5, backward, {"gate"}, recipe);
  }
}

TEST(ArrayErrorsTest, Channels) {
  for (const Norm norm : tests::kNorms) {
    SCOPED_TRACE(tests::NameOf(norm));
    const internal::Recipe recipe = internal::RecipeOf(norm);
    const auto forward = [&](const auto& args) { ChannelNormForward(norm, args); };
    const auto backward = [&](const auto& args) { ChannelNormBackward(norm, args); };
    using Forward = ChannelNormForwardArgs<double, float>;
    using Backward = ChannelNormBackwardArgs<float16>;
    ExpectErrors("ChannelNormForward", Forward{.batch = 2, .channels = 3, .spatial = 5}, 3, forward,
                 {}, recipe);
    ExpectErrors("ChannelNormBackward", Backward{.batch = 2, .channels = 3, .spatial = 5}, 3,
                 backward, {}, recipe);
  }
}

TEST(ArrayErrorsTest, Batch) {
  ExpectErrors("BatchNormForward", BatchNormForwardArgs<float>{.batch = 2, .channels = 3}, 3,
               [](const auto& args) { BatchNormForward(args); }, {});
  ExpectErrors("BatchNormBackward", BatchNormBackwardArgs<double>{.batch = 2, .channels = 3}, 3,
               [](const auto& args) { BatchNormBackward(args); }, {});
  ExpectErrors("BatchNormEvaluate", BatchNormEvaluateArgs<bfloat16>{.batch = 2, .channels = 3}, 3,
               [](const auto& args) { BatchNormEvaluate(args); }, {});
  using Backward = BatchNormEvaluateBackwardArgs<float16, float>;
  const auto backward = [](const auto& args) { BatchNormEvaluateBackward(args); };
  ExpectErrors("BatchNormEvaluateBackward", Backward{.batch = 2, .channels = 3}, 3, backward, {});
  ExpectErrors("BatchNormEvaluateBackward", Backward{.batch = 2, .channels = 3}, 3, backward,
               {"dgain", "x", "running_mean"});
}

TEST(ArrayErrorsTest, Weights) {
  ExpectErrors("WeightNormForward", WeightNormForwardArgs<float>{.rows = 2, .cols = 3}, 2,
               [](const auto& args) { WeightNormForward(args); }, {});
  using Backward = WeightNormBackwardArgs<double>;
  const auto backward = [](const auto& args) { WeightNormBackward(args); };
  ExpectErrors("WeightNormBackward", Backward{.rows = 2, .cols = 3}, 2, backward, {});
  ExpectErrors("WeightNormBackward", Backward{.rows = 2, .cols = 3}, 2, backward, {"dv", "g"});
}

TEST(ArrayErrorsTest, GroupNorm) {
  using Forward = GroupNormForwardArgs<float>;
  ExpectErrors("GroupNormForward", Forward{.batch = 2, .groups = 3, .channels = 3, .spatial = 5}, 4,
               [](const auto& args) { GroupNormForward(args); }, {});
  using Backward = GroupNormBackwardArgs<bfloat16, float>;
  ExpectErrors("GroupNormBackward", Backward{.batch = 2, .groups = 3, .channels = 3, .spatial = 5},
               4, [](const auto& args) { GroupNormBackward(args); }, {});
}

TEST(ArrayErrorsTest, PointwiseNorm) {
  const auto forward = [](const auto& args) { PointwiseNormForward(Pointwise::kErf, args); };
  ExpectErrors("PointwiseNormForward",
               PointwiseNormForwardArgs<bfloat16, float>{.rows = 2, .cols = 3}, 2, forward, {});
  const auto backward = [](const auto& args) { PointwiseNormBackward(Pointwise::kTanh, args); };
  ExpectErrors("PointwiseNormBackward", PointwiseNormBackwardArgs<float>{.rows = 2, .cols = 3}, 2,
               backward, {});
}

TEST(ArrayErrorsTest, OnlineNorm) {
  ExpectErrors("OnlineNormForward", OnlineNormForwardArgs<float>{.rows = 2, .cols = 3}, 2,
               [](const auto& args) {
                 OnlineState state;
                 OnlineNormForward(args, state);
               },
               {});
  ExpectErrors("OnlineNormBackward", OnlineNormBackwardArgs<double>{.rows = 2, .cols = 3}, 2,
               [](const auto& args) { OnlineNormBackward(args); }, {});
}

// A residual is added before the norm, in place or not. Backward adds the gradient of the sum.
template <class T>
class ResidualTest : public ::testing::Test {};
using ElementTypes = ::testing::Types<float, double, bfloat16, float16>;
TYPED_TEST_SUITE(ResidualTest, ElementTypes);

TYPED_TEST(ResidualTest, IsAddedBeforeTheNorm) {
  using T = TypeParam;
  tests::ForEachTarget([](const std::string& target) {
    for (const auto& [rows, cols] :
         {std::pair<int64_t, int64_t>{1, 1}, {21, 7}, {5, 64}, {9, 1000}, {1, 200001}}) {
      SCOPED_TRACE(::testing::Message() << rows << " x " << cols << " on " << target);
      const Problem<T> p(Norm::kLayer, rows, cols);
      std::mt19937 random(5);
      const std::vector<T> residual = tests::Normal<T>(rows * cols, random);
      Problem<T> added = p;
      for (size_t i = 0; i < added.x.size(); ++i) {  // rounded once to T
        const double sum = tests::ToDouble(p.x[i]) + tests::ToDouble(residual[i]);
        added.x[i] = tests::FromDouble<T>(sum);
      }
      auto expected = tests::Apply(added);
      for (const int where : {0, 1, 2}) {  // sum separate, in place of x, in place of the residual
        Result<T> out(p);
        std::vector<T> x = p.x, addend = residual, sum(x.size());
        auto forward = tests::ForwardArgs(p, out);
        forward.x = x.data();
        forward.residual = addend.data();
        forward.sum = where == 0 ? sum.data() : where == 1 ? x.data() : addend.data();
        NormForward<T>(Norm::kLayer, forward);
        const std::vector<T>& written = where == 0 ? sum : where == 1 ? x : addend;
        EXPECT_TRUE(tests::SameBits(written, added.x));
        EXPECT_TRUE(tests::SameBits(out.y, expected.y));
        EXPECT_TRUE(tests::SameBits(out.rstd, expected.rstd));
        // Backward: dx rounded to T, plus dsum.
        auto backward = tests::BackwardArgs(added, out);
        backward.dsum = residual.data();
        NormBackward<T>(Norm::kLayer, backward);
        for (size_t i = 0; i < out.dx.size(); ++i) {
          const double dx = tests::ToDouble(expected.dx[i]) + tests::ToDouble(residual[i]);
          const T rounded = tests::FromDouble<T>(dx);
          ASSERT_EQ(std::memcmp(&out.dx[i], &rounded, sizeof(T)), 0) << i;
        }
        EXPECT_TRUE(tests::SameBits(out.dgain, expected.dgain));
        EXPECT_TRUE(tests::SameBits(out.dbias, expected.dbias));
      }
    }
  });
}

}  // namespace
}  // namespace planish
