#ifndef PLANISH_SRC_RNN_REFERENCE_H_
#define PLANISH_SRC_RNN_REFERENCE_H_

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "src/norm/reference.h"
#include "src/rnn/cell.h"

// The equations of every cell for any scalar type, as a reference for the kernels. With complex
// scalars they differentiate themselves (see src/norm/reference.h), so the reference gradients
// share no formula with the kernels.
namespace planish::internal {

/// The arguments of a layer by name, as in planish/rnn.h. An empty array is a null one.
template <class Scalar>
struct ReferenceRnn {
  using Array = std::vector<Scalar>;

  Cell cell{};
  RnnShape shape;
  double eps = 1e-5;
  bool reverse = false;
  std::vector<int64_t> lengths;
  std::vector<uint8_t> resets;
  Array x, h0, c0, h_reset, c_reset;
  Array weight_ih, weight_hh, bias, bias_hn;
  Array ln_ih_weight, ln_ih_bias, ln_hh_weight, ln_hh_bias, ln_weight, ln_bias;
  Array ln_c_weight, ln_c_bias, weight_hr;
};

/// A differentiable array of a layer and its name. The parameters are the last kParams, in the
/// order of ParamsOf.
template <class Scalar>
struct ReferenceArray {
  const char* name;
  std::vector<Scalar> ReferenceRnn<Scalar>::* member;
};
template <class Scalar>
inline constexpr std::array<ReferenceArray<Scalar>, 5 + kParams> kReferenceArrays = {{
    {"x", &ReferenceRnn<Scalar>::x},
    {"h0", &ReferenceRnn<Scalar>::h0},
    {"c0", &ReferenceRnn<Scalar>::c0},
    {"h_reset", &ReferenceRnn<Scalar>::h_reset},
    {"c_reset", &ReferenceRnn<Scalar>::c_reset},
    {"weight_ih", &ReferenceRnn<Scalar>::weight_ih},
    {"weight_hh", &ReferenceRnn<Scalar>::weight_hh},
    {"bias", &ReferenceRnn<Scalar>::bias},
    {"bias_hn", &ReferenceRnn<Scalar>::bias_hn},
    {"ln_ih_weight", &ReferenceRnn<Scalar>::ln_ih_weight},
    {"ln_ih_bias", &ReferenceRnn<Scalar>::ln_ih_bias},
    {"ln_hh_weight", &ReferenceRnn<Scalar>::ln_hh_weight},
    {"ln_hh_bias", &ReferenceRnn<Scalar>::ln_hh_bias},
    {"ln_weight", &ReferenceRnn<Scalar>::ln_weight},
    {"ln_bias", &ReferenceRnn<Scalar>::ln_bias},
    {"ln_c_weight", &ReferenceRnn<Scalar>::ln_c_weight},
    {"ln_c_bias", &ReferenceRnn<Scalar>::ln_c_bias},
    {"weight_hr", &ReferenceRnn<Scalar>::weight_hr},
}};

/// The outputs of a layer: y [T, B, O] and the last states h [B, O] and c [B, H] ([B, 2H] for
/// slstm; empty for cells without one). Also the weights of a loss, sum(y * weights.y) + sum(h *
/// weights.h) + sum(c * weights.c).
template <class Scalar>
struct ReferenceRnnOutputs {
  std::vector<Scalar> y, h, c;
};

template <class Scalar>
class ReferenceRnnRun {
 public:
  explicit ReferenceRnnRun(const ReferenceRnn<Scalar>& call)
      : call_(call),
        recipe_(RecipeOf(call.cell)),
        hidden_(static_cast<size_t>(call.shape.hidden)),
        outputs_(static_cast<size_t>(call.shape.outputs())),
        inputs_(static_cast<size_t>(call.shape.inputs)),
        batch_(static_cast<size_t>(call.shape.batch)),
        h_(batch_),
        c_(batch_) {
    for (size_t b = 0; b < batch_; ++b) {
      h_[b] = Slice(call.h0, b * outputs_, outputs_);
      c_[b] = CellState(call.c0, b);
    }
  }

  ReferenceRnnOutputs<Scalar> operator()() {
    const auto time = static_cast<size_t>(call_.shape.time);
    ReferenceRnnOutputs<Scalar> out;
    out.y.assign(time * batch_ * outputs_, Scalar(0));
    for (size_t step = 0; step < time; ++step) {
      const size_t t = call_.reverse ? time - 1 - step : step;
      Step(t);
      for (const size_t b : rows_) {
        std::copy(h_[b].begin(), h_[b].end(),
                  out.y.begin() + static_cast<std::ptrdiff_t>((t * batch_ + b) * outputs_));
      }
    }
    for (size_t b = 0; b < batch_; ++b) {
      out.h.insert(out.h.end(), h_[b].begin(), h_[b].end());
      if (recipe_.is_lstm()) out.c.insert(out.c.end(), c_[b].begin(), c_[b].end());
    }
    return out;
  }

 private:
  using Row = std::vector<Scalar>;
  using Rows = std::vector<Row>;

  static Scalar Logistic(const Scalar& a) {
    using std::exp;
    return Scalar(1) / (Scalar(1) + exp(-a));
  }
  static Scalar Tanh(const Scalar& a) {
    using std::tanh;
    return tanh(a);
  }

  /// Returns n elements, or zeros if the array is empty.
  static Row Slice(const Row& from, size_t begin, size_t n) {
    if (from.empty()) return Row(n, Scalar(0));
    const auto first = from.begin() + static_cast<std::ptrdiff_t>(begin);
    return Row(first, first + static_cast<std::ptrdiff_t>(n));
  }

  /// Returns the cell state of sequence b. An absent log(n) of an sLSTM is -infinity.
  Row CellState(const Row& from, size_t b) const {
    const auto size = hidden_ * static_cast<size_t>(std::max(1, recipe_.cell_parts()));
    Row state = Slice(from, b * size, size);
    for (size_t k = hidden_; from.empty() && k < size; ++k) {
      state[k] = Scalar(-std::numeric_limits<double>::infinity());
    }
    return state;
  }

  /// Returns the product of a block-diagonal matrix [G, H / heads] with h.
  Row HiddenProduct(const Row& weight, const Row& h) const {
    const auto heads = static_cast<size_t>(call_.shape.heads);
    if (heads == 1) return Product(weight, h);
    const size_t units = hidden_ / heads;
    Row product(weight.size() / units, Scalar(0));
    for (size_t j = 0; j < product.size(); ++j) {
      const size_t first = j % hidden_ / units * units;
      for (size_t k = 0; k < units; ++k) product[j] += weight[j * units + k] * h[first + k];
    }
    return product;
  }

  static Row Product(const Row& weight, const Row& v) {
    Row product(weight.size() / v.size(), Scalar(0));
    for (size_t j = 0; j < product.size(); ++j) {
      for (size_t k = 0; k < v.size(); ++k) product[j] += weight[j * v.size() + k] * v[k];
    }
    return product;
  }

  /// Computes gain * xhat + bias of the columns [begin, end), over each row or over the batch.
  void Normalize(Rows& rows, size_t begin, size_t end, const Row& gain, const Row& bias) const {
    const Recipe norm = RecipeOf(Norm::kLayer);
    if (recipe_.over == Over::kRow) {
      for (Row& row : rows) {
        const Row xhat = ReferenceXhat(norm, Slice(row, begin, end - begin), call_.eps);
        for (size_t j = begin; j < end; ++j) row[j] = xhat[j - begin];
      }
    } else {
      for (size_t j = begin; j < end; ++j) {
        Row column;
        for (const Row& row : rows) column.push_back(row[j]);
        const Row xhat = ReferenceXhat(norm, column, call_.eps);
        for (size_t r = 0; r < rows.size(); ++r) rows[r][j] = xhat[r];
      }
    }
    for (Row& row : rows) {
      for (size_t j = begin; j < end; ++j) {
        if (!gain.empty()) row[j] *= gain[j];
        if (!bias.empty()) row[j] += bias[j];
      }
    }
  }

  void NormalizeGroups(Rows& rows, const Row& gain, const Row& bias) const {
    size_t begin = 0;
    for (const int8_t gates : recipe_.groups) {
      const size_t end = begin + static_cast<size_t>(gates) * hidden_;
      Normalize(rows, begin, end, gain, bias);
      begin = end;
    }
  }

  void Step(size_t t) {
    rows_.clear();
    Rows zx, zh;
    for (size_t b = 0; b < batch_; ++b) {
      if (!call_.lengths.empty() && static_cast<int64_t>(t) >= call_.lengths[b]) continue;
      rows_.push_back(b);
      if (!call_.resets.empty() && call_.resets[t * batch_ + b]) {
        h_[b] = Slice(call_.h_reset, 0, outputs_);
        c_[b] = CellState(call_.c_reset, 0);
      }
      zx.push_back(Product(call_.weight_ih, Slice(call_.x, (t * batch_ + b) * inputs_, inputs_)));
      zh.push_back(HiddenProduct(call_.weight_hh, h_[b]));
    }
    if (recipe_.sums == Sums::kSeparate) {
      NormalizeGroups(zx, call_.ln_ih_weight, call_.ln_ih_bias);
      NormalizeGroups(zh, call_.ln_hh_weight, call_.ln_hh_bias);
    } else if (recipe_.sums == Sums::kJoint) {
      for (size_t r = 0; r < zx.size(); ++r) {
        for (size_t j = 0; j < zx[r].size(); ++j) zx[r][j] += zh[r][j];
        zh[r].assign(zh[r].size(), Scalar(0));
      }
      NormalizeGroups(zx, call_.ln_weight, call_.ln_bias);
    }
    for (size_t r = 0; r < zx.size(); ++r) {
      for (size_t j = 0; j < call_.bias.size(); ++j) zx[r][j] += call_.bias[j];
      for (size_t k = 0; k < call_.bias_hn.size(); ++k) zh[r][2 * hidden_ + k] += call_.bias_hn[k];
    }
    if (recipe_.is_slstm()) {
      Slstm(zx, zh);
    } else if (recipe_.is_lstm()) {
      Lstm(zx, zh);
    } else {
      for (size_t r = 0; r < rows_.size(); ++r) {
        recipe_.is_gru() ? Gru(zx[r], zh[r], h_[rows_[r]]) : Rnn(zx[r], zh[r], h_[rows_[r]]);
      }
    }
  }

  void Rnn(const Row& ax, const Row& ah, Row& h) const {
    for (size_t k = 0; k < hidden_; ++k) {
      const Scalar a = ax[k] + ah[k];
      const bool relu = recipe_.arithmetic == Arithmetic::kRnnRelu;
      h[k] = relu ? (std::real(a) > 0 ? a : Scalar(0)) : Tanh(a);
    }
  }

  void Gru(const Row& ax, const Row& ah, Row& h) const {
    for (size_t k = 0; k < hidden_; ++k) {
      const Scalar r = Logistic(ax[k] + ah[k]);
      const Scalar z = Logistic(ax[hidden_ + k] + ah[hidden_ + k]);
      const Scalar ax_n = ax[2 * hidden_ + k], ah_n = ah[2 * hidden_ + k];
      const Scalar n = Tanh(recipe_.splits_n() ? ax_n + r * ah_n : r * (ax_n + ah_n));
      h[k] = (Scalar(1) - z) * n + z * h[k];
    }
  }

  void Lstm(const Rows& ax, const Rows& ah) {
    Rows c, o;
    for (size_t r = 0; r < rows_.size(); ++r) {
      const auto a = [&](size_t gate, size_t k) {
        return ax[r][gate * hidden_ + k] + ah[r][gate * hidden_ + k];
      };
      Row& carried = c_[rows_[r]];
      o.emplace_back();
      for (size_t k = 0; k < hidden_; ++k) {
        carried[k] = Logistic(a(1, k)) * carried[k] + Logistic(a(0, k)) * Tanh(a(2, k));
        o.back().push_back(Logistic(a(3, k)));
      }
      c.push_back(carried);
    }
    if (recipe_.cell != CellNorm::kNone) {
      Normalize(c, 0, hidden_, call_.ln_c_weight, call_.ln_c_bias);
    }
    for (size_t r = 0; r < rows_.size(); ++r) {
      for (size_t k = 0; k < hidden_; ++k) o[r][k] *= Tanh(c[r][k]);
      h_[rows_[r]] = call_.shape.projected > 0 ? Product(call_.weight_hr, o[r]) : o[r];
      if (recipe_.cell == CellNorm::kCarried) c_[rows_[r]] = c[r];
    }
  }

  /// The paper's equations, with its stabilizer m, for c and n from the cell state.
  void Slstm(const Rows& ax, const Rows& ah) {
    using std::exp, std::log;
    for (size_t r = 0; r < rows_.size(); ++r) {
      const auto a = [&](size_t gate, size_t k) {
        return ax[r][gate * hidden_ + k] + ah[r][gate * hidden_ + k];
      };
      Row& state = c_[rows_[r]];
      Row h(hidden_);
      for (size_t k = 0; k < hidden_; ++k) {
        const Scalar log_n = state[hidden_ + k], i = a(0, k);
        const bool empty = std::real(log_n) == -std::numeric_limits<double>::infinity();
        // -log(1 + exp(-f)) of a complex number whose imaginary part is tiny.
        const Scalar f = a(1, k);
        const Scalar log_f =
            std::real(f) > 0 ? -log(Scalar(1) + exp(-f)) : f - log(Scalar(1) + exp(f));
        const auto m = empty ? std::real(i) : std::max(std::real(log_f + log_n), std::real(i));
        const Scalar in = exp(i - m), keep = empty ? Scalar(0) : exp(log_f + log_n - m);
        const Scalar c = keep * state[k] + in * Tanh(a(2, k)), n = keep + in;
        state[k] = c / n;
        state[hidden_ + k] = log(n) + m;
        h[k] = Logistic(a(3, k)) * state[k];
      }
      h_[rows_[r]] = call_.shape.projected > 0 ? Product(call_.weight_hr, h) : h;
    }
  }

  const ReferenceRnn<Scalar>& call_;
  const CellRecipe recipe_;
  const size_t hidden_, outputs_, inputs_, batch_;
  Rows h_, c_;                ///< the state of each sequence
  std::vector<size_t> rows_;  ///< the sequences that have the current step
};

template <class Scalar>
ReferenceRnnOutputs<Scalar> ReferenceRnnForward(const ReferenceRnn<Scalar>& call) {
  return ReferenceRnnRun<Scalar>(call)();
}

/// Returns the derivative of the loss with the weights `loss` (empty arrays are zeros) along
/// `direction` of the array kReferenceArrays[array].
template <class Real>
Real ReferenceDerivative(const ReferenceRnn<Real>& call, const ReferenceRnnOutputs<Real>& loss,
                         size_t array, const std::vector<Real>& direction) {
  using Complex = std::complex<Real>;
  ReferenceRnn<Complex> moved;
  moved.cell = call.cell;
  moved.shape = call.shape;
  moved.eps = call.eps;
  moved.reverse = call.reverse;
  moved.lengths = call.lengths;
  moved.resets = call.resets;
  for (size_t a = 0; a < kReferenceArrays<Real>.size(); ++a) {
    const std::vector<Real>& from = call.*kReferenceArrays<Real>[a].member;
    std::vector<Complex>& to = moved.*kReferenceArrays<Complex>[a].member;
    to.assign(from.begin(), from.end());
    if (a != array) continue;
    to.resize(direction.size());  // zeros if the array is empty
    const std::string_view name = kReferenceArrays<Real>[a].name;
    const auto hidden = static_cast<size_t>(call.shape.hidden);
    if (from.empty() && RecipeOf(call.cell).is_slstm() && (name == "c0" || name == "c_reset")) {
      // An absent log(n) is -infinity.
      for (size_t i = 0; i < to.size(); ++i) {
        if (i / hidden % 2 == 1) to[i] = -std::numeric_limits<double>::infinity();
      }
    }
    for (size_t i = 0; i < to.size(); ++i) to[i] += Complex(0, direction[i] * Real(0x1p-500));
  }
  const ReferenceRnnOutputs<Complex> out = ReferenceRnnForward(moved);
  ExactSum<Real> derivative;
  const auto add = [&](const std::vector<Real>& weights, const std::vector<Complex>& values) {
    for (size_t i = 0; i < weights.size(); ++i) derivative += weights[i] * values[i].imag();
  };
  add(loss.y, out.y);
  add(loss.h, out.h);
  add(loss.c, out.c);
  return derivative.value() * Real(0x1p500);
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_RNN_REFERENCE_H_
