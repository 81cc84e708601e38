#ifndef PLANISH_SRC_NORM_CUDA_HELD_H_
#define PLANISH_SRC_NORM_CUDA_HELD_H_

#include <cstdint>

#include "src/base/cuda/elements.h"
#include "src/norm/cuda/params.h"

// Rows in the registers of a team's threads, in packs of 16 bytes: which thread holds which
// columns, and how they are read and written. The columns of a thread depend only on the shape. For
// unaligned rows, threads read the aligned packs that contain the row and shift them, and shift
// packs between neighbours before they write.
namespace planish::internal::cuda {

/// Returns the bytes of gains or biases that StageParams writes to shared memory, in whole packs.
template <class T>
inline int64_t StagedBytes(int64_t cols) {
  return (cols + kFullPack<T> - 1) / kFullPack<T> * kFullPack<T> *
         static_cast<int64_t>(sizeof(Compute<T>));
}

/// The packs of a row in a thread's registers: E elements of type T. Each warp has consecutive
/// columns, whose packs alternate over its threads. kAligned: rows begin and end at multiples of 16
/// bytes. kWarp: teams are whole warps.
template <class T, int E, bool kAligned, bool kWarp>
class Held {
 public:
  using C = Compute<T>;
  static constexpr int kPack = kFullPack<T>, kPacks = E / kPack;
  /// The words of all packs, as in memory.
  using Words = uint32_t[kPacks][4];

  /// For thread `lane` of a team of `size` and rows of `cols` columns.
  PLANISH_DEVICE Held(int size, int lane, int cols)
      : lanes_(size), lane_(lane & (Lanes() - 1)), cols_(cols) {
    warp_first_ = kWarp ? (lane - lane_) * E : 0;
    first_ = warp_first_ + lane_ * kPack;
  }

  /// Returns the first column of pack v.
  PLANISH_DEVICE int Column(int v) const { return first_ + v * Lanes() * kPack; }

  /// Calls f(v) for each pack that has elements in some thread of the warp.
  template <class F>
  PLANISH_DEVICE void ForEachPack(F&& f) const {
    PLANISH_UNROLL
    for (int v = 0; v < kPacks; ++v) {
      if (Begin(v) < cols_) f(v);
    }
  }

  /// Calls f(i) for each element of these packs. Fill sets those beyond the row.
  template <class F>
  PLANISH_DEVICE void ForEach(F&& f) const {
    ForEachPack([&](int v) {
      PLANISH_UNROLL
      for (int j = 0; j < kPack; ++j) f(v * kPack + j);
    });
  }

  /// Calls f(i, col) for each element of the row.
  template <class F>
  PLANISH_DEVICE void ForEachInside(F&& f) const {
    ForEachPack([&](int v) {
      PLANISH_UNROLL
      for (int j = 0; j < kPack; ++j) {
        if (Column(v) + j < cols_) f(v * kPack + j, Column(v) + j);
      }
    });
  }

  /// Sets the elements beyond the row.
  PLANISH_DEVICE void Fill(C value, C (&x)[E]) const {
    PLANISH_UNROLL
    for (int v = 0; v < kPacks; ++v) {
      if (Begin(v + 1) <= cols_ || Begin(v) >= cols_) continue;  // the same for the whole warp
      PLANISH_UNROLL
      for (int j = 0; j < kPack; ++j) {
        if (Column(v) + (kAligned ? 0 : j) >= cols_) x[v * kPack + j] = value;
      }
    }
  }

  /// Packs read for a row: aligned ones and, if rows are not aligned, those after them.
  struct Raw {
    Words first, next;
  };

  /// Starts reading a row of an array that ends at `end`.
  PLANISH_DEVICE void Fetch(const T* row, const T* end, bool has_row, Raw& raw) const {
    PLANISH_UNROLL
    for (int v = 0; v < kPacks; ++v) {
      PLANISH_UNROLL
      for (int i = 0; i < 4; ++i) raw.first[v][i] = raw.next[v][i] = 0;
    }
    if constexpr (kAligned) {
      PLANISH_UNROLL
      for (int v = 0; v < kPacks; ++v) {
        if (has_row && Column(v) < cols_) LoadWords(row + Column(v), raw.first[v]);
      }
    } else {
      // Columns are relative to the pack that contains the start of the row.
      const T* const packs = row - OffsetOf(row) / static_cast<int>(sizeof(T));
      const int64_t max = end - packs;
      const int max_cols = max < (1 << 30) ? static_cast<int>(max) : 1 << 30;
      PLANISH_UNROLL
      for (int v = 0; v < kPacks; ++v) {
        if (has_row && Column(v) < cols_) {
          if (Column(v) + 2 * kPack <= max_cols) {
            LoadWords(packs + Column(v), raw.first[v]);
            LoadWords(packs + Column(v) + kPack, raw.next[v]);
          } else {
            ReadInside(packs + Column(v), max_cols - Column(v), raw.first[v]);
            ReadInside(packs + Column(v) + kPack, max_cols - Column(v) - kPack, raw.next[v]);
          }
        }
      }
    }
  }

  /// Gets the packs of a fetched row. Elements beyond the row are unspecified.
  PLANISH_DEVICE void Take(const T* row, const Raw& raw, Words& words) const {
    if constexpr (kAligned) {
      PLANISH_UNROLL
      for (int v = 0; v < kPacks; ++v) {
        PLANISH_UNROLL
        for (int i = 0; i < 4; ++i) words[v][i] = raw.first[v][i];
      }
    } else {
      Shift(OffsetOf(row), raw.first, raw.next, words);
    }
  }

  /// Calls Fetch and Take.
  PLANISH_DEVICE void Read(const T* row, const T* end, bool has_row, Words& words) const {
    Raw raw;
    Fetch(row, end, has_row, raw);
    Take(row, raw, words);
  }

  /// Reads pack v of an array with a value for each column, which the kernel does not write to.
  template <class P>
  PLANISH_DEVICE void ReadColumns(int v, const P* values, C* to) const {
    const int col = Column(v);
    if (kAligned ||
        (reinterpret_cast<uintptr_t>(values) % kPackBytes == 0 && col + kPack <= cols_)) {
      if constexpr (kPack < kFullPack<P>) {
        Load<kPack>(values + col, to);
      } else {
        PLANISH_UNROLL
        for (int i = 0; i < kPack; i += kFullPack<P>) {
          uint32_t words[4];
          LoadConstantWords(values + col + i, words);
          Compute<P> elements[kFullPack<P>];
          FromWords<P>(words, elements);
          PLANISH_UNROLL
          for (int j = 0; j < kFullPack<P>; ++j) to[i + j] = elements[j];
        }
      }
    } else {
      PLANISH_UNROLL
      for (int j = 0; j < kPack; ++j) {
        if (col + j < cols_) to[j] = ToCompute(LoadConstant(values + col + j));
      }
    }
  }

  /// Reads the gains or biases of pack v; `none` if there are none.
  PLANISH_DEVICE void ReadParams(int v, const Params& params, C none, C* to) const {
    PLANISH_UNROLL
    for (int j = 0; j < kPack; ++j) to[j] = none;
    if (params.data == nullptr || Column(v) >= cols_) return;
    if (params.is_float) {
      ReadColumns(v, static_cast<const float*>(params.data), to);
    } else {
      ReadColumns(v, static_cast<const T*>(params.data), to);
    }
  }

  /// Writes all gains or biases to shared memory, for ReadStaged after a SyncBlock.
  PLANISH_DEVICE void StageParams(const Params& params, C none, C* shared) const {
    const int packs = (cols_ + kPack - 1) / kPack;
    for (int p = ThreadIndex(); p < packs; p += BlockThreads()) {
      PLANISH_UNROLL
      for (int j = 0; j < kPack; ++j) {
        const int col = p * kPack + j;
        shared[(j / kQuad * packs + p) * kQuad + j % kQuad] =
            col < cols_ ? ParamAt<T>(params, col, none) : none;
      }
    }
  }
  /// Returns the number of these elements in shared memory.
  PLANISH_DEVICE int Staged() const { return (cols_ + kPack - 1) / kPack * kPack; }
  PLANISH_DEVICE void ReadStaged(int v, const C* shared, C* to) const {
    const int packs = (cols_ + kPack - 1) / kPack, p = Column(v) / kPack;
    PLANISH_UNROLL
    for (int j = 0; j < kPack; j += kQuad) {
      // Packs beyond the row read those of the first one.
      uint32_t words[4];
      LoadWords(shared + (j / kQuad * packs + (p < packs ? p : 0)) * kQuad, words);
      FromWords<C>(words, to + j);
    }
  }

  /// Writes all packs. All threads of the warp must call it.
  PLANISH_DEVICE void Write(T* row, bool has_row, Words& words) const {
    if constexpr (kAligned) {
      PLANISH_UNROLL
      for (int v = 0; v < kPacks; ++v) {
        if (has_row && Column(v) < cols_) StoreWords(row + Column(v), words[v]);
      }
    } else {
      // Each thread gets the pack before its own from its neighbour.
      Words before;
      uint32_t last[4] = {0, 0, 0, 0};
      const int lane = ThreadIndex() % kWarpThreads;
      const int from = lane_ == 0 ? lane + Lanes() - 1 : lane - 1;
      PLANISH_UNROLL
      for (int v = 0; v < kPacks; ++v) {
        PLANISH_UNROLL
        for (int i = 0; i < 4; ++i) before[v][i] = 0;
        if (Begin(v) >= cols_ + kPack) continue;  // the same for the whole warp
        PLANISH_UNROLL
        for (int i = 0; i < 4; ++i) {
          const uint32_t word = FromLane(words[v][i], from);
          before[v][i] = lane_ == 0 ? last[i] : word;
          last[i] = word;
        }
      }
      // The first column, less than a pack, that begins at a multiple of 16 bytes.
      const int offset = -OffsetOf(row) & (kPackBytes - 1);
      const int col = offset / static_cast<int>(sizeof(T)) - kPack;
      Shift(offset, before, words, words);
      const int warp_end = Begin(kPacks);
      const int end = !has_row ? 0 : cols_ < warp_end ? cols_ : warp_end;
      PLANISH_UNROLL
      for (int v = 0; v < kPacks; ++v) {
        // The first pack has none before it.
        if (Begin(v) < cols_ + (v == 0 ? 0 : kPack)) {
          WriteInside(row, col + Column(v), v == 0 ? warp_first_ : 0, end, words[v]);
        }
      }
      // The rest of the warp's last pack, which nearly always belongs to the first thread.
      if (lane_ == 0 && col + warp_end < end) {
        uint32_t window[4];
        Window<T>(last, last, offset, window);
        WriteInside(row, col + warp_end, 0, end, window);
      }
    }
  }

 private:
  static constexpr int kQuad = kPackBytes / static_cast<int>(sizeof(C));

  PLANISH_DEVICE int Lanes() const { return kWarp ? kWarpThreads : lanes_; }
  // Returns the bytes from the last multiple of 16 bytes to a row.
  static PLANISH_DEVICE int OffsetOf(const T* row) {
    return static_cast<int>(reinterpret_cast<uintptr_t>(row) % kPackBytes);
  }
  // Returns the first column of pack v in the first thread of the warp or the team.
  PLANISH_DEVICE int Begin(int v) const { return warp_first_ + v * Lanes() * kPack; }

  // Computes for each pack the 16 bytes from byte `offset` on of `first` followed by `second`.
  static PLANISH_DEVICE void Shift(int offset, const Words& first, const Words& second, Words& to) {
    const auto shift = [&](auto words_constant) {
      constexpr int kWords = decltype(words_constant)::value;
      PLANISH_UNROLL
      for (int v = 0; v < kPacks; ++v) {
        uint32_t words[9];
        PLANISH_UNROLL
        for (int i = 0; i < 4; ++i) words[i] = first[v][i], words[4 + i] = second[v][i];
        words[8] = 0;
        PLANISH_UNROLL
        for (int i = 0; i < 4; ++i) {
          to[v][i] = sizeof(T) == 2
                         ? ShiftWords(words[i + kWords], words[i + kWords + 1], offset % 4 * 8)
                         : words[i + kWords];
        }
      }
    };
    // The same for all threads of a warp that shares a row.
    if (sizeof(T) == 8) {
      if (offset == 0) return shift(std::integral_constant<int, 0>());
      return shift(std::integral_constant<int, 2>());
    }
    if (offset < 8) {
      if (offset < 4) return shift(std::integral_constant<int, 0>());
      return shift(std::integral_constant<int, 1>());
    }
    if (offset < 12) return shift(std::integral_constant<int, 2>());
    shift(std::integral_constant<int, 3>());
  }

  // Reads the first `count` elements of a pack, one by one.
  static PLANISH_DEVICE void ReadInside(const T* from, int count, uint32_t (&words)[4]) {
    PLANISH_UNROLL
    for (int i = 0; i < 4; ++i) words[i] = 0;
    PLANISH_NO_UNROLL
    for (int j = kPack - 1; j >= 0; --j) {
      if constexpr (sizeof(T) == 2) {
        PLANISH_UNROLL
        for (int i = 3; i > 0; --i) words[i] = ShiftWords(words[i - 1], words[i], 16);
        words[0] <<= 16;
        if (j < count) words[0] |= from[j].bits;
      } else if constexpr (sizeof(T) == 4) {
        PLANISH_UNROLL
        for (int i = 3; i > 0; --i) words[i] = words[i - 1];
        if (j < count) words[0] = BitsOf(from[j]);
      } else {
        words[2] = words[0], words[3] = words[1];
        if (j < count) words[0] = LowWordOf(from[j]), words[1] = HighWordOf(from[j]);
      }
    }
  }

  // Writes the part of 16 bytes from column `col` on that is in [begin, end).
  static PLANISH_DEVICE void WriteInside(T* row, int col, int begin, int end,
                                         const uint32_t (&words)[4]) {
    if (col >= begin && col + kPack <= end) {
      StoreWords(row + col, words);
    } else if (col < end) {
      PLANISH_UNROLL
      for (int j = 0; j < kPack; ++j) {
        if (static_cast<unsigned>(col + j - begin) < static_cast<unsigned>(end - begin)) {
          row[col + j] = ElementOf<T>(words, j);
        }
      }
    }
  }

  int lanes_, lane_, cols_, warp_first_, first_;
};

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_NORM_CUDA_HELD_H_
