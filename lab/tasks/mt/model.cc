#include "lab/tasks/mt/model.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "lab/model/dropout.h"

namespace planish::lab {

TranslationModel::TranslationModel(const Options& options) : dropout_(options.transformer.dropout) {
  const int64_t width = options.transformer.width;
  const auto matrix = [&](const char* name, int64_t pieces, bool padding) {
    at::Tensor drawn = at::randn({pieces, width}) / std::sqrt(width);
    if (padding) drawn[0].zero_();
    return register_parameter(name, drawn);
  };
  embedding_ = matrix("embedding", options.vocabulary, /*padding=*/true);
  const bool shared = options.source_vocabulary == 0;
  source_embedding_ =
      shared ? embedding_ : matrix("source_embedding", options.source_vocabulary, /*padding=*/true);
  output_ = shared ? embedding_ : matrix("output", options.vocabulary, /*padding=*/false);
  TransformerOptions layers = options.transformer;
  layers.decoder_layers = layers.layers;
  encoder_ = register_module("encoder", std::make_shared<TransformerEncoder>(layers));
  decoder_ = register_module("decoder", std::make_shared<TransformerDecoder>(layers));
}

at::Tensor TranslationModel::Embed(const at::Tensor& embedding, const at::Tensor& pieces,
                                   int64_t first) {
  const int64_t width = embedding.size(1), end = first + pieces.size(1);
  if (!positions_.defined() || positions_.size(0) < end ||
      positions_.device() != embedding.device()) {
    positions_ = SinusoidalPositions(std::max<int64_t>(2 * end, 64), width).to(embedding.device());
  }
  const at::Tensor x = at::embedding(embedding, pieces, /*padding_idx=*/0) * std::sqrt(width);
  return Dropout(x + positions_.slice(0, first, end), dropout_, is_training());
}

at::Tensor TranslationModel::Encode(const at::Tensor& source, const at::Tensor& mask) {
  return encoder_->forward(Embed(source_embedding_, source, 0), mask);
}

at::Tensor TranslationModel::forward(const at::Tensor& source, const at::Tensor& lengths,
                                     const at::Tensor& target) {
  const at::Tensor mask = PaddingMask(lengths, source.size(1));
  return decoder_->forward(Embed(embedding_, target, 0), Encode(source, mask), mask);
}

at::Tensor TranslationModel::Logits(const at::Tensor& x) { return at::linear(x, output_); }

DecoderState TranslationModel::Start(const at::Tensor& source, const at::Tensor& lengths) {
  const at::Tensor mask = PaddingMask(lengths, source.size(1));
  return decoder_->Start(Encode(source, mask), mask);
}

at::Tensor TranslationModel::Step(const at::Tensor& pieces, int64_t position, DecoderState& state) {
  const at::Tensor x = Embed(embedding_, pieces.unsqueeze(1), position);
  return Logits(decoder_->Step(x, state).squeeze(1));
}

}  // namespace planish::lab
