#include "lab/model/residual.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lab/error.h"

namespace planish::lab {
namespace {

using ::testing::ElementsAre;

constexpr Placement kAll[] = {Placement::kPre,      Placement::kPost,     Placement::kPeri,
                              Placement::kSandwich, Placement::kDeepNorm, Placement::kPreNoFinal};

std::vector<std::string> NormsOf(const torch::nn::Module& layer) {
  std::vector<std::string> names;
  for (const auto& item : layer.named_children()) names.push_back(item.key());
  return names;
}

TEST(Placement, HasNames) {
  EXPECT_THAT(PlacementNames("pre"), ElementsAre("pre", "post", "peri", "sandwich", "deepnorm"));
  EXPECT_THAT(PlacementNames("post"), ElementsAre("post", "pre", "peri", "sandwich", "deepnorm"));
  for (const std::string& name : PlacementNames("pre")) EXPECT_NO_THROW(PlacementOf(name));
  EXPECT_EQ(PlacementOf(kPreNoFinalName), Placement::kPreNoFinal);
  try {
    PlacementOf("mid");
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_STREQ(e.what(),
                 "[PlacementOf] placement must be one of pre, post, peri, sandwich, deepnorm, "
                 "pre-no-final, got \"mid\"");
  }
}

// Values of Wang et al. 2022, Figure 2, computed by hand for N = M = 1 and for 18 and 18 layers:
// (18^4 * 18)^(1/16) = 18^(5/16) = exp(5/16 ln 18).
TEST(Placement, HasTheFactorsOfDeepNorm) {
  constexpr double kRounding = 1e-15;  // of size 1 to 4, a few operations
  const auto expect = [](const ResidualFactors& f, double alpha, double beta) {
    EXPECT_NEAR(f.alpha, alpha, 4 * kRounding);
    EXPECT_NEAR(f.beta, beta, kRounding);
  };
  constexpr Placement kDeep = Placement::kDeepNorm;
  expect(FactorsOfStack(kDeep, 8), 2, 1 / std::sqrt(8.0));
  expect(FactorsOfEncoder(kDeep, 1, 1), 0.81, 0.87);
  const double root = std::exp(5.0 / 16 * std::log(18.0));
  expect(FactorsOfEncoder(kDeep, 18, 18), 0.81 * root, 0.87 / root);
  expect(FactorsOfDecoder(kDeep, 27), 3, 1 / std::sqrt(18.0));
  for (const Placement placement : kAll) {
    if (placement == kDeep) continue;
    for (const ResidualFactors& f :
         {FactorsOfStack(placement, 6), FactorsOfEncoder(placement, 6, 6),
          FactorsOfDecoder(placement, 6)}) {
      EXPECT_EQ(f.alpha, 1);
      EXPECT_EQ(f.beta, 1);
    }
  }
}

// The equations of residual.h with the same operators: the same bits.
TEST(Residual, IsThePlacementsEquation) {
  at::manual_seed(1);
  const at::Tensor x = at::randn({5, 8});
  const auto f = [](const at::Tensor& t) { return t.sin() * 2; };
  for (const Placement placement : kAll) {
    for (const std::string& name : RowNormNames("layer")) {
      torch::nn::Module layer;
      const Residual residual(layer, "a", {.placement = placement, .alpha = 1.5},
                              [&] { return MakeNorm(name, {8}); });
      const bool two = placement == Placement::kPeri || placement == Placement::kSandwich;
      EXPECT_EQ(NormsOf(layer), two ? std::vector<std::string>({"a_norm", "a_out_norm"})
                                    : std::vector<std::string>({"a_norm"}));
      const auto norm = [&](const at::Tensor& t) { return MakeNorm(name, {8})->forward(t); };
      const at::Tensor y = residual.Output(x, f(residual.Input(x)), /*training=*/true);
      const at::Tensor scaled = x * 1.5;
      at::Tensor expected;
      switch (placement) {
        case Placement::kPre:
        case Placement::kPreNoFinal:
          expected = scaled + f(norm(x));
          break;
        case Placement::kPeri:
        case Placement::kSandwich:
          expected = scaled + norm(f(norm(x)));
          break;
        case Placement::kPost:
        case Placement::kDeepNorm:
          expected = norm(scaled + f(x));
          break;
      }
      EXPECT_TRUE(y.equal(expected)) << name << " " << static_cast<int>(placement);
    }
  }
}

// A rate of 1 drops the sublayer's result, and nothing of the stream.
TEST(Residual, DropsTheResultDirectlyBeforeTheSum) {
  const at::Tensor x = at::randn({5, 8}), y = at::randn({5, 8});
  for (const Placement placement : kAll) {
    torch::nn::Module layer;
    const Residual residual(layer, "a", {.placement = placement, .dropout = 1},
                            [] { return MakeNorm("layer", {8}); });
    const bool after = placement == Placement::kPost || placement == Placement::kDeepNorm;
    const at::Tensor expected = after ? MakeNorm("layer", {8})->forward(x) : x;
    EXPECT_TRUE(residual.Output(x, y, true).equal(expected));
    EXPECT_FALSE(residual.Output(x, y, false).equal(expected));
  }
}

}  // namespace
}  // namespace planish::lab
