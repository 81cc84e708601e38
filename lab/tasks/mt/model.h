#ifndef PLANISH_LAB_TASKS_MT_MODEL_H_
#define PLANISH_LAB_TASKS_MT_MODEL_H_

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "lab/model/transformer.h"

namespace planish::lab {

/// The Transformer as a translator (Vaswani et al. 2017). Both languages share a vocabulary, and
/// one matrix is the embedding of source and target and, transposed, the output layer. B, S, T, D,
/// V: sentences, padded lengths of source and target, width, vocabulary.
class TranslationModel final : public torch::nn::Module {
 public:
  struct Options {
    int64_t vocabulary = 0;  ///< V; piece 0 is padding
    TransformerOptions transformer;
  };

  /// Draws the embedding, normal with variance 1/D (padding 0), then the layers' weights.
  explicit TranslationModel(const Options& options);

  /// Returns the decoder's result [B, T, D] at every position of `target` [B, T], the sentence to
  /// predict shifted by one and starting with </s>. Rows of `source` [B, S] int64 have `lengths`
  /// [B] int64 pieces, </s> last, then padding.
  at::Tensor forward(const at::Tensor& source, const at::Tensor& lengths, const at::Tensor& target);

  /// [..., D] -> [..., V].
  at::Tensor Logits(const at::Tensor& x);

  /// Returns the decoder's start state, with the encoder's result.
  DecoderState Start(const at::Tensor& source, const at::Tensor& lengths);

  /// Returns the logits [rows, V] after the pieces[i] int64 [rows] at position `position` (from 0)
  /// and those of earlier calls.
  at::Tensor Step(const at::Tensor& pieces, int64_t position, DecoderState& state);

 private:
  // Returns the embedding times sqrt(D) plus positions from `first` on, with dropout.
  at::Tensor Embed(const at::Tensor& pieces, int64_t first);
  at::Tensor Encode(const at::Tensor& source, const at::Tensor& mask);

  double dropout_;
  at::Tensor embedding_;  // [V, D]
  std::shared_ptr<TransformerEncoder> encoder_;
  std::shared_ptr<TransformerDecoder> decoder_;
  at::Tensor positions_;  // for the longest sequence so far; recomputed, so not a buffer
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_MT_MODEL_H_
