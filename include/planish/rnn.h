#ifndef PLANISH_RNN_H_
#define PLANISH_RNN_H_

#include <cstdint>
#include <memory>

#include "planish/error.h"
#include "planish/parallel.h"
#include "planish/types.h"
#include "planish/version.h"

// Recurrent layers over whole sequences and step by step. RNN, LSTM and GRU are plain, with layer
// normalization, or with recurrent batch normalization. Layer normalization is that of Ba, Kiros &
// Hinton 2016, section 3.1 and supplement, and of the LN-LSTMs of other libraries.
//
// Sizes: T steps in time, B sequences, I inputs, H hidden units. G = gates * H. An RNN has 1 gate,
// an LSTM 4 (i, f, g, o, as in PyTorch) and a GRU 3 (r, z, n). The hidden state has O elements: H,
// or fewer in an LSTM with a projection. N heads have H / N units each. Arrays are contiguous, last
// index fastest. See core.h for the contract on lifetime, alignment, aliasing, concurrency and
// exceptions.
//
// Example: an LN-LSTM without parameters other than its weights.
//   const planish::RnnShape shape{.time = 3, .batch = 1, .inputs = 1, .hidden = 2};
//   const std::vector<float> x = {1, 2, 3}, w_ih = {1, 2, 3, 4, 5, 6, 7, 8}, w_hh(8 * 2, 0.5f);
//   std::vector<float> y(3 * 2);
//   planish::RnnForward<float>(
//       planish::Cell::kLnLstm,
//       {.inputs = {.shape = shape,
//                   .x = x.data(),
//                   .params = {.weight_ih = w_ih.data(), .weight_hh = w_hh.data()}},
//        .y = y.data()});
//   for (const float value : y) std::printf("%.3f ", value);
//   // prints -0.570 0.625 -0.570 0.625 -0.570 0.626
namespace planish {
namespace internal {
struct RnnAccess;
}  // namespace internal

inline namespace PLANISH_API {

/// Selects the cell. s() is the logistic function; * between vectors is elementwise. The gate
/// preactivations a are computed from zx = weight_ih x_t and zh = weight_hh h_{t-1}. LN(z; p) is
/// the layer normalization (z - mean) / sqrt(var + eps) of a row, with gain p_weight and bias
/// p_bias.
///
///   RNN    h_t = f(a)
///   LSTM   c_t = s(f) * c_{t-1} + s(i) * tanh(g),   h_t = s(o) * tanh(c_t)
///   GRU    n = tanh(ax_n + s(r) * ah_n),   h_t = (1 - s(z)) * n + s(z) * h_{t-1}
///
/// The GRU is PyTorch's: its z is 1 - z in the paper's Eq. 28. An LSTM with a projection (Sak et
/// al. 2014, Eq. 7-8; PyTorch's proj_size) multiplies this h_t by weight_hr [O, H].
enum class Cell : uint8_t {
  /// Elman's RNN: a = zx + zh + bias, f = tanh.
  kRnn,
  /// kRnn with f = relu.
  kRnnRelu,
  /// LSTM of PyTorch: a = zx + zh + bias.
  kLstm,
  /// GRU of PyTorch: ax = zx + bias and ah = zh, with bias_hn added to ah_n.
  kGru,
  /// LN-RNN (Ba et al., Eq. 4): a = LN(zx + zh; ln_weight, ln_bias), f = tanh.
  kLnRnn,
  /// kLnRnn with f = relu.
  kLnRnnRelu,
  /// LN-LSTM (Ba et al., Eq. 20-22): a = LN(zx; ln_ih) + LN(zh; ln_hh) + bias, each LN over all 4H
  /// elements, and h_t = s(o) * tanh(LN(c_t; ln_c)). The next step reads c_t itself.
  kLnLstm,
  /// LN-LSTM of haste: kLnLstm without ln_ih_bias and ln_hh_bias.
  kLnLstmHaste,
  /// LN-LSTM of PyTorch's fastrnns benchmark: kLnLstm without bias; the next step reads LN(c_t;
  /// ln_c).
  kLnLstmFastRnns,
  /// LN-LSTM of TensorFlow Addons: kLnLstmFastRnns with bias. Its default eps is 1e-3.
  kLnLstmTfa,
  /// LN-LSTM of TensorFlow 1's contrib: a = LN(zx + zh; ln_weight, ln_bias), one LN over the H
  /// elements of each gate. The next step reads LN(c_t; ln_c). Add its forget_bias to ln_bias.
  kLnLstmContrib,
  /// LSTM of DRAW (Ba et al., Eq. 29-31): a = zx + zh + bias, h_t = s(o) * tanh(LN(c_t; ln_c)).
  kDrawLstm,
  /// LN-GRU (Ba et al., Eq. 26-28): ax = LN(zx; ln_ih), ah = LN(zh; ln_hh). One LN covers the 2H
  /// elements of r and z, another the H elements of n.
  kLnGru,
  /// kLnRnn with recurrent batch normalization: every element is normalized over the batch, with
  /// the statistics of its time step. For training only, like the next two cells: there are no
  /// running estimates, so a result depends on the other sequences of the batch.
  kBnRnn,
  /// Batch-normalized LSTM (Cooijmans et al. 2016, Eq. 6-8): kLnLstmHaste over the batch.
  kBnLstm,
  /// kLnGru over the batch.
  kBnGru,
  /// LN-LSTM of torchaudio's RNN-T: a = LN(zx + zh; ln_weight, ln_bias), one LN over all 4H
  /// elements. The next step reads LN(c_t; ln_c).
  kLnLstmTorchaudio,
  /// LN-LSTM of TensorFlow Lite: a = LN(zx + zh; ln_weight) + bias, one LN over the H elements of
  /// each gate. c is not normalized.
  kLnLstmTflite,
  /// LN-GRU of haste: ax = LN(zx; ln_ih_weight) + bias, ah = LN(zh; ln_hh_weight), each LN over all
  /// 3H elements, with bias_hn added to ah_n.
  kLnGruHaste,
  /// GRU of DreamerV3: a = LN(zx + zh; ln_weight, ln_bias), one LN over all 3H elements, and n =
  /// tanh(s(r) * a_n). Its update gate s(u - 1) is 1 - s(z): a_z = 1 - a_u.
  kLnGruDreamer,
  /// sLSTM of xLSTM (Beck et al. 2024, Eq. 8-17): a = zx + zh + bias, exponential input gate,
  ///   n_t = s(f) * n_{t-1} + exp(i),   c_t = (s(f) * c_{t-1} + exp(i) * tanh(g)) / n_t,
  ///   h_t = s(o) * c_t
  /// with the published c divided by its normalizer n. The cell state has 2H elements: this c, then
  /// log(n). Before the first step and after a reset without c_reset, n is 0.
  kSlstm,
};

/// Sizes of a layer.
struct RnnShape {
  int64_t time = 0;       ///< T, steps of the longest sequence, >= 0
  int64_t batch = 0;      ///< B, sequences, >= 0
  int64_t inputs = 0;     ///< I, elements of an input, >= 1
  int64_t hidden = 0;     ///< H, elements of a state, >= 1
  int64_t projected = 0;  ///< O of an LSTM with a projection, < H; 0: no projection, O = H
  /// N, divides H; 1 with a projection. weight_hh is block-diagonal: a head's gates get only the
  /// head's part of the state. Norms are over all heads.
  int64_t heads = 1;

  /// Returns O, the elements of a hidden state.
  constexpr int64_t outputs() const { return projected > 0 ? projected : hidden; }
};

/// Parameters of a layer (E is const T), or their gradients (E is T). The equation of a Cell names
/// its parameters; all others must be null. Weights are required; a null gain means ones, a null
/// bias zeros. As gradients all are optional.
template <class E>
struct RnnParams {
  E* weight_ih = nullptr;  ///< [G, I] input weights
  E* weight_hh = nullptr;  ///< [G, O / N] recurrent weights
  E* bias = nullptr;       ///< [G] added after the norms of the preactivations
  E* bias_hn = nullptr;    ///< [H] kGru, kLnGruHaste: added to ah_n; the rest of PyTorch's bias_hh
                           ///< goes into bias
  E* ln_ih_weight = nullptr;  ///< [G] gain of the norm of zx
  E* ln_ih_bias = nullptr;    ///< [G] bias of the norm of zx
  E* ln_hh_weight = nullptr;  ///< [G] gain of the norm of zh
  E* ln_hh_bias = nullptr;    ///< [G] bias of the norm of zh
  E* ln_weight = nullptr;     ///< [G] gain of the norm of zx + zh
  E* ln_bias = nullptr;       ///< [G] bias of the norm of zx + zh
  E* ln_c_weight = nullptr;   ///< [H] gain of the norm of c
  E* ln_c_bias = nullptr;     ///< [H] bias of the norm of c
  E* weight_hr = nullptr;     ///< [O, H] projection, required with RnnShape::projected
};

/// Packed weights of a layer: a copy of the parameters, rearranged for the kernels and reusable in
/// many calls. A call without packed weights packs them itself, which for a single step takes
/// longer than the step. Copies of this object share one immutable buffer and can be used by
/// several threads at once. With `backward` it also serves RnnBackward and takes twice the memory.
///
/// Weights of a smaller type make steps of few sequences faster, because the time of such a step is
/// that of reading the weights. All other parameters, norms, gates and states stay in float.
/// kBfloat16 gives the bits of a layer whose weights were rounded before. With kInt8, inputs and
/// hidden states are rounded, too: each block of 256 elements of a row to int16, with the block's
/// largest magnitude / 32767 as scale. An input or a state that is not finite then makes the row of
/// that product NaN. docs/accuracy.md has the errors.
template <class T>
class RnnPackedParams {
 public:
  /// Creates an empty object, equivalent to no packed weights.
  RnnPackedParams() = default;

  /// Packs the parameters of a layer with `inputs` I and `hidden` H; `projected` and `heads` as in
  /// RnnShape. `weight_type` is the type in which weight_ih, weight_hh and weight_hr are stored.
  /// `params` are not read after the call. Throws ArgumentError as RnnForward does, and if
  /// `weight_type` is not kFull for a layer in double or with `backward`. Throws std::bad_alloc.
  RnnPackedParams(Cell cell, int64_t inputs, int64_t hidden, const RnnParams<const T>& params,
                  const ParallelFor& parallel_for = {}, bool backward = false,
                  int64_t projected = 0, int64_t heads = 1,
                  WeightType weight_type = WeightType::kFull);

  explicit operator bool() const { return layer_ != nullptr; }
  bool backward() const { return backward_; }

 private:
  friend struct internal::RnnAccess;

  std::shared_ptr<const void> layer_;
  bool backward_ = false;
};

/// Gradients of a layer's parameters, accumulated over calls of RnnBackward. Meant for steps taken
/// one by one because an input depends on the last output. Instead of updating the weight gradients
/// at every step, it copies states and inputs, and multiplies 256 rows (steps times sequences) at a
/// time.
///
/// Not safe to use from several threads at once. After a call with it has thrown an exception of a
/// ParallelFor, it can only be destroyed or assigned.
template <class T>
class RnnGradientSums {
 public:
  /// Starts at zero, for the packed parameters. Throws ArgumentError if `packed` is empty or was
  /// created without `backward`.
  explicit RnnGradientSums(const RnnPackedParams<T>& packed);
  RnnGradientSums(RnnGradientSums&&) noexcept = default;
  RnnGradientSums& operator=(RnnGradientSums&&) noexcept = default;

  /// Overwrites the given arrays with the accumulated gradients. Accumulation can continue
  /// afterwards. Results depend on the calls and their order, not on the number of threads. For at
  /// most ceil(256 / B) steps they have the bits of RnnBackward of the whole sequence; otherwise
  /// they can be rounded differently. Throws ArgumentError as RnnForward does.
  void Write(const RnnParams<T>& dparams, const ParallelFor& parallel_for = {});

  /// Returns the packed parameters that the gradients belong to.
  const RnnPackedParams<T>& packed() const { return packed_; }

 private:
  friend struct internal::RnnAccess;

  RnnPackedParams<T> packed_;
  std::shared_ptr<void> sums_;  // not shared; void hides its type
};

/// Options of RnnForward, RnnBackward and RnnStep. T is float or double.
template <class T>
struct RnnOptions {
  double eps = 1e-5;  ///< added to variances, inside the root; finite, >= 0
  /// Saves memory for RnnBackward: RnnForward keeps the cell state of every S-th step only, with S
  /// = max(ceil(sqrt(T)), ceil(256 / B)). RnnBackward recomputes the other steps, at the cost of a
  /// forward pass, and gives the same bits.
  bool checkpoint = false;
  ParallelFor parallel_for;  ///< splits large calls over threads; empty: DefaultParallelFor
  /// Packed weights; for RnnBackward created with `backward`. The parameters of the arguments are
  /// then not read and can be null.
  RnnPackedParams<T> packed;
};

/// Inputs of a layer for the forward and the backward pass.
///
/// Beyond lengths[b], inputs of sequence b are not read, y is 0 and the state stays unchanged. In
/// reverse, each sequence starts at its own last step. A reset replaces the state of a sequence by
/// h_reset and c_reset before the step, in either direction. No gradient passes a reset except
/// those of h_reset and c_reset.
template <class T>
struct RnnInputs {
  RnnShape shape;
  const T* x = nullptr;       ///< [T, B, I] inputs
  RnnParams<const T> params;  ///< parameters that the cell takes
  const T* h0 = nullptr;      ///< [B, O] hidden state before the first step, or null for zeros
  const T* c0 = nullptr;  ///< [B, H] cell state before the first step (LSTMs), or null for zeros;
                          ///< in kSlstm all cell states have 2H elements, and null means n = 0
  const int64_t* lengths = nullptr;  ///< [B] each in [1, T], in any order; null: all are T
  const uint8_t* resets = nullptr;   ///< [T, B] nonzero: reset before this step; null: no resets
  const T* h_reset = nullptr;        ///< [O] hidden state after a reset, or null for zeros
  const T* c_reset = nullptr;        ///< [H] cell state after a reset (LSTMs), or null for zeros
  bool reverse = false;              ///< processes the steps from last to first
};

/// Arrays of RnnForward.
template <class T>
struct RnnForwardArgs {
  RnnInputs<T> inputs;
  T* y = nullptr;      ///< [T, B, O] hidden state after every step
  T* h_n = nullptr;    ///< [B, O] hidden state after the last step of each sequence, or null
  T* c_n = nullptr;    ///< [B, H] cell state after the last step (LSTMs), or null
  T* saved = nullptr;  ///< [RnnSavedSize] written entirely, for RnnBackward; null: not saved
};

/// Arrays of RnnBackward. For a loss L, dy = dL/dy and so on. Output gradients are optional and
/// overwrite their arrays.
template <class T>
struct RnnBackwardArgs {
  RnnInputs<T> inputs;       ///< as in RnnForward
  const T* y = nullptr;      ///< [T, B, O] as written by RnnForward
  const T* saved = nullptr;  ///< [RnnSavedSize] as written by RnnForward with the same options
  const T* dy = nullptr;     ///< [T, B, O] gradient of y, or null for zeros
  const T* dh_n = nullptr;   ///< [B, O] gradient of h_n, or null for zeros
  const T* dc_n = nullptr;   ///< [B, H] gradient of c_n, or null for zeros
  T* dx = nullptr;           ///< [T, B, I]; 0 beyond the length of a sequence
  RnnParams<T> dparams;      ///< gradients of the parameters that the cell takes
  /// Accumulates the parameters' gradients, in place of dparams, which are then null. Must be made
  /// from options.packed. Or null.
  RnnGradientSums<T>* sums = nullptr;
  T* dh0 = nullptr;       ///< [B, O]
  T* dc0 = nullptr;       ///< [B, H]
  T* dh_reset = nullptr;  ///< [O]
  T* dc_reset = nullptr;  ///< [H]
};

/// Arrays of RnnStep.
template <class T>
struct RnnStepArgs {
  int64_t batch = 0;          ///< B, >= 0
  int64_t inputs = 0;         ///< I, >= 1
  int64_t hidden = 0;         ///< H, >= 1
  const T* x = nullptr;       ///< [B, I] inputs of the step
  RnnParams<const T> params;  ///< parameters that the cell takes
  const T* h = nullptr;       ///< [B, O] hidden state before the step, or null for zeros
  const T* c = nullptr;       ///< [B, H] cell state before the step (LSTMs), or null for zeros
  T* h_next = nullptr;        ///< [B, O] hidden state after the step; may be h itself
  T* c_next = nullptr;    ///< [B, H] cell state after the step (LSTMs), or null; may be c itself
  int64_t projected = 0;  ///< as in RnnShape
  int64_t heads = 1;      ///< as in RnnShape
};

/// Returns the number of elements of type T that RnnForward saves for RnnBackward, with or without
/// a projection. Without checkpoint, each of the T * B steps saves, with P = H rounded up to a
/// multiple of 64 bytes:
///
///   kRnn, kRnnRelu            nothing              kLstm                6 P
///   kLnRnn, kLnRnnRelu        P + 1                kDrawLstm            6 P + 3
///   kGru                      4 P                  kLnLstmContrib      10 P + 7
///   kLnGru                   10 P + 4              kLnLstmTflite       10 P + 4
///   kLnGruHaste              10 P + 2              kLnLstmTorchaudio   10 P + 4
///   kLnGruDreamer             7 P + 1              the other LN-LSTMs  14 P + 5
///   kSlstm                    6 P
///   kBnRnn                    P                    kBnLstm             15 P
///   kBnGru                   10 P
///
/// These are the normalized preactivations, the gates, c before the step, tanh of c, and what r
/// multiplies in a GRU. Each norm adds one element, the norm of c three. Cells with batch norm also
/// save the normalized c, and P (kBnRnn), 9 P (kBnLstm) or 6 P (kBnGru) for each of the T steps.
///
/// With checkpoint, LSTMs save P elements (kSlstm 2 P) for each sequence every S steps, other cells
/// nothing.
/// RnnBackward then needs scratch memory for S steps. Throws ArgumentError as RnnForward does.
template <class T>
int64_t RnnSavedSize(Cell cell, const RnnShape& shape, bool checkpoint = false);

/// Computes y [T, B, O] and the last states of a layer from x [T, B, I]. Saves the values that
/// RnnBackward needs if `args.saved` is given. Cell has the equations; RnnInputs defines lengths,
/// resets and reverse.
///
/// The result of a sequence depends on that sequence only, except for cells with batch norm; a NaN
/// stays in its sequence. Results have the same bits for any number of threads, on every machine
/// with the same SIMD target, and with or without `saved`. Except for batch norm, steps taken one
/// by one with RnnStep give the same bits. With T = 0 the last states are the first ones.
///
/// Throws ArgumentError if a size is negative or too large, inputs or hidden is 0, or a length is
/// not in [1, T]. Also if eps is negative or not finite, or a required array is null. Also if a
/// parameter or cell state is given to a cell without it, or h_reset or c_reset without resets.
/// Also if an array is misaligned or an output overlaps another array. Throws std::bad_alloc if
/// scratch memory cannot be allocated, before anything is written.
template <class T>
void RnnForward(Cell cell, const RnnForwardArgs<T>& args, const RnnOptions<T>& options = {});

/// Backpropagates dy, dh_n and dc_n through time. Writes the requested gradients, those whose
/// arrays are not null. They are the derivatives of L = sum(dy * y) + sum(dh_n * h_n) + sum(dc_n *
/// c_n).
///
/// Gradients of parameters, h_reset and c_reset are sums over T and B, in an order that depends on
/// the shape only. They have the same bits for any number of threads, on every machine with the
/// same SIMD target, and with or without checkpoint. Throws as RnnForward does.
///
/// To differentiate a single step, call RnnForward with T = 1, the last state as h0, and `saved`.
/// Then call RnnBackward with T = 1 and `sums`; dh_n and dc_n are the gradients of the state after
/// the step.
template <class T>
void RnnBackward(Cell cell, const RnnBackwardArgs<T>& args, const RnnOptions<T>& options = {});

/// Computes one step of a layer: RnnForward with T = 1, without `saved`, and with states that can
/// be updated in place. Reads only eps, parallel_for and packed of `options`. With packed weights
/// it allocates no memory after the first call of this size on a thread. Throws as RnnForward does,
/// and for cells with batch norm.
template <class T>
void RnnStep(Cell cell, const RnnStepArgs<T>& args, const RnnOptions<T>& options = {});

extern template class RnnPackedParams<float>;
extern template class RnnPackedParams<double>;
extern template class RnnGradientSums<float>;
extern template class RnnGradientSums<double>;

}  // namespace PLANISH_API
}  // namespace planish

#endif  // PLANISH_RNN_H_
