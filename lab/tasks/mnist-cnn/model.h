#ifndef PLANISH_LAB_TASKS_MNIST_CNN_MODEL_H_
#define PLANISH_LAB_TASKS_MNIST_CNN_MODEL_H_

#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <string>
#include <vector>

#include "lab/data/images.h"
#include "lab/model/norms.h"

namespace planish::lab {

/// Minimum height and width of images for DigitCnn's default channels: a pixel is left after both
/// maxima.
inline constexpr int64_t kMinCnnSide = 16;

/// Image -> (5 x 5 convolution, norm, ReLU, 2 x 2 maximum) twice -> linear, norm, ReLU -> linear ->
/// logits. Norms after a convolution are over all channels and positions of a case, batch norm over
/// all cases and positions of a channel. Images are in channels-last memory format, which is
/// fastest for convolutions and maxima, so gains and biases of these norms are [H, W, C].
class DigitCnn : public torch::nn::Module {
 public:
  struct Options {
    std::string norm = "none";
    bool norm_convolutions = true;             ///< else only the linear layer has a norm
    std::vector<int64_t> channels = {20, 50};  ///< of the convolutions
    int64_t hidden = 500;                      ///< units of the first linear layer
    ImageShape shape;                          ///< of an image; sides >= kMinCnnSide
    int64_t classes = 10;
    NormOptions norm_options;
  };
  explicit DigitCnn(const Options& options);

  /// x: [N, height * width * channels] -> logits [N, classes].
  at::Tensor forward(const at::Tensor& x);

 private:
  struct Convolution {
    torch::nn::Conv2d layer{nullptr};
    std::shared_ptr<NormModule> norm;  // null for a layer without a norm
  };
  ImageShape shape_;
  std::vector<Convolution> convolutions_;
  torch::nn::Linear hidden_{nullptr}, output_{nullptr};
  std::shared_ptr<NormModule> hidden_norm_;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_MNIST_CNN_MODEL_H_
