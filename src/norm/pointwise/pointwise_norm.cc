#include "planish/pointwise_norm.h"

#include <algorithm>
#include <cstdint>

#include "src/base/aligned.h"
#include "src/base/loop.h"
#include "src/norm/channels/columns_cpu.h"
#include "src/norm/check.h"
#include "src/norm/element_types.h"
#include "src/norm/params.h"
#include "src/norm/pointwise/kernels.h"

// Forward is an elementwise operation of channels with one position each. Backward has loops of its
// own, because its outputs do not depend on its sums: one pass computes both.
namespace planish {
inline namespace PLANISH_API {
namespace {

using internal::ChannelMap;
using internal::ChannelPass;
using internal::ChannelRange;
using internal::ChannelSums;
using internal::PointwiseSums;
using internal::PointwiseTile;

// --- Tuning constants (docs/tuning.md) ---

// Columns to reach by placing several rows side by side, so that few vectors are partial.
constexpr int64_t kMinWidth = 256;
// Columns of a tile; their sums and gains stay in the L1 cache.
constexpr int64_t kTileColumns = 1024;

// --- End of tuning constants ---

template <class C, class P>
C ScalarOf(const P* value, C missing) {
  return value == nullptr ? missing : internal::Plain(internal::ToCompute<C>(*value));
}

/// Division of a [rows, cols] matrix into tiles. `side` rows side by side form one of `wide` rows
/// with `width` columns; the last `rest` columns form one more row.
struct Tiling {
  Tiling(int64_t rows, int64_t cols)
      : side(cols >= kMinWidth ? 1 : std::min(rows, (kMinWidth - 1) / cols + 1)),
        width(side * cols),
        wide(rows / side),
        rest(rows % side * cols),
        blocks(internal::RowBlocks(wide, width)),
        tiles((width - 1) / kTileColumns + 1) {}

  int64_t Begin(int64_t block) const { return block * wide / blocks; }

  int64_t side, width, wide, rest;
  int64_t blocks;  // of rows
  int64_t tiles;   // of columns
};

}  // namespace

template <class T, class P>
void PointwiseNormForward(Pointwise function, const PointwiseNormForwardArgs<T, P>& args,
                          const ParallelFor& parallel_for) {
  constexpr const char* kFunction = "PointwiseNormForward";
  using C = Compute<T>;
  internal::CheckPointwise(kFunction, function, args);
  if (args.rows == 0 || args.cols == 0) return;
  const C alpha = ScalarOf(args.alpha, C{1}), shift = ScalarOf(args.shift, C{0});
  ChannelPass<T> pass{internal::ArraysOf(args), ChannelSums::kNone, internal::MapOf(function)};
  pass.after = [&](const ChannelRange<C>& range) {
    std::fill_n(range.parameters[0], range.n, alpha);
    std::fill_n(range.parameters[1], range.n, shift);
    for (int64_t i = 0; i < range.n; ++i) {
      const int64_t c = range.begin + i;
      range.parameters[2][i] = args.gain ? internal::ToCompute<C>(args.gain[c]) : C{1};
      range.parameters[3][i] = args.bias ? internal::ToCompute<C>(args.bias[c]) : C{0};
    }
  };
  internal::RunChannels(pass, parallel_for);
}

template <class T, class P>
void PointwiseNormBackward(Pointwise function, const PointwiseNormBackwardArgs<T, P>& args,
                           const ParallelFor& parallel_for) {
  constexpr const char* kFunction = "PointwiseNormBackward";
  using C = Compute<T>;
  internal::CheckPointwise(kFunction, function, args);
  const int64_t rows = args.rows, cols = args.cols;
  if (rows == 0 || cols == 0) {
    internal::FillEach({args.dgain, args.dbias}, cols, P{});
    internal::FillEach({args.dalpha, args.dshift}, 1, P{});
    return;
  }
  const bool has_sums = args.dalpha || args.dshift || internal::HasParamGradients(args);
  if (args.dx == nullptr && !has_sums) return;
  const Tiling t(rows, cols);
  const int64_t width = t.width, items = t.blocks * t.tiles;
  const auto gain = internal::MakeUninitialized<C>(width);
  for (int64_t c = 0; c < width; ++c) {
    gain[c] = c >= cols   ? gain[c - cols]
              : args.gain ? internal::Plain(internal::ToCompute<C>(args.gain[c]))
                          : C{1};
  }
  // Of each block: dgain, dbias.
  const auto columns = internal::MakeUninitialized<double>(t.blocks * 2 * width);
  const auto sums = internal::MakeUninitialized<PointwiseSums>(items);
  PointwiseTile<T> whole;
  whole.function = function;
  whole.stride = width;
  whole.alpha = ScalarOf(args.alpha, C{1});
  whole.shift = ScalarOf(args.shift, C{0});
  const int64_t bytes = (args.dx ? 3 : 2) * rows * cols * static_cast<int64_t>(sizeof(T));
  const bool aligned = internal::IsAligned(args.dx) &&
                       width * static_cast<int64_t>(sizeof(T)) % internal::kAlignment == 0;
  const auto run = [&](int64_t item, bool use_nt_stores) {
    const int64_t block = item / t.tiles, c = item % t.tiles * kTileColumns;
    const int64_t n = std::min(kTileColumns, width - c);
    const int64_t from = t.Begin(block), to = t.Begin(block + 1);
    PointwiseTile<T> tile = whole;
    tile.gain = &gain[c];
    tile.dgain = &columns[block * 2 * width + c];
    tile.dbias = tile.dgain + width;
    tile.use_nt_stores = use_nt_stores;
    std::fill_n(tile.dgain, n, 0.0);
    std::fill_n(tile.dbias, n, 0.0);
    PointwiseSums total;
    const auto add = [&](int64_t row, int64_t count, int64_t size) {
      const int64_t at = row * width + c;
      tile.rows = count;
      tile.cols = size;
      tile.dy = args.dy + at;
      tile.x = args.x + at;
      tile.dx = args.dx ? args.dx + at : nullptr;
      const PointwiseSums part = internal::PointwiseGradients(tile);
      total.dalpha += part.dalpha;
      total.dshift += part.dshift;
    };
    add(from, to - from, n);
    if (to == t.wide && t.rest > c) add(to, 1, std::min(n, t.rest - c));
    sums[item] = total;
  };
  internal::RunParallel(
      parallel_for, items, internal::GrainFor(t.wide / t.blocks * std::min(width, kTileColumns)),
      [&](int64_t begin, int64_t end) {
        const bool use_nt_stores = aligned && internal::UsesNtStores(bytes, end - begin, items);
        for (int64_t item = begin; item < end; ++item) run(item, use_nt_stores);
      });
  if (!has_sums) return;
  internal::RunParallel(parallel_for, cols, internal::GrainFor(2 * t.blocks * t.side),
                        [&](int64_t begin, int64_t end) {
                          for (int64_t c = begin; c < end; ++c) {
                            double dgain = 0, dbias = 0;
                            for (int64_t block = 0; block < t.blocks; ++block) {
                              for (int64_t i = block * 2 * width + c; i < block * 2 * width + width;
                                   i += cols) {
                                dgain += columns[i];
                                dbias += columns[i + width];
                              }
                            }
                            if (args.dgain)
                              args.dgain[c] = internal::FromCompute<P>(static_cast<C>(dgain));
                            if (args.dbias)
                              args.dbias[c] = internal::FromCompute<P>(static_cast<C>(dbias));
                          }
                        });
  PointwiseSums total;
  for (int64_t i = 0; i < items; ++i) {
    total.dalpha += sums[i].dalpha;
    total.dshift += sums[i].dshift;
  }
  if (args.dalpha) *args.dalpha = internal::FromCompute<P>(static_cast<C>(total.dalpha));
  if (args.dshift) *args.dshift = internal::FromCompute<P>(static_cast<C>(total.dshift));
}

#define PLANISH_INSTANTIATE(T, P)                                                        \
  template void PointwiseNormForward(Pointwise, const PointwiseNormForwardArgs<T, P>&,   \
                                     const ParallelFor&);                                \
  template void PointwiseNormBackward(Pointwise, const PointwiseNormBackwardArgs<T, P>&, \
                                      const ParallelFor&);
PLANISH_NORM_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace PLANISH_API
}  // namespace planish
