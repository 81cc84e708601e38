#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "planish/rnn.h"
#include "planish/types.h"
#include "src/rnn/reference.h"
#include "src/rnn/testing.h"

// Packed weights in bfloat16 and int8.
namespace planish {
namespace {

using tests::kKinds;
using tests::NameOf;
using tests::RnnProblem;
using tests::RnnResult;
using tests::Shaped;

constexpr RnnShape kShape = {7, 5, 3, 17};
constexpr WeightType kRounded[] = {WeightType::kBfloat16, WeightType::kInt8};

RnnPackedParams<float> Pack(const RnnProblem<float>& p, WeightType type,
                            const ParallelFor& parallel_for = {}) {
  const RnnShape& s = p.layer.shape;
  return RnnPackedParams<float>(p.layer.cell, s.inputs, s.hidden, p.Inputs().params, parallel_for,
                                /*backward=*/false, s.projected, s.heads, type);
}

RnnResult<float> Forward(const RnnProblem<float>& p, const RnnPackedParams<float>& packed,
                         const ParallelFor& parallel_for = {}) {
  RnnResult<float> out = tests::Unwritten(p);
  RnnOptions<float> options = p.Options(parallel_for);
  options.packed = packed;
  auto args = tests::ForwardArgs(p, out);
  args.inputs.params = {};
  RnnForward<float>(p.layer.cell, args, options);
  return out;
}

/// Rounds each weight matrix of a layer: round(row, columns) changes one row.
template <class F>
RnnProblem<float> WithRoundedWeights(RnnProblem<float> p, const F& round) {
  const RnnShape& s = p.layer.shape;
  const auto rounded = [&](std::vector<float>& weight, int64_t columns) {
    for (size_t i = 0; i < weight.size(); i += static_cast<size_t>(columns)) {
      round(weight.data() + i, columns);
    }
  };
  rounded(p.layer.weight_ih, s.inputs);
  rounded(p.layer.weight_hh, s.outputs() / s.heads);
  rounded(p.layer.weight_hr, s.hidden);
  return p;
}

void RoundToBfloat16(float* row, int64_t columns) {
  for (int64_t i = 0; i < columns; ++i) row[i] = ToFloat(ToBfloat16(row[i]));
}

void RoundToInt8(float* row, int64_t columns) {
  float largest = 0;
  for (int64_t i = 0; i < columns; ++i) largest = std::max(largest, std::abs(row[i]));
  const float scale = largest / 127;
  for (int64_t i = 0; i < columns; ++i) row[i] = std::nearbyint(row[i] / scale) * scale;
}

TEST(WeightTypesTest, Bfloat16GivesTheBitsOfRoundedWeights) {
  tests::ForEachTarget([&](const std::string& target) {
    for (const auto& [cell, recurrence] : kKinds) {
      const RnnProblem<float> p(cell, Shaped(kShape, recurrence),
                                {.lengths = true, .resets = true});
      const RnnProblem<float> rounded = WithRoundedWeights(p, RoundToBfloat16);
      const RnnResult<float> expected = Forward(rounded, Pack(rounded, WeightType::kFull));
      const RnnResult<float> out = Forward(p, Pack(p, WeightType::kBfloat16));
      EXPECT_EQ(out.DiffersIn(expected), "") << NameOf(cell) << " on " << target;
      EXPECT_TRUE(tests::SameBits(out.saved, expected.saved)) << NameOf(cell) << " on " << target;
    }
  });
}

// A block of 256 elements and part of the next.
TEST(WeightTypesTest, Bfloat16GivesTheBitsOfRoundedWeightsInWideLayers) {
  for (const int64_t batch : {1, 2, 7}) {
    const RnnProblem<float> p(Cell::kLnLstm, {3, batch, 301, 259});
    const RnnProblem<float> rounded = WithRoundedWeights(p, RoundToBfloat16);
    EXPECT_EQ(Forward(p, Pack(p, WeightType::kBfloat16))
                  .DiffersIn(Forward(rounded, Pack(rounded, WeightType::kFull))),
              "")
        << batch;
  }
}

// The layer with rounded weights, in double, differs by the rounding of inputs and states: half a
// unit of 1 / 32767 of the largest, or 1.5e-5, times weights of about 1 / sqrt(17). A step sums 20
// products, and norms and seven steps multiply the error by 10 at most.
TEST(WeightTypesTest, Int8IsTheLayerWithRoundedWeights) {
  tests::ForEachTarget([&](const std::string& target) {
    for (const auto& [cell, recurrence] : kKinds) {
      const RnnProblem<float> p(cell, Shaped(kShape, recurrence),
                                {.lengths = true, .resets = true});
      const RnnProblem<float> rounded = WithRoundedWeights(p, RoundToInt8);
      const auto exact = internal::ReferenceRnnForward(rounded.Reference());
      const RnnResult<float> out = Forward(p, Pack(p, WeightType::kInt8));
      constexpr double kTolerance = 5e-4;
      EXPECT_LE(tests::Difference(out.y, exact.y), kTolerance) << NameOf(cell) << " on " << target;
      EXPECT_LE(tests::Difference(out.h, exact.h), kTolerance) << NameOf(cell) << " on " << target;
      EXPECT_LE(tests::Difference(out.c, exact.c), kTolerance) << NameOf(cell) << " on " << target;
    }
  });
}

// Few sequences: threads split the columns of a step's products.
TEST(WeightTypesTest, SameBitsForAnyNumberOfThreads) {
  for (const WeightType type : kRounded) {
    for (const int64_t batch : {1, 2, 70}) {
      for (const auto& [cell, recurrence] : tests::kSomeKinds) {
        const RnnProblem<float> p(cell, Shaped({6, batch, 70, 60}, recurrence));
        const RnnResult<float> expected = Forward(p, Pack(p, type, SerialFor), SerialFor);
        for (const int threads : tests::ThreadCounts()) {
          const ParallelFor parallel_for = tests::OnThreads(threads);
          EXPECT_EQ(Forward(p, Pack(p, type, parallel_for), parallel_for).DiffersIn(expected), "")
              << NameOf(cell) << " batch " << batch << " on " << threads;
        }
      }
    }
  }
}

TEST(WeightTypesTest, StepsGiveTheSameBits) {
  for (const WeightType type : kRounded) {
    for (const auto& [cell, recurrence] : kKinds) {
      if (internal::RecipeOf(cell).over == internal::Over::kBatch) continue;
      const RnnProblem<float> p(cell, Shaped(kShape, recurrence));
      RnnOptions<float> options = p.Options();
      options.packed = Pack(p, type);
      const RnnResult<float> expected = Forward(p, options.packed);
      std::vector<float> h = p.layer.h0, c = p.layer.c0;
      const int64_t outputs = p.layer.shape.outputs();
      for (int64_t t = 0; t < kShape.time; ++t) {
        RnnStepArgs<float> args{
            .batch = kShape.batch, .inputs = kShape.inputs, .hidden = kShape.hidden};
        args.projected = p.layer.shape.projected;
        args.heads = p.layer.shape.heads;
        args.x = p.layer.x.data() + t * kShape.batch * kShape.inputs;
        args.h = args.h_next = h.data();
        if (!c.empty()) args.c = args.c_next = c.data();
        RnnStep<float>(cell, args, options);
        const auto* y = expected.y.data() + t * kShape.batch * outputs;
        EXPECT_TRUE(std::equal(h.begin(), h.end(), y)) << NameOf(cell) << " step " << t;
      }
      EXPECT_TRUE(tests::SameBits(c, expected.c)) << NameOf(cell);
    }
  }
}

TEST(WeightTypesTest, NanAndInfinityStayInTheirSequence) {
  constexpr float kValues[] = {std::numeric_limits<float>::quiet_NaN(),
                               std::numeric_limits<float>::infinity()};
  for (const WeightType type : kRounded) {
    for (const auto& [cell, recurrence] : kKinds) {
      if (internal::RecipeOf(cell).over == internal::Over::kBatch) continue;
      RnnProblem<float> p(cell, Shaped(kShape, recurrence));
      const RnnPackedParams<float> packed = Pack(p, type);
      const RnnResult<float> expected = Forward(p, packed);
      const int64_t outputs = p.layer.shape.outputs();
      for (const float value : kValues) {
        p.layer.x[(1 * 5 + 2) * 3 + 1] = value;  // step 1 of sequence 2
        const RnnResult<float> out = Forward(p, packed);
        for (int64_t i = 0; i < std::ssize(out.y); ++i) {
          const int64_t t = i / outputs / 5, b = i / outputs % 5;
          const auto at = static_cast<size_t>(i);
          if (b != 2 || t < 1) {
            ASSERT_EQ(out.y[at], expected.y[at]) << NameOf(cell) << " " << value;
          } else if (std::isnan(value)) {
            ASSERT_TRUE(std::isnan(out.y[at])) << NameOf(cell);
          }
        }
      }
    }
  }
}

TEST(WeightTypesTest, WeightsOfZerosGiveTheBias) {
  for (const WeightType type : kRounded) {
    RnnProblem<float> p(Cell::kRnn, kShape);
    std::ranges::fill(p.layer.weight_ih, 0.f);
    std::ranges::fill(p.layer.weight_hh, 0.f);
    EXPECT_EQ(Forward(p, Pack(p, type)).DiffersIn(Forward(p, Pack(p, WeightType::kFull))), "");
  }
}

TEST(WeightTypesTest, BadArguments) {
  const RnnProblem<float> p(Cell::kLnLstm, {1, 1, 4, 5});
  const RnnProblem<double> in_double(Cell::kLnLstm, {1, 1, 4, 5});
  const auto error = [&](bool backward, WeightType type) {
    return tests::ErrorOf([&] {
      RnnPackedParams<float>(Cell::kLnLstm, 4, 5, p.Inputs().params, {}, backward, 0, 1, type);
    });
  };
  EXPECT_EQ(error(true, WeightType::kInt8),
            "[RnnPackedParams] weight_type must be full with backward, got int8");
  EXPECT_EQ(error(false, static_cast<WeightType>(3)),
            "[RnnPackedParams] weight_type must be a WeightType, got 3");
  EXPECT_EQ(tests::ErrorOf([&] {
              RnnPackedParams<double>(Cell::kLnLstm, 4, 5, in_double.Inputs().params, {}, false, 0,
                                      1, WeightType::kBfloat16);
            }),
            "[RnnPackedParams] weight_type must be full for a layer in double, got bfloat16");
  RnnOptions<float> options = p.Options();
  options.packed = Pack(p, WeightType::kInt8);
  RnnResult<float> out = Forward(p, options.packed);
  EXPECT_EQ(
      tests::ErrorOf([&] { RnnBackward(Cell::kLnLstm, tests::BackwardArgs(p, out), options); }),
      "[RnnBackward] packed must be created with backward=true, got backward=false");
}

}  // namespace
}  // namespace planish
