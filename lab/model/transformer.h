#ifndef PLANISH_LAB_MODEL_TRANSFORMER_H_
#define PLANISH_LAB_MODEL_TRANSFORMER_H_

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lab/model/linear.h"
#include "lab/model/norms.h"
#include "lab/model/residual.h"

// The Transformer (Vaswani et al. 2017) with any placement of its norms (residual.h). B, T, S, D,
// H: sequences, their padded length, that of the decoder's memory, width, heads. Sequences are
// padded at their end, and padding changes no result at a real position. Norms treat padded
// positions as rows, so every norm works except batch norm.
namespace planish::lab {

/// Distributions of the initial weights of linear layers; biases start at 0. A matrix [3D, D] or
/// [2D, D] is several stacked matrices.
enum class InitialWeights {
  kGlorot,   ///< uniform, variance 2 / (inputs + outputs) (Glorot & Bengio 2010), as fairseq
  kKaiming,  ///< uniform within 1 / sqrt(inputs), kaiming_uniform_(a = sqrt(5)) of PyTorch
  kKaimingAttention,  ///< kKaiming in attentions, kGlorot in feed-forward sublayers
};

/// Returns their names, kGlorot's first.
std::vector<std::string> InitialWeightsNames();

/// Returns the value with that name. Throws UsageError for an unknown name.
InitialWeights InitialWeightsOf(const std::string& name);

struct TransformerOptions {
  int64_t layers = 6;
  int64_t width = 512;
  int64_t heads = 8;                 ///< must divide width
  int64_t ffn = 2048;                ///< hidden units of the feed-forward sublayers, ReLU
  double dropout = 0.1;              ///< of each sublayer's result, directly before it is added
  double attention_dropout = 0;      ///< of attention weights
  double activation_dropout = 0;     ///< of the hidden units of the feed-forward sublayers
  std::string norm = "layer";        ///< all norms but the last
  std::string final_norm = "layer";  ///< the last norm of the stack of layers
  NormOptions norm_options;
  Placement placement = Placement::kPre;
  /// Normalizes the queries and keys of each head before their product (Henry et al. 2020; Dehghani
  /// et al. 2023). The heads of an attention share a norm for queries and one for keys.
  bool qk_norm = false;
  int64_t decoder_layers = 0;  ///< layers of the decoder that reads the encoder's output, if any
  InitialWeights init = InitialWeights::kGlorot;
};

/// Returns sines and cosines of positions 0 .. length - 1 [length, width] (Vaswani et al. 2017,
/// 3.5): element 2i is sin(p / 10000^(2i/width)), element 2i + 1 its cosine. `width` must be even.
at::Tensor SinusoidalPositions(int64_t length, int64_t width);

/// Returns the attention mask of padding: [B, 1, 1, longest], 0 at the first lengths[b] positions
/// of row b and -infinity at the others. Undefined, which means no mask, if no row has padding.
at::Tensor PaddingMask(const at::Tensor& lengths, int64_t longest);

/// Keys and values of an attention, both [B, H, S, D/H].
struct KeysValues {
  at::Tensor keys, values;
};

/// Norms of the queries and keys of each head (TransformerOptions::qk_norm), or none.
class QueryKeyNorms {
 public:
  /// Registers query_norm and key_norm in `attention` if the option is set.
  QueryKeyNorms(torch::nn::Module& attention, const TransformerOptions& options);

  /// [B, H, T, D/H] -> [B, H, T, D/H].
  at::Tensor Queries(const at::Tensor& q) const { return query_ ? query_->forward(q) : q; }
  at::Tensor Keys(const at::Tensor& k) const { return key_ ? key_->forward(k) : k; }

 private:
  std::shared_ptr<NormModule> query_, key_;
};

/// Self-attention with one GEMM for queries, keys and values. `beta` is ResidualFactors::beta.
class SelfAttention final : public torch::nn::Module {
 public:
  explicit SelfAttention(const TransformerOptions& options, double beta = 1);

  /// x [B, T, D] -> [B, T, D]. `mask` is from PaddingMask; with `causal`, no position sees a later
  /// one.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask, bool causal);

  /// Computes the next position of each sequence. x [B, 1, D] attends to itself and to the
  /// positions in `past` (undefined tensors: none). Appends its key and value to `past`.
  at::Tensor Step(const at::Tensor& x, KeysValues& past);

 private:
  TransformerOptions options_;
  Linear qkv_, out_;
  QueryKeyNorms norms_;
};

/// Attention to the positions of another sequence. `beta` is ResidualFactors::beta.
class CrossAttention final : public torch::nn::Module {
 public:
  explicit CrossAttention(const TransformerOptions& options, double beta = 1);

  /// Returns the keys and values of memory [B, S, D].
  KeysValues Project(const at::Tensor& memory);

  /// x [B * k, T, D] -> [B * k, T, D]. Rows b * k to b * k + k - 1 attend to row b of the memory,
  /// whose PaddingMask is `mask`.
  at::Tensor forward(const at::Tensor& x, const KeysValues& memory, const at::Tensor& mask);

 private:
  TransformerOptions options_;
  Linear query_, kv_, out_;
  QueryKeyNorms norms_;
};

/// Linear, ReLU, linear, position by position. `beta` is ResidualFactors::beta.
class FeedForward final : public torch::nn::Module {
 public:
  explicit FeedForward(const TransformerOptions& options, double beta = 1);
  at::Tensor forward(const at::Tensor& x);

 private:
  double dropout_;
  Linear hidden_, out_;
};

class EncoderLayer final : public torch::nn::Module {
 public:
  /// `last_norm` is the norm of the last sublayer.
  EncoderLayer(const TransformerOptions& options, const ResidualFactors& factors,
               const std::string& last_norm);
  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask);

 private:
  Residual attention_residual_;
  std::shared_ptr<SelfAttention> attention_;
  Residual ffn_residual_;
  std::shared_ptr<FeedForward> ffn_;
};

class DecoderLayer final : public torch::nn::Module {
 public:
  /// `last_norm` is the norm of the last sublayer.
  DecoderLayer(const TransformerOptions& options, const ResidualFactors& factors,
               const std::string& last_norm);
  at::Tensor forward(const at::Tensor& x, const KeysValues& memory, const at::Tensor& mask);
  at::Tensor Step(const at::Tensor& x, KeysValues& past, const KeysValues& memory,
                  const at::Tensor& mask);
  KeysValues Project(const at::Tensor& memory) { return cross_->Project(memory); }

 private:
  at::Tensor Rest(const at::Tensor& x, const KeysValues& memory, const at::Tensor& mask);

  Residual attention_residual_;
  std::shared_ptr<SelfAttention> attention_;
  Residual cross_residual_;
  std::shared_ptr<CrossAttention> cross_;
  Residual ffn_residual_;
  std::shared_ptr<FeedForward> ffn_;
};

/// Encoder layers and the norms before and after them. Parameters and norms are named
/// embedding_norm, 0.attention_norm, 0.attention_out_norm, 0.attention.qkv, 0.attention.out,
/// 0.attention.query_norm, 0.attention.key_norm, 0.ffn_norm, 0.ffn_out_norm, 0.ffn.hidden,
/// 0.ffn.out, ..., final_norm. Norms exist if the placement and qk_norm have them.
class TransformerEncoder final : public torch::nn::Module {
 public:
  explicit TransformerEncoder(const TransformerOptions& options);

  /// Maps x [B, T, D], embeddings with their positions, to [B, T, D]. `mask` is from PaddingMask.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& mask);

 private:
  std::shared_ptr<NormModule> embedding_norm_, final_norm_;
  std::vector<std::shared_ptr<EncoderLayer>> layers_;
};

/// State of step-by-step decoding. Rows b * k to b * k + k - 1 belong to row b of the memory. k is
/// 1 at first, and the width of a beam after Reorder.
struct DecoderState {
  std::vector<KeysValues> past;    ///< of each layer, the positions so far
  std::vector<KeysValues> memory;  ///< of each layer, from the encoder's output
  at::Tensor mask;                 ///< of the memory

  /// Replaces the positions so far of row i by those of the old row rows[i] (int64 [B * k]; k can
  /// change).
  void Reorder(const at::Tensor& rows);

  /// Replaces row b of the memory by the old row rows[b]. Reorder must make the positions so far
  /// match.
  void ReorderMemory(const at::Tensor& rows);
};

/// Decoder layers and the norms before and after them. Parameters and norms are named like the
/// encoder's, with 0.cross_norm, 0.cross.query, 0.cross.kv, 0.cross.out and so on between attention
/// and feed-forward.
class TransformerDecoder final : public torch::nn::Module {
 public:
  explicit TransformerDecoder(const TransformerOptions& options);

  /// Decodes whole sequences causally: x [B, T, D], memory [B, S, D] and its PaddingMask -> [B, T,
  /// D].
  at::Tensor forward(const at::Tensor& x, const at::Tensor& memory, const at::Tensor& mask);

  /// Returns the state before the first position.
  DecoderState Start(const at::Tensor& memory, const at::Tensor& mask);

  /// Decodes the next position of every sequence: x [B * k, 1, D] -> [B * k, 1, D]. The result
  /// equals the last position of `forward` on the sequences so far.
  at::Tensor Step(const at::Tensor& x, DecoderState& state);

 private:
  std::shared_ptr<NormModule> embedding_norm_, final_norm_;
  std::vector<std::shared_ptr<DecoderLayer>> layers_;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_MODEL_TRANSFORMER_H_
