#include "planish/cuda.h"

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "planish/cuda_rnn.h"
#include "src/c/call.h"

// Norms and recurrent layers of the C interface on a GPU.
namespace c = planish::internal::c;
namespace cuda = planish::cuda;

namespace {

/// Write the workspace of a call with these arguments to `*bytes`.
template <template <class, class> class Args, class CArgs>
planish_status WriteWorkspace(const char* function, const CArgs* args, int64_t* bytes) noexcept {
  return c::Guarded(function, [&] {
    c::CheckGiven(function, "bytes", "number", bytes);
    c::WithNormArgs<Args>(c::Converter(function), args,
                          [&](const auto& to_args) { *bytes = cuda::WorkspaceBytes(to_args); });
  });
}
template <template <class> class Args, class CArgs>
planish_status WriteWorkspace(const char* function, planish_cell cell, const CArgs* args,
                              const planish_cuda_rnn_options* options, int64_t* bytes) noexcept {
  return c::CallRnn<Args, cuda::RnnOptions>(
      function, cell, args, options,
      [&](planish::Cell to_cell, const auto& to_args, const auto& to_options) {
        c::CheckGiven(function, "bytes", "number", bytes);
        *bytes = cuda::WorkspaceBytes(to_cell, to_args, to_options);
      });
}

/// Writes f.operator()<T>(cell, shape) of a recurrent layer to `*result`.
template <class Result, class F>
planish_status WriteRnnSize(const char* function, const char* name, planish_cell cell,
                            planish_type type, const planish_rnn_shape* shape, Result* result,
                            const F& f) noexcept {
  return c::Guarded(function, [&] {
    c::CheckGiven(function, "shape", "planish_rnn_shape", shape);
    c::CheckGiven(function, name, "number", result);
    c::WithRnnType(function, type, [&]<class T> {
      *result = f.template operator()<T>(c::CellOf(function, cell), c::ShapeOf(*shape));
    });
  });
}

/// Returns a state in device memory, which the C++ functions read and write in place.
planish::OnlineState* StateOf(planish_online_state* state) {
  using Cpp = planish::OnlineState;
  static_assert(std::is_standard_layout_v<Cpp> && sizeof(Cpp) == sizeof *state &&
                offsetof(Cpp, mean) == offsetof(planish_online_state, mean) &&
                offsetof(Cpp, deviation) == offsetof(planish_online_state, deviation));
  return reinterpret_cast<Cpp*>(state);
}

}  // namespace

int32_t planish_cuda_devices(void) {
  int32_t devices = 0;
  c::Guarded(__func__, [&] { devices = cuda::Devices(); });
  return devices;
}

PLANISH_C_INIT(planish_cuda_norm_options)
PLANISH_C_INIT(planish_cuda_batch_norm_options)
PLANISH_C_INIT(planish_cuda_weight_norm_options)
PLANISH_C_INIT(planish_cuda_group_norm_options)
PLANISH_C_INIT(planish_cuda_pointwise_norm_options)
PLANISH_C_INIT(planish_cuda_online_norm_options)
PLANISH_C_INIT(planish_cuda_rnn_options)

planish_status planish_cuda_norm_forward_workspace(const planish_norm_forward_args* args,
                                                   int64_t* bytes) {
  return WriteWorkspace<planish::NormForwardArgs>(__func__, args, bytes);
}
planish_status planish_cuda_norm_backward_workspace(const planish_norm_backward_args* args,
                                                    int64_t* bytes) {
  return WriteWorkspace<planish::NormBackwardArgs>(__func__, args, bytes);
}
planish_status planish_cuda_channel_norm_forward_workspace(
    const planish_channel_norm_forward_args* args, int64_t* bytes) {
  return WriteWorkspace<planish::ChannelNormForwardArgs>(__func__, args, bytes);
}
planish_status planish_cuda_channel_norm_backward_workspace(
    const planish_channel_norm_backward_args* args, int64_t* bytes) {
  return WriteWorkspace<planish::ChannelNormBackwardArgs>(__func__, args, bytes);
}
planish_status planish_cuda_batch_norm_forward_workspace(
    const planish_batch_norm_forward_args* args, int64_t* bytes) {
  return WriteWorkspace<planish::BatchNormForwardArgs>(__func__, args, bytes);
}
planish_status planish_cuda_batch_norm_backward_workspace(
    const planish_batch_norm_backward_args* args, int64_t* bytes) {
  return WriteWorkspace<planish::BatchNormBackwardArgs>(__func__, args, bytes);
}
planish_status planish_cuda_batch_norm_evaluate_workspace(
    const planish_batch_norm_evaluate_args* args, int64_t* bytes) {
  return WriteWorkspace<planish::BatchNormEvaluateArgs>(__func__, args, bytes);
}
planish_status planish_cuda_batch_norm_evaluate_backward_workspace(
    const planish_batch_norm_evaluate_backward_args* args, int64_t* bytes) {
  return WriteWorkspace<planish::BatchNormEvaluateBackwardArgs>(__func__, args, bytes);
}
planish_status planish_cuda_weight_norm_forward_workspace(
    const planish_weight_norm_forward_args* args, int64_t* bytes) {
  return WriteWorkspace<planish::WeightNormForwardArgs>(__func__, args, bytes);
}
planish_status planish_cuda_weight_norm_backward_workspace(
    const planish_weight_norm_backward_args* args, int64_t* bytes) {
  return WriteWorkspace<planish::WeightNormBackwardArgs>(__func__, args, bytes);
}
planish_status planish_cuda_group_norm_forward_workspace(
    const planish_group_norm_forward_args* args, int64_t* bytes) {
  return WriteWorkspace<planish::GroupNormForwardArgs>(__func__, args, bytes);
}
planish_status planish_cuda_group_norm_backward_workspace(
    const planish_group_norm_backward_args* args, int64_t* bytes) {
  return WriteWorkspace<planish::GroupNormBackwardArgs>(__func__, args, bytes);
}
planish_status planish_cuda_pointwise_norm_forward_workspace(
    const planish_pointwise_norm_forward_args* args, int64_t* bytes) {
  return WriteWorkspace<planish::PointwiseNormForwardArgs>(__func__, args, bytes);
}
planish_status planish_cuda_pointwise_norm_backward_workspace(
    const planish_pointwise_norm_backward_args* args, int64_t* bytes) {
  return WriteWorkspace<planish::PointwiseNormBackwardArgs>(__func__, args, bytes);
}
planish_status planish_cuda_online_norm_forward_workspace(
    const planish_online_norm_forward_args* args, int64_t* bytes) {
  return WriteWorkspace<planish::OnlineNormForwardArgs>(__func__, args, bytes);
}
planish_status planish_cuda_online_norm_backward_workspace(
    const planish_online_norm_backward_args* args, int64_t* bytes) {
  return WriteWorkspace<planish::OnlineNormBackwardArgs>(__func__, args, bytes);
}

planish_status planish_cuda_norm_forward(planish_norm norm, const planish_norm_forward_args* args,
                                         const planish_cuda_norm_options* options) {
  return c::CallNorm<planish::NormForwardArgs, cuda::NormOptions>(
      __func__, args, options, [&](const auto& to_args, const auto& to_options) {
        cuda::NormForward(c::NormOf("planish_cuda_norm_forward", norm), to_args, to_options);
      });
}

planish_status planish_cuda_norm_backward(planish_norm norm, const planish_norm_backward_args* args,
                                          const planish_cuda_norm_options* options) {
  return c::CallNorm<planish::NormBackwardArgs, cuda::NormOptions>(
      __func__, args, options, [&](const auto& to_args, const auto& to_options) {
        cuda::NormBackward(c::NormOf("planish_cuda_norm_backward", norm), to_args, to_options);
      });
}

planish_status planish_cuda_channel_norm_forward(planish_norm norm,
                                                 const planish_channel_norm_forward_args* args,
                                                 const planish_cuda_norm_options* options) {
  return c::CallNorm<planish::ChannelNormForwardArgs, cuda::NormOptions>(
      __func__, args, options, [&](const auto& to_args, const auto& to_options) {
        cuda::ChannelNormForward(c::NormOf("planish_cuda_channel_norm_forward", norm), to_args,
                                 to_options);
      });
}

planish_status planish_cuda_channel_norm_backward(planish_norm norm,
                                                  const planish_channel_norm_backward_args* args,
                                                  const planish_cuda_norm_options* options) {
  return c::CallNorm<planish::ChannelNormBackwardArgs, cuda::NormOptions>(
      __func__, args, options, [&](const auto& to_args, const auto& to_options) {
        cuda::ChannelNormBackward(c::NormOf("planish_cuda_channel_norm_backward", norm), to_args,
                                  to_options);
      });
}

planish_status planish_cuda_batch_norm_forward(const planish_batch_norm_forward_args* args,
                                               const planish_cuda_batch_norm_options* options) {
  return c::CallNorm<planish::BatchNormForwardArgs, cuda::BatchNormOptions>(
      __func__, args, options, [](const auto& to_args, const auto& to_options) {
        cuda::BatchNormForward(to_args, to_options);
      });
}

planish_status planish_cuda_batch_norm_backward(const planish_batch_norm_backward_args* args,
                                                const planish_cuda_batch_norm_options* options) {
  return c::CallNorm<planish::BatchNormBackwardArgs, cuda::BatchNormOptions>(
      __func__, args, options, [](const auto& to_args, const auto& to_options) {
        cuda::BatchNormBackward(to_args, to_options);
      });
}

planish_status planish_cuda_batch_norm_evaluate(const planish_batch_norm_evaluate_args* args,
                                                const planish_cuda_batch_norm_options* options) {
  return c::CallNorm<planish::BatchNormEvaluateArgs, cuda::BatchNormOptions>(
      __func__, args, options, [](const auto& to_args, const auto& to_options) {
        cuda::BatchNormEvaluate(to_args, to_options);
      });
}

planish_status planish_cuda_batch_norm_evaluate_backward(
    const planish_batch_norm_evaluate_backward_args* args,
    const planish_cuda_batch_norm_options* options) {
  return c::CallNorm<planish::BatchNormEvaluateBackwardArgs, cuda::BatchNormOptions>(
      __func__, args, options, [](const auto& to_args, const auto& to_options) {
        cuda::BatchNormEvaluateBackward(to_args, to_options);
      });
}

planish_status planish_cuda_weight_norm_forward(const planish_weight_norm_forward_args* args,
                                                const planish_cuda_weight_norm_options* options) {
  return c::CallNorm<planish::WeightNormForwardArgs, cuda::WeightNormOptions>(
      __func__, args, options, [](const auto& to_args, const auto& to_options) {
        cuda::WeightNormForward(to_args, to_options);
      });
}

planish_status planish_cuda_weight_norm_backward(const planish_weight_norm_backward_args* args,
                                                 const planish_cuda_weight_norm_options* options) {
  return c::CallNorm<planish::WeightNormBackwardArgs, cuda::WeightNormOptions>(
      __func__, args, options, [](const auto& to_args, const auto& to_options) {
        cuda::WeightNormBackward(to_args, to_options);
      });
}

planish_status planish_cuda_group_norm_forward(const planish_group_norm_forward_args* args,
                                               const planish_cuda_group_norm_options* options) {
  return c::CallNorm<planish::GroupNormForwardArgs, cuda::GroupNormOptions>(
      __func__, args, options, [](const auto& to_args, const auto& to_options) {
        cuda::GroupNormForward(to_args, to_options);
      });
}

planish_status planish_cuda_group_norm_backward(const planish_group_norm_backward_args* args,
                                                const planish_cuda_group_norm_options* options) {
  return c::CallNorm<planish::GroupNormBackwardArgs, cuda::GroupNormOptions>(
      __func__, args, options, [](const auto& to_args, const auto& to_options) {
        cuda::GroupNormBackward(to_args, to_options);
      });
}

planish_status planish_cuda_pointwise_norm_forward(
    planish_pointwise function, const planish_pointwise_norm_forward_args* args,
    const planish_cuda_pointwise_norm_options* options) {
  return c::CallNorm<planish::PointwiseNormForwardArgs, cuda::PointwiseNormOptions>(
      __func__, args, options, [&](const auto& to_args, const auto& to_options) {
        cuda::PointwiseNormForward(c::PointwiseOf("planish_cuda_pointwise_norm_forward", function),
                                   to_args, to_options);
      });
}

planish_status planish_cuda_pointwise_norm_backward(
    planish_pointwise function, const planish_pointwise_norm_backward_args* args,
    const planish_cuda_pointwise_norm_options* options) {
  return c::CallNorm<planish::PointwiseNormBackwardArgs, cuda::PointwiseNormOptions>(
      __func__, args, options, [&](const auto& to_args, const auto& to_options) {
        cuda::PointwiseNormBackward(
            c::PointwiseOf("planish_cuda_pointwise_norm_backward", function), to_args, to_options);
      });
}

planish_status planish_cuda_online_norm_forward(const planish_online_norm_forward_args* args,
                                                planish_online_state* state,
                                                const planish_cuda_online_norm_options* options) {
  return c::CallNorm<planish::OnlineNormForwardArgs, cuda::OnlineNormOptions>(
      __func__, args, options, [&](const auto& to_args, const auto& to_options) {
        cuda::OnlineNormForward(to_args, StateOf(state), to_options);
      });
}

planish_status planish_cuda_online_norm_backward(const planish_online_norm_backward_args* args,
                                                 const planish_cuda_online_norm_options* options) {
  return c::CallNorm<planish::OnlineNormBackwardArgs, cuda::OnlineNormOptions>(
      __func__, args, options, [](const auto& to_args, const auto& to_options) {
        cuda::OnlineNormBackward(to_args, to_options);
      });
}

planish_status planish_cuda_rnn_saved_size(planish_cell cell, planish_type type,
                                           const planish_rnn_shape* shape, int64_t* size) {
  return WriteRnnSize(__func__, "size", cell, type, shape, size,
                      []<class T>(planish::Cell to_cell, const planish::RnnShape& to_shape) {
                        return cuda::RnnSavedSize<T>(to_cell, to_shape);
                      });
}

planish_status planish_cuda_rnn_fits_persistent(planish_cell cell, planish_type type,
                                                const planish_rnn_shape* shape, int32_t* fits) {
  return WriteRnnSize(__func__, "fits", cell, type, shape, fits,
                      []<class T>(planish::Cell to_cell, const planish::RnnShape& to_shape) {
                        return cuda::RnnFitsPersistent<T>(to_cell, to_shape) ? 1 : 0;
                      });
}

planish_status planish_cuda_rnn_forward_workspace(planish_cell cell,
                                                  const planish_rnn_forward_args* args,
                                                  const planish_cuda_rnn_options* options,
                                                  int64_t* bytes) {
  return WriteWorkspace<planish::RnnForwardArgs>(__func__, cell, args, options, bytes);
}
planish_status planish_cuda_rnn_backward_workspace(planish_cell cell,
                                                   const planish_rnn_backward_args* args,
                                                   const planish_cuda_rnn_options* options,
                                                   int64_t* bytes) {
  return WriteWorkspace<planish::RnnBackwardArgs>(__func__, cell, args, options, bytes);
}
planish_status planish_cuda_rnn_step_workspace(planish_cell cell, const planish_rnn_step_args* args,
                                               const planish_cuda_rnn_options* options,
                                               int64_t* bytes) {
  return WriteWorkspace<planish::RnnStepArgs>(__func__, cell, args, options, bytes);
}

planish_status planish_cuda_rnn_forward(planish_cell cell, const planish_rnn_forward_args* args,
                                        const planish_cuda_rnn_options* options) {
  return c::CallRnn<planish::RnnForwardArgs, cuda::RnnOptions>(
      __func__, cell, args, options,
      [](planish::Cell to_cell, const auto& to_args, const auto& to_options) {
        cuda::RnnForward(to_cell, to_args, to_options);
      });
}

planish_status planish_cuda_rnn_backward(planish_cell cell, const planish_rnn_backward_args* args,
                                         const planish_cuda_rnn_options* options) {
  return c::CallRnn<planish::RnnBackwardArgs, cuda::RnnOptions>(
      __func__, cell, args, options,
      [](planish::Cell to_cell, const auto& to_args, const auto& to_options) {
        cuda::RnnBackward(to_cell, to_args, to_options);
      });
}

planish_status planish_cuda_rnn_step(planish_cell cell, const planish_rnn_step_args* args,
                                     const planish_cuda_rnn_options* options) {
  return c::CallRnn<planish::RnnStepArgs, cuda::RnnOptions>(
      __func__, cell, args, options,
      [](planish::Cell to_cell, const auto& to_args, const auto& to_options) {
        cuda::RnnStep(to_cell, to_args, to_options);
      });
}
