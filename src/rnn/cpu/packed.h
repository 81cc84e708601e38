#ifndef PLANISH_SRC_RNN_CPU_PACKED_H_
#define PLANISH_SRC_RNN_CPU_PACKED_H_

#include <cstdint>

#include "planish/rnn.h"
#include "src/base/aligned.h"
#include "src/base/simd/gemm.h"
#include "src/rnn/cell.h"
#include "src/rnn/cpu/cells.h"

namespace planish::internal {

/// Parameters of a layer in the order of order.h. Weights are packed for matrix products. Other
/// parameters are padded, with ones and zeros for absent ones.
template <class T>
class PackedLayer {
 public:
  /// Packs all parameters except the weights. PackWeights packs those for forward. PackTransposed
  /// packs those for backward, weight_ih only if `dx`. Memory that is large enough is reused.
  void Pack(Cell cell, int64_t inputs, int64_t hidden, const RnnParams<const T>& params);
  void PackWeights(const RnnParams<const T>& params, const ParallelFor& parallel_for);
  void PackTransposed(const RnnParams<const T>& params, bool dx, const ParallelFor& parallel_for);

  Cell cell() const { return cell_; }
  const CellKernels<T>& kernels() const { return kernels_; }
  const CellCall<T>& call() const { return call_; }
  const Order& order() const { return call_.order; }
  /// Returns Order::RowOf of each column.
  const int64_t* rows() const { return rows_.data(); }
  int64_t inputs() const { return inputs_; }
  const PackedMatrix<T>& ih() const { return ih_; }                        ///< [columns, I]
  const PackedMatrix<T>& hh() const { return hh_; }                        ///< [columns, H]
  const PackedMatrix<T>& ih_transposed() const { return ih_transposed_; }  ///< [I, columns]
  const PackedMatrix<T>& hh_transposed() const { return hh_transposed_; }  ///< [H, columns]

  int64_t bytes() const {
    return elements_.bytes() + rows_.bytes() + ih_.bytes() + hh_.bytes() + ih_transposed_.bytes() +
           hh_transposed_.bytes();
  }

 private:
  Cell cell_{};
  int64_t inputs_ = 0;
  CellKernels<T> kernels_{};
  CellCall<T> call_{};
  Buffer<T> elements_;
  Buffer<int64_t> rows_;
  PackedMatrix<T> ih_, hh_, ih_transposed_, hh_transposed_;
};

}  // namespace planish::internal

#endif  // PLANISH_SRC_RNN_CPU_PACKED_H_
