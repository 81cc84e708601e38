#include "planish/weight_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "src/norm/channels/weight_norm_testing.h"

namespace planish {
namespace {

using namespace tests::weight_norm;  // NOLINT(google-build-using-namespace): helpers
using tests::ErrorOf;
using tests::ForEachTarget;
using tests::FromDouble;
using tests::IsNan;
using tests::Near;
using tests::Real;
using tests::SameBits;
using tests::SplitIn;
using tests::ToDouble;
using tests::UnitRoundoff;

template <class T, class P>
Result<T, P> Apply(const Problem<T, P>& p, const ParallelFor& parallel_for = {}) {
  Result<T, P> out(p);
  WeightNormForward(ForwardArgs(p, out), parallel_for);
  WeightNormBackward(BackwardArgs(p, out), parallel_for);
  return out;
}

template <class T>
class WeightNormTest : public testing::Test {};
using Types = testing::Types<float, double, bfloat16, float16>;
TYPED_TEST_SUITE(WeightNormTest, Types);

TYPED_TEST(WeightNormTest, AgreesWithReference) {
  ForEachTarget([](const std::string& target) {
    SCOPED_TRACE(target);
    for (const int64_t cols : tests::Widths()) {
      const Problem<TypeParam> p(3, cols);
      ExpectAgreesWithReference(p, Apply(p));
    }
    for (const auto& [rows, cols] : {std::pair{1, 1},
                                     {1000, 1},
                                     {1000, 7},
                                     {2000, 63},
                                     {20, 129},
                                     {5, 1000},
                                     {3, 4097},
                                     {1, 20000},
                                     {2, 40000},
                                     {700, 100}}) {
      const Problem<TypeParam> p(rows, cols);
      ExpectAgreesWithReference(p, Apply(p));
    }
  });
}

TYPED_TEST(WeightNormTest, LengthsInFloat) {
  if constexpr (!std::is_same_v<TypeParam, float>) {
    const Problem<TypeParam, float> p(9, 100);
    ExpectAgreesWithReference(p, Apply(p));
  }
}

TYPED_TEST(WeightNormTest, AnyScale) {
  if constexpr (sizeof(TypeParam) > 2) {
    for (const double scale : {1e-30, 1e-20, 1e20, 1e30}) {
      for (const int64_t cols : {5, 100, 20000}) {
        const Problem<TypeParam> p(3, cols, scale);
        ExpectAgreesWithReference(p, Apply(p));
      }
    }
  }
}

// 3-4-5 triangles.
TYPED_TEST(WeightNormTest, WorkedExample) {
  Problem<TypeParam> p(2, 2);
  const double v[] = {3, 4, -4, 3}, dw[] = {1, 0, 0, 5};
  for (int i = 0; i < 4; ++i) {
    p.v[i] = FromDouble<TypeParam>(v[i]);
    p.dw[i] = FromDouble<TypeParam>(dw[i]);
  }
  p.g = {FromDouble<TypeParam>(10), FromDouble<TypeParam>(5)};
  const auto out = Apply(p);
  const Real u = UnitRoundoff<TypeParam>();
  // dv of row 0: 10/5 * ((1, 0) - (.6, .8) * .6); of row 1: (0, 5) - (-.8, .6) * 3.
  const double w[] = {6, 8, -4, 3}, dv[] = {1.28, -0.96, 2.4, 3.2}, dg[] = {0.6, 3};
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(Near(ToDouble(out.w[i]), w[i], 2 * u * std::abs(w[i])));
    EXPECT_TRUE(Near(ToDouble(out.dv[i]), dv[i], 2 * u * 5));  // two roundings of at most 5
  }
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(out.norm[r], 5);
    EXPECT_TRUE(Near(ToDouble(out.dg[r]), dg[r], 2 * u * 3));
  }
}

TYPED_TEST(WeightNormTest, ZerosNanAndInfinityStayInTheirRow) {
  for (const int64_t cols : {2, 100}) {
    const Problem<TypeParam> clean(7, cols);
    Problem<TypeParam> p = clean;
    std::fill_n(p.v.begin() + cols, cols, FromDouble<TypeParam>(0));
    p.v[3 * cols] = FromDouble<TypeParam>(std::numeric_limits<double>::quiet_NaN());
    p.v[5 * cols + 1] = FromDouble<TypeParam>(-std::numeric_limits<double>::infinity());
    const auto expected = Apply(clean), out = Apply(p);
    EXPECT_EQ(out.norm[1], 0);
    for (int64_t r = 0; r < 7; ++r) {
      for (int64_t i = r * cols; i < (r + 1) * cols; ++i) {
        if (r == 1 || r == 3 || r == 5) {
          EXPECT_TRUE(IsNan(out.w[i]) && IsNan(out.dv[i])) << r;
        } else {
          EXPECT_TRUE(out.w[i] == expected.w[i] && out.dv[i] == expected.dv[i]) << r;
        }
      }
    }
  }
}

TYPED_TEST(WeightNormTest, ARowDependsOnlyOnItself) {
  ForEachTarget([](const std::string& target) {
    for (const int64_t cols : {1, 7, 8, 63, 64, 100, 1000, 4097, 20001}) {
      SCOPED_TRACE(testing::Message() << cols << " on " << target);
      const Problem<TypeParam> p(11, cols);
      const auto all = Apply(p);
      const tests::NtStores nt_stores;
      for (const int64_t r : {0, 4, 10}) {
        Problem<TypeParam> one(1, cols);
        const auto row = [&](const auto& values) {
          return std::vector(values.begin() + r * cols, values.begin() + (r + 1) * cols);
        };
        one.v = row(p.v);
        one.dw = row(p.dw);
        one.g = {p.g[r]};
        const auto out = Apply(one);
        EXPECT_TRUE(SameBits(out.w, row(all.w)) && SameBits(out.dv, row(all.dv)));
        EXPECT_TRUE(SameBits(out.norm, {all.norm[r]}) && SameBits(out.dg, {all.dg[r]}));
      }
    }
  });
}

TYPED_TEST(WeightNormTest, SameBitsForEverySplit) {
  for (const auto& [rows, cols] : {std::pair{20000, 7}, {800, 300}, {3, 100000}, {1, 300000}}) {
    const Problem<TypeParam> p(rows, cols);
    const auto expected = Apply(p, SerialFor);
    for (const int64_t parts : {1, 2, 3, 7}) {
      int calls = 0;
      EXPECT_EQ(Apply(p, SplitIn(parts, &calls)).DiffersIn(expected), "");
      EXPECT_GE(calls, 2);
    }
  }
}

// Non-temporal stores give the same bits, for whole and partial lines.
TYPED_TEST(WeightNormTest, NtStoresGiveTheSameBits) {
  ForEachTarget([](const std::string& target) {
    SCOPED_TRACE(target);
    for (const auto& [rows, cols] :
         {std::pair{1, 3}, {5, 1}, {30, 7}, {9, 100}, {700, 63}, {2, 20001}}) {
      const Problem<TypeParam> p(rows, cols);
      const auto expected = Apply(p);
      const tests::NtStores nt_stores;
      EXPECT_EQ(Apply(p).DiffersIn(expected), "") << rows << " x " << cols;
      for (const int64_t offset : {1, 5}) {
        Result<TypeParam> out(p);
        tests::Shifted<TypeParam> y(out.w, offset), dx(out.dv, offset);
        auto forward = ForwardArgs(p, out);
        forward.w = y.begin;
        WeightNormForward(forward);
        EXPECT_TRUE(SameBits(y.values(), expected.w)) << rows << " x " << cols;
        auto backward = BackwardArgs(p, out);
        backward.dv = dx.begin;
        WeightNormBackward(backward);
        EXPECT_TRUE(SameBits(dx.values(), expected.dv)) << rows << " x " << cols;
      }
    }
  });
}

TYPED_TEST(WeightNormTest, InPlaceGivesTheSameBits) {
  for (const auto& [rows, cols] : {std::pair{5, 1}, {30, 7}, {9, 100}, {2, 20001}}) {
    const Problem<TypeParam> p(rows, cols);
    const auto expected = Apply(p);
    const auto expect_in_place = [&] {
      Problem<TypeParam> work = p;
      Result<TypeParam> out(p);
      auto forward = ForwardArgs(work, out);
      forward.w = work.v.data();
      WeightNormForward(forward);
      EXPECT_TRUE(SameBits(work.v, expected.w));
      work.v = p.v;
      auto backward = BackwardArgs(work, out);
      backward.dv = work.dw.data();
      WeightNormBackward(backward);
      EXPECT_TRUE(SameBits(work.dw, expected.dv) && SameBits(out.dg, expected.dg));
    };
    expect_in_place();
    const tests::NtStores nt_stores;
    expect_in_place();
  }
}

TYPED_TEST(WeightNormTest, EveryOutputIsOptional) {
  const Problem<TypeParam> p(9, 100);
  const auto expected = Apply(p);
  Result<TypeParam> out(p), untouched(p);
  auto forward = ForwardArgs(p, out);
  forward.norm = nullptr;
  WeightNormForward(forward);
  EXPECT_TRUE(SameBits(out.w, expected.w));
  out.norm = expected.norm;
  auto backward = BackwardArgs(p, out);
  backward.dg = nullptr;
  WeightNormBackward(backward);
  EXPECT_TRUE(SameBits(out.dv, expected.dv) && SameBits(out.dg, untouched.dg));
  backward = BackwardArgs(p, out);
  out.dv = untouched.dv;
  backward.dv = nullptr;
  backward.g = nullptr;
  WeightNormBackward(backward);
  EXPECT_TRUE(SameBits(out.dv, untouched.dv) && SameBits(out.dg, expected.dg));
}

TYPED_TEST(WeightNormTest, EmptyArraysAreValid) {
  Apply(Problem<TypeParam>(0, 5));
  const auto out = Apply(Problem<TypeParam>(3, 0));
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(out.norm[r], 0);
    EXPECT_EQ(ToDouble(out.dg[r]), 0);
  }
}

TEST(WeightNormErrorTest, Texts) {
  const Problem<float> p(2, 3);
  Result<float> out(p);
  const auto forward = [&](auto&& change) {
    auto args = ForwardArgs(p, out);
    change(args);
    return ErrorOf([&] { WeightNormForward(args); });
  };
  EXPECT_EQ(forward([](auto&) {}), "");
  EXPECT_EQ(forward([](auto& a) { a.rows = -1; }),
            "[WeightNormForward] rows must be at least 0, got -1");
  EXPECT_EQ(forward([](auto& a) { a.g = nullptr; }),
            "[WeightNormForward] g must point to 8 bytes, got null");
  EXPECT_EQ(forward([](auto& a) { a.w = const_cast<float*>(a.v) + 2; }),
            "[WeightNormForward] w must not overlap v, got 16 bytes in common");
  EXPECT_EQ(forward([](auto& a) { a.norm = const_cast<float*>(a.g); }),
            "[WeightNormForward] norm must not overlap g, got 8 bytes in common");
  const auto backward = [&](auto&& change) {
    auto args = BackwardArgs(p, out);
    change(args);
    return ErrorOf([&] { WeightNormBackward(args); });
  };
  EXPECT_EQ(backward([](auto&) {}), "");
  EXPECT_EQ(backward([](auto& a) { a.cols = -4; }),
            "[WeightNormBackward] cols must be at least 0, got -4");
  EXPECT_EQ(backward([](auto& a) { a.norm = nullptr; }),
            "[WeightNormBackward] norm must point to 8 bytes, got null");
  EXPECT_EQ(backward([](auto& a) { a.g = nullptr; }),
            "[WeightNormBackward] g must point to 8 bytes, got null");
  EXPECT_EQ(backward([](auto& a) { a.dv = const_cast<float*>(a.v); }),
            "[WeightNormBackward] dv must not overlap v, got 24 bytes in common");
}

}  // namespace
}  // namespace planish
