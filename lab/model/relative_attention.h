#ifndef PLANISH_LAB_MODEL_RELATIVE_ATTENTION_H_
#define PLANISH_LAB_MODEL_RELATIVE_ATTENTION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace planish::lab {

/// What RelativeAttention takes beside tensors.
struct RelativeAttentionOptions {
  int64_t heads = 1;   ///< H
  int64_t window = 0;  ///< positions that each query sees, itself among them; 0: all before it
  double dropout = 0;  ///< of the probabilities, drawn from the default generator
};

/// Causal attention that knows positions by their distance, over segments with a memory (Dai et al.
/// 2019, "Transformer-XL", section 3.3). B sequences, T queries, M positions of memory before them,
/// H heads of width d = W / H. For each sequence and head, with the keys k_j and values w_j of
/// memory and segment, j = 0 .. M + T - 1,
///
///   score[t, j] = ((q_t + u) . k_j + (q_t + v) . r_{M + t - j}) / sqrt(d)
///   y_t = sum_j softmax_j(score[t, j]) w_j    over 0 <= M + t - j, and < window where there is one
///
/// q [B, T, W]; kv [B, T, 2 W], keys and then values; memory_kv [B, M, 2 W], or undefined for M =
/// 0; r [M + T + 1, W], row i for the distance M + T - i (the first is never used: with it, scores
/// move from distances to positions without a copy); u and v [W], the biases of content and of
/// position. Gives y [B, T, W]. First derivatives only.
at::Tensor RelativeAttention(const at::Tensor& q, const at::Tensor& kv, const at::Tensor& memory_kv,
                             const at::Tensor& r, const at::Tensor& u, const at::Tensor& v,
                             const RelativeAttentionOptions& options);

}  // namespace planish::lab

#endif  // PLANISH_LAB_MODEL_RELATIVE_ATTENTION_H_
