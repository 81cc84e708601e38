#ifndef PLANISH_LAB_TASKS_CONVNET_MODEL_H_
#define PLANISH_LAB_TASKS_CONVNET_MODEL_H_

#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <string>
#include <vector>

#include "lab/model/norms.h"

namespace planish::lab {

/// Image -> (3 x 3 convolution, norm, ReLU) x 2, 2 x 2 maximum, the same again with twice the
/// channels -> linear, norm, ReLU -> linear -> logits. Zero padding keeps the image size.
/// docs/tasks/convnet.md lists the norms.
class ConvNet : public torch::nn::Module {
 public:
  struct Options {
    std::string norm = "none";
    int64_t channels = 32;  ///< of the first two convolutions
    int64_t hidden = 256;   ///< units of the first linear layer
    int64_t side = 28;      ///< an image has side x side pixels
    int64_t classes = 10;
    NormOptions norm_options = {};
  };
  explicit ConvNet(const Options& options);

  /// x: [N, side * side] -> logits [N, classes].
  at::Tensor forward(const at::Tensor& x);

  /// Units of one convolution, each [N, H, W, C].
  struct Units {
    at::Tensor sums;       ///< outputs of the convolution
    at::Tensor activated;  ///< after norm and ReLU
  };

  /// Returns the units of each convolution in order, for the images x.
  std::vector<Units> UnitsOf(const at::Tensor& x);

 private:
  struct Convolution {
    torch::nn::Conv2d layer{nullptr};
    std::shared_ptr<NormModule> norm;
  };
  at::Tensor Run(const at::Tensor& x, std::vector<Units>* units);

  int64_t side_;
  std::vector<Convolution> convolutions_;
  torch::nn::Linear hidden_{nullptr}, output_{nullptr};
  std::shared_ptr<NormModule> hidden_norm_;
};

/// Returns the norms of ConvNet: those of MakeNorm, and layer-channels.
std::vector<std::string> ConvNetNorms();

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_CONVNET_MODEL_H_
