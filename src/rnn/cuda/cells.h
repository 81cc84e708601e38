#ifndef PLANISH_SRC_RNN_CUDA_CELLS_H_
#define PLANISH_SRC_RNN_CUDA_CELLS_H_

#include <cstdint>

#include "planish/cuda_rnn.h"
#include "src/rnn/cell.h"

// The kernels of a recurrent layer, except its matrix products: their arguments and launch. All
// addresses are device memory.
namespace planish::internal::cuda {

/// Number of coefficients of a norm of a row: the mean as a sum of two elements, and rstd.
inline constexpr int kNormCoefficients = 3;

// --- Tuning constants (docs/tuning.md) ---

/// The rows that one thread sums for the parameters' gradients, in the type of the arithmetic. The
/// sums of threads are added in double.
inline constexpr int64_t kRnnRowsInTurn = 64;

// --- End of tuning constants ---

/// Sums of each of the G columns over all steps and sequences. The parameters' gradients are
/// computed from them. da is the gradient of ax, dah that of ah.
enum class ColumnSum : uint8_t { kDa, kDaXhatX, kDah, kDahXhatH };
inline constexpr int kColumnSums = 4;
/// The number of sums of each of the H columns of c; d is the gradient of the norm's output.
inline constexpr int kCellColumnSums = 2;  // of d and of d * xhat

/// A layer's parameters in the kernels' order. Pointers that the cell's kernels read are not null.
/// Contains all units, or the `stride` units from `first` on.
template <class T>
struct CellParams {
  int64_t stride, first;
  T *gain_ih, *gain_hh;  ///< [G] gains of the norms of zx and zh; gain_ih also of zx + zh
  T* bias;               ///< [G] the sum of all biases except bias_hn
  T* bias_hn;            ///< [H] kGru: the sum of the biases of ah_n
  T *gain_c, *bias_c;    ///< [H] of the norm of c
};

/// The settings and arrays common to a layer's steps. M = T * B; row t * B + b is step t of
/// sequence b.
template <class T>
struct CellLayer {
  Arithmetic arithmetic;
  Sums sums;
  CellNorm cell_norm;
  int gates, norms;     ///< number of norms of zx, zh or zx + zh
  int gates_of_a_norm;  ///< gates of each norm; the last norm can have fewer
  int64_t time, batch, hidden;
  double eps;
  const int64_t* lengths;  ///< [B], or null
  const uint8_t* resets;   ///< [T, B], or null
  const T *h_reset, *c_reset;
  CellParams<T> params;
  // Saved by forward, for M rows; null: not saved, or absent in the cell.
  T* zx;          ///< [M, G] the matrix product, or with a joint norm zx + zh
  T* zh;          ///< [M, G]
  T* norm_ih;     ///< [M, norms, 3] of zx or zx + zh
  T* norm_hh;     ///< [M, norms, 3]
  T* gates_kept;  ///< [M, G]
  T* candidate;   ///< [M, H] what r multiplies in a GRU
  T* before;      ///< [M, H] c before the step
  T* tanh_c;      ///< [M, H] in an sLSTM c itself
  T* norm_c;      ///< [M, 3]
};

/// One step of all sequences.
template <class T>
struct ForwardStepCall {
  int64_t t;
  int64_t next;      ///< the next step, or -1
  const T* zh;       ///< [B, G]
  const T* h;        ///< [B, H] the state before the step; null with a projection
  T* c;              ///< [B, H], in an sLSTM [B, 2H]: the cell state before the step; overwritten
  T* o;              ///< [B, H] workspace of a cell with a norm of c
  T* y;              ///< [M, H] h of all steps, before a projection
  T *h_out, *c_out;  ///< as h and c, the initial state of `next`; may be h and c; or null, as
                     ///< h_out is with a projection
};

/// The arrays that all backward steps read and write.
template <class T>
struct BackwardArrays {
  const T* y;         ///< [M, H]
  const T* h_before;  ///< [M, H] only for a GRU
  const T* dy;        ///< [M, H] or null
  T* dh;   ///< [B, H] of the state after a step; then the part of the gradient outside the product
  T* dc;   ///< [B, H], in an sLSTM [B, 2H]: of the cell state after a step; then of that before it
  T* da;   ///< [M, G]
  T* dzh;  ///< [M, G] the gradient of zh; da itself for plain sums of an RNN or LSTM
  T* dcell;  ///< [M, H] the gradient of the output of the norm of c, if any
  /// As dh and dc, sums over the resets; null without resets. With a projection, dh is the gradient
  /// of h before it, and dh_reset null: GradientOfProjected has ended dh at resets.
  T *dh_reset, *dc_reset;
};

/// The gradients of one step of all sequences.
template <class T>
struct BackwardStepCall : BackwardArrays<T> {
  int64_t t;
  int64_t later;  ///< the next step of forward, or -1
};

/// Gradient of a parameter, which consists of column sums. `sum` selects the kind of sum.
template <class T>
struct SumsOutput {
  T* data;        ///< [count] or null
  int sum;        ///< index of the kind of sum
  int64_t begin;  ///< the first column
  int64_t count;
};
inline constexpr int kMaxSumsOutputs = 6;
template <class T>
struct SumsOutputs {
  SumsOutput<T> output[kMaxSumsOutputs];
};

/// The following functions launch kernels. Errors name `function`.

/// Writes layer.params from the given parameters.
template <class T>
void RunPackParams(const char* function, const CellLayer<T>& layer, const RnnParams<const T>& from,
                   void* stream);
/// Sets `to` to `from` [B, H], or if it is null to empty states: `zeros` zeros, then -infinities.
/// For sequences whose step `first` begins with a reset, sets it to `reset` or empty states.
/// `first` is -1 if no step follows. `to` can be null.
template <class T>
void RunBeginState(const char* function, const CellLayer<T>& layer, int64_t first, const T* from,
                   const T* reset, int64_t zeros, T* to, void* stream);
/// Computes norm_ih of zx, for cells with separate norms of zx and zh.
template <class T>
void RunStatistics(const char* function, const CellLayer<T>& layer, void* stream);
template <class T>
void RunForwardStep(const char* function, const CellLayer<T>& layer, const ForwardStepCall<T>& step,
                    void* stream);

/// Writes the block-diagonal matrix of `heads` blocks [G, H / heads] as [G, H], with zeros.
template <class T>
void RunExpandHeads(const char* function, const CellLayer<T>& layer, int64_t heads, const T* blocks,
                    T* matrix, void* stream);
/// Copies its blocks back.
template <class T>
void RunTakeHeads(const char* function, const CellLayer<T>& layer, int64_t heads, const T* matrix,
                  T* blocks, void* stream);
/// A projection after a step, for a layer whose hidden units are the O outputs. Writes y and the
/// state h_out, the initial state of `next`, from the products `projected` [B, O] and the state h
/// before the step. h_out may be h, or null.
template <class T>
void RunEndProjection(const char* function, const CellLayer<T>& layer, int64_t t, int64_t next,
                      const T* projected, const T* h, T* y, T* h_out, void* stream);
/// Its backward. Writes the gradient of the projected state of step t to dprojected [M, O], from
/// the gradient dh [B, O] of the state after it, and replaces dh by its part outside the step.
/// `later` and reset_sums are as in BackwardStepCall.
template <class T>
void RunGradientOfProjected(const char* function, const CellLayer<T>& layer, int64_t t,
                            int64_t later, const T* dy, T* dh, T* reset_sums, T* dprojected,
                            void* stream);
/// Recomputes h [M, H] of an LSTM before the projection, with zeros past the length of a sequence.
template <class T>
void RunUnproject(const char* function, const CellLayer<T>& layer, T* unprojected, void* stream);

/// Computes the state before every step, with zeros past the length of a sequence.
template <class T>
void RunStatesBefore(const char* function, const CellLayer<T>& layer, bool reverse, const T* h0,
                     const T* y, T* h_before, void* stream);
/// Copies x [M, inputs], with zeros past the length of a sequence.
template <class T>
void RunMaskInputs(const char* function, const CellLayer<T>& layer, int64_t inputs, const T* x,
                   T* masked, void* stream);
template <class T>
void RunBackwardStep(const char* function, const CellLayer<T>& layer,
                     const BackwardStepCall<T>& step, void* stream);
/// Writes dstate [B, H], the gradient of the state before step `first`, to dstate0. For sequences
/// that begin the step with a reset, adds it to the sum dreset instead. reset_sums and the outputs
/// can be null.
template <class T>
void RunEndState(const char* function, const CellLayer<T>& layer, int64_t first, const T* dstate,
                 const T* reset_sums, T* dstate0, T* dreset, void* stream);
/// Sums da and dah over the rows into `partials` [ceil(M / kRnnRowsInTurn), kColumnSums, G], and,
/// with a norm of c, dcell into `cell_partials` [.., kCellColumnSums, H].
template <class T>
void RunColumnSums(const char* function, const CellLayer<T>& layer, const T* da, const T* dcell,
                   T* partials, T* cell_partials, void* stream);
/// Adds `count` partial sums [count, sums, cols].
template <class T>
void RunFinishSums(const char* function, const T* partials, int64_t count, int sums, int64_t cols,
                   const SumsOutputs<T>& outputs, void* stream);
/// Replaces da by the gradient of zx, for cells with separate norms of zx and zh.
template <class T>
void RunInputNormBackward(const char* function, const CellLayer<T>& layer, T* da, void* stream);

template <class T>
void RunMatmul(const char* function, const planish::cuda::MatmulArgs<T>& product);

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_RNN_CUDA_CELLS_H_
