// Compares Planish with oneDNN, an independent implementation, on random shapes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "planish/norm.h"
#include "src/norm/testing.h"
#include "tests/accuracy/onednn_layer_norm.h"

namespace planish {
namespace {

// The tolerance, relative to the largest output. For inputs of mean 0 and variance 1, both
// libraries are accurate. The errors of oneDNN's sums of up to 2000 floats grow as sqrt(2000) *
// 2^-24 = 2.7e-6 of the sum. The tolerance is four times that.
constexpr double kTolerance = 1.1e-5;

void ExpectNear(const std::vector<float>& ours, const std::vector<float>& theirs,
                const char* name) {
  double most = 0, off = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(theirs[i])));
    off = std::max(off, std::abs(static_cast<double>(ours[i]) - static_cast<double>(theirs[i])));
  }
  EXPECT_LE(off, kTolerance * most) << name;
}

TEST(OneDnnTest, LayerNormMatchesOnRandomShapes) {
  if (dnnl::engine::get_count(dnnl::engine::kind::cpu) == 0) {
    GTEST_SKIP() << "this oneDNN finds no CPU: one built on SYCL needs OCL_ICD_FILENAMES";
  }
  std::mt19937 random(2);
  for (int round = 0; round < 60; ++round) {
    const int64_t cols = 3 + static_cast<int64_t>(random() % (round % 2 ? 60 : 2000));
    const int64_t rows = 1 + static_cast<int64_t>(random() % 200);
    SCOPED_TRACE(::testing::Message() << rows << " x " << cols);
    const tests::Problem<float> p(Norm::kLayer, rows, cols);
    tests::Rows theirs(rows, cols);
    theirs.x = p.x;
    theirs.dy = p.dy;
    tests::OneDnnLayerNorm(theirs, p.gain, p.bias, static_cast<float>(p.eps));
    const auto ours = tests::Apply(p);
    ExpectNear(ours.y, theirs.y, "y");
    ExpectNear(ours.dx, theirs.dx, "dx");
    ExpectNear(ours.dgain, theirs.dgain, "dgain");
    ExpectNear(ours.dbias, theirs.dbias, "dbias");
  }
}

}  // namespace
}  // namespace planish
