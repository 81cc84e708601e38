#include "lab/model/recurrent.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "lab/error.h"

namespace planish::lab {
namespace {

using ::testing::ElementsAre;

std::map<std::string, at::Tensor> Parameters(const RecurrentModule& module) {
  std::map<std::string, at::Tensor> all;
  for (const auto& item : module.named_parameters()) all[item.key()] = item.value();
  return all;
}

std::shared_ptr<RecurrentModule> Seeded(const std::string& cell, const RecurrentOptions& options) {
  at::manual_seed(1);
  return MakeRecurrent(cell, options);
}

TEST(Recurrent, AreATable) {
  EXPECT_THAT(CellNames(),
              ElementsAre("lstm", "ln-lstm", "gru", "ln-gru", "rnn", "ln-rnn", "rnn-relu",
                          "ln-rnn-relu", "ln-lstm-haste", "ln-lstm-fastrnns", "ln-lstm-tfa",
                          "ln-lstm-contrib", "draw-lstm", "torch-lstm", "torch-gru"));
  EXPECT_THROW(MakeRecurrent("ln", {.inputs = 3, .hidden = 4}), UsageError);
}

// A sequence in two pieces with the state carried between them is the whole sequence.
TEST(Recurrent, CarryTheirState) {
  for (const std::string& cell : CellNames()) {
    for (const int64_t layers : {1, 2}) {
      const auto module = Seeded(cell, {.inputs = 3, .hidden = 4, .layers = layers});
      const at::Tensor x = at::randn({7, 2, 3});
      const at::Tensor zero = module->ZeroState(2);
      const int64_t states = cell.find("lstm") != cell.npos ? 2 : 1;
      EXPECT_EQ(zero.sizes(), at::IntArrayRef({states, layers, 2, 4})) << cell;
      EXPECT_EQ(zero.count_nonzero().item<int64_t>(), 0);
      const auto [y, last] = module->forward(x, zero);
      EXPECT_EQ(y.sizes(), at::IntArrayRef({7, 2, 4}));
      EXPECT_EQ(last.sizes(), zero.sizes());
      // The last state h of the last layer is the last of y.
      EXPECT_TRUE(last[0][layers - 1].equal(y[6])) << cell;
      const auto [y1, middle] = module->forward(x.slice(0, 0, 3), zero);
      const auto [y2, end] = module->forward(x.slice(0, 3, 7), middle);
      // Products of 3, 4 and 7 steps at once may round differently; numbers of some ones, through
      // 7 steps and up to 2 layers with norms over 4 of them.
      EXPECT_LT((at::cat({y1, y2}) - y).abs().max().item<double>(), 1e-4) << cell;
      EXPECT_LT((end - last).abs().max().item<double>(), 1e-4) << cell;
      const at::Tensor other = module->forward(x.slice(0, 3, 7), zero).first;
      EXPECT_GT((other - y2).abs().max().item<double>(), 1e-2) << cell;
    }
  }
}

// Planish's plain cells are PyTorch's: their keys, their weights for one seed, their results.
TEST(Recurrent, PlainCellsAreThoseOfPyTorch) {
  for (const std::string cell : {"lstm", "gru"}) {
    const RecurrentOptions options = {.inputs = 3, .hidden = 5, .layers = 2};
    const auto ours = Seeded(cell, options), torchs = Seeded("torch-" + cell, options);
    const auto a = Parameters(*ours), b = Parameters(*torchs);
    ASSERT_EQ(a.size(), b.size());
    for (const auto& [name, tensor] : a) EXPECT_TRUE(tensor.equal(b.at(name))) << name;
    const at::Tensor x = at::randn({6, 2, 3});
    const at::Tensor state = at::randn_like(ours->ZeroState(2));
    const auto [y, last] = ours->forward(x, state);
    const auto [expected, expected_last] = torchs->forward(x, state);
    // Numbers below 1, sums of 5 of them, 6 steps, 2 layers: some tens of roundings of 6e-8.
    EXPECT_LT((y - expected).abs().max().item<double>(), 2e-6) << cell;
    EXPECT_LT((last - expected_last).abs().max().item<double>(), 2e-6) << cell;
  }
}

TEST(Recurrent, NormsAddNothingToTheFirstWeights) {
  const std::map<std::string, std::vector<std::string>> kinds = {
      {"lstm", {"ln-lstm", "ln-lstm-haste", "ln-lstm-fastrnns", "ln-lstm-tfa", "ln-lstm-contrib"}},
      {"gru", {"ln-gru"}},
      {"rnn", {"ln-rnn", "rnn-relu", "ln-rnn-relu"}}};
  for (const auto& [plain, cells] : kinds) {
    const auto expected = Parameters(*Seeded(plain, {.inputs = 3, .hidden = 4}));
    for (const std::string& cell : cells) {
      const auto now = Parameters(*Seeded(cell, {.inputs = 3, .hidden = 4}));
      for (const std::string name : {"layer.weight_ih_l0", "layer.weight_hh_l0"}) {
        EXPECT_TRUE(now.at(name).equal(expected.at(name))) << cell << name;
      }
    }
  }
}

TEST(Recurrent, GainsStartAsAskedFor) {
  for (const std::string& cell : CellNames()) {
    const auto with = Parameters(*Seeded(cell, {.inputs = 3, .hidden = 4, .gain = 0.25}));
    const auto without = Parameters(*Seeded(cell, {.inputs = 3, .hidden = 4}));
    int gains = 0;
    for (const auto& [name, tensor] : with) {
      const bool gain = name.starts_with("layer.ln_") && name.find("_weight") != name.npos;
      gains += gain;
      EXPECT_TRUE(tensor.equal(gain ? at::full_like(tensor, 0.25) : without.at(name)))
          << cell << name;
      if (gain) {
        EXPECT_TRUE(without.at(name).equal(at::ones_like(tensor))) << cell;
      }
    }
    EXPECT_EQ(gains > 0, cell.find("ln-") != cell.npos || cell == "draw-lstm") << cell;
  }
}

}  // namespace
}  // namespace planish::lab
