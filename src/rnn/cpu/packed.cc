#include "src/rnn/cpu/packed.h"

#include <algorithm>
#include <utility>

namespace planish::internal {

template <class T>
void PackedLayer<T>::Pack(Cell cell, const RnnShape& shape, const RnnParams<const T>& params) {
  const int64_t hidden = shape.hidden;
  cell_ = cell;
  shape_ = {0, 0, shape.inputs, hidden, shape.projected, shape.heads};
  kernels_ = Cells<T>();
  call_.recipe = RecipeOf(cell);
  call_.order = OrderOf<T>(call_.recipe, hidden, kernels_.lanes);
  const CellRecipe& recipe = call_.recipe;
  const Order& order = call_.order;
  SetBlocks();
  const int64_t elements = 3 * order.columns + 3 * order.padded;
  T* next = elements_.Get(elements);
  std::fill_n(next, elements, T{0});
  int64_t* const rows = rows_.Get(order.columns);
  for (int64_t j = 0; j < order.columns; ++j) rows[j] = order.RowOf(j);
  const auto take = [&](int64_t n) {
    T* begin = next;
    next += n;
    return begin;
  };
  // Adds an array [G] to a padded one, or `otherwise` if there is none.
  const auto add_columns = [&](const T* from, T otherwise, T* to) {
    if (!from && otherwise == 0) return;
    for (int64_t j = 0; j < order.columns; ++j) {
      if (rows[j] >= 0) to[j] += from ? from[rows[j]] : otherwise;
    }
  };
  const auto add_units = [&](const T* from, T otherwise, T* to) {
    for (int64_t k = 0; k < hidden; ++k) to[k] += from ? from[k] : otherwise;
  };
  T *gain_ih = take(order.columns), *gain_hh = take(order.columns), *bias = take(order.columns);
  T *bias_hn = take(order.padded), *gain_c = take(order.padded), *bias_c = take(order.padded);
  const bool joint = recipe.sums == Sums::kJoint;
  add_columns(joint ? params.ln_weight : params.ln_ih_weight, T{1}, gain_ih);
  add_columns(params.ln_hh_weight, T{1}, gain_hh);
  for (const T* added : {params.bias, params.ln_ih_bias, params.ln_hh_bias, params.ln_bias}) {
    add_columns(added, T{0}, bias);
  }
  if (recipe.splits_n()) {
    // r multiplies the bias of ah_n, so it must not be added to ax_n.
    const T* of_sums = params.ln_hh_bias ? params.ln_hh_bias + 2 * hidden : nullptr;
    add_units(of_sums, T{0}, bias_hn);
    add_units(params.bias_hn, T{0}, bias_hn);
    const Order::Gate& n = order.gate[2];
    for (int64_t k = 0; of_sums && k < hidden; ++k) {
      T sum = 0;
      for (const T* added : {params.bias, params.ln_ih_bias}) {
        if (added) sum += added[2 * hidden + k];
      }
      bias[n.begin + k] = sum;
    }
  }
  add_units(params.ln_c_weight, T{1}, gain_c);
  add_units(params.ln_c_bias, T{0}, bias_c);
  call_.params = {gain_ih, gain_hh, bias, bias_hn, gain_c, bias_c};
}

template <class T>
void PackedLayer<T>::SetBlocks() {
  const Order& order = call_.order;
  blocks_.clear();
  if (shape_.heads == 1) {
    blocks_.push_back({0, 0, order.columns, 0, shape_.outputs()});
  }
  const int64_t units = shape_.hidden / shape_.heads;
  for (int64_t head = 0; shape_.heads > 1 && head < shape_.heads; ++head) {
    const int64_t first = head * units / order.lanes;  // vectors of units
    const int64_t last = ((head + 1) * units + order.lanes - 1) / order.lanes;
    for (int g = 0; g < order.groups; ++g) {
      const Order::Group& group = order.group[static_cast<size_t>(g)];
      const int64_t vector = group.gates * order.lanes;
      blocks_.push_back(
          {head, group.begin + first * vector, (last - first) * vector, head * units, units});
    }
  }
}

template <class T>
GemmMatrix<T> PackedLayer<T>::Projection(const RnnParams<const T>& params) const {
  const int64_t hidden = shape_.hidden;
  return {.data = params.weight_hr, .n = shape_.projected, .k = hidden, .stride = hidden};
}

template <class T>
void PackedLayer<T>::PackWeights(const RnnParams<const T>& params, const ParallelFor& parallel_for,
                                 WeightType type) {
  const Order& order = call_.order;
  const int64_t n = call_.recipe.gates() * order.hidden;
  const auto pack = [&](const T* weight, int64_t k, int64_t columns, const auto& row_of,
                        PackedMatrix<T>& to) {
    to.Pack({.data = weight, .n = n, .k = k, .stride = k}, columns, row_of, parallel_for, type);
  };
  pack(
      params.weight_ih, shape_.inputs, order.columns, [this](int64_t j) { return this->rows()[j]; },
      ih_);
  hh_.resize(blocks_.size());
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const HiddenBlock& block = blocks_[i];
    pack(
        params.weight_hh, block.units, block.columns,
        [&](int64_t j) { return this->RowIn(block, j); }, hh_[i]);
  }
  if (shape_.projected > 0) {
    hr_.Pack(Projection(params), shape_.projected, nullptr, parallel_for, type);
  }
}

template <class T>
void PackedLayer<T>::PackTransposed(const RnnParams<const T>& params, bool dx,
                                    const ParallelFor& parallel_for) {
  const Order& order = call_.order;
  const int64_t rows = call_.recipe.gates() * order.hidden;
  const auto pack = [&](const T* weight, int64_t k, int64_t columns, const auto& row_of,
                        PackedMatrix<T>& to) {
    to.Pack({.data = weight, .n = k, .k = rows, .stride = k, .transposed = true}, columns, row_of,
            parallel_for);
  };
  hh_transposed_.resize(blocks_.size());
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const HiddenBlock& block = blocks_[i];
    pack(
        params.weight_hh, block.units, block.columns,
        [&](int64_t j) { return this->RowIn(block, j); }, hh_transposed_[i]);
  }
  if (dx) {
    pack(
        params.weight_ih, shape_.inputs, order.columns,
        [this](int64_t j) { return this->rows()[j]; }, ih_transposed_);
  }
  if (shape_.projected == 0) return;
  GemmMatrix<T> transposed = Projection(params);
  std::swap(transposed.n, transposed.k);
  transposed.transposed = true;
  hr_transposed_.Pack(transposed, parallel_for);
}

template class PackedLayer<float>;
template class PackedLayer<double>;

}  // namespace planish::internal
