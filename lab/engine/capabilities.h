#ifndef PLANISH_LAB_ENGINE_CAPABILITIES_H_
#define PLANISH_LAB_ENGINE_CAPABILITIES_H_

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
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
  /// `generator` with the logits divided by `temperature`. Throws UsageError for a prompt with
  /// characters that the training text lacks.
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

/// A model that finds images by a caption: `planish search`.
class CaptionSearcher {
 public:
  virtual ~CaptionSearcher() = default;

  struct Hit {
    double score = 0;   ///< the larger the better
    int64_t image = 0;  ///< its place among the test images, from 0
    std::vector<std::string> captions;
  };

  /// The `most` best of the test images, or all where there are fewer, best first. Throws
  /// UsageError for a caption without a word that the model knows.
  virtual std::vector<Hit> Search(const std::string& caption, int64_t most) = 0;
};

/// A model that writes a text by hand: `planish write`.
class HandWriter {
 public:
  virtual ~HandWriter() = default;

  struct Request {
    std::string text;              ///< UTF-8, a character or more
    double bias = 0;               ///< towards what is likely, 0 or more
    int64_t steps = 0;             ///< points after which the pen stops wherever it is
    std::optional<int64_t> prime;  ///< line of the validation data in whose style to go on
  };
  struct Written {
    std::string svg;     ///< as RunResult::Sample has it
    bool whole = false;  ///< whether the pen had passed the text's last character when it stopped
  };

  /// Points that are enough for most texts of so many bytes.
  static int64_t DefaultSteps(const std::string& text) {
    return 200 + 60 * static_cast<int64_t>(text.size());
  }

  /// Throws UsageError for a text with characters that the model has not learned, and for a line of
  /// the validation data that does not exist.
  virtual Written Write(const Request& request, at::Generator& generator) = 0;
};

/// A model that gives sentences vectors: `planish downstream`.
class SentenceEncoder {
 public:
  virtual ~SentenceEncoder() = default;

  /// One vector a sentence, [sentences, D], in the same order. Sentences are UTF-8.
  virtual at::Tensor EncodeSentences(const std::vector<std::string>& sentences) = 0;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_CAPABILITIES_H_
