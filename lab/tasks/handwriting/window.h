#ifndef PLANISH_LAB_TASKS_HANDWRITING_WINDOW_H_
#define PLANISH_LAB_TASKS_HANDWRITING_WINDOW_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

namespace planish::lab {

/// The window on a text that goes along with the pen (Graves 2013, Eq. 46-51). B, K, U, V: cases,
/// Gaussians, longest text, symbols. Of a step, for each Gaussian k and each place u = 1..U of the
/// text, with a, b, d the three parts of `raw`:
///
///   position_k = position_k before + exp(d_k)
///   phi(u) = sum_k exp(a_k - exp(b_k) (position_k - u)^2)
///   window = sum_u phi(u) onehot(text_u)
class TextWindow {
 public:
  /// symbols [B, U] int64, from 0 to V - 1, and -1 beyond the end of a text. `composed`: of
  /// PyTorch's operators, for comparison, in place of one operation with a backward of its own.
  TextWindow(const at::Tensor& symbols, int64_t alphabet, at::ScalarType type, bool composed);

  /// raw [B, 3K], the positions before [B, K] -> the window [B, V] and the positions [B, K].
  /// Differentiable with respect to both.
  std::pair<at::Tensor, at::Tensor> Step(const at::Tensor& raw, const at::Tensor& positions) const;

 private:
  at::Tensor symbols_;
  int64_t alphabet_;
  at::Tensor one_hot_;  // [B, U, V], where the window is composed
};

/// Whether the window has passed the one text of `length` characters: whether phi is larger behind
/// its last character than at each of its characters (Graves 2013, section 5.3). raw [1, 3K] and
/// positions [1, K] as Step takes and gives them.
bool HasPassed(const at::Tensor& raw, const at::Tensor& positions, int64_t length);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_HANDWRITING_WINDOW_H_
