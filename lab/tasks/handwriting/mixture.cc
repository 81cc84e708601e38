#include "lab/tasks/handwriting/mixture.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>
#include <numbers>
#include <vector>

namespace planish::lab {

namespace {

// Correlations are tanh of values clamped to this, 4e-9 from 1, so that division by 1 - rho^2 does
// not overflow.
constexpr double kMaxCorrelated = 10;

struct Mixture {
  at::Tensor lift;                      // [N], logits
  at::Tensor weights;                   // [N, M], logits
  at::Tensor mean_x, mean_y;            // [N, M]
  at::Tensor log_sigma_x, log_sigma_y;  // [N, M]
  at::Tensor correlation;               // [N, M], rho is its tanh
};

Mixture MixtureOf(const at::Tensor& y, double floor) {
  const int64_t gaussians = (y.size(1) - 1) / 6;
  const auto part = [&](int64_t i) {
    return y.slice(1, 1 + i * gaussians, 1 + (i + 1) * gaussians);
  };
  const at::Tensor log_floor = at::full({}, std::log(floor), y.options());
  const auto log_sigma = [&](int64_t i) { return at::logaddexp(part(i), log_floor); };
  return {.lift = y.select(1, 0),
          .weights = part(0),
          .mean_x = part(1),
          .mean_y = part(2),
          .log_sigma_x = log_sigma(3),
          .log_sigma_y = log_sigma(4),
          .correlation = part(5).clamp(-kMaxCorrelated, kMaxCorrelated)};
}

}  // namespace

at::Tensor MixtureNats(const at::Tensor& y, const at::Tensor& points, double floor) {
  const Mixture m = MixtureOf(y, floor);
  const at::Tensor x = (points.slice(1, 0, 1) - m.mean_x) * (-m.log_sigma_x).exp();
  const at::Tensor z = (points.slice(1, 1, 2) - m.mean_y) * (-m.log_sigma_y).exp();
  // log sqrt(1 - tanh^2) = -log cosh.
  const at::Tensor r = m.correlation;
  const at::Tensor log_root = std::numbers::ln2 - r - at::softplus(-2 * r);
  // (x^2 + z^2 - 2 rho x z) / (1 - rho^2) as two squares, without cancellation.
  const at::Tensor conditional = (x - r.tanh() * z) * (-log_root).exp();
  const at::Tensor log_density = -0.5 * (conditional.square() + z.square()) - m.log_sigma_x -
                                 m.log_sigma_y - log_root - std::log(2 * std::numbers::pi);
  const at::Tensor log_weights = at::log_softmax(m.weights, 1);
  return at::binary_cross_entropy_with_logits(m.lift, points.select(1, 2), {}, {},
                                              at::Reduction::None) -
         at::logsumexp(log_weights + log_density, {1});
}

std::array<float, 3> SampleMixture(const at::Tensor& y, double floor, double bias,
                                   at::Generator& generator) {
  const Mixture m = MixtureOf(y.unsqueeze(0), floor);
  const at::Tensor shares = at::softmax(m.weights[0] * (1 + bias), 0);
  const auto j = at::multinomial(shares, 1, /*replacement=*/true, generator).item<int64_t>();
  const auto number = [&](const at::Tensor& of) { return of[0][j].item<double>(); };
  const at::Tensor normal = at::normal(0.0, 1.0, {2}, generator, at::TensorOptions(at::kDouble));
  const auto first = normal[0].item<double>(), second = normal[1].item<double>();
  const double rho = std::tanh(number(m.correlation));
  const double x = number(m.mean_x) + std::exp(number(m.log_sigma_x) - bias) * first;
  const double z = rho * first + std::sqrt(1 - rho * rho) * second;
  const double below = number(m.mean_y) + std::exp(number(m.log_sigma_y) - bias) * z;
  const auto lift = at::sigmoid(m.lift[0]).item<double>();
  const auto draw = at::rand({}, generator, at::TensorOptions(at::kDouble)).item<double>();
  return {static_cast<float>(x), static_cast<float>(below), draw < lift ? 1.0f : 0.0f};
}

}  // namespace planish::lab
