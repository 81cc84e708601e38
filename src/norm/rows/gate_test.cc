// Gated norms of rows, and the rounding before the product with the gain, against the reference in
// double or long double and against separate calls.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "planish/norm.h"
#include "src/norm/gate_testing.h"
#include "src/norm/reference.h"
#include "src/norm/rows/rows.h"
#include "src/norm/testing.h"

namespace planish {
namespace {

using tests::ApplyGated;
using tests::Describe;
using tests::ExpectAgreesWithReference;
using tests::ForEachTypes;
using tests::GatedBackward;
using tests::GatedForward;
using tests::GatedProblem;
using tests::GatedResult;
using tests::GatedRow;
using tests::GradientsOf;
using tests::kAffineNorms;
using tests::Silu;

// Sums of at most 17 terms of size 1 in long double, as for the norms: 1e-17 is about 200
// roundings.
TEST(GateReferenceTest, FormulasAreTheDerivatives) {
  using Real = long double;
  using Complex = std::complex<Real>;
  for (const Norm norm : kAffineNorms) {
    for (const bool before : {false, true}) {
      for (const int64_t cols : {2, 3, 5, 17}) {
        std::mt19937 random(static_cast<uint32_t>(cols));
        const auto row = [&] {
          const auto values = tests::Normal<double>(cols, random);
          return std::vector<Real>(values.begin(), values.end());
        };
        const auto x = row(), z = row(), gain = row(), bias = row(), dy = row();
        const auto d = GradientsOf<Real>(norm, before, 1e-2, x, z, gain, bias, dy);
        // Returns the derivative with respect to element c of input i.
        const auto derivative = [&](int i, size_t c) {
          std::vector<std::vector<Complex>> inputs;
          for (const auto* input : {&x, &z, &gain, &bias}) {
            inputs.emplace_back(input->begin(), input->end());
          }
          inputs[static_cast<size_t>(i)][c] += Complex(0, internal::ComplexStep<Real>());
          const auto y = GatedRow<Complex>(norm, before, {.eps = 1e-2}, inputs[0], inputs[1],
                                           inputs[2], inputs[3]);
          Real sum = 0;
          for (size_t k = 0; k < y.size(); ++k) {
            sum += dy[k] * (y[k].imag() / internal::ComplexStep<Real>());
          }
          return sum;
        };
        for (size_t c = 0; c < x.size(); ++c) {
          const Real scale = 1 + d.dx_scale[c] + d.dz_scale[c];
          EXPECT_LE(std::abs(d.dx[c] - derivative(0, c)), 1e-17L * scale);
          EXPECT_LE(std::abs(d.dz[c] - derivative(1, c)), 1e-17L * scale);
          EXPECT_LE(std::abs(d.dgain[c] - derivative(2, c)), 1e-17L * scale);
          EXPECT_LE(std::abs(d.dbias[c] - derivative(3, c)), 1e-17L * scale);
        }
      }
    }
  }
}

/// Calls f(norm, before) for each gated norm.
template <class F>
void ForEachForm(const F& f) {
  for (const Norm norm : kAffineNorms) {
    for (const bool before : {false, true}) f(norm, before);
  }
}

// --- The kernels ---

TEST(GateTest, EveryWidthAgreesWithTheReference) {
  ForEachTypes([]<class T, class P>() {
    ForEachForm([](Norm norm, bool before) {
      for (const int64_t cols : {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 100, 257, 1025, 4097}) {
        for (const int64_t rows : {1, 3, 21}) {
          if (cols > 300 && rows == 21) continue;
          // One column of LayerNorm has no deviation: its gradient is a rounding error times 300.
          if (cols == 1 && norm == Norm::kLayer) continue;
          const GatedProblem<T, P> p(norm, rows, cols, before);
          tests::ForEachTarget(
              [&](const std::string&) { ExpectAgreesWithReference(p, ApplyGated(p)); });
        }
      }
    });
  });
}

// Sums over blocks, groups and tiles of rows, and rows that are split over threads.
TEST(GateTest, ManyAndLongRowsAgreeWithTheReference) {
  ForEachTypes([]<class T, class P>() {
    ForEachForm([](Norm norm, bool before) {
      for (const auto& [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{
               {300, 70}, {3000, 5}, {20, 3000}, {2, internal::kLongRowColumns + 5}}) {
        const GatedProblem<T, P> p(norm, rows, cols, before);
        ExpectAgreesWithReference(p, ApplyGated(p));
      }
    });
  });
}

TEST(GateTest, GainAndBiasAreOptional) {
  ForEachTypes([]<class T, class P>() {
    ForEachForm([](Norm norm, bool before) {
      for (int given = 0; given < 4; ++given) {
        GatedProblem<T, P> p(norm, 5, 77, before);
        if (!(given & 1)) p.gain.clear();
        if (!(given & 2)) p.bias.clear();
        ExpectAgreesWithReference(p, ApplyGated(p));
        GatedResult<T, P> out(p);  // the gradients of the inputs only
        NormForward<T, P>(norm, GatedForward(p, out), p.Options());
        auto args = GatedBackward(p, out);
        args.dgain = args.dbias = nullptr;
        NormBackward<T, P>(norm, args, p.Options());
        const auto all = ApplyGated(p);
        EXPECT_TRUE(tests::SameBits(out.dx, all.dx)) << Describe(p);
        EXPECT_TRUE(tests::SameBits(out.dz, all.dz)) << Describe(p);
      }
    });
  });
}

constexpr std::pair<int64_t, int64_t> kShapes[] = {
    {300, 70}, {6000, 16}, {20, 9000}, {40, 257}, {3, (1 << 17) + 1}};

TEST(GateTest, ThreadsAndNonTemporalStoresChangeNoBits) {
  ForEachTypes([]<class T, class P>() {
    ForEachForm([](Norm norm, bool before) {
      for (const auto& [rows, cols] : kShapes) {
        const GatedProblem<T, P> p(norm, rows, cols, before);
        const auto expected = ApplyGated(p, tests::OnThreads(1));
        EXPECT_EQ(ApplyGated(p, tests::OnThreads(2)).DiffersIn(expected), "") << Describe(p);
        EXPECT_EQ(ApplyGated(p, tests::OnThreads(7)).DiffersIn(expected), "") << Describe(p);
        const tests::NtStores nt_stores;
        EXPECT_EQ(ApplyGated(p, tests::OnThreads(3)).DiffersIn(expected), "") << Describe(p);
      }
    });
  });
}

/// Copies rows to a distance of `stride`; the elements between them stay unset.
template <class T>
std::vector<T> Spread(const std::vector<T>& values, int64_t rows, int64_t cols, int64_t stride) {
  std::vector<T> spread(static_cast<size_t>(rows * stride), tests::Unset<T>());
  for (int64_t r = 0; r < rows; ++r) {
    std::copy_n(values.begin() + r * cols, cols, spread.begin() + r * stride);
  }
  return spread;
}

TEST(GateTest, StridesAndOutputsInPlaceChangeNoBits) {
  ForEachTypes([]<class T, class P>() {
    ForEachForm([](Norm norm, bool before) {
      for (const auto& [rows, cols] : kShapes) {
        const GatedProblem<T, P> p(norm, rows, cols, before);
        const auto expected = ApplyGated(p);
        const int64_t stride = cols + 3;
        std::vector<T> x = Spread(p.x, rows, cols, stride), z = Spread(p.z, rows, cols, stride + 1),
                       dy = Spread(p.dy, rows, cols, stride);
        std::vector<T> y = x, dz = Spread(p.z, rows, cols, stride + 2);
        GatedResult<T, P> out(p);
        auto forward = GatedForward(p, out);
        forward.x = y.data();
        forward.y = y.data();
        forward.gate = z.data();
        forward.x_stride = forward.y_stride = stride;
        forward.gate_stride = stride + 1;
        NormForward<T, P>(norm, forward, p.Options());
        EXPECT_TRUE(tests::SameBits(y, Spread(expected.y, rows, cols, stride))) << Describe(p);
        auto backward = GatedBackward(p, out);
        backward.x = x.data();
        backward.dy = dy.data();
        backward.dx = dy.data();
        backward.gate = z.data();
        backward.dgate = dz.data();
        backward.x_stride = backward.dy_stride = backward.dx_stride = stride;
        backward.gate_stride = stride + 1;
        backward.dgate_stride = stride + 2;
        NormBackward<T, P>(norm, backward, p.Options());
        EXPECT_TRUE(tests::SameBits(dy, Spread(expected.dx, rows, cols, stride))) << Describe(p);
        EXPECT_TRUE(tests::SameBits(dz, Spread(expected.dz, rows, cols, stride + 2)))
            << Describe(p);
        EXPECT_TRUE(tests::SameBits(out.dgain, expected.dgain)) << Describe(p);
      }
    });
  });
}

TEST(GateTest, EveryGradientIsOptional) {
  ForEachForm([](Norm norm, bool before) {
    for (const auto& [rows, cols] : kShapes) {
      const GatedProblem<bfloat16, float> p(norm, rows, cols, before);
      const auto expected = ApplyGated(p);
      for (int wanted = 0; wanted < 8; ++wanted) {
        GatedResult<bfloat16, float> out = expected, unset(p);
        out.dx = unset.dx, out.dz = unset.dz, out.dgain = unset.dgain;
        auto args = GatedBackward(p, out);
        if (!(wanted & 1)) args.dx = nullptr;
        if (!(wanted & 2)) args.dgate = nullptr;
        if (!(wanted & 4)) args.dgain = args.dbias = nullptr;
        NormBackward<bfloat16, float>(norm, args, p.Options());
        EXPECT_TRUE(tests::SameBits(out.dx, wanted & 1 ? expected.dx : unset.dx)) << wanted;
        EXPECT_TRUE(tests::SameBits(out.dz, wanted & 2 ? expected.dz : unset.dz)) << wanted;
        // Without dx, the kernels of narrow rows add the terms of dgain in another order.
        if ((wanted & 5) == 4 && cols < 70) continue;
        EXPECT_TRUE(tests::SameBits(out.dgain, wanted & 4 ? expected.dgain : unset.dgain))
            << wanted << ' ' << Describe(p);
      }
    }
  });
}

TEST(GateTest, SetsAreSeparateCalls) {
  ForEachTypes([]<class T, class P>() {
    ForEachForm([](Norm norm, bool before) {
      for (const bool cast : {false, true}) {
        for (const bool interleaved : {false, true}) {
          const int64_t rows = 12, cols = 33, sets = 3, n = rows / sets;
          GatedProblem<T, P> p(norm, rows, cols, before);
          p.cast = cast;
          p.SetSets(sets, interleaved ? 1 : n);
          const auto out = ApplyGated(p);
          for (int64_t set = 0; set < sets; ++set) {
            GatedProblem<T, P> one(norm, n, cols, before);
            one.cast = cast;
            const auto gather = [&](const std::vector<T>& from) {
              std::vector<T> to;
              for (int64_t r = 0; r < n; ++r) {
                const auto row = from.begin() + (interleaved ? r * sets + set : set * n + r) * cols;
                to.insert(to.end(), row, row + cols);
              }
              return to;
            };
            one.x = gather(p.x), one.z = gather(p.z), one.dy = gather(p.dy);
            one.gain.assign(p.gain.begin() + set * cols, p.gain.begin() + (set + 1) * cols);
            one.bias.assign(p.bias.begin() + set * cols, p.bias.begin() + (set + 1) * cols);
            const auto expected = ApplyGated(one);
            EXPECT_TRUE(tests::SameBits(gather(out.y), expected.y)) << Describe(p);
            EXPECT_TRUE(tests::SameBits(gather(out.dx), expected.dx)) << Describe(p);
            EXPECT_TRUE(tests::SameBits(gather(out.dz), expected.dz)) << Describe(p);
            EXPECT_TRUE(std::equal(expected.dgain.begin(), expected.dgain.end(),
                                   out.dgain.begin() + set * cols));
          }
        }
      }
    });
  });
}

// The sum is the norm's x, with and without a gate; dsum is added to dx.
TEST(GateTest, ResidualIsAddedBeforeTheGate) {
  ForEachTypes([]<class T, class P>() {
    ForEachForm([](Norm norm, bool before) {
      for (const auto& [rows, cols] : kShapes) {
        GatedProblem<T, P> p(norm, rows, cols, before);
        GatedResult<T, P> out(p);
        auto args = GatedForward(p, out);
        args.residual = p.dy.data();
        args.sum = out.dx.data();
        NormForward<T, P>(norm, args, p.Options());
        const std::vector<T> residual = p.dy;
        p.x = out.dx;
        const auto expected = ApplyGated(p);
        EXPECT_TRUE(tests::SameBits(out.y, expected.y)) << Describe(p);
        EXPECT_TRUE(tests::SameBits(out.rstd, expected.rstd)) << Describe(p);
        auto backward = GatedBackward(p, out);
        backward.dsum = residual.data();
        NormBackward<T, P>(norm, backward, p.Options());
        for (size_t i = 0; i < out.dx.size(); ++i) {
          const auto a = static_cast<Compute<T>>(tests::ToDouble(expected.dx[i]));
          const auto b = static_cast<Compute<T>>(tests::ToDouble(residual[i]));
          ASSERT_EQ(tests::ToDouble(out.dx[i]), tests::ToDouble(tests::FromDouble<T>(a + b)));
        }
        EXPECT_TRUE(tests::SameBits(out.dz, expected.dz)) << Describe(p);
      }
    });
  });
}

// Without parameters, y is xhat rounded to T; the rest of the definition is worked out here.
TEST(GateTest, CastRoundsBeforeTheProduct) {
  ForEachTypes([]<class T, class P>() {
    for (const Norm norm : kAffineNorms) {
      for (const auto& [rows, cols] : kShapes) {
        GatedProblem<T, P> p(norm, rows, cols, false);
        GatedProblem<T, P> plain = p;
        plain.gain.clear(), plain.bias.clear(), plain.z.clear();
        GatedResult<T, P> xhat(plain), out(p), gated(p);
        NormForward<T, P>(norm, GatedForward(plain, xhat), p.Options());
        p.cast = true;
        auto args = GatedForward(p, out);
        args.gate = nullptr;
        NormForward<T, P>(norm, args, p.Options());
        NormForward<T, P>(norm, GatedForward(p, gated), p.Options());
        for (int64_t i = 0; i < rows * cols; ++i) {
          const auto at = static_cast<size_t>(i), c = static_cast<size_t>(i % cols);
          const double value =
              tests::ToDouble(xhat.y[at]) * tests::ToDouble(p.gain[c]) + tests::ToDouble(p.bias[c]);
          if (sizeof(T) == 2) {
            // One rounding of the exact value to 16 bits. The library rounds to float first, which
            // can move a value across a boundary: hence 1.0001.
            const double v = tests::UnitRoundoff<T>() * 1.0001;
            ASSERT_LE(std::abs(tests::ToDouble(out.y[at]) - value),
                      v * std::abs(value) + tests::HalfOfLeast<T>())
                << Describe(p);
            const double y = tests::ToDouble(out.y[at]) * Silu(tests::ToDouble(p.z[at]));
            ASSERT_LE(std::abs(tests::ToDouble(gated.y[at]) - y),
                      v * std::abs(y) + tests::HalfOfLeast<T>() * 1.0001)
                << Describe(p);
          } else {
            ASSERT_NEAR(tests::ToDouble(out.y[at]), value,
                        8 * tests::UnitRoundoff<T>() *
                            (1 + std::abs(value) + std::abs(tests::ToDouble(p.bias[c]))));
          }
        }
      }
    }
  });
}

// Llama's products are exact before they are rounded: the result has the bits of its formula.
TEST(GateTest, CastOfHalvesHasTheBitsOfTheComposition) {
  const GatedProblem<bfloat16, bfloat16> p = [] {
    GatedProblem<bfloat16, bfloat16> with_bias(Norm::kRms, 33, 300, false);
    with_bias.bias.clear();
    with_bias.z.clear();
    return with_bias;
  }();
  GatedProblem<bfloat16, bfloat16> plain = p, cast = p;
  plain.gain.clear();
  cast.cast = true;
  tests::ForEachTarget([&](const std::string& target) {
    GatedResult<bfloat16, bfloat16> xhat(p), out(p);
    NormForward<bfloat16>(p.norm, GatedForward(plain, xhat), p.Options());
    NormForward<bfloat16>(p.norm, GatedForward(cast, out), p.Options());
    for (size_t i = 0; i < out.y.size(); ++i) {
      const float product = ToFloat(xhat.y[i]) * ToFloat(p.gain[i % 300]);
      ASSERT_EQ(out.y[i].bits, ToBfloat16(product).bits) << target;
    }
  });
}

TEST(GateTest, SpecialGates) {
  ForEachTypes([]<class T, class P>() {
    tests::ForEachTarget([](const std::string& target) {
      SCOPED_TRACE(target);
      for (const Norm norm : kAffineNorms) {
        GatedProblem<T, P> p(norm, 3, 40, false);
        p.z[5] = tests::FromDouble<T>(-1e4);  // row 0
        p.z[50] = tests::FromDouble<T>(NAN);  // row 1
        p.z[90] = tests::FromDouble<T>(1e4);  // row 2
        p.z[91] = tests::FromDouble<T>(-std::numeric_limits<double>::infinity());
        const auto out = ApplyGated(p);
        EXPECT_EQ(tests::ToDouble(out.y[5]), 0);
        EXPECT_EQ(tests::ToDouble(out.dz[5]), 0);
        for (size_t i = 0; i < out.y.size(); ++i) {
          EXPECT_EQ(tests::IsNan(out.y[i]), i == 50 || i == 91) << i;
          EXPECT_EQ(tests::IsNan(out.dz[i]), i == 50 || i == 91) << i;
          EXPECT_EQ(tests::IsNan(out.dx[i]), i / 40 > 0 && i != 90 ? true : i / 40 > 0) << i;
        }
        p.before = true;
        const auto before = ApplyGated(p);
        EXPECT_EQ(tests::ToDouble(before.dx[5]), 0);
        for (size_t i = 0; i < out.y.size(); ++i) {
          EXPECT_EQ(tests::IsNan(before.y[i]), i >= 40) << i;
        }
      }
    });
  });
}

TEST(GateTest, NoElements) {
  for (const bool before : {false, true}) {
    for (const auto& [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{{0, 9}, {3, 0}}) {
      const GatedProblem<float, float> p(Norm::kLayer, rows, cols, before);
      const auto out = ApplyGated(p);
      EXPECT_EQ(out.dgain, std::vector<float>(static_cast<size_t>(cols)));
    }
  }
}

TEST(GateTest, NormsWithoutGainHaveNoGate) {
  GatedProblem<float, float> p(Norm::kDetach, 2, 3, false);
  GatedResult<float, float> out(p);
  EXPECT_EQ(tests::ErrorOf([&] { NormForward<float>(p.norm, GatedForward(p, out)); }),
            "[NormForward] gate must be null for a norm without gain and bias, got an address");
}

}  // namespace
}  // namespace planish
