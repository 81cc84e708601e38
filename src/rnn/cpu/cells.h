#ifndef PLANISH_SRC_RNN_CPU_CELLS_H_
#define PLANISH_SRC_RNN_CPU_CELLS_H_

#include <cstdint>

#include "src/rnn/cell.h"
#include "src/rnn/cpu/order.h"

// Elementwise operations and norms of a step, after its matrix products. They process one sequence
// at a time or, with statistics over the batch, all sequences. Rows have the order of order.h.
// Arguments are not checked.
namespace planish::internal {

/// Number of coefficients of a norm: xhat = (z - coefficients[0]) * coefficients[1] +
/// coefficients[2]. They are the mean, rstd, and a correction of the mean's rounding error.
inline constexpr int64_t kCoefficients = 3;

/// The parameters except the weights, in the kernels' order, with ones or zeros for absent ones.
template <class T>
struct CellParams {
  const T *gain_ih = nullptr,
          *gain_hh = nullptr;                    ///< [columns]; gain_ih is also the gain of zx + zh
  const T* bias = nullptr;                       ///< [columns] the sum of all biases except bias_hn
  const T* bias_hn = nullptr;                    ///< [padded] only kGru: added to ah_n
  const T *gain_c = nullptr, *bias_c = nullptr;  ///< [padded]
};

/// Gradients of CellParams, summed over steps.
template <class T>
struct CellSums {
  T *gain_ih = nullptr, *gain_hh = nullptr, *bias = nullptr, *bias_hn = nullptr;
  T *gain_c = nullptr, *bias_c = nullptr;
};

/// Mode of saving values for backward: nothing, or everything, with ordinary or non-temporal
/// stores.
enum class Keep : uint8_t { kNothing, kStores, kNtStores };

/// The settings that all rows of a layer share.
template <class T>
struct CellCall {
  CellRecipe recipe;
  Keep keep = Keep::kNothing;
  Order order;
  CellParams<T> params;
  T eps;
};

/// Arrays of one sequence at one step, of [columns] or [padded] elements. A norm of sums has one
/// statistic for each group of gates. With statistics over the batch, zx, zh and xhat_c contain
/// xhat, and norm_c and rstd are not used.
template <class T>
struct CellRow {
  const T *zx, *zh;  ///< [columns] the sums; zx contains zx + zh, except for kSeparate and kGru
  T* a;              ///< [columns] the sums after their norms, then an LSTM's o; may be zx
  T* ah_n;           ///< [padded] a GRU's ah_n after its norm; may be in zh
  T* norm_c;         ///< [kCoefficients] the coefficients of the norm of c
  const T* xhat_c;   ///< [padded] the normalized c, only over the batch
  T *h, *c;          ///< [padded] the state; c of an sLSTM is [2, padded]
  // Saved for backward; xhat may be zx or zh.
  T *xhat_ih, *xhat_hh;  ///< [columns] the normalized zx and zh
  T *rstd_ih, *rstd_hh;  ///< rstd of zx and zh
  T* gates;              ///< [columns] after their activations
  T* candidate;          ///< [padded] what r multiplies in a GRU
  T* before;             ///< [padded] the c before the step
  T* tanh_c;             ///< [padded] tanh of the c that h uses; in an sLSTM c
};

/// Like CellRow, for backward. The members that forward wrote are only read.
template <class T>
struct CellRowBackward {
  const T *xhat_ih, *xhat_hh, *rstd_ih, *rstd_hh, *norm_c, *gates, *candidate, *before, *tanh_c;
  const T* h_before;  ///< [padded] a GRU's state before the step
  const T* h_after;   ///< [padded] an RNN's state after the step
  T *dh, *dc;         ///< [padded] the gradient of the state after the step, and then before it;
                      ///< dc of an sLSTM is [2, padded]
  T* dcell;           ///< [padded] the gradient of this step's c that passes through h
  T* workspace;       ///< [padded] workspace
  T *dzx, *dzh;       ///< [columns] the gradients of zx and zh; equal except for kSeparate and kGru
};

/// The sequences of one step with common statistics. `rows[i]` is the index of row i in z [.,
/// stride], whose first `columns` elements are normalized.
template <class T>
struct BatchColumns {
  const int64_t* rows;
  int64_t count, stride, columns;
};

/// The functions of a SIMD target.
template <class T>
struct CellKernels {
  int64_t lanes;
  /// Computes the gates and the new c from the sums; for a cell without c, h.
  void (*gates)(const CellCall<T>&, const CellRow<T>&);
  /// Computes an LSTM's h from its gates and c.
  void (*output)(const CellCall<T>&, const CellRow<T>&);
  /// Computes an LSTM's dcell from dh. Over the batch, computes the gradient of the norm's output.
  void (*output_backward)(const CellCall<T>&, const CellRowBackward<T>&, const CellSums<T>&);
  /// Computes the gradients of the sums, and of the state before except the part through the matrix
  /// product with it. Over the batch, computes the gradients of the norms' outputs.
  void (*gates_backward)(const CellCall<T>&, const CellRowBackward<T>&, const CellSums<T>&);
  /// Computes xhat [., stride], which may be z, and rstd [columns].
  void (*batch_norm)(const BatchColumns<T>&, const T* z, T eps, T* xhat, T* rstd);
  /// Replaces d, the gradient of gain * xhat + bias, by the gradient of z, and adds to dgain.
  void (*batch_norm_backward)(const BatchColumns<T>&, T* d, const T* xhat, const T* rstd,
                              const T* gain, T* dgain);
};

/// Returns the functions of the SIMD target in use.
template <class T>
CellKernels<T> Cells();

}  // namespace planish::internal

#endif  // PLANISH_SRC_RNN_CPU_CELLS_H_
