#include "lab/tasks/handwriting/mixture.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "lab/tasks/handwriting/testing.h"

namespace planish::lab {
namespace {

constexpr double kFloor = 0.01;

// Returns the density as Graves prints it, Eq. 24-26.
double Density(const double* y, int64_t m, double x1, double x2) {
  double sum = 0, weights = 0;
  for (int64_t j = 0; j < m; ++j) weights += std::exp(y[1 + j]);
  for (int64_t j = 0; j < m; ++j) {
    const double pi = std::exp(y[1 + j]) / weights;
    const double m1 = y[1 + m + j], m2 = y[1 + 2 * m + j];
    const double s1 = std::exp(y[1 + 3 * m + j]) + kFloor, s2 = std::exp(y[1 + 4 * m + j]) + kFloor;
    const double rho = std::tanh(y[1 + 5 * m + j]);
    const double z = (x1 - m1) * (x1 - m1) / (s1 * s1) + (x2 - m2) * (x2 - m2) / (s2 * s2) -
                     2 * rho * (x1 - m1) * (x2 - m2) / (s1 * s2);
    sum += pi * std::exp(-z / (2 * (1 - rho * rho))) /
           (2 * std::numbers::pi * s1 * s2 * std::sqrt(1 - rho * rho));
  }
  return sum;
}

TEST(MixtureNats, AreThoseOfThePrintedDensity) {
  constexpr int64_t kPoints = 40, kGaussians = 3;
  const at::Tensor y = Normal({kPoints, MixtureSize(kGaussians)}, 1);
  at::Tensor points = Normal({kPoints, 3}, 2);
  points.select(1, 2).copy_((points.select(1, 2) > 0).to(at::kDouble));
  const at::Tensor nats = MixtureNats(y, points, kFloor);
  ASSERT_EQ(nats.sizes(), at::IntArrayRef({kPoints}));
  for (int64_t i = 0; i < kPoints; ++i) {
    const double* row = y[i].const_data_ptr<double>();
    const double* p = points[i].const_data_ptr<double>();
    const double e = 1 / (1 + std::exp(-row[0]));
    const double expected =
        -std::log(Density(row, kGaussians, p[0], p[1])) - std::log(p[2] == 1 ? e : 1 - e);
    EXPECT_NEAR(nats[i].item<double>(), expected, 1e-11) << i;  // values up to some hundred
  }
}

TEST(MixtureNats, AreOfADensityWhoseIntegralIsOne) {
  const at::Tensor y = 0.4 * Normal({1, MixtureSize(3)}, 3);
  // Steps of .05 up to 12, some ten deviations, and both lifts.
  const at::Tensor line = at::arange(-240, 241, at::TensorOptions(at::kDouble)) * 0.05;
  const auto grid = at::meshgrid({line, line}, "ij");
  double sum = 0;
  for (const double lift : {0.0, 1.0}) {
    const at::Tensor points = at::stack(
        {grid[0].flatten(), grid[1].flatten(), at::full({481 * 481}, lift, at::kDouble)}, 1);
    const at::Tensor rows = y.expand({points.size(0), y.size(1)});
    sum += (-MixtureNats(rows, points, kFloor)).exp().sum().item<double>() * 0.05 * 0.05;
  }
  // The sum over a lattice is far more exact than its step for densities this wide.
  EXPECT_NEAR(sum, 1, 1e-8);
}

// Inputs for which the density itself would be 0 or infinite in float.
TEST(MixtureNats, AreFiniteWithTheirGradients) {
  for (const float size : {1.0f, 30.0f, 1e4f}) {
    at::Tensor y = (size * Normal({200, MixtureSize(4)}, 4)).to(at::kFloat).set_requires_grad(true);
    const at::Tensor points = at::cat({30 * Normal({200, 2}, 5), at::ones({200, 1})}, 1);
    const at::Tensor nats = MixtureNats(y, points.to(at::kFloat), kFloor);
    nats.sum().backward();
    EXPECT_TRUE(nats.isfinite().all().item<bool>()) << size;
    EXPECT_TRUE(y.grad().isfinite().all().item<bool>()) << size;
  }
}

TEST(SampleMixture, DrawsFromTheMixture) {
  // One Gaussian: means 1 and -2, deviations .5 and 3, correlation -.6, lifts .3.
  const at::Tensor y = at::tensor({std::log(0.3 / 0.7), 7.0, 1.0, -2.0, std::log(0.5 - kFloor),
                                   std::log(3 - kFloor), std::atanh(-0.6)});
  for (const double bias : {0.0, 1.0}) {
    at::Generator generator = at::detail::createCPUGenerator(8);
    constexpr int kDraws = 4'000;
    double x = 0, z = 0, xx = 0, zz = 0, xz = 0, lifts = 0;
    for (int i = 0; i < kDraws; ++i) {
      const auto point = SampleMixture(y, kFloor, bias, generator);
      const double a = point[0] - 1, b = point[1] + 2;
      x += a / kDraws, z += b / kDraws;
      xx += a * a / kDraws, zz += b * b / kDraws, xz += a * b / kDraws;
      lifts += point[2] / kDraws;
    }
    const double s = std::exp(-bias);
    // Four deviations of means, variances and shares of kDraws draws.
    EXPECT_NEAR(x, 0, 4 * 0.5 * s / std::sqrt(kDraws));
    EXPECT_NEAR(z, 0, 4 * 3 * s / std::sqrt(kDraws));
    EXPECT_NEAR(xx / (0.25 * s * s), 1, 4 * std::sqrt(2.0 / kDraws));
    EXPECT_NEAR(zz / (9 * s * s), 1, 4 * std::sqrt(2.0 / kDraws));
    EXPECT_NEAR(xz / std::sqrt(xx * zz), -0.6, 4 * 0.64 / std::sqrt(kDraws));
    EXPECT_NEAR(lifts, 0.3, 4 * std::sqrt(0.21 / kDraws));
  }
}

// Two narrow Gaussians at -1 and 1 with weights 1 : e.
TEST(SampleMixture, SharpensTheWeights) {
  const at::Tensor y =
      at::tensor({0.0, 0.0, 1.0, -1.0, 1.0, 0.0, 0.0, -9.0, -9.0, -9.0, -9.0, 0.0, 0.0});
  for (const double bias : {0.0, 2.0}) {
    at::Generator generator = at::detail::createCPUGenerator(9);
    constexpr int kDraws = 2'000;
    double right = 0;
    for (int i = 0; i < kDraws; ++i) {
      right += SampleMixture(y, kFloor, bias, generator)[0] > 0 ? 1.0 / kDraws : 0;
    }
    const double share = 1 / (1 + std::exp(-(1 + bias)));
    EXPECT_NEAR(right, share, 4 * std::sqrt(share * (1 - share) / kDraws)) << bias;
  }
}

}  // namespace
}  // namespace planish::lab
