// The plain cells against results of PyTorch's modules, which tests/golden/rnn_golden.py computed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "planish/rnn.h"
#include "src/rnn/testing.h"
#include "tests/golden/rnn_golden.h"

namespace planish {
namespace {

constexpr RnnShape kShape = {4, 3, 2, 3};
const std::vector<int64_t> kLengths = {2, 4, 3};

/// Returns the values that the script also uses.
std::vector<double> Numbers(int64_t array, int64_t n) {
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t residue = ((i + 1) * 7919 + array * 104729) % 1009;
    values.push_back(static_cast<double>(residue) / 1009 * 2 - 1);
  }
  return values;
}

TEST(RnnGoldenTest, EqualsPyTorchsResults) {
  constexpr double kTolerance = 1e-14;  // sums of at most 24 values of size 1, each of 4 steps
  ASSERT_EQ(tests::kRnnGolden.size(), 8u);
  for (const tests::RnnGolden& golden : tests::kRnnGolden) {
    SCOPED_TRACE(std::string(tests::NameOf(golden.cell)) + (golden.reverse ? " reverse" : ""));
    const bool lstm = golden.cell == Cell::kLstm, gru = golden.cell == Cell::kGru;
    const int64_t columns = internal::RecipeOf(golden.cell).gates() * 3;
    const auto weight_ih = Numbers(0, columns * 2), weight_hh = Numbers(1, columns * 3);
    const auto x = Numbers(4, 24), h0 = Numbers(5, 9), c0 = Numbers(6, 9);
    const auto dy = Numbers(7, 36), dh_n = Numbers(8, 9), dc_n = Numbers(9, 9);
    // PyTorch has two biases; only the candidate of the GRU needs both.
    std::vector<double> bias = Numbers(2, columns), bias_hh = Numbers(3, columns), bias_hn;
    if (gru) {
      bias_hn.assign(bias_hh.begin() + 6, bias_hh.end());
      bias_hh.resize(6);
    }
    for (size_t j = 0; j < bias_hh.size(); ++j) bias[j] += bias_hh[j];

    RnnForwardArgs<double> forward;
    RnnInputs<double>& in = forward.inputs;
    in.shape = kShape;
    in.x = x.data();
    in.params.weight_ih = weight_ih.data();
    in.params.weight_hh = weight_hh.data();
    in.params.bias = bias.data();
    in.params.bias_hn = tests::OrNull(bias_hn);
    in.h0 = h0.data();
    in.c0 = lstm ? c0.data() : nullptr;
    in.lengths = kLengths.data();
    in.reverse = golden.reverse;
    std::vector<double> y(36), h(9), c(9);
    std::vector<double> saved(static_cast<size_t>(RnnSavedSize<double>(golden.cell, kShape)));
    forward.y = y.data();
    forward.h_n = h.data();
    forward.c_n = lstm ? c.data() : nullptr;
    forward.saved = tests::OutOrNull(saved);
    RnnForward<double>(golden.cell, forward);
    EXPECT_LE(tests::Difference(y, golden.y), kTolerance);
    EXPECT_LE(tests::Difference(h, golden.h_n), kTolerance);
    EXPECT_LE(tests::Difference(c, golden.c_n), kTolerance);

    RnnBackwardArgs<double> backward;
    std::vector<double> dx(24), dh0(9), dc0(9), dbias(bias), dbias_hn(bias_hn);
    std::vector<double> dweight_ih(weight_ih), dweight_hh(weight_hh);
    backward.inputs = in;
    backward.y = y.data();
    backward.saved = tests::OrNull(saved);
    backward.dy = dy.data();
    backward.dh_n = dh_n.data();
    backward.dc_n = lstm ? dc_n.data() : nullptr;
    backward.dx = dx.data();
    backward.dparams.weight_ih = dweight_ih.data();
    backward.dparams.weight_hh = dweight_hh.data();
    backward.dparams.bias = dbias.data();
    backward.dparams.bias_hn = tests::OutOrNull(dbias_hn);
    backward.dh0 = dh0.data();
    backward.dc0 = lstm ? dc0.data() : nullptr;
    RnnBackward<double>(golden.cell, backward);
    EXPECT_LE(tests::Difference(dx, golden.dx), kTolerance);
    EXPECT_LE(tests::Difference(dh0, golden.dh0), kTolerance);
    EXPECT_LE(tests::Difference(dc0, golden.dc0), kTolerance);
    EXPECT_LE(tests::Difference(dweight_ih, golden.dweight_ih), kTolerance);
    EXPECT_LE(tests::Difference(dweight_hh, golden.dweight_hh), kTolerance);
    EXPECT_LE(tests::Difference(dbias, golden.dbias_ih), kTolerance);
    // PyTorch's dbias_hh equals dbias, except for the candidate.
    std::vector<double> dbias_hh = dbias;
    std::copy(dbias_hn.begin(), dbias_hn.end(), dbias_hh.end() - (gru ? 3 : 0));
    EXPECT_LE(tests::Difference(dbias_hh, golden.dbias_hh), kTolerance);
  }
}

}  // namespace
}  // namespace planish
