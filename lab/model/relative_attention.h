#ifndef PLANISH_LAB_MODEL_RELATIVE_ATTENTION_H_
#define PLANISH_LAB_MODEL_RELATIVE_ATTENTION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace planish::lab {

/// Options of RelativeAttention.
struct RelativeAttentionOptions {
  int64_t heads = 1;   ///< H
  int64_t window = 0;  ///< positions that each query sees, including itself; 0: all before it
  double dropout = 0;  ///< of the probabilities, drawn from the default generator
};

/// Computes causal attention with relative positions (Dai et al. 2019, section 3.3). For each of B
/// sequences and H heads of width d = W / H, T queries, and keys k_j and values w_j of M positions
/// of memory and the segment, over the j with 0 <= M + t - j (< window, if there is one),
///   score[t, j] = ((q_t + u) . k_j + (q_t + v) . r_{M + t - j}) / sqrt(d)
///   y_t = sum_j softmax_j(score[t, j]) w_j.
/// q, y [B, T, W]; kv [B, T, 2 W]: keys, then values; memory_kv [B, M, 2 W], undefined for M = 0.
/// r [M + T + 1, W]: row i has the distance M + T - i; row 0 is unused, and makes the conversion
/// from distances to positions a view. u, v [W]. First derivatives only.
at::Tensor RelativeAttention(const at::Tensor& q, const at::Tensor& kv, const at::Tensor& memory_kv,
                             const at::Tensor& r, const at::Tensor& u, const at::Tensor& v,
                             const RelativeAttentionOptions& options);

}  // namespace planish::lab

#endif  // PLANISH_LAB_MODEL_RELATIVE_ATTENTION_H_
