#include <cstdint>
#include <type_traits>

#include "src/base/cuda/kernel.h"
#include "src/base/cuda/math.h"
#include "src/base/cuda/team.h"
#include "src/rnn/cuda/cells.h"
#include "src/rnn/cuda/norm.h"
#include "src/rnn/cuda/unit.h"

// Kernels of recurrent layers. A block processes one row (a step of a sequence). Thread i has the
// units i, i + BlockThreads(), ... with all their gates. Each pass over a row reads it again, from
// the cache. Multiplications and additions are fused only where the code says so, so that results
// are the same on every device and in the emulation.
namespace planish::internal::cuda {
namespace {

// --- Tuning constants (docs/tuning.md) ---

// Threads of a block that sums columns, and that processes the elements of states.
constexpr int kColumnThreads = 256;
constexpr int kElementThreads = 256;
// Limit on the blocks of a grid over elements.
constexpr int64_t kMaxElementBlocks = int64_t{1} << 16;
// Sides of the tile of c that a block computes, and of the square that a thread computes; and the
// depth of a step.
constexpr int kTile = 32, kSquare = 4, kDepth = 8;

// --- End of tuning constants ---

// --- Forward ---

template <class T, class Kind>
PLANISH_KERNEL(kMaxRowThreads, 1)
Statistics(CellLayer<T> a) {
  RowTeam team(BlockThreads());
  const int64_t hidden = a.hidden, columns = Kind::kGates * hidden;
  for (int64_t row = BlockIndex(); row < a.time * a.batch; row += Blocks()) {
    if (!IsActive(a, row / a.batch, row % a.batch)) continue;
    const T* z = a.zx + row * columns;
    NormCoefficients<T> norm_coefficients[Kind::kNorms];
    ComputeCoefficients<Kind::kGates, Kind::kFirstGates>(
        team, hidden, a.eps, [&](int gate, int64_t k) { return z[gate * hidden + k]; },
        norm_coefficients);
    WriteCoefficients(norm_coefficients, a.norm_ih + row * Kind::kNorms * kNormCoefficients);
  }
}

template <class T, class Kind>
PLANISH_KERNEL(kMaxRowThreads, 1)
ForwardStep(CellLayer<T> a, ForwardStepCall<T> s, bool relu) {
  constexpr int kGates = Kind::kGates, kFirst = Kind::kFirstGates, kNorms = Kind::kNorms;
  constexpr int kCells = Kind::kCells, kStates = Kind::kStates;
  RowTeam team(BlockThreads());
  const int64_t hidden = a.hidden, columns = kGates * hidden;
  for (int64_t b = BlockIndex(); b < a.batch; b += Blocks()) {
    const int64_t row = s.t * a.batch + b, state = b * hidden, cell = state * kCells;
    const bool reset = IsReset(a, s.next, b);
    // Write element k of the initial state of the next step, and unit k of its cell state.
    const auto put_h = [&](int64_t k, T value) {
      if (s.h_out != nullptr) s.h_out[state + k] = reset ? OrZero(a.h_reset, k) : value;
    };
    const auto put_c = [&](int64_t k, const auto& values) {
      if (s.c_out == nullptr) return;
      PLANISH_UNROLL
      for (int i = 0; i < kCells; ++i) {
        const int64_t j = i * hidden + k;
        s.c_out[cell + j] = reset ? OrEmpty(a.c_reset, j, i == 1) : values[i];
      }
    };
    const auto read_c = [&](int64_t k, T(&values)[kStates]) {
      PLANISH_UNROLL
      for (int i = 0; i < kCells; ++i) values[i] = s.c[cell + i * hidden + k];
    };
    if (!IsActive(a, s.t, b)) {
      for (int64_t k = ThreadIndex(); k < hidden; k += BlockThreads()) {
        s.y[row * hidden + k] = 0;
        if (s.h_out != nullptr) put_h(k, s.h[state + k]);
        T before[kStates];
        read_c(k, before);
        put_c(k, before);
      }
      continue;
    }
    T* const zx = a.zx + row * columns;
    const T* const zh = s.zh + b * columns;

    NormCoefficients<T> ih[kNorms], hh[kNorms];
    if constexpr (Kind::kSeparate) {
      ReadCoefficients(a.norm_ih + row * kNorms * kNormCoefficients, ih);
      ComputeCoefficients<kGates, kFirst>(
          team, hidden, a.eps, [&](int gate, int64_t k) { return zh[gate * hidden + k]; }, hh);
      if (a.norm_hh != nullptr) WriteCoefficients(hh, a.norm_hh + row * kNorms * kNormCoefficients);
    } else if constexpr (Kind::kJoint) {
      ComputeCoefficients<kGates, kFirst>(
          team, hidden, a.eps,
          [&](int gate, int64_t k) { return zx[gate * hidden + k] + zh[gate * hidden + k]; }, ih);
      if (a.norm_ih != nullptr) WriteCoefficients(ih, a.norm_ih + row * kNorms * kNormCoefficients);
    }

    for (int64_t k = ThreadIndex(); k < hidden; k += BlockThreads()) {
      T of_zx[kGates], of_zh[kGates];
      PLANISH_UNROLL
      for (int gate = 0; gate < kGates; ++gate) {
        of_zx[gate] = zx[gate * hidden + k];
        of_zh[gate] = zh[gate * hidden + k];
      }
      T before[kStates];
      read_c(k, before);
      if constexpr (!Kind::kLstm) before[0] = s.h[state + k];
      const UnitOutput<T> out = TakeGates<Kind>(a, row, k, of_zx, of_zh, ih, hh, before, relu);
      if (Kind::kCanNormC && a.cell_norm != CellNorm::kNone) {
        s.c[state + k] = out.cell[0];
        s.o[state + k] = out.o;
      } else {
        s.y[row * hidden + k] = out.h;
        put_h(k, out.h);
        put_c(k, out.cell);
      }
    }
    if (!Kind::kCanNormC || a.cell_norm == CellNorm::kNone) continue;

    SyncBlock();  // the first c is the origin of the sums
    NormCoefficients<T> coefficients[1];
    ComputeCoefficients<1, 1>(
        team, hidden, a.eps, [&](int, int64_t k) { return s.c[state + k]; }, coefficients);
    if (a.norm_c != nullptr) WriteCoefficients(coefficients, a.norm_c + row * kNormCoefficients);
    for (int64_t k = ThreadIndex(); k < hidden; k += BlockThreads()) {
      const UnitOutput<T> out =
          TakeNormalized(a, row, k, s.c[state + k], s.o[state + k], coefficients[0]);
      s.y[row * hidden + k] = out.h;
      put_h(k, out.h);
      put_c(k, out.cell);
    }
  }
}

// --- Backward ---

// Writes the gradient of the elements z of a row's norms to `to`. `g(j)` is the gradient of xhat of
// element j; `sums` and `dots` are the thread's sums of g and g * xhat for each norm.
template <class Kind, class T, class G>
PLANISH_DEVICE void TakeRowNormsBack(RowTeam& team, int64_t hidden,
                                     const NormCoefficients<T> (&norm)[Kind::kNorms], const T* z,
                                     T (&sums)[Kind::kNorms], T (&dots)[Kind::kNorms], G&& g,
                                     T* to) {
  constexpr int kGates = Kind::kGates, kFirst = Kind::kFirstGates;
  GradientMeans<kGates, kFirst>(team, hidden, sums, dots);
  for (int64_t k = ThreadIndex(); k < hidden; k += BlockThreads()) {
    PLANISH_UNROLL
    for (int gate = 0; gate < kGates; ++gate) {
      const int64_t j = gate * hidden + k;
      const int i = gate / kFirst;
      to[j] = TakeNormBack(g(j), norm[i].Xhat(z[j]), norm[i].rstd, sums[i], dots[i]);
    }
  }
}

template <class T, class Kind>
PLANISH_KERNEL(kMaxRowThreads, 1)
BackwardStep(CellLayer<T> a, BackwardStepCall<T> s, bool relu) {
  constexpr int kGates = Kind::kGates, kFirst = Kind::kFirstGates, kNorms = Kind::kNorms;
  constexpr int kCells = Kind::kCells, kStates = Kind::kStates;
  RowTeam team(BlockThreads());
  const int64_t hidden = a.hidden, columns = kGates * hidden;
  const bool cell_norm = Kind::kCanNormC && a.cell_norm != CellNorm::kNone;
  const bool carried = a.cell_norm == CellNorm::kCarried;
  for (int64_t b = BlockIndex(); b < a.batch; b += Blocks()) {
    const int64_t row = s.t * a.batch + b, state = b * hidden, cell = state * kCells;
    const bool reset = IsReset(a, s.later, b);
    // Returns element i of the gradient of the state after this step. Gradients do not pass resets.
    const auto take = [&](const T* d, T* reset_sums, int64_t i) {
      const T value = d[i];
      if (!reset || reset_sums == nullptr) return value;
      reset_sums[i] += value;
      return T{0};
    };
    const auto take_dc = [&](int64_t k, T(&dc)[kStates]) {
      PLANISH_UNROLL
      for (int i = 0; i < kCells; ++i) dc[i] = take(s.dc, s.dc_reset, cell + i * hidden + k);
    };
    const auto put_dc = [&](int64_t k, const T(&dc)[kStates]) {
      PLANISH_UNROLL
      for (int i = 0; i < kCells; ++i) s.dc[cell + i * hidden + k] = dc[i];
    };
    T* const da = s.da + row * columns;
    T* const dzh = s.dzh + row * columns;
    if (!IsActive(a, s.t, b)) {
      for (int64_t k = ThreadIndex(); k < hidden; k += BlockThreads()) {
        s.dh[state + k] = take(s.dh, s.dh_reset, state + k);
        T dc[kStates];
        take_dc(k, dc);
        put_dc(k, dc);
        PLANISH_UNROLL
        for (int gate = 0; gate < kGates; ++gate) {
          da[gate * hidden + k] = 0;
          dzh[gate * hidden + k] = 0;
        }
        if (cell_norm) s.dcell[row * hidden + k] = 0;
      }
      continue;
    }
    const auto dh_of = [&](int64_t k) {
      const T d = take(s.dh, s.dh_reset, state + k);
      return s.dy == nullptr ? d : d + s.dy[row * hidden + k];
    };

    NormCoefficients<T> norm_c[1];
    T mean_c[1] = {0}, dot_c[1] = {0};
    if (cell_norm) {
      ReadCoefficients(a.norm_c + row * kNormCoefficients, norm_c);
      for (int64_t k = ThreadIndex(); k < hidden; k += BlockThreads()) {
        // If the normalized c is the cell state, the gradients of c from the next step and from h
        // are added before the norm's backward. Otherwise they are added after it.
        const T dc = take(s.dc, s.dc_reset, state + k);
        if (reset) s.dc[state + k] = 0;
        const OutputGradient<T> d =
            TakeOutputBack<Kind, T>(a, row, k, dh_of(k), {carried ? dc : T{0}});
        da[3 * hidden + k] = d.of_o;
        s.dcell[row * hidden + k] = d.of_cell;
        const T g = d.of_cell * a.params.gain_c[k];
        mean_c[0] += g;
        dot_c[0] = FusedMulAdd(g, XhatOfCell(a, row, k, norm_c[0]), dot_c[0]);
      }
      GradientMeans<1, 1>(team, hidden, mean_c, dot_c);
    }

    const StateNorm<Kind, T> norm(a);
    const T* const z = Kind::kPlain ? nullptr : norm.z + row * columns;
    NormCoefficients<T> norm_coefficients[kNorms];
    if constexpr (!Kind::kPlain)
      ReadCoefficients(norm.norm_coefficients + row * kNorms * kNormCoefficients,
                       norm_coefficients);
    T mean[kNorms], dot[kNorms];
    PLANISH_UNROLL
    for (int i = 0; i < kNorms; ++i) mean[i] = 0, dot[i] = 0;
    for (int64_t k = ThreadIndex(); k < hidden; k += BlockThreads()) {
      T dh = 0;
      OutputGradient<T> output = {};
      if constexpr (!Kind::kLstm) {
        dh = dh_of(k);
      } else if (cell_norm) {
        const T d = s.dcell[row * hidden + k];
        output = {da[3 * hidden + k],
                  TakeCellNormBack(a, row, k, norm_c[0], d, mean_c[0], dot_c[0]), 0};
        if (!carried) output.of_cell += s.dc[state + k];
      } else {
        T dc[kStates];
        take_dc(k, dc);
        output = TakeOutputBack<Kind>(a, row, k, dh_of(k), dc);
      }
      const auto d = TakeGatesBack<Kind>(a, row, k, dh, output, s.y, s.h_before, relu);
      s.dh[state + k] = d.dh;
      put_dc(k, d.dc);
      PLANISH_UNROLL
      for (int gate = 0; gate < kGates; ++gate) {
        const int64_t j = gate * hidden + k;
        da[j] = d.of_a[gate];
        if constexpr (Kind::kPlain) {
          if (Kind::kGru) dzh[j] = d.OfState(gate);
        } else {
          const int i = gate / kFirst;
          const T g = d.OfState(gate) * norm.gain[j];
          dzh[j] = g;
          mean[i] += g;
          dot[i] = FusedMulAdd(g, norm_coefficients[i].Xhat(z[j]), dot[i]);
        }
      }
    }
    if constexpr (!Kind::kPlain) {
      TakeRowNormsBack<Kind>(
          team, hidden, norm_coefficients, z, mean, dot, [&](int64_t j) { return dzh[j]; }, dzh);
    }
  }
}

// Replaces da by the gradient of zx.
template <class T, class Kind>
PLANISH_KERNEL(kMaxRowThreads, 1)
InputNormBackward(CellLayer<T> a, T* da) {
  constexpr int kGates = Kind::kGates, kFirst = Kind::kFirstGates, kNorms = Kind::kNorms;
  RowTeam team(BlockThreads());
  const int64_t hidden = a.hidden, columns = kGates * hidden;
  for (int64_t row = BlockIndex(); row < a.time * a.batch; row += Blocks()) {
    if (!IsActive(a, row / a.batch, row % a.batch)) continue;
    const T* z = a.zx + row * columns;
    T* d = da + row * columns;
    NormCoefficients<T> norm[kNorms];
    ReadCoefficients(a.norm_ih + row * kNorms * kNormCoefficients, norm);
    T mean[kNorms], dot[kNorms];
    PLANISH_UNROLL
    for (int i = 0; i < kNorms; ++i) mean[i] = 0, dot[i] = 0;
    for (int64_t k = ThreadIndex(); k < hidden; k += BlockThreads()) {
      PLANISH_UNROLL
      for (int gate = 0; gate < kGates; ++gate) {
        const int64_t j = gate * hidden + k;
        const T g = d[j] * a.params.gain_ih[j];
        mean[gate / kFirst] += g;
        dot[gate / kFirst] = FusedMulAdd(g, norm[gate / kFirst].Xhat(z[j]), dot[gate / kFirst]);
      }
    }
    TakeRowNormsBack<Kind>(
        team, hidden, norm, z, mean, dot, [&](int64_t j) { return d[j] * a.params.gain_ih[j]; }, d);
  }
}

// --- Columns ---

// Calls f(row) for the active rows of part `part`.
template <class T, class F>
PLANISH_DEVICE void ForRowsOfPart(const CellLayer<T>& a, int64_t part, F&& f) {
  const int64_t rows = a.time * a.batch, begin = part * kRnnRowsInTurn;
  const int64_t end = begin + kRnnRowsInTurn < rows ? begin + kRnnRowsInTurn : rows;
  for (int64_t row = begin; row < end; ++row) {
    if (IsActive(a, row / a.batch, row % a.batch)) f(row);
  }
}

template <class T>
PLANISH_DEVICE NormCoefficients<T> CoefficientsOf(const T* norm_coefficients, int64_t row,
                                                  int norms, int norm) {
  const T* coefficients = norm_coefficients + (row * norms + norm) * kNormCoefficients;
  return {coefficients[0], coefficients[1], coefficients[2]};
}

// Each thread has a column. The grid's y index selects the part of the rows.
template <class T>
PLANISH_KERNEL(kColumnThreads, 1)
SumColumns(CellLayer<T> a, int64_t parts, const T* da, T* partials) {
  const int64_t columns = a.gates * a.hidden;
  for (int64_t part = BlockIndexY(); part < parts; part += BlocksY()) {
    for (int64_t j = BlockIndex() * BlockThreads() + ThreadIndex(); j < columns;
         j += Blocks() * BlockThreads()) {
      const int gate = static_cast<int>(j / a.hidden), norm = gate / a.gates_of_a_norm;
      const bool candidate = a.arithmetic == Arithmetic::kGru && gate == 2;
      T sum_a = 0, dot_x = 0, sum_h = 0, dot_h = 0;
      ForRowsOfPart(a, part, [&](int64_t row) {
        const int64_t at = row * columns + j;
        const T d = da[at];
        sum_a += d;
        if (a.sums != Sums::kPlain) {
          dot_x =
              FusedMulAdd(d, CoefficientsOf(a.norm_ih, row, a.norms, norm).Xhat(a.zx[at]), dot_x);
        }
        // r multiplies ah_n.
        const T of_h = candidate ? d * a.gates_kept[at - 2 * a.hidden] : d;
        sum_h += of_h;
        if (a.sums == Sums::kSeparate) {
          dot_h = FusedMulAdd(of_h, CoefficientsOf(a.norm_hh, row, a.norms, norm).Xhat(a.zh[at]),
                              dot_h);
        }
      });
      T* const to = partials + part * kColumnSums * columns + j;
      to[static_cast<int>(ColumnSum::kDa) * columns] = sum_a;
      to[static_cast<int>(ColumnSum::kDaXhatX) * columns] = dot_x;
      to[static_cast<int>(ColumnSum::kDah) * columns] = sum_h;
      to[static_cast<int>(ColumnSum::kDahXhatH) * columns] = dot_h;
    }
  }
}

template <class T>
PLANISH_KERNEL(kColumnThreads, 1)
SumCellColumns(CellLayer<T> a, int64_t parts, const T* dcell, T* partials) {
  const int64_t hidden = a.hidden;
  for (int64_t part = BlockIndexY(); part < parts; part += BlocksY()) {
    for (int64_t k = BlockIndex() * BlockThreads() + ThreadIndex(); k < hidden;
         k += Blocks() * BlockThreads()) {
      T sum = 0, dot = 0;
      ForRowsOfPart(a, part, [&](int64_t row) {
        const T* const kept = a.gates_kept + row * 4 * hidden + k;
        const T c =
            FusedMulAdd(kept[hidden], a.before[row * hidden + k], kept[0] * kept[2 * hidden]);
        const T d = dcell[row * hidden + k];
        sum += d;
        dot = FusedMulAdd(d, CoefficientsOf(a.norm_c, row, 1, 0).Xhat(c), dot);
      });
      partials[(part * kCellColumnSums) * hidden + k] = sum;
      partials[(part * kCellColumnSums + 1) * hidden + k] = dot;
    }
  }
}

// The lanes of a warp have columns; the warps alternate over the partial sums.
template <class T>
PLANISH_KERNEL(kColumnThreads, 1)
FinishSums(const T* partials, int64_t count, int sums, int64_t cols, SumsOutputs<T> outputs) {
  constexpr int kSlices = kColumnThreads / kWarpThreads;
  const SumsOutput<T> out = outputs.output[BlockIndexY()];
  if (out.data == nullptr) return;
  const int lane = ThreadIndex() % kWarpThreads, slice = ThreadIndex() / kWarpThreads;
  for (int64_t first = BlockIndex() * kWarpThreads; first < out.count;
       first += Blocks() * kWarpThreads) {
    const int64_t col = first + lane;
    double sum = 0;
    if (col < out.count) {
      for (int64_t p = slice; p < count; p += kSlices) {
        sum += static_cast<double>(partials[(p * sums + out.sum) * cols + out.begin + col]);
      }
    }
    sum = SumOverWarps<kSlices>(sum);
    if (slice == 0 && col < out.count) out.data[col] = static_cast<T>(sum);
  }
}

// --- States ---

// Calls f(i) for i < n, over the whole grid.
template <class F>
PLANISH_DEVICE void ForElements(int64_t n, F&& f) {
  for (int64_t i = BlockIndex() * BlockThreads() + ThreadIndex(); i < n;
       i += Blocks() * BlockThreads()) {
    f(i);
  }
}

template <class T>
PLANISH_KERNEL(kElementThreads, 1)
PackParams(CellLayer<T> a, RnnParams<const T> from) {
  const CellParams<T>& p = a.params;
  const int64_t hidden = a.hidden, columns = a.gates * hidden;
  const bool gru = a.arithmetic == Arithmetic::kGru;
  const T* const gain_ih = a.sums == Sums::kSeparate ? from.ln_ih_weight : from.ln_weight;
  ForElements(columns, [&](int64_t j) {
    if (p.gain_ih != nullptr) p.gain_ih[j] = gain_ih == nullptr ? T{1} : gain_ih[j];
    if (p.gain_hh != nullptr)
      p.gain_hh[j] = from.ln_hh_weight == nullptr ? T{1} : from.ln_hh_weight[j];
    // A cell with ln_bias has none of the other biases.
    const T of_x = OrZero(from.bias, j) + OrZero(from.ln_ih_bias, j) + OrZero(from.ln_bias, j);
    const T of_h = OrZero(from.ln_hh_bias, j);
    const bool candidate = gru && j >= 2 * hidden;
    p.bias[j] = candidate ? of_x : of_x + of_h;
    if (candidate) p.bias_hn[j - 2 * hidden] = of_h + OrZero(from.bias_hn, j - 2 * hidden);
    if (p.gain_c != nullptr && j < hidden) {
      p.gain_c[j] = from.ln_c_weight == nullptr ? T{1} : from.ln_c_weight[j];
      p.bias_c[j] = OrZero(from.ln_c_bias, j);
    }
  });
}

template <class T>
PLANISH_KERNEL(kElementThreads, 1)
BeginState(CellLayer<T> a, int64_t first, const T* from, const T* reset, int64_t zeros, T* to) {
  ForElements(a.batch * a.hidden, [&](int64_t i) {
    const int64_t b = i / a.hidden, k = i % a.hidden;
    to[i] = IsReset(a, first, b) ? OrEmpty(reset, k, k >= zeros) : OrEmpty(from, i, k >= zeros);
  });
}

template <class T>
PLANISH_KERNEL(kElementThreads, 1)
ExpandHeads(CellLayer<T> a, int64_t units, const T* blocks, T* matrix) {
  ForElements(a.gates * a.hidden * a.hidden, [&](int64_t i) {
    const int64_t row = i / a.hidden, k = i % a.hidden;
    const bool own = row % a.hidden / units == k / units;
    matrix[i] = own ? blocks[row * units + k % units] : T{0};
  });
}

template <class T>
PLANISH_KERNEL(kElementThreads, 1)
TakeHeads(CellLayer<T> a, int64_t units, const T* matrix, T* blocks) {
  ForElements(a.gates * a.hidden * units, [&](int64_t i) {
    const int64_t row = i / units, first = row % a.hidden / units * units;
    blocks[i] = matrix[row * a.hidden + first + i % units];
  });
}

template <class T>
PLANISH_KERNEL(kElementThreads, 1)
EndProjection(CellLayer<T> a, int64_t t, int64_t next, const T* projected, const T* h, T* y,
              T* h_out) {
  const int64_t states = a.batch * a.hidden;
  ForElements(states, [&](int64_t i) {
    const int64_t b = i / a.hidden, k = i % a.hidden;
    const bool active = IsActive(a, t, b);
    const T value = active ? projected[i] : h[i];
    y[t * states + i] = active ? value : T{0};
    if (h_out != nullptr) h_out[i] = IsReset(a, next, b) ? OrZero(a.h_reset, k) : value;
  });
}

template <class T>
PLANISH_KERNEL(kElementThreads, 1)
GradientOfProjected(CellLayer<T> a, int64_t t, int64_t later, const T* dy, T* dh, T* reset_sums,
                    T* dprojected) {
  const int64_t states = a.batch * a.hidden;
  ForElements(states, [&](int64_t i) {
    const int64_t b = i / a.hidden;
    T d = dh[i];
    if (IsReset(a, later, b)) {
      reset_sums[i] += d;
      d = 0;
    }
    const bool active = IsActive(a, t, b);
    dprojected[t * states + i] = active ? d + OrZero(dy, t * states + i) : T{0};
    dh[i] = active ? T{0} : d;
  });
}

template <class T>
PLANISH_KERNEL(kElementThreads, 1)
Unproject(CellLayer<T> a, T* unprojected) {
  ForElements(a.time * a.batch * a.hidden, [&](int64_t i) {
    const int64_t row = i / a.hidden, k = i % a.hidden;
    const T* const o = a.gates_kept + row * 4 * a.hidden + 3 * a.hidden;
    unprojected[i] = IsActive(a, row / a.batch, row % a.batch) ? o[k] * a.tanh_c[i] : T{0};
  });
}

template <class T>
PLANISH_KERNEL(kElementThreads, 1)
StatesBefore(CellLayer<T> a, bool reverse, const T* h0, const T* y, T* h_before) {
  const int64_t states = a.batch * a.hidden;
  ForElements(a.time * states, [&](int64_t i) {
    const int64_t t = i / states, b = i % states / a.hidden, k = i % a.hidden;
    const int64_t earlier = reverse ? t + 1 : t - 1;
    // In reverse, a sequence begins at its own last step.
    const bool first = earlier < 0 || earlier >= a.time || !IsActive(a, earlier, b);
    h_before[i] = !IsActive(a, t, b) ? T{0}
                  : IsReset(a, t, b) ? OrZero(a.h_reset, k)
                  : first            ? OrZero(h0, i % states)
                                     : y[earlier * states + i % states];
  });
}

template <class T>
PLANISH_KERNEL(kElementThreads, 1)
MaskInputs(CellLayer<T> a, int64_t inputs, const T* x, T* masked) {
  ForElements(a.time * a.batch * inputs, [&](int64_t i) {
    const int64_t row = i / inputs;
    masked[i] = IsActive(a, row / a.batch, row % a.batch) ? x[i] : T{0};
  });
}

// Each thread has a unit, for all sequences in turn.
template <class T>
PLANISH_KERNEL(kElementThreads, 1)
EndState(CellLayer<T> a, int64_t first, const T* dstate, const T* reset_sums, T* dstate0,
         T* dreset) {
  ForElements(a.hidden, [&](int64_t k) {
    T sum = 0;
    for (int64_t b = 0; b < a.batch; ++b) {
      const int64_t i = b * a.hidden + k;
      const T d = dstate[i];
      const bool reset = IsReset(a, first, b);
      if (reset_sums != nullptr) sum += reset ? reset_sums[i] + d : reset_sums[i];
      if (dstate0 != nullptr) dstate0[i] = reset ? T{0} : d;
    }
    if (dreset != nullptr) dreset[k] = sum;
  });
}

// --- Matrix products ---

constexpr int kTileSide = kTile / kSquare;
constexpr int kTileThreads = kTileSide * kTileSide;

template <class T>
PLANISH_KERNEL(kTileThreads, 1)
Multiply(int64_t rows, int64_t cols, int64_t inner, const T* a, const T* b, T* c, bool a_transposed,
         bool b_transposed, bool accumulate) {
  T* const tile_a = SharedMemory<T>();  // [depth, tile], both
  T* const tile_b = tile_a + kDepth * kTile;
  const int me = ThreadIndex(), row = me / kTileSide, col = me % kTileSide;
  const int64_t tiles_x = (cols + kTile - 1) / kTile, tiles_y = (rows + kTile - 1) / kTile;
  for (int64_t tile = BlockIndex(); tile < tiles_x * tiles_y; tile += Blocks()) {
    const int64_t first_row = tile / tiles_x * kTile, first_col = tile % tiles_x * kTile;
    T sums[kSquare][kSquare] = {};
    for (int64_t first = 0; first < inner; first += kDepth) {
      for (int i = me; i < kDepth * kTile; i += kTileThreads) {
        // Adjacent threads read adjacent elements.
        const int depth_a = a_transposed ? i / kTile : i % kDepth;
        const int at_a = a_transposed ? i % kTile : i / kDepth;
        const int depth_b = b_transposed ? i % kDepth : i / kTile;
        const int at_b = b_transposed ? i / kDepth : i % kTile;
        const int64_t r = first_row + at_a, ka = first + depth_a;
        const int64_t q = first_col + at_b, kb = first + depth_b;
        const bool has_a = r < rows && ka < inner, has_b = q < cols && kb < inner;
        tile_a[depth_a * kTile + at_a] =
            has_a ? a[a_transposed ? ka * rows + r : r * inner + ka] : T{0};
        tile_b[depth_b * kTile + at_b] =
            has_b ? b[b_transposed ? q * inner + kb : kb * cols + q] : T{0};
      }
      SyncBlock();
      const int depth = inner - first < kDepth ? static_cast<int>(inner - first) : kDepth;
      for (int k = 0; k < depth; ++k) {
        PLANISH_UNROLL
        for (int i = 0; i < kSquare; ++i) {
          PLANISH_UNROLL
          for (int j = 0; j < kSquare; ++j) {
            sums[i][j] = FusedMulAdd(tile_a[k * kTile + row + i * kTileSide],
                                     tile_b[k * kTile + col + j * kTileSide], sums[i][j]);
          }
        }
      }
      SyncBlock();
    }
    PLANISH_UNROLL
    for (int i = 0; i < kSquare; ++i) {
      PLANISH_UNROLL
      for (int j = 0; j < kSquare; ++j) {
        const int64_t r = first_row + row + i * kTileSide, q = first_col + col + j * kTileSide;
        if (r >= rows || q >= cols) continue;
        T& to = c[r * cols + q];
        to = accumulate ? to + sums[i][j] : sums[i][j];
      }
    }
  }
}

// --- Launching ---

// Returns a grid with one block for each of `rows` rows of `hidden` units.
Launch OverRows(int64_t rows, int64_t hidden) {
  const int64_t turns = CeilDiv(hidden, kMaxRowThreads);
  const int64_t threads = CeilDiv(CeilDiv(hidden, turns), kWarpThreads);
  return {.blocks = rows < kMaxBlocks ? rows : kMaxBlocks,
          .threads = static_cast<int>(threads) * kWarpThreads,
          .shared_bytes = RowTeam::kSharedBytes};
}

Launch OverElements(int64_t n) {
  const int64_t blocks = CeilDiv(n, kElementThreads);
  return {.blocks = blocks < kMaxElementBlocks ? blocks : kMaxElementBlocks,
          .threads = kElementThreads};
}

Launch OverColumnParts(int64_t columns, int64_t parts) {
  return {.blocks = CeilDiv(columns, kColumnThreads),
          .blocks_y = parts < kMaxBlocksY ? parts : kMaxBlocksY,
          .threads = kColumnThreads};
}

}  // namespace

template <class T>
void RunPackParams(const char* function, const CellLayer<T>& layer, const RnnParams<const T>& from,
                   void* stream) {
  Run(function, PackParams<T>, OverElements(layer.gates * layer.hidden), stream, layer, from);
}

template <class T>
void RunBeginState(const char* function, const CellLayer<T>& layer, int64_t first, const T* from,
                   const T* reset, int64_t zeros, T* to, void* stream) {
  if (to == nullptr) return;
  Run(function, BeginState<T>, OverElements(layer.batch * layer.hidden), stream, layer, first, from,
      reset, zeros, to);
}

template <class T>
void RunStatistics(const char* function, const CellLayer<T>& layer, void* stream) {
  VisitKind(function, layer, [&]<class Kind>(Kind) {
    Run(function, Statistics<T, Kind>, OverRows(layer.time * layer.batch, layer.hidden), stream,
        layer);
  });
}

template <class T>
void RunForwardStep(const char* function, const CellLayer<T>& layer, const ForwardStepCall<T>& step,
                    void* stream) {
  VisitKind(function, layer, [&]<class Kind>(Kind) {
    Run(function, ForwardStep<T, Kind>, OverRows(layer.batch, layer.hidden), stream, layer, step,
        layer.arithmetic == Arithmetic::kRnnRelu);
  });
}

template <class T>
void RunExpandHeads(const char* function, const CellLayer<T>& layer, int64_t heads, const T* blocks,
                    T* matrix, void* stream) {
  Run(function, ExpandHeads<T>, OverElements(layer.gates * layer.hidden * layer.hidden), stream,
      layer, layer.hidden / heads, blocks, matrix);
}

template <class T>
void RunTakeHeads(const char* function, const CellLayer<T>& layer, int64_t heads, const T* matrix,
                  T* blocks, void* stream) {
  const int64_t units = layer.hidden / heads;
  Run(function, TakeHeads<T>, OverElements(layer.gates * layer.hidden * units), stream, layer,
      units, matrix, blocks);
}

template <class T>
void RunEndProjection(const char* function, const CellLayer<T>& layer, int64_t t, int64_t next,
                      const T* projected, const T* h, T* y, T* h_out, void* stream) {
  Run(function, EndProjection<T>, OverElements(layer.batch * layer.hidden), stream, layer, t, next,
      projected, h, y, h_out);
}

template <class T>
void RunGradientOfProjected(const char* function, const CellLayer<T>& layer, int64_t t,
                            int64_t later, const T* dy, T* dh, T* reset_sums, T* dprojected,
                            void* stream) {
  Run(function, GradientOfProjected<T>, OverElements(layer.batch * layer.hidden), stream, layer, t,
      later, dy, dh, reset_sums, dprojected);
}

template <class T>
void RunUnproject(const char* function, const CellLayer<T>& layer, T* unprojected, void* stream) {
  Run(function, Unproject<T>, OverElements(layer.time * layer.batch * layer.hidden), stream, layer,
      unprojected);
}

template <class T>
void RunStatesBefore(const char* function, const CellLayer<T>& layer, bool reverse, const T* h0,
                     const T* y, T* h_before, void* stream) {
  Run(function, StatesBefore<T>, OverElements(layer.time * layer.batch * layer.hidden), stream,
      layer, reverse, h0, y, h_before);
}

template <class T>
void RunMaskInputs(const char* function, const CellLayer<T>& layer, int64_t inputs, const T* x,
                   T* masked, void* stream) {
  Run(function, MaskInputs<T>, OverElements(layer.time * layer.batch * inputs), stream, layer,
      inputs, x, masked);
}

template <class T>
void RunBackwardStep(const char* function, const CellLayer<T>& layer,
                     const BackwardStepCall<T>& step, void* stream) {
  VisitKind(function, layer, [&]<class Kind>(Kind) {
    Run(function, BackwardStep<T, Kind>, OverRows(layer.batch, layer.hidden), stream, layer, step,
        layer.arithmetic == Arithmetic::kRnnRelu);
  });
}

template <class T>
void RunEndState(const char* function, const CellLayer<T>& layer, int64_t first, const T* dstate,
                 const T* reset_sums, T* dstate0, T* dreset, void* stream) {
  if (dstate0 == nullptr && dreset == nullptr) return;
  Run(function, EndState<T>, OverElements(layer.hidden), stream, layer, first, dstate, reset_sums,
      dstate0, dreset);
}

template <class T>
void RunColumnSums(const char* function, const CellLayer<T>& layer, const T* da, const T* dcell,
                   T* partials, T* cell_partials, void* stream) {
  const int64_t parts = (layer.time * layer.batch + kRnnRowsInTurn - 1) / kRnnRowsInTurn;
  Run(function, SumColumns<T>, OverColumnParts(layer.gates * layer.hidden, parts), stream, layer,
      parts, da, partials);
  if (layer.cell_norm == CellNorm::kNone) return;
  Run(function, SumCellColumns<T>, OverColumnParts(layer.hidden, parts), stream, layer, parts,
      dcell, cell_partials);
}

template <class T>
void RunFinishSums(const char* function, const T* partials, int64_t count, int sums, int64_t cols,
                   const SumsOutputs<T>& outputs, void* stream) {
  const Launch launch = {.blocks = (cols + kWarpThreads - 1) / kWarpThreads,
                         .blocks_y = kMaxSumsOutputs,
                         .threads = kColumnThreads,
                         .shared_bytes = kColumnThreads * sizeof(double)};
  Run(function, FinishSums<T>, launch, stream, partials, count, sums, cols, outputs);
}

template <class T>
void RunInputNormBackward(const char* function, const CellLayer<T>& layer, T* da, void* stream) {
  VisitKind(function, layer, [&]<class Kind>(Kind) {
    Run(function, InputNormBackward<T, Kind>, OverRows(layer.time * layer.batch, layer.hidden),
        stream, layer, da);
  });
}

template <class T>
void RunMatmul(const char* function, const planish::cuda::MatmulArgs<T>& m) {
  const int64_t tiles = (m.cols + kTile - 1) / kTile * ((m.rows + kTile - 1) / kTile);
  const Launch launch = {.blocks = tiles < kMaxBlocks ? tiles : kMaxBlocks,
                         .threads = kTileThreads,
                         .shared_bytes = 2 * kDepth * kTile * sizeof(T)};
  Run(function, Multiply<T>, launch, m.stream, m.rows, m.cols, m.inner, m.a, m.b, m.c,
      m.a_transposed, m.b_transposed, m.accumulate);
}

// NOLINTBEGIN(bugprone-macro-parentheses): T is a type
#define PLANISH_INSTANTIATE(T)                                                                     \
  template void RunPackParams(const char*, const CellLayer<T>&, const RnnParams<const T>&, void*); \
  template void RunBeginState(const char*, const CellLayer<T>&, int64_t, const T*, const T*,       \
                              int64_t, T*, void*);                                                 \
  template void RunStatistics(const char*, const CellLayer<T>&, void*);                            \
  template void RunForwardStep(const char*, const CellLayer<T>&, const ForwardStepCall<T>&,        \
                               void*);                                                             \
  template void RunExpandHeads(const char*, const CellLayer<T>&, int64_t, const T*, T*, void*);    \
  template void RunTakeHeads(const char*, const CellLayer<T>&, int64_t, const T*, T*, void*);      \
  template void RunEndProjection(const char*, const CellLayer<T>&, int64_t, int64_t, const T*,     \
                                 const T*, T*, T*, void*);                                         \
  template void RunGradientOfProjected(const char*, const CellLayer<T>&, int64_t, int64_t,         \
                                       const T*, T*, T*, T*, void*);                               \
  template void RunUnproject(const char*, const CellLayer<T>&, T*, void*);                         \
  template void RunStatesBefore(const char*, const CellLayer<T>&, bool, const T*, const T*, T*,    \
                                void*);                                                            \
  template void RunMaskInputs(const char*, const CellLayer<T>&, int64_t, const T*, T*, void*);     \
  template void RunBackwardStep(const char*, const CellLayer<T>&, const BackwardStepCall<T>&,      \
                                void*);                                                            \
  template void RunEndState(const char*, const CellLayer<T>&, int64_t, const T*, const T*, T*, T*, \
                            void*);                                                                \
  template void RunColumnSums(const char*, const CellLayer<T>&, const T*, const T*, T*, T*,        \
                              void*);                                                              \
  template void RunFinishSums(const char*, const T*, int64_t, int, int64_t, const SumsOutputs<T>&, \
                              void*);                                                              \
  template void RunInputNormBackward(const char*, const CellLayer<T>&, T*, void*);                 \
  template void RunMatmul(const char*, const planish::cuda::MatmulArgs<T>&);
// NOLINTEND(bugprone-macro-parentheses)
PLANISH_INSTANTIATE(PLANISH_ELEMENT)
#undef PLANISH_INSTANTIATE

}  // namespace planish::internal::cuda
