// Kernels of gated norms of one element type, PLANISH_ELEMENT. Compiled once for each element type;
// includes itself once for each target.
#include "src/norm/rows/gate.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/norm/rows/gate.cc"
#include "src/base/simd/compiled_targets.h"
// Must follow the line above and precede all other includes.
#include <hwy/foreach_target.h>
// Must precede the headers that are compiled for each target.
#include <hwy/highway.h>

#include "src/base/simd/math-inl.h"
#include "src/base/simd/simd.h"
#include "src/norm/rows/row_ends-inl.h"
#include "src/norm/rows/shared-inl.h"
#include "src/norm/statistics-inl.h"
#include "src/norm/vector-inl.h"
// Must be last: it defines T and C, which the templates of the other headers use as parameters.
#include "src/norm/element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {
namespace {

/// Calls f(tag, c, nt_stores) for vectors that cover columns [0, n) of `out`; the first and the
/// last can overlap their neighbors. Non-temporal stores are used for the aligned vectors. Fewer
/// columns than a vector are processed one at a time.
template <bool kNtStores, class F>
HWY_INLINE void ForOverlappingColumns(const T* out, int64_t n, const F& f) {
  const Full d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  if (n < lanes) {
    const One one;
    for (int64_t c = 0; c < n; ++c) f(one, c, std::false_type());
    return;
  }
  int64_t c = RowLayout<kNtStores, Full, T>(d, out, n).lead;
  if (c > 0) f(d, 0, std::false_type());
  for (; c + lanes <= n; c += lanes) f(d, c, std::bool_constant<kNtStores>());
  if (c < n) f(d, n - lanes, std::false_type());
  FinishStores<kNtStores>();
}

/// Calls f with `condition` as a constant.
template <class F>
HWY_INLINE void VisitBool(bool condition, const F& f) {
  condition ? f(std::true_type()) : f(std::false_type());
}

template <class D>
HWY_INLINE Vec<D> Silu(D d, Vec<D> z) {
  return hn::Mul(z, Sigmoid(d, z));
}

/// silu(z) and its derivative, sigmoid(z) * (1 + z * (1 - sigmoid(z))).
template <class D>
struct GateValues {
  Vec<D> silu, slope;
};

template <class D>
HWY_INLINE GateValues<D> GateOf(D d, Vec<D> z) {
  const auto one = hn::Set(d, C{1});
  const auto sigmoid = Sigmoid(d, z);
  return {hn::Mul(z, sigmoid), hn::Mul(sigmoid, hn::MulAdd(z, hn::Sub(one, sigmoid), one))};
}

void GateInputOf(const T* x, const T* gate, int64_t n, C* u) {
  VisitBool(gate != nullptr, [&](auto has_gate) HWY_ATTR {
    ForOverlappingColumns<false>(nullptr, n, [&](auto d, int64_t c, auto) HWY_ATTR {
      auto v = Read(d, x + c);
      if constexpr (has_gate()) v = hn::Mul(v, Silu(d, Read(d, gate + c)));
      hn::StoreU(v, d, u + c);
    });
  });
}

void GateOutputOf(const GateOutputArgs<T>& args, int64_t n) {
  const auto [v, gain, bias, gate, y, wide, use_nt_stores] = args;
  const auto run = [=](auto has_gain, auto has_gate, auto nt_stores, auto* out) HWY_ATTR {
    const T* aligned = nullptr;
    if constexpr (nt_stores()) aligned = out;
    ForOverlappingColumns<nt_stores()>(aligned, n, [=](auto d, int64_t c, auto nt) HWY_ATTR {
      auto value = hn::LoadU(d, v + c);
      if constexpr (has_gain()) {
        value = hn::MulAdd(hn::LoadU(d, gain + c), Rounded<T>(d, value), hn::LoadU(d, bias + c));
        if constexpr (has_gate()) value = Rounded<T>(d, value);
      }
      if constexpr (has_gate()) value = hn::Mul(value, Silu(d, Read(d, gate + c)));
      Put<nt()>(d, value, out + c);
    });
  };
  VisitBool(gate != nullptr, [&](auto has_gate) HWY_ATTR {
    VisitBool(gain != nullptr, [&](auto has_gain) HWY_ATTR {
      if (wide != nullptr) {
        run(has_gain, has_gate, std::false_type(), wide);
      } else {
        VisitNtStores(use_nt_stores,
                      [&](auto nt_stores) HWY_ATTR { run(has_gain, has_gate, nt_stores, y); });
      }
    });
  });
}

void GateAfterGradientOf(const GateAfterArgs<T>& args, int64_t n) {
  const RowCoefficients<C> row = CoefficientsOf(args.mean, args.mean_lo, args.rstd);
  VisitBool(args.dgate != nullptr, [&](auto has_dgate) HWY_ATTR {
    ForOverlappingColumns<false>(nullptr, n, [&](auto d, int64_t c, auto) HWY_ATTR {
      const auto dy = Read(d, args.dy + c), z = Read(d, args.gate + c);
      if constexpr (has_dgate()) {
        const auto x = Read(d, args.x + c);
        const auto xhat = XhatOfValues<true, decltype(d)>(
            x, hn::Set(d, row.mean), hn::Set(d, row.rstd), hn::Set(d, row.offset));
        const auto norm =
            hn::MulAdd(hn::LoadU(d, args.gain + c), xhat, hn::LoadU(d, args.bias + c));
        const auto gate = GateOf(d, z);
        hn::StoreU(hn::Mul(dy, gate.silu), d, args.dnorm + c);
        Write(d, hn::Mul(hn::Mul(dy, norm), gate.slope), args.dgate + c);
      } else {
        hn::StoreU(hn::Mul(dy, Silu(d, z)), d, args.dnorm + c);
      }
    });
  });
  if (args.wide) GateInputOf(args.x, nullptr, n, args.wide);
}

void GateBeforeGradientOf(const GateBeforeArgs<T>& args, int64_t n) {
  const auto [du, x, gate, dx, dgate, use_nt_stores] = args;
  const auto run = [=](auto has_dx, auto has_dgate, auto nt_stores) HWY_ATTR {
    ForOverlappingColumns<nt_stores()>(has_dx() ? dx : dgate, n,
                                       [=](auto d, int64_t c, auto nt) HWY_ATTR {
                                         const auto gradient = hn::LoadU(d, du + c);
                                         const auto values = GateOf(d, Read(d, gate + c));
                                         if constexpr (has_dgate()) {
                                           const auto product = hn::Mul(gradient, Read(d, x + c));
                                           Put<nt()>(d, hn::Mul(product, values.slope), dgate + c);
                                         }
                                         if constexpr (has_dx())
                                           Put<nt()>(d, hn::Mul(gradient, values.silu), dx + c);
                                       });
  };
  // Aligned vectors of one output must be aligned in the other.
  const uintptr_t difference = reinterpret_cast<uintptr_t>(dx) ^ reinterpret_cast<uintptr_t>(dgate);
  const bool aligned =
      dx == nullptr || dgate == nullptr || difference % (hn::MaxLanes(Full()) * sizeof(T)) == 0;
  VisitNtStores(use_nt_stores && aligned, [&](auto nt_stores) HWY_ATTR {
    if (dx == nullptr) {
      run(std::false_type(), std::true_type(), nt_stores);
    } else {
      VisitBool(dgate != nullptr,
                [&](auto has_dgate) HWY_ATTR { run(std::true_type(), has_dgate, nt_stores); });
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace planish::internal {

HWY_EXPORT(GateInputOf);
HWY_EXPORT(GateOutputOf);
HWY_EXPORT(GateAfterGradientOf);
HWY_EXPORT(GateBeforeGradientOf);

template <class T>
void GateInput(const T* x, const T* gate, int64_t n, Compute<T>* u) {
  PLANISH_DISPATCH(GateInputOf)(x, gate, n, u);
}
template <class T>
void GateOutput(const GateOutputArgs<T>& args, int64_t n) {
  PLANISH_DISPATCH(GateOutputOf)(args, n);
}
template <class T>
void GateAfterGradient(const GateAfterArgs<T>& args, int64_t n) {
  PLANISH_DISPATCH(GateAfterGradientOf)(args, n);
}
template <class T>
void GateBeforeGradient(const GateBeforeArgs<T>& args, int64_t n) {
  PLANISH_DISPATCH(GateBeforeGradientOf)(args, n);
}

using Element = PLANISH_ELEMENT;
template void GateInput(const Element*, const Element*, int64_t, Compute<Element>*);
template void GateOutput(const GateOutputArgs<Element>&, int64_t);
template void GateAfterGradient(const GateAfterArgs<Element>&, int64_t);
template void GateBeforeGradient(const GateBeforeArgs<Element>&, int64_t);

}  // namespace planish::internal
#endif  // HWY_ONCE
