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

/// Rows that a product of weights' gradients should have. They are read and written once for each
/// product, which with so many rows costs little beside it. When a product is taken decides the
/// order of sums, so this number is a part of the result.
inline constexpr int64_t kProductRows = 256;

/// The gradients of a layer's parameters, summed over steps: of those that add to sums of columns
/// and units as the steps go, of the weights by products of many steps at once, whose rows wait
/// until then.
template <class T>
class ParamSums {
 public:
  /// Zeros, of a layer. Memory is kept where it is large enough.
  void Reset(const PackedLayer<T>& layer);

  /// The sums of the first `groups` groups of sequences, which add up for themselves, so that each
  /// may have its thread.
  const std::vector<CellSums<T>>& Groups(int64_t groups);

  /// The rows of some steps, one for each sequence: the gradients of zx and zh, which are the same
  /// where `shared`, and the states before.
  struct Rows {
    T *dzx, *dzh, *h_before;
    T* x;  ///< [rows, I], or null
  };
  /// Allocates all that Add and Multiply need for rows that come by Add(rows <= capacity, capacity,
  /// own_x), for the weights that Multiply is asked for. Sums, and rows that wait, stay. Throws
  /// std::bad_alloc, and then nothing has changed.
  void Reserve(int64_t capacity, bool own_x, bool weight_ih, bool weight_hh);

  /// Room for them, in front of those that wait, as backward goes from the last step to the first.
  /// With `own_x` their inputs wait beside them. Where none wait, `capacity` is how many may.
  Rows Add(int64_t rows, int64_t capacity, bool own_x);
  bool HasRoomFor(int64_t rows) const { return waiting_ == 0 || rows <= first(); }
  int64_t waiting() const { return waiting_; }

  /// Takes the products of the rows that wait with the states and the inputs: `x` [rows, I], or,
  /// where that is null, those that wait beside them. Leaves out a weight that is not asked for.
  void Multiply(const T* x, bool weight_ih, bool weight_hh, const ParallelFor& parallel_for);

  /// Writes the gradients; none may wait.
  void Write(const RnnParams<T>& dparams, const ParallelFor& parallel_for);

  int64_t bytes() const;

 private:
  /// All sums of a group have one array.
  int64_t size() const { return 3 * layer_->order().columns + 3 * layer_->order().padded; }
  /// Where the rows that wait begin.
  int64_t first() const { return capacity_ - waiting_; }

  const PackedLayer<T>* layer_ = nullptr;
  std::vector<Buffer<T>> group_memory_;
  std::vector<CellSums<T>> groups_;
  Buffer<T> dz_, h_before_, x_, dweight_ih_, dweight_hh_;
  PackedMatrix<T> scratch_;
  bool any_ = false;  ///< whether there has been a product
  int64_t capacity_ = 0, waiting_ = 0;
};

}  // namespace planish::internal

#endif  // PLANISH_SRC_RNN_CPU_SUMS_H_
