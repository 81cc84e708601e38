#ifndef PLANISH_SRC_NORM_BOUNDS_H_
#define PLANISH_SRC_NORM_BOUNDS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "src/norm/reference.h"
#include "src/norm/rows/rows.h"
#include "src/norm/testing.h"

// Reference results of a problem, with a bound on the rounding error of each. See docs/accuracy.md
// for the bounds. u is the unit roundoff of the arithmetic, v that of the result type.
namespace planish::tests {

/// Growth of the error of a sum of m successive terms, in u times the sum of magnitudes. kWorst, at
/// most m, is for adversarial rows and for 16-bit types, whose few distinct values repeat the same
/// roundings. kRandom, sqrt(m), is at least three standard deviations for random rows of float and
/// double. See Higham & Mary 2019, "A new approach to probabilistic rounding error analysis".
enum class Growth : uint8_t { kRandom, kWorst };

template <class T>
constexpr Growth GrowthOf() {
  return sizeof(T) == 2 ? Growth::kWorst : Growth::kRandom;
}

/// Returns the minimum of lanes of Compute<T> on a target. For float 1, because its bounds do not
/// depend on the lanes.
template <class T>
int64_t FewestLanes(const std::string& target) {
  if (!std::is_same_v<T, double>) return 1;
  return target == "SCALAR" ? 1 : 2;
}

/// Returns the number of terms added in sequence. Double adds a chunk in two accumulators of
/// `lanes` lanes, float at most 64 terms in a lane. Both add some terms to join lanes. Narrow rows
/// can be summed in sequence.
template <class T>
double TermsInLane(int64_t cols, int64_t lanes) {
  if (cols < 128) return static_cast<double>(cols);
  if (!std::is_same_v<T, double>) return 64 + 8;
  return static_cast<double>(std::min(cols, internal::kChunk) / (2 * lanes) + 8);
}

/// Returns the relative error of a sum of `terms` successive terms and of joining lanes.
template <class T>
double SumGrowth(double terms, Growth growth) {
  return UnitRoundoff<Compute<T>>() * (2 + (growth == Growth::kRandom ? std::sqrt(terms) : terms));
}

/// Values with their error bounds.
template <class Real>
struct Bounded {
  std::vector<Real> value, bound;

  explicit Bounded(size_t n) : value(n), bound(n) {}
};

/// Largest error of an output, relative to its bound and in ulp. The ulp of mean is that of the
/// deviation, of rstd that of the value, and of y that of the row's largest |y|. The ulp of dx is
/// that of the row's largest term rstd * |g|, of dgain and dbias that of the largest element.
struct Worst {
  double of_bound = 0;
  double ulps = 0;
  int64_t at = -1;  ///< index of the largest error relative to its bound

  void operator+=(const Worst& other) {
    if (other.of_bound > of_bound) of_bound = other.of_bound, at = other.at;
    ulps = std::max(ulps, other.ulps);
  }
};

struct Errors {
  Worst mean, rstd, y, dx, dgain, dbias;

  void operator+=(const Errors& other) {
    mean += other.mean;
    rstd += other.rstd;
    y += other.y;
    dx += other.dx;
    dgain += other.dgain;
    dbias += other.dbias;
  }
};

template <class T, class P>
class Oracle {
 public:
  using C = Compute<T>;
  /// Type of the reference: long double, with 11 extra bits, if double is tested; else double.
  using Real = std::conditional_t<std::is_same_v<T, double>, long double, double>;

  /// Bounds for targets with at least `lanes` lanes.
  Oracle(const Problem<T, P>& p, int64_t lanes, Growth growth = GrowthOf<T>())
      : p_(p),
        recipe_(internal::RecipeOf(p.norm)),
        mean_(Size(p.rows)),
        rstd_(Size(p.rows)),
        y_(Size(p.rows * p.cols)),
        dx_(Size(p.rows * p.cols)),
        dx_term_(Size(p.rows)),
        dgain_(Size(p.cols)),
        dbias_(Size(p.cols)) {
    sums_ = SumGrowth<T>(TermsInLane<T>(p.cols, lanes), growth) +
            static_cast<double>(p.cols / internal::kChunk) * 0x1p-53;
    // A column sums the rows of a group in sequence, then groups and blocks in double.
    columns_ = SumGrowth<T>(static_cast<double>(std::min(p.rows, internal::kGroupRows)), growth) +
               static_cast<double>(p.rows / internal::kGroupRows + 64) * 0x1p-53;
    for (int64_t r = 0; r < p.rows; ++r) Row(r);
    if (recipe_.output != internal::Output::kAffine) return;
    for (size_t c = 0; c < Size(p.cols); ++c) {
      for (auto* out : {&dgain_, &dbias_}) {
        out->bound[c] = out->bound[c] + kU * std::abs(out->value[c]);
        if (!std::is_same_v<P, C>) Round<P>(*out, c);
      }
    }
  }

  /// Returns the errors of `out`.
  Errors Compare(const Result<T, P>& out) const {
    Errors errors;
    for (size_t r = 0; r < Size(p_.rows); ++r) {
      if (recipe_.centre) {
        // The reference mean is relative to Origin.
        const Real mean = (static_cast<Real>(out.mean[r]) - Origin(r)) + out.mean_lo[r];
        Add(errors.mean, mean, mean_, r, 2 * kU / std::abs(rstd_.value[r]));
      }
      Add(errors.rstd, static_cast<Real>(out.rstd[r]), rstd_, r, 2 * kU * rstd_.value[r]);
      AddRange(errors.y, out.y, y_, r * Size(p_.cols), Size(p_.cols));
      AddRange(errors.dx, out.dx, dx_, r * Size(p_.cols), Size(p_.cols), dx_term_[r]);
    }
    if (recipe_.output == internal::Output::kAffine) {
      AddRange(errors.dgain, out.dgain, dgain_, 0, Size(p_.cols));
      AddRange(errors.dbias, out.dbias, dbias_, 0, Size(p_.cols));
    }
    return errors;
  }

  const Bounded<Real>& y() const { return y_; }
  const Bounded<Real>& dx() const { return dx_; }

 private:
  static constexpr double kU = UnitRoundoff<C>();

  static size_t Size(int64_t n) { return static_cast<size_t>(n); }

  // Subtracted from all elements of a row, which is exact relative to the deviations. Centred norms
  // are invariant to it, and it preserves digits of the reference.
  Real Origin(size_t r) const {
    return recipe_.centre ? static_cast<Real>(ToDouble(p_.x[(r + 1) * Size(p_.cols) - 1]))
                          : Real(0);
  }

  /// Adds the error of rounding a computed value to type E.
  template <class E>
  static void Round(Bounded<Real>& out, size_t i) {
    out.bound[i] += UnitRoundoff<E>() * (std::abs(out.value[i]) + out.bound[i]) + HalfOfLeast<E>();
  }

  void Row(int64_t row) {
    const size_t cols = Size(p_.cols), r = Size(row), begin = r * cols;
    const Real origin = Origin(r);
    std::vector<Real> x(cols), dy(cols), gain(cols, 1), bias(cols, 0);
    for (size_t c = 0; c < cols; ++c) {
      x[c] = static_cast<Real>(ToDouble(p_.x[begin + c])) - origin;
      dy[c] = static_cast<Real>(ToDouble(p_.dy[begin + c]));
      if (!p_.gain.empty()) gain[c] = static_cast<Real>(ToDouble(p_.gain[c]));
      if (!p_.bias.empty()) bias[c] = static_cast<Real>(ToDouble(p_.bias[c]));
    }
    const internal::ReferenceOptions options{p_.eps, p_.scale, p_.slope};
    const Real mean = internal::ReferenceMean(recipe_, x);
    const Real rstd = internal::ReferenceRstd(recipe_, x, mean, p_.eps);
    Real max_x = 0;
    internal::ExactSum<Real> squares;
    std::vector<Real> xhat(cols);
    for (size_t c = 0; c < cols; ++c) {
      xhat[c] = (x[c] - mean) * rstd;
      squares += (x[c] - mean) * (x[c] - mean);
      max_x = std::max(max_x, std::abs(x[c] + origin));
    }
    const Real deviation = std::sqrt(squares.value() / static_cast<Real>(cols));

    // Statistics of d = x - shift. The shift is a mean of eight or more elements; in a narrow row
    // it can be one element. If mean(d^2) exceeds `spread` times the variance, the row is summed
    // again in double.
    const Real spread = recipe_.centre ? (cols >= 32 ? 2 : 4) : 1;
    // The error of the mean, in deviations, is that of the sum of d and that of d itself;
    // mean(|d|)^2 <= mean(d^2).
    const Real mean_error = recipe_.centre ? (sums_ + kU) * std::sqrt(spread) : Real(0);
    // The variance is mean(d^2) - mean(d)^2, and mean(d)^2 is at most spread - 1 times the
    // variance. The error of d^2 is twice that of d. The relative error of rstd is half that of the
    // variance, and less if eps matters.
    const Real var_error = spread * (sums_ + 2 * kU) + 2 * std::sqrt(spread - 1) * mean_error;
    const Real part = std::min<Real>(1, deviation * rstd * deviation * rstd);
    const Real rstd_error = kU + part * var_error / 2 + 4 * 0x1p-53;
    // mean_lo and its product with rstd are rounded; mean_lo is at most one rounding error of the
    // mean.
    const Real low = recipe_.centre ? kU * max_x * rstd : Real(0);
    mean_.value[r] = mean;
    mean_.bound[r] = mean_error * deviation + 2 * kU * kU * max_x +
                     (std::is_same_v<C, double> ? 0x1p-60 : 0) * max_x;
    rstd_.value[r] = rstd;
    rstd_.bound[r] = rstd_error * rstd;

    std::vector<Real> xhat_error(cols), g(cols), g_error(cols);
    const auto k = static_cast<Real>(p_.scale * p_.slope), s = static_cast<Real>(p_.scale);
    for (size_t c = 0; c < cols; ++c) {
      // (x - mean) * rstd + offset: three roundings of a value that is xhat up to mean_lo.
      xhat_error[c] = std::abs(xhat[c]) * (3 * kU + rstd_error) + 5 * kU * low +
                      mean_error * std::min<Real>(1, deviation * rstd);
      // scale - scale * slope * xhat: constants, product and difference are rounded.
      const Real factor = s - k * xhat[c];
      const Real factor_error =
          std::abs(k) * xhat_error[c] + kU * (2 * std::abs(s) + 4 * std::abs(k * xhat[c]));
      Real& bound = y_.bound[begin + c];
      const Real y = internal::ReferenceOutput(recipe_, options, xhat[c], gain[c], bias[c]);
      y_.value[begin + c] = y;
      g[c] = internal::ReferenceG(recipe_, options, xhat[c], gain[c], dy[c]);
      dx_term_[r] = std::max(dx_term_[r], rstd * std::abs(g[c]));
      switch (recipe_.output) {
        case internal::Output::kAffine:
          bound = std::abs(gain[c]) * (xhat_error[c] + kU * std::abs(xhat[c])) + kU * std::abs(y);
          g_error[c] = kU * std::abs(g[c]);
          break;
        case internal::Output::kAdaptive:
          bound = std::abs(factor) * xhat_error[c] + std::abs(xhat[c]) * factor_error +
                  kU * std::abs(y);
          g_error[c] = std::abs(dy[c]) * factor_error + kU * std::abs(g[c]);
          break;
        case internal::Output::kIdentity:
          bound = xhat_error[c];
          g_error[c] = 0;
      }
      if (!std::is_same_v<T, C>) Round<T>(y_, begin + c);
    }

    // Backward. The errors of the means are those of their terms and of the sums.
    const internal::ReferenceGradientMeans<Real> means = internal::ReferenceMeans(recipe_, g, xhat);
    Real mean_abs = 0, mean_abs_xhat = 0, term = 0, term_xhat = 0;
    for (size_t c = 0; c < cols; ++c) {
      mean_abs += std::abs(g[c]);
      mean_abs_xhat += std::abs(g[c] * xhat[c]);
      term += g_error[c];
      term_xhat += std::abs(g[c]) * xhat_error[c] + std::abs(xhat[c]) * g_error[c] +
                   kU * std::abs(g[c] * xhat[c]);
    }
    const auto n = static_cast<Real>(cols);
    const Real mean_g_error = (sums_ * mean_abs + term) / n + kU * std::abs(means.mean_g);
    Real mean_g_xhat_error =
        (sums_ * mean_abs_xhat + term_xhat) / n + kU * std::abs(means.mean_g_xhat);
    if (recipe_.deviation == internal::Deviation::kUnbiasedPlusEps && deviation > 0) {
      // The factor of the sum is 1 / (n - 1) over deviation * rstd. The kernel computes the
      // deviation as 1 / rstd - eps, which amplifies the error of rstd if eps is large.
      const Real over = 1 / (deviation * rstd * std::sqrt(n / std::max<Real>(1, n - 1)));
      mean_g_xhat_error = mean_g_xhat_error * over * n / std::max<Real>(1, n - 1) +
                          std::abs(means.mean_g_xhat) * (rstd_error + kU) * over;
    }
    for (size_t c = 0; c < cols; ++c) {
      const Real v = g[c] - means.mean_g, w = v - xhat[c] * means.mean_g_xhat;
      Real error = g_error[c] + kU * std::abs(w);
      if (recipe_.via_mean) error += mean_g_error + kU * std::abs(v);
      if (recipe_.via_scale) {
        error += std::abs(xhat[c]) * mean_g_xhat_error +
                 std::abs(means.mean_g_xhat) * (xhat_error[c] + kU * std::abs(xhat[c]));
      }
      dx_.value[begin + c] = rstd * w;
      dx_.bound[begin + c] = rstd * (error + std::abs(w) * (rstd_error + kU));
      if (!std::is_same_v<T, C>) Round<T>(dx_, begin + c);

      dgain_.value[c] += dy[c] * xhat[c];
      dgain_.bound[c] += std::abs(dy[c]) * (columns_ * std::abs(xhat[c]) + xhat_error[c]);
      dbias_.value[c] += dy[c];
      dbias_.bound[c] += columns_ * std::abs(dy[c]);
    }
  }

  static void Add(Worst& worst, Real value, const Bounded<Real>& exact, size_t i, Real ulp) {
    const Real error = std::abs(value - exact.value[i]);
    Worst one;
    one.at = static_cast<int64_t>(i);
    if (error == 0) return;
    // NaN counts as an infinite error.
    one.of_bound = error >= 0 ? static_cast<double>(error / exact.bound[i]) : INFINITY;
    one.ulps = error >= 0 ? static_cast<double>(error / ulp) : INFINITY;
    worst += one;
  }

  template <class E>
  static void AddRange(Worst& worst, const std::vector<E>& values, const Bounded<Real>& exact,
                       size_t begin, size_t n, Real max = 0) {
    for (size_t i = begin; i < begin + n; ++i) max = std::max(max, std::abs(exact.value[i]));
    const Real ulp = 2 * UnitRoundoff<E>() * max;
    for (size_t i = begin; i < begin + n; ++i) {
      Add(worst, static_cast<Real>(ToDouble(values[i])), exact, i, ulp);
    }
  }

  const Problem<T, P>& p_;
  internal::Recipe recipe_;
  double sums_, columns_;
  Bounded<Real> mean_, rstd_, y_, dx_;
  std::vector<Real> dx_term_;
  Bounded<Real> dgain_, dbias_;
};

/// Calls f(target, errors) with the errors of the problem on each SIMD target.
template <class T, class P, class F>
void ForEachTargetsErrors(const Problem<T, P>& p, Growth growth, F&& f) {
  std::optional<Oracle<T, P>> oracle;
  int64_t lanes_before = 0;
  ForEachTarget([&](const std::string& target) {
    const int64_t lanes = FewestLanes<T>(target);
    if (lanes != lanes_before) oracle.emplace(p, lanes, growth);
    lanes_before = lanes;
    f(target, oracle->Compare(Apply(p)));
  });
}

/// Returns a description of the outputs whose errors exceed their bounds, or "".
inline std::string Beyond(const Errors& errors) {
  std::string text;
  const auto check = [&](const char* name, const Worst& worst) {
    if (worst.of_bound <= 1) return;
    text += std::string(name) + " is off by " + std::to_string(worst.of_bound) +
            " times the bound (" + std::to_string(worst.ulps) + " ulps) at " +
            std::to_string(worst.at) + "; ";
  };
  check("mean", errors.mean);
  check("rstd", errors.rstd);
  check("y", errors.y);
  check("dx", errors.dx);
  check("dgain", errors.dgain);
  check("dbias", errors.dbias);
  return text;
}

}  // namespace planish::tests

#endif  // PLANISH_SRC_NORM_BOUNDS_H_
