#ifndef PLANISH_LAB_TASKS_PI_MNIST_MODEL_H_
#define PLANISH_LAB_TASKS_PI_MNIST_MODEL_H_

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <string>
#include <vector>

#include "lab/model/norms.h"

namespace planish::lab {

/// Pixels -> (linear, norm, ReLU) x depth -> linear (norm) -> logits.
class PixelMlp : public torch::nn::Module {
 public:
  struct Options {
    std::string norm = "none";
    int64_t inputs = 784;
    int64_t width = 1000;
    int64_t depth = 2;  ///< hidden layers
    int64_t classes = 10;
    bool norm_on_logits = false;
    NormOptions norm_options;
  };
  explicit PixelMlp(const Options& options);

  /// x: [N, inputs] -> logits [N, classes].
  at::Tensor forward(at::Tensor x);

  /// Returns the summed inputs of a layer, those of its norm, from the outputs of the layer before.
  at::Tensor Sums(size_t layer, const at::Tensor& x);

  const Options& options() const { return options_; }

  /// The layers; the last ones are of the logits.
  const std::vector<torch::nn::Linear>& linears() const { return linears_; }
  const std::vector<std::shared_ptr<NormModule>>& norms() const { return norms_; }

 private:
  Options options_;
  std::vector<torch::nn::Linear> linears_;
  std::vector<std::shared_ptr<NormModule>> norms_;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_PI_MNIST_MODEL_H_
