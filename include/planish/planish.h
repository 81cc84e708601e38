#ifndef PLANISH_PLANISH_H_
#define PLANISH_PLANISH_H_

// The C interface of the CPU library: norms and recurrent layers, forward and backward. It is for C
// (C99 or newer) and for other languages through their C interface. It is also for C++ programs
// with another standard library or an older standard. The C++ interface is planish/core.h, the C
// interface for GPUs is planish_cuda.h. See docs/guides/other-languages.md for programs in C and
// Python.
//
// Example: LayerNorm of two rows of three.
//   const float x[6] = {1, 2, 3, 4, 5, 9};
//   float y[6];
//   planish_norm_forward_args args;
//   planish_norm_forward_args_init(&args, sizeof args);
//   args.type = PLANISH_FLOAT;
//   args.rows = 2;
//   args.cols = 3;
//   args.x = x;
//   args.y = y;
//   if (planish_norm_forward(PLANISH_NORM_LAYER, &args, NULL) != PLANISH_OK) {
//     fprintf(stderr, "%s\n", planish_error_message());
//   }
//   for (int i = 0; i < 6; ++i) printf("%.2f ", y[i]);
//   // prints -1.22 0.00 1.22 -0.93 -0.46 1.39
//
// Structs: a function has a norm or cell, a struct of arguments, and a struct of options, or NULL
// for the default options. Each struct is initialized by its _init function, which sets all fields
// to their defaults and stores the size that the caller passes. Defaults are 0 and NULL unless the
// field's comment gives another. Later versions append fields; a program compiled with an older
// header runs with a newer library, whose new fields then have their defaults. A program compiled
// with a newer header runs with an older library if it leaves the new fields at 0.
//
// Errors: a function returns PLANISH_OK or the reason of its failure, and planish_error_message()
// then has a sentence that names the argument. No C++ exception leaves a function. After
// PLANISH_INVALID_ARGUMENT no output has been written, unless PLANISH_THREADS is invalid. After
// PLANISH_OUT_OF_MEMORY planish_norm_* and planish_rnn_* have written nothing either. After other
// errors outputs are undefined. After any error further calls work.
//
// Arrays are contiguous, last index fastest, unless a stride is given. Sizes and strides count
// elements. An array needs the alignment of its element type. It is given as a pointer to void; the
// field `type` says what it points to. Mean, mean_lo, rstd and other statistics are double if the
// type is PLANISH_DOUBLE, and float for all other types.
//
// Aliasing: an output must not overlap another array of the call, except where its comment allows
// it ("may be x itself"). The overlap is an error.
//
// Lifetime: a call is synchronous. When it returns, the library has written the outputs and keeps
// no pointer to an argument. The handles planish_rnn_packed and planish_rnn_gradient_sums own
// copies of what they need; the caller frees them.
//
// Threads: all functions can be called from several threads at once, if no call writes an array or
// handle that another one uses. The exceptions are planish_set_target, which must not run while
// another thread computes, and planish_rnn_gradient_sums, which one thread uses at a time. A call
// splits large work over the library's own threads, or with a planish_parallel_for over those of
// the caller. If several calls run at once, only one uses the library's own threads.
//
// Determinism: the bits of a result depend only on the arguments and on the SIMD target. They are
// the same for any number of threads and any planish_parallel_for, and the same as in C++.
//
// Environment: PLANISH_THREADS is the number of the library's own threads, PLANISH_TARGET a SIMD
// target, and PLANISH_TUNING overrides thresholds (docs/tuning.md). Each is read at the first call.
#include <stddef.h>
#include <stdint.h>

#include "planish/version.h"

/// Exports a function of the C interface from the shared library.
#ifdef __GNUC__
#define PLANISH_C_API __attribute__((visibility("default")))
#else
#define PLANISH_C_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

// ---- Errors ----

/// Result of a function.
typedef int32_t planish_status;
enum {
  PLANISH_OK = 0,
  PLANISH_INVALID_ARGUMENT = 1,  ///< an argument, environment variable or call is invalid
  PLANISH_OUT_OF_MEMORY = 2,     ///< memory could not be allocated
  PLANISH_CALLBACK_FAILED = 3,   ///< a function of the caller returned nonzero
  PLANISH_NO_CUDA = 4,           ///< the library was built without CUDA
  PLANISH_DEVICE_ERROR = 5,      ///< the GPU or its driver refused a call
  PLANISH_INTERNAL_ERROR = 6     ///< any other C++ exception; please report it
};

/// Returns the message of the calling thread's last function that failed, such as
/// "[planish_norm_forward] rows must be at least 0, got -1"; "" if none has. Never returns NULL.
/// The text is valid until the next failure on this thread. Texts can change between versions.
PLANISH_C_API const char* planish_error_message(void);

// ---- Version and machine ----

/// Returns the version of the library, such as "0.2.0". PLANISH_VERSION is that of the header.
PLANISH_C_API const char* planish_version(void);

/// Returns facts about this build of the library and its use of this machine, for logs: lines such
/// as "compiler: GNU 12.2.0". version_info.h lists them. Returns NULL if PLANISH_TARGET or
/// PLANISH_TUNING is invalid or memory could not be allocated. The text is valid until the next
/// call on this thread.
PLANISH_C_API const char* planish_version_info(void);

/// Returns the names of the SIMD targets that this processor can run, best first, with a space
/// between two, such as "AVX3 AVX2 SSE4 EMU128". Returns NULL if memory could not be allocated.
PLANISH_C_API const char* planish_targets(void);

/// Returns the name of the SIMD target in use: the best one, unless PLANISH_TARGET or
/// planish_set_target names another. Returns NULL if PLANISH_TARGET is not one of
/// planish_targets(), and planish_error_message() then says so. The text is valid until the
/// program ends.
PLANISH_C_API const char* planish_target(void);

/// Makes all later calls use `name`, one of planish_targets(). Must not run while another thread
/// computes.
PLANISH_C_API planish_status planish_set_target(const char* name);

/// Writes the number of the library's own threads, including the calling one, to `*threads`. The
/// number is that of planish_set_threads, else PLANISH_THREADS, else the number of processors
/// available to the process.
PLANISH_C_API planish_status planish_threads(int32_t* threads);

/// Sets the number of the library's own threads, at least 1; more than 1,024 count as 1,024.
PLANISH_C_API planish_status planish_set_threads(int32_t threads);

// ---- Threads ----

/// Function of the library that processes the indices begin, begin + 1, ..., end - 1 of `task`.
typedef void (*planish_run_range)(const void* task, int64_t begin, int64_t end);

/// Function of the caller that runs `task` on several threads. It calls run(task, b, e) with ranges
/// that cover each index of [begin, end) exactly once, in any order and on any threads. It returns
/// when all of these calls have returned. A range of fewer than `grain` (>= 1) indices is not worth
/// a thread of its own. `context` is that of planish_parallel_for.
///
/// Returns 0. Another value ends the call of Planish with PLANISH_CALLBACK_FAILED. The function
/// must not throw an exception or jump out with longjmp.
typedef int32_t (*planish_parallel_for_function)(void* context, int64_t begin, int64_t end,
                                                 int64_t grain, planish_run_range run,
                                                 const void* task);

/// The caller's threads. Programs with threads of their own should pass them: two pools of threads
/// compete for the processors. With function = NULL the library's own threads run.
typedef struct planish_parallel_for {
  planish_parallel_for_function function;
  void* context;  ///< passed to `function`
} planish_parallel_for;

/// Runs `task` on the calling thread. Use it as a planish_parallel_for's function for no threads.
PLANISH_C_API int32_t planish_serial_for(void* context, int64_t begin, int64_t end, int64_t grain,
                                         planish_run_range run, const void* task);

// ---- Element types ----

/// Type of the elements of arrays. Arithmetic on 16-bit types is in float.
typedef int32_t planish_type;
enum {
  PLANISH_FLOAT = 1,
  PLANISH_DOUBLE = 2,
  PLANISH_BFLOAT16 = 3,  ///< upper half of a float; elements have the layout of uint16_t
  PLANISH_FLOAT16 = 4    ///< IEEE 754 binary16; elements have the layout of uint16_t
};

/// Return the value of a 16-bit element, exactly.
PLANISH_C_API float planish_bfloat16_to_float(uint16_t bits);
PLANISH_C_API float planish_float16_to_float(uint16_t bits);
/// Return the nearest 16-bit element, ties to even. NaN stays NaN.
PLANISH_C_API uint16_t planish_float_to_bfloat16(float value);
PLANISH_C_API uint16_t planish_float_to_float16(float value);

// ---- Norms ----

/// Selects a norm of rows. Every norm maps a row x of `cols` elements to
///   xhat = (x - mean) * rstd,   rstd = 1 / sqrt(var + eps),   var = mean((x - mean)^2)
/// and computes the output y from xhat. See docs/math.md for the equations' derivation.
typedef int32_t planish_norm;
enum {
  /// LayerNorm (Ba, Kiros & Hinton 2016, Eq. 3): y = gain * xhat + bias.
  PLANISH_NORM_LAYER = 0,
  /// LayerNorm-simple (Xu et al. 2019, section 3.1): y = xhat. Like all norms below except
  /// PLANISH_NORM_RMS, it takes no gain and no bias.
  PLANISH_NORM_LAYER_SIMPLE = 1,
  /// DetachNorm (Xu et al. 2019, Eq. 4): y = xhat. Backward treats mean and deviation as constants.
  PLANISH_NORM_DETACH = 2,
  /// DetachNorm of the mean only (Xu et al. 2019, Table 3).
  PLANISH_NORM_DETACH_MEAN = 3,
  /// DetachNorm of the deviation only (Xu et al. 2019, Table 3, "detach variance").
  PLANISH_NORM_DETACH_DEVIATION = 4,
  /// AdaNorm (Xu et al. 2019, Eq. 9): y = scale * (1 - slope * xhat) * xhat. Backward treats the
  /// factor scale * (1 - slope * xhat) as a constant.
  PLANISH_NORM_ADA = 5,
  /// AdaNorm as in its authors' code: PLANISH_NORM_ADA with the unbiased deviation and with eps
  /// outside the root. Its rstd = 1 / (sqrt(sum((x - mean)^2) / (cols - 1)) + eps). Requires cols
  /// >= 2.
  PLANISH_NORM_ADA_AS_CODED = 6,
  /// RMSNorm (Zhang & Sennrich 2019): y = gain * xhat + bias with mean 0, so that rstd = 1 /
  /// sqrt(mean(x^2) + eps).
  PLANISH_NORM_RMS = 7
};

/// Options of planish_norm_* and planish_channel_norm_*.
typedef struct planish_norm_options {
  uint32_t struct_size;  ///< set by planish_norm_options_init, as in all structs
  /// Nonzero if the output pages (y or dx) have never been touched, as fresh from mmap. Disables
  /// non-temporal stores for large outputs. Results are the same.
  int32_t new_outputs;
  double eps;    ///< added to the variance, inside the root; finite, >= 0; default 1e-5
  double scale;  ///< C of AdaNorm, finite; other norms ignore it; default 1
  double slope;  ///< k of AdaNorm, finite; other norms ignore it; default 0.1
  planish_parallel_for parallel_for;  ///< default: the library's own threads
} planish_norm_options;
PLANISH_C_API planish_status planish_norm_options_init(planish_norm_options* options, size_t size);

/// Arguments of planish_norm_forward.
typedef struct planish_norm_forward_args {
  uint32_t struct_size;
  planish_type type;        ///< of x, y, residual and sum; has no default
  planish_type param_type;  ///< of gain and bias: `type` or PLANISH_FLOAT; 0: `type`
  int64_t rows;             ///< number of rows, >= 0
  int64_t cols;             ///< elements of a row, >= 0
  const void* x;            ///< [rows, cols] rows to normalize
  const void* gain;         ///< [sets, cols], or NULL for ones
  const void* bias;         ///< [sets, cols], or NULL for zeros
  void* y;                  ///< [rows, cols] output; NULL: only quantized; may be x
  void* mean;               ///< [rows] mean, rounded; NULL: not saved
  void* mean_lo;            ///< [rows] low-order part of the mean; NULL: not saved
  void* rstd;               ///< [rows] 1 / sqrt(var + eps); NULL: not saved
  const void* residual;     ///< [rows, cols] added to x before the norm, or NULL
  void* sum;                ///< [rows, cols] x + residual, required then; may be x or residual
  int64_t x_stride;         ///< elements from one row of x to the next, >= cols; 0: cols
  int64_t y_stride;         ///< of y
  int64_t residual_stride;  ///< of residual
  int64_t sum_stride;       ///< of sum
  /// Number of parameter sets (a gain and a bias each); divides rows; default 1. Row r uses set
  /// (r / set_rows) % sets. With set_rows = 1 the statistics are stored as [sets, rows / sets].
  int64_t sets;
  int64_t set_rows;  ///< consecutive rows of a set: 1 or rows / sets; 0: rows / sets
  /// [rows, cols] z of a gate silu(z) = z / (1 + exp(-z)), or NULL for no gate. Without a gate, y is
  /// NORM(x). With one, y = NORM(x) * silu(z), or NORM(x * silu(z)) if gate_before_norm is set.
  const void* gate;
  int64_t gate_stride;       ///< of gate
  int32_t gate_before_norm;  ///< nonzero: multiply x, not NORM(x), by silu(z)
  /// Nonzero: round xhat to `type` before the product with the gain, as in Llama and T5; y is
  /// rounded again. With a gate after the norm, NORM(x) is rounded as well, as in Qwen3-Next.
  int32_t cast_before_gain;
  /// [rows, cols] y in int8, or NULL: round(y * (127 / max(|y|))), with the maximum over the row. If
  /// an element of y is not finite, 0.
  int8_t* quantized;
  void* row_scale;           ///< [rows] max(|y|) / 127, or NaN; required with quantized
  int64_t quantized_stride;  ///< of quantized
} planish_norm_forward_args;
PLANISH_C_API planish_status planish_norm_forward_args_init(planish_norm_forward_args* args,
                                                            size_t size);

/// Normalizes every row of x, or of x + residual, into y. Saves the statistics that
/// planish_norm_backward needs in the arrays given for them.
///
/// The result of a row depends on that row only. Statistics are accurate at any mean. A row with a
/// NaN or an infinity gives NaN, as does a constant row with eps = 0. With cols = 0 the statistics
/// are NaN.
PLANISH_C_API planish_status planish_norm_forward(planish_norm norm,
                                                  const planish_norm_forward_args* args,
                                                  const planish_norm_options* options);

/// Arguments of planish_norm_backward. For a loss L, dy = dL/dy and so on.
typedef struct planish_norm_backward_args {
  uint32_t struct_size;
  planish_type type;        ///< of dy, x, dx and dsum; has no default
  planish_type param_type;  ///< of gain, dgain and dbias: `type` or PLANISH_FLOAT; 0: `type`
  int64_t rows;             ///< number of rows, >= 0
  int64_t cols;             ///< elements of a row, >= 0
  const void* dy;           ///< [rows, cols] gradient of the output
  const void* x;            ///< [rows, cols] input of the forward call; with a residual, its `sum`
  const void* gain;         ///< [sets, cols], or NULL for ones, as in the forward call
  const void* mean;         ///< [rows] as saved by the forward call; ignored by RMSNorm
  const void* mean_lo;      ///< [rows] as saved by the forward call; ignored by RMSNorm
  const void* rstd;         ///< [rows] as saved by the forward call
  void* dx;                 ///< [rows, cols] gradient of x, or NULL; may be dy itself
  void* dgain;              ///< [sets, cols] gradient of the gain, or NULL
  void* dbias;              ///< [sets, cols] gradient of the bias, or NULL
  const void* dsum;         ///< [rows, cols] gradient of `sum`, added to dx, or NULL
  int64_t dy_stride;        ///< elements from one row of dy to the next, >= cols; 0: cols
  int64_t x_stride;         ///< of x
  int64_t dx_stride;        ///< of dx
  int64_t dsum_stride;      ///< of dsum
  int64_t sets;             ///< as in the forward call; default 1
  int64_t set_rows;         ///< as in the forward call
  const void* bias;          ///< [sets, cols] as in the forward call; only read for dgate
  const void* gate;          ///< [rows, cols] z, or NULL, as in the forward call
  void* dgate;               ///< [rows, cols] gradient of z, or NULL
  int64_t gate_stride;       ///< of gate
  int64_t dgate_stride;      ///< of dgate
  int32_t gate_before_norm;  ///< as in the forward call
  int32_t cast_before_gain;  ///< as in the forward call; the gradients do not depend on it
} planish_norm_backward_args;
PLANISH_C_API planish_status planish_norm_backward_args_init(planish_norm_backward_args* args,
                                                             size_t size);

/// Computes the requested gradients of planish_norm_forward, those of dx, dgain and dbias that are
/// not NULL, and overwrites their arrays. With means over the row:
///
///   g     = gain * dy                       (AdaNorm: scale * (1 - slope * xhat) * dy)
///   dx    = rstd * (g - a * mean(g) - b * xhat * mean(g * xhat))
///   dgain = sum over rows of dy * xhat
///   dbias = sum over rows of dy
///
/// a = 0 for RMSNorm, DETACH_MEAN and DETACH; b = 0 for DETACH_DEVIATION and DETACH; otherwise both
/// are 1. DETACH reads neither x, mean nor mean_lo. See docs/math.md for b of ADA_AS_CODED. Only
/// ADA_AS_CODED uses `options->eps` here; for other norms `rstd` already contains it. With a gate,
/// s = silu(z) and s' = dsilu(z)/dz:
///
///   y = NORM(x) * s:  the above with dy * s in place of dy, and dz = dy * NORM(x) * s'
///   y = NORM(x * s):  the above gives du for u = x * s; dx = du * s, dz = du * x * s'
PLANISH_C_API planish_status planish_norm_backward(planish_norm norm,
                                                   const planish_norm_backward_args* args,
                                                   const planish_norm_options* options);

// ---- Norms over the channels of images ----

/// Arguments of planish_channel_norm_forward. Element (b, c, s) of x [batch, channels, spatial] is
/// at (b * channels + c) * spatial + s.
typedef struct planish_channel_norm_forward_args {
  uint32_t struct_size;
  planish_type type;        ///< of x and y; has no default
  planish_type param_type;  ///< of gain and bias: `type` or PLANISH_FLOAT; 0: `type`
  int64_t batch;            ///< samples, >= 0
  int64_t channels;         ///< elements that are normalized together, >= 0
  int64_t spatial;          ///< positions of a sample, >= 0; default 1
  const void* x;            ///< [batch, channels, spatial] input
  const void* gain;         ///< [channels], or NULL for ones
  const void* bias;         ///< [channels], or NULL for zeros
  void* y;                  ///< [batch, channels, spatial] output; may be x itself
  void* mean;               ///< [batch, spatial] mean, rounded; NULL: not saved
  void* mean_lo;            ///< [batch, spatial] low-order part of the mean; NULL: not saved
  void* rstd;               ///< [batch, spatial] 1 / sqrt(var + eps); NULL: not saved
} planish_channel_norm_forward_args;
PLANISH_C_API planish_status
planish_channel_norm_forward_args_init(planish_channel_norm_forward_args* args, size_t size);

/// Normalizes the channels at every position (b, s) as planish_norm_forward normalizes a row.
PLANISH_C_API planish_status
planish_channel_norm_forward(planish_norm norm, const planish_channel_norm_forward_args* args,
                             const planish_norm_options* options);

/// Arguments of planish_channel_norm_backward. For a loss L, dy = dL/dy and so on.
typedef struct planish_channel_norm_backward_args {
  uint32_t struct_size;
  planish_type type;        ///< of dy, x and dx; has no default
  planish_type param_type;  ///< of gain, dgain and dbias: `type` or PLANISH_FLOAT; 0: `type`
  int64_t batch;            ///< samples, >= 0
  int64_t channels;         ///< elements that are normalized together, >= 0
  int64_t spatial;          ///< positions of a sample, >= 0; default 1
  const void* dy;           ///< [batch, channels, spatial] gradient of the output
  const void* x;            ///< [batch, channels, spatial] input of the forward call
  const void* gain;         ///< [channels], or NULL for ones, as in the forward call
  const void* mean;         ///< [batch, spatial] as saved; ignored by RMSNorm
  const void* mean_lo;      ///< [batch, spatial] as saved; ignored by RMSNorm
  const void* rstd;         ///< [batch, spatial] as saved
  void* dx;                 ///< [batch, channels, spatial] gradient of x, or NULL; may be dy itself
  void* dgain;              ///< [channels] gradient of the gain, or NULL
  void* dbias;              ///< [channels] gradient of the bias, or NULL
} planish_channel_norm_backward_args;
PLANISH_C_API planish_status
planish_channel_norm_backward_args_init(planish_channel_norm_backward_args* args, size_t size);

/// Computes the gradients of planish_channel_norm_forward as planish_norm_backward does for rows.
/// dgain and dbias are sums over the batch and all positions.
PLANISH_C_API planish_status
planish_channel_norm_backward(planish_norm norm, const planish_channel_norm_backward_args* args,
                              const planish_norm_options* options);

// ---- Batch normalization ----
//
// Batch normalization (Ioffe & Szegedy 2015; Ba, Kiros & Hinton 2016, Eq. 2). Each channel c of x
// [batch, channels, spatial] is normalized over its n = batch * spatial elements:
//   y = gain[c] * xhat + bias[c],   xhat = (x - mean[c]) * rstd[c],   rstd = 1 / sqrt(var + eps)
// Training uses the mean and variance of these elements, evaluation their running estimates.

/// Value of planish_batch_norm_options.momentum: the running estimates are averages over all
/// batches, so the weight of this batch is 1 / (batches + 1). PyTorch's momentum=None.
#define PLANISH_MOMENTUM_AVERAGE (-1.0)

/// Options of planish_batch_norm_*.
typedef struct planish_batch_norm_options {
  uint32_t struct_size;
  /// Nonzero: divides by the root of the unbiased variance, sum((x - mean)^2) / (n - 1), instead of
  /// the biased one, / n (Ba et al. 6.6). Requires n >= 2.
  int32_t unbiased;
  double eps;       ///< added to the variance, inside the root; finite, >= 0; default 1e-5
  double momentum;  ///< weight of this batch in the running estimates, in [0, 1], or
                    ///< PLANISH_MOMENTUM_AVERAGE; default 0.1. Only forward reads it
  int64_t batches;  ///< batches already in the running estimates, >= 0. Only forward reads it
  planish_parallel_for parallel_for;  ///< default: the library's own threads
} planish_batch_norm_options;
PLANISH_C_API planish_status planish_batch_norm_options_init(planish_batch_norm_options* options,
                                                             size_t size);

/// Arguments of planish_batch_norm_forward.
typedef struct planish_batch_norm_forward_args {
  uint32_t struct_size;
  planish_type type;        ///< of x and y; has no default
  planish_type param_type;  ///< of gain and bias: `type` or PLANISH_FLOAT; 0: `type`
  int64_t batch;            ///< samples, >= 0
  int64_t channels;         ///< >= 0
  int64_t spatial;          ///< elements of a channel in a sample, >= 0; default 1
  const void* x;            ///< [batch, channels, spatial] input
  const void* gain;         ///< [channels], or NULL for ones
  const void* bias;         ///< [channels], or NULL for zeros
  void* y;                  ///< [batch, channels, spatial] output; may be x itself
  void* mean;               ///< [channels] mean, rounded; NULL: not saved
  void* mean_lo;            ///< [channels] low-order part of the mean; NULL: not saved
  void* rstd;               ///< [channels] 1 / sqrt(var + eps); NULL: not saved
  void* running_mean;       ///< [channels] statistics, updated in place, or NULL
  void* running_var;        ///< [channels] statistics, updated, unbiased; or NULL
} planish_batch_norm_forward_args;
PLANISH_C_API planish_status
planish_batch_norm_forward_args_init(planish_batch_norm_forward_args* args, size_t size);

/// Normalizes every channel by the statistics of this batch. Saves the statistics that
/// planish_batch_norm_backward needs, and updates the running estimates, in the arrays given:
///
///   running_mean = (1 - momentum) * running_mean + momentum * mean
///   running_var  = (1 - momentum) * running_var + momentum * sum((x - mean)^2) / (n - 1)
///
/// The running variance is always the unbiased one. A constant channel gives the bias, or NaN with
/// eps = 0. With n = 0 the statistics are NaN and the running estimates stay unchanged. n = 1 is an
/// error with `unbiased` or `running_var`.
PLANISH_C_API planish_status planish_batch_norm_forward(const planish_batch_norm_forward_args* args,
                                                        const planish_batch_norm_options* options);

/// Arguments of planish_batch_norm_backward. For a loss L, dy = dL/dy and so on.
typedef struct planish_batch_norm_backward_args {
  uint32_t struct_size;
  planish_type type;        ///< of dy, x and dx; has no default
  planish_type param_type;  ///< of gain, dgain and dbias: `type` or PLANISH_FLOAT; 0: `type`
  int64_t batch;            ///< samples, >= 0
  int64_t channels;         ///< >= 0
  int64_t spatial;          ///< elements of a channel in a sample, >= 0; default 1
  const void* dy;           ///< [batch, channels, spatial] gradient of the output
  const void* x;            ///< [batch, channels, spatial] input of the forward call
  const void* gain;         ///< [channels], or NULL for ones, as in the forward call
  const void* mean;         ///< [channels] as saved by the forward call
  const void* mean_lo;      ///< [channels] as saved by the forward call
  const void* rstd;         ///< [channels] as saved by the forward call
  void* dx;                 ///< [batch, channels, spatial] gradient of x, or NULL; may be dy itself
  void* dgain;              ///< [channels] gradient of the gain, or NULL
  void* dbias;              ///< [channels] gradient of the bias, or NULL
} planish_batch_norm_backward_args;
PLANISH_C_API planish_status
planish_batch_norm_backward_args_init(planish_batch_norm_backward_args* args, size_t size);

/// Computes the requested gradients of planish_batch_norm_forward, those whose arrays are not NULL,
/// and overwrites these arrays. Sums run over the n elements of a channel; m = n - 1 with
/// `unbiased`, else n:
///
///   dbias = sum(dy)
///   dgain = sum(dy * xhat)
///   dx    = gain * rstd * (dy - dbias / n - xhat * dgain / m)
PLANISH_C_API planish_status planish_batch_norm_backward(
    const planish_batch_norm_backward_args* args, const planish_batch_norm_options* options);

/// Arguments of planish_batch_norm_evaluate.
typedef struct planish_batch_norm_evaluate_args {
  uint32_t struct_size;
  planish_type type;         ///< of x and y; has no default
  planish_type param_type;   ///< of gain and bias: `type` or PLANISH_FLOAT; 0: `type`
  int64_t batch;             ///< samples, >= 0
  int64_t channels;          ///< >= 0
  int64_t spatial;           ///< elements of a channel in a sample, >= 0; default 1
  const void* x;             ///< [batch, channels, spatial] input
  const void* gain;          ///< [channels], or NULL for ones
  const void* bias;          ///< [channels], or NULL for zeros
  const void* running_mean;  ///< [channels] statistics
  const void* running_var;   ///< [channels] statistics
  void* y;                   ///< [batch, channels, spatial] output; may be x itself
} planish_batch_norm_evaluate_args;
PLANISH_C_API planish_status
planish_batch_norm_evaluate_args_init(planish_batch_norm_evaluate_args* args, size_t size);

/// Computes y = gain * (x - running_mean) / sqrt(running_var + eps) + bias for every channel. A
/// negative running_var + eps gives NaN.
PLANISH_C_API planish_status planish_batch_norm_evaluate(
    const planish_batch_norm_evaluate_args* args, const planish_batch_norm_options* options);

/// Arguments of planish_batch_norm_evaluate_backward.
typedef struct planish_batch_norm_evaluate_backward_args {
  uint32_t struct_size;
  planish_type type;         ///< of dy, x and dx; has no default
  planish_type param_type;   ///< of gain, dgain and dbias: `type` or PLANISH_FLOAT; 0: `type`
  int64_t batch;             ///< samples, >= 0
  int64_t channels;          ///< >= 0
  int64_t spatial;           ///< elements of a channel in a sample, >= 0; default 1
  const void* dy;            ///< [batch, channels, spatial] gradient of the output
  const void* x;             ///< [batch, channels, spatial]; only dgain needs it
  const void* gain;          ///< [channels], or NULL for ones
  const void* running_mean;  ///< [channels] statistics; only dgain needs it
  const void* running_var;   ///< [channels] statistics
  void* dx;     ///< [batch, channels, spatial] gradient of x, or NULL; may be dy itself
  void* dgain;  ///< [channels] gradient of the gain, or NULL
  void* dbias;  ///< [channels] gradient of the bias, or NULL
} planish_batch_norm_evaluate_backward_args;
PLANISH_C_API planish_status planish_batch_norm_evaluate_backward_args_init(
    planish_batch_norm_evaluate_backward_args* args, size_t size);

/// Computes the gradients of planish_batch_norm_evaluate. The running estimates are constants:
///
///   dbias = sum(dy)
///   dgain = sum(dy * xhat)
///   dx    = gain * rstd * dy,   rstd = 1 / sqrt(running_var + eps)
PLANISH_C_API planish_status
planish_batch_norm_evaluate_backward(const planish_batch_norm_evaluate_backward_args* args,
                                     const planish_batch_norm_options* options);

// ---- Weight normalization ----
//
// Weight normalization (Salimans & Kingma 2016; Ba, Kiros & Hinton 2016, Eq. 5). Each row of the
// weights has a direction v and a length g: w = g * v / ||v||, with ||v|| = sqrt(sum(v^2)).

/// Arguments of planish_weight_norm_forward.
typedef struct planish_weight_norm_forward_args {
  uint32_t struct_size;
  planish_type type;        ///< of v and w; has no default
  planish_type param_type;  ///< of g: `type` or PLANISH_FLOAT; 0: `type`
  int64_t rows;             ///< rows of the weight matrix, >= 0
  int64_t cols;             ///< elements of a row, >= 0
  const void* v;            ///< [rows, cols] directions
  const void* g;            ///< [rows] lengths
  void* w;                  ///< [rows, cols] weights; may be v itself
  void* norm;               ///< [rows] ||v||, statistics; NULL: not saved
} planish_weight_norm_forward_args;
PLANISH_C_API planish_status
planish_weight_norm_forward_args_init(planish_weight_norm_forward_args* args, size_t size);

/// Computes w = g * v / ||v|| for every row, and saves ||v|| if `norm` is given. `parallel_for` can
/// be NULL. Squares neither overflow nor underflow. A row of zeros gives NaN, with norm 0.
PLANISH_C_API planish_status planish_weight_norm_forward(
    const planish_weight_norm_forward_args* args, const planish_parallel_for* parallel_for);

/// Arguments of planish_weight_norm_backward. For a loss L, dw = dL/dw and so on.
typedef struct planish_weight_norm_backward_args {
  uint32_t struct_size;
  planish_type type;        ///< of dw, v and dv; has no default
  planish_type param_type;  ///< of g and dg: `type` or PLANISH_FLOAT; 0: `type`
  int64_t rows;             ///< rows of the weight matrix, >= 0
  int64_t cols;             ///< elements of a row, >= 0
  const void* dw;           ///< [rows, cols] gradient of the weights
  const void* v;            ///< [rows, cols] directions
  const void* g;            ///< [rows] lengths; only dv needs them
  const void* norm;         ///< [rows] as saved by the forward call
  void* dv;                 ///< [rows, cols] gradient of v, or NULL; may be dw itself
  void* dg;                 ///< [rows] gradient of g, or NULL
} planish_weight_norm_backward_args;
PLANISH_C_API planish_status
planish_weight_norm_backward_args_init(planish_weight_norm_backward_args* args, size_t size);

/// Computes the requested gradients of planish_weight_norm_forward, those whose arrays are not
/// NULL, and overwrites these arrays. Sums run over a row:
///
///   dg = sum(dw * v) / ||v||
///   dv = g / ||v|| * (dw - v / ||v|| * dg)
PLANISH_C_API planish_status planish_weight_norm_backward(
    const planish_weight_norm_backward_args* args, const planish_parallel_for* parallel_for);

// ---- Group normalization ----
//
// Group normalization (Wu & He 2018) of x [batch, channels, spatial]. Each group of channels /
// groups adjacent channels of a sample is normalized by its own mean and biased variance. With
// groups = channels this is instance normalization.

/// Options of planish_group_norm_*.
typedef struct planish_group_norm_options {
  uint32_t struct_size;
  int32_t channels_last;  ///< nonzero: arrays are [batch, spatial, channels]
  double eps;             ///< added to the variance, inside the root; finite, >= 0; default 1e-5
  planish_parallel_for parallel_for;  ///< default: the library's own threads
} planish_group_norm_options;
PLANISH_C_API planish_status planish_group_norm_options_init(planish_group_norm_options* options,
                                                             size_t size);

/// Arguments of planish_group_norm_forward.
typedef struct planish_group_norm_forward_args {
  uint32_t struct_size;
  planish_type type;        ///< of x and y; has no default
  planish_type param_type;  ///< of gain and bias: `type` or PLANISH_FLOAT; 0: `type`
  int64_t batch;            ///< samples, >= 0
  int64_t groups;           ///< groups of a sample, >= 1; divides channels; default 1
  int64_t channels;         ///< >= 0
  int64_t spatial;          ///< elements of a channel in a sample, >= 0; default 1
  const void* x;            ///< [batch, channels, spatial] input
  const void* gain;         ///< [channels], or NULL for ones
  const void* bias;         ///< [channels], or NULL for zeros
  void* y;                  ///< [batch, channels, spatial] output; may be x itself
  void* mean;               ///< [batch, groups] mean, rounded; NULL: not saved
  void* mean_lo;            ///< [batch, groups] low-order part of the mean; NULL: not saved
  void* rstd;               ///< [batch, groups] 1 / sqrt(var + eps); NULL: not saved
} planish_group_norm_forward_args;
PLANISH_C_API planish_status
planish_group_norm_forward_args_init(planish_group_norm_forward_args* args, size_t size);

/// Normalizes every group of every sample by its own statistics.
PLANISH_C_API planish_status planish_group_norm_forward(const planish_group_norm_forward_args* args,
                                                        const planish_group_norm_options* options);

/// Arguments of planish_group_norm_backward. For a loss L, dy = dL/dy and so on.
typedef struct planish_group_norm_backward_args {
  uint32_t struct_size;
  planish_type type;        ///< of dy, x and dx; has no default
  planish_type param_type;  ///< of gain, dgain and dbias: `type` or PLANISH_FLOAT; 0: `type`
  int64_t batch;            ///< samples, >= 0
  int64_t groups;           ///< groups of a sample, >= 1; divides channels; default 1
  int64_t channels;         ///< >= 0
  int64_t spatial;          ///< elements of a channel in a sample, >= 0; default 1
  const void* dy;           ///< [batch, channels, spatial] gradient of the output
  const void* x;            ///< [batch, channels, spatial] input of the forward call
  const void* gain;         ///< [channels], or NULL for ones, as in the forward call
  const void* mean;         ///< [batch, groups] as saved
  const void* mean_lo;      ///< [batch, groups] as saved
  const void* rstd;         ///< [batch, groups] as saved
  void* dx;                 ///< [batch, channels, spatial] gradient of x, or NULL; may be dy itself
  void* dgain;              ///< [channels] gradient of the gain, or NULL
  void* dbias;              ///< [channels] gradient of the bias, or NULL
} planish_group_norm_backward_args;
PLANISH_C_API planish_status
planish_group_norm_backward_args_init(planish_group_norm_backward_args* args, size_t size);

/// Computes the requested gradients of planish_group_norm_forward, those whose arrays are not NULL,
/// and overwrites these arrays. With g = gain * dy, and means over a group:
///
///   dx    = rstd * (g - mean(g) - xhat * mean(g * xhat))
///   dgain = sum(dy * xhat) and dbias = sum(dy), over samples and positions
PLANISH_C_API planish_status planish_group_norm_backward(
    const planish_group_norm_backward_args* args, const planish_group_norm_options* options);

// ---- Pointwise functions ----
//
// Functions of single elements that replace a norm: y = gain * f(alpha * x + shift) + bias. DyT
// (Zhu et al. 2025) has f = tanh and no shift, Derf (Chen et al. 2025) f = erf. alpha starts as
// 0.5.

/// Selects f.
typedef int32_t planish_pointwise;
enum {
  PLANISH_POINTWISE_TANH = 0,  ///< hyperbolic tangent: DyT
  PLANISH_POINTWISE_ERF = 1    ///< error function: Derf
};

/// Arguments of planish_pointwise_norm_forward.
typedef struct planish_pointwise_norm_forward_args {
  uint32_t struct_size;
  planish_type type;        ///< of x and y; has no default
  planish_type param_type;  ///< of alpha, shift, gain, bias: `type` or PLANISH_FLOAT; 0: `type`
  int64_t rows;             ///< >= 0
  int64_t cols;             ///< >= 0
  const void* x;            ///< [rows, cols] input
  const void* alpha;        ///< [1] factor of x
  const void* shift;        ///< [1] added to alpha * x, or NULL for 0
  const void* gain;         ///< [cols], or NULL for ones
  const void* bias;         ///< [cols], or NULL for zeros
  void* y;                  ///< [rows, cols] output; may be x itself
} planish_pointwise_norm_forward_args;
PLANISH_C_API planish_status
planish_pointwise_norm_forward_args_init(planish_pointwise_norm_forward_args* args, size_t size);

/// Computes y = gain * f(alpha * x + shift) + bias. `parallel_for` can be NULL. NaN gives NaN.
PLANISH_C_API planish_status planish_pointwise_norm_forward(
    planish_pointwise function, const planish_pointwise_norm_forward_args* args,
    const planish_parallel_for* parallel_for);

/// Arguments of planish_pointwise_norm_backward. For a loss L, dy = dL/dy and so on.
typedef struct planish_pointwise_norm_backward_args {
  uint32_t struct_size;
  planish_type type;        ///< of dy, x and dx; has no default
  planish_type param_type;  ///< of the parameters and their gradients, as in the forward call
  int64_t rows;             ///< >= 0
  int64_t cols;             ///< >= 0
  const void* dy;           ///< [rows, cols] gradient of the output
  const void* x;            ///< [rows, cols] input of the forward call
  const void* alpha;        ///< [1], as in the forward call
  const void* shift;        ///< [1], or NULL for 0, as in the forward call
  const void* gain;         ///< [cols], or NULL for ones, as in the forward call
  void* dx;                 ///< [rows, cols] gradient of x, or NULL; may be dy itself
  void* dalpha;             ///< [1] gradient of alpha, or NULL
  void* dshift;             ///< [1] gradient of shift, or NULL
  void* dgain;              ///< [cols] gradient of the gain, or NULL
  void* dbias;              ///< [cols] gradient of the bias, or NULL
} planish_pointwise_norm_backward_args;
PLANISH_C_API planish_status
planish_pointwise_norm_backward_args_init(planish_pointwise_norm_backward_args* args, size_t size);

/// Computes the requested gradients of planish_pointwise_norm_forward, those whose arrays are not
/// NULL, and overwrites these arrays. With z = alpha * x + shift:
///
///   dx     = alpha * g,   g = dy * gain * f'(z)
///   dalpha = sum(g * x),  dshift = sum(g)
///   dgain  = sum over rows of dy * f(z),   dbias = sum over rows of dy
PLANISH_C_API planish_status planish_pointwise_norm_backward(
    planish_pointwise function, const planish_pointwise_norm_backward_args* args,
    const planish_parallel_for* parallel_for);

// ---- Online layer normalization ----
//
// One mean and one deviation for a layer, updated from case to case. The rows of an array are cases
// in order: row t reads the state that row t - 1 wrote. See docs/math.md for the derivation and the
// source.

/// State carried from case to case. Starts as {0, 1}.
typedef struct planish_online_state {
  double mean;       ///< mu, finite
  double deviation;  ///< sigma, finite, >= 0
} planish_online_state;

/// Options of planish_online_norm_*.
typedef struct planish_online_norm_options {
  uint32_t struct_size;
  double alpha;                       ///< weight of a new case, in [0, 1]; default 0.1
  const double* alphas;               ///< [rows] one weight for each case, or NULL for alpha
  planish_parallel_for parallel_for;  ///< default: the library's own threads
} planish_online_norm_options;
PLANISH_C_API planish_status planish_online_norm_options_init(planish_online_norm_options* options,
                                                              size_t size);

/// Arguments of planish_online_norm_forward.
typedef struct planish_online_norm_forward_args {
  uint32_t struct_size;
  planish_type type;        ///< of x and y; has no default
  planish_type param_type;  ///< of gain and bias: `type` or PLANISH_FLOAT; 0: `type`
  int64_t rows;             ///< number of cases, >= 0
  int64_t cols;             ///< elements of a case, >= 2
  const void* x;            ///< [rows, cols] cases, in order
  const void* gain;         ///< [cols], or NULL for ones
  const void* bias;         ///< [cols], or NULL for zeros
  void* y;                  ///< [rows, cols] output; may be x itself
  void* mean;               ///< [rows] mu_t, rounded; NULL: not saved, as for the next four
  void* mean_lo;            ///< [rows] low-order part of the mean
  void* rstd;               ///< [rows] 1 / sigma_t
  void* offset;             ///< [rows] mean of the case minus mu_t
  void* deviation;          ///< [rows] s_t
} planish_online_norm_forward_args;
PLANISH_C_API planish_status
planish_online_norm_forward_args_init(planish_online_norm_forward_args* args, size_t size);

/// Normalizes cases in order and updates `*state`, which must not be NULL:
///
///   mu_t    = alpha * mean(x) + (1 - alpha) * mu_(t-1)
///   s_t     = sqrt(sum((x - mu_t)^2) / (cols - 1))
///   sigma_t = alpha * s_t + (1 - alpha) * sigma_(t-1)
///   y       = gain * (x - mu_t) / sigma_t + bias
///
/// One call for many cases gives the same bits as one call for each. There is no eps: sigma_t = 0,
/// possible only with alpha = 1 and a constant case, gives NaN. A NaN makes all later cases NaN.
PLANISH_C_API planish_status planish_online_norm_forward(
    const planish_online_norm_forward_args* args, planish_online_state* state,
    const planish_online_norm_options* options);

/// Arguments of planish_online_norm_backward. For a loss L, dy = dL/dy and so on.
typedef struct planish_online_norm_backward_args {
  uint32_t struct_size;
  planish_type type;        ///< of dy, x and dx; has no default
  planish_type param_type;  ///< of gain, dgain and dbias: `type` or PLANISH_FLOAT; 0: `type`
  int64_t rows;             ///< number of cases, >= 0
  int64_t cols;             ///< elements of a case, >= 2
  const void* dy;           ///< [rows, cols] gradient of the output
  const void* x;            ///< [rows, cols] input of the forward call
  const void* gain;         ///< [cols], or NULL for ones, as in the forward call
  const void* mean;         ///< [rows] as saved by the forward call, like the next four
  const void* mean_lo;      ///< [rows]
  const void* rstd;         ///< [rows]
  const void* offset;       ///< [rows]
  const void* deviation;    ///< [rows]
  void* dx;                 ///< [rows, cols] gradient of x, or NULL; may be dy itself
  void* dgain;              ///< [cols] gradient of the gain, or NULL
  void* dbias;              ///< [cols] gradient of the bias, or NULL
} planish_online_norm_backward_args;
PLANISH_C_API planish_status
planish_online_norm_backward_args_init(planish_online_norm_backward_args* args, size_t size);

/// Computes the gradients of planish_online_norm_forward, with the same alpha. The state before a
/// case is treated as a constant. With z = (x - mu_t) / sigma_t and g = gain * dy:
///
///   dx    = (g - alpha * mean(g) - b * (z - alpha * mean(z)) * mean(g * z)) / sigma_t,
///           b = alpha * sigma_t * cols / ((cols - 1) * s_t), or 0 if s_t is 0
///   dgain = sum over rows of dy * z,   dbias = sum over rows of dy
PLANISH_C_API planish_status planish_online_norm_backward(
    const planish_online_norm_backward_args* args, const planish_online_norm_options* options);

// ---- Recurrent layers ----
//
// Recurrent layers over whole sequences and step by step: plain, with layer normalization, or with
// recurrent batch normalization. Layer normalization is that of Ba, Kiros & Hinton 2016, section
// 3.1 and supplement, and of the LN-LSTMs of other libraries.
//
// Sizes: T steps in time, B sequences, I inputs, H hidden units. G = gates * H. An RNN has 1 gate,
// an LSTM 4 (i, f, g, o, as in PyTorch) and a GRU 3 (r, z, n). Types: PLANISH_FLOAT and
// PLANISH_DOUBLE.

/// Selects the cell. s() is the logistic function; * between vectors is elementwise. The gate
/// preactivations a are computed from zx = weight_ih x_t and zh = weight_hh h_{t-1}. LN(z; p) is
/// the layer normalization (z - mean) / sqrt(var + eps) of a row, with gain p_weight and bias
/// p_bias.
///
///   RNN    h_t = f(a)
///   LSTM   c_t = s(f) * c_{t-1} + s(i) * tanh(g),   h_t = s(o) * tanh(c_t)
///   GRU    n = tanh(ax_n + s(r) * ah_n),   h_t = (1 - s(z)) * n + s(z) * h_{t-1}
///
/// The GRU is PyTorch's: its z is 1 - z in the paper's Eq. 28.
typedef int32_t planish_cell;
enum {
  /// Elman's RNN: a = zx + zh + bias, f = tanh.
  PLANISH_CELL_RNN = 0,
  /// RNN with f = relu.
  PLANISH_CELL_RNN_RELU = 1,
  /// LSTM of PyTorch: a = zx + zh + bias.
  PLANISH_CELL_LSTM = 2,
  /// GRU of PyTorch: ax = zx + bias and ah = zh, with bias_hn added to ah_n.
  PLANISH_CELL_GRU = 3,
  /// LN-RNN (Ba et al., Eq. 4): a = LN(zx + zh; ln_weight, ln_bias), f = tanh.
  PLANISH_CELL_LN_RNN = 4,
  /// LN-RNN with f = relu.
  PLANISH_CELL_LN_RNN_RELU = 5,
  /// LN-LSTM (Ba et al., Eq. 20-22): a = LN(zx; ln_ih) + LN(zh; ln_hh) + bias, each LN over all 4H
  /// elements, and h_t = s(o) * tanh(LN(c_t; ln_c)). The next step reads c_t itself.
  PLANISH_CELL_LN_LSTM = 6,
  /// LN-LSTM of haste: LN_LSTM without ln_ih_bias and ln_hh_bias.
  PLANISH_CELL_LN_LSTM_HASTE = 7,
  /// LN-LSTM of PyTorch's fastrnns benchmark: LN_LSTM without bias; the next step reads LN(c_t;
  /// ln_c).
  PLANISH_CELL_LN_LSTM_FASTRNNS = 8,
  /// LN-LSTM of TensorFlow Addons: LN_LSTM_FASTRNNS with bias. Its default eps is 1e-3.
  PLANISH_CELL_LN_LSTM_TFA = 9,
  /// LN-LSTM of TensorFlow 1's contrib: a = LN(zx + zh; ln_weight, ln_bias), one LN over the H
  /// elements of each gate. The next step reads LN(c_t; ln_c). Add its forget_bias to ln_bias.
  PLANISH_CELL_LN_LSTM_CONTRIB = 10,
  /// LSTM of DRAW (Ba et al., Eq. 29-31): a = zx + zh + bias, h_t = s(o) * tanh(LN(c_t; ln_c)).
  PLANISH_CELL_DRAW_LSTM = 11,
  /// LN-GRU (Ba et al., Eq. 26-28): ax = LN(zx; ln_ih), ah = LN(zh; ln_hh). One LN covers the 2H
  /// elements of r and z, another the H elements of n.
  PLANISH_CELL_LN_GRU = 12,
  /// LN-RNN with recurrent batch normalization: every element is normalized over the batch, with
  /// the statistics of its time step. For training only, like the next two cells: there are no
  /// running estimates, and no single steps.
  PLANISH_CELL_BN_RNN = 13,
  /// Batch-normalized LSTM (Cooijmans et al. 2016, Eq. 6-8): LN_LSTM_HASTE over the batch.
  PLANISH_CELL_BN_LSTM = 14,
  /// LN-GRU over the batch.
  PLANISH_CELL_BN_GRU = 15,
  /// LN-LSTM of torchaudio's RNN-T: a = LN(zx + zh; ln_weight, ln_bias), one LN over all 4H
  /// elements. The next step reads LN(c_t; ln_c).
  PLANISH_CELL_LN_LSTM_TORCHAUDIO = 16,
  /// LN-LSTM of TensorFlow Lite: a = LN(zx + zh; ln_weight) + bias, one LN over the H elements of
  /// each gate. c is not normalized.
  PLANISH_CELL_LN_LSTM_TFLITE = 17,
  /// LN-GRU of haste: ax = LN(zx; ln_ih_weight) + bias, ah = LN(zh; ln_hh_weight), each LN over all
  /// 3H elements, with bias_hn added to ah_n.
  PLANISH_CELL_LN_GRU_HASTE = 18,
  /// GRU of DreamerV3: a = LN(zx + zh; ln_weight, ln_bias), one LN over all 3H elements, and n =
  /// tanh(s(r) * a_n). Its update gate s(u - 1) is 1 - s(z): a_z = 1 - a_u.
  PLANISH_CELL_LN_GRU_DREAMER = 19,
  /// sLSTM of xLSTM (Beck et al. 2024, Eq. 8-17), whose cell state has 2H elements: c / n, then
  /// log(n); a NULL state has n = 0. rnn.h has the equations.
  PLANISH_CELL_SLSTM = 20
};

/// Sizes of a layer.
typedef struct planish_rnn_shape {
  int64_t time;    ///< T, steps of the longest sequence, >= 0
  int64_t batch;   ///< B, sequences, >= 0
  int64_t inputs;  ///< I, elements of an input, >= 1
  int64_t hidden;  ///< H, elements of a state, >= 1
} planish_rnn_shape;

/// Parameters of a layer. The equation of a cell names its parameters; all others must be NULL.
/// Weights are required; a NULL gain means ones, a NULL bias zeros.
typedef struct planish_rnn_params {
  uint32_t struct_size;
  const void* weight_ih;     ///< [G, I] input weights
  const void* weight_hh;     ///< [G, O / N] recurrent weights
  const void* bias;          ///< [G] added after the norms of the preactivations
  const void* bias_hn;       ///< [H] GRU: added to ah_n; the rest of PyTorch's bias_hh is in bias
  const void* ln_ih_weight;  ///< [G] gain of the norm of zx
  const void* ln_ih_bias;    ///< [G] bias of the norm of zx
  const void* ln_hh_weight;  ///< [G] gain of the norm of zh
  const void* ln_hh_bias;    ///< [G] bias of the norm of zh
  const void* ln_weight;     ///< [G] gain of the norm of zx + zh
  const void* ln_bias;       ///< [G] bias of the norm of zx + zh
  const void* ln_c_weight;   ///< [H] gain of the norm of c
  const void* ln_c_bias;     ///< [H] bias of the norm of c
  const void* weight_hr;     ///< [O, H] projection, required with `projected`
} planish_rnn_params;
PLANISH_C_API planish_status planish_rnn_params_init(planish_rnn_params* params, size_t size);

/// Gradients of a layer's parameters, each with the shape of its parameter or NULL.
typedef struct planish_rnn_gradients {
  uint32_t struct_size;
  void* weight_ih;
  void* weight_hh;
  void* bias;
  void* bias_hn;
  void* ln_ih_weight;
  void* ln_ih_bias;
  void* ln_hh_weight;
  void* ln_hh_bias;
  void* ln_weight;
  void* ln_bias;
  void* ln_c_weight;
  void* ln_c_bias;
  void* weight_hr;
} planish_rnn_gradients;
PLANISH_C_API planish_status planish_rnn_gradients_init(planish_rnn_gradients* gradients,
                                                        size_t size);

/// Packed weights of a layer: a copy of the parameters, rearranged for the kernels and reusable in
/// many calls, on several threads at once. A call without packed weights packs them itself, which
/// for a single step takes longer than the step.
typedef struct planish_rnn_packed planish_rnn_packed;

/// Storage type of packed weights. planish/rnn.h says what types other than FULL change.
typedef int64_t planish_weight_type;
enum {
  PLANISH_WEIGHT_FULL = 0,      ///< the type of the layer
  PLANISH_WEIGHT_BFLOAT16 = 1,  ///< float weights, rounded to bfloat16
  PLANISH_WEIGHT_INT8 = 2  ///< float weights, rounded to int8 with a float scale for each row
};

/// Arguments of planish_rnn_pack.
typedef struct planish_rnn_pack_args {
  uint32_t struct_size;
  planish_type type;  ///< of the parameters; has no default
  int32_t backward;   ///< nonzero: also for planish_rnn_backward, which takes twice the memory
  int64_t inputs;     ///< I, >= 1
  int64_t hidden;     ///< H, >= 1
  const planish_rnn_params* params;   ///< required; not read after the call
  planish_parallel_for parallel_for;  ///< default: the library's own threads
  int64_t projected;                  ///< as in planish_rnn_inputs
  int64_t heads;                      ///< as in planish_rnn_inputs; default 1
  /// Type in which the weights are stored. Others than PLANISH_WEIGHT_FULL are for PLANISH_FLOAT
  /// without `backward`.
  planish_weight_type weight_type;
} planish_rnn_pack_args;
PLANISH_C_API planish_status planish_rnn_pack_args_init(planish_rnn_pack_args* args, size_t size);

/// Packs the parameters of a layer. Writes a handle to `*packed`, or NULL if it fails.
PLANISH_C_API planish_status planish_rnn_pack(planish_cell cell, const planish_rnn_pack_args* args,
                                              planish_rnn_packed** packed);

/// Frees packed weights; NULL is allowed. They must not be in use by a call.
PLANISH_C_API void planish_rnn_packed_free(planish_rnn_packed* packed);

/// Gradients of a layer's parameters, accumulated over calls of planish_rnn_backward. Meant for
/// steps taken one by one because an input depends on the last output. Instead of updating the
/// weight gradients at every step, it copies states and inputs, and multiplies 256 rows (steps
/// times sequences) at a time.
///
/// One thread uses it at a time. After a call with it has failed with PLANISH_CALLBACK_FAILED, it
/// can only be freed.
typedef struct planish_rnn_gradient_sums planish_rnn_gradient_sums;

/// Creates sums that start at zero, for weights that were packed with `backward`. Writes a handle
/// to `*sums`, or NULL if it fails. The packed weights can be freed before the sums.
PLANISH_C_API planish_status planish_rnn_gradient_sums_create(const planish_rnn_packed* packed,
                                                              planish_rnn_gradient_sums** sums);

/// Overwrites the given arrays with the accumulated gradients. Accumulation can continue
/// afterwards. `parallel_for` can be NULL.
///
/// For at most ceil(256 / B) steps the results have the bits of planish_rnn_backward of the whole
/// sequence; otherwise they can be rounded differently.
PLANISH_C_API planish_status planish_rnn_gradient_sums_write(
    planish_rnn_gradient_sums* sums, const planish_rnn_gradients* gradients,
    const planish_parallel_for* parallel_for);

/// Frees sums; NULL is allowed.
PLANISH_C_API void planish_rnn_gradient_sums_free(planish_rnn_gradient_sums* sums);

/// Options of planish_rnn_forward, planish_rnn_backward and planish_rnn_step.
typedef struct planish_rnn_options {
  uint32_t struct_size;
  /// Nonzero saves memory for backward: forward keeps the cell state of every S-th step only, with
  /// S = max(ceil(sqrt(T)), ceil(256 / B)). Backward recomputes the other steps, at the cost of a
  /// forward pass, and gives the same bits.
  int32_t checkpoint;
  double eps;  ///< added to variances, in the root; finite, >= 0; default 1e-5
  planish_parallel_for parallel_for;  ///< default: the library's own threads
  /// Packed weights of the same type and cell, or NULL; for planish_rnn_backward packed with
  /// `backward`. The params of the arguments are then not read and can be NULL.
  const planish_rnn_packed* packed;
} planish_rnn_options;
PLANISH_C_API planish_status planish_rnn_options_init(planish_rnn_options* options, size_t size);

/// Inputs of a layer for the forward and the backward pass.
///
/// Beyond lengths[b], inputs of sequence b are not read, y is 0 and the state stays unchanged. In
/// reverse, each sequence starts at its own last step. A reset replaces the state of a sequence by
/// h_reset and c_reset before the step, in either direction. No gradient passes a reset except
/// those of h_reset and c_reset.
typedef struct planish_rnn_inputs {
  uint32_t struct_size;
  int32_t reverse;  ///< nonzero: processes the steps from last to first
  planish_rnn_shape shape;
  const void* x;                     ///< [T, B, I] inputs
  const planish_rnn_params* params;  ///< parameters that the cell takes; NULL with packed weights
  const void* h0;          ///< [B, O] hidden state before the first step, or NULL for zeros
  const void* c0;          ///< [B, H] cell state before the first step (LSTMs), or NULL for zeros
  const int64_t* lengths;  ///< [B] each in [1, T], in any order; NULL: all are T
  const uint8_t* resets;   ///< [T, B] nonzero: reset before this step; NULL: no resets
  const void* h_reset;     ///< [O] hidden state after a reset, or NULL for zeros
  const void* c_reset;     ///< [H] cell state after a reset (LSTMs), or NULL for zeros
  int64_t projected;       ///< O of an LSTM with a projection, < H; 0: no projection, O = H
  /// N, divides H; 1 with a projection; default 1. weight_hh is block-diagonal: a head's gates get
  /// only the head's part of the state. Norms are over all heads.
  int64_t heads;
} planish_rnn_inputs;
PLANISH_C_API planish_status planish_rnn_inputs_init(planish_rnn_inputs* inputs, size_t size);

/// Writes the number of elements that planish_rnn_forward saves for planish_rnn_backward to
/// `*size`. Without checkpoint each of the T * B steps saves a number of elements that rnn.h lists
/// by cell.
PLANISH_C_API planish_status planish_rnn_saved_size(planish_cell cell, planish_type type,
                                                    const planish_rnn_shape* shape,
                                                    int32_t checkpoint, int64_t* size);

/// Arguments of planish_rnn_forward.
typedef struct planish_rnn_forward_args {
  uint32_t struct_size;
  planish_type type;                 ///< of all arrays except lengths and resets; has no default
  const planish_rnn_inputs* inputs;  ///< required
  void* y;                           ///< [T, B, O] hidden state after every step
  void* h_n;    ///< [B, O] hidden state after the last step of each sequence, or NULL
  void* c_n;    ///< [B, H] cell state after the last step (LSTMs), or NULL
  void* saved;  ///< [planish_rnn_saved_size] for planish_rnn_backward; NULL: not saved
} planish_rnn_forward_args;
PLANISH_C_API planish_status planish_rnn_forward_args_init(planish_rnn_forward_args* args,
                                                           size_t size);

/// Computes y [T, B, O] and the last states of a layer from x [T, B, I]. Saves the values that
/// planish_rnn_backward needs if `saved` is given.
///
/// The result of a sequence depends on that sequence only, except for cells with batch norm; a NaN
/// stays in its sequence. Steps taken one by one with planish_rnn_step give the same bits. With
/// T = 0 the last states are the first ones.
PLANISH_C_API planish_status planish_rnn_forward(planish_cell cell,
                                                 const planish_rnn_forward_args* args,
                                                 const planish_rnn_options* options);

/// Arguments of planish_rnn_backward. For a loss L, dy = dL/dy and so on. Output gradients are
/// optional and overwrite their arrays.
typedef struct planish_rnn_backward_args {
  uint32_t struct_size;
  planish_type type;                 ///< of all arrays except lengths and resets; has no default
  const planish_rnn_inputs* inputs;  ///< required; as in planish_rnn_forward
  const void* y;                     ///< [T, B, O] as written by planish_rnn_forward
  const void* saved;                 ///< as written by planish_rnn_forward with the same options
  const void* dy;                    ///< [T, B, O] gradient of y, or NULL for zeros
  const void* dh_n;                  ///< [B, O] gradient of h_n, or NULL for zeros
  const void* dc_n;                  ///< [B, H] gradient of c_n, or NULL for zeros
  void* dx;                          ///< [T, B, I]; 0 beyond the length of a sequence
  const planish_rnn_gradients* dparams;  ///< gradients of the parameters, or NULL
  /// Accumulates the parameters' gradients, in place of dparams. Must be created from
  /// options->packed. Or NULL.
  planish_rnn_gradient_sums* sums;
  void* dh0;       ///< [B, O]
  void* dc0;       ///< [B, H]
  void* dh_reset;  ///< [O]
  void* dc_reset;  ///< [H]
} planish_rnn_backward_args;
PLANISH_C_API planish_status planish_rnn_backward_args_init(planish_rnn_backward_args* args,
                                                            size_t size);

/// Backpropagates dy, dh_n and dc_n through time. Writes the requested gradients, those whose
/// arrays are not NULL. They are the derivatives of L = sum(dy * y) + sum(dh_n * h_n) + sum(dc_n *
/// c_n). Gradients of parameters, h_reset and c_reset are sums over T and B.
///
/// To differentiate a single step, call planish_rnn_forward with T = 1, the last state as h0, and
/// `saved`. Then call planish_rnn_backward with T = 1 and `sums`; dh_n and dc_n are the gradients
/// of the state after the step.
PLANISH_C_API planish_status planish_rnn_backward(planish_cell cell,
                                                  const planish_rnn_backward_args* args,
                                                  const planish_rnn_options* options);

/// Arguments of planish_rnn_step.
typedef struct planish_rnn_step_args {
  uint32_t struct_size;
  planish_type type;                 ///< of all arrays; has no default
  int64_t batch;                     ///< B, >= 0
  int64_t inputs;                    ///< I, >= 1
  int64_t hidden;                    ///< H, >= 1
  const void* x;                     ///< [B, I] inputs of the step
  const planish_rnn_params* params;  ///< parameters that the cell takes; NULL with packed weights
  const void* h;                     ///< [B, O] hidden state before the step, or NULL for zeros
  const void* c;                     ///< [B, H] cell state before (LSTMs), or NULL for zeros
  void* h_next;                      ///< [B, O] hidden state after the step; may be h itself
  void* c_next;                      ///< [B, H] cell state after (LSTMs), or NULL; may be c itself
  int64_t projected;                 ///< as in planish_rnn_inputs
  int64_t heads;                     ///< as in planish_rnn_inputs; default 1
} planish_rnn_step_args;
PLANISH_C_API planish_status planish_rnn_step_args_init(planish_rnn_step_args* args, size_t size);

/// Computes one step of a layer: planish_rnn_forward with T = 1, without `saved`, and with states
/// that can be updated in place. It does not read options->checkpoint. With packed weights it
/// allocates no memory after the first call of this size on a thread. Cells with batch norm are an
/// error.
PLANISH_C_API planish_status planish_rnn_step(planish_cell cell, const planish_rnn_step_args* args,
                                              const planish_rnn_options* options);

#ifdef __cplusplus
}  // extern "C"
#endif

// Until this header became the C interface, it included all C++ headers. C++20 code that relies on
// it still compiles in this release, with a note; the next minor version removes the note and the
// include. PLANISH_C_ONLY, defined before the include, leaves out both.
#if defined(__cplusplus) && __cplusplus >= 202002L && !defined(PLANISH_C_ONLY)
#pragma message( \
    "planish/planish.h is the C interface: include planish/core.h for C++, or define PLANISH_C_ONLY")
#include "planish/core.h"
#endif

#endif  // PLANISH_PLANISH_H_
