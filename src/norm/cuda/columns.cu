#include <cstdint>
#include <type_traits>

#include "src/base/cuda/elements.h"
#include "src/base/cuda/kernel.h"
#include "src/base/cuda/team.h"
#include "src/norm/cuda/columns.h"
#include "src/norm/cuda/params.h"

// All sums are in double: squares of floats neither overflow nor underflow, and sums about an
// element of the channel lose no digit that a float could show. For doubles, the sums about the
// channel's first element give a second shift, near the mean.
namespace planish::internal::cuda {
namespace {

using PairTeam = Team<2>;

template <class C>
struct XhatMap {
  C mean, rstd, offset;

  PLANISH_DEVICE C operator()(C x) const { return FusedMulAdd(x - mean, rstd, offset); }
};

template <class C>
PLANISH_DEVICE XhatMap<C> XhatAt(const SavedMoments<C>& saved, int64_t i) {
  using Rstd = typename SavedMoments<C>::Rstd;
  C rstd = saved.rstd[i];
  if (saved.kind == Rstd::kOfVariance) {
    rstd = static_cast<C>(1 / sqrt(static_cast<double>(rstd) + saved.eps));
  } else if (saved.kind == Rstd::kOfNorm) {
    rstd = static_cast<C>(1 / static_cast<double>(rstd));
  }
  const C mean = saved.mean == nullptr ? C{0} : saved.mean[i];
  const C lo = saved.mean_lo == nullptr ? C{0} : saved.mean_lo[i];
  return {mean, rstd, -lo * rstd};
}

// Squares of doubles are taken of the element times kLargeScale from kLarge on, else times
// kSmallScale, so that a double holds their sums.
inline constexpr double kLarge = 0x1p12, kLargeScale = 0x1p-522, kSmallScale = 0x1p480;

template <ColumnSums kSums>
inline constexpr bool kHasMoments =
    kSums == ColumnSums::kGradient || kSums == ColumnSums::kGradientOfRows;
template <ColumnSums kSums>
inline constexpr bool kReadsX = kHasMoments<kSums> || kSums == ColumnSums::kGradientOfPositions;
template <ColumnMap kMap>
inline constexpr bool kMapReadsX =
    kMap == ColumnMap::kGradient || kMap == ColumnMap::kGradientOfRows;
template <ColumnMap kMap>
inline constexpr bool kOfRows =
    kMap == ColumnMap::kNormalizeRows || kMap == ColumnMap::kGradientOfRows;

// --- Tuning constants (docs/tuning.md) ---

// Packs that a thread loads at a time, as many as the registers allow.
template <ColumnSums kSums>
inline constexpr int kSumFlight = kSums == ColumnSums::kGradientOfPositions ? 1
                                  : kReadsX<kSums>                          ? 2
                                                                            : 4;
template <ColumnMap kMap>
inline constexpr int kMapFlight = kMapReadsX<kMap> || kOfRows<kMap> ? 2 : 4;

// --- End of tuning constants ---

template <ColumnSums kSums, class C>
PLANISH_DEVICE void AddTerm(C a, C x, double shift, const XhatMap<C>& xhat, double& first,
                            double& second) {
  if constexpr (kSums == ColumnSums::kMoments) {
    const double d = static_cast<double>(a) - shift;
    first += d;
    second = FusedMulAdd(d, d, second);
  } else if constexpr (kSums == ColumnSums::kSquares) {
    const auto number = static_cast<double>(a);
    if constexpr (std::is_same_v<C, double>) {
      if (fabs(number) >= kLarge) {
        const double scaled = number * kLargeScale;
        first = FusedMulAdd(scaled, scaled, first);
      } else {
        const double scaled = number * kSmallScale;
        second = FusedMulAdd(scaled, scaled, second);
      }
    } else {
      second = FusedMulAdd(number, number, second);
    }
  } else {
    const auto number = static_cast<double>(a);
    first += number;
    second = FusedMulAdd(number, static_cast<double>(xhat(x)), second);
  }
}

// Packs of N elements of a thread in a part of a run, `step` elements apart.
struct RunWalk {
  int64_t index, end;  ///< among the elements of the channel
  int64_t s, at;       ///< index in the sample's run, and in the array

  PLANISH_DEVICE RunWalk(int64_t channels, int64_t spatial, int64_t c, int64_t begin, int64_t until,
                         int64_t first, int64_t step_elements)
      : index(begin + first), end(until), step(step_elements), run(spatial) {
    int64_t b = 0, step_b = 0;
    s = index;
    step_s = step;
    if (until > spatial) {  // several samples
      b = index / spatial;
      s = index - b * spatial;
      step_b = step / spatial;
      step_s = step - step_b * spatial;
    }
    at = (b * channels + c) * spatial + s;
    step_at = step_b * channels * spatial + step_s;
    wrap = (channels - 1) * spatial;
  }
  PLANISH_DEVICE bool Has() const { return index < end; }
  PLANISH_DEVICE void Advance() {
    index += step;
    s += step_s;
    at += step_at;
    if (s >= run) s -= run, at += wrap;
  }

  int64_t step, run, step_s, step_at, wrap;
};

// Returns the end of part `part` of `all` elements.
PLANISH_DEVICE int64_t EndOfPart(int64_t part, int64_t length, int64_t all) {
  const int64_t end = (part + 1) * length;
  return end < all ? end : all;
}

template <class T, int N, ColumnSums kSums>
PLANISH_KERNEL(kColumnsThreads, 3)
SumRuns(ColumnArrays<T> arrays, SavedMoments<Compute<T>> saved, const double* shifts, int team_size,
        int64_t parts, int64_t part_length, SumPair* pairs) {
  using C = Compute<T>;
  constexpr int kFlight = kSumFlight<kSums>;
  PairTeam team(team_size);
  const int64_t n = arrays.batch * arrays.spatial, items = arrays.channels * parts;
  for (int64_t block = BlockIndex() * team.count(); block < items;
       block += Blocks() * team.count()) {
    const int64_t item = block + team.index();
    double first = 0, second = 0;
    if (item < items) {
      const int64_t c = item / parts, part = item % parts;
      double shift = 0;
      if constexpr (kSums == ColumnSums::kMoments) {
        shift = shifts != nullptr ? shifts[c]
                                  : static_cast<double>(ToCompute(arrays.a[c * arrays.spatial]));
      }
      XhatMap<C> xhat = {};
      if constexpr (kHasMoments<kSums>) xhat = XhatAt(saved, c);
      RunWalk walk(arrays.channels, arrays.spatial, c, part * part_length,
                   EndOfPart(part, part_length, n), static_cast<int64_t>(team.lane()) * N,
                   static_cast<int64_t>(team_size) * N);
      while (walk.Has()) {
        C a[kFlight][N] = {}, x[kFlight][N] = {};
        int64_t index[kFlight], s[kFlight];
        PLANISH_UNROLL
        for (int f = 0; f < kFlight; ++f) {
          index[f] = walk.index;
          s[f] = walk.s;
          if (walk.Has()) {
            Load<N>(arrays.a + walk.at, a[f]);
            if constexpr (kReadsX<kSums>) Load<N>(arrays.x + walk.at, x[f]);
          }
          walk.Advance();
        }
        PLANISH_UNROLL
        for (int f = 0; f < kFlight; ++f) {
          if (index[f] >= walk.end) continue;
          PLANISH_UNROLL
          for (int j = 0; j < N; ++j) {
            C number = a[f][j];
            if constexpr (kSums == ColumnSums::kGradientOfRows) {
              number *= ParamAt<T>(arrays.gain, s[f] + j, C{1});
            } else if constexpr (kSums == ColumnSums::kGradientOfPositions) {
              xhat = XhatAt(saved, index[f] + j);
            }
            AddTerm<kSums>(number, x[f][j], shift, xhat, first, second);
          }
        }
      }
    }
    team.Sum(first, second);
    if (item < items && team.lane() == 0) pairs[item] = {first, second};
  }
}

// Sums columns of a matrix [batch, channels * spatial]. Adjacent threads read adjacent packs; the
// other threads of a column divide the rows of a part.
template <class T, int N, ColumnSums kSums>
PLANISH_KERNEL(kColumnsThreads, 2)
SumColumns(ColumnArrays<T> arrays, SavedMoments<Compute<T>> saved, const double* shifts, int team,
           int64_t parts, int64_t part_length, SumPair* pairs) {
  using C = Compute<T>;
  constexpr int kFlight = kSumFlight<kSums>;
  double* slots = SharedMemory<double>();  // [2 * N, threads]
  const int threads = BlockThreads(), thread = ThreadIndex();
  const int x_thread = thread % team, y_thread = thread / team, rows = threads / team;
  const int64_t width = arrays.channels * arrays.spatial;
  const int64_t tile_width = static_cast<int64_t>(team) * N;
  const int64_t tiles = (width + tile_width - 1) / tile_width;
  for (int64_t item = BlockIndex(); item < tiles * parts; item += Blocks()) {
    const int64_t tile = item % tiles, part = item / tiles;
    const int64_t col = tile * tile_width + static_cast<int64_t>(x_thread) * N;
    double first[N] = {}, second[N] = {};
    if (col < width) {
      XhatMap<C> xhat[N] = {};
      double shift[N] = {};
      int64_t s[N] = {};
      PLANISH_UNROLL
      for (int j = 0; j < N; ++j) {
        const int64_t c = (col + j) / arrays.spatial;
        s[j] = col + j - c * arrays.spatial;
        if constexpr (kSums == ColumnSums::kMoments) {
          shift[j] = shifts != nullptr
                         ? shifts[c]
                         : static_cast<double>(ToCompute(arrays.a[c * arrays.spatial]));
        } else if constexpr (kHasMoments<kSums>) {
          xhat[j] = XhatAt(saved, c);
        }
      }
      const int64_t end = EndOfPart(part, part_length, arrays.batch);
      for (int64_t b = part * part_length + y_thread; b < end; b += rows * kFlight) {
        C a[kFlight][N] = {}, x[kFlight][N] = {};
        PLANISH_UNROLL
        for (int f = 0; f < kFlight; ++f) {
          const int64_t row = b + f * rows;
          if (row >= end) continue;
          Load<N>(arrays.a + row * width + col, a[f]);
          if constexpr (kReadsX<kSums>) Load<N>(arrays.x + row * width + col, x[f]);
        }
        PLANISH_UNROLL
        for (int f = 0; f < kFlight; ++f) {
          const int64_t row = b + f * rows;
          if (row >= end) continue;
          PLANISH_UNROLL
          for (int j = 0; j < N; ++j) {
            if constexpr (kSums == ColumnSums::kGradientOfPositions) {
              xhat[j] = XhatAt(saved, row * arrays.spatial + s[j]);
            }
            AddTerm<kSums>(a[f][j], x[f][j], shift[j], xhat[j], first[j], second[j]);
          }
        }
      }
    }
    PLANISH_UNROLL
    for (int j = 0; j < N; ++j) {
      slots[2 * j * threads + thread] = first[j];
      slots[(2 * j + 1) * threads + thread] = second[j];
    }
    SyncBlock();
    for (int half = rows / 2; half > 0; half /= 2) {
      if (y_thread < half) {
        PLANISH_UNROLL
        for (int j = 0; j < 2 * N; ++j) {
          slots[j * threads + thread] += slots[j * threads + thread + half * team];
        }
      }
      SyncBlock();
    }
    if (y_thread == 0 && col < width) {
      PLANISH_UNROLL
      for (int j = 0; j < N; ++j) {
        pairs[(col + j) * parts + part] = {slots[2 * j * threads + thread],
                                           slots[(2 * j + 1) * threads + thread]};
      }
    }
    SyncBlock();
  }
}

// Adds the pairs of each channel and calls op(c, first, second).
template <class Op>
PLANISH_KERNEL(kColumnsThreads, 1)
Finish(Op op, int64_t channels, int64_t count, int team_size, const SumPair* pairs) {
  PairTeam team(team_size);
  for (int64_t block = BlockIndex() * team.count(); block < channels;
       block += Blocks() * team.count()) {
    const int64_t c = block + team.index();
    double first = 0, second = 0;
    if (c < channels) {
      for (int64_t p = team.lane(); p < count; p += team.size()) {
        const SumPair pair = pairs[c * count + p];
        first += pair.first;
        second += pair.second;
      }
    }
    team.Sum(first, second);
    if (c < channels && team.lane() == 0) op(c, first, second);
  }
}

template <ColumnMap kMap>
inline constexpr int kParametersOf = kMap == ColumnMap::kScale            ? 1
                                     : kMap == ColumnMap::kGradient       ? 6
                                     : kMap == ColumnMap::kGradientOfRows ? 5
                                                                          : 3;

template <ColumnMap kMap, class C>
PLANISH_DEVICE C Mapped(C a, C x, const C* v, C gain, C bias) {
  if constexpr (kMap == ColumnMap::kNormalize) {
    return FusedMulAdd(a - v[0], v[1], v[2]);
  } else if constexpr (kMap == ColumnMap::kScale) {
    return a * v[0];
  } else if constexpr (kMap == ColumnMap::kNormalizeRows) {
    return FusedMulAdd(gain, FusedMulAdd(a - v[0], v[1], v[2]), bias);
  } else {
    const C xhat = FusedMulAdd(x - v[0], v[1], v[2]);
    if constexpr (kMap == ColumnMap::kGradientOfRows) {
      return FusedMulAdd(-xhat, v[4], gain * a - v[3]) * v[1];
    } else {
      return FusedMulAdd(-xhat, v[4], a - v[3]) * v[5];
    }
  }
}

// Processes the last item first: the L2 cache still holds what the sums read last.
template <class T, int N, ColumnMap kMap>
PLANISH_KERNEL(kColumnsThreads, 3)
MapRuns(ColumnArrays<T> arrays, int team, int64_t parts, int64_t part_length,
        const Compute<T>* values) {
  using C = Compute<T>;
  constexpr int kFlight = kMapFlight<kMap>, kParameters = kParametersOf<kMap>;
  const int lane = ThreadIndex() % team, teams = BlockThreads() / team;
  const int64_t n = arrays.batch * arrays.spatial, items = arrays.channels * parts;
  for (int64_t block = BlockIndex() * teams; block < items; block += Blocks() * teams) {
    const int64_t item = items - 1 - (block + ThreadIndex() / team);
    if (item < 0) continue;
    const int64_t c = item / parts, part = item % parts;
    C v[kParameters];
    PLANISH_UNROLL
    for (int i = 0; i < kParameters; ++i) v[i] = values[i * arrays.channels + c];
    RunWalk walk(arrays.channels, arrays.spatial, c, part * part_length,
                 EndOfPart(part, part_length, n), static_cast<int64_t>(lane) * N,
                 static_cast<int64_t>(team) * N);
    while (walk.Has()) {
      C a[kFlight][N] = {}, x[kFlight][N] = {};
      int64_t index[kFlight], s[kFlight], at[kFlight];
      PLANISH_UNROLL
      for (int f = 0; f < kFlight; ++f) {
        index[f] = walk.index;
        s[f] = walk.s;
        at[f] = walk.at;
        if (walk.Has()) {
          Load<N>(arrays.a + walk.at, a[f]);
          if constexpr (kMapReadsX<kMap>) Load<N>(arrays.x + walk.at, x[f]);
        }
        walk.Advance();
      }
      PLANISH_UNROLL
      for (int f = 0; f < kFlight; ++f) {
        if (index[f] >= walk.end) continue;
        PLANISH_UNROLL
        for (int j = 0; j < N; ++j) {
          C gain = 1, bias = 0;
          if constexpr (kOfRows<kMap>) gain = ParamAt<T>(arrays.gain, s[f] + j, C{1});
          if constexpr (kMap == ColumnMap::kNormalizeRows) {
            bias = ParamAt<T>(arrays.bias, s[f] + j, C{0});
          }
          a[f][j] = Mapped<kMap>(a[f][j], x[f][j], v, gain, bias);
        }
        Store<N>(a[f], arrays.out + at[f]);
      }
    }
  }
}

template <class T, int N, ColumnMap kMap>
PLANISH_KERNEL(kColumnsThreads, 2)
MapColumns(ColumnArrays<T> arrays, int team, int64_t parts, int64_t part_length,
           const Compute<T>* values) {
  using C = Compute<T>;
  constexpr int kFlight = kMapFlight<kMap>, kParameters = kParametersOf<kMap>;
  const int rows = BlockThreads() / team;
  const int x_thread = ThreadIndex() % team, y_thread = ThreadIndex() / team;
  const int64_t width = arrays.channels * arrays.spatial;
  const int64_t tile_width = static_cast<int64_t>(team) * N;
  const int64_t tiles = (width + tile_width - 1) / tile_width, items = tiles * parts;
  for (int64_t block = BlockIndex(); block < items; block += Blocks()) {
    const int64_t item = items - 1 - block, tile = item % tiles, part = item / tiles;
    const int64_t col = tile * tile_width + static_cast<int64_t>(x_thread) * N;
    if (col >= width) continue;
    C v[N][kParameters];
    PLANISH_UNROLL
    for (int j = 0; j < N; ++j) {
      const int64_t c = (col + j) / arrays.spatial;
      PLANISH_UNROLL
      for (int i = 0; i < kParameters; ++i) v[j][i] = values[i * arrays.channels + c];
    }
    const int64_t end = EndOfPart(part, part_length, arrays.batch);
    for (int64_t b = part * part_length + y_thread; b < end; b += rows * kFlight) {
      C a[kFlight][N] = {}, x[kFlight][N] = {};
      PLANISH_UNROLL
      for (int f = 0; f < kFlight; ++f) {
        const int64_t row = b + f * rows;
        if (row >= end) continue;
        Load<N>(arrays.a + row * width + col, a[f]);
        if constexpr (kMapReadsX<kMap>) Load<N>(arrays.x + row * width + col, x[f]);
      }
      PLANISH_UNROLL
      for (int f = 0; f < kFlight; ++f) {
        const int64_t row = b + f * rows;
        if (row >= end) continue;
        PLANISH_UNROLL
        for (int j = 0; j < N; ++j) a[f][j] = Mapped<kMap>(a[f][j], x[f][j], v[j], C{1}, C{0});
        Store<N>(a[f], arrays.out + row * width + col);
      }
    }
  }
}

// --- From a channel's sums to the parameters of its map ---

template <class C>
struct ValuesAt {
  C* values;
  int64_t channels;

  PLANISH_DEVICE void Set(int i, int64_t c, double value) const {
    values[i * channels + c] = static_cast<C>(value);
  }
};

// Statistics of n elements from their sums about a shift.
struct ChannelMoments {
  double offset, var;  // mean = shift + offset; var is biased
};

PLANISH_DEVICE ChannelMoments StatisticsOf(double first, double second, double n) {
  const double offset = first / n;
  double var = FusedMulAdd(-offset, first, second) / n;
  if (var < 0) var = 0;
  // An overflowed variance gives NaN, like an infinity in the input.
  if (!IsFinite(var)) return {Nan<double>(), Nan<double>()};
  return {offset, var};
}

template <class T>
PLANISH_DEVICE double ShiftOf(const ColumnArrays<T>& arrays, const double* shifts, int64_t c) {
  return shifts != nullptr ? shifts[c]
                           : static_cast<double>(ToCompute(arrays.a[c * arrays.spatial]));
}

template <class T>
struct Refine {
  ColumnArrays<T> arrays;
  double n;
  double* shifts;

  PLANISH_DEVICE void operator()(int64_t c, double first, double) const {
    shifts[c] = ShiftOf(arrays, static_cast<const double*>(nullptr), c) + first / n;
  }
};

template <class T>
PLANISH_DEVICE double ParamAsDouble(const Params& params, int64_t c, double none) {
  return static_cast<double>(ParamAt<T>(params, c, static_cast<Compute<T>>(none)));
}

template <class T>
struct FinishBatchForward {
  using C = Compute<T>;
  BatchForward<T> call;
  double n;
  const double* shifts;
  ValuesAt<C> values;

  PLANISH_DEVICE void Update(C* running, int64_t c, double value) const {
    if (running == nullptr) return;
    running[c] = static_cast<C>((1 - call.momentum) * static_cast<double>(running[c]) +
                                call.momentum * value);
  }
  PLANISH_DEVICE void operator()(int64_t c, double first, double second) const {
    const double shift = ShiftOf(call.arrays, shifts, c);
    ChannelMoments m = StatisticsOf(first, second, n);
    const double unbiased = n / (n - 1);
    Update(call.running_mean, c, shift + m.offset);
    if (call.running_var != nullptr) Update(call.running_var, c, m.var * unbiased);
    if (call.unbiased) m.var *= unbiased;
    const double rstd = 1 / sqrt(m.var + call.eps);
    const C mean = static_cast<C>(shift + m.offset);
    const double rest = (shift - static_cast<double>(mean)) + m.offset;
    if (call.mean != nullptr) call.mean[c] = mean;
    if (call.mean_lo != nullptr) call.mean_lo[c] = static_cast<C>(rest);
    if (call.rstd != nullptr) call.rstd[c] = static_cast<C>(rstd);
    // The bias absorbs mean_lo, which is exact for a constant channel.
    const double gain = ParamAsDouble<T>(call.gain, c, 1);
    values.Set(0, c, static_cast<double>(mean));
    values.Set(1, c, gain * rstd);
    values.Set(2, c, ParamAsDouble<T>(call.bias, c, 0) - rest * rstd * gain);
  }
};

template <class T>
PLANISH_DEVICE void SetXhat(const ValuesAt<Compute<T>>& values, int64_t c,
                            const XhatMap<Compute<T>>& xhat) {
  values.Set(0, c, static_cast<double>(xhat.mean));
  values.Set(1, c, static_cast<double>(xhat.rstd));
  values.Set(2, c, static_cast<double>(xhat.offset));
}

template <class T>
struct FinishBatchBackward {
  using C = Compute<T>;
  BatchBackward<T> call;
  double n;
  ValuesAt<C> values;

  PLANISH_DEVICE void operator()(int64_t c, double first, double second) const {
    SetParam<T>(call.dgain, c, static_cast<C>(second));
    SetParam<T>(call.dbias, c, static_cast<C>(first));
    SetXhat<T>(values, c, XhatAt(call.saved, c));
    values.Set(3, c, first / n);
    values.Set(4, c, second / (call.unbiased ? n - 1 : n));
    values.Set(5, c, ParamAsDouble<T>(call.gain, c, 1) * static_cast<double>(call.saved.rstd[c]));
  }
};

template <class T>
struct FinishBatchEvaluate {
  using C = Compute<T>;
  BatchEvaluate<T> call;
  ValuesAt<C> values;

  PLANISH_DEVICE void operator()(int64_t c, double first, double second) const {
    const double rstd = 1 / sqrt(static_cast<double>(call.running_var[c]) + call.eps);
    const double scale = ParamAsDouble<T>(call.gain, c, 1) * rstd;
    if (call.backward) {
      SetParam<T>(call.dgain, c, static_cast<C>(second));
      SetParam<T>(call.dbias, c, static_cast<C>(first));
      values.Set(0, c, scale);
    } else {
      values.Set(0, c, static_cast<double>(call.running_mean[c]));
      values.Set(1, c, scale);
      values.Set(2, c, ParamAsDouble<T>(call.bias, c, 0));
    }
  }
};

template <class T>
struct FinishWeightForward {
  using C = Compute<T>;
  WeightForward<T> call;
  ValuesAt<C> values;

  PLANISH_DEVICE void operator()(int64_t c, double first, double second) const {
    double norm = sqrt(second);
    if constexpr (std::is_same_v<C, double>) {
      if (first != 0) {  // or NaN
        // Scales in steps: a single factor would underflow.
        constexpr double kStep = 0x1p-501;  // to the fourth power: (kLargeScale / kSmallScale)^2
        norm = sqrt(first + second * kStep * kStep * kStep * kStep) * (1 / kLargeScale);
      } else {
        norm *= 1 / kSmallScale;
      }
    }
    if (!IsFinite(norm)) norm = Nan<double>();
    if (call.norm != nullptr) call.norm[c] = static_cast<C>(norm);
    values.Set(0, c, ParamAsDouble<T>(call.g, c, 1) / norm);
  }
};

template <class T>
struct FinishWeightBackward {
  using C = Compute<T>;
  WeightBackward<T> call;
  SavedMoments<C> saved;
  ValuesAt<C> values;

  PLANISH_DEVICE void operator()(int64_t c, double, double second) const {
    SetParam<T>(call.dg, c, static_cast<C>(second));
    SetXhat<T>(values, c, XhatAt(saved, c));
    values.Set(2, c, 0);
    values.Set(3, c, 0);
    values.Set(4, c, second);
    values.Set(5, c, ParamAsDouble<T>(call.g, c, 1) / static_cast<double>(call.norm[c]));
  }
};

// Computes the mean and the biased variance of each case.
template <class T>
struct FinishCases {
  ColumnArrays<T> arrays;
  double n;
  const double* shifts;
  SumPair* moments;

  PLANISH_DEVICE void operator()(int64_t c, double first, double second) const {
    const ChannelMoments m = StatisticsOf(first, second, n);
    moments[c] = {ShiftOf(arrays, shifts, c) + m.offset, m.var};
  }
};

template <class T>
struct FinishOnlineBackward {
  using C = Compute<T>;
  OnlineBackward<T> call;
  double n;
  ValuesAt<C> values;

  PLANISH_DEVICE void operator()(int64_t c, double first, double second) const {
    const double alpha = call.alphas.each != nullptr ? call.alphas.each[c] : call.alphas.all;
    const auto s = static_cast<double>(call.deviation[c]);
    const auto rstd = static_cast<double>(call.saved.rstd[c]);
    const double scale = s == 0 ? 0 : alpha * n / ((n - 1) * s * rstd);
    const double mean_g_xhat = second / n * scale;
    SetXhat<T>(values, c, XhatAt(call.saved, c));
    values.Set(
        3, c, first / n * alpha - alpha * static_cast<double>(call.offset[c]) * rstd * mean_g_xhat);
    values.Set(4, c, mean_g_xhat);
  }
};

template <class T>
struct FinishPositionGradients {
  PositionGradients<T> call;

  PLANISH_DEVICE void operator()(int64_t c, double first, double second) const {
    SetParam<T>(call.dgain, c, static_cast<Compute<T>>(second));
    SetParam<T>(call.dbias, c, static_cast<Compute<T>>(first));
  }
};

// Scans the state over all cases, in one block. The recurrences, two chains of a product and a sum,
// are run by one thread; the rest by one thread for each case.
template <class T>
PLANISH_KERNEL(kColumnsThreads, 1)
ScanCases(OnlineForward<T> call, const SumPair* moments, ValuesAt<Compute<T>> values) {
  using C = Compute<T>;
  double* alphas = SharedMemory<double>();  // [4, threads], then the state
  const int threads = BlockThreads(), thread = ThreadIndex();
  double* means = alphas + threads;
  double* own = means + threads;
  double* deviations = own + threads;
  double* state = deviations + threads;
  const int64_t rows = call.arrays.channels;
  const auto n = static_cast<double>(call.arrays.spatial);
  const double unbiased = n / (n - 1);
  if (thread == 0) state[0] = call.state->mean, state[1] = call.state->deviation;
  for (int64_t begin = 0; begin < rows; begin += threads) {
    const int count = rows - begin < threads ? static_cast<int>(rows - begin) : threads;
    const int64_t r = begin + thread;
    double var = 0;
    if (thread < count) {
      alphas[thread] = call.alphas.each != nullptr ? call.alphas.each[r] : call.alphas.all;
      own[thread] = moments[r].first;
      var = moments[r].second;
    }
    SyncBlock();
    if (thread == 0) {
      double mean = state[0];
      for (int i = 0; i < count; ++i) {
        mean = alphas[i] * own[i] + (1 - alphas[i]) * mean;
        means[i] = mean;
      }
      state[0] = mean;
    }
    SyncBlock();
    double off = 0, s = 0;
    if (thread < count) {
      off = own[thread] - means[thread];
      s = sqrt((var + off * off) * unbiased);
      own[thread] = s;
    }
    SyncBlock();
    if (thread == 0) {
      double deviation = state[1];
      for (int i = 0; i < count; ++i) {
        deviation = alphas[i] * own[i] + (1 - alphas[i]) * deviation;
        deviations[i] = deviation;
      }
      state[1] = deviation;
    }
    SyncBlock();
    if (thread < count) {
      const C mean = static_cast<C>(means[thread]);
      const C lo = static_cast<C>(means[thread] - static_cast<double>(mean));
      const C rstd = static_cast<C>(1 / deviations[thread]);
      if (call.mean != nullptr) call.mean[r] = mean;
      if (call.mean_lo != nullptr) call.mean_lo[r] = lo;
      if (call.rstd != nullptr) call.rstd[r] = rstd;
      if (call.offset != nullptr) call.offset[r] = static_cast<C>(off);
      if (call.deviation != nullptr) call.deviation[r] = static_cast<C>(s);
      SetXhat<T>(values, r, {mean, rstd, -lo * rstd});
    }
    SyncBlock();
  }
  if (thread == 0) call.state->mean = state[0], call.state->deviation = state[1];
}

// --- Launching ---

template <class T>
class Caller {
 public:
  using C = Compute<T>;

  Caller(const char* function, const ColumnArrays<T>& arrays, const ColumnsPlan& plan,
         const ColumnsPlan& map, const ColumnsSpace& space, void* stream)
      : function_(function),
        arrays_(arrays),
        plan_(plan),
        map_(map),
        space_(space),
        stream_(stream) {}

  double n() const { return static_cast<double>(arrays_.batch * arrays_.spatial); }
  ValuesAt<C> values() const { return {static_cast<C*>(space_.values), arrays_.channels}; }

  template <ColumnSums kSums>
  void Sum(const SavedMoments<C>& saved = {}, const double* shifts = nullptr) const {
    VisitPack<T>(plan_.pack, [&](auto pack) {
      constexpr int N = decltype(pack)::value;
      constexpr bool kRunsAlone =
          kSums == ColumnSums::kSquares || kSums == ColumnSums::kGradientOfRows;
      Launch launch = plan_.launch;
      if constexpr (!kRunsAlone) {
        if (plan_.columns) {
          launch.shared_bytes = 2 * N * launch.threads * static_cast<int64_t>(sizeof(double));
          Run(function_, SumColumns<T, N, kSums>, launch, stream_, arrays_, saved, shifts,
              plan_.team, plan_.parts, plan_.part, space_.pairs);
          return;
        }
      }
      launch.shared_bytes = plan_.team > kWarpThreads ? PairTeam::kSharedBytes : 0;
      Run(function_, SumRuns<T, N, kSums>, launch, stream_, arrays_, saved, shifts, plan_.team,
          plan_.parts, plan_.part, space_.pairs);
    });
  }

  /// `sums` is false if there are none.
  template <class Op>
  void Finish(const Op& op, bool sums = true) const {
    const int64_t count = sums ? plan_.pairs : 0;
    int team = 1;
    while (team < kWarpThreads && team < count) team *= 2;
    const int64_t teams = kColumnsThreads / team, blocks = (arrays_.channels + teams - 1) / teams;
    const Launch launch = {.blocks = blocks < kMaxBlocks ? blocks : kMaxBlocks,
                           .threads = kColumnsThreads};
    Run(function_, cuda::Finish<Op>, launch, stream_, op, arrays_.channels, count, team,
        static_cast<const SumPair*>(space_.pairs));
  }

  /// Computes the sums about a shift. Returns the shifts, or null if they are the first elements.
  const double* SumMoments() const {
    Sum<ColumnSums::kMoments>();
    if constexpr (std::is_same_v<C, double>) {
      Finish(Refine<T>{arrays_, n(), space_.shifts});
      Sum<ColumnSums::kMoments>({}, space_.shifts);
      return space_.shifts;
    }
    return nullptr;
  }

  template <ColumnMap kMap>
  void Map() const {
    VisitPack<T>(map_.pack, [&](auto pack) {
      constexpr int N = decltype(pack)::value;
      const auto* values = static_cast<const C*>(space_.values);
      if constexpr (!kOfRows<kMap>) {
        if (map_.columns) {
          Run(function_, MapColumns<T, N, kMap>, map_.launch, stream_, arrays_, map_.team,
              map_.parts, map_.part, values);
          return;
        }
      }
      Run(function_, MapRuns<T, N, kMap>, map_.launch, stream_, arrays_, map_.team, map_.parts,
          map_.part, values);
    });
  }

 private:
  const char* function_;
  const ColumnArrays<T>& arrays_;
  const ColumnsPlan &plan_, &map_;
  const ColumnsSpace& space_;
  void* stream_;
};

}  // namespace

template <class T>
void RunColumns(const char* function, const BatchForward<T>& call, const ColumnsPlan& plan,
                const ColumnsPlan& map, const ColumnsSpace& space, void* stream) {
  const Caller<T> caller(function, call.arrays, plan, map, space, stream);
  const double* shifts = caller.SumMoments();
  caller.Finish(FinishBatchForward<T>{call, caller.n(), shifts, caller.values()});
  caller.template Map<ColumnMap::kNormalize>();
}

template <class T>
void RunColumns(const char* function, const BatchBackward<T>& call, const ColumnsPlan& plan,
                const ColumnsPlan& map, const ColumnsSpace& space, void* stream) {
  const Caller<T> caller(function, call.arrays, plan, map, space, stream);
  caller.template Sum<ColumnSums::kGradient>(call.saved);
  caller.Finish(FinishBatchBackward<T>{call, caller.n(), caller.values()});
  if (call.arrays.out != nullptr) caller.template Map<ColumnMap::kGradient>();
}

template <class T>
void RunColumns(const char* function, const BatchEvaluate<T>& call, const ColumnsPlan& plan,
                const ColumnsPlan& map, const ColumnsSpace& space, void* stream) {
  using C = Compute<T>;
  const Caller<T> caller(function, call.arrays, plan, map, space, stream);
  const bool gain = call.dgain.data != nullptr, sums = gain || call.dbias.data != nullptr;
  if (sums) {
    // x is null without dgain; every xhat is then 0.
    ColumnArrays<T> arrays = call.arrays;
    if (!gain) arrays.x = arrays.a;
    const Caller<T> summing(function, arrays, plan, map, space, stream);
    summing.template Sum<ColumnSums::kGradient>({.mean = gain ? call.running_mean : nullptr,
                                                 .rstd = call.running_var,
                                                 .kind = SavedMoments<C>::Rstd::kOfVariance,
                                                 .eps = call.eps});
  }
  caller.Finish(FinishBatchEvaluate<T>{call, caller.values()}, sums);
  if (call.arrays.out == nullptr) return;
  if (call.backward) {
    caller.template Map<ColumnMap::kScale>();
  } else {
    caller.template Map<ColumnMap::kNormalize>();
  }
}

template <class T>
void RunColumns(const char* function, const WeightForward<T>& call, const ColumnsPlan& plan,
                const ColumnsPlan& map, const ColumnsSpace& space, void* stream) {
  const Caller<T> caller(function, call.arrays, plan, map, space, stream);
  caller.template Sum<ColumnSums::kSquares>();
  caller.Finish(FinishWeightForward<T>{call, caller.values()});
  caller.template Map<ColumnMap::kScale>();
}

template <class T>
void RunColumns(const char* function, const WeightBackward<T>& call, const ColumnsPlan& plan,
                const ColumnsPlan& map, const ColumnsSpace& space, void* stream) {
  using C = Compute<T>;
  const Caller<T> caller(function, call.arrays, plan, map, space, stream);
  const SavedMoments<C> saved = {.rstd = call.norm, .kind = SavedMoments<C>::Rstd::kOfNorm};
  caller.template Sum<ColumnSums::kGradient>(saved);
  caller.Finish(FinishWeightBackward<T>{call, saved, caller.values()});
  if (call.arrays.out != nullptr) caller.template Map<ColumnMap::kGradient>();
}

template <class T>
void RunColumns(const char* function, const OnlineForward<T>& call, const ColumnsPlan& plan,
                const ColumnsPlan& map, const ColumnsSpace& space, void* stream) {
  const Caller<T> caller(function, call.arrays, plan, map, space, stream);
  const double* shifts = caller.SumMoments();
  caller.Finish(FinishCases<T>{call.arrays, caller.n(), shifts, space.moments});
  const Launch launch = {
      .threads = kColumnsThreads,
      .shared_bytes = (4 * kColumnsThreads + 2) * static_cast<int64_t>(sizeof(double))};
  Run(function, ScanCases<T>, launch, stream, call, static_cast<const SumPair*>(space.moments),
      caller.values());
  caller.template Map<ColumnMap::kNormalizeRows>();
}

template <class T>
void RunColumns(const char* function, const OnlineBackward<T>& call, const ColumnsPlan& plan,
                const ColumnsPlan& map, const ColumnsSpace& space, void* stream) {
  const Caller<T> caller(function, call.arrays, plan, map, space, stream);
  caller.template Sum<ColumnSums::kGradientOfRows>(call.saved);
  caller.Finish(FinishOnlineBackward<T>{call, caller.n(), caller.values()});
  caller.template Map<ColumnMap::kGradientOfRows>();
}

template <class T>
void RunColumns(const char* function, const PositionGradients<T>& call, const ColumnsPlan& plan,
                const ColumnsPlan& map, const ColumnsSpace& space, void* stream) {
  const Caller<T> caller(function, call.arrays, plan, map, space, stream);
  caller.template Sum<ColumnSums::kGradientOfPositions>(call.saved);
  caller.Finish(FinishPositionGradients<T>{call});
}

#define PLANISH_INSTANTIATE(Call)                                                         \
  template void RunColumns(const char*, const Call<PLANISH_ELEMENT>&, const ColumnsPlan&, \
                           const ColumnsPlan&, const ColumnsSpace&, void*);
PLANISH_COLUMNS_CALLS(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace planish::internal::cuda
