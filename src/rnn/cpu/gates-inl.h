// The gates, c and h of a step, from its sums. Compiled once for each SIMD target, in the namespace
// HWY_NAMESPACE.
#if defined(PLANISH_SRC_RNN_CPU_GATES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLANISH_SRC_RNN_CPU_GATES_INL_H_
#undef PLANISH_SRC_RNN_CPU_GATES_INL_H_
#else
#define PLANISH_SRC_RNN_CPU_GATES_INL_H_
#endif

#include <cstdint>

#include "src/base/simd/math-inl.h"
#include "src/rnn/cpu/cells.h"
#include "src/rnn/cpu/row_norms-inl.h"
#include "src/rnn/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {
namespace {

template <class T>
HWY_NOINLINE void RnnGates(const CellCall<T>& call, const CellRow<T>& row) {
  const Tag<T> d;
  const bool relu = call.recipe.arithmetic == Arithmetic::kRnnRelu;
  const int64_t end = VectorsOf<T>(call.order.hidden) * kLanes<T>, begin = call.order.gate[0].begin;
  const T *bias = call.params.bias + begin, *a = row.a + begin;
  for (int64_t i = 0; i < end; i += kLanes<T>) {
    const auto v = hn::Add(Get(a + i), Get(bias + i));
    // NaN stays NaN, because it is not <= 0.
    Put<T>(relu ? hn::IfThenZeroElse(hn::Le(v, hn::Zero(d)), v) : Tanh(d, v), row.h + i);
  }
}

/// Computes o and c from zx + zh after any norms, and the coefficients of the norm of c, if any.
template <class T, Keep kKeep>
HWY_NOINLINE void LstmGates(const CellCall<T>& call, const CellRow<T>& row) {
  const Tag<T> d;
  constexpr int64_t n = kLanes<T>;
  const auto& gate = call.order.gate;
  int64_t at_i = gate[0].begin, at_f = gate[1].begin, at_g = gate[2].begin, at_o = gate[3].begin;
  const int64_t step = gate[0].step, units = VectorsOf<T>(call.order.hidden) * n;
  const T* bias = call.params.bias;
  T *a = row.a, *state = row.c;
  auto sum = hn::Zero(d), square = hn::Zero(d);
  for (int64_t unit = 0; unit < units; unit += n) {
    const auto i = Sigmoid(d, hn::Add(Get(a + at_i), Get(bias + at_i)));
    const auto f = Sigmoid(d, hn::Add(Get(a + at_f), Get(bias + at_f)));
    const auto g = Tanh(d, hn::Add(Get(a + at_g), Get(bias + at_g)));
    const auto o = Sigmoid(d, hn::Add(Get(a + at_o), Get(bias + at_o)));
    const auto c = Get(state + unit);
    PutKept<kKeep, T>(c, row.before + unit);
    const auto new_c = hn::MulAdd(f, c, hn::Mul(i, g));
    sum = hn::Add(sum, new_c);
    square = hn::MulAdd(new_c, new_c, square);
    Put<T>(new_c, state + unit);
    PutKept<kKeep, T>(i, row.gates + at_i);
    PutKept<kKeep, T>(f, row.gates + at_f);
    PutKept<kKeep, T>(g, row.gates + at_g);
    PutKept<kKeep, T>(o, row.gates + at_o);
    Put<T>(o, a + at_o);
    at_i += step, at_f += step, at_g += step, at_o += step;
  }
  if (call.recipe.cell != CellNorm::kNone && call.recipe.over == Over::kRow) {
    FinishCoefficients(sum, square, state, Stretch{1, call.order.hidden}, call.eps, row.norm_c);
  }
}

/// Computes o and c of an sLSTM. With c divided by n, f c + i g becomes an average with the weight
/// alpha = s(log s(f) + log n - i) of the c before, and log n is the second part of the state.
template <class T, Keep kKeep>
HWY_NOINLINE void SlstmGates(const CellCall<T>& call, const CellRow<T>& row) {
  const Tag<T> d;
  constexpr int64_t n = kLanes<T>;
  const auto& gate = call.order.gate;
  int64_t at_i = gate[0].begin, at_f = gate[1].begin, at_g = gate[2].begin, at_o = gate[3].begin;
  const int64_t step = gate[0].step, units = VectorsOf<T>(call.order.hidden) * n;
  const T* bias = call.params.bias;
  T *a = row.a, *c = row.c, *log_n = row.c + call.order.padded;
  for (int64_t unit = 0; unit < units; unit += n) {
    const auto i = hn::Add(Get(a + at_i), Get(bias + at_i));
    const auto f = hn::Add(Get(a + at_f), Get(bias + at_f));
    const auto g = Tanh(d, hn::Add(Get(a + at_g), Get(bias + at_g)));
    const auto o = Sigmoid(d, hn::Add(Get(a + at_o), Get(bias + at_o)));
    const auto log_f = hn::Neg(Softplus(d, hn::Neg(f)));
    const auto gap = hn::Sub(hn::Add(Get(log_n + unit), log_f), i);
    const auto alpha = Sigmoid(d, gap);
    const auto before = Get(c + unit);
    PutKept<kKeep, T>(before, row.before + unit);
    PutKept<kKeep, T>(alpha, row.gates + at_i);
    PutKept<kKeep, T>(Sigmoid(d, f), row.gates + at_f);
    PutKept<kKeep, T>(g, row.gates + at_g);
    PutKept<kKeep, T>(o, row.gates + at_o);
    Put<T>(hn::MulAdd(alpha, hn::Sub(before, g), g), c + unit);
    Put<T>(hn::Add(i, Softplus(d, gap)), log_n + unit);
    Put<T>(o, a + at_o);
    at_i += step, at_f += step, at_g += step, at_o += step;
  }
}

/// Computes a GRU's h from the normalized ax and ah, or, if `plain`, from zx and zh.
template <class T, Keep kKeep>
HWY_NOINLINE void GruGates(const CellCall<T>& call, bool plain, const CellRow<T>& row) {
  const Tag<T> d;
  constexpr int64_t n = kLanes<T>;
  const auto& gate = call.order.gate;
  int64_t at_r = gate[0].begin, at_z = gate[1].begin, at_n = gate[2].begin;
  const T *bias = call.params.bias, *bias_hn = call.params.bias_hn;
  // For r and z, row.a contains the whole sum unless `plain`. For n, ax and ah are always separate.
  const T *a = row.a, *candidates = row.ah_n;
  T* state = row.h;
  const auto one = All<T>(1);
  const int64_t step = gate[0].step, units = VectorsOf<T>(call.order.hidden) * n;
  for (int64_t unit = 0; unit < units; unit += n) {
    auto a_r = hn::Add(Get(a + at_r), Get(bias + at_r));
    auto a_z = hn::Add(Get(a + at_z), Get(bias + at_z));
    if (plain) {
      a_r = hn::Add(a_r, Get(row.zh + at_r));
      a_z = hn::Add(a_z, Get(row.zh + at_z));
    }
    const auto ax_n = hn::Add(Get(a + at_n), Get(bias + at_n));
    const auto ah_n = hn::Add(Get(candidates + unit), Get(bias_hn + unit));
    const auto r = Sigmoid(d, a_r), z = Sigmoid(d, a_z);
    const auto new_state = Tanh(d, hn::MulAdd(r, ah_n, ax_n));
    PutKept<kKeep, T>(r, row.gates + at_r);
    PutKept<kKeep, T>(z, row.gates + at_z);
    PutKept<kKeep, T>(new_state, row.gates + at_n);
    PutKept<kKeep, T>(ah_n, row.candidate + unit);
    const auto h = Get(state + unit);
    Put<T>(hn::MulAdd(hn::Sub(one, z), new_state, hn::Mul(z, h)), state + unit);
    at_r += step, at_z += step, at_n += gate[2].step;
  }
}

/// Computes h of kGruOfSum, a GRU whose r multiplies the whole sum of n.
template <class T, Keep kKeep>
HWY_NOINLINE void GruOfSumGates(const CellCall<T>& call, const CellRow<T>& row) {
  const Tag<T> d;
  constexpr int64_t n = kLanes<T>;
  const auto& gate = call.order.gate;
  int64_t at_r = gate[0].begin, at_z = gate[1].begin, at_n = gate[2].begin;
  const int64_t step = gate[0].step, units = VectorsOf<T>(call.order.hidden) * n;
  const T *bias = call.params.bias, *a = row.a;
  T* state = row.h;
  for (int64_t unit = 0; unit < units; unit += n) {
    const auto r = Sigmoid(d, hn::Add(Get(a + at_r), Get(bias + at_r)));
    const auto z = Sigmoid(d, hn::Add(Get(a + at_z), Get(bias + at_z)));
    const auto a_n = hn::Add(Get(a + at_n), Get(bias + at_n));
    const auto new_state = Tanh(d, hn::Mul(r, a_n));
    PutKept<kKeep, T>(r, row.gates + at_r);
    PutKept<kKeep, T>(z, row.gates + at_z);
    PutKept<kKeep, T>(new_state, row.gates + at_n);
    PutKept<kKeep, T>(a_n, row.candidate + unit);
    const auto h = Get(state + unit);
    Put<T>(hn::MulAdd(hn::Sub(All<T>(1), z), new_state, hn::Mul(z, h)), state + unit);
    at_r += step, at_z += step, at_n += step;
  }
}

/// Computes gain * xhat of the sums of one group of gates, which share norms.
template <class T, Keep kKeep>
void NormalizeSums(const CellCall<T>& call, int g, const CellRow<T>& row) {
  const CellRecipe& recipe = call.recipe;
  const Order::Group& group = call.order.group[static_cast<size_t>(g)];
  const int64_t vectors = VectorsOf<T>(call.order.hidden) * group.gates, at = group.begin;
  const bool joint = recipe.sums == Sums::kJoint;
  const T *zx = row.zx + at, *zh = joint ? nullptr : row.zh + at;
  T *kept_ih = nullptr, *kept_hh = nullptr;
  T norm_coefficients[2][kCoefficients];
  const T *norm_ih = kIdentity<T>, *norm_hh = kIdentity<T>;
  if (recipe.over == Over::kRow) {
    ComputeCoefficients<T>(zx, zh, Stretch{group.gates, call.order.hidden}, call.eps,
                           norm_coefficients[0], norm_coefficients[1]);
    norm_ih = norm_coefficients[0], norm_hh = norm_coefficients[1];
    if constexpr (kKeep != Keep::kNothing) {
      kept_ih = row.xhat_ih + at;
      row.rstd_ih[g] = norm_ih[1];
      if (!joint) kept_hh = row.xhat_hh + at, row.rstd_hh[g] = norm_hh[1];
    }
  }
  const T *gain_ih = call.params.gain_ih + at, *gain_hh = call.params.gain_hh + at;
  T* const a = row.a + at;
  if (joint) {
    Scale<T, kKeep>(zx, norm_ih, gain_ih, vectors, kept_ih, a);
  } else if (recipe.splits_n() && g == 1) {
    Scale<T, kKeep>(zx, norm_ih, gain_ih, vectors, kept_ih, a);
    Scale<T, kKeep>(zh, norm_hh, gain_hh, vectors, kept_hh, row.ah_n);
  } else if (recipe.splits_n() && group.gates == 3) {
    ScaleGru<T, kKeep>(zx, norm_ih, gain_ih, kept_ih, zh, norm_hh, gain_hh, kept_hh, vectors, a,
                       row.ah_n);
  } else {
    ScaleBoth<T, kKeep>(zx, norm_ih, gain_ih, kept_ih, zh, norm_hh, gain_hh, kept_hh, vectors, a);
  }
}

template <class T, Keep kKeep>
void KeepGates(const CellCall<T>& call, const CellRow<T>& row) {
  const CellRecipe& recipe = call.recipe;
  const bool plain = recipe.sums == Sums::kPlain;
  for (int g = 0; !plain && g < call.order.groups; ++g) {
    recipe.over == Over::kRow ? NormalizeSums<T, kKeep>(call, g, row)
                              : NormalizeSums<T, Keep::kNothing>(call, g, row);
  }
  if (recipe.is_slstm()) {
    SlstmGates<T, kKeep>(call, row);
  } else if (recipe.is_lstm()) {
    LstmGates<T, kKeep>(call, row);
  } else if (recipe.is_gru()) {
    recipe.splits_n() ? GruGates<T, kKeep>(call, plain, row) : GruOfSumGates<T, kKeep>(call, row);
  } else {
    RnnGates(call, row);
  }
}

template <class T>
void Gates(const CellCall<T>& call, const CellRow<T>& row) {
  WithKeep(call.keep, [&](auto keep) HWY_ATTR { KeepGates<T, decltype(keep)::value>(call, row); });
}

template <class T, Keep kKeep>
HWY_NOINLINE void KeepOutput(const CellCall<T>& call, const CellRow<T>& row) {
  const Tag<T> d;
  constexpr int64_t n = kLanes<T>;
  const Order& order = call.order;
  const int64_t units = VectorsOf<T>(order.hidden) * n, step = order.gate[3].step;
  const T* o = row.a + order.gate[3].begin;
  if (call.recipe.cell == CellNorm::kNone) {
    const bool slstm = call.recipe.is_slstm();
    for (int64_t unit = 0; unit < units; unit += n, o += step) {
      const auto c = Get(row.c + unit);
      const auto tanh_c = slstm ? c : Tanh(d, c);
      PutKept<kKeep, T>(tanh_c, row.tanh_c + unit);
      Put<T>(hn::Mul(Get(o), tanh_c), row.h + unit);
    }
    return;
  }
  const bool over_batch = call.recipe.over == Over::kBatch;
  const bool carried = call.recipe.cell == CellNorm::kCarried;
  const CoefficientVectors<T> norm(over_batch ? kIdentity<T> : row.norm_c);
  const T* c = over_batch ? row.xhat_c : row.c;
  const T *gain = call.params.gain_c, *bias = call.params.bias_c;
  for (int64_t unit = 0; unit < units; unit += n, o += step) {
    const auto seen = hn::MulAdd(Get(gain + unit), norm.Xhat(Get(c + unit)), Get(bias + unit));
    if (carried) Put<T>(seen, row.c + unit);
    const auto tanh_c = Tanh(d, seen);
    PutKept<kKeep, T>(tanh_c, row.tanh_c + unit);
    Put<T>(hn::Mul(Get(o), tanh_c), row.h + unit);
  }
}

template <class T>
void Output(const CellCall<T>& call, const CellRow<T>& row) {
  WithKeep(call.keep, [&](auto keep) HWY_ATTR { KeepOutput<T, decltype(keep)::value>(call, row); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#endif  // PLANISH_SRC_RNN_CPU_GATES_INL_H_
