#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench/rnn/arrays.h"
#include "bench/rnn/case.h"
#include "bench/rnn/contestants.h"

namespace planish::bench::rnn {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr Mode kModes[] = {Mode::kForward, Mode::kTraining, Mode::kStep};

// Sizes that are multiples of no vector's width.
Case Small(Mode mode) {
  return {.mode = mode,
          .shape = {.time = mode == Mode::kStep ? 1 : 5, .batch = 9, .inputs = 7, .hidden = 13}};
}

TEST(Reference, TakesRightResultsOfEveryContestantAndCell) {
  Arena arena;
  for (const Mode mode : kModes) {
    const Case c = Small(mode);
    const Arrays arrays = arena.For(c);
    int checked = 0;
    for (const std::string& cell : CellNames()) {
      const bool bn_step = mode == Mode::kStep && cell.starts_with("bn-");
      for (const char* who : {"planish", "planish-packed", "planish-bfloat16", "planish-int8",
                              "torch", "torch-cell", "composed", "onednn"}) {
        const std::string name = std::string(who) + ":" + cell;
        const Contestant contestant = MakeContestant(name, c, arrays);
        if (!contestant.call) {
          EXPECT_THAT(contestant.absent, testing::Not(IsEmpty()));
          EXPECT_TRUE(name != "planish:" + cell || bn_step) << name << ": " << contestant.absent;
          continue;
        }
        const Reference reference(ParseCell(cell), c, arrays, WeightTypeOf(name));
        EXPECT_THAT(CheckContestant(contestant, reference), IsEmpty()) << name << " " << Name(mode);
        ++checked;
      }
    }
    // All 16 cells of Planish, for forward also packed, and 13 for a step, there with each type of
    // weights; 4 layers of PyTorch, for a step also 3 cells; two composed ones. oneDNN can be
    // absent.
    EXPECT_GE(checked, mode == Mode::kForward ? 38 : 22) << Name(mode);
  }
}

TEST(Contestants, HaveProjectionsAndHeads) {
  Arena arena;
  for (const char* shape : {"5x9x7x12+p5", "5x9x7x12+h3"}) {
    for (const Mode mode : kModes) {
      Case c = {.mode = mode, .shape = ParseShape(shape)};
      if (mode == Mode::kStep) c.shape.time = 1;
      const Arrays arrays = arena.For(c);
      for (const char* name : {"planish:ln-lstm", "planish:lstm", "planish:gru", "torch:lstm"}) {
        SCOPED_TRACE(std::string(name) + " " + shape + " " + Name(mode));
        const Contestant contestant = MakeContestant(name, c, arrays);
        const bool projects = c.shape.projected > 0;
        const bool exists = std::string(name) == "planish:gru"  ? !projects
                            : std::string(name) == "torch:lstm" ? projects
                                                                : true;
        ASSERT_EQ(static_cast<bool>(contestant.call), exists) << contestant.absent;
        if (!exists) continue;
        const Reference reference(CellOf(name), c, arrays);
        EXPECT_THAT(CheckContestant(contestant, reference), IsEmpty());
      }
    }
  }
}

TEST(Reference, TellsCellsApart) {
  Arena arena;
  const Case c = Small(Mode::kForward);
  const Arrays arrays = arena.For(c);
  const Contestant haste = MakeContestant("planish:ln-lstm-haste", c, arrays);
  const Reference paper(Cell::kLnLstm, c, arrays);
  EXPECT_THAT(CheckContestant(haste, paper), HasSubstr("y is off by"));
}

TEST(Reference, RejectsOneWrongElement) {
  Arena arena;
  const Case c = Small(Mode::kTraining);
  const Arrays arrays = arena.For(c);
  const Reference reference(Cell::kLnLstm, c, arrays);
  const Contestant planish = MakeContestant("planish:ln-lstm", c, arrays);
  const std::vector<std::pair<float*, std::string>> outputs = {
      {arrays.y, "y"},
      {arrays.dx, "dx"},
      {arrays.dall.weight_ih, "the gradient of weight_ih"},
      {arrays.dall.weight_hh, "the gradient of weight_hh"},
      {arrays.dall.bias, "the gradient of bias"},
      {arrays.dall.ln_ih_weight, "the gradient of ln_ih_weight"},
      {arrays.dall.ln_hh_bias, "the gradient of ln_hh_bias"},
      {arrays.dall.ln_c_weight, "the gradient of ln_c_weight"},
      {arrays.dall.ln_c_bias, "the gradient of ln_c_bias"}};
  for (const auto& [output, name] : outputs) {
    planish.call();
    ASSERT_THAT(reference.Compare(), IsEmpty());
    // No value here is above 40, and the tolerance is 8 * (sqrt(20) + sqrt(45)) * 2^-24 = 5.3e-6 of
    // the largest, 2.1e-4.
    output[10] += 2e-3f;
    EXPECT_THAT(reference.Compare(), HasSubstr(name + " is off by 0.002;"));
  }
}

TEST(Reference, RejectsUnwrittenElements) {
  Arena arena;
  for (const Mode mode : kModes) {
    const Case c = Small(mode);
    const Arrays arrays = arena.For(c);
    const Reference reference(Cell::kLnLstm, c, arrays);
    EXPECT_THAT(CheckContestant({.call = [] {}}, reference), HasSubstr("y is off by nan"));
  }
  const Case c = Small(Mode::kTraining);
  const Arrays arrays = arena.For(c);
  const Reference reference(Cell::kLnLstm, c, arrays);
  const Contestant planish = MakeContestant("planish:ln-lstm", c, arrays);
  const Contestant forgetful = {
      .call = [&] { planish.call(), arrays.dall.ln_c_bias[3] = std::nanf(""); }};
  EXPECT_THAT(CheckContestant(forgetful, reference), HasSubstr("ln_c_bias is off by nan"));
}

TEST(Arena, ThrowsForShapesThatDoNotFitIntoMemory) {
  Arena arena;
  EXPECT_THROW(arena.For({.shape = ParseShape("9999999x9999999x9999999x9999999")}), Error);
}

TEST(Products, RunInEveryMode) {
  Arena arena;
  for (const Mode mode : kModes) {
    for (const int64_t batch : {1, 9}) {
      Case c = Small(mode);
      c.shape.batch = batch;
      const Arrays arrays = arena.For(c);
      for (const char* name : {"products:ln-lstm", "products:gru", "products:rnn"}) {
        MakeContestant(name, c, arrays).call();
      }
    }
  }
}

TEST(MultiplyAdds, CountBothProducts) {
  // 5 * 9 steps of 4 * 13 gates of 7 + 13 terms.
  EXPECT_EQ(MultiplyAdds(Cell::kLnLstm, Small(Mode::kForward)), 5 * 9 * 4 * 13 * (7 + 13));
  EXPECT_EQ(MultiplyAdds(Cell::kLnLstm, Small(Mode::kTraining)), 3 * 5 * 9 * 4 * 13 * (7 + 13));
  EXPECT_EQ(MultiplyAdds(Cell::kRnn, Small(Mode::kStep)), 9 * 13 * (7 + 13));
  EXPECT_EQ(MultiplyAdds(Cell::kLstm, {.mode = Mode::kForward, .shape = ParseShape("2x3x4x10+p5")}),
            2 * 3 * 10 * (4 * (4 + 5) + 5));
  EXPECT_EQ(MultiplyAdds(Cell::kLstm, {.mode = Mode::kForward, .shape = ParseShape("2x3x4x10+h5")}),
            2 * 3 * 10 * 4 * (4 + 2));
}

TEST(Parse, RefusesUnknownNames) {
  for (const Mode mode : kModes) EXPECT_EQ(ParseMode(Name(mode)), mode);
  EXPECT_THROW(ParseMode("backward"), std::invalid_argument);
  for (const char* shape : {"100x32x256x512", "1x2x3x4+p2", "1x2x3x4+h2"}) {
    EXPECT_EQ(ShapeName(ParseShape(shape)), shape);
  }
  for (const char* shape : {"", "1x2x3", "1x2x3x0", "1x2x3x4x5", "-1x2x3x4", "1x2x3x4 "}) {
    EXPECT_THROW(ParseShape(shape), std::invalid_argument) << shape;
  }
  for (const std::string& cell : CellNames()) EXPECT_NO_THROW(ParseCell(cell));
  EXPECT_THROW(ParseCell("lstn"), std::invalid_argument);
  const Case c = Small(Mode::kForward);
  EXPECT_THROW(MakeContestant("haste:ln-lstm", c, {}), std::invalid_argument);
  EXPECT_THROW(MakeContestant("planish", c, {}), std::invalid_argument);
}

}  // namespace
}  // namespace planish::bench::rnn
