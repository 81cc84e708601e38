#ifndef PLANISH_LAB_TASKS_HANDWRITING_WINDOW_H_
#define PLANISH_LAB_TASKS_HANDWRITING_WINDOW_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

namespace planish::lab {

/// Window on a text that moves with the pen (Graves 2013, Eq. 46-51). B, K, U, V: cases, Gaussians,
/// longest text, symbols. For Gaussian k, position u = 1..U, and the parts a, b, d of `raw`:
///   position_k = previous position_k + exp(d_k)
///   phi(u) = sum_k exp(a_k - exp(b_k) (position_k - u)^2)
///   window = sum_u phi(u) onehot(text_u)
class TextWindow {
 public:
  /// symbols [B, U] int64, from 0 to V - 1, and -1 after the end of a text. `composed` uses
  /// PyTorch's operators for comparison, instead of one operation with its own backward.
  TextWindow(const at::Tensor& symbols, int64_t alphabet, at::ScalarType type, bool composed);

  /// Maps raw [B, 3K] and the previous positions [B, K] to the window [B, V] and the positions [B,
  /// K]. Differentiable with respect to both.
  std::pair<at::Tensor, at::Tensor> Step(const at::Tensor& raw, const at::Tensor& positions) const;

 private:
  at::Tensor symbols_;
  int64_t alphabet_;
  at::Tensor one_hot_;  // [B, U, V], if the window is composed
};

/// Returns true if the window has passed the text of `length` characters: phi is larger after the
/// last character than at each character (Graves 2013, section 5.3). `raw` [1, 3K] and `positions`
/// [1, K] are Step's input and output.
bool HasPassed(const at::Tensor& raw, const at::Tensor& positions, int64_t length);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_HANDWRITING_WINDOW_H_
