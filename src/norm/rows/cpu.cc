#include "src/norm/rows/cpu.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "src/base/aligned.h"
#include "src/base/loop.h"
#include "src/norm/element_types.h"
#include "src/norm/rows/gated.h"
#include "src/norm/sets.h"

namespace planish::internal {
namespace {

// --- Tuning constants (docs/tuning.md) ---

// Limit on the blocks of rows, and their minimum rows and elements: each costs memory and a pass
// over the columns.
constexpr int64_t kMaxBlocks = 64;
constexpr int64_t kMinBlockRows = 32, kMinBlockElements = int64_t{1} << 13;

// Backward with dgain and dbias assigns blocks of rows to threads, each with its own partial sums.
// With fewer than kMinRowBlocks blocks and at least kTiledColumns columns it assigns tiles of
// columns instead, if there are more of them. Tiles read their inputs twice but occupy all threads.
constexpr int64_t kMinRowBlocks = 8;
constexpr int64_t kTiledColumns = 2048;

// Bytes of interleaved rows that are processed together, one parameter set after another. They stay
// in the L2 cache in between.
constexpr int64_t kInterleavedBytes = int64_t{1} << 17;

// --- End of tuning constants ---

int64_t ChunksOf(int64_t cols) { return (cols + kChunk - 1) / kChunk; }

int64_t ChunkGrain() { return GrainFor(kChunk); }

template <class T>
inline constexpr int64_t kBytesOf = static_cast<int64_t>(sizeof(T));

// Returns the number of rows that fit in kResidualBytes.
template <class T>
int64_t ResidualRows(int64_t cols) {
  return std::max<int64_t>(1, kResidualBytes / kBytesOf<T> / cols);
}

template <class T>
void AddResidual(const RowsForward<T>& args, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    AddColumns(args.x + r * args.x_stride, args.residual + r * args.residual_stride, args.cols,
               args.sum + r * args.sum_stride);
  }
}

// Like AddResidual, but writes the sums with non-temporal stores and also packs them into `kept`.
template <class T>
void AddResidualKept(const RowsForward<T>& args, int64_t begin, int64_t end, T* kept) {
  const int64_t cols = args.cols;
  const bool packed =
      args.x_stride == cols && args.residual_stride == cols && args.sum_stride == cols;
  const int64_t rows = packed ? end - begin : 1;  // rows per call of AddColumnsKept
  for (int64_t r = begin; r < end; r += rows) {
    AddColumnsKept(args.x + r * args.x_stride, args.residual + r * args.residual_stride,
                   rows * cols, args.sum + r * args.sum_stride, kept + (r - begin) * cols);
  }
}

// Returns the call for rows starting at r, except for x.
template <class T>
RowsForward<T> FromRow(RowsForward<T> args, int64_t r) {
  args.y += r * args.y_stride;
  if (args.mean) args.mean += r;
  if (args.mean_lo) args.mean_lo += r;
  if (args.rstd) args.rstd += r;
  return args;
}

// Returns the arguments for a thread with `part` of the `whole` of a call.
template <class T>
RowsBackward<T> RangeOf(RowsBackward<T> args, int64_t part, int64_t whole) {
  const int64_t bytes = (IsGated(args) ? 5 : 3) * args.rows * args.cols * kBytesOf<T>;
  args.use_nt_stores = args.use_nt_stores && UsesNtStores(bytes, part, whole);
  args.prefetch_output = PrefetchesOutput(bytes, part, whole);
  return args;
}

template <class T>
void AddGradientOfSum(const RowsBackward<T>& args, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    T* dx = args.dx + r * args.dx_stride;
    AddColumns<T>(dx, args.dsum + r * args.dsum_stride, args.cols, dx);
  }
}

// Returns how many rows of each parameter set are processed together.
template <class T>
int64_t InterleavedRows(int64_t sets, int64_t cols) {
  return std::max<int64_t>(1, kInterleavedBytes / kBytesOf<T> / (sets * cols));
}

// Divides rows [begin, end) into short ranges, and calls run(set, begin, end) for each range and
// parameter set.
template <class T, class Run>
void ForEachInterleaved(int64_t sets, int64_t cols, int64_t begin, int64_t end, const Run& run) {
  const int64_t rows_at_once = sets == 1 ? end - begin : InterleavedRows<T>(sets, cols);
  for (int64_t r = begin; r < end; r += rows_at_once) {
    for (int64_t set = 0; set < sets; ++set) run(set, r, std::min(end, r + rows_at_once));
  }
}

// Returns the bytes that a call reads and writes.
template <class T>
int64_t BytesOf(const RowsForward<T>& args) {
  const int64_t inputs = (args.residual == nullptr ? 1 : 3) + (args.gate == nullptr ? 0 : 1);
  return args.rows * args.cols *
         (inputs * kBytesOf<T> + (args.y ? kBytesOf<T> : 0) + (args.quantized ? 1 : 0));
}

// Processes long rows one after another. Each row is split into chunks of columns for the threads:
// first all sums, then the output.
template <class T>
void ForwardLongRows(const RowsForward<T>& args, const ParallelFor& parallel_for) {
  using C = Compute<T>;
  const int64_t cols = args.cols, chunks = ChunksOf(cols);
  const int64_t bytes = BytesOf(args);
  const auto sums = MakeAligned<double>(2 * chunks);
  const auto scratch = IsGated(args) ? MakeAligned<C>(GatedForwardScratch(args, 1)) : nullptr;
  const auto maxima = MakeAligned<C>(args.quantized ? chunks : 0);
  for (int64_t r = 0; r < args.rows; ++r) {
    const T* x = args.x + r * args.x_stride;
    const auto for_columns = [&](const auto& work) {
      RunParallel(parallel_for, chunks, ChunkGrain(), [&](int64_t begin, int64_t end) {
        work(begin, end, begin * kChunk, std::min(cols, end * kChunk));
      });
    };
    if (args.residual) {
      const T* residual = args.residual + r * args.residual_stride;
      T* sum = args.sum + r * args.sum_stride;
      for_columns([&](int64_t, int64_t, int64_t first, int64_t last) {
        AddColumns(x + first, residual + first, last - first, sum + first);
      });
      x = sum;
    }
    // `row` is row r as row 0. Calls output(first, last, use_nt_stores) after its columns of y.
    const auto normalize = [&]<class E>(RowsForward<E> row, const auto& output) {
      C saved[3];
      row.mean = &saved[0];
      row.mean_lo = &saved[1];
      row.rstd = &saved[2];
      for_columns([&](int64_t begin, int64_t end, int64_t, int64_t) {
        SumChunks(row, 0, begin, end, sums.get());
      });
      FinishRow(row, 0, sums.get());
      if (args.mean) args.mean[r] = saved[0];
      if (args.mean_lo) args.mean_lo[r] = saved[1];
      if (args.rstd) args.rstd[r] = saved[2];
      for_columns([&](int64_t begin, int64_t end, int64_t first, int64_t last) {
        RowsForward<E> range = row;
        const bool use_nt_stores = args.use_nt_stores && UsesNtStores(bytes, end - begin, chunks);
        range.use_nt_stores = row.use_nt_stores && use_nt_stores;
        MapColumns(range, 0, first, last);
        output(first, last, use_nt_stores);
      });
    };
    if (IsGated(args)) {
      const GatedForward<T> gated(args, r, 1, x, args.x_stride, scratch.get());
      for_columns([&](int64_t, int64_t, int64_t first, int64_t last) { gated.Input(first, last); });
      normalize(gated.Norm(), [&](int64_t first, int64_t last, bool use_nt_stores) {
        gated.Output(first, last, use_nt_stores);
      });
      if (args.quantized == nullptr) continue;
      for_columns([&](int64_t begin, int64_t end, int64_t first, int64_t last) {
        std::fill(maxima.get() + begin, maxima.get() + end, gated.MaxAbsOf(0, first, last));
      });
      const C max = MaxAbs(maxima.get(), chunks);
      for_columns([&](int64_t, int64_t, int64_t first, int64_t last) {
        gated.QuantizeColumns(0, max, first, last);
      });
    } else {
      RowsForward<T> row = args;
      row.x = x;
      row.y += r * args.y_stride;
      normalize(row, [](int64_t, int64_t, bool) {});
    }
  }
}

// Blocks of rows, each with its own partial sums of dgain and dbias. Depends on the shape only, so
// that the bits of the sums do too.
struct Blocks {
  Blocks(int64_t rows_, int64_t cols, int64_t sets = 1) : rows(rows_) {
    // A power of two, so that most machines' threads get equal shares.
    const auto max_blocks =
        std::min<int64_t>({kMaxBlocks, rows / kMinBlockRows, rows * cols / kMinBlockElements});
    count = static_cast<int64_t>(
        std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(1, max_blocks))));
    // Arrays are whole cache lines apart, but not by a multiple of 4096 bytes. At such distances
    // they would compete for the same lines of the L1 cache.
    stride = (cols + 15) / 16 * 16;
    if (sets == 1 && stride % 512 < 256) stride += 304;
  }
  int64_t Begin(int64_t block) const { return block * rows / count; }

  int64_t rows, count, stride;
};

// Splits the columns into tiles for the threads, for rows too few or too long to be assigned whole.
// For each group of rows, first computes sums in chunks, then dx and the terms of dgain and dbias
// tile by tile.
template <class T>
void BackwardByTiles(const RowsBackward<T>& args, const ParallelFor& parallel_for) {
  using C = Compute<T>;
  C *const dgain = args.dgain, *const dbias = args.dbias;
  const int64_t rows = args.rows, cols = args.cols, chunks = ChunksOf(cols);
  // A group must still be in a cache for the second pass, but be large enough to share.
  const int64_t row_bytes = 2 * cols * kBytesOf<T>;
  const int64_t group =
      std::clamp<int64_t>(CurrentTuning().nt_store_call_bytes / 2 / row_bytes, 4, kGroupRows);
  const auto parts = MakeAligned<double>(2 * chunks * std::min(group, rows));
  const auto sums = MakeAligned<double>(2 * std::min(group, rows));
  // Rows are summed in C, and groups of kGroupRows rows in double if there are several.
  const bool grouped = dgain && rows > kGroupRows;
  const auto totals = MakeAligned<double>(grouped ? 2 * cols : 0);
  const GatedScratch<C> scratch(IsGated(args) ? std::min(group, rows) : 0, cols);
  if (dgain) std::fill_n(dgain, cols, C{0}), std::fill_n(dbias, cols, C{0});
  if (grouped) std::fill_n(totals.get(), 2 * cols, 0.0);

  for (int64_t begin = 0; begin < rows;) {
    const int64_t until = std::min(rows, (begin / kGroupRows + 1) * kGroupRows);
    const int64_t end = std::min(begin + group, until), n = end - begin;
    // Calls run(row, first, last) for ranges of chunks that together are all chunks of the group.
    const auto for_chunks = [&](const auto& run) {
      RunParallel(parallel_for, n * chunks, ChunkGrain(), [&](int64_t from, int64_t to) {
        while (from < to) {
          const int64_t row = from / chunks, first = from % chunks;
          const int64_t last = std::min(chunks, first + to - from);
          run(row, first, last);
          from += last - first;
        }
      });
    };
    // The calls of the norm's kernels, whose rows begin at 0 with a gate, else at `begin`.
    const GatedBackward<T> gated(args, begin, n, scratch);
    const auto with_norm = [&](const auto& run) {
      IsGated(args) ? run(gated.Norm(), 0) : run(args, begin);
    };
    if (IsGated(args)) {
      for_chunks([&](int64_t row, int64_t first, int64_t last) {
        gated.Input(first * kChunk, std::min(cols, last * kChunk), row, row + 1);
      });
    }
    bool has_dx = false;
    with_norm([&](const auto& norm, int64_t) { has_dx = norm.dx != nullptr; });
    if (has_dx) {
      for_chunks([&](int64_t row, int64_t first, int64_t last) {
        with_norm([&](const auto& norm, int64_t r) {
          SumGradientChunks(norm, r + row, first, last, parts.get() + 2 * row * chunks);
        });
      });
      for (int64_t r = 0; r < n; ++r) {
        double first = 0, second = 0;
        for (int64_t chunk = r * chunks; chunk < (r + 1) * chunks; ++chunk) {
          first += parts[2 * chunk];
          second += parts[2 * chunk + 1];
        }
        sums[2 * r] = first;
        sums[2 * r + 1] = second;
      }
    }
    // The last tile contains the remainder.
    const int64_t tiles = std::max<int64_t>(1, cols / kChunk);
    RunParallel(parallel_for, tiles, GrainFor(n * kChunk), [&](int64_t from, int64_t to) {
      const auto range = RangeOf(args, to - from, tiles);
      for (int64_t tile = from; tile < to; ++tile) {
        const int64_t first = tile * kChunk, last = tile + 1 < tiles ? first + kChunk : cols;
        with_norm([&](auto norm, int64_t r) {
          norm.use_nt_stores = norm.use_nt_stores && range.use_nt_stores;
          norm.prefetch_output = range.prefetch_output;
          GradientTile(norm, r, r + n, first, last, sums.get(), dgain ? dgain + first : nullptr,
                       dbias ? dbias + first : nullptr);
        });
        if (IsGated(args)) gated.Output(first, last, range.use_nt_stores);
        if (args.dsum) {
          for (int64_t r = begin; r < end; ++r) {
            T* dx = args.dx + r * args.dx_stride + first;
            AddColumns<T>(dx, args.dsum + r * args.dsum_stride + first, last - first, dx);
          }
        }
        if (grouped && end == until) {
          for (int64_t c = first; c < last; ++c) {
            totals[c] += static_cast<double>(dgain[c]);
            totals[cols + c] += static_cast<double>(dbias[c]);
            dgain[c] = end == rows ? static_cast<C>(totals[c]) : C{0};
            dbias[c] = end == rows ? static_cast<C>(totals[cols + c]) : C{0};
          }
        }
      }
    });
    begin = end;
  }
}

// Adds the sums of blocks in pairs: blocks 2 i and 2 i + 1, then pairs of pairs, and so on. The
// tree, and so the order of all additions, does not depend on how blocks are divided into ranges. A
// range of n consecutive blocks keeps about log2(n) pending sums.
class SumStack {
 public:
  struct Sum {
    int64_t slot;    ///< index of its memory
    int64_t begin;   ///< first block in it
    int64_t blocks;  ///< number of blocks, a power of two that divides `begin`
  };

  /// Appends a sum, and adds completed pairs by add(into, from) with two slots.
  template <class Add>
  void Push(const Sum& sum, const Add& add) {
    sums_[count_++] = sum;
    while (count_ >= 2) {
      Sum& first = sums_[count_ - 2];
      const Sum& second = sums_[count_ - 1];
      if (first.blocks != second.blocks || first.begin % (2 * first.blocks) != 0) break;
      add(first.slot, second.slot);
      first.blocks *= 2;
      --count_;
    }
  }

  /// Returns the pending sums, in the order of their blocks.
  std::span<const Sum> sums() const { return {sums_.data(), count_}; }

 private:
  // A range of blocks leaves fewer than two sums for each power of two.
  std::array<Sum, 2 * std::bit_width(static_cast<uint64_t>(kMaxBlocks))> sums_;
  size_t count_ = 0;
};

// Returns whether tiles of columns, not blocks of rows, are divided over threads.
bool IsTiled(const Blocks& blocks, int64_t cols) {
  return cols >= kLongRowColumns ||
         (cols >= kTiledColumns && blocks.count < std::min(kMinRowBlocks, cols / kChunk));
}

// Returns the scratch of a range of rows.
template <class T>
GatedScratch<Compute<T>> ScratchOf(const RowsBackward<T>& args) {
  return {IsGated(args) ? std::min(args.rows, GatedRows<T>(args.cols)) : 0, args.cols};
}

// Computes rows [begin, end) of a call with a gate or dsum, some of them at a time.
template <class T>
void BackwardInTurns(const RowsBackward<T>& args, int64_t begin, int64_t end,
                     const GatedScratch<Compute<T>>& scratch, Compute<T>* dgain,
                     Compute<T>* dbias) {
  const int64_t cols = args.cols;
  const int64_t rows_at_once = IsGated(args) ? GatedRows<T>(cols) : ResidualRows<T>(cols);
  for (int64_t r = begin; r < end; r += rows_at_once) {
    const int64_t until = std::min(end, r + rows_at_once), n = until - r;
    if (IsGated(args)) {
      const GatedBackward<T> gated(args, r, n, scratch);
      gated.Input(0, cols, 0, n);
      BackwardRows(gated.Norm(), 0, n, dgain, dbias);
      gated.Output(0, cols, args.use_nt_stores);
    } else {
      BackwardRows(args, r, until, dgain, dbias);
    }
    if (args.dsum) AddGradientOfSum(args, r, until);
  }
}

// A call with several parameter sets must be interleaved and have neither gate nor dsum.
template <class T>
void BackwardWithColumns(const RowsBackward<T>& args, const ParallelFor& parallel_for) {
  using C = Compute<T>;
  const int64_t sets = args.sets, rows = args.rows / sets, cols = args.cols;
  const Blocks blocks(rows, cols, sets);
  if (IsTiled(blocks, cols)) {
    BackwardByTiles(args, parallel_for);
    return;
  }
  const int64_t stride = blocks.stride, size = 2 * stride * sets;
  // A block of many rows sums groups in C and the groups in double; a block of few rows is
  // summed in C.
  const bool grouped = blocks.Begin(1) >= kGroupRows / 2;
  const auto groups = MakeAligned<C>(blocks.count * size);
  const auto totals = MakeAligned<double>(grouped ? blocks.count * size : 0);
  // Pending sums of each range, indexed by its first block.
  std::vector<SumStack> stacks(static_cast<size_t>(grouped ? blocks.count : 0));

  const auto sum_block = [&](const RowsBackward<T>& range, const GatedScratch<C>& scratch,
                             int64_t block, C* group, double* total) {
    if (grouped) std::fill_n(total, size, 0.0);
    const int64_t end = blocks.Begin(block + 1);
    for (int64_t begin = blocks.Begin(block); begin < end; begin += kGroupRows) {
      const int64_t group_end = std::min(end, begin + kGroupRows);
      std::fill_n(group, size, C{0});
      if (IsGated(args) || args.dsum) {
        BackwardInTurns(range, begin, group_end, scratch, group, group + stride);
      } else {
        ForEachInterleaved<T>(
            sets, cols, begin, group_end, [&](int64_t set, int64_t r, int64_t until) {
              C* const sums = group + 2 * stride * set;
              BackwardRows(SetOf(range, range.recipe, set), r, until, sums, sums + stride);
            });
      }
      if (grouped) {
        for (int64_t c = 0; c < size; ++c) total[c] += static_cast<double>(group[c]);
      }
    }
  };
  const auto add_total = [&](int64_t into, int64_t from, int64_t begin, int64_t end) {
    double* sum = totals.get() + into * size;
    const double* term = totals.get() + from * size;
    for (int64_t c = begin; c < end; ++c) sum[c] += term[c];
  };
  const auto sum_blocks = [&](int64_t begin, int64_t end, const GatedScratch<C>& scratch) {
    const auto range = RangeOf(args, end - begin, blocks.count);
    if (!grouped) {
      for (int64_t block = begin; block < end; ++block) {
        sum_block(range, scratch, block, groups.get() + block * size, nullptr);
      }
      return;
    }
    if (begin == end) return;
    SumStack& stack = stacks[static_cast<size_t>(begin)];
    for (int64_t block = begin; block < end; ++block) {
      const int64_t slot = begin + std::ssize(stack.sums());
      sum_block(range, scratch, block, groups.get() + begin * size, totals.get() + slot * size);
      stack.Push({slot, block, 1},
                 [&](int64_t into, int64_t from) { add_total(into, from, 0, size); });
    }
  };
  RunWithScratch(
      parallel_for, blocks.count, GrainFor(rows / blocks.count * sets * cols),
      [&] { return ScratchOf(args); }, sum_blocks);

  RunParallel(parallel_for, cols, GrainFor(blocks.count * sets), [&](int64_t begin, int64_t end) {
    for (int64_t array = 0; array < 2 * sets; ++array) {
      const int64_t offset = array * stride;
      C* const result = (array % 2 == 0 ? args.dgain : args.dbias) + array / 2 * cols;
      if (grouped) {
        SumStack all;
        for (const SumStack& stack : stacks) {
          for (const SumStack::Sum& sum : stack.sums()) {
            all.Push(sum, [&](int64_t into, int64_t from) {
              add_total(into, from, offset + begin, offset + end);
            });
          }
        }
        const double* sum = totals.get() + offset;
        for (int64_t c = begin; c < end; ++c) result[c] = static_cast<C>(sum[c]);
      } else {
        SumPartials<T>(groups.get() + offset + begin, blocks.count, size, end - begin,
                       result + begin);
      }
    }
  });
}

}  // namespace

template <class T>
void ForwardMatrix(RowsForward<T> args, const ParallelFor& parallel_for) {
  const int64_t sets = args.sets, rows = args.rows / sets, cols = args.cols;
  if (sets > 1 &&
      (!IsInterleaved(args) || args.residual || IsGated(args) || cols >= kLongRowColumns)) {
    for (int64_t set = 0; set < sets; ++set) {
      RowsForward<T> one = SetOf(args, args.recipe, set);
      if (one.cast_gain) one.cast_gain += set * cols, one.cast_bias += set * cols;
      ForwardMatrix(one, parallel_for);
    }
    return;
  }
  const int64_t bytes = BytesOf(args);
  if (cols >= kLongRowColumns) {
    ForwardLongRows(args, parallel_for);
    return;
  }
  const auto range_of = [&](int64_t begin, int64_t end) {
    RowsForward<T> range = args;
    range.use_nt_stores = args.use_nt_stores && UsesNtStores(bytes, end - begin, rows);
    range.prefetch_output = PrefetchesOutput(bytes, end - begin, rows);
    return range;
  };
  if (IsGated(args)) {
    const int64_t rows_at_once = GatedRows<T>(cols, args.quantized ? kQuantizedBytes : kGatedBytes);
    const auto run = [&](int64_t begin, int64_t end, const AlignedArray<Compute<T>>& scratch) {
      const RowsForward<T> range = range_of(begin, end);
      for (int64_t r = begin; r < end; r += rows_at_once) {
        const int64_t n = std::min(end - r, rows_at_once);
        const T* x = args.x + r * args.x_stride;
        int64_t x_stride = args.x_stride;
        if (args.residual) {
          AddResidual(args, r, r + n);
          x = args.sum + r * args.sum_stride;
          x_stride = args.sum_stride;
        }
        const GatedForward<T> gated(range, r, n, x, x_stride, scratch.get());
        gated.Input(0, cols);
        ForwardRows(gated.Norm(), 0, n);
        gated.Output(0, cols, range.use_nt_stores);
        gated.Quantize();
      }
    };
    RunWithScratch(
        parallel_for, rows, GrainFor(cols),
        [&] {
          return MakeAligned<Compute<T>>(GatedForwardScratch(args, std::min(rows, rows_at_once)));
        },
        run);
    return;
  }
  if (args.residual == nullptr) {
    RunParallel(parallel_for, rows, GrainFor(sets * cols), [&](int64_t begin, int64_t end) {
      const RowsForward<T> range = range_of(begin, end);
      ForEachInterleaved<T>(sets, cols, begin, end, [&](int64_t set, int64_t r, int64_t until) {
        ForwardRows(SetOf(range, range.recipe, set), r, until);
      });
    });
    return;
  }
  const int64_t rows_at_once = ResidualRows<T>(cols);
  // Scratch for the sums of some rows, needed if the largest possible range uses non-temporal
  // stores.
  const auto make_kept = [&] {
    const bool use_nt_stores = args.use_nt_stores && UsesNtStores(bytes, rows, rows);
    return use_nt_stores ? MakeAligned<T>(rows_at_once * cols) : nullptr;
  };
  const auto run = [&](int64_t begin, int64_t end, const AlignedArray<T>& kept) {
    const RowsForward<T> range = range_of(begin, end);
    for (int64_t r = begin; r < end; r += rows_at_once) {
      const int64_t until = std::min(end, r + rows_at_once);
      RowsForward<T> summed = range;
      if (range.use_nt_stores) {
        AddResidualKept(args, r, until, kept.get());
        summed = FromRow(range, r);
        summed.x = kept.get();
        summed.x_stride = cols;
        ForwardRows(summed, 0, until - r);
      } else {
        AddResidual(args, r, until);
        summed.x = args.sum;
        summed.x_stride = args.sum_stride;
        ForwardRows(summed, r, until);
      }
    }
  };
  RunWithScratch(parallel_for, rows, GrainFor(cols), make_kept, run);
}

template <class T>
void BackwardMatrix(RowsBackward<T> args, const ParallelFor& parallel_for) {
  const int64_t sets = args.sets, rows = args.rows / sets, cols = args.cols;
  if (sets > 1 &&
      (!IsInterleaved(args) || args.dsum || IsGated(args) || IsTiled(Blocks(rows, cols), cols))) {
    for (int64_t set = 0; set < sets; ++set) {
      BackwardMatrix(SetOf(args, args.recipe, set), parallel_for);
    }
    return;
  }
  args.use_nt_stores = args.use_nt_stores && args.dsum == nullptr;
  if (args.dgain) {
    BackwardWithColumns(args, parallel_for);
  } else if (args.dx == nullptr && args.dgate == nullptr) {
    return;
  } else if (cols >= kLongRowColumns) {
    BackwardByTiles(args, parallel_for);
  } else {
    const auto run = [&](int64_t begin, int64_t end, const GatedScratch<Compute<T>>& scratch) {
      const auto range = RangeOf(args, end - begin, rows);
      if (IsGated(args) || args.dsum) {
        BackwardInTurns<T>(range, begin, end, scratch, nullptr, nullptr);
      } else {
        ForEachInterleaved<T>(sets, cols, begin, end, [&](int64_t set, int64_t r, int64_t until) {
          BackwardRows<T>(SetOf(range, range.recipe, set), r, until, nullptr, nullptr);
        });
      }
    };
    RunWithScratch(parallel_for, rows, GrainFor(sets * cols), [&] { return ScratchOf(args); }, run);
  }
}

#define PLANISH_INSTANTIATE(T)                                     \
  template void ForwardMatrix(RowsForward<T>, const ParallelFor&); \
  template void BackwardMatrix(RowsBackward<T>, const ParallelFor&);
PLANISH_ELEMENT_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace planish::internal
