#include "bench/base/onednn.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "bench/rnn/contestants.h"

namespace planish::bench::rnn {

namespace {

using dnnl::memory;
using Tag = memory::format_tag;
using Dims = memory::dims;
using Memories = std::unordered_map<int, memory>;

constexpr auto kFloat = memory::data_type::f32;
constexpr auto kDirection = dnnl::rnn_direction::unidirectional_left2right;
constexpr auto kKind = dnnl::prop_kind::forward_inference;

// Reorders blocks of `rows` rows each of `from`: the gates into oneDNN's order.
template <size_t kGates>
std::vector<float> Reordered(const float* from, int64_t block,
                             const std::array<int64_t, kGates>& order) {
  std::vector<float> to(kGates * static_cast<size_t>(block));
  for (size_t gate = 0; gate < kGates; ++gate) {
    std::copy_n(from + order[gate] * block, block, to.begin() + static_cast<int64_t>(gate) * block);
  }
  return to;
}

// Inputs of the primitive, gates in oneDNN's order.
struct Weights {
  std::vector<float> ih, hh, bias;  // [G, I], [G, H], [G], or [4H] of the GRU
};

Weights LstmWeights(const RnnShape& s, const RnnParams<const float>& all) {
  constexpr std::array<int64_t, 4> kOrder = {0, 1, 2, 3};  // i, f, g, o in both
  return {Reordered(all.weight_ih, s.hidden * s.inputs, kOrder),
          Reordered(all.weight_hh, s.hidden * s.hidden, kOrder),
          Reordered(all.bias, s.hidden, kOrder)};
}

Weights GruWeights(const RnnShape& s, const RnnParams<const float>& all) {
  constexpr std::array<int64_t, 3> kOrder = {1, 0, 2};  // z, r, n of r, z, n
  Weights weights = {Reordered(all.weight_ih, s.hidden * s.inputs, kOrder),
                     Reordered(all.weight_hh, s.hidden * s.hidden, kOrder),
                     Reordered(all.bias, s.hidden, kOrder)};
  weights.bias.insert(weights.bias.end(), all.bias_hn, all.bias_hn + s.hidden);
  return weights;
}

// Reorders `from` into the primitive's format of weights.
memory Packed(const memory::desc& wanted, const Dims& dims, std::vector<float>& from) {
  OneDnn& onednn = TheOneDnn();
  // Row-major: layer, direction, gate and output, input.
  memory plain({dims, kFloat, Tag::ldgoi}, onednn.engine, from.data());
  memory packed(wanted, onednn.engine);
  dnnl::reorder(plain, packed).execute(onednn.stream, plain, packed);
  onednn.stream.wait();
  return packed;
}

Contestant Make(Cell cell, const Case& c, const Arrays& arrays) {
  const dnnl::engine& engine = TheOneDnn().engine;
  const RnnShape& s = c.shape;
  const bool lstm = cell == Cell::kLstm;
  const int64_t gates = lstm ? 4 : 3;
  const Dims ih_dims = {1, 1, s.inputs, gates, s.hidden},
             hh_dims = {1, 1, s.hidden, gates, s.hidden};
  const memory::desc x({s.time, s.batch, s.inputs}, kFloat, Tag::tnc);
  const memory::desc y({s.time, s.batch, s.hidden}, kFloat, Tag::tnc);
  const memory::desc ih(ih_dims, kFloat, Tag::any), hh(hh_dims, kFloat, Tag::any);
  const memory::desc bias({1, 1, 4, s.hidden}, kFloat, Tag::ldgo);
  const memory::desc state = c.mode == Mode::kStep
                                 ? memory::desc({1, 1, s.batch, s.hidden}, kFloat, Tag::ldnc)
                                 : memory::desc();  // none: zeros
  Weights weights = lstm ? LstmWeights(s, arrays.all) : GruWeights(s, arrays.all);
  const auto on = [&](const memory::desc& shape, const void* data) {
    return memory(shape, engine, const_cast<void*>(data));  // the inputs are only read
  };
  const auto repeat = [&](const auto& desc, const dnnl::primitive& primitive) -> Contestant {
    const auto own = std::make_shared<std::vector<float>>(weights.bias);
    Memories memories = {
        {DNNL_ARG_SRC_LAYER, on(x, arrays.x)},
        {DNNL_ARG_WEIGHTS_LAYER, Packed(desc.weights_layer_desc(), ih_dims, weights.ih)},
        {DNNL_ARG_WEIGHTS_ITER, Packed(desc.weights_iter_desc(), hh_dims, weights.hh)},
        {DNNL_ARG_BIAS, on(bias, own->data())},
        {DNNL_ARG_DST_LAYER, on(y, arrays.y)}};
    if (c.mode == Mode::kStep) {
      memories.emplace(DNNL_ARG_SRC_ITER, on(state, arrays.h));
      if (lstm) memories.emplace(DNNL_ARG_SRC_ITER_C, on(state, arrays.c));
    }
    return {.call = [primitive, memories, own] {
      primitive.execute(TheOneDnn().stream, memories);
      TheOneDnn().stream.wait();
    }};
  };
  const memory::desc none;
  if (lstm) {
    const dnnl::lstm_forward::primitive_desc desc(engine, kKind, kDirection, x, state, state, ih,
                                                  hh, bias, y, none, none);
    return repeat(desc, dnnl::lstm_forward(desc));
  }
  const dnnl::lbr_gru_forward::primitive_desc desc(engine, kKind, kDirection, x, state, ih, hh,
                                                   bias, y, none);
  return repeat(desc, dnnl::lbr_gru_forward(desc));
}

}  // namespace

Contestant MakeOneDnn(Cell cell, const Case& c, const Arrays& arrays) {
  if (cell != Cell::kLstm && cell != Cell::kGru)
    return {.absent = "is measured only with LSTM and GRU"};
  if (c.mode == Mode::kTraining) return {.absent = "is measured only forward"};
  return Make(cell, c, arrays);
}

std::string OneDnnVersion() { return OneDnn::Version(); }

}  // namespace planish::bench::rnn
