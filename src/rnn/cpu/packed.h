#ifndef PLANISH_SRC_RNN_CPU_PACKED_H_
#define PLANISH_SRC_RNN_CPU_PACKED_H_

#include <cstdint>

#include "planish/rnn.h"
#include "src/base/aligned.h"
#include "src/base/simd/gemm.h"
#include "src/rnn/cell.h"
#include "src/rnn/cpu/cells.h"

namespace planish::internal {

/// A layer's parameters as its steps read them, in the order of order.h: the weights packed for
/// products, the others padded, with ones and zeros for those that are not given.
template <class T>
class PackedLayer {
 public:
  /// Takes the parameters but for the weights. PackWeights takes those for the products of the
  /// forward direction, PackTransposed for those of backward, that of the inputs where `dx` is
  /// asked for. Memory is kept from call to call where it is large enough.
  void Pack(Cell cell, int64_t inputs, int64_t hidden, const RnnParams<const T>& params);
  void PackWeights(const RnnParams<const T>& params, const ParallelFor& parallel_for);
  void PackTransposed(const RnnParams<const T>& params, bool dx, const ParallelFor& parallel_for);

  Cell cell() const { return cell_; }
  const CellKernels<T>& kernels() const { return kernels_; }
  const CellCall<T>& call() const { return call_; }
  const Order& order() const { return call_.order; }
  /// Order::RowOf of each column.
  const int64_t* rows() const { return rows_.data(); }
  int64_t inputs() const { return inputs_; }
  const PackedMatrix<T>& ih() const { return ih_; }                        ///< [columns, I]
  const PackedMatrix<T>& hh() const { return hh_; }                        ///< [columns, H]
  const PackedMatrix<T>& ih_transposed() const { return ih_transposed_; }  ///< [I, columns]
  const PackedMatrix<T>& hh_transposed() const { return hh_transposed_; }  ///< [H, columns]

  int64_t bytes() const {
    return numbers_.bytes() + rows_.bytes() + ih_.bytes() + hh_.bytes() + ih_transposed_.bytes() +
           hh_transposed_.bytes();
  }

 private:
  Cell cell_{};
  int64_t inputs_ = 0;
  CellKernels<T> kernels_{};
  CellCall<T> call_{};
  Buffer<T> numbers_;
  Buffer<int64_t> rows_;
  PackedMatrix<T> ih_, hh_, ih_transposed_, hh_transposed_;
};

}  // namespace planish::internal

#endif  // PLANISH_SRC_RNN_CPU_PACKED_H_
