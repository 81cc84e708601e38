#ifndef PLANISH_CUDA_RNN_H_
#define PLANISH_CUDA_RNN_H_

#include <cstdint>
#include <functional>

#include "planish/error.h"
#include "planish/rnn.h"

// The recurrent layers on NVIDIA GPUs. Cells, arguments and results are those of the CPU
// (planish/rnn.h), but that all arrays lie in the device's memory, lengths and resets too. A call
// puts work on a stream and returns: it neither waits for it nor allocates anything, so that it may
// be captured in a CUDA graph, where its matmul may.
//
// All cells but those with batch norm, which throw. What only the CPU has must be left out:
// checkpoint, packed parameters, and RnnBackwardArgs::sums.
//
// A library that was built without CUDA has these functions, too; they throw.
namespace planish::cuda {

/// A product of matrices of the device, which are contiguous, the last index running fastest:
/// c = op(a) op(b), where op transposes what is said to be. a_transposed and b_transposed are never
/// both true.
template <class T>
struct MatmulArgs {
  int64_t rows = 0, cols = 0, inner = 0;  ///< each >= 1
  const T* a = nullptr;                   ///< [rows, inner], or [inner, rows] if a_transposed
  const T* b = nullptr;                   ///< [inner, cols], or [cols, inner] if b_transposed
  T* c = nullptr;                         ///< [rows, cols], apart from a and b
  bool a_transposed = false;
  bool b_transposed = false;
  bool accumulate = false;  ///< add to what c holds, which otherwise may be anything
  void* stream = nullptr;   ///< the cudaStream_t on which to do so, after what is on it
};

/// Puts a product on its stream. Where it throws, so does the call that asked for the product, and
/// the outputs of that call are then partly written.
template <class T>
using Matmul = std::function<void(const MatmulArgs<T>&)>;

/// What a call takes beside its arrays. T is float or double.
template <class T>
struct RnnOptions {
  double eps = 1e-5;            ///< added to variances, inside the root; finite and >= 0
  void* stream = nullptr;       ///< a cudaStream_t of the current device; null: the default stream
  void* workspace = nullptr;    ///< memory of the device for what the call needs, 16-byte aligned
  int64_t workspace_bytes = 0;  ///< its size: what the functions below say, or more
  /// Multiplies matrices: one product of all inputs, and one for each step, which is most of a
  /// call's time. Empty: a kernel of this library, which is correct, of the same bits everywhere,
  /// and slower than a BLAS.
  Matmul<T> matmul;
  /// Whether RnnForward and RnnBackward may keep weight_hh on the chip and compute all steps by one
  /// kernel, where the layer fits (RnnFitsPersistent; RnnBackward takes at most 32 sequences). No
  /// product is then asked for of a step. Norms, and backward the gradients of states, are summed
  /// up in parts, of which there are as many as the device lets: results may differ in the last
  /// bits from those of single steps, and from one kind of device to another.
  bool persistent = false;
};

/// The numbers of type T that RnnForward saves for RnnBackward. Of each of T * B steps, with G for
/// gates * H,
///
///   kRnn, kRnnRelu            nothing              kLstm               G + 2 H
///   kLnRnn, kLnRnnRelu        G + 3                kDrawLstm           G + 2 H + 3
///   kGru                      G + H                kLnLstmContrib    2 G + 2 H + 15
///   kLnGru                  3 G + H + 12           the other LN-LSTMs  3 G + 2 H + 9
///
/// each of these arrays rounded up to a multiple of 16 bytes. Throws Error as RnnForward does.
template <class T>
int64_t RnnSavedSize(Cell cell, const RnnShape& shape);

/// Whether the current device has room for the weights of the layer's state beside what its steps
/// forward need. It takes at least two steps, and at most 64 sequences. Throws Error as RnnForward
/// does.
template <class T>
bool RnnFitsPersistent(Cell cell, const RnnShape& shape);

/// Bytes of workspace that RnnForward needs with `saved`, or without, and with
/// RnnOptions::persistent on the current device, or without. Throw Error as the calls do.
template <class T>
int64_t RnnForwardWorkspaceBytes(Cell cell, const RnnShape& shape, bool saved,
                                 bool persistent = false);
/// With `lengths` given, or without, and persistent likewise.
template <class T>
int64_t RnnBackwardWorkspaceBytes(Cell cell, const RnnShape& shape, bool lengths,
                                  bool persistent = false);
template <class T>
int64_t RnnStepWorkspaceBytes(Cell cell, int64_t batch, int64_t inputs, int64_t hidden);

/// As planish::RnnForward. `saved` is aligned to 16 bytes; what it holds is not what the CPU saves.
/// Lengths are not checked, for they are not at hand: one above T is T, one below 1 is no step.
///
/// Of a sequence, results depend on that sequence alone (NaN stays in it), as far as matmul does
/// so. They are the same bits from run to run, with and without `saved`, and, where a row of a
/// matmul is the same bits for any number of rows, those of RnnStep's one by one.
///
/// Throws Error as planish::RnnForward does, for a cell with batch norm, when the workspace is too
/// small, and when the device refuses.
template <class T>
void RnnForward(Cell cell, const RnnForwardArgs<T>& args, const RnnOptions<T>& options = {});

/// As planish::RnnBackward, likewise. Sums over T and B are taken in an order that the shape alone
/// fixes; those of the weights' gradients are matmul's.
template <class T>
void RnnBackward(Cell cell, const RnnBackwardArgs<T>& args, const RnnOptions<T>& options = {});

/// As planish::RnnStep, likewise.
template <class T>
void RnnStep(Cell cell, const RnnStepArgs<T>& args, const RnnOptions<T>& options = {});

#define PLANISH_EXTERN(T)                                                                  \
  extern template int64_t RnnSavedSize<T>(Cell, const RnnShape&);                          \
  extern template bool RnnFitsPersistent<T>(Cell, const RnnShape&);                        \
  extern template int64_t RnnForwardWorkspaceBytes<T>(Cell, const RnnShape&, bool, bool);  \
  extern template int64_t RnnBackwardWorkspaceBytes<T>(Cell, const RnnShape&, bool, bool); \
  extern template int64_t RnnStepWorkspaceBytes<T>(Cell, int64_t, int64_t, int64_t);       \
  extern template void RnnForward(Cell, const RnnForwardArgs<T>&, const RnnOptions<T>&);   \
  extern template void RnnBackward(Cell, const RnnBackwardArgs<T>&, const RnnOptions<T>&); \
  extern template void RnnStep(Cell, const RnnStepArgs<T>&, const RnnOptions<T>&);
PLANISH_RNN_TYPES(PLANISH_EXTERN)
#undef PLANISH_EXTERN

}  // namespace planish::cuda

#endif  // PLANISH_CUDA_RNN_H_
