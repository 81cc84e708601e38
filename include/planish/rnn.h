#ifndef PLANISH_RNN_H_
#define PLANISH_RNN_H_

#include <cstdint>
#include <memory>

#include "planish/error.h"
#include "planish/parallel.h"

// Recurrent layers over whole sequences and step by step: RNN, LSTM and GRU, plain, with layer
// normalisation (Ba, Kiros & Hinton 2016, section 3.1 and supplement; the LN-LSTMs of other
// libraries beside it) and with recurrent batch normalisation.
//
// T, B, I, H: time, batch, inputs, hidden. G: gates * H, with 1 gate for an RNN, 4 for an LSTM (in
// PyTorch's order i, f, g, o) and 3 for a GRU (r, z, n). Arrays are contiguous, the last index
// runs fastest.
namespace planish {

/// The cells. s() is the logistic function, * between vectors the product of their elements. a, the
/// sums of the gates, is made of zx = weight_ih x_t and zh = weight_hh h_{t-1}; LN is layer
/// normalisation over a row, (z - mean) / sqrt(var + eps), with the gain and bias named.
///
///   RNN    h_t = f(a)
///   LSTM   c_t = s(f) * c_{t-1} + s(i) * tanh(g),   h_t = s(o) * tanh(c_t)
///   GRU    n = tanh(ax_n + s(r) * ah_n),   h_t = (1 - s(z)) * n + s(z) * h_{t-1}
///
/// The GRU is PyTorch's, whose z is 1 - z of the paper's Eq. 28.
enum class Cell : uint8_t {
  /// Elman's RNN: a = zx + zh + bias, f = tanh.
  kRnn,
  /// The same with f = relu.
  kRnnRelu,
  /// The LSTM of PyTorch: a = zx + zh + bias.
  kLstm,
  /// The GRU of PyTorch: ax = zx + bias, and ah = zh, with bias_hn added to ah_n.
  kGru,
  /// LN-RNN (Ba et al., Eq. 4): a = LN(zx + zh; ln_weight, ln_bias), f = tanh.
  kLnRnn,
  /// The same with f = relu.
  kLnRnnRelu,
  /// LN-LSTM (Ba et al., Eq. 20-22): a = LN(zx; ln_ih) + LN(zh; ln_hh) + bias, each LN over all 4H
  /// sums, and h_t = s(o) * tanh(LN(c_t; ln_c)); c_t itself is carried on as it is.
  kLnLstm,
  /// LN-LSTM of haste: as kLnLstm, without ln_ih_bias and ln_hh_bias.
  kLnLstmHaste,
  /// LN-LSTM of PyTorch's fastrnns benchmark: as kLnLstm without bias, and what is carried on is
  /// LN(c_t; ln_c).
  kLnLstmFastRnns,
  /// LN-LSTM of TensorFlow Addons: as kLnLstmFastRnns with bias. Its eps is 1e-3 by default.
  kLnLstmTfa,
  /// LN-LSTM of TensorFlow 1's contrib: a = LN(zx + zh; ln_weight, ln_bias) of each gate's H sums
  /// for itself; what is carried on is LN(c_t; ln_c). Its forget_bias is a part of ln_bias here.
  kLnLstmContrib,
  /// The LSTM of DRAW (Ba et al., Eq. 29-31): plain sums, h_t = s(o) * tanh(LN(c_t; ln_c)).
  kDrawLstm,
  /// LN-GRU (Ba et al., Eq. 26-28): ax = LN(zx; ln_ih), ah = LN(zh; ln_hh), each LN over the 2H
  /// sums
  /// of r and z together, and over the H sums of n for themselves.
  kLnGru,
  /// As kLnRnn with recurrent batch normalisation: every number is normalised over the batch, with
  /// the moments of its own time step. This and the next two are for training alone: there are no
  /// running estimates, so a result depends on the other sequences of the batch.
  kBnRnn,
  /// The batch-normalised LSTM (Cooijmans et al. 2016, Eq. 6-8): as kLnLstmHaste, over the batch.
  kBnLstm,
  /// As kLnGru over the batch.
  kBnGru,
};

/// The sizes of a layer.
struct RnnShape {
  int64_t time = 0;    ///< T, steps of the longest sequence, >= 0
  int64_t batch = 0;   ///< B, sequences, >= 0
  int64_t inputs = 0;  ///< I, numbers in an input, >= 1
  int64_t hidden = 0;  ///< H, numbers in a state, >= 1
};

/// The parameters of a layer, or their gradients: E is const T or T. A cell takes those that its
/// equation (see Cell) names; of these the weights are needed, gains may be null for ones and
/// biases for zeros. The others must be null. As gradients all are optional.
template <class E>
struct RnnParams {
  E* weight_ih = nullptr;     ///< [G, I] of the input
  E* weight_hh = nullptr;     ///< [G, H] of the state
  E* bias = nullptr;          ///< [G] added to the sums, after their norms
  E* bias_hn = nullptr;       ///< [H] kGru: added to ah_n; the rest of PyTorch's bias_hh is in bias
  E* ln_ih_weight = nullptr;  ///< [G] gain of the norm of zx
  E* ln_ih_bias = nullptr;    ///< [G] bias of the norm of zx
  E* ln_hh_weight = nullptr;  ///< [G] gain of the norm of zh
  E* ln_hh_bias = nullptr;    ///< [G] bias of the norm of zh
  E* ln_weight = nullptr;     ///< [G] gain of the norm of zx + zh
  E* ln_bias = nullptr;       ///< [G] bias of the norm of zx + zh
  E* ln_c_weight = nullptr;   ///< [H] gain of the norm of c
  E* ln_c_bias = nullptr;     ///< [H] bias of the norm of c
};

namespace internal {
template <class T>
class PackedLayer;
template <class T>
class ParamSums;
}  // namespace internal

/// The parameters of a layer in the order in which its steps read them on this machine, made once
/// for many calls: a call without them does so itself, which for a single step takes longer than
/// the step. It holds copies, and is itself cheap to copy. With `backward` it serves RnnBackward,
/// too, and takes twice the memory.
template <class T>
class RnnPackedParams {
 public:
  /// Of no layer.
  RnnPackedParams() = default;

  /// Of a layer with `inputs` I and `hidden` H. `params` are those of RnnInputs, and may go after
  /// the call. Throws Error as RnnForward does.
  RnnPackedParams(Cell cell, int64_t inputs, int64_t hidden, const RnnParams<const T>& params,
                  const ParallelFor& parallel_for = {}, bool backward = false);

  explicit operator bool() const { return layer_ != nullptr; }
  bool backward() const { return backward_; }
  const internal::PackedLayer<T>* layer() const { return layer_.get(); }

 private:
  std::shared_ptr<const internal::PackedLayer<T>> layer_;
  bool backward_ = false;
};

/// The gradients of a layer's parameters, summed over calls of RnnBackward: of steps that are taken
/// one by one, since an input depends on the last output, and then back from the last to the first.
/// The gradients of the weights are products of the steps' states and inputs, taken of 256 rows
/// (steps times sequences) at a time and not of each step, whose reading and writing of all weights
/// would be most of the step's cost; copies of those rows wait here until then.
///
/// Not for several threads at once. Of no use after a call with it has thrown.
template <class T>
class RnnGradientSums {
 public:
  /// Zeros, of the parameters that are packed. Throws Error when there are none, or not for
  /// backward.
  explicit RnnGradientSums(const RnnPackedParams<T>& packed);
  ~RnnGradientSums();
  RnnGradientSums(RnnGradientSums&&) noexcept;
  RnnGradientSums& operator=(RnnGradientSums&&) noexcept;

  /// Writes the sums of the gradients that are asked for, in place of what their arrays held. More
  /// may be added afterwards. Sums depend on the calls and their order, not on the number of
  /// threads; those of steps are RnnBackward's of the whole sequence, to the bit, where that is not
  /// longer than ceil(256 / B) steps, and otherwise may be rounded differently. Throws Error as
  /// RnnForward does.
  void Write(const RnnParams<T>& dparams, const ParallelFor& parallel_for = {});

  const RnnPackedParams<T>& packed() const { return packed_; }
  internal::ParamSums<T>& sums() { return *sums_; }

 private:
  RnnPackedParams<T> packed_;
  std::unique_ptr<internal::ParamSums<T>> sums_;
};

/// What the calls take beside their arrays. T is float or double.
template <class T>
struct RnnOptions {
  double eps = 1e-5;  ///< added to variances, inside the root; finite and >= 0
  /// Whether to keep the carried c of every S-th step alone for RnnBackward, which then computes
  /// the steps between anew, S of them at a time: S = max(ceil(sqrt(T)), ceil(256 / B)). Backward
  /// computes the same bits, for the price of a forward pass.
  bool checkpoint = false;
  ParallelFor parallel_for;  ///< runs large calls on several threads; empty: the library's own
  /// The parameters, packed before, for RnnBackward with `backward`. Those of the arguments are
  /// then not read, and may be null.
  RnnPackedParams<T> packed;
};

/// What a layer is computed from, forward and backward.
///
/// A sequence shorter than T has the length lengths[b]: beyond it, inputs are not read, y is 0, and
/// the state stays as it is. In reverse each sequence starts at its own last step. A reset brings
/// the state of a sequence to h_reset and c_reset before the step is taken, in either direction; no
/// gradient passes a reset but that of h_reset and c_reset.
template <class T>
struct RnnInputs {
  RnnShape shape;
  const T* x = nullptr;              ///< [T, B, I] the inputs
  RnnParams<const T> params;         ///< those that the cell takes
  const T* h0 = nullptr;             ///< [B, H] the state before the first step, or null for zeros
  const T* c0 = nullptr;             ///< [B, H] the LSTMs' carried c before it, or null for zeros
  const int64_t* lengths = nullptr;  ///< [B] each from 1 to T, in any order; null: all are T
  const uint8_t* resets = nullptr;   ///< [T, B] not 0: reset before this step; null: none
  const T* h_reset = nullptr;        ///< [H] the state after a reset, or null for zeros
  const T* c_reset = nullptr;        ///< [H] the LSTMs' carried c after one, or null for zeros
  bool reverse = false;              ///< whether to go from the last step to the first
};

/// The arrays of RnnForward.
template <class T>
struct RnnForwardArgs {
  RnnInputs<T> inputs;
  T* y = nullptr;      ///< [T, B, H] the state after every step
  T* h_n = nullptr;    ///< [B, H] the state after the last step of each sequence, or null
  T* c_n = nullptr;    ///< [B, H] the LSTMs' carried c after it, or null
  T* saved = nullptr;  ///< [RnnSavedSize] what RnnBackward needs, all written; null: not saved
};

/// The arrays of RnnBackward. L is the loss, dy = dL/dy and so on. All gradients that are outputs
/// are optional; they replace what their arrays held.
template <class T>
struct RnnBackwardArgs {
  RnnInputs<T> inputs;       ///< as in RnnForward
  const T* y = nullptr;      ///< [T, B, H] as RnnForward wrote it
  const T* saved = nullptr;  ///< [RnnSavedSize] as RnnForward wrote it, with the same options
  const T* dy = nullptr;     ///< [T, B, H] the gradient of y, or null for zeros
  const T* dh_n = nullptr;   ///< [B, H] the gradient of h_n, or null for zeros
  const T* dc_n = nullptr;   ///< [B, H] the gradient of c_n, or null for zeros
  T* dx = nullptr;           ///< [T, B, I]; 0 beyond the length of a sequence
  RnnParams<T> dparams;      ///< of the parameters that the cell takes
  /// Takes their gradients in place of dparams, which are then null; of options.packed. Or null.
  RnnGradientSums<T>* sums = nullptr;
  T* dh0 = nullptr;       ///< [B, H]
  T* dc0 = nullptr;       ///< [B, H]
  T* dh_reset = nullptr;  ///< [H]
  T* dc_reset = nullptr;  ///< [H]
};

/// The arrays of RnnStep.
template <class T>
struct RnnStepArgs {
  int64_t batch = 0;          ///< B, >= 0
  int64_t inputs = 0;         ///< I, >= 1
  int64_t hidden = 0;         ///< H, >= 1
  const T* x = nullptr;       ///< [B, I] the inputs of the step
  RnnParams<const T> params;  ///< those that the cell takes
  const T* h = nullptr;       ///< [B, H] the state before the step, or null for zeros
  const T* c = nullptr;       ///< [B, H] the LSTMs' carried c before it, or null for zeros
  T* h_next = nullptr;        ///< [B, H] the state after the step; may be h itself
  T* c_next = nullptr;        ///< [B, H] the LSTMs' carried c after it, or null; may be c itself
};

/// The numbers of type T that RnnForward saves for RnnBackward. Without checkpoint, of each of T *
/// B steps, with P for H rounded up to a multiple of 16 for float, of 8 for double,
///
///   kRnn, kRnnRelu            nothing              kLstm                6 P
///   kLnRnn, kLnRnnRelu        P + 1                kDrawLstm            6 P + 3
///   kGru                      4 P                  kLnLstmContrib      10 P + 7
///   kLnGru                   10 P + 4              the other LN-LSTMs  14 P + 5
///
/// times 4 bytes for float: the normalised sums (8 P of the LN-LSTM's) with a number for each norm,
/// the gates (4 P), c before the step and tanh of c, three numbers for the norm of c, a GRU's ah_n.
/// Batch norms keep the normalised c, too, and one number for all B for each normalised one:
/// of T * B steps P for kBnRnn, 15 P for kBnLstm and 10 P for kBnGru, and of T steps P, 9 P and 6
/// P. With checkpoint P numbers of a sequence every S steps for an LSTM, nothing for the others;
/// RnnBackward then needs memory for S steps. Throws Error as RnnForward does.
template <class T>
int64_t RnnSavedSize(Cell cell, const RnnShape& shape, bool checkpoint = false);

/// Computes y [T, B, H] and the last states of a layer from x [T, B, I], and saves what RnnBackward
/// needs where an array is given for it. Cell has the equations, RnnInputs what lengths, resets and
/// reverse do.
///
/// Of a sequence, results depend on that sequence alone (NaN stays in it) but for the cells with
/// batch norm. They are the same for any number of threads, with or without `saved`, and, batch
/// norm apart, the same as RnnStep's one by one, to the bit. With T = 0 the last states are the
/// first ones.
///
/// Throws planish::Error when a size is negative, too large, or 0 for inputs or hidden, a length is
/// not from 1 to T, eps is negative or not finite, a needed array is null, one is given that the
/// cell does not take (a parameter, or a c of a cell without one) or h_reset or c_reset without
/// resets, an array is not aligned to its type, or an output overlaps another array; std::bad_alloc
/// when there is no memory to work in, before anything is written.
template <class T>
void RnnForward(Cell cell, const RnnForwardArgs<T>& args, const RnnOptions<T>& options = {});

/// Takes dy, dh_n and dc_n back through RnnForward and its steps in time: writes the gradients that
/// are asked for, each the derivative of L = sum(dy * y) + sum(dh_n * h_n) + sum(dc_n * c_n).
///
/// Gradients of parameters, and of h_reset and c_reset, are sums over T and B in an order that the
/// shape alone fixes: they are the same for any number of threads, and with or without checkpoint,
/// to the bit. Throws as RnnForward does.
///
/// A step that is taken by itself is RnnForward with T = 1, the last state as h0 and `saved`; its
/// gradients are those of RnnBackward with T = 1, with dh_n and dc_n the gradients of the state
/// after it, and `sums`.
template <class T>
void RnnBackward(Cell cell, const RnnBackwardArgs<T>& args, const RnnOptions<T>& options = {});

/// One step of a layer: RnnForward with T = 1, nothing saved, and states that may be replaced in
/// place. `options` serves its eps, parallel_for and packed: with the last, a step allocates no
/// memory once its thread has taken one as large. Throws as RnnForward does, and for a cell with
/// batch norm, whose moments belong to a step of training.
template <class T>
void RnnStep(Cell cell, const RnnStepArgs<T>& args, const RnnOptions<T>& options = {});

#define PLANISH_RNN_TYPES(X) \
  X(float)                   \
  X(double)
#define PLANISH_EXTERN(T)                                                                  \
  extern template class RnnPackedParams<T>;                                                \
  extern template class RnnGradientSums<T>;                                                \
  extern template int64_t RnnSavedSize<T>(Cell, const RnnShape&, bool);                    \
  extern template void RnnForward(Cell, const RnnForwardArgs<T>&, const RnnOptions<T>&);   \
  extern template void RnnBackward(Cell, const RnnBackwardArgs<T>&, const RnnOptions<T>&); \
  extern template void RnnStep(Cell, const RnnStepArgs<T>&, const RnnOptions<T>&);
PLANISH_RNN_TYPES(PLANISH_EXTERN)
#undef PLANISH_EXTERN

}  // namespace planish

#endif  // PLANISH_RNN_H_
