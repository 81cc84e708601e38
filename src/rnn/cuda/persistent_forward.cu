#include <cstdint>

#include "src/base/cuda/kernel.h"
#include "src/base/cuda/math.h"
#include "src/rnn/cuda/norm.h"
#include "src/rnn/cuda/persistent.h"
#include "src/rnn/cuda/persistent_block.h"
#include "src/rnn/cuda/unit.h"

// All steps in one kernel. A block has a few units with all their gates. It keeps their rows of
// weight_hh, and their c, in shared memory. Blocks exchange the state through device memory. The
// steps in comments are those of docs/cuda.md, "How it is done".
namespace planish::internal::cuda {
namespace {

constexpr int kPairs = kPersistentRows * kPersistentSequences;
static_assert(kPairs == kWarpThreads);

// Sums the elements over the lanes of a warp. Afterwards values[0] of lane i is the sum of
// values[i]. Each call exchanges half of the elements with the lane that differs in the bit kHalf.
template <int kHalf, class T>
PLANISH_DEVICE void ShareOut(T (&values)[kPairs]) {
  const bool upper = (ThreadIndex() & kHalf) != 0;
  PLANISH_UNROLL
  for (int i = 0; i < kHalf; ++i) {
    const T mine = upper ? values[i + kHalf] : values[i];
    const T other = upper ? values[i] : values[i + kHalf];
    values[i] = mine + XorLane(other, kHalf);
  }
  if constexpr (kHalf > 1) ShareOut<kHalf / 2>(values);
}

// Partial statistics of a block's elements: the mean, as a sum of two elements, and the sum of
// squared distances from it.
struct NormPart {
  double hi, lo, squares;
};
static_assert(sizeof(NormPart) == kPersistentPart * sizeof(double));

PLANISH_DEVICE NormPart PartOf(double a, double b, double squares) {
  const double sum = a + b, of_b = sum - a;
  return {sum, (a - (sum - of_b)) + (b - of_b), squares};
}

// Computes the NormPart of value(i), i < count, on kPartLanes lanes.
template <class F>
PLANISH_DEVICE NormPart TakePart(int count, F&& value) {
  const int lane = ThreadIndex() % kPartLanes;
  const double shift = count > 0 ? static_cast<double>(value(0)) : 0, n = count;
  double sum[1] = {0}, squares[1] = {0};
  for (int i = lane; i < count; i += kPartLanes) sum[0] += static_cast<double>(value(i)) - shift;
  SumOverLanes(kPartLanes, sum);
  const double mean = sum[0] / n;
  for (int i = lane; i < count; i += kPartLanes) {
    const double d = (static_cast<double>(value(i)) - shift) - mean;
    squares[0] = fma(d, d, squares[0]);
  }
  SumOverLanes(kPartLanes, squares);
  return PartOf(shift, mean, squares[0]);
}

// Combines the parts of all blocks into the norm of `per_unit` elements of each of `hidden` units,
// on kJoinLanes lanes. The result is unspecified if parts is null.
template <class T>
PLANISH_DEVICE NormCoefficients<T> JoinParts(const NormPart* parts, const PersistentPlan& plan,
                                             int64_t hidden, int per_unit, double eps) {
  const int lane = ThreadIndex() % kJoinLanes;
  const int64_t blocks = parts == nullptr ? 0 : plan.blocks;
  const double n = static_cast<double>(hidden * per_unit);
  NormPart first = {};
  if (parts != nullptr) first = parts[0];
  double sums[2] = {0, 0};
  ReadAndAdd(
      lane, kJoinLanes, blocks, [&](int64_t p) { return parts[p]; },
      [&](int64_t p, const NormPart& part) {
        const int64_t left = hidden - p * plan.units;
        const double count =
            static_cast<double>((left < plan.units ? left : plan.units) * per_unit);
        const double d = (part.hi - first.hi) + (part.lo - first.lo);
        sums[0] = fma(count, d, sums[0]);
        sums[1] += fma(count * d, d, part.squares);
      });
  SumOverLanes(kJoinLanes, sums);
  const double distance = sums[0] / n;
  double variance = fma(-sums[0], distance, sums[1]) / n;
  if (variance < 0) variance = 0;
  const NormPart mean = PartOf(first.hi, first.lo + distance, 0);
  const T hi = static_cast<T>(mean.hi);
  const double lo = (mean.hi - static_cast<double>(hi)) + mean.lo;
  return {hi, static_cast<T>(lo), static_cast<T>(1.0 / sqrt(variance + eps))};
}

template <class T>
PLANISH_DEVICE void WriteCoefficients(const NormCoefficients<T>& coefficients, T* to) {
  to[0] = coefficients.hi, to[1] = coefficients.lo, to[2] = coefficients.rstd;
}

// A block of the kernel: its arguments, and its arrays in shared memory.
template <class T, class Kind>
struct ForwardBlock : PersistentArguments<T, Kind, CellLayer<T>, PersistentCall<T>, NormPart> {
  using Base = PersistentArguments<T, Kind, CellLayer<T>, PersistentCall<T>, NormPart>;
  using Base::a, Base::s, Base::plan, Base::relu, Base::cell_norm, Base::block, Base::hidden;
  using Base::columns, Base::units, Base::rows, Base::sum_parts, Base::cell_parts;
  using Base::kGates, Base::kNorms;
  static constexpr int kCells = Kind::kCells, kStates = Kind::kStates;

  // A step, and the arrays that the steps use in turn.
  struct Step {
    int64_t t, next;  // next is -1 after the last step
    const T* h;       // the whole state
    T* h_next;
    const T *zx, *norm_coefficients;  // of the block's units
  };

  const int64_t batch;
  T* weights;                                // [rows, stride]
  T* sums;                                   // [B, rows]
  T* cells;                                  // [B, units]
  T* outputs;                                // [B, units] o, or an sLSTM's log(n)
  T *norm_coefficients, *cell_coefficients;  // [B, norms], followed by [B] of c
  T* inputs;                                 // [2, B, rows] zx
  T* input_coefficients;                     // [2, B, norms] of zx

  PLANISH_DEVICE ForwardBlock(const CellLayer<T>& layer, const PersistentCall<T>& call,
                              bool is_relu)
      : Base(layer, call, is_relu), batch(layer.batch) {
    weights = SharedMemory<T>();
    sums = weights + plan.weights;
    cells = sums + plan.sums;
    outputs = cells + plan.cells;
    norm_coefficients = outputs + plan.cells;
    cell_coefficients = norm_coefficients + batch * a.norms * kNormCoefficients;
    T* const params = norm_coefficients + plan.norm_coefficients;
    inputs = params + plan.params;
    input_coefficients = inputs + 2 * plan.inputs;
    block.ReadWeights(s.weight_hh, weights);
    a.params = block.ReadParams(a.params, params);  // copies in shared memory
  }

  PLANISH_DEVICE void Run() {
    WriteFirstState();
    CopyInputs(TimeOf(0), 0);
    SyncGrid();
    for (int64_t turn = 0; turn < a.time; ++turn) {
      const Step step = StepOf(turn);
      WaitForCopies();
      if (step.next >= 0) CopyInputs(step.next, turn + 1);
      MultiplyState(step);
      SyncBlock();
      if constexpr (Kind::kJoint) {
        AddInputs(step);
        SyncBlock();
      }
      if constexpr (!Kind::kPlain) NormalizeSums(step);
      ComputeGates(step);
      if (cell_norm) {
        SyncBlock();
        NormalizeCells(step);
        ComputeStates(step);
      }
      SyncGrid();
    }
  }

  PLANISH_DEVICE int64_t TimeOf(int64_t turn) const {
    return turn >= a.time ? int64_t{-1} : s.reverse ? a.time - 1 - turn : turn;
  }

  PLANISH_DEVICE Step StepOf(int64_t turn) const {
    const int64_t state_size = batch * plan.stride;
    return {TimeOf(turn),
            TimeOf(turn + 1),
            s.h + turn % 2 * state_size,
            s.h + (turn + 1) % 2 * state_size,
            inputs + turn % 2 * plan.inputs,
            input_coefficients + turn % 2 * plan.input_coefficients};
  }

  // Writes the initial state. Padding stays zero.
  PLANISH_DEVICE void WriteFirstState() {
    block.ForUnits([&](int b, int unit, int64_t k) {
      const bool reset = IsReset(a, TimeOf(0), b);
      s.h[b * plan.stride + k] = reset ? OrZero(a.h_reset, k) : OrZero(s.h0, b * hidden + k);
      PLANISH_UNROLL
      for (int i = 0; i < kCells; ++i) {
        const int64_t j = i * hidden + k;
        cells[i * plan.cells + b * plan.units + unit] =
            reset ? OrEmpty(a.c_reset, j, i == 1) : OrEmpty(s.c0, b * kCells * hidden + j, i == 1);
      }
    });
    const int64_t padding = plan.stride - hidden;
    for (int64_t i = BlockIndex() == 0 ? ThreadIndex() : 2 * batch * padding;
         i < 2 * batch * padding; i += BlockThreads()) {
      s.h[i / padding * plan.stride + hidden + i % padding] = 0;
    }
  }

  // Starts copying the inputs of a step. They do not depend on other steps, so they are loaded
  // during the step before.
  PLANISH_DEVICE void CopyInputs(int64_t t, int64_t turn) {
    T* const zx = inputs + turn % 2 * plan.inputs;
    T* const coefficients = input_coefficients + turn % 2 * plan.input_coefficients;
    block.ForUnits([&](int b, int unit, int64_t k) {
      const int64_t row = t * batch + b;
      for (int gate = 0; gate < kGates; ++gate) {
        CopyLater(a.zx + row * columns + gate * hidden + k, zx + b * rows + unit * kGates + gate);
      }
      if constexpr (Kind::kSeparate) {
        constexpr int kRowCoefficients = kNorms * kNormCoefficients;
        for (int i = 0; unit == 0 && i < kRowCoefficients; ++i) {
          CopyLater(a.norm_ih + row * kRowCoefficients + i,
                    coefficients + b * kRowCoefficients + i);
        }
      }
    });
  }

  // 1. The matrix product. Touch first loads the whole state from the L2 cache.
  PLANISH_DEVICE void MultiplyState(const Step& step) {
    constexpr int kPack = 16 / static_cast<int>(sizeof(T)),
                  kLine = 128 / static_cast<int>(sizeof(T));
    const int me = ThreadIndex(), threads = BlockThreads();
    const int warp = me / kWarpThreads, warps = threads / kWarpThreads, lane = me % kWarpThreads;
    const T* const h = step.h;
    for (int64_t i = me * kLine; i < batch * plan.stride; i += threads * kLine) Touch(h + i);
    const int row_groups = rows / kPersistentRows;
    const int batch_groups =
        static_cast<int>((batch + kPersistentSequences - 1) / kPersistentSequences);
    for (int group = warp; group < row_groups * batch_groups; group += warps) {
      const int row = group % row_groups * kPersistentRows;
      const int b = group / row_groups * kPersistentSequences;
      const T* const w = weights + row * plan.stride;
      T products[kPairs];
      PLANISH_UNROLL
      for (int i = 0; i < kPairs; ++i) products[i] = 0;
      for (int64_t k = lane * kPack; k < plan.stride; k += kWarpThreads * kPack) {
        Pack<T, kPack> of_w[kPersistentRows];
        PLANISH_UNROLL
        for (int r = 0; r < kPersistentRows; ++r) {
          of_w[r] = *reinterpret_cast<const Pack<T, kPack>*>(w + r * plan.stride + k);
        }
        PLANISH_UNROLL
        for (int q = 0; q < kPersistentSequences; ++q) {
          // Past the last sequence, computes an unused product with the last one.
          const int64_t sequence = b + q < batch ? b + q : batch - 1;
          const auto of_h =
              *reinterpret_cast<const Pack<T, kPack>*>(h + sequence * plan.stride + k);
          PLANISH_UNROLL
          for (int r = 0; r < kPersistentRows; ++r) {
            PLANISH_UNROLL
            for (int i = 0; i < kPack; ++i) {
              T& to = products[q * kPersistentRows + r];
              to = FusedMulAdd(of_w[r].values[i], of_h.values[i], to);
            }
          }
        }
      }
      // Lane i gets the sum of product i over the lanes.
      ShareOut<kPairs / 2>(products);
      const T sum = products[0];
      const int q = lane / kPersistentRows, r = lane % kPersistentRows;
      if (b + q < batch) sums[(b + q) * rows + row + r] = sum;
    }
  }

  // With a joint norm, zx is added to the sums.
  PLANISH_DEVICE void AddInputs(const Step& step) {
    for (int i = ThreadIndex(); i < static_cast<int>(batch) * rows; i += BlockThreads()) {
      sums[i] += step.zx[i];
    }
  }

  // 2. The norms of the sums.
  PLANISH_DEVICE void NormalizeSums(const Step& step) {
    constexpr int kFirst = Kind::kFirstGates;
    const int64_t t = step.t;
    const auto gates_of = [](int norm) {
      const int left = kGates - norm * kFirst;
      return left < kFirst ? left : kFirst;
    };
    T* const kept = Kind::kJoint ? a.norm_ih : a.norm_hh;
    ExchangeParts(
        static_cast<int>(batch) * kNorms, sum_parts, plan.blocks,
        [&](int i) { return IsActive(a, t, i / kNorms); },
        [&](int i, bool there) {
          const int b = i / kNorms, norm = i % kNorms, gates = gates_of(norm);
          return TakePart(there ? units * gates : 0, [&](int j) {
            return sums[b * rows + j / gates * kGates + norm * kFirst + j % gates];
          });
        },
        [&](int i, const NormPart* parts, bool writes) {
          const int b = i / kNorms, norm = i % kNorms;
          const auto coefficients = JoinParts<T>(parts, plan, hidden, gates_of(norm), a.eps);
          if (!writes) return;
          WriteCoefficients(coefficients, norm_coefficients + i * kNormCoefficients);
          if (kept == nullptr || BlockIndex() != 0) return;
          WriteCoefficients(coefficients,
                            kept + ((t * batch + b) * kNorms + norm) * kNormCoefficients);
        });
  }

  // 3. The gates.
  PLANISH_DEVICE void ComputeGates(const Step& step) {
    const int64_t t = step.t;
    block.ForUnits([&](int b, int unit, int64_t k) {
      const int64_t row = t * batch + b;
      const T state = step.h[b * plan.stride + k];
      T cell[kStates] = {};
      PLANISH_UNROLL
      for (int i = 0; i < kCells; ++i) cell[i] = cells[i * plan.cells + b * plan.units + unit];
      if (!IsActive(a, t, b)) {
        s.y[row * hidden + k] = 0;
        PutState(step, b, unit, k, state, cell);
        return;
      }
      NormCoefficients<T> ih[kNorms], hh[kNorms];
      if constexpr (Kind::kSeparate)
        ReadCoefficients(step.norm_coefficients + b * kNorms * kNormCoefficients, ih);
      if constexpr (Kind::kSeparate)
        ReadCoefficients(norm_coefficients + b * kNorms * kNormCoefficients, hh);
      if constexpr (Kind::kJoint)
        ReadCoefficients(norm_coefficients + b * kNorms * kNormCoefficients, ih);
      T zx[kGates], zh[kGates];
      PLANISH_UNROLL
      for (int gate = 0; gate < kGates; ++gate) {
        const int at = b * rows + unit * kGates + gate;
        zx[gate] = Kind::kJoint ? T{0} : step.zx[at];  // already in the sum
        zh[gate] = sums[at];
        if (Kind::kSeparate && a.zh != nullptr) a.zh[row * columns + gate * hidden + k] = zh[gate];
      }
      if constexpr (!Kind::kLstm) cell[0] = state;
      const UnitOutput<T> out = TakeGates<Kind>(a, row, k, zx, zh, ih, hh, cell, relu);
      if (cell_norm) {
        cells[b * plan.units + unit] = out.cell[0];
        outputs[b * plan.units + unit] = out.o;
      } else {
        s.y[row * hidden + k] = out.h;
        PutState(step, b, unit, k, out.h, out.cell);
      }
    });
  }

  // 3. The norm of c.
  PLANISH_DEVICE void NormalizeCells(const Step& step) {
    const int64_t t = step.t;
    ExchangeParts(
        static_cast<int>(batch), cell_parts, plan.blocks, [&](int b) { return IsActive(a, t, b); },
        [&](int b, bool there) {
          return TakePart(there ? units : 0, [&](int j) { return cells[b * plan.units + j]; });
        },
        [&](int b, const NormPart* parts, bool writes) {
          const auto coefficients = JoinParts<T>(parts, plan, hidden, 1, a.eps);
          if (!writes) return;
          WriteCoefficients(coefficients, cell_coefficients + b * kNormCoefficients);
          if (a.norm_c == nullptr || BlockIndex() != 0) return;
          WriteCoefficients(coefficients, a.norm_c + (t * batch + b) * kNormCoefficients);
        });
  }

  // 4. The state.
  PLANISH_DEVICE void ComputeStates(const Step& step) {
    const int64_t t = step.t;
    block.ForUnits([&](int b, int unit, int64_t k) {
      if (!IsActive(a, t, b)) return;
      const int64_t row = t * batch + b;
      const T* const coefficients = cell_coefficients + b * kNormCoefficients;
      const UnitOutput<T> out =
          TakeNormalized(a, row, k, cells[b * plan.units + unit], outputs[b * plan.units + unit],
                         NormCoefficients<T>{coefficients[0], coefficients[1], coefficients[2]});
      s.y[row * hidden + k] = out.h;
      PutState(step, b, unit, k, out.h, out.cell);
    });
  }

  // Writes the initial state of the next step. `cell` has kCells elements.
  PLANISH_DEVICE void PutState(const Step& step, int b, int unit, int64_t k, T state,
                               const T* cell) {
    const int64_t next = step.next;
    const bool reset = IsReset(a, next, b);
    step.h_next[b * plan.stride + k] = reset ? OrZero(a.h_reset, k) : state;
    if (next < 0 && s.h_n != nullptr) s.h_n[b * hidden + k] = state;
    PLANISH_UNROLL
    for (int i = 0; i < kCells; ++i) {
      const int64_t j = i * hidden + k;
      cells[i * plan.cells + b * plan.units + unit] =
          reset ? OrEmpty(a.c_reset, j, i == 1) : cell[i];
      if (next < 0 && s.c_n != nullptr) s.c_n[b * kCells * hidden + j] = cell[i];
    }
  }
};

template <class T, class Kind>
PLANISH_KERNEL(kMaxPersistentThreads, 1)
Persistent(CellLayer<T> a, PersistentCall<T> s, bool relu) {
  ForwardBlock<T, Kind>(a, s, relu).Run();
}

}  // namespace

template <class T>
PersistentPlan PlanOnDevice(const CellRecipe& recipe, const RnnShape& shape) {
  const GridLimits limits = CooperativeLimits();
  return PlanPersistent(recipe, shape, sizeof(T), limits.blocks, limits.shared_bytes);
}

template <class T>
void RunPersistent(const char* function, const CellLayer<T>& layer, const PersistentCall<T>& call,
                   void* stream) {
  VisitKind(function, layer, [&]<class Kind>(Kind) {
    RunCooperative(function, Persistent<T, Kind>, LaunchOf(call.plan), stream, layer, call,
                   layer.arithmetic == Arithmetic::kRnnRelu);
  });
}

template PersistentPlan PlanOnDevice<PLANISH_ELEMENT>(const CellRecipe&, const RnnShape&);
template void RunPersistent(const char*, const CellLayer<PLANISH_ELEMENT>&,
                            const PersistentCall<PLANISH_ELEMENT>&, void*);

}  // namespace planish::internal::cuda
