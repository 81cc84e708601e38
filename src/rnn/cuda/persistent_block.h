#ifndef PLANISH_SRC_RNN_CUDA_PERSISTENT_BLOCK_H_
#define PLANISH_SRC_RNN_CUDA_PERSISTENT_BLOCK_H_

#include <cstdint>

#include "src/base/cuda/kernel.h"
#include "src/rnn/cuda/cells.h"
#include "src/rnn/cuda/plan.h"

// A block of a persistent kernel. It has a few units with all their gates, and keeps their rows of
// weight_hh.
namespace planish::internal::cuda {

template <class T, class Kind>
class PersistentBlock {
 public:
  PLANISH_DEVICE PersistentBlock(const CellLayer<T>& layer, const PersistentSlices& slices)
      : slices_(slices), hidden_(layer.hidden), batch_(static_cast<int>(layer.batch)) {
    first_ = BlockIndex() * slices.units;
    const int64_t left = layer.hidden - first_;
    units_ = static_cast<int>(left < slices.units ? left : slices.units);
  }

  PLANISH_DEVICE int units() const { return units_; }

  /// Reads the block's rows of weight_hh; row unit * gates + gate belongs to a gate of a unit.
  /// Padding rows and columns are 0.
  PLANISH_DEVICE void ReadWeights(const T* weight_hh, T* weights) const {
    for (int64_t i = ThreadIndex(); i < slices_.weights; i += BlockThreads()) {
      const int64_t row = i / slices_.stride, k = i % slices_.stride;
      const int64_t unit = row / Kind::kGates, gate = row % Kind::kGates;
      weights[i] = unit < units_ && k < hidden_
                       ? weight_hh[(gate * hidden_ + first_ + unit) * hidden_ + k]
                       : T{0};
    }
  }

  /// Copies the parameters of the block's units to `workspace`, and returns their addresses.
  PLANISH_DEVICE CellParams<T> ReadParams(const CellParams<T>& from, T* workspace) const {
    CellParams<T> to = {};
    to.stride = slices_.units;
    to.first = first_;
    const auto read = [&](int gates, const T* elements, T*& place) {
      place = workspace;
      workspace += gates * slices_.units;
      if (elements == nullptr) return;
      for (int i = ThreadIndex(); i < gates * units_; i += BlockThreads()) {
        place[i / units_ * slices_.units + i % units_] =
            elements[i / units_ * hidden_ + first_ + i % units_];
      }
    };
    read(Kind::kGates, from.gain_ih, to.gain_ih);
    read(Kind::kGates, from.gain_hh, to.gain_hh);
    read(Kind::kGates, from.bias, to.bias);
    read(1, from.bias_hn, to.bias_hn);
    read(1, from.gain_c, to.gain_c);
    read(1, from.bias_c, to.bias_c);
    return to;
  }

  /// Calls f(b, unit, k) for the thread's sequences and units, where `unit` is the index in the
  /// block and k the index in the layer.
  template <class F>
  PLANISH_DEVICE void ForUnits(F&& f) const {
    for (int i = ThreadIndex(); i < batch_ * units_; i += BlockThreads()) {
      f(i / units_, i % units_, first_ + i % units_);
    }
  }

 private:
  PersistentSlices slices_;
  int64_t hidden_, first_;
  int batch_, units_;
};

/// Arguments of a persistent kernel and sizes of its block. Blocks exchange `Part`s. `Layer` is
/// CellLayer<T>, or a reference to it.
template <class T, class Kind, class Layer, class Call, class Part>
struct PersistentArguments {
  static constexpr int kGates = Kind::kGates, kNorms = Kind::kNorms;

  Layer a;
  const Call& s;
  const decltype(Call::plan)& plan;
  const bool relu, cell_norm;
  const PersistentBlock<T, Kind> block;
  const int64_t hidden, columns;
  const int units, rows;
  Part *const sum_parts, *const cell_parts;  // [B, norms, blocks] and [B, blocks]

  PLANISH_DEVICE PersistentArguments(const CellLayer<T>& layer, const Call& call, bool is_relu)
      : a(layer),
        s(call),
        plan(call.plan),
        relu(is_relu),
        cell_norm(Kind::kCanNormC && layer.cell_norm != CellNorm::kNone),
        block(layer, call.plan),
        hidden(layer.hidden),
        columns(kGates * layer.hidden),
        units(block.units()),
        rows(static_cast<int>(call.plan.rows)),
        sum_parts(reinterpret_cast<Part*>(call.sum_parts)),
        cell_parts(reinterpret_cast<Part*>(call.cell_parts)) {}
};

/// Calls add(i, read(i)) for i = first, first + step, ... < end, in this order, with loads issued
/// ahead.
template <class Read, class Add>
PLANISH_DEVICE void ReadAndAdd(int64_t first, int64_t step, int64_t end, Read&& read, Add&& add) {
  using Value = decltype(read(first));
  for (; first < end; first += kReadsAtOnce * step) {
    Value values[kReadsAtOnce] = {};
    PLANISH_UNROLL
    for (int j = 0; j < kReadsAtOnce; ++j) {
      if (first + j * step < end) values[j] = read(first + j * step);
    }
    PLANISH_UNROLL
    for (int j = 0; j < kReadsAtOnce; ++j) {
      if (first + j * step < end) add(first + j * step, values[j]);
    }
  }
}

/// Calls f(i, there) for the items i < count, each on kLanes lanes of a warp. Also calls f with
/// there = false, because all lanes of a warp must reach its reductions.
template <int kLanes, class F>
PLANISH_DEVICE void ForItems(int count, F&& f) {
  constexpr int kAtOnce = kWarpThreads / kLanes;
  const int warp = ThreadIndex() / kWarpThreads, warps = BlockThreads() / kWarpThreads;
  const int mine = ThreadIndex() % kWarpThreads / kLanes;
  for (int first = warp * kAtOnce; first < count; first += warps * kAtOnce) {
    f(first + mine, first + mine < count);
  }
}

/// Exchanges partial results of `count` items between blocks, for items with `is_there(i)`, through
/// `parts` [count, blocks]. Calls take(i, there) to compute the block's part on kPartLanes lanes.
/// Then calls join(i, parts, writes) to combine the parts of all blocks (or null) on kJoinLanes
/// lanes. One lane, with `writes`, writes the result. All threads of the block see the results
/// afterwards.
template <class Part, class There, class Take, class Join>
PLANISH_DEVICE void ExchangeParts(int count, Part* parts, int64_t blocks, There&& is_there,
                                  Take&& take, Join&& join) {
  ForItems<kPartLanes>(count, [&](int i, bool there) {
    there = there && is_there(i);
    const Part part = take(i, there);
    if (there && ThreadIndex() % kPartLanes == 0) parts[i * blocks + BlockIndex()] = part;
  });
  SyncGrid();
  ForItems<kJoinLanes>(count, [&](int i, bool there) {
    there = there && is_there(i);
    const Part* const all = there ? parts + i * blocks : nullptr;
    join(i, all, there && ThreadIndex() % kJoinLanes == 0);
  });
  SyncBlock();
}

/// Returns the grid of a plan.
inline Launch LaunchOf(const PersistentSlices& plan) {
  return {.blocks = plan.blocks, .threads = plan.threads, .shared_bytes = plan.shared_bytes};
}

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_RNN_CUDA_PERSISTENT_BLOCK_H_
