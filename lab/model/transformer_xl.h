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
#include "lab/model/residual.h"

namespace planish::lab {

/// Memory of earlier segments: for each layer its inputs [B, M, width], oldest first; empty before
/// the first segment. No gradient flows into it.
using SegmentMemory = std::vector<at::Tensor>;

/// Attention range of a model.
struct Reach {
  int64_t memory = 0;  ///< maximum number of positions remembered after a segment
  int64_t window = 0;  ///< positions that each one sees, including itself; 0: all
  int64_t clamp = 0;   ///< larger distances count as this one; 0: no limit
};

/// Transformer-XL (Dai et al. 2019): a decoder with relative positions and a memory of earlier
/// segments, with any placement of its norms. docs/tasks/enwik8.md describes shared weights and
/// dropout.
class TransformerXl : public torch::nn::Module {
 public:
  struct Options {
    int64_t symbols = 0;  ///< V
    int64_t layers = 12;
    int64_t width = 512;
    int64_t heads = 8;
    int64_t head_width = 64;
    int64_t inner = 2048;  ///< hidden units of the feed-forward half
    double dropout = 0.1;
    double attention_dropout = 0;  ///< of attention's probabilities
    std::string norm = "layer";
    NormOptions norm_options;
    Placement placement = Placement::kPost;
    bool qk_norm = false;     ///< normalizes each head's queries and keys; not those of positions
    double deviation = 0.02;  ///< standard deviation of the normal distribution of initial weights
  };

  explicit TransformerXl(const Options& options);
  ~TransformerXl() override;

  /// Maps x [B, T] int64, symbols that follow `memory`, to logits [B * T, V] of the next symbols,
  /// row b * T + t. Updates `memory` for the next segment.
  at::Tensor forward(const at::Tensor& x, SegmentMemory& memory, const Reach& reach);

 private:
  class Layer;

  // Returns the projected rows of the distances `farthest` .. 0.
  at::Tensor Sinusoids(int64_t farthest, int64_t clamp) const;

  Options options_;
  torch::nn::Embedding embedding_;
  std::shared_ptr<NormModule> embedding_norm_, final_norm_;  // null if the placement has none
  at::Tensor output_bias_, content_bias_, position_bias_;
  std::vector<std::shared_ptr<Layer>> layers_;
  at::Tensor frequencies_;  // [width / 2], of the sinusoids
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_MODEL_TRANSFORMER_XL_H_
