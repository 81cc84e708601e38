#include "src/base/tuning.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace planish::internal {
namespace {

constexpr int64_t kMegabyte = int64_t{1} << 20;

class TuningTest : public ::testing::Test {
 protected:
  ~TuningTest() override { SetStreaming(before_); }

 private:
  StreamingLimits before_ = Streaming();
};

TEST_F(TuningTest, ACallOrAThreadsShareOfItStreams) {
  SetStreaming({.call = 24 * kMegabyte, .thread = 16 * kMegabyte});
  EXPECT_FALSE(Streams(16 * kMegabyte - 1, 1, 1));
  EXPECT_TRUE(Streams(16 * kMegabyte, 1, 1));
  EXPECT_TRUE(Streams(16 * kMegabyte, 7, 7));
  EXPECT_FALSE(Streams(24 * kMegabyte - 1, 1, 2));
  EXPECT_TRUE(Streams(24 * kMegabyte, 1, 2));
  EXPECT_TRUE(Streams(24 * kMegabyte, 0, 2));
  SetStreaming({.call = 360 * kMegabyte, .thread = 16 * kMegabyte});
  EXPECT_FALSE(Streams(32 * kMegabyte - 1, 1, 2));
  EXPECT_TRUE(Streams(32 * kMegabyte, 1, 2));
  EXPECT_FALSE(Streams(32 * kMegabyte, 1, 3));
  EXPECT_TRUE(Streams(32 * kMegabyte, 2, 3));
}

TEST_F(TuningTest, SharesOfTheLargestCallsDoNotOverflow) {
  SetStreaming({.call = INT64_MAX, .thread = kMegabyte});
  constexpr int64_t kMax = int64_t{1} << 62;
  EXPECT_TRUE(Streams(kMax, int64_t{1} << 40, int64_t{1} << 41));
  EXPECT_FALSE(Streams(kMegabyte, int64_t{1} << 40, int64_t{1} << 41));
}

TEST_F(TuningTest, WhatIsKeptGoesPastAFarCacheSooner) {
  SetStreaming({.call = 24 * kMegabyte, .thread = 16 * kMegabyte});
  EXPECT_FALSE(KeepsPastCaches(16 * kMegabyte - 1));
  EXPECT_EQ(KeepsPastCaches(16 * kMegabyte), LastCacheIsFar());
  EXPECT_TRUE(KeepsPastCaches(24 * kMegabyte));
}

TEST_F(TuningTest, AllOrNothingStreams) {
  SetStreaming({.call = 0, .thread = 0});
  EXPECT_TRUE(Streams(0, 1, 1));
  SetStreaming({.call = INT64_MAX, .thread = INT64_MAX});
  EXPECT_FALSE(Streams(int64_t{1} << 50, 1, 1));
}

// A thread's limit is at most the call's limit, and both are at most the cache sizes.
TEST_F(TuningTest, ThisMachines) {
  const StreamingLimits limits = Streaming();
  EXPECT_GE(limits.thread, kMegabyte);
  EXPECT_LE(limits.thread, limits.call);
  EXPECT_GE(SecondCacheBytes(), 1 << 17);
  EXPECT_GE(TileBytes(), kTileBytes);
  EXPECT_LE(RunTileBytes(), kTileBytes);
  EXPECT_FALSE(AsksForResults(SecondCacheBytes(), 1, 1));
  EXPECT_EQ(AsksForResults(SecondCacheBytes() + 1, 1, 1), LastCacheIsFar());
  EXPECT_FALSE(AsksForResults(2 * SecondCacheBytes(), 1, 2));
  EXPECT_EQ(OwnWeightBytes() < SecondCacheBytes(), LastCacheIsFar());
  if (LastCacheIsFar()) {
    EXPECT_LE(limits.thread, 8 * SecondCacheBytes());
    EXPECT_LE(RunTileBytes(), SecondCacheBytes());
  }
}

}  // namespace
}  // namespace planish::internal
