#ifndef PLANISH_SRC_RNN_CUDA_CELLS_H_
#define PLANISH_SRC_RNN_CUDA_CELLS_H_

#include <cstdint>

#include "planish/cuda_rnn.h"
#include "src/rnn/cell.h"

// What a recurrent layer computes on a GPU beside its products: what the kernels take, and
// launching them. All addresses are the device's.
namespace planish::internal::cuda {

/// What is kept of a norm of a row: the mean, as a sum of two numbers, and 1 over the deviation.
inline constexpr int kRnnMap = 3;

/// Rows that one thread adds up terms of the parameters' gradients of, one after the other in the
/// type that is computed with. Their sums are added in double.
inline constexpr int64_t kRnnRowsInTurn = 64;

/// The sums of each of the G columns, over all steps and sequences, of which the parameters'
/// gradients are made: da is the gradient of ax, dah that of ah.
enum class ColumnSum : uint8_t { kDa, kDaXhatX, kDah, kDahXhatH };
inline constexpr int kColumnSums = 4;
/// And of the H columns of c: d is the gradient of what its norm gives.
inline constexpr int kCellColumnSums = 2;  // of d and of d * xhat

/// A layer's parameters as the kernels read them; none is null that the cell's kernels read. Those
/// of all units, or of some: `stride` of them, from the unit `first` on.
template <class T>
struct CellParams {
  int64_t stride, first;
  T *gain_ih, *gain_hh;  ///< [G] of the norms of zx and zh; of zx + zh, the first
  T* bias;               ///< [G] of a: the sum of all biases, but of those of a GRU's ah_n
  T* bias_hn;            ///< [H] GRUs: of ah_n
  T *gain_c, *bias_c;    ///< [H] of the norm of c
};

/// What a layer's steps share. M = T * B, row t * B + b is step t of sequence b.
template <class T>
struct CellLayer {
  Arithmetic arithmetic;
  Sums sums;
  CellNorm cell_norm;
  int gates, norms;     ///< norms of one sum or of one product
  int gates_of_a_norm;  ///< of each norm but the last, which has what is left
  int64_t time, batch, hidden;
  double eps;
  const int64_t* lengths;  ///< [B], or null
  const uint8_t* resets;   ///< [T, B], or null
  const T *h_reset, *c_reset;
  CellParams<T> params;
  // What forward keeps, each of M rows; null: not kept, or the cell has it not.
  T* zx;          ///< [M, G] the product; of the cells that normalise zx + zh, that sum
  T* zh;          ///< [M, G]
  T* map_ih;      ///< [M, norms, 3] of zx or zx + zh
  T* map_hh;      ///< [M, norms, 3]
  T* gates_kept;  ///< [M, G]
  T* candidate;   ///< [M, H] a GRU's ah_n
  T* before;      ///< [M, H] c before the step
  T* tanh_c;      ///< [M, H]
  T* map_c;       ///< [M, 3]
};

/// One step of all sequences.
template <class T>
struct ForwardStepCall {
  int64_t t;
  int64_t next;      ///< the step that comes after it, or -1
  const T* zh;       ///< [B, G]
  const T* h;        ///< [B, H] the state before it
  T* c;              ///< [B, H] likewise; the kernel's to write to
  T* o;              ///< [B, H] room, of a cell with a norm of c
  T* y;              ///< [M, H]
  T *h_out, *c_out;  ///< [B, H] what `next` begins with; may be h and c. Or null
};

/// What all steps backward read and write.
template <class T>
struct BackwardArrays {
  const T* y;              ///< [M, H]
  const T* h_before;       ///< [M, H] of a GRU
  const T* dy;             ///< [M, H] or null
  T* dh;                   ///< [B, H] of the state after a step; then what goes past the product
  T* dc;                   ///< [B, H] of the carried c after a step; then before it
  T* da;                   ///< [M, G]
  T* dzh;                  ///< [M, G] apart from da, but of plain sums of an RNN or LSTM
  T* dcell;                ///< [M, H] of a cell with a norm of c: of what that gives
  T *dh_reset, *dc_reset;  ///< [B, H] sums over the resets; null without resets
};

/// The gradients of one step of all sequences.
template <class T>
struct BackwardStepCall : BackwardArrays<T> {
  int64_t t;
  int64_t later;  ///< the step that forward takes after it, or -1
};

/// Whose columns' sums make a parameter's gradient.
template <class T>
struct SumsOutput {
  T* data;        ///< [count] or null
  int sum;        ///< which of the sums
  int64_t begin;  ///< the first column
  int64_t count;
};
inline constexpr int kMaxSumsOutputs = 6;
template <class T>
struct SumsOutputs {
  SumsOutput<T> output[kMaxSumsOutputs];
};

/// Launch the kernels. `function` is named in errors.

/// Writes the params from those that are given.
template <class T>
void RunPackParams(const char* function, const CellLayer<T>& layer, const RnnParams<const T>& from,
                   void* stream);
/// to = from [B, H], or zeros, or for sequences that begin step `first` with a reset, `reset` or
/// zeros. `first` is -1 where none does. `to` may be null.
template <class T>
void RunBeginState(const char* function, const CellLayer<T>& layer, int64_t first, const T* from,
                   const T* reset, T* to, void* stream);
/// map_ih of zx, of cells that normalise zx and zh apart.
template <class T>
void RunMoments(const char* function, const CellLayer<T>& layer, void* stream);
template <class T>
void RunForwardStep(const char* function, const CellLayer<T>& layer, const ForwardStepCall<T>& step,
                    void* stream);

/// The state before every step, and zeros beyond the length of a sequence.
template <class T>
void RunStatesBefore(const char* function, const CellLayer<T>& layer, bool reverse, const T* h0,
                     const T* y, T* h_before, void* stream);
/// x [M, inputs], and zeros beyond the length of a sequence.
template <class T>
void RunMaskInputs(const char* function, const CellLayer<T>& layer, int64_t inputs, const T* x,
                   T* masked, void* stream);
template <class T>
void RunBackwardStep(const char* function, const CellLayer<T>& layer,
                     const BackwardStepCall<T>& step, void* stream);
/// The gradients dstate [B, H] of the state before the step `first` into that of the first state
/// and the sum over the resets. The sums of the sequences may be null, as may the outputs.
template <class T>
void RunEndState(const char* function, const CellLayer<T>& layer, int64_t first, const T* dstate,
                 const T* reset_sums, T* dstate0, T* dreset, void* stream);
/// Sums of da and dzh's da over the rows into `partials` [ceil(M / kRnnRowsInTurn), kColumnSums,
/// G], and of dcell, of a cell with a norm of c, into `cell_partials` [.., kCellColumnSums, H].
template <class T>
void RunColumnSums(const char* function, const CellLayer<T>& layer, const T* da, const T* dcell,
                   T* partials, T* cell_partials, void* stream);
/// The sums of `count` partial sums [count, sums, cols].
template <class T>
void RunFinishSums(const char* function, const T* partials, int64_t count, int sums, int64_t cols,
                   const SumsOutputs<T>& outputs, void* stream);
/// da into the gradient of zx, of cells that normalise zx and zh apart.
template <class T>
void RunInputNormBackward(const char* function, const CellLayer<T>& layer, T* da, void* stream);

template <class T>
void RunMatmul(const char* function, const planish::cuda::MatmulArgs<T>& product);

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_RNN_CUDA_CELLS_H_
