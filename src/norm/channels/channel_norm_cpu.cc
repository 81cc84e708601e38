#include "src/norm/channels/channel_norm_cpu.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <type_traits>

#include "src/base/aligned.h"
#include "src/base/loop.h"
#include "src/norm/channels/channel_norm_kernels.h"
#include "src/norm/channels/columns_cpu.h"
#include "src/norm/channels/columns_statistics.h"
#include "src/norm/element_types.h"

namespace planish::internal {
namespace {

// --- Tuning constants (docs/tuning.md) ---

// Positions below which several channels are placed side by side, and the columns to reach, at
// least a vector.
constexpr int64_t kMinPositions = 16;
constexpr int64_t kWidth = 128;
// Limits on the columns of a tile: wide enough for long reads, narrow enough for sums to stay in
// the L1 cache.
constexpr int64_t kMinTile = 64, kMaxTile = 1024;
// Minimum if rows do not begin at vectors: both ends of each piece are partial vectors.
constexpr int64_t kMinRaggedTile = 256;
// Columns of a tile are a multiple of this, so that its rows begin at cache lines.
constexpr int64_t kLine = 16;
// Number of tiles that suffices for the threads, and the elements of a block of rows if there are
// fewer tiles.
constexpr int64_t kMinTiles = 16, kBlockElements = int64_t{1} << 17;
// Limit on the chunks of tiles, each with its own partial sums of dgain and dbias.
constexpr int64_t kMaxChunks = 64;
// Limit on the blocks of rows of a tile.
constexpr int64_t kMaxBlocks = 64;

// --- End of tuning constants ---

/// Division of the [channels, spatial] elements of a sample into tiles. A tile is a matrix of
/// `rows` rows, `stride` elements apart, whose columns are positions. If there are few positions, a
/// row consists of `group` channels side by side, and `rest` columns form one more row.
struct Tiling {
  Tiling(int64_t batch, int64_t channels, int64_t spatial, int64_t bytes_read) {
    if (spatial >= kMinPositions) {
      rows = channels;
      stride = spatial;
      // Whole rows if they fit; else half of the cache, because the other half receives the next
      // tile.
      const int64_t fitting = kTileBytes / bytes_read / channels;
      const int64_t fit = spatial <= std::min(fitting, kMaxTile) ? spatial : fitting / 2;
      const int64_t min_cols = spatial % kLine == 0 ? kMinTile : kMinRaggedTile;
      const int64_t parts = (spatial - 1) / std::clamp(fit, min_cols, kMaxTile) + 1;
      cols = ((spatial - 1) / parts / kLine + 1) * kLine;
      tiles = (spatial - 1) / cols + 1;
    } else {
      group = std::min(channels, (kWidth - 1) / spatial + 1);
      rows = channels / group;
      stride = cols = group * spatial;
      rest = channels % group * spatial;
    }
    elements = rows * std::min(cols, stride);
    fits = elements * bytes_read <= kTileBytes;
    count = batch * tiles;
    chunks = std::min(count, kMaxChunks);
    // With few tiles, their rows are split over threads instead.
    if (count < kMinTiles) {
      blocks = std::clamp<int64_t>(std::min(rows, elements / kBlockElements), 1, kMaxBlocks);
    }
  }

  /// Returns where tile i of all samples begins.
  int64_t Begin(int64_t i, int64_t sample) const { return i / tiles * sample + i % tiles * cols; }
  int64_t ChunkBegin(int64_t chunk) const { return chunk * count / chunks; }

  /// Returns the prefetch distance in elements from tile i to the next one, or 0 if a tile does not
  /// fit in the cache. Also returns 0 with a slow L3 cache: if rows are a power of two apart, the
  /// two tiles would conflict in the L2 cache.
  int64_t Ahead(int64_t i, int64_t sample) const {
    return fits && i + 1 < count && !CurrentTuning().slow_l3
               ? Begin(i + 1, sample) - Begin(i, sample)
               : 0;
  }

  int64_t RowsBegin(int64_t block) const { return block * rows / blocks; }

  int64_t rows = 0, stride = 0;
  int64_t cols = 0;   // of a tile; the last one can have fewer
  int64_t tiles = 1;  // of a sample
  int64_t count = 0;  // tiles of all samples
  int64_t chunks = 1;
  int64_t elements = 0;  // of a tile
  bool fits = false;     // a tile fits in the cache
  int64_t group = 1;
  int64_t rest = 0;
  int64_t blocks = 1;  // into which the rows of a tile are split
  bool each() const { return stride == cols && group > 1; }
};

/// Repeats the value of each channel for every element of a sample; null stays null.
template <class C>
std::unique_ptr<C[]> Expanded(const C* values, int64_t channels, int64_t spatial) {
  if (values == nullptr) return nullptr;
  auto expanded = MakeUninitialized<C>(channels * spatial);
  for (int64_t c = 0; c < channels; ++c) {
    std::fill_n(&expanded[c * spatial], spatial, values[c]);
  }
  return expanded;
}

/// Repeats the first `period` elements up to n.
template <class C>
void Repeat(C* parameters, int64_t period, int64_t n) {
  for (int64_t i = period; i < n; ++i) parameters[i] = parameters[i - period];
}

/// Adds sums of the same position: those of all groups to the first. n is a multiple of
/// `positions`.
void Fold(double* sums, int64_t positions, int64_t n) {
  for (int64_t begin = positions; begin < n; begin += positions) {
    for (int64_t i = 0; i < positions; ++i) sums[i] += sums[begin + i];
  }
}

/// Share of the work: `part` of `whole`.
struct Share {
  int64_t part = 1, whole = 1;
};

/// Calls work(block, share) for each block of a tile's rows. `own` is the share of the calling
/// thread.
template <class Work>
void ForBlocks(const Tiling& tiling, const Share& own, const ParallelFor& parallel_for,
               const Work& work) {
  RunParallel(parallel_for, tiling.blocks, 1, [&](int64_t begin, int64_t end) {
    const Share share{own.part * (end - begin), own.whole * tiling.blocks};
    for (int64_t block = begin; block < end; ++block) work(block, share);
  });
}

/// Adds the sums of all blocks, `size` elements each, to the first.
void AddBlocks(double* sums, int64_t blocks, int64_t size) { Fold(sums, size, blocks * size); }

/// Calls task(chunk, scratch, share) for each chunk of tiles, on several threads unless tiles are
/// split themselves. make() creates the scratch of a thread.
template <class Make, class Task>
void ForChunks(const Tiling& tiling, const ParallelFor& parallel_for, const Make& make,
               const Task& task) {
  const auto run = [&](int64_t begin, int64_t end, auto& scratch) {
    const Share share{end - begin, tiling.chunks};
    for (int64_t chunk = begin; chunk < end; ++chunk) task(chunk, scratch, share);
  };
  if (tiling.blocks > 1) {
    auto scratch = make();
    run(0, tiling.chunks, scratch);
  } else {
    RunWithScratch(parallel_for, tiling.chunks,
                   GrainFor(tiling.elements * (tiling.count / tiling.chunks)), make, run);
  }
}

template <class T>
struct ForwardScratch {
  using C = Compute<T>;
  explicit ForwardScratch(const Tiling& t)
      : parameters(MakeUninitialized<C>(5 * t.cols)),
        sums(MakeUninitialized<double>(t.blocks * 2 * t.cols)),
        two_pass(MakeUninitialized<bool>(t.cols)),
        shift(parameters.get()),
        statistics{shift + t.cols, shift + 2 * t.cols, shift + 3 * t.cols, shift + 4 * t.cols} {}
  std::unique_ptr<C[]> parameters;
  std::unique_ptr<double[]> sums;  // of each block: first, second
  std::unique_ptr<bool[]> two_pass;
  C* shift;
  ColumnStatistics<C> statistics;
};

template <class T>
struct BackwardScratch {
  using C = Compute<T>;
  BackwardScratch(const Tiling& t, int64_t own_terms)
      : parameters(MakeUninitialized<C>(5 * t.cols)),
        sums(MakeUninitialized<double>(t.blocks * 2 * t.cols)),
        mean(parameters.get()),
        rstd(mean + t.cols),
        offset(mean + 2 * t.cols),
        mean_g(mean + 3 * t.cols),
        mean_g_xhat(mean + 4 * t.cols),
        statistics{mean, nullptr, rstd, offset},
        terms(own_terms > 0 ? MakeUninitialized<double>(own_terms) : nullptr) {}
  std::unique_ptr<C[]> parameters;
  std::unique_ptr<double[]> sums;
  C* mean;
  C* rstd;
  C* offset;
  C* mean_g;
  C* mean_g_xhat;
  ColumnStatistics<C> statistics;
  std::unique_ptr<double[]> terms;  // of dgain and dbias, for each element of a sample
};

/// Calls f(first row, rows, columns) for the rows of `block`; `rest` belongs to the last block.
template <class F>
void ForRows(const Tiling& tiling, int64_t block, int64_t cols, const F& f) {
  const int64_t begin = tiling.RowsBegin(block), end = tiling.RowsBegin(block + 1);
  f(begin, end - begin, cols);
  if (end == tiling.rows && tiling.rest > 0) f(end, int64_t{1}, tiling.rest);
}

}  // namespace

template <class T>
void ForwardChannels(const ChannelsForward<T>& args, const ParallelFor& parallel_for) {
  using C = Compute<T>;
  const int64_t channels = args.channels, spatial = args.spatial, sample = channels * spatial;
  const Tiling tiling(args.batch, channels, spatial, sizeof(T));
  const auto gains = tiling.each() ? Expanded(args.gain, channels, spatial) : nullptr;
  const auto biases = tiling.each() ? Expanded(args.bias, channels, spatial) : nullptr;
  ColumnsForward<T> whole;
  whole.recipe = args.recipe;
  whole.scale = args.scale;
  whole.slope = args.slope;
  whole.stride = tiling.stride;
  whole.gain = gains ? gains.get() : args.gain;
  whole.bias = biases ? biases.get() : args.bias;
  whole.each = gains != nullptr;
  const int64_t bytes = 2 * args.batch * sample * static_cast<int64_t>(sizeof(T));

  const auto run_tile = [&](int64_t i, ForwardScratch<T>& s, const Share& own) {
    const int64_t b = i / tiling.tiles, begin = i % tiling.tiles * tiling.cols;
    const int64_t cols = std::min(tiling.cols, tiling.stride - begin);
    const int64_t positions = tiling.group > 1 ? spatial : cols;
    ColumnsForward<T> call = whole;
    call.rows = tiling.rows;
    call.x = args.x + b * sample + begin;
    call.y = args.y + b * sample + begin;
    call.mean = s.statistics.mean;
    call.rstd = s.statistics.rstd;
    call.offset = s.statistics.offset;
    const T* x = call.x;
    ShiftColumns(x, spatial, channels, positions, s.shift);
    if (!args.recipe.centre) std::fill_n(s.shift, positions, C{0});
    Repeat(s.shift, positions, cols);
    std::fill_n(s.sums.get(), tiling.blocks * 2 * cols, 0.0);
    ForBlocks(tiling, own, parallel_for, [&](int64_t block, const Share&) {
      double* first = &s.sums[block * 2 * cols];
      ForRows(tiling, block, cols, [&](int64_t row, int64_t rows, int64_t n) {
        const T* a = x + row * tiling.stride;
        SumColumns(ChannelSums::kStatistics, a, a, tiling.stride, rows, n, {{s.shift}}, first,
                   first + cols);
      });
    });
    double* first = s.sums.get();
    double* second = first + cols;
    AddBlocks(first, tiling.blocks, 2 * cols);
    Fold(first, positions, cols);
    Fold(second, positions, cols);
    const bool any = FinishColumns<T>(args.recipe, args.eps, channels, positions, s.shift, first,
                                      second, s.statistics, s.two_pass.get());
    for (int64_t c = 0; any && c < positions; ++c) {
      if (!s.two_pass[c]) continue;
      const Statistics m = TwoPassStatisticsAt<T>(
          [&](int64_t k) { return ToDouble(x[k * spatial + c]); }, channels, args.recipe.centre);
      const double rstd =
          ReciprocalDeviation(m, args.recipe.deviation, args.eps, static_cast<double>(channels));
      s.statistics.offset[c] =
          SaveStatistics(m, rstd, c, s.statistics.mean, s.statistics.mean_lo, s.statistics.rstd)
              .offset;
    }
    const auto save = [&](const C* statistics, C* saved) {
      if (saved) std::copy_n(statistics, positions, saved + b * spatial + begin);
    };
    save(s.statistics.mean, args.mean);
    save(s.statistics.mean_lo, args.mean_lo);
    save(s.statistics.rstd, args.rstd);
    for (C* parameters : {s.statistics.mean, s.statistics.rstd, s.statistics.offset}) {
      Repeat(parameters, positions, cols);
    }
    ForBlocks(tiling, own, parallel_for, [&](int64_t block, const Share& share) {
      ForRows(tiling, block, cols, [&](int64_t row, int64_t rows, int64_t n) {
        ColumnsForward<T> part = call.From(row, rows);
        part.cols = n;
        part.use_nt_stores = UsesNtStores(bytes, share.part, share.whole);
        if (part.use_nt_stores) part.ahead = tiling.Ahead(i, sample);
        part.prefetch_output = PrefetchesOutput(bytes, share.part, share.whole);
        MapForward(part);
      });
    });
  };
  ForChunks(
      tiling, parallel_for, [&] { return ForwardScratch<T>(tiling); },
      [&](int64_t chunk, ForwardScratch<T>& s, const Share& own) {
        for (int64_t i = tiling.ChunkBegin(chunk); i < tiling.ChunkBegin(chunk + 1); ++i) {
          run_tile(i, s, own);
        }
      });
}

template <class T>
void BackwardChannels(const ChannelsBackward<T>& args, const ParallelFor& parallel_for) {
  using C = Compute<T>;
  C *const dgain = args.dgain, *const dbias = args.dbias;
  const int64_t channels = args.channels, spatial = args.spatial, sample = channels * spatial;
  const bool read_x = args.recipe.output != Output::kIdentity || args.recipe.via_scale;
  const Tiling tiling(args.batch, channels, spatial, sizeof(T) * (read_x ? 2 : 1));
  const bool each = tiling.each() && args.recipe.output == Output::kAffine;
  const auto gains = each ? Expanded(args.gain, channels, spatial) : nullptr;
  ColumnsBackward<T> whole;
  whole.recipe = args.recipe;
  whole.scale = args.scale;
  whole.slope = args.slope;
  whole.stride = tiling.stride;
  whole.gain = each ? gains.get() : args.gain;
  whole.each = each;
  const int64_t bytes = 3 * args.batch * sample * static_cast<int64_t>(sizeof(T));
  // Partial sums of dgain and dbias for each chunk. The shape determines the order of additions.
  const int64_t count = dgain ? tiling.chunks : 0;
  const auto partial = MakeUninitialized<double>(count * 2 * channels);
  const int64_t terms = each ? sample : channels;  // of dgain, and of dbias

  const auto run_tile = [&](int64_t i, double* dgains, BackwardScratch<T>& s, const Share& own) {
    const int64_t b = i / tiling.tiles, begin = i % tiling.tiles * tiling.cols;
    const int64_t cols = std::min(tiling.cols, tiling.stride - begin);
    const int64_t positions = tiling.group > 1 ? spatial : cols;
    const auto of_sample = [&](const C* statistics) {
      return statistics ? statistics + b * spatial + begin : nullptr;
    };
    SavedColumns<T>(of_sample(args.mean), of_sample(args.mean_lo), of_sample(args.rstd), positions,
                    s.statistics);
    for (C* parameters : {s.mean, s.rstd, s.offset}) Repeat(parameters, positions, cols);
    ColumnsBackward<T> call = whole;
    call.rows = tiling.rows;
    call.dy = args.dy + b * sample + begin;
    call.x = (args.x ? args.x : args.dy) + b * sample + begin;
    if (args.dx) call.dx = args.dx + b * sample + begin;
    call.mean = s.mean;
    call.rstd = s.rstd;
    call.offset = s.offset;
    call.mean_g = s.mean_g;
    call.mean_g_xhat = s.mean_g_xhat;
    const auto from = [&](int64_t row, int64_t rows, int64_t columns) {
      ColumnsBackward<T> part = call.From(row, rows);
      part.cols = columns;
      return part;
    };
    std::fill_n(s.sums.get(), tiling.blocks * 2 * cols, 0.0);
    ForBlocks(tiling, own, parallel_for, [&](int64_t block, const Share&) {
      double* first = &s.sums[block * 2 * cols];
      ForRows(tiling, block, cols, [&](int64_t row, int64_t rows, int64_t columns) {
        double* dgains_of = dgains ? dgains + (each ? row * tiling.stride : row) : nullptr;
        SumBackward(from(row, rows, columns), first, first + cols, dgains_of,
                    dgains ? dgains_of + terms : nullptr);
      });
    });
    if (args.dx == nullptr) return;
    double* first = s.sums.get();
    double* second = first + cols;
    AddBlocks(first, tiling.blocks, 2 * cols);
    Fold(first, positions, cols);
    Fold(second, positions, cols);
    FinishGradients<T>(args.recipe, args.eps, channels, positions, s.rstd, first, second, s.mean_g,
                       s.mean_g_xhat);
    for (C* parameters : {s.mean_g, s.mean_g_xhat}) Repeat(parameters, positions, cols);
    ForBlocks(tiling, own, parallel_for, [&](int64_t block, const Share& share) {
      ForRows(tiling, block, cols, [&](int64_t row, int64_t rows, int64_t columns) {
        ColumnsBackward<T> part = from(row, rows, columns);
        part.use_nt_stores = UsesNtStores(bytes, share.part, share.whole);
        if (part.use_nt_stores) part.ahead = tiling.Ahead(i, sample);
        part.prefetch_output = PrefetchesOutput(bytes, share.part, share.whole);
        MapBackward(part);
      });
    });
  };
  const auto run_chunk = [&](int64_t chunk, BackwardScratch<T>& s, const Share& own) {
    double* sums = dgain ? &partial[chunk * 2 * channels] : nullptr;
    double* dgains = sums;
    if (s.terms) dgains = s.terms.get();
    if (dgain) std::fill_n(dgains, 2 * terms, 0.0);
    for (int64_t i = tiling.ChunkBegin(chunk); i < tiling.ChunkBegin(chunk + 1); ++i) {
      run_tile(i, dgains, s, own);
    }
    for (int64_t i = 0; dgain && each && i < 2 * channels; ++i) {
      sums[i] = 0;
      for (int64_t k = 0; k < spatial; ++k) sums[i] += dgains[i * spatial + k];
    }
  };
  const int64_t own_terms = dgain && each ? 2 * terms : 0;
  ForChunks(tiling, parallel_for, [&] { return BackwardScratch<T>(tiling, own_terms); }, run_chunk);
  if (dgain == nullptr) return;
  RunParallel(parallel_for, channels, GrainFor(2 * count), [&](int64_t begin, int64_t end) {
    for (int64_t from = begin; from < end; from += kChannelsAtOnce) {
      const int64_t size = std::min(kChannelsAtOnce, end - from);
      double gain_sums[kChannelsAtOnce] = {}, bias_sums[kChannelsAtOnce] = {};
      for (int64_t i = 0; i < count; ++i) {
        const double* sums = &partial[i * 2 * channels + from];
        for (int64_t c = 0; c < size; ++c) gain_sums[c] += sums[c];
        for (int64_t c = 0; c < size; ++c) bias_sums[c] += sums[channels + c];
      }
      for (int64_t c = 0; c < size; ++c) {
        dgain[from + c] = static_cast<C>(gain_sums[c]);
        dbias[from + c] = static_cast<C>(bias_sums[c]);
      }
    }
  });
}

#define PLANISH_INSTANTIATE(T)                                                  \
  template void ForwardChannels(const ChannelsForward<T>&, const ParallelFor&); \
  template void BackwardChannels(const ChannelsBackward<T>&, const ParallelFor&);
PLANISH_ELEMENT_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace planish::internal
