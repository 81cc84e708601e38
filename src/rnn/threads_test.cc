// Recurrent layers on the threads of the pool, with several callers at once. Small enough for the
// thread sanitizer (make tsan). Results have the bits of one thread.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "planish/rnn.h"
#include "src/base/threads_testing.h"
#include "src/rnn/testing.h"

namespace planish {
namespace {

using RnnThreadsTest = tests::ThreadsTest;
using tests::ExpectSameBitsOnThreads;
using tests::RnnProblem;
using tests::RnnResult;

// Threads split the sequences, or the columns of a step's matrix product if there are few.
constexpr RnnShape kShapes[] = {{12, 40, 30, 48}, {6, 2, 64, 300}};

template <class T>
void ExpectLayer(Cell cell, const RnnShape& shape, bool is_ragged) {
  SCOPED_TRACE(testing::Message() << tests::NameOf(cell) << " of " << shape.batch << " sequences"
                                  << (is_ragged ? ", ragged" : ""));
  const RnnProblem<T> p(cell, shape,
                        {.lengths = is_ragged, .resets = is_ragged, .reverse = is_ragged});
  for (const bool checkpoint : {false, true}) {
    RnnOptions<T> options = p.Options();
    options.checkpoint = checkpoint;
    ExpectSameBitsOnThreads([&] { return tests::Apply(p, options); });
  }
}

TEST_F(RnnThreadsTest, ForwardAndBackward) {
  for (const Cell cell : internal::kCells) {
    for (const RnnShape& shape : kShapes) ExpectLayer<float>(cell, shape, false);
  }
  ExpectLayer<double>(Cell::kLnLstm, kShapes[0], false);
}

TEST_F(RnnThreadsTest, RaggedBatches) {
  for (const Cell cell : {Cell::kLnLstm, Cell::kGru, Cell::kRnn}) {
    for (const RnnShape& shape : kShapes) ExpectLayer<float>(cell, shape, true);
  }
}

// All callers use the same packed weights.
TEST_F(RnnThreadsTest, StepsWithPackedWeights) {
  for (const Cell cell : internal::kCells) {
    if (internal::RecipeOf(cell).over == internal::Over::kBatch) continue;
    for (const int64_t batch : {1, 40}) {
      const RnnShape shape{1, batch, 64, 200};
      SCOPED_TRACE(testing::Message() << tests::NameOf(cell) << " of " << batch << " sequences");
      const RnnProblem<float> p(cell, shape);
      RnnOptions<float> options = p.Options();
      options.packed = RnnPackedParams<float>(cell, 64, 200, p.Inputs().params);
      ExpectSameBitsOnThreads([&] {
        RnnResult<float> out;
        out.h = p.layer.h0;
        out.c = p.layer.c0;
        RnnStepArgs<float> args{.batch = batch, .inputs = 64, .hidden = 200};
        args.x = p.layer.x.data();
        args.h = args.h_next = out.h.data();
        if (!out.c.empty()) args.c = args.c_next = out.c.data();
        for (int i = 0; i < 3; ++i) RnnStep<float>(cell, args, options);
        return out;
      });
    }
  }
}

/// Returns the exit status of a child process that calls `child`; -1 if it crashes or hangs.
template <class F>
int InChild(const F& child) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(60);  // ends a child that hangs
    _exit(child());
  }
  int status = -1;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Parent, child and grandchild compute the same bits, whatever numbers of threads they set.
TEST_F(RnnThreadsTest, ForkedChildrenHaveTheBitsOfTheirParent) {
  for (const Cell cell : {Cell::kLnLstm, Cell::kGru, Cell::kBnLstm}) {
    const RnnProblem<float> p(cell, kShapes[0]);
    const RnnOptions<float> options = p.Options();
    SetThreads(1);
    const RnnResult<float> expected = tests::Apply(p, options);
    const auto differs = [&] { return !tests::Apply(p, options).DiffersIn(expected).empty(); };
    SetThreads(4);
    EXPECT_FALSE(differs());  // starts the threads
    EXPECT_EQ(InChild([&] {
                if (differs()) return 1;
                for (const int threads : {3, 1}) {
                  SetThreads(threads);
                  if (Threads() != threads) return 2;
                  if (differs()) return 3;
                }
                SetThreads(2);
                return InChild([&] { return differs() ? 4 : 0; });
              }),
              0)
        << tests::NameOf(cell);
    EXPECT_EQ(Threads(), 4);
    EXPECT_FALSE(differs());
    SetThreads(2);
    EXPECT_FALSE(differs());
    EXPECT_EQ(InChild([&] { return differs() ? 1 : 0; }), 0);
  }
}

TEST_F(RnnThreadsTest, GradientSumsOverSteps) {
  const Cell cell = Cell::kLnLstm;
  const RnnProblem<float> p(cell, {1, 40, 30, 48});
  RnnOptions<float> options = p.Options();
  options.packed = RnnPackedParams<float>(cell, 30, 48, p.Inputs().params, {}, /*backward=*/true);
  ExpectSameBitsOnThreads([&] {
    RnnGradientSums<float> sums(options.packed);
    RnnResult<float> out = tests::Unwritten(p);
    RnnForward<float>(cell, tests::ForwardArgs(p, out), options);
    RnnBackwardArgs<float> args = tests::BackwardArgs(p, out);
    const RnnParams<float> dparams = args.dparams;
    args.dparams = {};
    args.sums = &sums;
    for (int i = 0; i < 9; ++i) RnnBackward<float>(cell, args, options);
    sums.Write(dparams);
    return out;
  });
}

}  // namespace
}  // namespace planish
