// Every norm and element type on the threads of the pool, with several callers at once. Small
// enough for the thread sanitizer (make tsan). Results have the bits of one thread.
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "planish/core.h"
#include "src/base/threads_testing.h"
#include "src/norm/channels/batch_norm_testing.h"
#include "src/norm/channels/channel_norm_testing.h"
#include "src/norm/channels/group_norm_testing.h"
#include "src/norm/online/testing.h"
#include "src/norm/pointwise/testing.h"
#include "src/norm/testing.h"

namespace planish {
namespace {

using NormThreadsTest = tests::ThreadsTest;
using tests::ExpectSameBitsOnThreads;

template <class T, class P>
struct Types {
  using Element = T;
  using Parameter = P;
};

/// Calls f with each element type.
template <class F>
void ForEachType(const F& f) {
  f(Types<float, float>());
  f(Types<double, double>());
  f(Types<bfloat16, bfloat16>());
  f(Types<float16, float16>());
  f(Types<bfloat16, float>());
  f(Types<float16, float>());
}

// Sums of dgain and dbias over few rows, over groups of rows, over tiles, and chunks of long rows.
TEST_F(NormThreadsTest, Rows) {
  for (const Norm norm : tests::kNorms) {
    for (const auto& [rows, cols] :
         {std::pair<int64_t, int64_t>{300, 70}, {6000, 16}, {20, 9000}, {3, int64_t{1} << 16}}) {
      SCOPED_TRACE(testing::Message() << tests::NameOf(norm) << " " << rows << " x " << cols);
      ForEachType([&, r = rows, c = cols]<class T, class P>(Types<T, P>) {
        const tests::Problem<T, P> p(norm, r, c);
        ExpectSameBitsOnThreads([&] { return tests::Apply(p); });
      });
    }
  }
}

TEST_F(NormThreadsTest, RowsWithNonTemporalStores) {
  const tests::NtStores nt_stores;
  const tests::Problem<float> p(Norm::kLayer, 3000, 100);
  ExpectSameBitsOnThreads([&] {
    tests::Result<float> out(p);
    NormForwardArgs<float> args = tests::ForwardArgs(p, out);
    args.residual = p.dy.data();
    args.sum = out.dx.data();
    NormForward<float>(p.norm, args, p.Options());
    return out;
  });
}

// Channels in tiles, in long and short runs, and in columns of few and many rows.
constexpr tests::Shape kShapes[] = {{64, 128, 1},  {8, 64, 60}, {2, 3, 20'000},
                                    {2000, 48, 1}, {300, 5, 4}, {4, 256, 49}};

TEST_F(NormThreadsTest, BatchNorm) {
  for (const tests::Shape& shape : kShapes) {
    SCOPED_TRACE(testing::Message() << shape);
    ForEachType([&]<class T, class P>(Types<T, P>) {
      const tests::batch_norm::Problem<T, P> p(shape);
      ExpectSameBitsOnThreads([&] {
        tests::batch_norm::Result<T, P> out(p);
        BatchNormForward<T, P>(tests::batch_norm::ForwardArgs(p, out), p.options);
        BatchNormBackward<T, P>(tests::batch_norm::BackwardArgs(p, out), p.options);
        return out;
      });
      const std::vector<Compute<T>> mean(static_cast<size_t>(shape.channels), 0.5f),
          var(static_cast<size_t>(shape.channels), 2);
      ExpectSameBitsOnThreads([&] {
        tests::batch_norm::Result<T, P> out(p);
        BatchNormEvaluate<T, P>(tests::batch_norm::EvaluateArgs(p, mean, var, out), p.options);
        BatchNormEvaluateBackward<T, P>(tests::batch_norm::EvaluateBackwardArgs(p, mean, var, out),
                                        p.options);
        return out;
      });
    });
  }
}

TEST_F(NormThreadsTest, ChannelNorm) {
  for (const Norm norm : tests::kNorms) {
    for (const tests::Shape& shape : kShapes) {
      SCOPED_TRACE(testing::Message() << tests::NameOf(norm) << " " << shape);
      ForEachType([&]<class T, class P>(Types<T, P>) {
        const tests::channel_norm::Problem<T, P> p(norm, shape);
        ExpectSameBitsOnThreads([&] {
          tests::channel_norm::Result<T, P> out(p);
          ChannelNormForward<T, P>(norm, tests::channel_norm::ForwardArgs(p, out), p.options);
          ChannelNormBackward<T, P>(norm, tests::channel_norm::BackwardArgs(p, out), p.options);
          return out;
        });
      });
    }
  }
}

template <class T>
void ApplyOnline(const tests::online_norm::Problem<T>& p, tests::online_norm::Result<T>& out) {
  const OnlineNormOptions options{.alpha = p.alpha};
  OnlineState state{out.state_mean, out.state_deviation};
  OnlineNormForward<T>(tests::online_norm::ForwardArgs(p, out), state, options);
  out.state_mean = state.mean;
  out.state_deviation = state.deviation;
  OnlineNormBackward<T>(tests::online_norm::BackwardArgs(p, out), options);
}

// The cases pass their state on in order, whichever thread has them.
TEST_F(NormThreadsTest, OnlineNorm) {
  for (const auto& [rows, cols] :
       {std::pair<int64_t, int64_t>{5, 100}, {3000, 100}, {200, 3000}, {16, 40'000}}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << cols);
    const auto expect = [&]<class T>(const tests::online_norm::Problem<T>& p) {
      ExpectSameBitsOnThreads([&] {
        tests::online_norm::Result<T> out(p);
        ApplyOnline(p, out);
        return out;
      });
    };
    expect(tests::online_norm::Problem<float>(rows, cols, 0.01));
    expect(tests::online_norm::Problem<double>(rows, cols, 0.01));
  }
}

TEST_F(NormThreadsTest, GroupNorm) {
  for (const auto& [shape, groups] : {std::pair<tests::Shape, int64_t>{{32, 32, 60}, 8},
                                      {{2, 4, 20'000}, 2},
                                      {{300, 64, 4}, 4}}) {
    for (const bool last : {false, true}) {
      SCOPED_TRACE(testing::Message() << shape << (last ? " last" : ""));
      ForEachType([&, s = shape, g = groups]<class T, class P>(Types<T, P>) {
        tests::group_norm::Problem<T, P> p(s, g);
        p.options.channels_last = last;
        ExpectSameBitsOnThreads([&] {
          tests::group_norm::Result<T, P> out(p);
          GroupNormForward<T, P>(tests::group_norm::ForwardArgs(p, out), p.options);
          GroupNormBackward<T, P>(tests::group_norm::BackwardArgs(p, out), p.options);
          return out;
        });
      });
    }
  }
}

TEST_F(NormThreadsTest, PointwiseNorm) {
  for (const auto& [rows, cols] :
       {std::pair<int64_t, int64_t>{2000, 100}, {6000, 7}, {5, 40'000}}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << cols);
    ForEachType([&, r = rows, c = cols]<class T, class P>(Types<T, P>) {
      const tests::pointwise::Problem<T, P> p(Pointwise::kErf, r, c);
      ExpectSameBitsOnThreads([&] {
        tests::pointwise::Result<T, P> out(p);
        PointwiseNormForward<T, P>(p.function, tests::pointwise::ForwardArgs(p, out));
        PointwiseNormBackward<T, P>(p.function, tests::pointwise::BackwardArgs(p, out));
        return out;
      });
    });
  }
}

TEST_F(NormThreadsTest, WeightNorm) {
  ForEachType([&]<class T, class P>(Types<T, P>) {
    const tests::Problem<T, P> p(Norm::kLayer, 200, 1000);
    const tests::Problem<P, P> lengths(Norm::kLayer, 1, 200);
    ExpectSameBitsOnThreads([&] {
      tests::Result<T, P> out(p);
      WeightNormForward<T, P>({.rows = p.rows,
                               .cols = p.cols,
                               .v = p.x.data(),
                               .g = lengths.x.data(),
                               .w = out.y.data(),
                               .norm = out.rstd.data()});
      WeightNormBackward<T, P>({.rows = p.rows,
                                .cols = p.cols,
                                .dw = p.dy.data(),
                                .v = p.x.data(),
                                .g = lengths.x.data(),
                                .norm = out.rstd.data(),
                                .dv = out.dx.data(),
                                .dg = out.dgain.data()});
      return out;
    });
  });
}

}  // namespace
}  // namespace planish
