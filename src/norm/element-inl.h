// The element type of a kernel file, PLANISH_ELEMENT, and dispatch over recipes. Compiled once for
// each target, in namespace HWY_NAMESPACE.
#if defined(PLANISH_SRC_NORM_ELEMENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLANISH_SRC_NORM_ELEMENT_INL_H_
#undef PLANISH_SRC_NORM_ELEMENT_INL_H_
#else
#define PLANISH_SRC_NORM_ELEMENT_INL_H_
#endif

#include <type_traits>

#include "planish/types.h"
#include "src/base/simd/simd.h"
#include "src/norm/recipe.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using T = PLANISH_ELEMENT;
using C = Compute<T>;
using Full = hn::ScalableTag<C>;
using One = hn::CappedTag<C, 1>;

// Set for targets on which non-temporal stores pay: stores of 32 bytes or more.
constexpr bool kHasNtStores =
    hn::MaxLanes(Full()) * sizeof(T) >= 32 || (sizeof(T) == 2 && hn::MaxLanes(Full()) >= 8);

template <Output kOutput>
using OutputConstant = std::integral_constant<Output, kOutput>;

/// Calls f(nt_stores) with `use_nt_stores` as a constant.
template <class F>
HWY_INLINE void VisitNtStores(bool use_nt_stores, F&& f) {
  if (kHasNtStores && use_nt_stores) {
    f(std::bool_constant<kHasNtStores>());
  } else {
    f(std::false_type());
  }
}

/// Calls f(output, centre) for the combinations that recipes have.
template <class F>
HWY_INLINE void VisitOutput(const Recipe& recipe, F&& f) {
  if (!recipe.centre) {
    f(OutputConstant<Output::kAffine>(), std::false_type());
  } else if (recipe.output == Output::kAffine) {
    f(OutputConstant<Output::kAffine>(), std::true_type());
  } else if (recipe.output == Output::kAdaptive) {
    f(OutputConstant<Output::kAdaptive>(), std::true_type());
  } else {
    f(OutputConstant<Output::kIdentity>(), std::true_type());
  }
}

/// Calls f(output, read_x) for the combinations that recipes have.
template <class F>
HWY_INLINE void VisitGradient(const Recipe& recipe, F&& f) {
  if (recipe.output == Output::kAffine) {
    f(OutputConstant<Output::kAffine>(), std::true_type());
  } else if (recipe.output == Output::kAdaptive) {
    f(OutputConstant<Output::kAdaptive>(), std::true_type());
  } else if (recipe.via_scale) {
    f(OutputConstant<Output::kIdentity>(), std::true_type());
  } else {
    f(OutputConstant<Output::kIdentity>(), std::false_type());
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#endif  // PLANISH_SRC_NORM_ELEMENT_INL_H_
