// The core's norms against their equations in PyTorch's operators, differentiated by PyTorch's
// autograd, which share no code with Planish, on random shapes.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "planish/norm.h"
#include "src/norm/testing.h"

namespace planish {
namespace {

using at::Tensor;
using tests::Problem;

template <class T>
at::ScalarType TypeOf() {
  if constexpr (std::is_same_v<T, float>) return at::kFloat;
  if constexpr (std::is_same_v<T, bfloat16>) return at::kBFloat16;
  return at::kDouble;
}

/// Returns a tensor with the elements of a vector.
template <class T>
Tensor ToTensor(const std::vector<T>& values, at::IntArrayRef shape) {
  return at::from_blob(const_cast<T*>(values.data()), shape, at::TensorOptions(TypeOf<T>()))
      .clone();
}

/// Computes y of a norm by its equation.
Tensor Forward(const Problem<double>& p, const Tensor& x, const Tensor& gain, const Tensor& bias) {
  const bool detach_mean = p.norm == Norm::kDetach || p.norm == Norm::kDetachMean;
  const bool detach_deviation = p.norm == Norm::kDetach || p.norm == Norm::kDetachDeviation;
  const Tensor own_mean = x.mean({-1}, true);
  Tensor mean = detach_mean ? own_mean.detach() : own_mean;
  if (p.norm == Norm::kRms) mean = at::zeros_like(mean);
  const auto n = static_cast<double>(p.cols);
  const Tensor squares = (x - mean).pow(2).sum({-1}, true);
  Tensor deviation = p.norm == Norm::kAdaAsCoded ? (squares / (n - 1)).sqrt() + p.eps
                                                 : (squares / n + p.eps).sqrt();
  if (detach_deviation) deviation = deviation.detach();
  const Tensor xhat = (x - mean) / deviation;
  if (tests::IsAffine(p.norm)) return xhat * gain + bias;
  if (p.norm == Norm::kAda || p.norm == Norm::kAdaAsCoded) {
    return p.scale * (1 - p.slope * xhat).detach() * xhat;
  }
  return xhat;
}

void ExpectNear(const Tensor& ours, const Tensor& theirs, double tolerance, const char* name) {
  if (theirs.numel() == 0) return;
  const Tensor a = ours.to(at::kDouble), b = theirs.to(at::kDouble);
  const auto most = b.abs().max().item<double>();
  EXPECT_LE((a - b).abs().max().item<double>(), tolerance * most) << name;
}

struct Shape {
  int64_t rows, cols;
};

std::vector<Shape> RandomShapes(int n) {
  std::mt19937 random(3);
  std::vector<Shape> shapes;
  for (int i = 0; i < n; ++i) {
    shapes.push_back({1 + static_cast<int64_t>(random() % 300),
                      3 + static_cast<int64_t>(random() % (i % 2 ? 60 : 2000))});
  }
  return shapes;
}

// Both sides compute in double: sums of at most 2000 terms, each rounded to 2^-53, in different
// order. 1e-12 of the largest result is four times as many roundings in the same direction.
TEST(PyTorchConformance, NormsMatchTheirEquationsInDouble) {
  for (const Norm norm : tests::kNorms) {
    for (const auto& [rows, cols] : RandomShapes(12)) {
      SCOPED_TRACE(::testing::Message() << tests::NameOf(norm) << ", " << rows << " x " << cols);
      const Problem<double> p(norm, rows, cols);
      const bool affine = tests::IsAffine(norm);
      std::vector<Tensor> inputs = {ToTensor(p.x, {rows, cols}).requires_grad_(true)};
      if (affine) {
        inputs.push_back(ToTensor(p.gain, {cols}).requires_grad_(true));
        inputs.push_back(ToTensor(p.bias, {cols}).requires_grad_(true));
      }
      const Tensor y =
          Forward(p, inputs[0], affine ? inputs[1] : Tensor(), affine ? inputs[2] : Tensor());
      const auto gradients = torch::autograd::grad({y}, inputs, {ToTensor(p.dy, {rows, cols})});
      const auto ours = tests::Apply(p);
      ExpectNear(ToTensor(ours.y, {rows, cols}), y.detach(), 1e-12, "y");
      ExpectNear(ToTensor(ours.dx, {rows, cols}), gradients[0], 1e-12, "dx");
      if (!affine) continue;
      ExpectNear(ToTensor(ours.dgain, {cols}), gradients[1], 1e-12, "dgain");
      ExpectNear(ToTensor(ours.dbias, {cols}), gradients[2], 1e-12, "dbias");
    }
  }
}

/// Compares PyTorch's kernel with ours; `tolerance` is for y and dx, `column_tolerance` for dgain
/// and dbias.
template <class T>
void ExpectLikeNativeLayerNorm(double tolerance, double column_tolerance) {
  for (const auto& [rows, cols] : RandomShapes(40)) {
    SCOPED_TRACE(::testing::Message() << rows << " x " << cols);
    const Problem<T> p(Norm::kLayer, rows, cols);
    const Tensor x = ToTensor(p.x, {rows, cols}), dy = ToTensor(p.dy, {rows, cols});
    const Tensor gain = ToTensor(p.gain, {cols}), bias = ToTensor(p.bias, {cols});
    const auto [y, mean, rstd] = at::native_layer_norm(x, {cols}, gain, bias, p.eps);
    const auto [dx, dgain, dbias] =
        at::native_layer_norm_backward(dy, x, {cols}, mean, rstd, gain, bias, {true, true, true});
    const auto ours = tests::Apply(p);
    ExpectNear(ToTensor(ours.y, {rows, cols}), y, tolerance, "y");
    ExpectNear(ToTensor(ours.dx, {rows, cols}), dx, tolerance, "dx");
    ExpectNear(ToTensor(ours.dgain, {cols}), dgain, column_tolerance, "dgain");
    ExpectNear(ToTensor(ours.dbias, {cols}), dbias, column_tolerance, "dbias");
  }
}

// Rows of mean 0, for which both are accurate: sums of up to 2000 floats, whose rounding grows as
// sqrt(2000) * 2^-24 = 2.7e-6 of the sum. Four times that.
TEST(PyTorchConformance, NativeLayerNormMatchesInFloat) {
  ExpectLikeNativeLayerNorm<float>(1.1e-5, 1.1e-5);
}

// Both round to eight bits. They can round to adjacent values, which differ by at most 2^-7 of the
// largest. PyTorch sums dgain and dbias of up to 300 rows one by one in bfloat16: sqrt(300) * 2^-8
// = 7e-2 of the sum. Three times that.
TEST(PyTorchConformance, NativeLayerNormMatchesInBfloat16) {
  ExpectLikeNativeLayerNorm<bfloat16>(0x1p-7, 0.2);
}

}  // namespace
}  // namespace planish
