#include "bench/base/onednn.h"

#include <cmath>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bench/norm/peers.h"

namespace planish::bench {

namespace {

using dnnl::memory;
using Forward = dnnl::layer_normalization_forward;
using Backward = dnnl::layer_normalization_backward;

memory::data_type DataType(Type type) {
  switch (type) {
    case Type::kFloat:
      return memory::data_type::f32;
    case Type::kBFloat16:
      return memory::data_type::bf16;
    case Type::kFloat16:
      return memory::data_type::f16;
    default:
      return memory::data_type::f64;
  }
}

template <class Primitive>
Contestant Repeat(const Primitive& primitive, std::unordered_map<int, memory> memories) {
  return {.call = [primitive, memories = std::move(memories)] {
    primitive.execute(TheOneDnn().stream, memories);
    TheOneDnn().stream.wait();
  }};
}

Contestant Make(const Case& c, const Arrays& arrays) {
  const dnnl::engine& engine = TheOneDnn().engine;
  const memory::desc rows({c.rows, c.cols}, DataType(c.type), memory::format_tag::ab);
  const memory::desc statistics({c.rows}, memory::data_type::f32, memory::format_tag::a);
  const memory::desc parameters({c.cols}, memory::data_type::f32, memory::format_tag::a);
  const auto on = [&](const memory::desc& shape, const void* data) {
    return memory(shape, engine, const_cast<void*>(data));  // the inputs are only read
  };
  const auto flags = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;
  const auto eps = static_cast<float>(kEps);
  if (c.direction == Direction::kForward) {
    const Forward::primitive_desc desc(engine, dnnl::prop_kind::forward_inference, rows, rows,
                                       statistics, eps, flags);
    return Repeat(Forward(desc), {{DNNL_ARG_SRC, on(rows, arrays.x)},
                                  {DNNL_ARG_SCALE, on(parameters, arrays.gain)},
                                  {DNNL_ARG_SHIFT, on(parameters, arrays.bias)},
                                  {DNNL_ARG_DST, on(rows, arrays.out)}});
  }
  const Forward::primitive_desc hint(engine, dnnl::prop_kind::forward_training, rows, rows,
                                     statistics, eps, flags);
  const Backward::primitive_desc desc(engine, dnnl::prop_kind::backward, rows, rows, rows,
                                      statistics, eps, flags, hint);
  // oneDNN takes the variance, the others rstd.
  const auto variance = std::make_shared<std::vector<float>>(c.rows);
  for (int64_t row = 0; row < c.rows; ++row) {
    const double rstd = static_cast<const float*>(arrays.rstd)[row];
    (*variance)[row] = static_cast<float>(1 / (rstd * rstd) - kEps);
  }
  Contestant contestant = Repeat(
      Backward(desc), {{DNNL_ARG_SRC, on(rows, arrays.x)},
                       {DNNL_ARG_DIFF_DST, on(rows, arrays.dy)},
                       {DNNL_ARG_MEAN, on(statistics, arrays.mean)},
                       {DNNL_ARG_VARIANCE, on(statistics, variance->data())},
                       {DNNL_ARG_SCALE, on(parameters, arrays.gain)},
                       {DNNL_ARG_SHIFT, on(parameters, arrays.bias)},  // unread, but required
                       {DNNL_ARG_DIFF_SRC, on(rows, arrays.out)},
                       {DNNL_ARG_DIFF_SCALE, on(parameters, arrays.dgain)},
                       {DNNL_ARG_DIFF_SHIFT, on(parameters, arrays.dbias)}});
  return {.call = [variance, call = std::move(contestant.call)] { call(); }};
}

}  // namespace

Contestant MakeOneDnn(const std::string& method, const Case& c, const Arrays& arrays) {
  if (c.spatial != 1 || method != "layer") return {.absent = "has no kernel for this norm"};
  if (c.type == Type::kDouble) return {.absent = "has no kernel for this type"};
  try {
    return Make(c, arrays);
  } catch (const dnnl::error& e) {
    if (e.status != dnnl_unimplemented) throw;
    return {.absent = "has no kernel for this type on this machine"};
  }
}

std::string OneDnnVersion() { return OneDnn::Version(); }

}  // namespace planish::bench
