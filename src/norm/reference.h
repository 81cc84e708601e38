#ifndef PLANISH_SRC_NORM_REFERENCE_H_
#define PLANISH_SRC_NORM_REFERENCE_H_

#include <cmath>
#include <complex>
#include <cstddef>
#include <limits>
#include <vector>

#include "src/norm/recipe.h"

// What every norm computes, written as the equation reads, for any scalar. With complex scalars it
// differentiates itself: f(x + ih) = f(x) + ih f'(x) + O(h^2), so Im f(x + ih) / h is f'(x) without
// the cancellation of a difference quotient (docs/math.md). A stopped gradient is a value without
// its imaginary part. A derivative along every column of a long row costs the square of its length:
// ReferenceGradient has the formula instead, which a test holds against the complex step.
namespace planish::internal {

template <class R>
R Detach(const R& value) {
  return value;
}
template <class R>
std::complex<R> Detach(const std::complex<R>& value) {
  return value.real();
}

/// A sum that carries what each addition loses, as Kahan and Neumaier do: right to a few roundings
/// of the result and of the largest term, however many there are. Of a complex sum the parts, each.
template <class Scalar>
class ExactSum {
 public:
  void operator+=(const Scalar& value) {
    const Scalar sum = sum_ + value;
    if constexpr (requires { value.imag(); }) {
      rest_ += Scalar(Lost(sum_.real(), value.real(), sum.real()),
                      Lost(sum_.imag(), value.imag(), sum.imag()));
    } else {
      rest_ += Lost(sum_, value, sum);
    }
    sum_ = sum;
  }
  Scalar value() const { return sum_ + rest_; }

 private:
  template <class R>
  static R Lost(R a, R b, R sum) {
    return std::abs(a) >= std::abs(b) ? (a - sum) + b : (b - sum) + a;
  }

  Scalar sum_{0}, rest_{0};
};

/// What a norm's equation takes beside the row.
struct ReferenceOptions {
  double eps = 1e-5;
  double scale = 1;
  double slope = 0.1;
};

/// The mean of a row that its norm subtracts: 0 where it does not centre.
template <class Scalar>
Scalar ReferenceMean(const Recipe& recipe, const std::vector<Scalar>& x) {
  if (!recipe.centre) return Scalar(0);
  ExactSum<Scalar> sum;
  for (const Scalar& value : x) sum += value;
  const Scalar mean = sum.value() / Scalar(static_cast<double>(x.size()));
  return recipe.via_mean ? mean : Detach(mean);
}

/// 1 over the deviation of a row from `mean`.
template <class Scalar>
Scalar ReferenceRstd(const Recipe& recipe, const std::vector<Scalar>& x, const Scalar& mean,
                     double eps) {
  using std::sqrt;
  const auto n = static_cast<double>(x.size());
  ExactSum<Scalar> squares;
  for (const Scalar& value : x) squares += (value - mean) * (value - mean);
  const Scalar rstd = recipe.deviation == Deviation::kUnbiasedPlusEps
                          ? Scalar(1) / (sqrt(squares.value() / Scalar(n - 1)) + Scalar(eps))
                          : Scalar(1) / sqrt(squares.value() / Scalar(n) + Scalar(eps));
  return recipe.via_scale ? rstd : Detach(rstd);
}

/// xhat of one row. A real scalar gives the forward pass, a complex one also a derivative.
template <class Scalar>
std::vector<Scalar> ReferenceXhat(const Recipe& recipe, const std::vector<Scalar>& x, double eps) {
  const Scalar mean = ReferenceMean(recipe, x);
  const Scalar rstd = ReferenceRstd(recipe, x, mean, eps);
  std::vector<Scalar> xhat;
  xhat.reserve(x.size());
  for (const Scalar& value : x) xhat.push_back((value - mean) * rstd);
  return xhat;
}

/// y of one element.
template <class Scalar>
Scalar ReferenceOutput(const Recipe& recipe, const ReferenceOptions& options, const Scalar& xhat,
                       const Scalar& gain, const Scalar& bias) {
  switch (recipe.output) {
    case Output::kAffine:
      return gain * xhat + bias;
    case Output::kAdaptive:
      return Scalar(options.scale) * (Scalar(1) - Scalar(options.slope) * Detach(xhat)) * xhat;
    case Output::kIdentity:
      break;
  }
  return xhat;
}

/// The imaginary step. Its square vanishes.
template <class Real>
Real ComplexStep() {
  return std::sqrt(std::numeric_limits<Real>::min());
}

/// The derivative of L = sum(dy * y) along column c of one row x.
template <class Real>
Real ReferenceDx(const Recipe& recipe, const ReferenceOptions& options, const std::vector<Real>& x,
                 const std::vector<Real>& gain, const std::vector<Real>& dy, std::size_t c) {
  using Complex = std::complex<Real>;
  std::vector<Complex> moved(x.begin(), x.end());
  moved[c] += Complex(0, ComplexStep<Real>());
  const std::vector<Complex> xhat = ReferenceXhat(recipe, moved, options.eps);
  ExactSum<Real> loss;
  for (std::size_t i = 0; i < x.size(); ++i) {
    loss += dy[i] * ReferenceOutput(recipe, options, xhat[i], Complex(gain[i]), Complex(0)).imag() /
            ComplexStep<Real>();
  }
  return loss.value();
}

/// One row's terms of dgain and dbias, of an element with the given xhat, by the complex step.
template <class Real>
Real ReferenceDgain(const Recipe& recipe, Real xhat, Real gain, Real bias, Real dy) {
  using Complex = std::complex<Real>;
  const Complex moved(gain, ComplexStep<Real>());
  return dy * ReferenceOutput(recipe, {}, Complex(xhat), moved, Complex(bias)).imag() /
         ComplexStep<Real>();
}
template <class Real>
Real ReferenceDbias(const Recipe& recipe, Real xhat, Real gain, Real bias, Real dy) {
  using Complex = std::complex<Real>;
  const Complex moved(bias, ComplexStep<Real>());
  return dy * ReferenceOutput(recipe, {}, Complex(xhat), Complex(gain), moved).imag() /
         ComplexStep<Real>();
}

/// g = dL/dxhat of one element.
template <class Real>
Real ReferenceG(const Recipe& recipe, const ReferenceOptions& options, Real xhat, Real gain,
                Real dy) {
  switch (recipe.output) {
    case Output::kAffine:
      return gain * dy;
    case Output::kAdaptive:
      return Real(options.scale) * (1 - Real(options.slope) * xhat) * dy;
    case Output::kIdentity:
      break;
  }
  return dy;
}

/// The means over a row that dx takes off g: dx = rstd * (g - mean_g - xhat * mean_g_xhat).
template <class Real>
struct ReferenceGradientMeans {
  Real mean_g = 0;
  Real mean_g_xhat = 0;
};

template <class Real>
ReferenceGradientMeans<Real> ReferenceMeans(const Recipe& recipe, const std::vector<Real>& g,
                                            const std::vector<Real>& xhat) {
  const auto n = static_cast<Real>(g.size());
  ExactSum<Real> sum_g, sum_g_xhat, sum_xhat2;
  for (std::size_t c = 0; c < g.size(); ++c) {
    sum_g += g[c];
    sum_g_xhat += g[c] * xhat[c];
    sum_xhat2 += xhat[c] * xhat[c];
  }
  ReferenceGradientMeans<Real> means;
  if (recipe.via_mean) means.mean_g = sum_g.value() / n;
  if (!recipe.via_scale) return means;
  means.mean_g_xhat = sum_g_xhat.value() / n;
  if (recipe.deviation == Deviation::kUnbiasedPlusEps) {
    // The deviation s has ds/dx = (x - mean) / ((n - 1) s), and rstd = 1 / (s + eps), so that
    // s * rstd is the unbiased deviation of xhat. Of a constant row s has no derivative, and xhat
    // is 0: the term is left out.
    const Real s_rstd = std::sqrt(sum_xhat2.value() / (n - 1));
    means.mean_g_xhat = s_rstd > 0 ? sum_g_xhat.value() / ((n - 1) * s_rstd) : Real(0);
  }
  return means;
}

/// dx of one row, whose xhat and rstd are given, by the formula.
template <class Real>
std::vector<Real> ReferenceGradient(const Recipe& recipe, const ReferenceOptions& options,
                                    const std::vector<Real>& xhat, Real rstd,
                                    const std::vector<Real>& gain, const std::vector<Real>& dy) {
  std::vector<Real> g(xhat.size());
  for (std::size_t c = 0; c < g.size(); ++c) {
    g[c] = ReferenceG(recipe, options, xhat[c], gain[c], dy[c]);
  }
  const ReferenceGradientMeans<Real> means = ReferenceMeans(recipe, g, xhat);
  for (std::size_t c = 0; c < g.size(); ++c) {
    g[c] = rstd * (g[c] - means.mean_g - xhat[c] * means.mean_g_xhat);
  }
  return g;
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_REFERENCE_H_
