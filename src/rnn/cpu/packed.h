#ifndef PLANISH_SRC_RNN_CPU_PACKED_H_
#define PLANISH_SRC_RNN_CPU_PACKED_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planish/rnn.h"
#include "src/base/aligned.h"
#include "src/base/simd/gemm.h"
#include "src/rnn/cell.h"
#include "src/rnn/cpu/cells.h"

namespace planish::internal {

/// A block of weight_hh: rows of the order's columns, times the units of the state that they get.
/// Without heads, one block has all columns. With heads, a head has a block for each group of
/// gates. Blocks of different heads can share columns at their ends, where a vector has units of
/// both; a block's weights of another head's units are zeros.
struct HiddenBlock {
  int64_t head;
  int64_t column, columns;  ///< the first column, and their number
  int64_t unit, units;      ///< the first unit, and their number
};

/// Parameters of a layer in the order of order.h. Weights are packed for matrix products. Other
/// parameters are padded, with ones and zeros for absent ones.
template <class T>
class PackedLayer {
 public:
  /// Packs all parameters except the weights. PackWeights packs those for forward, as `type`.
  /// PackTransposed packs those for backward, weight_ih only if `dx`. Memory that is large enough
  /// is reused.
  void Pack(Cell cell, const RnnShape& shape, const RnnParams<const T>& params);
  void PackWeights(const RnnParams<const T>& params, const ParallelFor& parallel_for,
                   WeightType type = WeightType::kFull);
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
  const PackedMatrix<T>& ih() const { return ih_; }  ///< [columns, I]
  const std::vector<HiddenBlock>& blocks() const { return blocks_; }
  /// Returns whether the blocks of different heads share no columns.
  bool blocks_are_disjoint() const { return shape_.hidden / shape_.heads % call_.order.lanes == 0; }
  /// Returns the row of weight_hh for column j of a block; -1 for padding and other heads.
  int64_t RowIn(const HiddenBlock& block, int64_t j) const {
    const int64_t row = rows()[block.column + j];
    const bool own = row >= 0 && row % shape_.hidden / (shape_.hidden / shape_.heads) == block.head;
    return own ? row : -1;
  }
  /// Returns the number of blocks that are packed for forward.
  size_t hh_blocks() const { return hh_.size(); }
  /// Returns the weights of a block, [columns, units].
  const PackedMatrix<T>& hh(size_t block) const { return hh_[block]; }
  const PackedMatrix<T>& hr() const { return hr_; }                        ///< [O, H]
  const PackedMatrix<T>& ih_transposed() const { return ih_transposed_; }  ///< [I, columns]
  /// Returns the transposed weights of a block, [units, columns].
  const PackedMatrix<T>& hh_transposed(size_t block) const { return hh_transposed_[block]; }
  const PackedMatrix<T>& hr_transposed() const { return hr_transposed_; }  ///< [H, O]

  int64_t bytes() const {
    int64_t sum = elements_.bytes() + rows_.bytes();
    for (const PackedMatrix<T>* matrix : {&ih_, &hr_, &ih_transposed_, &hr_transposed_}) {
      sum += matrix->bytes();
    }
    for (const auto* matrices : {&hh_, &hh_transposed_}) {
      for (const PackedMatrix<T>& matrix : *matrices) sum += matrix.bytes();
    }
    return sum;
  }

 private:
  void SetBlocks();
  GemmMatrix<T> Projection(const RnnParams<const T>& params) const;

  Cell cell_{};
  RnnShape shape_;
  CellKernels<T> kernels_{};
  CellCall<T> call_{};
  Buffer<T> elements_;
  Buffer<int64_t> rows_;
  std::vector<HiddenBlock> blocks_;
  PackedMatrix<T> ih_, hr_, ih_transposed_, hr_transposed_;
  std::vector<PackedMatrix<T>> hh_, hh_transposed_;  ///< of each block
};

}  // namespace planish::internal

#endif  // PLANISH_SRC_RNN_CPU_PACKED_H_
