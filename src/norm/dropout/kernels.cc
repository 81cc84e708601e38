// Dropout for one element type, PLANISH_ELEMENT. Compiled once for each element type; includes
// itself once for each target.
#include "src/norm/dropout/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/norm/dropout/kernels.cc"
#include "src/base/simd/compiled_targets.h"
// Must follow the line above and precede all other includes.
#include <hwy/foreach_target.h>
// Must precede the headers that are compiled for each target.
#include <hwy/highway.h>

#include <algorithm>

#include "src/base/simd/simd.h"
#include "src/norm/vector-inl.h"
// Must be last: it defines T and C, which the templates of the other headers use as parameters.
#include "src/norm/element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kCounters = 16;
constexpr int kRounds = 10;
// Salmon et al. 2011, section 3.
constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;

using Words = hn::CappedTag<uint32_t, kCounters>;
using W = hn::Vec<Words>;

struct Product {
  W low, high;
};

/// Returns the 64-bit products of a and the multiplier.
HWY_INLINE Product Multiply(W a, uint32_t multiplier) {
  const Words d;
#if HWY_TARGET == HWY_SCALAR
  const uint64_t product = uint64_t{hn::GetLane(a)} * multiplier;
  return {hn::Set(d, static_cast<uint32_t>(product)),
          hn::Set(d, static_cast<uint32_t>(product >> 32))};
#else
  const hn::Repartition<uint64_t, Words> d64;
  const auto m = hn::Set(d, multiplier);
  const auto even = hn::MulEven(a, m);
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, a))), m);
  return {hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even)),
          hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)))};
#endif
}

/// The words of a vector of counters.
struct State {
  W x0, x1, x2, x3;
};

/// One of the rounds.
HWY_INLINE State Round(const State& x, uint32_t k0, uint32_t k1) {
  const Words d;
  const Product p0 = Multiply(x.x0, kMultiplier0), p1 = Multiply(x.x2, kMultiplier1);
  return {hn::Xor(hn::Xor(p1.high, x.x1), hn::Set(d, k0)), p1.low,
          hn::Xor(hn::Xor(p0.high, x.x3), hn::Set(d, k1)), p0.low};
}

/// Computes the words of the counters {first + k, c1, c2, c3} for k < kCounters: word w of counter
/// k is words[w * kCounters + k].
HWY_INLINE void Philox(uint32_t first, uint32_t c1, uint32_t c2, uint32_t c3,
                       const std::array<uint32_t, 2>& key, uint32_t* HWY_RESTRICT words) {
  const Words d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto start = [=](int64_t k) HWY_ATTR {
    return State{hn::Iota(d, first + static_cast<uint32_t>(k)), hn::Set(d, c1), hn::Set(d, c2),
                 hn::Set(d, c3)};
  };
  const auto store = [=](const State& x, int64_t k) HWY_ATTR {
    hn::StoreU(x.x0, d, words + k);
    hn::StoreU(x.x1, d, words + kCounters + k);
    hn::StoreU(x.x2, d, words + 2 * kCounters + k);
    hn::StoreU(x.x3, d, words + 3 * kCounters + k);
  };
  // Two vectors at a time, because the rounds of one wait for each other.
  constexpr bool kPairs = hn::MaxLanes(Words()) < kCounters;
  for (int64_t k = 0; k < kCounters; k += kPairs ? 2 * lanes : lanes) {
    State a = start(k), b = start(kPairs ? k + lanes : k);
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < kRounds; ++round, k0 += kWeyl0, k1 += kWeyl1) {
      a = Round(a, k0, k1);
      if constexpr (kPairs) b = Round(b, k0, k1);
    }
    store(a, k);
    if constexpr (kPairs) store(b, k + lanes);
  }
}

/// Writes 1 for the kept elements of a block of columns, 0 for the others.
HWY_INLINE void KeptOf(const DropoutMask& mask, int64_t row, int64_t block,
                       float* HWY_RESTRICT kept) {
  HWY_ALIGN uint32_t words[4 * kCounters];
  const auto bits_of_row = static_cast<uint64_t>(row);
  Philox(static_cast<uint32_t>(block * kCounters), static_cast<uint32_t>(bits_of_row),
         static_cast<uint32_t>(bits_of_row >> 32), mask.stream, mask.key, words);
  const Words d;
  const hn::RebindToSigned<Words> ints;
  const hn::RebindToFloat<Words> floats;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto keep = hn::Set(ints, static_cast<int32_t>(mask.keep));
  const auto one = hn::Set(floats, 1.f);
  for (int64_t w = 0; w < 4; ++w) {
    for (int64_t k = 0; k < kCounters; k += lanes) {
      const auto word = hn::LoadU(d, words + w * kCounters + k);
      const auto write = [&](auto bits, int64_t half) HWY_ATTR {
        const auto is_kept = hn::Lt(hn::BitCast(ints, bits), keep);
        hn::StoreU(hn::IfThenElseZero(hn::RebindMask(floats, is_kept), one), floats,
                   kept + (2 * w + half) * kCounters + k);
      };
      write(hn::And(word, hn::Set(d, 0xFFFF)), 0);
      write(hn::ShiftRight<16>(word), 1);
    }
  }
}

/// Returns lanes of `kept` in the type of the arithmetic.
template <class D>
HWY_INLINE Vec<D> ReadKept(D d, const float* kept) {
  if constexpr (std::is_same_v<C, double>) {
    return hn::PromoteTo(d, hn::LoadU(hn::Rebind<float, D>(), kept));
  } else {
    return hn::LoadU(d, kept);
  }
}

void DropoutRowOf(const T* x, const T* residual, int64_t cols, const DropoutMask& mask, int64_t row,
                  T* sum) {
  const auto scale = static_cast<C>(mask.scale());
  HWY_ALIGN float kept[kDropoutBlock];
  std::fill_n(kept, kDropoutBlock, 1.f);
  const auto add = [=, &kept](auto d, int64_t c, int64_t i) HWY_ATTR {
    auto value = hn::Mul(Read(d, x + c), hn::Mul(ReadKept(d, kept + i), hn::Set(d, scale)));
    if (residual) value = hn::Add(Read(d, residual + c), value);
    Write(d, PlainNan(d, value), sum + c);
  };
  const Full d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t c = 0; c < cols; c += kDropoutBlock) {
    const int64_t n = std::min(kDropoutBlock, cols - c);
    if (mask.keep < 65536) KeptOf(mask, row, c / kDropoutBlock, kept);
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) add(d, c + i, i);
    for (; i < n; ++i) add(One(), c + i, i);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace planish::internal {

HWY_EXPORT(DropoutRowOf);

template <class T>
void DropoutRow(const T* x, const T* residual, int64_t cols, const DropoutMask& mask, int64_t row,
                T* sum) {
  PLANISH_DISPATCH(DropoutRowOf)(x, residual, cols, mask, row, sum);
}

using Element = PLANISH_ELEMENT;
template void DropoutRow(const Element*, const Element*, int64_t, const DropoutMask&, int64_t,
                         Element*);

}  // namespace planish::internal
#endif  // HWY_ONCE
