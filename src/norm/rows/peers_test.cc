// Bugs of other libraries: each test is named after the issue that reported one, and uses its input
// or a similar one. Results are compared with the exact normalization.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "planish/norm.h"
#include "src/norm/bounds.h"
#include "src/norm/testing.h"

namespace planish {
namespace {

using tests::Growth;
using tests::Problem;

template <class T, class P>
void ExpectRight(const Problem<T, P>& p, Growth growth = Growth::kWorst) {
  tests::ForEachTargetsErrors(p, growth, [](const std::string& target, const auto& errors) {
    EXPECT_EQ(tests::Beyond(errors), "") << target;
  });
}

/// Returns a problem of a norm without gain and bias with the given values.
template <class T>
Problem<T> ProblemOf(int64_t rows, const std::vector<double>& x) {
  Problem<T> p(Norm::kLayerSimple, rows, static_cast<int64_t>(x.size()) / rows);
  for (size_t i = 0; i < x.size(); ++i) p.x[i] = tests::FromDouble<T>(x[i]);
  return p;
}

template <class T>
void ExpectConstantRowsGiveZero(const Problem<T>& p) {
  tests::ForEachTarget([&](const std::string& target) {
    for (const T y : tests::Apply(p).y) EXPECT_EQ(tests::ToDouble(y), 0) << target;
  });
}

// The variance as E[x^2] - E[x]^2: rows of 4 with mean 2000 lost all its digits.
TEST(PyTorchTest, Issue51102LayerNormDoesNotBehaveAsDocumented) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    Problem<float> p(Norm::kLayerSimple, 5, 4, 2000, 1, seed);
    ExpectRight(p);
    const auto out = tests::Apply(p);
    for (size_t r = 0; r < 5; ++r) {
      double mean = 0, square = 0;
      for (size_t c = 0; c < 4; ++c) {
        const double y = static_cast<double>(out.y[4 * r + c]);
        mean += y / 4;
        square += y * y / 4;
      }
      // As the issue expected: mean 0 and variance 1, up to eps and 4 roundings of at most 2.
      EXPECT_NEAR(mean, 0, 2 * 0x1p-23);
      EXPECT_NEAR(square, 1, 1e-5 * std::pow(static_cast<double>(out.rstd[r]), 2) + 1e-6);
    }
  }
}

// Half precision was normalized in half precision, and its sums overflowed.
TEST(PyTorchTest, Issue66707LayerNormInFloatForHalf) {
  Problem<float16> p(Norm::kLayer, 5, 128);
  std::mt19937 random(66707);
  for (float16& x : p.x)
    x = tests::FromDouble<float16>(static_cast<double>(random()) * 0x1p-32 / 10);
  ExpectRight(p);
  for (float16& x : p.x) x = tests::FromDouble<float16>(tests::ToDouble(x) * 6e5);  // up to 60,000
  ExpectRight(p);
}

// x * rstd - mean * rstd instead of (x - mean) * rstd: a constant row of 14 gave 1e-4 for eps =
// 1e-6.
TEST(PyTorchTest, Issue108072LayerNormOutputsOff) {
  Problem<float> p = ProblemOf<float>(4, {2, 2, 14, 14, 2, 2, 14, 14});
  p.eps = 1e-6;
  ExpectConstantRowsGiveZero(p);
}

// Squares of 1e30 overflow float: the variance was infinite, and y 0 or NaN.
TEST(PyTorchTest, Issue162489VarianceOverflows) {
  for (const double scale : {1e19, 1e25, 1e30}) {
    for (const int64_t cols : {4, 32, 100, 1024}) {
      ExpectRight(Problem<float>(Norm::kLayerSimple, 3, cols, 0, scale));
      ExpectRight(Problem<float>(Norm::kLayer, 3, cols, scale, scale));
      ExpectRight(Problem<bfloat16>(Norm::kLayerSimple, 3, cols, 0, scale));
      ExpectRight(Problem<float>(Norm::kRms, 3, cols, 0, scale));
    }
  }
}

// Rows of 32,768 elements 100 +- .01: a variance of 1e-4 was lost.
TEST(PyTorchTest, Issue40302VarianceOfSmallDeviations) {
  ExpectRight(Problem<float>(Norm::kLayer, 3, 32768, 100, .01));
}

// Zeros in half precision gave NaN for an eps below half precision.
TEST(PyTorchTest, Issue41527ZerosOfHalf) {
  Problem<float16> p = ProblemOf<float16>(1, std::vector<double>(10, 0));
  p.eps = 1e-12;
  ExpectConstantRowsGiveZero(p);
}

// Rows of 32 elements that count up to 6,400,000: all rows have equal results, but the last ones
// differed.
TEST(PyTorchTest, Issue81090CountingRows) {
  std::vector<double> x;
  for (const int first : {0, 32, 100'000, 3'200'000, 6'399'968}) {
    for (int i = 0; i < 32; ++i) x.push_back(first + i);
  }
  ExpectRight(ProblemOf<float>(5, x));
}

// A single element is its mean up to a rounding, which a gain of 1e10 and more made visible.
TEST(PyTorchTest, Issue98075LargeGainOfOneColumn) {
  for (const double gain : {1.0, 1e10, 1e20, 1e300}) {
    Problem<double> p(Norm::kLayer, 1, 1, -3, 0);
    p.eps = 0.1;
    p.gain = {gain};
    p.bias = {-1};
    tests::ForEachTarget(
        [&](const std::string& target) { EXPECT_EQ(tests::Apply(p).y[0], -1) << target; });
  }
}

// Squares of halves above 255 overflow half precision.
TEST(PyTorchTest, Pull133085RmsNormInFloatForHalf) {
  for (const double deviation : {10.0, 300.0, 12e3}) {
    ExpectRight(Problem<float16>(Norm::kRms, 3, 128, 0, deviation));
  }
}

// Rows had other bits without the last row of the batch.
TEST(PyTorchTest, Issue149301RowsDoNotDependOnOthers) {
  Problem<bfloat16> p(Norm::kLayer, 24 * 17, 768);
  tests::ForEachTarget([&](const std::string& target) {
    const auto all = tests::Apply(p);
    Problem<bfloat16> fewer = p;
    fewer.rows = 23 * 17;
    const auto out = tests::Apply(fewer);
    for (size_t i = 0; i < size_t{23 * 17 * 768}; ++i) {
      ASSERT_EQ(tests::ToDouble(out.y[i]), tests::ToDouble(all.y[i])) << target << " at " << i;
    }
  });
}

// Values around 2^126: compiled, a row that differed only in its last bits gave NaN.
TEST(PyTorchTest, Issue173793NearTheLargestFloat) {
  ExpectRight(Problem<float>(Norm::kLayer, 3, 768, 0x1p126, 0x1p105));
  ExpectRight(Problem<float>(Norm::kLayer, 3, 768, 0x1p126, 0x1p120));
}

// A variance of 5e-7 was treated as 0 because the mean is 1.
TEST(PyTorchTest, Pull186367SmallVarianceAndEps) {
  Problem<float> p = ProblemOf<float>(1, {1, 1.001, .999, 1});
  p.eps = 1e-7;
  ExpectRight(p);
}

// Rows of one element: the output is the bias whatever the gain. But the gradient of the gain was
// not 0, and in bfloat16 the output was not the bias.
TEST(PyTorchTest, Issue188375GradientOfTheGainOfOneColumn) {
  const auto expect = []<class T, class P>(const Problem<T, P>& p) {
    const double bias = tests::ToDouble(tests::FromDouble<T>(tests::ToDouble(p.bias[0])));
    tests::ForEachTarget([&](const std::string& target) {
      const auto out = tests::Apply(p);
      for (const T y : out.y) ASSERT_EQ(tests::ToDouble(y), bias) << target;
      ASSERT_EQ(tests::ToDouble(out.dgain[0]), 0) << target;
    });
  };
  expect(Problem<float>(Norm::kLayer, 1, 1, 1e6, 0));
  expect(Problem<float>(Norm::kLayer, 100, 1, 1e6, 1e3));
  expect(Problem<bfloat16>(Norm::kLayer, 100, 1, 1e6, 1e3));
  expect(Problem<bfloat16, float>(Norm::kLayer, 100, 1, 1e6, 1e3));
}

/// Maps the same memory repeatedly at successive addresses, followed by memory of its own: more
/// addresses than 32 bits can count, in little memory.
template <class T>
class Repeated {
 public:
  /// Maps `period` elements `times` times (whole pages), then `own` elements.
  Repeated(int64_t period, int64_t times, int64_t own)
      : bytes_(static_cast<size_t>(period * times + own) * sizeof(T)) {
    const size_t step = static_cast<size_t>(period) * sizeof(T);
    const int file = memfd_create("planish", 0);
    if (file < 0 || ftruncate(file, static_cast<off_t>(step)) != 0) return;
    constexpr int kAccess = PROT_READ | PROT_WRITE;
    void* all = mmap(nullptr, bytes_, kAccess, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    bool done = all != MAP_FAILED;
    for (int64_t i = 0; done && i < times; ++i) {
      void* at = static_cast<char*>(all) + static_cast<size_t>(i) * step;
      done = mmap(at, step, kAccess, MAP_SHARED | MAP_FIXED, file, 0) == at;
    }
    close(file);
    if (all != MAP_FAILED) all_ = static_cast<T*>(all);
    if (done) elements_ = all_;
  }
  ~Repeated() {
    if (all_) munmap(all_, bytes_);
  }
  Repeated(const Repeated&) = delete;
  Repeated& operator=(const Repeated&) = delete;

  /// Returns null if the system refuses the mapping.
  T* numbers() const { return elements_; }

 private:
  size_t bytes_;
  T *all_ = nullptr, *elements_ = nullptr;
};

// Beyond 2^32 elements rows were counted in 32 bits, and results went to the first rows. A later
// version did so for widths not divisible by four (issue 184826). Only the last rows have memory of
// their own.
TEST(PyTorchTest, Issue181555MoreElementsThan32BitsCount) {
  for (const int64_t cols : {int64_t{267}, int64_t{1024}}) {
    const int64_t period = int64_t{1} << 15, last = 1000;
    const int64_t times = (int64_t{1} << 32) / (period * cols) + 1, first = times * period;
    ASSERT_GT(first * cols, int64_t{1} << 32);
    const Repeated<bfloat16> x(period * cols, times, last * cols),
        dy(period * cols, times, last * cols), written(period * cols, times, last * cols);
    if (!x.numbers() || !dy.numbers() || !written.numbers()) GTEST_SKIP() << "no such memory";
    // dy is 0 in the first rows, so the sums over rows are those of the last ones.
    const Problem<bfloat16, float> p(Norm::kLayer, last, cols), other(Norm::kLayer, 64, cols);
    for (int64_t r = 0; r < period; r += 64) {
      std::copy(other.x.begin(), other.x.end(), x.numbers() + r * cols);
    }
    std::copy(p.x.begin(), p.x.end(), x.numbers() + first * cols);
    std::copy(p.dy.begin(), p.dy.end(), dy.numbers() + first * cols);
    const auto expected = tests::Apply(p);
    const int64_t rows = first + last;
    std::vector<float> mean(static_cast<size_t>(rows)), mean_lo(mean), rstd(mean);
    const auto results = [&] {
      const bfloat16* from = written.numbers() + first * cols;
      return std::vector<bfloat16>(from, from + last * cols);
    };
    NormForward<bfloat16, float>(p.norm,
                                 {.rows = rows,
                                  .cols = cols,
                                  .x = x.numbers(),
                                  .gain = p.gain.data(),
                                  .bias = p.bias.data(),
                                  .y = written.numbers(),
                                  .mean = mean.data(),
                                  .mean_lo = mean_lo.data(),
                                  .rstd = rstd.data()},
                                 p.Options());
    EXPECT_TRUE(tests::SameBits(results(), expected.y)) << cols;
    std::vector<float> dgain(static_cast<size_t>(cols)), dbias(dgain);
    NormBackward<bfloat16, float>(p.norm,
                                  {.rows = rows,
                                   .cols = cols,
                                   .dy = dy.numbers(),
                                   .x = x.numbers(),
                                   .gain = p.gain.data(),
                                   .mean = mean.data(),
                                   .mean_lo = mean_lo.data(),
                                   .rstd = rstd.data(),
                                   .dx = written.numbers(),
                                   .dgain = dgain.data(),
                                   .dbias = dbias.data()},
                                  p.Options());
    EXPECT_TRUE(tests::SameBits(results(), expected.dx)) << cols;
    for (size_t c = 0; c < dgain.size(); ++c) {
      // Sums of 1000 terms of size 1 in another order: groups of 256, so each term is rounded at
      // most that often.
      const double bound = 1000 * 256 * 0x1p-24;
      EXPECT_NEAR(dgain[c], expected.dgain[c], bound) << cols;
      EXPECT_NEAR(dbias[c], expected.dbias[c], bound) << cols;
    }
  }
}

// The cancellation of PyTorch's issue: four values around 40,000 gave NaN.
TEST(OnnxRuntimeTest, Issue28463NanForFiniteLargeInputs) {
  for (const double v : {4e4, 8e4, 1e6, 1.6e7}) {
    ExpectRight(ProblemOf<float>(1, {v, v + 1, v + 2, v + 3}));
  }
}

// The root of a variance that rounding had made negative: 256 times 1234 gave NaN.
TEST(OnnxRuntimeTest, Issue21935NanForSmallVariances) {
  ExpectConstantRowsGiveZero(ProblemOf<float>(1, std::vector<double>(256, 1234)));
  std::vector<double> almost(256, 1234);
  almost[17] = std::nextafter(1234.f, 2000.f);
  ExpectRight(ProblemOf<float>(1, almost));
}

// Squares over the width were summed in half precision: beyond 65,504, y was 0.
TEST(OnnxRuntimeTest, Issue29034RmsNormOfLargeHalves) {
  for (const int64_t cols : {64, 768, 4096}) {
    Problem<float16> p(Norm::kRms, 3, cols);
    for (float16& x : p.x) x = tests::FromDouble<float16>(2e4 + 1e3 * tests::ToDouble(x));
    ExpectRight(p);
  }
}

// x / max(|x|) was normalized with the eps of x, which exceeded the squares if x was large.
TEST(CoreMlToolsTest, Issue2821EpsComparedWithALargeValue) {
  for (const double large : {30.0, 1e3, 1e6}) {
    Problem<float> p(Norm::kRms, 2, 1024, 0, 1e-2);
    p.x[17] = static_cast<float>(large);
    ExpectRight(p);
  }
  Problem<float> zeros(Norm::kRms, 2, 16, 0, 0);
  zeros.gain.assign(16, 1);
  zeros.bias.clear();
  ExpectConstantRowsGiveZero(zeros);
}

// From the 65,536th row on, wrong elements were read.
TEST(ApexTest, Issue411RowsBeyond65536) {
  ExpectRight(Problem<float>(Norm::kLayer, 65'536 + 5, 8));
}

// Sixteen values around 1449 gave NaN on the GPU, by E[x^2] - E[x]^2.
TEST(MlxTest, Issue2238NanAtMean1449) {
  ExpectRight(ProblemOf<float>(
      1, {1449.570556640625, 1448.8741455078125, 1450.650390625, 1449.2633056640625,
          1449.7763671875, 1449.317138671875, 1449.3297119140625, 1449.077880859375,
          1449.2181396484375, 1449.4329833984375, 1449.1605224609375, 1449.413330078125,
          1449.7933349609375, 1450.066650390625, 1449.7762451171875, 1450.364990234375}));
}

// Fused kernels computed E[x^2] - E[x]^2: for mean + i / 1000 the result was off by 1.
TEST(BurnTest, Issue5607LargeMeanLosesPrecision) {
  for (const double mean : {0.0, 1e2, 1e3, 1e4}) {
    std::vector<double> x;
    for (int i = 0; i < 16; ++i) x.push_back(mean + i * 1e-3);
    ExpectRight(ProblemOf<float>(1, x));
  }
}

// An array of shape [1, 0, 10] crashed with a division by 0. Empty gradients are 0.
TEST(TensorFlowTest, Issue46366CrashOnEmptyInputs) {
  const float gain[10] = {}, bias[10] = {};
  float dgain[10], dbias[10];
  std::ranges::fill(dgain, 7.f);
  std::ranges::fill(dbias, 7.f);
  tests::ForEachTarget([&](const std::string&) {
    NormForward<float>(Norm::kLayer, {.rows = 0, .cols = 10, .gain = gain, .bias = bias});
    NormBackward<float>(Norm::kLayer,
                        {.rows = 0, .cols = 10, .gain = gain, .dgain = dgain, .dbias = dbias});
  });
  for (const float value : dgain) EXPECT_EQ(value, 0);
  for (const float value : dbias) EXPECT_EQ(value, 0);
  NormForward<float>(Norm::kLayer, {.rows = 10, .cols = 0});
  NormBackward<float>(Norm::kLayer,
                      {.rows = 10, .cols = 0, .mean = gain, .mean_lo = gain, .rstd = gain});
}

}  // namespace
}  // namespace planish
