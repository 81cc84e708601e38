#include "planish/dropout_norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "planish/norm.h"
#include "src/norm/testing.h"

namespace planish {
namespace {

using tests::FromDouble;
using tests::ToDouble;

using Words = std::array<uint32_t, 4>;

/// Philox4x32-10, as Salmon et al. 2011 define it.
Words Philox(Words counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * counter[0], p1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// The known answers of the authors' library, Random123.
TEST(PhiloxTest, HasKnownAnswers) {
  EXPECT_EQ(Philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(Philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

int64_t KeepOf(const Dropout& dropout) { return std::lround((1 - dropout.p) * 65536); }

/// Returns whether dropout keeps an element, by the definition in the header.
bool IsKept(const Dropout& dropout, int64_t row, int64_t col) {
  const auto r = static_cast<uint64_t>(row);
  const Words words =
      Philox({static_cast<uint32_t>(col / 128 * 16 + col % 16), static_cast<uint32_t>(r),
              static_cast<uint32_t>(r >> 32), dropout.stream},
             {static_cast<uint32_t>(dropout.seed), static_cast<uint32_t>(dropout.seed >> 32)});
  const int64_t i = col % 128 / 16;
  const uint32_t word = words[static_cast<size_t>(i / 2)];
  return static_cast<int64_t>(i % 2 == 0 ? word & 0xffff : word >> 16) < KeepOf(dropout);
}

/// Returns the factor of an element.
template <class T>
Compute<T> FactorOf(const Dropout& dropout, int64_t row, int64_t col) {
  using C = Compute<T>;
  const auto keep = static_cast<double>(KeepOf(dropout));
  return IsKept(dropout, row, col) ? static_cast<C>(65536 / keep) : C{0};
}

template <class T>
Compute<T> InC(T value) {
  return static_cast<Compute<T>>(ToDouble(value));
}

template <class T>
struct Problem {
  Problem(int64_t rows_, int64_t cols_, Norm norm_ = Norm::kLayer) : rows(rows_), cols(cols_) {
    norm = norm_;
    std::mt19937 random(static_cast<uint32_t>(1 + 1000 * rows + cols));
    x = tests::Normal<T>(rows * cols, random);
    residual = tests::Normal<T>(rows * cols, random, 0.5);
    dy = tests::Normal<T>(rows * cols, random);
    dsum = tests::Normal<T>(rows * cols, random);
    if (tests::IsAffine(norm)) {
      gain = tests::Normal<T>(cols, random, 1, 0.3);
      bias = tests::Normal<T>(cols, random);
    }
  }
  Norm norm;
  int64_t rows, cols;
  std::vector<T> x, residual, dy, dsum, gain, bias;
};

template <class T>
struct Result {
  explicit Result(const Problem<T>& p)
      : sum(p.x.size(), tests::Unset<T>()), y(sum), dx(sum), dresidual(sum) {
    const auto rows = static_cast<size_t>(p.rows);
    mean.assign(rows, tests::Unset<Compute<T>>());
    mean_lo = rstd = mean;
    dgain.assign(p.gain.size(), tests::Unset<T>());
    dbias = dgain;
  }
  bool Same(const Result& other) const {
    return tests::SameBits(sum, other.sum) && tests::SameBits(y, other.y) &&
           tests::SameBits(dx, other.dx) && tests::SameBits(dresidual, other.dresidual) &&
           tests::SameBits(dgain, other.dgain) && tests::SameBits(dbias, other.dbias) &&
           tests::SameBits(mean, other.mean) && tests::SameBits(rstd, other.rstd);
  }
  std::vector<T> sum, y, dx, dresidual, dgain, dbias;
  std::vector<Compute<T>> mean, mean_lo, rstd;
};

template <class T>
Result<T> Apply(const Problem<T>& p, const Dropout& dropout, const NormOptions& options = {}) {
  Result<T> out(p);
  DropoutNormForward<T>(p.norm,
                        {.rows = p.rows,
                         .cols = p.cols,
                         .x = p.x.data(),
                         .residual = p.residual.data(),
                         .gain = tests::OrNull(p.gain),
                         .bias = tests::OrNull(p.bias),
                         .sum = out.sum.data(),
                         .y = out.y.data(),
                         .mean = out.mean.data(),
                         .mean_lo = out.mean_lo.data(),
                         .rstd = out.rstd.data()},
                        dropout, options);
  DropoutNormBackward<T>(p.norm,
                         {.rows = p.rows,
                          .cols = p.cols,
                          .dy = p.dy.data(),
                          .sum = out.sum.data(),
                          .gain = tests::OrNull(p.gain),
                          .mean = out.mean.data(),
                          .mean_lo = out.mean_lo.data(),
                          .rstd = out.rstd.data(),
                          .dsum = p.dsum.data(),
                          .dx = out.dx.data(),
                          .dresidual = out.dresidual.data(),
                          .dgain = out.dgain.empty() ? nullptr : out.dgain.data(),
                          .dbias = out.dbias.empty() ? nullptr : out.dbias.data()},
                         dropout, options);
  return out;
}

template <class T>
class DropoutNormTest : public ::testing::Test {};
using Types = ::testing::Types<float, double, bfloat16, float16>;
TYPED_TEST_SUITE(DropoutNormTest, Types);

constexpr std::array<int64_t, 2> kShapes[] = {{1, 1},    {3, 7},    {5, 16},   {2, 127},
                                              {3, 128},  {4, 129},  {2, 1000}, {70, 520},
                                              {700, 33}, {1, 40000}};

TYPED_TEST(DropoutNormTest, SumAndGradientHaveTheFactorsOfPhilox) {
  using T = TypeParam;
  const Dropout dropout{.p = 0.3, .seed = 0x123456789abcdef0, .stream = 7};
  tests::ForEachTarget([&](const std::string& target) {
    for (const auto& [rows, cols] : kShapes) {
      const Problem<T> p(rows, cols);
      const Result<T> out = Apply(p, dropout);
      for (int64_t i = 0; i < rows * cols; ++i) {
        const auto at = static_cast<size_t>(i);
        const Compute<T> factor = FactorOf<T>(dropout, i / cols, i % cols);
        const Compute<T> sum = InC(p.residual[at]) + InC(p.x[at]) * factor;
        ASSERT_EQ(ToDouble(out.sum[at]), ToDouble(FromDouble<T>(static_cast<double>(sum))))
            << target << " " << rows << " x " << cols << " at " << i;
        const Compute<T> dx = InC(out.dresidual[at]) * factor;
        ASSERT_EQ(ToDouble(out.dx[at]), ToDouble(FromDouble<T>(static_cast<double>(dx))))
            << target << " " << rows << " x " << cols << " at " << i;
      }
    }
  });
}

TYPED_TEST(DropoutNormTest, TheRestIsTheNormOfTheSum) {
  using T = TypeParam;
  const Dropout dropout{.p = 0.1, .seed = 5};
  for (const Norm norm : tests::kNorms) {
    for (const auto& [rows, cols] : kShapes) {
      if (cols == 1) continue;  // not for the unbiased deviation
      const Problem<T> p(rows, cols, norm);
      const Result<T> out = Apply(p, dropout);
      Result<T> expected(p);
      NormForward<T>(norm, {.rows = rows,
                            .cols = cols,
                            .x = out.sum.data(),
                            .gain = tests::OrNull(p.gain),
                            .bias = tests::OrNull(p.bias),
                            .y = expected.y.data(),
                            .mean = expected.mean.data(),
                            .mean_lo = expected.mean_lo.data(),
                            .rstd = expected.rstd.data()});
      std::vector<T> dgain(p.gain.size()), dbias(p.gain.size());
      NormBackward<T>(norm, {.rows = rows,
                             .cols = cols,
                             .dy = p.dy.data(),
                             .x = out.sum.data(),
                             .gain = tests::OrNull(p.gain),
                             .mean = expected.mean.data(),
                             .mean_lo = expected.mean_lo.data(),
                             .rstd = expected.rstd.data(),
                             .dx = expected.dresidual.data(),
                             .dgain = dgain.empty() ? nullptr : dgain.data(),
                             .dbias = dgain.empty() ? nullptr : dbias.data(),
                             .dsum = p.dsum.data()});
      const std::string what = std::string(tests::NameOf(norm)) + " " + std::to_string(cols);
      EXPECT_TRUE(tests::SameBits(out.y, expected.y)) << what;
      EXPECT_TRUE(tests::SameBits(out.mean, expected.mean)) << what;
      EXPECT_TRUE(tests::SameBits(out.rstd, expected.rstd)) << what;
      EXPECT_TRUE(tests::SameBits(out.dresidual, expected.dresidual)) << what;
      // The same terms, at most 700, summed in another order, and rounded once.
      const double unit = tests::UnitRoundoff<T>() + 32 * tests::UnitRoundoff<Compute<T>>();
      for (size_t c = 0; c < dgain.size(); ++c) {
        const double scale = std::sqrt(static_cast<double>(rows)) * 4 + 1;
        EXPECT_NEAR(ToDouble(out.dgain[c]), ToDouble(dgain[c]), 2 * unit * scale * 4) << what;
        EXPECT_NEAR(ToDouble(out.dbias[c]), ToDouble(dbias[c]), 2 * unit * scale * 4) << what;
      }
    }
  }
}

// Central differences of a loss in double, whose error is about eps^2 plus 1e-16 / eps.
TEST(DropoutNormGradientTest, IsTheDerivativeOfTheLoss) {
  constexpr double kEps = 1e-5;
  const Dropout dropout{.p = 0.4, .seed = 9};
  for (const Norm norm : {Norm::kLayer, Norm::kRms, Norm::kLayerSimple}) {
    const Problem<double> p(3, 20, norm);
    const Result<double> out = Apply(p, dropout);
    const auto loss = [&](const Problem<double>& at) {
      const Result<double> r = Apply(at, dropout);
      double sum = 0;
      for (size_t i = 0; i < r.y.size(); ++i) sum += r.y[i] * p.dy[i] + r.sum[i] * p.dsum[i];
      return sum;
    };
    const auto check = [&](std::vector<double> Problem<double>::* member,
                           const std::vector<double>& gradient) {
      for (size_t i = 0; i < gradient.size(); ++i) {
        Problem<double> up = p, down = p;
        (up.*member)[i] += kEps;
        (down.*member)[i] -= kEps;
        EXPECT_NEAR(gradient[i], (loss(up) - loss(down)) / (2 * kEps), 1e-7) << i;
      }
    };
    check(&Problem<double>::x, out.dx);
    check(&Problem<double>::residual, out.dresidual);
    check(&Problem<double>::gain, out.dgain);
    check(&Problem<double>::bias, out.dbias);
  }
}

TYPED_TEST(DropoutNormTest, TheSameBitsForAnyNumberOfThreads) {
  using T = TypeParam;
  const Dropout dropout{.p = 0.5, .seed = 1};
  for (const auto& [rows, cols] : {std::array<int64_t, 2>{3000, 400}, {7, 100000}}) {
    const Problem<T> p(rows, cols);
    const Result<T> serial = Apply(p, dropout, {.parallel_for = SerialFor});
    for (const int threads : tests::ThreadCounts()) {
      EXPECT_TRUE(Apply(p, dropout, {.parallel_for = tests::OnThreads(threads)}).Same(serial))
          << threads;
    }
  }
}

TYPED_TEST(DropoutNormTest, NoneAndAllAreDropped) {
  using T = TypeParam;
  const Problem<T> p(4, 130);
  const Result<T> none = Apply(p, {.p = 0}), all = Apply(p, {.p = 1});
  for (size_t i = 0; i < p.x.size(); ++i) {
    EXPECT_EQ(ToDouble(none.sum[i]),
              ToDouble(FromDouble<T>(static_cast<double>(InC(p.residual[i]) + InC(p.x[i])))));
    EXPECT_EQ(ToDouble(none.dx[i]), ToDouble(none.dresidual[i]));
    EXPECT_EQ(ToDouble(all.sum[i]), ToDouble(p.residual[i]));
    EXPECT_EQ(ToDouble(all.dx[i]), 0);
  }
}

TYPED_TEST(DropoutNormTest, ArraysCanBeAbsentOrInPlace) {
  using T = TypeParam;
  const Dropout dropout{.p = 0.3, .seed = 2};
  Problem<T> p(9, 140);
  const Result<T> expected = Apply(p, dropout);
  // sum in place of the residual, y in place of x.
  Result<T> out(p);
  std::vector<T> x = p.x, residual = p.residual, dy = p.dy;
  DropoutNormForward<T>(p.norm,
                        {.rows = 9,
                         .cols = 140,
                         .x = x.data(),
                         .residual = residual.data(),
                         .gain = p.gain.data(),
                         .bias = p.bias.data(),
                         .sum = residual.data(),
                         .y = x.data()},
                        dropout);
  EXPECT_TRUE(tests::SameBits(residual, expected.sum));
  EXPECT_TRUE(tests::SameBits(x, expected.y));
  // dx alone, in place of dy.
  DropoutNormBackward<T>(p.norm,
                         {.rows = 9,
                          .cols = 140,
                          .dy = dy.data(),
                          .sum = expected.sum.data(),
                          .gain = p.gain.data(),
                          .mean = expected.mean.data(),
                          .mean_lo = expected.mean_lo.data(),
                          .rstd = expected.rstd.data(),
                          .dsum = p.dsum.data(),
                          .dx = dy.data()},
                         dropout);
  EXPECT_TRUE(tests::SameBits(dy, expected.dx));
  // Without a residual: the sum is dropout(x).
  DropoutNormForward<T>(
      p.norm, {.rows = 9, .cols = 140, .x = p.x.data(), .sum = out.sum.data(), .y = out.y.data()},
      dropout);
  for (int64_t i = 0; i < 9 * 140; ++i) {
    const auto at = static_cast<size_t>(i);
    const Compute<T> sum = InC(p.x[at]) * FactorOf<T>(dropout, i / 140, i % 140);
    EXPECT_EQ(ToDouble(out.sum[at]), ToDouble(FromDouble<T>(static_cast<double>(sum))));
  }
}

TYPED_TEST(DropoutNormTest, EmptyCallsAndRowsWithoutElements) {
  using T = TypeParam;
  std::vector<T> dgain(5, tests::Unset<T>()), dbias = dgain;
  DropoutNormForward<T>(Norm::kLayer, {.rows = 0, .cols = 5}, {});
  DropoutNormBackward<T>(Norm::kLayer,
                         {.rows = 0, .cols = 5, .dgain = dgain.data(), .dbias = dbias.data()}, {});
  for (size_t c = 0; c < 5; ++c) EXPECT_EQ(ToDouble(dgain[c]) + ToDouble(dbias[c]), 0);
  std::vector<Compute<T>> rstd(3, 1);
  DropoutNormForward<T>(Norm::kLayer, {.rows = 3, .cols = 0, .rstd = rstd.data()}, {});
  EXPECT_TRUE(std::isnan(rstd[2]));
}

TYPED_TEST(DropoutNormTest, RowsThatAreNotFiniteLeaveOthersUnchanged) {
  using T = TypeParam;
  const Dropout dropout{.p = 0.5, .seed = 3};
  const Problem<T> p(3, 40);
  const Result<T> expected = Apply(p, dropout);
  for (const double value :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    for (const int64_t col : {0, 1, 2, 39}) {  // kept or dropped
      Problem<T> bad = p;
      bad.x[static_cast<size_t>(40 + col)] = FromDouble<T>(value);
      const Result<T> out = Apply(bad, dropout);
      for (size_t i = 0; i < p.x.size(); ++i) {
        if (i / 40 == 1) {
          EXPECT_TRUE(tests::IsNan(out.y[i]));
        } else {
          EXPECT_EQ(ToDouble(out.y[i]), ToDouble(expected.y[i]));
        }
      }
    }
  }
}

// 400,000 elements: the share of those kept has a standard deviation of at most 8e-4.
TEST(DropoutNormSharesTest, AreThoseOfThePAndIndependent) {
  const Problem<float> p(400, 1000, Norm::kLayerSimple);
  const auto kept = [&](const Dropout& dropout) {
    const Result<float> out = Apply(p, dropout);
    std::vector<bool> is_kept;
    for (size_t i = 0; i < p.x.size(); ++i) is_kept.push_back(out.sum[i] != p.residual[i]);
    return is_kept;
  };
  const auto share = [](const std::vector<bool>& one, const std::vector<bool>& other) {
    int64_t both = 0;
    for (size_t i = 0; i < one.size(); ++i) both += one[i] && other[i];
    return static_cast<double>(both) / static_cast<double>(one.size());
  };
  for (const double q : {0.1, 0.5, 0.9}) {
    const auto one = kept({.p = 1 - q, .seed = 1});
    EXPECT_NEAR(share(one, one), q, 4e-3);
    for (const Dropout& other :
         {Dropout{.seed = 2}, {.seed = 1, .stream = 1}, {.seed = uint64_t{1} << 32}}) {
      Dropout dropout = other;
      dropout.p = 1 - q;
      EXPECT_NEAR(share(one, kept(dropout)), q * q, 4e-3);
    }
    // Neighbors in a row and in a column.
    std::vector<bool> next_column(one.begin() + 1, one.end()),
        next_row(one.begin() + 1000, one.end());
    next_column.push_back(false);
    next_row.resize(one.size());
    EXPECT_NEAR(share(one, next_column), q * q, 4e-3);
    EXPECT_NEAR(share(one, next_row), q * q, 6e-3);  // the last row has no next one
  }
}

TEST(DropoutNormErrorsTest, AreReportedByName) {
  const Problem<float> p(2, 3);
  Result<float> out(p);
  DropoutNormForwardArgs<float> forward{
      .rows = 2, .cols = 3, .x = p.x.data(), .sum = out.sum.data(), .y = out.y.data()};
  const auto error = [&](const Dropout& dropout) {
    return tests::ErrorOf([&] { DropoutNormForward<float>(Norm::kLayer, forward, dropout); });
  };
  EXPECT_EQ(error({.p = 0.5}), "");
  EXPECT_EQ(error({.p = -0.1}), "[DropoutNormForward] p must be in [0, 1], got -0.1");
  EXPECT_EQ(error({.p = std::nan("")}), "[DropoutNormForward] p must be in [0, 1], got nan");
  forward.sum = nullptr;
  EXPECT_EQ(error({}), "[DropoutNormForward] sum must point to 24 bytes, got null");
  forward.sum = forward.y;
  EXPECT_NE(error({}).find("overlap"), std::string::npos) << error({});
  forward.sum = out.sum.data();
  forward.rows = -1;
  EXPECT_EQ(error({}), "[DropoutNormForward] rows must be at least 0, got -1");
  const DropoutNormBackwardArgs<float> backward{.rows = 2,
                                                .cols = 3,
                                                .dy = p.dy.data(),
                                                .sum = out.sum.data(),
                                                .mean = out.mean.data(),
                                                .mean_lo = out.mean_lo.data(),
                                                .rstd = out.rstd.data(),
                                                .dsum = p.dsum.data()};
  EXPECT_EQ(tests::ErrorOf([&] { DropoutNormBackward<float>(Norm::kLayer, backward, {}); }),
            "[DropoutNormBackward] dsum must be null without dx and dresidual, got an address");
}

}  // namespace
}  // namespace planish
