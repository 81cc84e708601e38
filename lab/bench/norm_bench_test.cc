#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lab/bench/arena.h"
#include "lab/bench/contestants.h"
#include "lab/bench/methods.h"
#include "lab/bench/reference.h"
#include "lab/bench/types.h"

namespace planish::bench {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr Type kTypes[] = {Type::kFloat, Type::kDouble, Type::kBFloat16, Type::kFloat16};
constexpr Direction kDirections[] = {Direction::kForward, Direction::kBackward};

TEST(Limits, MoveEveryByte) {
  Arena arena;
  for (const Direction direction : kDirections) {
    // Less than a vector, a page with a tail, and enough for several threads.
    for (const int64_t rows : {1, 301, 40001}) {
      const Case c{.direction = direction, .type = Type::kFloat, .rows = rows, .cols = 7};
      const Arrays arrays = arena.For(c);
      const auto n = static_cast<size_t>(c.elements()) * sizeof(float);
      std::vector<uint8_t> expected(n);
      std::memcpy(expected.data(), arrays.x, n);
      for (size_t i = 0; direction == Direction::kBackward && i < n; ++i) {
        expected[i] ^= static_cast<const uint8_t*>(arrays.dy)[i];
      }
      for (const std::string& name : LimitNames(direction)) {
        std::memset(arrays.out, 0, n);
        MakeLimit(name, c, arrays).call();
        EXPECT_EQ(std::memcmp(arrays.out, expected.data(), n), 0) << name << " " << rows;
      }
    }
  }
}

TEST(Reference, AcceptsCorrectResultsOfEveryNormAndType) {
  Arena arena;
  for (const Type type : kTypes) {
    for (const Direction direction : kDirections) {
      // 129 is one head or group of 129 channels, 120 is eight.
      for (const int64_t cols : {129, 120}) {
        const Case c{.direction = direction, .type = type, .rows = 50, .cols = cols, .gated = true};
        const Arrays arrays = arena.For(c);
        for (const std::string& method : MethodNames()) {
          SCOPED_TRACE(method + " " + Name(direction) + " " + Name(type));
          const Contestant planish = MakePlanish(method, c, arrays);
          EXPECT_THAT(CheckContestant(method, planish, c, arrays, false), IsEmpty());
        }
      }
    }
  }
}

TEST(Reference, AcceptsCorrectResultsOfPyTorch) {
  Arena arena;
  for (const Type type : {Type::kFloat, Type::kDouble}) {
    for (const Direction direction : kDirections) {
      for (const int64_t spatial : {1, 70}) {
        const Case c{.direction = direction,
                     .type = type,
                     .rows = 10,
                     .cols = 120,
                     .spatial = spatial,
                     .gated = true};
        const Arrays arrays = arena.For(c);
        for (const std::string& method : MethodNames()) {
          // With one element, PyTorch's deviation of a group is inaccurate.
          if (spatial == 1 && !IsOfRows(FindMethod(method))) continue;
          SCOPED_TRACE(method + " " + Name(direction) + " " + Name(type));
          const Contestant aten = MakeAten(method, c, arrays);
          if (!HasAten(method)) {
            EXPECT_THAT(aten.absent, HasSubstr("no kernel"));
          }
          if (!aten.call) continue;
          EXPECT_THAT(CheckContestant(method, aten, c, arrays, true), IsEmpty());
        }
      }
    }
  }
}

TEST(Reference, AcceptsCorrectResultsOfTheBareLoop) {
  Arena arena;
  for (const Direction direction : kDirections) {
    for (const Type type : {Type::kFloat, Type::kBFloat16}) {
      for (const int64_t rows : {1, 2, 3, 50, 1000}) {
        const Case c{.direction = direction, .type = type, .rows = rows, .cols = 96};
        const Arrays arrays = arena.For(c);
        const Contestant bare = MakeBare("layer", c, arrays);
        ASSERT_THAT(bare.absent, IsEmpty());
        EXPECT_THAT(CheckContestant("layer", bare, c, arrays, false), IsEmpty())
            << rows << " " << Name(direction) << " " << Name(type);
      }
    }
    const Case ragged{.direction = direction, .type = Type::kBFloat16, .rows = 3, .cols = 97};
    EXPECT_THAT(MakeBare("layer", ragged, {}).absent, HasSubstr("whole vectors"));
  }
  for (const int64_t cols : {33, 97, 127}) {
    const Case c{.rows = 50, .cols = cols};
    const Arrays arrays = arena.For(c);
    const Contestant bare = MakeBare("layer", c, arrays);
    ASSERT_THAT(bare.absent, IsEmpty());
    EXPECT_THAT(CheckContestant("layer", bare, c, arrays, false), IsEmpty()) << cols;
  }
  EXPECT_THAT(MakeBare("layer", {.rows = 3, .cols = 2}, {}).absent, HasSubstr("at least"));
  EXPECT_THAT(
      MakeBare("layer", {.direction = Direction::kBackward, .rows = 3, .cols = 97}, {}).absent,
      HasSubstr("whole vectors"));
  EXPECT_THAT(MakeBare("layer", {.type = Type::kDouble, .rows = 3, .cols = 96}, {}).absent,
              HasSubstr("bfloat16"));
  EXPECT_THAT(MakeBare("rms", {.rows = 3, .cols = 96}, {}).absent, HasSubstr("layer norm"));
}

TEST(Reference, AcceptsCorrectResultsOfChannels) {
  Arena arena;
  for (const Type type : kTypes) {
    for (const Direction direction : kDirections) {
      // Nine channels are nine groups of one, 40 eight of five.
      for (const int64_t channels : {9, 40}) {
        const Case c{.direction = direction,
                     .type = type,
                     .rows = 20,
                     .cols = channels,
                     .spatial = 13,
                     .gated = true};
        const Arrays arrays = arena.For(c);
        for (const std::string& method : MethodNames()) {
          SCOPED_TRACE(method + " " + Name(direction) + " " + Name(type));
          const Contestant planish = MakePlanish(method, c, arrays);
          if (method == "online") {
            EXPECT_THAT(planish.absent, HasSubstr("rows"));
            continue;
          }
          EXPECT_THAT(CheckContestant(method, planish, c, arrays, false), IsEmpty());
        }
      }
    }
  }
}

TEST(Reference, AcceptsCorrectResultsOfTheBareLoopsOverChannels) {
  Arena arena;
  for (const Direction direction : kDirections) {
    for (const int64_t spatial : {1, 64}) {
      const Case c{.direction = direction, .rows = 20, .cols = 32, .spatial = spatial};
      const Arrays arrays = arena.For(c);
      for (const char* method : {"batch", "layer-channels"}) {
        const Contestant bare = MakeBareChannels(method, c, arrays);
        if (spatial == 1 && method == std::string("layer-channels")) {
          EXPECT_THAT(bare.absent, HasSubstr("whole vectors"));
          continue;
        }
        ASSERT_THAT(bare.absent, IsEmpty());
        EXPECT_THAT(CheckContestant(method, bare, c, arrays, false), IsEmpty())
            << method << " " << Name(direction) << " " << spatial;
      }
    }
  }
  EXPECT_THAT(MakeBareChannels("rms", {.rows = 3, .cols = 32}, {}).absent, HasSubstr("channels"));
  EXPECT_THAT(MakeBareChannels("batch", {.rows = 3, .cols = 33}, {}).absent, HasSubstr("vectors"));
  EXPECT_THAT(MakeBareChannels("batch", {.type = Type::kDouble, .rows = 3, .cols = 32}, {}).absent,
              HasSubstr("float"));
}

TEST(Reference, TellsNormsApart) {
  Arena arena;
  const Case c{.direction = Direction::kForward, .rows = 50, .cols = 129};
  const Arrays arrays = arena.For(c);
  const Contestant layer = MakePlanish("layer", c, arrays);
  EXPECT_THAT(CheckContestant("rms", layer, c, arrays, false), HasSubstr("y is off by"));
}

TEST(Reference, RefusesOneWrongNumber) {
  Arena arena;
  const Case c{.direction = Direction::kBackward, .rows = 50, .cols = 129};
  const Arrays arrays = arena.For(c);
  const Reference reference("layer", c, arrays);
  const Contestant planish = MakePlanish("layer", c, arrays);
  const std::vector<std::pair<void*, std::string>> outputs = {
      {arrays.out, "dx"}, {arrays.dgain, "dgain"}, {arrays.dbias, "dbias"}};
  for (const auto& [output, name] : outputs) {
    planish.call();
    ASSERT_THAT(reference.Compare(false), IsEmpty());
    float& number = static_cast<float*>(output)[100];
    // All values are of size 1 to 10; the loosest tolerance, of sums over 50 rows, is 16 * sqrt(50)
    // * 2^-24 of that, 7e-5.
    number += 1e-3f;
    EXPECT_THAT(reference.Compare(false), HasSubstr(name + " is off by 0.001;"));
  }
}

TEST(Reference, RefusesUnwrittenResults) {
  Arena arena;
  const Case c{.direction = Direction::kBackward, .rows = 50, .cols = 129, .gated = true};
  const Arrays arrays = arena.For(c);
  const auto refuses = [&](const char* method, const std::vector<std::string>& outputs) {
    const std::string wrong = CheckContestant(method, {.call = [] {}}, c, arrays, false);
    for (const std::string& name : outputs) {
      EXPECT_THAT(wrong, HasSubstr(name + " is off by nan"));
    }
  };
  refuses("layer-gated", {"dx", "dgate", "dgain", "dbias"});
  refuses("dyt", {"dx", "dscalars", "dgain", "dbias"});
}

TEST(Methods, CountTheArraysOfAGate) {
  EXPECT_EQ(ArrayCount(FindMethod("layer"), Direction::kForward), 2);
  EXPECT_EQ(ArrayCount(FindMethod("layer"), Direction::kBackward), 3);
  EXPECT_EQ(ArrayCount(FindMethod("rms-gated"), Direction::kForward), 3);
  EXPECT_EQ(ArrayCount(FindMethod("rms-gated"), Direction::kBackward), 5);
}

TEST(Arena, GivesNewCasesTheirNumbers) {
  Arena arena;
  const Case large{.type = Type::kFloat, .rows = 1000, .cols = 7};
  const Case half{.type = Type::kFloat16, .rows = 10, .cols = 7};
  arena.For(large);
  const Arrays arrays = arena.For(half);
  double min = 0, max = 0;
  for (int64_t i = 0; i < half.elements(); ++i) {
    const double x = ToDouble(static_cast<const float16*>(arrays.x)[i]);
    min = std::min(min, x);
    max = std::max(max, x);
  }
  // Uniform between -sqrt(3) and sqrt(3): of 70 values some are in each outer quarter, except with
  // probability 2 * .75^70 = 4e-9, and these values are fixed.
  EXPECT_GT(min, -1.7321 - 1e-3);
  EXPECT_LT(min, -0.866);
  EXPECT_GT(max, 0.866);
  EXPECT_LT(max, 1.7321 + 1e-3);
}

TEST(Parse, RefusesUnknownNames) {
  for (const Type type : kTypes) EXPECT_EQ(ParseType(Name(type)), type);
  for (const Direction d : kDirections) EXPECT_EQ(ParseDirection(Name(d)), d);
  EXPECT_THROW(ParseType("half"), std::invalid_argument);
  EXPECT_THROW(ParseDirection("up"), std::invalid_argument);
  Case parsed;
  for (const std::string shape : {"3x4", "3x4x5"}) {
    ParseShape(shape, parsed);
    EXPECT_EQ(ShapeName(parsed), shape);
  }
  for (const char* shape : {"", "3", "3x", "0x4", "3x4x5x6", "-3x4", "3x4 "}) {
    EXPECT_THROW(ParseShape(shape, parsed), std::invalid_argument) << shape;
  }
  const Case c{.rows = 1, .cols = 1};
  EXPECT_THROW(MakeLimit("three-streams", c, {}), std::invalid_argument);
  EXPECT_THROW(MakePlanish("lyaer", c, {}), std::invalid_argument);
}

}  // namespace
}  // namespace planish::bench
