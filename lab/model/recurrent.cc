#include "lab/model/recurrent.h"

#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/modules/rnn.h>

#include "lab/error.h"

namespace planish::lab {

namespace {

// A layer whose forward takes and gives (h, c).
template <class Layer, class LayerOptions>
class Lstm final : public RecurrentModule {
 public:
  Lstm(const RecurrentOptions& o, const LayerOptions& options)
      : options_(o), layer_(register_module("layer", Layer(options))) {}

  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& x, const at::Tensor& state) override {
    auto [y, last] = layer_->forward(x, std::make_tuple(state[0], state[1]));
    return {y, at::stack({std::get<0>(last), std::get<1>(last)})};
  }

  at::Tensor ZeroState(int64_t batch) const override {
    return at::zeros({2, options_.layers, batch, options_.hidden});
  }

 private:
  RecurrentOptions options_;
  Layer layer_;
};

// A layer whose forward takes and gives h.
template <class Layer, class LayerOptions>
class Rnn final : public RecurrentModule {
 public:
  Rnn(const RecurrentOptions& o, const LayerOptions& options)
      : options_(o), layer_(register_module("layer", Layer(options))) {}

  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& x, const at::Tensor& state) override {
    auto [y, last] = layer_->forward(x, state[0]);
    return {y, last.unsqueeze(0)};
  }

  at::Tensor ZeroState(int64_t batch) const override {
    return at::zeros({1, options_.layers, batch, options_.hidden});
  }

 private:
  RecurrentOptions options_;
  Layer layer_;
};

using Module = std::shared_ptr<RecurrentModule>;

struct Entry {
  std::string name;
  Module (*make)(const RecurrentOptions& options);
};

const std::vector<Entry>& Table() {
  static const std::vector<Entry> table = {
      {"lstm",
       [](const RecurrentOptions& o) -> Module {
         return std::make_shared<Lstm<torch::nn::LSTM, torch::nn::LSTMOptions>>(
             o, torch::nn::LSTMOptions(o.inputs, o.hidden).num_layers(o.layers));
       }},
      {"gru",
       [](const RecurrentOptions& o) -> Module {
         return std::make_shared<Rnn<torch::nn::GRU, torch::nn::GRUOptions>>(
             o, torch::nn::GRUOptions(o.inputs, o.hidden).num_layers(o.layers));
       }},
  };
  return table;
}

}  // namespace

const std::vector<std::string>& CellNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Entry& entry : Table()) all.push_back(entry.name);
    return all;
  }();
  return names;
}

std::shared_ptr<RecurrentModule> MakeRecurrent(const std::string& name,
                                               const RecurrentOptions& options) {
  for (const Entry& entry : Table()) {
    if (entry.name == name) return entry.make(options);
  }
  throw UsageError(fmt::format("[MakeRecurrent] cell must be one of {} but has \"{}\"",
                               fmt::join(CellNames(), ", "), name));
}

}  // namespace planish::lab
