#ifndef PLANISH_SRC_RNN_CPU_CELLS_H_
#define PLANISH_SRC_RNN_CPU_CELLS_H_

#include <cstdint>

#include "src/rnn/cell.h"
#include "src/rnn/cpu/order.h"

// What a step computes beside its products, of one sequence at a time, and of all of them where
// moments are taken over the batch. Rows are in the order of order.h; they are not checked.
namespace planish::internal {

/// The moments of a norm of one row: xhat = (z - map[0]) * map[1] + map[2], which are the mean, 1 /
/// deviation, and what rounding left of the mean times that.
inline constexpr int64_t kMap = 3;

/// The parameters beside the weights, in the kernels' order: ones or zeros where none were given.
template <class T>
struct CellParams {
  const T *gain_ih = nullptr, *gain_hh = nullptr;  ///< [columns]; gain_ih also that of zx + zh
  const T* bias = nullptr;     ///< [columns] all that is added to the sums, but for bias_hn
  const T* bias_hn = nullptr;  ///< [padded] of a GRU: added to ah_n
  const T *gain_c = nullptr, *bias_c = nullptr;  ///< [padded]
};

/// Their gradients, summed over steps.
template <class T>
struct CellSums {
  T *gain_ih = nullptr, *gain_hh = nullptr, *bias = nullptr, *bias_hn = nullptr;
  T *gain_c = nullptr, *bias_c = nullptr;
};

/// What a step writes for backward: nothing, or all of it, through the caches or past them.
enum class Keep : uint8_t { kNothing, kInCaches, kPastCaches };

/// What all rows of a layer share.
template <class T>
struct CellCall {
  CellRecipe recipe;
  Keep keep = Keep::kNothing;
  Order order;
  CellParams<T> params;
  T eps;
};

/// A sequence at one step. [columns] and [padded] are numbers; a norm of sums has a number for each
/// of its groups. Where moments are over the batch, zx, zh and xhat_c hold xhat, and neither map_c
/// nor rstd is used.
template <class T>
struct CellRow {
  const T *zx, *zh;  ///< [columns] the sums; zx + zh in zx, but for kSeparate and GRUs
  T* a;              ///< [columns] the sums after their norms, and then an LSTM's o; may be zx
  T* ah_n;           ///< [padded] a GRU's part of zh after its norm; may be in zh
  T* map_c;          ///< [kMap] of the norm of c
  const T* xhat_c;   ///< [padded] the normalised c, over the batch
  T *h, *c;          ///< [padded] the state
  // What is kept for backward; xhat may be zx or zh.
  T *xhat_ih, *xhat_hh;  ///< [columns] the normalised zx and zh
  T *rstd_ih, *rstd_hh;  ///< 1 / deviation of zx and zh
  T* gates;              ///< [columns] after their functions
  T* candidate;          ///< [padded] a GRU's ah_n
  T* before;             ///< [padded] the c from which the step starts
  T* tanh_c;             ///< [padded] tanh of what h sees of c
};

/// The same, backward. Those of CellRow that forward wrote are only read.
template <class T>
struct CellRowBackward {
  const T *xhat_ih, *xhat_hh, *rstd_ih, *rstd_hh, *map_c, *gates, *candidate, *before, *tanh_c;
  const T* h_before;  ///< [padded] a GRU's state before the step
  const T* h_after;   ///< [padded] an RNN's state after the step
  T *dh, *dc;         ///< [padded] the gradient of the state after the step, and then before it
  T* dcell;           ///< [padded] the gradient of c of this step by h
  T* room;            ///< [padded] for numbers in between
  T *dzx, *dzh;       ///< [columns] the gradients of zx and zh; the same but for kSeparate and GRUs
};

/// The sequences of one step whose moments are taken together: `rows[i]` is the place of row i in z
/// [., stride], of which `columns` are normalised.
template <class T>
struct BatchColumns {
  const int64_t* rows;
  int64_t count, stride, columns;
};

/// The functions of an instruction set.
template <class T>
struct CellKernels {
  int64_t lanes;
  /// From the sums to the gates and the new c, or to h of a cell without c.
  void (*gates)(const CellCall<T>&, const CellRow<T>&);
  /// An LSTM's h from its gates and c.
  void (*output)(const CellCall<T>&, const CellRow<T>&);
  /// An LSTM's dcell from dh; for moments over the batch, before the norm of c.
  void (*output_backward)(const CellCall<T>&, const CellRowBackward<T>&, const CellSums<T>&);
  /// The gradients of the sums, and of the state before but for what comes by the product of the
  /// state; for moments over the batch, before the norms.
  void (*gates_backward)(const CellCall<T>&, const CellRowBackward<T>&, const CellSums<T>&);
  /// xhat [., stride], which may be z, and rstd [columns].
  void (*batch_norm)(const BatchColumns<T>&, const T* z, T eps, T* xhat, T* rstd);
  /// From d, the gradient of gain * xhat + bias, to that of z, in place; adds to dgain.
  void (*batch_norm_backward)(const BatchColumns<T>&, T* d, const T* xhat, const T* rstd,
                              const T* gain, T* dgain);
};

/// Those of the instruction set in use.
template <class T>
CellKernels<T> Cells();

}  // namespace planish::internal

#endif  // PLANISH_SRC_RNN_CPU_CELLS_H_
