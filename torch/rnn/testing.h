#ifndef PLANISH_TORCH_RNN_TESTING_H_
#define PLANISH_TORCH_RNN_TESTING_H_

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <string_view>

#include "planish/torch_rnn.h"
#include "src/rnn/cell.h"
#include "src/rnn/kinds_testing.h"
#include "torch/rnn/fields.h"

// Tools for tests of recurrent layers: layers with random elements, and comparisons.
namespace planish::tests {

using at::Tensor;

// The tolerance, relative to the largest element: about 2^-53 * 10^5. Both sides compute in double,
// and add at most a hundred terms in different orders. The norms of a few steps can amplify
// rounding tenfold.
inline constexpr double kDouble = 1e-11;

inline void ExpectNear(const Tensor& ours, const Tensor& theirs, const std::string& name) {
  ASSERT_TRUE(ours.defined() && theirs.defined()) << name;
  ASSERT_EQ(ours.sizes(), theirs.sizes()) << name;
  if (ours.numel() == 0) return;
  const double most = std::max(1.0, theirs.detach().abs().max().item<double>());
  EXPECT_LE((ours - theirs).detach().abs().max().item<double>(), kDouble * most) << name;
}

inline void ExpectSame(const Tensor& a, const Tensor& b, const std::string& name) {
  ASSERT_EQ(a.defined(), b.defined()) << name;
  if (!a.defined()) return;
  EXPECT_TRUE(a.equal(b)) << name;
}

inline Tensor Random(at::IntArrayRef shape, at::ScalarType type = at::kDouble) {
  return at::randn(shape, type);
}

inline bool IsLstm(Cell cell) { return internal::RecipeOf(cell).is_lstm(); }

inline std::string ErrorOf(const std::function<void()>& f) {
  try {
    f();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "no error";
}

/// Flips a bit of the last element: for float and double, of its exponent. Does not change the
/// version counter, like kernels and collectives that know only the address.
inline void FlipABit(const Tensor& t) {
  auto* const bytes = static_cast<uint8_t*>(t.mutable_data_ptr());
  bytes[t.nbytes() - 1] ^= 1;
}

/// The optional inputs of a layer.
struct Given {
  bool states = true;
  bool lengths = false;
  bool resets = false;
  bool reverse = false;
  bool affine = true;  ///< biases, and the gains and biases of norms
  bool checkpoint = false;

  RnnSettings settings() const {
    return {.reverse = reverse, .eps = 1e-3, .checkpoint = checkpoint};
  }
};

/// Returns a layer with random elements.
inline RnnTensors RandomLayer(Cell cell, const RnnShape& s, const Given& given = {},
                              at::ScalarType type = at::kDouble) {
  at::manual_seed(7);
  const internal::CellRecipe recipe = internal::RecipeOf(cell);
  RnnTensors layer;
  layer.x = Random({s.time, s.batch, s.inputs}, type);
  const auto table = internal::ParamsOf<const float>(recipe, s);
  for (size_t i = 0; i < table.size(); ++i) {
    const std::string_view name = table[i].name;
    if (!table[i].taken || (!given.affine && !name.starts_with("weight"))) continue;
    Tensor& param = layer.*kFields[kFirstParam + i].member;
    param = 0.4 * Random({table[i].size}, type);
    if (name.ends_with("_weight")) param += 1;
    if (name == "weight_ih") param = param.view({-1, s.inputs});
    if (name == "weight_hh") param = param.view({-1, s.outputs() / s.heads});
    if (name == "weight_hr") param = param.view({-1, s.hidden});
  }
  if (given.states) layer.h0 = Random({s.batch, s.outputs()}, type);
  if (given.states && recipe.is_lstm())
    layer.c0 = Random({s.batch, s.hidden * recipe.cell_parts()}, type);
  if (given.lengths) {
    layer.lengths = at::randint(1, s.time + 1, {s.batch}, at::kLong);
    layer.lengths[0] = s.time;
  }
  if (given.resets) {
    layer.resets = at::rand({s.time, s.batch}) < 0.3;
    layer.h_reset = Random({s.outputs()}, type);
    if (recipe.is_lstm()) layer.c_reset = Random({s.hidden * recipe.cell_parts()}, type);
  }
  return layer;
}

/// Returns the layer with tensors that require gradients.
inline RnnTensors Leaves(const RnnTensors& layer) {
  RnnTensors leaves = layer;
  for (size_t i = 0; i < kDifferentiables; ++i) {
    Tensor& t = leaves.*kFields[i].member;
    if (t.defined()) t = t.detach().clone().requires_grad_(true);
  }
  return leaves;
}

}  // namespace planish::tests

#endif  // PLANISH_TORCH_RNN_TESTING_H_
