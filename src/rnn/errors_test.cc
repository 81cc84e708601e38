// Every invalid argument has its error, compared word for word, and a call that throws writes
// nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "planish/rnn.h"
#include "src/base/arguments_testing.h"
#include "src/rnn/arguments.h"
#include "src/rnn/testing.h"

namespace planish {
namespace {

using tests::ErrorOf;
using tests::RnnProblem;
using tests::RnnResult;

constexpr RnnShape kShape = {3, 2, 4, 5};
constexpr tests::Given kGiven = {.lengths = true, .resets = true};

// Memory for arguments that should be absent, large enough for every array here.
float numbers[400];

/// Returns the error of RnnForward after `change` to valid arguments and options.
template <class F>
std::string ForwardError(F&& change, Cell cell = Cell::kLnLstm) {
  const RnnProblem<float> p(cell, kShape, kGiven);
  RnnResult<float> out = tests::Unwritten(p);
  const RnnResult<float> before = out;
  auto args = tests::ForwardArgs(p, out);
  auto options = p.Options();
  change(args, options);
  const std::string error = ErrorOf([&] { RnnForward<float>(cell, args, options); });
  if (!error.empty()) {
    EXPECT_EQ(out.DiffersIn(before), "") << error;
    EXPECT_TRUE(tests::SameBits(out.saved, before.saved)) << error;
  }
  return error;
}

/// Returns the error of RnnBackward after `change` to valid arguments and options.
template <class F>
std::string BackwardError(F&& change, Cell cell = Cell::kLnLstm) {
  const RnnProblem<float> p(cell, kShape, kGiven);
  RnnResult<float> out = tests::Unwritten(p);
  RnnForward<float>(cell, tests::ForwardArgs(p, out), p.Options());
  const RnnResult<float> before = out;
  auto args = tests::BackwardArgs(p, out);
  auto options = p.Options();
  change(args, options);
  const std::string error = ErrorOf([&] { RnnBackward<float>(cell, args, options); });
  if (!error.empty()) {
    EXPECT_EQ(out.DiffersIn(before), "") << error;
  }
  return error;
}

/// Returns the error of RnnStep after `change` to valid arguments.
template <class F>
std::string StepError(F&& change, Cell cell = Cell::kLnLstm) {
  const RnnProblem<float> p(cell, {1, 2, 4, 5});
  std::vector<float> h(10, 7), c(10, 7);
  RnnStepArgs<float> args{.batch = 2, .inputs = 4, .hidden = 5};
  args.x = p.layer.x.data();
  args.params = p.Inputs().params;
  args.h = tests::OrNull(p.layer.h0);
  args.c = tests::OrNull(p.layer.c0);
  args.h_next = h.data();
  if (args.c) args.c_next = c.data();
  auto options = p.Options();
  change(args, options);
  const std::string error = ErrorOf([&] { RnnStep<float>(cell, args, options); });
  if (!error.empty()) {
    EXPECT_EQ(h, std::vector<float>(10, 7)) << error;
    EXPECT_EQ(c, std::vector<float>(10, 7)) << error;
  }
  return error;
}

const auto kNothing = [](auto&, auto&) {};

TEST(RnnErrorsTest, RightArguments) {
  for (const Cell cell : internal::kCells) {
    EXPECT_EQ(ForwardError(kNothing, cell), "");
    EXPECT_EQ(BackwardError(kNothing, cell), "");
  }
  EXPECT_EQ(StepError(kNothing), "");
}

TEST(RnnErrorsTest, Cell) {
  const std::string error = "[Cell] cell must be a value of planish::Cell, got 200";
  const auto cell = static_cast<Cell>(200);
  EXPECT_EQ(ErrorOf([&] { RnnForward<float>(cell, {}); }), error);
  EXPECT_EQ(ErrorOf([&] { RnnBackward<float>(cell, {}); }), error);
  EXPECT_EQ(ErrorOf([&] { RnnStep<float>(cell, {}); }), error);
  EXPECT_EQ(ErrorOf([&] { RnnSavedSize<float>(cell, kShape); }), error);
  for (const Cell batch_norm : {Cell::kBnRnn, Cell::kBnLstm, Cell::kBnGru}) {
    EXPECT_EQ(StepError(kNothing, batch_norm),
              "[RnnStep] cell must be a cell without batch norm, got one with batch norm");
  }
}

TEST(RnnErrorsTest, Sizes) {
  const auto with = [](auto change) {
    return ForwardError([=](auto& a, auto&) { change(a.inputs.shape); });
  };
  EXPECT_EQ(with([](RnnShape& s) { s.time = -1; }), "[RnnForward] time must be at least 0, got -1");
  EXPECT_EQ(with([](RnnShape& s) { s.batch = -2; }),
            "[RnnForward] batch must be at least 0, got -2");
  EXPECT_EQ(with([](RnnShape& s) { s.inputs = 0; }),
            "[RnnForward] inputs must be at least 1, got 0");
  EXPECT_EQ(with([](RnnShape& s) { s.hidden = 0; }),
            "[RnnForward] hidden must be at least 1, got 0");
  EXPECT_EQ(
      with([](RnnShape& s) { s.time = int64_t{1} << 60; }),
      "[RnnForward] time * batch * max(inputs, hidden) must be at most 72057594037927935, got "
      "1152921504606846976 * 2 * 5");
  EXPECT_EQ(
      with([](RnnShape& s) { s.time = s.batch = s.inputs = s.hidden = INT64_MAX; }),
      "[RnnForward] time * batch * max(inputs, hidden) must be at most 72057594037927935, got "
      "9223372036854775807 * 9223372036854775807 * 9223372036854775807");
  EXPECT_EQ(with([](RnnShape& s) { s.time = 0, s.hidden = int64_t{1} << 40; }),
            "[RnnForward] hidden * max(inputs, hidden) must be at most 72057594037927935, got "
            "1099511627776 * 1099511627776");
  EXPECT_EQ(BackwardError([](auto& a, auto&) { a.inputs.shape.batch = -1; }),
            "[RnnBackward] batch must be at least 0, got -1");
  EXPECT_EQ(StepError([](auto& a, auto&) { a.inputs = -1; }),
            "[RnnStep] inputs must be at least 1, got -1");
  EXPECT_EQ(ErrorOf([] { RnnSavedSize<double>(Cell::kRnn, {1, 1, 1, -3}); }),
            "[RnnSavedSize] hidden must be at least 1, got -3");
}

TEST(RnnErrorsTest, Projection) {
  const auto with = [](int64_t projected) {
    return [=](auto& a, auto&) { a.inputs.shape.projected = projected; };
  };
  EXPECT_EQ(ForwardError(with(-1)), "[RnnForward] projected must be at least 0, got -1");
  EXPECT_EQ(ForwardError(with(5)), "[RnnForward] projected must be less than hidden, 5, got 5");
  EXPECT_EQ(BackwardError(with(7)), "[RnnBackward] projected must be less than hidden, 5, got 7");
  EXPECT_EQ(ForwardError(with(2), Cell::kLnGru),
            "[RnnForward] projected must be 0 for a cell without c, got 2");
  EXPECT_EQ(ForwardError(with(2)), "[RnnForward] weight_hr must point to 40 bytes, got null");
  EXPECT_EQ(StepError([](auto& a, auto&) { a.projected = 2; }),
            "[RnnStep] weight_hr must point to 40 bytes, got null");
  EXPECT_EQ(ForwardError([](auto& a, auto&) { a.inputs.params.weight_hr = numbers; }),
            "[RnnForward] weight_hr must be null without projected, got an address");
  EXPECT_EQ(BackwardError([](auto& a, auto&) { a.dparams.weight_hr = numbers; }),
            "[RnnBackward] dweight_hr must be null without projected, got an address");
  const RnnProblem<float> p(Cell::kLnLstm, {1, 1, 4, 5, 2});
  const auto packed = RnnPackedParams<float>(Cell::kLnLstm, 4, 5, p.Inputs().params, {}, false, 2);
  EXPECT_EQ(ForwardError([&](auto&, auto& options) { options.packed = packed; }),
            "[RnnForward] packed must have projected = 0, got 2");
}

TEST(RnnErrorsTest, Heads) {
  const auto with = [](int64_t heads) {
    return [=](auto& a, auto&) { a.inputs.shape.heads = heads; };
  };
  EXPECT_EQ(ForwardError(with(0)), "[RnnForward] heads must be at least 1, got 0");
  EXPECT_EQ(ForwardError(with(2), Cell::kLnGru), "[RnnForward] heads must divide hidden, 5, got 2");
  EXPECT_EQ(BackwardError(with(7)), "[RnnBackward] heads must divide hidden, 5, got 7");
  EXPECT_EQ(ForwardError(with(5)), "");
  EXPECT_EQ(ForwardError([](auto& a, auto&) {
              a.inputs.shape.heads = 5;
              a.inputs.shape.projected = 2;
            }),
            "[RnnForward] heads must be 1 with projected, got 5");
  const RnnProblem<float> p(Cell::kLnLstm, {1, 1, 4, 5, 0, 5});
  const auto packed =
      RnnPackedParams<float>(Cell::kLnLstm, 4, 5, p.Inputs().params, {}, false, 0, 5);
  EXPECT_EQ(ForwardError([&](auto&, auto& options) { options.packed = packed; }),
            "[RnnForward] packed must have heads = 1, got 5");
}

TEST(RnnErrorsTest, Eps) {
  EXPECT_EQ(ForwardError([](auto&, auto& o) { o.eps = -1; }),
            "[RnnForward] eps must be finite and at least 0, got -1");
  EXPECT_EQ(BackwardError([](auto&, auto& o) { o.eps = NAN; }),
            "[RnnBackward] eps must be finite and at least 0, got nan");
  EXPECT_EQ(StepError([](auto&, auto& o) { o.eps = INFINITY; }),
            "[RnnStep] eps must be finite and at least 0, got inf");
  EXPECT_EQ(ForwardError([](auto&, auto& o) { o.eps = 0; }), "");
}

TEST(RnnErrorsTest, Lengths) {
  const auto with = [](std::vector<int64_t> lengths) {
    return ForwardError([&](auto& a, auto&) { a.inputs.lengths = lengths.data(); });
  };
  EXPECT_EQ(with({1, 3}), "");  // in any order
  EXPECT_EQ(with({3, 0}), "[RnnForward] lengths[1] must be at least 1 and at most time, 3, got 0");
  EXPECT_EQ(with({4, 1}), "[RnnForward] lengths[0] must be at least 1 and at most time, 3, got 4");
  const std::vector<int64_t> negative = {1, -5};
  EXPECT_EQ(BackwardError([&](auto& a, auto&) { a.inputs.lengths = negative.data(); }),
            "[RnnBackward] lengths[1] must be at least 1 and at most time, 3, got -5");
}

TEST(RnnErrorsTest, Resets) {
  EXPECT_EQ(ForwardError([](auto& a, auto&) { a.inputs.resets = nullptr; }),
            "[RnnForward] h_reset must be null without resets, got an address");
  EXPECT_EQ(ForwardError([](auto& a, auto&) {
              a.inputs.resets = nullptr;
              a.inputs.h_reset = nullptr;
            }),
            "[RnnForward] c_reset must be null without resets, got an address");
}

std::string MustBeNull(const std::string& param) {
  const bool projection = param == "weight_hr";
  return param + " must be null " + (projection ? "without projected" : "for a cell without it") +
         ", got an address";
}

TEST(RnnErrorsTest, ParametersOfOtherCells) {
  for (const Cell cell : internal::kCells) {
    for (const auto& param : internal::ParamsOf<const float>(internal::RecipeOf(cell), kShape)) {
      const std::string error =
          ForwardError([&](auto& a, auto&) { a.inputs.params.*param.member = numbers; }, cell);
      EXPECT_EQ(error, param.taken ? "" : "[RnnForward] " + MustBeNull(param.name));
    }
    for (const auto& param : internal::ParamsOf<float>(internal::RecipeOf(cell), kShape)) {
      const std::string error =
          BackwardError([&](auto& a, auto&) { a.dparams.*param.member = numbers; }, cell);
      EXPECT_EQ(error, param.taken ? "" : "[RnnBackward] d" + MustBeNull(param.name));
    }
  }
  // Two cells without one parameter each.
  EXPECT_EQ(ForwardError([](auto& a, auto&) { a.inputs.params.ln_ih_bias = numbers; },
                         Cell::kLnLstmHaste),
            "[RnnForward] ln_ih_bias must be null for a cell without it, got an address");
  EXPECT_EQ(
      ForwardError([](auto& a, auto&) { a.inputs.params.bias = numbers; }, Cell::kLnLstmFastRnns),
      "[RnnForward] bias must be null for a cell without it, got an address");
  EXPECT_EQ(StepError([](auto& a, auto&) { a.params.bias_hn = numbers; }, Cell::kLnGru),
            "[RnnStep] bias_hn must be null for a cell without it, got an address");
}

TEST(RnnErrorsTest, Packed) {
  const auto with = [](Cell cell, int64_t inputs, int64_t hidden) {
    return [=](auto&, auto& options) {
      const RnnProblem<float> p(cell, {1, 1, inputs, hidden});
      options.packed = RnnPackedParams<float>(cell, inputs, hidden, p.Inputs().params);
    };
  };
  EXPECT_EQ(ForwardError(with(Cell::kLnLstm, 4, 5)), "");
  EXPECT_EQ(ForwardError(with(Cell::kLstm, 4, 5)),
            "[RnnForward] packed must be weights of the same cell, got those of another cell");
  EXPECT_EQ(ForwardError(with(Cell::kLnLstm, 3, 5)),
            "[RnnForward] packed must have inputs = 4, got 3");
  EXPECT_EQ(StepError(with(Cell::kLnLstm, 4, 6)), "[RnnStep] packed must have hidden = 5, got 6");
  const RnnProblem<float> p(Cell::kLnLstm, {1, 1, 4, 5});
  auto params = p.Inputs().params;
  const auto pack = [&](int64_t inputs) {
    return ErrorOf([&] { RnnPackedParams<float>(Cell::kLnLstm, inputs, 5, params); });
  };
  EXPECT_EQ(pack(4), "");
  EXPECT_EQ(pack(0), "[RnnPackedParams] inputs must be at least 1, got 0");
  params.bias_hn = numbers;
  EXPECT_EQ(pack(4),
            "[RnnPackedParams] bias_hn must be null for a cell without it, got an address");
  params.bias_hn = nullptr;
  params.weight_hh = nullptr;
  EXPECT_EQ(pack(4), "[RnnPackedParams] weight_hh must point to 400 bytes, got null");
}

TEST(RnnErrorsTest, Sums) {
  const RnnProblem<float> p(Cell::kLnLstm, {1, 1, 4, 5});
  const auto pack = [&](bool backward) {
    return RnnPackedParams<float>(Cell::kLnLstm, 4, 5, p.Inputs().params, {}, backward);
  };
  const RnnPackedParams<float> packed = pack(true);
  RnnGradientSums<float> sums(packed), others(pack(true));
  const auto with = [&](RnnGradientSums<float>& given) {
    return [&](auto& args, auto& options) {
      options.packed = packed;
      args.sums = &given;
      args.dparams = {};
    };
  };
  EXPECT_EQ(BackwardError(with(sums)), "");
  EXPECT_EQ(BackwardError(with(others)),
            "[RnnBackward] sums must be created from options.packed, got sums of other weights");
  EXPECT_EQ(BackwardError([&](auto& a, auto&) { a.sums = &sums; }),
            "[RnnBackward] sums must be created from options.packed, got sums of other weights");
  EXPECT_EQ(BackwardError([&](auto& a, auto& options) {
              with(sums)(a, options);
              a.dparams.ln_c_bias = numbers;
            }),
            "[RnnBackward] dln_c_bias must be null with sums, got an address");
  EXPECT_EQ(BackwardError([&](auto&, auto& options) { options.packed = pack(false); }),
            "[RnnBackward] packed must be created with backward=true, got backward=false");
  const auto made = [](const RnnPackedParams<float>& given) {
    return ErrorOf([&] { RnnGradientSums<float> of_given(given); });
  };
  EXPECT_EQ(made({}), "[RnnGradientSums] packed must be packed weights, got none");
  EXPECT_EQ(made(pack(false)),
            "[RnnGradientSums] packed must be created with backward=true, got backward=false");
  const auto written = [&](const RnnParams<float>& dparams) {
    return ErrorOf([&] { sums.Write(dparams); });
  };
  EXPECT_EQ(written({}), "");
  EXPECT_EQ(written({.bias_hn = numbers}),
            "[RnnGradientSums::Write] dbias_hn must be null for a cell without it, got an "
            "address");
  EXPECT_EQ(written({.ln_c_weight = numbers, .ln_c_bias = numbers}),
            "[RnnGradientSums::Write] dln_c_bias must not overlap dln_c_weight, got 20 bytes in "
            "common");
}

TEST(RnnErrorsTest, CellsWithoutC) {
  EXPECT_EQ(ForwardError([](auto& a, auto&) { a.inputs.c0 = numbers; }, Cell::kLnGru),
            "[RnnForward] c0 must be null for a cell without c, got an address");
  EXPECT_EQ(ForwardError([](auto& a, auto&) { a.inputs.c_reset = numbers; }, Cell::kRnn),
            "[RnnForward] c_reset must be null for a cell without c, got an address");
  EXPECT_EQ(ForwardError([](auto& a, auto&) { a.c_n = numbers; }, Cell::kBnGru),
            "[RnnForward] c_n must be null for a cell without c, got an address");
  EXPECT_EQ(BackwardError([](auto& a, auto&) { a.dc_n = numbers; }, Cell::kGru),
            "[RnnBackward] dc_n must be null for a cell without c, got an address");
  EXPECT_EQ(BackwardError([](auto& a, auto&) { a.dc0 = numbers; }, Cell::kGru),
            "[RnnBackward] dc0 must be null for a cell without c, got an address");
  EXPECT_EQ(BackwardError([](auto& a, auto&) { a.dc_reset = numbers; }, Cell::kGru),
            "[RnnBackward] dc_reset must be null for a cell without c, got an address");
  EXPECT_EQ(StepError([](auto& a, auto&) { a.c = numbers; }, Cell::kGru),
            "[RnnStep] c must be null for a cell without c, got an address");
  EXPECT_EQ(StepError([](auto& a, auto&) { a.c_next = numbers; }, Cell::kGru),
            "[RnnStep] c_next must be null for a cell without c, got an address");
}

TEST(RnnErrorsTest, Null) {
  EXPECT_EQ(ForwardError([](auto& a, auto&) { a.inputs.x = nullptr; }),
            "[RnnForward] x must point to 96 bytes, got null");
  // 3 * 2 * (14 * 16 + 5) elements of 4 bytes.
  EXPECT_EQ(BackwardError([](auto& a, auto&) { a.saved = nullptr; }),
            "[RnnBackward] saved must point to 5496 bytes, got null");
  EXPECT_EQ(BackwardError([](auto& a, auto&) { a.saved = nullptr; }, Cell::kRnn), "");
}

TEST(RnnErrorsTest, Overlaps) {
  EXPECT_EQ(ForwardError([](auto& a, auto&) { a.y = const_cast<float*>(a.inputs.x); }),
            "[RnnForward] y must not overlap x, got 96 bytes in common");
  EXPECT_EQ(StepError([](auto& a, auto&) { a.h_next = const_cast<float*>(a.h) + 1; }),
            "[RnnStep] h_next must not overlap h, got 36 bytes in common");
  EXPECT_EQ(StepError([](auto& a, auto&) { a.c_next = const_cast<float*>(a.h); }),
            "[RnnStep] c_next must not overlap h, got 40 bytes in common");
}

/// The arrays of a call, in several structs of arguments.
struct CallArrays {
  template <class Args, class... Facts>
  void Add(Args& args, const Facts&... facts) {
    // Lengths cannot be zeros.
    std::ranges::move(tests::SetArrays(args, {"lengths"}, facts...), std::back_inserter(memory));
    std::ranges::move(tests::ArraysOf(args, facts...), std::back_inserter(arrays));
  }

  std::vector<std::vector<double>> memory;
  std::vector<tests::ArrayArgument> arrays;
};

TEST(RnnErrorsTest, Arrays) {
  for (const auto& [cell, recurrence] : tests::kKinds) {
    const RnnShape shape = tests::Shaped(kShape, recurrence);
    SCOPED_TRACE(tests::NameOf(cell));
    const internal::CellRecipe recipe = internal::RecipeOf(cell);
    const int64_t saved = RnnSavedSize<float>(cell, shape);
    RnnInputs<float> inputs;
    inputs.shape = shape;
    RnnForwardArgs<float> forward{.inputs = inputs};
    RnnBackwardArgs<float> backward{.inputs = inputs};
    const auto add = [&](CallArrays& call, auto& args) {
      call.Add(args.inputs, recipe);
      call.Add(args.inputs.params, recipe, shape);
      call.Add(args, recipe, saved);
    };
    CallArrays of_forward, of_backward;
    add(of_forward, forward);
    add(of_backward, backward);
    of_backward.Add(backward.dparams, recipe, shape);
    tests::ExpectArrayErrors("RnnForward", of_forward.arrays, [&] { RnnForward(cell, forward); });
    tests::ExpectArrayErrors("RnnBackward", of_backward.arrays,
                             [&] { RnnBackward(cell, backward); });
    if (recipe.over == internal::Over::kBatch) continue;
    RnnStepArgs<float> step{.batch = 2, .inputs = 4, .hidden = 5};
    step.projected = shape.projected;
    step.heads = shape.heads;
    CallArrays of_step;
    of_step.Add(step, recipe);
    of_step.Add(step.params, recipe, shape);
    tests::ExpectArrayErrors("RnnStep", of_step.arrays, [&] { RnnStep(cell, step); });
  }
}

}  // namespace
}  // namespace planish
