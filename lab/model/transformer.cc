#include "lab/model/transformer.h"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <torch/nn/init.h>

#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "lab/error.h"
#include "lab/model/dropout.h"

namespace planish::lab {

namespace {

// Returns a linear layer whose weights are uniform with variance gain^2 * 2 / (inputs + outputs),
// as in fairseq.
Linear MakeLinear(int64_t inputs, int64_t outputs, double gain = 1) {
  Linear linear(inputs, outputs);
  torch::nn::init::xavier_uniform_(linear->weight, gain);
  torch::nn::init::zeros_(linear->bias);
  return linear;
}

// Gain of a matrix [D, D] that has the variance of a fused matrix [3D, D]:
// sqrt(2 / (D + 3D)) = sqrt(1/2) sqrt(2 / (D + D)).
constexpr double kOneOfThree = 0.7071067811865476;
// Gain of two thirds, [2D, D]: sqrt(2 / (D + 3D)) in terms of sqrt(2 / (D + 2D)).
constexpr double kTwoOfThree = 0.8660254037844386;

// Splits [B, T, parts * D] into parts of [B, H, T, D/H]: views.
std::vector<at::Tensor> SplitHeads(const at::Tensor& x, int64_t parts, int64_t heads) {
  const int64_t width = x.size(2) / parts;
  return x.view({x.size(0), x.size(1), parts, heads, width / heads})
      .permute({2, 0, 3, 1, 4})
      .unbind(0);
}

// Returns softmax(q k' / sqrt(D/H) + mask) v with concatenated heads: [B, T, D].
at::Tensor Attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const at::Tensor& mask, bool causal, double dropout) {
  at::Tensor y;
  if (dropout == 0) {
    const std::optional<at::Tensor> added =
        mask.defined() ? std::optional(mask.to(q.scalar_type())) : std::nullopt;
    y = at::scaled_dot_product_attention(q, k, v, added, /*dropout_p=*/0, causal);
  } else {
    // Equals the fused attention on the CPU, which has no dropout.
    const double scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
    at::Tensor scores = at::matmul(q * scale, k.transpose(2, 3));
    if (mask.defined()) scores = scores + mask;
    if (causal) {
      const at::Tensor later =
          at::ones({q.size(2), k.size(2)}, q.options().dtype(at::kBool)).triu(1);
      scores = scores.masked_fill(later, -std::numeric_limits<double>::infinity());
    }
    y = at::matmul(Dropout(scores.softmax(3), dropout, /*training=*/true), v);
  }
  return y.transpose(1, 2).flatten(2);
}

void CheckHeads(const TransformerOptions& options) {
  if (options.width % options.heads != 0) {
    throw UsageError(fmt::format("[Transformer] heads must divide the width {}, got {}",
                                 options.width, options.heads));
  }
}

at::Tensor Rows(const at::Tensor& x, const at::Tensor& rows) {
  return x.defined() ? x.index_select(0, rows) : x;
}

}  // namespace

at::Tensor SinusoidalPositions(int64_t length, int64_t width) {
  if (width % 2 != 0) {
    throw UsageError(fmt::format("[SinusoidalPositions] width must be even, got {}", width));
  }
  const at::Tensor exponent = at::arange(0, width, 2, at::kDouble) / static_cast<double>(width);
  const at::Tensor angle =
      at::arange(length, at::kDouble).unsqueeze(1) * at::pow(1e-4, exponent);  // [length, width/2]
  return at::stack({angle.sin(), angle.cos()}, 2).flatten(1).to(at::kFloat);
}

at::Tensor PaddingMask(const at::Tensor& lengths, int64_t longest) {
  if (lengths.min().item<int64_t>() >= longest) return {};
  const at::Tensor padding = at::arange(longest, lengths.options()) >= lengths.unsqueeze(1);
  return at::zeros({lengths.size(0), 1, 1, longest}, lengths.options().dtype(at::kFloat))
      .masked_fill_(padding.view({-1, 1, 1, longest}), -std::numeric_limits<float>::infinity());
}

SelfAttention::SelfAttention(const TransformerOptions& options)
    : options_(options),
      qkv_(register_module("qkv", MakeLinear(options.width, 3 * options.width))),
      out_(register_module("out", MakeLinear(options.width, options.width))) {
  CheckHeads(options);
}

at::Tensor SelfAttention::forward(const at::Tensor& x, const at::Tensor& mask, bool causal) {
  const auto qkv = SplitHeads(qkv_->forward(x), 3, options_.heads);
  return out_->forward(
      Attend(qkv[0], qkv[1], qkv[2], mask, causal, is_training() ? options_.attention_dropout : 0));
}

at::Tensor SelfAttention::Step(const at::Tensor& x, KeysValues& past) {
  const auto qkv = SplitHeads(qkv_->forward(x), 3, options_.heads);
  past.keys = past.keys.defined() ? at::cat({past.keys, qkv[1]}, 2) : qkv[1];
  past.values = past.values.defined() ? at::cat({past.values, qkv[2]}, 2) : qkv[2];
  return out_->forward(Attend(qkv[0], past.keys, past.values, {}, /*causal=*/false,
                              is_training() ? options_.attention_dropout : 0));
}

CrossAttention::CrossAttention(const TransformerOptions& options)
    : options_(options),
      query_(register_module("query", MakeLinear(options.width, options.width, kOneOfThree))),
      kv_(register_module("kv", MakeLinear(options.width, 2 * options.width, kTwoOfThree))),
      out_(register_module("out", MakeLinear(options.width, options.width))) {
  CheckHeads(options);
}

KeysValues CrossAttention::Project(const at::Tensor& memory) {
  const auto kv = SplitHeads(kv_->forward(memory), 2, options_.heads);
  return {kv[0], kv[1]};
}

at::Tensor CrossAttention::forward(const at::Tensor& x, const KeysValues& memory,
                                   const at::Tensor& mask) {
  // Positions that attend to a memory are independent of each other: rows that share one become one
  // longer row.
  const at::Tensor query = query_->forward(x).view({memory.keys.size(0), -1, options_.width});
  const at::Tensor y =
      Attend(SplitHeads(query, 1, options_.heads)[0], memory.keys, memory.values, mask,
             /*causal=*/false, is_training() ? options_.attention_dropout : 0);
  return out_->forward(y.view(x.sizes()));
}

FeedForward::FeedForward(const TransformerOptions& options)
    : dropout_(options.activation_dropout),
      hidden_(register_module("hidden", MakeLinear(options.width, options.ffn))),
      out_(register_module("out", MakeLinear(options.ffn, options.width))) {}

at::Tensor FeedForward::forward(const at::Tensor& x) {
  return out_->forward(Dropout(hidden_->forward(x).relu(), dropout_, is_training()));
}

EncoderLayer::EncoderLayer(const TransformerOptions& options) : dropout_(options.dropout) {
  const auto norm = [&] { return MakeNorm(options.norm, {options.width}, options.norm_options); };
  attention_norm_ = register_module("attention_norm", norm());
  attention_ = register_module("attention", std::make_shared<SelfAttention>(options));
  ffn_norm_ = register_module("ffn_norm", norm());
  ffn_ = register_module("ffn", std::make_shared<FeedForward>(options));
}

at::Tensor EncoderLayer::forward(const at::Tensor& x, const at::Tensor& mask) {
  const bool training = is_training();
  const at::Tensor a = attention_->forward(attention_norm_->forward(x), mask, /*causal=*/false);
  const at::Tensor h = AddDropout(x, a, dropout_, training);
  return AddDropout(h, ffn_->forward(ffn_norm_->forward(h)), dropout_, training);
}

DecoderLayer::DecoderLayer(const TransformerOptions& options) : dropout_(options.dropout) {
  const auto norm = [&] { return MakeNorm(options.norm, {options.width}, options.norm_options); };
  attention_norm_ = register_module("attention_norm", norm());
  attention_ = register_module("attention", std::make_shared<SelfAttention>(options));
  cross_norm_ = register_module("cross_norm", norm());
  cross_ = register_module("cross", std::make_shared<CrossAttention>(options));
  ffn_norm_ = register_module("ffn_norm", norm());
  ffn_ = register_module("ffn", std::make_shared<FeedForward>(options));
}

at::Tensor DecoderLayer::forward(const at::Tensor& x, const KeysValues& memory,
                                 const at::Tensor& mask) {
  const at::Tensor a = attention_->forward(attention_norm_->forward(x), {}, /*causal=*/true);
  return Rest(AddDropout(x, a, dropout_, is_training()), memory, mask);
}

at::Tensor DecoderLayer::Step(const at::Tensor& x, KeysValues& past, const KeysValues& memory,
                              const at::Tensor& mask) {
  const at::Tensor a = attention_->Step(attention_norm_->forward(x), past);
  return Rest(AddDropout(x, a, dropout_, is_training()), memory, mask);
}

// Computes the sublayers after the self-attention.
at::Tensor DecoderLayer::Rest(const at::Tensor& x, const KeysValues& memory,
                              const at::Tensor& mask) {
  const bool training = is_training();
  const at::Tensor c = cross_->forward(cross_norm_->forward(x), memory, mask);
  const at::Tensor h = AddDropout(x, c, dropout_, training);
  return AddDropout(h, ffn_->forward(ffn_norm_->forward(h)), dropout_, training);
}

TransformerEncoder::TransformerEncoder(const TransformerOptions& options) {
  for (int64_t i = 0; i < options.layers; ++i) {
    layers_.push_back(register_module(std::to_string(i), std::make_shared<EncoderLayer>(options)));
  }
  final_norm_ = register_module(
      "final_norm", MakeNorm(options.final_norm, {options.width}, options.norm_options));
}

at::Tensor TransformerEncoder::forward(const at::Tensor& x, const at::Tensor& mask) {
  at::Tensor y = x;
  for (const auto& layer : layers_) y = layer->forward(y, mask);
  return final_norm_->forward(y);
}

void DecoderState::Reorder(const at::Tensor& rows) {
  for (auto& [keys, values] : past) {
    keys = Rows(keys, rows);
    values = Rows(values, rows);
  }
}

void DecoderState::ReorderMemory(const at::Tensor& rows) {
  for (auto& [keys, values] : memory) {
    keys = Rows(keys, rows);
    values = Rows(values, rows);
  }
  mask = Rows(mask, rows);
}

TransformerDecoder::TransformerDecoder(const TransformerOptions& options) {
  for (int64_t i = 0; i < options.layers; ++i) {
    layers_.push_back(register_module(std::to_string(i), std::make_shared<DecoderLayer>(options)));
  }
  final_norm_ = register_module(
      "final_norm", MakeNorm(options.final_norm, {options.width}, options.norm_options));
}

at::Tensor TransformerDecoder::forward(const at::Tensor& x, const at::Tensor& memory,
                                       const at::Tensor& mask) {
  at::Tensor y = x;
  for (const auto& layer : layers_) y = layer->forward(y, layer->Project(memory), mask);
  return final_norm_->forward(y);
}

DecoderState TransformerDecoder::Start(const at::Tensor& memory, const at::Tensor& mask) {
  DecoderState state{.past = std::vector<KeysValues>(layers_.size()), .memory = {}, .mask = mask};
  for (const auto& layer : layers_) state.memory.push_back(layer->Project(memory));
  return state;
}

at::Tensor TransformerDecoder::Step(const at::Tensor& x, DecoderState& state) {
  at::Tensor y = x;
  for (size_t i = 0; i < layers_.size(); ++i) {
    y = layers_[i]->Step(y, state.past[i], state.memory[i], state.mask);
  }
  return final_norm_->forward(y);
}

}  // namespace planish::lab
