#include "planish/rnn.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "src/base/tuning.h"
#include "src/rnn/reference.h"
#include "src/rnn/testing.h"

namespace planish {
namespace {

using internal::kCells;
using tests::ArrayName;
using tests::Given;
using tests::Kind;
using tests::kKinds;
using tests::kSomeKinds;
using tests::NameOf;
using tests::RnnProblem;
using tests::RnnResult;
using tests::Shaped;

// Odd sizes: every T to 7, every B to 5, and widths around those of vectors. They include one
// element in a norm, one row in a batch norm, and one step.
constexpr RnnShape kShapes[] = {{1, 1, 1, 1},   {1, 5, 3, 7},  {2, 4, 1, 3},   {2, 3, 17, 1},
                                {3, 2, 7, 16},  {3, 5, 16, 3}, {4, 1, 3, 17},  {4, 4, 7, 7},
                                {5, 3, 16, 16}, {6, 5, 1, 7},  {6, 2, 17, 17}, {7, 3, 3, 3}};

constexpr Given kGivens[] = {{.states = false},
                             {},
                             {.reverse = true},
                             {.lengths = true},
                             {.lengths = true, .reverse = true},
                             {.resets = true},
                             {.states = false, .resets = true, .reverse = true},
                             {.lengths = true, .resets = true},
                             {.lengths = true, .resets = true, .reverse = true}};

std::string Describe(Cell cell, const RnnShape& s, const Given& given = {}) {
  return std::string(NameOf(cell)) + " T " + std::to_string(s.time) + " B " +
         std::to_string(s.batch) + " I " + std::to_string(s.inputs) + " H " +
         std::to_string(s.hidden) + " O " + std::to_string(s.outputs()) + " N " +
         std::to_string(s.heads) + (given.states ? " states" : "") +
         (given.lengths ? " lengths" : "") + (given.resets ? " resets" : "") +
         (given.reverse ? " reverse" : "");
}

template <class T>
class RnnTest : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(RnnTest, Types);

// A step rounds by a few units of 2^-24 or 2^-53. A norm of two or three nearly equal elements, or
// over two sequences, multiplies errors by its rstd, in backward once more. The worst of these
// layers, five steps with norms of three elements, multiplies them by 2e4. Its float results differ
// by 4.1e-3 with the kernels' statistics without fused operations, and by 1.3e-3 even with
// statistics in double. Its double results differ by 2.3e-12.
template <class T>
constexpr double kTolerance = std::is_same_v<T, float> ? 8e-3 : 4e-12;

// A reference in double would lose as many digits as the kernels: its gradients differ by 1.3e-12
// with libstdc++'s complex functions, by 1.8e-12 with libc++'s.
template <class T>
using ReferenceOf = std::conditional_t<std::is_same_v<T, double>, long double, double>;

TYPED_TEST(RnnTest, ForwardMatchesTheReference) {
  using T = TypeParam;
  for (const auto& [cell, recurrence] : kKinds) {
    for (const RnnShape& shape : kShapes) {
      for (const Given& given : kGivens) {
        SCOPED_TRACE(Describe(cell, shape, given));
        const RnnProblem<T> p(cell, Shaped(shape, recurrence), given);
        RnnResult<T> out = tests::Unwritten(p);
        RnnForward<T>(cell, tests::ForwardArgs(p, out), p.Options());
        const auto exact = internal::ReferenceRnnForward(p.template Reference<ReferenceOf<T>>());
        EXPECT_LE(tests::Difference(out.y, exact.y), kTolerance<T>);
        EXPECT_LE(tests::Difference(out.h, exact.h), kTolerance<T>);
        EXPECT_LE(tests::Difference(out.c, exact.c), kTolerance<T>);
      }
    }
  }
}

// Checks every element of every gradient, in small layers.
TYPED_TEST(RnnTest, GradientsMatchTheComplexStep) {
  using T = TypeParam;
  for (const auto& [cell, recurrence] : kKinds) {
    for (const RnnShape& shape : {RnnShape{1, 1, 1, 1}, {3, 2, 2, 3}, {4, 4, 3, 2}, {5, 3, 1, 3}}) {
      for (const Given& given : kGivens) {
        SCOPED_TRACE(Describe(cell, shape, given));
        const RnnProblem<T> p(cell, Shaped(shape, recurrence), given);
        const RnnResult<T> out = tests::Apply(p, p.Options());
        using Real = ReferenceOf<T>;
        const auto reference = p.template Reference<Real>();
        const auto loss = p.template Loss<Real>();
        for (size_t a = 0; a < tests::kArrays; ++a) {
          std::vector<Real> exact;
          for (size_t i = 0; i < out.gradients[a].size(); ++i) {
            std::vector<Real> direction(out.gradients[a].size());
            direction[i] = 1;
            exact.push_back(internal::ReferenceDerivative(reference, loss, a, direction));
          }
          EXPECT_LE(tests::Difference(out.gradients[a], exact), kTolerance<T>)
              << 'd' << ArrayName(a);
        }
      }
    }
  }
}

/// Returns the gradient along `direction`, divided by its largest possible value.
template <class T, class Real>
Real Along(const std::vector<T>& gradient, const std::vector<Real>& direction) {
  Real sum = 0;
  for (size_t i = 0; i < gradient.size(); ++i) sum += static_cast<Real>(gradient[i]) * direction[i];
  return sum;
}

/// Returns the largest difference between a gradient and the derivative along random directions,
/// divided by the length of the gradient.
template <class Real, class T>
double WorstAlongDirections(const RnnProblem<T>& p, const RnnResult<T>& out, std::string* where) {
  const auto reference = p.template Reference<Real>();
  const auto loss = p.template Loss<Real>();
  std::mt19937 random(7);
  double worst = 0;
  for (size_t a = 0; a < tests::kArrays; ++a) {
    const std::vector<T>& gradient = out.gradients[a];
    if (gradient.empty()) continue;
    double length = 0.1;
    for (const T g : gradient) length = std::hypot(length, static_cast<double>(g));
    const auto n = static_cast<int64_t>(gradient.size());
    const std::vector<double> normal = tests::Normal<double>(n, random);
    const std::vector<Real> direction(normal.begin(), normal.end());
    const Real exact = internal::ReferenceDerivative(reference, loss, a, direction);
    const auto difference =
        static_cast<double>(std::abs(Along(gradient, direction) - exact)) / length;
    if (!(difference <= worst)) worst = difference, *where = ArrayName(a);
  }
  return worst;
}

TYPED_TEST(RnnTest, GradientsMatchAlongDirections) {
  using T = TypeParam;
  for (const auto& [cell, recurrence] : kKinds) {
    size_t i = 0;
    for (const RnnShape& shape : kShapes) {
      for (int twice = 0; twice < 2; ++twice) {
        const Given& given = kGivens[i++ % std::size(kGivens)];
        const RnnProblem<T> p(cell, Shaped(shape, recurrence), given);
        std::string where;
        const double worst =
            WorstAlongDirections<ReferenceOf<T>>(p, tests::Apply(p, p.Options()), &where);
        EXPECT_LE(worst, kTolerance<T>) << Describe(cell, shape, given) << ": d" << where;
      }
    }
  }
}

// 500 steps, over which an error in the equations would accumulate. The gains of the state are as
// small as in a trained layer. With gains of 1 an LN-LSTM is chaotic, and amplifies 1e-16 to order
// 1.
TEST(RnnDeepTest, MatchesTheReference) {
  constexpr double kDeep = 1e-11;  // 500 steps of a few 1e-16 each, some times rstd, about 10
  for (const auto& [cell, recurrence] : kKinds) {
    for (const double hidden_gain : {0.1, 0.3}) {
      const RnnProblem<double> p(cell, Shaped(RnnShape{500, 4, 3, 7}, recurrence),
                                 {.reverse = hidden_gain == 0.3}, hidden_gain);
      const RnnResult<double> out = tests::Apply(p, p.Options());
      const auto exact = internal::ReferenceRnnForward(p.Reference());
      EXPECT_LE(tests::Difference(out.y, exact.y), kDeep) << NameOf(cell);
      std::string where;
      const double worst = WorstAlongDirections<double>(p, out, &where);
      EXPECT_LE(worst, kDeep) << NameOf(cell) << ": d" << where;
    }
  }
}

/// 5 units with padding.
template <class T>
constexpr size_t kPadded = std::is_same_v<T, float> ? 16 : 8;

// --- Bitwise equality ---

// 50 steps of 70 sequences are 7 segments of 8 steps, the last shorter; 16 groups of 4 or 5
// sequences.
constexpr RnnShape kSmall = {50, 70, 3, 5};
// Like kSmall, with enough work for every thread.
constexpr RnnShape kLarge = {50, 70, 3, 60};

TYPED_TEST(RnnTest, SameBitsForAnyNumberOfThreads) {
  using T = TypeParam;
  for (const auto& [cell, recurrence] : kSomeKinds) {
    for (const Given& given : {Given{}, Given{.lengths = true, .resets = true, .reverse = true}}) {
      const RnnProblem<T> p(cell, Shaped(kLarge, recurrence), given);
      const RnnResult<T> expected = tests::Apply(p, p.Options(SerialFor));
      for (const int parts : tests::ThreadCounts()) {
        EXPECT_EQ(tests::Apply(p, p.Options(tests::OnThreads(parts))).DiffersIn(expected), "")
            << NameOf(cell) << " on " << parts << " threads";
      }
      int calls = 0;
      EXPECT_EQ(tests::Apply(p, p.Options(tests::SplitIn(7, &calls))).DiffersIn(expected), "");
      EXPECT_GT(calls, 0);
    }
  }
}

/// Makes weights of up to `bytes` count as fitting a thread's own cache.
class OwnWeights {
 public:
  explicit OwnWeights(int64_t bytes)
      : tuning_(internal::TuningFor(internal::MachineCaches(),
                                    "own_weight_bytes=" + std::to_string(bytes))) {}

 private:
  internal::ScopedTuning tuning_;
};

// Weights too large for one thread's cache: threads split the columns of a step's matrix product,
// and the sequences of the rest.
TYPED_TEST(RnnTest, SameBitsForSharedWeights) {
  using T = TypeParam;
  constexpr RnnShape kWide = {5, 30, 3, 144};
  for (const auto& [cell, recurrence] : kSomeKinds) {
    for (const Given& given : {Given{}, Given{.lengths = true, .resets = true, .reverse = true}}) {
      const RnnProblem<T> p(cell, Shaped(kWide, recurrence), given);
      const auto apply = [&](int64_t own, const ParallelFor& parallel_for, bool checkpoint) {
        const OwnWeights set(own);
        RnnOptions<T> options = p.Options(parallel_for);
        options.checkpoint = checkpoint;
        return tests::Apply(p, options);
      };
      const RnnResult<T> expected = apply(INT64_MAX, SerialFor, false);
      for (const int parts : tests::ThreadCounts()) {
        for (const bool checkpoint : {false, true}) {
          EXPECT_EQ(apply(0, tests::OnThreads(parts), checkpoint).DiffersIn(expected), "")
              << NameOf(cell) << " on " << parts << " threads";
        }
      }
      int own = 0, shared = 0;
      EXPECT_EQ(apply(INT64_MAX, tests::SplitIn(7, &own), false).DiffersIn(expected), "");
      EXPECT_EQ(apply(0, tests::SplitIn(7, &shared), false).DiffersIn(expected), "");
      // Threads synchronize at least once more in each of five steps, forward and backward. Over
      // the batch they synchronize at every step anyway, and lengths can leave too few sequences to
      // split.
      if (internal::RecipeOf(cell).over == internal::Over::kRow && !given.lengths) {
        EXPECT_GE(shared, own + 2 * 5 - 2) << NameOf(cell);
      }
    }
  }
}

// Non-temporal stores of `saved`, which need an aligned address, do not change y, gradients or
// `saved`.
TYPED_TEST(RnnTest, SameBitsWithNtStores) {
  using T = TypeParam;
  constexpr int64_t kLine = 64 / sizeof(T);
  constexpr RnnShape kShape = {5, 30, 3, 21};
  tests::ForEachTarget([&](const std::string& target) {
    for (const auto& [cell, recurrence] : kSomeKinds) {
      for (const Given& given :
           {Given{}, Given{.lengths = true, .resets = true, .reverse = true}}) {
        const RnnProblem<T> p(cell, Shaped(kShape, recurrence), given);
        const auto apply = [&](const ParallelFor& parallel_for, int64_t offset) {
          RnnResult<T> out = tests::Unwritten(p);
          const auto size = std::ssize(out.saved);
          std::vector<T> room(static_cast<size_t>(size + 2 * kLine), tests::Unset<T>());
          const auto begin = reinterpret_cast<uintptr_t>(room.data()) / sizeof(T) % kLine;
          T* const saved = room.data() + (kLine - static_cast<int64_t>(begin)) % kLine + offset;
          RnnForwardArgs<T> forward = tests::ForwardArgs(p, out);
          RnnBackwardArgs<T> backward = tests::BackwardArgs(p, out);
          forward.saved = saved;
          backward.saved = saved;
          RnnForward<T>(cell, forward, p.Options(parallel_for));
          RnnBackward<T>(cell, backward, p.Options(parallel_for));
          std::copy_n(saved, size, out.saved.begin());
          return out;
        };
        const RnnResult<T> expected = apply(SerialFor, 0);
        const tests::NtStores nt_stores;
        for (const int64_t offset : {0, 1}) {
          const RnnResult<T> out = apply(tests::OnThreads(3), offset);
          EXPECT_EQ(out.DiffersIn(expected), "") << NameOf(cell) << " " << target;
          EXPECT_TRUE(tests::SameBits(out.saved, expected.saved)) << NameOf(cell) << " " << target;
        }
      }
    }
  });
}

// A thread's cached workspace can contain data of an earlier, larger call.
TEST(RnnSharedWeightsTest, AreNotThoseOfACallBefore) {
  const RnnProblem<float> small(Cell::kLnLstm, {5, 30, 3, 130}),
      large(Cell::kLnLstm, {1, 8, 3, 400});
  const OwnWeights set(4 * 160 * 160 * static_cast<int64_t>(sizeof(float)));
  int before = 0, after = 0;
  tests::Apply(small, small.Options(tests::SplitIn(3, &before)));
  tests::Apply(large, large.Options());
  tests::Apply(small, small.Options(tests::SplitIn(3, &after)));
  EXPECT_EQ(before, after);
}

// With few sequences, threads split the columns of a step's matrix product.
TYPED_TEST(RnnTest, SameBitsForFewSequences) {
  using T = TypeParam;
  for (const Cell cell : {Cell::kRnn, Cell::kLstm, Cell::kLnLstm, Cell::kLnLstmContrib,
                          Cell::kLnGru, Cell::kBnLstm}) {
    for (const int64_t batch : {1, 3}) {
      const RnnProblem<T> p(cell, {3, batch, 5, 610}, {.lengths = true});
      int calls = 0;
      const RnnResult<T> expected = tests::Apply(p, p.Options(SerialFor));
      EXPECT_EQ(tests::Apply(p, p.Options(tests::SplitIn(7, &calls))).DiffersIn(expected), "")
          << NameOf(cell);
      EXPECT_GT(calls, 0) << NameOf(cell);
      // A sequence does not depend on the others.
      if (batch == 1 || internal::RecipeOf(cell).over == internal::Over::kBatch) continue;
      RnnProblem<T> alone(cell, {3, 1, 5, 610});
      alone.layer = p.layer;
      alone.layer.shape.batch = 1;
      alone.layer.lengths.resize(1);
      const auto first = [&](std::vector<T>& values, int64_t width) {
        std::vector<T> of_one;
        for (int64_t t = 0; t < static_cast<int64_t>(values.size()) / width / batch; ++t) {
          const auto begin = values.begin() + t * batch * width;
          of_one.insert(of_one.end(), begin, begin + width);
        }
        values = of_one;
      };
      first(alone.layer.x, 5);
      first(alone.layer.h0, 610);
      first(alone.layer.c0, 610);
      RnnResult<T> out = tests::Unwritten(alone);
      RnnForward<T>(cell, tests::ForwardArgs(alone, out), alone.Options());
      for (int64_t k = 0; k < 610; ++k) {
        ASSERT_EQ(out.h[static_cast<size_t>(k)], expected.h[static_cast<size_t>(k)])
            << NameOf(cell);
      }
    }
  }
}

TYPED_TEST(RnnTest, CheckpointsGiveTheSameBits) {
  using T = TypeParam;
  for (const auto& [cell, recurrence] : kKinds) {
    for (const Given& given : kGivens) {
      const RnnProblem<T> p(cell, Shaped(kSmall, recurrence), given);
      RnnOptions<T> options = p.Options();
      const RnnResult<T> expected = tests::Apply(p, options);
      options.checkpoint = true;
      const RnnResult<T> out = tests::Apply(p, options);
      EXPECT_EQ(out.DiffersIn(expected), "") << Describe(cell, kSmall, given);
      // c of 7 segments instead of the gates and more of 50 steps.
      const auto parts = static_cast<size_t>(internal::RecipeOf(cell).cell_parts());
      EXPECT_EQ(out.saved.size(), parts * 7 * 70 * kPadded<T>);
    }
  }
}

TEST(RnnSavedSizeTest, EqualsTheTableInTheHeader) {
  const RnnShape shape{7, 5, 3, 11};  // 35 steps; 11 is padded to 16
  const auto size = [&](Cell cell) { return RnnSavedSize<float>(cell, shape); };
  EXPECT_EQ(size(Cell::kRnn), 0);
  EXPECT_EQ(size(Cell::kRnnRelu), 0);
  EXPECT_EQ(size(Cell::kLnRnn), 35 * 17);
  EXPECT_EQ(size(Cell::kLnRnnRelu), 35 * 17);
  EXPECT_EQ(size(Cell::kGru), 35 * 4 * 16);
  EXPECT_EQ(size(Cell::kLnGru), 35 * (10 * 16 + 4));
  EXPECT_EQ(size(Cell::kLnGruHaste), 35 * (10 * 16 + 2));
  EXPECT_EQ(size(Cell::kLnGruDreamer), 35 * (7 * 16 + 1));
  EXPECT_EQ(size(Cell::kLstm), 35 * 6 * 16);
  EXPECT_EQ(size(Cell::kSlstm), 35 * 6 * 16);
  EXPECT_EQ(size(Cell::kDrawLstm), 35 * (6 * 16 + 3));
  EXPECT_EQ(size(Cell::kLnLstmContrib), 35 * (10 * 16 + 7));
  EXPECT_EQ(size(Cell::kLnLstmTflite), 35 * (10 * 16 + 4));
  EXPECT_EQ(size(Cell::kLnLstmTorchaudio), 35 * (10 * 16 + 4));
  for (const Cell cell :
       {Cell::kLnLstm, Cell::kLnLstmHaste, Cell::kLnLstmFastRnns, Cell::kLnLstmTfa}) {
    EXPECT_EQ(size(cell), 35 * (14 * 16 + 5)) << NameOf(cell);
  }
  EXPECT_EQ(size(Cell::kBnRnn), 35 * 16 + 7 * 16);
  EXPECT_EQ(size(Cell::kBnLstm), 35 * 15 * 16 + 7 * 9 * 16);
  EXPECT_EQ(size(Cell::kBnGru), 35 * 10 * 16 + 7 * 6 * 16);
  EXPECT_EQ(RnnSavedSize<double>(Cell::kLnLstm, {0, 5, 3, 11}), 0);
  EXPECT_EQ(RnnSavedSize<double>(Cell::kLnLstm, {7, 0, 3, 11}), 0);
  EXPECT_EQ(RnnSavedSize<double>(Cell::kLnLstm, {1, 1, 3, 8}), 14 * 8 + 5);
  // S is 52: 10 segments of 500 steps, each with B * P elements.
  EXPECT_EQ(RnnSavedSize<double>(Cell::kLnLstm, {500, 5, 3, 11}, true), 10 * 5 * 16);
  // S is 32, more than 256 rows' 4.
  EXPECT_EQ(RnnSavedSize<double>(Cell::kLstm, {1000, 64, 3, 11}, true), 32 * 64 * 16);
}

// This includes steps past a sequence's length, and units after the last vector, which only some
// SIMD targets have.
TYPED_TEST(RnnTest, AllThatIsSavedIsWritten) {
  using T = TypeParam;
  const auto check = [](const Kind& kind, const RnnShape& shape, bool lengths, bool checkpoint) {
    const auto& [cell, recurrence] = kind;
    RnnProblem<T> p(cell, Shaped(shape, recurrence), {.lengths = lengths});
    // The layer also has steps that no sequence has.
    for (int64_t& length : p.layer.lengths) length = std::max<int64_t>(1, length - 1);
    RnnResult<T> out = tests::Unwritten(p, checkpoint);
    RnnOptions<T> options = p.Options();
    options.checkpoint = checkpoint;
    RnnForward<T>(cell, tests::ForwardArgs(p, out), options);
    const auto unwritten =
        std::find_if(out.saved.begin(), out.saved.end(), [](T value) { return std::isnan(value); });
    EXPECT_EQ(unwritten - out.saved.begin(), std::ssize(out.saved))
        << Describe(cell, shape, {.lengths = lengths}) << (checkpoint ? " checkpoint " : " ")
        << Target();
  };
  tests::ForEachTarget([&](const std::string& /*target*/) {
    for (const Kind& kind : kKinds) {
      for (const RnnShape& shape : kShapes) {
        check(kind, shape, false, false);
        check(kind, shape, true, false);
        check(kind, shape, true, true);
      }
    }
  });
}

TYPED_TEST(RnnTest, NothingSavedGivesTheSameBits) {
  using T = TypeParam;
  for (const auto& [cell, recurrence] : kKinds) {
    const RnnProblem<T> p(cell, Shaped(kSmall, recurrence), {.lengths = true, .resets = true});
    RnnResult<T> expected = tests::Unwritten(p), out = tests::Unwritten(p);
    RnnForward<T>(cell, tests::ForwardArgs(p, expected), p.Options());
    auto args = tests::ForwardArgs(p, out);
    args.saved = nullptr;
    RnnForward<T>(cell, args, p.Options());
    EXPECT_EQ(out.DiffersIn(expected), "") << NameOf(cell);
  }
}

TYPED_TEST(RnnTest, StepsGiveTheSameBits) {
  using T = TypeParam;
  for (const auto& [cell, recurrence] : kKinds) {
    if (internal::RecipeOf(cell).over == internal::Over::kBatch) continue;
    for (const bool in_place : {false, true}) {
      const RnnProblem<T> p(cell, Shaped(RnnShape{7, 5, 3, 17}, recurrence));
      RnnResult<T> expected = tests::Unwritten(p), out = tests::Unwritten(p);
      RnnForward<T>(cell, tests::ForwardArgs(p, expected), p.Options());
      const bool lstm = internal::RecipeOf(cell).is_lstm();
      std::vector<T> h = p.layer.h0, c = p.layer.c0, h_next(h), c_next(c);
      const size_t inputs = 5 * 3, states = h.size();
      for (size_t t = 0; t < 7; ++t) {
        RnnStepArgs<T> args{.batch = 5, .inputs = 3, .hidden = 17};
        args.projected = p.layer.shape.projected;
        args.heads = p.layer.shape.heads;
        args.x = p.layer.x.data() + t * inputs;
        args.params = p.Inputs().params;
        args.h = h.data();
        args.h_next = in_place ? h.data() : h_next.data();
        if (lstm) args.c = c.data(), args.c_next = in_place ? c.data() : c_next.data();
        RnnStep<T>(cell, args, p.Options());
        if (!in_place) h = h_next, c = c_next;
        std::copy(h.begin(), h.end(), out.y.begin() + static_cast<std::ptrdiff_t>(t * states));
      }
      out.h = h;
      out.c = c;
      EXPECT_TRUE(tests::SameBits(out.y, expected.y)) << NameOf(cell);
      EXPECT_TRUE(tests::SameBits(out.h, expected.h)) << NameOf(cell);
      EXPECT_TRUE(tests::SameBits(out.c, expected.c)) << NameOf(cell);
    }
  }
}

// A step with zero initial states, whose c is not requested.
TEST(RnnStepTest, StatesAreOptional) {
  const RnnProblem<float> p(Cell::kLnLstm, {1, 2, 3, 5}, {.states = false});
  RnnResult<float> expected = tests::Unwritten(p);
  RnnForward<float>(Cell::kLnLstm, tests::ForwardArgs(p, expected), p.Options());
  std::vector<float> h(10);
  RnnStepArgs<float> args{.batch = 2, .inputs = 3, .hidden = 5};
  args.x = p.layer.x.data();
  args.params = p.Inputs().params;
  args.h_next = h.data();
  RnnStep<float>(Cell::kLnLstm, args, p.Options());
  EXPECT_TRUE(tests::SameBits(h, expected.y));
}

// --- Packed weights ---

template <class T>
RnnPackedParams<T> Pack(const RnnProblem<T>& p, const ParallelFor& parallel_for = {},
                        bool backward = false) {
  const RnnShape& s = p.layer.shape;
  return RnnPackedParams<T>(p.layer.cell, s.inputs, s.hidden, p.Inputs().params, parallel_for,
                            backward, s.projected, s.heads);
}

TYPED_TEST(RnnTest, PackedParametersGiveTheSameBits) {
  using T = TypeParam;
  for (const auto& [cell, recurrence] : kKinds) {
    const RnnProblem<T> p(cell, Shaped(RnnShape{7, 5, 3, 17}, recurrence),
                          {.lengths = true, .resets = true});
    RnnResult<T> expected = tests::Unwritten(p), out = tests::Unwritten(p);
    RnnForward<T>(cell, tests::ForwardArgs(p, expected), p.Options());
    RnnOptions<T> options = p.Options();
    options.packed = Pack(p);
    auto args = tests::ForwardArgs(p, out);
    args.inputs.params = {};
    RnnForward<T>(cell, args, options);
    EXPECT_EQ(out.DiffersIn(expected), "") << NameOf(cell);
  }
}

// Packed weights keep the SIMD target that they were packed for.
TEST(RnnPackedParamsTest, KeepTheirSimdTarget) {
  const std::string before = Target();
  tests::ForEachTarget([&](const std::string& target) {
    const RnnProblem<float> p(Cell::kLnGru, {1, 3, 5, 21}, {.states = false});
    RnnResult<float> expected = tests::Unwritten(p), out = tests::Unwritten(p);
    RnnForward<float>(Cell::kLnGru, tests::ForwardArgs(p, expected), p.Options());
    RnnOptions<float> options = p.Options();
    options.packed = RnnPackedParams<float>(Cell::kLnGru, 5, 21, p.Inputs().params);
    SetTarget(before);
    RnnForward<float>(Cell::kLnGru, tests::ForwardArgs(p, out), options);
    EXPECT_EQ(out.DiffersIn(expected), "") << target;
  });
}

TYPED_TEST(RnnTest, PackedParametersGiveTheSameGradients) {
  using T = TypeParam;
  for (const auto& [cell, recurrence] : kKinds) {
    const RnnProblem<T> p(cell, Shaped(RnnShape{7, 5, 3, 17}, recurrence),
                          {.lengths = true, .resets = true});
    for (const bool checkpoint : {false, true}) {
      RnnOptions<T> options = p.Options();
      options.checkpoint = checkpoint;
      const RnnResult<T> expected = tests::Apply(p, options);
      options.packed = Pack(p, {}, true);
      RnnResult<T> out = tests::Unwritten(p, checkpoint);
      RnnForward<T>(cell, tests::ForwardArgs(p, out), options);
      auto args = tests::BackwardArgs(p, out);
      args.inputs.params = {};
      RnnBackward<T>(cell, args, options);
      EXPECT_EQ(out.DiffersIn(expected), "") << NameOf(cell);
    }
  }
}

// --- RnnGradientSums ---

template <class T>
void Write(const RnnProblem<T>& p, RnnGradientSums<T>& sums, const RnnOptions<T>& options,
           RnnResult<T>& out) {
  sums.Write(tests::BackwardArgs(p, out).dparams, options.parallel_for);
}

/// Computes a layer in pieces of `steps` steps, each with its own calls, forward and then backward.
/// options.packed has its parameters. States are given; lengths and resets are not.
template <class T>
RnnResult<T> InPieces(const RnnProblem<T>& p, const RnnOptions<T>& options, int64_t steps) {
  const RnnShape& s = p.layer.shape;
  const int64_t inputs = s.batch * s.inputs, states = s.batch * s.outputs();
  const bool lstm = internal::RecipeOf(p.layer.cell).is_lstm();
  RnnResult<T> out = tests::Unwritten(p);
  struct Piece {
    RnnInputs<T> inputs;
    std::vector<T> h0, c0, saved;
    int64_t first;
  };
  std::vector<Piece> pieces;
  out.h = p.layer.h0;
  out.c = p.layer.c0;
  for (int64_t t = 0; t < s.time; t += steps) {
    pieces.push_back({.inputs = p.Inputs(), .h0 = out.h, .c0 = out.c, .saved = {}, .first = t});
    Piece& piece = pieces.back();
    piece.inputs.params = {};
    piece.inputs.shape.time = std::min(steps, s.time - t);
    piece.inputs.x += t * inputs;
    piece.inputs.h0 = piece.h0.data();
    if (lstm) piece.inputs.c0 = piece.c0.data();
    piece.saved.resize(static_cast<size_t>(RnnSavedSize<T>(p.layer.cell, piece.inputs.shape)));
    RnnForward<T>(p.layer.cell,
                  {piece.inputs, out.y.data() + t * states, out.h.data(), tests::OutOrNull(out.c),
                   tests::OutOrNull(piece.saved)},
                  options);
  }
  RnnGradientSums<T> sums(options.packed);
  std::vector<T> dh = p.loss.h, dc = p.loss.c;
  for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) {
    const std::vector<T> dh_n = dh, dc_n = dc;
    RnnBackwardArgs<T> args{.inputs = piece->inputs};
    args.y = out.y.data() + piece->first * states;
    args.saved = tests::OrNull(piece->saved);
    args.dy = p.loss.y.data() + piece->first * states;
    args.dh_n = dh_n.data();
    args.dc_n = tests::OrNull(dc_n);
    args.dx = out.gradients[tests::kX].data() + piece->first * inputs;
    args.dh0 = dh.data();
    args.dc0 = tests::OutOrNull(dc);
    args.sums = &sums;
    RnnBackward<T>(p.layer.cell, args, options);
    // The sums must keep copies of their rows.
    std::fill(piece->h0.begin(), piece->h0.end(), tests::Unset<T>());
  }
  out.gradients[tests::kH0] = dh;
  out.gradients[tests::kC0] = dc;
  Write(p, sums, options, out);
  return out;
}

template <class T>
RnnOptions<T> PackedForBoth(const RnnProblem<T>& p, const ParallelFor& parallel_for = {}) {
  RnnOptions<T> options = p.Options(parallel_for);
  options.packed = Pack(p, parallel_for, /*backward=*/true);
  return options;
}

// Fewer than 256 rows, or a multiple of a segment's rows, are summed as in RnnBackward.
TYPED_TEST(RnnTest, SumsOfStepsGiveTheSameBits) {
  using T = TypeParam;
  for (const auto& [cell, recurrence] : kKinds) {
    for (const RnnShape& shape : {RnnShape{7, 5, 3, 17}, {104, 5, 2, 3}, {1, 300, 1, 2}}) {
      SCOPED_TRACE(Describe(cell, shape));
      const RnnProblem<T> p(cell, Shaped(shape, recurrence));
      const RnnResult<T> expected = tests::Apply(p, p.Options());
      EXPECT_EQ(InPieces(p, PackedForBoth(p), 1).DiffersIn(expected), "");
      EXPECT_EQ(InPieces(p, PackedForBoth(p, tests::OnThreads(3)), 1).DiffersIn(expected), "");
    }
    const RnnProblem<T> p(cell, Shaped(RnnShape{7, 5, 3, 17}, recurrence));
    EXPECT_EQ(InPieces(p, PackedForBoth(p), 3).DiffersIn(tests::Apply(p, p.Options())), "");
  }
}

// Segments that differ from those of RnnBackward, of one and of several steps: a few hundred terms
// are summed in another order. The states have the same bits.
TYPED_TEST(RnnTest, SumsOfPiecesAreTheSequences) {
  using T = TypeParam;
  for (const auto& [cell, recurrence] : kKinds) {
    const RnnProblem<T> p(cell, Shaped(RnnShape{71, 5, 3, 7}, recurrence));
    const RnnResult<T> expected = tests::Apply(p, p.Options());
    for (const int64_t steps : {1, 20, 60}) {
      const RnnResult<T> out = InPieces(p, PackedForBoth(p), steps);
      EXPECT_TRUE(tests::SameBits(out.y, expected.y)) << NameOf(cell);
      for (size_t a = 0; a < tests::kArrays; ++a) {
        const std::vector<T>& of_sequence = expected.gradients[a];
        EXPECT_LE(tests::Difference(out.gradients[a], {of_sequence.begin(), of_sequence.end()}),
                  64 * std::numeric_limits<T>::epsilon())
            << NameOf(cell) << " d" << ArrayName(a) << " steps " << steps;
      }
    }
  }
}

// Calls with different numbers of sequences, with lengths and resets, before and after a Write.
TYPED_TEST(RnnTest, SumsAreOfAllCalls) {
  using T = TypeParam;
  for (const auto& [cell, recurrence] : kKinds) {
    const RnnProblem<T> first(cell, Shaped(RnnShape{3, 2, 3, 7}, recurrence));
    const RnnOptions<T> options = PackedForBoth(first);
    RnnGradientSums<T> sums(options.packed);
    std::array<std::vector<double>, tests::kArrays> expected;
    for (const RnnShape& shape :
         {RnnShape{3, 2, 3, 7}, {2, 70, 3, 7}, {0, 2, 3, 7}, {5, 90, 3, 7}}) {
      const bool any = shape.time > 0;
      RnnProblem<T> p(cell, Shaped(shape, recurrence), {.lengths = any, .resets = any}, 1, 3);
      for (size_t a = tests::kFirstParam; a < tests::kArrays; ++a) {
        const auto member = internal::kReferenceArrays<T>[a].member;
        p.layer.*member = first.layer.*member;
      }
      const RnnResult<T> alone = tests::Apply(p, p.Options());
      RnnResult<T> out = tests::Unwritten(p);
      RnnForward<T>(cell, tests::ForwardArgs(p, out), options);
      auto args = tests::BackwardArgs(p, out);
      args.dparams = {};
      args.sums = &sums;
      RnnBackward<T>(cell, args, options);
      Write(p, sums, options, out);
      for (size_t a = 0; a < tests::kArrays; ++a) {
        SCOPED_TRACE(std::string(NameOf(cell)) + " d" + ArrayName(a));
        const std::vector<T>& of_one = alone.gradients[a];
        if (a < tests::kFirstParam) {
          EXPECT_TRUE(tests::SameBits(out.gradients[a], of_one));
          continue;
        }
        expected[a].resize(of_one.size());
        for (size_t i = 0; i < of_one.size(); ++i) {
          expected[a][i] += static_cast<double>(of_one[i]);
        }
        // 600 rows, summed in two orders.
        EXPECT_LE(tests::Difference(out.gradients[a], expected[a]),
                  64 * std::numeric_limits<T>::epsilon());
      }
    }
  }
}

TEST(RnnGradientSumsTest, StartAtZero) {
  const RnnProblem<float> p(Cell::kLnLstm, {1, 2, 3, 4});
  const RnnOptions<float> options = PackedForBoth(p);
  RnnGradientSums<float> sums(options.packed);
  RnnResult<float> out = tests::Unwritten(p);
  Write(p, sums, options, out);
  for (size_t a = tests::kFirstParam; a < tests::kArrays; ++a) {
    EXPECT_EQ(out.gradients[a], std::vector<float>(out.gradients[a].size())) << ArrayName(a);
  }
}

// --- NaN, padding, empty layers ---

template <class T>
bool RowsSame(const std::vector<T>& a, const std::vector<T>& b, int64_t batch, int64_t width,
              int64_t but) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (static_cast<int64_t>(i) / width % batch == but) continue;
    if (std::memcmp(&a[i], &b[i], sizeof(T)) != 0) return false;
  }
  return true;
}

TYPED_TEST(RnnTest, NanStaysInItsSequence) {
  using T = TypeParam;
  constexpr RnnShape kShape = {5, 4, 3, 7};
  for (const auto& [cell, recurrence] : kKinds) {
    if (internal::RecipeOf(cell).over == internal::Over::kBatch) continue;
    RnnProblem<T> p(cell, Shaped(kShape, recurrence));
    const RnnResult<T> expected = tests::Apply(p, p.Options());
    p.layer.x[(1 * 4 + 2) * 3 + 1] = tests::Unset<T>();  // step 1 of sequence 2
    const RnnResult<T> out = tests::Apply(p, p.Options());
    const int64_t outputs = p.layer.shape.outputs();
    EXPECT_TRUE(RowsSame(out.y, expected.y, 4, outputs, 2)) << NameOf(cell);
    EXPECT_TRUE(RowsSame(out.h, expected.h, 4, outputs, 2)) << NameOf(cell);
    EXPECT_TRUE(RowsSame(out.c, expected.c, 4, 7 * internal::RecipeOf(cell).cell_parts(), 2))
        << NameOf(cell);
    EXPECT_TRUE(RowsSame(out.gradients[tests::kX], expected.gradients[tests::kX], 4, 3, 2));
    EXPECT_TRUE(RowsSame(out.gradients[tests::kH0], expected.gradients[tests::kH0], 4, outputs, 2));
    const auto width = static_cast<size_t>(outputs), at = (1 * 4 + 2) * width;
    for (size_t k = 0; k < width; ++k) {
      EXPECT_EQ(out.y[at - 4 * width + k], expected.y[at - 4 * width + k]) << "before it";
      EXPECT_TRUE(std::isnan(out.y[at + k])) << NameOf(cell);
      EXPECT_TRUE(std::isnan(out.h[2 * width + k])) << NameOf(cell);
    }
  }
}

// In cells with plain sums an infinite input acts like a huge one: the gates are at their limits
// and have gradients of 0. Excludes gradients of weight_ih, which are 0 * infinity.
TYPED_TEST(RnnTest, AnInfiniteInputActsLikeAHugeOne) {
  using T = TypeParam;
  for (const Cell cell : {Cell::kRnn, Cell::kLstm, Cell::kGru, Cell::kDrawLstm}) {
    RnnProblem<T> p(cell, {3, 2, 3, 5});
    p.layer.x[(1 * 2 + 1) * 3] = T(1e30);
    RnnResult<T> expected = tests::Apply(p, p.Options());
    p.layer.x[(1 * 2 + 1) * 3] = std::numeric_limits<T>::infinity();
    RnnResult<T> out = tests::Apply(p, p.Options());
    expected.gradients[tests::kFirstParam].clear();
    out.gradients[tests::kFirstParam].clear();
    EXPECT_EQ(out.DiffersIn(expected), "") << NameOf(cell);
  }
}

// A reset replaces the state, so NaN does not pass it, forward or backward.
TYPED_TEST(RnnTest, NanEndsAtAReset) {
  using T = TypeParam;
  for (const auto& [cell, recurrence] : kKinds) {
    RnnProblem<T> p(cell, Shaped(RnnShape{4, 3, 3, 5}, recurrence), {.resets = true});
    std::fill(p.layer.resets.begin(), p.layer.resets.end(), uint8_t{0});
    std::fill_n(p.layer.resets.begin() + 2 * 3, 3, uint8_t{1});  // all before step 2
    const RnnResult<T> expected = tests::Apply(p, p.Options());
    RnnProblem<T> forward = p, backward = p;
    std::fill_n(forward.layer.x.begin(), 2 * 3 * 3, tests::Unset<T>());
    const RnnResult<T> after = tests::Apply(forward, p.Options());
    const auto from = static_cast<std::ptrdiff_t>(2 * 3 * p.layer.shape.outputs());
    EXPECT_TRUE(std::equal(after.y.begin() + from, after.y.end(), expected.y.begin() + from));
    EXPECT_EQ(after.h, expected.h) << NameOf(cell);
    std::fill(backward.loss.y.begin() + from, backward.loss.y.end(), tests::Unset<T>());
    const RnnResult<T> before = tests::Apply(backward, p.Options());
    for (const T d : before.gradients[tests::kH0]) EXPECT_FALSE(std::isnan(d)) << NameOf(cell);
  }
}

// Past the length of a sequence, inputs are not read.
TYPED_TEST(RnnTest, PaddingDoesNotMatter) {
  using T = TypeParam;
  for (const auto& [cell, recurrence] : kKinds) {
    for (const bool reverse : {false, true}) {
      RnnProblem<T> p(cell, Shaped(RnnShape{5, 4, 3, 7}, recurrence),
                      {.lengths = true, .reverse = reverse});
      p.layer.lengths = {3, 5, 1, 5};
      const RnnResult<T> expected = tests::Apply(p, p.Options());
      for (const size_t b : {0, 2}) {
        for (auto t = static_cast<size_t>(p.layer.lengths[b]); t < 5; ++t) {
          std::fill_n(p.layer.x.begin() + static_cast<std::ptrdiff_t>((t * 4 + b) * 3), 3,
                      tests::Unset<T>());
          const auto outputs = static_cast<size_t>(p.layer.shape.outputs());
          std::fill_n(p.loss.y.begin() + static_cast<std::ptrdiff_t>((t * 4 + b) * outputs),
                      outputs, tests::Unset<T>());
        }
      }
      EXPECT_EQ(tests::Apply(p, p.Options()).DiffersIn(expected), "") << NameOf(cell);
    }
  }
}

TYPED_TEST(RnnTest, NoSteps) {
  using T = TypeParam;
  for (const auto& [cell, recurrence] : kKinds) {
    for (const bool checkpoint : {false, true}) {
      const RnnProblem<T> p(cell, Shaped(RnnShape{0, 3, 2, 5}, recurrence));
      RnnOptions<T> options = p.Options();
      options.checkpoint = checkpoint;
      const RnnResult<T> out = tests::Apply(p, options);
      EXPECT_EQ(out.h, p.layer.h0);
      EXPECT_EQ(out.c, p.layer.c0);
      EXPECT_EQ(out.gradients[tests::kH0], p.loss.h);
      EXPECT_EQ(out.gradients[tests::kC0], p.loss.c);
      for (size_t a = tests::kFirstParam; a < tests::kArrays; ++a) {
        for (const T d : out.gradients[a]) EXPECT_EQ(d, 0) << ArrayName(a);
      }
    }
  }
}

TYPED_TEST(RnnTest, NoSequences) {
  using T = TypeParam;
  for (const auto& [cell, recurrence] : kKinds) {
    for (const bool checkpoint : {false, true}) {
      const RnnProblem<T> p(cell, Shaped(RnnShape{3, 0, 2, 5}, recurrence), {.resets = true});
      RnnOptions<T> options = p.Options();
      options.checkpoint = checkpoint;
      const RnnResult<T> out = tests::Apply(p, options);
      for (size_t a = tests::kFirstParam; a < tests::kArrays; ++a) {
        for (const T d : out.gradients[a]) EXPECT_EQ(d, 0) << ArrayName(a);
      }
    }
  }
}

// --- Optional arguments ---

// Each gradient equals that of a call with all gradients; absent gradients of outputs are zeros.
TYPED_TEST(RnnTest, GradientsOneByOne) {
  using T = TypeParam;
  for (const auto& [cell, recurrence] : kKinds) {
    const RnnProblem<T> p(cell, Shaped(RnnShape{3, 4, 3, 5}, recurrence), {.resets = true});
    const RnnResult<T> expected = tests::Apply(p, p.Options());
    for (size_t a = 0; a < tests::kArrays; ++a) {
      if (expected.gradients[a].empty()) continue;
      RnnResult<T> out = expected;
      for (size_t other = 0; other < tests::kArrays; ++other) {
        if (other != a) out.gradients[other].clear();
      }
      std::fill(out.gradients[a].begin(), out.gradients[a].end(), tests::Unset<T>());
      RnnBackward<T>(cell, tests::BackwardArgs(p, out), p.Options());
      EXPECT_TRUE(tests::SameBits(out.gradients[a], expected.gradients[a]))
          << NameOf(cell) << " d" << ArrayName(a);
    }
  }
}

TYPED_TEST(RnnTest, LossOfSomeOutputs) {
  using T = TypeParam;
  for (const auto& [cell, recurrence] : kKinds) {
    const RnnProblem<T> p(cell, Shaped(RnnShape{3, 4, 3, 5}, recurrence));
    for (int which = 0; which < 3; ++which) {
      RnnProblem<T> zeros = p, nulls = p;
      auto& weights = which == 0 ? zeros.loss.y : which == 1 ? zeros.loss.h : zeros.loss.c;
      std::fill(weights.begin(), weights.end(), T{0});
      (which == 0 ? nulls.loss.y : which == 1 ? nulls.loss.h : nulls.loss.c).clear();
      const RnnResult<T> expected = tests::Apply(zeros, p.Options());
      const RnnResult<T> out = tests::Apply(nulls, p.Options());
      for (size_t a = 0; a < tests::kArrays; ++a) {
        // Equal values, not bits: adding 0 turns -0 into 0.
        EXPECT_EQ(out.gradients[a], expected.gradients[a]) << NameOf(cell) << " d" << ArrayName(a);
      }
    }
  }
}

// A null parameter is ones or zeros, and can still have a gradient.
TYPED_TEST(RnnTest, NullParameters) {
  using T = TypeParam;
  for (const auto& [cell, recurrence] : kKinds) {
    RnnProblem<T> written(cell, Shaped(RnnShape{3, 4, 3, 5}, recurrence)), null = written;
    for (size_t a = tests::kFirstParam + 2; a < tests::kArrays; ++a) {
      if (std::string(ArrayName(a)) == "weight_hr") continue;
      const auto member = internal::kReferenceArrays<T>[a].member;
      auto& values = written.layer.*member;
      std::fill(values.begin(), values.end(),
                std::string(ArrayName(a)).ends_with("_weight") ? T{1} : T{0});
      (null.layer.*member).clear();
    }
    EXPECT_EQ(
        tests::Apply(null, null.Options()).DiffersIn(tests::Apply(written, written.Options())), "")
        << NameOf(cell);
  }
}

// A mean that is large compared with the deviation costs no accuracy. The first input adds 8192 to
// all sums, the second multiples of 1/8, so sums are exact in float. The norm is accurate to a few
// units of 2^-24 times an rstd of about 1.
TEST(RnnExactnessTest, SumsWithALargeMean) {
  for (const Cell cell : internal::kCells) {
    const internal::CellRecipe recipe = internal::RecipeOf(cell);
    if (recipe.sums == internal::Sums::kPlain || recipe.over == internal::Over::kBatch) continue;
    RnnProblem<float> p(cell, {1, 3, 2, 16}, {.states = false});
    for (size_t i = 0; i < p.layer.x.size(); i += 2) {
      p.layer.x[i] = 8192;
      p.layer.x[i + 1] = std::round(p.layer.x[i + 1]) + 0.5f;
    }
    for (size_t i = 0; i < p.layer.weight_ih.size(); i += 2) {
      p.layer.weight_ih[i] = 1;
      p.layer.weight_ih[i + 1] = std::round(p.layer.weight_ih[i + 1] * 4) / 4;
    }
    RnnResult<float> out = tests::Unwritten(p);
    RnnForward<float>(cell, tests::ForwardArgs(p, out), p.Options());
    EXPECT_LE(tests::Difference(out.y, internal::ReferenceRnnForward(p.Reference()).y), 2e-6)
        << NameOf(cell);
  }
}

// For sums whose squares overflow or underflow float, the norm depends on their scale only through
// eps.
TEST(RnnExactnessTest, SumsOfEveryScale) {
  for (const Cell cell : internal::kCells) {
    const internal::CellRecipe recipe = internal::RecipeOf(cell);
    if (recipe.sums == internal::Sums::kPlain || recipe.over == internal::Over::kBatch) continue;
    for (const float scale : {1e-25f, 1e-16f, 1e-12f, 1e-3f, 1e9f, 1e17f, 1e25f, 1e35f}) {
      RnnProblem<float> p(cell, {1, 3, 2, 23}, {.states = false});
      for (float& w : p.layer.weight_ih) w *= scale;
      RnnResult<float> out = tests::Unwritten(p);
      RnnForward<float>(cell, tests::ForwardArgs(p, out), p.Options());
      EXPECT_LE(tests::Difference(out.y, internal::ReferenceRnnForward(p.Reference()).y), 2e-6)
          << NameOf(cell) << " times " << scale;
    }
  }
}

}  // namespace
}  // namespace planish
