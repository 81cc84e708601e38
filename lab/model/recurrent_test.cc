#include "lab/model/recurrent.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/error.h"

namespace planish::lab {
namespace {

TEST(Recurrent, AreATable) {
  EXPECT_THAT(CellNames(), ::testing::IsSupersetOf({"lstm", "gru"}));
  EXPECT_EQ(CellNames().front(), "lstm");
  EXPECT_THROW(MakeRecurrent("ln", {.inputs = 3, .hidden = 4}), UsageError);
}

// A sequence in two pieces with the state carried between them is the whole sequence.
TEST(Recurrent, CarryTheirState) {
  for (const std::string& cell : CellNames()) {
    for (const int64_t layers : {1, 2}) {
      at::manual_seed(1);
      const auto module = MakeRecurrent(cell, {.inputs = 3, .hidden = 4, .layers = layers});
      const at::Tensor x = at::randn({7, 2, 3});
      const at::Tensor zero = module->ZeroState(2);
      EXPECT_EQ(zero.sizes(),
                at::IntArrayRef({cell.ends_with("lstm") || cell.find("lstm-") != cell.npos ? 2 : 1,
                                 layers, 2, 4}))
          << cell;
      const auto [y, last] = module->forward(x, zero);
      EXPECT_EQ(y.sizes(), at::IntArrayRef({7, 2, 4}));
      EXPECT_EQ(last.sizes(), zero.sizes());
      // The last state h of the last layer is the last of y.
      EXPECT_TRUE(last[0][layers - 1].equal(y[6])) << cell;
      const auto [y1, middle] = module->forward(x.slice(0, 0, 3), zero);
      const auto [y2, end] = module->forward(x.slice(0, 3, 7), middle);
      // Numbers below 1, and products of 3 and 4 sequences at once, which may round differently.
      EXPECT_LT((at::cat({y1, y2}) - y).abs().max().item<double>(), 1e-5) << cell;
      EXPECT_LT((end - last).abs().max().item<double>(), 1e-5) << cell;
      EXPECT_GT((module->forward(x.slice(0, 3, 7), zero).first - y2).abs().max().item<double>(),
                1e-3)
          << cell;
    }
  }
}

}  // namespace
}  // namespace planish::lab
