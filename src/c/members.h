#ifndef PLANISH_SRC_C_MEMBERS_H_
#define PLANISH_SRC_C_MEMBERS_H_

#define PLANISH_C_ONLY
#include <concepts>
#include <cstddef>
#include <type_traits>

#include "planish/batch_norm.h"
#include "planish/channel_norm.h"
#include "planish/cuda.h"
#include "planish/cuda_rnn.h"
#include "planish/group_norm.h"
#include "planish/norm.h"
#include "planish/online_norm.h"
#include "planish/planish.h"
#include "planish/planish_cuda.h"
#include "planish/pointwise_norm.h"
#include "planish/rnn.h"
#include "planish/weight_norm.h"

// The structs of the C interface and their members. This table is the only definition of which C
// struct corresponds to which C++ struct. Conversions, defaults and tests derive from it.
namespace planish::internal::c {

/// PLANISH_EACH(macro, a, b, ...) is macro(a) macro(b) ..., for at most 80 arguments.
#define PLANISH_EACH(macro, ...) PLANISH_EXPAND(PLANISH_EACH_STEP(macro, __VA_ARGS__))
#define PLANISH_EACH_STEP(macro, first, ...) \
  macro(first) __VA_OPT__(PLANISH_EACH_LATER PLANISH_NO_ARGUMENTS(macro, __VA_ARGS__))
#define PLANISH_EACH_LATER() PLANISH_EACH_STEP
#define PLANISH_NO_ARGUMENTS ()
#define PLANISH_EXPAND(...) PLANISH_EXPAND_3(PLANISH_EXPAND_3(PLANISH_EXPAND_3(__VA_ARGS__)))
#define PLANISH_EXPAND_3(...) PLANISH_EXPAND_2(PLANISH_EXPAND_2(PLANISH_EXPAND_2(__VA_ARGS__)))
#define PLANISH_EXPAND_2(...) PLANISH_EXPAND_1(PLANISH_EXPAND_1(PLANISH_EXPAND_1(__VA_ARGS__)))
#define PLANISH_EXPAND_1(...) __VA_ARGS__

/// A struct of the C interface: `Cpp`, a C++ struct with the same members, and `kName`.
template <class S>
struct Struct;

/// A struct that programs initialize with its _init function.
template <class S>
concept Sized = requires(S s) {
  { s.struct_size } -> std::same_as<uint32_t&>;
};

/// Size of S in the first version, the minimum that callers pass. If a member is appended to S,
/// specialize this with its offset.
template <Sized S>
inline constexpr size_t kFirstSize = sizeof(S);
template <>
inline constexpr size_t kFirstSize<planish_norm_forward_args> =
    offsetof(planish_norm_forward_args, sets);
template <>
inline constexpr size_t kFirstSize<planish_norm_backward_args> =
    offsetof(planish_norm_backward_args, sets);
template <>
inline constexpr size_t kFirstSize<planish_rnn_params> = offsetof(planish_rnn_params, weight_hr);
template <>
inline constexpr size_t kFirstSize<planish_rnn_gradients> =
    offsetof(planish_rnn_gradients, weight_hr);
template <>
inline constexpr size_t kFirstSize<planish_rnn_pack_args> =
    offsetof(planish_rnn_pack_args, projected);
template <>
inline constexpr size_t kFirstSize<planish_rnn_inputs> = offsetof(planish_rnn_inputs, projected);
template <>
inline constexpr size_t kFirstSize<planish_rnn_step_args> =
    offsetof(planish_rnn_step_args, projected);

// Defines VisitMembers(s, cpp, visit), which calls visit(name, s.member, cpp.member) for each
// member of a C struct and the corresponding C++ struct. The structured binding names all members
// of the C++ struct: it does not compile if the struct has another one.
#define PLANISH_C_STRUCT(S, CPP, ...) PLANISH_C_STRUCT_AND(, S, CPP, __VA_ARGS__)
// Like PLANISH_C_STRUCT, and visits what the statements MORE visit.
#define PLANISH_C_STRUCT_AND(MORE, S, CPP, ...)                                               \
  template <>                                                                                 \
  struct Struct<S> {                                                                          \
    using Cpp = CPP;                                                                          \
    static constexpr const char* kName = #S;                                                  \
  };                                                                                          \
  template <class CStruct, class CppStruct, class Visit>                                      \
    requires std::same_as<std::remove_const_t<CStruct>, S>                                    \
  constexpr void VisitMembers(CStruct& c_struct, CppStruct& cpp_struct, const Visit& visit) { \
    {                                                                                         \
      [[maybe_unused]] auto& [__VA_ARGS__] = cpp_struct;                                      \
    }                                                                                         \
    PLANISH_EACH(PLANISH_VISIT_MEMBER, __VA_ARGS__)                                           \
    MORE                                                                                      \
  }
#define PLANISH_VISIT_MEMBER(member) visit(#member, c_struct.member, cpp_struct.member);

/// Parameters of RnnPackedParams's constructor.
template <class T>
struct RnnPackArgs {
  int64_t inputs = 0;
  int64_t hidden = 0;
  RnnParams<const T> params;
  ParallelFor parallel_for;
  bool backward = false;
  int64_t projected = 0;
  int64_t heads = 1;
  WeightType weight_type = WeightType::kFull;
};

PLANISH_C_STRUCT(planish_norm_options, NormOptions, eps, scale, slope, parallel_for, new_outputs)
PLANISH_C_STRUCT(planish_norm_forward_args, NormForwardArgs<float>, rows, cols, x, gain, bias, y,
                 mean, mean_lo, rstd, residual, sum, x_stride, y_stride, residual_stride,
                 sum_stride, sets, set_rows, gate, gate_stride, gate_before_norm, cast_before_gain,
                 quantized, row_scale, quantized_stride)
PLANISH_C_STRUCT(planish_norm_backward_args, NormBackwardArgs<float>, rows, cols, dy, x, gain, mean,
                 mean_lo, rstd, dx, dgain, dbias, dsum, dy_stride, x_stride, dx_stride, dsum_stride,
                 sets, set_rows, bias, gate, dgate, gate_stride, dgate_stride, gate_before_norm,
                 cast_before_gain)
PLANISH_C_STRUCT(planish_channel_norm_forward_args, ChannelNormForwardArgs<float>, batch, channels,
                 spatial, x, gain, bias, y, mean, mean_lo, rstd)
PLANISH_C_STRUCT(planish_channel_norm_backward_args, ChannelNormBackwardArgs<float>, batch,
                 channels, spatial, dy, x, gain, mean, mean_lo, rstd, dx, dgain, dbias)
PLANISH_C_STRUCT(planish_batch_norm_options, BatchNormOptions, eps, unbiased, momentum, batches,
                 parallel_for)
PLANISH_C_STRUCT(planish_batch_norm_forward_args, BatchNormForwardArgs<float>, batch, channels,
                 spatial, x, gain, bias, y, mean, mean_lo, rstd, running_mean, running_var)
PLANISH_C_STRUCT(planish_batch_norm_backward_args, BatchNormBackwardArgs<float>, batch, channels,
                 spatial, dy, x, gain, mean, mean_lo, rstd, dx, dgain, dbias)
PLANISH_C_STRUCT(planish_batch_norm_evaluate_args, BatchNormEvaluateArgs<float>, batch, channels,
                 spatial, x, gain, bias, running_mean, running_var, y)
PLANISH_C_STRUCT(planish_batch_norm_evaluate_backward_args, BatchNormEvaluateBackwardArgs<float>,
                 batch, channels, spatial, dy, x, gain, running_mean, running_var, dx, dgain, dbias)
PLANISH_C_STRUCT(planish_weight_norm_forward_args, WeightNormForwardArgs<float>, rows, cols, v, g,
                 w, norm)
PLANISH_C_STRUCT(planish_weight_norm_backward_args, WeightNormBackwardArgs<float>, rows, cols, dw,
                 v, g, norm, dv, dg)
PLANISH_C_STRUCT(planish_group_norm_options, GroupNormOptions, eps, channels_last, parallel_for)
PLANISH_C_STRUCT(planish_group_norm_forward_args, GroupNormForwardArgs<float>, batch, groups,
                 channels, spatial, x, gain, bias, y, mean, mean_lo, rstd)
PLANISH_C_STRUCT(planish_group_norm_backward_args, GroupNormBackwardArgs<float>, batch, groups,
                 channels, spatial, dy, x, gain, mean, mean_lo, rstd, dx, dgain, dbias)
PLANISH_C_STRUCT(planish_pointwise_norm_forward_args, PointwiseNormForwardArgs<float>, rows, cols,
                 x, alpha, shift, gain, bias, y)
PLANISH_C_STRUCT(planish_pointwise_norm_backward_args, PointwiseNormBackwardArgs<float>, rows, cols,
                 dy, x, alpha, shift, gain, dx, dalpha, dshift, dgain, dbias)
PLANISH_C_STRUCT(planish_online_norm_options, OnlineNormOptions, alpha, alphas, parallel_for)
PLANISH_C_STRUCT(planish_online_norm_forward_args, OnlineNormForwardArgs<float>, rows, cols, x,
                 gain, bias, y, mean, mean_lo, rstd, offset, deviation)
PLANISH_C_STRUCT(planish_online_norm_backward_args, OnlineNormBackwardArgs<float>, rows, cols, dy,
                 x, gain, mean, mean_lo, rstd, offset, deviation, dx, dgain, dbias)
PLANISH_C_STRUCT(planish_online_state, OnlineState, mean, deviation)
PLANISH_C_STRUCT(planish_rnn_params, RnnParams<const float>, weight_ih, weight_hh, bias, bias_hn,
                 ln_ih_weight, ln_ih_bias, ln_hh_weight, ln_hh_bias, ln_weight, ln_bias,
                 ln_c_weight, ln_c_bias, weight_hr)
PLANISH_C_STRUCT(planish_rnn_gradients, RnnParams<float>, weight_ih, weight_hh, bias, bias_hn,
                 ln_ih_weight, ln_ih_bias, ln_hh_weight, ln_hh_bias, ln_weight, ln_bias,
                 ln_c_weight, ln_c_bias, weight_hr)
PLANISH_C_STRUCT(planish_rnn_pack_args, RnnPackArgs<float>, inputs, hidden, params, parallel_for,
                 backward, projected, heads, weight_type)
PLANISH_C_STRUCT(planish_rnn_options, RnnOptions<float>, eps, checkpoint, parallel_for, packed)
// planish_rnn_shape cannot grow, because other structs contain it.
PLANISH_C_STRUCT_AND(visit("projected", c_struct.projected, cpp_struct.shape.projected);
                     visit("heads", c_struct.heads, cpp_struct.shape.heads);
                     , planish_rnn_inputs, RnnInputs<float>, shape, x, params, h0, c0, lengths,
                     resets, h_reset, c_reset, reverse)
PLANISH_C_STRUCT(planish_rnn_forward_args, RnnForwardArgs<float>, inputs, y, h_n, c_n, saved)
PLANISH_C_STRUCT(planish_rnn_backward_args, RnnBackwardArgs<float>, inputs, y, saved, dy, dh_n,
                 dc_n, dx, dparams, sums, dh0, dc0, dh_reset, dc_reset)
PLANISH_C_STRUCT(planish_rnn_step_args, RnnStepArgs<float>, batch, inputs, hidden, x, params, h, c,
                 h_next, c_next, projected, heads)

PLANISH_C_STRUCT(planish_cuda_norm_options, cuda::NormOptions, eps, scale, slope, stream, workspace,
                 workspace_bytes)
PLANISH_C_STRUCT(planish_cuda_batch_norm_options, cuda::BatchNormOptions, eps, unbiased, momentum,
                 batches, stream, workspace, workspace_bytes)
PLANISH_C_STRUCT(planish_cuda_weight_norm_options, cuda::WeightNormOptions, stream, workspace,
                 workspace_bytes)
PLANISH_C_STRUCT(planish_cuda_group_norm_options, cuda::GroupNormOptions, eps, stream, workspace,
                 workspace_bytes)
PLANISH_C_STRUCT(planish_cuda_pointwise_norm_options, cuda::PointwiseNormOptions, stream, workspace,
                 workspace_bytes)
PLANISH_C_STRUCT(planish_cuda_online_norm_options, cuda::OnlineNormOptions, alpha, alphas, stream,
                 workspace, workspace_bytes)
PLANISH_C_STRUCT(planish_cuda_matmul_args, cuda::MatmulArgs<float>, rows, cols, inner, a, b, c,
                 a_transposed, b_transposed, accumulate, stream)
PLANISH_C_STRUCT(planish_cuda_rnn_options, cuda::RnnOptions<float>, eps, stream, workspace,
                 workspace_bytes, matmul, persistent)

#undef PLANISH_C_STRUCT

}  // namespace planish::internal::c

#endif  // PLANISH_SRC_C_MEMBERS_H_
