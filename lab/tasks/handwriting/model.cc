#include "lab/tasks/handwriting/model.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "lab/tasks/handwriting/mixture.h"
#include "lab/tasks/handwriting/window.h"

namespace planish::lab {

namespace {

constexpr std::pair<const char*, const char*> kCells[] = {
    {"none", "lstm"},
    {"layer", "ln-lstm"},
    {"layer-haste", "ln-lstm-haste"},
    {"layer-fastrnns", "ln-lstm-fastrnns"},
    {"layer-tfa", "ln-lstm-tfa"},
    {"layer-contrib", "ln-lstm-contrib"},
    {"layer-draw", "draw-lstm"},
    {"slstm", "slstm"},
};

// Initial parameters of a recurrent layer, drawn before any layer is made, because the layers of
// different norms draw different amounts.
struct LayerStart {
  LayerStart(int64_t inputs, int64_t hidden, int64_t heads) {
    const double bound = 1 / std::sqrt(static_cast<double>(hidden));
    const auto draw = [&](at::IntArrayRef sizes) {
      return at::empty(sizes).uniform_(-bound, bound);
    };
    parts["weight_ih"] = draw({4 * hidden, inputs});
    parts["weight_hh"] = draw({4 * hidden, hidden / heads});
    parts["bias_ih"] = draw({4 * hidden});
    parts["bias_hh"] = at::zeros({4 * hidden});
  }

  void Fill(torch::nn::Module& layer) const {
    const at::NoGradGuard no_grad;
    for (auto& item : layer.named_parameters()) {
      // "layer.weight_ih_l0", "layer.weight_ih"; those of norms are "layer.ln_...".
      const std::string_view name = std::string_view(item.key()).substr(item.key().rfind('.') + 1);
      for (const auto& [part, value] : parts) {
        if (name.starts_with(part)) item.value().copy_(value);
      }
    }
  }

  std::map<std::string, at::Tensor> parts;
};

// Clips derivatives with respect to x to `limit`. x must be a new intermediate result.
void ClipDerivative(const at::Tensor& x, double limit) {
  if (limit == 0 || !x.requires_grad()) return;
  x.register_hook([limit](const at::Tensor& gradient) { return gradient.clamp(-limit, limit); });
}

}  // namespace

const std::vector<std::string>& HandwritingNorms() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& [norm, cell] : kCells) all.emplace_back(norm);
    std::swap(all[0], all[1]);  // the default is the first
    return all;
  }();
  return names;
}

std::string HandwritingCell(const std::string& norm) {
  for (const auto& [name, cell] : kCells) {
    if (name == norm) return cell;
  }
  throw std::logic_error("[HandwritingCell] norm must be one of HandwritingNorms(), got " + norm);
}

HandwritingModel::HandwritingModel(const Options& options) : options_(options) {
  const int64_t hidden = options.hidden, below = 3 + options.alphabet + hidden;
  const std::string cell = HandwritingCell(options.norm);
  RecurrentOptions layer{.inputs = 3 + options.alphabet,
                         .hidden = hidden,
                         .epsilon = options.epsilon,
                         .gain = options.gain,
                         .heads = options.heads,
                         .composed = options.composed};
  CheckRecurrent(cell, layer);
  const LayerStart first(layer.inputs, hidden, layer.heads), second(below, hidden, layer.heads),
      third(below, hidden, layer.heads);
  window_ = register_module("window", torch::nn::Linear(hidden, 3 * options.window));
  output_ = register_module("output", Linear(3 * hidden, MixtureSize(options.mixture)));
  first_ = register_module("first", MakeRecurrentSteps(cell, layer));
  layer.inputs = below;
  second_ = register_module("second", MakeRecurrent(cell, layer));
  third_ = register_module("third", MakeRecurrent(cell, layer));
  first.Fill(*first_);
  second.Fill(*second_);
  third.Fill(*third_);
  const at::NoGradGuard no_grad;
  window_->bias.slice(0, 2 * options.window).fill_(std::log(options.advance));
}

at::Tensor HandwritingModel::forward(const at::Tensor& x, const at::Tensor& lengths,
                                     const at::Tensor& symbols, double scale) {
  const int64_t batch = x.size(1);
  const double limit = options_.clip_layers * scale;
  const TextWindow text(symbols, options_.alphabet, x.scalar_type(), options_.composed);
  first_->Begin();
  RecurrentState state = first_->ZeroState(batch);
  at::Tensor window = at::zeros({batch, options_.alphabet}, x.options());
  at::Tensor positions = at::zeros({batch, options_.window}, x.options());
  std::vector<at::Tensor> outputs, windows;
  for (const at::Tensor& point : x.unbind(0)) {
    state = first_->Step(at::cat({point, window}, 1), state);
    ClipDerivative(state.h, limit);
    std::tie(window, positions) = text.Step(window_->forward(state.h), positions);
    outputs.push_back(state.h);
    windows.push_back(window);
  }
  const at::Tensor all_windows = at::stack(windows);
  const at::Tensor h1 = at::stack(outputs);
  const at::Tensor h2 =
      second_->forward(at::cat({x, all_windows, h1}, 2), second_->ZeroState(batch), lengths).first;
  ClipDerivative(h2, limit);
  const at::Tensor h3 =
      third_->forward(at::cat({x, all_windows, h2}, 2), third_->ZeroState(batch), lengths).first;
  ClipDerivative(h3, limit);
  const at::Tensor y = output_->forward(at::cat({h1, h2, h3}, 2));
  ClipDerivative(y, options_.clip_outputs * scale);
  return y;
}

HandwritingModel::Pen HandwritingModel::Start(int64_t batch) {
  first_->Begin();
  const auto zeros = [&](int64_t columns) {
    return at::zeros({batch, columns}, output_->weight.options().requires_grad(false));
  };
  return {.first = first_->ZeroState(batch),
          .second = second_->ZeroState(batch),
          .third = third_->ZeroState(batch),
          .window = zeros(options_.alphabet),
          .positions = zeros(options_.window),
          .raw = zeros(3 * options_.window)};
}

at::Tensor HandwritingModel::Step(const at::Tensor& x, const at::Tensor& symbols, Pen& pen) {
  const TextWindow text(symbols, options_.alphabet, x.scalar_type(), options_.composed);
  pen.first = first_->Step(at::cat({x, pen.window}, 1), pen.first);
  const at::Tensor& h1 = pen.first.h;
  pen.raw = window_->forward(h1);
  std::tie(pen.window, pen.positions) = text.Step(pen.raw, pen.positions);
  const auto layer = [&](RecurrentModule& module, const at::Tensor& below, at::Tensor& state) {
    at::Tensor h;
    std::tie(h, state) = module.forward(at::cat({x, pen.window, below}, 1).unsqueeze(0), state);
    return h[0];
  };
  const at::Tensor h2 = layer(*second_, h1, pen.second);
  const at::Tensor h3 = layer(*third_, h2, pen.third);
  return output_->forward(at::cat({h1, h2, h3}, 1));
}

}  // namespace planish::lab
