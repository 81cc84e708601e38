#include "lab/model/sentence_classifier.h"

#include <ATen/Functions.h>

#include <cmath>

#include "lab/model/dropout.h"

namespace planish::lab {

SentenceClassifier::SentenceClassifier(const Options& options)
    : dropout_(options.encoder.dropout),
      positions_(SinusoidalPositions(options.longest, options.encoder.width)) {
  const int64_t width = options.encoder.width;
  embedding_ = register_parameter(
      "embedding", at::randn({options.words, width}) / std::sqrt(static_cast<double>(width)));
  encoder_ = register_module("encoder", std::make_shared<TransformerEncoder>(options.encoder));
  output_ = register_module("output", Linear(width, options.classes));
}

at::Tensor SentenceClassifier::forward(const at::Tensor& words, const at::Tensor& lengths) {
  const int64_t longest = words.size(1);
  const at::Tensor positions = positions_.slice(0, 0, longest).to(embedding_.options());
  const at::Tensor x = at::add(positions, at::embedding(embedding_, words),
                               std::sqrt(static_cast<double>(positions.size(1))));
  const at::Tensor y =
      encoder_->forward(Dropout(x, dropout_, is_training()), PaddingMask(lengths, longest));
  // The mean over words as a product with 1/length at each word and 0 at padding.
  const at::Tensor within = at::arange(longest, lengths.options()) < lengths.unsqueeze(1);
  const at::Tensor shares = within.to(y.scalar_type()) / lengths.unsqueeze(1);
  return output_->forward(at::bmm(shares.unsqueeze(1), y).squeeze(1));
}

}  // namespace planish::lab
