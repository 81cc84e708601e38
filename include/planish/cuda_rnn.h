#ifndef PLANISH_CUDA_RNN_H_
#define PLANISH_CUDA_RNN_H_

#include <cstdint>
#include <functional>

#include "planish/error.h"
#include "planish/rnn.h"
#include "planish/version.h"

// Recurrent layers on NVIDIA GPUs. Cells, arguments and results are those of rnn.h, with all
// arrays, including lengths and resets, in device memory. The contract of cuda.h holds; a call can
// be captured in a CUDA graph if its matmul can.
//
// Cells with batch norm throw ArgumentError, as do features that only the CPU has: checkpoint,
// packed weights and RnnBackwardArgs::sums. Heads take the time of dense weights. In a library
// built without CUDA all functions throw DeviceError.
//
// Example: an LN-LSTM whose arrays are in device memory.
//   const auto on_device = [](const std::vector<float>& values) {
//     float* array = nullptr;
//     cudaMalloc(reinterpret_cast<void**>(&array), values.size() * sizeof(float));
//     cudaMemcpy(array, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice);
//     return array;
//   };
//   const planish::RnnShape shape{.time = 3, .batch = 1, .inputs = 1, .hidden = 2};
//   std::vector<float> y(3 * 2);
//   float* y_device = on_device(y);
//   const planish::RnnForwardArgs<float> args = {
//       .inputs = {.shape = shape,
//                  .x = on_device({1, 2, 3}),
//                  .params = {.weight_ih = on_device({1, 2, 3, 4, 5, 6, 7, 8}),
//                             .weight_hh = on_device(std::vector<float>(8 * 2, 0.5f))}},
//       .y = y_device};
//   planish::cuda::RnnOptions<float> options;
//   options.workspace_bytes =
//       planish::cuda::WorkspaceBytes(planish::Cell::kLnLstm, args, options);
//   cudaMalloc(&options.workspace, static_cast<size_t>(options.workspace_bytes));
//   planish::cuda::RnnForward(planish::Cell::kLnLstm, args, options);
//   cudaMemcpy(y.data(), y_device, y.size() * sizeof(float), cudaMemcpyDeviceToHost);
//   for (const float value : y) std::printf("%.3f ", value);
//   // prints -0.570 0.625 -0.570 0.625 -0.570 0.626
namespace planish::cuda {
inline namespace PLANISH_API {

/// Matrix product c = op(a) op(b) of contiguous device matrices, last index fastest. A set flag
/// makes op transpose the matrix; at most one of the two flags is set.
template <class T>
struct MatmulArgs {
  int64_t rows = 0, cols = 0, inner = 0;  ///< each >= 1
  const T* a = nullptr;                   ///< [rows, inner], or [inner, rows] if a_transposed
  const T* b = nullptr;                   ///< [inner, cols], or [cols, inner] if b_transposed
  T* c = nullptr;                         ///< [rows, cols], does not overlap a or b
  bool a_transposed = false;
  bool b_transposed = false;
  bool accumulate = false;  ///< adds to c instead of overwriting it
  void* stream = nullptr;   ///< cudaStream_t for the product
};

/// Function that enqueues a matrix product on `stream`. An exception from it propagates to the
/// caller of RnnForward, RnnBackward or RnnStep, whose outputs are then partly written.
template <class T>
using Matmul = std::function<void(const MatmulArgs<T>&)>;

/// Options of RnnForward, RnnBackward and RnnStep. T is float or double.
template <class T>
struct RnnOptions {
  double eps = 1e-5;            ///< added to variances, inside the root; finite, >= 0
  void* stream = nullptr;       ///< cudaStream_t of the current device; null: the default stream
  void* workspace = nullptr;    ///< device memory, 16-byte aligned
  int64_t workspace_bytes = 0;  ///< at least WorkspaceBytes of the call
  /// Multiplies matrices: one product for all inputs, and one for each step, which takes most of a
  /// call's time. If empty, a kernel of this library multiplies: deterministic, but slower than a
  /// BLAS.
  Matmul<T> matmul;
  /// Allows RnnForward and RnnBackward to use a persistent kernel, where the layer fits
  /// (RnnFitsPersistent; at most 32 sequences in RnnBackward; no projection). The kernel holds
  /// weight_hh in shared memory for all steps, which then call no matmul. Norms and state gradients
  /// are partial sums, whose number depends on the device. So last bits can differ from those of
  /// single steps and between kinds of device.
  bool persistent = false;
};

/// Returns the number of elements of type T that RnnForward saves for RnnBackward. Each of the T *
/// B steps saves, with G = gates * H:
///
///   kRnn, kRnnRelu            nothing              kLstm               G + 2 H
///   kLnRnn, kLnRnnRelu        G + 3                kDrawLstm           G + 2 H + 3
///   kGru                      G + H                kLnLstmContrib    2 G + 2 H + 15
///   kLnGru                  3 G + H + 12           kLnLstmTflite     2 G + 2 H + 12
///   kLnGruHaste             3 G + H + 6            kLnLstmTorchaudio 2 G + 2 H + 6
///   kLnGruDreamer           2 G + H + 3            the other LN-LSTMs  3 G + 2 H + 9
///   kSlstm                    G + 2 H
///
/// Each array is rounded up to a multiple of 16 bytes. Throws ArgumentError as RnnForward does.
template <class T>
int64_t RnnSavedSize(Cell cell, const RnnShape& shape);

/// Returns whether a persistent kernel can compute the forward pass of the layer on the current
/// device. Requires 2 steps or more, at most 64 sequences and no projection. Throws ArgumentError
/// as RnnForward does.
template <class T>
bool RnnFitsPersistent(Cell cell, const RnnShape& shape);

/// Returns the size in bytes of the workspace for a call with these arguments on the current
/// device. Reads the sizes, whether `saved` and `lengths` are null, and options.persistent, and
/// accesses no array. Throws ArgumentError as RnnForward does. The other WorkspaceBytes functions
/// do the same for their calls.
template <class T>
int64_t WorkspaceBytes(Cell cell, const RnnForwardArgs<T>& args, const RnnOptions<T>& options = {});
template <class T>
int64_t WorkspaceBytes(Cell cell, const RnnBackwardArgs<T>& args,
                       const RnnOptions<T>& options = {});
template <class T>
int64_t WorkspaceBytes(Cell cell, const RnnStepArgs<T>& args, const RnnOptions<T>& options = {});

/// Computes planish::RnnForward on the GPU. `saved` is aligned to 16 bytes; its contents differ
/// from the CPU's. Lengths are in device memory and not checked: above T means T, below 1 means no
/// step.
///
/// The result of a sequence depends on that sequence only (a NaN stays in it) if matmul treats rows
/// independently. Results have the same bits in every run, and with and without `saved`. RnnStep
/// gives the same bits if a row of matmul has the same bits for any number of rows.
///
/// Throws ArgumentError as planish::RnnForward does, for cells with batch norm and if the workspace
/// is too small.
template <class T>
void RnnForward(Cell cell, const RnnForwardArgs<T>& args, const RnnOptions<T>& options = {});

/// Computes planish::RnnBackward on the GPU. The order of sums over T and B depends only on the
/// shape, except in the gradients of weights, which matmul computes. Throws as RnnForward above.
template <class T>
void RnnBackward(Cell cell, const RnnBackwardArgs<T>& args, const RnnOptions<T>& options = {});

/// Computes planish::RnnStep on the GPU. Throws as RnnForward above.
template <class T>
void RnnStep(Cell cell, const RnnStepArgs<T>& args, const RnnOptions<T>& options = {});

}  // namespace PLANISH_API
}  // namespace planish::cuda

#endif  // PLANISH_CUDA_RNN_H_
