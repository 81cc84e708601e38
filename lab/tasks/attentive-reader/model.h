#ifndef PLANISH_LAB_TASKS_ATTENTIVE_READER_MODEL_H_
#define PLANISH_LAB_TASKS_ATTENTIVE_READER_MODEL_H_

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>

#include "lab/model/norms.h"
#include "lab/tasks/attentive-reader/batch_norm_lstm.h"

namespace planish::lab {

/// The attentive reader (Hermann et al. 2015, 3.2) in one direction. An LSTM reads the passage,
/// another one the question; its last state u looks at every state y(t) of the first:
///
///   m(t) = tanh(W_ym y(t) + W_um u + b_m [+ y(t)' S S' u])
///   s(t) = softmax over t of w' m(t),   r = sum over t of s(t) y(t)
///   g = tanh(W_rg r + W_ug u + b_g [+ W_mg mean over t of y(t)])
///   logits = W g + b, a number for each entity
///
/// What is in brackets is not in that paper; the released code of Cooijmans et al. 2016, with which
/// layer normalisation was compared, has it. T, U, B, D, H, E: words of passage and question,
/// batch, numbers of a word, units, entities.
class AttentiveReader final : public torch::nn::Module {
 public:
  struct Options {
    int64_t symbols = 0;      ///< words and entities, of which the first E are the entities
    int64_t entities = 0;     ///< E
    int64_t embedding = 240;  ///< D
    int64_t hidden = 240;     ///< H
    double dropout = 0.5;     ///< of words and of g
    double deviation = 0.01;  ///< of words before training
    /// none; layer, LN-LSTMs; batch, LSTMs with batch norm; batch-everywhere, batch norm of what
    /// goes into both tanh, too.
    std::string norm = "none";
    double gain = 1;  ///< of the norms before training
    double epsilon = 1e-5;
    bool composed = false;  ///< whether the LSTMs are of PyTorch's operators
    bool released = true;   ///< what is in brackets above
    /// Whether all gates of an LSTM start from the weights of the first one, as in that code, which
    /// seeds its generator anew before each.
    bool equal_gates = false;
    int64_t passage_steps = 1, question_steps = 1;  ///< that batch norm has estimates of
  };

  struct Reading {
    at::Tensor logits;     ///< [B, E]
    at::Tensor attention;  ///< [T, B], 0 beyond a passage
  };

  /// Weights but the LSTMs' come first, then those, each from a number drawn before, so that for
  /// one seed all norms start from the same weights and draw the same dropout after it. Words are
  /// normal with `deviation`, weights uniform up to 1 / sqrt(inputs), biases and the first states
  /// 0.
  explicit AttentiveReader(const Options& options);

  /// passage [T, B] and question [U, B] int64, with their numbers of words [B] int64.
  Reading forward(const at::Tensor& passage, const at::Tensor& passage_lengths,
                  const at::Tensor& question, const at::Tensor& question_lengths);

  /// Whether there are moments to be estimated before an evaluation, by forward passes between the
  /// two calls (BatchNormLstm).
  bool has_estimates() const { return options_.norm.starts_with("batch"); }
  void BeginEstimates();
  void EndEstimates();

 private:
  // An LSTM with the state that it starts from.
  struct Encoder {
    std::shared_ptr<RecurrentModule> lstm;
    at::Tensor h0, c0;  // [H]

    // The states [T, B, H], 0 beyond a sequence, and the last one of each [B, H].
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
  // Of the products with W_ym, W_um, W_rg, W_ug, W_mg; none unless the norm is batch-everywhere.
  std::shared_ptr<NormModule> norm_ym_, norm_um_, norm_rg_, norm_ug_, norm_mg_;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_ATTENTIVE_READER_MODEL_H_
