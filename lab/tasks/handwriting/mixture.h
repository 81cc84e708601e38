#ifndef PLANISH_LAB_TASKS_HANDWRITING_MIXTURE_H_
#define PLANISH_LAB_TASKS_HANDWRITING_MIXTURE_H_

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

namespace planish::lab {

/// Returns the number of parameters of a mixture of `gaussians` bivariate Gaussians and the pen's
/// Bernoulli variable. The first parameter is the pen's. Each Gaussian has weight, mean in x, in y,
/// deviation in x, in y, and correlation.
constexpr int64_t MixtureSize(int64_t gaussians) { return 1 + 6 * gaussians; }

/// Returns the nats [N] of points [N, 3] (offsets x, y and lift) under y [N, MixtureSize] (Graves
/// 2013, Eq. 18-26):
///   -log sum_j pi_j N(x, y | mu_j, sigma_j, rho_j) - log e^lift (1 - e)^(1 - lift)
/// pi = softmax, sigma = exp + `floor` (which bounds the density; not in Graves 2013), rho = tanh
/// of a value clamped to 10, e = logistic function, with the opposite sign of Graves'.
at::Tensor MixtureNats(const at::Tensor& y, const at::Tensor& points, double floor);

/// Draws a point (x, y, lift) from one mixture y [MixtureSize] with a bias towards likely points
/// (Graves 2013, Eq. 61-62): sigma exp(-bias), and weights to the power of 1 + bias.
std::array<float, 3> SampleMixture(const at::Tensor& y, double floor, double bias,
                                   at::Generator& generator);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_HANDWRITING_MIXTURE_H_
