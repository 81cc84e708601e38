#ifndef PLANISH_LAB_TASKS_PARSER_MODEL_H_
#define PLANISH_LAB_TASKS_PARSER_MODEL_H_

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "lab/model/linear.h"
#include "lab/model/norms.h"

namespace planish::lab {

/// Distinct (position, token) pairs of a batch: tokens[offsets[k]] .. tokens[offsets[k + 1] - 1]
/// are the tokens at position k, each once.
struct TokenPairs {
  at::Tensor tokens;             ///< [U] int64
  std::vector<int64_t> offsets;  ///< [K + 1]
  at::Tensor rows;               ///< [N * K] int32: pair of each element of the batch
};

/// Returns the pairs of `tokens` [N, K] int32, which are from 0 to `vocabulary` - 1.
TokenPairs FindPairs(const at::Tensor& tokens, int64_t vocabulary);

/// Tokens -> concatenated embeddings -> linear: a sum over positions of the contribution of each
/// (position, token) pair. Computes a contribution once for each distinct pair, about a twelfth of
/// the arithmetic for a batch of 1,024. There are few pairs, because most children are missing and
/// there are few tags and relations. Chen & Manning 2014, 3.2, do this in parsing for frequent
/// pairs.
class TokenLinear : public torch::nn::Module {
 public:
  /// Draws weights and bias like a linear layer of positions * embedding inputs, the embeddings
  /// from N(0, 1).
  TokenLinear(int64_t tokens, int64_t positions, int64_t embedding, int64_t outputs);

  /// tokens [N, positions] int32 -> [N, outputs]. `weight` is weight(), or that normalized.
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& weight);

  /// Returns the weight of the linear layer, [positions, embedding, outputs].
  const at::Tensor& weight() const { return weight_; }
  static constexpr int64_t kUnits = 2;  ///< dimension of the outputs in the weight

 private:
  at::Tensor embedding_;  // [tokens, embedding]
  at::Tensor weight_;     // [positions, embedding, outputs]
  at::Tensor bias_;       // [outputs]
};

/// Features -> (linear, norm, activation, dropout) x layers -> linear -> a logit per transition.
/// The first linear layer is over embeddings.
class ParserModel : public torch::nn::Module {
 public:
  struct Options {
    std::string norm = "none";
    NormOptions norm_options;
    std::string activation = "relu";  ///< or "cube" or "tanh"
    int64_t tokens = 0;               ///< of the vocabulary
    int64_t features = 48;
    int64_t embedding = 50;
    int64_t hidden = 512;
    int64_t layers = 2;  ///< hidden layers
    int64_t outputs = 0;
    double dropout = 0.2;
  };
  explicit ParserModel(const Options& options);

  /// features [N, 48] int32 -> logits [N, outputs].
  at::Tensor forward(const at::Tensor& features);

 private:
  std::string activation_;
  double dropout_;
  std::shared_ptr<TokenLinear> input_;
  std::vector<Linear> linears_;  // after the first
  std::vector<std::shared_ptr<NormModule>> norms_;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_PARSER_MODEL_H_
