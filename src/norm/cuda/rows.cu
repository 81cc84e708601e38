#include <cstdint>
#include <type_traits>

#include "src/base/cuda/elements.h"
#include "src/base/cuda/kernel.h"
#include "src/base/cuda/team.h"
#include "src/norm/cuda/held.h"
#include "src/norm/cuda/params.h"
#include "src/norm/cuda/rows.h"

// A team of threads reads a row once and keeps it in registers. The threads belong to a block or,
// for longer rows, to a cluster. In even longer rows, each pass reads the row again. The mean is a
// sum of two values, so that x - mean has no cancellation error (docs/math.md). Products and sums
// are fused only where the code says so, so results are the same on every device and in the
// emulation.
namespace planish::internal::cuda {

// Partial sums of the parts of a row in a multi-pass plan.
struct PartSums {
  double sum, rest, squares, shift;
};
struct PartGradientSums {
  double sum, product;
};

namespace {

// --- Tuning constants (docs/tuning.md) ---

// Maximum of bytes of gains and biases in shared memory. A block has 48 kB without opting in to
// more.
inline constexpr int64_t kMaxStaged = int64_t{40} << 10;

// Threads of a block that sums partial sums.
inline constexpr int kFinishThreads = 512;

// Partial sums that a thread reads before it adds them.
inline constexpr int kPartialsAtOnce = 8;

// Threads of a block of a grid over columns.
inline constexpr int kColumnsThreads = 256;

// --- End of tuning constants ---

using BlockTeam = WarpsTeam<2>;
using BlocksTeam = ClusterTeam<2>;

// The mean as hi + lo. hi is the mean, rounded.
template <class C>
struct Mean {
  C hi = 0, lo = 0;

  PLANISH_DEVICE C Minus(C x) const { return (x - hi) - lo; }  // x - mean
};

template <class C>
PLANISH_DEVICE Mean<C> TwoSum(C a, C b) {
  const C sum = a + b, of_b = sum - a;
  return {sum, (a - (sum - of_b)) + (b - of_b)};
}

// Returns 1 / deviation from the sum of squares of n differences.
template <class C>
PLANISH_DEVICE C Rstd(C squares, C n, C eps, bool unbiased) {
  return unbiased ? C{1} / (SquareRoot(squares / (n - 1)) + eps)
                  : C{1} / SquareRoot(squares / n + eps);
}

// Returns 1 / deviation of a row whose squares overflow or underflow in float. Computed from the
// differences d - more from the mean, scaled by the largest of them, rounded to a power of two.
template <class Held, class RowTeam>
PLANISH_DEVICE float ScaledRstd(const Held& held, const float* d, float more, int64_t cols,
                                double eps, bool unbiased, RowTeam& team) {
  float max = 0;
  held.ForEach([&](int i) {
    const float size = fabsf(d[i] - more);
    max = max > size ? max : size;
  });
  max = team.Max(max);
  int exponent = static_cast<int>(BitsOf(max) >> 23) - 127;
  exponent = exponent > 126 ? 126 : exponent < -126 ? -126 : exponent;
  const float scale = FloatOfBits(static_cast<uint32_t>(127 - exponent) << 23);
  float squares = 0;
  held.ForEach([&](int i) {
    const float scaled = (d[i] - more) * scale;
    squares = FusedMulAdd(scaled, scaled, squares);
  });
  team.Sum(squares);
  if (!(squares < FloatOfBits(0x7f800000))) return Nan<float>();
  const double n = static_cast<double>(cols), unit = 1.0 / static_cast<double>(scale);
  return static_cast<float>(Rstd(static_cast<double>(squares) * unit * unit, n, eps, unbiased));
}

template <class Held, class RowTeam>
PLANISH_DEVICE double ScaledRstd(const Held&, const double*, double, int64_t, double, bool,
                                 RowTeam&) {
  return Nan<double>();
}

// Returns the sum of squares below which float can have lost digits that eps does not outweigh.
template <class C>
PLANISH_DEVICE C MinSquares(C n, double eps) {
  return std::is_same_v<C, float> && eps < 0x1p-60 ? n * C(0x1p-80f) : C{0};
}

// Returns whether squares can have overflowed or underflowed: in float near its limits, in double
// if they are not finite.
template <class C>
PLANISH_DEVICE bool IsExtreme(C squares, C min_squares) {
  if constexpr (std::is_same_v<C, double>) return squares - squares != 0;
  return !(squares <= C(0x1p100f)) || squares < min_squares;
}

// Returns the shift of a row's sums: its first element, x[0] of the team's first thread. In teams
// that would have to synchronize, each thread reads it from memory. The team sums, and thereby
// synchronizes, before it overwrites the row, except after adding a residual.
template <class T, class RowTeam>
PLANISH_DEVICE Compute<T> ShiftOf(const Forward<T>& a, int64_t row, const Compute<T>* x,
                                  RowTeam& team) {
  if (std::is_same_v<RowTeam, LanesTeam> || a.residual != nullptr) return team.First(x[0]);
  return ToCompute(a.x[row * a.x_stride]);
}

// Returns the bytes at the start of shared memory in which a team sums.
template <class RowTeam>
PLANISH_DEVICE constexpr int SumsBytes() {
  if constexpr (std::is_same_v<RowTeam, LanesTeam>)
    return 0;
  else
    return static_cast<int>(RowTeam::kSharedBytes);
}

// Set if gains and biases are converted once and copied to shared memory: for 16-bit elements,
// whose rows are bound by instructions.
template <class T>
inline constexpr bool kStages = sizeof(T) == 2;

// Returns whether forward reads the next row while it computes one, if the registers for that are
// worth fewer threads.
template <class T, bool kAligned, bool kStaged, class RowTeam>
PLANISH_DEVICE constexpr bool FetchesAhead() {
  if (sizeof(T) != 2) return false;
  if (std::is_same_v<RowTeam, LanesTeam>) return !kAligned;
  return std::is_same_v<RowTeam, BlockTeam> && kAligned && !kStaged;
}

// Returns the end of the last of `count` rows.
template <class T>
PLANISH_DEVICE const T* EndOf(const T* rows, int64_t stride, int64_t count, int64_t cols) {
  return rows == nullptr ? nullptr : rows + (count - 1) * stride + cols;
}

template <class T, int E>
PLANISH_DEVICE void ToValues(const uint32_t (&words)[E / kFullPack<T>][4], Compute<T> (&x)[E]) {
  PLANISH_UNROLL
  for (int v = 0; v < E / kFullPack<T>; ++v) FromWords<T>(words[v], x + v * kFullPack<T>);
}
template <class T, int E>
PLANISH_DEVICE void ToMemory(const Compute<T> (&x)[E], uint32_t (&words)[E / kFullPack<T>][4]) {
  PLANISH_UNROLL
  for (int v = 0; v < E / kFullPack<T>; ++v) ToWords<T>(x + v * kFullPack<T>, words[v]);
}

// Adds the residual to x, rounds the sum to T and writes it.
template <class T, int E, class Row>
PLANISH_DEVICE void AddHeldResidual(const Forward<T>& a, const Row& held, int64_t row, bool has_row,
                                    Compute<T> (&x)[E]) {
  using C = Compute<T>;
  typename Row::Words words, more;
  held.Read(a.residual + row * a.residual_stride,
            EndOf(a.residual, a.residual_stride, a.rows, a.cols), has_row, more);
  C added[E];
  ToValues<T, E>(more, added);
  PLANISH_UNROLL
  for (int i = 0; i < E; ++i) x[i] += added[i];
  ToMemory<T, E>(x, words);
  ToValues<T, E>(words, x);
  held.Write(a.sum + row * a.sum_stride, has_row, words);
}

// Statistics of a row. `squares` is the sum of the squared differences from the mean.
template <class C>
struct RowStatistics {
  Mean<C> mean;
  C more = 0;  // x - more is the difference from the mean, after Centre
  C squares = 0;
};

// Returns the statistics of a row, and replaces x by its differences from an estimate of the mean.
template <class T, int E, class Row, class RowTeam>
PLANISH_DEVICE RowStatistics<Compute<T>> Centre(const Forward<T>& a, const Row& held, int64_t row,
                                                Compute<T> per_n, RowTeam& team,
                                                Compute<T> (&x)[E]) {
  using C = Compute<T>;
  RowStatistics<C> stats;
  if (!a.centre) {
    held.Fill(0, x);
    held.ForEach([&](int i) { stats.squares = FusedMulAdd(x[i], x[i], stats.squares); });
    team.Sum(stats.squares);
    return stats;
  }
  C sum = 0;
  if constexpr (sizeof(T) == 2) {
    // A sum in float is accurate enough, because elements have few digits. It is scaled to stay
    // finite.
    held.Fill(0, x);
    held.ForEach([&](int i) { sum = FusedMulAdd(x[i], 0x1p-17f, sum); });
    team.Sum(sum);
    stats.mean.hi = sum * (0x1p17f * per_n);
  } else {
    const C shift = ShiftOf(a, row, x, team);
    held.Fill(shift, x);
    held.ForEach([&](int i) { sum += x[i] - shift; });
    team.Sum(sum);
    stats.mean.hi = shift + sum * per_n;
  }
  held.Fill(stats.mean.hi, x);
  C rest = 0;
  held.ForEach([&](int i) {
    x[i] -= stats.mean.hi;
    rest += x[i];
    stats.squares = FusedMulAdd(x[i], x[i], stats.squares);
  });
  team.Sum(rest, stats.squares);
  stats.more = rest * per_n;
  stats.squares = FusedMulAdd(-rest, stats.more, stats.squares);
  if (stats.squares < 0) stats.squares = 0;
  const C before = stats.mean.hi;
  stats.mean.hi = before + stats.more;
  stats.mean.lo = stats.more - (stats.mean.hi - before);
  return stats;
}

// Replaces xhat by y. `gains` and `biases` are in shared memory with kStaged.
template <bool kStaged, class T, int E, class Row>
PLANISH_DEVICE void ToOutput(const Forward<T>& a, const Row& held, const Compute<T>* gains,
                             const Compute<T>* biases, Compute<T> (&x)[E]) {
  using C = Compute<T>;
  constexpr int N = Row::kPack;
  if (a.adaptive) {
    held.ForEach([&](int i) { x[i] = a.scale * (C{1} - a.slope * x[i]) * x[i]; });
  } else if (kStaged || a.gain != nullptr || a.bias != nullptr) {
    held.ForEachPack([&](int v) {
      C gain[N], bias[N];
      if constexpr (kStaged) {
        held.ReadStaged(v, gains, gain);
        held.ReadStaged(v, biases, bias);
      } else {
        held.ReadParams(v, a.Gain(), C{1}, gain);
        held.ReadParams(v, a.Bias(), C{0}, bias);
      }
      PLANISH_UNROLL
      for (int j = 0; j < N; ++j) {
        x[v * N + j] = FusedMulAdd(gain[j], x[v * N + j], bias[j]);
      }
    });
  }
}

template <class T, int E, bool kAligned, bool kStaged, class RowTeam>
PLANISH_DEVICE void ForwardOf(const Forward<T>& a, RowTeam team) {
  using C = Compute<T>;
  constexpr bool kLanes = std::is_same_v<RowTeam, LanesTeam>;
  constexpr bool kPrefetches = FetchesAhead<T, kAligned, kStaged, RowTeam>();
  using Row = Held<T, E, kAligned, !kLanes>;
  const Row held(team.size(), team.lane(), static_cast<int>(a.cols));
  const C n = static_cast<C>(a.cols), per_n = C{1} / n, eps = static_cast<C>(a.eps);
  const C min_squares = MinSquares(n, a.eps);
  const T* const end = EndOf(a.x, a.x_stride, a.rows, a.cols);
  C* const gains = SharedMemory<C>() + SumsBytes<RowTeam>() / sizeof(C);
  C* const biases = gains + held.Staged();
  if (kStaged && !a.adaptive) {
    held.StageParams(a.Gain(), C{1}, gains);
    held.StageParams(a.Bias(), C{0}, biases);
    SyncBlock();
  }
  const int64_t step = team.groups() * team.count();
  typename Row::Raw raw;
  const auto fetch = [&](int64_t row) {
    held.Fetch(a.x + row * a.x_stride, end, row < a.rows, raw);
  };
  if (kPrefetches) fetch(team.group() * team.count() + team.index());
  for (int64_t first = team.group() * team.count(); first < a.rows; first += step) {
    const int64_t row = first + team.index();
    const bool has_row = !kLanes || row < a.rows;
    C x[E];
    typename Row::Words words;
    if (!kPrefetches) fetch(row);
    held.Take(a.x + row * a.x_stride, raw, words);
    ToValues<T, E>(words, x);
    if (kPrefetches) fetch(row + step);
    if (a.residual != nullptr) AddHeldResidual<T, E>(a, held, row, has_row, x);

    const auto [mean, more, squares] = Centre<T, E>(a, held, row, per_n, team, x);
    C rstd = Rstd(squares, n, eps, a.unbiased);
    const bool extreme = IsExtreme(squares, min_squares);
    if (team.Any(extreme)) {
      held.Fill(more, x);
      const C scaled = ScaledRstd(held, x, more, a.cols, a.eps, a.unbiased, team);
      if (extreme) rstd = scaled;
    }

    if (has_row && team.lane() == 0) {
      if (a.mean != nullptr) a.mean[row] = mean.hi;
      if (a.mean_lo != nullptr) a.mean_lo[row] = mean.lo;
      if (a.rstd != nullptr) a.rstd[row] = rstd;
    }
    const C off = -more * rstd;
    held.ForEach([&](int i) { x[i] = FusedMulAdd(x[i], rstd, off); });
    ToOutput<kStaged, T, E>(a, held, gains, biases, x);
    ToMemory<T, E>(x, words);
    held.Write(a.y + row * a.y_stride, has_row, words);
  }
}

template <class T, int E, bool kAligned>
PLANISH_KERNEL(kLanesThreads, LanesBlocks(sizeof(T), IsShifted(sizeof(T), kAligned)))
ForwardByLanes(Forward<T> a, int team_size) {
  ForwardOf<T, E, kAligned, kStages<T>>(a, LanesTeam(team_size));
}
template <class T, int E, bool kAligned, bool kStaged>
PLANISH_KERNEL(BoundOfForwardThreads(E, IsShifted(sizeof(T), kAligned)), 1)
ForwardByBlock(Forward<T> a) {
  ForwardOf<T, E, kAligned, kStaged>(a, BlockTeam());
}
template <class T, int E, bool kAligned>
PLANISH_KERNEL(MaxForwardThreads(E, false), 1)
ForwardByCluster(Forward<T> a) {
  if constexpr (kHasClusters) ForwardOf<T, E, kAligned, false>(a, BlocksTeam());
}

// Returns the factor of xhat in dx from the sum of g * xhat. With eps outside the root the sum is
// divided by (n - 1) * s * rstd, and s * rstd = 1 - eps * rstd.
template <class C>
PLANISH_DEVICE C MeanGradientXhat(C sum, C n, C rstd, C eps, bool unbiased) {
  if (!unbiased) return sum / n;
  const C s_rstd = C{1} - eps * rstd;
  return s_rstd > 0 ? sum / ((n - 1) * s_rstd) : C{0};
}

template <class T>
PLANISH_DEVICE Mean<Compute<T>> SavedMean(const Backward<T>& a, int64_t row) {
  Mean<Compute<T>> mean;
  if (a.mean != nullptr) mean = {a.mean[row], a.mean_lo[row]};
  return mean;
}

// Statistics of a row that the forward pass saved.
template <class C>
struct SavedRow {
  Mean<C> mean;
  C rstd = 0;
};

// Replaces the gradient g of y by that of xhat. `gains` are in shared memory with kStaged.
template <bool kStaged, class T, int E, class Row>
PLANISH_DEVICE void ToXhatGradient(const Backward<T>& a, const Row& held, const Compute<T>* gains,
                                   const Compute<T> (&xhat)[E], Compute<T> (&g)[E]) {
  using C = Compute<T>;
  constexpr int N = Row::kPack;
  if (a.adaptive) {
    held.ForEach([&](int i) { g[i] *= a.scale * (C{1} - a.slope * xhat[i]); });
  } else if (a.gain != nullptr) {
    held.ForEachPack([&](int v) {
      C gain[N];
      if constexpr (kStaged) {
        held.ReadStaged(v, gains, gain);
      } else {
        held.ReadParams(v, a.Gain(), C{1}, gain);
      }
      PLANISH_UNROLL
      for (int j = 0; j < N; ++j) g[v * N + j] *= gain[j];
    });
  }
}

// Writes the sums of each column over the block's teams: first within warps, then in order of
// warps.
template <int E, class Row, class RowTeam, class C>
PLANISH_DEVICE void WriteColumnSums(const Row& held, const RowTeam& team, int cols, C (&dgain)[E],
                                    C (&dbias)[E], C* partials) {
  const auto write = [&](C* to) {
    held.ForEachInside([&](int i, int col) {
      to[col] = dgain[i];
      to[cols + col] = dbias[i];
    });
  };
  C* own = partials + team.group() * 2 * cols;
  if constexpr (!std::is_same_v<RowTeam, LanesTeam>) {
    write(own);
  } else {
    const int warp = ThreadIndex() / kWarpThreads, warps = BlockThreads() / kWarpThreads;
    for (int mask = team.size(); mask < kWarpThreads; mask *= 2) {
      PLANISH_UNROLL
      for (int i = 0; i < E; ++i) {
        dgain[i] += XorLane(dgain[i], mask);
        dbias[i] += XorLane(dbias[i], mask);
      }
    }
    C* of_warps = SharedMemory<C>();  // [warps, 2, cols], in place of gains
    SyncBlock();
    if (ThreadIndex() % kWarpThreads < team.size()) write(of_warps + warp * 2 * cols);
    SyncBlock();
    for (int c = ThreadIndex(); c < 2 * cols; c += BlockThreads()) {
      C total = 0;
      for (int w = 0; w < warps; ++w) total += of_warps[w * 2 * cols + c];
      own[c] = total;
    }
  }
}

template <class T, int E, bool kAligned, bool kStaged, class RowTeam>
PLANISH_DEVICE void BackwardOf(const Backward<T>& a, RowTeam team, Compute<T>* partials) {
  using C = Compute<T>;
  constexpr bool kLanes = std::is_same_v<RowTeam, LanesTeam>;
  constexpr bool kPrefetches = sizeof(T) == 2;  // other types need too many registers
  using Row = Held<T, E, kAligned, !kLanes>;
  const int cols = static_cast<int>(a.cols);
  const Row held(team.size(), team.lane(), cols);
  const C n = static_cast<C>(a.cols), eps = static_cast<C>(a.eps);
  const T* const dy_end = EndOf(a.dy, a.dy_stride, a.rows, a.cols);
  const T* const x_end = EndOf(a.x, a.x_stride, a.rows, a.cols);
  C* const gains = SharedMemory<C>() + SumsBytes<RowTeam>() / sizeof(C);
  if (kStaged && !a.adaptive) {
    held.StageParams(a.Gain(), C{1}, gains);
    SyncBlock();
  }
  C dgain[E] = {}, dbias[E] = {};
  const int64_t step = team.groups() * team.count();
  typename Row::Raw raw_dy, raw_x = {};  // raw_x is not read without x
  SavedRow<C> fetched;
  const auto fetch = [&](int64_t row) {
    const bool has_row = row < a.rows;
    fetched = {};
    if (has_row) {
      fetched.rstd = a.rstd[row];
      if (a.x != nullptr) fetched.mean = SavedMean(a, row);
    }
    held.Fetch(a.dy + row * a.dy_stride, dy_end, has_row, raw_dy);
    if (a.x != nullptr) held.Fetch(a.x + row * a.x_stride, x_end, has_row, raw_x);
  };
  if (kPrefetches) fetch(team.group() * team.count() + team.index());
  for (int64_t first = team.group() * team.count(); first < a.rows; first += step) {
    const int64_t row = first + team.index();
    const bool has_row = !kLanes || row < a.rows;
    if (!kPrefetches) fetch(row);
    const Mean<C> mean = fetched.mean;
    const C rstd = fetched.rstd;
    typename Row::Words words;
    C g[E], xhat[E] = {};
    held.Take(a.dy + row * a.dy_stride, raw_dy, words);
    ToValues<T, E>(words, g);
    if (a.x != nullptr) {
      held.Take(a.x + row * a.x_stride, raw_x, words);
      ToValues<T, E>(words, xhat);
    }
    if (kPrefetches) fetch(row + step);
    held.Fill(0, g);
    if (a.x != nullptr) {
      const C off = -mean.lo * rstd;
      held.Fill(mean.hi, xhat);
      held.ForEach([&](int i) { xhat[i] = FusedMulAdd(xhat[i] - mean.hi, rstd, off); });
    }
    if (partials != nullptr) {
      held.ForEach([&](int i) {
        dgain[i] = FusedMulAdd(g[i], xhat[i], dgain[i]);
        dbias[i] += g[i];
      });
    }
    if (a.dx == nullptr) continue;
    ToXhatGradient<kStaged, T, E>(a, held, gains, xhat, g);
    C sum = 0, product = 0;
    held.ForEach([&](int i) {
      sum += g[i];
      product = FusedMulAdd(g[i], xhat[i], product);
    });
    team.Sum(sum, product);
    const C of_all = a.via_mean ? rstd * (sum / n) : C{0};
    const C of_xhat =
        a.via_scale ? rstd * MeanGradientXhat(product, n, rstd, eps, a.unbiased) : C{0};
    held.ForEach(
        [&](int i) { g[i] = FusedMulAdd(g[i], rstd, -FusedMulAdd(xhat[i], of_xhat, of_all)); });
    if (a.dsum != nullptr) {
      held.Read(a.dsum + row * a.dsum_stride, EndOf(a.dsum, a.dsum_stride, a.rows, a.cols), has_row,
                words);
      ToValues<T, E>(words, xhat);
      PLANISH_UNROLL
      for (int i = 0; i < E; ++i) g[i] += xhat[i];
    }
    ToMemory<T, E>(g, words);
    held.Write(a.dx + row * a.dx_stride, has_row, words);
  }
  if (partials != nullptr) WriteColumnSums<E>(held, team, cols, dgain, dbias, partials);
}

template <class T, int E, bool kAligned>
PLANISH_KERNEL(kLanesThreads, 2)
BackwardByLanes(Backward<T> a, int team_size, Compute<T>* partials) {
  BackwardOf<T, E, kAligned, kStages<T>>(a, LanesTeam(team_size), partials);
}
template <class T, int E, bool kAligned, bool kStaged>
PLANISH_KERNEL(MaxBackwardThreads(E, sizeof(T)), 1)
BackwardByBlock(Backward<T> a, Compute<T>* partials) {
  BackwardOf<T, E, kAligned, kStaged>(a, BlockTeam(), partials);
}
template <class T, int E, bool kAligned>
PLANISH_KERNEL(MaxBackwardThreads(E, sizeof(T)), 1)
BackwardByCluster(Backward<T> a, Compute<T>* partials) {
  if constexpr (kHasClusters) BackwardOf<T, E, kAligned, false>(a, BlocksTeam(), partials);
}

// --- Rows that are read again for each pass ---

enum class Phase : uint8_t { kAll, kSum, kSquares, kMap };

// Calls f(col) for the packs of columns [first, last) of this thread.
template <int N, class F>
PLANISH_DEVICE void ForEachPack(int64_t first, int64_t last, F&& f) {
  const int64_t step = static_cast<int64_t>(BlockThreads()) * N;
  for (int64_t col = first + static_cast<int64_t>(ThreadIndex()) * N; col < last; col += step) {
    f(col);
  }
}

// Columns [begin, end) of a row: one of its parts.
struct RowPart {
  int64_t row, part, begin, end;
};

PLANISH_DEVICE RowPart PartOf(int64_t item, int64_t parts, int64_t part_cols, int64_t cols) {
  const int64_t part = item % parts, begin = part * part_cols;
  return {item / parts, part, begin, begin + part_cols < cols ? begin + part_cols : cols};
}

template <class T, int N>
PLANISH_KERNEL(kMaxThreads, 1)
ForwardMultiPass(Forward<T> a, int64_t parts, int64_t part_cols, Phase phase, PartSums* sums) {
  using C = Compute<T>;
  BlockTeam team;
  const double n = static_cast<double>(a.cols);
  for (int64_t item = BlockIndex(); item < a.rows * parts; item += Blocks()) {
    const RowPart of = PartOf(item, parts, part_cols, a.cols);
    const int64_t row = of.row, begin = of.begin, end = of.end;
    const T* x = a.x + row * a.x_stride;
    const PartSums* all = sums == nullptr ? nullptr : sums + row * parts;

    double shift = 0, sum = 0;
    Mean<C> mean;
    if (a.centre) {
      // In place, another block can already have overwritten the first element.
      shift = phase == Phase::kMap ? all[of.part].shift : static_cast<double>(ToCompute(x[0]));
      if (phase == Phase::kAll || phase == Phase::kSum) {
        ForEachPack<N>(begin, end, [&](int64_t col) {
          C values[N];
          Load<N>(x + col, values);
          PLANISH_UNROLL
          for (int j = 0; j < N; ++j) sum += static_cast<double>(values[j]) - shift;
        });
        team.Sum(sum);
      } else {
        for (int64_t p = 0; p < parts; ++p) sum += all[p].sum;
      }
      if constexpr (std::is_same_v<C, double>) {
        mean = TwoSum(shift, sum / n);
      } else {
        const double exact = shift + sum / n;
        mean.hi = static_cast<C>(exact);
        mean.lo = static_cast<C>(exact - static_cast<double>(mean.hi));
      }
    }
    if (phase == Phase::kSum) {
      if (ThreadIndex() == 0) sums[item].sum = sum, sums[item].shift = shift;
      continue;
    }

    double rest = 0, squares = 0;
    if (phase == Phase::kMap) {
      for (int64_t p = 0; p < parts; ++p) rest += all[p].rest, squares += all[p].squares;
    } else {
      ForEachPack<N>(begin, end, [&](int64_t col) {
        C values[N];
        Load<N>(x + col, values);
        PLANISH_UNROLL
        for (int j = 0; j < N; ++j) {
          const double d = static_cast<double>(mean.Minus(values[j]));
          rest += d;
          squares = FusedMulAdd(d, d, squares);
        }
      });
      team.Sum(rest, squares);
    }
    if (phase == Phase::kSquares) {
      if (ThreadIndex() == 0) sums[item].rest = rest, sums[item].squares = squares;
      continue;
    }

    if (a.centre) {
      squares = FusedMulAdd(-rest, rest / n, squares);
      if (squares < 0) squares = 0;
      const Mean<C> before = mean;
      const C lo = before.lo + static_cast<C>(rest / n);
      mean.hi = before.hi + lo;
      mean.lo = lo - (mean.hi - before.hi);
    }
    const C rstd = squares - squares == 0 ? static_cast<C>(Rstd(squares, n, a.eps, a.unbiased))
                                          : Nan<C>();  // an infinity or NaN
    if (of.part == 0 && ThreadIndex() == 0) {
      if (a.mean != nullptr) a.mean[row] = mean.hi;
      if (a.mean_lo != nullptr) a.mean_lo[row] = mean.lo;
      if (a.rstd != nullptr) a.rstd[row] = rstd;
    }
    ForEachPack<N>(begin, end, [&](int64_t col) {
      C values[N], gain[N], bias[N];
      Load<N>(x + col, values);
      LoadParams<T, N>(a.Gain(), col, C{1}, gain);
      LoadParams<T, N>(a.Bias(), col, C{0}, bias);
      PLANISH_UNROLL
      for (int j = 0; j < N; ++j) {
        const C xhat = mean.Minus(values[j]) * rstd;
        values[j] = a.adaptive ? a.scale * (C{1} - a.slope * xhat) * xhat
                               : FusedMulAdd(gain[j], xhat, bias[j]);
      }
      Store<N>(values, a.y + row * a.y_stride + col);
    });
  }
}

template <class T, int N>
PLANISH_KERNEL(kMaxThreads, 1)
AddResidual(Forward<T> a) {
  using C = Compute<T>;
  for (int64_t row = BlockIndexY(); row < a.rows; row += BlocksY()) {
    const int64_t step = Blocks() * BlockThreads() * N;
    for (int64_t col = (BlockIndex() * BlockThreads() + ThreadIndex()) * N; col < a.cols;
         col += step) {
      C values[N], more[N];
      Load<N>(a.x + row * a.x_stride + col, values);
      Load<N>(a.residual + row * a.residual_stride + col, more);
      PLANISH_UNROLL
      for (int j = 0; j < N; ++j) values[j] += more[j];
      Store<N>(values, a.sum + row * a.sum_stride + col);
    }
  }
}

template <class T, int N>
PLANISH_KERNEL(kMaxThreads, 1)
BackwardMultiPass(Backward<T> a, int64_t parts, int64_t part_cols, Phase phase,
                  PartGradientSums* sums) {
  using C = Compute<T>;
  BlockTeam team;
  const double n = static_cast<double>(a.cols);
  for (int64_t item = BlockIndex(); item < a.rows * parts; item += Blocks()) {
    const RowPart of = PartOf(item, parts, part_cols, a.cols);
    const int64_t row = of.row, begin = of.begin, end = of.end;
    const Mean<C> mean = SavedMean(a, row);
    const C rstd = a.rstd[row];
    // Computes g and xhat of the pack at column `col`.
    const auto load = [&](int64_t col, C* g, C* xhat) {
      C gain[N];
      Load<N>(a.dy + row * a.dy_stride + col, g);
      LoadParams<T, N>(a.Gain(), col, C{1}, gain);
      if (a.x != nullptr) Load<N>(a.x + row * a.x_stride + col, xhat);
      PLANISH_UNROLL
      for (int j = 0; j < N; ++j) {
        xhat[j] = a.x != nullptr ? mean.Minus(xhat[j]) * rstd : C{0};
        g[j] *= a.adaptive ? a.scale * (C{1} - a.slope * xhat[j]) : gain[j];
      }
    };
    double sum = 0, product = 0;
    if (phase == Phase::kMap) {
      for (int64_t p = 0; p < parts; ++p) {
        sum += sums[row * parts + p].sum;
        product += sums[row * parts + p].product;
      }
    } else {
      ForEachPack<N>(begin, end, [&](int64_t col) {
        C g[N], xhat[N] = {};
        load(col, g, xhat);
        PLANISH_UNROLL
        for (int j = 0; j < N; ++j) {
          sum += static_cast<double>(g[j]);
          product = FusedMulAdd(static_cast<double>(g[j]), static_cast<double>(xhat[j]), product);
        }
      });
      team.Sum(sum, product);
    }
    if (phase == Phase::kSum) {
      if (ThreadIndex() == 0) sums[item] = {sum, product};
      continue;
    }
    const C mean_g = a.via_mean ? static_cast<C>(sum / n) : C{0};
    const C mean_gx = a.via_scale ? static_cast<C>(MeanGradientXhat(
                                        product, n, static_cast<double>(rstd), a.eps, a.unbiased))
                                  : C{0};
    ForEachPack<N>(begin, end, [&](int64_t col) {
      C g[N], xhat[N] = {}, more[N] = {};
      load(col, g, xhat);
      if (a.dsum != nullptr) Load<N>(a.dsum + row * a.dsum_stride + col, more);
      PLANISH_UNROLL
      for (int j = 0; j < N; ++j) {
        const C of_norm = rstd * FusedMulAdd(-xhat[j], mean_gx, g[j] - mean_g);
        g[j] = a.dsum != nullptr ? of_norm + more[j] : of_norm;
      }
      Store<N>(g, a.dx + row * a.dx_stride + col);
    });
  }
}

// Computes partial sums of dgain and dbias in a multi-pass plan, one thread for each column.
template <class T>
PLANISH_KERNEL(kMaxThreads, 1)
SumColumns(Backward<T> a, int64_t count, int64_t partial_rows, Compute<T>* partials) {
  using C = Compute<T>;
  const int64_t step = Blocks() * BlockThreads();
  for (int64_t p = BlockIndexY(); p < count; p += BlocksY()) {
    const int64_t begin = p * partial_rows;
    const int64_t end = begin + partial_rows < a.rows ? begin + partial_rows : a.rows;
    for (int64_t col = BlockIndex() * BlockThreads() + ThreadIndex(); col < a.cols; col += step) {
      C dgain = 0, dbias = 0;
      for (int64_t row = begin; row < end; ++row) {
        const C dy = ToCompute(a.dy[row * a.dy_stride + col]);
        C xhat = 0;
        if (a.x != nullptr) {
          xhat = SavedMean(a, row).Minus(ToCompute(a.x[row * a.x_stride + col])) * a.rstd[row];
        }
        dgain = FusedMulAdd(dy, xhat, dgain);
        dbias += dy;
      }
      partials[p * 2 * a.cols + col] = dgain;
      partials[(p * 2 + 1) * a.cols + col] = dbias;
    }
  }
}

// Sums `count` partial sums [count, 2, cols]: those of dgain if BlockIndexY() is 0, else of dbias.
template <class C, class G>
PLANISH_KERNEL(kFinishThreads, 1)
FinishColumns(const C* partials, int64_t count, int64_t cols, G* dgain, G* dbias) {
  constexpr int kSlices = kFinishThreads / kWarpThreads;
  G* out = BlockIndexY() == 0 ? dgain : dbias;
  if (out == nullptr) return;
  const int lane = ThreadIndex() % kWarpThreads, slice = ThreadIndex() / kWarpThreads;
  for (int64_t first = BlockIndex() * kWarpThreads; first < cols;
       first += Blocks() * kWarpThreads) {
    const int64_t col = first + lane;
    double sum = 0;
    if (col < cols) {
      const C* from = partials + BlockIndexY() * cols + col;
      int64_t p = slice;
      for (; p + (kPartialsAtOnce - 1) * kSlices < count; p += kPartialsAtOnce * kSlices) {
        C parts[kPartialsAtOnce];
        PLANISH_UNROLL
        for (int i = 0; i < kPartialsAtOnce; ++i) parts[i] = from[(p + i * kSlices) * 2 * cols];
        PLANISH_UNROLL
        for (int i = 0; i < kPartialsAtOnce; ++i) sum += static_cast<double>(parts[i]);
      }
      for (; p < count; p += kSlices) sum += static_cast<double>(from[p * 2 * cols]);
    }
    sum = SumOverWarps<kSlices>(sum);
    if (slice == 0 && col < cols) out[col] = FromCompute<G>(static_cast<C>(sum));
  }
}

// --- Launching ---

// Calls f(held, aligned) with the plan's values as constants; `held` is one of kHeld.
template <int... kHeld, class F>
void VisitHeld(const RowsPlan& plan, F&& f) {
  const auto visit = [&](auto held) {
    if (plan.held != decltype(held)::value) return;
    if (plan.aligned) {
      f(held, std::true_type());
    } else {
      f(held, std::false_type());
    }
  };
  (visit(std::integral_constant<int, kHeld>()), ...);
}

// Returns a grid over columns, and over `count` rows or groups of rows.
Launch OverColumns(int64_t cols, int pack, int64_t count) {
  const int64_t blocks = CeilDiv(cols, int64_t{kColumnsThreads} * pack);
  return {.blocks = blocks < kMaxBlocks ? blocks : kMaxBlocks,
          .blocks_y = count < kMaxBlocksY ? count : kMaxBlocksY,
          .threads = kColumnsThreads};
}

}  // namespace

template <class T>
void RunForward(const char* function, const Forward<T>& call, const RowsPlan& plan, void* stream,
                void* workspace) {
  Launch launch = plan.launch;
  if (launch.cluster > 1) {
    launch.shared_bytes = BlocksTeam::kSharedBytes;
    VisitHeld<ForwardClusterHeld(sizeof(T))>(plan, [&](auto held, auto aligned) {
      Run(function, ForwardByCluster<T, decltype(held)::value, decltype(aligned)::value>, launch,
          stream, call);
    });
    return;
  }
  if (!plan.multi_pass) {
    const auto run = [&](auto held, auto aligned) {
      constexpr int E = decltype(held)::value;
      constexpr bool kAligned = decltype(aligned)::value;
      if (plan.team <= kWarpThreads) {
        if (kStages<T>) launch.shared_bytes = 2 * StagedBytes<T>(call.cols);
        Run(function, ForwardByLanes<T, E, kAligned>, launch, stream, call, plan.team);
      } else {
        launch.shared_bytes = BlockTeam::kSharedBytes;
        const int64_t params = 2 * StagedBytes<T>(call.cols);
        if (kStages<T> && params <= kMaxStaged) {
          launch.shared_bytes += params;
          Run(function, ForwardByBlock<T, E, kAligned, kStages<T>>, launch, stream, call);
        } else {
          Run(function, ForwardByBlock<T, E, kAligned, false>, launch, stream, call);
        }
      }
    };
    if constexpr (sizeof(T) == 8) {
      VisitHeld<8>(plan, run);
    } else if constexpr (sizeof(T) == 4) {
      VisitHeld<8, 16>(plan, run);
    } else {
      VisitHeld<8, 16, 32>(plan, run);
    }
    return;
  }
  VisitPack<T>(plan.pack, [&](auto pack) {
    constexpr int N = decltype(pack)::value;
    Forward<T> rows = call;
    if (call.residual != nullptr) {
      Run(function, AddResidual<T, N>, OverColumns(call.cols, N, call.rows), stream, call);
      rows.x = call.sum;
      rows.x_stride = call.sum_stride;
    }
    launch.shared_bytes = BlockTeam::kSharedBytes;
    const auto run = [&](Phase phase) {
      Run(function, ForwardMultiPass<T, N>, launch, stream, rows, plan.parts, plan.part_cols, phase,
          plan.parts == 1 ? nullptr : static_cast<PartSums*>(workspace));
    };
    if (plan.parts == 1) return run(Phase::kAll);
    for (const Phase phase : {Phase::kSum, Phase::kSquares, Phase::kMap}) run(phase);
  });
}

template <class T>
void RunBackward(const char* function, const Backward<T>& call, const RowsPlan& plan, void* stream,
                 void* workspace) {
  using C = Compute<T>;
  const bool several = plan.multi_pass && plan.parts > 1;
  auto* sums = several ? static_cast<PartGradientSums*>(workspace) : nullptr;
  auto* partials =
      static_cast<C*>(several ? static_cast<void*>(sums + call.rows * plan.parts) : workspace);
  const bool columns = plan.partials > 0;
  Launch launch = plan.launch;
  if (launch.cluster > 1) {
    launch.shared_bytes = BlocksTeam::kSharedBytes;
    VisitHeld<kBackwardClusterHeld>(plan, [&](auto held, auto aligned) {
      Run(function, BackwardByCluster<T, decltype(held)::value, decltype(aligned)::value>, launch,
          stream, call, columns ? partials : nullptr);
    });
  } else if (!plan.multi_pass) {
    const auto run = [&](auto held, auto aligned) {
      constexpr int E = decltype(held)::value;
      constexpr bool kAligned = decltype(aligned)::value;
      if (plan.team <= kWarpThreads) {
        const int64_t of_warps =
            columns ? launch.threads / kWarpThreads * 2 * call.cols * int64_t{sizeof(C)} : 0;
        const int64_t gains = kStages<T> ? StagedBytes<T>(call.cols) : 0;
        launch.shared_bytes = of_warps > gains ? of_warps : gains;
        Run(function, BackwardByLanes<T, E, kAligned>, launch, stream, call, plan.team,
            columns ? partials : nullptr);
      } else {
        launch.shared_bytes = BlockTeam::kSharedBytes;
        const int64_t gains = StagedBytes<T>(call.cols);
        if (kStages<T> && gains <= kMaxStaged) {
          launch.shared_bytes += gains;
          Run(function, BackwardByBlock<T, E, kAligned, kStages<T>>, launch, stream, call,
              columns ? partials : nullptr);
        } else {
          Run(function, BackwardByBlock<T, E, kAligned, false>, launch, stream, call,
              columns ? partials : nullptr);
        }
      }
    };
    if constexpr (sizeof(T) == 8) {
      VisitHeld<8>(plan, run);
    } else {
      VisitHeld<8, 16>(plan, run);
    }
  } else {
    VisitPack<T>(plan.pack, [&](auto pack) {
      constexpr int N = decltype(pack)::value;
      if (columns) {
        Run(function, SumColumns<T>, OverColumns(call.cols, 1, plan.partials), stream, call,
            plan.partials, plan.partial_rows, partials);
      }
      if (call.dx == nullptr) return;
      launch.shared_bytes = BlockTeam::kSharedBytes;
      const auto run = [&](Phase phase) {
        Run(function, BackwardMultiPass<T, N>, launch, stream, call, plan.parts, plan.part_cols,
            phase, sums);
      };
      if (plan.parts == 1) return run(Phase::kAll);
      run(Phase::kSum);
      run(Phase::kMap);
    });
  }
  if (!columns) return;
  Launch finish = {.blocks = CeilDiv(call.cols, kWarpThreads),
                   .blocks_y = 2,
                   .threads = kFinishThreads,
                   .shared_bytes = kFinishThreads * sizeof(double)};
  if (finish.blocks > kMaxBlocks) finish.blocks = kMaxBlocks;
  const auto run = [&]<class G>(G* dgain, G* dbias) {
    Run(function, FinishColumns<C, G>, finish, stream, static_cast<const C*>(partials),
        plan.partials, call.cols, dgain, dbias);
  };
  if (call.params_are_float && !std::is_same_v<T, float>) {
    run(static_cast<float*>(call.dgain), static_cast<float*>(call.dbias));
  } else {
    run(static_cast<T*>(call.dgain), static_cast<T*>(call.dbias));
  }
}

template void RunForward(const char*, const Forward<PLANISH_ELEMENT>&, const RowsPlan&, void*,
                         void*);
template void RunBackward(const char*, const Backward<PLANISH_ELEMENT>&, const RowsPlan&, void*,
                          void*);

}  // namespace planish::internal::cuda
