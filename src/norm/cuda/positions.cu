#include <cstdint>
#include <type_traits>

#include "src/base/cuda/elements.h"
#include "src/base/cuda/kernel.h"
#include "src/base/cuda/team.h"
#include "src/norm/cuda/params.h"
#include "src/norm/cuda/positions.h"

// A block processes some positions with all their channels. It reads them twice, the second time
// mostly from the L1 cache. All sums are in double about the element of the first channel, as in
// columns.cu.
namespace planish::internal::cuda {
namespace {

// --- Tuning constants (docs/tuning.md) ---

// Channels that a thread loads at a time, as many as the registers allow.
template <int N>
inline constexpr int kBackwardFlight = N == 8 ? 2 : 4;
inline constexpr int kForwardFlight = 4;

// --- End of tuning constants ---

// For kFlight channels of this thread at a time, calls load(c, f) for each of them, then use(c, f).
template <int kFlight, class Load, class Use>
PLANISH_DEVICE void ForEachChannel(int64_t channels, int first, int step, const Load& load,
                                   const Use& use) {
  for (int64_t c = first; c < channels; c += static_cast<int64_t>(step) * kFlight) {
    PLANISH_UNROLL
    for (int f = 0; f < kFlight; ++f) {
      if (c + f * step < channels) load(c + f * step, f);
    }
    PLANISH_UNROLL
    for (int f = 0; f < kFlight; ++f) {
      if (c + f * step < channels) use(c + f * step, f);
    }
  }
}

template <class T, int N>
PLANISH_KERNEL(kPositionsThreads, 2)
ForwardPositions(PositionsForward<T> a, int team) {
  using C = Compute<T>;
  // For doubles the first round gives a shift near the mean, the second one the statistics.
  constexpr int kRounds = std::is_same_v<C, double> ? 2 : 1;
  const ThreadMatrix block(team);
  const KernelSettings<C>& recipe = a;
  const int64_t positions = a.batch * a.spatial, step = static_cast<int64_t>(team) * N;
  const auto n = static_cast<double>(a.channels);
  for (int64_t begin = BlockIndex() * step; begin < positions; begin += Blocks() * step) {
    const int64_t position = begin + static_cast<int64_t>(block.x) * N;
    const bool has = position < positions;
    const int64_t b = has ? position / a.spatial : 0;
    const int64_t base = b * a.channels * a.spatial + (position - b * a.spatial);
    C x[kForwardFlight][N] = {};
    const auto load = [&](int64_t c, int f) { Load<N>(a.x + base + c * a.spatial, x[f]); };
    double shift[N] = {};
    if (has && recipe.centre) {
      C number[N];
      Load<N>(a.x + base, number);
      PLANISH_UNROLL
      for (int j = 0; j < N; ++j) shift[j] = static_cast<double>(number[j]);
    }
    for (int round = 0; round < kRounds; ++round) {
      double first[N] = {}, second[N] = {};
      if (has) {
        ForEachChannel<kForwardFlight>(a.channels, block.y, block.rows, load, [&](int64_t, int f) {
          PLANISH_UNROLL
          for (int j = 0; j < N; ++j) {
            const double d = static_cast<double>(x[f][j]) - shift[j];
            first[j] += d;
            second[j] = FusedMulAdd(d, d, second[j]);
          }
        });
      }
      block.SumColumns(first, second);
      if (round + 1 < kRounds && recipe.centre) {
        PLANISH_UNROLL
        for (int j = 0; j < N; ++j) shift[j] += block.Sum(0, j) / n;
      }
    }
    // Only the first threads of the columns have the sums; the others read the results.
    C* results =
        reinterpret_cast<C*>(SharedMemory<double>() + 2 * N * block.threads);  // [3, count]
    const int count = N * team;
    if (block.y == 0) {
      PLANISH_UNROLL
      for (int j = 0; j < N; ++j) {
        const int i = j * team + block.x;
        if (!has) continue;
        const double sum = block.Sum(0, j), squares = block.Sum(1, j);
        const double offset = recipe.centre ? sum / n : 0;
        double deviations = recipe.centre ? FusedMulAdd(-offset, sum, squares) : squares;
        if (deviations < 0) deviations = 0;
        const double rstd = recipe.unbiased ? 1 / (sqrt(deviations / (n - 1)) + recipe.eps)
                                            : 1 / sqrt(deviations / n + recipe.eps);
        // An overflowed sum gives NaN, like an infinity in the input.
        const bool finite = IsFinite(deviations);
        const C mean = static_cast<C>(shift[j] + offset);
        const C lo = static_cast<C>((shift[j] - static_cast<double>(mean)) + offset);
        const C rounded = static_cast<C>(finite ? rstd : Nan<double>());
        results[i] = mean;
        results[count + i] = rounded;
        results[2 * count + i] = -lo * rounded;
        if (a.mean != nullptr) a.mean[position + j] = mean;
        if (a.mean_lo != nullptr) a.mean_lo[position + j] = lo;
        if (a.rstd != nullptr) a.rstd[position + j] = rounded;
      }
    }
    SyncBlock();
    if (!has) continue;
    C mean[N], rstd[N], offset[N];
    PLANISH_UNROLL
    for (int j = 0; j < N; ++j) {
      const int i = j * team + block.x;
      mean[j] = results[i], rstd[j] = results[count + i], offset[j] = results[2 * count + i];
    }
    ForEachChannel<kForwardFlight>(a.channels, block.y, block.rows, load, [&](int64_t c, int f) {
      const C gain = ParamAt<T>(a.Gain(), c, C{1}), bias = ParamAt<T>(a.Bias(), c, C{0});
      PLANISH_UNROLL
      for (int j = 0; j < N; ++j) {
        const C xhat = FusedMulAdd(x[f][j] - mean[j], rstd[j], offset[j]);
        x[f][j] = recipe.adaptive ? recipe.scale * (C{1} - recipe.slope * xhat) * xhat
                                  : FusedMulAdd(gain, xhat, bias);
      }
      Store<N>(x[f], a.y + base + c * a.spatial);
    });
  }
}

template <class T, int N>
PLANISH_KERNEL(kPositionsThreads, 2)
BackwardPositions(PositionsBackward<T> a, int team) {
  using C = Compute<T>;
  constexpr int kFlight = kBackwardFlight<N>;
  const ThreadMatrix block(team);
  const KernelSettings<C>& recipe = a;
  const int64_t positions = a.batch * a.spatial, step = static_cast<int64_t>(team) * N;
  const auto n = static_cast<double>(a.channels);
  const bool means = recipe.via_mean || recipe.via_scale;
  for (int64_t begin = BlockIndex() * step; begin < positions; begin += Blocks() * step) {
    const int64_t position = begin + static_cast<int64_t>(block.x) * N;
    const bool has = position < positions;
    const int64_t b = has ? position / a.spatial : 0;
    const int64_t base = b * a.channels * a.spatial + (position - b * a.spatial);
    C mean[N] = {}, rstd[N] = {}, offset[N] = {};
    if (has) {
      PLANISH_UNROLL
      for (int j = 0; j < N; ++j) {
        rstd[j] = a.rstd[position + j];
        if (a.mean == nullptr) continue;
        mean[j] = a.mean[position + j];
        offset[j] = -a.mean_lo[position + j] * rstd[j];
      }
    }
    C x[kFlight][N] = {}, g[kFlight][N] = {};
    const auto load = [&](int64_t c, int f) {
      Load<N>(a.dy + base + c * a.spatial, g[f]);
      if (a.x != nullptr) Load<N>(a.x + base + c * a.spatial, x[f]);
    };
    // Converts x and dy to xhat and g.
    const auto prepare = [&](int64_t c, int f) {
      const C gain = ParamAt<T>(a.Gain(), c, C{1});
      PLANISH_UNROLL
      for (int j = 0; j < N; ++j) {
        x[f][j] = a.x != nullptr ? FusedMulAdd(x[f][j] - mean[j], rstd[j], offset[j]) : C{0};
        g[f][j] *= recipe.adaptive ? recipe.scale * (C{1} - recipe.slope * x[f][j]) : gain;
      }
    };
    C mean_g[N] = {}, mean_gx[N] = {};
    if (means) {
      double first[N] = {}, second[N] = {};
      if (has) {
        ForEachChannel<kFlight>(a.channels, block.y, block.rows, load, [&](int64_t c, int f) {
          prepare(c, f);
          PLANISH_UNROLL
          for (int j = 0; j < N; ++j) {
            const auto number = static_cast<double>(g[f][j]);
            first[j] += number;
            second[j] = FusedMulAdd(number, static_cast<double>(x[f][j]), second[j]);
          }
        });
      }
      block.SumColumns(first, second);
      PLANISH_UNROLL
      for (int j = 0; j < N; ++j) {
        if (recipe.via_mean) mean_g[j] = static_cast<C>(block.Sum(0, j) / n);
        if (!recipe.via_scale) continue;
        // With eps outside the root the sum is divided by (n - 1) * s * rstd, and s * rstd = 1 -
        // eps * rstd.
        const double s_rstd = 1 - recipe.eps * static_cast<double>(rstd[j]);
        const double sum = block.Sum(1, j);
        mean_gx[j] = static_cast<C>(!recipe.unbiased ? sum / n
                                    : s_rstd > 0     ? sum / ((n - 1) * s_rstd)
                                                     : 0);
      }
    }
    if (!has) continue;
    ForEachChannel<kFlight>(a.channels, block.y, block.rows, load, [&](int64_t c, int f) {
      prepare(c, f);
      PLANISH_UNROLL
      for (int j = 0; j < N; ++j) {
        g[f][j] = rstd[j] * FusedMulAdd(-x[f][j], mean_gx[j], g[f][j] - mean_g[j]);
      }
      Store<N>(g[f], a.dx + base + c * a.spatial);
    });
  }
}

template <class T>
Launch LaunchOf(const PositionsPlan& plan) {
  Launch launch = plan.launch;
  launch.shared_bytes = PositionsBytes(plan.pack, plan.team, sizeof(Compute<T>));
  return launch;
}

}  // namespace

template <class T>
void RunPositions(const char* function, const PositionsForward<T>& call, const PositionsPlan& plan,
                  void* stream) {
  VisitPack<T>(plan.pack, [&](auto pack) {
    Run(function, ForwardPositions<T, decltype(pack)::value>, LaunchOf<T>(plan), stream, call,
        plan.team);
  });
}

template <class T>
void RunPositions(const char* function, const PositionsBackward<T>& call, const PositionsPlan& plan,
                  void* stream) {
  VisitPack<T>(plan.pack, [&](auto pack) {
    Run(function, BackwardPositions<T, decltype(pack)::value>, LaunchOf<T>(plan), stream, call,
        plan.team);
  });
}

template void RunPositions(const char*, const PositionsForward<PLANISH_ELEMENT>&,
                           const PositionsPlan&, void*);
template void RunPositions(const char*, const PositionsBackward<PLANISH_ELEMENT>&,
                           const PositionsPlan&, void*);

}  // namespace planish::internal::cuda
