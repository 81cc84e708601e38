#ifndef PLANISH_LAB_ENGINE_NONFINITE_H_
#define PLANISH_LAB_ENGINE_NONFINITE_H_

#include <functional>
#include <string>

#include "lab/engine/task.h"

// Search for the layer where a loss or metric stopped being finite. It runs after such a value was
// seen, so normal training pays nothing for it.
namespace planish::lab {

/// Returns where the first value that is not finite comes from, like "the output of norm1 was nan",
/// or "" if that cannot be told. In this order:
/// - the first parameter that is not finite;
/// - the operator of the forward pass whose inputs are finite and whose output is not, and from
///   which the loss got its value. It is named by the layer whose parameters it uses.
///
/// `batch` are the inputs of `loss`, which computes the forward pass again. Elements of the model's
/// floating-point buffers that are not finite become 0 before it: the first pass left them there.
std::string FindNonFiniteLayer(torch::nn::Module& model, const Tensors& batch,
                               const std::function<at::Tensor()>& loss);

/// Like FindNonFiniteLayer, for an evaluation. `evaluate` computes it again. It can end when its
/// argument returns true: the search has then ended.
std::string FindNonFiniteLayer(torch::nn::Module& model,
                               const std::function<void(const std::function<bool()>&)>& evaluate);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_NONFINITE_H_
