#ifndef PLANISH_TORCH_BASE_AUTOGRAD_H_
#define PLANISH_TORCH_BASE_AUTOGRAD_H_

#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <iterator>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>

#include "torch/base/compat.h"

// Autograd nodes like those of PyTorch's generated code. Their backward calls operators through the
// dispatcher, so that functional transforms, compilers and higher derivatives see the calls.
namespace planish {

using Tensors = c10::SmallVector<at::Tensor, 6>;

/// A node that saves up to six tensors. Backward is called as
///   Tensors backward(Tensors& gradients, Tensors& kept, needed)
/// `gradients` are those of the outputs; undefined means zero. `kept` are the saved tensors.
/// needed(i) returns whether the gradient of input i is needed.
template <class Backward>
class LambdaNode final : public torch::autograd::Node {
 public:
  LambdaNode(const char* label, Backward backward)
      : label_(label), backward_(std::move(backward)) {}

  std::string name() const override { return label_; }

  /// Saves an input of the forward call.
  void Keep(const at::Tensor& input) { kept_.emplace_back(input, /*is_output=*/false); }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& variable : kept_) variable.reset_data();
  }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    std::lock_guard<std::mutex> lock(mutex_);
    // Moves the gradients, so that the node holds their only reference: see MayOverwrite.
    Tensors given(std::make_move_iterator(gradients.begin()),
                  std::make_move_iterator(gradients.end()));
    Tensors kept;
    for (auto& variable : kept_) kept.push_back(variable.unpack(this->getptr()));
    const auto needed = [this](size_t input) { return this->task_should_compute_output(input); };
    Tensors results = backward_(given, kept, needed);
    return {std::make_move_iterator(results.begin()), std::make_move_iterator(results.end())};
  }

 private:
  const char* label_;
  Backward backward_;
  c10::SmallVector<torch::autograd::SavedVariable, 6> kept_;
};

/// Returns whether a node can write one of its results to `gradient`, on the same conditions as the
/// engine's accumulation in place. The gradient must have the layout of `x` in `format` and be the
/// only reference to its memory, which PyTorch owns. Returns false under transforms, modes and
/// higher derivatives. The caller checks for tangents.
inline bool MayOverwrite(const at::Tensor& gradient, const at::Tensor& x,
                         at::MemoryFormat format = at::MemoryFormat::Contiguous) {
  return gradient.defined() && gradient.use_count() == 1 && !at::GradMode::is_enabled() &&
         !at::areAnyTensorSubclassLike({gradient, x}) && gradient.layout() == at::kStrided &&
         !gradient.is_conj() && !gradient.is_neg() && !gradient._is_zerotensor() &&
         gradient.storage().use_count() == 1 && gradient.storage().resizable() &&
         gradient.is_contiguous(format) && gradient.scalar_type() == x.scalar_type() &&
         gradient.device() == x.device() && gradient.sizes() == x.sizes();
}

template <class... T>
bool AnyTangent(const T&... tensors) {
  return ((tensors.defined() && tensors._fw_grad(/*level=*/0).defined()) || ...);
}

/// Calls `forward()` below autograd.
template <class Forward>
auto BelowAutograd(Forward&& forward) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  return forward();
}

/// Calls `forward()` below autograd and attaches a node to its outputs. `inputs` are the
/// differentiable inputs, `kept(outputs)` the tensors that `backward` needs, and
/// `differentiable(outputs)` the outputs that get the node.
template <class Forward, class Kept, class Differentiable, class Backward>
auto WithHistory(const char* label, const Tensors& inputs, Forward&& forward, Kept&& kept,
                 Differentiable&& differentiable, Backward&& backward) {
  auto outputs = BelowAutograd(std::forward<Forward>(forward));
  auto node = MakeNode<LambdaNode<std::decay_t<Backward>>>(label, std::forward<Backward>(backward));
  node->set_next_edges(torch::autograd::collect_next_edges(at::TensorList(inputs)));
  for (const at::Tensor& output : differentiable(outputs)) {
    torch::autograd::set_history(output, node);
  }
  for (const at::Tensor& t : kept(outputs)) node->Keep(t);
  return outputs;
}

}  // namespace planish

#endif  // PLANISH_TORCH_BASE_AUTOGRAD_H_
