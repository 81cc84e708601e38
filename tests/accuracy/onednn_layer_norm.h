#ifndef PLANISH_TESTS_ACCURACY_ONEDNN_LAYER_NORM_H_
#define PLANISH_TESTS_ACCURACY_ONEDNN_LAYER_NORM_H_

#include <dnnl.hpp>
#include <vector>

#include "tests/accuracy/rows_file.h"

namespace planish::tests {

/// oneDNN's layer normalization of `rows`, forward and backward, with the gain and the bias given.
inline void OneDnnLayerNorm(Rows& rows, std::vector<float> gain, std::vector<float> bias,
                            float eps) {
  using dnnl::memory;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const memory::desc matrix({rows.rows, rows.cols}, memory::data_type::f32, memory::format_tag::ab);
  const memory::desc statistics({rows.rows}, memory::data_type::f32, memory::format_tag::a);
  const memory::desc vector({rows.cols}, memory::data_type::f32, memory::format_tag::a);
  const auto flags = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;
  using Forward = dnnl::layer_normalization_forward;
  using Backward = dnnl::layer_normalization_backward;
#if DNNL_VERSION_MAJOR >= 3
  const Forward::primitive_desc forward(engine, dnnl::prop_kind::forward_training, matrix, matrix,
                                        statistics, eps, flags);
  const Backward::primitive_desc backward(engine, dnnl::prop_kind::backward, matrix, matrix, matrix,
                                          statistics, eps, flags, forward);
#else
  const Forward::primitive_desc forward(
      Forward::desc(dnnl::prop_kind::forward_training, matrix, statistics, eps, flags), engine);
  const Backward::primitive_desc backward(
      Backward::desc(dnnl::prop_kind::backward, matrix, matrix, statistics, eps, flags), engine,
      forward);
#endif
  memory x(matrix, engine, rows.x.data()), y(matrix, engine, rows.y.data());
  memory dx(matrix, engine, rows.dx.data()), dy(matrix, engine, rows.dy.data());
  memory mean(statistics, engine), variance(statistics, engine);
  memory scale(vector, engine, gain.data()), shift(vector, engine, bias.data());
  memory dscale(vector, engine, rows.dgain.data()), dshift(vector, engine, rows.dbias.data());
  Forward(forward).execute(stream, {{DNNL_ARG_SRC, x},
                                    {DNNL_ARG_MEAN, mean},
                                    {DNNL_ARG_VARIANCE, variance},
                                    {DNNL_ARG_SCALE, scale},
                                    {DNNL_ARG_SHIFT, shift},
                                    {DNNL_ARG_DST, y}});
  Backward(backward).execute(stream, {{DNNL_ARG_SRC, x},
                                      {DNNL_ARG_DIFF_DST, dy},
                                      {DNNL_ARG_MEAN, mean},
                                      {DNNL_ARG_VARIANCE, variance},
                                      {DNNL_ARG_SCALE, scale},
                                      {DNNL_ARG_SHIFT, shift},
                                      {DNNL_ARG_DIFF_SRC, dx},
                                      {DNNL_ARG_DIFF_SCALE, dscale},
                                      {DNNL_ARG_DIFF_SHIFT, dshift}});
  stream.wait();
}

}  // namespace planish::tests

#endif  // PLANISH_TESTS_ACCURACY_ONEDNN_LAYER_NORM_H_
