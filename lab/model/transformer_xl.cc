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
        attention_residual_(MakeResidual("attention")),
        feedforward_residual_(MakeResidual("feedforward")) {
    if (!o.qk_norm) return;
    const std::vector<int64_t> head = {o.head_width};
    query_norm_ = register_module("query_norm", MakeNorm(o.norm, head, o.norm_options));
    key_norm_ = register_module("key_norm", MakeNorm(o.norm, head, o.norm_options));
  }

  // x [B, T, width], memory [B, M, width] or undefined, sinusoids [M + T + 1, width].
  at::Tensor forward(const at::Tensor& x, const at::Tensor& memory, const at::Tensor& sinusoids,
                     const at::Tensor& content_bias, const at::Tensor& position_bias,
                     int64_t window) {
    const at::Tensor input = attention_residual_.Input(x);
    at::Tensor y =
        RelativeAttention(Queries(input), KeysValues(input),
                          memory.defined() ? KeysValues(attention_residual_.Input(memory)) : memory,
                          position_->forward(sinusoids), content_bias, position_bias,
                          {.heads = options_.heads,
                           .window = window,
                           .dropout = is_training() ? options_.attention_dropout : 0});
    const at::Tensor h = attention_residual_.Output(x, attended_->forward(y), is_training());
    y = inner_->forward(feedforward_residual_.Input(h)).relu_();
    y = Dropout(y, options_.dropout, is_training());
    return feedforward_residual_.Output(h, outer_->forward(y), is_training());
  }

  // Draws all weights but those of the norms. `beta` is that of DeepNorm.
  void Draw(double deviation, double beta) {
    for (const Linear& linear : {query_, key_value_, position_, attended_, inner_, outer_}) {
      linear->weight.normal_(0, deviation);
      if (linear->bias.defined()) linear->bias.zero_();
    }
    if (beta == 1) return;
    const at::Tensor values = key_value_->weight.slice(0, options_.heads * options_.head_width);
    for (const at::Tensor& weight : {values, attended_->weight, inner_->weight, outer_->weight}) {
      weight.mul_(beta);
    }
  }

 private:
  Residual MakeResidual(const std::string& name) {
    return {*this,
            name,
            {.placement = options_.placement,
             .alpha = FactorsOfStack(options_.placement, options_.layers).alpha,
             .dropout = options_.dropout},
            [&] { return MakeNorm(options_.norm, {options_.width}, options_.norm_options); }};
  }

  // Returns queries [B, T, H * d].
  at::Tensor Queries(const at::Tensor& x) {
    const at::Tensor q = query_->forward(x);
    return query_norm_ ? ByHead(*query_norm_, q) : q;
  }
  // Returns keys and values [B, T, 2 H * d].
  at::Tensor KeysValues(const at::Tensor& x) {
    const at::Tensor kv = key_value_->forward(x);
    if (!key_norm_) return kv;
    const auto parts = kv.chunk(2, 2);
    return at::cat({ByHead(*key_norm_, parts[0]), parts[1]}, 2);
  }
  // Normalizes x [B, T, H * d] for each head.
  at::Tensor ByHead(NormModule& norm, const at::Tensor& x) const {
    return norm.forward(x.unflatten(2, {options_.heads, options_.head_width})).flatten(2);
  }

  Options options_;
  Linear query_, key_value_, position_, attended_, inner_, outer_;
  Residual attention_residual_, feedforward_residual_;
  std::shared_ptr<NormModule> query_norm_, key_norm_;  // null without qk_norm
};

TransformerXl::TransformerXl(const Options& o)
    : options_(o),
      embedding_(register_module("embedding", torch::nn::Embedding(o.symbols, o.width))),
      output_bias_(register_parameter("output_bias", at::zeros({o.symbols}))),
      content_bias_(register_parameter("content_bias", at::empty({o.heads * o.head_width}))),
      position_bias_(register_parameter("position_bias", at::empty({o.heads * o.head_width}))),
      frequencies_(
          at::pow(10000, -at::arange(0, o.width, 2, at::kDouble) / static_cast<double>(o.width))) {
  const auto norm = [&](const std::string& name) {
    return register_module(name, MakeNorm(o.norm, {o.width}, o.norm_options));
  };
  if (HasEmbeddingNorm(o.placement)) embedding_norm_ = norm("embedding_norm");
  if (HasFinalNorm(o.placement)) final_norm_ = norm("final_norm");
  const auto list = register_module("layers", torch::nn::ModuleList());
  for (int64_t i = 0; i < o.layers; ++i) {
    layers_.push_back(std::make_shared<Layer>(o));
    list->push_back(layers_.back());
  }
  const at::NoGradGuard no_grad;
  embedding_->weight.normal_(0, o.deviation);
  content_bias_.normal_(0, o.deviation);
  position_bias_.normal_(0, o.deviation);
  const double beta = FactorsOfStack(o.placement, o.layers).beta;
  for (const auto& layer : layers_) layer->Draw(o.deviation, beta);
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
  if (embedding_norm_) y = embedding_norm_->forward(y);
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
  if (final_norm_) y = final_norm_->forward(y);
  return LinearProduct(drop(y).flatten(0, 1), embedding_->weight, output_bias_);
}

}  // namespace planish::lab
