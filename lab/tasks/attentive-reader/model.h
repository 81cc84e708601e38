#ifndef PLANISH_LAB_TASKS_ATTENTIVE_READER_MODEL_H_
#define PLANISH_LAB_TASKS_ATTENTIVE_READER_MODEL_H_

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>

#include "lab/model/norms.h"
#include "lab/tasks/attentive-reader/batch_norm_lstm.h"

namespace planish::lab {

/// The attentive reader in one direction (Hermann et al. 2015, 3.2). u is the last state of the
/// question's LSTM, y(t) are the states of the passage's:
///   m(t) = tanh(W_ym y(t) + W_um u + b_m [+ y(t)' S S' u])
///   s(t) = softmax over t of w' m(t),   r = sum over t of s(t) y(t)
///   g = tanh(W_rg r + W_ug u + b_g [+ W_mg mean over t of y(t)]),   logits = W g + b
/// The terms in brackets are those of the released code of Cooijmans et al. 2016. T, U, B, D, H, E:
/// words of passage and question, batch, embedding width, units, entities.
class AttentiveReader final : public torch::nn::Module {
 public:
  struct Options {
    int64_t symbols = 0;      ///< words and entities; the first E are the entities
    int64_t entities = 0;     ///< E
    int64_t embedding = 240;  ///< D
    int64_t hidden = 240;     ///< H
    double dropout = 0.5;     ///< of words and of g
    double deviation = 0.01;  ///< of initial embeddings
    /// none; layer, LN-LSTMs; batch, LSTMs with batch norm; batch-everywhere, also batch norm of
    /// the inputs of both tanh.
    std::string norm = "none";
    double gain = 1;  ///< initial value, of the norms
    double epsilon = 1e-5;
    bool composed = false;  ///< uses PyTorch's operators for the LSTMs
    bool released = true;   ///< includes the terms in brackets above
    /// Initializes all gates of an LSTM with equal weights, like that code, which reseeds its
    /// generator for each gate.
    bool equal_gates = false;
    int64_t passage_steps = 1, question_steps = 1;  ///< with estimates for batch norm
  };

  struct Reading {
    at::Tensor logits;     ///< [B, E]
    at::Tensor attention;  ///< [T, B], 0 after a passage
  };

  /// Embeddings are normal with `deviation`, weights uniform up to 1 / sqrt(inputs), biases and
  /// initial states 0. Draws the weights of each LSTM last, from a seed drawn before. So for one
  /// seed all norms start from the same weights and have the same dropout.
  explicit AttentiveReader(const Options& options);

  /// passage [T, B] and question [U, B] int64, with their numbers of words [B] int64.
  Reading forward(const at::Tensor& passage, const at::Tensor& passage_lengths,
                  const at::Tensor& question, const at::Tensor& question_lengths);

  /// Returns true if statistics must be estimated before an evaluation, by forward passes between
  /// the two calls (BatchNormLstm).
  bool has_estimates() const { return options_.norm.starts_with("batch"); }
  void BeginEstimates();
  void EndEstimates();

 private:
  // LSTM with its initial state.
  struct Encoder {
    std::shared_ptr<RecurrentModule> lstm;
    at::Tensor h0, c0;  // [H]

    // Returns the states [T, B, H], 0 after a sequence, and the last one of each [B, H].
    std::pair<at::Tensor, at::Tensor> Read(const at::Tensor& x, const at::Tensor& lengths) const;
  };

  at::Tensor Weight(const std::string& name, at::IntArrayRef sizes);
  at::Tensor Zeros(const std::string& name, int64_t size);
  Encoder MakeEncoder(const std::string& name, uint64_t seed, int64_t steps);
  std::shared_ptr<NormModule> Norm(const std::string& name);
  at::Tensor Embed(const at::Tensor& words);

  Options options_;
  at::Tensor embedding_;                               // [symbols, D]
  at::Tensor passage_attention_, question_attention_;  // [H, H]: W_ym, W_um
  at::Tensor attention_bias_, attention_weight_;       // [H]: b_m, w
  at::Tensor similarity_;                              // [H, H]: S
  at::Tensor passage_output_, question_output_;        // [H, H]: W_rg, W_ug
  at::Tensor mean_output_, output_bias_;               // [H, H], [H]: W_mg, b_g
  at::Tensor logits_weight_, logits_bias_;             // [E, H], [E]
  Encoder passage_, question_;
  // Norms of the products with W_ym, W_um, W_rg, W_ug, W_mg; null unless the norm is
  // batch-everywhere.
  std::shared_ptr<NormModule> norm_ym_, norm_um_, norm_rg_, norm_ug_, norm_mg_;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_ATTENTIVE_READER_MODEL_H_
