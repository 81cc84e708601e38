#ifndef PLANISH_LAB_TASKS_MT_MODEL_H_
#define PLANISH_LAB_TASKS_MT_MODEL_H_

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "lab/model/transformer.h"

namespace planish::lab {

/// The Transformer as a translator (Vaswani et al. 2017): both languages share a vocabulary, and
/// one matrix is the embedding of source and target and, transposed, the output layer. B, S, T, D,
/// V: sentences, padded lengths of source and target, width, vocabulary.
class TranslationModel final : public torch::nn::Module {
 public:
  struct Options {
    int64_t vocabulary = 0;  ///< V; piece 0 is padding
    TransformerOptions transformer;
  };

  /// Draws the embedding, normal with variance 1/D (padding 0), then the layers'.
  explicit TranslationModel(const Options& options);

  /// The decoder's result [B, T, D] at every position of `target` [B, T], which begins with </s>
  /// where the sentence that is to be predicted begins with its first piece. `source` [B, S] int64
  /// has `lengths` [B] int64 pieces a row, </s> the last of them, and padding after it.
  at::Tensor forward(const at::Tensor& source, const at::Tensor& lengths, const at::Tensor& target);

  /// [..., D] -> [..., V].
  at::Tensor Logits(const at::Tensor& x);

  /// What Step goes on from: the encoder's result.
  DecoderState Start(const at::Tensor& source, const at::Tensor& lengths);

  /// Logits [rows, V] of what follows the piece pieces[i] int64 [rows], which is number `position`
  /// of its row (from 0), and those that Step was given before it.
  at::Tensor Step(const at::Tensor& pieces, int64_t position, DecoderState& state);

 private:
  // Embedding times sqrt(D), positions from `first` on, dropout.
  at::Tensor Embed(const at::Tensor& pieces, int64_t first);
  at::Tensor Encode(const at::Tensor& source, const at::Tensor& mask);

  double dropout_;
  at::Tensor embedding_;  // [V, D]
  std::shared_ptr<TransformerEncoder> encoder_;
  std::shared_ptr<TransformerDecoder> decoder_;
  at::Tensor positions_;  // as many as have been needed so far; no buffer, since made anew
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_MT_MODEL_H_
