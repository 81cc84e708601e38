#include "lab/tasks/draw/attention.h"

#include <ATen/Functions.h>

#include <vector>

namespace planish::lab {

SelectiveAttention::SelectiveAttention(int64_t side, int64_t read, int64_t write)
    : side_(side), read_(read), write_(write) {
  const int64_t filters = 2 * read + 2 * write;
  const double half = static_cast<double>(side + 1) / 2;
  signs_ = at::tensor({1.0, 1.0, -1.0, -1.0, 1.0, -1.0});
  middle_ = at::full({filters}, half, at::kDouble);
  spread_ = at::zeros({6, filters}, at::kDouble);
  sharpness_ = at::zeros({2, filters}, at::kDouble);
  pixels_ = at::arange(1, side + 1, at::kDouble);
  // Rows in the order of g_X and g_Y of reading, then of writing.
  int64_t row = 0;
  for (const int64_t which : {0, 1}) {
    const int64_t count = which == 0 ? read : write;
    for (const int64_t axis : {0, 1}) {
      for (int64_t i = 1; i <= count; ++i, ++row) {
        spread_[2 * which + axis][row] = half;
        if (count > 1) {
          const double stride = static_cast<double>(side - 1) / static_cast<double>(count - 1);
          spread_[4 + which][row] =
              (static_cast<double>(i) - static_cast<double>(count) / 2 - 0.5) * stride;
        }
        sharpness_[which][row] = -0.5;
      }
    }
  }
}

// Computed in every step, so with few operations: one softmax for all filters of both grids. Unlike
// a quotient, it stays finite if a grid is far outside the image.
SelectiveAttention::Filters SelectiveAttention::MakeFilters(const at::Tensor& parameters) const {
  const auto options = parameters.options();
  const std::vector<at::Tensor> split = parameters.split_with_sizes({4, 6}, 1);
  // delta~, 1 / sigma^2, and gamma of reading and 1 / gamma of writing.
  const std::vector<at::Tensor> scales =
      (split[1] * signs_.to(options)).exp().split_with_sizes({2, 2, 1, 1}, 1);
  const at::Tensor centres =
      at::addmm(middle_.to(options), at::cat({split[0], scales[0]}, 1), spread_.to(options));
  const at::Tensor factors = at::mm(scales[1], sharpness_.to(options));
  const at::Tensor distances = pixels_.to(options) - centres.unsqueeze(2);
  const std::vector<at::Tensor> filters = at::softmax(distances.square() * factors.unsqueeze(2), 2)
                                              .split_with_sizes({read_, read_, write_, write_}, 1);
  return {.read_x = filters[0],
          .read_y = filters[1],
          .read_gain = scales[2].unsqueeze(2),
          .write_x = filters[2],
          .write_y = filters[3],
          .write_gain = scales[3].unsqueeze(2)};
}

at::Tensor SelectiveAttention::Read(const Filters& filters, const at::Tensor& x,
                                    const at::Tensor& shown) const {
  // Rows first, so that the difference has N rows instead of A.
  const at::Tensor rows = at::bmm(filters.read_y, x);
  const at::Tensor both = at::cat({rows, rows - at::bmm(filters.read_y, shown)}, 1);
  return (at::bmm(both, filters.read_x.transpose(1, 2)) * filters.read_gain).flatten(1);
}

at::Tensor SelectiveAttention::Write(const Filters& filters, const at::Tensor& patch,
                                     const at::Tensor& canvas) const {
  const at::Tensor scaled = patch.view({-1, write_, write_}) * filters.write_gain;
  return at::baddbmm(canvas, at::bmm(filters.write_y.transpose(1, 2), scaled), filters.write_x);
}

at::Tensor SelectiveAttention::WriteWindows(const at::Tensor& parameters) const {
  const at::Tensor centres = (parameters.slice(1, 2, 4) + 1) * (static_cast<double>(side_ + 1) / 2);
  const at::Tensor extents =
      parameters.slice(1, 5, 6).exp() * static_cast<double>(write_ > 1 ? side_ - 1 : 0);
  return at::cat({centres, extents, (parameters.slice(1, 7, 8) / 2).exp()}, 1);
}

}  // namespace planish::lab
