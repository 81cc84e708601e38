#include <algorithm>
#include <cstdint>

#include "src/base/cuda/elements.h"
#include "src/base/cuda/kernel.h"
#include "src/base/cuda/math.h"
#include "src/base/cuda/team.h"
#include "src/norm/cuda/gate.h"
#include "src/norm/cuda/params.h"
#include "src/norm/rows/quantize.h"

namespace planish::internal::cuda {
namespace {

constexpr int kGateThreads = 256;
// Maximum of columns of a row that a warp quantizes. Longer rows have a block each.
constexpr int64_t kWarpColumns = 1024;

/// Calls f(i, r, c) for each element of [rows, cols] that this thread processes.
template <class F>
PLANISH_DEVICE void ForEachElement(int64_t rows, int64_t cols, const F& f) {
  const int64_t step = Blocks() * BlockThreads(), n = rows * cols;
  for (int64_t i = BlockIndex() * BlockThreads() + ThreadIndex(); i < n; i += step) {
    const int64_t r = i / cols;
    f(i, r, i - r * cols);
  }
}

template <class C>
PLANISH_DEVICE C Silu(C z) {
  return z * Sigmoid(z);
}

/// Returns silu's derivative.
template <class C>
PLANISH_DEVICE C SiluSlope(C z) {
  const C sigmoid = Sigmoid(z);
  return sigmoid * FusedMulAdd(z, C{1} - sigmoid, C{1});
}

template <class T>
PLANISH_KERNEL(kGateThreads, 1)
GateInputKernel(Forward<T> a, Compute<T>* v) {
  ForEachElement(a.rows, a.cols, [&](int64_t i, int64_t r, int64_t c) {
    Compute<T> x = ToCompute(a.x[r * a.x_stride + c]);
    if (a.residual != nullptr) {
      const T sum = FromCompute<T>(x + ToCompute(a.residual[r * a.residual_stride + c]));
      a.sum[r * a.sum_stride + c] = sum;
      x = ToCompute(sum);
    }
    if (a.gate != nullptr && a.gate_before_norm) {
      x *= Silu(ToCompute(a.gate[r * a.gate_stride + c]));
    }
    v[i] = x;
  });
}

template <class T>
PLANISH_KERNEL(kGateThreads, 1)
GateOutputKernel(Forward<T> a, Compute<T>* v, bool cast) {
  using C = Compute<T>;
  const bool gated = a.gate != nullptr && !a.gate_before_norm;
  ForEachElement(a.rows, a.cols, [&](int64_t i, int64_t r, int64_t c) {
    C y = v[i];
    if (cast) {
      y = FusedMulAdd(ParamAt<T>(a.Gain(), c, C{1}), ToCompute(FromCompute<T>(y)),
                      ParamAt<T>(a.Bias(), c, C{0}));
      if (gated) y = ToCompute(FromCompute<T>(y));
    }
    if (gated) y *= Silu(ToCompute(a.gate[r * a.gate_stride + c]));
    if (a.quantized != nullptr) v[i] = y;
    if (a.y != nullptr) a.y[r * a.y_stride + c] = FromCompute<T>(y);
  });
}

using RowTeam = Team<1>;

template <class T>
PLANISH_KERNEL(kGateThreads, 1)
QuantizeKernel(Forward<T> a, const Compute<T>* v, int team_size) {
  using C = Compute<T>;
  RowTeam team(team_size);
  for (int64_t first = team.group() * team.count(); first < a.rows;
       first += team.groups() * team.count()) {
    const int64_t row = first + team.index();
    const int64_t cols = row < a.rows ? a.cols : 0;
    const C* const y = v + row * a.cols;
    C max = 0;
    for (int64_t c = team.lane(); c < cols; c += team.size()) {
      const C magnitude = y[c] < 0 ? -y[c] : y[c];
      if (!(magnitude <= max))
        max = magnitude <= kLargest<C> ? magnitude : kInfinity<C>;  // also for NaN
    }
    const RowScale<C> scale = RowScaleOf(team.Max(max));
    if (cols > 0 && team.lane() == 0) a.row_scale[row] = scale.scale;
    for (int64_t c = team.lane(); c < cols; c += team.size()) {
      a.quantized[row * a.quantized_stride + c] =
          scale.factor == 0 ? int8_t{0} : static_cast<int8_t>(RoundToEven(y[c] * scale.factor));
    }
  }
}

template <class T>
PLANISH_KERNEL(kGateThreads, 1)
GateGradientInputKernel(Backward<T> a, Compute<T>* to_x, Compute<T>* to_g) {
  using C = Compute<T>;
  ForEachElement(a.rows, a.cols, [&](int64_t i, int64_t r, int64_t c) {
    const C dy = ToCompute(a.dy[r * a.dy_stride + c]);
    const C z = ToCompute(a.gate[r * a.gate_stride + c]);
    const C x = ToCompute(a.x[r * a.x_stride + c]);
    to_x[i] = a.gate_before_norm ? x * Silu(z) : x;
    to_g[i] = a.gate_before_norm ? dy : dy * Silu(z);
    if (a.gate_before_norm || a.dgate == nullptr) return;
    const C rstd = a.rstd[r], mean = a.mean != nullptr ? a.mean[r] : C{0};
    const C offset = a.mean_lo != nullptr ? -a.mean_lo[r] * rstd : C{0};
    const C xhat = FusedMulAdd(x - mean, rstd, offset);
    const C norm = FusedMulAdd(ParamAt<T>(a.Gain(), c, C{1}), xhat, ParamAt<T>(a.Bias(), c, C{0}));
    a.dgate[r * a.dgate_stride + c] = FromCompute<T>(dy * norm * SiluSlope(z));
  });
}

template <class T>
PLANISH_KERNEL(kGateThreads, 1)
GateGradientOutputKernel(Backward<T> a, const Compute<T>* du) {
  using C = Compute<T>;
  ForEachElement(a.rows, a.cols, [&](int64_t i, int64_t r, int64_t c) {
    C dx = du[i];
    if (a.gate_before_norm) {
      const C z = ToCompute(a.gate[r * a.gate_stride + c]);
      if (a.dgate != nullptr) {
        const C x = ToCompute(a.x[r * a.x_stride + c]);
        a.dgate[r * a.dgate_stride + c] = FromCompute<T>(dx * x * SiluSlope(z));
      }
      dx *= Silu(z);
    }
    if (a.dx == nullptr) return;
    if (a.dsum != nullptr) dx += ToCompute(a.dsum[r * a.dsum_stride + c]);
    a.dx[r * a.dx_stride + c] = FromCompute<T>(dx);
  });
}

template <class From, class To>
PLANISH_KERNEL(kGateThreads, 1)
ConvertKernel(const From* from, int64_t n, To* to) {
  ForEachElement(1, n,
                 [&](int64_t i, int64_t, int64_t) { to[i] = FromCompute<To>(ToCompute(from[i])); });
}

Launch LaunchOf(int64_t elements) {
  return {.blocks = std::min(CeilDiv(elements, kGateThreads), kMaxBlocks),
          .threads = kGateThreads,
          .resident = true};
}

}  // namespace

template <class T>
void RunGateInput(const char* function, const Forward<T>& call, Compute<T>* v, void* stream) {
  Run(function, GateInputKernel<T>, LaunchOf(call.rows * call.cols), stream, call, v);
}

template <class T>
void RunGateOutput(const char* function, const Forward<T>& call, Compute<T>* v, bool cast,
                   void* stream) {
  Run(function, GateOutputKernel<T>, LaunchOf(call.rows * call.cols), stream, call, v, cast);
}

template <class T>
void RunQuantize(const char* function, const Forward<T>& call, const Compute<T>* v, void* stream) {
  const int team = call.cols <= kWarpColumns ? kWarpThreads : kGateThreads;
  const Launch launch = {.blocks = std::min(CeilDiv(call.rows, kGateThreads / team), kMaxBlocks),
                         .threads = kGateThreads,
                         .shared_bytes = RowTeam::kSharedBytes,
                         .resident = true};
  Run(function, QuantizeKernel<T>, launch, stream, call, v, team);
}

template <class T>
void RunGateGradientInput(const char* function, const Backward<T>& call, Compute<T>* x,
                          Compute<T>* g, void* stream) {
  Run(function, GateGradientInputKernel<T>, LaunchOf(call.rows * call.cols), stream, call, x, g);
}

template <class T>
void RunGateGradientOutput(const char* function, const Backward<T>& call, const Compute<T>* du,
                           void* stream) {
  Run(function, GateGradientOutputKernel<T>, LaunchOf(call.rows * call.cols), stream, call, du);
}

template <class T>
void RunWiden(const char* function, const T* from, int64_t n, Compute<T>* to, void* stream) {
  Run(function, ConvertKernel<T, Compute<T>>, LaunchOf(n), stream, from, n, to);
}

template <class T>
void RunRound(const char* function, const Compute<T>* from, int64_t n, T* to, void* stream) {
  Run(function, ConvertKernel<Compute<T>, T>, LaunchOf(n), stream, from, n, to);
}

using Element = PLANISH_ELEMENT;
template void RunGateInput(const char*, const Forward<Element>&, Compute<Element>*, void*);
template void RunGateOutput(const char*, const Forward<Element>&, Compute<Element>*, bool, void*);
template void RunQuantize(const char*, const Forward<Element>&, const Compute<Element>*, void*);
template void RunGateGradientInput(const char*, const Backward<Element>&, Compute<Element>*,
                                   Compute<Element>*, void*);
template void RunGateGradientOutput(const char*, const Backward<Element>&, const Compute<Element>*,
                                    void*);
template void RunWiden(const char*, const Element*, int64_t, Compute<Element>*, void*);
template void RunRound(const char*, const Compute<Element>*, int64_t, Element*, void*);

}  // namespace planish::internal::cuda
