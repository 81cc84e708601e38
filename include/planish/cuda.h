#ifndef PLANISH_CUDA_H_
#define PLANISH_CUDA_H_

#include <cstdint>
#include <optional>

#include "planish/batch_norm.h"
#include "planish/channel_norm.h"
#include "planish/error.h"
#include "planish/norm.h"
#include "planish/online_norm.h"
#include "planish/weight_norm.h"

// The norms on NVIDIA GPUs. Functions and arguments are those of the CPU (planish/norm.h,
// batch_norm.h, channel_norm.h, weight_norm.h and online_norm.h), but that all arrays lie in the
// device's memory. A call puts kernels on a stream and returns: it neither waits for them nor
// allocates anything, so that it may be captured in a CUDA graph. Results depend on the shape and
// on how the arrays are aligned alone: they are the same bits from run to run and on every device,
// but for norms of rows that are too long for one block (docs/cuda.md has the numbers), whose last
// bits depend on whether the device has clusters of blocks, too, and on how large they may be.
//
// A library that was built without CUDA has these functions, too; they throw.
namespace planish::cuda {

/// The number of devices that this library can use: 0 where there is none, or no driver, or where
/// the library was built without CUDA.
int Devices();

/// What both directions take beside their arrays.
struct NormOptions {
  double eps = 1e-5;            ///< added to the variance, inside the root; finite and >= 0
  double scale = 1;             ///< AdaNorm's C, finite; other norms do not read it
  double slope = 0.1;           ///< AdaNorm's k, finite; other norms do not read it
  void* stream = nullptr;       ///< a cudaStream_t of the current device; null: the default stream
  void* workspace = nullptr;    ///< memory of the device for what the call needs, 16-byte aligned
  int64_t workspace_bytes = 0;  ///< its size: what the functions below say, or more
};

/// Bytes of workspace that a call with rows of type T needs, on any device. Throw Error as the
/// calls do for sizes.
template <class T>
int64_t NormForwardWorkspaceBytes(int64_t rows, int64_t cols);
/// With `gradients` for dgain, dbias or both.
template <class T>
int64_t NormBackwardWorkspaceBytes(int64_t rows, int64_t cols, bool gradients);

/// As planish::NormForward. Throws Error as that does, when the workspace is too small, and when
/// the device refuses.
template <class T, class P = T>
void NormForward(Norm norm, const NormForwardArgs<T, P>& args, const NormOptions& options = {});

/// As planish::NormBackward, likewise.
template <class T, class P = T>
void NormBackward(Norm norm, const NormBackwardArgs<T, P>& args, const NormOptions& options = {});

#define PLANISH_EXTERN(T, P)                                                                \
  extern template void NormForward(Norm, const NormForwardArgs<T, P>&, const NormOptions&); \
  extern template void NormBackward(Norm, const NormBackwardArgs<T, P>&, const NormOptions&);
PLANISH_NORM_TYPES(PLANISH_EXTERN)
#undef PLANISH_EXTERN

/// What BatchNorm's functions take beside their arrays.
struct BatchNormOptions {
  double eps = 1e-5;  ///< as in planish::BatchNormOptions, as those that follow
  bool unbiased = false;
  std::optional<double> momentum = 0.1;
  int64_t batches = 0;
  void* stream = nullptr;       ///< a cudaStream_t of the current device; null: the default stream
  void* workspace = nullptr;    ///< memory of the device for what the call needs, 16-byte aligned
  int64_t workspace_bytes = 0;  ///< its size: what the function below says, or more
};

/// Bytes of workspace that a call of any of BatchNorm's functions needs. Throws Error as they do
/// for sizes.
template <class T>
int64_t BatchNormWorkspaceBytes(int64_t batch, int64_t channels, int64_t spatial);

/// As planish::BatchNormForward. Throws Error as that does, when the workspace is too small, and
/// when the device refuses. Squares of doubles beyond 1e300 overflow: such channels give NaN.
template <class T, class P = T>
void BatchNormForward(const BatchNormForwardArgs<T, P>& args, const BatchNormOptions& options = {});

/// As planish::BatchNormBackward, likewise.
template <class T, class P = T>
void BatchNormBackward(const BatchNormBackwardArgs<T, P>& args,
                       const BatchNormOptions& options = {});

/// As planish::BatchNormEvaluate, likewise.
template <class T, class P = T>
void BatchNormEvaluate(const BatchNormEvaluateArgs<T, P>& args,
                       const BatchNormOptions& options = {});

/// As planish::BatchNormEvaluateBackward, likewise.
template <class T, class P = T>
void BatchNormEvaluateBackward(const BatchNormEvaluateBackwardArgs<T, P>& args,
                               const BatchNormOptions& options = {});

#define PLANISH_EXTERN(T, P)                                                                 \
  extern template void BatchNormForward(const BatchNormForwardArgs<T, P>&,                   \
                                        const BatchNormOptions&);                            \
  extern template void BatchNormBackward(const BatchNormBackwardArgs<T, P>&,                 \
                                         const BatchNormOptions&);                           \
  extern template void BatchNormEvaluate(const BatchNormEvaluateArgs<T, P>&,                 \
                                         const BatchNormOptions&);                           \
  extern template void BatchNormEvaluateBackward(const BatchNormEvaluateBackwardArgs<T, P>&, \
                                                 const BatchNormOptions&);
PLANISH_NORM_TYPES(PLANISH_EXTERN)
#undef PLANISH_EXTERN

/// Bytes of workspace that a call of either direction over channels needs: ChannelNormForward of
/// more than one position a sample needs none. Throws Error as they do for sizes.
template <class T>
int64_t ChannelNormWorkspaceBytes(int64_t batch, int64_t channels, int64_t spatial);

/// As planish::ChannelNormForward. Throws Error as that does, when the workspace is too small, and
/// when the device refuses.
template <class T, class P = T>
void ChannelNormForward(Norm norm, const ChannelNormForwardArgs<T, P>& args,
                        const NormOptions& options = {});

/// As planish::ChannelNormBackward, likewise.
template <class T, class P = T>
void ChannelNormBackward(Norm norm, const ChannelNormBackwardArgs<T, P>& args,
                         const NormOptions& options = {});

#define PLANISH_EXTERN(T, P)                                                           \
  extern template void ChannelNormForward(Norm, const ChannelNormForwardArgs<T, P>&,   \
                                          const NormOptions&);                         \
  extern template void ChannelNormBackward(Norm, const ChannelNormBackwardArgs<T, P>&, \
                                           const NormOptions&);
PLANISH_NORM_TYPES(PLANISH_EXTERN)
#undef PLANISH_EXTERN

/// What WeightNorm's functions take beside their arrays.
struct WeightNormOptions {
  void* stream = nullptr;       ///< a cudaStream_t of the current device; null: the default stream
  void* workspace = nullptr;    ///< memory of the device for what the call needs, 16-byte aligned
  int64_t workspace_bytes = 0;  ///< its size: what the function below says, or more
};

/// Bytes of workspace that a call of either direction needs. Throws Error as they do for sizes.
template <class T>
int64_t WeightNormWorkspaceBytes(int64_t rows, int64_t cols);

/// As planish::WeightNormForward. Throws Error as that does, when the workspace is too small, and
/// when the device refuses.
template <class T, class P = T>
void WeightNormForward(const WeightNormForwardArgs<T, P>& args,
                       const WeightNormOptions& options = {});

/// As planish::WeightNormBackward, likewise.
template <class T, class P = T>
void WeightNormBackward(const WeightNormBackwardArgs<T, P>& args,
                        const WeightNormOptions& options = {});

#define PLANISH_EXTERN(T, P)                                                   \
  extern template void WeightNormForward(const WeightNormForwardArgs<T, P>&,   \
                                         const WeightNormOptions&);            \
  extern template void WeightNormBackward(const WeightNormBackwardArgs<T, P>&, \
                                          const WeightNormOptions&);
PLANISH_NORM_TYPES(PLANISH_EXTERN)
#undef PLANISH_EXTERN

/// What OnlineNorm's functions take beside their arrays.
struct OnlineNormOptions {
  double alpha = 0.1;              ///< the weight of a new case, 0 <= alpha <= 1
  const double* alphas = nullptr;  ///< [rows] one for each case, in place of alpha; or null
  void* stream = nullptr;       ///< a cudaStream_t of the current device; null: the default stream
  void* workspace = nullptr;    ///< memory of the device for what the call needs, 16-byte aligned
  int64_t workspace_bytes = 0;  ///< its size: what the function below says, or more
};

/// Bytes of workspace that a call of either direction needs. Throws Error as they do for sizes.
template <class T>
int64_t OnlineNormWorkspaceBytes(int64_t rows, int64_t cols);

/// As planish::OnlineNormForward, with the state, too, in the device's memory, as are alphas:
/// nobody looks whether they are in their range. One call for many cases and a call for each give
/// the same bits where the cases are aligned alike. Throws Error as the CPU's does, when the
/// workspace is too small, and when the device refuses.
template <class T, class P = T>
void OnlineNormForward(const OnlineNormForwardArgs<T, P>& args, OnlineState* state,
                       const OnlineNormOptions& options = {});

/// As planish::OnlineNormBackward, likewise.
template <class T, class P = T>
void OnlineNormBackward(const OnlineNormBackwardArgs<T, P>& args,
                        const OnlineNormOptions& options = {});

#define PLANISH_EXTERN(T, P)                                                               \
  extern template void OnlineNormForward(const OnlineNormForwardArgs<T, P>&, OnlineState*, \
                                         const OnlineNormOptions&);                        \
  extern template void OnlineNormBackward(const OnlineNormBackwardArgs<T, P>&,             \
                                          const OnlineNormOptions&);
PLANISH_NORM_TYPES(PLANISH_EXTERN)
#undef PLANISH_EXTERN

}  // namespace planish::cuda

#endif  // PLANISH_CUDA_H_
