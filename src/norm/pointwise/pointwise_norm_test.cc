#include "planish/pointwise_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "src/norm/pointwise/testing.h"

namespace planish {
namespace {

using namespace tests::pointwise;  // NOLINT(google-build-using-namespace): helpers
using tests::ErrorOf;
using tests::ForEachTarget;
using tests::FromDouble;
using tests::IsNan;
using tests::SameBits;
using tests::SplitIn;
using tests::ToDouble;

template <class T, class P>
Result<T, P> Apply(const Problem<T, P>& p, const ParallelFor& parallel_for = {}) {
  Result<T, P> out(p);
  PointwiseNormForward(p.function, ForwardArgs(p, out), parallel_for);
  PointwiseNormBackward(p.function, BackwardArgs(p, out), parallel_for);
  return out;
}

template <class T>
class PointwiseNormTest : public testing::Test {};
using Types = testing::Types<float, double, bfloat16, float16>;
TYPED_TEST_SUITE(PointwiseNormTest, Types);

TYPED_TEST(PointwiseNormTest, AgreesWithReference) {
  ForEachTarget([](const std::string& target) {
    SCOPED_TRACE(target);
    for (const Pointwise f : kFunctions) {
      for (const int64_t cols : tests::Widths()) {
        const Problem<TypeParam> p(f, 3, cols);
        ExpectAgreesWithReference(p, Apply(p));
      }
      for (const auto& [rows, cols] : {std::pair{1, 1},
                                       {1000, 1},
                                       {257, 7},
                                       {9, 255},
                                       {20, 256},
                                       {20, 257},
                                       {5, 1025},
                                       {3, 4097},
                                       {1, 40001},
                                       {700, 100}}) {
        const Problem<TypeParam> p(f, rows, cols);
        ExpectAgreesWithReference(p, Apply(p));
      }
    }
  });
}

TYPED_TEST(PointwiseNormTest, ParametersInFloat) {
  if constexpr (!std::is_same_v<TypeParam, float>) {
    for (const Pointwise f : kFunctions) {
      const Problem<TypeParam, float> p(f, 9, 100);
      ExpectAgreesWithReference(p, Apply(p));
    }
  }
}

TYPED_TEST(PointwiseNormTest, AnyAlphaAndSaturatedInputs) {
  ForEachTarget([](const std::string& target) {
    SCOPED_TRACE(target);
    for (const Pointwise f : kFunctions) {
      for (const double alpha : {0.0, -0.75, 1e-4, 30.0}) {
        for (const double deviation : {1e-3, 1.0, 1e3}) {
          const Problem<TypeParam> p(f, 4, 100, alpha, deviation);
          ExpectAgreesWithReference(p, Apply(p));
        }
      }
    }
  });
}

TYPED_TEST(PointwiseNormTest, EveryParameterIsOptional) {
  for (const Pointwise f : kFunctions) {
    for (const int64_t cols : {3, 300}) {
      Problem<TypeParam> p(f, 5, cols);
      p.shift.clear();
      p.bias.clear();
      ExpectAgreesWithReference(p, Apply(p));
      p.gain.clear();
      ExpectAgreesWithReference(p, Apply(p));
    }
  }
}

// The gradients are those of y, by the complex step (docs/math.md). The standard library has no erf
// of complex numbers. In long double: only the results are rounded.
TEST(PointwiseNormGradientTest, OfTanhAreDerivatives) {
  using Complex = std::complex<long double>;
  const long double step = 1e-200L;
  Problem<double> p(Pointwise::kTanh, 1, 5);
  p.shift = {0.25};
  const Result<double> out = Apply(p);
  const auto loss = [&](Complex alpha, Complex shift, size_t moved, Complex by) {
    Complex sum = 0;
    for (size_t i = 0; i < 5; ++i) {
      const Complex x = static_cast<long double>(p.x[i]) + (i == moved ? by : Complex(0));
      sum += static_cast<long double>(p.dy[i]) *
             (static_cast<long double>(p.gain[i]) * std::tanh(alpha * x + shift));
    }
    return sum;
  };
  const Complex alpha = p.alpha[0], shift = p.shift[0], i(0, step);
  const auto near = [&](double value, Complex moved) {
    const auto expected = static_cast<double>(moved.imag() / step);
    EXPECT_NEAR(value, expected, 1e-14 * (1 + std::abs(expected)));  // 50 roundings of size 1
  };
  near(out.dalpha[0], loss(alpha + i, shift, 9, 0));
  near(out.dshift[0], loss(alpha, shift + i, 9, 0));
  for (size_t k = 0; k < 5; ++k) near(out.dx[k], loss(alpha, shift, k, i));
}

TYPED_TEST(PointwiseNormTest, NanAndInfinityStayInTheirElement) {
  ForEachTarget([](const std::string& target) {
    SCOPED_TRACE(target);
    constexpr double kInf = std::numeric_limits<double>::infinity();
    for (const Pointwise f : kFunctions) {
      for (const int64_t cols : {7, 300}) {
        const Problem<TypeParam> clean(f, 9, cols);
        Problem<TypeParam> p = clean;
        p.x[1] = FromDouble<TypeParam>(kInf);
        p.x[2] = FromDouble<TypeParam>(-kInf);
        p.x[3 * cols - 1] = FromDouble<TypeParam>(std::numeric_limits<double>::quiet_NaN());
        const auto expected = Apply(clean), out = Apply(p);
        for (int64_t i = 0; i < 9 * cols; ++i) {
          if (i == 3 * cols - 1) {
            EXPECT_TRUE(IsNan(out.y[i]) && IsNan(out.dx[i]));
          } else if (i == 1 || i == 2) {
            const double sum = ToDouble(p.bias[i]) + (i == 1 ? 1 : -1) * ToDouble(p.gain[i]);
            EXPECT_NEAR(ToDouble(out.y[i]), sum, 0.01);  // a rounding of 8 bits or more
            EXPECT_EQ(ToDouble(out.dx[i]), 0);
          } else {
            ASSERT_EQ(ToDouble(out.y[i]), ToDouble(expected.y[i])) << i;
            ASSERT_EQ(ToDouble(out.dx[i]), ToDouble(expected.dx[i])) << i;
          }
        }
        EXPECT_TRUE(IsNan(out.dgain[cols - 1]));
        for (int64_t c = 3; c < cols - 1; ++c) {
          EXPECT_EQ(ToDouble(out.dgain[c]), ToDouble(expected.dgain[c]));
        }
      }
    }
  });
}

TYPED_TEST(PointwiseNormTest, SameBitsForEverySplit) {
  for (const Pointwise f : kFunctions) {
    for (const auto& [rows, cols] : {std::pair{30000, 7}, {800, 300}, {3, 100000}, {1, 300000}}) {
      const Problem<TypeParam> p(f, rows, cols);
      const auto expected = Apply(p, SerialFor);
      for (const int64_t parts : {1, 2, 3, 7}) {
        int calls = 0;
        EXPECT_EQ(Apply(p, SplitIn(parts, &calls)).DiffersIn(expected), "");
        EXPECT_GE(calls, 2);
      }
    }
  }
}

// Non-temporal stores give the same bits, for whole and partial lines, and at any address.
TYPED_TEST(PointwiseNormTest, NtStoresGiveTheSameBits) {
  ForEachTarget([](const std::string& target) {
    SCOPED_TRACE(target);
    for (const auto& [rows, cols] : {std::pair{1, 3}, {30, 7}, {9, 256}, {40, 1024}, {2, 20001}}) {
      const Problem<TypeParam> p(Pointwise::kTanh, rows, cols);
      const auto expected = Apply(p);
      const tests::NtStores nt_stores;
      EXPECT_EQ(Apply(p).DiffersIn(expected), "") << rows << " x " << cols;
      for (const int64_t offset : {0, 1, 5}) {
        Result<TypeParam> out(p);
        tests::Shifted<TypeParam> y(out.y, offset), dx(out.dx, offset);
        auto forward = ForwardArgs(p, out);
        forward.y = y.begin;
        PointwiseNormForward(p.function, forward);
        EXPECT_TRUE(SameBits(y.values(), expected.y)) << rows << " x " << cols;
        auto backward = BackwardArgs(p, out);
        backward.dx = dx.begin;
        PointwiseNormBackward(p.function, backward);
        EXPECT_TRUE(SameBits(dx.values(), expected.dx)) << rows << " x " << cols;
      }
    }
  });
}

TYPED_TEST(PointwiseNormTest, InPlaceGivesTheSameBits) {
  for (const Pointwise f : kFunctions) {
    for (const auto& [rows, cols] : {std::pair{5, 1}, {30, 7}, {9, 100}, {2, 20001}}) {
      Problem<TypeParam> p(f, rows, cols);
      const auto expected = Apply(p);
      const auto expect_in_place = [&] {
        Problem<TypeParam> work = p;
        Result<TypeParam> out(p);
        auto forward = ForwardArgs(work, out);
        forward.y = work.x.data();
        PointwiseNormForward(f, forward);
        EXPECT_TRUE(SameBits(work.x, expected.y));
        work.x = p.x;
        auto backward = BackwardArgs(work, out);
        backward.dx = work.dy.data();
        PointwiseNormBackward(f, backward);
        EXPECT_TRUE(SameBits(work.dy, expected.dx) && SameBits(out.dgain, expected.dgain));
      };
      expect_in_place();
      const tests::NtStores nt_stores;
      expect_in_place();
    }
  }
}

TYPED_TEST(PointwiseNormTest, EveryOutputIsOptional) {
  const Problem<TypeParam> p(Pointwise::kErf, 9, 100);
  const auto expected = Apply(p);
  const Result<TypeParam> unset(p);
  const auto backward = [&](auto&& change) {
    Result<TypeParam> out = unset;
    auto args = BackwardArgs(p, out);
    change(args);
    PointwiseNormBackward(p.function, args);
    out.y = expected.y;
    return out;
  };
  auto out = backward([](auto& a) { a.dx = nullptr; });
  EXPECT_TRUE(SameBits(out.dx, unset.dx));
  out.dx = expected.dx;
  EXPECT_EQ(out.DiffersIn(expected), "");
  out = backward([](auto& a) { a.dalpha = a.dshift = a.dgain = a.dbias = nullptr; });
  EXPECT_TRUE(SameBits(out.dx, expected.dx) && SameBits(out.dgain, unset.dgain));
  out = backward([](auto& a) { a.dx = nullptr, a.dalpha = a.dgain = nullptr; });
  EXPECT_TRUE(SameBits(out.dshift, expected.dshift) && SameBits(out.dbias, expected.dbias));
  EXPECT_TRUE(SameBits(out.dalpha, unset.dalpha) && SameBits(out.dgain, unset.dgain));
  out =
      backward([](auto& a) { a.dx = nullptr, a.dalpha = a.dshift = a.dgain = a.dbias = nullptr; });
  EXPECT_TRUE(SameBits(out.dx, unset.dx));
}

TYPED_TEST(PointwiseNormTest, EmptyArraysAreValid) {
  const auto out = Apply(Problem<TypeParam>(Pointwise::kErf, 0, 5));
  for (int c = 0; c < 5; ++c) EXPECT_EQ(ToDouble(out.dgain[c]), 0);
  EXPECT_EQ(ToDouble(out.dalpha[0]), 0);
  EXPECT_EQ(ToDouble(out.dshift[0]), 0);
  Apply(Problem<TypeParam>(Pointwise::kTanh, 3, 0));
}

TEST(PointwiseNormErrorTest, Texts) {
  const Problem<float> p(Pointwise::kErf, 2, 3);
  Result<float> out(p);
  const auto forward = [&](auto&& change, Pointwise f = Pointwise::kErf) {
    auto args = ForwardArgs(p, out);
    change(args);
    return ErrorOf([&] { PointwiseNormForward(f, args); });
  };
  EXPECT_EQ(forward([](auto&) {}), "");
  EXPECT_EQ(forward([](auto&) {}, static_cast<Pointwise>(2)),
            "[PointwiseNormForward] function must be a value of planish::Pointwise, got 2");
  EXPECT_EQ(forward([](auto& a) { a.rows = -1; }),
            "[PointwiseNormForward] rows must be at least 0, got -1");
  EXPECT_EQ(forward([](auto& a) { a.alpha = nullptr; }),
            "[PointwiseNormForward] alpha must point to 4 bytes, got null");
  EXPECT_EQ(forward([](auto& a) { a.y = const_cast<float*>(a.x) + 2; }),
            "[PointwiseNormForward] y must not overlap x, got 16 bytes in common");
  const auto backward = [&](auto&& change) {
    auto args = BackwardArgs(p, out);
    change(args);
    return ErrorOf([&] { PointwiseNormBackward(Pointwise::kErf, args); });
  };
  EXPECT_EQ(backward([](auto&) {}), "");
  EXPECT_EQ(backward([](auto& a) { a.cols = -4; }),
            "[PointwiseNormBackward] cols must be at least 0, got -4");
  EXPECT_EQ(backward([](auto& a) { a.dx = const_cast<float*>(a.x); }),
            "[PointwiseNormBackward] dx must not overlap x, got 24 bytes in common");
  EXPECT_EQ(backward([](auto& a) { a.dshift = const_cast<float*>(a.alpha); }),
            "[PointwiseNormBackward] dshift must not overlap alpha, got 4 bytes in common");
}

}  // namespace
}  // namespace planish
