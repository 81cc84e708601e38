// Backward pass of gates-inl.h. Compiled once for each SIMD target, in the namespace HWY_NAMESPACE.
#if defined(PLANISH_SRC_RNN_CPU_GATES_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLANISH_SRC_RNN_CPU_GATES_BACKWARD_INL_H_
#undef PLANISH_SRC_RNN_CPU_GATES_BACKWARD_INL_H_
#else
#define PLANISH_SRC_RNN_CPU_GATES_BACKWARD_INL_H_
#endif

#include <cstdint>

#include "src/rnn/cpu/cells.h"
#include "src/rnn/cpu/row_norms-inl.h"
#include "src/rnn/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {
namespace {

/// Returns v * (1 - v), the derivative of the logistic function.
template <class T>
HWY_INLINE V<T> OfSigmoid(V<T> v) {
  return hn::NegMulAdd(v, v, v);
}
/// Returns 1 - v * v, the derivative of tanh.
template <class T>
HWY_INLINE V<T> OfTanh(V<T> v) {
  return hn::NegMulAdd(v, v, All<T>(1));
}

template <class T>
void OutputBackward(const CellCall<T>& call, const CellRowBackward<T>& row,
                    const CellSums<T>& sums) {
  constexpr int64_t n = kLanes<T>;
  const Order& order = call.order;
  const auto& gate = order.gate;
  const bool norm = call.recipe.cell != CellNorm::kNone;
  // Over the batch, batch_norm_backward computes the norm's backward.
  const bool of_row = norm && call.recipe.over == Over::kRow;
  const CoefficientVectors<T> norm_c(of_row ? row.norm_c : kIdentity<T>);
  // If the normalized c is the cell state, the gradients of c from the next step and from h are
  // added before the norm's backward. Otherwise they are added after it.
  const bool meet_before = call.recipe.cell == CellNorm::kCarried;
  const int64_t units = VectorsOf<T>(order.hidden) * n, step = gate[0].step;
  int64_t at = 0;  // relative to the begin of each gate
  for (int64_t unit = 0; unit < units; unit += n, at += step) {
    const auto dh = Get(row.dh + unit), tanh_c = Get(row.tanh_c + unit);
    const auto o = Get(row.gates + gate[3].begin + at);
    Put<T>(hn::Mul(hn::Mul(dh, tanh_c), OfSigmoid<T>(o)), row.dzh + gate[3].begin + at);
    auto d = hn::Mul(dh, o);
    if (!call.recipe.is_slstm()) d = hn::Mul(d, OfTanh<T>(tanh_c));
    if (meet_before) d = hn::Add(d, Get(row.dc + unit));
    Put<T>(d, row.dcell + unit);
    if (norm) AddTo<T>(sums.bias_c + unit, d);
    if (of_row) {
      const auto i = Get(row.gates + gate[0].begin + at), f = Get(row.gates + gate[1].begin + at);
      const auto g = Get(row.gates + gate[2].begin + at);
      const auto c = hn::MulAdd(f, Get(row.before + unit), hn::Mul(i, g));
      Put<T>(norm_c.Xhat(c), row.workspace + unit);
    }
  }
  if (of_row) {
    NormBackward<T>(row.dcell, {row.workspace, row.norm_c[1], row.dcell}, call.params.gain_c,
                    Stretch{1, order.hidden}, sums.gain_c);
  }
}

/// Writes the gradients of all gates except o, which is there already, to dzh.
template <class T>
HWY_NOINLINE void LstmGatesBackward(const CellCall<T>& call, const CellRowBackward<T>& row,
                                    T* dbias) {
  constexpr int64_t n = kLanes<T>;
  const auto& gate = call.order.gate;
  const bool met = call.recipe.cell == CellNorm::kCarried;
  int64_t at_i = gate[0].begin, at_f = gate[1].begin, at_g = gate[2].begin, at_o = gate[3].begin;
  const int64_t units = VectorsOf<T>(call.order.hidden) * n, step = gate[0].step;
  const T* gates = row.gates;
  T* da = row.dzh;
  for (int64_t unit = 0; unit < units; unit += n) {
    auto d = Get(row.dcell + unit);
    if (!met) d = hn::Add(d, Get(row.dc + unit));
    const auto i = Get(gates + at_i), f = Get(gates + at_f), g = Get(gates + at_g);
    Put<T>(hn::Mul(d, f), row.dc + unit);
    const auto da_i = hn::Mul(hn::Mul(d, g), OfSigmoid<T>(i));
    const auto da_f = hn::Mul(hn::Mul(d, Get(row.before + unit)), OfSigmoid<T>(f));
    const auto da_g = hn::Mul(hn::Mul(d, i), OfTanh<T>(g));
    AddTo<T>(dbias + at_i, da_i);
    AddTo<T>(dbias + at_f, da_f);
    AddTo<T>(dbias + at_g, da_g);
    AddTo<T>(dbias + at_o, Get(da + at_o));
    Put<T>(da_i, da + at_i);
    Put<T>(da_f, da + at_f);
    Put<T>(da_g, da + at_g);
    at_i += step, at_f += step, at_g += step, at_o += step;
  }
}

/// Like LstmGatesBackward, for an sLSTM.
template <class T>
HWY_NOINLINE void SlstmGatesBackward(const CellCall<T>& call, const CellRowBackward<T>& row,
                                     T* dbias) {
  constexpr int64_t n = kLanes<T>;
  const auto& gate = call.order.gate;
  int64_t at_i = gate[0].begin, at_f = gate[1].begin, at_g = gate[2].begin, at_o = gate[3].begin;
  const int64_t units = VectorsOf<T>(call.order.hidden) * n, step = gate[0].step;
  const T* gates = row.gates;
  T *da = row.dzh, *dlog_n = row.dc + call.order.padded;
  const auto one = All<T>(1);
  for (int64_t unit = 0; unit < units; unit += n) {
    const auto d = hn::Add(Get(row.dcell + unit), Get(row.dc + unit));
    const auto of_n = Get(dlog_n + unit);
    const auto alpha = Get(gates + at_i), f = Get(gates + at_f), g = Get(gates + at_g);
    const auto difference = hn::Sub(Get(row.before + unit), g);
    const auto dgap = hn::MulAdd(hn::Mul(d, difference), OfSigmoid<T>(alpha), hn::Mul(of_n, alpha));
    const auto da_i = hn::Sub(of_n, dgap), da_f = hn::NegMulAdd(dgap, f, dgap);
    const auto da_g = hn::Mul(hn::Mul(d, hn::Sub(one, alpha)), OfTanh<T>(g));
    Put<T>(hn::Mul(d, alpha), row.dc + unit);
    Put<T>(dgap, dlog_n + unit);
    AddTo<T>(dbias + at_i, da_i);
    AddTo<T>(dbias + at_f, da_f);
    AddTo<T>(dbias + at_g, da_g);
    AddTo<T>(dbias + at_o, Get(da + at_o));
    Put<T>(da_i, da + at_i);
    Put<T>(da_f, da + at_f);
    Put<T>(da_g, da + at_g);
    at_i += step, at_f += step, at_g += step, at_o += step;
  }
}

/// Writes dzx and dzh of kGru. A norm of only r and z reads their gradients from dzh.
template <class T>
HWY_NOINLINE void GruGatesBackward(const CellCall<T>& call, const CellRowBackward<T>& row,
                                   const CellSums<T>& sums) {
  constexpr int64_t n = kLanes<T>;
  const bool needs_dzx = call.recipe.sums == Sums::kPlain || call.recipe.over == Over::kBatch ||
                         call.recipe.groups[0] == 3;
  const auto& gate = call.order.gate;
  int64_t at_r = gate[0].begin, at_z = gate[1].begin, at_n = gate[2].begin;
  const int64_t units = VectorsOf<T>(call.order.hidden) * n, step = gate[0].step;
  const auto one = All<T>(1);
  for (int64_t unit = 0; unit < units; unit += n) {
    const auto r = Get(row.gates + at_r), z = Get(row.gates + at_z);
    const auto new_state = Get(row.gates + at_n), d = Get(row.dh + unit);
    const auto dax_n = hn::Mul(hn::Mul(d, hn::Sub(one, z)), OfTanh<T>(new_state));
    const auto da_r = hn::Mul(hn::Mul(dax_n, Get(row.candidate + unit)), OfSigmoid<T>(r));
    const auto change = hn::Sub(Get(row.h_before + unit), new_state);
    const auto da_z = hn::Mul(hn::Mul(d, change), OfSigmoid<T>(z));
    const auto dah_n = hn::Mul(dax_n, r);
    AddTo<T>(sums.bias + at_r, da_r);
    AddTo<T>(sums.bias + at_z, da_z);
    AddTo<T>(sums.bias + at_n, dax_n);
    AddTo<T>(sums.bias_hn + unit, dah_n);
    if (needs_dzx) {
      Put<T>(da_r, row.dzx + at_r);
      Put<T>(da_z, row.dzx + at_z);
    }
    Put<T>(dax_n, row.dzx + at_n);
    Put<T>(da_r, row.dzh + at_r);
    Put<T>(da_z, row.dzh + at_z);
    Put<T>(dah_n, row.dzh + at_n);
    Put<T>(hn::Mul(d, z), row.dh + unit);
    at_r += step, at_z += step, at_n += gate[2].step;
  }
}

/// Like GruGatesBackward for kGruOfSum: writes the gradient of zx + zh to dzh.
template <class T>
HWY_NOINLINE void GruOfSumGatesBackward(const CellCall<T>& call, const CellRowBackward<T>& row,
                                        T* dbias) {
  constexpr int64_t n = kLanes<T>;
  const auto& gate = call.order.gate;
  int64_t at_r = gate[0].begin, at_z = gate[1].begin, at_n = gate[2].begin;
  const int64_t units = VectorsOf<T>(call.order.hidden) * n, step = gate[0].step;
  for (int64_t unit = 0; unit < units; unit += n) {
    const auto r = Get(row.gates + at_r), z = Get(row.gates + at_z);
    const auto new_state = Get(row.gates + at_n), d = Get(row.dh + unit);
    const auto dn = hn::Mul(hn::Mul(d, hn::Sub(All<T>(1), z)), OfTanh<T>(new_state));
    const auto da_r = hn::Mul(hn::Mul(dn, Get(row.candidate + unit)), OfSigmoid<T>(r));
    const auto change = hn::Sub(Get(row.h_before + unit), new_state);
    const auto da_z = hn::Mul(hn::Mul(d, change), OfSigmoid<T>(z));
    const auto da_n = hn::Mul(dn, r);
    AddTo<T>(dbias + at_r, da_r);
    AddTo<T>(dbias + at_z, da_z);
    AddTo<T>(dbias + at_n, da_n);
    Put<T>(da_r, row.dzh + at_r);
    Put<T>(da_z, row.dzh + at_z);
    Put<T>(da_n, row.dzh + at_n);
    Put<T>(hn::Mul(d, z), row.dh + unit);
    at_r += step, at_z += step, at_n += step;
  }
}

/// Writes the gradient of the sums to dzh.
template <class T>
HWY_NOINLINE void RnnGatesBackward(const CellCall<T>& call, const CellRowBackward<T>& row,
                                   T* dbias) {
  const Tag<T> tag;
  const bool relu = call.recipe.arithmetic == Arithmetic::kRnnRelu;
  const int64_t end = VectorsOf<T>(call.order.hidden) * kLanes<T>, begin = call.order.gate[0].begin;
  T* dz = row.dzh + begin;
  dbias += begin;
  for (int64_t i = 0; i < end; i += kLanes<T>) {
    const auto d = Get(row.dh + i), h = Get(row.h_after + i);
    const auto da =
        relu ? hn::IfThenZeroElse(hn::Le(h, hn::Zero(tag)), d) : hn::Mul(d, OfTanh<T>(h));
    AddTo<T>(dbias + i, da);
    Put<T>(da, dz + i);
  }
}

/// Computes the backward of the norms of one group of gates.
template <class T>
void SumsBackward(const CellCall<T>& call, int g, const CellRowBackward<T>& row,
                  const CellSums<T>& sums) {
  const CellRecipe& recipe = call.recipe;
  const Order::Group& group = call.order.group[static_cast<size_t>(g)];
  const Stretch stretch{group.gates, call.order.hidden};
  const int64_t at = group.begin;
  const T *gain_ih = call.params.gain_ih + at, *gain_hh = call.params.gain_hh + at;
  T *dgain_ih = sums.gain_ih + at, *dgain_hh = sums.gain_hh + at;
  const NormRow<T> ih{row.xhat_ih + at, row.rstd_ih[g], row.dzx + at};
  if (recipe.sums == Sums::kJoint) {
    return NormBackward<T>(row.dzh + at, ih, gain_ih, stretch, dgain_ih);
  }
  const NormRow<T> hh{row.xhat_hh + at, row.rstd_hh[g], row.dzh + at};
  // The gradients of ax and ah are equal, except for a GRU's n.
  if (recipe.splits_n() && (g == 1 || group.gates == 3)) {
    NormBackward<T>(row.dzx + at, ih, gain_ih, stretch, dgain_ih);
    NormBackward<T>(row.dzh + at, hh, gain_hh, stretch, dgain_hh);
  } else {
    NormsBackward<T>(row.dzh + at, ih, gain_ih, hh, gain_hh, stretch, dgain_ih, dgain_hh);
  }
}

template <class T>
void GatesBackward(const CellCall<T>& call, const CellRowBackward<T>& row,
                   const CellSums<T>& sums) {
  const CellRecipe& recipe = call.recipe;
  if (recipe.is_slstm()) {
    SlstmGatesBackward(call, row, sums.bias);
  } else if (recipe.is_lstm()) {
    LstmGatesBackward(call, row, sums.bias);
  } else if (recipe.is_gru()) {
    recipe.splits_n() ? GruGatesBackward(call, row, sums)
                      : GruOfSumGatesBackward(call, row, sums.bias);
  } else {
    RnnGatesBackward(call, row, sums.bias);
  }
  if (recipe.sums == Sums::kPlain || recipe.over == Over::kBatch) return;
  for (int g = 0; g < call.order.groups; ++g) SumsBackward(call, g, row, sums);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#endif  // PLANISH_SRC_RNN_CPU_GATES_BACKWARD_INL_H_
