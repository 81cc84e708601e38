#include <cstdint>
#include <type_traits>

#include "src/base/cuda/elements.h"
#include "src/base/cuda/kernel.h"
#include "src/base/cuda/team.h"
#include "src/norm/cuda/params.h"
#include "src/norm/cuda/rows.h"

// Norms of rows on a GPU. A row is shared by a team of threads and lies in their registers from its
// one reading on: lane l of a team of s holds the packs l, l + s, l + 2 s, ... of N numbers. The
// team is of a block's threads or, for longer rows and where the device has them, of a cluster's. A
// row that is too long for that is read again for each pass over it, by one block or several.
//
// The mean is kept as a sum of two numbers, near enough to x for x - mean to be exact
// (docs/math.md); products and sums are fused where it is written, and nowhere else, so that
// results are the same on every device and in its emulation.
namespace planish::internal::cuda {

// What the parts of a row tell each other.
struct PartSums {
  double sum, rest, squares, shift;
};
struct PartGradientSums {
  double sum, product;
};

namespace {

using BlockTeam = Team<2>;
using BlocksTeam = ClusterTeam<2>;

// mean = hi + lo, hi the nearest number to it.
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

// 1 over the deviation, from the sum of squares of n numbers.
template <class C>
PLANISH_DEVICE C Rstd(C squares, C n, C eps, bool unbiased) {
  return unbiased ? C{1} / (SquareRoot(squares / (n - 1)) + eps)
                  : C{1} / SquareRoot(squares / n + eps);
}

// The numbers of a row that a thread holds.
template <int N, int E>
struct Held {
  PLANISH_DEVICE Held(int team_size, int team_lane, int columns, bool has_row)
      : size(team_size), lane(team_lane), cols(has_row ? columns : 0) {}

  /// Calls f(i, col) for each pack: numbers i, ..., i + N - 1 are those of columns col and on.
  template <class F>
  PLANISH_DEVICE void ForEachPack(F&& f) const {
    PLANISH_UNROLL
    for (int v = 0; v < E / N; ++v) {
      const int col = (v * size + lane) * N;
      if (col < cols) f(v * N, col);
    }
  }

  /// Calls f(i) for each number.
  template <class F>
  PLANISH_DEVICE void ForEach(F&& f) const {
    ForEachPack([&](int i, int) {
      PLANISH_UNROLL
      for (int j = 0; j < N; ++j) f(i + j);
    });
  }

  int size, lane, cols;
};

// 1 over the deviation of a row whose squares are beyond what a float holds, or nearly 0, from the
// numbers divided by a power of two near the largest of them.
template <int N, int E, class RowTeam>
PLANISH_DEVICE float ScaledRstd(const Held<N, E>& held, const float* x, const Mean<float>& mean,
                                int64_t cols, double eps, bool unbiased, RowTeam& team) {
  float most = 0;
  held.ForEach([&](int i) {
    const float d = fabsf(mean.Minus(x[i]));
    most = most > d ? most : d;
  });
  most = team.Max(most);
  int exponent = static_cast<int>(BitsOf(most) >> 23) - 127;
  exponent = exponent > 126 ? 126 : exponent < -126 ? -126 : exponent;
  const float scale = FloatOfBits(static_cast<uint32_t>(127 - exponent) << 23);
  float squares = 0;
  held.ForEach([&](int i) {
    const float d = mean.Minus(x[i]) * scale;
    squares = FusedMulAdd(d, d, squares);
  });
  team.Sum(squares);
  if (!(squares < FloatOfBits(0x7f800000))) return Nan<float>();
  const double n = static_cast<double>(cols), unit = 1.0 / static_cast<double>(scale);
  return static_cast<float>(Rstd(static_cast<double>(squares) * unit * unit, n, eps, unbiased));
}

template <int N, int E, class RowTeam>
PLANISH_DEVICE double ScaledRstd(const Held<N, E>&, const double*, const Mean<double>&, int64_t,
                                 double, bool, RowTeam&) {
  return Nan<double>();
}

// Whether squares may have been lost: float's, beyond what it holds or nearly 0. Of double those
// that are not finite.
template <class C>
PLANISH_DEVICE bool IsExtreme(C squares, C n, double eps) {
  if constexpr (std::is_same_v<C, double>) return squares - squares != 0;
  return !(squares <= C(0x1p100f)) || (eps < 0x1p-60 && squares < n * C(0x1p-80f));
}

// What sums of a row are taken about: its first number, x[0] of the team's first thread.
template <class T>
PLANISH_DEVICE Compute<T> Shift(const Forward<T>&, int64_t, const Compute<T>* x, BlockTeam& team) {
  return team.First(x[0]);
}
// Blocks would have to meet for that: each thread reads it, beside its own. Nobody writes over it
// before they meet for the sum, but where a residual is added.
template <class T>
PLANISH_DEVICE Compute<T> Shift(const Forward<T>& a, int64_t row, const Compute<T>* x,
                                BlocksTeam& team) {
  return a.residual == nullptr ? ToCompute(a.x[row * a.x_stride]) : team.First(x[0]);
}

template <class T, int N, int E, class RowTeam>
PLANISH_DEVICE void ForwardOf(const Forward<T>& a, RowTeam team) {
  using C = Compute<T>;
  const C n = static_cast<C>(a.cols);
  const int64_t step = team.groups() * team.count();
  for (int64_t first = team.group() * team.count(); first < a.rows; first += step) {
    const int64_t row = first + team.index();
    const bool has_row = row < a.rows;
    const Held<N, E> held(team.size(), team.lane(), static_cast<int>(a.cols), has_row);
    C x[E] = {};
    held.ForEachPack([&](int i, int col) { Load<N>(a.x + row * a.x_stride + col, x + i); });
    if (a.residual != nullptr) {
      held.ForEachPack([&](int i, int col) {
        C more[N];
        Load<N>(a.residual + row * a.residual_stride + col, more);
        PLANISH_UNROLL
        for (int j = 0; j < N; ++j) x[i + j] = ToCompute(FromCompute<T>(x[i + j] + more[j]));
        Store<N>(x + i, a.sum + row * a.sum_stride + col);
      });
    }

    Mean<C> mean;
    if (a.centre) {
      const C shift = Shift(a, row, x, team);
      C sum = 0;
      held.ForEach([&](int i) { sum += x[i] - shift; });
      team.Sum(sum);
      mean = TwoSum(shift, sum / n);
    }
    C rest = 0, squares = 0;
    held.ForEach([&](int i) {
      const C d = mean.Minus(x[i]);
      rest += d;
      squares = FusedMulAdd(d, d, squares);
    });
    team.Sum(rest, squares);
    if (a.centre) {
      const C more = rest / n;
      squares = FusedMulAdd(-rest, more, squares);
      if (squares < 0) squares = 0;
      const Mean<C> before = mean;
      mean.hi = before.hi + (before.lo + more);
      mean.lo = (before.lo + more) - (mean.hi - before.hi);
    }
    C rstd = Rstd(squares, n, static_cast<C>(a.eps), a.unbiased);
    const bool extreme = IsExtreme(squares, n, a.eps);
    if (team.Any(extreme)) {
      const C scaled = ScaledRstd(held, x, mean, a.cols, a.eps, a.unbiased, team);
      if (extreme) rstd = scaled;
    }

    if (has_row && team.lane() == 0) {
      if (a.mean != nullptr) a.mean[row] = mean.hi;
      if (a.mean_lo != nullptr) a.mean_lo[row] = mean.lo;
      if (a.rstd != nullptr) a.rstd[row] = rstd;
    }
    held.ForEachPack([&](int i, int col) {
      C gain[N], bias[N], y[N];
      LoadParams<T, N>(a.gain, col, C{1}, gain);
      LoadParams<T, N>(a.bias, col, C{0}, bias);
      PLANISH_UNROLL
      for (int j = 0; j < N; ++j) {
        const C xhat = mean.Minus(x[i + j]) * rstd;
        y[j] = a.adaptive ? a.scale * (C{1} - a.slope * xhat) * xhat
                          : FusedMulAdd(gain[j], xhat, bias[j]);
      }
      Store<N>(y, a.y + row * a.y_stride + col);
    });
  }
}

template <class T, int N, int E>
PLANISH_KERNEL(MaxForwardThreads(N), 1)
ForwardHeld(Forward<T> a, int team_size) {
  ForwardOf<T, N, E>(a, BlockTeam(team_size));
}
template <class T, int N, int E>
PLANISH_KERNEL(MaxForwardThreads(N), 1)
ForwardShared(Forward<T> a) {
  if constexpr (kHasClusters) ForwardOf<T, N, E>(a, BlocksTeam());
}

// What dx takes off g times xhat, from the sum of g * xhat. With the deviation s and eps beside it
// it is over (n - 1) * s * rstd, and s * rstd = 1 - eps * rstd.
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

template <class T, int N, int E, class RowTeam>
PLANISH_DEVICE void BackwardOf(const Backward<T>& a, RowTeam team, Compute<T>* partials) {
  using C = Compute<T>;
  const C n = static_cast<C>(a.cols);
  const int cols = static_cast<int>(a.cols);
  C dgain[E] = {}, dbias[E] = {};
  const int64_t step = team.groups() * team.count();
  for (int64_t first = team.group() * team.count(); first < a.rows; first += step) {
    const int64_t row = first + team.index();
    const bool has_row = row < a.rows;
    const Held<N, E> held(team.size(), team.lane(), cols, has_row);
    C xhat[E] = {}, g[E] = {};
    held.ForEachPack([&](int i, int col) { Load<N>(a.dy + row * a.dy_stride + col, g + i); });
    if (a.x != nullptr) {
      held.ForEachPack([&](int i, int col) { Load<N>(a.x + row * a.x_stride + col, xhat + i); });
    }
    const C rstd = has_row ? a.rstd[row] : C{0};
    if (a.x != nullptr && has_row) {
      const Mean<C> mean = SavedMean(a, row);
      held.ForEach([&](int i) { xhat[i] = mean.Minus(xhat[i]) * rstd; });
    }
    if (partials != nullptr) {
      held.ForEach([&](int i) {
        dgain[i] = FusedMulAdd(g[i], xhat[i], dgain[i]);
        dbias[i] += g[i];
      });
    }
    if (a.dx == nullptr) continue;
    C sum = 0, product = 0;
    held.ForEachPack([&](int i, int col) {
      C gain[N];
      LoadParams<T, N>(a.gain, col, C{1}, gain);
      PLANISH_UNROLL
      for (int j = 0; j < N; ++j) {
        const C factor = a.adaptive ? a.scale * (C{1} - a.slope * xhat[i + j]) : gain[j];
        g[i + j] *= factor;
        sum += g[i + j];
        product = FusedMulAdd(g[i + j], xhat[i + j], product);
      }
    });
    team.Sum(sum, product);
    const C mean_g = a.via_mean ? sum / n : C{0};
    const C mean_gx =
        a.via_scale ? MeanGradientXhat(product, n, rstd, static_cast<C>(a.eps), a.unbiased) : C{0};
    held.ForEachPack([&](int i, int col) {
      C dx[N], more[N] = {};
      if (a.dsum != nullptr) Load<N>(a.dsum + row * a.dsum_stride + col, more);
      PLANISH_UNROLL
      for (int j = 0; j < N; ++j) {
        const C of_norm = rstd * FusedMulAdd(-xhat[i + j], mean_gx, g[i + j] - mean_g);
        dx[j] = a.dsum != nullptr ? of_norm + more[j] : of_norm;
      }
      Store<N>(dx, a.dx + row * a.dx_stride + col);
    });
  }
  if (partials == nullptr) return;

  // The sums of each column, over the block's teams: those of a warp, then warp after warp.
  C* own = partials + team.group() * 2 * cols;
  const Held<N, E> held(team.size(), team.lane(), cols, true);
  if (std::is_same_v<RowTeam, BlocksTeam> || team.size() >= kWarpThreads * 2 ||
      BlockThreads() == kWarpThreads) {
    held.ForEachPack([&](int i, int col) {
      PLANISH_UNROLL
      for (int j = 0; j < N; ++j) {
        own[col + j] = dgain[i + j];
        own[cols + col + j] = dbias[i + j];
      }
    });
    return;
  }
  const int warp = ThreadIndex() / kWarpThreads, warps = BlockThreads() / kWarpThreads;
  for (int mask = team.size(); mask < kWarpThreads; mask *= 2) {
    PLANISH_UNROLL
    for (int i = 0; i < E; ++i) {
      dgain[i] += XorLane(dgain[i], mask);
      dbias[i] += XorLane(dbias[i], mask);
    }
  }
  C* of_warps = SharedMemory<C>();  // [warps, 2, cols]
  if (ThreadIndex() % kWarpThreads < team.size()) {
    held.ForEachPack([&](int i, int col) {
      PLANISH_UNROLL
      for (int j = 0; j < N; ++j) {
        of_warps[warp * 2 * cols + col + j] = dgain[i + j];
        of_warps[(warp * 2 + 1) * cols + col + j] = dbias[i + j];
      }
    });
  }
  SyncBlock();
  for (int c = ThreadIndex(); c < 2 * cols; c += BlockThreads()) {
    C total = 0;
    for (int w = 0; w < warps; ++w) total += of_warps[w * 2 * cols + c];
    own[c] = total;
  }
}

template <class T, int N, int E>
PLANISH_KERNEL(MaxBackwardThreads(N, E, sizeof(T)), 1)
BackwardHeld(Backward<T> a, int team_size, Compute<T>* partials) {
  BackwardOf<T, N, E>(a, BlockTeam(team_size), partials);
}
template <class T, int N, int E>
PLANISH_KERNEL(MaxBackwardThreads(N, E, sizeof(T)), 1)
BackwardShared(Backward<T> a, Compute<T>* partials) {
  if constexpr (kHasClusters) BackwardOf<T, N, E>(a, BlocksTeam(), partials);
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

template <class T, int N>
PLANISH_KERNEL(kMaxThreads, 1)
ForwardStreamed(Forward<T> a, int64_t parts, int64_t part_cols, Phase phase, PartSums* sums) {
  using C = Compute<T>;
  BlockTeam team(BlockThreads());
  const double n = static_cast<double>(a.cols);
  for (int64_t item = BlockIndex(); item < a.rows * parts; item += Blocks()) {
    const int64_t row = item / parts, part = item % parts;
    const int64_t begin = part * part_cols;
    const int64_t end = begin + part_cols < a.cols ? begin + part_cols : a.cols;
    const T* x = a.x + row * a.x_stride;
    const PartSums* all = sums == nullptr ? nullptr : sums + row * parts;

    double shift = 0, sum = 0;
    Mean<C> mean;
    if (a.centre) {
      // The first number may be overwritten, in place, while other blocks have yet to read it.
      shift = phase == Phase::kMap ? all[part].shift : static_cast<double>(ToCompute(x[0]));
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
    if (part == 0 && ThreadIndex() == 0) {
      if (a.mean != nullptr) a.mean[row] = mean.hi;
      if (a.mean_lo != nullptr) a.mean_lo[row] = mean.lo;
      if (a.rstd != nullptr) a.rstd[row] = rstd;
    }
    ForEachPack<N>(begin, end, [&](int64_t col) {
      C values[N], gain[N], bias[N];
      Load<N>(x + col, values);
      LoadParams<T, N>(a.gain, col, C{1}, gain);
      LoadParams<T, N>(a.bias, col, C{0}, bias);
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
BackwardStreamed(Backward<T> a, int64_t parts, int64_t part_cols, Phase phase,
                 PartGradientSums* sums) {
  using C = Compute<T>;
  BlockTeam team(BlockThreads());
  const double n = static_cast<double>(a.cols);
  for (int64_t item = BlockIndex(); item < a.rows * parts; item += Blocks()) {
    const int64_t row = item / parts, part = item % parts;
    const int64_t begin = part * part_cols;
    const int64_t end = begin + part_cols < a.cols ? begin + part_cols : a.cols;
    const Mean<C> mean = SavedMean(a, row);
    const C rstd = a.rstd[row];
    // g and xhat of the pack that begins at `col`.
    const auto load = [&](int64_t col, C* g, C* xhat) {
      C gain[N];
      Load<N>(a.dy + row * a.dy_stride + col, g);
      LoadParams<T, N>(a.gain, col, C{1}, gain);
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

// dgain and dbias of streamed rows: a thread a column, `partial_rows` rows one after the other.
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

inline constexpr int kFinishThreads = 256;

// The sums of `count` partial sums [count, 2, cols]: of dgain where BlockIndexY() is 0, else of
// dbias.
template <class C, class G>
PLANISH_KERNEL(kFinishThreads, 1)
FinishColumns(const C* partials, int64_t count, int64_t cols, G* dgain, G* dbias) {
  constexpr int kSlices = kFinishThreads / kWarpThreads;
  G* out = BlockIndexY() == 0 ? dgain : dbias;
  if (out == nullptr) return;
  const int lane = ThreadIndex() % kWarpThreads, slice = ThreadIndex() / kWarpThreads;
  double* sums = SharedMemory<double>();  // [slices, lanes]
  for (int64_t first = BlockIndex() * kWarpThreads; first < cols;
       first += Blocks() * kWarpThreads) {
    const int64_t col = first + lane;
    double sum = 0;
    if (col < cols) {
      for (int64_t p = slice; p < count; p += kSlices) {
        sum += static_cast<double>(partials[(p * 2 + BlockIndexY()) * cols + col]);
      }
    }
    sums[slice * kWarpThreads + lane] = sum;
    SyncBlock();
    if (slice == 0 && col < cols) {
      for (int s = 1; s < kSlices; ++s) sum += sums[s * kWarpThreads + lane];
      out[col] = FromCompute<G>(static_cast<C>(sum));
    }
    SyncBlock();
  }
}

// --- Launching ---

template <class F>
void VisitHeld(int held, F&& f) {
  if (held == 8) return f(std::integral_constant<int, 8>());
  f(std::integral_constant<int, kMaxHeld>());
}

// A grid of blocks over columns, and over `count` rows or groups of rows.
Launch OverColumns(int64_t cols, int pack, int64_t count) {
  constexpr int64_t kThreads = 256;
  const int64_t blocks = (cols + kThreads * pack - 1) / (kThreads * pack);
  return {.blocks = blocks < kMaxBlocks ? blocks : kMaxBlocks,
          .blocks_y = count < kMaxBlocksY ? count : kMaxBlocksY,
          .threads = kThreads};
}

}  // namespace

template <class T>
void RunForward(const char* function, const Forward<T>& call, const RowsPlan& plan, void* stream,
                void* workspace) {
  VisitPack<T>(plan.pack, [&](auto pack) {
    constexpr int N = decltype(pack)::value;
    Launch launch = plan.launch;
    if (launch.cluster > 1) {
      launch.shared_bytes = BlocksTeam::kSharedBytes;
      Run(function, ForwardShared<T, N, ForwardClusterHeld(sizeof(T))>, launch, stream, call);
      return;
    }
    if (!plan.streamed) {
      if (plan.team > kWarpThreads) launch.shared_bytes = BlockTeam::kSharedBytes;
      VisitHeld(plan.held, [&](auto held) {
        constexpr int E = decltype(held)::value;
        Run(function, ForwardHeld<T, N, E>, launch, stream, call, plan.team);
      });
      return;
    }
    Forward<T> rows = call;
    if (call.residual != nullptr) {
      Run(function, AddResidual<T, N>, OverColumns(call.cols, N, call.rows), stream, call);
      rows.x = call.sum;
      rows.x_stride = call.sum_stride;
    }
    launch.shared_bytes = BlockTeam::kSharedBytes;
    const auto run = [&](Phase phase) {
      Run(function, ForwardStreamed<T, N>, launch, stream, rows, plan.parts, plan.part_cols, phase,
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
  const bool several = plan.streamed && plan.parts > 1;
  auto* sums = several ? static_cast<PartGradientSums*>(workspace) : nullptr;
  auto* partials =
      static_cast<C*>(several ? static_cast<void*>(sums + call.rows * plan.parts) : workspace);
  const bool columns = plan.partials > 0;
  VisitPack<T>(plan.pack, [&](auto pack) {
    constexpr int N = decltype(pack)::value;
    Launch launch = plan.launch;
    if (launch.cluster > 1) {
      launch.shared_bytes = BlocksTeam::kSharedBytes;
      Run(function, BackwardShared<T, N, kBackwardClusterHeld>, launch, stream, call,
          columns ? partials : nullptr);
      return;
    }
    if (!plan.streamed) {
      if (plan.team > kWarpThreads) {
        launch.shared_bytes = BlockTeam::kSharedBytes;
      } else if (columns) {
        launch.shared_bytes = launch.threads / kWarpThreads * 2 * call.cols * sizeof(C);
      }
      VisitHeld(plan.held, [&](auto held) {
        constexpr int E = decltype(held)::value;
        Run(function, BackwardHeld<T, N, E>, launch, stream, call, plan.team,
            columns ? partials : nullptr);
      });
      return;
    }
    if (columns) {
      Run(function, SumColumns<T>, OverColumns(call.cols, 1, plan.partials), stream, call,
          plan.partials, plan.partial_rows, partials);
    }
    if (call.dx == nullptr) return;
    launch.shared_bytes = BlockTeam::kSharedBytes;
    const auto run = [&](Phase phase) {
      Run(function, BackwardStreamed<T, N>, launch, stream, call, plan.parts, plan.part_cols, phase,
          sums);
    };
    if (plan.parts == 1) return run(Phase::kAll);
    run(Phase::kSum);
    run(Phase::kMap);
  });
  if (!columns) return;
  Launch finish = {.blocks = (call.cols + kWarpThreads - 1) / kWarpThreads,
                   .blocks_y = 2,
                   .threads = kFinishThreads,
                   .shared_bytes = kFinishThreads * sizeof(double)};
  if (finish.blocks > kMaxBlocks) finish.blocks = kMaxBlocks;
  const auto run = [&]<class G>(G* dgain, G* dbias) {
    Run(function, FinishColumns<C, G>, finish, stream, static_cast<const C*>(partials),
        plan.partials, call.cols, dgain, dbias);
  };
  if (call.gradients_are_float && !std::is_same_v<T, float>) {
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
