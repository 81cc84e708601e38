// Kernels that quantize rows of one type, PLANISH_ELEMENT. Compiled once for each type; includes
// itself once for each target.
#include "src/norm/rows/quantize.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/norm/rows/quantize.cc"
#include "src/base/simd/compiled_targets.h"
// Must follow the line above and precede all other includes.
#include <hwy/foreach_target.h>
// Must precede the headers that are compiled for each target.
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "src/base/simd/simd.h"
#include "src/norm/vector-inl.h"
// Must be last: it defines T and C, which the templates of the other headers use as parameters.
#include "src/norm/element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {
namespace {

/// The bits of |v|. Ordered as integers: NaNs are above infinity.
template <class D>
HWY_INLINE auto AbsBits(D d, const C* values) {
  return hn::BitCast(hn::RebindToSigned<D>(), hn::Abs(hn::LoadU(d, values)));
}

C MaxAbsOf(const C* values, int64_t n) {
  const Full d;
  const hn::RebindToSigned<Full> bits;
  const One one;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto max0 = hn::Zero(bits), max1 = max0, max2 = max0, max3 = max0;
  int64_t c = 0;
  for (; c + 4 * lanes <= n; c += 4 * lanes) {
    max0 = hn::Max(max0, AbsBits(d, values + c));
    max1 = hn::Max(max1, AbsBits(d, values + c + lanes));
    max2 = hn::Max(max2, AbsBits(d, values + c + 2 * lanes));
    max3 = hn::Max(max3, AbsBits(d, values + c + 3 * lanes));
  }
  for (; c + lanes <= n; c += lanes) max0 = hn::Max(max0, AbsBits(d, values + c));
  max0 = hn::Max(hn::Max(max0, max1), hn::Max(max2, max3));
  HWY_ALIGN hn::TFromD<decltype(bits)> each[hn::MaxLanes(d)];
  hn::Store(max0, bits, each);
  auto max = *std::max_element(each, each + lanes);
  for (; c < n; ++c) max = std::max(max, hn::GetLane(AbsBits(one, values + c)));
  return std::bit_cast<C>(max);
}

void QuantizeOf(const C* values, int64_t n, C factor, int8_t* out) {
  if (factor == 0) {
    std::memset(out, 0, static_cast<size_t>(n));
    return;
  }
  // A sum with 1.5 * 2^23, or 2^52, rounds to an integer, ties to even, in the last bits.
  const C round = sizeof(C) == 4 ? static_cast<C>(0x1.8p23) : static_cast<C>(0x1.8p52);
  const Full d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto quantize = [=](auto tag, int64_t c) HWY_ATTR {
    const hn::RebindToUnsigned<decltype(tag)> bits;
    const hn::Rebind<uint8_t, decltype(tag)> d8;
    const auto scaled = hn::Mul(hn::LoadU(tag, values + c), hn::Set(tag, factor));
    const auto rounded = hn::BitCast(bits, hn::Add(scaled, hn::Set(tag, round)));
    hn::StoreU(hn::TruncateTo(d8, rounded), d8, reinterpret_cast<uint8_t*>(out) + c);
  };
  if (n < lanes) {
    for (int64_t c = 0; c < n; ++c) quantize(One(), c);
    return;
  }
  int64_t c = 0;
  for (; c + lanes <= n; c += lanes) quantize(d, c);
  if (c < n) quantize(d, n - lanes);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace planish::internal {

HWY_EXPORT(MaxAbsOf);
HWY_EXPORT(QuantizeOf);

template <class C>
C MaxAbs(const C* values, int64_t n) {
  return PLANISH_DISPATCH(MaxAbsOf)(values, n);
}
template <class C>
void Quantize(const C* values, int64_t n, C factor, int8_t* out) {
  PLANISH_DISPATCH(QuantizeOf)(values, n, factor, out);
}

using Element = PLANISH_ELEMENT;
template Element MaxAbs(const Element*, int64_t);
template void Quantize(const Element*, int64_t, Element, int8_t*);

}  // namespace planish::internal
#endif  // HWY_ONCE
