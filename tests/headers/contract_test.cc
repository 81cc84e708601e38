// The contract in planish/core.h, for every function: alignment of the element type, calls at
// once on several threads, exceptions of a caller's ParallelFor.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "planish/core.h"

namespace planish {
namespace {

/// Arrays of one call, each `offset` elements after an aligned address.
class Arrays {
 public:
  explicit Arrays(size_t offset) : offset_(offset) {}

  const float* Input(int64_t n) {
    float* const array = New(n);
    for (int64_t i = 0; i < n; ++i) array[i] = std::sin(static_cast<float>(++values_ % 1009));
    return array;
  }
  float* Output(int64_t n) {
    outputs_.push_back(arrays_.size());
    return New(n);
  }
  std::vector<float> Outputs() const {
    std::vector<float> all;
    for (const size_t i : outputs_) {
      all.insert(all.end(), arrays_[i].begin() + static_cast<std::ptrdiff_t>(offset_),
                 arrays_[i].end());
    }
    return all;
  }

 private:
  float* New(int64_t n) {
    return arrays_.emplace_back(offset_ + static_cast<size_t>(n)).data() + offset_;
  }

  size_t offset_;
  int64_t values_ = 0;
  std::deque<std::vector<float>> arrays_;
  std::vector<size_t> outputs_;
};

/// A function of the library, as a call that returns its outputs.
struct Function {
  std::string name;
  std::function<std::vector<float>(const ParallelFor& parallel_for, size_t offset)> call;
};

// Enough elements for work to be split.
constexpr int64_t kRows = 64, kCols = 2048, kSize = kRows * kCols;

std::vector<float> CallNorm(const ParallelFor& parallel_for, size_t offset) {
  Arrays a(offset);
  const float* const x = a.Input(kSize);
  const float *const gain = a.Input(kCols), *const dy = a.Input(kSize);
  float *const mean = a.Output(kRows), *const mean_lo = a.Output(kRows);
  float* const rstd = a.Output(kRows);
  const NormOptions options{.parallel_for = parallel_for};
  NormForward<float>(Norm::kLayer,
                     {.rows = kRows,
                      .cols = kCols,
                      .x = x,
                      .gain = gain,
                      .y = a.Output(kSize),
                      .mean = mean,
                      .mean_lo = mean_lo,
                      .rstd = rstd},
                     options);
  NormBackward<float>(Norm::kLayer,
                      {.rows = kRows,
                       .cols = kCols,
                       .dy = dy,
                       .x = x,
                       .gain = gain,
                       .mean = mean,
                       .mean_lo = mean_lo,
                       .rstd = rstd,
                       .dx = a.Output(kSize),
                       .dgain = a.Output(kCols),
                       .dbias = a.Output(kCols)},
                      options);
  return a.Outputs();
}

std::vector<float> CallChannelNorm(const ParallelFor& parallel_for, size_t offset) {
  constexpr int64_t kBatch = 4, kChannels = 64, kSpatial = kSize / kBatch / kChannels;
  constexpr int64_t kPositions = kBatch * kSpatial;
  Arrays a(offset);
  const float* const x = a.Input(kSize);
  const float *const gain = a.Input(kChannels), *const dy = a.Input(kSize);
  float *const mean = a.Output(kPositions), *const mean_lo = a.Output(kPositions);
  float* const rstd = a.Output(kPositions);
  const NormOptions options{.parallel_for = parallel_for};
  ChannelNormForward<float>(Norm::kLayer,
                            {.batch = kBatch,
                             .channels = kChannels,
                             .spatial = kSpatial,
                             .x = x,
                             .gain = gain,
                             .y = a.Output(kSize),
                             .mean = mean,
                             .mean_lo = mean_lo,
                             .rstd = rstd},
                            options);
  ChannelNormBackward<float>(Norm::kLayer,
                             {.batch = kBatch,
                              .channels = kChannels,
                              .spatial = kSpatial,
                              .dy = dy,
                              .x = x,
                              .gain = gain,
                              .mean = mean,
                              .mean_lo = mean_lo,
                              .rstd = rstd,
                              .dx = a.Output(kSize),
                              .dgain = a.Output(kChannels)},
                             options);
  return a.Outputs();
}

std::vector<float> CallBatchNorm(const ParallelFor& parallel_for, size_t offset) {
  constexpr int64_t kBatch = 4, kChannels = 64, kSpatial = kSize / kBatch / kChannels;
  Arrays a(offset);
  const float* const x = a.Input(kSize);
  const float* const dy = a.Input(kSize);
  float *const mean = a.Output(kChannels), *const mean_lo = a.Output(kChannels);
  float *const rstd = a.Output(kChannels), *const running_mean = a.Output(kChannels);
  float* const running_var = a.Output(kChannels);
  const BatchNormOptions options{.parallel_for = parallel_for};
  BatchNormForward<float>({.batch = kBatch,
                           .channels = kChannels,
                           .spatial = kSpatial,
                           .x = x,
                           .y = a.Output(kSize),
                           .mean = mean,
                           .mean_lo = mean_lo,
                           .rstd = rstd,
                           .running_mean = running_mean,
                           .running_var = running_var},
                          options);
  BatchNormBackward<float>({.batch = kBatch,
                            .channels = kChannels,
                            .spatial = kSpatial,
                            .dy = dy,
                            .x = x,
                            .mean = mean,
                            .mean_lo = mean_lo,
                            .rstd = rstd,
                            .dx = a.Output(kSize),
                            .dgain = a.Output(kChannels)},
                           options);
  BatchNormEvaluate<float>({.batch = kBatch,
                            .channels = kChannels,
                            .spatial = kSpatial,
                            .x = x,
                            .running_mean = running_mean,
                            .running_var = running_var,
                            .y = a.Output(kSize)},
                           options);
  BatchNormEvaluateBackward<float>({.batch = kBatch,
                                    .channels = kChannels,
                                    .spatial = kSpatial,
                                    .dy = dy,
                                    .x = x,
                                    .running_mean = running_mean,
                                    .running_var = running_var,
                                    .dx = a.Output(kSize),
                                    .dgain = a.Output(kChannels)},
                                   options);
  return a.Outputs();
}

std::vector<float> CallWeightNorm(const ParallelFor& parallel_for, size_t offset) {
  Arrays a(offset);
  const float* const v = a.Input(kSize);
  const float *const g = a.Input(kRows), *const dw = a.Input(kSize);
  float* const norm = a.Output(kRows);
  WeightNormForward<float>(
      {.rows = kRows, .cols = kCols, .v = v, .g = g, .w = a.Output(kSize), .norm = norm},
      parallel_for);
  WeightNormBackward<float>({.rows = kRows,
                             .cols = kCols,
                             .dw = dw,
                             .v = v,
                             .g = g,
                             .norm = norm,
                             .dv = a.Output(kSize),
                             .dg = a.Output(kRows)},
                            parallel_for);
  return a.Outputs();
}

std::vector<float> CallGroupNorm(const ParallelFor& parallel_for, size_t offset) {
  constexpr int64_t kBatch = 8, kChannels = 32, kSpatial = kSize / (kBatch * kChannels);
  Arrays a(offset);
  const float *const x = a.Input(kSize), *const dy = a.Input(kSize);
  const float* const gain = a.Input(kChannels);
  const int64_t groups = kBatch * kChannels;
  float *const mean = a.Output(groups), *const mean_lo = a.Output(groups);
  float* const rstd = a.Output(groups);
  const GroupNormOptions options{.parallel_for = parallel_for};
  GroupNormForward<float>({.batch = kBatch,
                           .groups = kChannels,
                           .channels = kChannels,
                           .spatial = kSpatial,
                           .x = x,
                           .gain = gain,
                           .y = a.Output(kSize),
                           .mean = mean,
                           .mean_lo = mean_lo,
                           .rstd = rstd},
                          options);
  GroupNormBackward<float>({.batch = kBatch,
                            .groups = kChannels,
                            .channels = kChannels,
                            .spatial = kSpatial,
                            .dy = dy,
                            .x = x,
                            .gain = gain,
                            .mean = mean,
                            .mean_lo = mean_lo,
                            .rstd = rstd,
                            .dx = a.Output(kSize),
                            .dgain = a.Output(kChannels)},
                           options);
  return a.Outputs();
}

std::vector<float> CallPointwiseNorm(const ParallelFor& parallel_for, size_t offset) {
  Arrays a(offset);
  const float *const x = a.Input(kSize), *const dy = a.Input(kSize);
  const float *const alpha = a.Input(1), *const gain = a.Input(kCols);
  PointwiseNormForward<float>(
      Pointwise::kErf,
      {.rows = kRows, .cols = kCols, .x = x, .alpha = alpha, .gain = gain, .y = a.Output(kSize)},
      parallel_for);
  PointwiseNormBackward<float>(Pointwise::kErf,
                               {.rows = kRows,
                                .cols = kCols,
                                .dy = dy,
                                .x = x,
                                .alpha = alpha,
                                .gain = gain,
                                .dx = a.Output(kSize),
                                .dalpha = a.Output(1),
                                .dgain = a.Output(kCols)},
                               parallel_for);
  return a.Outputs();
}

std::vector<float> CallOnlineNorm(const ParallelFor& parallel_for, size_t offset) {
  Arrays a(offset);
  const float* const x = a.Input(kSize);
  const float* const dy = a.Input(kSize);
  float *const mean = a.Output(kRows), *const mean_lo = a.Output(kRows);
  float *const rstd = a.Output(kRows), *const shift = a.Output(kRows);
  float* const deviation = a.Output(kRows);
  OnlineState state;
  const OnlineNormOptions options{.parallel_for = parallel_for};
  OnlineNormForward<float>({.rows = kRows,
                            .cols = kCols,
                            .x = x,
                            .y = a.Output(kSize),
                            .mean = mean,
                            .mean_lo = mean_lo,
                            .rstd = rstd,
                            .offset = shift,
                            .deviation = deviation},
                           state, options);
  OnlineNormBackward<float>({.rows = kRows,
                             .cols = kCols,
                             .dy = dy,
                             .x = x,
                             .mean = mean,
                             .mean_lo = mean_lo,
                             .rstd = rstd,
                             .offset = shift,
                             .deviation = deviation,
                             .dx = a.Output(kSize),
                             .dgain = a.Output(kCols)},
                            options);
  return a.Outputs();
}

std::vector<float> CallRnn(const ParallelFor& parallel_for, size_t offset) {
  constexpr RnnShape kShape{.time = 8, .batch = 16, .inputs = 48, .hidden = 64};
  constexpr int64_t kStates = kShape.batch * kShape.hidden, kGates = 4 * kShape.hidden;
  Arrays a(offset);
  const float* const x = a.Input(kShape.time * kShape.batch * kShape.inputs);
  const float* const weight_ih = a.Input(kGates * kShape.inputs);
  const float* const weight_hh = a.Input(kGates * kShape.hidden);
  const float* const dy = a.Input(kShape.time * kStates);
  const RnnParams<const float> params{.weight_ih = weight_ih, .weight_hh = weight_hh};
  const RnnInputs<float> inputs{.shape = kShape, .x = x, .params = params};
  float* const y = a.Output(kShape.time * kStates);
  float* const saved = a.Output(RnnSavedSize<float>(Cell::kLnLstm, kShape));
  RnnOptions<float> options{.parallel_for = parallel_for};
  RnnForward<float>(Cell::kLnLstm, {.inputs = inputs, .y = y, .saved = saved}, options);
  RnnBackward<float>(Cell::kLnLstm,
                     {.inputs = inputs,
                      .y = y,
                      .saved = saved,
                      .dy = dy,
                      .dx = a.Output(kShape.time * kShape.batch * kShape.inputs),
                      .dparams = {.weight_ih = a.Output(kGates * kShape.inputs),
                                  .weight_hh = a.Output(kGates * kShape.hidden)}},
                     options);
  options.packed = RnnPackedParams<float>(Cell::kLnLstm, kShape.inputs, kShape.hidden, params,
                                          parallel_for, /*backward=*/true);
  RnnGradientSums<float> sums(options.packed);
  RnnBackward<float>(Cell::kLnLstm,
                     {.inputs = inputs, .y = y, .saved = saved, .dy = dy, .sums = &sums}, options);
  sums.Write({.weight_hh = a.Output(kGates * kShape.hidden)}, parallel_for);
  RnnStep<float>(Cell::kLnLstm,
                 {.batch = kShape.batch,
                  .inputs = kShape.inputs,
                  .hidden = kShape.hidden,
                  .x = x,
                  .h_next = a.Output(kStates),
                  .c_next = a.Output(kStates)},
                 options);
  return a.Outputs();
}

class ContractTest : public ::testing::TestWithParam<Function> {};

TEST_P(ContractTest, ArraysNeedTheAlignmentOfTheirElements) {
  const std::vector<float> expected = GetParam().call({}, 0);
  EXPECT_EQ(GetParam().call({}, 1), expected);
}

TEST_P(ContractTest, ThreadsCanCallAtOnce) {
  const std::vector<float> expected = GetParam().call(SerialFor, 0);
  std::vector<std::thread> threads;
  std::vector<std::vector<float>> results(4);
  for (std::vector<float>& result : results) {
    threads.emplace_back([&] { result = GetParam().call({}, 0); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<float>& result : results) EXPECT_EQ(result, expected);
}

// Each of the call's uses of the ParallelFor throws in turn.
TEST_P(ContractTest, ExceptionOfAParallelForReachesTheCaller) {
  const std::vector<float> expected = GetParam().call(SerialFor, 0);
  for (int uses = 0;; ++uses) {
    int left = uses;
    const auto throws = [&](int64_t begin, int64_t end, int64_t /*grain*/, RangeTask task) {
      const int64_t middle = begin + (end - begin) / 2;
      if (middle > begin) task(begin, middle);
      if (left-- == 0) throw std::domain_error("of the caller");
      task(middle, end);
    };
    std::string message;
    try {
      EXPECT_EQ(GetParam().call(throws, 0), expected);
    } catch (const std::domain_error& error) {
      message = error.what();
    }
    EXPECT_EQ(GetParam().call({}, 0), expected);
    if (message.empty()) {
      EXPECT_GT(uses, 1) << "work must be split";
      break;
    }
    EXPECT_EQ(message, "of the caller");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Functions, ContractTest,
    ::testing::Values(Function{"Norm", CallNorm}, Function{"ChannelNorm", CallChannelNorm},
                      Function{"BatchNorm", CallBatchNorm}, Function{"WeightNorm", CallWeightNorm},
                      Function{"GroupNorm", CallGroupNorm},
                      Function{"PointwiseNorm", CallPointwiseNorm},
                      Function{"OnlineNorm", CallOnlineNorm}, Function{"Rnn", CallRnn}),
    [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace planish
