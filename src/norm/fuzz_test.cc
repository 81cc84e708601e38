#include "src/norm/fuzz.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "src/norm/testing.h"

namespace planish {
namespace {

// Runs the fuzzer on inputs drawn with fixed seeds. A failing seed reproduces its input.
void RunSeeds(uint32_t first, uint32_t n) {
  for (uint32_t seed = first; seed < first + n; ++seed) {
    std::mt19937 random(seed);
    std::vector<uint8_t> bytes(60 + random() % 200);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    try {
      tests::FuzzNorm(bytes.data(), bytes.size());
    } catch (const std::logic_error& error) {
      FAIL() << "seed " << seed << " on " << Target() << ": " << error.what();
    }
  }
}

TEST(FuzzTest, BestTarget) { RunSeeds(0, 14000); }

TEST(FuzzTest, EveryTarget) {
  uint32_t first = 100000;
  tests::ForEachTarget([&](const std::string&) { RunSeeds(first += 10000, 2500); });
}

}  // namespace
}  // namespace planish
