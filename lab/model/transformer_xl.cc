#include "lab/model/transformer_xl.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/modules/container/modulelist.h>

#include <algorithm>
#include <cmath>

#include "lab/model/dropout.h"
#include "lab/model/linear.h"
#include "lab/model/relative_attention.h"

namespace planish::lab {

namespace {

// A product's weights, drawn for real by TransformerXl.
Linear Product(int64_t inputs, int64_t outputs, bool bias) {
  return Linear(torch::nn::LinearOptions(inputs, outputs).bias(bias));
}

}  // namespace

class TransformerXl::Layer : public torch::nn::Module {
 public:
  explicit Layer(const Options& o)
      : options_(o),
        query_(register_module("query", Product(o.width, o.heads * o.head_width, false))),
        key_value_(
            register_module("key_value", Product(o.width, 2 * o.heads * o.head_width, false))),
        position_(register_module("position", Product(o.width, o.heads * o.head_width, false))),
        attended_(register_module("attended", Product(o.heads * o.head_width, o.width, false))),
        inner_(register_module("inner", Product(o.width, o.inner, true))),
        outer_(register_module("outer", Product(o.inner, o.width, true))),
        attention_norm_(
            register_module("attention_norm", MakeNorm(o.norm, {o.width}, o.norm_options))),
        feedforward_norm_(
            register_module("feedforward_norm", MakeNorm(o.norm, {o.width}, o.norm_options))) {}

  // x [B, T, width], memory [B, M, width] or undefined, sinusoids [M + T + 1, width].
  at::Tensor forward(at::Tensor x, at::Tensor memory, const at::Tensor& sinusoids,
                     const at::Tensor& content_bias, const at::Tensor& position_bias,
                     int64_t window) {
    at::Tensor input = x;
    if (options_.pre_norm) {
      input = attention_norm_->forward(x);
      if (memory.defined()) memory = attention_norm_->forward(memory);
    }
    at::Tensor y = RelativeAttention(query_->forward(input), key_value_->forward(input),
                                     memory.defined() ? key_value_->forward(memory) : at::Tensor(),
                                     position_->forward(sinusoids), content_bias, position_bias,
                                     {.heads = options_.heads,
                                      .window = window,
                                      .dropout = is_training() ? options_.attention_dropout : 0});
    x = AddDropout(x, attended_->forward(y), options_.dropout, is_training());
    if (!options_.pre_norm) x = attention_norm_->forward(x);
    input = options_.pre_norm ? feedforward_norm_->forward(x) : x;
    y = Dropout(inner_->forward(input).relu_(), options_.dropout, is_training());
    x = AddDropout(x, outer_->forward(y), options_.dropout, is_training());
    return options_.pre_norm ? x : feedforward_norm_->forward(x);
  }

  // Draws all weights but those of the norms.
  void Draw(double deviation) {
    for (const Linear& linear : {query_, key_value_, position_, attended_, inner_, outer_}) {
      linear->weight.normal_(0, deviation);
      if (linear->bias.defined()) linear->bias.zero_();
    }
  }

 private:
  Options options_;
  Linear query_, key_value_, position_, attended_, inner_, outer_;
  std::shared_ptr<NormModule> attention_norm_, feedforward_norm_;
};

TransformerXl::TransformerXl(const Options& o)
    : options_(o),
      embedding_(register_module("embedding", torch::nn::Embedding(o.symbols, o.width))),
      output_bias_(register_parameter("output_bias", at::zeros({o.symbols}))),
      content_bias_(register_parameter("content_bias", at::empty({o.heads * o.head_width}))),
      position_bias_(register_parameter("position_bias", at::empty({o.heads * o.head_width}))),
      frequencies_(
          at::pow(10000, -at::arange(0, o.width, 2, at::kDouble) / static_cast<double>(o.width))) {
  const auto list = register_module("layers", torch::nn::ModuleList());
  for (int64_t i = 0; i < o.layers; ++i) {
    layers_.push_back(std::make_shared<Layer>(o));
    list->push_back(layers_.back());
  }
  const at::NoGradGuard no_grad;
  embedding_->weight.normal_(0, o.deviation);
  content_bias_.normal_(0, o.deviation);
  position_bias_.normal_(0, o.deviation);
  for (const auto& layer : layers_) layer->Draw(o.deviation);
}

TransformerXl::~TransformerXl() = default;

at::Tensor TransformerXl::Sinusoids(int64_t farthest, int64_t clamp) const {
  at::Tensor distances = at::arange(farthest, -1, -1, at::kDouble);
  if (clamp > 0) distances.clamp_max_(static_cast<double>(clamp));
  const at::Tensor angles = at::outer(distances, frequencies_);
  return at::cat({angles.sin(), angles.cos()}, 1)
      .slice(1, 0, options_.width)
      .to(embedding_->weight.options());
}

at::Tensor TransformerXl::forward(const at::Tensor& x, SegmentMemory& memory, const Reach& reach) {
  const int64_t length = x.size(1);
  const int64_t remembered = memory.empty() ? 0 : memory[0].size(1);
  const auto drop = [&](const at::Tensor& t) {
    return Dropout(t, options_.dropout, is_training());
  };
  at::Tensor y = drop(embedding_->forward(x) * std::sqrt(static_cast<double>(options_.width)));
  const at::Tensor sinusoids = drop(Sinusoids(remembered + length, reach.clamp));
  SegmentMemory next;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const at::Tensor before = remembered > 0 ? memory[i] : at::Tensor();
    if (reach.memory > 0) {
      const at::Tensor now = y.detach();
      const at::Tensor all =
          remembered > 0 && length < reach.memory ? at::cat({before, now}, 1) : now;
      next.push_back(all.slice(1, std::max<int64_t>(all.size(1) - reach.memory, 0)));
    }
    y = layers_[i]->forward(y, before, sinusoids, content_bias_, position_bias_, reach.window);
  }
  memory = std::move(next);
  return LinearProduct(drop(y).flatten(0, 1), embedding_->weight, output_bias_);
}

}  // namespace planish::lab
