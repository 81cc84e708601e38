#ifndef PLANISH_LAB_TASKS_MT_MODEL_H_
#define PLANISH_LAB_TASKS_MT_MODEL_H_

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "lab/model/transformer.h"

namespace planish::lab {

/// The Transformer as a translator (Vaswani et al. 2017). With a shared vocabulary one matrix is
/// the embedding of source and target and, transposed, the output layer. With two vocabularies
/// these are three matrices. B, S, T, D, V: sentences, padded lengths of source and target, width,
/// vocabulary of the target.
class TranslationModel final : public torch::nn::Module {
 public:
  struct Options {
    int64_t vocabulary = 0;         ///< V; piece 0 is padding
    int64_t source_vocabulary = 0;  ///< pieces of the source's own vocabulary; 0: it is shared
    TransformerOptions transformer;
  };

  /// Draws the embeddings, normal with variance 1/D (padding 0), and an output layer of the same
  /// distribution, then the layers' weights.
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
  // Returns `embedding` times sqrt(D) plus positions from `first` on, with dropout.
  at::Tensor Embed(const at::Tensor& embedding, const at::Tensor& pieces, int64_t first);
  at::Tensor Encode(const at::Tensor& source, const at::Tensor& mask);

  double dropout_;
  at::Tensor source_embedding_, embedding_, output_;  // [V, D]; the source's with its own V
  std::shared_ptr<TransformerEncoder> encoder_;
  std::shared_ptr<TransformerDecoder> decoder_;
  at::Tensor positions_;  // for the longest sequence so far; recomputed, so not a buffer
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_MT_MODEL_H_
