#ifndef PLANISH_SRC_RNN_CUDA_UNIT_H_
#define PLANISH_SRC_RNN_CUDA_UNIT_H_

#include <cstdint>
#include <string>

#include "src/base/check.h"
#include "src/base/cuda/kernel.h"
#include "src/base/cuda/math.h"
#include "src/rnn/cuda/cells.h"
#include "src/rnn/cuda/norm.h"

// A cell as a compile-time parameter of the kernels, and the work of a thread on one unit.
namespace planish::internal::cuda {

/// Returns the index of a parameter of a gate of unit k; gate is 0 for parameters of the unit.
template <class T>
PLANISH_DEVICE int64_t PlaceOf(const CellParams<T>& params, int gate, int64_t k) {
  return gate * params.stride + k - params.first;
}

/// A cell as a type. The first kFirst gates share a norm, then the next kFirst gates, and so on.
template <Arithmetic kArithmeticOf, Sums kSumsOf, int kFirst>
struct CellKind {
  static constexpr bool kLstm = IsLstm(kArithmeticOf);
  static constexpr bool kSlstm = kArithmeticOf == Arithmetic::kSlstm;
  static constexpr bool kSplitsN = kArithmeticOf == Arithmetic::kGru;
  static constexpr bool kGru = IsGru(kArithmeticOf);
  static constexpr bool kRnn = !kLstm && !kGru;
  static constexpr bool kPlain = kSumsOf == Sums::kPlain;
  static constexpr bool kJoint = kSumsOf == Sums::kJoint;
  static constexpr bool kSeparate = kSumsOf == Sums::kSeparate;
  /// Whether kernels contain the norm of c.
  static constexpr bool kCanNormC = kLstm && !kSlstm;
  static constexpr int kGates = GatesOf(kArithmeticOf);
  /// The elements of a unit's cell state: c, and an sLSTM's log(n).
  static constexpr int kCells = kSlstm ? 2 : kLstm ? 1 : 0;
  /// The elements of the state that a unit's gates use: the cell state, or without one h.
  static constexpr int kStates = kLstm ? kCells : 1;
  static constexpr int kFirstGates = kFirst;
  static constexpr int kNorms = (kGates + kFirst - 1) / kFirst;
};

template <class T>
PLANISH_DEVICE bool IsActive(const CellLayer<T>& layer, int64_t t, int64_t b) {
  return layer.lengths == nullptr || t < layer.lengths[b];
}
/// Returns whether step t begins with a reset; false if t is -1.
template <class T>
PLANISH_DEVICE bool IsReset(const CellLayer<T>& layer, int64_t t, int64_t b) {
  return t >= 0 && layer.resets != nullptr && layer.resets[t * layer.batch + b] != 0 &&
         IsActive(layer, t, b);
}

template <class T>
PLANISH_DEVICE T OrZero(const T* values, int64_t i) {
  return values == nullptr ? T{0} : values[i];
}
/// Returns an element of `cell`, or if it is null of an empty cell state: 0, for log(n) -infinity.
template <class T>
PLANISH_DEVICE T OrEmpty(const T* cell, int64_t i, bool is_log_n) {
  if (cell != nullptr) return cell[i];
  return is_log_n ? -static_cast<T>(INFINITY) : T{0};
}

/// The outputs of a unit: its state, and an LSTM's cell state and o. `cell` contains c, and an
/// sLSTM's log(n).
template <class T>
struct UnitOutput {
  T h, cell[2], o;
};

/// Computes the gates of unit k in row `row`, and saves them if the layer does. `before` is the
/// unit's h, or an LSTM's cell state. With a norm of c, h is computed by TakeNormalized.
template <class Kind, class T>
PLANISH_DEVICE UnitOutput<T> TakeGates(const CellLayer<T>& a, int64_t row, int64_t k,
                                       const T (&zx)[Kind::kGates], const T (&zh)[Kind::kGates],
                                       const NormCoefficients<T> (&ih)[Kind::kNorms],
                                       const NormCoefficients<T> (&hh)[Kind::kNorms],
                                       const T (&before)[Kind::kStates], bool relu) {
  constexpr int kGates = Kind::kGates, kFirst = Kind::kFirstGates;
  const CellParams<T>& p = a.params;
  const int64_t hidden = a.hidden, first = row * kGates * hidden + k, unit = row * hidden + k;
  // of_x contains ax, or ax + ah if only their sum is used; of_h contains ah_n.
  T of_x[kGates], of_h = 0;
  PLANISH_UNROLL
  for (int gate = 0; gate < kGates; ++gate) {
    const int64_t j = PlaceOf(p, gate, k);
    const bool candidate = Kind::kSplitsN && gate == 2;
    if constexpr (Kind::kJoint) {
      const T z = zx[gate] + zh[gate];
      a.zx[first + gate * hidden] = z;
      of_x[gate] = FusedMulAdd(p.gain_ih[j], ih[gate / kFirst].Xhat(z), p.bias[j]);
    } else {
      T x = zx[gate], h = zh[gate];
      if constexpr (Kind::kSeparate) {
        x = p.gain_ih[j] * ih[gate / kFirst].Xhat(x);
        h = p.gain_hh[j] * hh[gate / kFirst].Xhat(h);
      }
      of_x[gate] = (candidate ? x : x + h) + p.bias[j];
      if (candidate) of_h = h + p.bias_hn[PlaceOf(p, 0, k)];
    }
  }
  T* const kept = a.gates_kept == nullptr ? nullptr : a.gates_kept + first;
  if constexpr (Kind::kRnn) {
    // NaN stays NaN, because it is not <= 0.
    return {!relu ? Tanh(of_x[0]) : of_x[0] <= 0 ? T{0} : of_x[0], {}, 0};
  } else if constexpr (Kind::kGru) {
    const T r = Sigmoid(of_x[0]), z = Sigmoid(of_x[1]);
    const T n = Tanh(Kind::kSplitsN ? FusedMulAdd(r, of_h, of_x[2]) : r * of_x[2]);
    if (kept != nullptr) {
      kept[0] = r, kept[hidden] = z, kept[2 * hidden] = n;
      a.candidate[unit] = Kind::kSplitsN ? of_h : of_x[2];
    }
    return {FusedMulAdd(T{1} - z, n, z * before[0]), {}, 0};
  } else if constexpr (Kind::kSlstm) {
    const T i = of_x[0], g = Tanh(of_x[2]), o = Sigmoid(of_x[3]);
    // c is the average of the c before and g. The weight of the c before is alpha.
    const T gap = (before[1] - Softplus(-of_x[1])) - i, alpha = Sigmoid(gap);
    const T c = FusedMulAdd(alpha, before[0] - g, g);
    if (kept != nullptr) {
      kept[0] = alpha, kept[hidden] = Sigmoid(of_x[1]), kept[2 * hidden] = g, kept[3 * hidden] = o;
      a.before[unit] = before[0];
      a.tanh_c[unit] = c;
    }
    return {o * c, {c, i + Softplus(gap)}, o};
  } else {
    const T i = Sigmoid(of_x[0]), f = Sigmoid(of_x[1]), g = Tanh(of_x[2]), o = Sigmoid(of_x[3]);
    const T c = FusedMulAdd(f, before[0], i * g);
    if (kept != nullptr) {
      kept[0] = i, kept[hidden] = f, kept[2 * hidden] = g, kept[3 * hidden] = o;
      a.before[unit] = before[0];
    }
    if (a.cell_norm != CellNorm::kNone) return {0, {c}, o};
    const T tanh_c = Tanh(c);
    if (kept != nullptr) a.tanh_c[unit] = tanh_c;
    return {o * tanh_c, {c}, o};
  }
}

/// Computes an LSTM's h from c and the norm of c, and returns the cell state for the next step.
template <class T>
PLANISH_DEVICE UnitOutput<T> TakeNormalized(const CellLayer<T>& a, int64_t row, int64_t k, T c, T o,
                                            const NormCoefficients<T>& coefficients) {
  const int64_t at = PlaceOf(a.params, 0, k);
  const T seen = FusedMulAdd(a.params.gain_c[at], coefficients.Xhat(c), a.params.bias_c[at]);
  const T tanh_c = Tanh(seen);
  if (a.tanh_c != nullptr) a.tanh_c[row * a.hidden + k] = tanh_c;
  return {o * tanh_c, {a.cell_norm == CellNorm::kCarried ? seen : c}, o};
}

/// Returns v * (1 - v), the derivative of the logistic function.
template <class T>
PLANISH_DEVICE T OfSigmoid(T v) {
  return FusedMulAdd(-v, v, v);
}
/// Returns 1 - v * v, the derivative of tanh.
template <class T>
PLANISH_DEVICE T OfTanh(T v) {
  return FusedMulAdd(-v, v, T{1});
}

/// The gradients of an LSTM unit's sum of o, of the argument of tanh (of c in an sLSTM), and of an
/// sLSTM's log(n).
template <class T>
struct OutputGradient {
  T of_o, of_cell, of_log_n;
};

/// Computes an LSTM's OutputGradient from the gradient of its h. `more` are further gradients of
/// the argument of tanh, and of an sLSTM's log(n).
template <class Kind, class T>
PLANISH_DEVICE OutputGradient<T> TakeOutputBack(const CellLayer<T>& a, int64_t row, int64_t k, T dh,
                                                const T (&more)[Kind::kStates]) {
  const T tanh_c = a.tanh_c[row * a.hidden + k];
  const T o = a.gates_kept[(row * 4 + 3) * a.hidden + k];
  const T of_o = dh * tanh_c * OfSigmoid(o);
  if constexpr (Kind::kSlstm) {
    return {of_o, FusedMulAdd(dh, o, more[0]), more[1]};
  } else {
    return {of_o, FusedMulAdd(dh * o, OfTanh(tanh_c), more[0]), 0};
  }
}

/// Returns the normalized c of an LSTM's unit.
template <class T>
PLANISH_DEVICE T XhatOfCell(const CellLayer<T>& a, int64_t row, int64_t k,
                            const NormCoefficients<T>& coefficients) {
  const T* const kept = a.gates_kept + row * 4 * a.hidden + k;
  const T i = kept[0], f = kept[a.hidden], g = kept[2 * a.hidden];
  return coefficients.Xhat(FusedMulAdd(f, a.before[row * a.hidden + k], i * g));
}

/// Returns the gradient of an LSTM's c through its norm from d, the gradient of the norm's output.
/// `mean` and `dot` are the means over the units of d * gain and of d * gain * xhat.
template <class T>
PLANISH_DEVICE T TakeCellNormBack(const CellLayer<T>& a, int64_t row, int64_t k,
                                  const NormCoefficients<T>& coefficients, T d, T mean, T dot) {
  return coefficients.rstd *
         FusedMulAdd(-XhatOfCell(a, row, k, coefficients), dot, d * a.params.gain_c[k] - mean);
}

/// Gradients of a unit's gate sums (for a GRU, of ax_n and ah_n separately). Also those of the h
/// and cell state before the step, except the part through the matrix product.
template <class Kind, class T>
struct UnitGradient {
  T of_a[Kind::kGates];
  T of_h, dh, dc[Kind::kStates];

  /// Returns the gradient of the gate's part of zh, or of zx + zh.
  PLANISH_DEVICE T OfState(int gate) const {
    return Kind::kSplitsN && gate == 2 ? of_h : of_a[gate];
  }
};

/// Computes the gradients of the gates. For an RNN or GRU, from `dh`, the gradient of h; y and
/// h_before are the states after and before the step. For an LSTM, from `output`.
template <class Kind, class T>
PLANISH_DEVICE UnitGradient<Kind, T> TakeGatesBack(const CellLayer<T>& a, int64_t row, int64_t k,
                                                   T dh, const OutputGradient<T>& output,
                                                   const T* y, const T* h_before, bool relu) {
  const int64_t hidden = a.hidden, unit = row * hidden + k;
  const T* const kept = Kind::kRnn ? nullptr : a.gates_kept + row * Kind::kGates * hidden + k;
  UnitGradient<Kind, T> d = {};
  if constexpr (Kind::kRnn) {
    d.of_a[0] = !relu ? dh * OfTanh(y[unit]) : y[unit] <= 0 ? T{0} : dh;
  } else if constexpr (Kind::kGru) {
    const T r = kept[0], z = kept[hidden], n = kept[2 * hidden];
    const T of_n = dh * (T{1} - z) * OfTanh(n);
    d.of_a[0] = of_n * a.candidate[unit] * OfSigmoid(r);
    d.of_a[1] = dh * (h_before[unit] - n) * OfSigmoid(z);
    d.of_h = of_n * r;
    d.of_a[2] = Kind::kSplitsN ? of_n : d.of_h;
    d.dh = dh * z;
  } else if constexpr (Kind::kSlstm) {
    const T alpha = kept[0], f = kept[hidden], g = kept[2 * hidden], of_cell = output.of_cell;
    const T dgap =
        FusedMulAdd(of_cell * (a.before[unit] - g), OfSigmoid(alpha), output.of_log_n * alpha);
    d.of_a[0] = output.of_log_n - dgap;
    d.of_a[1] = FusedMulAdd(-dgap, f, dgap);
    d.of_a[2] = of_cell * (T{1} - alpha) * OfTanh(g);
    d.of_a[3] = output.of_o;
    d.dc[0] = of_cell * alpha;
    d.dc[1] = dgap;
  } else {
    const T i = kept[0], f = kept[hidden], g = kept[2 * hidden], of_cell = output.of_cell;
    d.of_a[0] = of_cell * g * OfSigmoid(i);
    d.of_a[1] = of_cell * a.before[unit] * OfSigmoid(f);
    d.of_a[2] = of_cell * i * OfTanh(g);
    d.of_a[3] = output.of_o;
    d.dc[0] = of_cell * f;
  }
  return d;
}

/// The norm of zh or of zx + zh, which is part of a backward step: its input, coefficients and
/// gains.
template <class Kind, class T>
struct StateNorm {
  PLANISH_DEVICE explicit StateNorm(const CellLayer<T>& a)
      : z(Kind::kSeparate ? a.zh : a.zx),
        norm_coefficients(Kind::kSeparate ? a.norm_hh : a.norm_ih),
        gain(Kind::kSeparate ? a.params.gain_hh : a.params.gain_ih) {}

  const T *z, *norm_coefficients, *gain;
};

/// Returns the gradient of an element of a norm. `g` is the gradient of its xhat; the means are
/// those of g and g * xhat over the norm.
template <class T>
PLANISH_DEVICE T TakeNormBack(T g, T xhat, T rstd, T mean, T dot) {
  // Rounded before the multiplication, so that g - mean is 0 for one element.
  const T about = g - mean;
  return rstd * FusedMulAdd(-xhat, dot, about);
}

/// Calls f with the CellKind of the layer. Throws an ArgumentError of `function` for a cell without
/// kernels.
template <class F>
void VisitKind(const char* function, Arithmetic arithmetic, Sums sums, int first, F&& f) {
  using enum Arithmetic;
  const bool plain = sums == Sums::kPlain, joint = sums == Sums::kJoint;
  if (arithmetic == kLstm) {
    if (plain) return f(CellKind<kLstm, Sums::kPlain, 4>());
    if (joint && first == 1) return f(CellKind<kLstm, Sums::kJoint, 1>());
    if (joint && first == 4) return f(CellKind<kLstm, Sums::kJoint, 4>());
    if (!joint && first == 4) return f(CellKind<kLstm, Sums::kSeparate, 4>());
  } else if (arithmetic == kSlstm) {
    if (plain) return f(CellKind<kSlstm, Sums::kPlain, 4>());
  } else if (arithmetic == kGru) {
    if (plain) return f(CellKind<kGru, Sums::kPlain, 3>());
    if (!joint && first == 2) return f(CellKind<kGru, Sums::kSeparate, 2>());
    if (!joint && first == 3) return f(CellKind<kGru, Sums::kSeparate, 3>());
  } else if (arithmetic == kGruOfSum) {
    if (joint && first == 3) return f(CellKind<kGruOfSum, Sums::kJoint, 3>());
  } else {
    if (plain) return f(CellKind<kRnn, Sums::kPlain, 1>());
    if (joint) return f(CellKind<kRnn, Sums::kJoint, 1>());
  }
  Fail(function, "cell", "be a cell with CUDA kernels",
       "one of arithmetic " + std::to_string(static_cast<int>(arithmetic)) + " and sums " +
           std::to_string(static_cast<int>(sums)) + " with " + std::to_string(first) +
           " gates a norm");
}

template <class T, class F>
void VisitKind(const char* function, const CellLayer<T>& layer, F&& f) {
  VisitKind(function, layer.arithmetic, layer.sums, layer.gates_of_a_norm, f);
}

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_RNN_CUDA_UNIT_H_
