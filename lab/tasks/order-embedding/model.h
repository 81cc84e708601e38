#ifndef PLANISH_LAB_TASKS_ORDER_EMBEDDING_MODEL_H_
#define PLANISH_LAB_TASKS_ORDER_EMBEDDING_MODEL_H_

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>

#include "lab/model/linear.h"
#include "lab/model/recurrent.h"

namespace planish::lab {

/// Captions and images in one space (Vendrov et al. 2016). A recurrent layer reads a caption, and
/// its last state, divided by its length, is the caption's embedding. An image's embedding is a
/// linear function of its features, divided by its length. T, B, F, H: words, cases, features,
/// hidden units.
class OrderEmbedding final : public torch::nn::Module {
 public:
  struct Options {
    std::string cell = "gru";  ///< a name of MakeRecurrent
    bool composed = false;     ///< RecurrentOptions::composed
    double gain = 1;           ///< initial value, of the gains of its norms
    double epsilon = 1e-5;     ///< of its norms
    int64_t words = 0;         ///< number of symbols of captions
    int64_t word_size = 300;   ///< width of a word embedding
    int64_t hidden = 1024;     ///< H
    int64_t features = 4096;   ///< F
    /// Orders embeddings: takes absolute values, and a caption's should be below its image's.
    /// Otherwise compares them by their cosine.
    bool order = true;
  };

  /// Initializes like the released code. Words and the input weights of the recurrent layer are
  /// uniform within .1; its state weights are orthogonal for each gate. The image's weights are
  /// uniform after Glorot & Bengio 2010, biases 0. Draws the same values for all cells with the
  /// same number of gates.
  explicit OrderEmbedding(const Options& options);

  /// Returns embeddings [B, H] of captions [T, B] int64 with `lengths` [B] int64 symbols each.
  at::Tensor Captions(const at::Tensor& captions, const at::Tensor& lengths);

  /// Returns embeddings [B, H] of images [B, F].
  at::Tensor Images(const at::Tensor& images);

  /// Returns the errors [N, M] of captions [N, H] with images [M, H]: the order violation ||max(0,
  /// caption - image)||^2, or minus the cosine.
  at::Tensor Errors(const at::Tensor& captions, const at::Tensor& images) const;

 private:
  // Returns x [B, H] divided by its rows' lengths, with absolute values if embeddings are ordered.
  at::Tensor Place(const at::Tensor& x) const;

  bool order_;
  at::Tensor words_;  // [V, word_size]
  std::shared_ptr<RecurrentModule> recurrent_;
  Linear image_{nullptr};
};

/// Returns the contrastive loss of errors [B, B] of B captions with their B images (Vendrov et al.
/// 2016, Eq. 4):
///
///   sum_{i != j} max(0, margin - e[i, j] + e[i, i]) + max(0, margin - e[i, j] + e[j, j]).
at::Tensor ContrastiveLoss(const at::Tensor& errors, double margin);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_ORDER_EMBEDDING_MODEL_H_
