#ifndef PLANISH_SRC_NORM_CUDA_HELD_H_
#define PLANISH_SRC_NORM_CUDA_HELD_H_

#include <cstdint>

#include "src/base/cuda/elements.h"
#include "src/norm/cuda/params.h"
#include "src/norm/cuda/rows_plan.h"

// Rows in the registers of a team of threads: which thread holds which columns, and how a row is
// read and written. The columns of a thread depend only on the shape.
namespace planish::internal::cuda {

/// Bytes of shared memory for the gains or biases of StageParams, padded to packs.
template <class T>
inline int64_t StagedBytes(int64_t cols) {
  return (cols + kFullPack<T> - 1) / kFullPack<T> * kFullPack<T> *
         static_cast<int64_t>(sizeof(Compute<T>));
}

/// How a row is accessed.
enum class RowAccess : uint8_t {
  kPacks,         ///< aligned packs of 16 bytes
  kShiftedPacks,  ///< aligned packs of 16 bytes, shifted by the offset of the row
  kElements,      ///< single elements
};

/// Returns the access to rows of type T. `aligned` is set if rows begin and end at multiples of 16
/// bytes. Single elements of at least four bytes are fast enough: a warp reads 128 bytes at once.
template <class T>
constexpr RowAccess AccessOf(bool aligned) {
  if (aligned) return RowAccess::kPacks;
  return IsShifted(sizeof(T), aligned) ? RowAccess::kShiftedPacks : RowAccess::kElements;
}

/// Elements of a row that a thread holds: E elements of type T, in groups of kPack. A warp holds
/// contiguous columns, and group v of all its threads is also contiguous. In group v, a thread
/// holds a pack. Exception: with RowAccess::kElements and a number of columns that is no multiple
/// of kPack, it holds every Lanes()-th element. kAligned is set if rows begin and end at multiples
/// of 16 bytes, kWarp if teams are whole warps.
template <class T, int E, bool kAligned, bool kWarp>
class Held {
 public:
  using C = Compute<T>;
  static constexpr int kPack = kFullPack<T>, kPacks = E / kPack;
  /// The groups of a thread, in the layout of memory.
  using Words = uint32_t[kPacks][4];

  /// For thread `lane` of a team of `size`; rows have `cols` columns.
  PLANISH_DEVICE Held(int size, int lane, int cols)
      : lanes_(size), lane_(lane & (Lanes() - 1)), cols_(cols) {
    const bool packs = kAccess != RowAccess::kElements || cols % kPack == 0;
    step_ = packs ? 1 : Lanes();
    warp_first_ = kWarp ? (lane - lane_) * E : 0;
    first_ = warp_first_ + lane_ * (packs ? kPack : 1);
  }

  /// Returns the column of element j of group v.
  PLANISH_DEVICE int Column(int v, int j = 0) const {
    return first_ + v * Lanes() * kPack + (kAccess == RowAccess::kElements ? j * step_ : j);
  }

  /// Calls f(v) for each group in which a thread of the warp has elements.
  template <class F>
  PLANISH_DEVICE void ForEachPack(F&& f) const {
    PLANISH_UNROLL
    for (int v = 0; v < kPacks; ++v) {
      if (Begin(v) < cols_) f(v);
    }
  }

  /// Calls f(i) for each element of these groups, also for those beyond the row (see Fill).
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
        if (Column(v, j) < cols_) f(v * kPack + j, Column(v, j));
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
        if (Column(v, kAligned ? 0 : j) >= cols_) x[v * kPack + j] = value;
      }
    }
  }

  /// Words read for a row: its groups or, with kShiftedPacks, the packs in which they begin and the
  /// packs that follow.
  struct Raw {
    Words first, next;
  };

  /// Begins to read a row of an array that ends at `end`.
  PLANISH_DEVICE void Fetch(const T* row, const T* end, bool has_row, Raw& raw) const {
    PLANISH_UNROLL
    for (int v = 0; v < kPacks; ++v) {
      PLANISH_UNROLL
      for (int i = 0; i < 4; ++i) raw.first[v][i] = raw.next[v][i] = 0;
    }
    if constexpr (kAccess == RowAccess::kPacks) {
      PLANISH_UNROLL
      for (int v = 0; v < kPacks; ++v) {
        if (has_row && Column(v) < cols_) LoadWords(row + Column(v), raw.first[v]);
      }
    } else if constexpr (kAccess == RowAccess::kElements) {
      ForEachElement(has_row, row,
                     [&](int v, int j, const T& element) { SetElement(raw.first[v], j, element); });
    } else {
      // Columns are counted from the beginning of the pack in which the row begins.
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

  /// Writes the groups of a fetched row to `words`. Elements beyond the row are unspecified.
  PLANISH_DEVICE void Take(const T* row, const Raw& raw, Words& words) const {
    if constexpr (kAccess != RowAccess::kShiftedPacks) {
      PLANISH_UNROLL
      for (int v = 0; v < kPacks; ++v) {
        PLANISH_UNROLL
        for (int i = 0; i < 4; ++i) words[v][i] = raw.first[v][i];
      }
    } else {
      Shift(OffsetOf(row), raw.first, raw.next, words);
    }
  }

  /// Fetch and Take.
  PLANISH_DEVICE void Read(const T* row, const T* end, bool has_row, Words& words) const {
    Raw raw;
    Fetch(row, end, has_row, raw);
    Take(row, raw, words);
  }

  /// Reads group v of an array with a value for each column. The kernel must not write to the
  /// array.
  template <class P>
  PLANISH_DEVICE void ReadColumns(int v, const P* values, C* to) const {
    const int col = Column(v);
    if (kAccess == RowAccess::kPacks ||
        (kAccess == RowAccess::kShiftedPacks &&
         reinterpret_cast<uintptr_t>(values) % kPackBytes == 0 && col + kPack <= cols_)) {
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
        if (Column(v, j) < cols_) to[j] = ToCompute(LoadConstant(values + Column(v, j)));
      }
    }
  }

  /// Reads the gains or biases of group v; `none` if there are none.
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

  /// Copies all gains or biases into the block's shared memory. A barrier must precede ReadStaged.
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
  /// Returns the number of elements that StageParams writes.
  PLANISH_DEVICE int Staged() const { return (cols_ + kPack - 1) / kPack * kPack; }
  /// Reads group v of the gains or biases that StageParams wrote.
  PLANISH_DEVICE void ReadStaged(int v, const C* shared, C* to) const {
    const int packs = (cols_ + kPack - 1) / kPack, p = Column(v) / kPack;
    PLANISH_UNROLL
    for (int j = 0; j < kPack; j += kQuad) {
      // Packs beyond the row read the first one.
      uint32_t words[4];
      LoadWords(shared + (j / kQuad * packs + (p < packs ? p : 0)) * kQuad, words);
      FromWords<C>(words, to + j);
    }
  }

  /// Writes the row. All threads of a warp must call it together.
  PLANISH_DEVICE void Write(T* row, bool has_row, Words& words) const {
    if constexpr (kAccess == RowAccess::kPacks) {
      PLANISH_UNROLL
      for (int v = 0; v < kPacks; ++v) {
        if (has_row && Column(v) < cols_) StoreWords(row + Column(v), words[v]);
      }
    } else if constexpr (kAccess == RowAccess::kElements) {
      ForEachElement(has_row, row,
                     [&](int v, int j, T& element) { element = ElementOf<T>(words[v], j); });
    } else {
      // Each thread gets its neighbor's pack, which precedes its own.
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
      // The first column at a multiple of 16 bytes, minus a pack.
      const int offset = -OffsetOf(row) & (kPackBytes - 1);
      const int col = offset / static_cast<int>(sizeof(T)) - kPack;
      Shift(offset, before, words, words);
      const int warp_end = Begin(kPacks);
      const int end = !has_row ? 0 : cols_ < warp_end ? cols_ : warp_end;
      PLANISH_UNROLL
      for (int v = 0; v < kPacks; ++v) {
        // No pack precedes the first one.
        if (Begin(v) < cols_ + (v == 0 ? 0 : kPack)) {
          WriteInside(row, col + Column(v), v == 0 ? warp_first_ : 0, end, words[v]);
        }
      }
      // The rest of the warp's last pack, nearly always the first thread's.
      if (lane_ == 0 && col + warp_end < end) {
        uint32_t window[4];
        Window<T>(last, last, offset, window);
        WriteInside(row, col + warp_end, 0, end, window);
      }
    }
  }

 private:
  static constexpr RowAccess kAccess = AccessOf<T>(kAligned);
  static constexpr int kQuad = kPackBytes / static_cast<int>(sizeof(C));

  // Calls f(v, j, element) for the elements of a row. Only the last group needs a test of each.
  template <class Element, class F>
  PLANISH_DEVICE void ForEachElement(bool has_row, Element* row, F&& f) const {
    Element* first = row + first_;
    PLANISH_UNROLL
    for (int v = 0; v < kPacks; ++v, first += Lanes() * kPack) {
      if (!has_row || Begin(v) >= cols_) continue;
      if (Begin(v + 1) <= cols_) {
        PLANISH_UNROLL
        for (int j = 0; j < kPack; ++j) f(v, j, first[j * step_]);
      } else {
        PLANISH_UNROLL
        for (int j = 0; j < kPack; ++j) {
          if (Column(v, j) < cols_) f(v, j, first[j * step_]);
        }
      }
    }
  }

  PLANISH_DEVICE int Lanes() const { return kWarp ? kWarpThreads : lanes_; }
  // Returns the bytes from the last multiple of 16 bytes to a row.
  static PLANISH_DEVICE int OffsetOf(const T* row) {
    return static_cast<int>(reinterpret_cast<uintptr_t>(row) % kPackBytes);
  }
  // Returns the first column of group v of the warp's, or the team's, threads.
  PLANISH_DEVICE int Begin(int v) const { return warp_first_ + v * Lanes() * kPack; }

  // Sets each pack to the 16 bytes at `offset` in the sequence of its `first` and `second` pack.
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
          to[v][i] = ShiftWords(words[i + kWords], words[i + kWords + 1], offset % 4 * 8);
        }
      }
    };
    // The offset is the same for all threads of a warp that shares a row.
    if (offset < 8) {
      if (offset < 4) return shift(std::integral_constant<int, 0>());
      return shift(std::integral_constant<int, 1>());
    }
    if (offset < 12) return shift(std::integral_constant<int, 2>());
    shift(std::integral_constant<int, 3>());
  }

  // Reads the first `count` elements of a pack one by one.
  static PLANISH_DEVICE void ReadInside(const T* from, int count, uint32_t (&words)[4]) {
    PLANISH_UNROLL
    for (int i = 0; i < 4; ++i) words[i] = 0;
    PLANISH_NO_UNROLL
    for (int j = kPack - 1; j >= 0; --j) {
      PLANISH_UNROLL
      for (int i = 3; i > 0; --i) words[i] = ShiftWords(words[i - 1], words[i], 16);
      words[0] <<= 16;
      if (j < count) words[0] |= from[j].bits;
    }
  }

  // Writes a pack to column `col`, except its elements outside [begin, end).
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
  int step_;  // columns from one element of a group to the next; kElements only
};

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_NORM_CUDA_HELD_H_
