#ifndef PLANISH_LAB_MODEL_TRANSFORMER_XL_H_
#define PLANISH_LAB_MODEL_TRANSFORMER_XL_H_

#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lab/model/norms.h"

namespace planish::lab {

/// What a layer remembers of the segments before, for each layer its inputs [B, M, width], oldest
/// first; empty before the first segment. No gradient flows into it.
using SegmentMemory = std::vector<at::Tensor>;

/// How far a model looks back.
struct Reach {
  int64_t memory = 0;  ///< positions that are remembered after a segment, at most
  int64_t window = 0;  ///< positions that each one sees, itself among them; 0: all that there are
  int64_t clamp = 0;   ///< greatest distance told from greater ones; 0: none
};

/// Transformer-XL (Dai et al. 2019): a decoder with relative positions and a memory of earlier
/// segments; embedding and output share their weights. As its released code has it: biases of
/// content and position that all layers share, embeddings times sqrt(width), dropout of embeddings,
/// sinusoids, what each half of a layer adds, the inner units and what the output reads; norms
/// after the sums, or, `pre_norm`, of what each half of a layer reads, without one at the end.
class TransformerXl : public torch::nn::Module {
 public:
  struct Options {
    int64_t symbols = 0;  ///< V
    int64_t layers = 12;
    int64_t width = 512;
    int64_t heads = 8;
    int64_t head_width = 64;
    int64_t inner = 2048;  ///< units between the two products of a feed-forward half
    double dropout = 0.1;
    double attention_dropout = 0;  ///< of attention's probabilities
    std::string norm = "layer";
    NormOptions norm_options;
    bool pre_norm = false;
    double deviation = 0.02;  ///< of the normal distribution that weights are drawn from
  };

  explicit TransformerXl(const Options& options);
  ~TransformerXl() override;

  /// x [B, T] int64, symbols that follow what is in `memory` -> logits [B * T, V], row b * T + t,
  /// of the symbols that follow them. `memory` then has what the next segment's should be.
  at::Tensor forward(const at::Tensor& x, SegmentMemory& memory, const Reach& reach);

 private:
  class Layer;

  // The projected rows are of the distances `farthest` .. 0.
  at::Tensor Sinusoids(int64_t farthest, int64_t clamp) const;

  Options options_;
  torch::nn::Embedding embedding_;
  at::Tensor output_bias_, content_bias_, position_bias_;
  std::vector<std::shared_ptr<Layer>> layers_;
  at::Tensor frequencies_;  // [width / 2], of the sinusoids
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_MODEL_TRANSFORMER_XL_H_
