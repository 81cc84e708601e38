#include "src/rnn/cpu/sums.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "src/base/loop.h"

namespace planish::internal {
namespace {

/// Copies the first `width` elements of each of `columns` columns, `stride` apart, to the row
/// row_of(column) of `to`, unless it is negative.
template <class T, class F>
void WriteRows(int64_t columns, const F& row_of, const T* from, int64_t stride, int64_t width,
               const ParallelFor& parallel_for, T* to) {
  if (!to) return;
  RunParallel(parallel_for, columns, GrainFor(width), [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j) {
      const int64_t row = row_of(j);
      if (row >= 0) std::copy_n(from + j * stride, width, to + row * width);
    }
  });
}

/// Resizes the buffer to at least n elements, keeping its contents, even if it throws.
template <class T>
void Grow(Buffer<T>& buffer, int64_t n) {
  const int64_t size = buffer.bytes() / static_cast<int64_t>(sizeof(T));
  if (n <= size) return;
  Buffer<T> larger;
  larger.Get(n);
  std::copy_n(buffer.data(), size, larger.data());
  buffer = std::move(larger);
}

}  // namespace

template <class T>
void ParamSums<T>::Reset(const PackedLayer<T>& layer) {
  layer_ = &layer;
  groups_.clear();
  any_ = false;
  capacity_ = waiting_ = 0;
}

template <class T>
const std::vector<CellSums<T>>& ParamSums<T>::Groups(int64_t groups) {
  const int64_t columns = layer_->order().columns, padded = layer_->order().padded;
  while (static_cast<int64_t>(groups_.size()) < groups) {
    if (group_memory_.size() == groups_.size()) group_memory_.emplace_back();
    T* const sums = group_memory_[groups_.size()].Get(size());
    std::fill_n(sums, size(), T{0});
    T* const of_units = sums + 3 * columns;
    groups_.push_back({sums, sums + columns, sums + 2 * columns, of_units, of_units + padded,
                       of_units + 2 * padded});
  }
  return groups_;
}

template <class T>
int64_t ParamSums<T>::HiddenWidth(const HiddenBlock& block) const {
  return layer_->shape().heads == 1 ? layer_->padded_outputs() : block.units;
}

template <class T>
int64_t ParamSums<T>::HiddenSize() const {
  int64_t size = 0;
  for (const HiddenBlock& block : layer_->blocks()) size += block.columns * HiddenWidth(block);
  return size;
}

template <class T>
void ParamSums<T>::Reserve(int64_t capacity, bool own_x, Weights weights) {
  const Order& order = layer_->order();
  const int64_t inputs = layer_->shape().inputs, projected = layer_->shape().projected;
  const int64_t padded_outputs = layer_->padded_outputs();
  const int64_t rows = std::max(capacity, waiting_ > 0 ? capacity_ : 0);
  Grow(dz_, (layer_->call().recipe.uses_only_sum() ? 1 : 2) * rows * order.columns);
  Grow(h_before_, rows * padded_outputs);
  if (projected > 0) {
    Grow(dprojected_, rows * padded_outputs);
    Grow(unprojected_, rows * order.padded);
  }
  if (own_x) Grow(x_, rows * inputs);
  const bool weight_hr = weights.hr && projected > 0;
  if (weights.ih) Grow(dweight_ih_, order.columns * inputs);
  if (weights.hh) Grow(dweight_hh_, HiddenSize());
  if (weight_hr) Grow(dweight_hr_, projected * order.padded);
  const int64_t widths[] = {weights.ih ? inputs : 0, weights.hh ? padded_outputs : 0,
                            weight_hr ? order.padded : 0};
  ReserveTransposedScratch<T>(rows, *std::max_element(std::begin(widths), std::end(widths)),
                              scratch_);
}

template <class T>
typename ParamSums<T>::Rows ParamSums<T>::Add(int64_t rows, int64_t capacity, bool own_x) {
  const Order& order = layer_->order();
  const bool shared = layer_->call().recipe.uses_only_sum();
  if (waiting_ == 0) capacity_ = std::max(rows, capacity);
  T* const dz = dz_.Get((shared ? 1 : 2) * capacity_ * order.columns);
  const int64_t inputs = layer_->shape().inputs, padded_outputs = layer_->padded_outputs();
  const bool projects = layer_->shape().projected > 0;
  T* const h_before = h_before_.Get(capacity_ * padded_outputs);
  T* const dprojected = projects ? dprojected_.Get(capacity_ * padded_outputs) : nullptr;
  T* const unprojected = projects ? unprojected_.Get(capacity_ * order.padded) : nullptr;
  T* const x = own_x ? x_.Get(capacity_ * inputs) : nullptr;
  waiting_ += rows;
  return {.dzx = dz + first() * order.columns,
          .dzh = dz + (first() + (shared ? 0 : capacity_)) * order.columns,
          .h_before = h_before + first() * padded_outputs,
          .dprojected = projects ? dprojected + first() * padded_outputs : nullptr,
          .unprojected = projects ? unprojected + first() * order.padded : nullptr,
          .x = own_x ? x + first() * inputs : nullptr};
}

template <class T>
void ParamSums<T>::Multiply(const T* x, Weights weights, const ParallelFor& parallel_for) {
  if (waiting_ == 0) return;
  const Order& order = layer_->order();
  // Adds a^T b, for `n` columns of the collected rows a and `k` columns of b.
  const auto add_product = [&](const T* a, int64_t a_stride, int64_t n, const T* b, int64_t k,
                               int64_t b_stride, T* to) {
    MultiplyTransposed<T>({.m = waiting_,
                           .n = n,
                           .k = k,
                           .a = a + first() * a_stride,
                           .a_stride = a_stride,
                           .b = b,
                           .b_stride = b_stride,
                           .c = to,
                           .c_stride = k,
                           .accumulate = any_},
                          scratch_, parallel_for);
  };
  const int64_t inputs = layer_->shape().inputs, projected = layer_->shape().projected;
  const int64_t columns = order.columns, padded_outputs = layer_->padded_outputs();
  const T* const dzh =
      dz_.data() + (layer_->call().recipe.uses_only_sum() ? 0 : capacity_ * order.columns);
  if (weights.ih) {
    add_product(dz_.data(), columns, columns, x ? x : x_.data() + first() * inputs, inputs, inputs,
                dweight_ih_.Get(columns * inputs));
  }
  if (weights.hh) {
    T* to = dweight_hh_.Get(HiddenSize());
    for (const HiddenBlock& block : layer_->blocks()) {
      const int64_t width = HiddenWidth(block);
      add_product(dzh + block.column, columns, block.columns,
                  h_before_.data() + first() * padded_outputs + block.unit, width, padded_outputs,
                  to);
      to += block.columns * width;
    }
  }
  if (weights.hr && projected > 0) {
    add_product(dprojected_.data(), padded_outputs, projected,
                unprojected_.data() + first() * order.padded, order.padded, order.padded,
                dweight_hr_.Get(projected * order.padded));
  }
  any_ = true;
  waiting_ = 0;
}

template <class T>
void ParamSums<T>::Write(const RnnParams<T>& d, const ParallelFor& parallel_for) {
  Groups(1);  // can allocate, so it precedes all writes
  const CellRecipe& recipe = layer_->call().recipe;
  const Order& order = layer_->order();
  const int64_t hidden = order.hidden, inputs = layer_->shape().inputs;
  const int64_t projected = layer_->shape().projected;
  const auto write_rows = [&](const T* from, int64_t stride, int64_t width, T* to) {
    WriteRows(
        order.columns, [&](int64_t j) { return layer_->rows()[j]; }, from, stride, width,
        parallel_for, to);
  };
  const int64_t rows = recipe.gates() * hidden;
  if (any_) {
    write_rows(dweight_ih_.data(), inputs, inputs, d.weight_ih);
    const T* from = dweight_hh_.data();
    for (const HiddenBlock& block : layer_->blocks()) {
      if (!d.weight_hh) break;
      WriteRows(
          block.columns, [&](int64_t j) { return layer_->RowIn(block, j); }, from,
          HiddenWidth(block), block.units, parallel_for, d.weight_hh);
      from += block.columns * HiddenWidth(block);
    }
  } else {  // no steps
    if (d.weight_ih) std::fill_n(d.weight_ih, rows * inputs, T{0});
    if (d.weight_hh) std::fill_n(d.weight_hh, rows * layer_->blocks()[0].units, T{0});
  }
  for (int64_t row = 0; d.weight_hr && row < projected; ++row) {
    T* const to = d.weight_hr + row * hidden;
    any_ ? std::copy_n(dweight_hr_.data() + row * order.padded, hidden, to)
         : std::fill_n(to, hidden, T{0});
  }
  T* const all_sums = group_memory_[0].data();
  for (size_t g = 1; g < groups_.size(); ++g) {
    T* const from = group_memory_[g].data();
    for (int64_t j = 0; j < size(); ++j) all_sums[j] += from[j];
  }
  groups_.resize(1);  // now contains the sums of all groups
  const CellSums<T>& all = groups_[0];
  write_rows(all.gain_ih, 1, 1, d.ln_ih_weight);
  write_rows(all.gain_ih, 1, 1, d.ln_weight);
  write_rows(all.gain_hh, 1, 1, d.ln_hh_weight);
  for (T* bias : {d.bias, d.ln_bias, d.ln_ih_bias, d.ln_hh_bias}) {
    write_rows(all.bias, 1, 1, bias);
  }
  const auto write = [&](const T* from, T* to) {
    if (to) std::copy_n(from, hidden, to);
  };
  if (recipe.splits_n()) write(all.bias_hn, d.ln_hh_bias ? d.ln_hh_bias + 2 * hidden : nullptr);
  write(all.bias_hn, d.bias_hn);
  write(all.gain_c, d.ln_c_weight);
  write(all.bias_c, d.ln_c_bias);
}

template <class T>
int64_t ParamSums<T>::bytes() const {
  int64_t sum = scratch_.bytes();
  for (const Buffer<T>* buffer : {&dz_, &h_before_, &x_, &dprojected_, &unprojected_, &dweight_ih_,
                                  &dweight_hh_, &dweight_hr_}) {
    sum += buffer->bytes();
  }
  for (const Buffer<T>& group : group_memory_) sum += group.bytes();
  return sum;
}

template class ParamSums<float>;
template class ParamSums<double>;

}  // namespace planish::internal
