#ifndef PLANISH_TORCH_BASE_COMPAT_H_
#define PLANISH_TORCH_BASE_COMPAT_H_

#include <torch/csrc/autograd/function.h>
#include <torch/version.h>

#include <memory>
#include <utility>

// Differences between the PyTorch versions that the binding builds against (2.11 to 2.15).
namespace planish {

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 13)
template <class Node>
using NodePtr = c10::intrusive_ptr<Node>;

template <class Node, class... Args>
NodePtr<Node> MakeNode(Args&&... args) {
  return c10::make_intrusive<Node>(std::forward<Args>(args)...);
}
#else
template <class Node>
using NodePtr = std::shared_ptr<Node>;

template <class Node, class... Args>
NodePtr<Node> MakeNode(Args&&... args) {
  // deleteNode destroys a long graph without recursion.
  return NodePtr<Node>(new Node(std::forward<Args>(args)...), torch::autograd::deleteNode);
}
#endif

}  // namespace planish

#endif  // PLANISH_TORCH_BASE_COMPAT_H_
