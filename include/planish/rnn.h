#ifndef PLANISH_RNN_H_
#define PLANISH_RNN_H_

#include <cstdint>

#include "planish/error.h"

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

}  // namespace planish

#endif  // PLANISH_RNN_H_
