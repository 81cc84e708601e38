#ifndef PLANISH_SRC_RNN_CPU_SUMS_H_
#define PLANISH_SRC_RNN_CPU_SUMS_H_

#include <cstdint>
#include <vector>

#include "planish/rnn.h"
#include "src/base/aligned.h"
#include "src/base/simd/gemm.h"
#include "src/rnn/cpu/cells.h"
#include "src/rnn/cpu/packed.h"

namespace planish::internal {

// --- Tuning constants (docs/tuning.md) ---

/// Minimum of rows of a matrix product for weight gradients. A product reads and writes the whole
/// gradient, which is cheap compared with a product of this many rows. The value determines the
/// order of summation, and thus the results.
inline constexpr int64_t kProductRows = 256;

// --- End of tuning constants ---

/// The weights whose gradients are needed.
struct Weights {
  bool ih = false, hh = false, hr = false;
};
inline constexpr Weights kAllWeights = {true, true, true};

/// Gradients of a layer's parameters, summed over steps. Gradients of gains and biases are summed
/// at every step. Rows for the gradients of the weights are collected, and multiplied for many
/// steps at once.
template <class T>
class ParamSums {
 public:
  /// Sets all sums to zero and selects the layer. Keeps memory that is large enough.
  void Reset(const PackedLayer<T>& layer);

  /// Returns the sums of the first `groups` groups of sequences. Each group has its own sums, so
  /// that threads can process groups in parallel.
  const std::vector<CellSums<T>>& Groups(int64_t groups);

  /// Rows of some steps, one for each sequence: gradients of zx and zh, and states before the
  /// steps. The gradients share memory if they are equal. With a projection, also h before it and
  /// the gradient after it; otherwise these are null.
  struct Rows {
    T *dzx, *dzh, *h_before, *dprojected, *unprojected;
    T* x;  ///< [rows, I], or null
  };
  /// Allocates all memory for Add(rows <= capacity, capacity, own_x), and for Multiply with these
  /// weights. Keeps sums and collected rows. Throws std::bad_alloc without changing anything.
  void Reserve(int64_t capacity, bool own_x, Weights weights);

  /// Returns memory for new rows, before the collected rows, because backward processes the last
  /// step first. With `own_x` the rows include inputs. If no rows are collected, sets the capacity.
  Rows Add(int64_t rows, int64_t capacity, bool own_x);
  bool HasSpaceFor(int64_t rows) const { return waiting_ == 0 || rows <= first(); }
  int64_t waiting() const { return waiting_; }

  /// Adds the matrix products of the collected rows for these weights, and clears the rows. `x`
  /// [rows, I] are the inputs, or null for the collected inputs.
  void Multiply(const T* x, Weights weights, const ParallelFor& parallel_for);

  /// Writes the gradients. There must be no collected rows.
  void Write(const RnnParams<T>& dparams, const ParallelFor& parallel_for);

  int64_t bytes() const;

 private:
  /// Returns the number of elements of one group's sums, which share an array.
  int64_t size() const { return 3 * layer_->order().columns + 3 * layer_->order().padded; }
  /// Returns the index of the first collected row.
  int64_t first() const { return capacity_ - waiting_; }

  const PackedLayer<T>* layer_ = nullptr;
  std::vector<Buffer<T>> group_memory_;
  std::vector<CellSums<T>> groups_;
  Buffer<T> dz_, h_before_, x_, dprojected_, unprojected_;
  /// Returns the elements of weight_hh's gradient, and the width of a block's rows in it.
  int64_t HiddenSize() const;
  int64_t HiddenWidth(const HiddenBlock& block) const;

  Buffer<T> dweight_ih_, dweight_hh_, dweight_hr_;  ///< dweight_hh_: the blocks in turn
  PackedMatrix<T> scratch_;
  bool any_ = false;  ///< whether a matrix product has been added
  int64_t capacity_ = 0, waiting_ = 0;
};

}  // namespace planish::internal

#endif  // PLANISH_SRC_RNN_CPU_SUMS_H_
