#ifndef PLANISH_LAB_TASKS_PI_MNIST_MODEL_H_
#define PLANISH_LAB_TASKS_PI_MNIST_MODEL_H_

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <string>
#include <utility>
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
  at::Tensor forward(at::Tensor x) { return Run(std::move(x), nullptr); }

  struct Layer {
    torch::nn::Linear linear;
    std::shared_ptr<NormModule> norm;
    std::string norm_name;
  };
  /// The last layer is that of the logits.
  const std::vector<Layer>& layers() const { return layers_; }

  /// Returns the inputs of all layers for x [N, inputs].
  std::vector<at::Tensor> InputsOfLayers(at::Tensor x);

  /// Returns the summed inputs of a layer, those of its norm, from the outputs of the layer before.
  at::Tensor Sums(size_t layer, const at::Tensor& x);

  const Options& options() const { return options_; }

 private:
  at::Tensor Run(at::Tensor x, std::vector<at::Tensor>* inputs);

  Options options_;
  std::vector<Layer> layers_;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_PI_MNIST_MODEL_H_
