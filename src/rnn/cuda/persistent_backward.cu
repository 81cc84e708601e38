#include <cstdint>

#include "src/base/cuda/kernel.h"
#include "src/base/cuda/math.h"
#include "src/base/cuda/team.h"
#include "src/rnn/cuda/norm.h"
#include "src/rnn/cuda/persistent.h"
#include "src/rnn/cuda/persistent_block.h"
#include "src/rnn/cuda/unit.h"

// All backward steps in one kernel. A block has a few units with all their gates. It keeps their
// rows of weight_hh, and the gradients of their h and c, in shared memory. The steps in comments
// are those of docs/cuda.md, "How it is done".
namespace planish::internal::cuda {
namespace {

// --- Tuning constants (docs/tuning.md) ---

// Lanes that add the blocks' partial sums of an element of dh.
constexpr int kCollectors = 4;

// --- End of tuning constants ---

constexpr int kGroup = kPersistentSequences;

/// The sums of g and of g * xhat for the backward of a norm, or their means.
struct GradientPart {
  double mean, dot;
};

// Returns the sums of g(i) and of g(i) * xhat(i) for i < count, on kPartLanes lanes.
template <class G, class X>
PLANISH_DEVICE GradientPart TakePart(int count, G&& g, X&& xhat) {
  double sums[2] = {0, 0};
  for (int i = ThreadIndex() % kPartLanes; i < count; i += kPartLanes) {
    const double gradient = static_cast<double>(g(i));
    sums[0] += gradient;
    sums[1] = fma(gradient, static_cast<double>(xhat(i)), sums[1]);
  }
  SumOverLanes(kPartLanes, sums);
  return {sums[0], sums[1]};
}

// Returns the means over n elements from the parts of all blocks, on kJoinLanes lanes. The result
// is unspecified if parts is null.
PLANISH_DEVICE GradientPart JoinParts(const GradientPart* parts, int64_t blocks, double n) {
  double sums[2] = {0, 0};
  ReadAndAdd(
      ThreadIndex() % kJoinLanes, kJoinLanes, parts == nullptr ? 0 : blocks,
      [&](int64_t p) { return parts[p]; },
      [&](int64_t, const GradientPart& part) { sums[0] += part.mean, sums[1] += part.dot; });
  SumOverLanes(kJoinLanes, sums);
  return {sums[0] / n, sums[1] / n};
}

template <class T>
PLANISH_DEVICE void WriteMeans(const GradientPart& means, T* to) {
  to[0] = static_cast<T>(means.mean);
  to[1] = static_cast<T>(means.dot);
}

// Prefetches the values of a unit that a step reads and that do not depend on other steps.
template <class Kind, class T>
PLANISH_DEVICE void PrefetchUnit(const CellLayer<T>& a, const PersistentBackwardCall<T>& s,
                                 const StateNorm<Kind, T>& norm, int64_t row, int64_t k) {
  const int64_t hidden = a.hidden, unit = row * hidden + k, first = row * Kind::kGates * hidden + k;
  if (s.dy != nullptr) Prefetch(s.dy + unit);
  PLANISH_UNROLL
  for (int gate = 0; gate < Kind::kGates; ++gate) {
    if (!Kind::kRnn) Prefetch(a.gates_kept + first + gate * hidden);
    if (!Kind::kPlain) Prefetch(norm.z + first + gate * hidden);
  }
  if (!Kind::kPlain) Prefetch(norm.norm_coefficients + row * Kind::kNorms * kNormCoefficients);
  if constexpr (Kind::kLstm) {
    Prefetch(a.before + unit);
    Prefetch(a.tanh_c + unit);
    if (a.norm_c != nullptr) Prefetch(a.norm_c + row * kNormCoefficients);
  } else if constexpr (Kind::kGru) {
    Prefetch(a.candidate + unit);
    Prefetch(s.h_before + unit);
  } else {
    Prefetch(s.y + unit);
  }
}

// Multiplies zh's gradients [rows, lanes] by weights [rows, stride] into `partial` [B, stride], the
// block's partial sum of all states' gradients. A thread has adjacent states of a group of
// sequences.
template <class T>
PLANISH_DEVICE void Multiply(const PersistentBackwardPlan& plan, int rows, int batch,
                             const T* gradients, const T* weights, T* partial) {
  constexpr int kPack = 16 / static_cast<int>(sizeof(T));
  const int packs = static_cast<int>(plan.stride) / kPack;
  const int lanes = static_cast<int>(plan.lanes), stride = static_cast<int>(plan.stride);
  for (int i = ThreadIndex(); i < packs * (lanes / kGroup); i += BlockThreads()) {
    const int k = i % packs * kPack, first = i / packs * kGroup;
    T sums[kGroup][kPack];
    PLANISH_UNROLL
    for (int q = 0; q < kGroup; ++q) {
      PLANISH_UNROLL
      for (int j = 0; j < kPack; ++j) sums[q][j] = 0;
    }
    for (int row = 0; row < rows; ++row) {
      const auto w = *reinterpret_cast<const Pack<T, kPack>*>(weights + row * stride + k);
      T of_zh[kGroup];
      PLANISH_UNROLL
      for (int q = 0; q < kGroup; q += kPack) {
        const auto pack =
            *reinterpret_cast<const Pack<T, kPack>*>(gradients + row * lanes + first + q);
        PLANISH_UNROLL
        for (int j = 0; j < kPack; ++j) of_zh[q + j] = pack.values[j];
      }
      PLANISH_UNROLL
      for (int q = 0; q < kGroup; ++q) {
        PLANISH_UNROLL
        for (int j = 0; j < kPack; ++j) {
          sums[q][j] = FusedMulAdd(of_zh[q], w.values[j], sums[q][j]);
        }
      }
    }
    PLANISH_UNROLL
    for (int q = 0; q < kGroup; ++q) {
      if (first + q >= batch) break;
      Pack<T, kPack> pack;
      PLANISH_UNROLL
      for (int j = 0; j < kPack; ++j) pack.values[j] = sums[q][j];
      *reinterpret_cast<Pack<T, kPack>*>(partial + (first + q) * plan.stride + k) = pack;
    }
  }
}

// A block of the kernel: its arguments, and its arrays in shared memory.
template <class T, class Kind>
struct BackwardBlock
    : PersistentArguments<T, Kind, const CellLayer<T>&, PersistentBackwardCall<T>, GradientPart> {
  using Base =
      PersistentArguments<T, Kind, const CellLayer<T>&, PersistentBackwardCall<T>, GradientPart>;
  using Base::a, Base::s, Base::plan, Base::relu, Base::cell_norm, Base::block, Base::hidden;
  using Base::columns, Base::units, Base::rows, Base::sum_parts, Base::cell_parts;
  using Base::kGates, Base::kNorms;
  static constexpr int kCells = Kind::kCells;

  const bool carried;
  const StateNorm<Kind, T> norm;
  const int lanes, batch;
  T* weights;             // [rows, stride]
  T* gradients;           // [rows, lanes] of zh
  T* elements;            // [B, rows] g of the norms
  T* xhats;               // [B, rows]
  T *dh, *dc;             // [B, units]; in an sLSTM the gradient of log(n) follows dc
  T *d_o, *d_cell;        // [B, units] the gradients of o's sum and of the output of c's norm
  T* cell_xhat;           // [B, units]
  T *means, *cell_means;  // [B, norms, 2], then [B, 2] of c

  PLANISH_DEVICE BackwardBlock(const CellLayer<T>& layer, const PersistentBackwardCall<T>& call,
                               bool is_relu)
      : Base(layer, call, is_relu),
        carried(layer.cell_norm == CellNorm::kCarried),
        norm(layer),
        lanes(static_cast<int>(call.plan.lanes)),
        batch(static_cast<int>(layer.batch)) {
    weights = SharedMemory<T>();
    gradients = weights + plan.weights;
    elements = gradients + plan.gradients;
    xhats = elements + plan.sums;
    dh = xhats + plan.sums;
    dc = dh + plan.states;
    d_o = dc + plan.states;
    d_cell = d_o + plan.states;
    cell_xhat = d_cell + plan.states;
    means = dh + plan.state_arrays * plan.states;
    cell_means = means + batch * a.norms * 2;
  }

  PLANISH_DEVICE void Run() {
    ReadInputs();
    SyncBlock();
    int64_t later = -1;
    for (int64_t turn = 0; turn < a.time; ++turn) {
      const int64_t t = s.reverse ? turn : a.time - 1 - turn;
      if (turn + 1 < a.time) PrefetchUnits(s.reverse ? t + 1 : t - 1);
      if (turn > 0) CollectStates(turn - 1);
      ComputeOutputs(t, later);
      if (cell_norm) {
        SyncBlock();
        SumCellNorms(t);
      }
      ComputeGates(t);
      SyncBlock();
      if constexpr (!Kind::kPlain) {
        SumGateNorms(t);
        NormalizeGates(t);
        SyncBlock();
      }
      Multiply(
          plan, units * kGates, batch, gradients, weights,
          s.partials + turn % plan.buffers * plan.partials + BlockIndex() * batch * plan.stride);
      SyncGrid();
      later = t;
    }
    CollectStates(a.time - 1);
    WriteStates();
  }

  // Reads the weights and the gradients of the last state. Padding sequences stay zero.
  PLANISH_DEVICE void ReadInputs() {
    block.ReadWeights(s.weight_hh, weights);
    for (int i = ThreadIndex(); i < rows * lanes; i += BlockThreads()) gradients[i] = 0;
    block.ForUnits([&](int b, int unit, int64_t k) {
      const int64_t at = b * plan.units + unit;
      dh[at] = s.dh[b * hidden + k];
      PLANISH_UNROLL
      for (int i = 0; i < kCells; ++i) {
        dc[i * plan.states + at] = s.dc[(b * kCells + i) * hidden + k];
      }
    });
  }

  PLANISH_DEVICE void PrefetchUnits(int64_t t) {
    block.ForUnits([&](int b, int, int64_t k) { PrefetchUnit(a, s, norm, t * batch + b, k); });
  }

  // 1. The states: adds the blocks' partial sums of turn `turn` to dh, which already contains the
  // part outside the product. kCollectors lanes alternate over the blocks.
  PLANISH_DEVICE void CollectStates(int64_t turn) {
    const int me = ThreadIndex();
    const T* const partials = s.partials + turn % plan.buffers * plan.partials;
    const int count = batch * units * kCollectors;
    const int64_t of_block = batch * plan.stride;
    for (int i = me; i - me % kWarpThreads < count; i += BlockThreads()) {
      const int b = i / kCollectors / units, unit = i / kCollectors % units;
      T sum[1] = {0};
      if (i < count) {
        const T* const mine = partials + b * plan.stride + BlockIndex() * plan.units + unit;
        ReadAndAdd(
            i % kCollectors, kCollectors, plan.blocks,
            [&](int64_t p) { return mine[p * of_block]; },
            [&](int64_t, T part) { sum[0] += part; });
      }
      SumOverLanes(kCollectors, sum);
      if (i < count && i % kCollectors == 0) dh[b * plan.units + unit] += sum[0];
    }
    SyncBlock();
  }

  // 1. The backward of resets and of the output. `later` is the time of the turn before, or -1.
  PLANISH_DEVICE void ComputeOutputs(int64_t t, int64_t later) {
    block.ForUnits([&](int b, int unit, int64_t k) {
      const int64_t row = t * batch + b, at = b * plan.units + unit;
      T of_h = dh[at], of_c = 0;  // of_c is the gradient of c
      const bool reset = IsReset(a, later, b);
      if (reset) {
        // Gradients do not pass resets.
        s.dh_reset[b * hidden + k] += of_h;
        of_h = 0;
      }
      PLANISH_UNROLL
      for (int i = 0; i < kCells; ++i) {
        T& d = dc[i * plan.states + at];
        if (reset) {
          s.dc_reset[(b * kCells + i) * hidden + k] += d;
          d = 0;
        }
        if (i == 0) of_c = d;
      }
      if (!IsActive(a, t, b)) {
        dh[at] = of_h;
        if (cell_norm) s.dcell[row * hidden + k] = 0;
        return;
      }
      dh[at] = s.dy == nullptr ? of_h : of_h + s.dy[row * hidden + k];
      if constexpr (Kind::kLstm) {
        if (!cell_norm) return;
        // If the normalized c is the cell state, the gradients of c from the next step and from h
        // are added before the norm's backward. Otherwise they are added after it.
        const OutputGradient<T> d =
            TakeOutputBack<Kind, T>(a, row, k, dh[at], {carried ? of_c : T{0}});
        NormCoefficients<T> coefficients[1];
        ReadCoefficients(a.norm_c + row * kNormCoefficients, coefficients);
        d_o[at] = d.of_o;
        d_cell[at] = d.of_cell;
        cell_xhat[at] = XhatOfCell(a, row, k, coefficients[0]);
        s.dcell[row * hidden + k] = d.of_cell;
      }
    });
  }

  // 1. The means for the norm of c.
  PLANISH_DEVICE void SumCellNorms(int64_t t) {
    const T* const gain = a.params.gain_c + BlockIndex() * plan.units;
    ExchangeParts(
        batch, cell_parts, plan.blocks, [&](int b) { return IsActive(a, t, b); },
        [&](int b, bool there) {
          const int64_t first = b * plan.units;
          return TakePart(
              there ? units : 0, [&](int i) { return d_cell[first + i] * gain[i]; },
              [&](int i) { return cell_xhat[first + i]; });
        },
        [&](int b, const GradientPart* parts, bool writes) {
          const auto mean = JoinParts(parts, plan.blocks, static_cast<double>(hidden));
          if (writes) WriteMeans(mean, cell_means + 2 * b);
        });
  }

  // 2. The gates.
  PLANISH_DEVICE void ComputeGates(int64_t t) {
    constexpr int kFirst = Kind::kFirstGates;
    block.ForUnits([&](int b, int unit, int64_t k) {
      const int64_t row = t * batch + b, first = row * columns + k, at = b * plan.units + unit;
      if (!IsActive(a, t, b)) {
        PLANISH_UNROLL
        for (int gate = 0; gate < kGates; ++gate) {
          s.da[first + gate * hidden] = 0;
          s.dzh[first + gate * hidden] = 0;
          gradients[(unit * kGates + gate) * lanes + b] = 0;
        }
        return;
      }
      OutputGradient<T> output = {};
      if constexpr (Kind::kLstm) {
        if (cell_norm) {
          NormCoefficients<T> coefficients[1];
          ReadCoefficients(a.norm_c + row * kNormCoefficients, coefficients);
          output = {d_o[at],
                    TakeCellNormBack(a, row, k, coefficients[0], d_cell[at], cell_means[2 * b],
                                     cell_means[2 * b + 1]),
                    0};
          if (!carried) output.of_cell += dc[at];
        } else {
          T of_cell[Kind::kStates];
          PLANISH_UNROLL
          for (int i = 0; i < kCells; ++i) of_cell[i] = dc[i * plan.states + at];
          output = TakeOutputBack<Kind>(a, row, k, dh[at], of_cell);
        }
      }
      const auto d = TakeGatesBack<Kind>(a, row, k, dh[at], output, s.y, s.h_before, relu);
      dh[at] = d.dh;
      PLANISH_UNROLL
      for (int i = 0; i < kCells; ++i) dc[i * plan.states + at] = d.dc[i];
      NormCoefficients<T> norm_coefficients[kNorms];
      if constexpr (!Kind::kPlain)
        ReadCoefficients(norm.norm_coefficients + row * kNorms * kNormCoefficients,
                         norm_coefficients);
      PLANISH_UNROLL
      for (int gate = 0; gate < kGates; ++gate) {
        const int64_t j = first + gate * hidden;
        const int of_row = unit * kGates + gate;
        s.da[j] = d.of_a[gate];
        if constexpr (Kind::kPlain) {
          gradients[of_row * lanes + b] = d.OfState(gate);
          if (Kind::kGru) s.dzh[j] = d.OfState(gate);
        } else {
          elements[b * rows + of_row] = d.OfState(gate) * norm.gain[gate * hidden + k];
          xhats[b * rows + of_row] = norm_coefficients[gate / kFirst].Xhat(norm.z[j]);
        }
      }
    });
  }

  // 2. The means for the norms of the gates.
  PLANISH_DEVICE void SumGateNorms(int64_t t) {
    constexpr int kFirst = Kind::kFirstGates;
    ExchangeParts(
        batch * kNorms, sum_parts, plan.blocks, [&](int i) { return IsActive(a, t, i / kNorms); },
        [&](int i, bool there) {
          const int b = i / kNorms, first_gate = i % kNorms * kFirst;
          const int gates = kGates - first_gate < kFirst ? kGates - first_gate : kFirst;
          const auto at = [&](int j) {
            return b * rows + j / gates * kGates + first_gate + j % gates;
          };
          return TakePart(
              there ? units * gates : 0, [&](int j) { return elements[at(j)]; },
              [&](int j) { return xhats[at(j)]; });
        },
        [&](int i, const GradientPart* parts, bool writes) {
          const auto mean =
              JoinParts(parts, plan.blocks, ElementsOf<kGates, kFirst>(i % kNorms, hidden));
          if (writes) WriteMeans(mean, means + 2 * i);
        });
  }

  // 3. The gradient of the block's columns of zh, through the norms of the gates.
  PLANISH_DEVICE void NormalizeGates(int64_t t) {
    constexpr int kFirst = Kind::kFirstGates;
    block.ForUnits([&](int b, int unit, int64_t k) {
      if (!IsActive(a, t, b)) return;
      const int64_t row = t * batch + b;
      NormCoefficients<T> norm_coefficients[kNorms];
      ReadCoefficients(norm.norm_coefficients + row * kNorms * kNormCoefficients,
                       norm_coefficients);
      PLANISH_UNROLL
      for (int gate = 0; gate < kGates; ++gate) {
        const int of_row = unit * kGates + gate, i = b * kNorms + gate / kFirst;
        const T d =
            TakeNormBack(elements[b * rows + of_row], xhats[b * rows + of_row],
                         norm_coefficients[gate / kFirst].rstd, means[2 * i], means[2 * i + 1]);
        s.dzh[row * columns + gate * hidden + k] = d;
        gradients[of_row * lanes + b] = d;
      }
    });
  }

  PLANISH_DEVICE void WriteStates() {
    block.ForUnits([&](int b, int unit, int64_t k) {
      const int64_t at = b * plan.units + unit;
      s.dh[b * hidden + k] = dh[at];
      PLANISH_UNROLL
      for (int i = 0; i < kCells; ++i) {
        s.dc[(b * kCells + i) * hidden + k] = dc[i * plan.states + at];
      }
    });
  }
};

template <class T, class Kind>
PLANISH_KERNEL(kMaxPersistentThreads, 1)
PersistentBackward(CellLayer<T> a, PersistentBackwardCall<T> s, bool relu) {
  BackwardBlock<T, Kind>(a, s, relu).Run();
}

}  // namespace

template <class T>
PersistentBackwardPlan PlanBackwardOnDevice(const CellRecipe& recipe, const RnnShape& shape) {
  const GridLimits limits = CooperativeLimits();
  return PlanPersistentBackward(recipe, shape, sizeof(T), limits.blocks, limits.shared_bytes);
}

template <class T>
void RunBackwardPersistent(const char* function, const CellLayer<T>& layer,
                           const PersistentBackwardCall<T>& call, void* stream) {
  VisitKind(function, layer, [&]<class Kind>(Kind) {
    RunCooperative(function, PersistentBackward<T, Kind>, LaunchOf(call.plan), stream, layer, call,
                   layer.arithmetic == Arithmetic::kRnnRelu);
  });
}

template PersistentBackwardPlan PlanBackwardOnDevice<PLANISH_ELEMENT>(const CellRecipe&,
                                                                      const RnnShape&);
template void RunBackwardPersistent(const char*, const CellLayer<PLANISH_ELEMENT>&,
                                    const PersistentBackwardCall<PLANISH_ELEMENT>&, void*);

}  // namespace planish::internal::cuda
