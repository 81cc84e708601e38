#ifndef PLANISH_LAB_ENGINE_CAPABILITIES_H_
#define PLANISH_LAB_ENGINE_CAPABILITIES_H_

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lab/model/norms.h"

// Capabilities of a trained experiment on the command line. An Experiment inherits those that it
// has. Every call runs with the model in evaluation mode and gradients off. kTask completes "a task
// that ..." in messages.
namespace planish::lab {

class RecurrentModule;

/// Capability of a model that writes text: `planish sample`.
class TextSampler {
 public:
  static constexpr char kTask[] = "writes text";

  virtual ~TextSampler() = default;

  /// Returns `length` characters that follow `prompt`; an empty prompt is the task's default start.
  /// Draws them from `generator` with the logits divided by `temperature`. Throws UsageError if
  /// `prompt` has characters that the training text lacks.
  virtual std::string Sample(const std::string& prompt, int64_t length, double temperature,
                             at::Generator& generator) = 0;
};

/// Capability of a model that draws images: `planish sample`.
class Illustrator {
 public:
  static constexpr char kTask[] = "draws images";

  virtual ~Illustrator() = default;

  /// Returns `count` images as one SVG document, in the format of RunResult::Sample.
  virtual std::string DrawImages(int64_t count, at::Generator& generator) = 0;
};

/// Capability of a model that translates lines: `planish translate`.
class LineTranslator {
 public:
  static constexpr char kTask[] = "translates";

  virtual ~LineTranslator() = default;

  /// Returns one translation for each line, in the same order.
  virtual std::vector<std::string> Translate(const std::vector<std::string>& lines) = 0;
};

/// Capability of a model that finds images by a caption: `planish search`.
class CaptionSearcher {
 public:
  static constexpr char kTask[] = "finds images";

  virtual ~CaptionSearcher() = default;

  struct Hit {
    double score = 0;   ///< larger is better
    int64_t image = 0;  ///< index among the test images, from 0
    std::vector<std::string> captions;
  };

  /// Returns the `max_count` best test images, or all if there are fewer, best first. Throws
  /// UsageError if the model knows no word of `caption`.
  virtual std::vector<Hit> Search(const std::string& caption, int64_t max_count) = 0;
};

/// Capability of a model that writes a text by hand: `planish write`.
class HandWriter {
 public:
  static constexpr char kTask[] = "writes by hand";

  virtual ~HandWriter() = default;

  struct Request {
    std::string text;              ///< UTF-8, at least one character
    double bias = 0;               ///< bias towards likely strokes, 0 or more
    int64_t steps = 0;             ///< maximum number of points
    std::optional<int64_t> prime;  ///< line of the validation data whose style is continued
  };
  struct Written {
    std::string svg;     ///< in the format of RunResult::Sample
    bool whole = false;  ///< set if the pen had passed the text's last character when it stopped
  };

  /// Returns a number of points that is enough for most texts of that length in bytes.
  static int64_t DefaultSteps(const std::string& text) {
    return 200 + 60 * static_cast<int64_t>(text.size());
  }

  /// Writes `request`. Throws UsageError if the text has characters that the model has not learned
  /// or if the line of the validation data does not exist.
  virtual Written Write(const Request& request, at::Generator& generator) = 0;
};

/// Capability of a model that maps sentences to vectors: `planish downstream`.
class SentenceEncoder {
 public:
  static constexpr char kTask[] = "gives sentences vectors";

  virtual ~SentenceEncoder() = default;

  /// Returns one vector for each sentence, [sentences, D], in the same order. Sentences are UTF-8.
  virtual at::Tensor EncodeSentences(const std::vector<std::string>& sentences) = 0;
};

/// Capability of a model that reads sequences of any length with recurrent layers: `planish analyze
/// stability`.
class SequenceReader {
 public:
  static constexpr char kTask[] = "reads long sequences with recurrent layers";

  virtual ~SequenceReader() = default;

  virtual RecurrentModule& recurrent() = 0;

  struct Sequences {
    at::Tensor x;       ///< [T, B, I] inputs of the first recurrent layer
    at::Tensor target;  ///< [B] what the model predicts after the last step
  };

  /// Returns the largest number of steps that the training data is long enough for.
  virtual int64_t MaxSteps() const = 0;

  /// Returns B = `count` sequences of T = `steps` steps of the training data, at places that
  /// `generator` draws. Throws UsageError for more than MaxSteps().
  virtual Sequences ReadSequences(int64_t steps, int64_t count, at::Generator& generator) = 0;

  /// Returns the mean loss of the predictions from the last layer's last state h [B, H], in h's
  /// type. It can be differentiated.
  virtual at::Tensor LastLoss(const at::Tensor& h, const at::Tensor& target) = 0;
};

/// Capability of a network with linear layers directly before norms: `planish analyze invariance`.
class LinearLayersWithNorms {
 public:
  static constexpr char kTask[] = "has linear layers directly before norms";

  virtual ~LinearLayersWithNorms() = default;

  struct Layer {
    std::string name;     ///< of the linear layer in the model
    std::string norm;     ///< in InvarianceNorms() (lab/papers/invariances.h)
    NormOptions options;  ///< of the norm
    at::Tensor x;         ///< [cases, inputs] inputs of the layer
    at::Tensor weight;    ///< [units, inputs]
    at::Tensor bias;      ///< [units] of the linear layer, or undefined
    const torch::nn::Module* of_norm = nullptr;  ///< has the norm's parameters; of the model
  };

  /// Returns all linear layers but those whose norm is none, with their inputs for the first
  /// `cases` test cases, or all if there are fewer. Computes in the type of the model's parameters.
  virtual std::vector<Layer> LayersWithNorms(int64_t cases) = 0;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_CAPABILITIES_H_
