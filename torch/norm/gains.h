#ifndef PLANISH_TORCH_NORM_GAINS_H_
#define PLANISH_TORCH_NORM_GAINS_H_

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones_like.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

// Weights and biases of norms over rows that have more dimensions than the features. These
// dimensions broadcast to x's. The kernels support several gains along the first or the last
// dimensions of the rows.
namespace planish {

/// Returns whether a weight or bias has dimensions before the features.
inline bool HasGains(const at::Tensor& t) { return t.defined() && t.dim() > 1; }
inline bool HasGains(const std::optional<at::Tensor>& t) { return t && HasGains(*t); }

/// Returns the product of the sizes of dimensions [first, last) of t.
inline c10::SymInt SizeOf(const at::Tensor& t, int64_t first, int64_t last) {
  c10::SymInt n = 1;
  for (int64_t d = first; d < last; ++d) n *= t.sym_size(d);
  return n;
}

/// The range of dimensions [first, last) of x [..., features] along which the gain varies; empty if
/// all rows have one gain.
struct GainDims {
  int64_t first = 0, last = 0;
  bool empty() const { return last == 0; }
};

/// Returns the range of dimensions of x along which `weight`, which broadcasts to x, varies.
inline GainDims GainDimsOf(const at::Tensor& x, const at::Tensor& weight) {
  GainDims dims;
  const int64_t offset = x.dim() - weight.dim();
  for (int64_t d = offset; d + 1 < x.dim(); ++d) {
    if (weight.sym_size(d - offset) == 1) continue;
    if (dims.empty()) dims.first = d;
    dims.last = d + 1;
  }
  return dims;
}

/// Returns whether neighbouring rows of x have different gains. The statistics are then ordered by
/// gain (planish/norm.h).
inline bool AreInterleaved(const at::Tensor& x, const GainDims& dims) {
  return !dims.empty() && SizeOf(x, dims.last, x.dim() - 1) == 1 && SizeOf(x, 0, dims.first) != 1;
}

/// Returns whether `t` ends with the last `dims` sizes of x, and its other sizes broadcast to x's.
inline bool BroadcastsTo(const at::Tensor& t, const at::Tensor& x, int64_t dims) {
  const int64_t offset = x.dim() - t.dim(), more = t.dim() - dims;
  if (offset < 0 || more < 0) return false;
  for (int64_t d = 0; d < t.dim(); ++d) {
    if (t.sym_size(d) != x.sym_size(d + offset) && (d >= more || t.sym_size(d) != 1)) return false;
  }
  return true;
}

/// Returns whether the kernels support the layout of a weight that broadcasts to x.
inline bool KernelsTake(const at::Tensor& x, const at::Tensor& weight) {
  if (!HasGains(weight)) return true;
  const GainDims dims = GainDimsOf(x, weight);
  const int64_t rows = x.dim() - 1;
  if (dims.empty()) return true;
  for (int64_t d = dims.first; d < dims.last; ++d) {
    if (weight.sym_size(d - x.dim() + weight.dim()) != x.sym_size(d)) return false;
  }
  return SizeOf(x, 0, dims.first) == 1 || SizeOf(x, dims.last, rows) == 1;
}

/// Returns the statistics' dimensions in the order of memory, outermost first.
inline std::vector<int64_t> StatisticsOrder(const at::Tensor& x, const at::Tensor& weight) {
  const GainDims dims = GainDimsOf(x, weight);
  std::vector<int64_t> order = {0}, others;
  const bool moved = AreInterleaved(x, dims);
  for (int64_t d = 0; d + 1 < x.dim(); ++d) {
    (moved && (d < dims.first || d >= dims.last) ? others : order).push_back(d + 1);
  }
  order.insert(order.end(), others.begin(), others.end());
  return order;
}

inline std::vector<int64_t> InverseOf(const std::vector<int64_t>& order) {
  std::vector<int64_t> inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    inverse[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  }
  return inverse;
}

/// Reshapes x, weight and bias for norm_forward, and its results back. Flattens several normalized
/// dimensions. If dimensions with several gains are between others, moves them to the front.
class Rows {
 public:
  /// `dims` dimensions of x are normalized. weight and bias broadcast to x.
  Rows(const at::Tensor& x, const std::optional<at::Tensor>& weight,
       const std::optional<at::Tensor>& bias, int64_t dims)
      : dims_(dims), weight_(weight), bias_(bias) {
    if (dims > 1 || HasGains(weight) || HasGains(bias)) sizes_ = x.sym_sizes().vec();
    const auto has_more = [&](const auto& t) { return t && t->dim() > dims; };
    if (has_more(weight) || has_more(bias)) SetGains(x);
    for (std::optional<at::Tensor>* t : {&weight_, &bias_}) {
      if (*t && dims_ > 1) *t = (*t)->flatten((*t)->dim() - dims_);
    }
  }

  const std::optional<at::Tensor>& weight() const { return weight_; }
  const std::optional<at::Tensor>& bias() const { return bias_; }

  /// Reshapes x, or a tensor of its sizes, for norm_forward.
  at::Tensor In(const at::Tensor& t) const {
    const at::Tensor moved = order_.empty() ? t : t.permute(order_);
    return dims_ > 1 ? moved.flatten(moved.dim() - dims_) : moved;
  }
  /// Reshapes a result to x's sizes. It is contiguous.
  at::Tensor Out(const at::Tensor& t) const {
    return order_.empty() && dims_ == 1 ? t : Reshaped(t, sizes_);
  }
  /// Reshapes a result with one element for each row, [..., 1], to x's sizes, of which the
  /// normalized ones are 1. It is contiguous.
  at::Tensor OutOfRows(const at::Tensor& t) const {
    if (order_.empty() && dims_ == 1) return t.contiguous();
    std::vector<c10::SymInt> sizes = sizes_;
    std::fill(sizes.end() - dims_, sizes.end(), 1);
    return Reshaped(t.contiguous(), sizes);
  }

 private:
  /// Reshapes a contiguous result for norm_forward's x to `sizes`, in the order of the user's x.
  at::Tensor Reshaped(const at::Tensor& t, const std::vector<c10::SymInt>& sizes) const {
    if (order_.empty()) return t.view_symint(sizes);
    std::vector<c10::SymInt> ordered;
    for (const int64_t d : order_) ordered.push_back(sizes[static_cast<size_t>(d)]);
    return t.view_symint(ordered).permute(InverseOf(order_)).contiguous();
  }

  void SetGains(const at::Tensor& x) {
    std::vector<c10::SymInt> sizes(static_cast<size_t>(x.dim()), 1);
    for (const auto* t : {&weight_, &bias_}) {
      for (int64_t d = 1; *t && d <= (*t)->dim(); ++d) {
        if ((*t)->sym_size(-d) != 1) sizes[static_cast<size_t>(x.dim() - d)] = (*t)->sym_size(-d);
      }
    }
    std::vector<int64_t> gains, others;
    int64_t changes = 0;
    bool before = false;  // the last dimension has several gains
    for (int64_t d = 0; d < x.dim() - dims_; ++d) {
      const bool now = sizes[static_cast<size_t>(d)] != 1;
      const bool counts = x.sym_size(d) != 1;
      if (counts && gains.size() + others.size() > 0 && now != before) ++changes;
      if (counts) before = now;
      (now ? gains : others).push_back(d);
    }
    if (changes <= 1) {
      // Drops leading sizes of 1, because the values of a nested tensor have fewer dimensions.
      auto first = sizes.begin();
      while (sizes.end() - first > dims_ && *first == 1) ++first;
      sizes.erase(sizes.begin(), first);
    }
    const auto shaped = [&](const at::Tensor& t) {
      const int64_t more = t.dim() - static_cast<int64_t>(sizes.size());
      return (more > 0 ? t.flatten(0, more) : t).expand_symint(sizes);
    };
    if (bias_) bias_ = shaped(*bias_);
    // ones_like keeps the bias's class, such as DTensor.
    weight_ = weight_ ? shaped(*weight_) : at::ones_like(bias_->detach());
    if (changes <= 1) return;
    order_ = gains;
    order_.insert(order_.end(), others.begin(), others.end());
    for (int64_t d = x.dim() - dims_; d < x.dim(); ++d) order_.push_back(d);
    weight_ = weight_->permute(order_);
    if (bias_) bias_ = bias_->permute(order_);
  }

  std::vector<c10::SymInt> sizes_;
  int64_t dims_;
  std::optional<at::Tensor> weight_, bias_;
  std::vector<int64_t> order_;  // of x's dimensions; empty: unchanged
};

}  // namespace planish

#endif  // PLANISH_TORCH_NORM_GAINS_H_
