#include "planish/rnn.h"

#include <variant>

#include "src/c/call.h"

// Recurrent layers of the C interface.
PLANISH_C_INIT(planish_rnn_params)
PLANISH_C_INIT(planish_rnn_gradients)
PLANISH_C_INIT(planish_rnn_pack_args)
PLANISH_C_INIT(planish_rnn_options)
PLANISH_C_INIT(planish_rnn_inputs)
PLANISH_C_INIT(planish_rnn_forward_args)
PLANISH_C_INIT(planish_rnn_backward_args)
PLANISH_C_INIT(planish_rnn_step_args)

namespace c = planish::internal::c;

planish_status planish_rnn_saved_size(planish_cell cell, planish_type type,
                                      const planish_rnn_shape* shape, int32_t checkpoint,
                                      int64_t* size) {
  const char* const function = __func__;
  return c::Guarded(function, [&] {
    c::CheckGiven(function, "shape", "planish_rnn_shape", shape);
    c::CheckGiven(function, "size", "number", size);
    c::WithRnnType(function, type, [&]<class T> {
      *size =
          planish::RnnSavedSize<T>(c::CellOf(function, cell), c::ShapeOf(*shape), checkpoint != 0);
    });
  });
}

planish_status planish_rnn_pack(planish_cell cell, const planish_rnn_pack_args* args,
                                planish_rnn_packed** packed) {
  const char* const function = __func__;
  return c::Guarded(function, [&] {
    c::CheckGiven(function, "packed", "handle", packed);
    *packed = nullptr;
    const c::Converter converter(function);
    const planish_rnn_pack_args checked = converter.Checked("args", args);
    c::WithRnnType(function, checked.type, [&]<class T> {
      const auto to = converter.To<c::RnnPackArgs<T>>(checked);
      *packed = new planish_rnn_packed{planish::RnnPackedParams<T>(
          c::CellOf(function, cell), to.inputs, to.hidden, to.params, to.parallel_for, to.backward,
          to.projected, to.heads, to.weight_type)};
    });
  });
}

void planish_rnn_packed_free(planish_rnn_packed* packed) { delete packed; }

planish_status planish_rnn_gradient_sums_create(const planish_rnn_packed* packed,
                                                planish_rnn_gradient_sums** sums) {
  const char* const function = __func__;
  return c::Guarded(function, [&] {
    c::CheckGiven(function, "sums", "handle", sums);
    *sums = nullptr;
    c::CheckGiven(function, "packed", "planish_rnn_packed", packed);
    std::visit(
        [&]<class T>(const planish::RnnPackedParams<T>& params) {
          *sums = new planish_rnn_gradient_sums{planish::RnnGradientSums<T>(params)};
        },
        packed->params);
  });
}

planish_status planish_rnn_gradient_sums_write(planish_rnn_gradient_sums* sums,
                                               const planish_rnn_gradients* gradients,
                                               const planish_parallel_for* parallel_for) {
  const char* const function = __func__;
  return c::Guarded(function, [&] {
    c::CheckGiven(function, "sums", "planish_rnn_gradient_sums", sums);
    const c::Converter converter(function);
    const planish_rnn_gradients checked = converter.Checked("gradients", gradients);
    std::visit(
        [&]<class T>(planish::RnnGradientSums<T>& to_sums) {
          to_sums.Write(converter.To<planish::RnnParams<T>>(checked),
                        converter.ToOptions<planish::ParallelFor>(parallel_for));
        },
        sums->sums);
  });
}

void planish_rnn_gradient_sums_free(planish_rnn_gradient_sums* sums) { delete sums; }

planish_status planish_rnn_forward(planish_cell cell, const planish_rnn_forward_args* args,
                                   const planish_rnn_options* options) {
  return c::CallRnn<planish::RnnForwardArgs, planish::RnnOptions>(
      __func__, cell, args, options,
      [](planish::Cell to_cell, const auto& to_args, const auto& to_options) {
        planish::RnnForward(to_cell, to_args, to_options);
      });
}

planish_status planish_rnn_backward(planish_cell cell, const planish_rnn_backward_args* args,
                                    const planish_rnn_options* options) {
  return c::CallRnn<planish::RnnBackwardArgs, planish::RnnOptions>(
      __func__, cell, args, options,
      [](planish::Cell to_cell, const auto& to_args, const auto& to_options) {
        planish::RnnBackward(to_cell, to_args, to_options);
      });
}

planish_status planish_rnn_step(planish_cell cell, const planish_rnn_step_args* args,
                                const planish_rnn_options* options) {
  return c::CallRnn<planish::RnnStepArgs, planish::RnnOptions>(
      __func__, cell, args, options,
      [](planish::Cell to_cell, const auto& to_args, const auto& to_options) {
        planish::RnnStep(to_cell, to_args, to_options);
      });
}
