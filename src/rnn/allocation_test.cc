// A step with packed weights allocates no memory, which real-time programs need. A call that runs
// out of memory writes nothing.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "planish/rnn.h"
#include "src/base/allocation_hook.h"
#include "src/rnn/testing.h"

namespace planish {
namespace {

using tests::EndsWithAllocations;
using tests::EndsWithoutAllocation;
using tests::RnnProblem;
using tests::RnnResult;

TEST(RnnAllocationTest, NoneInAPackedStep) {
  for (const auto& [cell, recurrence] : tests::kKinds) {
    if (internal::RecipeOf(cell).over == internal::Over::kBatch) continue;
    for (const auto& [batch, type] : {std::pair{1, WeightType::kFull},
                                      {5, WeightType::kFull},
                                      {1, WeightType::kBfloat16},
                                      {5, WeightType::kInt8}}) {
      const RnnProblem<float> p(cell, tests::Shaped({1, batch, 33, 40}, recurrence));
      const int64_t projected = p.layer.shape.projected, heads = p.layer.shape.heads;
      RnnOptions<float> options = p.Options();
      options.packed = RnnPackedParams<float>(cell, 33, 40, p.Inputs().params, {}, false, projected,
                                              heads, type);
      std::vector<float> h = p.layer.h0, c = p.layer.c0;
      RnnStepArgs<float> args{.batch = batch, .inputs = 33, .hidden = 40};
      args.projected = projected;
      args.heads = heads;
      args.x = p.layer.x.data();
      args.h = args.h_next = h.data();
      if (!c.empty()) args.c = args.c_next = c.data();
      RnnStep<float>(cell, args, options);
      const int before = tests::allocations;
      ASSERT_GT(before, 0);  // allocations are counted
      for (int i = 0; i < 10; ++i) RnnStep<float>(cell, args, options);
      EXPECT_EQ(tests::allocations, before) << tests::NameOf(cell) << " batch " << batch;
    }
  }
}

/// Calls f(options, out) with memory for more and more allocations. While it throws, `out` must not
/// change. Returns the output of the successful call. Each call is on a new thread, which has no
/// cached workspace.
template <class F>
RnnResult<float> WriteOnlyWithAllMemory(const RnnResult<float>& before, const F& f) {
  for (int count = 0;; ++count) {
    RnnResult<float> out = before;
    bool ended = false;
    std::thread([&] { ended = EndsWithAllocations(count, [&] { f(out); }); }).join();
    if (ended) {
      EXPECT_GT(count, 0) << "nothing is allocated";
      return out;
    }
    EXPECT_EQ(before.DiffersIn(out), "") << "after " << count << " allocations";
    EXPECT_TRUE(tests::SameBits(before.saved, out.saved)) << "after " << count << " allocations";
  }
}

// 300 steps of 3 sequences are several segments. Without packed weights, so that packing is part of
// the call.
constexpr RnnShape kSegments{300, 3, 20, 24};

TEST(RnnAllocationTest, ForwardAndBackwardWithTooLittleMemoryWriteNothing) {
  using enum tests::Recurrence;
  for (const auto& [cell, recurrence] : {tests::Kind{Cell::kLnLstm, kDense},
                                         {Cell::kLnGru, kDense},
                                         {Cell::kRnn, kDense},
                                         {Cell::kBnLstm, kDense},
                                         {Cell::kLnLstm, kProjected},
                                         {Cell::kLnLstm, kHeads}}) {
    for (const bool checkpoint : {false, true}) {
      const RnnProblem<float> p(cell, tests::Shaped(kSegments, recurrence),
                                {.lengths = cell == Cell::kLnGru});
      RnnOptions<float> options = p.Options(SerialFor);
      options.checkpoint = checkpoint;
      const RnnResult<float> expected = tests::Apply(p, options);
      RnnResult<float> out =
          WriteOnlyWithAllMemory(tests::Unwritten(p, checkpoint), [&](RnnResult<float>& to) {
            RnnForward<float>(cell, tests::ForwardArgs(p, to), options);
          });
      out = WriteOnlyWithAllMemory(out, [&](RnnResult<float>& to) {
        RnnBackward<float>(cell, tests::BackwardArgs(p, to), options);
      });
      EXPECT_EQ(out.DiffersIn(expected), "") << tests::NameOf(cell);
    }
  }
}

/// Calls f(out) with each allocation failing in turn, alone and with all that follow, on `threads`
/// threads of the pool, which must be started again each time. `out` must then be unchanged, or
/// have the bits of `f` with enough memory, which are returned.
template <class F>
RnnResult<float> WritesAllOrNothingOnThreads(const RnnResult<float>& before, const F& f) {
  SetThreads(1);
  RnnResult<float> expected = before;
  f(expected);
  bool is_complete = false;
  int failures = 0;
  for (int index = 0; !is_complete; ++index) {
    is_complete = true;
    for (const bool only_one : {false, true}) {
      SetThreads(3);
      RnnResult<float> out = before;
      bool ended = false;
      int used = 0;
      std::thread([&] {
        const auto call = [&] {
          const int start = tests::allocations;
          f(out);
          used = tests::allocations - start;
        };
        ended = only_one ? EndsWithoutAllocation(index, call) : EndsWithAllocations(index, call);
      }).join();
      failures += !ended;
      is_complete &= ended && used <= index;
      EXPECT_EQ((ended ? expected : before).DiffersIn(out), "")
          << (only_one ? "without allocation " : "after allocations: ") << index;
    }
  }
  EXPECT_GT(failures, 0);
  SetThreads(1);
  return expected;
}

TEST(RnnAllocationTest, CallsOnThreadsWithTooLittleMemoryWriteAllOrNothing) {
  const int threads = Threads();
  for (const Cell cell : internal::kCells) {
    const bool is_batch = internal::RecipeOf(cell).over == internal::Over::kBatch;
    // Threads split the sequences, and the columns of a product with few sequences.
    for (const RnnShape shape : {RnnShape{5, 40, 20, 24}, RnnShape{3, 2, 64, 260}}) {
      SCOPED_TRACE(testing::Message() << tests::NameOf(cell) << ", hidden " << shape.hidden);
      const RnnProblem<float> p(cell, shape, {.lengths = !is_batch, .resets = !is_batch});
      const RnnOptions<float> options = p.Options();
      const RnnResult<float> out =
          WritesAllOrNothingOnThreads(tests::Unwritten(p), [&](RnnResult<float>& to) {
            RnnForward<float>(cell, tests::ForwardArgs(p, to), options);
          });
      WritesAllOrNothingOnThreads(out, [&](RnnResult<float>& to) {
        RnnBackward<float>(cell, tests::BackwardArgs(p, to), options);
      });
    }
  }
  SetThreads(threads);
}

TEST(RnnAllocationTest, StepsWithoutPackedWeightsWriteAllOrNothing) {
  const int threads = Threads();
  for (const Cell cell : {Cell::kLnLstm, Cell::kLnGru, Cell::kRnn}) {
    const RnnProblem<float> p(cell, {1, 40, 20, 24});
    const auto step = [&](RnnResult<float>& to) {
      RnnStepArgs<float> args{.batch = 40, .inputs = 20, .hidden = 24};
      args.x = p.layer.x.data();
      args.params = p.Inputs().params;
      args.h = p.layer.h0.data();
      args.h_next = to.h.data();
      if (!to.c.empty()) {
        args.c = p.layer.c0.data();
        args.c_next = to.c.data();
      }
      RnnStep<float>(cell, args, p.Options());
    };
    SCOPED_TRACE(tests::NameOf(cell));
    WritesAllOrNothingOnThreads(tests::Unwritten(p), step);
  }
  SetThreads(threads);
}

// A call with the weights of a packing that failed before is not affected.
TEST(RnnAllocationTest, PackingWithTooLittleMemoryThrowsOrIsComplete) {
  const Cell cell = Cell::kLnLstm;
  const RnnProblem<float> p(cell, {4, 3, 20, 24});
  RnnOptions<float> options = p.Options(SerialFor);
  const RnnResult<float> expected = tests::Apply(p, options);
  int packed = 0, failures = 0;
  for (int index = 0; packed < 2; ++index) {
    packed = 0;
    for (const bool only_one : {false, true}) {
      const auto pack = [&] {
        options.packed = RnnPackedParams<float>(cell, 20, 24, p.Inputs().params, SerialFor,
                                                /*backward=*/true);
      };
      options.packed = {};
      const bool ended =
          only_one ? EndsWithoutAllocation(index, pack) : EndsWithAllocations(index, pack);
      packed += ended;
      failures += !ended;
      EXPECT_EQ(tests::Apply(p, options).DiffersIn(expected), "") << index;
    }
  }
  EXPECT_GT(failures, 0);
}

// Steps of several sizes, so that the buffer of collected rows must grow.
TEST(RnnAllocationTest, GradientSumsGoOnAfterACallWithTooLittleMemory) {
  const Cell cell = Cell::kLnLstm;
  std::vector<RnnProblem<float>> calls;
  for (const RnnShape shape : {RnnShape{1, 3, 20, 24}, RnnShape{50, 2, 20, 24}, kSegments}) {
    calls.emplace_back(cell, shape);
  }
  const RnnParams<const float> params = calls[0].Inputs().params;
  RnnOptions<float> options = calls[0].Options(SerialFor);
  options.packed = RnnPackedParams<float>(cell, 20, 24, params, {}, /*backward=*/true);

  const auto gradients = [&](bool with_failures) {
    RnnGradientSums<float> sums(options.packed);
    for (const RnnProblem<float>& p : calls) {
      RnnResult<float> out = tests::Unwritten(p);
      RnnForward<float>(cell, tests::ForwardArgs(p, out), options);
      const auto backward = [&](RnnResult<float>& to) {
        RnnBackwardArgs<float> args = tests::BackwardArgs(p, to);
        args.inputs.params = params;
        args.dparams = {};
        args.sums = &sums;
        RnnBackward<float>(cell, args, options);
      };
      if (with_failures) {
        WriteOnlyWithAllMemory(out, backward);
      } else {
        backward(out);
      }
    }
    RnnResult<float> out = tests::Unwritten(calls[0]);
    sums.Write(tests::BackwardArgs(calls[0], out).dparams, SerialFor);
    return out;
  };
  EXPECT_EQ(gradients(true).DiffersIn(gradients(false)), "");
}

TEST(RnnAllocationTest, SumsOfNothingWithTooLittleMemoryWriteNothing) {
  const Cell cell = Cell::kLnLstm;
  const RnnProblem<float> p(cell, {1, 3, 20, 24});
  const RnnPackedParams<float> packed(cell, 20, 24, p.Inputs().params, {}, /*backward=*/true);
  RnnGradientSums<float> sums(packed);
  const RnnResult<float> out = WriteOnlyWithAllMemory(
      tests::Unwritten(p),
      [&](RnnResult<float>& to) { sums.Write(tests::BackwardArgs(p, to).dparams, SerialFor); });
  for (size_t a = tests::kFirstParam; a < tests::kArrays; ++a) {
    for (const float value : out.gradients[a]) EXPECT_EQ(value, 0) << tests::ArrayName(a);
  }
}

}  // namespace
}  // namespace planish
