#ifndef PLANISH_LAB_TASKS_ORDER_EMBEDDING_MODEL_H_
#define PLANISH_LAB_TASKS_ORDER_EMBEDDING_MODEL_H_

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>

#include "lab/model/linear.h"
#include "lab/model/recurrent.h"

namespace planish::lab {

/// Captions and images in one space (Vendrov et al. 2016): a recurrent layer reads a caption, and
/// its last state, divided by its length, is the caption's place; an image's is a linear function
/// of its features, divided by its length. T, B, F, H: words, cases, features, hidden units.
class OrderEmbedding final : public torch::nn::Module {
 public:
  struct Options {
    std::string cell = "gru";  ///< as MakeRecurrent knows it
    bool composed = false;     ///< RecurrentOptions::composed
    double gain = 1;           ///< gains of its norms before training
    double epsilon = 1e-5;     ///< of its norms
    int64_t words = 0;         ///< symbols of a caption
    int64_t word_size = 300;   ///< numbers that stand for a word
    int64_t hidden = 1024;     ///< H
    int64_t features = 4096;   ///< F
    /// Whether places are ordered: absolute values of what was said, a caption's to be below its
    /// image's. Otherwise they are compared by their cosine.
    bool order = true;
  };

  /// Starts from what the released code does: words and the recurrent layer's input weights uniform
  /// within .1, its weights of the state orthogonal for each gate, the image's weights uniform
  /// after Glorot & Bengio 2010, biases 0. What is drawn is the same for all cells with as many
  /// gates.
  explicit OrderEmbedding(const Options& options);

  /// Places [B, H] of captions [T, B] int64 with `lengths` [B] int64 symbols each.
  at::Tensor Captions(const at::Tensor& captions, const at::Tensor& lengths);

  /// Places [B, H] of images [B, F].
  at::Tensor Images(const at::Tensor& images);

  /// How badly captions [N, H] and images [M, H] fit: [N, M], the order's violation
  /// ||max(0, caption - image)||^2, or minus the cosine.
  at::Tensor Errors(const at::Tensor& captions, const at::Tensor& images) const;

 private:
  // x [B, H] divided by its rows' lengths, and without signs where places are ordered.
  at::Tensor Place(const at::Tensor& x) const;

  bool order_;
  at::Tensor words_;  // [V, word_size]
  std::shared_ptr<RecurrentModule> recurrent_;
  Linear image_{nullptr};
};

/// Of errors [B, B] of B captions with their B images, row by row (Vendrov et al. 2016, Eq. 4):
///
///   sum_{i != j} max(0, margin - e[i, j] + e[i, i]) + max(0, margin - e[i, j] + e[j, j]).
at::Tensor ContrastiveLoss(const at::Tensor& errors, double margin);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_ORDER_EMBEDDING_MODEL_H_
