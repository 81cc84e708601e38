#include <torch/nn/modules/rnn.h>
#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "bench/rnn/contestants.h"
#include "bench/rnn/tensors.h"
#include "src/rnn/cell.h"

namespace planish::bench::rnn {

namespace {

using torch::Tensor;

// Copies Planish's parameters into a module's, with `suffix` "_l0" for a layer or "" for a cell.
// PyTorch has two biases.
void Load(torch::nn::Module& module, Cell cell, const Case& c, const Arrays& arrays,
          const std::string& suffix) {
  const torch::NoGradGuard no_grad;
  const int64_t hidden = c.shape.hidden, gates = internal::RecipeOf(cell).gates() * hidden;
  auto parameters = module.named_parameters();
  parameters["weight_ih" + suffix].copy_(View(arrays.all.weight_ih, {gates, c.shape.inputs}));
  parameters["weight_hh" + suffix].copy_(View(arrays.all.weight_hh, {gates, c.shape.outputs()}));
  if (c.shape.projected > 0) {
    parameters["weight_hr" + suffix].copy_(View(arrays.all.weight_hr, {c.shape.projected, hidden}));
  }
  parameters["bias_ih" + suffix].copy_(View(arrays.all.bias, {gates}));
  Tensor& bias_hh = parameters["bias_hh" + suffix];
  bias_hh.zero_();
  if (cell == Cell::kGru) {
    bias_hh.narrow(0, 2 * hidden, hidden).copy_(View(arrays.all.bias_hn, {hidden}));
  }
}

// Returns y of a call with several results.
Tensor First(const std::tuple<Tensor, std::tuple<Tensor, Tensor>>& results) {
  return std::get<0>(results);
}
Tensor First(const std::tuple<Tensor, Tensor>& results) { return std::get<0>(results); }
Tensor First(const Tensor& result) { return result; }

struct Results {
  Tensor y;
  std::vector<Tensor> gradients;
};

// Runs `forward`, which returns y, and computes its gradients in training.
template <class Forward>
Contestant Make(Cell cell, const Case& c, const Arrays& arrays, const Tensor& x,
                const std::vector<Tensor>& parameters, const Forward& forward) {
  const auto results = std::make_shared<Results>();
  const RnnShape s = c.shape;
  if (c.mode != Mode::kTraining) {
    return {.call =
                [=] {
                  const torch::NoGradGuard no_grad;
                  results->y = forward(x);
                },
            .fetch = [=] { Store(results->y, arrays.y); }};
  }
  const Tensor with_gradient = x.detach().requires_grad_();
  std::vector<Tensor> inputs = {with_gradient};
  inputs.insert(inputs.end(), parameters.begin(), parameters.end());
  const Tensor dy = View(arrays.dy, {s.time, s.batch, s.outputs()});
  return {.call =
              [=] {
                results->y = forward(with_gradient);
                results->gradients = torch::autograd::grad({results->y}, inputs, {dy});
              },
          .fetch =
              [=] {
                // In the order of the modules: weights of input and state, their biases.
                const auto& gradients = results->gradients;
                Store(results->y, arrays.y);
                Store(gradients[0], arrays.dx);
                Store(gradients[1], arrays.dall.weight_ih);
                Store(gradients[2], arrays.dall.weight_hh);
                Store(gradients[3], arrays.dall.bias);
                if (s.projected > 0) Store(gradients[5], arrays.dall.weight_hr);
                if (cell == Cell::kGru) {
                  Store(gradients[4].narrow(0, 2 * s.hidden, s.hidden), arrays.dall.bias_hn);
                }
              }};
}

template <class Module, class... State>
Contestant MakeLayer(Module module, Cell cell, const Case& c, const Arrays& arrays,
                     const State&... state) {
  Load(*module, cell, c, arrays, "_l0");
  module->train(c.mode == Mode::kTraining);  // else oneDNN saves data for backward
  const RnnShape s = c.shape;
  const Tensor x = View(arrays.x, {s.time, s.batch, s.inputs});
  return Make(
      cell, c, arrays, x, module->parameters(),
      [=, layer = module.ptr()](const Tensor& in) { return First(layer->forward(in, state...)); });
}

template <class Module, class State>
Contestant MakeCell(Module module, Cell cell, const Case& c, const Arrays& arrays,
                    const State& state) {
  Load(*module, cell, c, arrays, "");
  const Tensor x = View(arrays.x, {c.shape.batch, c.shape.inputs});
  return Make(cell, c, arrays, x, {},
              [=, one = module.ptr()](const Tensor& in) { return First(one->forward(in, state)); });
}

}  // namespace

Contestant MakeTorchNn(Cell cell, const Case& c, const Arrays& arrays) {
  namespace nn = torch::nn;
  const RnnShape& s = c.shape;
  const auto make = [&]<class Module>(const Module& module) -> Contestant {
    if (c.mode != Mode::kStep) return MakeLayer(module, cell, c, arrays);
    const Tensor h = View(arrays.h, {1, s.batch, s.outputs()});
    if constexpr (std::is_same_v<Module, nn::LSTM>) {
      const Tensor state = View(arrays.c, {1, s.batch, s.hidden});
      return MakeLayer(module, cell, c, arrays, std::make_tuple(h, state));
    } else {
      return MakeLayer(module, cell, c, arrays, h);
    }
  };
  switch (cell) {
    case Cell::kLstm:
      return make(nn::LSTM(nn::LSTMOptions(s.inputs, s.hidden).proj_size(s.projected)));
    case Cell::kGru:
      return make(nn::GRU(s.inputs, s.hidden));
    case Cell::kRnn:
      return make(nn::RNN(s.inputs, s.hidden));
    case Cell::kRnnRelu:
      return make(nn::RNN(nn::RNNOptions(s.inputs, s.hidden).nonlinearity(torch::kReLU)));
    default:
      return {.absent = "has no such layer"};
  }
}

Contestant MakeTorchCell(Cell cell, const Case& c, const Arrays& arrays) {
  namespace nn = torch::nn;
  if (c.mode != Mode::kStep) return {.absent = "takes one step"};
  const RnnShape& s = c.shape;
  const Tensor h = View(arrays.h, {s.batch, s.hidden});
  switch (cell) {
    case Cell::kLstm:
      return MakeCell(nn::LSTMCell(s.inputs, s.hidden), cell, c, arrays,
                      std::make_tuple(h, View(arrays.c, {s.batch, s.hidden})));
    case Cell::kGru:
      return MakeCell(nn::GRUCell(s.inputs, s.hidden), cell, c, arrays, h);
    case Cell::kRnn:
      return MakeCell(nn::RNNCell(s.inputs, s.hidden), cell, c, arrays, h);
    default:
      return {.absent = "has no such cell"};
  }
}

}  // namespace planish::bench::rnn
