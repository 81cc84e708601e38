#ifndef PLANISH_LAB_TASKS_SKIP_THOUGHTS_MODEL_H_
#define PLANISH_LAB_TASKS_SKIP_THOUGHTS_MODEL_H_

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>

#include "lab/model/linear.h"
#include "lab/model/recurrent.h"

namespace planish::lab {

/// Encoder and two decoders of skip-thoughts (Kiros et al. 2015, section 2). T, B, H: time,
/// sentences, hidden units. Word embeddings and the output layer are shared. The vector v of a
/// sentence is the encoder's state after its end mark. A decoder reads the previous word, zeros
/// before the first. Condition says how it gets v: as its initial state, or in every step
/// (docs/tasks/skip-thoughts.md).
class SkipThoughtModel final : public torch::nn::Module {
 public:
  enum class Condition { kStart, kSteps };
  enum Decoder { kPrevious, kNext };

  struct Options {
    std::string cell = "gru";
    int64_t vocabulary = 0;
    int64_t words = 0;  ///< width of a word embedding
    int64_t hidden = 0;
    Condition condition = Condition::kStart;
    double epsilon = 1e-5;
    double gain = 1;
    bool composed = false;
  };

  /// With equal states of the default generator, all cells start from the same weights and leave
  /// the generator in the same state.
  explicit SkipThoughtModel(const Options& options);

  /// Maps words [T, B] int and lengths [B] int64, including the end mark, to vectors [B, H].
  at::Tensor Encode(const at::Tensor& words, const at::Tensor& lengths);

  /// Returns the decoder's states [T, B, H] that predict word t of the sentences `words` [T, B].
  /// `lengths` [B] are those of the sentences, `vectors` [B, H] those of their neighbours.
  at::Tensor Decode(Decoder decoder, const at::Tensor& words, const at::Tensor& lengths,
                    const at::Tensor& vectors);

  /// Output layer from states [P, H] to logits [P, vocabulary].
  Linear& output() { return output_; }

 private:
  Condition condition_;
  at::Tensor embedding_;
  Linear output_{nullptr};
  std::shared_ptr<RecurrentModule> encoder_, previous_, next_;
};

/// Returns log Q of each word [V], in double: the probabilities of SampledLoss's draws. Word i by
/// frequency, from 0, has log((i + 2) / (i + 1)) / log(V + 1), similar to Zipf's law.
at::Tensor ZipfLogProbabilities(int64_t vocabulary);

/// Draws `count` words [count] int64 from these probabilities, with repetition, from the default
/// generator.
at::Tensor DrawWords(int64_t vocabulary, int64_t count);

/// Returns the summed loss of predicting words `targets` [P] from states [P, H], by a softmax over
/// the target and the drawn words `samples` [K]. It subtracts log(K Q) from the logits and leaves
/// out samples equal to the target (Jean et al. 2015, On Using Very Large Target Vocabulary, Eq.
/// 8-10).
at::Tensor SampledLoss(const at::Tensor& states, const Linear& output, const at::Tensor& targets,
                       const at::Tensor& samples, const at::Tensor& log_probabilities);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_SKIP_THOUGHTS_MODEL_H_
