#include "planish/norm.h"

#include "planish/batch_norm.h"
#include "planish/channel_norm.h"
#include "planish/group_norm.h"
#include "planish/online_norm.h"
#include "planish/pointwise_norm.h"
#include "planish/weight_norm.h"
#include "src/c/call.h"

// Norms of the C interface.
PLANISH_C_INIT(planish_norm_options)
PLANISH_C_INIT(planish_norm_forward_args)
PLANISH_C_INIT(planish_norm_backward_args)
PLANISH_C_INIT(planish_channel_norm_forward_args)
PLANISH_C_INIT(planish_channel_norm_backward_args)
PLANISH_C_INIT(planish_batch_norm_options)
PLANISH_C_INIT(planish_batch_norm_forward_args)
PLANISH_C_INIT(planish_batch_norm_backward_args)
PLANISH_C_INIT(planish_batch_norm_evaluate_args)
PLANISH_C_INIT(planish_batch_norm_evaluate_backward_args)
PLANISH_C_INIT(planish_weight_norm_forward_args)
PLANISH_C_INIT(planish_weight_norm_backward_args)
PLANISH_C_INIT(planish_group_norm_options)
PLANISH_C_INIT(planish_group_norm_forward_args)
PLANISH_C_INIT(planish_group_norm_backward_args)
PLANISH_C_INIT(planish_pointwise_norm_forward_args)
PLANISH_C_INIT(planish_pointwise_norm_backward_args)
PLANISH_C_INIT(planish_online_norm_options)
PLANISH_C_INIT(planish_online_norm_forward_args)
PLANISH_C_INIT(planish_online_norm_backward_args)

using planish::internal::c::CallNorm;
using planish::internal::c::CheckGiven;
using planish::internal::c::NormOf;
using planish::internal::c::PointwiseOf;

planish_status planish_norm_forward(planish_norm norm, const planish_norm_forward_args* args,
                                    const planish_norm_options* options) {
  return CallNorm<planish::NormForwardArgs, planish::NormOptions>(
      __func__, args, options, [&](const auto& to_args, const auto& to_options) {
        planish::NormForward(NormOf("planish_norm_forward", norm), to_args, to_options);
      });
}

planish_status planish_norm_backward(planish_norm norm, const planish_norm_backward_args* args,
                                     const planish_norm_options* options) {
  return CallNorm<planish::NormBackwardArgs, planish::NormOptions>(
      __func__, args, options, [&](const auto& to_args, const auto& to_options) {
        planish::NormBackward(NormOf("planish_norm_backward", norm), to_args, to_options);
      });
}

planish_status planish_channel_norm_forward(planish_norm norm,
                                            const planish_channel_norm_forward_args* args,
                                            const planish_norm_options* options) {
  return CallNorm<planish::ChannelNormForwardArgs, planish::NormOptions>(
      __func__, args, options, [&](const auto& to_args, const auto& to_options) {
        planish::ChannelNormForward(NormOf("planish_channel_norm_forward", norm), to_args,
                                    to_options);
      });
}

planish_status planish_channel_norm_backward(planish_norm norm,
                                             const planish_channel_norm_backward_args* args,
                                             const planish_norm_options* options) {
  return CallNorm<planish::ChannelNormBackwardArgs, planish::NormOptions>(
      __func__, args, options, [&](const auto& to_args, const auto& to_options) {
        planish::ChannelNormBackward(NormOf("planish_channel_norm_backward", norm), to_args,
                                     to_options);
      });
}

planish_status planish_batch_norm_forward(const planish_batch_norm_forward_args* args,
                                          const planish_batch_norm_options* options) {
  return CallNorm<planish::BatchNormForwardArgs, planish::BatchNormOptions>(
      __func__, args, options, [](const auto& to_args, const auto& to_options) {
        planish::BatchNormForward(to_args, to_options);
      });
}

planish_status planish_batch_norm_backward(const planish_batch_norm_backward_args* args,
                                           const planish_batch_norm_options* options) {
  return CallNorm<planish::BatchNormBackwardArgs, planish::BatchNormOptions>(
      __func__, args, options, [](const auto& to_args, const auto& to_options) {
        planish::BatchNormBackward(to_args, to_options);
      });
}

planish_status planish_batch_norm_evaluate(const planish_batch_norm_evaluate_args* args,
                                           const planish_batch_norm_options* options) {
  return CallNorm<planish::BatchNormEvaluateArgs, planish::BatchNormOptions>(
      __func__, args, options, [](const auto& to_args, const auto& to_options) {
        planish::BatchNormEvaluate(to_args, to_options);
      });
}

planish_status planish_batch_norm_evaluate_backward(
    const planish_batch_norm_evaluate_backward_args* args,
    const planish_batch_norm_options* options) {
  return CallNorm<planish::BatchNormEvaluateBackwardArgs, planish::BatchNormOptions>(
      __func__, args, options, [](const auto& to_args, const auto& to_options) {
        planish::BatchNormEvaluateBackward(to_args, to_options);
      });
}

planish_status planish_weight_norm_forward(const planish_weight_norm_forward_args* args,
                                           const planish_parallel_for* parallel_for) {
  return CallNorm<planish::WeightNormForwardArgs, planish::ParallelFor>(
      __func__, args, parallel_for, [](const auto& to_args, const auto& to_parallel_for) {
        planish::WeightNormForward(to_args, to_parallel_for);
      });
}

planish_status planish_weight_norm_backward(const planish_weight_norm_backward_args* args,
                                            const planish_parallel_for* parallel_for) {
  return CallNorm<planish::WeightNormBackwardArgs, planish::ParallelFor>(
      __func__, args, parallel_for, [](const auto& to_args, const auto& to_parallel_for) {
        planish::WeightNormBackward(to_args, to_parallel_for);
      });
}

planish_status planish_group_norm_forward(const planish_group_norm_forward_args* args,
                                          const planish_group_norm_options* options) {
  return CallNorm<planish::GroupNormForwardArgs, planish::GroupNormOptions>(
      __func__, args, options, [](const auto& to_args, const auto& to_options) {
        planish::GroupNormForward(to_args, to_options);
      });
}

planish_status planish_group_norm_backward(const planish_group_norm_backward_args* args,
                                           const planish_group_norm_options* options) {
  return CallNorm<planish::GroupNormBackwardArgs, planish::GroupNormOptions>(
      __func__, args, options, [](const auto& to_args, const auto& to_options) {
        planish::GroupNormBackward(to_args, to_options);
      });
}

planish_status planish_pointwise_norm_forward(planish_pointwise function,
                                              const planish_pointwise_norm_forward_args* args,
                                              const planish_parallel_for* parallel_for) {
  return CallNorm<planish::PointwiseNormForwardArgs, planish::ParallelFor>(
      __func__, args, parallel_for, [&](const auto& to_args, const auto& to_parallel_for) {
        planish::PointwiseNormForward(PointwiseOf("planish_pointwise_norm_forward", function),
                                      to_args, to_parallel_for);
      });
}

planish_status planish_pointwise_norm_backward(planish_pointwise function,
                                               const planish_pointwise_norm_backward_args* args,
                                               const planish_parallel_for* parallel_for) {
  return CallNorm<planish::PointwiseNormBackwardArgs, planish::ParallelFor>(
      __func__, args, parallel_for, [&](const auto& to_args, const auto& to_parallel_for) {
        planish::PointwiseNormBackward(PointwiseOf("planish_pointwise_norm_backward", function),
                                       to_args, to_parallel_for);
      });
}

planish_status planish_online_norm_forward(const planish_online_norm_forward_args* args,
                                           planish_online_state* state,
                                           const planish_online_norm_options* options) {
  return CallNorm<planish::OnlineNormForwardArgs, planish::OnlineNormOptions>(
      __func__, args, options, [&](const auto& to_args, const auto& to_options) {
        CheckGiven("planish_online_norm_forward", "state", "planish_online_state", state);
        planish::OnlineState to_state{state->mean, state->deviation};
        planish::OnlineNormForward(to_args, to_state, to_options);
        *state = {to_state.mean, to_state.deviation};
      });
}

planish_status planish_online_norm_backward(const planish_online_norm_backward_args* args,
                                            const planish_online_norm_options* options) {
  return CallNorm<planish::OnlineNormBackwardArgs, planish::OnlineNormOptions>(
      __func__, args, options, [](const auto& to_args, const auto& to_options) {
        planish::OnlineNormBackward(to_args, to_options);
      });
}
