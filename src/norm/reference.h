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
// its imaginary part.
namespace planish::internal {

template <class R>
R Detach(const R& value) {
  return value;
}
template <class R>
std::complex<R> Detach(const std::complex<R>& value) {
  return value.real();
}

/// xhat of one row. A real scalar gives the forward pass, a complex one also a derivative.
template <Recipe kRecipe, class Scalar>
std::vector<Scalar> ReferenceXhat(const std::vector<Scalar>& x, double eps) {
  using std::sqrt;
  const Scalar n(static_cast<double>(x.size()));
  Scalar mean(0);
  if (kRecipe.centre) {
    for (const Scalar& value : x) mean += value;
    mean /= n;
    if (!kRecipe.via_mean) mean = Detach(mean);
  }
  Scalar var(0);
  for (const Scalar& value : x) var += (value - mean) * (value - mean);
  var /= n;
  Scalar rstd = Scalar(1) / sqrt(var + Scalar(eps));
  if (!kRecipe.via_scale) rstd = Detach(rstd);
  std::vector<Scalar> xhat;
  for (const Scalar& value : x) xhat.push_back((value - mean) * rstd);
  return xhat;
}

/// y of one element.
template <Recipe kRecipe, class Scalar>
Scalar ReferenceOutput(const Scalar& xhat, const Scalar& gain, const Scalar& bias) {
  if constexpr (kRecipe.output == Output::kAffine) {
    return gain * xhat + bias;
  } else {
    return xhat;
  }
}

/// The imaginary step. Its square vanishes.
template <class Real>
Real ComplexStep() {
  return std::sqrt(std::numeric_limits<Real>::min());
}

/// The derivative of L = sum(dy * y) along column c of one row x.
template <Recipe kRecipe, class Real>
Real ReferenceDx(const std::vector<Real>& x, const std::vector<Real>& gain,
                 const std::vector<Real>& dy, double eps, std::size_t c) {
  using Complex = std::complex<Real>;
  std::vector<Complex> moved(x.begin(), x.end());
  moved[c] += Complex(0, ComplexStep<Real>());
  const std::vector<Complex> xhat = ReferenceXhat<kRecipe>(moved, eps);
  Real loss = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    loss += dy[i] * ReferenceOutput<kRecipe>(xhat[i], Complex(gain[i]), Complex(0)).imag();
  }
  return loss / ComplexStep<Real>();
}

/// One row's term of dgain, of an element with the given xhat.
template <Recipe kRecipe, class Real>
Real ReferenceDgain(Real xhat, Real gain, Real bias, Real dy) {
  using Complex = std::complex<Real>;
  const Complex moved(gain, ComplexStep<Real>());
  return dy * ReferenceOutput<kRecipe>(Complex(xhat), moved, Complex(bias)).imag() /
         ComplexStep<Real>();
}

/// One row's term of dbias, of an element with the given xhat.
template <Recipe kRecipe, class Real>
Real ReferenceDbias(Real xhat, Real gain, Real bias, Real dy) {
  using Complex = std::complex<Real>;
  const Complex moved(bias, ComplexStep<Real>());
  return dy * ReferenceOutput<kRecipe>(Complex(xhat), Complex(gain), moved).imag() /
         ComplexStep<Real>();
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_REFERENCE_H_
