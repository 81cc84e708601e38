#ifndef PLANISH_LAB_TASKS_SKIP_THOUGHTS_MODEL_H_
#define PLANISH_LAB_TASKS_SKIP_THOUGHTS_MODEL_H_

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>

#include "lab/model/linear.h"
#include "lab/model/recurrent.h"

namespace planish::lab {

/// The encoder and the two decoders of skip-thoughts (Kiros et al. 2015, section 2). T, B, H: time,
/// sentences, hidden units. Word embeddings and the output layer are shared.
///
/// The vector of a sentence is the encoder's state after its end mark. A decoder sees the word
/// before, and zeros before the first; and the vector v either as its first state (Condition
/// kStart, as in the released code, which Ba et al. 2016 used), or in every step (kSteps, as in the
/// paper of Kiros et al., Eq. 5-7), from a first state of zeros. There v stands beside the word in
/// the input of the decoder's products, [x, v] W' = x Wx' + v C', which is what the paper's C_r,
/// C_z and C add; with layer normalisation both are in the same norm.
///
/// Weights start uniform between -0.1 and 0.1 but those of the recurrent products, which are
/// orthogonal for each gate; biases at 0.
class SkipThoughtModel final : public torch::nn::Module {
 public:
  enum class Condition { kStart, kSteps };
  enum Decoder { kPrevious, kNext };

  struct Options {
    std::string cell = "gru";
    int64_t vocabulary = 0;
    int64_t words = 0;  ///< numbers that stand for a word
    int64_t hidden = 0;
    Condition condition = Condition::kStart;
    double epsilon = 1e-5;
    double gain = 1;
    bool composed = false;
  };

  /// For one state of the default generator all cells start from the same weights, and leave it in
  /// the same state.
  explicit SkipThoughtModel(const Options& options);

  /// words [T, B] int and lengths [B] int64, with the end mark -> vectors [B, H].
  at::Tensor Encode(const at::Tensor& words, const at::Tensor& lengths);

  /// The states [T, B, H] of the decoder from which word t of the sentences `words` [T, B], of
  /// these lengths [B], is to be told, given vectors [B, H] of their neighbours.
  at::Tensor Decode(Decoder decoder, const at::Tensor& words, const at::Tensor& lengths,
                    const at::Tensor& vectors);

  /// From states [P, H] to logits [P, vocabulary].
  Linear& output() { return output_; }

 private:
  Condition condition_;
  at::Tensor embedding_;
  Linear output_{nullptr};
  std::shared_ptr<RecurrentModule> encoder_, previous_, next_;
};

/// log Q of each word [V], in double: the probabilities that SampledLoss draws from. By its place
/// in the order of frequency, from 0, word i has log((i + 2) / (i + 1)) / log(V + 1), as after
/// Zipf's law.
at::Tensor ZipfLogProbabilities(int64_t vocabulary);

/// `count` words [count] int64 from these probabilities, with repetition, from the default
/// generator.
at::Tensor DrawWords(int64_t vocabulary, int64_t count);

/// The summed loss of telling words `targets` [P] from states [P, H] among the drawn words
/// `samples` [K] and itself, in place of all: a softmax of logits less log(K Q), without samples
/// that are the target (Jean et al. 2015, On Using Very Large Target Vocabulary, Eq. 8-10).
at::Tensor SampledLoss(const at::Tensor& states, const Linear& output, const at::Tensor& targets,
                       const at::Tensor& samples, const at::Tensor& log_probabilities);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_SKIP_THOUGHTS_MODEL_H_
