// Vectors of Compute<T>, loaded from and stored to arrays of every element type. Compiled once for
// each target, in namespace HWY_NAMESPACE.
//
// The functions are named Read and Write because argument-dependent lookup would find Highway's
// aligned Load and Store.
#if defined(PLANISH_SRC_NORM_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLANISH_SRC_NORM_VECTOR_INL_H_
#undef PLANISH_SRC_NORM_VECTOR_INL_H_
#else
#define PLANISH_SRC_NORM_VECTOR_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "planish/types.h"
#include "src/base/simd/simd.h"
#include "src/norm/rows/rows.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
using Vec = hn::Vec<D>;
template <class D>
using Half = hn::Rebind<uint16_t, D>;  // equal number of 16-bit lanes
template <class D>
using Bits = hn::Rebind<uint32_t, D>;

// float16 is converted by the processor where it can, else by the arithmetic of types.h: Highway
// before 1.1 does not round to nearest.
#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86
inline constexpr bool kConvertsFloat16 = true;
#else
inline constexpr bool kConvertsFloat16 = false;
#endif

template <class D>
HWY_INLINE Vec<D> Read(D d, const hn::TFromD<D>* p) {
  return hn::LoadU(d, p);
}

/// Returns the values of the bits of bfloat16.
template <class D>
HWY_INLINE Vec<D> FromHalf(D d, Vec<Half<D>> half, bfloat16 /*type*/) {
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(Bits<D>(), half)));
}

/// Returns the values of the bits of float16.
template <class D>
HWY_INLINE Vec<D> FromHalf(D d, Vec<Half<D>> loaded, float16 /*type*/) {
  if constexpr (kConvertsFloat16) {
    return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), loaded));
  } else {
    const Bits<D> bits;
    const auto wide = hn::PromoteTo(bits, loaded);
    const auto rest = hn::And(wide, hn::Set(bits, 0x7fff));
    const auto sign = hn::ShiftLeft<16>(hn::Xor(wide, rest));
    const auto shifted = hn::ShiftLeft<13>(rest);
    // Infinities and NaNs: the exponent 31 becomes 255. Other values: it grows by 127 - 15.
    const auto special = hn::VecFromMask(bits, hn::Gt(rest, hn::Set(bits, 0x7bff)));
    const auto normal = hn::Add(hn::Add(shifted, hn::Set(bits, (127u - 15) << 23)),
                                hn::And(special, hn::Set(bits, (128u - 16) << 23)));
    const hn::Rebind<int32_t, D> integers;
    const auto subnormal = hn::BitCast(
        bits, hn::Mul(hn::ConvertTo(d, hn::BitCast(integers, rest)), hn::Set(d, 0x1p-24f)));
    const auto small = hn::Lt(rest, hn::Set(bits, 0x400));
    return hn::BitCast(d, hn::Or(sign, hn::IfThenElse(small, subnormal, normal)));
  }
}

template <class D, IsHalf T>
HWY_INLINE Vec<D> Read(D d, const T* p) {
  return FromHalf(d, hn::LoadU(Half<D>(), reinterpret_cast<const uint16_t*>(p)), T{});
}

/// Returns v rounded to bfloat16 (ties to even) in the upper half of each lane; the lower half is
/// arbitrary. NaNs must have a zero lower half, like those that arithmetic produces.
template <class D>
HWY_INLINE Vec<Bits<D>> RoundedBits(D, Vec<D> v) {
  const Bits<D> bits;
  const auto u = hn::BitCast(bits, v);
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  const auto odd = hn::TestBit(u, hn::Set(bits, 0x10000));
  return hn::Add(u, hn::IfThenElse(odd, hn::Set(bits, 0x8000), hn::Set(bits, 0x7fff)));
#else
  const auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(bits, 1));
  return hn::Add(u, hn::Add(odd, hn::Set(bits, 0x7fff)));
#endif
}

/// Returns v as bits of bfloat16.
template <class D>
HWY_INLINE Vec<Half<D>> ToHalf(D d, Vec<D> v, bfloat16 /*type*/) {
  return hn::TruncateTo(Half<D>(), hn::ShiftRight<16>(RoundedBits(d, v)));
}

/// Returns v as bits of float16, rounded to nearest even.
template <class D>
HWY_INLINE Vec<Half<D>> ToHalf(D d, Vec<D> v, float16 /*type*/) {
  if constexpr (kConvertsFloat16) {
    return hn::BitCast(Half<D>(), hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), v));
  } else {
    const Bits<D> bits;
    const auto u = hn::BitCast(bits, v);
    const auto rest = hn::And(u, hn::Set(bits, 0x7fffffff));
    const auto sign = hn::ShiftRight<16>(hn::Xor(u, rest));
    const auto odd = hn::And(hn::ShiftRight<13>(rest), hn::Set(bits, 1));
    const auto normal = hn::ShiftRight<13>(hn::Add(hn::Sub(rest, hn::Set(bits, (127u - 15) << 23)),
                                                   hn::Add(odd, hn::Set(bits, 0xfff))));
    const auto subnormal =
        hn::Sub(hn::BitCast(bits, hn::Add(hn::BitCast(d, rest), hn::Set(d, 0.5f))),
                hn::Set(bits, 0x3f000000));
    auto half = hn::IfThenElse(hn::Lt(rest, hn::Set(bits, 0x38800000)), subnormal, normal);
    half = hn::IfThenElse(hn::Gt(rest, hn::Set(bits, 0x477fefff)), hn::Set(bits, 0x7c00), half);
    half = hn::IfThenElse(hn::Gt(rest, hn::Set(bits, 0x7f800000)), hn::Set(bits, 0x7e00), half);
    return hn::TruncateTo(Half<D>(), hn::Or(sign, half));
  }
}

/// Returns v rounded to T, in the type of the arithmetic.
template <class T, class D>
HWY_INLINE Vec<D> Rounded(D d, Vec<D> v) {
  if constexpr (IsHalf<T>) {
    return FromHalf(d, ToHalf(d, v, T{}), T{});
  } else {
    return v;
  }
}

template <class D>
HWY_INLINE void Write(D d, Vec<D> v, hn::TFromD<D>* p) {
  hn::StoreU(v, d, p);
}

template <class D, IsHalf T>
HWY_INLINE void Write(D d, Vec<D> v, T* p) {
  hn::StoreU(ToHalf(d, v, T{}), Half<D>(), reinterpret_cast<uint16_t*>(p));
}

/// Stores v with a non-temporal store, to an address aligned to the vector's size in memory.
template <class D>
HWY_INLINE void NtStore(D d, Vec<D> v, hn::TFromD<D>* p) {
  hn::Stream(v, d, p);
}

template <class D, IsHalf T>
HWY_INLINE void NtStore(D d, Vec<D> v, T* p) {
  hn::Stream(ToHalf(d, v, T{}), Half<D>(), reinterpret_cast<uint16_t*>(p));
}

template <bool kNtStores, class D, class T>
HWY_INLINE void Put(D d, Vec<D> v, T* p) {
  if constexpr (kNtStores) {
    NtStore(d, v, p);
  } else {
    Write(d, v, p);
  }
}

// Pairs of vectors. For bfloat16, the upper half of a float, a pair consists of the even and the
// odd elements. Splitting these takes a shift and a mask instead of shuffles. For other types a
// pair consists of two successive vectors.

template <class D>
struct VectorPair {
  Vec<D> first, second;
};

template <class D, class T>
inline constexpr bool kSplitsPairs = std::is_same_v<T, bfloat16> && hn::MaxLanes(D()) >= 4;

template <class D, class T>
HWY_INLINE VectorPair<D> ReadPair(D d, const T* p) {
  if constexpr (kSplitsPairs<D, T>) {
    const Bits<D> bits;
    const hn::Repartition<uint16_t, D> halves;
    const auto loaded = hn::BitCast(bits, hn::LoadU(halves, reinterpret_cast<const uint16_t*>(p)));
    return {hn::BitCast(d, hn::ShiftLeft<16>(loaded)),
            hn::BitCast(d, hn::And(loaded, hn::Set(bits, 0xffff0000u)))};
  } else {
    return {Read(d, p), Read(d, p + hn::Lanes(d))};
  }
}

/// Loads parameters in the order of ReadPair. With kSplit they are already in that order (see
/// SplitPairs).
template <class T, bool kSplit, class D>
HWY_INLINE VectorPair<D> ReadParameterPair(D d, const hn::TFromD<D>* p) {
  if constexpr (kSplitsPairs<D, T> && !kSplit) {
    Vec<D> first, second;  // a VectorPair's own constructor is not compiled for the target
    hn::LoadInterleaved2(d, p, first, second);
    return {first, second};
  } else {
    return {hn::LoadU(d, p), hn::LoadU(d, p + hn::Lanes(d))};
  }
}

/// Reorders every whole pair of `cols` parameters to the order of ReadPair. The rest keeps its
/// order.
template <class D>
HWY_INLINE void SplitPairs(D d, const hn::TFromD<D>* from, int64_t cols, hn::TFromD<D>* to) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  for (; c + 2 * lanes <= cols; c += 2 * lanes) {
    Vec<D> first, second;
    hn::LoadInterleaved2(d, from + c, first, second);
    hn::StoreU(first, d, to + c);
    hn::StoreU(second, d, to + c + lanes);
  }
  if (from != to) std::copy_n(from + c, cols - c, to + c);
}

/// Reverses SplitPairs in place.
template <class D>
HWY_INLINE void JoinPairs(D d, int64_t cols, hn::TFromD<D>* values) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t c = 0; c + 2 * lanes <= cols; c += 2 * lanes) {
    const Vec<D> first = hn::LoadU(d, values + c), second = hn::LoadU(d, values + c + lanes);
    hn::StoreInterleaved2(first, second, d, values + c);
  }
}

template <bool kNtStores, class D, class T>
HWY_INLINE void PutPair(D d, const VectorPair<D>& v, T* p) {
  if constexpr (kSplitsPairs<D, T>) {
    const Bits<D> bits;
    const hn::Repartition<uint16_t, D> halves;
    const auto both =
        hn::BitCast(halves, hn::OrAnd(hn::ShiftRight<16>(RoundedBits(d, v.first)),
                                      RoundedBits(d, v.second), hn::Set(bits, 0xffff0000u)));
    auto* to = reinterpret_cast<uint16_t*>(p);
#if HWY_TARGET != HWY_SCALAR  // has no halves
    if constexpr (kNtStores) {
      hn::Stream(hn::LowerHalf(Half<D>(), both), Half<D>(), to);
      hn::Stream(hn::UpperHalf(Half<D>(), both), Half<D>(), to + hn::Lanes(d));
      return;
    }
#endif
    hn::StoreU(both, halves, to);
  } else {
    Put<kNtStores>(d, v.first, p);
    Put<kNtStores>(d, v.second, p + hn::Lanes(d));
  }
}

template <class D>
using OneLane = hn::CappedTag<hn::TFromD<D>, 1>;

/// Calls f(tag, c) for vectors that cover columns [0, cols); the last columns use one lane at a
/// time.
template <class D, class F>
HWY_INLINE void ForColumns(D d, int64_t cols, const F& f) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  for (; c + lanes <= cols; c += lanes) f(d, c);
  for (const OneLane<D> one; c < cols; ++c) f(one, c);
}

/// Replaces NaNs by the NaN that arithmetic produces. Input NaNs can have any bits, but conversion
/// to 16 bits requires a zero lower half.
template <class D>
HWY_INLINE Vec<D> PlainNan(D d, Vec<D> v) {
  return hn::IfThenElse(hn::IsNaN(v), hn::Set(d, std::numeric_limits<hn::TFromD<D>>::quiet_NaN()),
                        v);
}

/// Convert to double and back; both are the identity for doubles.
template <class D, class V>
HWY_INLINE Vec<D> Widened(D d, V v) {
  if constexpr (std::is_same_v<V, Vec<D>>) {
    return v;
  } else {
    return hn::PromoteTo(d, v);
  }
}
template <class D, class V>
HWY_INLINE Vec<D> Narrowed(D d, V v) {
  if constexpr (std::is_same_v<V, Vec<D>>) {
    return v;
  } else if constexpr (hn::MaxLanes(D()) == 1) {
    // Without vectors Highway's DemoteTo turns infinity into the largest finite value.
    return hn::Set(d, static_cast<hn::TFromD<D>>(hn::GetLane(v)));
  } else {
    return hn::DemoteTo(d, v);
  }
}

/// Loads one element for each of rows r to r + n - 1; n is at most the number of lanes. Other lanes
/// are zero, as are all lanes if `from` is null.
template <class D>
HWY_INLINE Vec<D> LoadRows(D d, const hn::TFromD<D>* from, int64_t r, int64_t n) {
  if (from == nullptr) return hn::Zero(d);
  if (n == static_cast<int64_t>(hn::Lanes(d))) [[likely]]
    return hn::LoadU(d, from + r);
  HWY_ALIGN hn::TFromD<D> lanes[hn::MaxLanes(D())] = {};
  std::copy_n(from + r, n, lanes);
  return hn::Load(d, lanes);
}

/// Stores one element for each of rows r to r + n - 1, unless `to` is null.
template <class D>
HWY_INLINE void SaveRows(D d, Vec<D> v, hn::TFromD<D>* to, int64_t r, int64_t n) {
  if (to == nullptr) return;
  if (n == static_cast<int64_t>(hn::Lanes(d))) [[likely]] {
    hn::StoreU(v, d, to + r);
    return;
  }
  HWY_ALIGN hn::TFromD<D> lanes[hn::MaxLanes(D())];
  hn::Store(v, d, lanes);
  std::copy_n(lanes, n, to + r);
}

/// Returns the sum of the lanes.
template <class D>
HWY_INLINE hn::TFromD<D> Sum(D d, Vec<D> v) {
  return hn::GetLane(hn::SumOfLanes(d, v));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#endif  // PLANISH_SRC_NORM_VECTOR_INL_H_
