#include "src/base/fingerprint.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "planish/parallel.h"
#include "planish/target.h"

namespace planish::internal {
namespace {

using Bytes = std::vector<uint8_t>;

Fingerprint Of(const Bytes& bytes, const ParallelFor& parallel_for = SerialFor) {
  return FingerprintOf(bytes.data(), static_cast<int64_t>(bytes.size()), parallel_for);
}

Bytes Pattern(size_t size) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(i * i / 7 + i);
  return bytes;
}

// Sizes around those of a vector, a block, and the work of a thread.
const size_t kSizes[] = {0,    1,    3,    63,   64,    65,    127,        4095,           4096,
                         4097, 4160, 8191, 8192, 12345, 65536, (64 << 12), (64 << 12) + 1, 1000003};

TEST(FingerprintTest, EqualBytesHaveEqualFingerprints) {
  for (const size_t size : kSizes) {
    const Bytes bytes = Pattern(size);
    Bytes shifted(size + 1);  // at another alignment
    if (size > 0) std::memcpy(shifted.data() + 1, bytes.data(), size);
    EXPECT_EQ(Of(bytes), FingerprintOf(shifted.data() + 1, static_cast<int64_t>(size), SerialFor))
        << size;
  }
}

TEST(FingerprintTest, EveryTargetAndNumberOfThreadsGivesTheSame) {
  const std::string before = Target();
  for (const size_t size : kSizes) {
    const Bytes bytes = Pattern(size);
    const Fingerprint expected = Of(bytes);
    const ParallelFor one_by_one = [](int64_t begin, int64_t end, int64_t, RangeTask task) {
      for (int64_t i = end; i-- > begin;) task(i, i + 1);
    };
    for (const std::string& target : Targets()) {
      SetTarget(target);
      EXPECT_EQ(Of(bytes), expected) << target << " " << size;
      EXPECT_EQ(Of(bytes, one_by_one), expected) << target << " " << size;
      EXPECT_EQ(Of(bytes, {}), expected) << target << " " << size;
    }
    SetTarget(before);
  }
}

TEST(FingerprintTest, EachBitCounts) {
  for (const size_t size : {1, 8, 63, 64, 200, 4100}) {
    Bytes bytes = Pattern(size);
    std::set<std::pair<uint64_t, uint64_t>> seen;
    const auto insert = [&] {
      const Fingerprint f = Of(bytes);
      return seen.emplace(f.first, f.second).second;
    };
    EXPECT_TRUE(insert());
    for (size_t bit = 0; bit < 8 * size; ++bit) {
      bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
      EXPECT_TRUE(insert()) << size << " " << bit;
      bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    }
  }
}

TEST(FingerprintTest, ABitOfALongArrayCounts) {
  Bytes bytes = Pattern(3000001);
  const Fingerprint before = Of(bytes);
  for (size_t at = 0; at < bytes.size(); at += 99991) {
    bytes[at] ^= 0x80;
    EXPECT_FALSE(Of(bytes) == before) << at;
    bytes[at] ^= 0x80;
  }
  EXPECT_EQ(Of(bytes), before);
}

// Changes that preserve sums of words or bytes, which simple checksums miss.
TEST(FingerprintTest, ExchangedAndOppositeChangesCount) {
  for (const size_t distance : {1, 2, 4, 8, 16, 32, 64, 128, 4096, 8192}) {
    Bytes bytes = Pattern(20000);
    bytes[1000 + distance] = static_cast<uint8_t>(bytes[1000] + 5);
    const Fingerprint before = Of(bytes);
    Bytes exchanged = bytes;
    std::swap(exchanged[1000], exchanged[1000 + distance]);
    EXPECT_FALSE(Of(exchanged) == before) << distance;
    Bytes opposite = bytes;
    opposite[1000] = static_cast<uint8_t>(opposite[1000] + 1);
    opposite[1000 + distance] = static_cast<uint8_t>(opposite[1000 + distance] - 1);
    EXPECT_FALSE(Of(opposite) == before) << distance;
  }
}

TEST(FingerprintTest, FloatsThatCompareEqualOrAreNaNHaveTheirOwn) {
  const auto of = [](float value) { return FingerprintOf(&value, sizeof value, SerialFor); };
  EXPECT_FALSE(of(0.0F) == of(-0.0F));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  uint32_t bits = 0;
  std::memcpy(&bits, &nan, sizeof bits);
  ++bits;  // another payload
  float other = 0;
  std::memcpy(&other, &bits, sizeof bits);
  EXPECT_EQ(of(nan), of(nan));
  EXPECT_FALSE(of(nan) == of(other));
}

}  // namespace
}  // namespace planish::internal
