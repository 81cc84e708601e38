#include "src/rnn/cpu/sums.h"

#include <algorithm>
#include <utility>

#include "src/base/loop.h"

namespace planish::internal {
namespace {

/// Copies the first `width` elements of each column, `stride` apart, to the column's row of `to`.
template <class T>
void WriteRows(const PackedLayer<T>& layer, const T* from, int64_t stride, int64_t width,
               const ParallelFor& parallel_for, T* to) {
  if (!to) return;
  RunParallel(parallel_for, layer.order().columns, GrainFor(width),
              [&](int64_t begin, int64_t end) {
                for (int64_t j = begin; j < end; ++j) {
                  const int64_t row = layer.rows()[j];
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
void ParamSums<T>::Reserve(int64_t capacity, bool own_x, bool weight_ih, bool weight_hh) {
  const Order& order = layer_->order();
  const int64_t inputs = layer_->inputs();
  const int64_t rows = std::max(capacity, waiting_ > 0 ? capacity_ : 0);
  Grow(dz_, (layer_->call().recipe.uses_only_sum() ? 1 : 2) * rows * order.columns);
  Grow(h_before_, rows * order.padded);
  if (own_x) Grow(x_, rows * inputs);
  if (weight_ih) Grow(dweight_ih_, order.columns * inputs);
  if (weight_hh) Grow(dweight_hh_, order.columns * order.padded);
  ReserveTransposedScratch<T>(rows, std::max(weight_ih ? inputs : 0, weight_hh ? order.padded : 0),
                              scratch_);
}

template <class T>
typename ParamSums<T>::Rows ParamSums<T>::Add(int64_t rows, int64_t capacity, bool own_x) {
  const Order& order = layer_->order();
  const bool shared = layer_->call().recipe.uses_only_sum();
  if (waiting_ == 0) capacity_ = std::max(rows, capacity);
  T* const dz = dz_.Get((shared ? 1 : 2) * capacity_ * order.columns);
  T* const h_before = h_before_.Get(capacity_ * order.padded);
  T* const x = own_x ? x_.Get(capacity_ * layer_->inputs()) : nullptr;
  waiting_ += rows;
  return {.dzx = dz + first() * order.columns,
          .dzh = dz + (first() + (shared ? 0 : capacity_)) * order.columns,
          .h_before = h_before + first() * order.padded,
          .x = own_x ? x + first() * layer_->inputs() : nullptr};
}

template <class T>
void ParamSums<T>::Multiply(const T* x, bool weight_ih, bool weight_hh,
                            const ParallelFor& parallel_for) {
  if (waiting_ == 0) return;
  const Order& order = layer_->order();
  const auto add_product = [&](const T* dz, const T* b, int64_t k, Buffer<T>& to) {
    MultiplyTransposed<T>({.m = waiting_,
                           .n = order.columns,
                           .k = k,
                           .a = dz + first() * order.columns,
                           .a_stride = order.columns,
                           .b = b,
                           .b_stride = k,
                           .c = to.Get(order.columns * k),
                           .c_stride = k,
                           .accumulate = any_},
                          scratch_, parallel_for);
  };
  const int64_t inputs = layer_->inputs();
  const T* const dzh =
      dz_.data() + (layer_->call().recipe.uses_only_sum() ? 0 : capacity_ * order.columns);
  if (weight_ih) {
    add_product(dz_.data(), x ? x : x_.data() + first() * inputs, inputs, dweight_ih_);
  }
  if (weight_hh) {
    add_product(dzh, h_before_.data() + first() * order.padded, order.padded, dweight_hh_);
  }
  any_ = true;
  waiting_ = 0;
}

template <class T>
void ParamSums<T>::Write(const RnnParams<T>& d, const ParallelFor& parallel_for) {
  Groups(1);  // can allocate, so it precedes all writes
  const CellRecipe& recipe = layer_->call().recipe;
  const Order& order = layer_->order();
  const int64_t inputs = layer_->inputs(), padded = order.padded, hidden = order.hidden;
  const auto write_rows = [&](const T* from, int64_t stride, int64_t width, T* to) {
    WriteRows(*layer_, from, stride, width, parallel_for, to);
  };
  const auto write_weight = [&](Buffer<T>& from, int64_t stride, int64_t width, T* to) {
    if (any_) {
      write_rows(from.data(), stride, width, to);
    } else if (to) {
      std::fill_n(to, recipe.gates() * hidden * width, T{0});  // no steps
    }
  };
  write_weight(dweight_ih_, inputs, inputs, d.weight_ih);
  write_weight(dweight_hh_, padded, hidden, d.weight_hh);
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
  for (const Buffer<T>* buffer : {&dz_, &h_before_, &x_, &dweight_ih_, &dweight_hh_}) {
    sum += buffer->bytes();
  }
  for (const Buffer<T>& group : group_memory_) sum += group.bytes();
  return sum;
}

template class ParamSums<float>;
template class ParamSums<double>;

}  // namespace planish::internal
