#include <cstdint>
#include <type_traits>

#include "src/base/cuda/elements.h"
#include "src/base/cuda/kernel.h"
#include "src/base/cuda/team.h"
#include "src/norm/cuda/columns.h"
#include "src/norm/cuda/params.h"

// All sums are in double, so squares of floats neither overflow nor underflow. Sums about an
// element of the channel keep all digits that a float has. For doubles, the sums about the
// channel's first element give a second shift, which is close to the mean.
namespace planish::internal::cuda {
namespace {

using PairTeam = Team<2>;

// Functions of CUDA's library. They are not in a header, so that kernels that include math.h call
// its functions, which have the same bits on every device.
template <class C>
PLANISH_DEVICE C Tanh(C x) {
  if constexpr (std::is_same_v<C, float>) {
    return tanhf(x);
  } else {
    return tanh(x);
  }
}
template <class C>
PLANISH_DEVICE C Erf(C x) {
  if constexpr (std::is_same_v<C, float>) {
    return erff(x);
  } else {
    return erf(x);
  }
}
template <class C>
PLANISH_DEVICE C Exp(C x) {
  if constexpr (std::is_same_v<C, float>) {
    return expf(x);
  } else {
    return exp(x);
  }
}

template <class C>
struct XhatMap {
  C mean, rstd, offset;

  PLANISH_DEVICE C operator()(C x) const { return FusedMulAdd(x - mean, rstd, offset); }
};

template <class C>
PLANISH_DEVICE XhatMap<C> XhatAt(const SavedStatistics<C>& saved, int64_t i) {
  using Rstd = typename SavedStatistics<C>::Rstd;
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

// A pointwise function and its derivative at alpha * x + shift.
template <class C>
struct PointwiseMap {
  bool is_tanh;
  C alpha, shift;

  PLANISH_DEVICE C At(C x) const { return FusedMulAdd(alpha, x, shift); }
  PLANISH_DEVICE C operator()(C x) const { return is_tanh ? Tanh(At(x)) : Erf(At(x)); }
  PLANISH_DEVICE C Slope(C x) const {
    const C z = At(x), size = z < 0 ? -z : z;
    if (is_tanh) {  // 1 - tanh(z)^2 would cancel
      const C e = Exp(-2 * size), sum = 1 + e;
      return 4 * e / (sum * sum);
    }
    if (size > C{30}) return z == z ? C{0} : z;  // exp(-z^2) is 0
    const C square = z * z, rest = FusedMulAdd(z, z, -square);
    const C power = Exp(-square);
    return FusedMulAdd(-power, rest, power) * static_cast<C>(1.1283791670955126);
  }
};

template <class T>
PLANISH_DEVICE PointwiseMap<Compute<T>> PointwiseOf(const PointwiseCall& call) {
  using C = Compute<T>;
  return {call.function == Pointwise::kTanh, ParamAt<T>(call.alpha, 0, C{1}),
          ParamAt<T>(call.shift, 0, C{0})};
}

// Doubles are scaled before they are squared, so that a double holds the sum of squares. The scale
// is kLargeScale for magnitudes of at least kLarge, else kSmallScale.
inline constexpr double kLarge = 0x1p12, kLargeScale = 0x1p-522, kSmallScale = 0x1p480;

template <ChannelSums kSums>
inline constexpr bool kHasStatistics =
    kSums == ChannelSums::kGradient || kSums == ChannelSums::kGradientOfRows;
template <ChannelSums kSums>
inline constexpr bool kIsPointwise =
    kSums == ChannelSums::kPointwise || kSums == ChannelSums::kPointwiseSlope;
template <ChannelSums kSums>
inline constexpr bool kReadsX =
    kHasStatistics<kSums> || kIsPointwise<kSums> || kSums == ChannelSums::kGradientOfPositions;
template <ChannelMap kMap>
inline constexpr bool kMapReadsX =
    IsGradient(kMap) || kMap == ChannelMap::kGradientOfRows || kMap == ChannelMap::kPointwiseSlope;
template <ChannelMap kMap>
inline constexpr bool kOfRows =
    kMap == ChannelMap::kNormalizeRows || kMap == ChannelMap::kGradientOfRows;

// --- Tuning constants (docs/tuning.md) ---

// Packs that a thread loads at a time, as many as the registers allow.
template <ChannelSums kSums>
inline constexpr int kSumFlight = kSums == ChannelSums::kGradientOfPositions ? 1
                                  : kReadsX<kSums>                           ? 2
                                                                             : 4;
template <ChannelMap kMap>
inline constexpr int kMapFlight = kMapReadsX<kMap> || kOfRows<kMap> ? 2 : 4;

// --- End of tuning constants ---

template <ChannelSums kSums, class C>
PLANISH_DEVICE void AddTerm(C a, C x, double shift, const XhatMap<C>& xhat, double& first,
                            double& second) {
  if constexpr (kSums == ChannelSums::kStatistics) {
    const double d = static_cast<double>(a) - shift;
    first += d;
    second = FusedMulAdd(d, d, second);
  } else if constexpr (kSums == ChannelSums::kSquares) {
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

// AddTerm for the sums of pointwise functions.
template <ChannelSums kSums, class C>
PLANISH_DEVICE void AddPointwise(C a, C x, const PointwiseMap<C>& f, double& first,
                                 double& second) {
  if constexpr (kSums == ChannelSums::kPointwise) {
    const auto number = static_cast<double>(a);
    first += number;
    second = FusedMulAdd(number, static_cast<double>(f(x)), second);
  } else {
    const double g = static_cast<double>(a) * static_cast<double>(f.Slope(x));
    first = FusedMulAdd(g, static_cast<double>(x), first);
    second += g;
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

// kFlight packs of a run, which a thread loads before it uses them.
template <class T, int N, int kFlight, bool kReadX>
struct RunPacks {
  using C = Compute<T>;
  C a[kFlight][N] = {}, x[kFlight][N] = {};
  int64_t index[kFlight], s[kFlight], at[kFlight];  // as in RunWalk

  PLANISH_DEVICE RunPacks(const ColumnArrays<T>& arrays, RunWalk& walk) {
    PLANISH_UNROLL
    for (int f = 0; f < kFlight; ++f) {
      index[f] = walk.index;
      s[f] = walk.s;
      at[f] = walk.at;
      if (walk.Has()) {
        Load<N>(arrays.a + walk.at, a[f]);
        if constexpr (kReadX) Load<N>(arrays.x + walk.at, x[f]);
      }
      walk.Advance();
    }
  }
};

// A matrix [batch, channels * spatial] in tiles of columns: a pack for each of `team` threads.
template <int N>
struct ColumnTiles {
  int64_t width, tile_width, count;

  template <class T>
  PLANISH_DEVICE ColumnTiles(const ColumnArrays<T>& arrays, int team)
      : width(arrays.channels * arrays.spatial),
        tile_width(static_cast<int64_t>(team) * N),
        count((width + tile_width - 1) / tile_width) {}
};

// Packs of a column in kFlight rows, which a thread loads before it uses them.
template <class T, int N, int kFlight, bool kReadX>
struct ColumnPacks {
  using C = Compute<T>;
  C a[kFlight][N] = {}, x[kFlight][N] = {};

  // Loads rows b, b + step ... before `end`.
  PLANISH_DEVICE ColumnPacks(const ColumnArrays<T>& arrays, int64_t width, int64_t col, int64_t b,
                             int64_t step, int64_t end) {
    PLANISH_UNROLL
    for (int f = 0; f < kFlight; ++f) {
      const int64_t row = b + f * step;
      if (row >= end) continue;
      Load<N>(arrays.a + row * width + col, a[f]);
      if constexpr (kReadX) Load<N>(arrays.x + row * width + col, x[f]);
    }
  }
};

// Returns the shift of the channel's sums: the given one, or its first element.
template <class T>
PLANISH_DEVICE double ShiftOf(const T* a, int64_t spatial, const double* shifts, int64_t c) {
  return shifts != nullptr ? shifts[c] : static_cast<double>(ToCompute(a[c * spatial]));
}

// Returns the end of part `part` of `all` elements.
PLANISH_DEVICE int64_t EndOfPart(int64_t part, int64_t length, int64_t all) {
  const int64_t end = (part + 1) * length;
  return end < all ? end : all;
}

template <class T, int N, ChannelSums kSums>
PLANISH_KERNEL(kColumnsThreads, 3)
SumRuns(ColumnArrays<T> arrays, SavedStatistics<Compute<T>> saved, const double* shifts,
        int team_size, int64_t parts, int64_t part_length, SumPair* pairs) {
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
      if constexpr (kSums == ChannelSums::kStatistics) {
        shift = ShiftOf(arrays.a, arrays.spatial, shifts, c);
      }
      XhatMap<C> xhat = {};
      if constexpr (kHasStatistics<kSums>) xhat = XhatAt(saved, c / saved.group);
      PointwiseMap<C> pointwise = {};
      if constexpr (kIsPointwise<kSums>) pointwise = PointwiseOf<T>(arrays.pointwise);
      RunWalk walk(arrays.channels, arrays.spatial, c, part * part_length,
                   EndOfPart(part, part_length, n), static_cast<int64_t>(team.lane()) * N,
                   static_cast<int64_t>(team_size) * N);
      while (walk.Has()) {
        const RunPacks<T, N, kFlight, kReadsX<kSums>> packs(arrays, walk);
        PLANISH_UNROLL
        for (int f = 0; f < kFlight; ++f) {
          if (packs.index[f] >= walk.end) continue;
          PLANISH_UNROLL
          for (int j = 0; j < N; ++j) {
            C a = packs.a[f][j];
            if constexpr (kSums == ChannelSums::kGradientOfRows) {
              a *= ParamAt<T>(arrays.gain, packs.s[f] + j, C{1});
            } else if constexpr (kSums == ChannelSums::kGradientOfPositions) {
              xhat = XhatAt(saved, packs.index[f] + j);
            }
            if constexpr (kIsPointwise<kSums>) {
              AddPointwise<kSums>(a, packs.x[f][j], pointwise, first, second);
            } else {
              AddTerm<kSums>(a, packs.x[f][j], shift, xhat, first, second);
            }
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
template <class T, int N, ChannelSums kSums>
PLANISH_KERNEL(kColumnsThreads, 2)
SumColumns(ColumnArrays<T> arrays, SavedStatistics<Compute<T>> saved, const double* shifts,
           int team, int64_t parts, int64_t part_length, SumPair* pairs) {
  using C = Compute<T>;
  constexpr int kFlight = kSumFlight<kSums>;
  const ThreadMatrix block(team);
  const ColumnTiles<N> tiles(arrays, team);
  for (int64_t item = BlockIndex(); item < tiles.count * parts; item += Blocks()) {
    const int64_t tile = item % tiles.count, part = item / tiles.count;
    const int64_t col = tile * tiles.tile_width + static_cast<int64_t>(block.x) * N;
    double first[N] = {}, second[N] = {};
    if (col < tiles.width) {
      XhatMap<C> xhat[N] = {};
      double shift[N] = {};
      int64_t s[N] = {};
      PLANISH_UNROLL
      for (int j = 0; j < N; ++j) {
        const int64_t c = (col + j) / arrays.spatial;
        s[j] = col + j - c * arrays.spatial;
        if constexpr (kSums == ChannelSums::kStatistics) {
          shift[j] = ShiftOf(arrays.a, arrays.spatial, shifts, c);
        } else if constexpr (kHasStatistics<kSums>) {
          xhat[j] = XhatAt(saved, c / saved.group);
        }
      }
      PointwiseMap<C> pointwise = {};
      if constexpr (kIsPointwise<kSums>) pointwise = PointwiseOf<T>(arrays.pointwise);
      const int64_t end = EndOfPart(part, part_length, arrays.batch);
      for (int64_t b = part * part_length + block.y; b < end; b += block.rows * kFlight) {
        const ColumnPacks<T, N, kFlight, kReadsX<kSums>> packs(arrays, tiles.width, col, b,
                                                               block.rows, end);
        PLANISH_UNROLL
        for (int f = 0; f < kFlight; ++f) {
          const int64_t row = b + f * block.rows;
          if (row >= end) continue;
          PLANISH_UNROLL
          for (int j = 0; j < N; ++j) {
            if constexpr (kSums == ChannelSums::kGradientOfPositions) {
              xhat[j] = XhatAt(saved, row * arrays.spatial + s[j]);
            }
            if constexpr (kIsPointwise<kSums>) {
              AddPointwise<kSums>(packs.a[f][j], packs.x[f][j], pointwise, first[j], second[j]);
            } else {
              AddTerm<kSums>(packs.a[f][j], packs.x[f][j], shift[j], xhat[j], first[j], second[j]);
            }
          }
        }
      }
    }
    block.SumColumns(first, second);
    if (block.y == 0 && col < tiles.width) {
      PLANISH_UNROLL
      for (int j = 0; j < N; ++j) {
        pairs[(col + j) * parts + part] = {block.Sum(0, j), block.Sum(1, j)};
      }
    }
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

template <ChannelMap kMap>
inline constexpr int kParameterCount = ParameterCount(kMap);
template <ChannelMap kMap>
inline constexpr bool kIsPointwiseMap = IsPointwise(kMap);

template <ChannelMap kMap, class C>
PLANISH_DEVICE C Mapped(C a, C x, const C* v, C gain, C bias, bool is_tanh) {
  if constexpr (kMap == ChannelMap::kNormalize) {
    return FusedMulAdd(a - v[0], v[1], v[2]);
  } else if constexpr (kMap == ChannelMap::kScale) {
    return a * v[0];
  } else if constexpr (kIsPointwiseMap<kMap>) {
    const PointwiseMap<C> f = {kMap == ChannelMap::kTanh, v[0], v[1]};
    return FusedMulAdd(f(a), v[2], v[3]);
  } else if constexpr (kMap == ChannelMap::kPointwiseSlope) {
    const PointwiseMap<C> f = {is_tanh, v[0], v[1]};
    return a * f.Slope(x) * v[2];
  } else if constexpr (kMap == ChannelMap::kNormalizeRows) {
    return FusedMulAdd(gain, FusedMulAdd(a - v[0], v[1], v[2]), bias);
  } else if constexpr (kMap == ChannelMap::kGroupGradient) {
    return FusedMulAdd(v[0] - x, v[3], FusedMulAdd(v[4], a, -v[2])) * v[1];
  } else {
    const C xhat = FusedMulAdd(x - v[0], v[1], v[2]);
    if constexpr (kMap == ChannelMap::kGradientOfRows) {
      return FusedMulAdd(-xhat, v[4], gain * a - v[3]) * v[1];
    } else {
      return FusedMulAdd(-xhat, v[4], a - v[3]) * v[5];
    }
  }
}

// Processes the last item first: the L2 cache still holds what the sums read last.
template <class T, int N, ChannelMap kMap>
PLANISH_KERNEL(kColumnsThreads, 3)
MapRuns(ColumnArrays<T> arrays, int team, int64_t parts, int64_t part_length,
        const Compute<T>* values) {
  using C = Compute<T>;
  constexpr int kFlight = kMapFlight<kMap>, kParameters = kParameterCount<kMap>;
  const bool is_tanh = arrays.pointwise.function == Pointwise::kTanh;
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
      RunPacks<T, N, kFlight, kMapReadsX<kMap>> packs(arrays, walk);
      PLANISH_UNROLL
      for (int f = 0; f < kFlight; ++f) {
        if (packs.index[f] >= walk.end) continue;
        C(&a)[N] = packs.a[f];
        PLANISH_UNROLL
        for (int j = 0; j < N; ++j) {
          C gain = 1, bias = 0;
          if constexpr (kOfRows<kMap>) gain = ParamAt<T>(arrays.gain, packs.s[f] + j, C{1});
          if constexpr (kMap == ChannelMap::kNormalizeRows) {
            bias = ParamAt<T>(arrays.bias, packs.s[f] + j, C{0});
          }
          a[j] = Mapped<kMap>(a[j], packs.x[f][j], v, gain, bias, is_tanh);
        }
        Store<N>(a, arrays.out + packs.at[f]);
      }
    }
  }
}

template <class T, int N, ChannelMap kMap>
PLANISH_KERNEL(kColumnsThreads, 2)
MapColumns(ColumnArrays<T> arrays, int team, int64_t parts, int64_t part_length,
           const Compute<T>* values) {
  using C = Compute<T>;
  constexpr int kFlight = kMapFlight<kMap>, kParameters = kParameterCount<kMap>;
  const bool is_tanh = arrays.pointwise.function == Pointwise::kTanh;
  const ThreadMatrix block(team);
  const ColumnTiles<N> tiles(arrays, team);
  const int64_t items = tiles.count * parts;
  for (int64_t turn = BlockIndex(); turn < items; turn += Blocks()) {
    const int64_t item = items - 1 - turn, tile = item % tiles.count, part = item / tiles.count;
    const int64_t col = tile * tiles.tile_width + static_cast<int64_t>(block.x) * N;
    if (col >= tiles.width) continue;
    C v[N][kParameters];
    PLANISH_UNROLL
    for (int j = 0; j < N; ++j) {
      const int64_t c = (col + j) / arrays.spatial;
      PLANISH_UNROLL
      for (int i = 0; i < kParameters; ++i) v[j][i] = values[i * arrays.channels + c];
    }
    const int64_t end = EndOfPart(part, part_length, arrays.batch);
    for (int64_t b = part * part_length + block.y; b < end; b += block.rows * kFlight) {
      ColumnPacks<T, N, kFlight, kMapReadsX<kMap>> packs(arrays, tiles.width, col, b, block.rows,
                                                         end);
      PLANISH_UNROLL
      for (int f = 0; f < kFlight; ++f) {
        const int64_t row = b + f * block.rows;
        if (row >= end) continue;
        C(&a)[N] = packs.a[f];
        PLANISH_UNROLL
        for (int j = 0; j < N; ++j) {
          a[j] = Mapped<kMap>(a[j], packs.x[f][j], v[j], C{1}, C{0}, is_tanh);
        }
        Store<N>(a, arrays.out + row * tiles.width + col);
      }
    }
  }
}

// --- From a channel's sums to the parameters of its elementwise operation ---

template <class C>
struct ValuesAt {
  C* values;
  int64_t channels;

  PLANISH_DEVICE void Set(int i, int64_t c, double value) const {
    values[i * channels + c] = static_cast<C>(value);
  }
};

// Statistics of n elements from their sums about a shift.
struct ChannelStatistics {
  double offset, var;  // mean = shift + offset; var is biased
};

PLANISH_DEVICE ChannelStatistics StatisticsOf(double first, double second, double n) {
  const double offset = first / n;
  double var = FusedMulAdd(-offset, first, second) / n;
  if (var < 0) var = 0;
  // An overflowed variance gives NaN, like an infinity in the input.
  if (!IsFinite(var)) return {Nan<double>(), Nan<double>()};
  return {offset, var};
}

template <class T>
struct Refine {
  const T* a;
  int64_t spatial;
  double n;
  double* shifts;

  PLANISH_DEVICE void operator()(int64_t c, double first, double) const {
    shifts[c] = ShiftOf(a, spatial, nullptr, c) + first / n;
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
    const double shift = ShiftOf(call.x, call.spatial, shifts, c);
    ChannelStatistics m = StatisticsOf(first, second, n);
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
    const double gain = ParamAsDouble<T>(call.Gain(), c, 1);
    values.Set(0, c, static_cast<double>(mean));
    values.Set(1, c, gain * rstd);
    values.Set(2, c, ParamAsDouble<T>(call.Bias(), c, 0) - rest * rstd * gain);
  }
};

template <class T>
PLANISH_DEVICE void SetXhat(const ValuesAt<Compute<T>>& values, int64_t c,
                            const XhatMap<Compute<T>>& xhat) {
  values.Set(0, c, static_cast<double>(xhat.mean));
  values.Set(1, c, static_cast<double>(xhat.rstd));
  values.Set(2, c, static_cast<double>(xhat.offset));
}

// Writes the gradients of gain and bias from the sums of kGradient.
template <class T, class Call>
PLANISH_DEVICE void SetGradients(const Call& call, int64_t c, double first, double second) {
  SetParam<T>(call.GainGradient(), c, static_cast<Compute<T>>(second));
  SetParam<T>(call.BiasGradient(), c, static_cast<Compute<T>>(first));
}

template <class T>
struct FinishBatchBackward {
  using C = Compute<T>;
  BatchBackward<T> call;
  SavedStatistics<C> saved;
  double n;
  ValuesAt<C> values;

  PLANISH_DEVICE void operator()(int64_t c, double first, double second) const {
    SetGradients<T>(call, c, first, second);
    SetXhat<T>(values, c, XhatAt(saved, c));
    values.Set(3, c, first / n);
    values.Set(4, c, second / (call.unbiased ? n - 1 : n));
    values.Set(5, c, ParamAsDouble<T>(call.Gain(), c, 1) * static_cast<double>(call.rstd[c]));
  }
};

// gain / sqrt(running_var + eps).
template <class T, class Call>
PLANISH_DEVICE double EvaluateScale(const Call& call, int64_t c) {
  const double rstd = 1 / sqrt(static_cast<double>(call.running_var[c]) + call.eps);
  return ParamAsDouble<T>(call.Gain(), c, 1) * rstd;
}

template <class T>
struct FinishBatchEvaluate {
  BatchEvaluate<T> call;
  ValuesAt<Compute<T>> values;

  PLANISH_DEVICE void operator()(int64_t c, double, double) const {
    values.Set(0, c, static_cast<double>(call.running_mean[c]));
    values.Set(1, c, EvaluateScale<T>(call, c));
    values.Set(2, c, ParamAsDouble<T>(call.Bias(), c, 0));
  }
};

template <class T>
struct FinishBatchEvaluateBackward {
  BatchEvaluateBackward<T> call;
  ValuesAt<Compute<T>> values;

  PLANISH_DEVICE void operator()(int64_t c, double first, double second) const {
    SetGradients<T>(call, c, first, second);
    values.Set(0, c, EvaluateScale<T>(call, c));
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
    values.Set(0, c, ParamAsDouble<T>(call.Lengths(), c, 1) / norm);
  }
};

template <class T>
struct FinishWeightBackward {
  using C = Compute<T>;
  WeightBackward<T> call;
  SavedStatistics<C> saved;
  ValuesAt<C> values;

  PLANISH_DEVICE void operator()(int64_t c, double, double second) const {
    SetParam<T>(call.LengthGradients(), c, static_cast<C>(second));
    SetXhat<T>(values, c, XhatAt(saved, c));
    values.Set(2, c, 0);
    values.Set(3, c, 0);
    values.Set(4, c, second);
    values.Set(5, c, ParamAsDouble<T>(call.Lengths(), c, 1) / static_cast<double>(call.norm[c]));
  }
};

// Computes the mean and the biased variance of each case.
template <class T>
struct FinishCases {
  OnlineForward<T> call;
  double n;
  const double* shifts;
  SumPair* statistics;

  PLANISH_DEVICE void operator()(int64_t c, double first, double second) const {
    const ChannelStatistics m = StatisticsOf(first, second, n);
    statistics[c] = {ShiftOf(call.x, call.cols, shifts, c) + m.offset, m.var};
  }
};

template <class T>
struct FinishOnlineBackward {
  using C = Compute<T>;
  OnlineBackward<T> call;
  SavedStatistics<C> saved;
  double n;
  ValuesAt<C> values;

  PLANISH_DEVICE void operator()(int64_t c, double first, double second) const {
    const double alpha = call.alphas[c];
    const auto s = static_cast<double>(call.deviation[c]);
    const auto rstd = static_cast<double>(call.rstd[c]);
    const double scale = s == 0 ? 0 : alpha * n / ((n - 1) * s * rstd);
    const double mean_g_xhat = second / n * scale;
    SetXhat<T>(values, c, XhatAt(saved, c));
    values.Set(
        3, c, first / n * alpha - alpha * static_cast<double>(call.offset[c]) * rstd * mean_g_xhat);
    values.Set(4, c, mean_g_xhat);
  }
};

template <class T>
struct FinishPositionGradients {
  PositionGradients<T> call;

  PLANISH_DEVICE void operator()(int64_t c, double first, double second) const {
    SetGradients<T>(call, c, first, second);
  }
};

template <class T>
struct FinishGroupForward {
  using C = Compute<T>;
  GroupForward<T> call;
  double n;  // elements of a group
  const double* shifts;
  ValuesAt<C> values;  // of the channels of all samples

  PLANISH_DEVICE void operator()(int64_t g, double first, double second) const {
    const int64_t size = call.channels / call.groups;
    const double shift = ShiftOf(call.x, size * call.spatial, shifts, g);
    const ChannelStatistics m = StatisticsOf(first, second, n);
    const double rstd = 1 / sqrt(m.var + call.eps);
    const C mean = static_cast<C>(shift + m.offset);
    const double rest = (shift - static_cast<double>(mean)) + m.offset;
    if (call.mean != nullptr) call.mean[g] = mean;
    if (call.mean_lo != nullptr) call.mean_lo[g] = static_cast<C>(rest);
    if (call.rstd != nullptr) call.rstd[g] = static_cast<C>(rstd);
    for (int64_t i = 0; i < size; ++i) {
      const int64_t of_all = g * size + i, c = of_all % call.channels;
      // The bias absorbs mean_lo, which is exact for a constant group.
      const double gain = ParamAsDouble<T>(call.Gain(), c, 1);
      values.Set(0, of_all, static_cast<double>(mean));
      values.Set(1, of_all, gain * rstd);
      values.Set(2, of_all, ParamAsDouble<T>(call.Bias(), c, 0) - rest * rstd * gain);
    }
  }
};

// Stores the sums of a channel of a sample, for its group and for the gradients.
template <class T>
struct StoreGroupSums {
  GroupBackward<T> call;

  PLANISH_DEVICE void operator()(int64_t of_all, double first, double second) const {
    const int64_t b = of_all / call.channels, c = of_all - b * call.channels;
    const double gain = ParamAsDouble<T>(call.Gain(), c, 1);
    call.by_group[of_all] = {first * gain, second * gain};
    call.by_channel[c * call.batch + b] = {first, second};
  }
};

template <class T>
struct FinishGroupBackward {
  using C = Compute<T>;
  GroupBackward<T> call;
  SavedStatistics<C> saved;
  double n;  // elements of a group
  ValuesAt<C> values;

  PLANISH_DEVICE void operator()(int64_t g, double first, double second) const {
    const int64_t size = call.channels / call.groups;
    const XhatMap<C> xhat = XhatAt(saved, g);
    const double mean_g = first / n, mean_g_xhat = second / n;
    for (int64_t of_all = g * size; of_all < (g + 1) * size; ++of_all) {
      values.Set(0, of_all, xhat.mean);
      values.Set(1, of_all, xhat.rstd);
      values.Set(2, of_all, mean_g + xhat.offset * mean_g_xhat);
      values.Set(3, of_all, mean_g_xhat * xhat.rstd);
      values.Set(4, of_all, ParamAsDouble<T>(call.Gain(), of_all % call.channels, 1));
    }
  }
};

template <class T>
struct FinishGroupGradients {
  GroupBackward<T> call;

  PLANISH_DEVICE void operator()(int64_t c, double first, double second) const {
    SetGradients<T>(call, c, first, second);
  }
};

template <class T>
struct FinishPointwiseForward {
  using C = Compute<T>;
  PointwiseForward<T> call;
  ValuesAt<C> values;

  PLANISH_DEVICE void operator()(int64_t c, double, double) const {
    values.Set(0, c, ParamAsDouble<T>(call.Alpha(), 0, 1));
    values.Set(1, c, ParamAsDouble<T>(call.Shift(), 0, 0));
    values.Set(2, c, ParamAsDouble<T>(call.Gain(), c, 1));
    values.Set(3, c, ParamAsDouble<T>(call.Bias(), c, 0));
  }
};

// Also writes the parameters of the elementwise operation.
template <class T>
struct FinishPointwiseBackward {
  using C = Compute<T>;
  PointwiseBackward<T> call;
  ValuesAt<C> values;

  PLANISH_DEVICE void operator()(int64_t c, double first, double second) const {
    SetGradients<T>(call, c, first, second);
    const double alpha = ParamAsDouble<T>(call.Alpha(), 0, 1);
    values.Set(0, c, alpha);
    values.Set(1, c, ParamAsDouble<T>(call.Shift(), 0, 0));
    values.Set(2, c, ParamAsDouble<T>(call.Gain(), c, 1) * alpha);
  }
};

// Multiplies the sums of kPointwiseSlope by the gain.
template <class T>
struct FinishPointwiseSlope {
  PointwiseBackward<T> call;
  SumPair* products;

  PLANISH_DEVICE void operator()(int64_t c, double first, double second) const {
    const double gain = ParamAsDouble<T>(call.Gain(), c, 1);
    products[c] = {first * gain, second * gain};
  }
};

// Adds the products of all channels, in one warp.
template <class T>
struct FinishPointwiseScalars {
  PointwiseBackward<T> call;

  PLANISH_DEVICE void operator()(int64_t, double first, double second) const {
    SetParam<T>(call.AlphaGradient(), 0, static_cast<Compute<T>>(first));
    SetParam<T>(call.ShiftGradient(), 0, static_cast<Compute<T>>(second));
  }
};

// Scans the state over all cases, in one block. One thread computes the two recurrences, each a
// chain of products and sums. All other work has one thread for each case.
template <class T>
PLANISH_KERNEL(kColumnsThreads, 1)
ScanCases(OnlineForward<T> call, const SumPair* statistics, ValuesAt<Compute<T>> values) {
  using C = Compute<T>;
  double* alphas = SharedMemory<double>();  // [4, threads], then the state
  const int threads = BlockThreads(), thread = ThreadIndex();
  double* means = alphas + threads;
  double* own = means + threads;
  double* deviations = own + threads;
  double* state = deviations + threads;
  const int64_t rows = call.rows;
  const auto n = static_cast<double>(call.cols);
  const double unbiased = n / (n - 1);
  if (thread == 0) state[0] = call.state->mean, state[1] = call.state->deviation;
  for (int64_t begin = 0; begin < rows; begin += threads) {
    const int count = rows - begin < threads ? static_cast<int>(rows - begin) : threads;
    const int64_t r = begin + thread;
    double var = 0;
    if (thread < count) {
      alphas[thread] = call.alphas[r];
      own[thread] = statistics[r].first;
      var = statistics[r].second;
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

// Launches the kernels of a call.
template <class T>
struct Caller {
  using C = Compute<T>;

  ColumnArrays<T> arrays;
  const ColumnsRun& run;

  double n() const { return static_cast<double>(arrays.batch * arrays.spatial); }
  ValuesAt<C> values() const { return {static_cast<C*>(run.space.values), arrays.channels}; }

  template <ChannelSums kSums>
  void Sum(const SavedStatistics<C>& saved = {}, const double* shifts = nullptr) const {
    const ColumnsPlan& plan = run.sums;
    VisitPack<T>(plan.pack, [&](auto pack) {
      constexpr int N = decltype(pack)::value;
      constexpr bool kRunsAlone =
          kSums == ChannelSums::kSquares || kSums == ChannelSums::kGradientOfRows;
      Launch launch = plan.launch;
      const auto sum = [&](auto* kernel, int64_t shared_bytes) {
        launch.shared_bytes = shared_bytes;
        Run(run.function, kernel, launch, run.stream, arrays, saved, shifts, plan.team, plan.parts,
            plan.part, run.space.pairs);
      };
      if constexpr (!kRunsAlone) {
        if (plan.columns) {
          return sum(SumColumns<T, N, kSums>,
                     2 * N * launch.threads * static_cast<int64_t>(sizeof(double)));
        }
      }
      sum(SumRuns<T, N, kSums>, plan.team > kWarpThreads ? PairTeam::kSharedBytes : 0);
    });
  }

  /// `has_sums` is false for a call without sums.
  template <class Op>
  void Finish(const Op& op, bool has_sums = true) const {
    FinishPairs(op, arrays.channels, has_sums ? run.sums.pairs : 0, run.space.pairs);
  }

  /// Adds `count` pairs for each of `channels` channels.
  template <class Op>
  void FinishPairs(const Op& op, int64_t channels, int64_t count, const SumPair* pairs) const {
    int team = 1;
    while (team < kWarpThreads && team < count) team *= 2;
    const int64_t teams = kColumnsThreads / team, blocks = CeilDiv(channels, teams);
    const Launch launch = {.blocks = blocks < kMaxBlocks ? blocks : kMaxBlocks,
                           .threads = kColumnsThreads};
    Run(run.function, cuda::Finish<Op>, launch, run.stream, op, channels, count, team, pairs);
  }

  /// Computes the sums about a shift. Returns the shifts, or null if they are the first elements.
  const double* SumStatistics() const {
    Sum<ChannelSums::kStatistics>();
    if constexpr (std::is_same_v<C, double>) {
      Finish(Refine<T>{arrays.a, arrays.spatial, n(), run.space.shifts});
      Sum<ChannelSums::kStatistics>({}, run.space.shifts);
      return run.space.shifts;
    }
    return nullptr;
  }

  /// Does nothing without an output.
  template <ChannelMap kMap>
  void Map() const {
    if (arrays.out == nullptr) return;
    const ColumnsPlan& plan = run.map;
    VisitPack<T>(plan.pack, [&](auto pack) {
      constexpr int N = decltype(pack)::value;
      const auto map = [&](auto* kernel) {
        Run(run.function, kernel, plan.launch, run.stream, arrays, plan.team, plan.parts, plan.part,
            static_cast<const C*>(run.space.values));
      };
      if constexpr (!kOfRows<kMap>) {
        if (plan.columns) return map(MapColumns<T, N, kMap>);
      }
      map(MapRuns<T, N, kMap>);
    });
  }
};

template <class T, class Call>
SavedStatistics<Compute<T>> SavedOf(const Call& call) {
  return {.mean = call.mean, .mean_lo = call.mean_lo, .rstd = call.rstd};
}

template <class T>
void Start(const BatchForward<T>& call, const Caller<T>& caller) {
  const double* shifts = caller.SumStatistics();
  caller.Finish(FinishBatchForward<T>{call, caller.n(), shifts, caller.values()});
  caller.template Map<ChannelMap::kNormalize>();
}

template <class T>
void Start(const BatchBackward<T>& call, const Caller<T>& caller) {
  const auto saved = SavedOf<T>(call);
  caller.template Sum<ChannelSums::kGradient>(saved);
  caller.Finish(FinishBatchBackward<T>{call, saved, caller.n(), caller.values()});
  caller.template Map<ChannelMap::kGradient>();
}

template <class T>
void Start(const BatchEvaluate<T>& call, const Caller<T>& caller) {
  caller.Finish(FinishBatchEvaluate<T>{call, caller.values()}, false);
  caller.template Map<ChannelMap::kNormalize>();
}

template <class T>
void Start(const BatchEvaluateBackward<T>& call, Caller<T> caller) {
  using Saved = SavedStatistics<Compute<T>>;
  const bool gain = call.dgain != nullptr, sums = gain || call.dbias != nullptr;
  // Without dgain, x is null, and the sum that would need it is not used.
  if (!gain) caller.arrays.x = caller.arrays.a;
  if (sums) {
    caller.template Sum<ChannelSums::kGradient>({.mean = gain ? call.running_mean : nullptr,
                                                 .rstd = call.running_var,
                                                 .kind = Saved::Rstd::kOfVariance,
                                                 .eps = call.eps});
  }
  caller.Finish(FinishBatchEvaluateBackward<T>{call, caller.values()}, sums);
  caller.template Map<ChannelMap::kScale>();
}

template <class T>
void Start(const WeightForward<T>& call, const Caller<T>& caller) {
  caller.template Sum<ChannelSums::kSquares>();
  caller.Finish(FinishWeightForward<T>{call, caller.values()});
  caller.template Map<ChannelMap::kScale>();
}

template <class T>
void Start(const WeightBackward<T>& call, const Caller<T>& caller) {
  using Saved = SavedStatistics<Compute<T>>;
  const Saved saved = {.rstd = call.norm, .kind = Saved::Rstd::kOfNorm};
  caller.template Sum<ChannelSums::kGradient>(saved);
  caller.Finish(FinishWeightBackward<T>{call, saved, caller.values()});
  caller.template Map<ChannelMap::kGradient>();
}

template <class T>
void Start(const OnlineForward<T>& call, Caller<T> caller) {
  const double* shifts = caller.SumStatistics();
  const ColumnsRun& run = caller.run;
  caller.Finish(FinishCases<T>{call, caller.n(), shifts, run.space.statistics});
  const Launch launch = {
      .threads = kColumnsThreads,
      .shared_bytes = (4 * kColumnsThreads + 2) * static_cast<int64_t>(sizeof(double))};
  Run(run.function, ScanCases<T>, launch, run.stream, call,
      static_cast<const SumPair*>(run.space.statistics), caller.values());
  caller.arrays.gain = {call.gain, call.params_are_float};
  caller.arrays.bias = {call.bias, call.params_are_float};
  caller.template Map<ChannelMap::kNormalizeRows>();
}

template <class T>
void Start(const OnlineBackward<T>& call, Caller<T> caller) {
  const auto saved = SavedOf<T>(call);
  caller.arrays.gain = {call.gain, call.params_are_float};
  caller.template Sum<ChannelSums::kGradientOfRows>(saved);
  caller.Finish(FinishOnlineBackward<T>{call, saved, caller.n(), caller.values()});
  caller.template Map<ChannelMap::kGradientOfRows>();
}

template <class T>
void Start(const PositionGradients<T>& call, const Caller<T>& caller) {
  caller.template Sum<ChannelSums::kGradientOfPositions>(SavedOf<T>(call));
  caller.Finish(FinishPositionGradients<T>{call});
}

template <class T>
void Start(const GroupForward<T>& call, const Caller<T>& caller) {
  // The sums of a group are those of a long channel.
  Caller<T> sums = caller;
  sums.arrays.channels = call.batch * call.groups;
  sums.arrays.spatial = call.channels / call.groups * call.spatial;
  const double* shifts = sums.SumStatistics();
  sums.Finish(FinishGroupForward<T>{call, sums.n(), shifts, caller.values()});
  caller.template Map<ChannelMap::kNormalize>();
}

template <class T>
void Start(const GroupBackward<T>& call, const Caller<T>& caller) {
  auto saved = SavedOf<T>(call);
  const int64_t size = call.channels / call.groups;
  saved.group = size;
  caller.template Sum<ChannelSums::kGradient>(saved);
  caller.Finish(StoreGroupSums<T>{call});
  if (call.dx != nullptr) {
    const double n = static_cast<double>(size * call.spatial);
    caller.FinishPairs(FinishGroupBackward<T>{call, saved, n, caller.values()},
                       call.batch * call.groups, size, call.by_group);
  }
  if (call.dgain != nullptr || call.dbias != nullptr) {
    caller.FinishPairs(FinishGroupGradients<T>{call}, call.channels, call.batch, call.by_channel);
  }
  caller.template Map<ChannelMap::kGroupGradient>();
}

template <class T>
void Start(const PointwiseForward<T>& call, const Caller<T>& caller) {
  caller.Finish(FinishPointwiseForward<T>{call, caller.values()}, false);
  if (call.function == Pointwise::kTanh) {
    caller.template Map<ChannelMap::kTanh>();
  } else {
    caller.template Map<ChannelMap::kErf>();
  }
}

template <class T>
void Start(const PointwiseBackward<T>& call, Caller<T> caller) {
  caller.arrays.pointwise = {call.function, call.Alpha(), call.Shift()};
  const bool features = call.dgain != nullptr || call.dbias != nullptr;
  if (features) caller.template Sum<ChannelSums::kPointwise>();
  caller.Finish(FinishPointwiseBackward<T>{call, caller.values()}, features);
  if (call.dalpha != nullptr || call.dshift != nullptr) {
    SumPair* products = caller.run.space.statistics;
    caller.template Sum<ChannelSums::kPointwiseSlope>();
    caller.Finish(FinishPointwiseSlope<T>{call, products});
    caller.FinishPairs(FinishPointwiseScalars<T>{call}, 1, call.cols, products);
  }
  caller.template Map<ChannelMap::kPointwiseSlope>();
}

}  // namespace

template <template <class> class Call, class T>
void RunColumns(const Call<T>& call, const ColumnsRun& run) {
  Start(call, Caller<T>{{ArraysOf(call), {}, {}, {}}, run});
}

#define PLANISH_INSTANTIATE(Call) template void RunColumns(const Call&, const ColumnsRun&);
PLANISH_COLUMNS_CALLS(PLANISH_INSTANTIATE, PLANISH_ELEMENT)
#undef PLANISH_INSTANTIATE

}  // namespace planish::internal::cuda
