// Vectors of the kernels of recurrent cells. Compiled once for each SIMD target, in the namespace
// HWY_NAMESPACE.
#if defined(PLANISH_SRC_RNN_CPU_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLANISH_SRC_RNN_CPU_VECTORS_INL_H_
#undef PLANISH_SRC_RNN_CPU_VECTORS_INL_H_
#else
#define PLANISH_SRC_RNN_CPU_VECTORS_INL_H_
#endif

#include <cstdint>
#include <type_traits>

#include "src/base/simd/simd.h"
#include "src/rnn/cpu/cells.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// V<T> is a vector of the target's length, kLanes<T> elements.
template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
using V = hn::Vec<Tag<T>>;
template <class T>
inline constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Tag<T>()));

template <class T>
HWY_INLINE V<T> Get(const T* p) {
  return hn::LoadU(Tag<T>(), p);
}
template <class T>
HWY_INLINE void Put(V<T> v, T* p) {
  hn::StoreU(v, Tag<T>(), p);
}
template <class T>
HWY_INLINE V<T> All(T value) {
  return hn::Set(Tag<T>(), value);
}
template <class T>
HWY_INLINE T Total(V<T> v) {
  return hn::GetLane(hn::SumOfLanes(Tag<T>(), v));
}
/// Writes a vector that is saved for backward.
template <Keep kKeep, class T>
HWY_INLINE void PutKept(V<T> v, T* p) {
  if constexpr (kKeep == Keep::kNtStores) {
    hn::Stream(v, Tag<T>(), p);
  } else if constexpr (kKeep == Keep::kStores) {
    Put<T>(v, p);
  }
}
/// Calls f(std::integral_constant<Keep, keep>()).
template <class F>
HWY_INLINE void WithKeep(Keep keep, const F& f) {
  switch (keep) {
    case Keep::kNothing:
      return f(std::integral_constant<Keep, Keep::kNothing>());
    case Keep::kStores:
      return f(std::integral_constant<Keep, Keep::kStores>());
    case Keep::kNtStores:
      return f(std::integral_constant<Keep, Keep::kNtStores>());
  }
}
/// Adds v to the elements at p.
template <class T>
HWY_INLINE void AddTo(T* p, V<T> v) {
  Put<T>(hn::Add(Get(p), v), p);
}

/// Returns the number of vectors for n units.
template <class T>
HWY_INLINE int64_t VectorsOf(int64_t n) {
  return (n + kLanes<T> - 1) / kLanes<T>;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#endif  // PLANISH_SRC_RNN_CPU_VECTORS_INL_H_
