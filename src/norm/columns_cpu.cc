#include "src/norm/columns_cpu.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>

#include "src/base/loop.h"

namespace planish::internal {
namespace {

// Spatial sizes below which numbers are taken as columns, each with numbers of its own, rather than
// as runs of `spatial` that share them.
constexpr int64_t kShortRun = kPeriodPad;
// Columns that several samples are laid side by side to make, where one has fewer.
constexpr int64_t kNarrow = 512;
// Columns that are summed at a time: their sums stay in the first-level cache.
constexpr int64_t kSumTile = 512;
// Numbers of a run that make one partial sum, and numbers that a map is cut into.
constexpr int64_t kPart = int64_t{1} << 14;
// Channels whose numbers are worth a thread of their own: each reads memory in some ten places.
constexpr int64_t kBeforeGrain = 1024;
// Samples below which numbers for each column cost more than stores that fill no lines.
constexpr int64_t kFewSamples = 64;
// Whole lines of the cache, which streaming stores should fill.
constexpr int64_t kLine = 64;

template <class C>
C Plain(C value) {
  // Rounding to bfloat16 expects the NaN that arithmetic makes.
  return value == value ? value : std::numeric_limits<C>::quiet_NaN();
}

// Arrays of the channels' numbers, `count` of them with `size` elements each.
template <class C, class Numbers>
class NumberArrays {
 public:
  NumberArrays(int count, int64_t size)
      : count_(count), size_(size), data_(std::make_unique_for_overwrite<C[]>(count * size)) {}

  void Set(int64_t begin, int64_t n, const C* values) {
    for (int k = 0; k < count_; ++k) std::fill_n(&data_[k * size_ + begin], n, Plain(values[k]));
  }

  // Repeats the first `period` from there on, to the end.
  void Repeat(int64_t period) {
    for (int k = 0; k < count_; ++k) {
      C* array = &data_[k * size_];
      for (int64_t i = period; i < size_; ++i) array[i] = array[i - period];
    }
  }

  void Get(int64_t i, C* values) const {
    for (int k = 0; k < count_; ++k) values[k] = data_[k * size_ + i];
  }

  // From i on.
  Numbers At(int64_t i) const {
    Numbers numbers{};
    for (int k = 0; k < count_; ++k) numbers.at[k] = &data_[k * size_ + i];
    return numbers;
  }

 private:
  int count_;
  int64_t size_;
  std::unique_ptr<C[]> data_;
};

template <class C>
using SumArrays = NumberArrays<C, SumNumbers<C>>;
template <class C>
using MapArraysOf = NumberArrays<C, MapNumbers<C>>;

template <class T>
MapArrays<T> ArraysAt(const ChannelPass<T>& pass, int64_t i) {
  return {pass.a + i, pass.x + i, pass.out + i};
}

int CountOf(ChannelSums sums) {
  return sums == ChannelSums::kNone ? 0 : sums == ChannelSums::kMoments ? 1 : 3;
}

int CountOf(ChannelMap map) {
  return map == ChannelMap::kNone        ? 0
         : map == ChannelMap::kScale     ? 1
         : map == ChannelMap::kNormalise ? 3
                                         : 6;
}

template <class T>
bool Streams(const ChannelPass<T>& pass) {
  const int64_t arrays = pass.map == ChannelMap::kGradient ? 3 : 2;
  return pass.out != nullptr &&
         arrays * pass.batch * pass.channels * pass.spatial * static_cast<int64_t>(sizeof(T)) >
             StreamingBytes();
}

// Bytes of `n` numbers of all arrays that are read.
template <class T>
int64_t ReadBytes(const ChannelPass<T>& pass, int64_t n) {
  return n * static_cast<int64_t>(sizeof(T)) * (pass.sums == ChannelSums::kGradient ? 2 : 1);
}

template <class T>
bool AlignedOut(const ChannelPass<T>& pass, int64_t row) {
  return reinterpret_cast<uintptr_t>(pass.out) % kLine == 0 &&
         row * static_cast<int64_t>(sizeof(T)) % kLine == 0;
}

template <class T>
void MapAll(const ChannelPass<T>& pass, int64_t run, int64_t period,
            const MapNumbers<Compute<T>>& numbers, const ParallelFor& parallel_for) {
  const int64_t total = pass.batch * pass.channels * pass.spatial;
  const bool stream = Streams(pass);
  RunParallel(parallel_for, (total + kPart - 1) / kPart, GrainFor(kPart),
              [&](int64_t begin, int64_t end) {
                MapFlat(pass.map, ArraysAt(pass, 0), begin * kPart, std::min(total, end * kPart),
                        run, period, numbers, stream);
              });
}

// --- Runs: the `spatial` numbers of a channel in a sample share their numbers. ---

template <class T>
RowSums SumPart(const ChannelPass<T>& pass, int64_t run, int64_t part,
                const SumNumbers<Compute<T>>& numbers) {
  const int64_t first = part * kPart, n = std::min(kPart, pass.spatial - first);
  const int64_t i = run * pass.spatial + first;
  return SumRun(pass.sums, pass.a + i, pass.x + i, n, numbers);
}

void Add(const RowSums& part, RowSums& sums) {
  sums.first += part.first;
  sums.second += part.second;
}

// Channel by channel, each read for its sums and, out of the cache, for the map.
template <class T>
void RunsInTiles(const ChannelPass<T>& pass, int64_t parts, bool stream,
                 const ParallelFor& parallel_for) {
  using C = Compute<T>;
  const int64_t sample = pass.channels * pass.spatial;
  RunParallel(parallel_for, pass.channels, GrainFor(pass.batch * pass.spatial),
              [&](int64_t begin, int64_t end) {
                SumArrays<C> before(CountOf(pass.sums), 1);
                MapArraysOf<C> after(CountOf(pass.map), 1);
                for (int64_t c = begin; c < end; ++c) {
                  C sum_numbers[kSumNumbers] = {}, map_numbers[kMapNumbers] = {};
                  pass.before(c, sum_numbers);
                  before.Set(0, 1, sum_numbers);
                  RowSums sums;
                  for (int64_t n = 0; n < pass.batch; ++n) {
                    for (int64_t part = 0; part < parts; ++part) {
                      Add(SumPart(pass, n * pass.channels + c, part, before.At(0)), sums);
                    }
                  }
                  pass.after(c, sum_numbers, sums, map_numbers);
                  if (pass.out == nullptr) continue;
                  after.Set(0, 1, map_numbers);
                  MapTile(pass.map, ArraysAt(pass, c * pass.spatial), sample, pass.batch,
                          pass.spatial, true, after.At(0), stream);
                }
              });
}

template <class T>
void Runs(const ChannelPass<T>& pass, const ParallelFor& parallel_for) {
  using C = Compute<T>;
  const int64_t channels = pass.channels, parts = (pass.spatial + kPart - 1) / kPart;
  const int64_t numbers = pass.batch * pass.spatial;
  const bool has_sums = pass.sums != ChannelSums::kNone, stream = Streams(pass);
  // One by one, where there are channels enough for the threads.
  if (has_sums && ReadBytes(pass, numbers) <= kTileBytes &&
      (channels >= 16 || numbers * channels <= 2 * kGrainElements) &&
      (!stream || AlignedOut(pass, pass.spatial))) {
    RunsInTiles(pass, parts, stream, parallel_for);
    return;
  }
  MapArraysOf<C> after(CountOf(pass.map), channels);
  SumArrays<C> before(CountOf(pass.sums), channels);
  const int64_t all_parts = has_sums ? pass.batch * channels * parts : 0;
  const auto partial = std::make_unique_for_overwrite<RowSums[]>(all_parts);
  if (has_sums) {
    RunParallel(parallel_for, channels, kBeforeGrain, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        C values[kSumNumbers] = {};
        pass.before(c, values);
        before.Set(c, 1, values);
      }
    });
    RunParallel(parallel_for, all_parts, GrainFor(std::min(kPart, pass.spatial)),
                [&](int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i) {
                    const int64_t run = i / parts;
                    partial[i] = SumPart(pass, run, i % parts, before.At(run % channels));
                  }
                });
  }
  RunParallel(parallel_for, channels, GrainFor(pass.batch * parts),
              [&](int64_t begin, int64_t end) {
                for (int64_t c = begin; c < end; ++c) {
                  RowSums sums;
                  C sum_numbers[kSumNumbers] = {}, map_numbers[kMapNumbers] = {};
                  for (int64_t n = 0; has_sums && n < pass.batch; ++n) {
                    const RowSums* of_run = &partial[(n * channels + c) * parts];
                    for (int64_t part = 0; part < parts; ++part) Add(of_run[part], sums);
                  }
                  if (has_sums) before.Get(c, sum_numbers);
                  pass.after(c, sum_numbers, sums, map_numbers);
                  after.Set(c, 1, map_numbers);
                }
              });
  if (pass.out) MapAll(pass, pass.spatial, channels, after.At(0), parallel_for);
}

// --- Columns: short runs, whose numbers are repeated for each column. ---

// Channel c's columns are those from c * spatial on, in the first of `samples` samples that lie
// side by side in a row of `width` columns. Adds up their sums.
template <class T>
RowSums SumOfColumns(const ChannelPass<T>& pass, int64_t c, int64_t samples, const double* first,
                     const double* second) {
  RowSums sums;
  for (int64_t i = 0; i < samples; ++i) {
    const int64_t begin = (i * pass.channels + c) * pass.spatial;
    for (int64_t column = begin; column < begin + pass.spatial; ++column) {
      Add({first[column], second[column]}, sums);
    }
  }
  return sums;
}

// Tiles of `tile` channels, each read for its sums and, out of the cache, for the map.
template <class T>
void ColumnsInTiles(const ChannelPass<T>& pass, int64_t tile, bool stream,
                    const ParallelFor& parallel_for) {
  using C = Compute<T>;
  const int64_t spatial = pass.spatial, sample = pass.channels * spatial, most = tile * spatial;
  const int64_t tiles = (pass.channels + tile - 1) / tile;
  const bool has_sums = pass.sums != ChannelSums::kNone;
  RunParallel(parallel_for, tiles, GrainFor(pass.batch * most), [&](int64_t begin, int64_t end) {
    SumArrays<C> before(CountOf(pass.sums), most);
    MapArraysOf<C> after(CountOf(pass.map), most);
    const auto totals = std::make_unique_for_overwrite<double[]>(2 * most);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t c0 = i * tile, c1 = std::min(pass.channels, c0 + tile);
      const int64_t cols = (c1 - c0) * spatial, at = c0 * spatial;
      C sum_numbers[kSumNumbers] = {}, map_numbers[kMapNumbers] = {};
      double* first = totals.get();
      double* second = first + most;
      std::fill_n(first, 2 * most, 0.0);
      if (has_sums) {
        for (int64_t c = c0; c < c1; ++c) {
          pass.before(c, sum_numbers);
          before.Set((c - c0) * spatial, spatial, sum_numbers);
        }
        SumColumns(pass.sums, pass.a + at, pass.x + at, sample, pass.batch, cols, before.At(0),
                   first, second);
      }
      for (int64_t c = c0; c < c1; ++c) {
        if (has_sums) before.Get((c - c0) * spatial, sum_numbers);
        pass.after(c, sum_numbers, SumOfColumns(pass, c - c0, 1, first, second), map_numbers);
        after.Set((c - c0) * spatial, spatial, map_numbers);
      }
      if (pass.out == nullptr) continue;
      MapTile(pass.map, ArraysAt(pass, at), sample, pass.batch, cols, false, after.At(0), stream);
    }
  });
}

template <class T>
void Columns(const ChannelPass<T>& pass, const ParallelFor& parallel_for) {
  using C = Compute<T>;
  const int64_t batch = pass.batch, channels = pass.channels, spatial = pass.spatial;
  const int64_t sample = channels * spatial;
  const bool has_sums = pass.sums != ChannelSums::kNone, stream = Streams(pass);
  // Samples side by side, `samples` of them a row; the last row may have fewer.
  const int64_t samples = sample >= kNarrow ? 1 : std::min(batch, (kNarrow - 1) / sample + 1);
  const int64_t width = samples * sample, rows = batch / samples;
  const int64_t rest = batch % samples * sample;
  // Channels of a tile: whole cache lines, enough for a thread, at most those that sums take at a
  // time.
  const int64_t unit = kLine / std::gcd(kLine, spatial * static_cast<int64_t>(sizeof(T)));
  const int64_t wanted = std::min(kSumTile, kGrainElements / batch) / (unit * spatial);
  const int64_t tile = unit * std::max<int64_t>(1, wanted);
  const bool fits = samples == 1 && ReadBytes(pass, batch * tile * spatial) <= kTileBytes;
  const bool aligned = AlignedOut(pass, sample);
  if (fits && (!stream || aligned || batch < kFewSamples)) {
    ColumnsInTiles(pass, tile, stream && aligned, parallel_for);
    return;
  }
  // Otherwise rows are cut into blocks, as the shape alone has it: the bits of the sums follow.
  const int64_t blocks =
      fits ? 1 : std::clamp<int64_t>(std::min(rows / 64, rows * width >> 17), 1, 64);
  const int64_t tiles = (width + kSumTile - 1) / kSumTile;
  SumArrays<C> before(CountOf(pass.sums), width);
  MapArraysOf<C> after(CountOf(pass.map), width + kPeriodPad);
  const auto partial = std::make_unique_for_overwrite<double[]>(has_sums ? blocks * 2 * width : 0);
  if (has_sums) {
    RunParallel(parallel_for, channels, kBeforeGrain, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        C values[kSumNumbers] = {};
        pass.before(c, values);
        before.Set(c * spatial, spatial, values);
      }
    });
    before.Repeat(sample);
    RunParallel(parallel_for, blocks * tiles, GrainFor(rows / blocks * std::min(width, kSumTile)),
                [&](int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i) {
                    const int64_t block = i / tiles, c = i % tiles * kSumTile;
                    const int64_t from = block * rows / blocks;
                    const int64_t to = (block + 1) * rows / blocks;
                    const int64_t cols = std::min(kSumTile, width - c);
                    double* first = &partial[block * 2 * width + c];
                    double* second = first + width;
                    std::fill_n(first, cols, 0.0);
                    std::fill_n(second, cols, 0.0);
                    const auto add = [&](int64_t row, int64_t n, int64_t columns) {
                      const int64_t at = row * width + c;
                      SumColumns(pass.sums, pass.a + at, pass.x + at, width, n, columns,
                                 before.At(c), first, second);
                    };
                    add(from, to - from, cols);
                    if (to == rows && rest > c) add(rows, 1, std::min(cols, rest - c));
                  }
                });
  }
  RunParallel(parallel_for, channels, GrainFor((blocks + 3) * samples * spatial),
              [&](int64_t begin, int64_t end) {
                for (int64_t c = begin; c < end; ++c) {
                  RowSums sums;
                  C sum_numbers[kSumNumbers] = {}, map_numbers[kMapNumbers] = {};
                  for (int64_t block = 0; has_sums && block < blocks; ++block) {
                    const double* first = &partial[block * 2 * width];
                    Add(SumOfColumns(pass, c, samples, first, first + width), sums);
                  }
                  if (has_sums) before.Get(c * spatial, sum_numbers);
                  pass.after(c, sum_numbers, sums, map_numbers);
                  after.Set(c * spatial, spatial, map_numbers);
                }
              });
  if (pass.out == nullptr) return;
  after.Repeat(sample);
  MapAll(pass, 1, width, after.At(0), parallel_for);
}

}  // namespace

template <class T>
void RunChannels(ChannelPass<T> pass, const ParallelFor& parallel_for) {
  if (pass.x == nullptr) pass.x = pass.a;  // not read; pointers into it are computed
  if (pass.spatial < kShortRun) {
    Columns(pass, parallel_for);
  } else {
    Runs(pass, parallel_for);
  }
}

#define PLANISH_INSTANTIATE(T) template void RunChannels(ChannelPass<T>, const ParallelFor&);
PLANISH_INSTANTIATE(float)
PLANISH_INSTANTIATE(double)
PLANISH_INSTANTIATE(bfloat16)
PLANISH_INSTANTIATE(float16)
#undef PLANISH_INSTANTIATE

}  // namespace planish::internal
