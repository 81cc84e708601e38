#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "src/rnn/cuda/cells.h"
#include "src/rnn/cuda/plan.h"
#include "src/rnn/cuda/testing.h"

// Recurrent layers on a GPU against the CPU's layers in double, which rnn_test.cc compares with the
// reference. Compiled into two programs: one uses the GPU, and skips if there is none; the other
// uses the emulation.
namespace planish {
namespace {

using ::testing::HasSubstr;
using tests::ApplyOnDevice;
using tests::ArrayName;
using tests::CudaCells;
using tests::CudaKinds;
using tests::ErrorOf;
using tests::Given;
using tests::NameOf;
using tests::OnDevice;
using tests::RnnOnDevice;
using tests::RnnProblem;
using tests::RnnResult;
using tests::Shaped;

constexpr Given kGivens[] = {{.states = false},
                             {},
                             {.reverse = true},
                             {.lengths = true},
                             {.lengths = true, .reverse = true},
                             {.resets = true},
                             {.states = false, .resets = true, .reverse = true},
                             {.lengths = true, .resets = true},
                             {.lengths = true, .resets = true, .reverse = true}};

template <class T>
std::string Describe(const RnnProblem<T>& p) {
  const RnnShape& s = p.layer.shape;
  return std::string(NameOf(p.layer.cell)) + " T " + std::to_string(s.time) + " B " +
         std::to_string(s.batch) + " I " + std::to_string(s.inputs) + " H " +
         std::to_string(s.hidden) + (p.layer.h0.empty() ? "" : " states") +
         (p.layer.lengths.empty() ? "" : " lengths") + (p.layer.resets.empty() ? "" : " resets") +
         (p.layer.reverse ? " reverse" : "");
}

/// Returns the layer in double, on the CPU.
template <class T>
RnnResult<double> Exact(const RnnProblem<T>& p) {
  RnnProblem<double> same(p.layer.cell, p.layer.shape);
  same.layer = p.Reference();
  same.loss = p.Loss();
  return tests::Apply(same, same.Options());
}

/// Returns the largest difference of any output, as in tests::Difference, and its name.
template <class T>
double Worst(const RnnResult<T>& out, const RnnResult<double>& exact, std::string* where) {
  double worst = 0;
  const auto compare = [&](const std::string& name, const auto& values, const auto& expected) {
    const double difference = tests::Difference(values, expected);
    if (!(difference <= worst)) worst = difference, *where = name;
  };
  compare("y", out.y, exact.y);
  compare("h_n", out.h, exact.h);
  compare("c_n", out.c, exact.c);
  for (size_t a = 0; a < tests::kArrays; ++a) {
    compare(std::string("d") + ArrayName(a), out.gradients[a], exact.gradients[a]);
  }
  return worst;
}

template <class T>
class RnnCudaTest : public tests::GpuTest {
 protected:
  static void ExpectWithin(double tolerance, const RnnProblem<T>& p, bool persistent = false) {
    std::string where;
    const double worst = Worst(ApplyOnDevice(p, persistent), Exact(p), &where);
    EXPECT_LE(worst, tolerance) << Describe(p) << ": " << where;
  }
};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(RnnCudaTest, Types);

template <class T>
constexpr double kUnit = std::is_same_v<T, float> ? 0x1p-24 : 0x1p-53;

// A norm of one to three nearly equal elements multiplies errors by its rstd, at most 1/sqrt(eps) =
// 316, at every step, forward and backward. The bound is that of the CPU (src/rnn/rnn_test.cc).
template <class T>
constexpr double kNarrowTolerance = std::is_same_v<T, float> ? 8e-3 : 4e-12;

TYPED_TEST(RnnCudaTest, EveryCellAgreesWithTheCpuForFewUnits) {
  using T = TypeParam;
  constexpr RnnShape kShapes[] = {{1, 1, 1, 1}, {7, 2, 3, 1}, {5, 3, 2, 3}, {7, 5, 1, 3}};
  size_t i = 0;
  for (const auto& [cell, recurrence] : CudaKinds()) {
    for (const Given& given : kGivens) {
      for (int twice = 0; twice < 2; ++twice) {
        const RnnShape& shape = kShapes[i++ % std::size(kShapes)];
        this->ExpectWithin(kNarrowTolerance<T>,
                           RnnProblem<T>(cell, Shaped(shape, recurrence), given));
      }
    }
  }
}

// Norms of 16 or more elements have an rstd of about 1, and gains of 0.5 make the state decay. Each
// of at most 7 steps adds the rounding of matrix products with up to 400 terms, sqrt(400) / 2
// units, and of about 20 operations. Gradients of weights are sums over steps and sequences. There
// is more than one input, because a norm removes the size of a single one, whose gradient would be
// only rounding.
template <class T>
constexpr double kTolerance = 64 * kUnit<T>;

TYPED_TEST(RnnCudaTest, EveryCellAgreesWithTheCpuForManyUnits) {
  using T = TypeParam;
  size_t i = 0;
  for (const auto& [cell, recurrence] : CudaKinds()) {
    for (const RnnShape& shape :
         {RnnShape{7, 5, 4, 16}, {7, 2, 33, 33}, {3, 2, 5, 100}, {2, 1, 3, 32}, {1, 5, 7, 65}}) {
      for (int twice = 0; twice < 2; ++twice) {
        const Given& given = kGivens[i++ % std::size(kGivens)];
        this->ExpectWithin(kTolerance<T>,
                           RnnProblem<T>(cell, Shaped(shape, recurrence), given, 0.5));
      }
    }
  }
}

// More units than threads in a block, and rows of many partial sums.
TYPED_TEST(RnnCudaTest, LargeLayersAgreeWithTheCpu) {
  using T = TypeParam;
  for (const Cell cell : {Cell::kRnn, Cell::kLnRnn, Cell::kLstm, Cell::kLnLstm,
                          Cell::kLnLstmContrib, Cell::kLnLstmTorchaudio, Cell::kSlstm, Cell::kGru,
                          Cell::kLnGru, Cell::kLnGruHaste, Cell::kLnGruDreamer}) {
    this->ExpectWithin(kTolerance<T>, RnnProblem<T>(cell, {2, 1, 3, 515}, {.lengths = true}, 0.5));
    this->ExpectWithin(2 * kTolerance<T>,
                       RnnProblem<T>(cell, {9, 31, 2, 17}, {.lengths = true}, 0.5));
  }
}

// --- Persistent kernels ---

// Norms combined from partial statistics are as accurate as others.
TYPED_TEST(RnnCudaTest, PersistentAgreesWithTheCpu) {
  using T = TypeParam;
  constexpr RnnShape kShapes[] = {{7, 5, 4, 16}, {5, 9, 5, 33}, {2, 2, 3, 67}, {7, 1, 3, 40}};
  size_t i = 0, fit = 0, all = 0;
  for (const Cell cell : CudaCells()) {
    for (const Given& given : kGivens) {
      const RnnShape& shape = kShapes[i++ % std::size(kShapes)];
      this->ExpectWithin(kTolerance<T>, RnnProblem<T>(cell, shape, given, 0.5), true);
      fit += cuda::RnnFitsPersistent<T>(cell, shape);
      ++all;
    }
    // Fewer units than blocks.
    this->ExpectWithin(kNarrowTolerance<T>, RnnProblem<T>(cell, {4, 3, 2, 3}), true);
  }
  EXPECT_EQ(fit, all);
}

// Checks that the elements of sequence 1 of three begin with NaN, and the others are as before.
template <class T>
void ExpectNanInSequence1(const std::vector<T>& after, const std::vector<T>& before, Cell cell) {
  const size_t units = before.size() / 3;
  EXPECT_TRUE(std::isnan(after[units])) << NameOf(cell);
  for (size_t k = 0; k < before.size(); ++k) {
    if (k / units == 1) continue;
    ASSERT_EQ(after[k], before[k]) << NameOf(cell);
  }
}

TYPED_TEST(RnnCudaTest, PersistentNanStaysInItsSequence) {
  using T = TypeParam;
  for (const Cell cell : CudaCells()) {
    RnnProblem<T> p(cell, {4, 3, 3, 21}, {.lengths = true});
    p.layer.lengths = {4, 3, 4};
    const RnnResult<T> before = ApplyOnDevice(p, true);
    p.layer.x[3] = std::numeric_limits<T>::quiet_NaN();  // the first input of sequence 1
    ExpectNanInSequence1(ApplyOnDevice(p, true).h, before.h, cell);
  }
}

TYPED_TEST(RnnCudaTest, PersistentGivesTheSameBitsWithNothingSaved) {
  using T = TypeParam;
  for (const Cell cell : CudaCells()) {
    const RnnProblem<T> p(cell, {4, 3, 3, 17}, {.lengths = true, .resets = true});
    RnnOnDevice<T> saving(p), other(p);
    saving.options().persistent = other.options().persistent = true;
    saving.Forward();
    other.forward().saved = nullptr;
    other.Forward();
    EXPECT_EQ(saving.Result().DiffersIn(other.Result()), "") << NameOf(cell);
  }
}

// The gradient of one sequence's output is NaN.
TYPED_TEST(RnnCudaTest, PersistentNanGradientStaysInItsSequence) {
  using T = TypeParam;
  for (const Cell cell : CudaCells()) {
    RnnProblem<T> p(cell, {4, 3, 3, 21}, {.lengths = true});
    p.layer.lengths = {4, 3, 4};
    const RnnResult<T> before = ApplyOnDevice(p, true);
    // All units of sequence 1 at one step.
    std::fill_n(p.loss.y.begin() + (2 * 3 + 1) * 21, 21, std::numeric_limits<T>::quiet_NaN());
    ExpectNanInSequence1(ApplyOnDevice(p, true).gradients[tests::kH0], before.gradients[tests::kH0],
                         cell);
  }
}

// No matrix product of a step is requested, except in backward for larger batches than the
// persistent kernel takes.
TYPED_TEST(RnnCudaTest, PersistentKernelsCallNoMatmulForSteps) {
  using T = TypeParam;
  for (const auto& [batch, backward] :
       {std::pair<int64_t, size_t>{internal::cuda::kMaxPersistentBackwardBatch, 0},
        {internal::cuda::kMaxPersistentBackwardBatch + 1, 5}}) {
    const RnnProblem<T> p(Cell::kLnLstm, {5, batch, 2, 17}, Given(), 0.5);
    RnnOnDevice<T> device(p);
    size_t products = 0;
    device.options().persistent = true;
    device.options().matmul = [&](const cuda::MatmulArgs<T>& product) {
      ++products;
      internal::cuda::RunMatmul("test", product);
    };
    device.Forward();
    EXPECT_EQ(products, 1u);
    products = 0;
    device.Backward();
    EXPECT_EQ(products, 3u + backward);  // of the weights' gradients, and of dx
    std::string where;
    EXPECT_LE(Worst(device.Result(), Exact(p), &where), 2 * kTolerance<T>) << where;
  }
}

// Weights of the state for which the first product is exact: the mean of the sums is 1e4
// deviations.
TYPED_TEST(RnnCudaTest, PersistentNormsAreExactAtAnyMean) {
  using T = TypeParam;
  for (const Cell cell : {Cell::kLnRnn, Cell::kLnLstm, Cell::kLnLstmContrib, Cell::kLnGru}) {
    RnnProblem<T> p(cell, {2, 1, 1, 40}, {.resets = true});
    std::mt19937 random(3);
    p.layer.x = {0, 0};
    p.layer.weight_hh = tests::Normal<T>(std::ssize(p.layer.weight_hh), random, 1e4, 1);
    // Before each step, the state is 1 in the first unit and 0 in the others.
    p.layer.resets = {1, 1};
    p.layer.h_reset.assign(40, T{0});
    p.layer.h_reset[0] = 1;
    RnnOnDevice<T> device(p);
    device.options().persistent = true;
    device.Forward();
    EXPECT_LE(tests::Difference(device.Result().y, Exact(p).y), 16 * kUnit<T>) << NameOf(cell);
  }
}

// --- Bitwise equality ---

TYPED_TEST(RnnCudaTest, NothingSavedGivesTheSameBits) {
  using T = TypeParam;
  for (const auto& [cell, recurrence] : CudaKinds()) {
    const RnnProblem<T> p(cell, Shaped({4, 3, 3, 17}, recurrence),
                          {.lengths = true, .resets = true});
    RnnOnDevice<T> saving(p), other(p);
    saving.Forward();
    other.forward().saved = nullptr;
    other.Forward();
    EXPECT_EQ(saving.Result().DiffersIn(other.Result()), "") << NameOf(cell);
  }
}

TYPED_TEST(RnnCudaTest, StepsGiveTheSameBits) {
  using T = TypeParam;
  constexpr int64_t kTime = 5, kBatch = 3, kInputs = 3, kHidden = 17;
  for (const auto& [cell, recurrence] : CudaKinds()) {
    for (const bool in_place : {false, true}) {
      const RnnProblem<T> p(cell, Shaped({kTime, kBatch, kInputs, kHidden}, recurrence));
      RnnOnDevice<T> device(p);
      device.Forward();
      const RnnResult<T> expected = device.Result();
      const bool lstm = internal::RecipeOf(cell).is_lstm();
      OnDevice<T> h(p.layer.h0), c(p.layer.c0), h_next(p.layer.h0), c_next(p.layer.c0);
      RnnStepArgs<T> args{.batch = kBatch, .inputs = kInputs, .hidden = kHidden};
      args.projected = p.layer.shape.projected;
      args.heads = p.layer.shape.heads;
      const tests::WithWorkspace options(cuda::RnnOptions<T>{.eps = p.layer.eps},
                                         cuda::WorkspaceBytes(cell, args));
      args.params = device.forward().inputs.params;
      OnDevice<T>*from = &h, *to = in_place ? &h : &h_next;
      OnDevice<T>*from_c = &c, *to_c = in_place ? &c : &c_next;
      std::vector<T> y;
      for (int64_t t = 0; t < kTime; ++t) {
        args.x = device.forward().inputs.x + t * kBatch * kInputs;
        args.h = from->data();
        args.h_next = to->data();
        if (lstm) args.c = from_c->data(), args.c_next = to_c->data();
        cuda::RnnStep<T>(cell, args, options);
        for (const T value : to->Get()) y.push_back(value);
        std::swap(from, to);
        std::swap(from_c, to_c);
      }
      EXPECT_TRUE(tests::SameBits(y, expected.y)) << NameOf(cell);
      EXPECT_TRUE(tests::SameBits(from->Get(), expected.h)) << NameOf(cell);
      if (!lstm) continue;
      EXPECT_TRUE(tests::SameBits(from_c->Get(), expected.c)) << NameOf(cell);
    }
  }
}

// Each gradient has the same bits whichever others are requested.
TYPED_TEST(RnnCudaTest, EveryGradientByItself) {
  using T = TypeParam;
  const std::vector<tests::Kind> kinds = CudaKinds();
  for (size_t i = 0; i < 2 * kinds.size(); ++i) {
    const auto& [cell, recurrence] = kinds[i / 2];
    const RnnProblem<T> p(cell, Shaped({3, 3, 3, 5}, recurrence),
                          {.lengths = true, .resets = true});
    RnnOnDevice<T> device(p);
    device.options().persistent = i % 2 == 1;
    device.Forward();
    device.Backward();
    const RnnResult<T> all = device.Result();
    RnnBackwardArgs<T> none = device.backward();
    none.dx = none.dh0 = none.dc0 = none.dh_reset = none.dc_reset = nullptr;
    none.dparams = {};
    const auto params = internal::ParamsOf<T>(internal::RecipeOf(cell), p.layer.shape);
    for (size_t a = 0; a < tests::kArrays; ++a) {
      if (all.gradients[a].empty()) continue;
      OnDevice<T> alone(std::vector<T>(all.gradients[a].size(), tests::Unset<T>()));
      device.backward() = none;
      RnnBackwardArgs<T>& args = device.backward();
      T* RnnBackwardArgs<T>::* const members[] = {
          &RnnBackwardArgs<T>::dx, &RnnBackwardArgs<T>::dh0, &RnnBackwardArgs<T>::dc0,
          &RnnBackwardArgs<T>::dh_reset, &RnnBackwardArgs<T>::dc_reset};
      if (a < tests::kFirstParam) {
        args.*members[a] = alone.data();
      } else {
        args.dparams.*params[a - tests::kFirstParam].member = alone.data();
      }
      device.Backward();
      EXPECT_TRUE(tests::SameBits(alone.Get(), all.gradients[a]))
          << NameOf(cell) << " d" << ArrayName(a);
    }
  }
}

// --- Extremes ---

// No steps, and no sequences.
TYPED_TEST(RnnCudaTest, NoSteps) {
  using T = TypeParam;
  for (const auto& [cell, recurrence] : CudaKinds()) {
    const RnnProblem<T> p(cell, Shaped({0, 3, 2, 5}, recurrence));
    const RnnResult<T> out = ApplyOnDevice(p);
    EXPECT_TRUE(tests::SameBits(out.h, p.layer.h0)) << NameOf(cell);
    EXPECT_TRUE(tests::SameBits(out.c, p.layer.c0)) << NameOf(cell);
    EXPECT_TRUE(tests::SameBits(out.gradients[tests::kH0], p.loss.h)) << NameOf(cell);
    EXPECT_TRUE(tests::SameBits(out.gradients[tests::kC0], p.loss.c)) << NameOf(cell);
    const RnnProblem<T> nothing(cell, Shaped({3, 0, 2, 5}, recurrence));
    const RnnResult<T> of_nothing = ApplyOnDevice(nothing);
    for (size_t a = tests::kFirstParam; a < tests::kArrays; ++a) {
      for (const auto& gradients : {out.gradients, of_nothing.gradients}) {
        EXPECT_EQ(gradients[a], std::vector<T>(gradients[a].size(), T{0})) << NameOf(cell);
      }
    }
  }
}

TYPED_TEST(RnnCudaTest, NanStaysInItsSequence) {
  using T = TypeParam;
  constexpr int64_t kBatch = 3, kInputs = 3, kHidden = 7;
  for (const auto& [cell, recurrence] : CudaKinds()) {
    RnnProblem<T> p(cell, Shaped({4, kBatch, kInputs, kHidden}, recurrence), {.resets = true});
    const int64_t cells = kHidden * internal::RecipeOf(cell).cell_parts();
    const RnnResult<T> before = ApplyOnDevice(p);
    p.layer.x[kInputs] = std::numeric_limits<T>::quiet_NaN();  // the first input of sequence 1
    const RnnResult<T> after = ApplyOnDevice(p);
    const auto others = [&](const std::vector<T>& values, int64_t width) {
      std::vector<T> of_others;
      for (size_t i = 0; i < values.size(); ++i) {
        if (static_cast<int64_t>(i) / width % kBatch != 1) of_others.push_back(values[i]);
      }
      return of_others;
    };
    const int64_t outputs = p.layer.shape.outputs();
    EXPECT_TRUE(std::isnan(after.y[static_cast<size_t>(outputs)])) << NameOf(cell);
    EXPECT_TRUE(tests::SameBits(others(after.y, outputs), others(before.y, outputs)));
    EXPECT_TRUE(tests::SameBits(others(after.h, outputs), others(before.h, outputs)));
    EXPECT_TRUE(tests::SameBits(others(after.c, cells), others(before.c, cells)));
    for (const size_t a : {tests::kX, tests::kH0, tests::kC0}) {
      const int64_t width = a == tests::kX ? kInputs : a == tests::kH0 ? outputs : cells;
      EXPECT_TRUE(
          tests::SameBits(others(after.gradients[a], width), others(before.gradients[a], width)))
          << NameOf(cell) << " d" << ArrayName(a);
    }
  }
}

// Past the length of a sequence, inputs and gradients of y are not read.
TYPED_TEST(RnnCudaTest, NothingIsReadBeyondASequence) {
  using T = TypeParam;
  for (const auto& [cell, recurrence] : CudaKinds()) {
    for (const bool reverse : {false, true}) {
      RnnProblem<T> p(cell, Shaped({5, 3, 3, 5}, recurrence),
                      {.lengths = true, .resets = true, .reverse = reverse});
      p.layer.lengths = {5, 2, 1};
      const RnnResult<T> before = ApplyOnDevice(p);
      for (size_t t = 0; t < 5; ++t) {
        for (size_t b = 0; b < 3; ++b) {
          if (static_cast<int64_t>(t) < p.layer.lengths[b]) continue;
          const size_t row = t * 3 + b;
          std::fill_n(p.layer.x.begin() + static_cast<std::ptrdiff_t>(row * 3), 3,
                      tests::Unset<T>());
          const auto outputs = static_cast<size_t>(p.layer.shape.outputs());
          std::fill_n(p.loss.y.begin() + static_cast<std::ptrdiff_t>(row * outputs), outputs,
                      tests::Unset<T>());
          EXPECT_EQ(before.y[row * outputs], 0);
          EXPECT_EQ(before.gradients[tests::kX][row * 3], 0);
        }
      }
      EXPECT_EQ(ApplyOnDevice(p).DiffersIn(before), "") << NameOf(cell);
    }
  }
}

// A length above T means T.
TYPED_TEST(RnnCudaTest, LengthsAreClipped) {
  using T = TypeParam;
  RnnProblem<T> p(Cell::kLnLstm, {3, 2, 3, 5}, {.lengths = true});
  p.layer.lengths = {3, 3};
  const RnnResult<T> expected = ApplyOnDevice(p);
  p.layer.lengths = {100, 3};
  EXPECT_EQ(ApplyOnDevice(p).DiffersIn(expected), "");
}

// Sums with a mean of 1e4 deviations, or whose squares overflow or underflow float. The first step
// of one input x = 1 without a state: the products are exactly the weights.
TYPED_TEST(RnnCudaTest, NormsAreExactAtAnyMeanAndSize) {
  using T = TypeParam;
  for (const Cell cell : {Cell::kLnRnn, Cell::kLnLstm, Cell::kLnLstmContrib, Cell::kLnGru}) {
    for (const auto& [mean, deviation] :
         {std::pair{1e4, 1.0}, {-1e6, 10.0}, {0.0, 1e-20}, {1e20, 1e18}, {0.0, 1e30}}) {
      RnnProblem<T> p(cell, {1, 1, 1, 40}, {.states = false});
      p.layer.eps = deviation < 1 ? 0 : 1e-5;
      p.layer.x = {1};
      std::mt19937 random(3);
      p.layer.weight_ih = tests::Normal<T>(std::ssize(p.layer.weight_ih), random, mean, deviation);
      // A zero state has variance 0, which gives 0/0 without eps.
      if (p.layer.eps == 0) p.layer.h0 = tests::Normal<T>(40, random);
      RnnOnDevice<T> device(p);
      device.Forward();
      RnnResult<double> exact = Exact(p);
      // tanh and sigmoid of values of about 1: a few units, and those of the product with h.
      EXPECT_LE(tests::Difference(device.Result().y, exact.y), 16 * kUnit<T>)
          << NameOf(cell) << " mean " << mean << " deviation " << deviation;
    }
  }
}

// Preactivations of up to about 3000, whose exponentials overflow, in any order of gates and steps.
// The rounding error of log(n) is that of a value of this size, and alpha has its absolute error.
TYPED_TEST(RnnCudaTest, SlstmOfLargeGatesAgreesWithTheCpu) {
  using T = TypeParam;
  for (const Given& given : kGivens) {
    for (const bool persistent : {false, true}) {
      RnnProblem<T> p(Cell::kSlstm, {7, 3, 4, 17}, given, 0.5);
      for (T& weight : p.layer.weight_ih) weight *= 1000;
      this->ExpectWithin(1000 * kTolerance<T>, p, persistent);
    }
  }
}

// An absent cell state has log(n) = -infinity, at the start and after resets.
TYPED_TEST(RnnCudaTest, AbsentStatesOfAnSlstmAreEmpty) {
  using T = TypeParam;
  constexpr int64_t kBatch = 3, kHidden = 5;
  for (const bool persistent : {false, true}) {
    for (const bool reverse : {false, true}) {
      const Given given = {.lengths = true, .resets = true, .reverse = reverse};
      RnnProblem<T> p(Cell::kSlstm, {4, kBatch, 3, kHidden}, given);
      p.layer.c0.clear();
      p.layer.c_reset.clear();
      const RnnResult<T> absent = ApplyOnDevice(p, persistent);
      const auto empty = [](int64_t count) {
        std::vector<T> states(static_cast<size_t>(count * 2 * kHidden), T{0});
        for (size_t i = 0; i < states.size(); ++i) {
          if (i / kHidden % 2 == 1) states[i] = -std::numeric_limits<T>::infinity();
        }
        return states;
      };
      p.layer.c0 = empty(kBatch);
      p.layer.c_reset = empty(1);
      EXPECT_EQ(ApplyOnDevice(p, persistent).DiffersIn(absent), "") << persistent << reverse;
      p.layer.c0.clear();
      p.layer.c_reset.clear();
      this->ExpectWithin(kTolerance<T>, p, persistent);
    }
  }
  RnnProblem<T> p(Cell::kSlstm, {0, 1, 3, 1});
  p.layer.c0.clear();
  EXPECT_EQ(ApplyOnDevice(p).c, (std::vector<T>{0, -std::numeric_limits<T>::infinity()}));
}

// --- Matrix products ---

// The caller's matrix products give the same results as the library's, and are called as the header
// says.
TYPED_TEST(RnnCudaTest, ProductsAreTheCallers) {
  using T = TypeParam;
  const RnnProblem<T> p(Cell::kLnLstm, {3, 2, 5, 7});
  const RnnResult<T> expected = ApplyOnDevice(p);
  RnnOnDevice<T> device(p);
  std::vector<cuda::MatmulArgs<T>> products;
  device.options().matmul = [&](const cuda::MatmulArgs<T>& product) {
    products.push_back(product);
    internal::cuda::RunMatmul("test", product);
  };
  device.Forward();
  ASSERT_EQ(products.size(), 1u + 3u);
  EXPECT_EQ(products[0].a, device.forward().inputs.x);
  EXPECT_EQ(products[0].b, device.forward().inputs.params.weight_ih);
  EXPECT_EQ(products[0].rows, 3 * 2);
  EXPECT_EQ(products[0].cols, 4 * 7);
  EXPECT_EQ(products[0].inner, 5);
  EXPECT_TRUE(products[0].b_transposed && !products[0].a_transposed && !products[0].accumulate);
  EXPECT_EQ(products[1].b, device.forward().inputs.params.weight_hh);
  EXPECT_EQ(products[1].rows, 2);
  products.clear();
  device.Backward();
  EXPECT_EQ(products.size(), 3u + 3u);  // one a step, of the weights' gradients, and of dx
  EXPECT_TRUE(products[0].accumulate && !products[0].a_transposed && !products[0].b_transposed);
  EXPECT_EQ(device.Result().DiffersIn(expected), "");
}

// The library's matrix products, transposed or not, with full and partial tiles.
TYPED_TEST(RnnCudaTest, Matmul) {
  using T = TypeParam;
  std::mt19937 random(5);
  for (const auto& [rows, cols, inner] :
       {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1}, {33, 31, 9}, {64, 32, 8}, {5, 70, 100}}) {
    for (int kind = 0; kind < 6; ++kind) {
      const bool a_transposed = kind % 3 == 1, b_transposed = kind % 3 == 2;
      const bool accumulate = kind >= 3;
      const auto a = tests::Normal<T>(rows * inner, random);
      const auto b = tests::Normal<T>(inner * cols, random);
      const auto c = tests::Normal<T>(rows * cols, random);
      OnDevice<T> on_a(a), on_b(b), on_c(c);
      internal::cuda::RunMatmul<T>("test", {.rows = rows,
                                            .cols = cols,
                                            .inner = inner,
                                            .a = on_a.data(),
                                            .b = on_b.data(),
                                            .c = on_c.data(),
                                            .a_transposed = a_transposed,
                                            .b_transposed = b_transposed,
                                            .accumulate = accumulate});
      std::vector<double> exact;
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < cols; ++j) {
          const auto at = [](const std::vector<T>& values, int64_t k) {
            return static_cast<double>(values[static_cast<size_t>(k)]);
          };
          double sum = accumulate ? at(c, i * cols + j) : 0;
          for (int64_t k = 0; k < inner; ++k) {
            sum += at(a, a_transposed ? k * rows + i : i * inner + k) *
                   at(b, b_transposed ? j * inner + k : k * cols + j);
          }
          exact.push_back(sum);
        }
      }
      // The rounding of at most 100 additions, each half a unit of the partial sum.
      EXPECT_LE(tests::Difference(on_c.Get(), exact), 16 * kUnit<T>) << rows << ' ' << kind;
    }
  }
}

// --- Errors ---

/// Returns the error of RnnForward after `change` to valid arguments and options.
template <class F>
std::string ForwardError(F&& change, Cell cell = Cell::kLnLstm) {
  const RnnProblem<float> p(cell, {3, 2, 4, 5}, {.lengths = true, .resets = true});
  RnnOnDevice<float> device(p);
  OnDevice<char> space(std::vector<char>(
      static_cast<size_t>(cuda::WorkspaceBytes(Cell::kLnLstm, device.forward()))));
  device.options().workspace = space.data();
  device.options().workspace_bytes = space.bytes();
  change(device.forward(), device.options());
  return ErrorOf([&] { cuda::RnnForward<float>(cell, device.forward(), device.options()); });
}

class RnnCudaErrors : public tests::GpuTest {};

TEST_F(RnnCudaErrors, Arguments) {
  EXPECT_EQ(ForwardError([](auto&, auto&) {}), "");
  EXPECT_EQ(ForwardError([](auto& a, auto&) { a.inputs.shape.time = -1; }),
            "[RnnForward] time must be at least 0, got -1");
  EXPECT_EQ(ForwardError([](auto& a, auto&) { a.inputs.shape.hidden = 0; }),
            "[RnnForward] hidden must be at least 1, got 0");
  EXPECT_THAT(ForwardError([](auto& a, auto&) { a.inputs.shape.time = int64_t{1} << 60; }),
              HasSubstr("time * batch * max(inputs, hidden) must be at most"));
  EXPECT_EQ(ForwardError([](auto&, auto& o) { o.eps = -1; }),
            "[RnnForward] eps must be finite and at least 0, got -1");
  EXPECT_EQ(ForwardError([](auto& a, auto&) { a.y = nullptr; }),
            "[RnnForward] y must point to 120 bytes, got null");
  EXPECT_EQ(ForwardError([](auto& a, auto&) { a.inputs.params.weight_hh = nullptr; }),
            "[RnnForward] weight_hh must point to 400 bytes, got null");
  EXPECT_EQ(ForwardError([](auto& a, auto&) { a.inputs.params.ln_weight = a.inputs.x; }),
            "[RnnForward] ln_weight must be null for a cell without it, got an address");
  EXPECT_EQ(ForwardError([](auto& a, auto&) { a.inputs.resets = nullptr; }),
            "[RnnForward] h_reset must be null without resets, got an address");
  EXPECT_EQ(ForwardError([](auto& a, auto&) { a.h_n = a.y; }),
            "[RnnForward] h_n must not overlap y, got 40 bytes in common");
  EXPECT_EQ(ForwardError([](auto& a, auto&) { ++a.saved; }),
            "[RnnForward] saved must be aligned to 16 bytes, got an address 4 bytes past a "
            "multiple of 16");
}

TEST_F(RnnCudaErrors, Workspace) {
  RnnOnDevice<float> device(RnnProblem<float>(Cell::kLnLstm, {3, 2, 4, 5}));
  const int64_t needed = cuda::WorkspaceBytes(Cell::kLnLstm, device.forward());
  const std::string bytes = std::to_string(needed), fewer = std::to_string(needed - 1);
  EXPECT_EQ(ForwardError([](auto&, auto& o) { o.workspace = nullptr; }),
            "[RnnForward] workspace must point to " + bytes + " bytes, got null");
  EXPECT_EQ(ForwardError([&](auto&, auto& o) { o.workspace_bytes = needed - 1; }),
            "[RnnForward] workspace_bytes must be at least " + bytes + ", got " + fewer);
  EXPECT_EQ(ForwardError([](auto&, auto& o) { o.workspace = static_cast<char*>(o.workspace) + 8; }),
            "[RnnForward] workspace must be aligned to 16 bytes, got an address 8 bytes past a "
            "multiple of 16");
}

TEST_F(RnnCudaErrors, CellsWithBatchNorm) {
  for (const Cell cell : {Cell::kBnRnn, Cell::kBnLstm, Cell::kBnGru}) {
    const std::string rest = " cell must be a cell without batch norm, got one with batch norm";
    EXPECT_EQ(ErrorOf([&] { cuda::RnnForward<float>(cell, {}); }), "[RnnForward]" + rest);
    EXPECT_EQ(ErrorOf([&] { cuda::RnnBackward<float>(cell, {}); }), "[RnnBackward]" + rest);
    EXPECT_EQ(ErrorOf([&] { cuda::RnnStep<float>(cell, {}); }), "[RnnStep]" + rest);
    EXPECT_EQ(ErrorOf([&] { cuda::RnnSavedSize<float>(cell, {}); }), "[RnnSavedSize]" + rest);
  }
}

TEST_F(RnnCudaErrors, BackwardTakesNoSums) {
  const RnnProblem<float> p(Cell::kLnLstm, {3, 2, 4, 5});
  RnnOnDevice<float> device(p);
  device.backward().sums = reinterpret_cast<RnnGradientSums<float>*>(device.backward().dx);
  EXPECT_EQ(ErrorOf([&] { device.Backward(); }),
            "[RnnBackward] sums must be null on a GPU, got an address");
}

// RnnSavedSize returns the header's table; with 8 steps and H = 8 nothing is rounded up.
TEST(RnnCudaSavedSize, EqualsTheTableInTheHeader) {
  const auto size = [](Cell cell) { return cuda::RnnSavedSize<float>(cell, {2, 4, 3, 8}) / 8; };
  EXPECT_EQ(size(Cell::kRnn), 0);
  EXPECT_EQ(size(Cell::kLnRnnRelu), 8 + 3);
  EXPECT_EQ(size(Cell::kGru), 24 + 8);
  EXPECT_EQ(size(Cell::kLnGru), 3 * 24 + 8 + 12);
  EXPECT_EQ(size(Cell::kLnGruHaste), 3 * 24 + 8 + 6);
  EXPECT_EQ(size(Cell::kLnGruDreamer), 2 * 24 + 8 + 3);
  EXPECT_EQ(size(Cell::kLstm), 32 + 16);
  EXPECT_EQ(size(Cell::kSlstm), 32 + 16);
  EXPECT_EQ(size(Cell::kDrawLstm), 32 + 16 + 3);
  EXPECT_EQ(size(Cell::kLnLstmContrib), 2 * 32 + 16 + 15);
  EXPECT_EQ(size(Cell::kLnLstmTflite), 2 * 32 + 16 + 12);
  EXPECT_EQ(size(Cell::kLnLstmTorchaudio), 2 * 32 + 16 + 6);
  EXPECT_EQ(size(Cell::kLnLstm), 3 * 32 + 16 + 9);
}

}  // namespace
}  // namespace planish
