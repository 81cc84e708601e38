#include "src/norm/channels/columns_cpu.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "src/base/aligned.h"
#include "src/base/loop.h"
#include "src/norm/element_types.h"
#include "src/norm/params.h"

namespace planish::internal {
namespace {

// --- Tuning constants (docs/tuning.md) ---

// Spatial sizes below which elements are treated as columns with their own parameters, not as runs
// that share them; kMinRun backward, which has six parameters.
constexpr int64_t kShortRun = 64;
// Columns to reach by placing several samples side by side, unless the pass has another limit.
constexpr int64_t kNarrow = 512;
// Columns summed at a time; their sums stay in the L2 cache.
constexpr int64_t kSumTile = 1024;
// Limit on the columns of a tile, so that about 35 bytes for each stay in the L2 cache and scratch
// memory stays small.
constexpr int64_t kTileColumns = 2048;
// Columns of an elementwise operation at a time, whose parameters stay in the L2 cache.
constexpr int64_t kMapTile = 16384;
// Elements of a run in one partial sum, and elements of a part of an elementwise operation.
constexpr int64_t kPart = int64_t{1} << 14;
// Channels whose preparation is worth a thread: each reads memory in about ten places.
constexpr int64_t kBeforeGrain = 1024;
// Elements of a plane from which its work is split over threads, and planes below which each is.
constexpr int64_t kSplitPlane = int64_t{1} << 18, kMinPlanes = 8;
// Contiguous bytes that a tile should have in each row: the hardware prefetches within pages.
constexpr int64_t kTileRowBytes = 1024;

// --- End of tuning constants ---

// Arrays of `count` parameters: one value for each channel, or repeated for each of its columns.
template <class C, class Parameters>
class ParameterArrays {
 public:
  // `size` is the array length, if it exceeds channels * columns.
  ParameterArrays(int count, int64_t channels, int64_t columns = 1, int64_t size = 0)
      : count_(count),
        channels_(channels),
        columns_(columns),
        size_(std::max(size, channels * columns)),
        data_(MakeUninitialized<C>(count * size_)) {
    if (columns > 1) each_ = MakeUninitialized<C>(count * channels);
  }

  // Sets arrays[k] to the location of parameter k of channels i, i + 1, ...
  void Channels(int64_t i, C** arrays) {
    for (int k = 0; k < count_; ++k) arrays[k] = Each(k) + i;
  }

  // Completes channels [begin, end) of arrays of T after their parameters have been written.
  template <class T>
  void Finish(int64_t begin, int64_t end) {
    for (int k = 0; k < count_; ++k) {
      C* each = Each(k);
      // Conversion to 16 bits requires plain NaNs.
      for (int64_t i = begin; IsHalf<T> && i < end; ++i) each[i] = Plain(each[i]);
      for (int64_t i = begin; columns_ > 1 && i < end; ++i) {
        std::fill_n(&data_[k * size_ + i * columns_], columns_, each[i]);
      }
    }
  }

  // Fills the arrays by repeating their first `period` columns.
  void Repeat(int64_t period) {
    for (int k = 0; k < count_; ++k) {
      C* array = &data_[k * size_];
      for (int64_t i = period; i < size_; ++i) array[i] = array[i - period];
    }
  }

  // Returns the parameters from column i on.
  Parameters At(int64_t i) const {
    Parameters parameters{};
    for (int k = 0; k < count_; ++k) parameters.at[k] = &data_[k * size_ + i];
    return parameters;
  }

 private:
  C* Each(int k) { return columns_ > 1 ? &each_[k * channels_] : &data_[k * size_]; }

  int count_;
  int64_t channels_, columns_, size_;
  std::unique_ptr<C[]> data_, each_;
};

template <class C>
using SumArrays = ParameterArrays<C, SumParameters<C>>;
template <class C>
using MapArraysOf = ParameterArrays<C, MapParameters<C>>;

template <class T>
MapArrays<T> ArraysAt(const ChannelPass<T>& pass, int64_t i) {
  return {pass.a + i, pass.x + i, pass.out + i};
}

// Returns the bytes that the elementwise operation reads and writes.
template <class T>
int64_t MapBytes(const ChannelPass<T>& pass) {
  const int64_t arrays = IsGradient(pass.map) ? 3 : 2;
  return arrays * pass.batch * pass.channels * pass.spatial * static_cast<int64_t>(sizeof(T));
}

// Returns whether a thread with `part` of `whole` uses non-temporal stores.
template <class T>
bool UsesNtStores(const ChannelPass<T>& pass, int64_t part, int64_t whole) {
  return pass.out != nullptr && internal::UsesNtStores(MapBytes(pass), part, whole);
}

// Returns whether a thread with `part` of `whole` prefetches output lines.
template <class T>
bool PrefetchesOutput(const ChannelPass<T>& pass, int64_t part, int64_t whole) {
  return internal::PrefetchesOutput(MapBytes(pass), part, whole);
}

// Returns the bytes of `n` elements of all arrays that are read.
template <class T>
int64_t ReadBytes(const ChannelPass<T>& pass, int64_t n) {
  return n * static_cast<int64_t>(sizeof(T)) * (pass.sums == ChannelSums::kGradient ? 2 : 1);
}

// Returns the number of channels in whole groups, at least one group.
template <class T>
int64_t WholeGroups(const ChannelPass<T>& pass, int64_t channels) {
  return std::max<int64_t>(1, channels / pass.group) * pass.group;
}

// Returns the number of channels of a tile that stays in the cache from its sums to its outputs. A
// tile is large enough for a thread. If there are many channels, it takes at most half of the
// cache, because the other half receives the next tile. Returns 0 if a tile of the minimum width
// does not fit.
template <class T>
int64_t TileChannels(const ChannelPass<T>& pass) {
  const int64_t channel = pass.batch * pass.spatial;
  const auto width = [&](int64_t bytes) {
    return (bytes - 1) / (pass.spatial * static_cast<int64_t>(sizeof(T))) + 1;
  };
  const int64_t max_tile = kTileBytes / ReadBytes(pass, channel);
  const int64_t min_tile = std::max(width(kTileRowBytes), (kGrainElements - 1) / channel + 1);
  const int64_t half = std::max(max_tile / 2, std::min(max_tile, width(kTileRowBytes)));
  int64_t tile = std::min(half, std::max(min_tile, pass.channels / 32));
  if (pass.group > 1) {
    if (pass.group > max_tile) return 0;
    tile = WholeGroups(pass, tile);
  }
  return tile >= std::min(pass.channels, width(kTileRowBytes)) ? std::min(tile, pass.channels) : 0;
}

// Returns how many channels of a tile to process at a time if runs are read whole.
template <class T>
int64_t RunTileChannels(const ChannelPass<T>& pass, int64_t tile) {
  const Tuning& tuning = CurrentTuning();
  const int64_t bytes = pass.batch == 1 ? tuning.l1_bytes / 2 : tuning.run_tile_bytes;
  const int64_t cached_channels = bytes / ReadBytes(pass, pass.batch * pass.spatial);
  return WholeGroups(pass, std::clamp<int64_t>(cached_channels, 1, tile));
}

// Computes the inputs of the sums of channels [c, c + n), which are channels i, i + 1, ... of the
// arrays.
template <class T>
void Before(const ChannelPass<T>& pass, int64_t c, int64_t i, int64_t n,
            SumArrays<Compute<T>>& before) {
  ChannelRange<Compute<T>> range{.begin = pass.first_channel + c, .n = n};
  const int64_t from = i / pass.sum_channels;
  before.Channels(from, range.before);
  pass.before(range);
  before.template Finish<T>(from, from + n / pass.sum_channels);
}

// Computes the parameters of the elementwise operation on channels [c, c + n) from their sums.
template <class T>
void After(const ChannelPass<T>& pass, int64_t c, int64_t i, int64_t n, const double* first,
           const double* second, SumArrays<Compute<T>>& before, MapArraysOf<Compute<T>>& after) {
  ChannelRange<Compute<T>> range{
      .begin = pass.first_channel + c, .n = n, .first = first, .second = second};
  before.Channels(i / pass.sum_channels, range.before);
  after.Channels(i, range.parameters);
  pass.after(range);
  after.template Finish<T>(i, i + n);
}

// Returns memory for the sums of `channels` channels if they are in groups; AfterParts needs it.
template <class T>
std::unique_ptr<double[]> GroupSums(const ChannelPass<T>& pass, int64_t channels) {
  return MakeUninitialized<double>(pass.group > 1 ? 2 * channels : 0);
}

// Like After, for partial sums: add(i, first, second) adds those of sum i, the sum of channel i
// unless it covers several. `sums` has room for two sums of each channel of the arrays if channels
// are in groups, which can be large.
template <class T, class Add>
void AfterParts(const ChannelPass<T>& pass, int64_t c, int64_t i, int64_t n,
                SumArrays<Compute<T>>& before, MapArraysOf<Compute<T>>& after, double* sums,
                const Add& add) {
  if (pass.sums == ChannelSums::kNone) {
    After<T>(pass, c, i, n, nullptr, nullptr, before, after);
    return;
  }
  if (pass.group > 1) {
    const int64_t from = i / pass.sum_channels, count = n / pass.sum_channels;
    double* first = sums + 2 * from;
    double* second = first + count;
    std::fill_n(first, 2 * count, 0.0);
    for (int64_t k = 0; k < count; ++k) add(from + k, first[k], second[k]);
    After<T>(pass, c, i, n, first, second, before, after);
    return;
  }
  for (int64_t from = 0; from < n; from += kChannelsAtOnce) {
    const int64_t size = std::min(kChannelsAtOnce, n - from);
    double first[kChannelsAtOnce] = {}, second[kChannelsAtOnce] = {};
    for (int64_t k = 0; k < size; ++k) add(i + from + k, first[k], second[k]);
    After<T>(pass, c + from, i + from, size, first, second, before, after);
  }
}

template <class T>
void MapAll(const ChannelPass<T>& pass, int64_t run, int64_t period,
            const MapParameters<Compute<T>>& parameters, const ParallelFor& parallel_for) {
  const int64_t total = pass.batch * pass.channels * pass.spatial;
  const int64_t parts = (total + kPart - 1) / kPart;
  RunParallel(parallel_for, parts, GrainFor(kPart), [&](int64_t begin, int64_t end) {
    const bool use_nt_stores = UsesNtStores(pass, end - begin, parts);
    MapArrays<T> arrays = ArraysAt(pass, 0);
    arrays.prefetch_output = PrefetchesOutput(pass, end - begin, parts);
    MapRows(pass.map, arrays, 0, 1, begin * kPart, std::min(total, end * kPart), run, period,
            parameters, use_nt_stores);
  });
}

// Scratch of a thread for tiles of `tile` channels with `columns` columns each.
template <class C>
struct TileScratch {
  template <class T>
  TileScratch(const ChannelPass<T>& pass, int64_t tile, int64_t columns, bool in_blocks)
      : before(ParameterCount(pass.sums), tile, columns),
        after(ParameterCount(pass.map), tile, columns),
        totals(MakeUninitialized<double>(2 * tile * columns)),
        block(MakeUninitialized<double>(in_blocks ? 2 * kSumTile : 0)),
        group_sums(GroupSums(pass, tile)) {}
  SumArrays<C> before;
  MapArraysOf<C> after;
  std::unique_ptr<double[]> totals;
  std::unique_ptr<double[]> block;  // sums of a block of rows for kSumTile columns
  std::unique_ptr<double[]> group_sums;
};

// --- Runs: the `spatial` elements of a channel in a sample share parameters. ---

// Processes tiles of `tile` channels, each read from memory for its sums and from a cache for its
// outputs.
template <class T>
void RunsInTiles(const ChannelPass<T>& pass, int64_t tile, const ParallelFor& parallel_for) {
  using C = Compute<T>;
  const int64_t spatial = pass.spatial, sample = pass.channels * spatial;
  const int64_t tiles = (pass.channels + tile - 1) / tile;
  const int64_t summed = spatial * pass.sum_channels;
  const bool has_sums = pass.sums != ChannelSums::kNone;
  // The next tile is prefetched if it fits in a cache beside this one.
  const bool prefetch_next =
      ReadBytes(pass, pass.batch * tile * spatial) <= CurrentTuning().run_tile_bytes;
  const auto make = [&] { return TileScratch<C>(pass, tile, 1, false); };
  RunWithScratch(parallel_for, tiles, GrainFor(pass.batch * tile * spatial), make,
                 [&](int64_t begin, int64_t end, TileScratch<C>& scratch) {
                   const bool use_nt_stores = UsesNtStores(pass, end - begin, tiles);
                   double* first = scratch.totals.get();
                   double* second = first + tile;
                   for (int64_t i = begin; i < end; ++i) {
                     const int64_t c0 = i * tile, runs = std::min(tile, pass.channels - c0);
                     std::fill_n(first, 2 * tile, 0.0);
                     if (has_sums) Before<T>(pass, c0, 0, runs, scratch.before);
                     for (int64_t n = 0; has_sums && n < pass.batch; ++n) {
                       const int64_t at = n * sample + c0 * spatial;
                       SumRuns(pass.sums, pass.a + at, pass.x + at, summed,
                               runs / pass.sum_channels, summed, scratch.before.At(0), first,
                               second);
                     }
                     After<T>(pass, c0, 0, runs, first, second, scratch.before, scratch.after);
                     if (pass.out == nullptr) continue;
                     MapArrays<T> arrays = ArraysAt(pass, c0 * spatial);
                     if (i + 1 < tiles && prefetch_next) arrays.ahead = tile * spatial;
                     arrays.prefetch_output = PrefetchesOutput(pass, end - begin, tiles);
                     MapRows(pass.map, arrays, sample, pass.batch, 0, runs * spatial, spatial, runs,
                             scratch.after.At(0), use_nt_stores);
                   }
                 });
}

// Computes the inputs of the sums of all channels.
template <class T>
void PrepareAll(const ChannelPass<T>& pass, SumArrays<Compute<T>>& before,
                const ParallelFor& parallel_for) {
  const int64_t group = pass.group;
  RunParallel(parallel_for, pass.channels / group, std::max<int64_t>(1, kBeforeGrain / group),
              [&](int64_t begin, int64_t end) {
                Before<T>(pass, begin * group, begin * group, (end - begin) * group, before);
              });
}

template <class T>
void Runs(const ChannelPass<T>& pass, const ParallelFor& parallel_for) {
  using C = Compute<T>;
  const int64_t channels = pass.channels, spatial = pass.spatial;
  const int64_t tile = TileChannels(pass);
  // Long runs and the work of few channels are split into parts.
  const int64_t total = pass.batch * channels * spatial;
  // For several samples the two orders of sums differ.
  const int64_t min_tiles = pass.batch == 1 ? std::min<int64_t>(8, total / kGrainElements) : 8;
  if (spatial <= kPart && tile > 0 &&
      (channels / tile >= min_tiles || total <= 2 * kGrainElements)) {
    RunsInTiles(pass, RunTileChannels(pass, tile), parallel_for);
    return;
  }
  const int64_t sums = channels / pass.sum_channels, summed = spatial * pass.sum_channels;
  const int64_t parts = (summed + kPart - 1) / kPart, all_parts = pass.batch * sums * parts;
  const bool has_sums = pass.sums != ChannelSums::kNone;
  MapArraysOf<C> after(ParameterCount(pass.map), channels);
  SumArrays<C> before(ParameterCount(pass.sums), sums);
  const auto partial = MakeUninitialized<double>(has_sums ? 2 * all_parts : 0);
  double* first = partial.get();
  double* second = first + (has_sums ? all_parts : 0);
  const int64_t group = pass.group;
  if (has_sums) {
    PrepareAll(pass, before, parallel_for);
    RunParallel(parallel_for, all_parts, GrainFor(std::min(kPart, summed)),
                [&](int64_t begin, int64_t end) {
                  std::fill_n(first + begin, end - begin, 0.0);
                  std::fill_n(second + begin, end - begin, 0.0);
                  // Whole runs of several channels, or one part of a run.
                  for (int64_t i = begin; i < end;) {
                    const int64_t run = i / parts, c = run % sums, part = i % parts;
                    const int64_t runs = parts > 1 ? 1 : std::min(end - i, sums - c);
                    const int64_t at = run * summed + part * kPart;
                    SumRuns(pass.sums, pass.a + at, pass.x + at, summed, runs,
                            std::min(kPart, summed - part * kPart), before.At(c), first + i,
                            second + i);
                    i += runs;
                  }
                });
  }
  const auto group_sums = GroupSums(pass, channels);
  RunParallel(parallel_for, channels / group, GrainFor(group * pass.batch * parts),
              [&](int64_t begin, int64_t end) {
                AfterParts<T>(pass, begin * group, begin * group, (end - begin) * group, before,
                              after, group_sums.get(), [&](int64_t c, double& sum, double& other) {
                                for (int64_t n = 0; n < pass.batch; ++n) {
                                  const int64_t at = (n * sums + c) * parts;
                                  for (int64_t i = at; i < at + parts; ++i) {
                                    sum += first[i];
                                    other += second[i];
                                  }
                                }
                              });
              });
  if (pass.out) MapAll(pass, spatial, channels, after.At(0), parallel_for);
}

// --- Columns: short runs, whose parameters are repeated for each column. ---

// Like After, if the columns of channel i start at i * spatial in the first of `samples` samples
// that are side by side.
template <class T>
void AfterColumns(const ChannelPass<T>& pass, int64_t c, int64_t i, int64_t n, int64_t samples,
                  const double* first, const double* second, SumArrays<Compute<T>>& before,
                  MapArraysOf<Compute<T>>& after, double* sums) {
  if (samples == 1 && pass.spatial == 1 && pass.sums != ChannelSums::kNone) {
    After<T>(pass, c, i, n, first + i, second + i, before, after);
    return;
  }
  AfterParts<T>(pass, c, i, n, before, after, sums,
                [&](int64_t channel, double& sum, double& other) {
                  for (int64_t s = 0; s < samples; ++s) {
                    const int64_t begin = (s * pass.channels + channel) * pass.spatial;
                    for (int64_t column = begin; column < begin + pass.spatial; ++column) {
                      sum += first[column];
                      other += second[column];
                    }
                  }
                });
}

// Returns the pass of one plane.
template <class T>
ChannelPass<T> PlaneOf(ChannelPass<T> pass, int64_t plane) {
  const int64_t at = plane * pass.batch * pass.channels * pass.spatial;
  pass.a += at;
  pass.x += at;
  if (pass.out) pass.out += at;
  pass.first_channel += plane * pass.channels;
  pass.planes = 1;
  return pass;
}

// Processes tiles of `tile` channels of all planes, like RunsInTiles.
template <class T>
void ColumnsInTiles(const ChannelPass<T>& pass, int64_t tile, const ParallelFor& parallel_for) {
  using C = Compute<T>;
  const int64_t spatial = pass.spatial, sample = pass.channels * spatial,
                tile_cols = tile * spatial, plane_size = pass.batch * sample;
  const int64_t plane_tiles = (pass.channels + tile - 1) / tile, tiles = pass.planes * plane_tiles;
  // Index of the first element of a tile.
  const auto at = [&](int64_t i) {
    return i / plane_tiles * plane_size + i % plane_tiles * tile_cols;
  };
  const bool has_sums = pass.sums != ChannelSums::kNone;
  const int64_t blocks = RowBlocks(pass.batch, sample);
  const auto make = [&] { return TileScratch<C>(pass, tile, spatial, blocks > 1); };
  // Adds the sums of `n` columns of all samples from element `start` on.
  const auto add_columns = [&](int64_t start, int64_t n, const SumParameters<C>& parameters,
                               double* block, double* first, double* second) {
    for (int64_t i = 0; i < blocks; ++i) {
      const int64_t from = i * pass.batch / blocks, to = (i + 1) * pass.batch / blocks;
      double* sums = i == 0 ? first : block;
      double* others = i == 0 ? second : block + kSumTile;
      if (i > 0) std::fill_n(block, 2 * kSumTile, 0.0);
      const int64_t first_row = from * sample + start;
      SumColumns(pass.sums, pass.a + first_row, pass.x + first_row, sample, to - from, n,
                 parameters, sums, others);
      for (int64_t c = 0; i > 0 && c < n; ++c) {
        first[c] += sums[c];
        second[c] += others[c];
      }
    }
  };
  RunWithScratch(parallel_for, tiles, GrainFor(pass.batch * tile_cols), make,
                 [&](int64_t begin, int64_t end, TileScratch<C>& scratch) {
                   const bool use_nt_stores = UsesNtStores(pass, end - begin, tiles);
                   SumArrays<C>& before = scratch.before;
                   double* first = scratch.totals.get();
                   double* second = first + tile_cols;
                   for (int64_t i = begin; i < end; ++i) {
                     const int64_t in_plane = i % plane_tiles * tile;
                     const int64_t c0 = i / plane_tiles * pass.channels + in_plane;
                     const int64_t channels = std::min(tile, pass.channels - in_plane);
                     const int64_t cols = channels * spatial;
                     std::fill_n(first, 2 * tile_cols, 0.0);
                     if (has_sums) {
                       Before<T>(pass, c0, 0, channels, before);
                       for (int64_t c = 0; c < cols; c += kSumTile) {
                         add_columns(at(i) + c, std::min(kSumTile, cols - c), before.At(c),
                                     scratch.block.get(), first + c, second + c);
                       }
                     }
                     AfterColumns<T>(pass, c0, 0, channels, 1, first, second, before, scratch.after,
                                     scratch.group_sums.get());
                     if (pass.out == nullptr) continue;
                     MapArrays<T> arrays = ArraysAt(pass, at(i));
                     if (i + 1 < tiles) arrays.ahead = at(i + 1) - at(i);
                     MapRows(pass.map, arrays, sample, pass.batch, 0, cols, 1, cols,
                             scratch.after.At(0), use_nt_stores);
                   }
                 });
}

template <class T>
void Columns(const ChannelPass<T>& pass, const ParallelFor& parallel_for);

// Processes the planes one by one. Large ones are split over threads, others are divided among
// them.
template <class T>
void ColumnsOfPlanes(const ChannelPass<T>& pass, const ParallelFor& parallel_for) {
  const int64_t elements = pass.batch * pass.channels * pass.spatial;
  if (elements >= kSplitPlane || pass.planes < kMinPlanes) {
    for (int64_t i = 0; i < pass.planes; ++i) Columns(PlaneOf(pass, i), parallel_for);
    return;
  }
  RunParallelAllocating(parallel_for, pass.planes, GrainFor(elements),
                        [&](int64_t begin, int64_t end) {
                          for (int64_t i = begin; i < end; ++i) {
                            Columns(PlaneOf(pass, i), SerialFor);
                          }
                        });
}

template <class T>
void Columns(const ChannelPass<T>& pass, const ParallelFor& parallel_for) {
  using C = Compute<T>;
  const int64_t batch = pass.batch, channels = pass.channels, spatial = pass.spatial;
  const int64_t sample = channels * spatial;
  const int64_t narrow = pass.min_columns != 0 ? pass.min_columns : kNarrow;
  const bool has_sums = pass.sums != ChannelSums::kNone;
  const bool in_tiles = batch == 1 || (sample >= narrow && batch < CurrentTuning().untiled_rows &&
                                       (has_sums || batch < kSumRows));
  int64_t tile = in_tiles ? TileChannels(pass) : 0;
  if (tile > 0) {
    tile = WholeGroups(pass, std::clamp<int64_t>(kTileColumns / spatial, 1, tile));
    // The work of few groups is split.
    if (pass.group == 1 || pass.planes * (channels / tile) >= 8 ||
        pass.planes * batch * sample <= 2 * kGrainElements) {
      ColumnsInTiles(pass, tile, parallel_for);
      return;
    }
  }
  if (pass.planes > 1) {
    ColumnsOfPlanes(pass, parallel_for);
    return;
  }
  // `samples` samples form one row; the last row can have fewer.
  const int64_t samples = sample >= narrow ? 1 : std::min(batch, (kNarrow - 1) / sample + 1);
  const int64_t width = samples * sample, rows = batch / samples;
  const int64_t rest = batch % samples * sample;
  const int64_t blocks = RowBlocks(rows, width);
  const int64_t tiles = (width + kSumTile - 1) / kSumTile;
  SumArrays<C> before(ParameterCount(pass.sums), channels, spatial, width);
  MapArraysOf<C> after(ParameterCount(pass.map), channels, spatial, width + kPeriodPad);
  const auto partial = MakeUninitialized<double>(has_sums ? blocks * 2 * width : 0);
  if (has_sums) {
    PrepareAll(pass, before, parallel_for);
    before.Repeat(sample);
    const auto add_block = [&](int64_t block, int64_t c) {
      const int64_t from = block * rows / blocks, to = (block + 1) * rows / blocks;
      const int64_t cols = std::min(kSumTile, width - c);
      double* first = &partial[block * 2 * width + c];
      double* second = first + width;
      std::fill_n(first, cols, 0.0);
      std::fill_n(second, cols, 0.0);
      const auto add = [&](int64_t row, int64_t n, int64_t columns) {
        const int64_t at = row * width + c;
        SumColumns(pass.sums, pass.a + at, pass.x + at, width, n, columns, before.At(c), first,
                   second);
      };
      add(from, to - from, cols);
      if (to == rows && rest > c) add(rows, 1, std::min(cols, rest - c));
    };
    RunParallel(parallel_for, blocks * tiles, GrainFor(rows / blocks * std::min(width, kSumTile)),
                [&](int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i) add_block(i / tiles, i % tiles * kSumTile);
                });
    // Adds all blocks to the first.
    RunParallel(parallel_for, 2 * width, GrainFor(blocks), [&](int64_t begin, int64_t end) {
      for (int64_t block = 1; block < blocks; ++block) {
        const double* other = &partial[block * 2 * width];
        for (int64_t c = begin; c < end; ++c) partial[c] += other[c];
      }
    });
  }
  const auto group_sums = GroupSums(pass, channels);
  const int64_t group = pass.group;
  RunParallel(parallel_for, channels / group, GrainFor(3 * group * samples * spatial),
              [&](int64_t begin, int64_t end) {
                const double* first = partial.get();
                AfterColumns<T>(pass, begin * group, begin * group, (end - begin) * group, samples,
                                first, first + width, before, after, group_sums.get());
              });
  if (pass.out == nullptr) return;
  if (samples > 1 || sample <= kMapTile) {
    after.Repeat(sample);
    MapAll(pass, 1, width, after.At(0), parallel_for);
    return;
  }
  // Parameters of a wide sample do not stay in a cache from row to row, so it is tiled.
  const int64_t map_tiles = (sample - 1) / kMapTile + 1;
  const int64_t map_rows = std::min<int64_t>(batch, kPart * 8 / kMapTile);
  const int64_t map_blocks = (batch - 1) / map_rows + 1;
  RunParallel(parallel_for, map_tiles * map_blocks, 1, [&](int64_t begin, int64_t end) {
    const bool use_nt_stores = UsesNtStores(pass, end - begin, map_tiles * map_blocks);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t c = i / map_blocks * kMapTile, row = i % map_blocks * map_rows;
      const int64_t cols = std::min(kMapTile, sample - c);
      MapRows(pass.map, ArraysAt(pass, row * sample + c), sample, std::min(map_rows, batch - row),
              0, cols, 1, cols, after.At(c), use_nt_stores);
    }
  });
}

}  // namespace

int64_t RowBlocks(int64_t rows, int64_t width) {
  return std::clamp<int64_t>(std::min(rows / kMinBlockRows, rows * width / kMinBlockElements), 1,
                             kMaxRowBlocks);
}

template <class T>
void ShiftChannels(const ChannelPass<T>& pass, int64_t begin, int64_t n, Compute<T>* shift) {
  if (pass.spatial == 1) {
    ShiftColumns(pass.a + begin, pass.channels, pass.batch, n, shift);
    return;
  }
  for (int64_t c = 0; c < n; ++c) {
    // Places spread over the samples, and over the positions.
    const auto at = [&](int64_t i) {
      const int64_t b = (pass.batch - 1) * i / (kShiftSamples - 1);
      const int64_t s = (pass.spatial - 1) * i / (kShiftSamples - 1);
      return ToDouble(pass.a[(b * pass.channels + begin + c) * pass.spatial + s]);
    };
    shift[c] = static_cast<Compute<T>>(MeanOfSamples(kShiftSamples, at));
  }
}

template <class T>
void RunChannels(ChannelPass<T> pass, const ParallelFor& parallel_for) {
  if (pass.x == nullptr) pass.x = pass.a;  // not read, but offset
  const int64_t usual = IsGradient(pass.map) ? kMinRun : kShortRun;
  if (pass.spatial < (pass.min_run != 0 ? pass.min_run : usual)) {
    Columns(pass, parallel_for);
  } else {
    Runs(pass, parallel_for);
  }
}

#define PLANISH_INSTANTIATE(T)                                   \
  template void RunChannels(ChannelPass<T>, const ParallelFor&); \
  template void ShiftChannels(const ChannelPass<T>&, int64_t, int64_t, Compute<T>*);
PLANISH_ELEMENT_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace planish::internal
