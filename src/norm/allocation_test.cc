// A call that gets no memory writes nothing. A call that gets too little for every thread gives the
// same bits. Memory is refused from an allocation on, or for one allocation only.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "planish/batch_norm.h"
#include "planish/channel_norm.h"
#include "planish/norm.h"
#include "planish/online_norm.h"
#include "planish/weight_norm.h"
#include "src/base/allocation_hook.h"
#include "src/norm/channels/batch_norm_testing.h"
#include "src/norm/channels/channel_norm_testing.h"
#include "src/norm/gate_testing.h"
#include "src/norm/online/testing.h"
#include "src/norm/pointwise/testing.h"
#include "src/norm/testing.h"

namespace planish {
namespace {

using tests::EndsWithAllocations;
using tests::EndsWithoutAllocation;

class NormAllocationTest : public ::testing::Test {
 protected:
  NormAllocationTest() {
    SetThreads(3);
    DefaultParallelFor(0, 3, 1, [](int64_t, int64_t) {});  // starts the threads
  }
  ~NormAllocationTest() override { SetThreads(before_); }
  int before_ = Threads();
};

/// Calls f(out) with 0, 1, 2, ... allocations until all succeed. Each time `out` must be unchanged
/// or have the bits of a call with enough memory, which are returned.
template <class Result, class F>
Result WritesAllOrNothing(const Result& before, const F& f) {
  Result expected = before;
  const int start = tests::allocations;
  f(expected);
  const int needed = tests::allocations - start;
  EXPECT_GT(needed, 0) << "nothing is allocated";
  EXPECT_NE(before.DiffersIn(expected), "");
  int failures = 0;
  for (int count = 0; count <= needed; ++count) {
    for (const bool only_one : {false, true}) {
      Result out = before;
      const auto call = [&] { f(out); };
      const bool ended =
          only_one ? EndsWithoutAllocation(count, call) : EndsWithAllocations(count, call);
      failures += !ended;
      EXPECT_EQ((ended ? expected : before).DiffersIn(out), "")
          << (only_one ? "without allocation " : "after allocations: ") << count;
    }
  }
  EXPECT_GT(failures, 0);
  return expected;
}

/// Calls f with each element type: f.operator()<T, P>().
template <class F>
void ForEachType(const F& f) {
  f.template operator()<float, float>();
  f.template operator()<double, double>();
  f.template operator()<bfloat16, bfloat16>();
  f.template operator()<float16, float>();
}

/// Like WritesAllOrNothing, for calls that need memory for some norms and types only.
template <class Result, class F>
Result WritesAllOrNothingIfItAllocates(const Result& before, const F& f) {
  Result out = before;
  f(out);  // the first call of a program allocates for its settings
  const int start = tests::allocations;
  f(out);
  return tests::allocations == start ? out : WritesAllOrNothing(before, f);
}

// Both directions of all norms over rows.
TEST_F(NormAllocationTest, EveryNormAndTypeWithTooLittleMemoryWritesNothing) {
  const int start = tests::allocations;
  for (const Norm norm : tests::kNorms) {
    ForEachType([&]<class T, class P>() {
      SCOPED_TRACE(testing::Message() << tests::NameOf(norm) << " " << tests::Name<T>::kText);
      const tests::Problem<T, P> p(norm, 400, 300);
      const auto out =
          WritesAllOrNothingIfItAllocates(tests::Result<T, P>(p), [&](tests::Result<T, P>& to) {
            NormForward<T, P>(norm, tests::ForwardArgs(p, to), p.Options());
          });
      WritesAllOrNothingIfItAllocates(out, [&](tests::Result<T, P>& to) {
        NormBackward<T, P>(norm, tests::BackwardArgs(p, to), p.Options());
      });
      const tests::channel_norm::Problem<T, P> q(norm, {4, 256, 49});
      using ChannelResult = tests::channel_norm::Result<T, P>;
      const auto channels =
          WritesAllOrNothingIfItAllocates(ChannelResult(q), [&](ChannelResult& to) {
            ChannelNormForward<T, P>(norm, tests::channel_norm::ForwardArgs(q, to), q.options);
          });
      WritesAllOrNothingIfItAllocates(channels, [&](ChannelResult& to) {
        ChannelNormBackward<T, P>(norm, tests::channel_norm::BackwardArgs(q, to), q.options);
      });
    });
  }
  EXPECT_GT(tests::allocations, start);
}

// The pool gets no memory for its threads: fewer threads, or none, compute the same bits.
TEST_F(NormAllocationTest, ThreadsWithTooLittleMemoryChangeNoBits) {
  const tests::Problem<float> p(Norm::kRms, 3000, 70);
  const tests::Result<float> before(p);
  SetThreads(1);
  tests::Result<float> expected(p);
  NormForward<float>(p.norm, tests::ForwardArgs(p, expected), p.Options());
  int fewer = 0, most = 0;
  for (int index = 0; index < 20; ++index) {
    for (const bool only_one : {false, true}) {
      tests::Result<float> out(p);
      SetThreads(4);  // the call starts them
      const auto call = [&] {
        NormForward<float>(p.norm, tests::ForwardArgs(p, out), p.Options());
      };
      const bool ended =
          only_one ? EndsWithoutAllocation(index, call) : EndsWithAllocations(index, call);
      EXPECT_EQ(out.DiffersIn(ended ? expected : before), "") << index;
      fewer += ended && Threads() < 4;
      most = std::max(most, Threads());
    }
  }
  EXPECT_GT(fewer, 0);
  EXPECT_EQ(most, 4);
}

// Rows for each way to sum dgain and dbias: few rows, many rows (in groups), tiles, long rows.
TEST_F(NormAllocationTest, RowsWithTooLittleMemoryWriteNothing) {
  for (const auto& [rows, cols] :
       {std::pair<int64_t, int64_t>{300, 70}, {40'000, 16}, {20, 30'000}, {3, int64_t{1} << 17}}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << cols);
    const tests::Problem<float> p(Norm::kLayer, rows, cols);
    tests::Result<float> out(p);
    NormForward<float>(p.norm, tests::ForwardArgs(p, out), p.Options());
    WritesAllOrNothing(out, [&](tests::Result<float>& to) {
      NormBackward<float>(p.norm, tests::BackwardArgs(p, to), p.Options());
    });
  }
}

// Non-temporal stores need scratch memory for some rows' sums.
TEST_F(NormAllocationTest, ResidualsWithTooLittleMemoryWriteNothing) {
  const tests::NtStores nt_stores;
  const tests::Problem<float> p(Norm::kLayer, 3000, 100);
  WritesAllOrNothing(tests::Result<float>(p), [&](tests::Result<float>& to) {
    NormForwardArgs<float> args = tests::ForwardArgs(p, to);
    args.residual = p.dy.data();
    args.sum = to.dx.data();
    NormForward<float>(p.norm, args, p.Options());
  });
}

// Gated norms need scratch for some rows, in the type of the arithmetic.
TEST_F(NormAllocationTest, GatesWithTooLittleMemoryWriteNothing) {
  for (const auto& [rows, cols] :
       {std::pair<int64_t, int64_t>{300, 70}, {20, 30'000}, {3, int64_t{1} << 17}}) {
    for (const bool before : {false, true}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << cols << (before ? " before" : " after"));
      tests::GatedProblem<bfloat16, float> p(Norm::kRms, rows, cols, before);
      p.cast = true;
      using Result = tests::GatedResult<bfloat16, float>;
      const auto out = WritesAllOrNothing(Result(p), [&](Result& to) {
        NormForward<bfloat16, float>(p.norm, tests::GatedForward(p, to), p.Options());
      });
      WritesAllOrNothing(out, [&](Result& to) {
        NormBackward<bfloat16, float>(p.norm, tests::GatedBackward(p, to), p.Options());
      });
    }
  }
}

TEST_F(NormAllocationTest, HalvesWithTooLittleMemoryWriteNothing) {
  const tests::Problem<bfloat16> p(Norm::kLayer, 3000, 100);
  const auto out = WritesAllOrNothing(tests::Result<bfloat16>(p), [&](tests::Result<bfloat16>& to) {
    NormForward<bfloat16>(p.norm, tests::ForwardArgs(p, to), p.Options());
  });
  WritesAllOrNothing(out, [&](tests::Result<bfloat16>& to) {
    NormBackward<bfloat16>(p.norm, tests::BackwardArgs(p, to), p.Options());
  });
}

// Channels in tiles, in long and short runs, and in columns of few and many rows.
constexpr tests::Shape kShapes[] = {{64, 256, 1},  {8, 64, 300}, {2, 3, 70'000},
                                    {5000, 48, 1}, {300, 5, 4},  {4, 512, 49}};

TEST_F(NormAllocationTest, BatchNormWithTooLittleMemoryWritesNothing) {
  for (const tests::Shape& shape : kShapes) {
    SCOPED_TRACE(testing::Message() << shape);
    const tests::batch_norm::Problem<float> p(shape);
    using Result = tests::batch_norm::Result<float>;
    const Result out = WritesAllOrNothing(Result(p), [&](Result& to) {
      BatchNormForward<float>(tests::batch_norm::ForwardArgs(p, to), p.options);
    });
    WritesAllOrNothing(out, [&](Result& to) {
      BatchNormBackward<float>(tests::batch_norm::BackwardArgs(p, to), p.options);
    });
  }
}

TEST_F(NormAllocationTest, ChannelNormWithTooLittleMemoryWritesNothing) {
  for (const tests::Shape& shape : kShapes) {
    if (shape.spatial == 1) continue;  // rows
    SCOPED_TRACE(testing::Message() << shape);
    const tests::channel_norm::Problem<float> p(Norm::kLayer, shape);
    using Result = tests::channel_norm::Result<float>;
    const Result out = WritesAllOrNothing(Result(p), [&](Result& to) {
      ChannelNormForward<float>(p.norm, tests::channel_norm::ForwardArgs(p, to), p.options);
    });
    WritesAllOrNothing(out, [&](Result& to) {
      ChannelNormBackward<float>(p.norm, tests::channel_norm::BackwardArgs(p, to), p.options);
    });
  }
}

TEST_F(NormAllocationTest, OnlineNormWithTooLittleMemoryWritesNothing) {
  for (const int64_t rows : {5, 5000}) {
    const tests::online_norm::Problem<float> p(rows, 100, .01);
    using Result = tests::online_norm::Result<float>;
    const OnlineNormOptions options{.alpha = p.alpha};
    const Result out = WritesAllOrNothing(Result(p), [&](Result& to) {
      OnlineState state{to.state_mean, to.state_deviation};
      OnlineNormForward<float>(tests::online_norm::ForwardArgs(p, to), state, options);
      to.state_mean = state.mean;
      to.state_deviation = state.deviation;
    });
    WritesAllOrNothing(out, [&](Result& to) {
      OnlineNormBackward<float>(tests::online_norm::BackwardArgs(p, to), options);
    });
  }
}

TEST_F(NormAllocationTest, PointwiseNormWithTooLittleMemoryWritesNothing) {
  for (const int64_t cols : {7, 5000}) {
    const tests::pointwise::Problem<float> p(Pointwise::kTanh, 500, cols);
    using Result = tests::pointwise::Result<float>;
    const Result out = WritesAllOrNothing(Result(p), [&](Result& to) {
      PointwiseNormForward<float>(p.function, tests::pointwise::ForwardArgs(p, to));
    });
    WritesAllOrNothing(out, [&](Result& to) {
      PointwiseNormBackward<float>(p.function, tests::pointwise::BackwardArgs(p, to));
    });
  }
}

TEST_F(NormAllocationTest, WeightNormWithTooLittleMemoryWritesNothing) {
  const tests::Problem<float> p(Norm::kLayer, 100, 5000);
  WritesAllOrNothing(tests::Result<float>(p), [&](tests::Result<float>& to) {
    WeightNormForward<float>({.rows = p.rows,
                              .cols = p.cols,
                              .v = p.x.data(),
                              .g = p.dy.data(),
                              .w = to.y.data(),
                              .norm = to.rstd.data()});
  });
}

TEST_F(NormAllocationTest, WeightNormBackwardWithTooLittleMemoryWritesNothing) {
  const tests::Problem<float> p(Norm::kLayer, 100, 5000);
  const std::vector<float> norm(100, 70.f);
  WritesAllOrNothingIfItAllocates(tests::Result<float>(p), [&](tests::Result<float>& to) {
    WeightNormBackward<float>({.rows = p.rows,
                               .cols = p.cols,
                               .dw = p.dy.data(),
                               .v = p.x.data(),
                               .g = p.x.data(),
                               .norm = norm.data(),
                               .dv = to.dx.data(),
                               .dg = to.rstd.data()});
  });
}

TEST_F(NormAllocationTest, BatchNormEvaluationWithTooLittleMemoryWritesNothing) {
  const tests::Shape shape{2000, 48, 4};
  const tests::batch_norm::Problem<float> p(shape);
  const std::vector<float> mean(48, 0.5f), var(48, 2.f);
  using Result = tests::batch_norm::Result<float>;
  const Result out = WritesAllOrNothingIfItAllocates(Result(p), [&](Result& to) {
    BatchNormEvaluate<float>(tests::batch_norm::EvaluateArgs(p, mean, var, to), p.options);
  });
  WritesAllOrNothingIfItAllocates(out, [&](Result& to) {
    BatchNormEvaluateBackward<float>(tests::batch_norm::EvaluateBackwardArgs(p, mean, var, to),
                                     p.options);
  });
}

}  // namespace
}  // namespace planish
