#ifndef PLANISH_SRC_NORM_QUANTIZE_TESTING_H_
#define PLANISH_SRC_NORM_QUANTIZE_TESTING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "planish/norm.h"
#include "src/norm/gate_testing.h"
#include "src/norm/recipe.h"
#include "src/norm/reference.h"
#include "src/norm/testing.h"

// Quantized outputs of norms of rows, and their reference, for CPU and GPU.
namespace planish::tests {

template <class T, class P>
struct QuantizedResult : GatedResult<T, P> {
  explicit QuantizedResult(const GatedProblem<T, P>& p)
      : GatedResult<T, P>(p),
        quantized(static_cast<size_t>(p.rows * p.cols), int8_t{99}),
        row_scale(static_cast<size_t>(p.rows), Unset<Compute<T>>()) {}
  bool operator==(const QuantizedResult& other) const {
    return quantized == other.quantized && SameBits(row_scale, other.row_scale);
  }
  std::vector<int8_t> quantized;
  std::vector<Compute<T>> row_scale;
};

template <class T, class P>
NormForwardArgs<T, P> QuantizedForward(const GatedProblem<T, P>& p, QuantizedResult<T, P>& out) {
  auto args = GatedForward<T, P>(p, out);
  args.y = nullptr;
  args.quantized = out.quantized.data();
  args.row_scale = out.row_scale.data();
  return args;
}

template <class T, class P>
QuantizedResult<T, P> ApplyQuantized(const GatedProblem<T, P>& p,
                                     const ParallelFor& parallel_for = {}) {
  QuantizedResult<T, P> out(p);
  NormForward<T, P>(p.norm, QuantizedForward(p, out), p.Options(parallel_for));
  return out;
}

/// Checks one quantized row. y is within u * max(|y|) of that of the call.
template <class Real>
void ExpectQuantizesRow(const std::vector<Real>& y, double u, const int8_t* quantized,
                        double row_scale) {
  double max = 0;
  for (const Real value : y) max = std::max(max, static_cast<double>(std::abs(value)));
  // Two roundings: of the quotient, and of row_scale to its type, which u exceeds.
  ASSERT_NEAR(row_scale, max / 127, 3 * u * max / 127);
  for (size_t c = 0; c < y.size(); ++c) {
    // Half a step, and the errors of y and of the scaled value: u * 127 steps each.
    ASSERT_LE(std::abs(quantized[c] * row_scale - static_cast<double>(y[c])),
              row_scale * (0.5 + 4 * 127 * u))
        << c;
  }
}

/// Checks all rows. The tolerance of y is that of gate_testing.h: 100 roundings of the arithmetic,
/// relative to the magnitude of its terms.
template <class T, class P>
void ExpectQuantizes(const GatedProblem<T, P>& p, const QuantizedResult<T, P>& out) {
  using Exact = std::conditional_t<std::is_same_v<T, double>, long double, double>;
  const auto cols = static_cast<size_t>(p.cols);
  const internal::ReferenceOptions options = {.eps = p.eps, .scale = p.scale, .slope = p.slope};
  const bool adaptive = internal::RecipeOf(p.norm).output == internal::Output::kAdaptive;
  const auto row = [&](const auto& values, size_t r, double missing) {
    std::vector<Exact> wide(values.empty() && missing == 0 ? 0 : cols, Exact(missing));
    for (size_t c = 0; c < cols && !values.empty(); ++c) wide[c] = ToDouble(values[r * cols + c]);
    return wide;
  };
  const auto gain = row(p.gain, 0, 1);
  const auto bias = p.bias.empty() ? std::vector<Exact>(cols) : row(p.bias, 0, 0);
  for (size_t r = 0; r < static_cast<size_t>(p.rows); ++r) {
    const auto x = row(p.x, r, 0), z = row(p.z, r, 0);
    const auto y = GatedRow<Exact>(p.norm, p.before, options, x, z, gain, bias);
    // |y| <= max(|s|) * (|gain| * |xhat| + |bias|), and the error of xhat is relative to 1 +
    // |xhat|.
    const auto xhat = GatedRow<Exact>(Norm::kLayerSimple, p.before, options, x,
                                      p.before ? z : std::vector<Exact>(), gain, bias);
    double terms = 0, max = 0;
    for (size_t c = 0; c < cols; ++c) {
      const Exact s = p.before || z.empty() ? Exact(1) : std::abs(Silu(z[c]));
      const Exact factor =
          adaptive ? Exact(p.scale) * (1 + Exact(p.slope) * std::abs(xhat[c])) : std::abs(gain[c]);
      const Exact term = s * (factor * (1 + std::abs(xhat[c])) + std::abs(bias[c]));
      terms = std::max(terms, static_cast<double>(term));
      max = std::max(max, static_cast<double>(std::abs(y[c])));
    }
    ExpectQuantizesRow(y, 100 * UnitRoundoff<Compute<T>>() * terms / max,
                       out.quantized.data() + r * cols, static_cast<double>(out.row_scale[r]));
    if (::testing::Test::HasFatalFailure()) {
      ADD_FAILURE() << Describe(p) << ", row " << r;
      return;
    }
  }
}

}  // namespace planish::tests

#endif  // PLANISH_SRC_NORM_QUANTIZE_TESTING_H_
