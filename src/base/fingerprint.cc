#include "src/base/fingerprint.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <random>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/base/fingerprint.cc"
#include "src/base/simd/compiled_targets.h"
// Must follow the line above and precede all other includes.
#include <hwy/foreach_target.h>
// Must precede the headers that are compiled for each target.
#include <hwy/highway.h>

#include "src/base/simd/simd.h"

// NH of UMAC (Black et al. 1999, https://fastcrypto.org/umac/umac_proc.pdf) for each block, and a
// polynomial over the hashes of the blocks.

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {
namespace {

/// Adds to each of sums[2] the products (m[2i] + key[2i]) (m[2i + 1] + key[2i + 1]) of the 32-bit
/// words m of `data`. `bytes` is a multiple of 64. The key of the second sum starts 64 bytes later.
void AddProducts(const uint8_t* data, size_t bytes, const uint8_t* key, uint64_t* sums) {
#if HWY_TARGET == HWY_SCALAR
  const auto product = [](const uint8_t* m, const uint8_t* k) {
    uint32_t words[2], keys[2];
    std::memcpy(words, m, sizeof words);
    std::memcpy(keys, k, sizeof keys);
    return uint64_t{words[0] + keys[0]} * (words[1] + keys[1]);
  };
  for (size_t i = 0; i < bytes; i += 8) {
    sums[0] += product(data + i, key + i);
    sums[1] += product(data + i, key + i + 64);
  }
#else
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::CappedTag<uint8_t, 64> d8;
  const hn::Repartition<uint32_t, decltype(d8)> d32;
  const hn::Repartition<uint64_t, decltype(d8)> d64;
  const auto load = [&](const uint8_t* from)
                        HWY_ATTR { return hn::BitCast(d32, hn::LoadU(d8, from)); };
  const auto product = [&](auto words, const uint8_t* keys) HWY_ATTR {
    const auto sum = hn::Add(words, load(keys));
    return hn::MulEven(sum, hn::BitCast(d32, hn::ShiftRight<32>(hn::BitCast(d64, sum))));
  };
  auto first = hn::Zero(d64), second = hn::Zero(d64);
  for (size_t i = 0; i < bytes; i += hn::Lanes(d8)) {
    const auto words = load(data + i);
    first = hn::Add(first, product(words, key + i));
    second = hn::Add(second, product(words, key + i + 64));
  }
  // Not SumOfLanes: gcc implements it for AVX-512 with signed additions, and these sums overflow.
  uint64_t lanes[2][hn::MaxLanes(d64)];
  hn::StoreU(first, d64, lanes[0]);
  hn::StoreU(second, d64, lanes[1]);
  for (size_t i = 0; i < hn::Lanes(d64); ++i) {
    sums[0] += lanes[0][i];
    sums[1] += lanes[1][i];
  }
#endif
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace planish::internal {

HWY_EXPORT(AddProducts);

namespace {

__extension__ using Uint128 = unsigned __int128;

// --- Tuning constants (docs/tuning.md) ---

// Blocks of kBlockBytes that are worth a thread.
constexpr int64_t kBlocksOfTask = 64;

// --- End of tuning constants ---

constexpr int64_t kBlockBytes = 4096;
constexpr int64_t kVectorBytes = 64;  // the longest vector of a target
constexpr uint64_t kPrime = (uint64_t{1} << 61) - 1;

/// Returns a value below 2^62 that is congruent to x modulo kPrime; x < 2^123.
uint64_t Reduce(Uint128 x) {
  const uint64_t sum = (static_cast<uint64_t>(x) & kPrime) + static_cast<uint64_t>(x >> 61);
  return (sum & kPrime) + (sum >> 61);
}

/// Powers 1 to 4 of a random number modulo kPrime.
using Powers = std::array<uint64_t, 4>;

struct Keys {
  std::array<uint8_t, kBlockBytes + kVectorBytes> of_blocks;
  std::array<Powers, 2> powers;

  Keys() {
    std::random_device random;
    static_assert(sizeof(std::random_device::result_type) == sizeof(uint32_t));
    for (size_t i = 0; i < of_blocks.size(); i += sizeof(uint32_t)) {
      const uint32_t word = random();
      std::memcpy(of_blocks.data() + i, &word, sizeof word);
    }
    for (Powers& power : powers) {
      power[0] = (uint64_t{random()} << 32 | random()) & kPrime;
      for (size_t i = 1; i < power.size(); ++i) power[i] = Reduce(Uint128{power[i - 1]} * power[0]);
    }
  }
};

const Keys& TheKeys() {
  static const Keys keys;
  return keys;
}

using Sums = std::array<uint64_t, 2>;

/// Returns the sums of a block. Bytes beyond its end count as 0.
Sums SumsOf(const uint8_t* block, int64_t size, const Keys& keys) {
  const int64_t whole = size / kVectorBytes * kVectorBytes;
  const auto add_products = PLANISH_DISPATCH(AddProducts);
  Sums sums = {};
  add_products(block, static_cast<size_t>(whole), keys.of_blocks.data(), sums.data());
  if (whole < size) {
    uint8_t last[kVectorBytes] = {};
    std::memcpy(last, block + whole, static_cast<size_t>(size - whole));
    add_products(last, kVectorBytes, keys.of_blocks.data() + whole, sums.data());
  }
  return sums;
}

/// Polynomial whose coefficients are the 32-bit words of the block sums, evaluated so far.
struct Polynomial {
  uint64_t value = 0;

  void Add(const Sums& sums, const Powers& powers) {
    constexpr uint64_t kLow = 0xffffffff;
    value = Reduce(Uint128{value} * powers[3] + Uint128{sums[0] >> 32} * powers[2] +
                   Uint128{sums[0] & kLow} * powers[1] + Uint128{sums[1] >> 32} * powers[0] +
                   (sums[1] & kLow));
  }
  uint64_t Value() const { return value >= kPrime ? value - kPrime : value; }
};

}  // namespace

inline namespace PLANISH_API {

Fingerprint FingerprintOf(const void* data, int64_t size, const ParallelFor& parallel_for) {
  const Keys& keys = TheKeys();
  const int64_t blocks = (size + kBlockBytes - 1) / kBlockBytes;
  const auto sums_of = [&](int64_t block) {
    const int64_t begin = block * kBlockBytes;
    return SumsOf(static_cast<const uint8_t*>(data) + begin, std::min(kBlockBytes, size - begin),
                  keys);
  };
  Polynomial first, second;
  const auto add = [&](const Sums& sums) {
    first.Add(sums, keys.powers[0]);
    second.Add(sums, keys.powers[1]);
  };
  if (blocks <= kBlocksOfTask) {
    for (int64_t block = 0; block < blocks; ++block) add(sums_of(block));
  } else {
    std::vector<Sums> sums(static_cast<size_t>(blocks));
    const auto task = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) sums[static_cast<size_t>(i)] = sums_of(i);
    };
    if (parallel_for) {
      parallel_for(0, blocks, kBlocksOfTask, task);
    } else {
      DefaultParallelFor(0, blocks, kBlocksOfTask, task);
    }
    for (const Sums& of_block : sums) add(of_block);
  }
  return {first.Value(), second.Value()};
}

}  // namespace PLANISH_API

}  // namespace planish::internal
#endif  // HWY_ONCE
