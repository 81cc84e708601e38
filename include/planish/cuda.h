#ifndef PLANISH_CUDA_H_
#define PLANISH_CUDA_H_

#include <cstdint>
#include <optional>

#include "planish/batch_norm.h"
#include "planish/channel_norm.h"
#include "planish/error.h"
#include "planish/group_norm.h"
#include "planish/norm.h"
#include "planish/online_norm.h"
#include "planish/pointwise_norm.h"
#include "planish/version.h"
#include "planish/weight_norm.h"

// The norms on NVIDIA GPUs. Functions and arguments are those of the CPU headers (norm.h,
// batch_norm.h, channel_norm.h, group_norm.h, weight_norm.h, online_norm.h, pointwise_norm.h), with
// all arrays in device memory.
//
// Contract:
// - A call enqueues kernels on `stream` and returns. It neither synchronizes nor allocates, so it
//   can be captured in a CUDA graph. Arrays and workspace must stay valid until the kernels have
//   run.
// - Calls can run on several host threads and streams if each has its own workspace.
// - Arrays need the alignment of their element type; 16-byte alignment is faster.
// - ArgumentError is thrown before anything is enqueued. DeviceError is thrown if a kernel cannot
//   be launched; the outputs are then undefined.
// - Results depend only on the shape and the alignment of the arrays, and have the same bits in
//   every run and on every device. Exception: rows too long for one block (limits in docs/cuda.md),
//   whose last bits depend on the cluster sizes that the device supports.
// - In a library built without CUDA these functions exist and throw DeviceError.
//
// Example: LayerNorm of two rows on the default stream.
//   std::vector<float> rows = {1, 2, 3, 4, 5, 9};
//   float* x = nullptr;
//   cudaMalloc(reinterpret_cast<void**>(&x), 6 * sizeof(float));
//   cudaMemcpy(x, rows.data(), 6 * sizeof(float), cudaMemcpyHostToDevice);
//   const planish::NormForwardArgs<float> args = {.rows = 2, .cols = 3, .x = x, .y = x};
//   const int64_t bytes = planish::cuda::WorkspaceBytes(args);
//   void* workspace = nullptr;
//   cudaMalloc(&workspace, static_cast<size_t>(bytes));
//   planish::cuda::NormForward(planish::Norm::kLayer, args,
//                              {.workspace = workspace, .workspace_bytes = bytes});
//   cudaMemcpy(rows.data(), x, 6 * sizeof(float), cudaMemcpyDeviceToHost);
//   for (const float value : rows) std::printf("%.2f ", value);
//   // prints -1.22 0.00 1.22 -0.93 -0.46 1.39
namespace planish::cuda {
inline namespace PLANISH_API {

/// Returns the number of usable devices: 0 without a GPU or a driver, or if the library was built
/// without CUDA.
int Devices();

/// Options of NormForward, NormBackward and the ChannelNorm functions.
struct NormOptions {
  double eps = 1e-5;            ///< added to the variance, inside the root; finite, >= 0
  double scale = 1;             ///< C of AdaNorm, finite; other norms ignore it
  double slope = 0.1;           ///< k of AdaNorm, finite; other norms ignore it
  void* stream = nullptr;       ///< cudaStream_t of the current device; null: the default stream
  void* workspace = nullptr;    ///< device memory, 16-byte aligned
  int64_t workspace_bytes = 0;  ///< at least WorkspaceBytes of the call
};

/// Returns the size in bytes of the workspace for a call with these arguments. The size is
/// sufficient for any alignment of the arrays and on any device. Reads the sizes, cast_before_gain
/// and whether gate, quantized, dx, dgain and dbias are null, and accesses no array. A gate,
/// cast_before_gain or quantized takes room for the rows in Compute<T>, in backward twice. Throws
/// ArgumentError for invalid sizes. The other WorkspaceBytes functions do the same for their calls.
template <class T, class P>
int64_t WorkspaceBytes(const NormForwardArgs<T, P>& args);
template <class T, class P>
int64_t WorkspaceBytes(const NormBackwardArgs<T, P>& args);

/// Computes planish::NormForward on the GPU. Throws ArgumentError as it does and if the workspace
/// is too small.
template <class T, class P = T>
void NormForward(Norm norm, const NormForwardArgs<T, P>& args, const NormOptions& options = {});

/// Computes planish::NormBackward on the GPU. Throws ArgumentError as it does, and as NormForward
/// above.
template <class T, class P = T>
void NormBackward(Norm norm, const NormBackwardArgs<T, P>& args, const NormOptions& options = {});

/// Options of the BatchNorm functions.
struct BatchNormOptions {
  double eps = 1e-5;  ///< as in planish::BatchNormOptions, like the next three
  bool unbiased = false;
  std::optional<double> momentum = 0.1;
  int64_t batches = 0;
  void* stream = nullptr;       ///< cudaStream_t of the current device; null: the default stream
  void* workspace = nullptr;    ///< device memory, 16-byte aligned
  int64_t workspace_bytes = 0;  ///< at least WorkspaceBytes of the call
};

template <class T, class P>
int64_t WorkspaceBytes(const BatchNormForwardArgs<T, P>& args);
template <class T, class P>
int64_t WorkspaceBytes(const BatchNormBackwardArgs<T, P>& args);
template <class T, class P>
int64_t WorkspaceBytes(const BatchNormEvaluateArgs<T, P>& args);
template <class T, class P>
int64_t WorkspaceBytes(const BatchNormEvaluateBackwardArgs<T, P>& args);

/// Computes planish::BatchNormForward on the GPU. Throws ArgumentError as it does and if the
/// workspace is too small. Squares of doubles beyond 1e300 overflow and give NaN.
template <class T, class P = T>
void BatchNormForward(const BatchNormForwardArgs<T, P>& args, const BatchNormOptions& options = {});

/// Computes planish::BatchNormBackward on the GPU. Throws as BatchNormForward above.
template <class T, class P = T>
void BatchNormBackward(const BatchNormBackwardArgs<T, P>& args,
                       const BatchNormOptions& options = {});

/// Computes planish::BatchNormEvaluate on the GPU. Throws as BatchNormForward above.
template <class T, class P = T>
void BatchNormEvaluate(const BatchNormEvaluateArgs<T, P>& args,
                       const BatchNormOptions& options = {});

/// Computes planish::BatchNormEvaluateBackward on the GPU. Throws as BatchNormForward above.
template <class T, class P = T>
void BatchNormEvaluateBackward(const BatchNormEvaluateBackwardArgs<T, P>& args,
                               const BatchNormOptions& options = {});

template <class T, class P>
int64_t WorkspaceBytes(const ChannelNormForwardArgs<T, P>& args);
template <class T, class P>
int64_t WorkspaceBytes(const ChannelNormBackwardArgs<T, P>& args);

/// Computes planish::ChannelNormForward on the GPU. Throws ArgumentError as it does and if the
/// workspace is too small.
template <class T, class P = T>
void ChannelNormForward(Norm norm, const ChannelNormForwardArgs<T, P>& args,
                        const NormOptions& options = {});

/// Computes planish::ChannelNormBackward on the GPU. Throws as ChannelNormForward above.
template <class T, class P = T>
void ChannelNormBackward(Norm norm, const ChannelNormBackwardArgs<T, P>& args,
                         const NormOptions& options = {});

/// Options of the WeightNorm functions.
struct WeightNormOptions {
  void* stream = nullptr;       ///< cudaStream_t of the current device; null: the default stream
  void* workspace = nullptr;    ///< device memory, 16-byte aligned
  int64_t workspace_bytes = 0;  ///< at least WorkspaceBytes of the call
};

template <class T, class P>
int64_t WorkspaceBytes(const WeightNormForwardArgs<T, P>& args);
template <class T, class P>
int64_t WorkspaceBytes(const WeightNormBackwardArgs<T, P>& args);

/// Computes planish::WeightNormForward on the GPU. Throws ArgumentError as it does and if the
/// workspace is too small.
template <class T, class P = T>
void WeightNormForward(const WeightNormForwardArgs<T, P>& args,
                       const WeightNormOptions& options = {});

/// Computes planish::WeightNormBackward on the GPU. Throws as WeightNormForward above.
template <class T, class P = T>
void WeightNormBackward(const WeightNormBackwardArgs<T, P>& args,
                        const WeightNormOptions& options = {});

/// Options of the GroupNorm functions.
struct GroupNormOptions {
  double eps = 1e-5;            ///< as in planish::GroupNormOptions
  void* stream = nullptr;       ///< cudaStream_t of the current device; null: the default stream
  void* workspace = nullptr;    ///< device memory, 16-byte aligned
  int64_t workspace_bytes = 0;  ///< at least WorkspaceBytes of the call
};

template <class T, class P>
int64_t WorkspaceBytes(const GroupNormForwardArgs<T, P>& args);
template <class T, class P>
int64_t WorkspaceBytes(const GroupNormBackwardArgs<T, P>& args);

/// Computes planish::GroupNormForward on the GPU, for arrays whose channels are not last. Throws
/// ArgumentError as it does and if the workspace is too small. Squares of doubles beyond 1e300
/// overflow and give NaN.
template <class T, class P = T>
void GroupNormForward(const GroupNormForwardArgs<T, P>& args, const GroupNormOptions& options = {});

/// Computes planish::GroupNormBackward on the GPU. Throws as GroupNormForward above.
template <class T, class P = T>
void GroupNormBackward(const GroupNormBackwardArgs<T, P>& args,
                       const GroupNormOptions& options = {});

/// Options of the PointwiseNorm functions.
struct PointwiseNormOptions {
  void* stream = nullptr;       ///< cudaStream_t of the current device; null: the default stream
  void* workspace = nullptr;    ///< device memory, 16-byte aligned
  int64_t workspace_bytes = 0;  ///< at least WorkspaceBytes of the call
};

template <class T, class P>
int64_t WorkspaceBytes(const PointwiseNormForwardArgs<T, P>& args);
template <class T, class P>
int64_t WorkspaceBytes(const PointwiseNormBackwardArgs<T, P>& args);

/// Computes planish::PointwiseNormForward on the GPU. Throws ArgumentError as it does and if the
/// workspace is too small.
template <class T, class P = T>
void PointwiseNormForward(Pointwise function, const PointwiseNormForwardArgs<T, P>& args,
                          const PointwiseNormOptions& options = {});

/// Computes planish::PointwiseNormBackward on the GPU. Throws as PointwiseNormForward above.
template <class T, class P = T>
void PointwiseNormBackward(Pointwise function, const PointwiseNormBackwardArgs<T, P>& args,
                           const PointwiseNormOptions& options = {});

/// Options of the OnlineNorm functions.
struct OnlineNormOptions {
  double alpha = 0.1;              ///< weight of a new case, 0 <= alpha <= 1
  const double* alphas = nullptr;  ///< [rows] weight of each case, in device memory; or null
  void* stream = nullptr;          ///< cudaStream_t of the current device; null: the default stream
  void* workspace = nullptr;       ///< device memory, 16-byte aligned
  int64_t workspace_bytes = 0;     ///< at least WorkspaceBytes of the call
};

template <class T, class P>
int64_t WorkspaceBytes(const OnlineNormForwardArgs<T, P>& args);
template <class T, class P>
int64_t WorkspaceBytes(const OnlineNormBackwardArgs<T, P>& args);

/// Computes planish::OnlineNormForward on the GPU. `state` and options.alphas are in device memory,
/// and their ranges are not checked. One call for many cases gives the same bits as one call for
/// each if all cases have the same alignment. Throws ArgumentError as the CPU function does and if
/// the workspace is too small.
template <class T, class P = T>
void OnlineNormForward(const OnlineNormForwardArgs<T, P>& args, OnlineState* state,
                       const OnlineNormOptions& options = {});

/// Computes planish::OnlineNormBackward on the GPU. Throws as OnlineNormForward above.
template <class T, class P = T>
void OnlineNormBackward(const OnlineNormBackwardArgs<T, P>& args,
                        const OnlineNormOptions& options = {});

}  // namespace PLANISH_API
}  // namespace planish::cuda

#endif  // PLANISH_CUDA_H_
