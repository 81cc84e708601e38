#include "lab/engine/adam.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace planish::lab {
namespace {

// Returns the weight after the updates of Kingma & Ba 2014, algorithm 1, in double, for given
// gradients of one weight.
double Textbook(double weight, const std::vector<double>& gradients, const Adam::Options& o) {
  double m = 0, v = 0;
  for (size_t t = 1; t <= gradients.size(); ++t) {
    const double g = gradients[t - 1];
    m = o.beta1 * m + (1 - o.beta1) * g;
    v = o.beta2 * v + (1 - o.beta2) * g * g;
    const double corrected_m = m / (1 - std::pow(o.beta1, static_cast<double>(t)));
    const double corrected_v = v / (1 - std::pow(o.beta2, static_cast<double>(t)));
    weight -= o.learning_rate * corrected_m / (std::sqrt(corrected_v) + o.epsilon);
  }
  return weight;
}

TEST(Adam, FollowsTheTextbook) {
  const Adam::Options options{.learning_rate = 0.05, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-3};
  const std::vector<double> gradients = {1.0, -0.25, 0.0, 1e-6, 30.0, -7.5};
  for (const auto type : {at::kDouble, at::kFloat}) {
    at::Tensor weight = at::full({37}, 0.5, type).requires_grad_(true);  // 37: vector body and tail
    Adam adam({{"w", weight}}, options);
    for (const double g : gradients) {
      weight.mutable_grad() = at::full({37}, g, type);
      adam.Step();
      EXPECT_FALSE(weight.grad().defined());
    }
    // 6 steps of about 10 roundings each; the sums of the moments do not cancel.
    const double tolerance = 60 * (type == at::kDouble ? 0x1p-53 : 0x1p-24);
    const double expected = Textbook(0.5, gradients, options);
    EXPECT_LE(weight.detach().sub(expected).abs().max().item<double>(), tolerance);
  }
}

TEST(Adam, NamesAParameterWithoutAGradient) {
  at::Tensor a = at::ones({2}).requires_grad_(true), b = at::ones({2}).requires_grad_(true);
  Adam adam({{"first", a}, {"second", b}}, {});
  a.mutable_grad() = at::ones({2});
  try {
    adam.Step();
    FAIL();
  } catch (const std::exception& e) {
    EXPECT_STREQ(e.what(), "[Adam] second has no gradient");
  }
}

TEST(Adam, NamesItsState) {
  Adam adam({{"w", at::ones({2, 3})}}, {});
  std::vector<std::string> names;
  for (const auto& [name, tensor] : adam.State()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"adam.first_moment.w", "adam.second_moment.w",
                                             "adam.step.w"}));
}

}  // namespace
}  // namespace planish::lab
