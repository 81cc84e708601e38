#ifndef PLANISH_LAB_ENGINE_ABILITIES_H_
#define PLANISH_LAB_ENGINE_ABILITIES_H_

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

// What a trained experiment can be asked for on the command line. An Experiment inherits those that
// it has. Models are in evaluation mode and gradients are off in each call.
namespace planish::lab {

/// A model that writes text: `planish sample`.
class TextSampler {
 public:
  virtual ~TextSampler() = default;

  /// `length` characters that follow `prompt` (empty: what the task starts from), drawn from
  /// `generator` with the logits divided by `temperature`. Throws DataError for a prompt that the
  /// model has no numbers for.
  virtual std::string Sample(const std::string& prompt, int64_t length, double temperature,
                             at::Generator& generator) = 0;
};

/// A model that makes a line of another: `planish translate`.
class LineTranslator {
 public:
  virtual ~LineTranslator() = default;

  /// One translation a line, in the same order.
  virtual std::vector<std::string> Translate(const std::vector<std::string>& lines) = 0;
};

/// A model that gives sentences vectors: `planish downstream`.
class SentenceEncoder {
 public:
  virtual ~SentenceEncoder() = default;

  /// One vector a sentence, [sentences, D], in the same order. Sentences are UTF-8.
  virtual at::Tensor EncodeSentences(const std::vector<std::string>& sentences) = 0;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_ABILITIES_H_
