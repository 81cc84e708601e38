#ifndef PLANISH_SRC_NORM_REFERENCE_H_
#define PLANISH_SRC_NORM_REFERENCE_H_

#include <cmath>
#include <complex>
#include <cstddef>
#include <limits>
#include <vector>

#include "src/norm/recipe.h"

// Every norm by its equation, for any scalar type. Complex scalars give derivatives: f(x + ih) =
// f(x) + ih f'(x) + O(h^2), so Im f(x + ih) / h is f'(x) without the cancellation of a difference
// quotient (docs/math.md). A stopped gradient is a value without imaginary part. The complex step
// costs the square of the row length, so ReferenceGradient uses the formula, which a test checks
// against the complex step.
namespace planish::internal {

template <class R>
R Detach(const R& value) {
  return value;
}
template <class R>
std::complex<R> Detach(const std::complex<R>& value) {
  return value.real();
}

/// Compensated sum of Kahan and Neumaier. Its error is a few roundings of the result and of the
/// largest term, for any number of terms. Sums real and imaginary parts separately.
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

/// Options of a norm's equation.
struct ReferenceOptions {
  double eps = 1e-5;
  double scale = 1;
  double slope = 0.1;
};

/// Returns the mean that the norm subtracts: 0 if it does not centre.
template <class Scalar>
Scalar ReferenceMean(const Recipe& recipe, const std::vector<Scalar>& x) {
  if (!recipe.centre) return Scalar(0);
  ExactSum<Scalar> sum;
  for (const Scalar& value : x) sum += value;
  const Scalar mean = sum.value() / Scalar(static_cast<double>(x.size()));
  return recipe.via_mean ? mean : Detach(mean);
}

/// Returns 1 / deviation of a row about `mean`.
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

/// Returns xhat of one row. A complex scalar also gives a derivative.
template <class Scalar>
std::vector<Scalar> ReferenceXhat(const Recipe& recipe, const std::vector<Scalar>& x, double eps) {
  const Scalar mean = ReferenceMean(recipe, x);
  const Scalar rstd = ReferenceRstd(recipe, x, mean, eps);
  std::vector<Scalar> xhat;
  xhat.reserve(x.size());
  for (const Scalar& value : x) xhat.push_back((value - mean) * rstd);
  return xhat;
}

/// Returns y of one element.
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

/// Returns the imaginary step. Its square underflows to 0.
template <class Real>
Real ComplexStep() {
  return std::sqrt(std::numeric_limits<Real>::min());
}

/// Returns the derivative of L = sum(dy * y) with respect to element c of one row x.
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

/// Return one element's terms of dgain and dbias, by the complex step.
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

/// Returns g = dL/dxhat of one element.
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

/// Means over a row for dx = rstd * (g - mean_g - xhat * mean_g_xhat).
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
    // The deviation s has ds/dx = (x - mean) / ((n - 1) s), and rstd = 1 / (s + eps), so s * rstd
    // is the unbiased deviation of xhat. In a constant row s has no derivative and xhat is 0, so
    // the term is 0.
    const Real s_rstd = std::sqrt(sum_xhat2.value() / (n - 1));
    means.mean_g_xhat = s_rstd > 0 ? sum_g_xhat.value() / ((n - 1) * s_rstd) : Real(0);
  }
  return means;
}

/// Returns dx of one row with given xhat and rstd, by the formula.
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
