#include "lab/tasks/mt/model.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "lab/model/dropout.h"

namespace planish::lab {

TranslationModel::TranslationModel(const Options& options) : dropout_(options.transformer.dropout) {
  const int64_t width = options.transformer.width;
  at::Tensor embedding = at::randn({options.vocabulary, width}) / std::sqrt(width);
  embedding[0].zero_();
  embedding_ = register_parameter("embedding", embedding);
  TransformerOptions layers = options.transformer;
  layers.decoder_layers = layers.layers;
  encoder_ = register_module("encoder", std::make_shared<TransformerEncoder>(layers));
  decoder_ = register_module("decoder", std::make_shared<TransformerDecoder>(layers));
}

at::Tensor TranslationModel::Embed(const at::Tensor& pieces, int64_t first) {
  const int64_t width = embedding_.size(1), end = first + pieces.size(1);
  if (!positions_.defined() || positions_.size(0) < end ||
      positions_.device() != embedding_.device()) {
    positions_ = SinusoidalPositions(std::max<int64_t>(2 * end, 64), width).to(embedding_.device());
  }
  const at::Tensor x = at::embedding(embedding_, pieces, /*padding_idx=*/0) * std::sqrt(width);
  return Dropout(x + positions_.slice(0, first, end), dropout_, is_training());
}

at::Tensor TranslationModel::Encode(const at::Tensor& source, const at::Tensor& mask) {
  return encoder_->forward(Embed(source, 0), mask);
}

at::Tensor TranslationModel::forward(const at::Tensor& source, const at::Tensor& lengths,
                                     const at::Tensor& target) {
  const at::Tensor mask = PaddingMask(lengths, source.size(1));
  return decoder_->forward(Embed(target, 0), Encode(source, mask), mask);
}

at::Tensor TranslationModel::Logits(const at::Tensor& x) { return at::linear(x, embedding_); }

DecoderState TranslationModel::Start(const at::Tensor& source, const at::Tensor& lengths) {
  const at::Tensor mask = PaddingMask(lengths, source.size(1));
  return decoder_->Start(Encode(source, mask), mask);
}

at::Tensor TranslationModel::Step(const at::Tensor& pieces, int64_t position, DecoderState& state) {
  return Logits(decoder_->Step(Embed(pieces.unsqueeze(1), position), state).squeeze(1));
}

}  // namespace planish::lab
