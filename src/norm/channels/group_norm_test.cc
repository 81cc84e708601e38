#include "planish/group_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "src/norm/channels/group_norm_testing.h"

namespace planish {
namespace {

using namespace tests::group_norm;  // NOLINT(google-build-using-namespace): helpers
using tests::ErrorOf;
using tests::ForEachTarget;
using tests::FromDouble;
using tests::IsNan;
using tests::SameBits;
using tests::Shape;
using tests::SplitIn;
using tests::ToDouble;

template <class T, class P>
Result<T, P> Apply(const Problem<T, P>& p, const ParallelFor& parallel_for = {}) {
  Result<T, P> out(p);
  GroupNormOptions options = p.options;
  options.parallel_for = parallel_for;
  GroupNormForward(ForwardArgs(p, out), options);
  GroupNormBackward(BackwardArgs(p, out), options);
  return out;
}

struct Case {
  Shape shape;
  int64_t groups;
};
// One and several channels in a group; short, odd and long runs; one and many positions; groups of
// more channels than the sums on the stack; untiled passes.
constexpr Case kCases[] = {
    {{1, 1, 2}, 1},     {{2, 4, 1}, 2},    {{3, 6, 1}, 1},     {{2, 6, 5}, 3},    {{3, 4, 7}, 4},
    {{1, 8, 31}, 2},    {{2, 8, 32}, 4},   {{2, 6, 33}, 3},    {{2, 12, 49}, 3},  {{3, 5, 63}, 5},
    {{2, 10, 64}, 2},   {{1, 4, 1000}, 2}, {{2, 300, 4}, 1},   {{1, 600, 3}, 2},  {{40, 8, 9}, 2},
    {{9, 64, 1}, 8},    {{2, 3, 4097}, 3}, {{1, 2, 20000}, 1}, {{2, 700, 65}, 1}, {{1, 2048, 1}, 4},
    {{300, 40, 2}, 20},
};

template <class T>
class GroupNormTest : public testing::Test {};
using Types = testing::Types<float, double, bfloat16, float16>;
TYPED_TEST_SUITE(GroupNormTest, Types);

TYPED_TEST(GroupNormTest, AgreesWithReference) {
  ForEachTarget([](const std::string& target) {
    SCOPED_TRACE(target);
    for (const auto& [shape, groups] : kCases) {
      for (const bool last : {false, true}) {
        Problem<TypeParam> p(shape, groups, /*affine=*/(shape.batch + shape.channels) % 3 != 0);
        p.options.channels_last = last;
        ExpectAgreesWithReference(p, Apply(p));
      }
    }
  });
}

TYPED_TEST(GroupNormTest, ParametersInFloat) {
  if constexpr (!std::is_same_v<TypeParam, float>) {
    Problem<TypeParam, float> p({3, 6, 50}, 3);
    ExpectAgreesWithReference(p, Apply(p));
    p.options.channels_last = true;
    ExpectAgreesWithReference(p, Apply(p));
  }
}

// PyTorch's group norm loses all digits of the deviation here in float.
TYPED_TEST(GroupNormTest, ExactAtALargeMean) {
  if constexpr (sizeof(TypeParam) > 2) {
    for (const auto& [shape, groups] : {Case{{2, 6, 5}, 3}, Case{{2, 6, 100}, 2}}) {
      for (const double mean : {1e4, -3e6}) {
        Problem<TypeParam> p(shape, groups, true, mean);
        ExpectAgreesWithReference(p, Apply(p));
        p.options.channels_last = true;
        ExpectAgreesWithReference(p, Apply(p));
      }
    }
  }
}

TYPED_TEST(GroupNormTest, AnyScale) {
  if constexpr (sizeof(TypeParam) > 2) {
    for (const double scale : {1e-30, 1e-15, 1e15, 1e25}) {
      Problem<TypeParam> p({2, 6, 50}, 3, true, 0, scale);
      p.options.eps = 0;
      ExpectAgreesWithReference(p, Apply(p));
    }
  }
}

TYPED_TEST(GroupNormTest, ConstantGroupsGiveTheBias) {
  for (const bool last : {false, true}) {
    for (const int64_t spatial : {1, 5, 100}) {
      Problem<TypeParam> p({2, 6, spatial}, 3);
      p.options.channels_last = last;
      for (auto& x : p.x) x = FromDouble<TypeParam>(0.7);
      const auto out = Apply(p);
      for (int64_t i = 0; i < p.length(); ++i) {
        const auto c = static_cast<size_t>(p.ChannelOf(1, i));
        EXPECT_EQ(ToDouble(out.y[p.At(1, 1, i)]), ToDouble(p.bias[c]));
      }
    }
  }
}

TYPED_TEST(GroupNormTest, NanAndInfinityStayInTheirGroup) {
  ForEachTarget([](const std::string& target) {
    SCOPED_TRACE(target);
    for (const bool last : {false, true}) {
      for (const int64_t spatial : {1, 5, 100}) {
        Problem<TypeParam> p({3, 8, spatial}, 4);
        p.options.channels_last = last;
        const auto expected = Apply(p);
        p.x[p.At(0, 1, 1)] = FromDouble<TypeParam>(std::numeric_limits<double>::quiet_NaN());
        p.x[p.At(2, 3, 0)] = FromDouble<TypeParam>(-std::numeric_limits<double>::infinity());
        const auto out = Apply(p);
        for (int64_t b = 0; b < 3; ++b) {
          for (int64_t g = 0; g < 4; ++g) {
            const bool bad = (b == 0 && g == 1) || (b == 2 && g == 3);
            for (int64_t i = 0; i < p.length(); ++i) {
              const int64_t at = p.At(b, g, i);
              if (bad) {
                ASSERT_TRUE(IsNan(out.y[at]) && IsNan(out.dx[at]));
              } else {
                ASSERT_EQ(ToDouble(out.y[at]), ToDouble(expected.y[at]));
                ASSERT_EQ(ToDouble(out.dx[at]), ToDouble(expected.dx[at]));
              }
            }
          }
        }
        EXPECT_EQ(ToDouble(out.dgain[0]), ToDouble(expected.dgain[0]));
        EXPECT_TRUE(IsNan(out.dgain[2]) && IsNan(out.dgain[7]));
      }
    }
  });
}

TYPED_TEST(GroupNormTest, SameBitsForEverySplit) {
  for (const auto& [shape, groups] : {Case{{64, 32, 49}, 8}, Case{{2, 8, 20000}, 2},
                                      Case{{300, 64, 7}, 4}, Case{{1, 4096, 40}, 1}}) {
    for (const bool last : {false, true}) {
      SCOPED_TRACE(testing::Message() << shape << (last ? " last" : ""));
      Problem<TypeParam> p(shape, groups);
      p.options.channels_last = last;
      const auto expected = Apply(p, SerialFor);
      for (const int64_t parts : {1, 2, 3, 7}) {
        int calls = 0;
        EXPECT_EQ(Apply(p, SplitIn(parts, &calls)).DiffersIn(expected), "");
        EXPECT_GE(calls, 2);
      }
    }
  }
}

TYPED_TEST(GroupNormTest, NtStoresAndPlacesGiveTheSameBits) {
  ForEachTarget([](const std::string& target) {
    SCOPED_TRACE(target);
    for (const auto& [shape, groups] :
         {Case{{2, 6, 5}, 3}, Case{{2, 8, 100}, 2}, Case{{1, 2, 20000}, 1}}) {
      for (const bool last : {false, true}) {
        Problem<TypeParam> p(shape, groups);
        p.options.channels_last = last;
        const auto expected = Apply(p);
        const tests::NtStores nt_stores;
        EXPECT_EQ(Apply(p).DiffersIn(expected), "") << shape;
        for (const int64_t offset : {1, 5}) {
          Result<TypeParam> out(p);
          tests::Shifted<TypeParam> y(out.y, offset), dx(out.dx, offset);
          auto forward = ForwardArgs(p, out);
          forward.y = y.begin;
          GroupNormForward(forward, p.options);
          EXPECT_TRUE(SameBits(y.values(), expected.y)) << shape;
          auto backward = BackwardArgs(p, out);
          backward.dx = dx.begin;
          GroupNormBackward(backward, p.options);
          EXPECT_TRUE(SameBits(dx.values(), expected.dx)) << shape;
        }
      }
    }
  });
}

TYPED_TEST(GroupNormTest, InPlaceGivesTheSameBits) {
  for (const auto& [shape, groups] : {Case{{2, 6, 5}, 3}, Case{{2, 8, 100}, 2}}) {
    for (const bool last : {false, true}) {
      Problem<TypeParam> p(shape, groups);
      p.options.channels_last = last;
      const auto expected = Apply(p);
      Problem<TypeParam> work = p;
      Result<TypeParam> out(p);
      auto forward = ForwardArgs(work, out);
      forward.y = work.x.data();
      GroupNormForward(forward, p.options);
      EXPECT_TRUE(SameBits(work.x, expected.y));
      work.x = p.x;
      auto backward = BackwardArgs(work, out);
      backward.dx = work.dy.data();
      GroupNormBackward(backward, p.options);
      EXPECT_TRUE(SameBits(work.dy, expected.dx) && SameBits(out.dgain, expected.dgain));
    }
  }
}

TYPED_TEST(GroupNormTest, EveryOutputIsOptional) {
  const Problem<TypeParam> p({3, 8, 50}, 4);
  const auto expected = Apply(p);
  Result<TypeParam> out(p);
  const Result<TypeParam> unset(p);
  auto forward = ForwardArgs(p, out);
  forward.mean = forward.mean_lo = forward.rstd = nullptr;
  GroupNormForward(forward, p.options);
  EXPECT_TRUE(SameBits(out.y, expected.y));
  for (int subset = 0; subset < 8; ++subset) {
    out = expected;
    out.dx = unset.dx;
    out.dgain = unset.dgain;
    out.dbias = unset.dbias;
    auto args = BackwardArgs(p, out);
    if (!(subset & 1)) args.dx = nullptr;
    if (!(subset & 2)) args.dgain = nullptr;
    if (!(subset & 4)) args.dbias = nullptr;
    GroupNormBackward(args, p.options);
    EXPECT_TRUE(SameBits(out.dx, subset & 1 ? expected.dx : unset.dx)) << subset;
    EXPECT_TRUE(SameBits(out.dgain, subset & 2 ? expected.dgain : unset.dgain)) << subset;
    EXPECT_TRUE(SameBits(out.dbias, subset & 4 ? expected.dbias : unset.dbias)) << subset;
  }
}

TYPED_TEST(GroupNormTest, EmptyArraysAreValid) {
  for (const bool last : {false, true}) {
    for (const Shape& shape : {Shape{0, 6, 5}, Shape{2, 0, 5}, Shape{2, 6, 0}}) {
      Problem<TypeParam> p(shape, 3);
      p.options.channels_last = last;
      const auto out = Apply(p);
      for (const auto& rstd : out.rstd) EXPECT_TRUE(std::isnan(rstd));
      for (const auto& dgain : out.dgain) EXPECT_EQ(ToDouble(dgain), 0);
      for (const auto& dbias : out.dbias) EXPECT_EQ(ToDouble(dbias), 0);
    }
  }
}

TEST(GroupNormErrorTest, Texts) {
  const Problem<float> p({2, 6, 5}, 3);
  Result<float> out(p);
  const auto forward = [&](auto&& change) {
    auto args = ForwardArgs(p, out);
    GroupNormOptions options;
    change(args, options);
    return ErrorOf([&] { GroupNormForward(args, options); });
  };
  EXPECT_EQ(forward([](auto&, auto&) {}), "");
  EXPECT_EQ(forward([](auto& a, auto&) { a.groups = 4; }),
            "[GroupNormForward] groups must divide channels (6), got 4");
  EXPECT_EQ(forward([](auto& a, auto&) { a.groups = 0; }),
            "[GroupNormForward] groups must be at least 1, got 0");
  EXPECT_EQ(forward([](auto& a, auto&) { a.batch = -1; }),
            "[GroupNormForward] batch must be at least 0, got -1");
  EXPECT_EQ(forward([](auto&, auto& o) { o.eps = -1; }),
            "[GroupNormForward] eps must be finite and at least 0, got -1");
  EXPECT_EQ(forward([](auto& a, auto&) { a.x = nullptr; }),
            "[GroupNormForward] x must point to 240 bytes, got null");
  auto backward = BackwardArgs(p, out);
  backward.rstd = nullptr;
  EXPECT_EQ(ErrorOf([&] { GroupNormBackward(backward); }),
            "[GroupNormBackward] rstd must point to 24 bytes, got null");
}

}  // namespace
}  // namespace planish
