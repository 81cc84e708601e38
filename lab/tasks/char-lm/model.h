#ifndef PLANISH_LAB_TASKS_CHAR_LM_MODEL_H_
#define PLANISH_LAB_TASKS_CHAR_LM_MODEL_H_

#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <string>
#include <utility>

#include "lab/model/recurrent.h"

namespace planish::lab {

/// Character -> embedding -> recurrent layers -> linear -> a logit for every character.
class CharModel : public torch::nn::Module {
 public:
  struct Options {
    std::string cell = "lstm";
    int64_t characters = 0;  ///< V, size of the vocabulary
    int64_t embedding = 64;
    int64_t hidden = 128;
    int64_t layers = 1;
    int64_t heads = 1;    ///< blocks of each recurrent matrix, divide hidden
    int64_t streams = 1;  ///< B, of the state that training carries
    double gain = 1;      ///< initial value, of the norms
  };

  /// Draws the weights of embedding and output before those of the cell, so that they are equal for
  /// every cell with one seed.
  explicit CharModel(const Options& options);

  /// Maps x [T, B] int64 and the state before to logits [T * B, V], row t * B + b, and the state
  /// after.
  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& x, const at::Tensor& state);

  /// Returns the inputs [T, B, embedding] of the recurrent layers for characters [T, B].
  at::Tensor Embed(const at::Tensor& x) { return embedding_->forward(x); }

  /// Returns the logits [N, V] of hidden states [N, H], in their type.
  at::Tensor Logits(const at::Tensor& h);

  RecurrentModule& recurrent() { return *recurrent_; }

  /// Returns the initial state of sequences.
  at::Tensor ZeroState(int64_t batch) const { return recurrent_->ZeroState(batch); }

  /// Returns the state that training carries from batch to batch: a buffer, which checkpoints
  /// include.
  at::Tensor& carried() { return carried_; }

 private:
  torch::nn::Embedding embedding_;
  torch::nn::Linear output_;
  std::shared_ptr<RecurrentModule> recurrent_;
  at::Tensor carried_;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_CHAR_LM_MODEL_H_
