#ifndef PLANISH_SRC_NORM_GATE_TESTING_H_
#define PLANISH_SRC_NORM_GATE_TESTING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "planish/norm.h"
#include "src/norm/recipe.h"
#include "src/norm/reference.h"
#include "src/norm/testing.h"

// Problems and results of gated norms of rows, and their reference, for CPU and GPU.
namespace planish::tests {

inline constexpr Norm kAffineNorms[] = {Norm::kLayer, Norm::kRms};

/// Calls f with each combination of types: f.operator()<T, P>().
template <class F>
void ForEachTypes(const F& f) {
  f.template operator()<float, float>();
  f.template operator()<double, double>();
  f.template operator()<double, float>();
  f.template operator()<bfloat16, bfloat16>();
  f.template operator()<bfloat16, float>();
  f.template operator()<float16, float16>();
  f.template operator()<float16, float>();
}

template <class Scalar>
Scalar Silu(const Scalar& z) {
  return z / (Scalar(1) + std::exp(-z));
}
template <class Real>
Real SiluSlope(Real z) {
  const Real sigmoid = 1 / (1 + std::exp(-z));
  return sigmoid * (1 + z * (1 - sigmoid));
}

/// y of one row of a gated norm; an empty z is no gate. A complex scalar also gives a derivative.
template <class Scalar>
std::vector<Scalar> GatedRow(Norm norm, bool before, const internal::ReferenceOptions& options,
                             std::vector<Scalar> x, const std::vector<Scalar>& z,
                             const std::vector<Scalar>& gain, const std::vector<Scalar>& bias) {
  const internal::Recipe recipe = internal::RecipeOf(norm);
  const auto silu = [&](size_t c, bool gated) {
    return z.empty() || !gated ? Scalar(1) : Silu(z[c]);
  };
  for (size_t c = 0; c < x.size(); ++c) x[c] *= silu(c, before);
  std::vector<Scalar> y = internal::ReferenceXhat(recipe, x, options.eps);
  for (size_t c = 0; c < x.size(); ++c) {
    y[c] = internal::ReferenceOutput(recipe, options, y[c], gain[c], bias[c]) * silu(c, !before);
  }
  return y;
}

/// Gradients of one row by the formulas of norm.h, and for each the sum of its terms' magnitudes.
template <class Real>
struct GatedGradients {
  std::vector<Real> dx, dz, dgain, dbias;
  std::vector<Real> dx_scale, dz_scale;
};

template <class Real>
GatedGradients<Real> GradientsOf(Norm norm, bool before, double eps, const std::vector<Real>& x,
                                 const std::vector<Real>& z, const std::vector<Real>& gain,
                                 const std::vector<Real>& bias, const std::vector<Real>& dy) {
  const internal::Recipe recipe = internal::RecipeOf(norm);
  const size_t n = x.size();
  std::vector<Real> u = x, dnorm = dy;
  for (size_t c = 0; c < n; ++c) (before ? u : dnorm)[c] *= Silu(z[c]);
  const Real mean = internal::ReferenceMean(recipe, u);
  const Real rstd = internal::ReferenceRstd(recipe, u, mean, eps);
  const std::vector<Real> xhat = internal::ReferenceXhat(recipe, u, eps);
  const auto du = internal::ReferenceGradient(recipe, {.eps = eps}, xhat, rstd, gain, dnorm);
  Real scale = 0;
  for (size_t c = 0; c < n; ++c) scale = std::max(scale, std::abs(rstd * gain[c] * dnorm[c]));
  GatedGradients<Real> d;
  for (size_t c = 0; c < n; ++c) {
    // xhat is at most sqrt(n), but about 1: its product with a mean of the row is about `scale`.
    const Real du_scale = scale * (2 + std::abs(xhat[c]));
    const Real s = Silu(z[c]), slope = SiluSlope(z[c]), y = gain[c] * xhat[c] + bias[c];
    d.dx.push_back(before ? du[c] * s : du[c]);
    d.dx_scale.push_back(before ? du_scale * std::abs(s) : du_scale);
    d.dz.push_back(before ? du[c] * x[c] * slope : dy[c] * y * slope);
    // 1 + z * (1 - sigmoid(z)) cancels near z = -1.28, but is rounded relative to its terms.
    const Real terms = (1 + std::abs(z[c])) / (1 + std::exp(-z[c]));
    d.dz_scale.push_back(
        terms * (before ? du_scale * std::abs(x[c])
                        : std::abs(dy[c]) *
                              (std::abs(gain[c]) * (1 + std::abs(xhat[c])) + std::abs(bias[c]))));
    d.dgain.push_back(dnorm[c] * xhat[c]);
    d.dbias.push_back(dnorm[c]);
  }
  return d;
}

template <class T, class P>
struct GatedProblem : Problem<T, P> {
  GatedProblem(Norm n, int64_t r, int64_t c, bool gate_before)
      : Problem<T, P>(n, r, c), before(gate_before) {
    std::mt19937 random(static_cast<uint32_t>(7 * r + c));
    z = Normal<T>(r * c, random, 0, 2);
  }
  bool before;
  bool cast = false;
  std::vector<T> z;
};

template <class T, class P>
struct GatedResult : Result<T, P> {
  explicit GatedResult(const GatedProblem<T, P>& p) : Result<T, P>(p), dz(this->dx) {}
  std::string DiffersIn(const GatedResult& other) const {
    return SameBits(dz, other.dz) ? Result<T, P>::DiffersIn(other) : "dz";
  }
  std::vector<T> dz;
};

template <class T, class P>
NormForwardArgs<T, P> GatedForward(const GatedProblem<T, P>& p, GatedResult<T, P>& out) {
  auto args = ForwardArgs<T, P>(p, out);
  args.gate = OrNull(p.z);
  args.gate_before_norm = p.before;
  args.cast_before_gain = p.cast;
  return args;
}

template <class T, class P>
NormBackwardArgs<T, P> GatedBackward(const GatedProblem<T, P>& p, GatedResult<T, P>& out) {
  auto args = BackwardArgs<T, P>(p, out);
  args.gate = p.z.data();
  args.bias = OrNull(p.bias);
  args.dgate = out.dz.data();
  args.gate_before_norm = p.before;
  return args;
}

template <class T, class P>
GatedResult<T, P> ApplyGated(const GatedProblem<T, P>& p, const ParallelFor& parallel_for = {}) {
  GatedResult<T, P> out(p);
  NormForward<T, P>(p.norm, GatedForward(p, out), p.Options(parallel_for));
  NormBackward<T, P>(p.norm, GatedBackward(p, out), p.Options(parallel_for));
  return out;
}

template <class T, class P>
std::string Describe(const GatedProblem<T, P>& p) {
  return std::string(NameOf(p.norm)) + (p.before ? " before, " : " after, ") + Name<T>::kText +
         ", " + Name<P>::kText + ", " + std::to_string(p.rows) + " x " + std::to_string(p.cols);
}

/// The largest error, relative to its tolerance: 100 roundings of the arithmetic, relative to the
/// magnitude of the terms of the element, and one rounding to the type of the result. The sums of
/// a row, of up to 72 terms in sequence, and silu and its slope, within 6 and 12 ulp, contribute
/// most (docs/accuracy.md).
class Tolerance {
 public:
  template <class E, class C, class Real>
  void Add(E value, Real exact, Real scale, int64_t terms = 1) {
    const double u = UnitRoundoff<C>(), v = UnitRoundoff<E>();
    const double tolerance =
        (100 + std::sqrt(static_cast<double>(terms))) * u * static_cast<double>(scale) +
        1.01 * v * static_cast<double>(std::abs(exact)) + 2 * HalfOfLeast<E>();
    const auto error = std::abs(static_cast<double>(ToDouble(value) - exact));
    if (!(error <= worst * tolerance)) worst = error / tolerance;
  }
  double worst = 0;
};

template <class T, class P>
void ExpectAgreesWithReference(const GatedProblem<T, P>& p, const GatedResult<T, P>& out) {
  using C = Compute<T>;
  using Exact = std::conditional_t<std::is_same_v<T, double>, long double, double>;
  const auto cols = static_cast<size_t>(p.cols);
  Tolerance y, dx, dz, dgain, dbias;
  std::vector<Exact> gain(cols, 1), bias(cols, 0), sums[4];
  for (auto& sum : sums) sum.resize(cols);
  for (size_t c = 0; c < cols; ++c) {
    if (!p.gain.empty()) gain[c] = static_cast<Exact>(ToDouble(p.gain[c]));
    if (!p.bias.empty()) bias[c] = static_cast<Exact>(ToDouble(p.bias[c]));
  }
  for (size_t r = 0; r < static_cast<size_t>(p.rows); ++r) {
    const auto row = [&](const std::vector<T>& values) {
      std::vector<Exact> wide;
      for (size_t c = 0; c < cols; ++c) wide.push_back(ToDouble(values[r * cols + c]));
      return wide;
    };
    const auto x = row(p.x), z = row(p.z), dy = row(p.dy);
    const auto expected = GatedRow<Exact>(p.norm, p.before, {.eps = p.eps}, x, z, gain, bias);
    const auto d = GradientsOf<Exact>(p.norm, p.before, p.eps, x, z, gain, bias, dy);
    std::vector<Exact> u = x;
    for (size_t c = 0; c < cols; ++c) u[c] *= p.before ? Silu(z[c]) : Exact(1);
    const auto xhat = internal::ReferenceXhat(internal::RecipeOf(p.norm), u, p.eps);
    for (size_t c = 0; c < cols; ++c) {
      const size_t i = r * cols + c;
      const Exact s = p.before ? Exact(1) : std::abs(Silu(z[c]));
      // The error of the mean is relative to the deviation, which is 1 in xhat.
      const Exact scale = s * (std::abs(gain[c]) * (1 + std::abs(xhat[c])) + std::abs(bias[c]));
      y.Add<T, C>(out.y[i], expected[c], scale);
      dx.Add<T, C>(out.dx[i], d.dx[c], d.dx_scale[c]);
      dz.Add<T, C>(out.dz[i], d.dz[c], d.dz_scale[c]);
      sums[0][c] += d.dgain[c];
      sums[1][c] += std::abs(d.dbias[c]) * (1 + std::abs(xhat[c]));
      sums[2][c] += d.dbias[c];
      sums[3][c] += std::abs(d.dbias[c]);
    }
  }
  for (size_t c = 0; c < cols; ++c) {
    dgain.Add<P, C>(out.dgain[c], sums[0][c], sums[1][c], p.rows);
    dbias.Add<P, C>(out.dbias[c], sums[2][c], sums[3][c], p.rows);
  }
  for (const auto& [name, tolerance] :
       {std::tuple("y", y), std::tuple("dx", dx), std::tuple("dz", dz), std::tuple("dgain", dgain),
        std::tuple("dbias", dbias)}) {
    EXPECT_LE(tolerance.worst, 1) << name << " of " << Describe(p) << " on " << Target();
  }
}

}  // namespace planish::tests

#endif  // PLANISH_SRC_NORM_GATE_TESTING_H_
