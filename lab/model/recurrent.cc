#include "lab/model/recurrent.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/modules/rnn.h>

#include <tuple>

#include "lab/error.h"
#include "planish/torch.h"

namespace planish::lab {

namespace {

// A layer, Planish's or PyTorch's, behind the interface; kStates of them are h and c, or h.
template <class Layer, int64_t kStates>
class Wrapped final : public RecurrentModule {
 public:
  Wrapped(const RecurrentOptions& options, Layer layer)
      : options_(options), layer_(register_module("layer", std::move(layer))) {
    at::NoGradGuard no_grad;
    for (auto& item : layer_->named_parameters()) {
      const bool is_gain =
          item.key().starts_with("ln_") && item.key().find("_weight") != item.key().npos;
      if (is_gain) item.value().fill_(options.gain);
    }
  }

  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& x, const at::Tensor& state) override {
    if constexpr (kStates == 2) {
      const auto [y, last] = layer_->forward(x, std::make_tuple(state[0], state[1]));
      return {y, at::stack({std::get<0>(last), std::get<1>(last)})};
    } else {
      const auto [y, last] = layer_->forward(x, state[0]);
      return {y, last.unsqueeze(0)};
    }
  }

  at::Tensor ZeroState(int64_t batch) const override {
    return at::zeros({kStates, options_.layers, batch, options_.hidden});
  }

 private:
  RecurrentOptions options_;
  Layer layer_;
};

using Module = std::shared_ptr<RecurrentModule>;

// A layer of planish::nn that computes `cell`.
template <class Layer, class LayerOptions, int64_t kStates>
Module Make(const RecurrentOptions& o, Cell cell) {
  return std::make_shared<Wrapped<Layer, kStates>>(
      o, Layer(LayerOptions(o.inputs, o.hidden).num_layers(o.layers).variant(cell).eps(o.epsilon)));
}

// A layer of torch::nn.
template <class Layer, class LayerOptions, int64_t kStates>
Module MakeTorch(const RecurrentOptions& o, Cell) {
  return std::make_shared<Wrapped<Layer, kStates>>(
      o, Layer(LayerOptions(o.inputs, o.hidden).num_layers(o.layers)));
}

struct Entry {
  std::string name;
  Cell cell;
  Module (*make)(const RecurrentOptions& options, Cell cell);
};

const std::vector<Entry>& Table() {
  constexpr auto kRnn = Make<nn::LayerNormRNN, nn::LayerNormRNNOptions, 1>;
  constexpr auto kGru = Make<nn::LayerNormGRU, nn::LayerNormGRUOptions, 1>;
  constexpr auto kLstm = Make<nn::LayerNormLSTM, nn::LayerNormLSTMOptions, 2>;
  static const std::vector<Entry> table = {
      {"lstm", Cell::kLstm, kLstm},
      {"ln-lstm", Cell::kLnLstm, kLstm},
      {"gru", Cell::kGru, kGru},
      {"ln-gru", Cell::kLnGru, kGru},
      {"rnn", Cell::kRnn, kRnn},
      {"ln-rnn", Cell::kLnRnn, kRnn},
      {"rnn-relu", Cell::kRnnRelu, kRnn},
      {"ln-rnn-relu", Cell::kLnRnnRelu, kRnn},
      {"ln-lstm-haste", Cell::kLnLstmHaste, kLstm},
      {"ln-lstm-fastrnns", Cell::kLnLstmFastRnns, kLstm},
      {"ln-lstm-tfa", Cell::kLnLstmTfa, kLstm},
      {"ln-lstm-contrib", Cell::kLnLstmContrib, kLstm},
      {"draw-lstm", Cell::kDrawLstm, kLstm},
      {"torch-lstm", Cell::kLstm, MakeTorch<torch::nn::LSTM, torch::nn::LSTMOptions, 2>},
      {"torch-gru", Cell::kGru, MakeTorch<torch::nn::GRU, torch::nn::GRUOptions, 1>},
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
    if (entry.name == name) return entry.make(options, entry.cell);
  }
  throw UsageError(fmt::format("[MakeRecurrent] cell must be one of {} but has \"{}\"",
                               fmt::join(CellNames(), ", "), name));
}

}  // namespace planish::lab
