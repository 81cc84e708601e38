#include "lab/tasks/handwriting/window.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/custom_function.h>

#include <vector>

namespace planish::lab {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// One autograd node for about twenty, whose overhead at eight cases would exceed their computation.
class WindowFunction final : public torch::autograd::Function<WindowFunction> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& raw,
                               const at::Tensor& positions, const at::Tensor& symbols,
                               int64_t alphabet) {
    const int64_t batch = positions.size(0), gaussians = positions.size(1),
                  places = symbols.size(1);
    // exp of b and d; exp of a is within the Gaussians.
    const at::Tensor exps = at::exp(raw.slice(1, gaussians));
    const at::Tensor next = positions + exps.slice(1, gaussians);
    at::Tensor terms = at::empty({batch, gaussians, places}, raw.options());
    at::Tensor window = at::zeros({batch, alphabet}, raw.options());
    AT_DISPATCH_FLOATING_TYPES(raw.scalar_type(), "window", [&] {
      const auto a = raw.accessor<scalar_t, 2>();
      const auto b = exps.accessor<scalar_t, 2>(), place = next.accessor<scalar_t, 2>();
      auto out = terms.accessor<scalar_t, 3>();
      for (int64_t i = 0; i < batch; ++i) {
        for (int64_t k = 0; k < gaussians; ++k) {
          for (int64_t u = 0; u < places; ++u) {
            const scalar_t distance = place[i][k] - static_cast<scalar_t>(u + 1);
            out[i][k][u] = a[i][k] - b[i][k] * distance * distance;
          }
        }
      }
      terms.exp_();
      const auto symbol = symbols.accessor<int64_t, 2>();
      auto sums = window.accessor<scalar_t, 2>();
      for (int64_t i = 0; i < batch; ++i) {
        for (int64_t k = 0; k < gaussians; ++k) {
          for (int64_t u = 0; u < places && symbol[i][u] >= 0; ++u) {
            sums[i][symbol[i][u]] += out[i][k][u];
          }
        }
      }
    });
    context->save_for_backward({exps, next, terms, symbols});
    context->saved_data["alphabet"] = alphabet;
    return {window, next};
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &exps = saved[0], &next = saved[1], &terms = saved[2], &symbols = saved[3];
    const int64_t batch = next.size(0), gaussians = next.size(1), places = symbols.size(1);
    at::Tensor draw = at::empty({batch, 3 * gaussians}, next.options());
    at::Tensor dpositions =
        gradients[1].defined() ? gradients[1].clone() : at::zeros(next.sizes(), next.options());
    // The last step's window only goes to the layers above, and can be without a gradient.
    const at::Tensor dy =
        gradients[0].defined()
            ? gradients[0]
            : at::zeros({batch, context->saved_data["alphabet"].toInt()}, next.options());
    AT_DISPATCH_FLOATING_TYPES(next.scalar_type(), "window_backward", [&] {
      const auto dwindow = dy.accessor<scalar_t, 2>();
      const auto b = exps.accessor<scalar_t, 2>(), place = next.accessor<scalar_t, 2>();
      const auto term = terms.accessor<scalar_t, 3>();
      const auto symbol = symbols.accessor<int64_t, 2>();
      auto d = draw.accessor<scalar_t, 2>();
      auto dposition = dpositions.accessor<scalar_t, 2>();
      for (int64_t i = 0; i < batch; ++i) {
        for (int64_t k = 0; k < gaussians; ++k) {
          scalar_t sum = 0, first = 0, second = 0;  // of terms times powers of the distance
          for (int64_t u = 0; u < places && symbol[i][u] >= 0; ++u) {
            const scalar_t distance = place[i][k] - static_cast<scalar_t>(u + 1);
            const scalar_t part = dwindow[i][symbol[i][u]] * term[i][k][u];
            sum += part;
            first += part * distance;
            second += part * distance * distance;
          }
          dposition[i][k] -= 2 * b[i][k] * first;
          d[i][k] = sum;
          d[i][gaussians + k] = -b[i][k] * second;
          d[i][2 * gaussians + k] = dposition[i][k] * b[i][gaussians + k];
        }
      }
    });
    return {draw, dpositions, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

TextWindow::TextWindow(const at::Tensor& symbols, int64_t alphabet, at::ScalarType type,
                       bool composed)
    : symbols_(symbols), alphabet_(alphabet) {
  // The custom function is for the CPU.
  if (!composed && symbols.is_cpu()) return;
  one_hot_ = at::one_hot(symbols.clamp_min(0), alphabet) * (symbols >= 0).unsqueeze(2);
  one_hot_ = one_hot_.to(type);
}

std::pair<at::Tensor, at::Tensor> TextWindow::Step(const at::Tensor& raw,
                                                   const at::Tensor& positions) const {
  if (!one_hot_.defined()) {
    const variable_list results = WindowFunction::apply(raw, positions, symbols_, alphabet_);
    return {results[0], results[1]};
  }
  const std::vector<at::Tensor> parts = raw.chunk(3, 1);
  const at::Tensor next = positions + parts[2].exp();
  const at::Tensor places = at::arange(1, one_hot_.size(1) + 1, raw.options());
  const at::Tensor distances = next.unsqueeze(2) - places;
  const at::Tensor terms =
      parts[0].exp().unsqueeze(2) * (-parts[1].exp().unsqueeze(2) * distances.square()).exp();
  return {terms.sum(1, /*keepdim=*/true).bmm(one_hot_).squeeze(1), next};
}

bool HasPassed(const at::Tensor& raw, const at::Tensor& positions, int64_t length) {
  const std::vector<at::Tensor> parts = raw.to(at::kDouble).chunk(3, 1);
  const at::Tensor places = at::arange(1, length + 2, parts[0].options());
  const at::Tensor distances = positions.to(at::kDouble).unsqueeze(2) - places;
  const at::Tensor phi =
      (parts[0].unsqueeze(2) - parts[1].exp().unsqueeze(2) * distances.square()).exp().sum(1)[0];
  return phi[length].item<double>() > phi.slice(0, 0, length).max().item<double>();
}

}  // namespace planish::lab
