#ifndef PLANISH_SRC_RNN_PACKED_H_
#define PLANISH_SRC_RNN_PACKED_H_

#include <cstdint>

#include "planish/rnn.h"
#include "src/base/aligned.h"
#include "src/base/gemm.h"
#include "src/rnn/cell.h"
#include "src/rnn/cells.h"

namespace planish::internal {

/// A layer's parameters as its steps read them, in the order of order.h: the weights packed for
/// products, the others padded, with ones and zeros for those that are not given.
template <class T>
class PackedLayer {
 public:
  /// Takes the parameters but for the weights, and PackWeights takes those. Memory is kept from
  /// call to call where it is large enough.
  void Pack(Cell cell, int64_t inputs, int64_t hidden, const RnnParams<const T>& params);
  void PackWeights(const RnnParams<const T>& params, const ParallelFor& parallel_for);

  Cell cell() const { return cell_; }
  const CellKernels<T>& kernels() const { return kernels_; }
  const CellCall<T>& call() const { return call_; }
  const Order& order() const { return call_.order; }
  /// Order::RowOf of each column.
  const int64_t* rows() const { return rows_.data(); }
  int64_t inputs() const { return inputs_; }
  const PackedMatrix<T>& ih() const { return ih_; }  ///< [columns, I]
  const PackedMatrix<T>& hh() const { return hh_; }  ///< [columns, H]

  int64_t bytes() const { return numbers_.bytes() + rows_.bytes() + ih_.bytes() + hh_.bytes(); }

 private:
  Cell cell_{};
  int64_t inputs_ = 0;
  CellKernels<T> kernels_{};
  CellCall<T> call_{};
  Buffer<T> numbers_;
  Buffer<int64_t> rows_;
  PackedMatrix<T> ih_, hh_;
};

}  // namespace planish::internal

#endif  // PLANISH_SRC_RNN_PACKED_H_
