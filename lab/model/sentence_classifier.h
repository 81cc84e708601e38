#ifndef PLANISH_LAB_MODEL_SENTENCE_CLASSIFIER_H_
#define PLANISH_LAB_MODEL_SENTENCE_CLASSIFIER_H_

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "lab/model/linear.h"
#include "lab/model/transformer.h"

namespace planish::lab {

/// Sentence classifier: word embeddings with sinusoidal positions, dropout, a Transformer encoder,
/// the mean over a sentence's words, a linear layer to the classes. Embeddings start with standard
/// deviation 1/sqrt(width) and are multiplied by sqrt(width) (Vaswani et al. 2017, 3.4).
class SentenceClassifier final : public torch::nn::Module {
 public:
  struct Options {
    int64_t words = 0;    ///< size of the lexicon
    int64_t longest = 0;  ///< words of the longest sentence
    int64_t classes = 2;
    TransformerOptions encoder;
  };

  explicit SentenceClassifier(const Options& options);

  /// Maps words, int [B, T], indices below Options::words (any after a sentence's end), and
  /// lengths, int64 [B], from 1 to T, to logits [B, classes].
  at::Tensor forward(const at::Tensor& words, const at::Tensor& lengths);

 private:
  double dropout_;
  at::Tensor positions_;  // [longest, width]
  at::Tensor embedding_;
  std::shared_ptr<TransformerEncoder> encoder_;
  Linear output_{nullptr};
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_MODEL_SENTENCE_CLASSIFIER_H_
