#ifndef PLANISH_TORCH_NNET_H_
#define PLANISH_TORCH_NNET_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

// The constructor of the post that introduced online layer normalisation, and its printing.
// planish/torch.h includes this file.
namespace planish::nn {

/// What nnet makes: a torch::nn::Sequential of which `<<` prints a line for each layer, as the post
/// does.
class NNetImpl : public torch::nn::SequentialImpl {
 public:
  using SequentialImpl::SequentialImpl;

  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override;
  void pretty_print(std::ostream& stream) const override;

  /// x: [..., nin] -> [..., nout]. Not a template, so that a Sequential takes it for a layer.
  at::Tensor forward(const at::Tensor& x);
};
TORCH_MODULE(NNet);

std::ostream& operator<<(std::ostream& stream, const NNetImpl& net);
std::ostream& operator<<(std::ostream& stream, const NNet& net);

/// "identity", "logistic", "relu", "softplus", "softsign", "tanh", or a function that makes a
/// module.
using Activation = std::variant<std::string, std::function<torch::nn::AnyModule()>>;

/// A multi-layer perceptron with online layer normalisation on every layer, the last included: the
/// constructor of T. Breloff's post "Online Layer Normalization" (2016). For each width in
/// `{hidden..., nout}` a linear map, OnlineLayerNorm(width, alpha), and the activation `inner`, of
/// the last layer `output`. The linear maps have no bias, since the norm has one; without
/// `layernorm` they have theirs. Throws c10::ValueError for a width below 1 (below 2 with
/// layernorm), an unknown activation, and alpha outside (0, 1].
///
///   std::cout << planish::nn::nnet(3, 5, {4}, "relu", "logistic");
///
///   Chain{float32}(
///      Linear{3-->4}
///      LayerNorm{n=4, mu=0.0, sigma=1.0}
///      relu{4}
///      Linear{4-->5}
///      LayerNorm{n=5, mu=0.0, sigma=1.0}
///      logistic{5}
///   )
NNet nnet(int64_t nin, int64_t nout, const std::vector<int64_t>& hidden,
          const Activation& inner = "relu", const Activation& output = "identity",
          bool layernorm = true, double alpha = 0.1);

}  // namespace planish::nn

#endif  // PLANISH_TORCH_NNET_H_
