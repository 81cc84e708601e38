// planish_bits for the PyTorch binding. Computes on the SIMD target that PLANISH_TARGET names, or
// on the best one.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "planish/torch.h"
#include "tests/bits/bits.h"
#include "torch/rnn/fields.h"

namespace planish::bits {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

constexpr double kEps = 1e-3;

/// Suffixes of the names of cases. Second derivatives and composed layers use PyTorch's operators,
/// whose results depend on the number of threads.
constexpr const char* kOrders[] = {"", "", " second"};

Tensor Values(Random& random, at::IntArrayRef shape, at::ScalarType type, double mean = 0,
              double scale = 1) {
  const Tensor values = at::empty(shape, at::kDouble);
  double* data = values.mutable_data_ptr<double>();
  for (int64_t i = 0; i < values.numel(); ++i) data[i] = mean + scale * random.Uniform();
  return values.to(type);
}

/// Adds shape, strides, type and elements. Undefined tensors have a hash, too.
void Add(Hash& hash, const Tensor& tensor) {
  const int64_t type = tensor.defined() ? static_cast<int64_t>(tensor.scalar_type()) : -1;
  hash.Add(&type, 1);
  if (!tensor.defined()) return;
  hash.Add(tensor.sizes().data(), tensor.sizes().size());
  hash.Add(tensor.strides().data(), tensor.strides().size());
  const Tensor t = tensor.detach().contiguous();
  const void* data = t.const_data_ptr();
  const auto count = static_cast<size_t>(t.numel());
  switch (t.scalar_type()) {
    case at::kFloat:
      return hash.Add(static_cast<const float*>(data), count);
    case at::kDouble:
      return hash.Add(static_cast<const double*>(data), count);
    case at::kBFloat16:
      return hash.Add(static_cast<const bfloat16*>(data), count);
    case at::kHalf:
      return hash.Add(static_cast<const float16*>(data), count);
    default:
      return hash.Add(t.to(at::kLong).const_data_ptr<int64_t>(), count);
  }
}

/// Appends the tensors in a result.
void Flatten(Tensors& list, const Tensor& tensor) { list.push_back(tensor); }
void Flatten(Tensors& list, const torch::nn::utils::rnn::PackedSequence& sequence) {
  list.insert(list.end(), {sequence.data(), sequence.batch_sizes(), sequence.unsorted_indices()});
}
void Flatten(Tensors& list, const RnnOutputs& outputs) {
  list.insert(list.end(), {outputs.y, outputs.h_n, outputs.c_n});
}
template <class... Results>
void Flatten(Tensors& list, const std::tuple<Results...>& results) {
  std::apply([&](const Results&... result) { (Flatten(list, result), ...); }, results);
}
template <class Result>
Tensors ListOf(const Result& result) {
  Tensors list;
  Flatten(list, result);
  return list;
}

/// Adds outputs and their derivatives with respect to `leaves` up to an order.
void AddDerivatives(Hash& hash, Tensors outputs, const Tensors& leaves, int order) {
  Random random(5);
  for (; order >= 0; --order) {
    Tensors differentiable, gradients;
    for (const Tensor& output : outputs) {
      Add(hash, output);
      if (!output.defined() || !output.requires_grad()) continue;
      differentiable.push_back(output);
      gradients.push_back(Values(random, output.sizes(), output.scalar_type()));
    }
    if (order == 0 || differentiable.empty()) return;
    outputs = torch::autograd::grad(differentiable, leaves, gradients, true, order > 1, true);
  }
}

/// Returns new leaves of the same values.
Tensors Leaves(const Tensors& tensors) {
  Tensors leaves;
  for (const Tensor& tensor : tensors) leaves.push_back(tensor.detach().requires_grad_());
  return leaves;
}

/// Types of x and of parameters.
struct Types {
  const char* name;
  at::ScalarType x, params;
};
constexpr Types kTypes[] = {{"float", at::kFloat, at::kFloat},
                            {"double", at::kDouble, at::kDouble},
                            {"bfloat16", at::kBFloat16, at::kBFloat16},
                            {"bfloat16/float", at::kBFloat16, at::kFloat},
                            {"half/float", at::kHalf, at::kFloat}};

/// The inputs of a norm, weight and bias of one dimension.
struct NormArgs {
  Tensor x, residual, weight, bias;
  std::vector<int64_t> size;  ///< of the last dimension
};
struct NormFunction {
  const char* name;
  bool image;  ///< whether channels are dimension 1
  Tensors (*f)(const NormArgs& a);
};
// clang-format off
const NormFunction kNormFunctions[] = {
    {"layer_norm", false, [](const NormArgs& a) {
       return ListOf(planish::layer_norm(a.x, a.size, a.weight, a.bias, kEps)); }},
    {"layer_norm of x", false, [](const NormArgs& a) {
       return ListOf(planish::layer_norm(a.x, a.x.sizes().slice(1))); }},
    {"rms_norm", false, [](const NormArgs& a) {
       return ListOf(planish::rms_norm(a.x, a.size, a.weight)); }},
    {"layer_norm_simple", false, [](const NormArgs& a) {
       return ListOf(layer_norm_simple(a.x, a.size)); }},
    {"detach_norm", false, [](const NormArgs& a) {
       return ListOf(detach_norm(a.x, a.size)); }},
    {"detach_norm mean", false, [](const NormArgs& a) {
       return ListOf(detach_norm(a.x, a.size, true, false)); }},
    {"detach_norm std", false, [](const NormArgs& a) {
       return ListOf(detach_norm(a.x, a.size, false, true)); }},
    {"ada_norm", false, [](const NormArgs& a) {
       return ListOf(ada_norm(a.x, a.size, 1.25, 0.3)); }},
    {"ada_norm as_coded", false, [](const NormArgs& a) {
       return ListOf(ada_norm(a.x, a.size, 1.25, 0.3, true)); }},
    {"add_layer_norm", false, [](const NormArgs& a) {
       return ListOf(add_layer_norm(a.x, a.residual, a.size, a.weight, a.bias)); }},
    {"add_rms_norm", false, [](const NormArgs& a) {
       return ListOf(add_rms_norm(a.x, a.residual, a.size, a.weight, kEps)); }},
    {"online_layer_norm", false, [](const NormArgs& a) {
       const Tensor state = at::ones({2}, at::kDouble);
       return ListOf(online_layer_norm(a.x, state, a.weight, a.bias, 0.2)); }},
    {"weight_norm", false, [](const NormArgs& a) {
       return ListOf(weight_norm(a.x, a.weight, 2)); }},
    {"weight_norm of all", false, [](const NormArgs& a) {
       return ListOf(weight_norm(a.x, a.weight[0], -1)); }},
    {"channel_layer_norm", true, [](const NormArgs& a) {
       return ListOf(channel_layer_norm(a.x, a.weight, a.bias, kEps)); }},
    {"batch_norm", true, [](const NormArgs& a) {
       return ListOf(planish::batch_norm(a.x, a.weight, a.bias, {}, {}, true)); }},
    {"batch_norm unbiased", true, [](const NormArgs& a) {
       return ListOf(planish::batch_norm(a.x, a.weight, a.bias, {}, {}, true, 0.1, kEps, true)); }},
    {"batch_norm evaluate", true, [](const NormArgs& a) {
       const auto type = a.x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
       const Tensor mean = at::full(a.size, 0.25, type);
       return ListOf(planish::batch_norm(a.x, a.weight, a.bias, mean, mean + 1, false)); }},
};
// clang-format on

void Functions(Report& report, const Types& types) {
  for (const NormFunction& norm : kNormFunctions) {
    for (const int64_t size : {3, 33, 512}) {
      for (const bool contiguous : {true, false}) {
        Random random(static_cast<uint64_t>(size));
        const int64_t other = size == 512 ? 70 : 4;
        const auto values = [&] {
          const Tensor t = norm.image ? Values(random, {other, size, 5, 3}, types.x, 1, 2)
                                      : Values(random, {other, 5, size}, types.x, 1, 2);
          if (contiguous) return t;
          return norm.image ? t.contiguous(at::MemoryFormat::ChannelsLast) : t.transpose(0, 1);
        };
        const Tensors inputs = {values(), values(), Values(random, {size}, types.params, 1),
                                Values(random, {size}, types.params)};
        const std::string where = std::string(" ") + types.name + " " + std::to_string(size) +
                                  (contiguous ? " contiguous" : " strided");
        for (const int order : {1, 2}) {
          report.Case(
              norm.name + where + kOrders[order],
              [&](Hash& hash) {
                const Tensors l = Leaves(inputs);
                AddDerivatives(hash, norm.f({l[0], l[1], l[2], l[3], {size}}), l, order);
              },
              order == 1);
        }
      }
    }
  }
}

/// Calls a module in training and in evaluation, with other parameters than it starts with.
template <class Make, class Call>
void Module(Report& report, const std::string& name, const Types& types, const Tensor& input,
            Make&& make, Call&& call, bool on_threads = true) {
  const auto run = [&](Hash& hash) {
    torch::manual_seed(1);
    auto module = make();
    module->to(types.x);
    Random random(11);
    Tensors leaves = Leaves({input.to(types.x)});
    for (Tensor& parameter : module->parameters()) {
      const at::NoGradGuard no_grad;
      parameter.copy_(Values(random, parameter.sizes(), at::kDouble, 0.1, 0.5));
      leaves.push_back(parameter);
    }
    for (int calls = 0; calls < 2; ++calls) {
      AddDerivatives(hash, ListOf(call(module, leaves[0])), leaves, 1);
    }
    module->eval();
    AddDerivatives(hash, ListOf(call(module, leaves[0])), leaves, 1);
    const at::NoGradGuard no_grad;
    for (int calls = 0; calls < 2; ++calls) {
      if constexpr (requires { module->freeze(); }) {
        if (calls == 1) module->freeze();
      }
      AddDerivatives(hash, ListOf(call(module, leaves[0])), {}, 0);
    }
    for (const Tensor& buffer : module->buffers()) Add(hash, buffer);
  };
  report.Case("module " + name + " " + types.name, run, on_threads);
}

void NormModules(Report& report, const Types& types) {
  Random random(3);
  const Tensor rows = Values(random, {6, 33}, at::kDouble, 1, 2);
  const Tensor image = Values(random, {4, 33, 3, 5}, at::kDouble, 1, 2);
  const auto add = [&](const Tensor& x, auto module, bool on_threads = true) {
    using Holder = decltype(module);
    Module(
        report, Holder::ContainedType::kName, types, x,
        [&] { return std::dynamic_pointer_cast<typename Holder::ContainedType>(module->clone()); },
        [](const auto& m, const Tensor& input) { return m->forward(input); }, on_threads);
  };
  const std::vector<int64_t> shape = {33};
  add(rows, nn::LayerNorm(shape));
  add(rows, nn::RMSNorm(shape));
  add(rows, nn::LayerNormSimple(shape));
  add(rows, nn::DetachNorm(shape));
  add(rows, nn::AdaNorm(shape));
  add(rows, nn::OnlineLayerNorm(33));
  add(rows, nn::BatchNorm1d(33));
  add(image, nn::BatchNorm2d(nn::BatchNormOptions(33).momentum(std::nullopt).unbiased(true)));
  add(image[0].transpose(0, 1), nn::LayerNorm1d(33));
  add(image, nn::LayerNorm2d(33));
  add(image[0], nn::RecurrentBatchNorm(5, 20));
  add(rows, nn::WeightNormLinear(33, 7), false);  // its product is PyTorch's
}

/// How a layer is called.
struct RnnCase {
  const char* name;
  int64_t time, batch, hidden;
  int order = 2;
  bool ragged = false, reverse = false, checkpoint = false, composed = false;
};
constexpr RnnCase kRnnCases[] = {
    {.name = "plain", .time = 3, .batch = 3, .hidden = 17},
    {.name = "ragged", .time = 3, .batch = 4, .hidden = 5, .ragged = true},
    {.name = "reverse",
     .time = 4,
     .batch = 5,
     .hidden = 33,
     .order = 1,
     .ragged = true,
     .reverse = true},
    {.name = "checkpoint", .time = 6, .batch = 128, .hidden = 16, .order = 1, .checkpoint = true},
    {.name = "composed", .time = 2, .batch = 3, .hidden = 7, .composed = true}};

/// The inputs of a layer and where they belong.
struct RnnLeaves {
  RnnLeaves(const CellInfo& info, const RnnCase& v, at::ScalarType type) {
    Random random(static_cast<uint64_t>(v.hidden));
    const RnnShape shape = {v.time, v.batch, 6, v.hidden};
    const auto add = [&](Tensor RnnTensors::* member, at::IntArrayRef sizes, double mean = 0) {
      members.push_back(member);
      inputs.push_back(Values(random, sizes, type, mean, 0.5));
    };
    add(&RnnTensors::x, {v.time, v.batch, shape.inputs});
    for (const auto& [index, size, columns, mean] : ParamsOf(info, shape)) {
      std::vector<int64_t> sizes = {size};
      if (columns > 0) sizes = {size / columns, columns};
      add(kFields[kFirstParam + index].member, sizes, mean);
    }
    params = members.size();
    add(&RnnTensors::h0, {v.batch, v.hidden});
    if (info.lstm()) add(&RnnTensors::c0, {v.batch, info.recipe.cell_parts() * v.hidden});
    if (!v.ragged) return;
    add(&RnnTensors::h_reset, {v.hidden});
    if (info.lstm()) add(&RnnTensors::c_reset, {info.recipe.cell_parts() * v.hidden});
    lengths = at::arange(v.batch) % v.time + 1;
    resets = (at::arange(v.time * v.batch).view({v.time, v.batch}) % 4).eq(2);
  }

  /// Returns the layer of these leaves.
  RnnTensors Layer(const Tensors& leaves) const {
    RnnTensors tensors;
    for (size_t i = 0; i < members.size(); ++i) tensors.*members[i] = leaves[i];
    tensors.lengths = lengths, tensors.resets = resets;
    return tensors;
  }

  std::vector<Tensor RnnTensors::*> members;
  Tensors inputs;
  size_t params;  ///< x and the parameters are the first ones
  Tensor lengths, resets;
};

void Layers(Report& report, const Types& types) {
  for (const internal::NamedCell& named : internal::kNamedCells) {
    const CellInfo info(named);
    for (const RnnCase& v : kRnnCases) {
      const RnnLeaves layer(info, v, types.x);
      const std::string where =
          std::string(" ") + cell_name(info.cell) + " " + types.name + " " + v.name;
      const RnnSettings settings = {v.reverse, kEps, v.checkpoint, v.composed};
      const auto forward = [&](Hash& hash, int order) {
        const Tensors leaves = Leaves(layer.inputs);
        const RnnTensors tensors = layer.Layer(leaves);
        AddDerivatives(hash, ListOf(rnn_forward(info.cell, tensors, settings)), leaves, order);
        if (v.composed) return;
        const at::NoGradGuard no_grad;
        const RnnPacked packed = rnn_pack(info.cell, tensors);
        AddDerivatives(hash, ListOf(rnn_forward(info.cell, tensors, settings, packed)), {}, 0);
      };
      const auto steps = [&](Hash& hash, int order) {
        const Tensors leaves = Leaves(layer.inputs);
        RnnTensors tensors = layer.Layer(leaves), params = tensors;
        tensors.x = tensors.x[0];
        AddDerivatives(hash, ListOf(rnn_step(info.cell, tensors, kEps)), leaves, order);
        params.x = params.h0 = params.c0 = Tensor();
        const RnnSteps shared(info.cell, params, kEps);
        Tensors outputs;
        Tensor h = tensors.h0, c = tensors.c0;
        for (int64_t t = 0; t < v.time; ++t) {
          std::tie(h, c) = shared.step(leaves[0][t], h, c);
          if (!info.lstm()) c = Tensor();
          outputs.insert(outputs.end(), {h, c});
        }
        AddDerivatives(hash, outputs, leaves, 1);
        const at::NoGradGuard no_grad;
        const RnnPacked packed = rnn_pack(info.cell, params);
        AddDerivatives(hash, ListOf(rnn_step(info.cell, tensors, kEps, packed)), {}, 0);
        AddDerivatives(hash, ListOf(RnnSteps(info.cell, params, kEps).step(tensors.x)), {}, 0);
      };
      for (int order = 1; order <= v.order; ++order) {
        const bool on_threads = order == 1 && !v.composed;
        report.Case(
            "rnn_forward" + where + kOrders[order], [&](Hash& hash) { forward(hash, order); },
            on_threads);
        if (info.over_batch() || v.ragged || v.composed) continue;
        report.Case(
            "rnn_step" + where + kOrders[order], [&](Hash& hash) { steps(hash, order); },
            on_threads);
      }
    }
  }
}

/// The modules of a kind: LayerNormLSTM and LayerNormLSTMCell, and so on.
template <class M, class C, class Options, class CellOptions>
void RnnModules(Report& report, const Types& types, int64_t gates) {
  Random random(7);
  const Tensor x = Values(random, {5, 4, 6}, at::kDouble);
  for (const internal::NamedCell& named : internal::kNamedCells) {
    const CellInfo info(named);
    if (info.recipe.gates() != gates) continue;
    const std::string name = cell_name(info.cell);
    const Options options = Options(6, 9).variant(info.cell).eps(kEps);
    nn::RnnSequences sequences;
    const auto forward = [&](M& m, const Tensor& input) {
      return m->forward(input, {}, sequences);
    };
    Module(report, name, types, x, [&] { return M(options); }, forward);
    sequences.lengths = at::tensor({2, 4, 1, 3, 4}, at::kLong);
    Module(
        report, name + " packed sequence", types, x, [&] { return M(options); },
        [&](M& m, const Tensor& input) {
          return m->forward_with_packed_input(torch::nn::utils::rnn::pack_padded_sequence(
              input.transpose(0, 1), sequences.lengths, false, false));
        });
    sequences.resets = (at::arange(20).view({5, 4}) % 7).eq(3);
    Options more = Options(options).num_layers(2).bidirectional(true).batch_first(true);
    more.dropout(0.25).bias(false).checkpoint(true);
    Module(report, name + " layers", types, x, [&] { return M(more); }, forward);
    if (info.over_batch()) continue;
    const CellOptions cell = CellOptions(6, 9).variant(info.cell).eps(kEps);
    Module(
        report, name + " cell", types, x[0], [&] { return C(cell); },
        [&](C& m, const Tensor& input) { return m->forward(input, m->forward(input)); });
    Module(
        report, name + " steps", types, x[0], [&] { return C(cell); },
        [&](C& m, const Tensor& input) {
          const RnnSteps steps = m->steps();
          auto [h, c] = steps.step(input);
          return steps.step(input, h, info.lstm() ? c : Tensor());
        });
  }
}

int Main(int argc, char** argv) {
  if (!Report::Understands(argc, argv)) return 2;
  Report report(
      {{""}, [](const std::string&) {}, [](int threads) { at::set_num_threads(threads); }});
  for (const Types& types : kTypes) {
    Functions(report, types);
    if (types.x != types.params) continue;
    NormModules(report, types);
    Layers(report, types);
    RnnModules<nn::LayerNormLSTM, nn::LayerNormLSTMCell, nn::LayerNormLSTMOptions,
               nn::LayerNormLSTMCellOptions>(report, types, 4);
    RnnModules<nn::LayerNormGRU, nn::LayerNormGRUCell, nn::LayerNormGRUOptions,
               nn::LayerNormGRUCellOptions>(report, types, 3);
    RnnModules<nn::LayerNormRNN, nn::LayerNormRNNCell, nn::LayerNormRNNOptions,
               nn::LayerNormRNNCellOptions>(report, types, 1);
  }
  return report.Finish(argc, argv);
}

}  // namespace
}  // namespace planish::bits

int main(int argc, char** argv) { return planish::bits::Main(argc, argv); }
