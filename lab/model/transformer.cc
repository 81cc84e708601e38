#include "lab/model/transformer.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/init.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "lab/error.h"
#include "lab/model/dropout.h"

namespace planish::lab {

namespace {

struct InitialWeightsRow {
  const char* name;
  InitialWeights init;
  bool kaiming_attention, kaiming_feed_forward;
};
constexpr InitialWeightsRow kInitialWeights[] = {
    {"glorot", InitialWeights::kGlorot, false, false},
    {"kaiming", InitialWeights::kKaiming, true, true},
    {"kaiming-attention", InitialWeights::kKaimingAttention, true, false},
};

const InitialWeightsRow& RowOf(InitialWeights init) {
  return *std::ranges::find(kInitialWeights, init, &InitialWeightsRow::init);
}

// Returns a linear layer with uniform weights: of variance gain^2 * 2 / (inputs + outputs), or with
// `kaiming` within 1 / sqrt(inputs). Multiplies those of outputs from `scaled_from` on by beta.
Linear MakeLinear(int64_t inputs, int64_t outputs, bool kaiming, double gain = 1, double beta = 1,
                  int64_t scaled_from = 0) {
  Linear linear(inputs, outputs);
  if (kaiming) {
    torch::nn::init::kaiming_uniform_(linear->weight, std::sqrt(5));
  } else {
    torch::nn::init::xavier_uniform_(linear->weight, gain);
  }
  torch::nn::init::zeros_(linear->bias);
  if (beta != 1) {
    const at::NoGradGuard no_grad;
    linear->weight.slice(0, scaled_from).mul_(beta);
  }
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

// Returns the residual connection of the sublayer `name` of `layer`, with the norm called `norm`.
Residual MakeResidual(torch::nn::Module& layer, const std::string& name,
                      const TransformerOptions& options, const ResidualFactors& factors,
                      const std::string& norm) {
  return {layer,
          name,
          {.placement = options.placement, .alpha = factors.alpha, .dropout = options.dropout},
          [&] { return MakeNorm(norm, {options.width}, options.norm_options); }};
}

// Makes the layers of `stack` and the norms before and after them.
template <class Layer>
std::vector<std::shared_ptr<Layer>> MakeLayers(torch::nn::Module& stack,
                                               const TransformerOptions& options,
                                               const ResidualFactors& factors,
                                               std::shared_ptr<NormModule>& embedding_norm,
                                               std::shared_ptr<NormModule>& final_norm) {
  const auto norm = [&](const std::string& place, const std::string& name) {
    return stack.register_module(place, MakeNorm(name, {options.width}, options.norm_options));
  };
  const bool has_final = HasFinalNorm(options.placement);
  if (HasEmbeddingNorm(options.placement)) embedding_norm = norm("embedding_norm", options.norm);
  std::vector<std::shared_ptr<Layer>> layers;
  for (int64_t i = 0; i < options.layers; ++i) {
    const bool ends = i + 1 == options.layers && !has_final;
    layers.push_back(stack.register_module(
        std::to_string(i),
        std::make_shared<Layer>(options, factors, ends ? options.final_norm : options.norm)));
  }
  if (has_final) final_norm = norm("final_norm", options.final_norm);
  return layers;
}

at::Tensor Normalized(const std::shared_ptr<NormModule>& norm, const at::Tensor& x) {
  return norm ? norm->forward(x) : x;
}

}  // namespace

std::vector<std::string> InitialWeightsNames() {
  std::vector<std::string> names;
  for (const InitialWeightsRow& row : kInitialWeights) names.emplace_back(row.name);
  return names;
}

InitialWeights InitialWeightsOf(const std::string& name) {
  for (const InitialWeightsRow& row : kInitialWeights) {
    if (row.name == name) return row.init;
  }
  throw UsageError(fmt::format("[InitialWeightsOf] init must be one of {}, got \"{}\"",
                               fmt::join(InitialWeightsNames(), ", "), name));
}

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

QueryKeyNorms::QueryKeyNorms(torch::nn::Module& attention, const TransformerOptions& options) {
  CheckHeads(options);
  if (!options.qk_norm) return;
  const std::vector<int64_t> shape = {options.width / options.heads};
  query_ =
      attention.register_module("query_norm", MakeNorm(options.norm, shape, options.norm_options));
  key_ = attention.register_module("key_norm", MakeNorm(options.norm, shape, options.norm_options));
}

SelfAttention::SelfAttention(const TransformerOptions& options, double beta)
    : options_(options),
      qkv_(register_module(
          "qkv", MakeLinear(options.width, 3 * options.width, RowOf(options.init).kaiming_attention,
                            1, beta, 2 * options.width))),
      out_(register_module("out", MakeLinear(options.width, options.width,
                                             RowOf(options.init).kaiming_attention, 1, beta))),
      norms_(*this, options) {}

at::Tensor SelfAttention::forward(const at::Tensor& x, const at::Tensor& mask, bool causal) {
  const auto qkv = SplitHeads(qkv_->forward(x), 3, options_.heads);
  return out_->forward(Attend(norms_.Queries(qkv[0]), norms_.Keys(qkv[1]), qkv[2], mask, causal,
                              is_training() ? options_.attention_dropout : 0));
}

at::Tensor SelfAttention::Step(const at::Tensor& x, KeysValues& past) {
  const auto qkv = SplitHeads(qkv_->forward(x), 3, options_.heads);
  const at::Tensor keys = norms_.Keys(qkv[1]);
  past.keys = past.keys.defined() ? at::cat({past.keys, keys}, 2) : keys;
  past.values = past.values.defined() ? at::cat({past.values, qkv[2]}, 2) : qkv[2];
  return out_->forward(Attend(norms_.Queries(qkv[0]), past.keys, past.values, {}, /*causal=*/false,
                              is_training() ? options_.attention_dropout : 0));
}

CrossAttention::CrossAttention(const TransformerOptions& options, double beta)
    : options_(options),
      query_(
          register_module("query", MakeLinear(options.width, options.width,
                                              RowOf(options.init).kaiming_attention, kOneOfThree))),
      kv_(register_module(
          "kv", MakeLinear(options.width, 2 * options.width, RowOf(options.init).kaiming_attention,
                           kTwoOfThree, beta, options.width))),
      out_(register_module("out", MakeLinear(options.width, options.width,
                                             RowOf(options.init).kaiming_attention, 1, beta))),
      norms_(*this, options) {}

KeysValues CrossAttention::Project(const at::Tensor& memory) {
  const auto kv = SplitHeads(kv_->forward(memory), 2, options_.heads);
  return {norms_.Keys(kv[0]), kv[1]};
}

at::Tensor CrossAttention::forward(const at::Tensor& x, const KeysValues& memory,
                                   const at::Tensor& mask) {
  // Positions that attend to a memory are independent of each other: rows that share one become one
  // longer row.
  const at::Tensor query = query_->forward(x).view({memory.keys.size(0), -1, options_.width});
  const at::Tensor y = Attend(norms_.Queries(SplitHeads(query, 1, options_.heads)[0]), memory.keys,
                              memory.values, mask,
                              /*causal=*/false, is_training() ? options_.attention_dropout : 0);
  return out_->forward(y.reshape(x.sizes()));
}

FeedForward::FeedForward(const TransformerOptions& options, double beta)
    : dropout_(options.activation_dropout),
      hidden_(
          register_module("hidden", MakeLinear(options.width, options.ffn,
                                               RowOf(options.init).kaiming_feed_forward, 1, beta))),
      out_(register_module("out", MakeLinear(options.ffn, options.width,
                                             RowOf(options.init).kaiming_feed_forward, 1, beta))) {}

at::Tensor FeedForward::forward(const at::Tensor& x) {
  return out_->forward(Dropout(hidden_->forward(x).relu(), dropout_, is_training()));
}

EncoderLayer::EncoderLayer(const TransformerOptions& options, const ResidualFactors& factors,
                           const std::string& last_norm)
    : attention_residual_(MakeResidual(*this, "attention", options, factors, options.norm)),
      attention_(
          register_module("attention", std::make_shared<SelfAttention>(options, factors.beta))),
      ffn_residual_(MakeResidual(*this, "ffn", options, factors, last_norm)),
      ffn_(register_module("ffn", std::make_shared<FeedForward>(options, factors.beta))) {}

at::Tensor EncoderLayer::forward(const at::Tensor& x, const at::Tensor& mask) {
  const bool training = is_training();
  const at::Tensor a = attention_->forward(attention_residual_.Input(x), mask, /*causal=*/false);
  const at::Tensor h = attention_residual_.Output(x, a, training);
  return ffn_residual_.Output(h, ffn_->forward(ffn_residual_.Input(h)), training);
}

DecoderLayer::DecoderLayer(const TransformerOptions& options, const ResidualFactors& factors,
                           const std::string& last_norm)
    : attention_residual_(MakeResidual(*this, "attention", options, factors, options.norm)),
      attention_(
          register_module("attention", std::make_shared<SelfAttention>(options, factors.beta))),
      cross_residual_(MakeResidual(*this, "cross", options, factors, options.norm)),
      cross_(register_module("cross", std::make_shared<CrossAttention>(options, factors.beta))),
      ffn_residual_(MakeResidual(*this, "ffn", options, factors, last_norm)),
      ffn_(register_module("ffn", std::make_shared<FeedForward>(options, factors.beta))) {}

at::Tensor DecoderLayer::forward(const at::Tensor& x, const KeysValues& memory,
                                 const at::Tensor& mask) {
  const at::Tensor a = attention_->forward(attention_residual_.Input(x), {}, /*causal=*/true);
  return Rest(attention_residual_.Output(x, a, is_training()), memory, mask);
}

at::Tensor DecoderLayer::Step(const at::Tensor& x, KeysValues& past, const KeysValues& memory,
                              const at::Tensor& mask) {
  const at::Tensor a = attention_->Step(attention_residual_.Input(x), past);
  return Rest(attention_residual_.Output(x, a, is_training()), memory, mask);
}

// Computes the sublayers after the self-attention.
at::Tensor DecoderLayer::Rest(const at::Tensor& x, const KeysValues& memory,
                              const at::Tensor& mask) {
  const bool training = is_training();
  const at::Tensor c = cross_->forward(cross_residual_.Input(x), memory, mask);
  const at::Tensor h = cross_residual_.Output(x, c, training);
  return ffn_residual_.Output(h, ffn_->forward(ffn_residual_.Input(h)), training);
}

TransformerEncoder::TransformerEncoder(const TransformerOptions& options)
    : layers_(MakeLayers<EncoderLayer>(
          *this, options,
          options.decoder_layers > 0
              ? FactorsOfEncoder(options.placement, options.layers, options.decoder_layers)
              : FactorsOfStack(options.placement, options.layers),
          embedding_norm_, final_norm_)) {}

at::Tensor TransformerEncoder::forward(const at::Tensor& x, const at::Tensor& mask) {
  at::Tensor y = Normalized(embedding_norm_, x);
  for (const auto& layer : layers_) y = layer->forward(y, mask);
  return Normalized(final_norm_, y);
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

TransformerDecoder::TransformerDecoder(const TransformerOptions& options)
    : layers_(MakeLayers<DecoderLayer>(*this, options,
                                       FactorsOfDecoder(options.placement, options.layers),
                                       embedding_norm_, final_norm_)) {}

at::Tensor TransformerDecoder::forward(const at::Tensor& x, const at::Tensor& memory,
                                       const at::Tensor& mask) {
  at::Tensor y = Normalized(embedding_norm_, x);
  for (const auto& layer : layers_) y = layer->forward(y, layer->Project(memory), mask);
  return Normalized(final_norm_, y);
}

DecoderState TransformerDecoder::Start(const at::Tensor& memory, const at::Tensor& mask) {
  DecoderState state{.past = std::vector<KeysValues>(layers_.size()), .memory = {}, .mask = mask};
  for (const auto& layer : layers_) state.memory.push_back(layer->Project(memory));
  return state;
}

at::Tensor TransformerDecoder::Step(const at::Tensor& x, DecoderState& state) {
  at::Tensor y = Normalized(embedding_norm_, x);
  for (size_t i = 0; i < layers_.size(); ++i) {
    y = layers_[i]->Step(y, state.past[i], state.memory[i], state.mask);
  }
  return Normalized(final_norm_, y);
}

}  // namespace planish::lab
