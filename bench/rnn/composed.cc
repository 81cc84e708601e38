#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/rnn/contestants.h"
#include "bench/rnn/tensors.h"
#include "src/rnn/cell.h"

namespace planish::bench::rnn {

namespace {

using at::Tensor;
using internal::RecipeOf;

// Parameters, by their names in RnnParams, and with Mode::kTraining their gradients' arrays.
struct Parameters {
  Tensor weight_ih, weight_hh, bias;
  Tensor ln_ih_weight, ln_ih_bias, ln_hh_weight, ln_hh_bias, ln_c_weight, ln_c_bias;
  std::vector<Tensor> all;
  std::vector<float*> gradients;
};

Parameters ParametersOf(Cell cell, const Case& c, const Arrays& arrays) {
  Parameters p;
  const auto add = [&](Tensor& tensor, const float* data, float* gradient, at::IntArrayRef sizes) {
    tensor = View(data, sizes).set_requires_grad(c.mode == Mode::kTraining);
    p.all.push_back(tensor);
    p.gradients.push_back(gradient);
  };
  const RnnShape& s = c.shape;
  const int64_t gates = RecipeOf(cell).gates() * s.hidden;
  const RnnParams<const float>& all = arrays.all;
  const RnnParams<float>& dall = arrays.dall;
  add(p.weight_ih, all.weight_ih, dall.weight_ih, {gates, s.inputs});
  add(p.weight_hh, all.weight_hh, dall.weight_hh, {gates, s.hidden});
  add(p.ln_ih_weight, all.ln_ih_weight, dall.ln_ih_weight, {gates});
  add(p.ln_ih_bias, all.ln_ih_bias, dall.ln_ih_bias, {gates});
  add(p.ln_hh_weight, all.ln_hh_weight, dall.ln_hh_weight, {gates});
  add(p.ln_hh_bias, all.ln_hh_bias, dall.ln_hh_bias, {gates});
  if (cell == Cell::kLnLstm) {
    add(p.bias, all.bias, dall.bias, {gates});
    add(p.ln_c_weight, all.ln_c_weight, dall.ln_c_weight, {s.hidden});
    add(p.ln_c_bias, all.ln_c_bias, dall.ln_c_bias, {s.hidden});
  }
  return p;
}

Tensor Norm(const Tensor& z, const Tensor& weight, const Tensor& bias) {
  return at::layer_norm(z, {z.size(-1)}, weight, bias, kEps);
}

// The inputs' part of the sums of all steps: [T, B, G], or for the GRU its gates r and z, and n
// separately.
using Inputs = std::vector<Tensor>;

Inputs LstmInputs(const Parameters& p, const Tensor& x) {
  return {Norm(at::matmul(x, p.weight_ih.t()), p.ln_ih_weight, p.ln_ih_bias) + p.bias};
}

// Normalizes the GRU's gates r and z together, and n.
Inputs GruNorms(const Tensor& z, const Tensor& weight, const Tensor& bias) {
  const int64_t hidden = z.size(-1) / 3, both = 2 * hidden;
  return {Norm(z.narrow(-1, 0, both), weight.narrow(0, 0, both), bias.narrow(0, 0, both)),
          Norm(z.narrow(-1, both, hidden), weight.narrow(0, both, hidden),
               bias.narrow(0, both, hidden))};
}

Inputs GruInputs(const Parameters& p, const Tensor& x) {
  return GruNorms(at::matmul(x, p.weight_ih.t()), p.ln_ih_weight, p.ln_ih_bias);
}

// State of a step: h, and for the LSTM c.
using State = std::vector<Tensor>;

State LstmStep(const Parameters& p, const Inputs& inputs, const State& state) {
  const Tensor a =
      inputs[0] + Norm(at::mm(state[0], p.weight_hh.t()), p.ln_hh_weight, p.ln_hh_bias);
  const std::vector<Tensor> gates = a.chunk(4, 1);
  const Tensor c = at::sigmoid(gates[1]) * state[1] + at::sigmoid(gates[0]) * at::tanh(gates[2]);
  return {at::sigmoid(gates[3]) * at::tanh(Norm(c, p.ln_c_weight, p.ln_c_bias)), c};
}

State GruStep(const Parameters& p, const Inputs& inputs, const State& state) {
  const Inputs ah = GruNorms(at::mm(state[0], p.weight_hh.t()), p.ln_hh_weight, p.ln_hh_bias);
  const std::vector<Tensor> gates = at::sigmoid(inputs[0] + ah[0]).chunk(2, 1);
  const Tensor n = at::tanh(inputs[1] + gates[0] * ah[1]);
  return {n + gates[1] * (state[0] - n)};
}

struct Composition {
  Inputs (*inputs)(const Parameters& p, const Tensor& x);
  State (*step)(const Parameters& p, const Inputs& inputs, const State& state);
};

// Returns y [T, B, H]. Splits inputs by unbind, because x[t] in every step makes backward quadratic
// in T.
Tensor Unroll(const Composition& cell, const Parameters& p, const Tensor& x, State state) {
  std::vector<std::vector<Tensor>> inputs;
  for (const Tensor& part : cell.inputs(p, x)) inputs.push_back(part.unbind(0));
  std::vector<Tensor> y;
  for (size_t t = 0; t < inputs[0].size(); ++t) {
    Inputs step;
    for (const auto& part : inputs) step.push_back(part[t]);
    state = cell.step(p, step, state);
    y.push_back(state[0]);
  }
  return at::stack(y);
}

struct Results {
  Tensor y;
  std::vector<Tensor> gradients;
};

}  // namespace

Contestant MakeComposed(Cell cell, const Case& c, const Arrays& arrays) {
  if (cell != Cell::kLnLstm && cell != Cell::kLnGru) {
    return {.absent = "has only LN-LSTM and LN-GRU"};
  }
  const bool lstm = cell == Cell::kLnLstm;
  const Composition composition =
      lstm ? Composition{LstmInputs, LstmStep} : Composition{GruInputs, GruStep};
  const RnnShape s = c.shape;
  const Parameters parameters = ParametersOf(cell, c, arrays);
  const auto results = std::make_shared<Results>();
  if (c.mode == Mode::kStep) {
    const Tensor x = View(arrays.x, {s.batch, s.inputs});
    State state = {View(arrays.h, {s.batch, s.hidden})};
    if (lstm) state.push_back(View(arrays.c, {s.batch, s.hidden}));
    return {.call =
                [=] {
                  const at::NoGradGuard no_grad;
                  results->y =
                      composition.step(parameters, composition.inputs(parameters, x), state)[0];
                },
            .fetch = [=] { Store(results->y, arrays.y); }};
  }
  const Tensor x = View(arrays.x, {s.time, s.batch, s.inputs});
  const Tensor zeros = at::zeros({s.batch, s.hidden});
  const State state = lstm ? State{zeros, zeros} : State{zeros};
  if (c.mode == Mode::kForward) {
    return {.call =
                [=] {
                  const at::NoGradGuard no_grad;
                  results->y = Unroll(composition, parameters, x, state);
                },
            .fetch = [=] { Store(results->y, arrays.y); }};
  }
  x.set_requires_grad(true);
  std::vector<Tensor> inputs = {x};
  inputs.insert(inputs.end(), parameters.all.begin(), parameters.all.end());
  const Tensor dy = View(arrays.dy, {s.time, s.batch, s.hidden});
  return {.call =
              [=] {
                results->y = Unroll(composition, parameters, x, state);
                results->gradients = torch::autograd::grad({results->y}, inputs, {dy});
              },
          .fetch =
              [=] {
                Store(results->y, arrays.y);
                Store(results->gradients[0], arrays.dx);
                for (size_t i = 0; i < parameters.all.size(); ++i) {
                  Store(results->gradients[i + 1], parameters.gradients[i]);
                }
              }};
}

}  // namespace planish::bench::rnn
