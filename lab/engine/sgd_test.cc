#include "lab/engine/sgd.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <string>

namespace planish::lab {
namespace {

TEST(Sgd, MovesAgainstTheGradient) {
  for (const auto type : {at::kDouble, at::kFloat}) {
    at::Tensor weight = at::full({37}, 0.5, type).requires_grad_(true);
    Sgd sgd({{"w", weight}}, 0.25);
    weight.mutable_grad() = at::full({37}, 3, type);
    sgd.Step();
    EXPECT_FALSE(weight.grad().defined());
    EXPECT_TRUE(weight.detach().eq(-0.25).all().item<bool>());  // multiples of 1/4 round nothing
    sgd.SetLearningRate(2);
    weight.mutable_grad() = at::full({37}, -1, type);
    sgd.Step();
    EXPECT_TRUE(weight.detach().eq(1.75).all().item<bool>());
  }
  EXPECT_TRUE(Sgd({}, 1).State().empty());
}

TEST(Sgd, NamesAParameterWithoutAGradient) {
  at::Tensor a = at::ones({2}).requires_grad_(true);
  Sgd sgd({{"first", a}}, 0.1);
  try {
    sgd.Step();
    FAIL();
  } catch (const std::runtime_error& e) {
    EXPECT_EQ(std::string(e.what()), "[Sgd] first has no gradient");
  }
}

}  // namespace
}  // namespace planish::lab
