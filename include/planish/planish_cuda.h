#ifndef PLANISH_PLANISH_CUDA_H_
#define PLANISH_PLANISH_CUDA_H_

// The C interface for NVIDIA GPUs: the norms and recurrent layers of planish.h, with the same
// arguments, whose arrays are in device memory. Only the CPU has cells with batch norm, checkpoint,
// packed weights and planish_rnn_gradient_sums. The C++ interface is planish/cuda.h and
// planish/cuda_rnn.h.
//
// - A call enqueues kernels on the stream of its options, a cudaStream_t of the current device or
//   NULL for the default stream, and returns. It neither synchronizes nor allocates, so it can be
//   captured in a CUDA graph. Arrays and workspace must stay valid until the kernels have run.
// - Arrays need the alignment of their element type; 16-byte alignment is faster. `saved` of a
//   recurrent layer must be aligned to 16 bytes.
// - The workspace is device memory, aligned to 16 bytes. The call's _workspace function writes its
//   size to `*bytes`. It reads the sizes in the arguments and which arrays are NULL, and accesses
//   no array. Concurrent calls need separate workspaces.
// - PLANISH_INVALID_ARGUMENT is returned before anything is enqueued, PLANISH_DEVICE_ERROR if a
//   kernel cannot be launched. In a library built without CUDA calls return PLANISH_NO_CUDA.
// - Results have the same bits in every run and on every device, with the exceptions in cuda.h and
//   cuda_rnn.h.
//
// Example: LayerNorm of two rows on the default stream.
//   float rows[6] = {1, 2, 3, 4, 5, 9};
//   void *x = NULL, *workspace = NULL;
//   planish_norm_forward_args args;
//   planish_cuda_norm_options options;
//   planish_norm_forward_args_init(&args, sizeof args);
//   planish_cuda_norm_options_init(&options, sizeof options);
//   cudaMalloc(&x, sizeof rows);
//   cudaMemcpy(x, rows, sizeof rows, cudaMemcpyHostToDevice);
//   args.type = PLANISH_FLOAT;
//   args.rows = 2;
//   args.cols = 3;
//   args.x = x;
//   args.y = x;
//   planish_cuda_norm_forward_workspace(&args, &options.workspace_bytes);
//   cudaMalloc(&workspace, (size_t)options.workspace_bytes);
//   options.workspace = workspace;
//   if (planish_cuda_norm_forward(PLANISH_NORM_LAYER, &args, &options) != PLANISH_OK) {
//     fprintf(stderr, "%s\n", planish_error_message());
//   }
//   cudaMemcpy(rows, x, sizeof rows, cudaMemcpyDeviceToHost);
//   for (int i = 0; i < 6; ++i) printf("%.2f ", rows[i]);
//   // prints -1.22 0.00 1.22 -0.93 -0.46 1.39
#include "planish/planish.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Returns the number of usable devices: 0 without a GPU or a driver, or if the library was built
/// without CUDA.
PLANISH_C_API int32_t planish_cuda_devices(void);

// ---- Norms ----

/// Options of planish_cuda_norm_* and planish_cuda_channel_norm_*.
typedef struct planish_cuda_norm_options {
  uint32_t struct_size;
  double eps;               ///< as in planish_norm_options, like the next two
  double scale;             ///< default 1
  double slope;             ///< default 0.1
  void* stream;             ///< cudaStream_t; NULL: the default stream
  void* workspace;          ///< device memory, aligned to 16 bytes
  int64_t workspace_bytes;  ///< at least what the call's _workspace function writes
} planish_cuda_norm_options;
PLANISH_C_API planish_status planish_cuda_norm_options_init(planish_cuda_norm_options* options,
                                                            size_t size);

/// Writes the size in bytes of the workspace for a call with these arguments to `*bytes`. The size
/// is sufficient for any alignment of the arrays and on any device. The other _workspace functions
/// of norms do the same for their calls.
PLANISH_C_API planish_status
planish_cuda_norm_forward_workspace(const planish_norm_forward_args* args, int64_t* bytes);
PLANISH_C_API planish_status
planish_cuda_norm_backward_workspace(const planish_norm_backward_args* args, int64_t* bytes);
/// Computes planish_norm_forward on the GPU.
PLANISH_C_API planish_status planish_cuda_norm_forward(planish_norm norm,
                                                       const planish_norm_forward_args* args,
                                                       const planish_cuda_norm_options* options);
/// Computes planish_norm_backward on the GPU.
PLANISH_C_API planish_status planish_cuda_norm_backward(planish_norm norm,
                                                        const planish_norm_backward_args* args,
                                                        const planish_cuda_norm_options* options);

PLANISH_C_API planish_status planish_cuda_channel_norm_forward_workspace(
    const planish_channel_norm_forward_args* args, int64_t* bytes);
PLANISH_C_API planish_status planish_cuda_channel_norm_backward_workspace(
    const planish_channel_norm_backward_args* args, int64_t* bytes);
/// Computes planish_channel_norm_forward on the GPU.
PLANISH_C_API planish_status
planish_cuda_channel_norm_forward(planish_norm norm, const planish_channel_norm_forward_args* args,
                                  const planish_cuda_norm_options* options);
/// Computes planish_channel_norm_backward on the GPU.
PLANISH_C_API planish_status planish_cuda_channel_norm_backward(
    planish_norm norm, const planish_channel_norm_backward_args* args,
    const planish_cuda_norm_options* options);

/// Options of planish_cuda_batch_norm_*.
typedef struct planish_cuda_batch_norm_options {
  uint32_t struct_size;
  int32_t unbiased;         ///< as in planish_batch_norm_options, like the next three
  double eps;               ///< default 1e-5
  double momentum;          ///< default 0.1
  int64_t batches;          ///< batches already in the running estimates
  void* stream;             ///< cudaStream_t; NULL: the default stream
  void* workspace;          ///< device memory, aligned to 16 bytes
  int64_t workspace_bytes;  ///< at least what the call's _workspace function writes
} planish_cuda_batch_norm_options;
PLANISH_C_API planish_status
planish_cuda_batch_norm_options_init(planish_cuda_batch_norm_options* options, size_t size);

PLANISH_C_API planish_status planish_cuda_batch_norm_forward_workspace(
    const planish_batch_norm_forward_args* args, int64_t* bytes);
PLANISH_C_API planish_status planish_cuda_batch_norm_backward_workspace(
    const planish_batch_norm_backward_args* args, int64_t* bytes);
PLANISH_C_API planish_status planish_cuda_batch_norm_evaluate_workspace(
    const planish_batch_norm_evaluate_args* args, int64_t* bytes);
PLANISH_C_API planish_status planish_cuda_batch_norm_evaluate_backward_workspace(
    const planish_batch_norm_evaluate_backward_args* args, int64_t* bytes);
/// Computes planish_batch_norm_forward on the GPU.
PLANISH_C_API planish_status planish_cuda_batch_norm_forward(
    const planish_batch_norm_forward_args* args, const planish_cuda_batch_norm_options* options);
/// Computes planish_batch_norm_backward on the GPU.
PLANISH_C_API planish_status planish_cuda_batch_norm_backward(
    const planish_batch_norm_backward_args* args, const planish_cuda_batch_norm_options* options);
/// Computes planish_batch_norm_evaluate on the GPU.
PLANISH_C_API planish_status planish_cuda_batch_norm_evaluate(
    const planish_batch_norm_evaluate_args* args, const planish_cuda_batch_norm_options* options);
/// Computes planish_batch_norm_evaluate_backward on the GPU.
PLANISH_C_API planish_status
planish_cuda_batch_norm_evaluate_backward(const planish_batch_norm_evaluate_backward_args* args,
                                          const planish_cuda_batch_norm_options* options);

/// Options of planish_cuda_weight_norm_*.
typedef struct planish_cuda_weight_norm_options {
  uint32_t struct_size;
  void* stream;             ///< cudaStream_t; NULL: the default stream
  void* workspace;          ///< device memory, aligned to 16 bytes
  int64_t workspace_bytes;  ///< at least what the call's _workspace function writes
} planish_cuda_weight_norm_options;
PLANISH_C_API planish_status
planish_cuda_weight_norm_options_init(planish_cuda_weight_norm_options* options, size_t size);

PLANISH_C_API planish_status planish_cuda_weight_norm_forward_workspace(
    const planish_weight_norm_forward_args* args, int64_t* bytes);
PLANISH_C_API planish_status planish_cuda_weight_norm_backward_workspace(
    const planish_weight_norm_backward_args* args, int64_t* bytes);
/// Computes planish_weight_norm_forward on the GPU.
PLANISH_C_API planish_status planish_cuda_weight_norm_forward(
    const planish_weight_norm_forward_args* args, const planish_cuda_weight_norm_options* options);
/// Computes planish_weight_norm_backward on the GPU.
PLANISH_C_API planish_status planish_cuda_weight_norm_backward(
    const planish_weight_norm_backward_args* args, const planish_cuda_weight_norm_options* options);

/// Options of planish_cuda_group_norm_*.
typedef struct planish_cuda_group_norm_options {
  uint32_t struct_size;
  double eps;               ///< added to the variance, inside the root; finite, >= 0; default 1e-5
  void* stream;             ///< cudaStream_t; NULL: the default stream
  void* workspace;          ///< device memory, aligned to 16 bytes
  int64_t workspace_bytes;  ///< at least what the call's _workspace function writes
} planish_cuda_group_norm_options;
PLANISH_C_API planish_status
planish_cuda_group_norm_options_init(planish_cuda_group_norm_options* options, size_t size);

PLANISH_C_API planish_status planish_cuda_group_norm_forward_workspace(
    const planish_group_norm_forward_args* args, int64_t* bytes);
PLANISH_C_API planish_status planish_cuda_group_norm_backward_workspace(
    const planish_group_norm_backward_args* args, int64_t* bytes);
/// Computes planish_group_norm_forward on the GPU, for arrays whose channels are not last.
PLANISH_C_API planish_status planish_cuda_group_norm_forward(
    const planish_group_norm_forward_args* args, const planish_cuda_group_norm_options* options);
/// Computes planish_group_norm_backward on the GPU.
PLANISH_C_API planish_status planish_cuda_group_norm_backward(
    const planish_group_norm_backward_args* args, const planish_cuda_group_norm_options* options);

/// Options of planish_cuda_pointwise_norm_*.
typedef struct planish_cuda_pointwise_norm_options {
  uint32_t struct_size;
  void* stream;             ///< cudaStream_t; NULL: the default stream
  void* workspace;          ///< device memory, aligned to 16 bytes
  int64_t workspace_bytes;  ///< at least what the call's _workspace function writes
} planish_cuda_pointwise_norm_options;
PLANISH_C_API planish_status
planish_cuda_pointwise_norm_options_init(planish_cuda_pointwise_norm_options* options, size_t size);

PLANISH_C_API planish_status planish_cuda_pointwise_norm_forward_workspace(
    const planish_pointwise_norm_forward_args* args, int64_t* bytes);
PLANISH_C_API planish_status planish_cuda_pointwise_norm_backward_workspace(
    const planish_pointwise_norm_backward_args* args, int64_t* bytes);
/// Computes planish_pointwise_norm_forward on the GPU.
PLANISH_C_API planish_status planish_cuda_pointwise_norm_forward(
    planish_pointwise function, const planish_pointwise_norm_forward_args* args,
    const planish_cuda_pointwise_norm_options* options);
/// Computes planish_pointwise_norm_backward on the GPU.
PLANISH_C_API planish_status planish_cuda_pointwise_norm_backward(
    planish_pointwise function, const planish_pointwise_norm_backward_args* args,
    const planish_cuda_pointwise_norm_options* options);

/// Options of planish_cuda_online_norm_*.
typedef struct planish_cuda_online_norm_options {
  uint32_t struct_size;
  double alpha;             ///< weight of a new case, in [0, 1]; default 0.1
  const double* alphas;     ///< [rows] weight of each case, in device memory; or NULL
  void* stream;             ///< cudaStream_t; NULL: the default stream
  void* workspace;          ///< device memory, aligned to 16 bytes
  int64_t workspace_bytes;  ///< at least what the call's _workspace function writes
} planish_cuda_online_norm_options;
PLANISH_C_API planish_status
planish_cuda_online_norm_options_init(planish_cuda_online_norm_options* options, size_t size);

PLANISH_C_API planish_status planish_cuda_online_norm_forward_workspace(
    const planish_online_norm_forward_args* args, int64_t* bytes);
PLANISH_C_API planish_status planish_cuda_online_norm_backward_workspace(
    const planish_online_norm_backward_args* args, int64_t* bytes);
/// Computes planish_online_norm_forward on the GPU. `state` and options->alphas are in device
/// memory, and their ranges are not checked.
PLANISH_C_API planish_status planish_cuda_online_norm_forward(
    const planish_online_norm_forward_args* args, planish_online_state* state,
    const planish_cuda_online_norm_options* options);
/// Computes planish_online_norm_backward on the GPU.
PLANISH_C_API planish_status planish_cuda_online_norm_backward(
    const planish_online_norm_backward_args* args, const planish_cuda_online_norm_options* options);

// ---- Recurrent layers ----

/// Matrix product c = op(a) op(b) of contiguous device matrices, last index fastest. A set flag
/// makes op transpose the matrix; at most one of the two flags is set. The library fills this
/// struct.
typedef struct planish_cuda_matmul_args {
  uint32_t struct_size;
  planish_type type;  ///< of a, b and c
  int64_t rows;       ///< >= 1, like cols and inner
  int64_t cols;
  int64_t inner;
  const void* a;  ///< [rows, inner], or [inner, rows] if a_transposed
  const void* b;  ///< [inner, cols], or [cols, inner] if b_transposed
  void* c;        ///< [rows, cols], does not overlap a or b
  void* stream;   ///< cudaStream_t for the product
  int32_t a_transposed;
  int32_t b_transposed;
  int32_t accumulate;  ///< nonzero: adds to c instead of overwriting it
  int32_t reserved;    ///< 0
} planish_cuda_matmul_args;

/// Function of the caller that enqueues a matrix product on args->stream. Returns 0; another value
/// ends the call of Planish with PLANISH_CALLBACK_FAILED.
typedef int32_t (*planish_cuda_matmul_function)(void* context,
                                                const planish_cuda_matmul_args* args);

/// The caller's matrix product, such as one of a BLAS. With function = NULL a kernel of this
/// library multiplies: deterministic, but slower than a BLAS.
typedef struct planish_cuda_matmul {
  planish_cuda_matmul_function function;
  void* context;  ///< passed to `function`
} planish_cuda_matmul;

/// Options of planish_cuda_rnn_forward, planish_cuda_rnn_backward and planish_cuda_rnn_step.
typedef struct planish_cuda_rnn_options {
  uint32_t struct_size;
  /// Nonzero allows forward and backward to use a persistent kernel, where the layer fits
  /// (planish_cuda_rnn_fits_persistent; at most 32 sequences in backward). The kernel holds
  /// weight_hh in shared memory for all steps, which then call no matmul. Last bits can then differ
  /// from those of single steps and between kinds of device.
  int32_t persistent;
  double eps;                  ///< added to variances, in the root; finite, >= 0; default 1e-5
  void* stream;                ///< cudaStream_t; NULL: the default stream
  void* workspace;             ///< device memory, aligned to 16 bytes
  int64_t workspace_bytes;     ///< at least what the call's _workspace function writes
  planish_cuda_matmul matmul;  ///< multiplies matrices; default: a kernel of this library
} planish_cuda_rnn_options;
PLANISH_C_API planish_status planish_cuda_rnn_options_init(planish_cuda_rnn_options* options,
                                                           size_t size);

/// Writes the number of elements that planish_cuda_rnn_forward saves for planish_cuda_rnn_backward
/// to `*size`. See cuda_rnn.h for the number of each cell.
PLANISH_C_API planish_status planish_cuda_rnn_saved_size(planish_cell cell, planish_type type,
                                                         const planish_rnn_shape* shape,
                                                         int64_t* size);
/// Writes 1 to `*fits` if a persistent kernel can compute the forward pass of the layer on the
/// current device, else 0.
PLANISH_C_API planish_status planish_cuda_rnn_fits_persistent(planish_cell cell, planish_type type,
                                                              const planish_rnn_shape* shape,
                                                              int32_t* fits);
/// Writes the size in bytes of the workspace for a call with these arguments on the current device
/// to `*bytes`. Reads only `persistent` of the options. The other _workspace functions of layers do
/// the same for their calls.
PLANISH_C_API planish_status
planish_cuda_rnn_forward_workspace(planish_cell cell, const planish_rnn_forward_args* args,
                                   const planish_cuda_rnn_options* options, int64_t* bytes);
PLANISH_C_API planish_status
planish_cuda_rnn_backward_workspace(planish_cell cell, const planish_rnn_backward_args* args,
                                    const planish_cuda_rnn_options* options, int64_t* bytes);
PLANISH_C_API planish_status
planish_cuda_rnn_step_workspace(planish_cell cell, const planish_rnn_step_args* args,
                                const planish_cuda_rnn_options* options, int64_t* bytes);

/// Computes planish_rnn_forward on the GPU. `saved` is aligned to 16 bytes; its contents differ
/// from the CPU's. Lengths are in device memory and not checked: above T means T, below 1 no step.
PLANISH_C_API planish_status planish_cuda_rnn_forward(planish_cell cell,
                                                      const planish_rnn_forward_args* args,
                                                      const planish_cuda_rnn_options* options);
/// Computes planish_rnn_backward on the GPU.
PLANISH_C_API planish_status planish_cuda_rnn_backward(planish_cell cell,
                                                       const planish_rnn_backward_args* args,
                                                       const planish_cuda_rnn_options* options);
/// Computes planish_rnn_step on the GPU.
PLANISH_C_API planish_status planish_cuda_rnn_step(planish_cell cell,
                                                   const planish_rnn_step_args* args,
                                                   const planish_cuda_rnn_options* options);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // PLANISH_PLANISH_CUDA_H_
