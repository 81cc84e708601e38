#ifndef PLANISH_LAB_TASKS_DRAW_ATTENTION_H_
#define PLANISH_LAB_TASKS_DRAW_ATTENTION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace planish::lab {

/// DRAW's selective attention over images of A x A pixels (Gregor et al. 2015, section 3.2): grids
/// of N x N Gaussian filters read, of M x M write. In pixels from 1 to A, column i = 1..N is at
///   mu_X(i) = g_X + (i - N/2 - 0.5) delta   (Eq. 22-24; rows likewise with g_Y)
///   g_X = (A + 1) / 2 (g~_X + 1),   delta = (A - 1) / (N - 1) delta~
/// A filter is exp(-(a - mu)^2 / (2 sigma^2)) over the pixels a, divided by its sum (Eq. 25, 26). A
/// decoder output determines writing in its step and reading in the next.
class SelectiveAttention {
 public:
  /// A is `side`, N is `read` and M is `write`.
  SelectiveAttention(int64_t side, int64_t read, int64_t write);

  /// Parameters of both attentions: g~_X and g~_Y of reading, of writing; log delta~ of reading, of
  /// writing; log sigma^2 likewise; log gamma likewise.
  static constexpr int64_t kParameters = 10;

  struct Filters {
    at::Tensor read_x, read_y;    ///< [B, N, A], a filter in each row
    at::Tensor read_gain;         ///< [B, 1, 1], gamma of reading
    at::Tensor write_x, write_y;  ///< [B, M, A]
    at::Tensor write_gain;        ///< [B, 1, 1], 1 / gamma of writing
  };
  /// Returns the filters of parameters [B, kParameters].
  Filters MakeFilters(const at::Tensor& parameters) const;

  /// Returns gamma [F_Y x F_X', F_Y (x - shown) F_X'] (Eq. 27) of images and the shown canvas, both
  /// [B, A, A] -> [B, 2 N N], row by row.
  at::Tensor Read(const Filters& filters, const at::Tensor& x, const at::Tensor& shown) const;

  /// Returns canvas [B, A, A] + 1 / gamma F_Y' patch F_X (Eq. 29), patch [B, M M].
  at::Tensor Write(const Filters& filters, const at::Tensor& patch, const at::Tensor& canvas) const;

  /// Returns the windows [B, 4] that the parameters write to, in pixels: g_X, g_Y, width and sigma.
  /// The width is the distance between the first and the last filter of a row.
  at::Tensor WriteWindows(const at::Tensor& parameters) const;

 private:
  int64_t side_, read_, write_;
  at::Tensor signs_;      // [6]: signs of the logarithms before their exponential
  at::Tensor middle_;     // [R]: filter centres if all parameters are 0 except delta~; R = 2N + 2M
  at::Tensor spread_;     // [6, R]: coefficients of four centres and two strides
  at::Tensor sharpness_;  // [2, R]: coefficients of the two 1 / sigma^2 in the exponents
  at::Tensor pixels_;     // [A]: 1 to A
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_DRAW_ATTENTION_H_
