// Backward of the pointwise functions for one element type, PLANISH_ELEMENT. Compiled once for each
// element type; includes itself once for each target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/norm/pointwise/kernels.cc"
#include "src/base/simd/compiled_targets.h"
// Must follow the line above and precede all other includes.
#include <hwy/foreach_target.h>
// Must precede the headers that are compiled for each target.
#include <hwy/highway.h>

#include "src/base/simd/simd.h"
#include "src/norm/channels/columns-inl.h"
#include "src/norm/pointwise/kernels.h"
// Must be last: it defines T and C, which the templates of the other headers use as parameters.
#include "src/norm/element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {
namespace {

using V = Vec<Full>;
constexpr size_t kLanes = hn::MaxLanes(Full());

/// Sums of a vector of columns over a group of rows.
struct GroupSums {
  V dgain, dbias, dalpha, dshift;
};

/// Adds one row's terms to `sums`. Returns dx.
template <ChannelMap kMap>
HWY_INLINE V AddGradient(const PointwiseTile<T>& tile, V dy, V x, V gain, GroupSums& sums) {
  const Full d;
  const V alpha = hn::Set(d, tile.alpha);
  const auto f = PointwiseOf<kMap>(d, hn::MulAdd(x, alpha, hn::Set(d, tile.shift)));
  const V g = hn::Mul(hn::Mul(dy, gain), f.slope);
  sums.dbias = hn::Add(sums.dbias, dy);
  sums.dgain = hn::MulAdd(dy, f.value, sums.dgain);
  sums.dshift = hn::Add(sums.dshift, g);
  sums.dalpha = hn::MulAdd(g, x, sums.dalpha);
  return hn::Mul(g, alpha);
}

/// Computes a tile. Groups of kSumRows rows are summed in C, and the groups in double.
template <ChannelMap kMap, bool kNtStores>
HWY_NOINLINE PointwiseSums GradientsOf(const PointwiseTile<T>& tile) {
  const Full d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t whole = tile.cols / lanes * lanes, rest = tile.cols - whole;
  HWY_ALIGN double dalpha[kLanes] = {}, dshift[kLanes] = {};
  for (int64_t r0 = 0; r0 < tile.rows; r0 += kSumRows) {
    const int64_t rows = std::min(kSumRows, tile.rows - r0);
    const auto zeros = [&]() HWY_ATTR {
      const V zero = hn::Zero(d);
      return GroupSums{zero, zero, zero, zero};
    };
    for (int64_t c = 0; c < whole; c += lanes) {
      GroupSums sums = zeros();
      const V gain = hn::LoadU(d, tile.gain + c);
      for (int64_t r = r0; r < r0 + rows; ++r) {
        const int64_t i = r * tile.stride + c;
        // The next group: the hardware prefetcher does not follow strided rows.
        PrefetchFar(tile.dy + i + kSumRows * tile.stride);
        PrefetchFar(tile.x + i + kSumRows * tile.stride);
        const V dx = AddGradient<kMap>(tile, Read(d, tile.dy + i), Read(d, tile.x + i), gain, sums);
        if (tile.dx) Put<kNtStores>(d, dx, tile.dx + i);
      }
      AddToDoubles(d, sums.dgain, tile.dgain + c);
      AddToDoubles(d, sums.dbias, tile.dbias + c);
      AddToDoubles(d, sums.dalpha, dalpha);
      AddToDoubles(d, sums.dshift, dshift);
    }
    if (rest == 0) continue;
    // The last columns, fewer than a vector.
    GroupSums sums = zeros();
    HWY_ALIGN T elements[2][kLanes] = {};
    HWY_ALIGN C parameters[kLanes] = {};
    std::copy_n(tile.gain + whole, rest, parameters);
    const V gain = hn::Load(d, parameters);
    for (int64_t r = r0; r < r0 + rows; ++r) {
      const int64_t i = r * tile.stride + whole;
      std::copy_n(tile.dy + i, rest, elements[0]);
      std::copy_n(tile.x + i, rest, elements[1]);
      const V dx = AddGradient<kMap>(tile, Read(d, elements[0]), Read(d, elements[1]), gain, sums);
      if (tile.dx) WriteLanes(d, dx, 0, rest, tile.dx + i);
    }
    // Lanes without an element can be NaN.
    const auto mask = hn::FirstN(d, static_cast<size_t>(rest));
    HWY_ALIGN double columns[2][kLanes] = {};
    AddToDoubles(d, hn::IfThenElseZero(mask, sums.dgain), columns[0]);
    AddToDoubles(d, hn::IfThenElseZero(mask, sums.dbias), columns[1]);
    AddToDoubles(d, hn::IfThenElseZero(mask, sums.dalpha), dalpha);
    AddToDoubles(d, hn::IfThenElseZero(mask, sums.dshift), dshift);
    for (int64_t k = 0; k < rest; ++k) {
      tile.dgain[whole + k] += columns[0][k];
      tile.dbias[whole + k] += columns[1][k];
    }
  }
  FinishStores<kNtStores>();
  PointwiseSums sums;
  for (int64_t k = 0; k < lanes; ++k) {
    sums.dalpha += dalpha[k];
    sums.dshift += dshift[k];
  }
  return sums;
}

PointwiseSums TileGradients(const PointwiseTile<T>& tile) {
  PointwiseSums sums;
  const auto run = [&](auto map) HWY_ATTR {
    VisitNtStores(tile.use_nt_stores && tile.dx,
                  [&](auto nt_stores) HWY_ATTR { sums = GradientsOf<map(), nt_stores()>(tile); });
  };
  if (tile.function == Pointwise::kTanh) {
    run(std::integral_constant<ChannelMap, ChannelMap::kTanh>());
  } else {
    run(std::integral_constant<ChannelMap, ChannelMap::kErf>());
  }
  return sums;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace planish::internal {

HWY_EXPORT(TileGradients);

template <>
PointwiseSums PointwiseGradients(const PointwiseTile<PLANISH_ELEMENT>& tile) {
  return PLANISH_DISPATCH(TileGradients)(tile);
}

}  // namespace planish::internal
#endif  // HWY_ONCE
