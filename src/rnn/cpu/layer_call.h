#ifndef PLANISH_SRC_RNN_CPU_LAYER_CALL_H_
#define PLANISH_SRC_RNN_CPU_LAYER_CALL_H_

#include <hwy/cache_control.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "planish/rnn.h"
#include "src/base/loop.h"
#include "src/base/simd/gemm.h"
#include "src/base/tuning.h"
#include "src/rnn/cell.h"
#include "src/rnn/cpu/cells.h"
#include "src/rnn/cpu/order.h"
#include "src/rnn/cpu/packed.h"
#include "src/rnn/cpu/padded_rows.h"
#include "src/rnn/cpu/sums.h"

// Sizes of one call of a layer, and the division of its work. Threads process separate sequences.
// If there are few, or the weights exceed a thread's own cache, threads split the columns of each
// step's matrix product instead. Gradients of parameters are summed in groups of sequences that
// depend only on the shape. Time is split into segments: weight gradients are one matrix product a
// segment, and a checkpoint restores one segment.
namespace planish::internal {

// --- Tuning constants (docs/tuning.md) ---

/// Maximum of groups of sequences. It bounds the threads, because each group needs sums for every
/// gain and bias. kGroup is the minimum of sequences in a group. A product of fewer rows takes as
/// long, because it is bound by reading the weights.
inline constexpr int64_t kMaxGroups = 16, kGroup = 4;

/// The cost of the gates of a sum, and of a norm over the batch (three passes), in elements.
inline constexpr int64_t kRowElements = 8, kColumnElements = 4;

/// Smallest batch of a recurrent layer that is split by sequences. A smaller batch is split by
/// columns of the matrix product, so that each thread reads only its share of the weights.
inline constexpr int64_t kMinSplitSequences = 4;

/// Rows of inputs multiplied by the weights at once. More rows read the weights less often. With
/// fewer rows the products are still in a cache when their step needs them.
inline constexpr int64_t kInputRows = 256;

// --- End of tuning constants ---

/// Returns S of RnnOptions.
inline int64_t SegmentSteps(const RnnShape& shape) {
  auto root = static_cast<int64_t>(std::sqrt(static_cast<double>(shape.time)));
  while (root * root < shape.time) ++root;
  const int64_t batch = std::max<int64_t>(1, shape.batch);
  return std::max({int64_t{1}, root, (kProductRows + batch - 1) / batch});
}

inline int64_t SegmentsOf(const RnnShape& shape) {
  const int64_t steps = SegmentSteps(shape);
  return shape.time / steps + (shape.time % steps != 0);
}

struct Times {
  int64_t begin, end;  ///< of x and y, in either direction
};

/// The arguments and sizes of a call. Methods with [begin, end) process these sequences.
template <class T>
class LayerCall {
 public:
  /// `keep` is the mode in which forward steps save values for backward.
  LayerCall(const PackedLayer<T>& packed, const RnnInputs<T>& inputs, const RnnOptions<T>& options,
            Keep keep)
      : packed_(packed),
        kernels_(packed.kernels()),
        cell_(packed.call()),
        in_(inputs),
        parallel_for_(options.parallel_for),
        rows_(packed.order()),
        h_rows_(inputs.shape.outputs(), inputs.shape.batch),
        c_rows_(inputs.shape.hidden, inputs.shape.batch,
                std::max(1, packed.call().recipe.cell_parts()),
                -std::numeric_limits<T>::infinity()),
        dc_rows_(inputs.shape.hidden, inputs.shape.batch,
                 std::max(1, packed.call().recipe.cell_parts())),
        units_(inputs.shape.hidden, inputs.shape.batch),
        time_(inputs.shape.time),
        batch_(inputs.shape.batch),
        inputs_(inputs.shape.inputs),
        hidden_(inputs.shape.hidden),
        padded_(packed.order().padded),
        columns_(packed.order().columns),
        segment_steps_(SegmentSteps(inputs.shape)),
        splits_steps_(cell_.recipe.over == Over::kBatch || batch_ < kMinSplitSequences ||
                      StepWeightBytes(packed) > CurrentTuning().own_weight_bytes) {
    cell_.eps = static_cast<T>(options.eps);
    cell_.keep = keep;
  }

  const PackedLayer<T>& packed() const { return packed_; }
  const CellKernels<T>& kernels() const { return kernels_; }
  const CellCall<T>& cell() const { return cell_; }
  const CellRecipe& recipe() const { return cell_.recipe; }
  const Order& order() const { return cell_.order; }
  const RnnInputs<T>& in() const { return in_; }
  const ParallelFor& parallel_for() const { return parallel_for_; }
  const PaddedRows<T>& rows() const { return rows_; }
  const PaddedStates<T>& h_rows() const { return h_rows_; }
  const PaddedStates<T>& c_rows() const { return c_rows_; }
  /// Returns the rows of the gradient of c, which is zero where it is absent.
  const PaddedStates<T>& dc_rows() const { return dc_rows_; }
  /// Returns rows of one element for each unit, such as h before a projection.
  const PaddedStates<T>& unit_rows() const { return units_; }
  bool projects() const { return in_.shape.projected > 0; }

  int64_t time() const { return time_; }
  int64_t batch() const { return batch_; }
  int64_t inputs() const { return inputs_; }
  int64_t hidden() const { return hidden_; }
  int64_t padded() const { return padded_; }
  int64_t columns() const { return columns_; }
  int64_t states() const { return batch_ * padded_; }
  int64_t sums() const { return batch_ * columns_; }

  /// Returns whether threads split each step and synchronize after its product and at its end.
  /// Otherwise each thread computes all steps of its own sequences.
  bool splits_steps() const { return splits_steps_; }
  /// Returns whether zx and zh are computed in the memory that saves their xhat, which avoids a
  /// second copy in the caches.
  bool in_place() const { return cell_.keep == Keep::kStores && cell_.recipe.sums != Sums::kPlain; }

  // Time.
  int64_t segments() const { return SegmentsOf(in_.shape); }
  int64_t segment_steps() const { return std::min(segment_steps_, time_); }

  /// Returns the times of a segment. Segments are numbered in the order of steps.
  Times TimesOf(int64_t segment) const {
    const int64_t first = segment * segment_steps_;
    const int64_t last = std::min(time_, first + segment_steps_);
    return in_.reverse ? Times{time_ - last, time_ - first} : Times{first, last};
  }

  /// Returns the steps whose input products are computed together. Does not affect the results.
  int64_t ChunkSteps() const {
    return std::max<int64_t>(1, kInputRows / std::max<int64_t>(1, batch_));
  }

  // Sequences.
  bool Active(int64_t t, int64_t b) const { return !in_.lengths || t < in_.lengths[b]; }
  bool Reset(int64_t t, int64_t b) const { return in_.resets && in_.resets[t * batch_ + b] != 0; }

  /// Calls f(b) for the sequences longer than t.
  template <class F>
  void ForActive(int64_t t, int64_t begin, int64_t end, const F& f) const {
    for (int64_t b = begin; b < end; ++b) {
      if (Active(t, b)) f(b);
    }
  }

  /// Calls f(first, last) for each run of adjacent sequences longer than t.
  template <class F>
  void ForRuns(int64_t t, int64_t begin, int64_t end, const F& f) const {
    while (begin < end) {
      if (!Active(t, begin)) {
        ++begin;
        continue;
      }
      int64_t last = begin + 1;
      while (last < end && Active(t, last)) ++last;
      f(begin, last);
      begin = last;
    }
  }

  // Groups of sequences, each with its own sums of gradients.
  int64_t groups() const {
    return cell_.recipe.over == Over::kBatch ? std::min<int64_t>(batch_, 1)
                                             : std::min((batch_ + kGroup - 1) / kGroup, kMaxGroups);
  }
  int64_t GroupBegin(int64_t group) const { return group * batch_ / groups(); }

  /// Returns the group of sequence b.
  int64_t GroupOf(int64_t b) const {
    int64_t group = b * groups() / batch_;
    while (GroupBegin(group + 1) <= b) ++group;
    return group;
  }

  // Threads.
  /// Calls f(begin, end) for ranges of the sequences, on several threads if there are many.
  template <class F>
  void ForSequences(int64_t steps, const F& f) const {
    if (splits_steps_) return f(int64_t{0}, batch_);
    const int64_t products = std::max<int64_t>(1, steps) * StepProducts();
    SplitSequences(std::max<int64_t>(1, kGrainProducts / products), f);
  }

  /// Calls f(begin, end) for ranges of whole groups of sequences, on several threads if there are
  /// many.
  template <class F>
  void ForGroups(int64_t steps, const F& f) const {
    if (splits_steps_) return f(int64_t{0}, batch_);
    const int64_t products = std::max<int64_t>(1, steps) * StepProducts() * batch_ / groups();
    SplitGroups(std::max<int64_t>(1, kGrainProducts / products), f);
  }

  /// Calls f(begin, end) for ranges of the sequences, on several threads.
  template <class F>
  void SplitSequences(int64_t grain, const F& f) const {
    RunParallel(parallel_for_, batch_, grain, f);
  }
  /// Calls f(begin, end) for ranges of whole groups of sequences, on several threads.
  template <class F>
  void SplitGroups(int64_t grain, const F& f) const {
    RunParallel(parallel_for_, groups(), grain,
                [&](int64_t first, int64_t last) { f(GroupBegin(first), GroupBegin(last)); });
  }

  /// Computes a step's matrix product: for this thread's sequences, or, if splits_steps(), with the
  /// columns split among the threads.
  void StepProduct(const GemmArgs<T>& args, const PackedMatrix<T>& weights) const {
    if (!splits_steps_) return Multiply(args, weights, 0, weights.panels());
    const int64_t products = args.rows * weights.panel() * weights.depth();
    RunParallel(parallel_for_, weights.panels(),
                std::max<int64_t>(1, kGrainStepProducts / products),
                [&](int64_t first, int64_t last) { Multiply(args, weights, first, last); });
  }

  /// Computes zh [rows, columns] from h [rows], or adds to it, like StepProduct.
  void HiddenProduct(int64_t rows, const T* h, T* zh, bool accumulate) const {
    const auto product = [&](size_t block, const auto& multiply) {
      const HiddenBlock& part = packed_.blocks()[block];
      multiply({.rows = rows,
                .a = h + part.unit,
                .a_stride = h_rows_.padded(),
                .c = zh + part.column,
                .c_stride = columns_,
                .accumulate = accumulate || in_.shape.heads > 1},
               packed_.hh(block));
    };
    // Blocks of heads can share columns, so they are added.
    if (!accumulate && in_.shape.heads > 1) std::fill_n(zh, rows * columns_, T{0});
    ForBlocks(rows, packed_.blocks_are_disjoint(), product);
  }

  /// Computes the gradient dh [rows] from dzh [rows, columns], or adds to it, like StepProduct.
  void HiddenProductBackward(int64_t rows, const T* dzh, T* dh, bool accumulate) const {
    const auto product = [&](size_t block, const auto& multiply) {
      const HiddenBlock& part = packed_.blocks()[block];
      const bool first = block == 0 || packed_.blocks()[block - 1].head != part.head;
      multiply({.rows = rows,
                .a = dzh + part.column,
                .a_stride = columns_,
                .c = dh + part.unit,
                .c_stride = h_rows_.padded(),
                .accumulate = accumulate || !first},
               packed_.hh_transposed(block));
    };
    ForBlocks(rows, /*disjoint=*/true, product);
  }

  /// Makes non-temporal stores visible to other threads. Called at the end of a thread's work.
  void FinishStores() const {
    if (cell_.keep == Keep::kNtStores) hwy::FlushStream();
  }

 private:
  /// Calls product(block, multiply) for all blocks of weight_hh. If threads split steps, they split
  /// a single block by columns, and disjoint heads by heads.
  template <class F>
  void ForBlocks(int64_t rows, bool disjoint, const F& product) const {
    const auto blocks = static_cast<int64_t>(packed_.blocks().size());
    const auto alone = [](const GemmArgs<T>& args, const PackedMatrix<T>& weights) {
      Multiply(args, weights, 0, weights.panels());
    };
    if (splits_steps_ && disjoint && in_.shape.heads > 1) {
      const int64_t heads = in_.shape.heads, of_head = blocks / heads;
      const int64_t products = std::max<int64_t>(1, rows) * StepProducts() / heads;
      RunParallel(parallel_for_, heads, std::max<int64_t>(1, kGrainStepProducts / products),
                  [&](int64_t first, int64_t last) {
                    for (int64_t i = first * of_head; i < last * of_head; ++i) {
                      product(static_cast<size_t>(i), alone);
                    }
                  });
      return;
    }
    for (int64_t i = 0; i < blocks; ++i) {
      product(static_cast<size_t>(i),
              [this](const GemmArgs<T>& args, const PackedMatrix<T>& weights) {
                this->StepProduct(args, weights);
              });
    }
  }

  static int64_t StepWeightBytes(const PackedLayer<T>& packed) {
    int64_t bytes = packed.shape().projected > 0 ? packed.hr().matrix_bytes() : 0;
    for (size_t i = 0; i < packed.hh_blocks(); ++i) bytes += packed.hh(i).matrix_bytes();
    return bytes;
  }
  /// Returns the products of a sequence's step with weight_hh and weight_hr.
  int64_t StepProducts() const {
    return columns_ * h_rows_.width() / in_.shape.heads + in_.shape.projected * hidden_;
  }

  const PackedLayer<T>& packed_;
  const CellKernels<T>& kernels_;
  CellCall<T> cell_;
  const RnnInputs<T>& in_;
  const ParallelFor& parallel_for_;
  const PaddedRows<T> rows_;
  const PaddedStates<T> h_rows_, c_rows_, dc_rows_, units_;
  const int64_t time_, batch_, inputs_, hidden_, padded_, columns_, segment_steps_;
  const bool splits_steps_;
};

}  // namespace planish::internal

#endif  // PLANISH_SRC_RNN_CPU_LAYER_CALL_H_
