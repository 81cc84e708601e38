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
  void Pack(Cell cell, const RnnShape& shape, const RnnParams<const T>& params);
  void PackWeights(const RnnParams<const T>& params, const ParallelFor& parallel_for);
  void PackTransposed(const RnnParams<const T>& params, bool dx, const ParallelFor& parallel_for);

  Cell cell() const { return cell_; }
  const CellKernels<T>& kernels() const { return kernels_; }
  const CellCall<T>& call() const { return call_; }
  const Order& order() const { return call_.order; }
  /// Returns Order::RowOf of each column.
  const int64_t* rows() const { return rows_.data(); }
  /// Returns the shape of the layer with T = B = 0.
  const RnnShape& shape() const { return shape_; }
  /// Returns O and its padding.
  int64_t padded_outputs() const { return PaddedUnits<T>(shape_.outputs()); }
  const PackedMatrix<T>& ih() const { return ih_; }                        ///< [columns, I]
  const PackedMatrix<T>& hh() const { return hh_; }                        ///< [columns, O]
  const PackedMatrix<T>& hr() const { return hr_; }                        ///< [O, H]
  const PackedMatrix<T>& ih_transposed() const { return ih_transposed_; }  ///< [I, columns]
  const PackedMatrix<T>& hh_transposed() const { return hh_transposed_; }  ///< [O, columns]
  const PackedMatrix<T>& hr_transposed() const { return hr_transposed_; }  ///< [H, O]

  int64_t bytes() const {
    int64_t sum = elements_.bytes() + rows_.bytes();
    for (const PackedMatrix<T>* matrix :
         {&ih_, &hh_, &hr_, &ih_transposed_, &hh_transposed_, &hr_transposed_}) {
      sum += matrix->bytes();
    }
    return sum;
  }

 private:
  GemmMatrix<T> Projection(const RnnParams<const T>& params) const;

  Cell cell_{};
  RnnShape shape_;
  CellKernels<T> kernels_{};
  CellCall<T> call_{};
  Buffer<T> elements_;
  Buffer<int64_t> rows_;
  PackedMatrix<T> ih_, hh_, hr_, ih_transposed_, hh_transposed_, hr_transposed_;
};

}  // namespace planish::internal

#endif  // PLANISH_SRC_RNN_CPU_PACKED_H_
