#ifndef PLANISH_LAB_TASKS_ONLINE_LN_MODEL_H_
#define PLANISH_LAB_TASKS_ONLINE_LN_MODEL_H_

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lab/model/norms.h"
#include "planish/torch.h"

namespace planish::lab {

/// Pixels -> (linear, norm, ReLU) x 2 -> linear, norm -> logits, as in T. Breloff's post "Online
/// Layer Normalization" (2016). The linear maps have biases with the norms none and weight.
class OnlineMlp : public torch::nn::Module {
 public:
  struct Options {
    std::string norm = "none";          ///< none, layer, batch, weight, or online
    double alpha = 0.1;                 ///< of online layer normalization
    std::string schedule = "constant";  ///< of alpha: nn::OnlineLayerNormOptions::schedule
    int64_t inputs = 784;
    std::vector<int64_t> hidden = {128, 128};
    int64_t classes = 10;
    NormOptions norm_options = {};
  };
  explicit OnlineMlp(const Options& options);

  /// x: [N, inputs] -> logits [N, classes]. Online: cases in order, see planish/online_norm.h.
  at::Tensor forward(const at::Tensor& x);

  /// Statistics that normalize a layer's sums.
  struct Statistics {
    double mu = 0;
    double sigma = 0;
  };

  /// Returns the statistics of each layer. Online: the state of its norm. Otherwise: means over the
  /// cases x of the mean of its sums and of their deviation, unbiased as in online layer
  /// normalization.
  std::vector<Statistics> StatisticsOf(const at::Tensor& x);

  struct Layer {
    at::Tensor x;  ///< [N, inputs]
    const torch::nn::LinearImpl* linear;
    const torch::nn::Module* norm;  ///< null with the norm none
  };

  /// Returns the layers with their inputs for x [N, inputs].
  std::vector<Layer> Layers(const at::Tensor& x);

  const torch::nn::Sequential& net() const { return net_; }

 private:
  /// As forward. Calls visit(layer, sums) with each layer and its sums, in order.
  template <class Visit>
  at::Tensor Forward(at::Tensor x, const Visit& visit);

  torch::nn::Sequential net_{nullptr};
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_ONLINE_LN_MODEL_H_
